/* See watch_event.h. */
#include "watch_event.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

static const char *const kind_names[WATCH_KINDS] = {
	[WATCH_CREATE] = "create", [WATCH_WRITE] = "write", [WATCH_REMOVE] = "remove",
	[WATCH_RENAME] = "rename", [WATCH_CHMOD] = "chmod",
};

const char *watch_kind_name(enum watch_kind kind)
{
	return kind_names[kind];
}

int watch_kind_parse(const char *name, enum watch_kind *ret)
{
	for (size_t i = 0; i < WATCH_KINDS; i++) {
		if (strcmp(name, kind_names[i]) == 0) {
			*ret = (enum watch_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

static struct pending_event *find(struct pending *p, const char *path)
{
	struct pending_event *e;

	HASH_FIND_STR(p->by_path, path, e);
	return e;
}

/* Later events of the path start anew instead of being merged into e. */
static void finish(struct pending *p, struct pending_event *e)
{
	e->overtaken = true;
	HASH_DEL(p->by_path, e);
}

static size_t pending_bytes(const struct pending_event *e)
{
	return sizeof(*e) + strlen(e->path) + 1 + (e->old ? strlen(e->old) + 1 : 0);
}

bool pending_full(const struct pending *p)
{
	return p->count >= PENDING_MAX_EVENTS || p->bytes >= PENDING_MAX_BYTES;
}

static int append(struct pending *p, enum watch_kind kind, const char *path, const char *old,
		  bool is_dir, double timestamp)
{
	size_t len = strlen(path), old_len = old ? strlen(old) + 1 : 0;
	struct pending_event *e = calloc(1, sizeof(*e) + len + 1 + old_len);

	if (!e)
		return -ENOMEM;
	e->kind = kind;
	e->is_dir = is_dir;
	e->fresh = kind == WATCH_CREATE;
	e->epoch = p->epoch;
	e->timestamp = timestamp;
	memcpy(e->path, path, len + 1);
	if (old)
		e->old = memcpy(e->path + len + 1, old, old_len);
	DL_APPEND(p->list, e);
	p->count++;
	p->bytes += pending_bytes(e);
	HASH_ADD_KEYPTR(hh, p->by_path, e->path, len, e);
	return 0;
}

/*
 * Whether the path is no longer what it was: it changed its type, or a
 * directory came back. "write" would hide that all that was below is gone.
 */
static bool replaced(const struct pending_event *e, enum watch_kind kind, bool is_dir)
{
	if (e->is_dir != is_dir)
		return true;
	return is_dir && e->kind == WATCH_REMOVE && kind != WATCH_REMOVE;
}

static enum watch_kind merge(const struct pending_event *e, enum watch_kind kind)
{
	if (kind == WATCH_REMOVE)
		return WATCH_REMOVE;
	switch (e->kind) {
	case WATCH_REMOVE:
		/* The link count changes after the name is gone. */
		if (kind == WATCH_CHMOD)
			return WATCH_REMOVE;
		return e->fresh ? WATCH_CREATE : WATCH_WRITE;
	case WATCH_CHMOD:
		return kind == WATCH_CHMOD ? WATCH_CHMOD : WATCH_WRITE;
	default:
		return e->kind;
	}
}

int pending_add(struct pending *p, enum watch_kind kind, const char *path, bool is_dir,
		double timestamp)
{
	struct pending_event *e = find(p, path);

	if (e && replaced(e, kind, is_dir)) {
		/* What is pending for paths below is about others. */
		p->epoch++;
	} else if (e && e->epoch == p->epoch && e->kind != WATCH_RENAME) {
		e->kind = merge(e, kind);
		return 0;
	}
	if (e)
		finish(p, e);
	return append(p, kind, path, NULL, is_dir, timestamp);
}

int pending_rename(struct pending *p, const char *old, const char *path, bool is_dir,
		   double timestamp)
{
	struct pending_event *e;

	e = find(p, old);
	if (e)
		finish(p, e);
	e = find(p, path);
	if (e)
		finish(p, e);
	/* A directory takes everything below it along: all that is pending is
	 * from before, and one number is cheaper than looking for prefixes. */
	if (is_dir)
		p->epoch++;
	return append(p, WATCH_RENAME, path, old, is_dir, timestamp);
}

struct pending_event *pending_pop(struct pending *p)
{
	struct pending_event *e = p->list;

	if (!e)
		return NULL;
	DL_DELETE(p->list, e);
	p->count--;
	p->bytes -= pending_bytes(e);
	if (!e->overtaken)
		HASH_DEL(p->by_path, e);
	if (e->epoch != p->epoch)
		e->overtaken = true;
	return e;
}

void pending_clear(struct pending *p)
{
	struct pending_event *e, *tmp;

	HASH_CLEAR(hh, p->by_path);
	DL_FOREACH_SAFE (p->list, e, tmp)
		free(e);
	p->list = NULL;
	p->count = 0;
	p->bytes = 0;
}

/* ---- the log ---- */

struct watch_event *watch_event_new(const char *path, const char *old)
{
	size_t len = strlen(path) + 1, old_len = old ? strlen(old) + 1 : 0;
	struct watch_event *e = calloc(1, sizeof(*e) + len + old_len);

	if (!e)
		return NULL;
	memcpy(e->path, path, len);
	if (old)
		e->old = memcpy(e->path + len, old, old_len);
	return e;
}

void watch_event_set_stat(struct watch_event *e, const struct stat *st)
{
	e->has_stat = true;
	e->mtime = (double)st->st_mtim.tv_sec + (double)st->st_mtim.tv_nsec / 1e9;
	e->size = st->st_size;
	e->inode = st->st_ino;
}

static size_t event_bytes(const struct watch_event *e)
{
	return sizeof(*e) + strlen(e->path) + 1 + (e->old ? strlen(e->old) + 1 : 0);
}

static struct watch_event *at(const struct evlog *l, size_t i)
{
	return l->ring[(l->head + i) % l->cap];
}

static size_t pooled(size_t bytes)
{
	return bytes > EVLOG_OWN_BYTES ? bytes - EVLOG_OWN_BYTES : 0;
}

static void set_bytes(struct evlog *l, size_t bytes)
{
	if (l->pool)
		*l->pool += pooled(bytes) - pooled(l->bytes);
	l->bytes = bytes;
}

static void drop_oldest(struct evlog *l)
{
	struct watch_event *e = at(l, 0);

	l->head = (l->head + 1) % l->cap;
	l->count--;
	set_bytes(l, l->bytes - event_bytes(e));
	l->gap = e->seq;
	free(e);
}

static int grow(struct evlog *l)
{
	size_t cap = l->cap ? l->cap * 2 : 16;
	struct watch_event **ring = calloc(cap, sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < l->count; i++)
		ring[i] = at(l, i);
	free(l->ring);
	l->ring = ring;
	l->cap = cap;
	l->head = 0;
	return 0;
}

/* Whether something has to go before bytes more are kept. */
static bool log_full(const struct evlog *l, size_t bytes)
{
	if (l->count >= EVLOG_MAX_EVENTS || l->bytes + bytes > EVLOG_MAX_BYTES)
		return true;
	return l->pool && *l->pool - pooled(l->bytes) + pooled(l->bytes + bytes) > EVLOG_POOL_BYTES;
}

void evlog_push(struct evlog *l, struct watch_event *e)
{
	size_t bytes = event_bytes(e);

	while (l->count > 0 && log_full(l, bytes))
		drop_oldest(l);
	if (l->count == l->cap && grow(l) < 0) {
		evlog_overflow(l, e->seq);
		free(e);
		return;
	}
	l->ring[(l->head + l->count) % l->cap] = e;
	l->count++;
	set_bytes(l, l->bytes + bytes);
}

void evlog_overflow(struct evlog *l, uint64_t seq)
{
	while (l->count > 0)
		drop_oldest(l);
	l->gap = seq;
}

const struct watch_event *evlog_after(const struct evlog *l, uint64_t cursor)
{
	size_t lo = 0, hi = l->count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (at(l, mid)->seq > cursor)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo < l->count ? at(l, lo) : NULL;
}

void evlog_release(struct evlog *l)
{
	while (l->count > 0)
		drop_oldest(l);
	free(l->ring);
	*l = (struct evlog){ 0 };
}

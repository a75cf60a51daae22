/* Contents of small files. Knows nothing of sandboxes. Loop thread only. */
#include "contents.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "thread.h"

/* What was fetched and not used so long may go, if there is need. */
enum { UNUSED_MS = 2000 };

struct contents {
	struct content *by_key;
	struct content *used, *unused; /* the oldest first */
	uint64_t bytes;                /* of all, those to come included */
};

static size_t cost(const struct content *c)
{
	return c->version.size + sizeof(*c) + c->key_len;
}

static struct content **list_of(struct contents *all, const struct content *c)
{
	return c->used ? &all->used : &all->unused;
}

/* Nobody finds it any more; whoever has it keeps it. */
static void forget(struct contents *all, struct content *c)
{
	struct content **list = list_of(all, c);

	if (!c->listed)
		return;
	c->listed = false;
	if (!c->used && c->state != CONTENT_FAILED)
		c->fs->totals.ahead_wasted++;
	HASH_DEL(all->by_key, c);
	DL_DELETE(*list, c);
	content_unref(c);
}

void contents_release(struct fs *fs)
{
	struct content *c, *next;

	if (!fs->contents)
		return;
	HASH_ITER (hh, fs->contents->by_key, c, next)
		forget(fs->contents, c);
	free(STEAL(fs->contents));
}

struct content *content_ref(struct content *c)
{
	assert(c->refs > 0);
	c->refs++;
	return c;
}

void content_unref(struct content *c)
{
	if (!c || --c->refs > 0)
		return;
	if (c->fs->contents)
		c->fs->contents->bytes -= cost(c);
	c->fs->memory_used -= cost(c);
	free(c->bytes);
	free(c->key);
	free(c);
}

/* ---- finding ---- */

/* NULL: no memory. For the caller to free. */
static char *make_key(const struct thread *t, const char *path, size_t *ret_len)
{
	char *key;
	int len = asprintf(&key, "%s/%s", t->id, path);

	*ret_len = len < 0 ? 0 : (size_t)len;
	return len < 0 ? NULL : key;
}

static struct content *find(struct thread *t, const char *path, const struct attr *version)
{
	struct contents *all = t->fs->contents;
	char *key CLEANUP_FREE = NULL;
	struct content *c = NULL;
	size_t len;

	if (!all || !all->by_key || !(key = make_key(t, path, &len)))
		return NULL;
	HASH_FIND(hh, all->by_key, key, len, c);
	if (c && !attr_same_version(&c->version, version)) {
		forget(all, c);
		return NULL;
	}
	return c;
}

bool contents_have(struct thread *t, const char *path, const struct attr *version)
{
	return find(t, path, version) != NULL;
}

struct content *contents_of(struct node *n)
{
	struct contents *all = n->fs->contents;
	char *path CLEANUP_FREE = NULL;

	if (!all || !all->by_key || n->attr.size > CONTENT_MAX || node_rel_path(n, &path) < 0)
		return NULL;
	return find(n->thread, path, &n->attr);
}

void content_use(struct content *c)
{
	struct contents *all = c->fs->contents;
	struct content **list = list_of(all, c);

	if (c->listed)
		DL_DELETE(*list, c);
	if (!c->used)
		c->fs->totals.ahead_used++;
	c->used = true;
	list = list_of(all, c);
	if (c->listed)
		DL_APPEND(*list, c);
}

/* ---- making ---- */

static bool is_free(const struct content *c)
{
	return c->refs == 1 && c->state == CONTENT_HERE;
}

/* Those that are open would only be forgotten, not freed. */
static struct content *least_useful(struct contents *all)
{
	int64_t old = clock_ms() - UNUSED_MS;
	struct content *c;

	DL_FOREACH (all->used, c) {
		assert(c->used);
		if (is_free(c))
			return c;
	}
	DL_FOREACH (all->unused, c) {
		assert(!c->used);
		if (c->made_ms > old)
			return NULL;
		if (is_free(c))
			return c;
	}
	return NULL;
}

static bool make_room(struct fs *fs, size_t bytes)
{
	struct contents *all = fs->contents;
	uint64_t limit = fs->opt->memory / 4;

	while (all->bytes + bytes > limit) {
		struct content *c = least_useful(all);

		if (!c)
			return false;
		forget(all, c);
	}
	return true;
}

struct content *contents_expect(struct thread *t, const char *path, const struct attr *version)
{
	struct fs *fs = t->fs;
	struct content *c = calloc(1, sizeof(*c));

	if (!fs->contents)
		fs->contents = calloc(1, sizeof(*fs->contents));
	if (c && fs->contents) {
		c->fs = fs;
		c->version = *version;
		c->key = make_key(t, path, &c->key_len);
	}
	if (c && fs->contents && c->key && make_room(fs, cost(c)))
		HASH_ADD_KEYPTR(hh, fs->contents->by_key, c->key, c->key_len, c);
	if (!c || !HASH_TOOK(hh, c)) {
		if (c)
			free(c->key);
		free(c);
		return NULL;
	}
	c->refs = 2; /* the table's and the caller's */
	c->listed = true;
	c->made_ms = clock_ms();
	fs->contents->bytes += cost(c);
	fs->memory_used += cost(c);
	DL_APPEND(fs->contents->unused, c);
	fs->totals.ahead_fetched++;
	return c;
}

static void answer(struct content *c, struct read_op *op)
{
	uint64_t size = c->version.size;
	uint64_t at = MIN(op->offset, size);
	struct iovec iov = { c->bytes ? c->bytes + at : NULL, MIN(size - at, op->size) };

	if (c->state == CONTENT_HERE)
		op->done(op, 0, &iov, iov.iov_len ? 1 : 0);
	else
		op->done(op, -EAGAIN, NULL, 0);
}

static void answer_all(struct content *c)
{
	struct read_op *op;

	while ((op = c->waiting)) {
		DL_DELETE(c->waiting, op);
		answer(c, op);
	}
}

void content_arrived(struct content *c, const char *bytes)
{
	c->bytes = malloc(c->version.size ?: 1);
	if (!c->bytes) {
		content_failed(c);
		return;
	}
	memcpy(c->bytes, bytes, c->version.size);
	c->state = CONTENT_HERE;
	content_ref(c);
	answer_all(c);
	content_unref(c);
}

void content_failed(struct content *c)
{
	c->state = CONTENT_FAILED;
	c->fs->totals.ahead_wasted++;
	content_ref(c);
	forget(c->fs->contents, c);
	answer_all(c);
	content_unref(c);
}

void content_read(struct content *c, struct read_op *op)
{
	if (c->state == CONTENT_COMING)
		DL_APPEND(c->waiting, op);
	else
		answer(c, op);
}

void content_cancel(struct content *c, struct read_op *op)
{
	DL_DELETE(c->waiting, op);
}

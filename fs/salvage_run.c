/*
 * One record goes to its sandbox: a chain of requests. Knows nothing of when.
 * Loop thread only.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "log.h"
#include "salvage_i.h"
#include "stage_i.h"

enum {
	PIECE = 1024 * 1024, /* of an append */
	SUFFIXES = 100,      /* names that are tried beside the file */
};

static struct salvage *of(struct remote *r)
{
	return CONTAINER_OF(r, struct salvage, r);
}

static void finish(struct salvage *v, int err)
{
	free(STEAL(v->piece));
	salvage_ended(v, err, v->r.call.message);
}

static void request(struct salvage *v, void (*start)(struct remote *r, struct sandbox *sb),
		    void (*done)(struct remote *r, int err), bool once)
{
	if (v->stopped) {
		finish(v, -ECANCELED);
		return;
	}
	v->r = (struct remote){ .once = once };
	remote_begin(&v->r, v->thread, start, done);
}

/* Otherwise it may have zeros where something was written: it does not take anything's place. */
static bool is_certain(const struct salvage *v)
{
	return ledger_is_certain(&v->rec, v->fs->staging->boot, v->spool.bytes);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- the end: is it there, and all of it? ---- */

/* Whoever has looked before may have seen something else: as if the sandbox told of it. */
static void tell(struct salvage *v)
{
	struct watch_event ev = { .type = WATCH_CREATE, .relative = v->path, .size = -1 };

	v->thread->writes++;
	cache_event(v->thread, &ev);
	ev.type = WATCH_WRITE;
	cache_event(v->thread, &ev);
}

static void start_look(struct remote *r, struct sandbox *sb)
{
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);

	if (path)
		sandbox_lstat(sb, &r->call, path, &of(r)->seen);
}

/* Behind what was appended others may have appended; but to no other file than that. */
static bool is_whole(const struct salvage *v)
{
	const struct ledger_version *b = &v->rec.base;
	uint64_t size = v->spool.bytes - v->from;

	if (v->rec.kind == LEDGER_APPEND && !v->conflict)
		return v->seen.ino == b->ino && v->seen.size >= b->size + size;
	return v->seen.size == size;
}

static void on_proven(struct remote *r, int err)
{
	struct salvage *v = of(r);

	tell(v);
	if (err == 0 && !is_whole(v))
		err = -EIO;
	if (err == 0 && v->conflict && !is_certain(v))
		thread_warn(
			v->thread,
			"%s was being written when the machine or the mount stopped: what is left "
			"of that, perhaps not all, is beside it as %s",
			v->rec.path, base_name(v->path));
	else if (err == 0 && v->conflict)
		thread_warn(v->thread,
			    "%s was changed by others meanwhile: what was written here is beside "
			    "it as %s",
			    v->rec.path, base_name(v->path));
	finish(v, err);
}

static void prove(struct salvage *v)
{
	request(v, start_look, on_proven, false);
}

static void start_utimens(struct remote *r, struct sandbox *sb)
{
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);

	if (path)
		sandbox_utimens(
			sb, &r->call, path,
			(const struct timespec[2]){ { .tv_nsec = UTIME_OMIT }, of(r)->rec.mtime },
			NULL);
}

static void on_utimens(struct remote *r, int err)
{
	if (err < 0)
		finish(of(r), err);
	else
		prove(of(r));
}

static void set_times(struct salvage *v)
{
	if (v->rec.times)
		request(v, start_utimens, on_utimens, false);
	else
		prove(v);
}

static void start_chmod(struct remote *r, struct sandbox *sb)
{
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);

	if (path)
		sandbox_chmod(sb, &r->call, path, (mode_t)of(r)->rec.mode, NULL);
}

static void on_chmod(struct remote *r, int err)
{
	if (err < 0)
		finish(of(r), err);
	else
		set_times(of(r));
}

/* The content is there, and was not uploaded with its mode just now. */
static void set_attrs(struct salvage *v)
{
	if (v->rec.mode >= 0 && (v->seen.mode & 07777) != (mode_t)v->rec.mode)
		request(v, start_chmod, on_chmod, false);
	else
		set_times(v);
}

/* ---- all of it ---- */

static void conflict(struct salvage *v);
static void look(struct salvage *v);

static ssize_t read_content(void *ctx, char *to, size_t len)
{
	struct salvage *v = ctx;
	ssize_t n = spool_read(&v->spool, to, MIN(len, v->spool.bytes - v->at), v->at);

	if (n > 0)
		v->at += (uint64_t)n;
	return n;
}

static void rewind_content(void *ctx)
{
	struct salvage *v = ctx;

	v->at = v->from;
}

static void start_upload(struct remote *r, struct sandbox *sb)
{
	struct salvage *v = of(r);
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);
	bool over = !v->conflict && v->seen.mode != 0;
	struct upload how = { .size = (int64_t)(v->spool.bytes - v->from),
			      .mode = v->rec.mode,
			      .flags = over ? 0 : UPLOAD_NEW,
			      .over = over ? &v->seen : NULL,
			      .read = read_content,
			      .rewind = rewind_content,
			      .ctx = v,
			      .fd = -1 };

	if (!path)
		return;
	v->at = v->from;
	sandbox_upload(sb, &r->call, path, &how);
}

static void on_uploaded(struct remote *r, int err)
{
	struct salvage *v = of(r);

	/* Somebody has written to it since we looked, or it was we, and the answer was lost. */
	if (err == -EEXIST && !v->conflict && !v->again) {
		v->again = true;
		look(v);
	} else if (err == -EEXIST && v->suffix < SUFFIXES) {
		conflict(v);
	} else if (err < 0) {
		finish(v, err);
	} else {
		set_times(v);
	}
}

static void upload(struct salvage *v)
{
	request(v, start_upload, on_uploaded, false);
}

/* ---- both are kept ---- */

static char *conflict_name(const struct salvage *v)
{
	const char *name = base_name(v->rec.path);
	time_t now = time(NULL);
	size_t len = strlen(name);
	char date[32] = "", tail[64], *path;
	struct tm tm;
	int n;

	if (gmtime_r(&now, &tm))
		strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &tm);
	n = snprintf(tail, sizeof(tail), ".threadfs-conflict-%s", date);
	if (v->suffix > 1)
		snprintf(tail + n, sizeof(tail) - (size_t)n, "-%u", v->suffix);
	/* Room for the end of the name; not in the middle of a character. */
	if (len + strlen(tail) > NAME_MAX) {
		len = NAME_MAX - strlen(tail);
		while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80)
			len--;
	}
	if (asprintf(&path, "%.*s%.*s%s", (int)(name - v->rec.path), v->rec.path, (int)len, name,
		     tail) < 0)
		return NULL;
	return path;
}

static void conflict(struct salvage *v)
{
	char *path;

	v->suffix++;
	path = conflict_name(v);
	if (!path) {
		finish(v, -ENOMEM);
		return;
	}
	free(v->path);
	v->path = path;
	v->conflict = true;
	if (v->rec.kind == LEDGER_APPEND)
		v->from = v->rec.from;
	upload(v);
}

/* ---- what is only a part: the rest is the base's ---- */

static int put_base(void *ctx, const void *bytes, size_t len)
{
	struct salvage *v = ctx;
	uint64_t at = v->at, end = MIN(v->at + len, v->rec.base_len);
	int r = 0;

	while (r == 0 && (at = extents_next_gap(&v->rec.written, at)) < end) {
		uint64_t to = MIN(extents_next_set(&v->rec.written, at), end);

		r = spool_write(&v->spool, (const char *)bytes + (at - v->at), to - at, at);
		at = to;
	}
	v->at += len;
	return r;
}

static void start_fill(struct remote *r, struct sandbox *sb)
{
	struct salvage *v = of(r);
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);
	struct download how = { .data = put_base, .ctx = v, .expect = &v->seen };

	if (!path)
		return;
	v->at = 0;
	if (v->rec.base_len < v->seen.size)
		how.length = v->rec.base_len;
	sandbox_download(sb, &r->call, path, &how);
}

static void on_filled(struct remote *r, int err)
{
	struct salvage *v = of(r);

	v->filled = v->filled || err == 0;
	if (err < 0 && err != -ESTALE)
		finish(v, err);
	else if (err == -ESTALE || !is_certain(v))
		conflict(v);
	else
		upload(v);
}

/* ---- appends ---- */

static void append(struct salvage *v);

static void start_append(struct remote *r, struct sandbox *sb)
{
	struct salvage *v = of(r);
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);

	if (!path)
		return;
	v->asked = true;
	sandbox_append(sb, &r->call, path, v->piece, MIN(PIECE, v->spool.bytes - v->at));
}

/* When it fails nobody knows whether it was done: the next try looks, and compares. Unless it was
 * refused it may be done after that: then it is not sent again. */
static void on_appended(struct remote *r, int err)
{
	struct salvage *v = of(r);

	v->at += MIN(PIECE, v->spool.bytes - v->at);
	free(STEAL(v->piece));
	if (err < 0 && v->asked && !stage_append_was_refused(err))
		v->rec.maybe = v->at - v->from;
	if (err < 0)
		finish(v, err);
	else
		append(v);
}

static void append(struct salvage *v)
{
	size_t len = MIN(PIECE, v->spool.bytes - v->at);
	ssize_t n;

	if (len == 0) {
		set_attrs(v);
		return;
	}
	v->asked = false;
	v->piece = malloc(len);
	n = v->piece ? spool_read(&v->spool, v->piece, len, v->at) : -ENOMEM;
	if (n != (ssize_t)len) {
		finish(v, n < 0 ? (int)n : -EIO);
		return;
	}
	request(v, start_append, on_appended, true);
}

/* ---- is it there already? ---- */

static int compare(void *ctx, const void *bytes, size_t len)
{
	struct salvage *v = ctx;
	char *mine CLEANUP_FREE = malloc(len);
	ssize_t n = mine ? spool_read(&v->spool, mine, len, v->at) : -ENOMEM;

	if (n < 0)
		return (int)n;
	if ((size_t)n != len || memcmp(mine, bytes, len) != 0)
		v->differs = true;
	v->at += len;
	return v->differs ? -ECANCELED : 0;
}

static void start_compare(struct remote *r, struct sandbox *sb)
{
	struct salvage *v = of(r);
	char *path CLEANUP_FREE = remote_path(r, sb, of(r)->path);
	struct download how = { .offset = v->seen.size - v->compared,
				.length = v->compared,
				.data = compare,
				.ctx = v,
				.expect = &v->seen };

	if (!path)
		return;
	v->at = v->from;
	v->differs = false;
	sandbox_download(sb, &r->call, path, &how);
}

static void on_compared(struct remote *r, int err)
{
	struct salvage *v = of(r);

	if (v->differs || err == -ESTALE)
		conflict(v);
	else if (err < 0)
		finish(v, err);
	else if (v->rec.kind == LEDGER_APPEND)
		append(v); /* what is not there yet */
	else
		set_attrs(v);
}

static void compare_last(struct salvage *v, uint64_t bytes)
{
	v->compared = bytes;
	v->at = v->from;
	if (bytes > 0)
		request(v, start_compare, on_compared, false);
	else if (v->rec.kind == LEDGER_APPEND)
		append(v);
	else
		set_attrs(v); /* both are empty */
}

/* ---- what to do ---- */

/* Of what we made ourselves just before only the size may be known; an empty one is nobody's loss.
 */
static bool is_base(const struct salvage *v)
{
	const struct ledger_version *b = &v->rec.base;

	if (b->there && !b->ino && b->size == 0 && v->seen.size == 0)
		return true;
	return b->there && b->size == v->seen.size && b->ino && b->ino == v->seen.ino &&
	       b->mtime.tv_sec == v->seen.mtime.tv_sec && b->mtime.tv_nsec == v->seen.mtime.tv_nsec;
}

static void decide_append(struct salvage *v)
{
	const struct ledger_version *b = &v->rec.base;
	uint64_t rest = v->spool.bytes - MIN(v->rec.from, v->spool.bytes);

	v->from = v->rec.from;
	if (b->ino != v->seen.ino || v->seen.size < b->size || v->seen.size - b->size > rest ||
	    v->seen.size - b->size < v->rec.maybe)
		conflict(v);
	else
		compare_last(v, v->seen.size - b->size);
}

/* It may have arrived before, all of it; or both are kept. */
static void decide_uncertain(struct salvage *v)
{
	const struct ledger_version *b = &v->rec.base;
	uint64_t rest = v->spool.bytes - MIN(v->rec.from, v->spool.bytes);
	bool there = S_ISREG(v->seen.mode);

	if (there && v->rec.kind == LEDGER_WHOLE && v->seen.size == rest) {
		compare_last(v, rest);
	} else if (there && v->rec.kind == LEDGER_APPEND && b->ino == v->seen.ino &&
		   v->seen.size == b->size + rest) {
		v->from = v->rec.from;
		compare_last(v, rest);
	} else if (there && v->rec.kind == LEDGER_PATCH && is_base(v)) {
		request(v, start_fill, on_filled, false);
	} else {
		conflict(v);
	}
}

static void on_looked(struct remote *r, int err)
{
	struct salvage *v = of(r);
	bool gone = err == -ENOENT;

	if (gone)
		v->seen = (struct attr){ 0 };
	if (err < 0 && !gone)
		finish(v, err);
	else if (!is_certain(v))
		decide_uncertain(v);
	else if (gone && v->rec.kind == LEDGER_WHOLE)
		upload(v);
	else if (gone || !S_ISREG(v->seen.mode))
		conflict(v);
	else if (v->rec.kind == LEDGER_APPEND)
		decide_append(v);
	else if (is_base(v) && v->rec.kind == LEDGER_PATCH)
		request(v, start_fill, on_filled, false);
	else if (is_base(v))
		upload(v);
	else if ((v->rec.kind == LEDGER_WHOLE || v->filled) && v->seen.size == v->spool.bytes)
		compare_last(v, v->seen.size); /* perhaps it was we, and the answer was lost */
	else
		conflict(v);
}

static void look(struct salvage *v)
{
	free(v->path);
	v->path = strdup(v->rec.path);
	v->conflict = v->differs = false;
	v->suffix = 0;
	v->from = v->at = 0;
	request(v, start_look, on_looked, false);
}

void salvage_run(struct salvage *v)
{
	v->again = v->stopped = false;
	look(v);
}

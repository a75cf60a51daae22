/*
 * The content of a file that is being written: writes, truncation, reads, and
 * what of the base shows through. Knows nothing of requests. Loop thread only.
 */
#include "stage_i.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"

enum {
	COPY_SIZE = 64 * 1024,
	LATE_MS = 2000, /* so long a base that did not come in time answers whoever asks again */
};

/* ---- life ---- */

static void note_change(struct stage *s)
{
	s->changes++;
	stage_note_dirty(s);
}

static void forget_failure(struct stage *s)
{
	s->last_error = 0;
	s->told = false;
}

static void note_content(struct stage *s)
{
	note_change(s);
	forget_failure(s);
	s->content = s->changes;
	clock_gettime(CLOCK_REALTIME, &s->mtime);
	s->times = false; /* a time that was set before is history */
}

static void set_base(struct stage *s)
{
	s->base = s->n->attr;
	s->base_len = s->base.size;
	s->mtime = s->base.mtime;
}

int stage_new(struct node *n, unsigned flags, int mode, struct stage **ret)
{
	struct stage *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	assert(!n->stage);
	s->fs = n->fs;
	s->n = n;
	s->cut = UINT64_MAX;
	s->mode = mode;
	s->excl = flags & STAGE_EXCL;
	if (!n->unborn && n->has_attr)
		stage_note_origin(s, &n->attr, true);
	if ((flags & STAGE_EMPTY) || n->unborn) {
		s->cut = 0;
		note_content(s);
	} else {
		set_base(s);
		s->base_old = !node_is_fresh(n);
		s->appending = flags & STAGE_APPEND;
	}
	if (mode >= 0) {
		note_change(s);
		s->mode_change = s->changes;
	}
	n->stage = s;
	n->short_ms = 0;
	*ret = s;
	return 0;
}

static void destroy(struct stage *s)
{
	spool_close(&s->spool);
	spool_close(&s->queue);
	extents_release(&s->written);
	free(s);
}

void stage_leave(struct stage *s)
{
	if (--s->entered == 0 && s->freed)
		destroy(s);
}

void stage_free(struct stage *s)
{
	if (!s || s->freed)
		return;
	assert(!s->reads && !s->waiters);
	stage_enter(s);
	s->freed = true;
	stage_note_dropped(s);
	s->n->stage = NULL;
	stage_stop_fill(s);
	stage_drop_delivery(s);
	stage_flush_release(s);
	/* Who wants its name gone or changed has nothing to wait for any more. */
	stage_tell_keepers(s, 0);
	stage_tell_settlers(s);
	stage_leave(s);
}

/* ---- what shows ---- */

uint64_t stage_size(const struct stage *s)
{
	if (s->appending)
		return s->base.size + (s->queue_end - s->queue_at);
	return MAX(s->base_len, s->own_end);
}

bool stage_is_complete(const struct stage *s)
{
	return !s->appending && !s->base_old && extents_cover(&s->written, 0, s->base_len);
}

void stage_stat(const struct stage *s, struct stat *st)
{
	uint64_t size = stage_size(s);

	st->st_size = (off_t)size;
	st->st_blocks = (blkcnt_t)((size + 511) / 512);
	if (s->mode >= 0)
		st->st_mode = (st->st_mode & S_IFMT) | (mode_t)s->mode;
	if (stage_is_dirty(s))
		st->st_mtim = st->st_ctim = st->st_atim = s->mtime;
}

uint64_t stage_pending(const struct stage *s)
{
	if (s->orphan || s->sent >= s->content)
		return 0;
	return s->appending ? s->queue_end - s->queue_at : stage_size(s);
}

bool stage_is_clean(const struct stage *s)
{
	return (s->orphan || !stage_is_dirty(s)) && !s->delivery && !s->waiters && !s->reads &&
	       !s->settlers && !s->keepers;
}

int stage_failure(const struct stage *s)
{
	return s->delivery ? 0 : s->last_error;
}

bool stage_failed_since(const struct stage *s, int64_t since_ms)
{
	return s->failed_ms >= since_ms;
}

bool stage_is_needed(const struct stage *s)
{
	return s->append_error || s->held > 0;
}

void stage_set_attr(struct stage *s, int mode, const struct timespec *mtime)
{
	if (mtime && mtime->tv_nsec == UTIME_OMIT)
		mtime = NULL;
	if (mode < 0 && !mtime)
		return;
	note_change(s);
	/* Content that failed has still failed, and is not sent without a look for that. */
	if (s->sent >= s->content)
		forget_failure(s);
	if (mode >= 0) {
		s->mode = mode & 07777;
		s->mode_change = s->changes;
	}
	if (mtime) {
		s->mtime = *mtime;
		if (mtime->tv_nsec == UTIME_NOW)
			clock_gettime(CLOCK_REALTIME, &s->mtime);
		s->times = true;
		s->times_change = s->changes;
	}
}

char *stage_path(struct stage *s, struct remote *r, struct sandbox *sb)
{
	char *path = NULL;
	int err = s && !s->orphan ? node_path(s->n, NULL, sb, &path) : -ESTALE;

	if (err < 0)
		remote_fail(r, err);
	return path;
}

/* ---- the spool ---- */

/* Room for the base is taken at once, so that it does not run out in the middle. */
int stage_open_spool(struct stage *s)
{
	int r;

	if (!spool_is_open(&s->spool)) {
		r = spool_open(&s->spool, s->fs);
		if (r < 0)
			return r;
	}
	if (s->spool.bytes >= s->base_len)
		return 0;
	return spool_truncate(&s->spool, s->base_len);
}

int stage_get(struct stage *s, char *to, size_t len, uint64_t offset)
{
	ssize_t n = !spool_is_open(&s->spool) ? 0 : spool_read(&s->spool, to, len, offset);

	if (n < 0)
		return (int)n;
	memset(to + n, 0, len - (size_t)n);
	return 0;
}

void stage_absorb(struct stage *s)
{
	s->own_end = stage_size(s);
	s->base_len = s->cut = s->filled = s->fill_high = 0;
	s->base_read = s->stale = s->base_old = s->tail = false;
	s->tries = 0;
	s->noted = 0; /* it is another kind of record */
	s->synced = 0;
	extents_release(&s->written);
	stage_stop_fill(s);
}

static int put(struct stage *s, uint64_t offset, const void *bytes, size_t len)
{
	uint64_t before;
	int r = stage_open_spool(s);

	if (r < 0)
		return r;
	before = s->spool.bytes;
	r = spool_write(&s->spool, bytes, len, offset);
	/* Behind its end too: it may turn out to be longer (see stage_fill.c). */
	if (r == 0 && stage_has_base(s))
		r = extents_add(&s->written, offset, offset + len);
	if (r < 0) {
		/* What lies behind the end must be zeros. */
		if (s->spool.bytes > before && spool_truncate(&s->spool, before) < 0)
			return -EIO;
		return r;
	}
	s->own_end = MAX(s->own_end, offset + len);
	return 0;
}

/* ---- appends ---- */

static int enqueue(struct stage *s, const void *bytes, size_t len)
{
	int r;

	if (!spool_is_open(&s->queue)) {
		r = spool_open(&s->queue, s->fs);
		if (r < 0)
			return r;
	}
	r = spool_write(&s->queue, bytes, len, s->queue_end);
	if (r < 0) {
		/* Where the file ends the content does, for whoever finds it. */
		if (s->queue.bytes > s->queue_end && spool_truncate(&s->queue, s->queue_end) < 0)
			return -EIO;
		return r;
	}
	s->queue_end += len;
	return 0;
}

void stage_end_appends(struct stage *s)
{
	s->queue_at = s->queue_end = 0;
	s->base_len = s->base.size;
	s->appending = false;
	s->synced = 0; /* the content is in another file now */
	/* Written down elsewhere before what was is thrown away. */
	if (s->queue.entry && stage_is_dirty(s))
		(void)stage_note_now(s);
	spool_close(&s->queue);
}

/*
 * Somebody writes elsewhere: what waits in the queue becomes part of the
 * content, behind the base as it is known. A piece that is being sent is both; it does no harm.
 */
static int convert(struct stage *s)
{
	uint64_t to = s->base.size, at = s->queue_at;
	char *piece CLEANUP_FREE = malloc(COPY_SIZE);
	int r = 0;

	if (!piece)
		return -ENOMEM;
	s->base_len = s->base.size;
	s->tail = s->queue_end > s->queue_at;
	s->tail_sent = stage_sending_appends(s);
	s->base_old |= s->tail; /* how long is it by now? Also where nothing of it is needed */
	while (r == 0 && at < s->queue_end) {
		size_t len = MIN(COPY_SIZE, s->queue_end - at);
		ssize_t n = spool_read(&s->queue, piece, len, at);

		r = n < 0 ? (int)n : put(s, to, piece, (size_t)n);
		if (r == 0 && n == 0)
			r = -EIO;
		at += (uint64_t)MAX(n, 0);
		to += (uint64_t)MAX(n, 0);
	}
	if (r < 0) {
		spool_close(&s->spool);
		extents_release(&s->written);
		s->own_end = 0;
		s->tail = false;
		return r;
	}
	stage_end_appends(s);
	return 0;
}

/* ---- writing ---- */

int stage_write(struct stage *s, uint64_t offset, const void *bytes, size_t len, bool append)
{
	uint64_t end = stage_size(s);
	int r;

	if (len == 0)
		return 0;
	if (append)
		offset = end;
	if (offset > INT64_MAX - len)
		return -EFBIG;
	if (s->appending && append) {
		r = enqueue(s, bytes, len);
	} else {
		r = s->appending ? convert(s) : 0;
		if (r == 0)
			r = put(s, offset, bytes, len);
	}
	if (r < 0)
		return r;
	note_content(s);
	if (s->appending) {
		stage_pump(s);
		return 0;
	}
	stage_upload_changed(s, offset, false);
	if (s->no_stream)
		return 0;
	if (stage_has_base(s))
		stage_fill(s);
	else if (offset == end)
		stage_stream(s);
	return 0;
}

static void truncate_base(struct stage *s, uint64_t size)
{
	s->cut = MIN(s->cut, size);
	s->tail &= size > s->base.size;
	s->base_len = MIN(s->base_len, size);
	s->fill_high = MIN(s->fill_high, size);
	extents_cut(&s->written, size);
	s->own_end = size;
	if (size == 0 || !stage_has_base(s))
		stage_absorb(s);
}

int stage_truncate(struct stage *s, uint64_t size)
{
	int r = 0;

	if (s->appending && size == 0)
		stage_end_appends(s);
	else if (s->appending)
		r = convert(s);
	if (r == 0 && size > stage_size(s))
		r = stage_open_spool(s);
	if (r == 0 && spool_is_open(&s->spool))
		r = spool_truncate(&s->spool, size);
	if (r < 0)
		return r;
	truncate_base(s, size);
	note_content(s);
	stage_upload_changed(s, size, true);
	if (size == 0)
		s->no_stream = false;
	stage_serve(s);
	return 0;
}

/* ---- reading ---- */

static uint64_t end_of(const struct stage *s, const struct read_op *op)
{
	uint64_t size = stage_size(s);

	return op->offset >= size ? op->offset : op->offset + MIN(op->size, size - op->offset);
}

/* Whether all of it is in the spool. An old base says nothing, nor where it ends. */
static bool is_ready(const struct stage *s, const struct read_op *op)
{
	uint64_t start = op->offset, end = end_of(s, op);

	if (s->appending)
		return false;
	if (s->base_old)
		return extents_cover(&s->written, start, start + op->size);
	return extents_cover(&s->written, MAX(start, s->filled), MIN(end, s->base_len));
}

static void answer(struct stage *s, struct read_op *op)
{
	uint64_t end = end_of(s, op);
	struct iovec iov = { .iov_len = end - op->offset };
	int r;

	if (iov.iov_len == 0) {
		op->done(op, 0, NULL, 0);
		return;
	}
	iov.iov_base = malloc(iov.iov_len);
	r = iov.iov_base ? stage_get(s, iov.iov_base, iov.iov_len, op->offset) : -ENOMEM;
	if (r == 0 && !extents_cover(&s->written, op->offset, MIN(end, s->base_len)))
		s->base_read = true;
	op->done(op, r, &iov, r == 0);
	free(iov.iov_base);
}

/* Entered. */
static void serve(struct stage *s)
{
	struct read_op *op, *next;

again:
	DL_FOREACH_SAFE (s->reads, op, next) {
		if (!is_ready(s, op))
			continue;
		DL_DELETE(s->reads, op);
		answer(s, op);
		goto again; /* the list may be another one */
	}
}

void stage_serve(struct stage *s)
{
	stage_enter(s);
	serve(s);
	stage_leave(s);
}

/* Entered. */
static void fail_reads(struct stage *s, int err)
{
	struct read_op *op;
	unsigned n;

	/* Not those that come while these are told. */
	DL_COUNT(s->reads, op, n);
	while (n-- > 0 && (op = s->reads)) {
		DL_DELETE(s->reads, op);
		op->done(op, err, NULL, 0);
	}
}

void stage_fail_reads(struct stage *s, int err)
{
	stage_enter(s);
	fail_reads(s, err);
	stage_leave(s);
}

/* The kernel asks twice, for many pages and for one. */
static bool was_late(const struct stage *s)
{
	return s->late_ms && clock_ms() - s->late_ms < LATE_MS;
}

void stage_read(struct stage *s, struct read_op *op)
{
	stage_enter(s);
	if (is_ready(s, op)) {
		answer(s, op);
	} else if (s->stale || (s->appending && s->orphan)) {
		op->done(op, -ESTALE, NULL, 0);
	} else if (!s->fill && !s->appending && was_late(s)) {
		op->done(op, -ETIMEDOUT, NULL, 0);
	} else {
		DL_APPEND(s->reads, op);
		if (s->appending)
			stage_pump(s);
		else
			stage_fill(s);
	}
	stage_leave(s);
}

void stage_cancel(struct stage *s, struct read_op *op)
{
	DL_DELETE(s->reads, op);
}

/* ---- before the name goes away ---- */

void stage_tell_keepers(struct stage *s, int err)
{
	struct stage_waiter *w, *list = STEAL(s->keepers);

	while ((w = list)) {
		DL_DELETE(list, w);
		w->kept(w->ctx, err);
		free(w);
	}
}

void stage_keep(struct stage *s, void (*done)(void *ctx, int err), void *ctx)
{
	struct stage_waiter *w;
	int r = s->appending ? convert(s) : 0;

	w = r == 0 && !stage_is_complete(s) ? calloc(1, sizeof(*w)) : NULL;
	if (!w) {
		done(ctx, r < 0 || stage_is_complete(s) ? r : -ENOMEM);
		return;
	}
	w->kept = done;
	w->ctx = ctx;
	DL_APPEND(s->keepers, w);
	stage_fill(s);
}

void stage_orphan(struct stage *s)
{
	stage_enter(s);
	/* If that fails, what was appended last cannot be read any more. */
	if (s->appending && convert(s) < 0)
		fail_reads(s, -ESTALE);
	s->orphan = true;
	stage_note_dropped(s);
	stage_drop_delivery(s);
	serve(s);
	fail_reads(s, -ESTALE); /* of the base nothing more will come */
	if (!s->freed)
		stage_delivered(s, 0, NULL);
	stage_leave(s);
}

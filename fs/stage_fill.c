/*
 * The base of a stage comes down: one download into the spool, around what was
 * written. Bytes count as proven when the download has ended well: until then
 * they may be read (and then it has to be that version), but not be sent up again.
 * When the file turns out to be another version, that one is taken if nobody has
 * seen the old one. Must not know who waits. Loop thread only.
 */
#include <errno.h>

#include "salvage.h"
#include "stage_i.h"

enum { TRIES_MAX = 8 };

struct fill {
	struct stage *s; /* NULL: nobody wants it any more */
	struct remote r;
	struct transfer x;
	struct attr seen;
	uint64_t at; /* where the next bytes belong */
};

/* ---- the end ---- */

static void end(struct fill *f, int err)
{
	struct stage *s = f->s;

	s->fill = NULL;
	stage_enter(s);
	if (err == -ESTALE && s->base_read)
		s->stale = true;
	if (err < 0) {
		stage_fill_failed(s, err, f->r.call.message);
	} else {
		stage_absorb(s);
		stage_serve(s);
		stage_tell_keepers(s, 0);
		stage_pump(s);
	}
	stage_leave(s);
	free(f);
}

void stage_stop_fill(struct stage *s)
{
	struct fill *f = STEAL(s->fill);

	if (!f)
		return;
	f->s = NULL;
	transfer_end(&f->x);
	remote_cancel(&f->r);
}

/* ---- looking at the file ---- */

static void fetch(struct fill *f);

/* What fills left behind the new end, and nobody has written over, must be zeros again. */
static int clear_rest(struct stage *s)
{
	static const char zeros[64 * 1024];
	uint64_t end_at = MIN(s->fill_high, s->own_end), at = s->base_len;
	int r = 0;

	while (r == 0 && (at = extents_next_gap(&s->written, at)) < end_at) {
		uint64_t len = MIN(extents_next_set(&s->written, at), end_at) - at;

		len = MIN(len, sizeof(zeros));
		r = spool_write(&s->spool, zeros, len, at);
		at += len;
	}
	if (r == 0)
		r = spool_truncate(&s->spool, MAX(s->base_len, s->own_end));
	s->fill_high = MIN(s->fill_high, s->base_len);
	return r;
}

/* Our own chmod, link or rename makes another version, too, of the same content. */
static bool same_content(const struct attr *a, const struct attr *b)
{
	return a->size == b->size && a->ino == b->ino && a->dev == b->dev &&
	       a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* What was to be appended has a place behind the base as it was: over what others have appended. */
static bool tail_fits(const struct stage *s, uint64_t size)
{
	return !s->tail || size == s->base.size || size == s->base.size + s->tail_sent;
}

static int take_base(struct stage *s, const struct attr *seen)
{
	if (!S_ISREG(seen->mode) || (s->base_read && !same_content(&s->base, seen)) ||
	    !tail_fits(s, seen->size))
		return -ESTALE;
	node_set_attr(s->n, seen);
	node_doubt_attr(s->n); /* the stage answers for now */
	stage_note_origin(s, seen, true);
	s->base = *seen;
	s->base_len = MIN(seen->size, s->cut);
	s->base_old = false;
	s->filled = 0;
	return stage_open_spool(s) ?: clear_rest(s);
}

static void start_look(struct remote *r, struct sandbox *sb)
{
	struct fill *f = CONTAINER_OF(r, struct fill, r);
	char *path CLEANUP_FREE = stage_path(f->s, r, sb);

	if (path)
		sandbox_lstat(sb, &r->call, path, &f->seen);
}

/* Whoever removed it took nothing that is needed here. */
static bool is_all_ours(const struct stage *s)
{
	return !s->base_read && extents_cover(&s->written, 0, s->base_len);
}

static void on_looked(struct remote *r, int err)
{
	struct fill *f = CONTAINER_OF(r, struct fill, r);

	if (!f->s) {
		free(f);
		return;
	}
	if (err == -ENOENT && is_all_ours(f->s)) {
		end(f, 0);
		return;
	}
	if (err == -ENOENT || err == -ENOTDIR)
		err = -ESTALE;
	if (err == 0)
		err = take_base(f->s, &f->seen);
	if (err < 0 || stage_is_complete(f->s))
		end(f, err);
	else
		fetch(f);
}

static void begin(struct fill *f)
{
	f->r = (struct remote){ 0 };
	if (f->s->base_old)
		remote_begin(&f->r, f->s->n->thread, start_look, on_looked);
	else
		fetch(f);
}

/* ---- the bytes ---- */

/* Where nobody has written. */
static int put_around(struct stage *s, const char *bytes, uint64_t start, uint64_t end_at)
{
	uint64_t at = start;
	int r = 0;

	while (r == 0 && (at = extents_next_gap(&s->written, at)) < end_at) {
		uint64_t to = MIN(extents_next_set(&s->written, at), end_at);

		r = spool_write(&s->spool, bytes + (at - start), to - at, at);
		at = to;
	}
	return r;
}

static int on_data(void *ctx, const void *bytes, size_t len)
{
	struct fill *f = ctx;
	struct stage *s = f->s;
	int r;

	if (!s)
		return -ECANCELED;
	r = put_around(s, bytes, f->at, MIN(f->at + len, s->base_len));
	if (r < 0)
		return r;
	f->at += len;
	s->filled = MAX(s->filled, f->at);
	s->fill_high = MAX(s->fill_high, MIN(f->at, s->base_len));
	transfer_moved(&f->x, len);
	stage_serve(s);
	return 0;
}

/* Goes on where it ended before; but what came must be proven by some download. */
static void start_fetch(struct remote *r, struct sandbox *sb)
{
	struct fill *f = CONTAINER_OF(r, struct fill, r);
	struct stage *s = f->s;
	char *path CLEANUP_FREE = stage_path(s, r, sb);
	struct download how = { .data = on_data, .ctx = f };

	if (!path)
		return;
	f->at = extents_next_gap(&s->written, s->filled);
	if (f->at >= s->base_len)
		f->at = extents_next_gap(&s->written, 0);
	if (f->at >= s->base_len)
		f->at = 0;
	how.offset = f->at;
	if (s->base_len < s->base.size)
		how.length = s->base_len - f->at;
	how.expect = &s->base;
	transfer_end(&f->x);
	transfer_begin(&f->x, s->n->thread, s->n, false, (int64_t)(s->base_len - f->at));
	sandbox_download(sb, &r->call, path, &how);
}

static void on_fetched(struct remote *r, int err)
{
	struct fill *f = CONTAINER_OF(r, struct fill, r);
	struct stage *s = f->s;

	transfer_end(&f->x);
	if (!s) {
		free(f);
		return;
	}
	if (err == -ENOENT || err == -ENOTDIR)
		err = -ESTALE;
	if (err == -ESTALE && ++s->tries < TRIES_MAX) {
		s->base_old = true;
		begin(f);
		return;
	}
	end(f, err);
}

static void fetch(struct fill *f)
{
	int r = stage_open_spool(f->s);

	f->r = (struct remote){ 0 };
	if (r < 0)
		end(f, r);
	else
		remote_begin(&f->r, f->s->n->thread, start_fetch, on_fetched);
}

void stage_fill(struct stage *s)
{
	/*
	 * An append that is under way makes another version: see stage_delivered(); and so does
	 * what an earlier daemon left: see salvage_ended(). While it is held its path is not
	 * certain: see stage_resume().
	 */
	if (s->fill || s->freed || s->held || stage_is_complete(s) ||
	    stage_sending_appends(s) > 0 || salvage_is_at(s->n))
		return;
	if (s->stale) {
		stage_fill_failed(s, -ESTALE, NULL);
		return;
	}
	s->fill = calloc(1, sizeof(*s->fill));
	if (!s->fill) {
		stage_fill_failed(s, -ENOMEM, NULL);
		return;
	}
	s->fill->s = s;
	begin(s->fill);
}

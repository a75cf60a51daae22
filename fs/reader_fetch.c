/*
 * What a reader has under way: the stream into his window or spool, jumps, and
 * the probe of what he had before the file grew. When to begin which is
 * reader.c's. Loop thread only.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "reader_i.h"

static int64_t spare(const struct reader *r)
{
	return (int64_t)r->fs->opt->memory - (int64_t)r->fs->memory_used;
}

static struct fetch *new_fetch(struct reader *r, uint64_t from, uint64_t to)
{
	struct fetch *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->version = r->version;
	f->loose = r->growing;
	f->etag = r->etag;
	f->at = f->from = from;
	f->to = to;
	return f;
}

/* It begins with what was handed out, to see whether that is still so. */
static int compare(struct fetch *f, const struct sample *s)
{
	f->known = malloc(s->len);
	if (!f->known)
		return -ENOMEM;
	memcpy(f->known, s->bytes, s->len);
	f->known_len = s->len;
	f->at = f->known_at = s->end - s->len;
	return 0;
}

/*
 * The connection broke in the middle, perhaps because the sandbox died: the rest
 * can be had from the next one, if it is of the same version.
 */
static bool may_resume(const struct reader *r, const struct fetch *f, int err)
{
	return (err == -EIO || err == -ECONNRESET || err == -ENOTCONN) &&
	       f->taken >= WINDOW_BLOCK && !r->node->thread->no_range;
}

/* What has to be done about an end, but for those that concern the owner alone. */
static bool is_settled(struct reader *r, const struct fetch *f, int err)
{
	if (f->differs) {
		reader_differs(r);
		return true;
	}
	if (f->unranged) /* the next one will take another way */
		return true;
	if ((err == -ESTALE || err == -ENOENT || err == -ENOTDIR) && !r->kept) {
		reader_changed(r);
		return true;
	}
	return err == 0 || f->complete || may_resume(r, f, err);
}

/* ---- the probe ---- */

static void probe_moved(struct fetch *f)
{
}

static void probe_ended(struct fetch *f, int err)
{
	struct reader *r = f->owner;

	reader_enter(r);
	r->probe = NULL;
	if (f->complete)
		r->doubt--;
	if (!is_settled(r, f, err))
		reader_fail(r, err);
	reader_pump(r);
	reader_leave(r);
}

static int probe(struct reader *r)
{
	const struct sample *s = r->doubt == DOUBT_ALL ? &r->first : &r->last;
	struct fetch *f;

	if (r->probe)
		return 0;
	f = new_fetch(r, s->end, s->end);
	if (!f || compare(f, s) < 0) {
		free(f);
		return -ENOMEM;
	}
	f->loose = true;
	f->owner = r;
	f->moved = probe_moved;
	f->ended = probe_ended;
	r->probe = f;
	fetch_begin(f, r->node, false);
	return 0;
}

/* ---- the stream ---- */

/* How far the stream will come for those who wait for it, one behind the other. */
static uint64_t stream_goal(const struct reader *r)
{
	uint64_t goal = r->win.end, before;
	struct read_op *op;

	do {
		before = goal;
		DL_FOREACH (r->waiting, op) {
			if (op->offset >= r->win.start && op->offset <= goal + REACH &&
			    !reader_jump_of(r, op))
				goal = MAX(goal, reader_end_of(r, op));
		}
	} while (goal != before);
	return MIN(goal, r->win.end + GOAL_MAX);
}

bool reader_is_near(const struct reader *r, const struct read_op *op)
{
	return r->stream && !r->spooling && op->offset >= r->win.start &&
	       (op->offset <= r->win.end + REACH || op->offset <= stream_goal(r) + REACH);
}

/* Whether the window should take more. */
static bool is_hungry(struct reader *r)
{
	uint64_t low = UINT64_MAX, wanted = 0;
	struct read_op *op;
	bool hungry;

	DL_FOREACH (r->waiting, op) {
		if (!reader_is_near(r, op) || reader_jump_of(r, op))
			continue;
		low = MIN(low, op->offset);
		wanted = MAX(wanted, reader_end_of(r, op));
	}
	/* What is to be kept is kept from the start. */
	if (r->keeps)
		low = 0;
	hungry = window_hungry(&r->win, low, wanted, spare(r));
	reader_account(r);
	return hungry;
}

static int stream_take(struct fetch *f, const char *bytes, size_t len)
{
	struct reader *r = f->owner;
	uint64_t at = MAX(f->at, f->from);
	int e;

	if (r->spooling) {
		e = spool_write(&r->spool, bytes, len, at);
		if (e == 0)
			r->spool_to = at + len;
		return e;
	}
	if (!window_is_next(&r->win, bytes) && !is_hungry(r))
		return -EAGAIN;
	e = window_add(&r->win, bytes, len);
	reader_account(r);
	return e;
}

/* Straight into the window. */
static char *stream_space(struct fetch *f, size_t *ret_len)
{
	struct reader *r = f->owner;
	char *to;

	if (r->spooling)
		return NULL;
	if (!is_hungry(r)) {
		*ret_len = 0;
		return NULL;
	}
	to = window_space(&r->win, ret_len);
	reader_account(r);
	return to;
}

static void stream_moved(struct fetch *f)
{
	struct reader *r = f->owner;

	if (f->known && f->at >= f->known_at + f->known_len)
		r->doubt = 0;
	reader_pump(r);
}

static void stream_ended(struct fetch *f, int err)
{
	struct reader *r = f->owner;

	reader_enter(r);
	r->stream = NULL;
	reader_account(r);
	if (f->complete && f->known)
		r->doubt = 0;
	if (err == 0)
		r->proven = !f->unsure;
	if (!is_settled(r, f, err))
		reader_fail(r, err);
	reader_pump(r);
	reader_leave(r);
}

int reader_stream_from(struct reader *r, uint64_t from)
{
	struct fetch *f;

	reader_stop_stream(r);
	r->proven = false;
	/* Where it costs little, what was handed out last comes with the rest. */
	if (r->doubt == DOUBT_ALL ||
	    (r->doubt &&
	     (r->last.end > from || (from - r->last.end > REACH && !r->node->thread->no_range))))
		return probe(r);
	f = new_fetch(r, from, r->version.size);
	if (!f || (r->doubt && compare(f, &r->last) < 0)) {
		free(f);
		return -ENOMEM;
	}
	f->owner = r;
	f->take = stream_take;
	f->space = stream_space;
	f->moved = stream_moved;
	f->ended = stream_ended;
	r->stream = f;
	fetch_begin(f, r->node, true);
	return 0;
}

void reader_feed(struct reader *r)
{
	if (r->stream && r->stream->paused && (r->spooling || is_hungry(r)))
		fetch_go_on(r->stream);
}

/* ---- the spool ---- */

int reader_to_spool(struct reader *r)
{
	struct iovec iov[WINDOW_IOV];
	uint64_t at = r->win.start;
	int e = spool_open(&r->spool, r->fs);

	if (e < 0)
		return e;
	r->spooling = true;
	r->spool_from = at;
	while (e == 0 && at < r->win.end) {
		size_t len = MIN(r->win.end - at, (WINDOW_IOV - 1) * (uint64_t)WINDOW_BLOCK);
		int n = window_find(&r->win, at, len, iov, WINDOW_IOV);

		for (int i = 0; e == 0 && i < n; i++) {
			e = spool_write(&r->spool, iov[i].iov_base, iov[i].iov_len, at);
			at += iov[i].iov_len;
		}
	}
	r->spool_to = r->win.end;
	if (e < 0) {
		spool_close(&r->spool);
		r->spooling = false;
		return e;
	}
	window_empty(&r->win, r->win.end);
	reader_account(r);
	reader_feed(r);
	return 0;
}

int reader_spool_from_start(struct reader *r)
{
	int e;

	if (!r->spooling && r->win.start == 0 && (r->stream || r->win.end > 0)) {
		e = reader_to_spool(r);
		return e < 0 || r->stream || (r->spool_to == r->version.size && !r->doubt)
			       ? e
			       : reader_stream_from(r, r->spool_to);
	}
	if (!r->spooling) {
		e = spool_open(&r->spool, r->fs);
		if (e < 0)
			return e;
		r->spooling = true;
		window_empty(&r->win, 0);
		reader_account(r);
	}
	r->spool_from = r->spool_to = 0;
	return reader_stream_from(r, 0);
}

/* ---- jumps ---- */

struct jump *reader_jump_of(const struct reader *r, const struct read_op *op)
{
	struct jump *j;

	DL_SEARCH_SCALAR(r->jumps, j, op, op);
	return j;
}

void reader_jump_free(struct jump *j)
{
	struct reader *r = j->reader;

	DL_DELETE(r->jumps, j);
	r->jump_count--;
	r->fs->memory_used -= j->len;
	fetch_leave(j->fetch);
	free(j->bytes);
	free(j);
}

void reader_jump_answer(struct jump *j)
{
	struct reader *r = j->reader;
	char *bytes CLEANUP_FREE = STEAL(j->bytes);
	struct iovec iov = { bytes, j->len };
	struct read_op *op = j->op;

	reader_jump_free(j);
	reader_hand_out(r, op, &iov, 1);
}

static int jump_take(struct fetch *f, const char *bytes, size_t len)
{
	struct jump *j = f->owner;

	if (bytes != j->bytes + (f->at - j->from))
		memcpy(j->bytes + (f->at - j->from), bytes, len);
	return 0;
}

static char *jump_space(struct fetch *f, size_t *ret_len)
{
	struct jump *j = f->owner;

	*ret_len = f->to - f->at;
	return j->bytes + (f->at - j->from);
}

static void jump_moved(struct fetch *f)
{
}

static void jump_ended(struct fetch *f, int err)
{
	struct jump *j = f->owner;
	struct reader *r = j->reader;
	struct read_op *op = j->op;

	reader_enter(r);
	j->fetch = NULL;
	if (err == 0 && !f->unsure) {
		reader_jump_answer(j);
	} else if (err < 0 && !f->complete) {
		reader_jump_free(j);
		if (!is_settled(r, f, err)) {
			reader_answer(r, op, err, NULL, 0);
			if (!r->dead)
				reader_fail(r, err);
		}
	}
	reader_pump(r);
	reader_leave(r);
}

int reader_jump(struct reader *r, struct read_op *op)
{
	struct jump *j;
	struct fetch *f;

	if (r->doubt)
		return probe(r);
	j = calloc(1, sizeof(*j));
	f = new_fetch(r, op->offset, reader_end_of(r, op));
	if (j)
		j->bytes = malloc(f ? f->to - f->from : 1);
	if (!j || !f || !j->bytes) {
		if (j)
			free(j->bytes);
		free(j);
		free(f);
		return -ENOMEM;
	}
	j->reader = r;
	j->fetch = f;
	j->op = op;
	j->from = f->from;
	j->len = f->to - f->from;
	r->fs->memory_used += j->len;
	DL_APPEND(r->jumps, j);
	r->jump_count++;
	r->jumped = true;
	r->jump_end = f->to;
	f->bounded = true;
	f->owner = j;
	f->take = jump_take;
	f->space = jump_space;
	f->moved = jump_moved;
	f->ended = jump_ended;
	fetch_begin(f, r->node, false);
	return 0;
}

void reader_stop_stream(struct reader *r)
{
	fetch_leave(STEAL(r->stream));
	reader_account(r);
}

void reader_stop(struct reader *r)
{
	struct jump *j, *next;

	reader_stop_stream(r);
	fetch_leave(STEAL(r->probe));
	DL_FOREACH_SAFE (r->jumps, j, next)
		reader_jump_free(j);
}

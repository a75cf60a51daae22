/*
 * Reading one open file: answering reads from what is held, and deciding what
 * to fetch next. How it is fetched is reader_fetch.c's, and what a change of the
 * file means reader_check.c's. Loop thread only.
 *
 * Each event (a read, bytes, an end, an answer about the version) changes
 * something and then calls reader_pump(), which does whatever has become
 * possible. The last bytes of a version are held back until it is proven that all
 * of them were of it (fetch.h says how): who has read to the end has read one version.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "reader_i.h"

static int64_t spare(const struct reader *r)
{
	return (int64_t)r->fs->opt->memory - (int64_t)r->fs->memory_used;
}

void reader_account(struct reader *r)
{
	size_t now;

	if (!r->stream)
		r->promised = 0;
	now = MAX(window_memory(&r->win), r->promised);
	r->fs->memory_used += now - r->counted;
	r->counted = now;
}

bool reader_has_end(const struct reader *r)
{
	return !r->stream && (r->spooling ? r->spool_to : r->win.end) == r->version.size;
}

static bool has_all(const struct reader *r)
{
	return r->proven && (r->spooling ? r->spool_from : r->win.start) == 0;
}

void reader_drop(struct reader *r, bool keep_bytes)
{
	reader_stop(r);
	r->proven = false;
	r->jumped = false;
	if (keep_bytes)
		return;
	window_reset(&r->win, 0);
	reader_account(r);
	spool_close(&r->spool);
	r->spooling = false;
	r->spool_from = r->spool_to = 0;
}

/* ---- answering ---- */

void reader_enter(struct reader *r)
{
	r->depth++;
}

void reader_leave(struct reader *r)
{
	if (--r->depth == 0 && r->dead)
		free(r);
}

void reader_answer(struct reader *r, struct read_op *op, int err, const struct iovec *iov,
		   int count)
{
	DL_DELETE(r->waiting, op);
	op->done(op, err, iov, count);
}

/* The end of what is handed out, to be compared if the file grows. */
static void take_sample(struct sample *s, uint64_t end, const struct iovec *iov, int count)
{
	size_t room = SAMPLE_MAX;

	for (int i = count - 1; i >= 0 && room > 0; i--) {
		size_t n = MIN(room, iov[i].iov_len);

		room -= n;
		memcpy(s->bytes + room, (char *)iov[i].iov_base + iov[i].iov_len - n, n);
	}
	s->len = SAMPLE_MAX - room;
	memmove(s->bytes, s->bytes + room, s->len);
	s->end = end;
}

void reader_hand_out(struct reader *r, struct read_op *op, const struct iovec *iov, int count)
{
	uint64_t end = reader_end_of(r, op);

	take_sample(&r->last, end, iov, count);
	if (!r->touched || r->pages)
		r->first = r->last;
	r->touched = true;
	r->pages = false;
	r->handed_ms = clock_ms();
	r->changes = 0;
	if (!r->spooling && end > r->win.start && end <= r->win.end)
		window_pass(&r->win, end, spare(r));
	reader_answer(r, op, 0, iov, count);
}

static bool serve_from_spool(struct reader *r, struct read_op *op, size_t len)
{
	char *bytes CLEANUP_FREE = malloc(len);
	ssize_t got = bytes ? spool_read(&r->spool, bytes, len, op->offset) : -ENOMEM;
	struct iovec iov = { bytes, len };

	if (got == (ssize_t)len)
		reader_hand_out(r, op, &iov, 1);
	else
		reader_answer(r, op, got < 0 ? (int)got : -EIO, NULL, 0);
	return true;
}

/* Whether it was answered from what is held. */
static bool serve(struct reader *r, struct read_op *op)
{
	struct iovec iov[WINDOW_IOV];
	uint64_t end = reader_end_of(r, op);
	size_t len = end - op->offset;
	int n;

	/* In doubt what is held waits, too. */
	if (len == 0 || r->doubt || r->suspect || r->stale ||
	    (end == r->version.size && !r->proven))
		return false;
	if (r->spooling) {
		if (op->offset < r->spool_from || end > r->spool_to)
			return false;
		return serve_from_spool(r, op, len);
	}
	if (!window_has(&r->win, op->offset, len))
		return false;
	n = window_find(&r->win, op->offset, len, iov, WINDOW_IOV);
	if (n < 0) /* several megabytes at once: nobody asks for that */
		reader_answer(r, op, -EINVAL, NULL, 0);
	else
		reader_hand_out(r, op, iov, n);
	return true;
}

static void serve_all(struct reader *r)
{
	struct read_op *op, *next;
	bool again;

	do {
		again = false;
		DL_FOREACH_SAFE (r->waiting, op, next) {
			if (!reader_jump_of(r, op) && serve(r, op)) {
				again = !r->dead;
				break;
			}
		}
	} while (again);
}

void reader_fail_waiting(struct reader *r, int err)
{
	struct read_op *op;
	struct keep *k;

	do {
		DL_FOREACH (r->waiting, op) {
			if (!reader_jump_of(r, op))
				break;
		}
		if (op)
			reader_answer(r, op, err, NULL, 0);
	} while (op && !r->dead);
	while (!r->dead && (k = r->keeps)) {
		DL_DELETE(r->keeps, k);
		k->done(k->ctx, err);
		free(k);
	}
}

void reader_fail(struct reader *r, int err)
{
	r->error = err;
	r->error_until = clock_ms() + ERROR_MS;
	reader_fail_waiting(r, err);
}

/* ---- deciding ---- */

/* But for those who jump: these have their own proof. */
static bool somebody_waits(const struct reader *r)
{
	struct read_op *op;

	DL_FOREACH (r->waiting, op) {
		if (!reader_jump_of(r, op))
			return true;
	}
	return false;
}

static bool somebody_is_near(const struct reader *r)
{
	struct read_op *op;

	DL_FOREACH (r->waiting, op) {
		if (reader_is_near(r, op) && !reader_jump_of(r, op))
			return true;
	}
	return false;
}

/* A read inside the file that cannot be answered from what is held. */
static int arrange(struct reader *r, struct read_op *op)
{
	bool no_range = r->node->thread->no_range;
	bool begins = op->offset == 0 || (r->jumped && op->offset == r->jump_end);

	if (r->spooling && op->offset >= r->spool_from)
		return r->stream ? 0 : reader_stream_from(r, r->spool_to);
	if (r->spooling)
		return no_range ? reader_spool_from_start(r) : reader_jump(r, op);
	if (reader_is_near(r, op)) {
		window_starve(&r->win);
		return 0;
	}
	if (!r->stream && op->offset >= r->win.start && op->offset <= r->win.end &&
	    (!no_range || r->win.end == 0))
		return reader_stream_from(r, r->win.end);
	if (no_range)
		return reader_spool_from_start(r);
	if (begins && !somebody_is_near(r)) {
		window_reset(&r->win, op->offset);
		reader_account(r);
		return reader_stream_from(r, op->offset);
	}
	return r->jump_count < JUMPS_MAX ? reader_jump(r, op) : 0;
}

/* Whether the node's attributes say that the version is still the same. */
static bool end_is_known(const struct reader *r)
{
	return r->kept ||
	       (node_is_fresh(r->node) && attr_same_version(&r->node->attr, &r->version));
}

/* What is under way will bring it, whatever else failed. */
static bool is_coming(const struct reader *r, const struct read_op *op)
{
	return r->spooling ? r->stream && op->offset >= r->spool_from : reader_is_near(r, op);
}

/* Returns whether the list may be gone through further. */
static bool arrange_or_fail(struct reader *r, struct read_op *op)
{
	struct jump *j;
	int e;

	if (op->offset >= r->version.size) {
		if (end_is_known(r)) {
			reader_answer(r, op, 0, NULL, 0);
			return false;
		}
		reader_check(r);
		return true;
	}
	j = reader_jump_of(r, op);
	if (j) {
		if (!j->fetch)
			reader_check(r);
		return true;
	}
	/* All is here but the proof. */
	if (reader_has_end(r) && !r->proven && !r->doubt) {
		reader_check(r);
		return true;
	}
	/* The kernel asks twice, for many pages and for one. */
	if (r->error && !is_coming(r, op)) {
		if (clock_ms() < r->error_until) {
			reader_answer(r, op, r->error, NULL, 0);
			return false;
		}
		r->error = 0;
	}
	e = arrange(r, op);
	if (e < 0) {
		reader_fail(r, e);
		return false;
	}
	return true;
}

static void tell_keepers(struct reader *r)
{
	struct keep *k;

	r->kept = true;
	reader_stop(r);
	while (!r->dead && (k = r->keeps)) {
		DL_DELETE(r->keeps, k);
		k->done(k->ctx, 0);
		free(k);
	}
}

/* Somebody wants all of it. */
static void arrange_keep(struct reader *r)
{
	int e = 0;

	if (has_all(r) || r->version.size == 0) {
		tell_keepers(r);
		return;
	}
	if (!r->spooling || r->spool_from > 0)
		e = reader_spool_from_start(r);
	if (e < 0)
		reader_fail(r, e);
	else if (reader_has_end(r) && !r->proven && !r->doubt)
		reader_check(r);
	else if (!r->stream && !r->probe && (e = reader_stream_from(r, r->spool_to)) < 0)
		reader_fail(r, e);
}

static void steer(struct reader *r)
{
	struct read_op *op;
	bool whole;

	if (r->stale) {
		reader_drop(r, false);
		reader_fail_waiting(r, -ESTALE);
		return;
	}
	if (r->waiting && reader_is_outdated(r))
		reader_check(r);
	if (r->suspect && (r->keeps || somebody_waits(r)))
		reader_check(r);
	do {
		whole = true;
		DL_FOREACH (r->waiting, op) {
			if (r->check || r->dead)
				return;
			if (!arrange_or_fail(r, op)) {
				whole = false;
				break;
			}
		}
	} while (!whole && !r->dead);
	if (r->dead || r->check)
		return;
	if (r->keeps)
		arrange_keep(r);
	if (!r->dead)
		reader_feed(r);
}

/* ---- idling ---- */

static int64_t idle_ms(const struct reader *r)
{
	return spare(r) > 0 ? IDLE_MS : IDLE_SHORT_MS;
}

/* All that is held, and nothing more comes. */
static bool has_read_all(const struct reader *r)
{
	return !r->stream && r->win.passed >= r->win.end;
}

/* Those who have read all come first, then whoever has not read for longest. */
static void set_idle(struct reader *r, bool idles)
{
	if (idles == r->idles)
		return;
	r->idles = idles;
	if (!idles)
		DL_DELETE2(r->fs->idlers, r, prev_idle, next_idle);
	else if (has_read_all(r))
		DL_PREPEND2(r->fs->idlers, r, prev_idle, next_idle);
	else
		DL_APPEND2(r->fs->idlers, r, prev_idle, next_idle);
}

static void arm(struct reader *r)
{
	bool idles = !r->waiting && !r->keeps && !r->kept &&
		     (r->win.count > 0 || (r->stream && r->stream->paused));

	set_idle(r, idles);
	if (!idles || ev_is_active(&r->idle))
		return;
	ev_timer_set(&r->idle, (double)idle_ms(r) / 1000, 0.);
	ev_timer_start(r->fs->ev, &r->idle);
}

/* Neither connection nor memory are held for him. */
static void let_go(struct reader *r)
{
	set_idle(r, false);
	reader_stop_stream(r);
	if (r->spooling)
		return;
	r->proven = false;
	window_empty(&r->win, MIN(MAX(r->win.passed, r->win.start), r->win.end));
	reader_account(r);
}

/*
 * Somebody reads and there is too much already: what is held for those who do not read goes, and
 * does not wait for their timers. Only between requests: it ends streams.
 */
static void make_room(struct fs *fs)
{
	struct reader *r, *next;

	for (r = fs->idlers; r && spare(r) <= 0; r = next) {
		next = r->next_idle;
		if (!has_read_all(r) && clock_ms() - r->used_ms < IDLE_SHORT_MS)
			break;
		/* One under way will see to it itself; one that cannot be resumed has its timer. */
		if (!r->stream || (r->stream->paused && !r->node->thread->no_range))
			let_go(r);
	}
}

/* Nobody has read for a while. */
static void on_idle(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct reader *r = w->data;
	bool is_small = r->version.size <= SMALL_FILE && spare(r) > 0;

	if (r->waiting || r->keeps || r->kept)
		return;
	if (clock_ms() - r->used_ms < idle_ms(r)) {
		arm(r);
		return;
	}
	if (r->stream && !r->stream->paused)
		return; /* it is busy, and will see to it */
	if (r->stream && r->node->thread->no_range) {
		if (reader_to_spool(r) == 0)
			return;
	}
	if (is_small)
		reader_stop_stream(r);
	else
		let_go(r);
}

/*
 * Nobody may wait for nothing: whatever led to that, a look at the file goes on from there, and
 * after some of them in a row whoever waits is told.
 */
static void look_if_still(struct reader *r)
{
	if (!r->waiting || r->stream || r->probe || r->jumps || r->check)
		return;
	log_topic(LOG_FILE, "thread %s: a read waits for nothing: its file is looked at",
		  r->node->thread->id);
	reader_changed(r);
}

/* Entered. */
static void pump(struct reader *r)
{
	if (!r->dead)
		serve_all(r);
	if (!r->dead && !r->check)
		steer(r);
	if (!r->dead)
		serve_all(r);
	if (!r->dead)
		look_if_still(r);
	if (!r->dead)
		arm(r);
}

void reader_pump(struct reader *r)
{
	reader_enter(r);
	pump(r);
	reader_leave(r);
}

/* ---- the public face ---- */

static struct reader *make(struct node *n, const struct attr *version)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->node = n;
	r->fs = n->fs;
	r->version = *version;
	r->suspect = attr_is_guess(version); /* no byte before it was looked at */
	r->spool.fd = -1;
	r->used_ms = clock_ms();
	window_reset(&r->win, 0);
	ev_init(&r->idle, on_idle);
	r->idle.data = r;
	return r;
}

int reader_new(struct node *n, const struct attr *version, struct reader **ret)
{
	struct reader *r = make(n, version);
	int e = 0;

	if (!r)
		return -ENOMEM;
	if (version->size > 0 && version->size <= SMALL_FILE && spare(r) > SMALL_FILE)
		e = reader_stream_from(r, 0);
	/* Many that are opened before the first bytes come share what there is. */
	if (r->stream) {
		r->promised = version->size;
		reader_account(r);
	}
	if (e < 0) {
		free(r);
		return e;
	}
	*ret = r;
	return 0;
}

int reader_new_after_pages(struct node *n, const struct attr *version, int64_t since_ms,
			   struct reader **ret)
{
	int e = reader_new(n, version, ret);

	if (e < 0)
		return e;
	(*ret)->touched = (*ret)->pages = true;
	(*ret)->last.end = version->size;
	(*ret)->handed_ms = since_ms;
	return 0;
}

int reader_new_with(struct node *n, const struct attr *version, const char *bytes,
		    uint64_t handed_out, int64_t since_ms, struct reader **ret)
{
	struct reader *r = make(n, version);
	struct iovec iov = { (char *)(uintptr_t)bytes, handed_out };
	int e;

	if (!r)
		return -ENOMEM;
	e = window_add(&r->win, bytes, version->size);
	reader_account(r);
	if (e < 0) {
		reader_free(r);
		return e;
	}
	r->proven = true;
	if (handed_out > 0) {
		take_sample(&r->last, handed_out, &iov, 1);
		r->first = r->last;
		r->touched = true;
		r->handed_ms = since_ms;
	}
	*ret = r;
	return 0;
}

void reader_free(struct reader *r)
{
	if (!r)
		return;
	reader_enter(r);
	reader_fail_waiting(r, -ECANCELED);
	reader_check_leave(r);
	reader_drop(r, false);
	window_release(&r->win);
	ev_timer_stop(r->fs->ev, &r->idle);
	set_idle(r, false);
	r->dead = true;
	reader_leave(r);
}

void reader_read(struct reader *r, struct read_op *op)
{
	r->used_ms = clock_ms();
	set_idle(r, false);
	if (spare(r) <= 0)
		make_room(r->fs);
	reader_enter(r);
	reader_look(r, op);
	DL_APPEND(r->waiting, op);
	if (reader_is_lost(r))
		reader_fail_waiting(r, -ESTALE);
	pump(r);
	reader_leave(r);
}

void reader_cancel(struct reader *r, struct read_op *op)
{
	struct jump *j = reader_jump_of(r, op);

	if (j)
		reader_jump_free(j);
	DL_DELETE(r->waiting, op);
	reader_pump(r);
}

void reader_keep(struct reader *r, void (*done)(void *ctx, int err), void *ctx)
{
	struct keep *k = calloc(1, sizeof(*k));

	if (!k) {
		done(ctx, -ENOMEM);
		return;
	}
	k->done = done;
	k->ctx = ctx;
	DL_APPEND(r->keeps, k);
	reader_pump(r);
}

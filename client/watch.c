/*
 * Watching a tree: a watcher on the server (shared with others that ask for
 * the same, hence leased), its stream of events, and mending both when they
 * break. What the events mean to a cache is its owner's business. Loop thread,
 * except the public function.
 *
 *	lease ──▶ connect ──▶ stream ──broken──▶ pause ──▶ connect, resuming
 *	  ▲                     │ overflow: the same, from now on
 *	  └────────── pause ◀───┘ the server does not know the watcher any more
 *
 * The consumer is told `lost` when something was missed for certain, and also
 * when the first attempt to mend fails: until `live` comes again it is blind.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jsonw.h"
#include "reply.h"
#include "sandbox_i.h"
#include "share.h"
#include "sse.h"
#include "utf8.h"
#include "view.h"

enum {
	DEBOUNCE_LEAST_MS = 50, /* what servers accept */
	DEBOUNCE_MOST_MS = 5000,
	SILENCE_MS = 90000, /* three heartbeats */
	LEASE_MS = 30000,   /* a large tree takes a while */
	ORPHAN_MS = 500,
	PAUSE_LEAST_MS = 100,
	PAUSE_MOST_MS = 5000,
	ID_MAX = 64,
	BURST_US = 1000000, /* of its share at once; others have their turns between two pieces */
};

static const char no_watch[] = "the server cannot watch files: it needs version 1.9.4 or later";

struct watch_op {
	struct op op;
	struct step step;    /* waits for the lease */
	struct lease *lease; /* being asked for; or NULL */
	struct exchange x;   /* the stream */
	struct sse sse;      /* what came of it */
	ev_timer silence;    /* of the stream */
	ev_timer pause;      /* before the next attempt */
	/* Of the loop's time, for what comes, whatever that is: when it is used up the stream is
	 * not read, and counts as lost, until that is made up for. */
	struct share share;
	ev_timer breath;   /* runs until then */
	bool was_live;     /* before */
	unsigned pause_ms; /* how long it will be */
	struct watch how;
	char *path; /* normal */

	char id[ID_MAX + 1];       /* of the watcher; "" while there is none */
	struct farewell *farewell; /* gives it back */
	int64_t cursor;            /* the last event seen; -1: not known, a break makes a gap */
	bool fresh;                /* nobody had the watcher before: all its events are after 0 */

	bool live;     /* what the consumer was told last */
	bool started;  /* this connection has begun to send */
	bool overflow; /* the stream has said that it ends for that */
	int gap;       /* events of this piece that could not be read: why; or 0 */
};

static void connect_stream(struct watch_op *w);
static void ask_lease(struct watch_op *w);

/* ---- the consumer ---- */

static void tell_lost(struct watch_op *w, int err)
{
	if (!w->live)
		return;
	w->live = false;
	w->how.lost(w->how.ctx, err);
}

static void tell_live(struct watch_op *w)
{
	w->live = true;
	w->how.live(w->how.ctx);
}

/* ---- its end, and trying again ---- */

static void give_back(struct watch_op *w)
{
	sandbox_say_farewell(w->op.sb, STEAL(w->farewell));
	w->id[0] = '\0';
}

static void on_interrupted(struct op *op, int err UNUSED)
{
	give_back((struct watch_op *)op);
}

static void end(struct watch_op *w, int err, char *message)
{
	give_back(w);
	op_finish_with(&w->op, err, message);
}

static void on_pause_over(struct ev_loop *ev UNUSED, ev_timer *t, int revents UNUSED)
{
	struct watch_op *w = t->data;

	if (w->id[0])
		connect_stream(w);
	else
		ask_lease(w);
}

static void try_later(struct watch_op *w)
{
	ev_timer_set(&w->pause, w->pause_ms / 1e3, 0.);
	ev_timer_start(loop_ev(w->op.sb->loop), &w->pause);
	w->pause_ms = MIN(2 * w->pause_ms, (unsigned)PAUSE_MOST_MS);
}

static void mend(struct watch_op *w, int err)
{
	/* What breaks in the middle and is resumed at once has lost nothing. */
	if (w->cursor < 0 || !w->started)
		tell_lost(w, err);
	w->started = false;
	try_later(w);
}

static void start_over(struct watch_op *w, int err)
{
	tell_lost(w, err);
	w->started = false;
	w->cursor = -1;
	w->fresh = false;
	try_later(w);
}

/* Whether what went wrong may be better the next time. An answer counts by its status. */
static bool may_pass(int transport, int status)
{
	switch (transport) {
	case 0:
		return status >= 502 && status <= 504;
	case -ENOMEM:
	case -EINVAL:
	case -EKEYREJECTED:
		return false;
	default:
		return true;
	}
}

/* ---- the lease ---- */

/*
 * The request for a watcher: an operation of its own, because it must not be
 * dropped half-way. The watcher would stay on the server, and nobody would know
 * its id.
 */
struct lease {
	struct op op;
	struct call call;
	struct exchange x;
	struct watch_op *watch; /* NULL: an orphan, to be given back at once */
	ev_timer patience;      /* of an orphan */
};

static bool is_id(const char *s)
{
	size_t len = strspn(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_");

	return len > 0 && len <= ID_MAX && s[len] == '\0';
}

static struct farewell *add_farewell(struct sandbox *sb, const char *id)
{
	char target[ID_MAX + 32];

	snprintf(target, sizeof(target), "/v1/file/watch/%s", id);
	return sandbox_add_farewell(sb, "DELETE", target);
}

static void leased(struct watch_op *w, const cJSON *data, const char *id)
{
	w->op.sb->features.watch = YES;
	snprintf(w->id, sizeof(w->id), "%s", id);
	w->farewell = add_farewell(w->op.sb, id);
	w->cursor = answer_int(data, "initial_cursor", -1);
	w->fresh = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(data, "reused"));
	connect_stream(w);
}

static void not_leased(struct watch_op *w, int transport, int status, struct answer *a)
{
	struct features *f = &w->op.sb->features;

	if (a->no_route) {
		if (f->watch == UNKNOWN)
			f->watch = NO;
		end(w, -EOPNOTSUPP, strdup(no_watch));
	} else if (may_pass(transport, status)) {
		tell_lost(w, a->error);
		try_later(w);
	} else {
		end(w, a->error, STEAL(a->message));
	}
}

static void on_leased(struct exchange *x, int err)
{
	struct lease *l = CONTAINER_OF(x, struct lease, x);
	struct watch_op *w = STEAL(l->watch);
	struct answer a CLEANUP_ANSWER = { 0 };
	const char *id = NULL;

	if (reply_decode(&a, x, err) == 0) {
		id = answer_str(a.data, "watcher_id");
		if (!id || !is_id(id)) {
			id = NULL;
			a.error = -EBADMSG;
		}
	}
	if (w) {
		w->lease = NULL;
		op_go_on(&w->op);
		if (id)
			leased(w, a.data, id);
		else
			not_leased(w, err, x->status, &a);
	} else if (id) {
		sandbox_say_farewell(l->op.sb, add_farewell(l->op.sb, id));
	}
	op_finish(&l->op, 0);
}

static void start_lease(struct op *op)
{
	struct lease *l = (struct lease *)op;
	const struct watch_op *w = l->watch;
	struct jw j;

	if (!w) {
		op_finish(op, 0);
		return;
	}
	exchange_init(&l->x, op, "POST", "/v1/file/watch", on_leased);
	l->x.lane = LANE_WAIT;
	l->x.timeout_ms = LEASE_MS;
	jw_init(&j, &l->x.body);
	jw_obj(&j);
	jw_kstr(&j, "path", w->path);
	jw_kbool(&j, "recursive", true);
	jw_key(&j, "exclude");
	jw_arr(&j);
	jw_arr_end(&j);
	jw_key(&j, "include_patterns");
	jw_arr(&j);
	jw_arr_end(&j);
	jw_kint(&j, "debounce", w->how.debounce_ms);
	jw_obj_end(&j);
	exchange_start(&l->x);
}

static void release_lease_op(struct op *op)
{
	struct lease *l = (struct lease *)op;

	ev_timer_stop(loop_ev(op->sb->loop), &l->patience);
	exchange_release(&l->x);
}

static void on_lease_done(struct call *call)
{
	struct sandbox *sb = call->ctx;

	call_release(call);
	free(CONTAINER_OF(call, struct lease, call));
	sandbox_let_go(sb);
}

static void on_patience_over(struct ev_loop *ev UNUSED, ev_timer *t, int revents UNUSED)
{
	op_interrupt(t->data, -ETIMEDOUT);
}

static void ask_lease(struct watch_op *w)
{
	struct lease *l = calloc(1, sizeof(*l));

	if (!l) {
		end(w, -ENOMEM, NULL);
		return;
	}
	l->watch = w;
	ev_timer_init(&l->patience, on_patience_over, ORPHAN_MS / 1e3, 0.);
	l->patience.data = &l->op;
	call_init(&l->call, 0);
	l->call.done = on_lease_done;
	l->call.ctx = sandbox_hold(w->op.sb);
	l->op.farewell = true;
	w->lease = l;
	op_wait(&w->op, &w->step);
	op_submit(&l->op, w->op.sb, &l->call, start_lease, release_lease_op);
}

/* The watch is over before the answer came. */
static void orphan_lease(struct step *s)
{
	struct watch_op *w = CONTAINER_OF(s, struct watch_op, step);
	struct lease *l = STEAL(w->lease);

	l->watch = NULL;
	ev_timer_start(loop_ev(w->op.sb->loop), &l->patience);
}

/* ---- the stream ---- */

/* A name that is not UTF-8 comes with U+FFFD in it: which file it is nobody knows. */
static bool is_mangled(const char *path)
{
	return path && strstr(path, "\xef\xbf\xbd");
}

static bool is_below(const char *root, const char *path)
{
	const char *why;

	return !path || view_check(root, path, &why) == 0;
}

/* Returns 0, or why the consumer cannot know what changed. */
static int take_change(struct watch_op *w, const struct sse_event *ev)
{
	char *text CLEANUP_FREE = strdup(ev->data);
	cJSON *json CLEANUP_JSON = NULL;
	struct watch_event change;

	if (!text)
		return -ENOMEM;
	if (json_parse(text, strlen(text), &json, NULL) < 0 ||
	    watch_event_decode(json, &change) < 0 || !is_below(w->path, change.path) ||
	    !is_below(w->path, change.old_path))
		return -EBADMSG;
	w->cursor = change.seq;
	if (is_mangled(change.path) || is_mangled(change.old_path))
		return -EILSEQ;
	w->how.event(w->how.ctx, &change);
	return 0;
}

static void begin_stream(struct watch_op *w)
{
	if (w->started)
		return;
	w->started = true;
	w->pause_ms = PAUSE_LEAST_MS;
	if (w->cursor < 0 && w->fresh)
		w->cursor = 0;
	w->fresh = false;
	tell_live(w);
}

static int on_event(void *ctx, const struct sse_event *ev)
{
	struct watch_op *w = ctx;
	int r;

	if (strcmp(ev->type, "watch_started") == 0) {
		begin_stream(w);
	} else if (strcmp(ev->type, "file_change") == 0) {
		begin_stream(w);
		r = take_change(w, ev);
		if (r < 0)
			w->gap = r;
	} else if (strcmp(ev->type, "overflow") == 0) {
		w->overflow = true;
		return -EOVERFLOW;
	}
	return 0;
}

static void on_breath_over(struct ev_loop *ev, ev_timer *t, int revents UNUSED)
{
	struct watch_op *w = t->data;

	w->share = (struct share){ 0 };
	ev_timer_again(ev, &w->silence);
	if (w->was_live)
		tell_live(w);
	exchange_go_on(&w->x);
}

static void charge(struct watch_op *w, int64_t began_us)
{
	struct ev_loop *ev = loop_ev(w->op.sb->loop);

	share_pay(&w->share, began_us);
	if (!share_is_used_up(&w->share, BURST_US))
		return;
	w->was_live = w->live;
	tell_lost(w, -EOVERFLOW);
	ev_timer_stop(ev, &w->silence);
	ev_timer_set(&w->breath, share_pause_s(&w->share), 0.);
	ev_timer_start(ev, &w->breath);
}

static int on_bytes(struct exchange *x, const char *bytes, size_t len)
{
	struct watch_op *w = CONTAINER_OF(x, struct watch_op, x);
	int64_t began_us = clock_us();
	int r;

	if (ev_is_active(&w->breath))
		return -EAGAIN;
	ev_timer_again(loop_ev(w->op.sb->loop), &w->silence);
	r = sse_feed(&w->sse, bytes, len);
	/* Once for all of this piece: a tree of strange names must not drown the consumer. */
	if (w->gap) {
		tell_lost(w, w->gap);
		tell_live(w);
		w->gap = 0;
	}
	if (r == 0)
		charge(w, began_us);
	return r;
}

static void on_stream_over(struct exchange *x, int err)
{
	struct watch_op *w = CONTAINER_OF(x, struct watch_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };

	ev_timer_stop(loop_ev(w->op.sb->loop), &w->silence);
	ev_timer_stop(loop_ev(w->op.sb->loop), &w->breath);
	if (w->overflow) {
		start_over(w, -EOVERFLOW);
	} else if (!err && x->status == 200) {
		mend(w, -ECONNRESET);
	} else if (!err && x->status == 404) {
		/* Forgotten, most likely by a restart. There is nothing to give back. */
		sandbox_drop_farewell(w->op.sb, STEAL(w->farewell));
		w->id[0] = '\0';
		start_over(w, -ESTALE);
	} else {
		reply_decode(&a, x, err);
		if (may_pass(err, x->status))
			mend(w, a.error);
		else
			end(w, a.error ?: -EPROTO, STEAL(a.message));
	}
}

static void on_silence(struct ev_loop *ev, ev_timer *t, int revents UNUSED)
{
	struct watch_op *w = t->data;

	ev_timer_stop(ev, t);
	exchange_stop(&w->x);
	op_go_on(&w->op);
	mend(w, -ETIMEDOUT);
}

static int set_headers(struct watch_op *w)
{
	char line[ID_MAX + 64];

	if (w->cursor >= 0) {
		snprintf(line, sizeof(line), "Last-Event-ID: %s:%" PRId64, w->id, w->cursor);
		if (exchange_header(&w->x, line) < 0)
			return -ENOMEM;
	}
	return exchange_header(&w->x, "Accept: text/event-stream");
}

static void connect_stream(struct watch_op *w)
{
	char target[ID_MAX + 32];

	exchange_release(&w->x);
	snprintf(target, sizeof(target), "/v1/file/watch/%s/events", w->id);
	exchange_init(&w->x, &w->op, "GET", target, on_stream_over);
	w->x.lane = LANE_WAIT;
	w->x.data = on_bytes;
	if (set_headers(w) < 0) {
		end(w, -ENOMEM, NULL);
		return;
	}
	w->overflow = false;
	sse_reset(&w->sse);
	ev_timer_again(loop_ev(w->op.sb->loop), &w->silence);
	exchange_start(&w->x);
}

/* ---- the operation ---- */

static void start_watch(struct op *op)
{
	struct watch_op *w = (struct watch_op *)op;

	if (op->sb->features.watch == NO)
		op_finish_with(op, -EOPNOTSUPP, strdup(no_watch));
	else
		ask_lease(w);
}

static void release_watch(struct op *op)
{
	struct watch_op *w = (struct watch_op *)op;

	ev_timer_stop(loop_ev(op->sb->loop), &w->silence);
	ev_timer_stop(loop_ev(op->sb->loop), &w->pause);
	ev_timer_stop(loop_ev(op->sb->loop), &w->breath);
	exchange_release(&w->x);
	sse_release(&w->sse);
	free(w->path);
	free(w);
}

static struct watch_op *new_watch(const char *path, const struct watch *how, int64_t silence_ms)
{
	struct watch_op *w = calloc(1, sizeof(*w));

	if (!w || view_root(path, &w->path) < 0) {
		free(w);
		return NULL;
	}
	w->op.interrupted = on_interrupted;
	w->step.stop = orphan_lease;
	w->how = *how;
	w->how.debounce_ms =
		MIN(MAX(how->debounce_ms, (unsigned)DEBOUNCE_LEAST_MS), (unsigned)DEBOUNCE_MOST_MS);
	w->pause_ms = PAUSE_LEAST_MS;
	w->cursor = -1;
	sse_init(&w->sse, on_event, w);
	ev_timer_init(&w->silence, on_silence, 0., (ev_tstamp)silence_ms / 1e3);
	ev_set_priority(&w->silence, EV_MINPRI); /* what has come meanwhile was no silence */
	w->silence.data = w;
	ev_timer_init(&w->pause, on_pause_over, 0., 0.);
	w->pause.data = w;
	ev_timer_init(&w->breath, on_breath_over, 0., 0.);
	w->breath.data = w;
	return w;
}

void sandbox_watch(struct sandbox *sb, struct call *call, const char *path, const struct watch *how)
{
	int64_t silence_ms = call->timeout_ms > 0 ? call->timeout_ms : SILENCE_MS;
	struct watch_op *w;

	if (!sandbox_allows(sb, call, path))
		return;
	if (!utf8_valid(path, strlen(path))) {
		op_reject(sb, call, -EILSEQ, "only a path in UTF-8 can be watched");
		return;
	}
	/* Silence leads to another connection, not to the end of the call. */
	call->timeout_ms = 0;
	w = new_watch(path, how, silence_ms);
	op_submit(&w->op, sb, call, start_watch, release_watch);
}

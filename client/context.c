/*
 * What a server is: its own description, which routes it has, and whether it
 * answers at all. Negative answers are remembered; what could not be found out
 * is asked again. Loop thread, except the public functions.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "reply.h"
#include "sandbox_i.h"

enum {
	DESCRIPTION_MAX = 1024 * 1024, /* bytes of an answer */
	WORD_MAX = 4095,               /* of one string in it */
};

static const char description[] = "/v1/sandbox";

void sandbox_info_release(struct sandbox_info *info)
{
	free(info->version);
	free(info->home_dir);
	free(info->workspace);
	*info = (struct sandbox_info){ 0 };
}

const char *sandbox_dialect(struct sandbox *sb)
{
	return atomic_load(&sb->dialect) ?: "";
}

/* ---- the probe ---- */

/* Routes that a generation has or has not. */
static const struct feature {
	const char *target;
	size_t offset; /* of its enum tri */
} probed[] = {
	{ "/v1/capabilities", offsetof(struct features, aiod) },
	{ "/v1/bash/sessions", offsetof(struct features, bash) },
	{ "/v1/file/watch", offsetof(struct features, watch) },
};

struct context_op {
	struct op op;
	struct exchange x;
	struct sandbox_info info;
	size_t next; /* in probed */
	bool unsure; /* about at least one of them */
	struct sandbox_info *ret;
};

static enum tri *state(struct sandbox *sb, const struct feature *f)
{
	return (enum tri *)((char *)&sb->features + f->offset);
}

static const char *dialect_of(const struct features *f)
{
	if (f->aiod == YES)
		return "aiod";
	return f->bash == YES || f->watch == YES ? "1.9" : "1.0";
}

static int copy_word(char **to, const char *from)
{
	if (from && !(*to = strdup(from)))
		return -ENOMEM;
	return 0;
}

static int copy_info(struct sandbox_info *to, const struct sandbox_info *from)
{
	struct sandbox_info copy = *from;
	int r;

	copy.version = copy.home_dir = copy.workspace = NULL;
	r = copy_word(&copy.version, from->version);
	if (r == 0)
		r = copy_word(&copy.home_dir, from->home_dir);
	if (r == 0)
		r = copy_word(&copy.workspace, from->workspace);
	if (r < 0)
		sandbox_info_release(&copy);
	else
		*to = copy;
	return r;
}

/* A field that people will see and programs will use as a path: nothing strange in it. */
static const char *word(const struct answer *a, const char *key)
{
	const char *s = answer_str(a->root, key) ?: answer_str(a->data, key);

	if (!s || strlen(s) > WORD_MAX)
		return NULL;
	for (const char *c = s; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return NULL;
	}
	return s;
}

/* The oldest servers say neither version nor home_dir. */
static int read_description(const struct answer *a, struct sandbox_info *info)
{
	int r;

	if (!cJSON_IsObject(a->root))
		return -EBADMSG;
	r = copy_word(&info->version, word(a, "version") ?: "");
	if (r == 0)
		r = copy_word(&info->home_dir, word(a, "home_dir") ?: "");
	if (r == 0)
		r = copy_word(&info->workspace, word(a, "workspace"));
	return r;
}

static void probed_all(struct context_op *o)
{
	struct sandbox *sb = o->op.sb;
	const struct features *f = &sb->features;
	const char *dialect = dialect_of(f);
	struct sandbox_info *kept;
	int r;

	o->info.has_bash = f->bash == YES;
	o->info.has_watch = f->watch == YES;
	snprintf(o->info.dialect, sizeof(o->info.dialect), "%s", dialect);
	atomic_store(&sb->dialect, dialect);
	/* Two first calls at once both get here: the one that came first is kept. */
	if (!o->unsure && !sb->info && (kept = calloc(1, sizeof(*kept)))) {
		if (copy_info(kept, &o->info) == 0)
			sb->info = kept;
		else
			free(kept);
	}
	r = copy_info(o->ret, &o->info);
	op_finish(&o->op, r);
}

static void probe_next(struct context_op *o);

static void on_probed(struct exchange *x, int err)
{
	struct context_op *o = CONTAINER_OF(x, struct context_op, x);
	enum tri *known = state(o->op.sb, &probed[o->next]);
	struct answer a CLEANUP_ANSWER = { 0 };

	reply_decode(&a, x, err);
	if (err) {
		op_finish_with(&o->op, err, STEAL(a.message));
		return;
	}
	if (x->status == 200)
		*known = YES;
	else if (a.no_route)
		*known = NO;
	o->unsure |= *known == UNKNOWN;
	o->next++;
	probe_next(o);
}

static void ask(struct exchange *x, struct op *op, const char *target,
		void (*then)(struct exchange *, int))
{
	exchange_release(x);
	exchange_init(x, op, "GET", target, then);
	x->answer_max = DESCRIPTION_MAX;
}

static void probe_next(struct context_op *o)
{
	while (o->next < ARRAY_SIZE(probed) && *state(o->op.sb, &probed[o->next]) != UNKNOWN)
		o->next++;
	if (o->next == ARRAY_SIZE(probed)) {
		probed_all(o);
		return;
	}
	ask(&o->x, &o->op, probed[o->next].target, on_probed);
	o->x.idempotent = true;
	exchange_start(&o->x);
}

/* Something else answers at that address; what it says, a page perhaps, is of no use. */
static char *stranger(const struct exchange *x)
{
	char *words = NULL;

	if (asprintf(&words, "what answers there is no AIO sandbox (GET %s: HTTP %d)", description,
		     (int)x->status) < 0)
		return NULL;
	return words;
}

static void on_described(struct exchange *x, int err)
{
	struct context_op *o = CONTAINER_OF(x, struct context_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };

	err = reply_decode(&a, x, err) ?: read_description(&a, &o->info);
	if (err && (a.no_route || (err == -EBADMSG && x->status == 200)))
		op_finish_with(&o->op, err, stranger(x));
	else if (err)
		op_finish_with(&o->op, err, STEAL(a.message));
	else
		probe_next(o);
}

static void start_context(struct op *op)
{
	struct context_op *o = (struct context_op *)op;

	if (op->sb->info) {
		op_finish(op, copy_info(o->ret, op->sb->info));
		return;
	}
	ask(&o->x, op, description, on_described);
	o->x.idempotent = true;
	exchange_start(&o->x);
}

static void release_context(struct op *op)
{
	struct context_op *o = (struct context_op *)op;

	exchange_release(&o->x);
	sandbox_info_release(&o->info);
	free(o);
}

void sandbox_context(struct sandbox *sb, struct call *call, struct sandbox_info *ret)
{
	struct context_op *o = calloc(1, sizeof(*o));

	if (o)
		o->ret = ret;
	op_submit(&o->op, sb, call, start_context, release_context);
}

/* ---- does it answer? ---- */

/* 0 if the exchange was answered with 200; else a says why not. */
static int answered(struct answer *a, struct exchange *x, int err)
{
	if (!err && x->status == 200)
		return 0;
	return reply_decode(a, x, err) ?: -EIO;
}

struct ping_op {
	struct op op;
	struct exchange x;
};

static void on_pong(struct exchange *x, int err)
{
	struct answer a CLEANUP_ANSWER = { 0 };

	err = answered(&a, x, err);
	op_finish_with(x->op, err, STEAL(a.message));
}

static void start_ping(struct op *op)
{
	struct ping_op *o = (struct ping_op *)op;

	ask(&o->x, op, description, on_pong);
	exchange_start(&o->x);
}

static void release_ping(struct op *op)
{
	struct ping_op *o = (struct ping_op *)op;

	exchange_release(&o->x);
	free(o);
}

void sandbox_ping(struct sandbox *sb, struct call *call)
{
	struct ping_op *o = calloc(1, sizeof(*o));

	op_submit(&o->op, sb, call, start_ping, release_ping);
}

/* ---- until it does ---- */

struct ready_op {
	struct op op;
	struct exchange x;
	ev_timer pause;
	int64_t deadline_ms; /* 0: none */
	int64_t timeout_ms, try_ms, pause_ms;
	bool tried;
	bool is_short; /* the end of the time leaves it less than half of try_ms */
	int error;     /* of the last try that had its time */
	char *message;
};

static int64_t ready_left_ms(const struct ready_op *o)
{
	if (o->deadline_ms == 0)
		return INT64_MAX;
	return MAX(o->deadline_ms - clock_ms(), 0);
}

static void try_again(struct ready_op *o);

static void on_pause_over(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	try_again(w->data);
}

static void on_tried(struct exchange *x, int err)
{
	struct ready_op *o = CONTAINER_OF(x, struct ready_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	int64_t pause;

	err = answered(&a, x, err);
	if (!err) {
		op_finish(&o->op, 0);
		return;
	}
	/* That the time is over says less than what was met before. */
	if (err != -ETIMEDOUT || !o->is_short || !o->tried) {
		o->error = err;
		free(o->message);
		o->message = STEAL(a.message);
	}
	o->tried = true;
	pause = MIN(o->pause_ms, ready_left_ms(o));
	ev_timer_set(&o->pause, (ev_tstamp)pause / 1e3, 0.);
	ev_timer_start(loop_ev(o->op.sb->loop), &o->pause);
}

static void try_again(struct ready_op *o)
{
	int64_t left = ready_left_ms(o);

	if (left == 0) {
		op_finish_with(&o->op, o->error, STEAL(o->message));
		return;
	}
	ask(&o->x, &o->op, description, on_tried);
	o->is_short = left < o->try_ms / 2;
	o->x.timeout_ms = o->try_ms > 0 ? MIN(o->try_ms, left) : left;
	if (o->x.timeout_ms == INT64_MAX)
		o->x.timeout_ms = 0;
	exchange_start(&o->x);
}

static void start_ready(struct op *op)
{
	struct ready_op *o = (struct ready_op *)op;

	if (o->timeout_ms > 0)
		o->deadline_ms = clock_ms() + o->timeout_ms;
	try_again(o);
}

static void release_ready(struct op *op)
{
	struct ready_op *o = (struct ready_op *)op;

	ev_timer_stop(loop_ev(op->sb->loop), &o->pause);
	exchange_release(&o->x);
	free(o->message);
	free(o);
}

void sandbox_wait_ready(struct sandbox *sb, struct call *call, int64_t try_ms, int64_t pause_ms)
{
	struct ready_op *o = calloc(1, sizeof(*o));

	if (o) {
		ev_timer_init(&o->pause, on_pause_over, 0., 0.);
		o->pause.data = o;
		o->error = -ETIMEDOUT;
		o->try_ms = try_ms;
		o->pause_ms = pause_ms;
		/* The end of the time brings the last try's error, so it is watched here. */
		o->timeout_ms = call->timeout_ms;
		call->timeout_ms = 0;
	}
	op_submit(&o->op, sb, call, start_ready, release_ready);
}

/*
 * See sweep.h. An operation with a call of its own. On an open sandbox it has
 * some time; when that is closed meanwhile it becomes a farewell, which has
 * half a second. Loop thread only.
 */
#include "sweep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "jsonw.h"
#include "reply.h"
#include "sandbox_i.h"
#include "session.h"

enum {
	SWEEP_MS = 10000,
	FAREWELL_MS = 500,
	PAUSE_MS = 50, /* then twice as long each time */
};

struct broom {
	struct op op;
	struct call call;
	struct exchange x;
	bool in_shell;
	ev_timer again;
	unsigned tries;
	char *script, *at_close;
};

static void send_script(struct broom *b);

static void on_again(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	send_script(w->data);
}

/* It was refused: the server has no session to spare, perhaps in a moment. */
static void pause_sweep(struct broom *b)
{
	ev_timer_init(&b->again, on_again, (PAUSE_MS << MIN(b->tries, 6U)) / 1e3, 0.);
	b->again.data = b;
	b->tries++;
	ev_timer_start(loop_ev(b->op.sb->loop), &b->again);
}

static void on_swept(struct exchange *x, int err)
{
	struct broom *b = CONTAINER_OF(x, struct broom, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	int r = reply_decode(&a, x, err);
	const char *session = r == 0 ? answer_str(a.data, "session_id") : NULL;

	if (a.no_route && !b->in_shell) {
		b->in_shell = true;
		send_script(b);
		return;
	}
	if (r < 0 && err == 0 && !a.no_route) {
		pause_sweep(b);
		return;
	}
	if (session) /* a command without one leaves a new one behind */
		session_end_id(x->op->sb, b->in_shell ? SESSION_SHELL : SESSION_BASH, session);
	op_finish(&b->op, 0);
}

static void send_script(struct broom *b)
{
	struct jw w;

	exchange_release(&b->x);
	exchange_init(&b->x, &b->op, "POST", b->in_shell ? "/v1/shell/exec" : "/v1/bash/exec",
		      on_swept);
	b->x.idempotent = true;
	jw_init(&w, &b->x.body);
	jw_obj(&w);
	jw_kstr(&w, "command", b->script);
	jw_kstr(&w, "exec_dir", "/");
	jw_obj_end(&w);
	exchange_start(&b->x);
}

/* Every server has the shell, but few sessions of it: first the other, unless it is known. */
static void start_sweep(struct op *op)
{
	struct broom *b = (struct broom *)op;

	b->in_shell = op->sb->features.bash == NO;
	send_script(b);
}

static void release_sweep(struct op *op)
{
	struct broom *b = (struct broom *)op;

	ev_timer_stop(loop_ev(op->sb->loop), &b->again);
	exchange_release(&b->x);
}

static void broom_free(struct broom *b)
{
	free(b->script);
	free(b->at_close);
	free(b);
}

static void on_sweep_done(struct call *call)
{
	struct broom *b = CONTAINER_OF(call, struct broom, call);
	struct sandbox *held = call->ctx;

	/* Closed meanwhile, perhaps before it had even begun. */
	if (call->error == -ENOTCONN && !b->op.farewell)
		sweep(held, b->script, b->at_close);
	call_release(call);
	broom_free(b);
	sandbox_let_go(held);
}

static struct broom *broom_new(const char *script, const char *at_close, bool closing)
{
	struct broom *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return NULL;
	r = asprintf(&b->script, "%s%s%s", script, closing && at_close ? "; " : "",
		     closing && at_close ? at_close : "");
	if (r < 0)
		b->script = NULL;
	if (at_close && !closing)
		b->at_close = strdup(at_close);
	if (!b->script || (at_close && !closing && !b->at_close)) {
		broom_free(b);
		return NULL;
	}
	return b;
}

void sweep(struct sandbox *sb, const char *script, const char *at_close)
{
	bool closing = sb->closing;
	struct broom *b = broom_new(script, at_close, closing);

	if (!b)
		return;
	call_init(&b->call, closing ? FAREWELL_MS : SWEEP_MS);
	b->call.done = on_sweep_done;
	b->call.ctx = sandbox_hold(sb);
	b->op.farewell = closing;
	op_submit(&b->op, sb, &b->call, start_sweep, release_sweep);
}

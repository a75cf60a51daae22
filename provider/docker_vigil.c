/*
 * Waiting for the end of a container that we use. A port that its container no
 * longer has may be another's a second later, and that one's sandbox would answer as well:
 * so whoever uses it must hear of the end, not find out by a connection that is refused. The
 * engine is asked to answer when it does not run any more; an engine that goes away is asked again.
 * Loop thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "docker_i.h"
#include "log.h"

enum { AGAIN_MS = 1000 };

struct vigil {
	struct docker *b;
	char id[SANDBOX_ID_LEN + 1], *key;
	struct call call;
	struct response response;
	bool calling, over; /* over: nobody wants to know any more */
	ev_timer timer;
};

static void vigil_free(struct vigil *v)
{
	ev_timer_stop(loop_ev(v->b->base.loop), &v->timer);
	call_release(&v->call);
	response_release(&v->response);
	free(v->key);
	free(v);
}

static void ask(struct vigil *v);

static void on_again(struct ev_loop *ev UNUSED, ev_timer *timer, int revents UNUSED)
{
	ask(CONTAINER_OF(timer, struct vigil, timer));
}

/* 200: it has ended. 404: it is gone. Anything else says nothing. */
static bool says_ended(const struct vigil *v)
{
	char *words CLEANUP_FREE = NULL;

	if (v->call.error < 0)
		return false;
	if (v->response.status == 200)
		return true;
	words = response_words(&v->response);
	return docker_refusal(v->response.status, words) == DOCKER_GONE;
}

static void on_answered(struct call *call)
{
	struct vigil *v = call->ctx;
	struct docker *b = v->b;

	v->calling = false;
	if (v->over || b->ending) {
		v->over = true;
		vigil_free(v);
	} else if (says_ended(v)) {
		if (b->base.ended)
			b->base.ended(b->base.ended_ctx, v->id);
	} else {
		ev_timer_init(&v->timer, on_again, AGAIN_MS / 1e3, 0.);
		ev_timer_start(loop_ev(b->base.loop), &v->timer);
	}
}

static void ask(struct vigil *v)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct request r = { .method = "POST", .slow = true };

	call_release(&v->call);
	response_release(&v->response);
	call_init(&v->call, 0);
	v->call.done = on_answered;
	v->call.ctx = v;
	v->calling = true;
	buf_printf(&target, "%s/containers/%s/wait?condition=not-running", v->b->api, v->key);
	r.target = target.data ?: "/";
	sandbox_request(v->b->ends, &v->call, &r, &v->response);
}

struct vigil *vigil_begin(struct docker *b, const char *id, const char *key)
{
	struct vigil *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->b = b;
	snprintf(v->id, sizeof(v->id), "%s", id);
	ev_init(&v->timer, NULL);
	call_init(&v->call, 0);
	v->key = strdup(key);
	if (!v->key) {
		vigil_free(v);
		return NULL;
	}
	ask(v);
	return v;
}

void vigil_end(struct vigil *v)
{
	if (!v)
		return;
	v->over = true;
	if (v->calling)
		call_cancel(&v->call);
	else
		vigil_free(v);
}

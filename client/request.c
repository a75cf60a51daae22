/* See request.h: an operation of a single exchange. Loop thread, except sandbox_request(). */
#include "request.h"

#include <errno.h>
#include <string.h>

#include "answer.h"
#include "exchange.h"

enum { WORDS_MAX = 16 * 1024 }; /* bytes of an answer that are looked at for words */

struct request_op {
	struct op op;
	struct exchange x;
	struct request how; /* method, flags and callbacks; the rest is copied below */
	char *target;
	struct buf body;
	char **headers;
	struct response *ret;
};

void response_release(struct response *r)
{
	buf_release(&r->body);
	*r = (struct response){ 0 };
}

static void on_answer(struct exchange *x, int err)
{
	struct request_op *o = CONTAINER_OF(x, struct request_op, x);
	char *why = err && x->why[0] ? strdup(x->why) : NULL;

	if (!err) {
		o->ret->status = x->status;
		o->ret->body = x->answer;
		x->answer = BUF_INIT(0);
	}
	op_finish_with(&o->op, err, why);
}

static int on_data(struct exchange *x, const char *bytes, size_t len)
{
	struct request_op *o = CONTAINER_OF(x, struct request_op, x);

	return o->how.data(o->how.ctx, bytes, len);
}

static void start_request(struct op *op)
{
	struct request_op *o = (struct request_op *)op;
	struct exchange *x = &o->x;

	exchange_init(x, op, o->how.method, o->target, on_answer);
	x->body = o->body;
	o->body = BUF_INIT(0);
	for (char **h = o->headers; h && *h; h++) {
		if (exchange_header(x, *h) < 0) {
			op_finish(op, -ENOMEM);
			return;
		}
	}
	x->idempotent = o->how.idempotent;
	x->lane = o->how.slow || o->how.data ? LANE_WAIT : LANE_QUICK;
	if (o->how.answer_max > 0)
		x->answer_max = o->how.answer_max;
	if (o->how.data) {
		x->data = on_data;
		op->on_silence = true;
	}
	exchange_start(x);
}

static void free_request(struct request_op *o)
{
	exchange_release(&o->x);
	free(o->target);
	buf_release(&o->body);
	for (char **h = o->headers; h && *h; h++) {
		explicit_bzero(*h, strlen(*h)); /* there may be a key in it */
		free(*h);
	}
	free(o->headers);
	free(o);
}

static void release_request(struct op *op)
{
	free_request((struct request_op *)op);
}

static int copy_headers(struct request_op *o, const char *const *from)
{
	size_t n = 0;

	while (from && from[n])
		n++;
	o->headers = calloc(n + 1, sizeof(*o->headers));
	for (size_t i = 0; o->headers && i < n; i++) {
		o->headers[i] = strdup(from[i]);
		if (!o->headers[i])
			return -ENOMEM;
	}
	return o->headers ? 0 : -ENOMEM;
}

static struct request_op *request_new(const struct request *how)
{
	struct request_op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->how = *how;
	o->body = BUF_INIT(0);
	o->target = strdup(how->target);
	if (o->target && copy_headers(o, how->headers) == 0 &&
	    (!how->json || buf_append(&o->body, how->json, how->len) == 0))
		return o;
	free_request(o);
	return NULL;
}

void sandbox_request(struct sandbox *sb, struct call *call, const struct request *request,
		     struct response *ret)
{
	struct request_op *o = request_new(request);

	if (o)
		o->ret = ret;
	op_submit(&o->op, sb, call, start_request, release_request);
}

char *response_words(const struct response *r)
{
	struct answer a CLEANUP_ANSWER = { 0 };
	struct buf copy CLEANUP_BUF = BUF_INIT(0);

	/* Decoding uses the text up. */
	if (r->body.len == 0 ||
	    buf_append(&copy, r->body.data, MIN(r->body.len, (size_t)WORDS_MAX)) < 0)
		return NULL;
	(void)answer_decode(&a, r->status >= 400 ? r->status : 500, copy.data, copy.len);
	return STEAL(a.message);
}

/*
 * The life of an operation on the loop: begin, time, interruption, end. Knows
 * nothing of what the steps do. Loop thread, except op_submit and op_reject.
 */
#include "op.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "redact.h"
#include "sandbox_i.h"
#include "utf8.h"

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED);

static void start_timer(struct op *op, int64_t ms)
{
	ev_timer_init(&op->timer, on_timer, (ev_tstamp)ms / 1e3, 0.);
	ev_set_priority(&op->timer, EV_MINPRI); /* what has come meanwhile is not late */
	op->timer.data = op;
	ev_timer_start(loop_ev(op->sb->loop), &op->timer);
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct op *op = w->data;
	int64_t left;

	if (op->on_silence && op->held)
		op->since_ms = clock_ms();
	left = op_left_ms(op);
	if (left > 0)
		start_timer(op, left);
	else
		op_interrupt(op, -ETIMEDOUT);
}

static void begin(struct job *job)
{
	struct call *call = CONTAINER_OF(job, struct call, job);
	struct op *op = call->op;

	op->since_ms = clock_ms();
	DL_APPEND(op->sb->ops, op);
	if (call_is_cancelled(call)) {
		op_finish(op, -ECANCELED);
		return;
	}
	/* What is closed but not yet being closed gets that far: then all is interrupted. */
	if (op->sb->closing && !op->farewell) {
		op_finish(op, -ENOTCONN);
		return;
	}
	if (call->timeout_ms > 0)
		start_timer(op, call->timeout_ms);
	op->start(op);
}

void op_submit(struct op *op, struct sandbox *sb, struct call *call, void (*start)(struct op *),
	       void (*release)(struct op *))
{
	if (!op) {
		op_reject(sb, call, -ENOMEM, NULL);
		return;
	}
	op->sb = sandbox_ref(sb);
	op->call = call;
	op->start = start;
	op->release = release;
	call->op = op;
	call->job.run = begin;
	call_begin(call, sb->loop);
}

static void refuse(struct job *job)
{
	struct call *call = CONTAINER_OF(job, struct call, job);

	call_finish(call, call->error, call->message);
}

void op_reject(struct sandbox *sb, struct call *call, int err, const char *fmt, ...)
{
	va_list ap;

	if (fmt) {
		va_start(ap, fmt);
		if (vasprintf(&call->message, fmt, ap) < 0)
			call->message = NULL;
		va_end(ap);
	}
	call->error = atomic_load(&sb->closed) ? -ENOTCONN : err;
	call->job.run = refuse;
	call_begin(call, sb->loop);
}

void op_wait(struct op *op, struct step *s)
{
	assert(!op->current);
	op->current = s;
}

void op_go_on(struct op *op)
{
	op->current = NULL;
}

void op_progress(struct op *op)
{
	/* The timer finds out when it fires: restarting it per packet would cost more. */
	if (op->on_silence)
		op->since_ms = clock_ms();
	op->moved = 0;
}

/*
 * Who drips a file byte by byte would keep somebody waiting for as long as he likes: within any
 * timeout_ms so much has to come that the whole was not slower than `slowest`.
 */
void op_moved(struct op *op, uint64_t bytes)
{
	op->moved += bytes;
	if ((int64_t)op->moved * 1000 >= op->slowest * op->call->timeout_ms)
		op_progress(op);
}

int64_t op_left_ms(const struct op *op)
{
	int64_t left;

	if (op->call->timeout_ms <= 0)
		return INT64_MAX;
	left = op->since_ms - clock_ms() + op->call->timeout_ms;
	return MAX(left, 0);
}

void op_hurry(struct op *op, int64_t ms)
{
	if (op_left_ms(op) <= ms)
		return;
	op->call->timeout_ms = clock_ms() - op->since_ms + ms;
	ev_timer_stop(loop_ev(op->sb->loop), &op->timer);
	start_timer(op, ms);
}

void op_interrupt(struct op *op, int err)
{
	struct step *s = op->current;

	op->current = NULL;
	if (s)
		s->stop(s);
	if (op->interrupted)
		op->interrupted(op, err);
	op_finish(op, err);
}

void op_finish(struct op *op, int err)
{
	op_finish_with(op, err, NULL);
}

/*
 * What is said of a failure may be the server's words, or libcurl's with some of the
 * server's in them, and goes to logs, status files and terminals: no key that the server
 * got from us, and nothing that a terminal obeys.
 */
static void tidy(const struct sandbox *sb, char *message)
{
	for (const struct curl_slist *h = sb->credentials; h; h = h->next)
		redact(message, h->data + strcspn(h->data, ":") + 1);
	utf8_disarm(message);
}

void op_finish_with(struct op *op, int err, char *message)
{
	struct sandbox *sb = op->sb;
	struct call *call = op->call;

	assert(!op->current);
	if (message)
		tidy(sb, message);
	ev_timer_stop(loop_ev(sb->loop), &op->timer);
	DL_DELETE(sb->ops, op);
	op->release(op);
	sandbox_put(sb);
	call_finish(call, err, message);
}

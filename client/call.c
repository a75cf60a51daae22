/*
 * Calls: waiting, cancelling, ending. Which operation a call runs is op.c's
 * business. Any thread, except where call.h says otherwise.
 */
#include "call.h"

#include <errno.h>

#include "op.h"

static void run_cancel(struct job *job)
{
	struct call *c = CONTAINER_OF(job, struct call, cancel_job);

	if (c->op)
		op_interrupt(c->op, -ECANCELED);
}

static void run_go_on(struct job *job)
{
	struct call *c = CONTAINER_OF(job, struct call, go_on_job);

	if (c->op && c->op->go_on)
		c->op->go_on(c->op);
}

void call_init(struct call *c, int64_t timeout_ms)
{
	*c = (struct call){
		.timeout_ms = timeout_ms,
		.cancel_job.run = run_cancel,
		.go_on_job.run = run_go_on,
	};
	lock_init(&c->lock);
	pthread_cond_init(&c->cond, NULL);
}

void call_release(struct call *c)
{
	free(c->message);
	c->message = NULL;
	pthread_cond_destroy(&c->cond);
	lock_destroy(&c->lock);
}

/* The condition's time is bounded by the operation's own end. */
int call_wait(struct call *c)
{
	lock(&c->lock);
	assert(!c->done);
	assert(!c->loop || !loop_is_current(c->loop));
	while (!c->finished)
		pthread_cond_wait(&c->cond, &c->lock.mutex);
	unlock(&c->lock);
	return c->error;
}

void call_cancel(struct call *c)
{
	lock(&c->lock);
	if (!c->ending && !c->cancelled) {
		c->cancelled = true;
		if (c->loop)
			loop_post(c->loop, &c->cancel_job);
	}
	unlock(&c->lock);
}

void call_go_on(struct call *c)
{
	lock(&c->lock);
	if (!c->ending && c->loop)
		loop_post(c->loop, &c->go_on_job);
	unlock(&c->lock);
}

bool call_is_cancelled(struct call *c)
{
	bool is;

	lock(&c->lock);
	is = c->cancelled;
	unlock(&c->lock);
	return is;
}

void call_begin(struct call *c, struct loop *loop)
{
	lock(&c->lock);
	assert(!c->loop);
	c->loop = loop;
	loop_post(loop, &c->job);
	unlock(&c->lock);
}

void call_finish(struct call *c, int error, char *message)
{
	void (*done)(struct call *) = c->done;

	/* First make sure that no job of others can come, then let go of the memory. */
	lock(&c->lock);
	c->ending = true;
	unlock(&c->lock);
	loop_withdraw(c->loop, &c->cancel_job);
	loop_withdraw(c->loop, &c->go_on_job);

	c->op = NULL;
	c->error = error;
	c->message = message;
	lock(&c->lock);
	c->finished = true;
	pthread_cond_signal(&c->cond);
	unlock(&c->lock);
	/* Without done() a waiter may have freed the call by now. */
	if (done)
		done(c);
}

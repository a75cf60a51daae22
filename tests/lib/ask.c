/* Asking a backend; see the header. Any thread, but for what says "loop thread". */
#include "ask.h"

#include <errno.h>
#include <time.h>

enum { ASK_MS = 60000 };

const char *ask_kind_name(enum ask_kind kind)
{
	static const char *const names[ASK_KINDS] = {
		"create", "destroy", "is_alive", "discover", "adopt", "list_running",
	};

	return names[kind];
}

void ask_backend(struct backend *b, struct backend_op *op, enum ask_kind kind,
		 const struct whom *whom)
{
	switch (kind) {
	case ASK_CREATE:
		b->ops->create(b, op, whom);
		break;
	case ASK_DESTROY:
		b->ops->destroy(b, op, whom->id);
		break;
	case ASK_IS_ALIVE:
		b->ops->is_alive(b, op, whom->id);
		break;
	case ASK_DISCOVER:
		b->ops->discover(b, op, whom->id);
		break;
	case ASK_ADOPT:
		b->ops->adopt(b, op, whom->id);
		break;
	case ASK_LIST_RUNNING:
		b->ops->list_running(b, op);
		break;
	case ASK_KINDS:
		abort();
	}
}

static void on_answer(struct backend_op *op)
{
	struct ask *a = CONTAINER_OF(op, struct ask, op);

	lock(&a->lock);
	a->done = true;
	a->times++;
	a->early |= !a->returned || !loop_is_current(a->backend->loop);
	pthread_cond_broadcast(&a->cond);
	unlock(&a->lock);
}

static void run_start(struct job *job)
{
	struct ask *a = CONTAINER_OF(job, struct ask, start_job);

	ask_backend(a->backend, &a->op, a->kind, &a->whom);
	a->returned = true;
}

static void run_cancel(struct job *job)
{
	struct ask *a = CONTAINER_OF(job, struct ask, cancel_job);

	/* Jobs run in order: it has been started. The backend need not know the ended ones. */
	if (!ask_has_ended(a))
		a->backend->ops->cancel(a->backend, &a->op);
}

void ask_start(struct ask *a, struct backend *b, enum ask_kind kind, const struct whom *whom)
{
	pthread_condattr_t attr;

	*a = (struct ask){
		.op.done = on_answer,
		.backend = b,
		.kind = kind,
		.whom = *whom,
		.start_job.run = run_start,
		.cancel_job.run = run_cancel,
	};
	lock_init(&a->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->cond, &attr);
	pthread_condattr_destroy(&attr);
	loop_post(b->loop, &a->start_job);
}

void ask_cancel(struct ask *a)
{
	loop_post(a->backend->loop, &a->cancel_job);
}

bool ask_has_ended(struct ask *a)
{
	bool done;

	lock(&a->lock);
	done = a->done;
	unlock(&a->lock);
	return done;
}

bool ask_wait(struct ask *a, int64_t timeout_ms)
{
	struct timespec end;
	bool done;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += timeout_ms / 1000 + 1;
	lock(&a->lock);
	while (!a->done && pthread_cond_timedwait(&a->cond, &a->lock.mutex, &end) != ETIMEDOUT)
		;
	done = a->done;
	unlock(&a->lock);
	return done;
}

static void do_nothing(void *ctx UNUSED)
{
}

void ask_release(struct ask *a)
{
	lock(&a->lock);
	while (!a->done)
		pthread_cond_wait(&a->cond, &a->lock.mutex);
	unlock(&a->lock);
	/* The loop may still be in on_answer(), a job of ours be queued, a second answer come. */
	loop_withdraw(a->backend->loop, &a->cancel_job);
	loop_run(a->backend->loop, do_nothing, NULL);
	if (a->early || a->times != 1)
		abort();
	backend_op_clear(&a->op);
	pthread_cond_destroy(&a->cond);
	lock_destroy(&a->lock);
}

int ask(struct ask *a, struct backend *b, enum ask_kind kind, const char *id)
{
	const struct whom whom = { .id = id, .user = "u", .thread = "t" };

	ask_start(a, b, kind, &whom);
	return ask_wait(a, ASK_MS) ? a->op.error : -ETIME;
}

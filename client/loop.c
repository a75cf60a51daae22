/*
 * The loop's thread, and the queue of jobs that others hand it. Knows nothing
 * of HTTP. The queue is guarded by `lock`, which is a leaf: no other lock is
 * taken under it.
 */
#include "loop.h"

#include <errno.h>
#include <signal.h>
#include <utlist.h>

#include "lock.h"

enum { JOBS_AT_ONCE = 256 };

struct loop {
	struct ev_loop *ev; /* loop thread only, but for ev_async_send() */
	ev_async wake;      /* for others */
	ev_prepare settle;  /* runs what was posted on the loop's own thread, before it sleeps */
	pthread_t thread;

	struct lock lock;
	struct job *jobs; /* guarded by lock */
	bool stop;        /* guarded by lock */
};

static struct job *take_job(struct loop *l, bool *ret_stop)
{
	struct job *job;

	lock(&l->lock);
	job = l->jobs;
	if (job) {
		DL_DELETE(l->jobs, job);
		job->queued = false;
	}
	*ret_stop = l->stop;
	unlock(&l->lock);
	return job;
}

/* Jobs that post others do not keep timers and sockets waiting: those come in between. */
static void run_jobs(struct loop *l)
{
	struct job *job;
	bool stop;

	for (unsigned i = 0; i < JOBS_AT_ONCE; i++) {
		job = take_job(l, &stop);
		if (!job) {
			if (stop)
				ev_break(l->ev, EVBREAK_ALL);
			return;
		}
		if (i == 0)
			ev_now_update(l->ev);
		job->run(job);
	}
	ev_async_send(l->ev, &l->wake);
}

static void on_wake(struct ev_loop *ev UNUSED, ev_async *w, int revents UNUSED)
{
	run_jobs(w->data);
}

static void on_settle(struct ev_loop *ev UNUSED, ev_prepare *w, int revents UNUSED)
{
	run_jobs(w->data);
}

static void *run(void *arg)
{
	struct loop *l = arg;

	ev_run(l->ev, 0);
	return NULL;
}

/* Signals belong to the program's own threads. */
static int start_thread(struct loop *l)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&l->thread, NULL, run, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->ev = ev_loop_new(EVFLAG_NOENV);
	if (!l->ev) {
		free(l);
		return -ENOMEM;
	}
	lock_init(&l->lock);
	ev_async_init(&l->wake, on_wake);
	ev_prepare_init(&l->settle, on_settle);
	l->wake.data = l->settle.data = l;
	ev_async_start(l->ev, &l->wake);
	ev_prepare_start(l->ev, &l->settle);
	r = start_thread(l);
	if (r < 0) {
		ev_loop_destroy(l->ev);
		lock_destroy(&l->lock);
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	lock(&l->lock);
	l->stop = true;
	unlock(&l->lock);
	ev_async_send(l->ev, &l->wake);
	pthread_join(l->thread, NULL);
	ev_loop_destroy(l->ev);
	lock_destroy(&l->lock);
	free(l);
}

void loop_post(struct loop *l, struct job *job)
{
	lock(&l->lock);
	if (!job->queued) {
		job->queued = true;
		DL_APPEND(l->jobs, job);
	}
	unlock(&l->lock);
	/* Our own thread looks before it sleeps: no turn of the loop is spent on waking it. */
	if (!loop_is_current(l))
		ev_async_send(l->ev, &l->wake);
}

bool loop_withdraw(struct loop *l, struct job *job)
{
	bool was;

	lock(&l->lock);
	was = job->queued;
	if (was) {
		DL_DELETE(l->jobs, job);
		job->queued = false;
	}
	unlock(&l->lock);
	return was;
}

/* Somebody waits for it. */
struct awaited {
	struct job job;
	void (*fn)(void *ctx);
	void *ctx;
	struct lock lock;
	pthread_cond_t cond; /* with lock */
	bool done;           /* guarded by lock */
};

static void run_awaited(struct job *job)
{
	struct awaited *a = CONTAINER_OF(job, struct awaited, job);

	a->fn(a->ctx);
	lock(&a->lock);
	a->done = true;
	pthread_cond_signal(&a->cond);
	unlock(&a->lock);
}

void loop_run(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
	struct awaited a = { .job.run = run_awaited, .fn = fn, .ctx = ctx };

	if (loop_is_current(l)) {
		fn(ctx);
		return;
	}
	lock_init(&a.lock);
	pthread_cond_init(&a.cond, NULL);
	loop_post(l, &a.job);
	lock(&a.lock);
	while (!a.done)
		pthread_cond_wait(&a.cond, &a.lock.mutex);
	unlock(&a.lock);
	pthread_cond_destroy(&a.cond);
	lock_destroy(&a.lock);
}

bool loop_is_current(const struct loop *l)
{
	return pthread_equal(pthread_self(), l->thread);
}

struct ev_loop *loop_ev(struct loop *l)
{
	return l->ev;
}

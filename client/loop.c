/*
 * The loop's thread, and the queue of jobs that others hand it. Knows nothing
 * of HTTP. The queue is guarded by `lock`, which is a leaf: no other lock is
 * taken under it.
 */
#include "loop.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <utlist.h>

#include "clock.h"
#include "lock.h"
#include "traffic.h"

enum {
	JOBS_AT_ONCE = 256,
	LOOK_MIN_NS = 10 * 1000,
	LOOK_MAX_NS = 150 * 1000,
};

struct loop {
	struct ev_loop *ev; /* loop thread only, but for ev_async_send() */
	ev_async wake;      /* for others */
	ev_prepare settle;  /* runs what was posted on the loop's own thread, before it sleeps */
	ev_check awake;     /* see on_pending() */
	bool busy;          /* something has happened; loop thread only */
	bool ended;         /* loop thread only */
	pthread_t thread;
	struct traffic traffic; /* loop thread only */

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
			if (stop) {
				l->ended = true;
				ev_break(l->ev, EVBREAK_ALL);
			}
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

static void on_awake(struct ev_loop *ev UNUSED, ev_check *w UNUSED, int revents UNUSED)
{
}

/* Of ours there is one each time: settle before the loop polls, awake behind. */
static void on_pending(struct ev_loop *ev)
{
	struct loop *l = ev_userdata(ev);

	if (ev_pending_count(ev) > 1)
		l->busy = true;
	ev_invoke_pending(ev);
}

/*
 * ---- waiting ----
 *
 * To be woken costs more than most of what the loop is woken for: the other processor has to be
 * roused, tens of microseconds on a virtual machine, and there are several such waits to
 * each small file. So it looks again for a while before it sleeps, as long as that has
 * proven worth it: longer each time when a sleep was shorter than it would have looked at most,
 * half as long when it was not, and so soon not at all.
 */

static bool is_alone(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < 2;
}

/* Until nothing has happened for so long. Returns the time. */
static int64_t look(struct loop *l, int64_t for_ns)
{
	int64_t since = clock_ns(), now = since;

	while (!l->ended && now - since < for_ns) {
		l->busy = false;
		ev_run(l->ev, EVRUN_NOWAIT);
		now = clock_ns();
		if (l->busy)
			since = now;
	}
	return now;
}

static void *run(void *arg)
{
	struct loop *l = arg;
	/* Who has one processor keeps others from what he waits for. */
	int64_t most = is_alone() ? 0 : LOOK_MAX_NS, for_ns = 0;

	while (!l->ended) {
		int64_t slept = look(l, for_ns);

		if (l->ended)
			break;
		ev_run(l->ev, EVRUN_ONCE);
		slept = clock_ns() - slept;
		for_ns = slept < most ? MIN(MAX(for_ns * 2, LOOK_MIN_NS), most) : for_ns / 2;
	}
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
	ev_check_init(&l->awake, on_awake);
	l->wake.data = l->settle.data = l;
	ev_set_userdata(l->ev, l);
	ev_set_invoke_pending_cb(l->ev, on_pending);
	ev_check_start(l->ev, &l->awake);
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

struct traffic *loop_traffic(struct loop *l)
{
	return &l->traffic;
}

struct ev_loop *loop_ev(struct loop *l)
{
	return l->ev;
}

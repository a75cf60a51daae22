/*
 * One operation on a thread's sandbox, with all that it takes to have one.
 * Loop thread only.
 */
#include "remote.h"

#include <errno.h>
#include <stdio.h>

#include "clock.h"
#include "staging.h"
#include "thread.h"

enum {
	RETRIES_MOST = 6,
	RETRIES_BROKEN = 2, /* of these after an answer that broke off */
	PAUSE_MS = 25,      /* before the second one; then twice as long each time */
	LEFT_MS = 1000,     /* at least, after it was looked whether the sandbox lives */
	SILENCE_MS = 5000,  /* of a call without a time of its own */
};

static void acquire(struct remote *r);

int remote_errno(int err)
{
	switch (-err) {
	case ECANCELED:
		return EINTR;
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
	case ESHUTDOWN:
		return ENOTCONN;
	case EKEYREJECTED:
	case EPROTO:
	case EBADMSG:
	case EMSGSIZE:
		return EIO;
	default:
		return -err;
	}
}

bool remote_is_unreachable(int err)
{
	int e = remote_errno(err);

	return e == ENOTCONN || e == ETIMEDOUT;
}

/* Errors that speak of the sandbox as such, not of a file in it. */
static bool is_grave(int err)
{
	switch (remote_errno(err)) {
	case ENOTCONN:
	case ETIMEDOUT:
	case EIO:
		return true;
	default:
		return err == -EKEYREJECTED;
	}
}

/* By rmdir: its sandbox is to be gone, and with another one the thread would come back. */
static bool goes_away(const struct thread *t)
{
	return t->removing || t->removed;
}

static void finish(struct remote *r, int err, char *message)
{
	struct thread *t = r->thread;
	bool leased = r->leased;

	t->fs->under_way--;
	t->fs->totals.remote++;
	if (err < 0)
		t->fs->totals.remote_failed++;
	/* What is known not to answer was told of when that was found out. */
	if (err < 0 && is_grave(err) && !goes_away(t) && err != -EHOSTDOWN)
		thread_failed(t, "the sandbox", err, message);
	if (leased && !r->quiet)
		thread_touch(t);
	r->phase = REMOTE_IDLE;
	r->call.message = message;
	if (err == -EHOSTDOWN)
		err = -ENOTCONN;
	/* With the lease still, so that an open file can have one of its own. */
	r->done(r, r->cancelled && err < 0 ? -ECANCELED : err);
	/* r may be gone */
	if (err == 0 && t->resting > 0)
		staging_wake(t, false);
	if (leased)
		(void)tenant_release(t->tenant);
	free(message);
	thread_unref(t);
}

/* Nothing can have been done: it never got there. */
static bool was_not_sent(int err)
{
	/* Not -ENOTCONN: that is also what a close makes of calls under way. */
	return err == -ECONNREFUSED || err == -EHOSTUNREACH;
}

/*
 * A server that goes down ends its commands and breaks off its answers, which is
 * -EIO, or -EBADMSG if where it broke off could be an end; so may be what is wrong with the file.
 */
static bool is_broken(int err)
{
	return err == -EIO || err == -EBADMSG;
}

static int means_death(int err)
{
	return is_broken(err) ? -ECONNABORTED : err;
}

/* A time that is over is over. */
static bool may_retry(const struct remote *r, int err)
{
	int64_t limit = r->thread->fs->opt->timeout_ms;

	if (r->quiet || r->cancelled || err == -ETIMEDOUT || (r->once && !was_not_sent(err)))
		return false;
	if (is_broken(err) && r->retries >= RETRIES_BROKEN)
		return false;
	return r->retries == 0 || (r->retries < RETRIES_MOST && clock_ms() - r->began_ms < limit);
}

/* Still with the lease of the last try. */
static void retry(struct remote *r)
{
	struct tenant *tenant = r->thread->tenant;

	r->leased = false;
	r->thread->fs->totals.retried++;
	/* The sandbox may be another one soon, with other files. */
	thread_void_caches(r->thread);
	/* Anew first, so that the count does not fall to nothing in between. */
	acquire(r);
	(void)tenant_release(tenant);
}

static void on_paused(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct remote *r = CONTAINER_OF(w, struct remote, pause);

	if (r->cancelled)
		finish(r, -ECANCELED, NULL);
	else
		retry(r);
}

static void pause_and_retry(struct remote *r)
{
	int64_t ms = r->retries++ == 0 ? 0 : PAUSE_MS << (r->retries - 2);

	if (ms == 0) {
		retry(r);
		return;
	}
	r->phase = REMOTE_PAUSES;
	ev_timer_init(&r->pause, on_paused, (double)ms / 1000, 0.);
	ev_timer_start(r->thread->fs->ev, &r->pause);
}

/* Nothing at all was heard of the sandbox for most of the time that the call had. */
static bool was_silent(const struct remote *r, int err)
{
	int64_t limit = r->call.timeout_ms > 0 ? r->call.timeout_ms : SILENCE_MS;

	return err == -ETIMEDOUT && clock_ms() - sandbox_heard_ms(r->sb) >= limit - limit / 4;
}

static void on_called(struct call *call)
{
	struct remote *r = call->ctx;
	struct tenant *tenant = r->thread->tenant;
	int err = call->error;
	char *message = STEAL(call->message);
	bool again = false;

	call_release(call);
	if (err < 0 && r->sb) {
		again = tenant_report(tenant, r->sb, means_death(err));
		if (was_silent(r, err))
			tenant_silent(tenant, r->sb);
	}
	if (goes_away(r->thread))
		again = false;
	if (r->sb)
		sandbox_put(STEAL(r->sb));
	if (again && may_retry(r, err)) {
		free(message);
		pause_and_retry(r);
		return;
	}
	finish(r, err, message);
}

/* What the operation may take; that the sandbox was asked first whether it lives counts. */
static int64_t time_left(const struct remote *r)
{
	int64_t limit = r->thread->fs->opt->timeout_ms;

	if (r->timeout_ms != 0)
		return MAX(r->timeout_ms, 0);
	if (!r->suspected || r->suspected != r->sb)
		return limit;
	return MIN(limit, MAX(limit - (clock_ms() - r->asked_ms), LEFT_MS));
}

/* With a lease. False: there is no sandbox to run on. */
static bool run(struct remote *r)
{
	struct thread *t = r->thread;

	r->sb = tenant_sandbox(r->thread->tenant);
	if (!r->sb)
		return false;
	r->leased = true;
	r->phase = REMOTE_RUNS;
	call_init(&r->call, time_left(r));
	r->call.done = on_called;
	r->call.ctx = r;
	r->start(r, r->sb);
	if (!r->quiet && !t->own_lease)
		thread_touch(t); /* the first one: what it takes to watch takes its time, too */
	return true;
}

/* Notes which one there is, if any. */
static bool look_for_sandbox(struct remote *r)
{
	struct sandbox *sb = tenant_sandbox(r->thread->tenant);

	r->suspected = sb;
	if (sb)
		sandbox_put(sb);
	return sb;
}

static void on_acquired(struct call *call)
{
	struct remote *r = call->ctx;
	int err = call->error;
	char *message = STEAL(call->message);

	call_release(call);
	/* It was dead, and another one is on its way: that may take longer. */
	if (err == -ETIMEDOUT && r->suspected && !r->cancelled && !look_for_sandbox(r)) {
		free(message);
		acquire(r);
		return;
	}
	if (err == 0) {
		r->leased = true;
		if (r->cancelled)
			err = -ECANCELED;
		else if (!run(r))
			err = -ENOTCONN;
	}
	if (err < 0)
		finish(r, err, message);
	else
		free(message);
}

static void acquire(struct remote *r)
{
	const struct options *opt = r->thread->fs->opt;
	int64_t limit = opt->start_timeout_ms;

	r->phase = REMOTE_ACQUIRES;
	r->asked_ms = clock_ms();
	/* One that is there is not started, only asked whether it lives. */
	if (look_for_sandbox(r))
		limit = MIN(limit, opt->timeout_ms);
	call_init(&r->errand.call, limit);
	r->errand.call.done = on_acquired;
	r->errand.call.ctx = r;
	tenant_acquire(r->thread->tenant, &r->errand);
}

void remote_begin(struct remote *r, struct thread *t,
		  void (*start)(struct remote *r, struct sandbox *sb),
		  void (*done)(struct remote *r, int err))
{
	t->fs->under_way++;
	r->thread = thread_ref(t);
	r->start = start;
	r->done = done;
	r->leased = r->cancelled = false;
	r->retries = 0;
	r->suspected = NULL;
	r->began_ms = clock_ms();
	if (t->removed) { /* somebody is still in there */
		r->phase = REMOTE_RUNS;
		call_init(&r->call, 0);
		r->call.ctx = r;
		remote_fail(r, -ESTALE);
		return;
	}
	if (tenant_try_acquire(t->tenant) == 0) {
		if (run(r))
			return;
		(void)tenant_release(t->tenant);
	}
	acquire(r);
}

static void do_fail(struct job *job)
{
	struct remote *r = CONTAINER_OF(job, struct remote, fail_job);

	r->call.error = r->fail_error;
	on_called(&r->call);
}

char *remote_path(struct remote *r, struct sandbox *sb, const char *rel)
{
	char *path;

	if (rel && asprintf(&path, "%s/%s", sandbox_root(sb), rel) >= 0)
		return path;
	remote_fail(r, -ENOMEM);
	return NULL;
}

void remote_fail(struct remote *r, int err)
{
	r->fail_error = err;
	r->fail_job.run = do_fail;
	loop_post(r->thread->fs->loop, &r->fail_job);
}

void remote_cancel(struct remote *r)
{
	if (r->phase == REMOTE_IDLE)
		return;
	r->cancelled = true;
	if (r->phase == REMOTE_PAUSES) { /* done() must not come from in here */
		ev_timer_stop(r->thread->fs->ev, &r->pause);
		ev_timer_set(&r->pause, 0., 0.);
		ev_timer_start(r->thread->fs->ev, &r->pause);
		return;
	}
	call_cancel(r->phase == REMOTE_ACQUIRES ? &r->errand.call : &r->call);
}

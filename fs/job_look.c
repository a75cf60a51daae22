/*
 * How a command goes: asking the sandbox for its output and its end. Must not
 * know who waits or why. Loop thread only.
 *
 * Only that sandbox is asked which runs the command, never its successor: what
 * dies with a sandbox is lost. Of the shell's commands only the first one is
 * looked at, for whoever waits for any of them, as they run in order.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "jobs_i.h"
#include "log.h"
#include "notifier.h"

enum {
	FAST_MIN_MS = 10, /* between looks when somebody waits */
	FAST_MAX_MS = 250,
	SLOW_MIN_MS = 1000, /* when nobody does */
	SLOW_MAX_MS = 5000,
	WAIT_MS = 200,       /* for news, at the sandbox */
	TELL_MS = 2000,      /* without an answer: whoever waits hears of it */
	GIVE_UP_MS = 60000,  /* without an answer: the command is lost */
	PIECE = 1024 * 1024, /* of output */
};

/* Behind the end of any output: only the end of the command is asked for. */
#define BEYOND ((uint64_t)INT64_MAX / 2)

static void look(struct command *c);

/* ---- when ---- */

static bool is_watched(const struct command *c)
{
	const struct command *other;

	if (c->waiters || c->own || !c->jobs)
		return c->waiters;
	DL_FOREACH (c->jobs->all, other)
		if (!other->own && other->waiters)
			return true;
	return false;
}

/* Whether its turn has come. */
static bool is_due(const struct command *c)
{
	return c->own || !c->jobs || jobs_front(c->jobs) == c;
}

static void plan(struct command *c, int64_t in_ms)
{
	ev_timer_stop(c->fs->ev, &c->timer);
	ev_timer_set(&c->timer, (double)in_ms / 1000, 0.);
	ev_timer_start(c->fs->ev, &c->timer);
}

static void plan_next(struct command *c, bool news)
{
	int64_t least = SLOW_MIN_MS, most = SLOW_MAX_MS;

	if (!is_due(c))
		return;
	if (is_watched(c)) {
		least = FAST_MIN_MS;
		most = FAST_MAX_MS;
	}
	/* Where the sandbox itself has waited there is no need to do it here. */
	if (news || clock_ms() - c->looked_ms >= WAIT_MS / 2)
		c->pause_ms = least;
	else
		c->pause_ms = MIN(MAX(c->pause_ms * 2, least), most);
	plan(c, c->pause_ms);
}

void command_hurry(struct command *c)
{
	if (!c->alive || command_is_over(c) || c->calling || c->syncing)
		return;
	c->pause_ms = 0;
	plan(c, 0);
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	look(w->data);
}

/* ---- waiting ---- */

static void wake(struct command *c, int err)
{
	struct job_wait *w, *next;

	DL_FOREACH_SAFE (c->waiters, w, next)
		w->wake(w, err);
}

/* What one of the shell's commands hears from the sandbox concerns those behind it, too. */
static void wake_shell(struct command *c, int err)
{
	struct command *other;

	wake(c, err);
	if (c->own || !c->jobs)
		return;
	DL_FOREACH (c->jobs->all, other)
		if (other != c && !other->own && !command_is_over(other))
			wake(other, err);
}

void command_wait(struct command *c, struct job_wait *w)
{
	struct command *front = c;

	w->command = command_ref(c);
	DL_APPEND(c->waiters, w);
	if (c->jobs && !c->own)
		front = jobs_front(c->jobs);
	if (front && front->pause_ms >= SLOW_MIN_MS)
		command_hurry(front);
}

void command_wait_end(struct job_wait *w)
{
	struct command *c = STEAL(w->command);

	if (!c)
		return;
	DL_DELETE(c->waiters, w);
	command_unref(c);
}

/* ---- the end ---- */

void command_hold_sandbox(struct command *c)
{
	c->leased = thread_lease(c->thread) == 0;
	if (c->leased)
		c->thread->commands++;
}

void command_let_go_sandbox(struct command *c)
{
	if (c->sb)
		sandbox_put(STEAL(c->sb));
	if (c->leased) {
		c->leased = false;
		c->thread->commands--;
		thread_unlease(c->thread);
	}
}

/* The last step of its life; c may be gone afterwards. */
static void let_go(struct command *c)
{
	struct thread *t = c->thread;
	struct jobs *j = c->jobs;

	command_let_go_sandbox(c);
	c->fs->under_way--;
	c->alive = false;
	c->thread = NULL;
	command_unref(c);
	if (j) /* which has it, so it was not the last reference */
		jobs_trim(j);
	thread_unref(t);
}

static void on_dropped(struct call *call)
{
	struct command *c = call->ctx;

	call_release(call);
	c->calling = false;
	let_go(c);
}

static void drop(struct command *c)
{
	c->calling = true;
	call_init(&c->call, c->fs->opt->timeout_ms);
	c->call.done = on_dropped;
	c->call.ctx = c;
	sandbox_run_drop(c->sb, &c->call, c->run);
}

/*
 * It is over; known: the sandbox still has its files. c may be gone afterwards,
 * unless the caller counts it.
 */
static void end(struct command *c, enum job_state state, int exit_code, int err, bool known)
{
	struct jobs *j = c->jobs;
	struct command *front;

	ev_timer_stop(c->fs->ev, &c->timer);
	c->state = state;
	c->exit_code = exit_code;
	c->error = err;
	if (j)
		c->ended = ++j->ended;
	if (j && !c->own)
		j->exit_code = exit_code;
	command_input_end(c);
	wake(c, 0);
	front = j ? jobs_front(j) : NULL;
	if (front)
		command_hurry(front);
	if (j)
		jobs_trim(j); /* not c, which is alive */
	if (known)
		drop(c);
	else
		let_go(c);
}

/* The sandbox is gone. */
static bool is_final(int err)
{
	return err == -ENOTCONN || err == -ESHUTDOWN;
}

static void lose(struct command *c, int err, const char *message, bool known)
{
	/* Who destroys a sandbox wants that; the look that finds out may be seconds later. */
	if (is_final(err) && c->began_ms <= c->thread->destroyed_ms)
		thread_info(c->thread, "a command was lost, as its sandbox was destroyed");
	else
		thread_failed(c->thread, "a command was lost", err, message);
	thread_void_caches(c->thread);
	end(c, JOB_LOST, -1, err, known);
}

void command_abandon(struct command *c)
{
	if (!c->alive)
		return;
	ev_timer_stop(c->fs->ev, &c->timer);
	if (!command_is_over(c)) {
		c->state = JOB_LOST;
		c->error = -ESHUTDOWN;
		command_input_end(c);
		wake(c, 0);
	}
	if (c->calling)
		call_cancel(&c->call);
	else if (!c->syncing)
		let_go(c);
}

static void on_synced(struct job *job)
{
	struct command *c = CONTAINER_OF(job, struct command, synced);

	c->syncing = false;
	if (command_is_over(c)) /* abandoned */
		let_go(c);
	else if (c->last_code < 0)
		lose(c, -EIO, "its shell is gone, or there was no room for its output", true);
	else
		end(c, JOB_DONE, c->last_code, 0, true);
}

/*
 * Whoever hears of the end looks at the files; so he hears of it when the kernel has forgotten what
 * it knew of them.
 */
static void end_synced(struct command *c, int exit_code)
{
	c->last_code = exit_code;
	c->syncing = true;
	c->synced.run = on_synced;
	thread_void_caches(c->thread);
	notifier_sync(c->fs, c->thread, &c->synced);
}

/* ---- looking ---- */

static void look_failed(struct command *c, int err, const char *message)
{
	int64_t now = clock_ms();

	if (err == -ESRCH) {
		lose(c, -EIO, "the sandbox does not know it any more", false);
		return;
	}
	(void)tenant_report(c->thread->tenant, c->sb, err);
	if (is_final(err) || (c->failing_ms && now - c->failing_ms >= GIVE_UP_MS)) {
		lose(c, err, message, false);
		return;
	}
	if (!c->failing_ms) {
		c->failing_ms = now;
		thread_failed(c->thread, "asking how a command goes", err, message);
	}
	/* A connection that broke is no news yet: the next look may find all well, or the end. */
	if (err == -ETIMEDOUT || now - c->failing_ms >= TELL_MS)
		wake_shell(c, err);
	c->looked_ms = now;
	c->pause_ms = MAX(c->pause_ms, SLOW_MIN_MS / 2);
	plan_next(c, false);
}

static void take(struct command *c, const struct run_news *n)
{
	bool news = n->out_len > 0 || n->err_len > 0;
	bool more = n->out_len >= PIECE || n->err_len >= PIECE;

	c->failing_ms = 0;
	if (!c->leased)
		command_hold_sandbox(c);
	if (n->started)
		c->state = JOB_RUNNING;
	command_take(c, JOB_OUT, n->out, n->out_len);
	command_take(c, JOB_ERR, n->err, n->err_len);
	if (n->ended) {
		end_synced(c, n->exit_code);
		return;
	}
	if (news)
		wake(c, 0);
	if (more)
		plan(c, 0);
	else
		plan_next(c, news);
}

static void on_looked(struct call *call)
{
	struct command *c = call->ctx;
	char *message CLEANUP_FREE = STEAL(call->message);
	int err = call->error;

	call_release(call);
	c->calling = false;
	if (command_is_over(c)) /* abandoned */
		let_go(c);
	else if (err < 0)
		look_failed(c, err, message);
	else
		take(c, &c->news);
}

static void on_looked_news(struct call *call)
{
	struct command *c = command_ref(call->ctx);

	on_looked(call);
	run_news_release(&c->news);
	c->news = (struct run_news){ 0 };
	command_unref(c);
}

static void look(struct command *c)
{
	ev_timer_stop(c->fs->ev, &c->timer);
	if (c->calling || c->syncing || command_is_over(c))
		return;
	c->calling = true;
	c->looked_ms = clock_ms();
	call_init(&c->call, c->fs->opt->timeout_ms);
	c->call.done = on_looked_news;
	c->call.ctx = c;
	sandbox_run_look(c->sb, &c->call, c->run, c->cut ? BEYOND : c->out_size,
			 c->cut ? BEYOND : c->err_size, PIECE, is_watched(c) ? WAIT_MS : 0,
			 &c->news);
}

void command_begin(struct command *c)
{
	c->alive = true;
	c->fs->under_way++;
	command_ref(c);
	thread_ref(c->thread);
	ev_init(&c->timer, on_timer);
	c->timer.data = c;
	c->state = is_due(c) ? JOB_RUNNING : JOB_WAITING;
	if (is_due(c))
		plan(c, 0);
}

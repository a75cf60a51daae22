/*
 * One question to the embedded backend: work on a worker, a step on the loop,
 * and so on until it is answered. Loop thread.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "embedded_i.h"

enum {
	AGAIN_MS = 15,
	CANCEL_MS = 500, /* for a process to end well when somebody is in a hurry */
};

static struct ev_loop *ev_of(const struct task *t)
{
	return loop_ev(t->e->b.loop);
}

static void end_cancelled(struct task *t)
{
	task_end(t, -ECANCELED);
}

static void on_run(struct work *w)
{
	struct task *t = CONTAINER_OF(w, struct task, work);

	t->run(t);
}

static void on_done(struct work *w)
{
	struct task *t = CONTAINER_OF(w, struct task, work);

	t->working = false;
	t->then(t);
}

static void on_again(struct ev_loop *ev UNUSED, ev_timer *timer, int revents UNUSED)
{
	struct task *t = CONTAINER_OF(timer, struct task, timer);

	task_work(t, t->run, t->then);
}

struct task *task_new(struct embedded *e, struct backend_op *op, const char *id, int error)
{
	struct task *t = NULL;

	if (id && !den_is_id(id)) {
		backend_answer(&e->b, op, error, "not the id of an embedded sandbox");
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		if (op)
			backend_answer(&e->b, op, -ENOMEM, NULL);
		return NULL;
	}
	t->e = e;
	t->op = op;
	t->work = (struct work){ .run = on_run, .done = on_done };
	t->users = t->ready_fd = t->log_fd = -1;
	t->process = PROCESS_INIT;
	t->cancel = end_cancelled;
	ev_timer_init(&t->timer, on_again, 0, 0);
	ev_init(&t->ready, NULL);
	if (id) {
		memcpy(t->id, id, sizeof(t->id));
		den_init(&t->den, e->root, id);
	}
	if (op)
		op->priv = t;
	DL_APPEND(e->tasks, t);
	return t;
}

void task_work(struct task *t, void (*run)(struct task *t), void (*then)(struct task *t))
{
	assert(!t->working);
	t->run = run;
	t->then = then;
	t->working = true;
	workers_submit(t->e->workers, &t->work);
}

bool task_may_wait(const struct task *t)
{
	return !t->cancelled && clock_ms() < t->give_up_ms;
}

void task_again(struct task *t)
{
	ev_timer_stop(ev_of(t), &t->timer);
	ev_timer_init(&t->timer, on_again, AGAIN_MS / 1e3, 0);
	ev_timer_start(ev_of(t), &t->timer);
}

void task_say(struct task *t, const char *fmt, ...)
{
	va_list ap;

	if (t->why)
		return;
	va_start(ap, fmt);
	if (vasprintf(&t->why, fmt, ap) < 0)
		t->why = NULL;
	va_end(ap);
}

void task_cancel(struct task *t)
{
	if (t->cancelled)
		return;
	t->cancelled = true;
	if (!t->working)
		t->cancel(t);
}

void task_go_on(struct task *t UNUSED)
{
}

static void close_fd(int *fd)
{
	cleanup_fd_(fd);
	*fd = -1;
}

void task_end(struct task *t, int error)
{
	struct embedded *e = t->e;

	assert(!t->working);
	ev_timer_stop(ev_of(t), &t->timer);
	ev_io_stop(ev_of(t), &t->ready);
	process_unwatch(&t->process, ev_of(t));
	process_release(&t->process);
	close_fd(&t->ready_fd);
	close_fd(&t->log_fd);
	if (t->users >= 0 && error == 0 && !t->forgotten)
		embedded_keep(e, t->id, steal_fd(&t->users));
	close_fd(&t->users);
	if (t->op)
		backend_answer(&e->b, t->op, error, error ? t->why : NULL);
	DL_DELETE(e->tasks, t);
	free(t->user);
	free(t->root);
	free(t->thread);
	free(t->ids);
	free(t->why);
	free(t);
}

/* ---- stopping a process ---- */

static const struct {
	int sig;
	int64_t wait_ms;
} phases[STOP_PHASES] = {
	[STOP_WAIT] = { 0, 1000 },
	[STOP_TERM] = { SIGTERM, 5000 },
	[STOP_KILL] = { SIGKILL, 3000 },
};

static void enter_phase(struct task *t, unsigned phase);

static void on_phase_over(struct ev_loop *ev, ev_timer *timer, int revents UNUSED)
{
	struct task *t = CONTAINER_OF(timer, struct task, timer);

	if (t->phase + 1 < STOP_PHASES) {
		enter_phase(t, t->phase + 1);
		return;
	}
	process_unwatch(&t->process, ev);
	t->stuck = true;
	t->cancel = task_go_on;
	t->then(t);
}

static void wait_at_most(struct task *t, int64_t ms)
{
	ev_timer_stop(ev_of(t), &t->timer);
	ev_timer_init(&t->timer, on_phase_over, (double)ms / 1e3, 0);
	ev_timer_start(ev_of(t), &t->timer);
}

static void enter_phase(struct task *t, unsigned phase)
{
	t->phase = phase;
	if (phases[phase].sig)
		process_signal(&t->process, phases[phase].sig);
	wait_at_most(t, t->cancelled && phase != STOP_KILL ? CANCEL_MS : phases[phase].wait_ms);
}

static void on_ended(struct process *p)
{
	struct task *t = CONTAINER_OF(p, struct task, process);

	ev_timer_stop(ev_of(t), &t->timer);
	t->cancel = task_go_on;
	t->then(t);
}

static void hurry(struct task *t)
{
	if (t->phase == STOP_KILL)
		return;
	if (t->phase == STOP_WAIT)
		enter_phase(t, STOP_TERM);
	else
		wait_at_most(t, CANCEL_MS);
}

void task_stop_process(struct task *t, enum stop_phase from, void (*then)(struct task *t))
{
	t->then = then;
	t->cancel = hurry;
	process_unwatch(&t->process, ev_of(t));
	process_watch(&t->process, ev_of(t), on_ended);
	enter_phase(t, from);
}

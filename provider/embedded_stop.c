/*
 * destroy: nobody else may use it, then it is asked to end, made to end, and
 * its files are removed. What is dead already only has to be removed. It need
 * not be a child of ours, nor one that we knew of.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "embedded_i.h"
#include "filelock.h"

enum {
	PATIENCE_MS = 250, /* a lock may be held for a moment by a fork on its way to exec */
	VANISH_MS = 3000,  /* for a lock whose holder is on its way out */
};

/* ---- on a worker ---- */

/* -EAGAIN: others use it. -ENOENT: nothing is there. */
static int lock_out_others(struct task *t)
{
	int r;

	if (t->exclusive)
		return 0;
	if (t->users < 0) {
		/* Made if missing: remains without it are to be removed as well. */
		r = den_lock_users(&t->den, true, true);
		if (r < 0)
			return r;
		t->users = r;
	} else {
		r = filelock_change(t->users, true);
		if (r == -ENOLCK) {
			/* Somebody got it, and may have stopped the sandbox: look anew. */
			close(steal_fd(&t->users));
			return -EAGAIN;
		}
		if (r < 0)
			return r;
	}
	t->exclusive = true;
	return 0;
}

/* 0: nothing is left. -EINPROGRESS: t->process is to be ended. -EAGAIN: try again. */
static int look(struct task *t)
{
	int r;

	r = lock_out_others(t);
	if (r == -EAGAIN) {
		/* It may be dead all the same; then others are about to find out. */
		if (den_is_alive(&t->den) == 0)
			return 0;
		if (t->users < 0 && t->was_resident) {
			r = den_lock_users(&t->den, false, false);
			t->users = r < 0 ? -1 : r;
		}
		return -EBUSY;
	}
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = den_bury(&t->den, t->users);
	if (r == 0)
		t->users = -1;
	if (r != -EEXIST)
		return r;
	r = den_find(&t->den, &t->process);
	return r == 0 ? -EINPROGRESS : r == -ESRCH ? -EAGAIN : r;
}

static void run_look(struct task *t)
{
	t->r = look(t);
}

static void run_bury(struct task *t)
{
	t->r = den_bury(&t->den, t->users);
	if (t->r == 0)
		t->users = -1;
}

/* ---- on the loop ---- */

/* It goes on, and we go on using it, if we did. */
static void end_running(struct task *t, int error)
{
	if (t->exclusive && t->users >= 0 && filelock_change(t->users, false) < 0)
		close(steal_fd(&t->users));
	if (t->users >= 0 && t->was_resident && !t->forgotten)
		embedded_keep(t->e, t->id, steal_fd(&t->users));
	task_end(t, error);
}

static void end_gone(struct task *t)
{
	if (t->users >= 0)
		close(steal_fd(&t->users)); /* nothing to keep it for */
	task_end(t, 0);
}

static void buried(struct task *t)
{
	if (t->r == 0) {
		end_gone(t);
	} else if ((t->r == -EAGAIN || t->r == -EEXIST) && clock_ms() < t->give_up_ms) {
		task_again(t);
	} else {
		task_say(t, "its remains in %s cannot be removed: %s", t->den.dir,
			 t->r == -EEXIST ? "another process still holds its lock"
					 : strerrordesc_np(-t->r));
		end_running(t, t->r == -EAGAIN || t->r == -EEXIST ? -ETIMEDOUT : t->r);
	}
}

static void ended(struct task *t)
{
	if (t->stuck) {
		task_say(t, "process %d does not end, not even when killed", (int)t->process.pid);
		end_running(t, -ETIMEDOUT);
		return;
	}
	t->give_up_ms = clock_ms() + VANISH_MS;
	task_work(t, run_bury, buried);
}

static void looked(struct task *t)
{
	switch (t->r) {
	case 0:
		end_gone(t);
		return;
	case -EINPROGRESS:
		if (t->cancelled)
			end_running(t, -ECANCELED);
		else
			task_stop_process(t, STOP_TERM, ended);
		return;
	case -EAGAIN:
		if (!t->vanishing)
			t->give_up_ms = clock_ms() + VANISH_MS;
		t->vanishing = true;
		/* fall through */
	case -EBUSY:
		if (task_may_wait(t)) {
			task_again(t);
			return;
		}
		break;
	}
	if (t->cancelled) {
		end_running(t, -ECANCELED);
	} else if (t->r == -EAGAIN) {
		task_say(t, "it runs, but its process cannot be found");
		end_running(t, -ETIMEDOUT);
	} else {
		if (t->r == -EBUSY)
			task_say(t, "another program uses it");
		else
			task_say(t, "cannot look at %s: %s", t->den.dir, strerrordesc_np(-t->r));
		end_running(t, t->r);
	}
}

static void cancel_look(struct task *t)
{
	end_running(t, -ECANCELED);
}

void embedded_destroy(struct backend *b, struct backend_op *op, const char *id)
{
	struct embedded *e = CONTAINER_OF(b, struct embedded, b);
	struct task *t = task_new(e, op, id, 0);

	if (!t)
		return;
	t->users = embedded_take(e, id);
	t->was_resident = t->users >= 0;
	t->cancel = cancel_look;
	t->give_up_ms = clock_ms() + PATIENCE_MS;
	task_work(t, run_look, looked);
}

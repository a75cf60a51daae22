/*
 * create: a sandbox of its own for a thread. On a worker: directories, locks,
 * the log, the process. On the loop: waiting until it is ready, or until it is
 * clear that it will not be, and then leaving nothing of it behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utlist.h>

#include "clock.h"
#include "embedded_i.h"
#include "filelock.h"
#include "ident.h"
#include "log.h"
#include "paths.h"

enum {
	ARGS_MAX = 20,
	TIDY_MS = 3000, /* for the lock of a dead process to be given up */
};

/* ---- on a worker ---- */

/* Both ends close-on-exec and above the standard ones, whatever those are here. */
static int make_pipe(int *ret_read, int *ret_write)
{
	int fds[2], high[2];
	int r = 0;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	for (size_t i = 0; i < 2; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (high[i] < 0)
			r = -errno;
		close(fds[i]);
	}
	if (r < 0) {
		cleanup_fd_(&high[0]);
		cleanup_fd_(&high[1]);
		return r;
	}
	*ret_read = high[0];
	*ret_write = high[1];
	return 0;
}

static int spawn(struct task *t, int alive)
{
	struct embedded *e = t->e;
	char *data CLEANUP_FREE = paths_user_data(e->data, t->user, t->thread);
	int ready_r CLEANUP_FD = -1, ready_w CLEANUP_FD = -1;
	int handed CLEANUP_FD = -1;
	const char *args[ARGS_MAX];
	size_t n = 0;
	char fd[16];
	int r;

	if (!data)
		return -ENOMEM;
	r = make_pipe(&ready_r, &ready_w);
	if (r < 0)
		return r;
	/* The same open file under another number, so the same lock. */
	handed = fcntl(alive, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (handed < 0)
		return -errno;
	snprintf(fd, sizeof(fd), "%d", ready_w);
	args[n++] = e->program;
	args[n++] = "--socket";
	args[n++] = t->den.sock;
	args[n++] = "--data";
	args[n++] = data;
	args[n++] = "--pid-file";
	args[n++] = t->den.pid;
	args[n++] = "--ready-fd";
	args[n++] = fd;
	if (e->no_isolation) {
		args[n++] = "--isolation";
		args[n++] = "none";
	}
	if (e->net_host) {
		args[n++] = "--net";
		args[n++] = "host";
	}
	if (e->dialect) {
		args[n++] = "--dialect";
		args[n++] = e->dialect;
	}
	args[n] = NULL;
	r = process_spawn(&(struct process_plan){ .program = e->program,
						  .argv = (char *const *)args,
						  .log_fd = t->log_fd,
						  .keep = { ready_w, handed } },
			  &t->process);
	if (r < 0)
		task_say(t, "cannot run %s: %s", e->program, strerrordesc_np(-r));
	else
		t->ready_fd = steal_fd(&ready_r);
	return r;
}

/* Without walls its files are where they are on the host. */
static int find_root(struct task *t)
{
	char *data CLEANUP_FREE = NULL;

	if (!t->e->no_isolation)
		return 0;
	data = paths_user_data(t->e->data, t->user, t->thread);
	if (!data)
		return -ENOMEM;
	t->root = realpath(data, NULL);
	return t->root ? 0 : -errno;
}

/* With both locks. */
static int launch(struct task *t, int alive)
{
	struct embedded *e = t->e;
	struct stat st;
	int r;

	r = find_root(t);
	if (r == 0)
		r = den_sweep(&t->den, alive);
	if (r == 0)
		r = den_write_who(&t->den, t->user, t->thread, t->root);
	if (r < 0) {
		task_say(t, "cannot write in %s: %s", t->den.dir, strerrordesc_np(-r));
		return r;
	}
	t->log_fd = log_open(e->data, t->id, e->log_max);
	if (t->log_fd < 0) {
		task_say(t, "cannot open the log in %s/logs: %s", e->data,
			 strerrordesc_np(-t->log_fd));
		return t->log_fd;
	}
	t->log_from = fstat(t->log_fd, &st) < 0 ? 0 : st.st_size;
	return spawn(t, alive);
}

/* Gives up both locks, and removes what is there unless somebody else has come to use it. */
static void leave(struct task *t, int alive)
{
	int users = steal_fd(&t->users);

	if (filelock_change(users, true) == 0) {
		den_remove(&t->den, users, alive);
		return;
	}
	close(alive);
	close(users);
}

/* Takes `users`; one that we have from before will do, if the file is still there. */
static int enter(struct task *t)
{
	if (t->users >= 0) {
		if (filelock_change(t->users, false) == 0)
			return 0;
		close(steal_fd(&t->users));
	}
	return den_enter(&t->den, &t->users);
}

static int prepare(struct task *t)
{
	int alive, r;

	r = paths_make_thread(t->e->data, t->user, t->thread);
	if (r < 0) {
		task_say(t, "cannot make the directories of thread %s: %s", t->thread,
			 strerrordesc_np(-r));
		return r;
	}
	r = enter(t);
	if (r < 0) {
		if (r != -EAGAIN)
			task_say(t, "cannot use %s: %s", t->den.dir, strerrordesc_np(-r));
		return r;
	}
	alive = den_claim(&t->den);
	if (alive < 0) {
		if (!t->was_resident)
			close(steal_fd(&t->users));
		if (alive != -EAGAIN && alive != -EEXIST)
			task_say(t, "cannot lock %s: %s", t->den.dir, strerrordesc_np(-alive));
		return alive;
	}
	r = launch(t, alive);
	if (r < 0)
		leave(t, alive);
	else
		close(alive); /* from now on only the sandbox has it */
	/* Those two have a meaning here that this has not. */
	return r == -EAGAIN || r == -EEXIST ? -EIO : r;
}

static void run_prepare(struct task *t)
{
	t->r = prepare(t);
}

/* Who was killed had nothing to say about it; else its own words are the best. */
static void explain(struct task *t)
{
	char *words CLEANUP_FREE = log_last_words(t->log_fd, t->log_from);
	const int status = t->process.status;

	if (t->blame[0])
		task_say(t, "threadfs-sandboxd %s%s%s", t->blame, words ? "; its last words: " : "",
			 words ? words : "");
	else if (status >= 0 && WIFSIGNALED(status) && t->phase <= STOP_WAIT)
		task_say(t, "threadfs-sandboxd was killed by signal %d", WTERMSIG(status));
	else if (words)
		task_say(t, "%s", words);
	else if (t->phase > STOP_WAIT)
		task_say(t, "threadfs-sandboxd gave up getting ready but did not end");
	else if (status < 0)
		task_say(t, "threadfs-sandboxd ended without a word");
	else
		task_say(t, "threadfs-sandboxd ended with status %d", WEXITSTATUS(status));
}

static void run_tidy(struct task *t)
{
	int alive;

	if (!t->why)
		explain(t);
	alive = den_claim(&t->den);
	/* Somebody has removed it all: nothing to do. */
	t->r = alive == -ENOENT ? 0 : MIN(alive, 0);
	if (alive >= 0)
		leave(t, alive);
}

/* ---- on the loop ---- */

/* -ENOENT, -EPERM and the like would be taken for what they mean in backend.h. */
static int public_error(int r)
{
	return r == -ENOENT || r == -EPERM || r == -EAGAIN || r == -EACCES ? -EIO : r;
}

static bool adopt_child(struct task *t);

static void tidied(struct task *t)
{
	if ((t->r == -EAGAIN || t->r == -EEXIST) && clock_ms() < t->give_up_ms) {
		task_again(t);
		return;
	}
	if (t->r < 0)
		log_warn("sandbox %s: its remains in %s cannot be removed now: %s", t->id,
			 t->den.dir, strerrordesc_np(-t->r));
	if (t->stuck)
		adopt_child(t); /* it may end yet, and is ours to reap */
	task_end(t, t->error);
}

static void stopped(struct task *t)
{
	if (t->stuck)
		log_error("sandbox %s: process %d cannot be killed", t->id, (int)t->process.pid);
	t->give_up_ms = clock_ms() + TIDY_MS;
	task_work(t, run_tidy, tidied);
}

/* Ends the attempt; what the answer will be is settled. */
static void abandon(struct task *t, int error, enum stop_phase from)
{
	ev_timer_stop(loop_ev(t->e->b.loop), &t->timer);
	ev_io_stop(loop_ev(t->e->b.loop), &t->ready);
	t->error = error;
	task_stop_process(t, from, stopped);
}

static void on_child_ended(struct process *p)
{
	struct child *c = CONTAINER_OF(p, struct child, process);

	DL_DELETE(c->e->children, c);
	process_release(p);
	free(c);
}

/* From now on it is watched on its own, only to be reaped. */
static bool adopt_child(struct task *t)
{
	struct ev_loop *ev = loop_ev(t->e->b.loop);
	struct child *c = calloc(1, sizeof(*c));

	if (!c)
		return false;
	process_unwatch(&t->process, ev);
	c->e = t->e;
	c->process = t->process;
	t->process = PROCESS_INIT;
	DL_APPEND(t->e->children, c);
	process_watch(&c->process, ev, on_child_ended);
	return true;
}

static int set_place(struct task *t)
{
	struct place p CLEANUP_PLACE = { .socket = strdup(t->den.sock), .pid = t->process.pid };

	memcpy(p.id, t->id, sizeof(p.id));
	p.user = strdup(t->user);
	p.thread = strdup(t->thread);
	p.root = STEAL(t->root);
	if (!p.socket || !p.user || !p.thread)
		return -ENOMEM;
	t->op->place = p;
	p = (struct place){ 0 };
	return 0;
}

static void is_ready(struct task *t)
{
	if (set_place(t) < 0 || !adopt_child(t)) {
		place_release(&t->op->place);
		abandon(t, -ENOMEM, STOP_TERM);
		return;
	}
	task_end(t, 0);
}

static void on_nonsense(struct task *t)
{
	snprintf(t->blame, sizeof(t->blame), "says something else than that it is ready");
	abandon(t, -EIO, STOP_TERM);
}

static void on_ready_fd(struct ev_loop *ev UNUSED, ev_io *io, int revents UNUSED)
{
	struct task *t = CONTAINER_OF(io, struct task, ready);
	ssize_t n = read(t->ready_fd, t->heard + t->heard_len, sizeof(t->heard) - 1 - t->heard_len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		t->heard_len += (size_t)n;
		t->heard[t->heard_len] = '\0';
		if (strstr(t->heard, "READY=1\n"))
			is_ready(t);
		else if (t->heard_len == sizeof(t->heard) - 1)
			on_nonsense(t);
		return;
	}
	/* It has given up, and its log says why; or it never ends, and that is said. */
	abandon(t, -EIO, STOP_WAIT);
}

static void on_ended_early(struct process *p)
{
	struct task *t = CONTAINER_OF(p, struct task, process);
	struct ev_loop *ev = loop_ev(t->e->b.loop);

	ev_timer_stop(ev, &t->timer);
	ev_io_stop(ev, &t->ready);
	t->error = -EIO;
	t->cancel = task_go_on;
	stopped(t);
}

static void on_late(struct ev_loop *ev UNUSED, ev_timer *timer, int revents UNUSED)
{
	struct task *t = CONTAINER_OF(timer, struct task, timer);

	snprintf(t->blame, sizeof(t->blame), "was not ready within %lld ms",
		 (long long)t->e->ready_ms);
	abandon(t, -ETIMEDOUT, STOP_TERM);
}

static void cancel_start(struct task *t)
{
	task_say(t, "the start was cancelled");
	abandon(t, -ECANCELED, STOP_TERM);
}

static void await_ready(struct task *t)
{
	struct ev_loop *ev = loop_ev(t->e->b.loop);

	t->cancel = cancel_start;
	if (t->cancelled) {
		cancel_start(t);
		return;
	}
	process_watch(&t->process, ev, on_ended_early);
	ev_io_init(&t->ready, on_ready_fd, t->ready_fd, EV_READ);
	ev_io_start(ev, &t->ready);
	ev_timer_init(&t->timer, on_late, (double)MAX(t->give_up_ms - clock_ms(), 1) / 1e3, 0);
	ev_timer_start(ev, &t->timer);
}

static void prepared(struct task *t)
{
	if (t->r == 0) {
		await_ready(t);
		return;
	}
	if (t->r == -EAGAIN && task_may_wait(t)) {
		task_again(t); /* somebody stops or removes the one before it */
		return;
	}
	if (t->users >= 0 && t->was_resident && !t->forgotten)
		embedded_keep(t->e, t->id, steal_fd(&t->users));
	if (t->cancelled) {
		task_end(t, -ECANCELED);
	} else {
		if (t->r == -EAGAIN)
			task_say(t, "%s is busy: another program is stopping it", t->den.dir);
		task_end(t, t->r == -EAGAIN ? -EBUSY : public_error(t->r));
	}
}

void embedded_create(struct backend *b, struct backend_op *op, const struct whom *whom)
{
	struct embedded *e = CONTAINER_OF(b, struct embedded, b);
	struct task *t = task_new(e, op, whom->id, -EINVAL);

	if (!t)
		return;
	if (!ident_is_user(whom->user) || !ident_is_thread(whom->thread)) {
		task_say(t, "not the name of a user and a thread");
		task_end(t, -EINVAL);
		return;
	}
	t->user = strdup(whom->user);
	t->thread = strdup(whom->thread);
	if (!t->user || !t->thread) {
		task_end(t, -ENOMEM);
		return;
	}
	t->users = embedded_take(e, whom->id);
	t->was_resident = t->users >= 0;
	t->cancel = prepared;
	t->give_up_ms = clock_ms() + e->ready_ms;
	task_work(t, run_prepare, prepared);
}

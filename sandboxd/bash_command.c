/*
 * See bash_command.h. Starts the process, reads its pipes fairly, feeds its
 * stdin and notices its end. Knows nothing of HTTP, nor of queues and waiters
 * beyond the two calls into bash_session.c. Loop thread only.
 */
#include "bash_command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <utlist.h>

#include "bash_session.h"
#include "io.h"
#include "request.h"
#include "spawn.h"

enum {
	READS_PER_WAKEUP = 4,   /* so that one writer does not starve others */
	READS_AT_END = 16,      /* 1 MiB, the most a pipe can hold */
	MAX_LINGERING = 64,     /* pipes of background processes, in all */
	ARG_LIMIT = 128 * 1024, /* the kernel's, of one argument with its NUL */
};

/* ---- making and freeing ---- */

static size_t env_bytes(char **env)
{
	size_t bytes = 0;

	for (char **var = env; var && *var; var++)
		bytes += strlen(*var) + sizeof(*var);
	return bytes;
}

struct bash_command *bash_command_new(const char *text, const char *dir, char **env,
				      double hard_timeout)
{
	struct bash_command *c = calloc(1, sizeof(*c));

	if (!c) {
		spawn_env_free(env);
		return NULL;
	}
	uuid_make(c->id);
	c->env = env;
	c->hard_timeout = hard_timeout;
	c->stdin_fd = -1;
	c->input = BUF_INIT(BASH_INPUT_MAX);
	c->text = strdup(text);
	c->dir = strdup(dir);
	if (!c->text || !c->dir) {
		bash_command_free(c);
		return NULL;
	}
	c->bytes = sizeof(*c) + strlen(text) + strlen(dir) + env_bytes(env);
	return c;
}

void bash_command_free(struct bash_command *c)
{
	if (!c)
		return;
	spawn_env_free(c->env);
	buf_release(&c->input);
	free(c->dir);
	free(c->text);
	free(c);
}

/* ---- output ---- */

void bash_pipe_free(struct bash_pipe *p)
{
	struct bash *b = p->session->bash;

	if (p->command) {
		p->command->pipes[p->stream] = NULL;
	} else {
		DL_DELETE(b->lingering, p);
		b->n_lingering--;
	}
	ev_io_stop(b->srv->loop, &p->io);
	close(p->io.fd);
	free(p);
}

/*
 * Reads what is there, at most so many times. Returns 1 if there may be more,
 * 0 if there is not, -EPIPE at the end; the pipe is then freed.
 */
static int pipe_read(struct bash_pipe *p, int reads)
{
	char *scratch = p->session->bash->scratch;

	while (reads-- > 0) {
		ssize_t n = read(p->io.fd, scratch, BASH_READ_SIZE);

		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			bash_pipe_free(p);
			return -EPIPE;
		}
		bash_session_output(p->session, p->stream, scratch, (size_t)n);
		if (n < BASH_READ_SIZE / 2)
			return 1;
	}
	return 1;
}

static void pipe_readable(struct ev_loop *loop UNUSED, ev_io *w, int revents UNUSED)
{
	(void)pipe_read(w->data, READS_PER_WAKEUP);
}

/* Takes what the command left behind; the pipe itself may outlive it. */
static void pipe_finish(struct bash_pipe *p)
{
	struct bash *b = p->session->bash;
	int r = 1;

	for (int i = 0; i < READS_AT_END && r > 0; i++)
		r = pipe_read(p, 1);
	if (r < 0)
		return;
	p->command->pipes[p->stream] = NULL;
	p->command = NULL;
	DL_APPEND(b->lingering, p);
	if (++b->n_lingering > MAX_LINGERING)
		bash_pipe_free(b->lingering);
}

/* ---- input ---- */

static void stdin_close(struct bash_command *c)
{
	if (c->stdin_fd < 0)
		return;
	ev_io_stop(c->session->bash->srv->loop, &c->stdin_io);
	close(steal_fd(&c->stdin_fd));
	buf_release(&c->input);
}

/* Writes what the pipe takes; asks to be called again if some is left. */
static void stdin_flush(struct bash_command *c)
{
	struct ev_loop *loop = c->session->bash->srv->loop;

	while (c->input.len > 0) {
		ssize_t n = write(c->stdin_fd, c->input.data, c->input.len);

		if (n > 0) {
			buf_consume(&c->input, (size_t)n);
		} else if (errno == EAGAIN) {
			ev_io_start(loop, &c->stdin_io);
			return;
		} else if (errno != EINTR) {
			stdin_close(c);
			return;
		}
	}
	buf_release(&c->input);
	ev_io_stop(loop, &c->stdin_io);
}

static void stdin_writable(struct ev_loop *loop UNUSED, ev_io *w, int revents UNUSED)
{
	stdin_flush(w->data);
}

int bash_command_input(struct bash_command *c, const char *data, size_t len)
{
	if (c->status != BASH_RUNNING)
		return -EINVAL;
	if (c->stdin_fd < 0)
		return -EPIPE;
	if (len > BASH_INPUT_MAX - c->input.len)
		return -ENOBUFS;
	if (buf_append(&c->input, data, len) < 0) {
		stdin_close(c);
		return -ENOMEM;
	}
	stdin_flush(c);
	return c->stdin_fd < 0 ? -EPIPE : 0;
}

/* ---- the end ---- */

static void command_release(struct bash_command *c)
{
	struct ev_loop *loop = c->session->bash->srv->loop;

	child_forget(loop, &c->child);
	ev_timer_stop(loop, &c->hard_timer);
	stdin_close(c);
	c->group = 0;
}

static void process_ended(struct child *child, int wstatus)
{
	struct bash_command *c = CONTAINER_OF(child, struct bash_command, child);

	for (int i = 0; i < BASH_STREAMS; i++)
		if (c->pipes[i])
			pipe_finish(c->pipes[i]);
	command_release(c);
	c->status = c->timed_out ? BASH_TIMED_OUT : BASH_COMPLETED;
	c->has_exit_code = true;
	if (c->timed_out)
		c->exit_code = -1;
	else
		c->exit_code = WIFSIGNALED(wstatus) ? -WTERMSIG(wstatus) : WEXITSTATUS(wstatus);
	bash_session_ended(c->session);
}

static void hard_timeout(struct ev_loop *loop UNUSED, ev_timer *w, int revents UNUSED)
{
	struct bash_command *c = w->data;

	c->timed_out = true;
	spawn_kill(c->group, SIGKILL);
}

void bash_command_signal(struct bash_command *c, int sig)
{
	if (c->status == BASH_RUNNING)
		spawn_kill(c->group, sig);
}

void bash_command_abandon(struct bash_command *c)
{
	spawn_kill(c->group, SIGKILL);
	for (int i = 0; i < BASH_STREAMS; i++)
		if (c->pipes[i])
			bash_pipe_free(c->pipes[i]);
	command_release(c);
	c->has_exit_code = true;
	c->exit_code = -SIGKILL;
	c->status = BASH_KILLED;
}

/* ---- the start ---- */

/* The kernel takes no argument this long: a file for bash to read. */
static int script_fd(const char *text, size_t len)
{
	int fd CLEANUP_FD = memfd_create("command", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = write_all(fd, text, len);
	if (r < 0)
		return r;
	return steal_fd(&fd);
}

/* fds are the child's ends. Returns the pid or a negative errno. */
static pid_t command_spawn(struct bash_command *c, const int fds[3])
{
	const struct server *srv = c->session->bash->srv;
	/* Without "--" a text that starts with a dash is taken for options. */
	const char *argv[] = { "/bin/bash", "-c", "--", c->text, NULL };
	struct spawn how = {
		.argv = argv,
		.env = (const char *const *)c->env,
		.stdin_fd = fds[0],
		.stdout_fd = fds[1],
		.stderr_fd = fds[2],
		.extra_fds = { -1, -1 },
	};
	size_t len = strlen(c->text);
	int script CLEANUP_FD = -1;
	char cwd[PATH_MAX];
	int r;

	r = sandbox_path(srv, c->dir, cwd);
	if (r < 0)
		return r;
	how.cwd = cwd;
	if (len >= ARG_LIMIT) {
		script = script_fd(c->text, len);
		if (script < 0)
			return script;
		how.extra_fds[0] = script;
		argv[3] = ". /dev/fd/62";
	}
	return spawn(srv, &how);
}

static struct bash_pipe *pipe_new(struct bash_command *c, enum bash_stream stream, int fd)
{
	struct bash_pipe *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->session = c->session;
	p->command = c;
	p->stream = stream;
	ev_io_init(&p->io, pipe_readable, fd, EV_READ);
	/* Output can be endless; what HTTP does when idle must not wait for it. */
	ev_set_priority(&p->io, -1);
	p->io.data = p;
	return p;
}

/* Takes over our ends of the pipes and watches what there is to watch. */
static void command_attach(struct bash_command *c, pid_t pid, int stdin_fd)
{
	struct ev_loop *loop = c->session->bash->srv->loop;

	c->status = BASH_RUNNING;
	c->group = pid;
	c->stdin_fd = stdin_fd;
	ev_io_init(&c->stdin_io, stdin_writable, stdin_fd, EV_WRITE);
	c->stdin_io.data = c;
	for (int i = 0; i < BASH_STREAMS; i++) {
		c->pipes[i]->group = pid;
		ev_io_start(loop, &c->pipes[i]->io);
	}
	child_watch(loop, &c->child, pid, process_ended);
	if (c->hard_timeout >= 0) {
		ev_now_update(loop);
		ev_timer_init(&c->hard_timer, hard_timeout, c->hard_timeout, 0);
		c->hard_timer.data = c;
		ev_timer_start(loop, &c->hard_timer);
	}
}

/* pair[0] becomes non-blocking if ours is 0, else pair[1]. */
static int make_pipe(int pair[2], int ours)
{
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	fcntl(pair[ours], F_SETFL, O_NONBLOCK);
	return 0;
}

static void close_pair(int pair[2])
{
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(steal_fd(&pair[i]));
}

static int command_start(struct bash_command *c)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 };
	pid_t pid = -ENOMEM;
	int r;

	r = make_pipe(in, 1);
	r = r ?: make_pipe(out, 0);
	r = r ?: make_pipe(err, 0);
	if (r < 0) {
		pid = r;
		goto out;
	}
	c->pipes[BASH_STDOUT] = pipe_new(c, BASH_STDOUT, out[0]);
	c->pipes[BASH_STDERR] = pipe_new(c, BASH_STDERR, err[0]);
	if (c->pipes[BASH_STDOUT] && c->pipes[BASH_STDERR])
		pid = command_spawn(c, (int[]){ in[0], out[1], err[1] });
	if (pid < 0) {
		for (int i = 0; i < BASH_STREAMS; i++)
			free(STEAL(c->pipes[i]));
		goto out;
	}
	command_attach(c, pid, steal_fd(&in[1]));
	out[0] = err[0] = -1;
out:
	close_pair(in);
	close_pair(out);
	close_pair(err);
	return pid < 0 ? pid : 0;
}

int bash_command_start(struct bash_command *c)
{
	int r = command_start(c);

	spawn_env_free(STEAL(c->env));
	free(STEAL(c->dir));
	if (r < 0) {
		c->start_error = r;
		c->status = BASH_KILLED;
	}
	return r;
}

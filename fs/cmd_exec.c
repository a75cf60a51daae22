/*
 * `threadfs exec`: runs a command in the sandbox directory that a path of a
 * mount shows, as if it ran here: stdin, stdout, stderr, signals and the exit code. Talks
 * to the mount by its control files only. A program of its own: it blocks, and has a
 * thread for each stream, as each of them may stand still while another goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "cmd.h"
#include "io.h"
#include "jsonw.h"
#include "mounts.h"
#include "run_request.h"

enum {
	EXIT_NOT_RUN = 125,
	EXIT_LOST = 255,
	REQUEST_MAX = 1024 * 1024, /* what is one write for the mount, too */
};

/* One line, and then the exit status. */
#define complain(status, ...) (cmd_fail(__VA_ARGS__), (status))

/* ---- where ---- */

struct place {
	char *thread; /* its directory in the mount */
	char *dir;    /* below it */
};

static void place_release(struct place *p)
{
	free(p->thread);
	free(p->dir);
}

/*
 * Fills p in if path, an absolute one without links, lies in a thread. The mount
 * says what is a thread, not names in it: a sandbox may have a .ctl of its own.
 */
static bool split(const char *path, const struct mount_entry *mount, struct place *p)
{
	static const char threads[] = "/threads/";
	const char *below;
	size_t id;

	if (!mount_entry_is_ours(mount))
		return false;
	below = path + strlen(mount->point);
	if (strncmp(below, threads, strlen(threads)) != 0)
		return false;
	id = strcspn(below + strlen(threads), "/");
	if (id == 0)
		return false;
	below += strlen(threads) + id;
	p->thread = strndup(path, (size_t)(below - path));
	p->dir = strdup(below + strspn(below, "/"));
	return p->thread && p->dir;
}

/* The directory of control files, or a negative errno. */
static int open_ctl(const struct place *p)
{
	char *name CLEANUP_FREE = NULL;
	int fd;

	if (asprintf(&name, "%s/.ctl", p->thread) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int find(const char *path, struct place *ret, int *ret_ctl)
{
	char *real CLEANUP_FREE = realpath(path, NULL);
	struct mounts mounts CLEANUP_MOUNTS = { 0 };
	struct stat st;
	int r;

	if (!real || stat(real, &st) < 0)
		return complain(EXIT_NOT_RUN, "%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return complain(EXIT_NOT_RUN, "%s: not a directory", path);
	r = mounts_read(&mounts);
	if (r == 0)
		r = split(real, mounts_around(&mounts, real), ret) ? open_ctl(ret) : -ENOENT;
	if (r == -ENOENT || r == -ENOTDIR)
		return complain(EXIT_NOT_RUN, "%s: not in a thread of a threadfs mount", path);
	if (r < 0)
		return complain(EXIT_NOT_RUN, "%s: %s", path, strerror(-r));
	*ret_ctl = r;
	return 0;
}

/* ---- what ---- */

/* "/x" is below the thread's root, "x" below the path. */
static void put_dir(struct jw *w, const struct place *p, const char *dir)
{
	struct buf full CLEANUP_BUF = BUF_INIT(0);

	if (!dir || dir[0] != '/')
		buf_printf(&full, "%s/", p->dir);
	buf_puts(&full, dir ?: "");
	jw_kstrn(w, "dir", full.data ?: "", full.len);
}

static bool climbs(const char *dir)
{
	for (const char *s = dir; s && *s; s += strspn(s, "/")) {
		size_t n = strcspn(s, "/");

		if (n == 2 && s[0] == '.' && s[1] == '.')
			return true;
		s += n;
	}
	return false;
}

static int put_env(struct jw *w, char *const *env)
{
	jw_key(w, "env");
	jw_obj(w);
	for (size_t i = 0; env && env[i]; i++) {
		const char *eq = strchr(env[i], '=');
		char *name CLEANUP_FREE = eq ? strndup(env[i], (size_t)(eq - env[i])) : NULL;

		if (!name || !run_is_env_name(name, strlen(name)))
			return complain(EXIT_NOT_RUN, "-e %s: not NAME=VALUE", env[i]);
		jw_kstr(w, name, eq + 1);
	}
	jw_obj_end(w);
	return 0;
}

/* The words go as a script, which can hold any byte; JSON cannot. */
static int put_request(struct buf *to, const struct exec_args *args, const struct place *p,
		       bool fed)
{
	struct buf script CLEANUP_BUF = BUF_INIT(REQUEST_MAX);
	struct jw w;
	int r;

	if (climbs(args->dir))
		return complain(EXIT_NOT_RUN, "-d %s: \"..\" is not allowed", args->dir);
	r = run_script(&script, (const char *const *)args->argv);
	if (r < 0)
		return complain(EXIT_NOT_RUN, "%s",
				r == -EINVAL ? "no command" : "the command is too long");
	jw_init(&w, to);
	jw_obj(&w);
	jw_kstrn(&w, "script", script.data, script.len);
	put_dir(&w, p, args->dir);
	r = put_env(&w, args->env);
	if (r != 0)
		return r;
	jw_kbool(&w, "stdin", fed);
	jw_obj_end(&w);
	if (to->error)
		return complain(EXIT_NOT_RUN, "the command is too long");
	if (w.invalid_utf8)
		return complain(EXIT_NOT_RUN, "directory and environment must be UTF-8");
	return 0;
}

/* ---- the job ---- */

struct run {
	int ctl;       /* directory of control files */
	int job;       /* directory of the job */
	int ended;     /* eventfd: counts the streams that have */
	char name[32]; /* of the job below ctl */
};

/* Reads a short control file of one line; empty if it cannot be. */
static void read_text(const struct run *r, const char *file, char *to, size_t size)
{
	int fd CLEANUP_FD = openat(r->job, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, to, size - 1);

	to[n > 0 ? n : 0] = '\0';
	to[strcspn(to, "\n")] = '\0';
}

static int start(struct run *r, const struct buf *request)
{
	int fd CLEANUP_FD = openat(r->ctl, "run", O_RDWR | O_CLOEXEC);
	char number[16];
	ssize_t n = -1;

	if (fd < 0)
		return complain(EXIT_NOT_RUN, "cannot ask the mount: %s", strerror(errno));
	if (write(fd, request->data, request->len) == (ssize_t)request->len)
		n = read(fd, number, sizeof(number) - 1);
	if (n < 0)
		return complain(EXIT_NOT_RUN, "the command was not started: %s", strerror(errno));
	number[n] = '\0';
	number[strcspn(number, "\n")] = '\0';
	snprintf(r->name, sizeof(r->name), "jobs/%s", number);
	r->job = openat(r->ctl, r->name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (n == 0 || r->job < 0)
		return complain(EXIT_LOST, "the command was started, but cannot be found");
	return 0;
}

/* Best effort: what is over needs no signal. */
static void send_signal(const struct run *r, const char *name)
{
	int fd CLEANUP_FD = openat(r->job, "kill", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, name, strlen(name));
}

/* ---- streams ---- */

struct stream {
	struct run *run;
	const char *file;
	int from, to;
	int error;       /* of reading */
	int write_error; /* what was read did not arrive */
	pthread_t thread;
};

/* To the end, even if nobody listens any more: then the command is told to end. */
static void *copy_out(void *ctx)
{
	struct stream *s = ctx;
	char bytes[65536];
	ssize_t n;

	for (;;) {
		n = read(s->from, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (s->write_error)
			continue;
		s->write_error = -write_all(s->to, bytes, (size_t)n);
		if (s->write_error)
			send_signal(s->run, "HUP");
	}
	s->error = n < 0 ? errno : 0;
	(void)eventfd_write(s->run->ended, 1);
	return NULL;
}

struct input {
	const struct run *run;
	int to;
};

/*
 * Nobody waits for this one: it may stand still for ever. A command that gets
 * only a part of its input must not take that for all of it.
 */
static void *copy_in(void *ctx)
{
	struct input *in = ctx;
	bool begun = false; /* before that a stdin that cannot be read is an empty one */
	char bytes[65536];
	int r = 0;

	for (;;) {
		ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && begun)
			r = -errno;
		if (n > 0)
			r = write_all(in->to, bytes, (size_t)n);
		if (n <= 0 || r < 0)
			break;
		begun = true;
	}
	if (r < 0 && r != -EPIPE) {
		cmd_fail("the rest of the input is lost: %s", strerrordesc_np(-r));
		send_signal(in->run, "HUP");
	}
	close(in->to);
	free(in);
	return NULL;
}

static int start_out(struct stream *s)
{
	int r;

	s->from = openat(s->run->job, s->file, O_RDONLY | O_CLOEXEC);
	if (s->from < 0)
		return -errno;
	r = pthread_create(&s->thread, NULL, copy_out, s);
	if (r != 0)
		close(steal_fd(&s->from));
	return -r;
}

/* A command that is over takes none: that is no error. */
static void start_in(const struct run *r)
{
	struct input *in = malloc(sizeof(*in));
	pthread_t thread;

	if (!in)
		return;
	in->run = r;
	in->to = openat(r->job, "stdin", O_WRONLY | O_CLOEXEC);
	if (in->to >= 0 && pthread_create(&thread, NULL, copy_in, in) == 0) {
		pthread_detach(thread);
		return;
	}
	if (in->to >= 0)
		close(in->to);
	free(in);
}

/* ---- signals ---- */

/* What the caller ignores (nohup) is left alone. */
static int catch_signals(void)
{
	static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction old;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		if (sigaction(passed_on[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(&set, passed_on[i]);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void pass_on(struct run *r, int signals, unsigned *interrupts)
{
	struct signalfd_siginfo info;

	if (read(signals, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGINT:
		send_signal(r, ++*interrupts > 1 ? "KILL" : "INT");
		break;
	case SIGTERM:
		send_signal(r, "TERM");
		break;
	default:
		send_signal(r, "HUP");
	}
}

/* Until that many streams have ended. */
static void wait_for(struct run *r, int signals, eventfd_t streams)
{
	unsigned interrupts = 0;

	while (streams > 0) {
		struct pollfd fds[] = { { .fd = r->ended, .events = POLLIN },
					{ .fd = signals, .events = POLLIN } };
		eventfd_t n;

		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			continue;
		if (fds[0].revents && eventfd_read(r->ended, &n) == 0)
			streams -= MIN(n, streams);
		if (fds[1].revents)
			pass_on(r, signals, &interrupts);
	}
}

/* ---- all of it ---- */

/* Where output is missing the exit code of the command would say that all is well. */
static int outcome(const struct run *r, int error, int write_error)
{
	char state[16], code[16];

	read_text(r, "status", state, sizeof(state));
	read_text(r, "exit_code", code, sizeof(code));
	if (strcmp(state, "done cut") == 0)
		return complain(EXIT_LOST, "the output is too long: only its beginning was kept; "
					   "let the command write to a file");
	if (write_error == EPIPE)
		return 128 + SIGPIPE; /* as of any command whose reader has gone */
	if (write_error)
		return complain(EXIT_LOST, "the output cannot be written: %s",
				strerror(write_error));
	if (strcmp(state, "done") == 0 && code[0] && !error)
		return (int)strtol(code, NULL, 10) & 0xff;
	if (strcmp(state, "done") == 0)
		return complain(EXIT_LOST, "the output is incomplete: %s", strerror(error ?: EIO));
	if (strncmp(state, "running", strlen("running")) == 0)
		return complain(EXIT_LOST,
				"the sandbox does not answer (%s): what became of the command is "
				"not known; .ctl/%s/status will tell",
				strerror(error ?: EIO), r->name);
	return complain(EXIT_LOST, "the command was lost: %s", strerror(error ?: EIO));
}

static int attend(struct run *r, bool fed)
{
	struct stream streams[] = {
		{ .run = r, .file = "stdout", .to = STDOUT_FILENO, .from = -1 },
		{ .run = r, .file = "stderr", .to = STDERR_FILENO, .from = -1 },
	};
	int signals CLEANUP_FD = -1;
	eventfd_t started = 0;
	int error = 0, write_error = 0;

	signal(SIGPIPE, SIG_IGN);
	signals = catch_signals();
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
		int err = start_out(&streams[i]);

		if (err < 0) /* else there is a thread that says it */
			streams[i].error = -err;
		started += err == 0;
	}
	if (fed)
		start_in(r);
	wait_for(r, signals, started);
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
		/* Not closed before the end: a job that is open is not forgotten. */
		if (streams[i].from >= 0)
			pthread_join(streams[i].thread, NULL);
		error = error ?: streams[i].error;
		write_error = write_error ?: streams[i].write_error;
	}
	return outcome(r, error, write_error);
}

/* So that no descriptor of ours is taken for one that the caller has closed. */
static void take_places(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int cmd_exec(const struct exec_args *args)
{
	struct place p CLEANUP(place_release) = { 0 };
	struct buf request CLEANUP_BUF = BUF_INIT(REQUEST_MAX);
	bool fed = fcntl(STDIN_FILENO, F_GETFD) >= 0;
	static struct run run = { .ctl = -1, .job = -1, .ended = -1 };
	int r;

	take_places();
	r = find(args->path, &p, &run.ctl);
	if (r == 0)
		r = put_request(&request, args, &p, fed);
	if (r == 0)
		r = start(&run, &request);
	if (r == 0) {
		run.ended = eventfd(0, EFD_CLOEXEC);
		r = run.ended < 0 ? complain(EXIT_LOST, "%s", strerror(errno)) : attend(&run, fed);
	}
	/* A thread may still read our stdin: what it uses (run) goes with the program. */
	return r;
}

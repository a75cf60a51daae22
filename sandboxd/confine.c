/*
 * See confine.h: the supervisor. Knows processes, pipes and signals; what the
 * sandbox consists of is in confine_walls.c, its cgroup in confine_cgroup.c.
 * Single-threaded.
 */
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "buf.h"
#include "clock.h"
#include "confine_i.h"
#include "io.h"
#include "log.h"

enum {
	STOP_MS = 1500,  /* for the server to end by itself; users are promised 2 s in all */
	ORPHAN_MS = 400, /* for what the kernel is just killing */
	EARLY_STDERR_MAX = 64 * 1024,
	KEYCTL_JOIN_SESSION_KEYRING_ = 1,
};

struct supervisor {
	const struct options *o;
	int data_fd, listen_fd;
	char *data_path;
	const char *server;
	char *bwrap;
	uid_t uid; /* whose processes the sandbox's are, on the host */
	gid_t gid;
	int signal_fd;
	bool disable_userns;

	/* one attempt */
	pid_t pid; /* of bwrap; -1 = ended */
	int exit_status;
	int lifeline_fd; /* write end */
	int status_fd;   /* read ends */
	int stderr_fd;
	struct cgroup *cgroup;
	struct buf early; /* stderr until ready */
	bool ready, stopping;
	int64_t kill_at; /* when stopping; 0 = was killed */

	void (*on_ready)(void *ctx);
	void *ctx;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int find_bwrap(char **ret)
{
	const char *path = getenv("PATH");
	char *copy CLEANUP_FREE = strdup(path ? path : "/usr/local/bin:/usr/bin:/bin");
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	for (char *dir = strtok_r(copy, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		char *candidate CLEANUP_FREE = NULL;

		if (dir[0] != '/')
			continue; /* never from the current directory */
		if (asprintf(&candidate, "%s/bwrap", dir) < 0) {
			candidate = NULL;
			return -ENOMEM;
		}
		if (access(candidate, X_OK) == 0) {
			*ret = STEAL(candidate);
			return 0;
		}
	}
	return -ENOENT;
}

/*
 * Whose files the sandbox's will be. Root can become the owner of the data, so
 * that what commands create belongs to them, and so that the sandbox is not
 * the host's root in disguise.
 */
static int choose_user(struct supervisor *s)
{
	struct stat st;

	s->uid = geteuid();
	s->gid = getegid();
	if (fstat(s->data_fd, &st) < 0)
		return -errno;
	if (s->uid == 0 && st.st_uid != 0) {
		s->uid = st.st_uid;
		s->gid = st.st_gid;
	}
	return 0;
}

/* After fork. Only what is safe there and cannot block. */
static void child_exec(const struct supervisor *s, const struct argvec *args,
		       const struct handover *fds, int stderr_fd) __attribute__((noreturn));
static void child_exec(const struct supervisor *s, const struct argvec *args,
		       const struct handover *fds, int stderr_fd)
{
	/* Against the host's crash handler being fed by the sandbox: 1 stops pipes, too. */
	const struct rlimit no_core = { 1, 1 };
	char *const env[] = { NULL };
	sigset_t none;
	int null_fd;

	dup2(stderr_fd, STDOUT_FILENO);
	dup2(stderr_fd, STDERR_FILENO);
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0)
		goto fail;
	/* Ctrl-C at the terminal is for the supervisor alone. */
	setsid();
	setrlimit(RLIMIT_CORE, &no_core);
	/* Or commands would possess the keys of whoever started us. */
	syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING_, NULL);
	if (geteuid() == 0) {
		/* Root of a user namespace may be denied setgroups; then it has no groups to shed.
		 */
		if ((setgroups(0, NULL) < 0 && s->uid != 0) ||
		    setresgid(s->gid, s->gid, s->gid) < 0 || setresuid(s->uid, s->uid, s->uid) < 0)
			goto fail;
	}
	if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		goto fail;
	for (size_t i = 0; i < fds->n; i++)
		if (fcntl(fds->fds[i], F_SETFD, 0) < 0)
			goto fail;
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(s->bwrap, args->v, env);
fail:
	dprintf(STDERR_FILENO, "bwrap: cannot start %s: %s\n", s->bwrap, strerrordesc_np(errno));
	_exit(1);
}

static int make_pipe(int *ret_read, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}

/* A pipe that already holds the key (shorter than a pipe is deep). */
static int make_key_pipe(const char *key, int *ret_read)
{
	int r_fd CLEANUP_FD = -1, w_fd CLEANUP_FD = -1;
	int r = make_pipe(&r_fd, &w_fd);

	if (r < 0)
		return r;
	if (write(w_fd, key, strlen(key)) != (ssize_t)strlen(key))
		return -EIO;
	*ret_read = steal_fd(&r_fd);
	return 0;
}

static int start(struct supervisor *s)
{
	int lifeline_r CLEANUP_FD = -1, lifeline_w CLEANUP_FD = -1;
	int status_r CLEANUP_FD = -1, status_w CLEANUP_FD = -1;
	int stderr_r CLEANUP_FD = -1, stderr_w CLEANUP_FD = -1;
	int key_fd CLEANUP_FD = -1;
	struct handover fds CLEANUP(handover_release) = { 0 };
	struct argvec args CLEANUP(argvec_release) = { 0 };
	struct walls w;
	int r;

	r = make_pipe(&lifeline_r, &lifeline_w);
	if (r == 0)
		r = make_pipe(&status_r, &status_w);
	if (r == 0)
		r = make_pipe(&stderr_r, &stderr_w);
	if (r == 0 && s->o->cfg.api_key)
		r = make_key_pipe(s->o->cfg.api_key, &key_fd);
	if (r < 0)
		return r;
	w = (struct walls){
		.cfg = &s->o->cfg,
		.data_path = s->data_path,
		.server = s->server,
		.other_user = s->uid != geteuid(),
		.kernel_root = s->uid == 0,
		.disable_userns = s->disable_userns,
		.listen_fd = s->listen_fd,
		.lifeline_fd = lifeline_r,
		.status_fd = status_w,
		.key_fd = key_fd,
	};
	r = walls_args(&w, &args, &fds);
	if (r < 0)
		return r;

	s->cgroup = cgroup_new(s->o->cfg.max_processes, s->o->cfg.max_memory);
	s->pid = cgroup_fork(s->cgroup);
	if (s->pid < 0) {
		r = -errno;
		cgroup_free(STEAL(s->cgroup));
		return r;
	}
	if (s->pid == 0) {
		/* Ours alone, or the sandbox would hold its own lifeline. */
		close(lifeline_w);
		child_exec(s, &args, &fds, stderr_w);
	}
	s->lifeline_fd = steal_fd(&lifeline_w);
	s->status_fd = steal_fd(&status_r);
	s->stderr_fd = steal_fd(&stderr_r);
	return 0;
}

static void stop(struct supervisor *s)
{
	if (s->stopping)
		return;
	s->stopping = true;
	s->kill_at = clock_ms() + STOP_MS;
	close_fd(&s->lifeline_fd);
}

/* If it cannot be said there, nobody is listening. */
static void write_stderr(const char *data, size_t len)
{
	(void)!write_all(STDERR_FILENO, data, len);
}

static void flush_early(struct supervisor *s)
{
	if (s->early.len)
		write_stderr(s->early.data, s->early.len);
	buf_release(&s->early);
}

/* One read. Returns false at the end. */
static bool relay_stderr(struct supervisor *s)
{
	char chunk[4096];
	ssize_t n = read(s->stderr_fd, chunk, sizeof(chunk));

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n == 0) {
		close_fd(&s->stderr_fd);
		return false;
	}
	/* Held back until it is known whether bwrap or the server speaks. */
	if (s->ready || buf_append(&s->early, chunk, (size_t)n) < 0)
		write_stderr(chunk, (size_t)n);
	return true;
}

static void handle_status(struct supervisor *s)
{
	char c;
	ssize_t n = read(s->status_fd, &c, 1);

	if (n < 0 && errno == EINTR)
		return;
	close_fd(&s->status_fd);
	if (n != 1 || s->stopping)
		return;
	s->ready = true;
	flush_early(s);
	/* No warning: in containers this is how it is. */
	if (!cgroup_holds_memory(s->cgroup))
		log_info("no cgroup for memory: --max-memory is each process's own, and what is "
			 "shared does not count");
	s->on_ready(s->ctx);
}

/* We are a subreaper: also collects what a killed bwrap left. Returns false when none is left. */
static bool reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != s->pid)
			continue;
		s->pid = -1;
		s->exit_status = status;
	}
	if (pid < 0 && errno == ECHILD)
		s->pid = -1;
	return pid == 0;
}

static void handle_signal(struct supervisor *s)
{
	struct signalfd_siginfo si;

	if (read(s->signal_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SIGCHLD)
		reap(s);
	else
		stop(s);
}

/* Until bwrap has ended. */
static void watch(struct supervisor *s)
{
	while (s->pid > 0) {
		struct pollfd p[] = {
			{ .fd = s->signal_fd, .events = POLLIN },
			{ .fd = s->status_fd, .events = POLLIN },
			{ .fd = s->stderr_fd, .events = POLLIN },
		};
		int timeout = -1;

		if (s->stopping && s->kill_at) {
			timeout = (int)MAX(s->kill_at - clock_ms(), 0);
			if (timeout == 0) {
				log_warn("the server did not stop in time and is killed");
				kill(s->pid, SIGKILL);
				s->kill_at = 0;
				timeout = -1;
			}
		}
		if (poll(p, ARRAY_SIZE(p), timeout) < 0)
			continue;
		if (p[2].revents)
			relay_stderr(s);
		if (p[1].revents)
			handle_status(s);
		if (p[0].revents)
			handle_signal(s);
	}
}

/* What is left of an ended sandbox: last words, orphans, its cgroup. */
static void clean_up(struct supervisor *s)
{
	int64_t deadline = clock_ms() + ORPHAN_MS;

	close_fd(&s->lifeline_fd);
	/*
	 * bwrap ends after everything in its pid namespace, unless it was
	 * killed: then the kernel is still at it. Others' children that we were
	 * started with must not hold us up for long.
	 */
	if (WIFSIGNALED(s->exit_status))
		while (reap(s) && clock_ms() < deadline)
			usleep(5000);
	if (s->stderr_fd >= 0) {
		fcntl(s->stderr_fd, F_SETFL, O_NONBLOCK);
		while (poll(&(struct pollfd){ .fd = s->stderr_fd, .events = POLLIN }, 1, 0) > 0 &&
		       relay_stderr(s))
			;
	}
	close_fd(&s->status_fd);
	close_fd(&s->stderr_fd);
	cgroup_free(STEAL(s->cgroup));
}

/* bwrap's own last line, without the newline, or NULL. */
static char *bwrap_line(struct buf *early)
{
	char *found = NULL, *save = NULL;

	if (!early->len)
		return NULL;
	for (char *line = strtok_r(early->data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		if (strncmp(line, "bwrap: ", 7) == 0)
			found = line;
	return found ? strdup(found) : NULL;
}

static bool mentions(const char *line, const char *const *words)
{
	for (; *words; words++)
		if (strstr(line, *words))
			return true;
	return false;
}

static void report_refusal(const struct supervisor *s, const char *line)
{
	static const char *const path_words[] = { "source path", "mkdir", "Can't get type", NULL };
	static const char *const namespace_words[] = { "namespace",     "not permitted",
						       "uid map",       "Permission denied",
						       "No space left", "loopback",
						       "Can't mount",   NULL };

	if (mentions(line, path_words))
		log_error(
			"cannot build the sandbox (%s); user id %u must be able to reach that path",
			line, (unsigned)s->uid);
	else if (mentions(line, namespace_words))
		log_error(
			"cannot isolate the sandbox (%s). Bubblewrap needs user namespaces: check "
			"sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, "
			"kernel.apparmor_restrict_unprivileged_userns=0; in a container, allow "
			"unshare and mount in its seccomp and AppArmor profiles, or use "
			"--isolation none if the container is the wall",
			line);
	else
		log_error("cannot isolate the sandbox (%s); bubblewrap 0.8 or newer is needed",
			  line);
}

/* Whether it makes sense to try again without --disable-userns. */
static bool refuses_disable_userns(const char *line)
{
	static const char *const words[] = { "disable-userns", "max_user_namespaces",
					     "was not disabled", NULL };

	return mentions(line, words);
}

/* Why it ended. -EAGAIN = another attempt. */
static int verdict(struct supervisor *s)
{
	char *line CLEANUP_FREE = NULL;

	if (s->stopping)
		return 0;
	if (WIFEXITED(s->exit_status) && WEXITSTATUS(s->exit_status) == 0 && s->ready)
		return 0;
	if (s->ready) {
		if (WIFSIGNALED(s->exit_status))
			log_error("the sandbox was killed by signal %d", WTERMSIG(s->exit_status));
		else
			log_error("the sandbox ended unexpectedly with status %d",
				  WEXITSTATUS(s->exit_status));
		return -EIO;
	}
	line = bwrap_line(&s->early);
	if (!line) {
		/* bwrap_line cuts only at newlines; put them back for printing */
		for (size_t i = 0; i < s->early.len; i++)
			if (!s->early.data[i])
				s->early.data[i] = '\n';
		flush_early(s);
		log_error("the server in the sandbox did not start");
		return -EIO;
	}
	if (s->disable_userns && refuses_disable_userns(line)) {
		log_warn("commands can create user namespaces (%s)", line);
		s->disable_userns = false;
		return -EAGAIN;
	}
	report_refusal(s, line);
	return -EPERM;
}

static int prepare(struct supervisor *s)
{
	char link[64];
	sigset_t set;
	int r;

	r = find_bwrap(&s->bwrap);
	if (r < 0) {
		log_error("bubblewrap (bwrap) was not found in PATH; install it (apt install "
			  "bubblewrap), or use --isolation none where a container is the wall");
		return r;
	}
	r = choose_user(s);
	if (r < 0)
		return r;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", s->data_fd);
	s->data_path = realpath(link, NULL);
	if (!s->data_path)
		return -errno;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return -errno;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

int confine_run(const struct options *o, const char *server, int data_fd, int listen_fd,
		void (*ready)(void *ctx), void *ctx)
{
	struct supervisor s = {
		.o = o,
		.server = server,
		.data_fd = data_fd,
		.listen_fd = listen_fd,
		.signal_fd = -1,
		.disable_userns = true,
		.pid = -1,
		.lifeline_fd = -1,
		.status_fd = -1,
		.stderr_fd = -1,
		.early = BUF_INIT(EARLY_STDERR_MAX),
		.on_ready = ready,
		.ctx = ctx,
	};
	int r;

	r = prepare(&s);
	while (r == 0) {
		r = start(&s);
		if (r < 0) {
			log_error("cannot start the sandbox: %s", strerrordesc_np(-r));
			break;
		}
		watch(&s);
		clean_up(&s);
		r = verdict(&s);
		buf_reset(&s.early);
		if (r != -EAGAIN)
			break;
		r = 0;
	}
	buf_release(&s.early);
	close_fd(&s.signal_fd);
	free(s.bwrap);
	free(s.data_path);
	return r;
}

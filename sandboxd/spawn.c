/*
 * See spawn.h. Knows nothing of sessions or requests. Between fork and exec
 * only async-signal-safe functions run; everything that allocates happens
 * before. Loop thread.
 */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "crowd.h"

enum {
	EXTRA_FD = 62,          /* extra_fds become this one and the next */
	FREE_FD = EXTRA_FD + 2, /* the child's own fds are kept from here on */
	ENV_FIXED = 8,          /* variables set by us at most */
};

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* ---- environment ---- */

/* Room for all is allocated beforehand. */
struct env {
	char **v;
	size_t n;
};

static bool same_name(const char *var, const char *name, size_t len)
{
	return !strncmp(var, name, len) && var[len] == '=';
}

/* Adds name=value, in place of an earlier one of that name. */
static int env_set(struct env *e, const char *name, const char *value)
{
	size_t len = strlen(name), i;
	char *var;

	if (asprintf(&var, "%s=%s", name, value) < 0)
		return -ENOMEM;
	for (i = 0; i < e->n; i++)
		if (same_name(e->v[i], name, len))
			break;
	if (i < e->n)
		free(e->v[i]);
	else
		e->n++;
	e->v[i] = var;
	return 0;
}

/* Secrets of the server and what only makes sense for the server itself. */
static bool is_private(const char *var)
{
	static const char *const names[] = {
		"SANDBOX_API_KEY",
		"AIO_API_KEY",
		"AUTH_TOKEN",
		"NOTIFY_SOCKET",
	};

	if (!strncmp(var, "THREADFS_", strlen("THREADFS_")) || !strchr(var, '='))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (same_name(var, names[i], strlen(names[i])))
			return true;
	return false;
}

static int env_inherit(struct env *e)
{
	for (char **var = environ; *var; var++) {
		if (is_private(*var))
			continue;
		e->v[e->n] = strdup(*var);
		if (!e->v[e->n])
			return -ENOMEM;
		e->n++;
	}
	return 0;
}

static int env_fill(struct env *e, const struct config *cfg, bool tty)
{
	const char *path = NULL, *lang = NULL, *tz = getenv("TZ");
	int r = 0;

	/* In a container the image's own variables belong to its programs. */
	if (cfg->isolation == ISOLATION_NONE) {
		r = env_inherit(e);
		path = getenv("PATH");
		lang = getenv("LANG");
	}
	r = r ?: env_set(e, "PATH", path ?: default_path);
	r = r ?: env_set(e, "HOME", cfg->home);
	r = r ?: env_set(e, "USER", SANDBOX_USER);
	r = r ?: env_set(e, "LOGNAME", SANDBOX_USER);
	r = r ?: env_set(e, "LANG", lang ?: "C.UTF-8");
	r = r ?: env_set(e, "SHELL", "/bin/bash");
	r = r ?: env_set(e, "TERM", tty ? "xterm-256color" : "dumb");
	if (tz)
		r = r ?: env_set(e, "TZ", tz);
	return r;
}

static char **env_new(const struct server *srv, const char *const *names, const char *const *values,
		      size_t n, bool tty)
{
	size_t room = ENV_FIXED + n + 1;
	struct env e = { 0 };
	int r;

	if (srv->cfg->isolation == ISOLATION_NONE)
		for (char **var = environ; *var; var++)
			room++;
	e.v = calloc(room, sizeof(*e.v));
	if (!e.v)
		return NULL;
	r = env_fill(&e, srv->cfg, tty);
	for (size_t i = 0; i < n; i++)
		r = r ?: env_set(&e, names[i], values[i]);
	if (r < 0) {
		spawn_env_free(e.v);
		return NULL;
	}
	return e.v;
}

char **spawn_env(const struct server *srv, const char *const *names, const char *const *values,
		 size_t n)
{
	return env_new(srv, names, values, n, false);
}

void spawn_env_free(char **env)
{
	if (!env)
		return;
	for (char **var = env; *var; var++)
		free(*var);
	free(env);
}

/* ---- in the child ---- */

static void reset_signals(void)
{
	struct sigaction sa = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &sa, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void limit(__rlimit_resource_t what, uint64_t value)
{
	struct rlimit rl = { .rlim_cur = value, .rlim_max = value };

	/* Fails where the limit is lower already, which is fine. */
	if (value)
		setrlimit(what, &rl);
}

static void set_limits(const struct config *cfg)
{
	struct rlimit no_core = { 0, 0 };

	limit(RLIMIT_NOFILE, cfg->max_open_files);
	limit(RLIMIT_FSIZE, cfg->max_file_size);
	limit(RLIMIT_DATA, cfg->max_memory);
	/* Counted per user namespace; outside of ours it would count the
	 * user's processes elsewhere. */
	if (cfg->own_pidns && cfg->isolation == ISOLATION_BWRAP)
		limit(RLIMIT_NPROC, cfg->max_processes);
	setrlimit(RLIMIT_CORE, &no_core);
}

/*
 * When memory runs out commands have to go before the server that runs them.
 * Has no effect where /proc is read-only, as it is behind our own walls.
 */
static void go_first(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return;
	n = write(fd, "1000", strlen("1000"));
	(void)n;
	close(fd);
}

/* Out of the way of the fds that are about to be placed. */
static int lift(int fd)
{
	return fd >= 0 && fd < FREE_FD ? fcntl(fd, F_DUPFD_CLOEXEC, FREE_FD) : fd;
}

static int place_fds(const struct spawn *s, int *error_fd)
{
	const int wanted[] = { s->stdin_fd, s->stdout_fd, s->stderr_fd, s->extra_fds[0],
			       s->extra_fds[1] };
	const int place[] = { 0, 1, 2, EXTRA_FD, EXTRA_FD + 1 };
	int fds[ARRAY_SIZE(wanted)];
	int fd = lift(*error_fd);

	if (fd < 0)
		return -errno;
	*error_fd = fd;
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		fds[i] = lift(wanted[i]);
		if (fds[i] < 0 && wanted[i] >= 0)
			return -errno;
	}
	/* Ours are close-on-exec anyway; this catches what a library opened. */
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (fds[i] >= 0 && dup2(fds[i], place[i]) < 0)
			return -errno;
	return 0;
}

/* Returns the positive errno of what failed; on success it does not return. */
static int child_exec(const struct config *cfg, const struct spawn *s, int *error_fd)
{
	int r;

	reset_signals();
	if (s->tty ? setsid() < 0 : setpgid(0, 0) < 0)
		return errno;
	r = place_fds(s, error_fd);
	if (r < 0)
		return -r;
	if (s->tty && ioctl(0, TIOCSCTTY, 0) < 0)
		return errno;
	if (s->cwd && chdir(s->cwd) < 0)
		return errno;
	go_first();
	set_limits(cfg);
	execve(s->argv[0], (char *const *)s->argv, (char *const *)s->env);
	return errno;
}

static _Noreturn void child_main(const struct config *cfg, const struct spawn *s, int error_fd)
{
	int err = child_exec(cfg, s, &error_fd);
	ssize_t n = write(error_fd, &err, sizeof(err));

	(void)n;
	_exit(127);
}

/* ---- in the server ---- */

/* Waits for the child to exec (EOF) or fail (its errno). */
static int exec_result(int fd)
{
	int err = 0;
	ssize_t n;

	do
		n = read(fd, &err, sizeof(err));
	while (n < 0 && errno == EINTR);
	return n == sizeof(err) ? -err : 0;
}

static pid_t spawn_with_env(const struct server *srv, const struct spawn *s)
{
	int report CLEANUP_FD = -1, error_fd = -1;
	sigset_t all, old;
	int pipe_fds[2];
	pid_t pid;
	int r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	report = pipe_fds[0];
	error_fd = pipe_fds[1];

	/* The server's handlers must not run in the child. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (pid == 0)
		child_main(srv->cfg, s, error_fd);
	r = -errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	close(error_fd);
	if (pid < 0) {
		crowd_watch(srv, r != -EAGAIN);
		return r;
	}

	r = exec_result(report);
	if (r < 0) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return r;
	}
	crowd_watch(srv, true);
	return pid;
}

pid_t spawn(const struct server *srv, const struct spawn *s)
{
	struct spawn with_env = *s;
	char **env;
	pid_t pid;

	if (s->env)
		return spawn_with_env(srv, s);
	env = env_new(srv, NULL, NULL, 0, s->tty);
	if (!env)
		return -ENOMEM;
	with_env.env = (const char *const *)env;
	pid = spawn_with_env(srv, &with_env);
	spawn_env_free(env);
	return pid;
}

void spawn_kill(pid_t group, int sig)
{
	/* -1 would be everybody, 0 and -0 our own group. */
	if (group > 1)
		kill(-group, sig);
}

/* See daemon.h. */
#include "daemon.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "../load/http.h"
#include "clock.h"
#include "io.h"
#include "scratch.h"

enum {
	READY_MS = 20000,
	STOP_MS = 20000,
	KILL_MS = 5000,
	MAX_ARGS = 64,
	MAX_LOG = 16 * 1024 * 1024,
};

struct daemon {
	char dir[SCRATCH_MAX];
	char *program, *socket, *url, *data, *key_file;
	char *listen; /* host and port */
	const char *args[MAX_ARGS];
	size_t args_len;
	pid_t pid;   /* 0: ended */
	int status;  /* as waitpid() says */
	bool killed; /* on order */
};

static char *must(char *p)
{
	if (!p)
		abort();
	return p;
}

PRINTF_LIKE(1, 2) static char *format(const char *fmt, ...)
{
	struct buf b = BUF_INIT(0);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	return must(b.data);
}

static char *read_file(const char *path)
{
	struct buf b = BUF_INIT(MAX_LOG);
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	char piece[4096];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0)
		buf_append(&b, piece, (size_t)n);
	buf_append(&b, "", 0);
	return must(b.data);
}

char *daemon_log(const struct daemon *d)
{
	char *path CLEANUP_FREE = format("%s/log", d->dir);

	return read_file(path);
}

static void show_log(const struct daemon *d, const char *why)
{
	char *log CLEANUP_FREE = daemon_log(d);

	fprintf(stderr, "%s %s; its log:\n%s", d->program, why, log);
}

/* ---- starting ---- */

static char *program_path(void)
{
	const char *given = getenv("SANDBOXD");
	char self[4096];
	ssize_t n;

	if (given && *given)
		return must(strdup(given));
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[MAX(n, 0)] = '\0';
	*must(strrchr(self, '/')) = '\0';
	return format("%s/../threadfs-sandboxd", self);
}

static void add_arg(struct daemon *d, const char *name, const char *value)
{
	if (d->args_len + 3 > MAX_ARGS)
		abort();
	d->args[d->args_len++] = name;
	if (value)
		d->args[d->args_len++] = value;
}

static int write_key(struct daemon *d, const char *key)
{
	int fd CLEANUP_FD = -1;

	d->key_file = format("%s/key", d->dir);
	fd = open(d->key_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	add_arg(d, "--api-key-file", d->key_file);
	return write_all(fd, key, strlen(key));
}

static int prepare(struct daemon *d, const struct daemon_options *o)
{
	if (!scratch_dir(d->dir))
		return -errno;
	d->program = program_path();
	d->data = format("%s/data", d->dir);
	if (mkdir(d->data, 0755) < 0)
		return -errno;
	add_arg(d, d->program, NULL);
	add_arg(d, "--data", d->data);
	if (!o->tcp) {
		d->socket = format("%s/sock", d->dir);
		d->url = must(strdup("http://localhost"));
		add_arg(d, "--socket", d->socket);
	}
	if (o->dialect)
		add_arg(d, "--dialect", o->dialect);
	if (o->isolation)
		add_arg(d, "--isolation", o->isolation);
	for (const char *const *arg = o->args; arg && *arg; arg++)
		add_arg(d, *arg, NULL);
	return o->api_key ? write_key(d, o->api_key) : 0;
}

/* In the child: only what is safe after a fork among threads. */
static void become(const struct daemon *d, const char *const *args, int out, int log, int ready,
		   pid_t parent)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* SIGTERM, because it takes the sandbox's commands along whatever the isolation. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(out, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0 ||
	    fcntl(ready, F_SETFD, 0) < 0)
		_exit(126);
	execv(d->program, (char *const *)args);
	dprintf(STDERR_FILENO, "cannot run it: %m\n");
	_exit(127);
}

static bool wait_ready(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t deadline = clock_ms() + READY_MS, left;
	char word[8];

	while ((left = deadline - clock_ms()) > 0) {
		if (poll(&p, 1, (int)left) > 0)
			return read(fd, word, sizeof(word)) == sizeof(word) &&
			       !memcmp(word, "READY=1\n", sizeof(word));
	}
	return false;
}

/* "threadfs-sandboxd: ready on http://127.0.0.1:PORT (…" */
static bool learn_port(struct daemon *d)
{
	char *path CLEANUP_FREE = format("%s/out", d->dir);
	char *out CLEANUP_FREE = read_file(path);
	const char *url = strstr(out, "http://");

	if (d->url)
		return true;
	if (!url)
		return false;
	d->url = must(strndup(url, strcspn(url, " \n")));
	d->listen = must(strdup(d->url + strlen("http://")));
	return true;
}

static int open_output(const struct daemon *d, const char *name, int flags)
{
	char *path CLEANUP_FREE = format("%s/%s", d->dir, name);

	return open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
}

/* Returns whether it runs and is ready; if not it is ended and its log was shown. */
static bool launch(struct daemon *d)
{
	int out CLEANUP_FD = open_output(d, "out", O_TRUNC);
	int log CLEANUP_FD = open_output(d, "log", O_APPEND);
	const char *args[MAX_ARGS + 5];
	int ready CLEANUP_FD = -1;
	char number[16];
	pid_t parent = getpid();
	size_t n = d->args_len;
	int ends[2];

	if (out < 0 || log < 0 || pipe2(ends, O_CLOEXEC) < 0)
		abort();
	ready = ends[0];
	snprintf(number, sizeof(number), "%d", ends[1]);
	memcpy(args, d->args, n * sizeof(*args));
	args[n++] = "--ready-fd";
	args[n++] = number;
	if (!d->socket) {
		args[n++] = "--listen";
		args[n++] = d->listen ? d->listen : "127.0.0.1:0";
	}
	args[n] = NULL;
	d->killed = false;
	d->pid = fork();
	if (d->pid == 0)
		become(d, args, out, log, ends[1], parent);
	close(ends[1]);
	if (d->pid > 0 && wait_ready(ready) && learn_port(d))
		return true;
	show_log(d, "did not start");
	if (d->pid > 0)
		daemon_kill(d, SIGKILL);
	d->pid = 0;
	return false;
}

struct daemon *daemon_start(const struct daemon_options *options)
{
	static const struct daemon_options defaults = { 0 };
	struct daemon *d = calloc(1, sizeof(*d));

	if (!d)
		abort();
	if (prepare(d, options ? options : &defaults) < 0)
		abort();
	if (launch(d))
		return d;
	(void)!daemon_stop(d);
	return NULL;
}

bool daemon_restart(struct daemon *d)
{
	return !d->pid && launch(d);
}

/* ---- ending ---- */

/* Returns whether it ended in time. */
static bool wait_end(struct daemon *d, int timeout_ms)
{
	int64_t deadline = clock_ms() + timeout_ms;

	while (d->pid) {
		pid_t pid = waitpid(d->pid, &d->status, WNOHANG);

		if (pid == d->pid || (pid < 0 && errno != EINTR))
			d->pid = 0;
		else if (clock_ms() >= deadline)
			return false;
		else
			poll(NULL, 0, 5);
	}
	return true;
}

static bool set_address(struct address *a, const char *where)
{
	if (where[0] == '/')
		return address_set_unix(a, where) == 0;
	return !strncmp(where, "http://", 7) && address_set_loopback(a, where + 7) == 0;
}

/* The server inside the walls may outlive the one that was killed by a moment. */
static void wait_deaf(const struct daemon *d)
{
	int64_t deadline = clock_ms() + STOP_MS;
	struct pollfd p = { .events = POLLOUT };
	struct address a;

	if (!d->url || !set_address(&a, d->socket ? d->socket : d->url))
		return;
	for (bool deaf = false; !deaf && clock_ms() < deadline;) {
		p.fd = address_connect(&a);
		deaf = p.fd < 0 || (poll(&p, 1, 1000) > 0 && p.revents & (POLLERR | POLLHUP));
		if (p.fd >= 0)
			close(p.fd);
		if (!deaf)
			poll(NULL, 0, 5);
	}
}

/* Appends the process's children and theirs, parents first. */
static void collect(pid_t pid, pid_t *pids, size_t *n, size_t max)
{
	char *path CLEANUP_FREE = format("/proc/%d/task/%d/children", (int)pid, (int)pid);
	char *text CLEANUP_FREE = read_file(path), *at = text, *end;
	long child;

	while ((child = strtol(at, &end, 10)) > 0 && end != at && *n < max) {
		at = end;
		pids[(*n)++] = (pid_t)child;
		collect((pid_t)child, pids, n, max);
	}
}

/*
 * As if the power failed: killed alone, the outer process would leave the inner
 * one the time to end its commands and to answer those who wait for them.
 */
static void kill_at_once(struct daemon *d)
{
	pid_t pids[256];
	size_t n = 0;

	kill(d->pid, SIGSTOP);
	collect(d->pid, pids, &n, ARRAY_SIZE(pids));
	for (size_t i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	kill(d->pid, SIGKILL);
}

void daemon_kill(struct daemon *d, int sig)
{
	if (!d->pid)
		return;
	d->killed = true;
	if (sig == SIGKILL)
		kill_at_once(d);
	else
		kill(d->pid, sig);
	if (!wait_end(d, STOP_MS)) {
		kill(d->pid, SIGKILL);
		wait_end(d, KILL_MS);
	}
	wait_deaf(d);
}

/* With fts, as it changes directories: paths may be longer than any system call takes. */
static void remove_all(char *dir)
{
	FTS *tree = fts_open((char *[]){ dir, NULL }, FTS_PHYSICAL | FTS_XDEV, NULL);
	FTSENT *e;

	while (tree && (e = fts_read(tree))) {
		if (e->fts_info == FTS_D)
			chmod(e->fts_accpath, 0700);
		else
			remove(e->fts_accpath);
	}
	if (tree)
		fts_close(tree);
}

static void remove_tree(char *dir)
{
	for (int round = 0; round < 100 && access(dir, F_OK) == 0; round++)
		remove_all(dir);
}

static int judge(const struct daemon *d)
{
	static const char *const words[] = { "Sanitizer", "runtime error:", "ssertion " };
	char *log CLEANUP_FREE = daemon_log(d);

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strstr(log, words[i]))
			return 255;
	if (d->killed)
		return 0;
	return WIFSIGNALED(d->status) ? 128 + WTERMSIG(d->status) : WEXITSTATUS(d->status);
}

int daemon_stop(struct daemon *d)
{
	int verdict;

	if (!d)
		return 0;
	if (d->pid) {
		kill(d->pid, SIGTERM);
		if (!wait_end(d, STOP_MS)) {
			kill(d->pid, SIGKILL);
			wait_end(d, KILL_MS);
		}
	}
	verdict = judge(d);
	if (verdict)
		show_log(d, "did not end cleanly");
	remove_tree(d->dir);
	free(d->program);
	free(d->socket);
	free(d->url);
	free(d->data);
	free(d->key_file);
	free(d->listen);
	free(d);
	return verdict;
}

/* ---- what it is ---- */

const char *daemon_url(const struct daemon *d)
{
	return d->url;
}

const char *daemon_socket(const struct daemon *d)
{
	return d->socket;
}

const char *daemon_data(const struct daemon *d)
{
	return d->data;
}

pid_t daemon_pid(const struct daemon *d)
{
	return d->pid;
}

/* ---- about ourselves ---- */

/* Calls see() with each open descriptor but the one that lists them; returns how many it liked. */
static unsigned count_fds_that(bool (*see)(int fd, const void *arg), const void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;
	unsigned n = 0;

	if (!dir)
		abort();
	while ((e = readdir(dir))) {
		int fd = (int)strtol(e->d_name, NULL, 10);

		if (e->d_name[0] != '.' && fd != dirfd(dir))
			n += see(fd, arg);
	}
	closedir(dir);
	return n;
}

static bool any_fd(int fd UNUSED, const void *arg UNUSED)
{
	return true;
}

unsigned count_fds(void)
{
	return count_fds_that(any_fd, NULL);
}

static bool is_connected_to(int fd, const void *arg)
{
	const struct address *want = arg;
	struct sockaddr_storage peer = { 0 };
	socklen_t len = sizeof(peer);

	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0 ||
	    peer.ss_family != want->sa.ss_family)
		return false;
	if (peer.ss_family == AF_UNIX)
		return !strcmp(((const struct sockaddr_un *)&peer)->sun_path,
			       ((const struct sockaddr_un *)&want->sa)->sun_path);
	return !memcmp(&peer, &want->sa, want->len);
}

unsigned count_sockets_to(const char *address)
{
	struct address want;

	if (!set_address(&want, address))
		abort();
	return count_fds_that(is_connected_to, &want);
}

size_t rss_kib(void)
{
	char *statm CLEANUP_FREE = read_file("/proc/self/statm");
	const char *resident = strchr(statm, ' ');

	return resident ? strtoul(resident, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) / 1024 : 0;
}

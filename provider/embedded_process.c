/*
 * See embedded_process.h. Knows processes, pidfds and /proc; nothing of
 * sandboxes.
 */
#include "embedded_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "environment.h"

/* By number: older C libraries have no functions for them. */
static int open_pidfd(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

void process_signal(const struct process *p, int sig)
{
	(void)syscall(SYS_pidfd_send_signal, p->pidfd, sig, NULL, 0);
}

int process_open(pid_t pid, struct process *ret)
{
	int fd = open_pidfd(pid);

	if (fd < 0)
		return fd;
	*ret = PROCESS_INIT;
	ret->pid = pid;
	ret->pidfd = fd;
	return 0;
}

void process_release(struct process *p)
{
	if (p->pidfd >= 0)
		close(p->pidfd);
	*p = PROCESS_INIT;
}

/* ---- its end ---- */

/*
 * If it was our child: takes its processes along that stayed in its group, while
 * its number cannot be anybody else's yet, then lets it go.
 */
static int reap(const struct process *p)
{
	siginfo_t si = { 0 };

	if (waitid(P_PIDFD, (id_t)p->pidfd, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
		return -1;
	/* 0 and -1 would mean other groups than its own. */
	if (p->pid > 1 && si.si_pid == p->pid)
		kill(-p->pid, SIGKILL);
	if (waitid(P_PIDFD, (id_t)p->pidfd, &si, WEXITED | WNOHANG) < 0 || si.si_pid == 0)
		return -1;
	return si.si_code == CLD_EXITED ? W_EXITCODE(si.si_status, 0) : W_EXITCODE(0, si.si_status);
}

static void on_end(struct ev_loop *ev, ev_io *io, int revents UNUSED)
{
	struct process *p = CONTAINER_OF(io, struct process, io);

	ev_io_stop(ev, io);
	p->status = reap(p);
	p->ended(p);
}

void process_watch(struct process *p, struct ev_loop *ev, void (*ended)(struct process *p))
{
	p->ended = ended;
	ev_io_init(&p->io, on_end, p->pidfd, EV_READ);
	ev_io_start(ev, &p->io);
}

void process_unwatch(struct process *p, struct ev_loop *ev)
{
	ev_io_stop(ev, &p->io);
}

/* ---- starting ---- */

static int set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGKILL);
	sigdelset(&all, SIGSTOP);
	r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						   POSIX_SPAWN_SETSIGDEF);
	if (r == 0)
		r = posix_spawnattr_setsigmask(attr, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attr, &all);
	return -r;
}

static int set_actions(posix_spawn_file_actions_t *actions, const struct process_plan *plan)
{
	int r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, plan->log_fd, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, plan->log_fd, STDERR_FILENO);
	/* To itself: only takes close-on-exec away. */
	for (size_t i = 0; i < ARRAY_SIZE(plan->keep) && r == 0; i++)
		r = posix_spawn_file_actions_adddup2(actions, plan->keep[i], plan->keep[i]);
	/* It must not keep a mount busy that we were started in. */
	if (r == 0)
		r = posix_spawn_file_actions_addchdir_np(actions, "/");
	return -r;
}

static int spawn(const struct process_plan *plan, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char *env[ENVIRONMENT_MAX];
	int r;

	environment_choose(env);
	r = -posix_spawnattr_init(&attr);
	if (r < 0)
		return r;
	r = -posix_spawn_file_actions_init(&actions);
	if (r == 0) {
		r = set_attributes(&attr);
		if (r == 0)
			r = set_actions(&actions, plan);
		if (r == 0)
			r = -posix_spawn(ret, plan->program, &actions, &attr, plan->argv, env);
		posix_spawn_file_actions_destroy(&actions);
	}
	posix_spawnattr_destroy(&attr);
	return r;
}

int process_spawn(const struct process_plan *plan, struct process *ret)
{
	pid_t pid;
	int r;

	r = spawn(plan, &pid);
	if (r != 0)
		return r;
	r = process_open(pid, ret);
	if (r < 0) {
		/* Nobody could ever hear of its end. */
		kill(pid, SIGKILL);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	return r;
}

/* ---- who holds a lock ---- */

/* Whether a descriptor of that process has an exclusive lock. */
static bool has_lock(int proc_fd, const char *fd_name)
{
	char name[64], line[256];
	bool found = false;
	int fd;
	FILE *f;

	snprintf(name, sizeof(name), "fdinfo/%.32s", fd_name);
	fd = openat(proc_fd, name, O_RDONLY | O_CLOEXEC);
	f = fd < 0 ? NULL : fdopen(fd, "re");
	if (!f) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && fgets(line, sizeof(line), f))
		found = strncmp(line, "lock:", 5) == 0 && strstr(line, "FLOCK") &&
			strstr(line, " WRITE ");
	fclose(f);
	return found;
}

static bool holds(int proc_fd, const struct stat *file)
{
	int fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	bool found = false;
	struct stat st;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && (e = readdir(dir)))
		found = e->d_name[0] != '.' && fstatat(fd, e->d_name, &st, 0) == 0 &&
			st.st_dev == file->st_dev && st.st_ino == file->st_ino &&
			has_lock(proc_fd, e->d_name);
	closedir(dir);
	return found;
}

/* The descriptor is opened before the look, so that it can mean nobody else. */
static int check_holder(pid_t pid, const struct stat *file, struct process *ret)
{
	struct process p = PROCESS_INIT;
	int proc_fd CLEANUP_FD = -1;
	struct stat owner;
	char name[32];
	int r;

	if (pid == getpid())
		return -ESRCH;
	r = process_open(pid, &p);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "/proc/%d", (int)pid);
	proc_fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc_fd < 0 || fstat(proc_fd, &owner) < 0 || owner.st_uid != geteuid() ||
	    !holds(proc_fd, file)) {
		process_release(&p);
		return -ESRCH;
	}
	*ret = p;
	return 0;
}

int process_find_holder(const struct stat *file, pid_t hint, struct process *ret)
{
	const struct dirent *e;
	int r = -ESRCH;
	DIR *dir;

	if (hint > 0 && check_holder(hint, file, ret) == 0)
		return 0;
	dir = opendir("/proc");
	if (!dir)
		return -errno;
	while (r < 0 && (e = readdir(dir))) {
		char *end;
		long pid = strtol(e->d_name, &end, 10);

		if (pid > 1 && *end == '\0')
			r = check_holder((pid_t)pid, file, ret);
	}
	closedir(dir);
	return r < 0 ? -ESRCH : 0;
}

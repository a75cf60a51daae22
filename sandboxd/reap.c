/*
 * See reap.h. In a pid namespace of our own everything but us is ours. Else
 * we are a subreaper: orphans become our children, so killing our children
 * until none is left gets them all. Must not know sessions.
 */
#include "reap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "clock.h"

void reap_init(const struct config *cfg)
{
	if (!cfg->own_pidns)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Parent of a process, from /proc/PID/stat, or -1. */
static pid_t parent_of(int proc_fd, const char *name)
{
	char path[64], stat[512], *p;
	int fd, ppid = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/stat", name);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	stat[n] = '\0';
	p = stat;
	for (char *q = stat; *q; q++) /* the name in parentheses may hold any byte */
		if (*q == ')')
			p = q;
	return sscanf(p, ") %*c %d", &ppid) == 1 ? ppid : -1;
}

static void kill_children(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	pid_t self = getpid();

	if (!dir)
		return;
	while ((e = readdir(dir))) {
		long pid = strtol(e->d_name, NULL, 10);

		if (pid > 1 && parent_of(dirfd(dir), e->d_name) == self)
			kill((pid_t)pid, SIGKILL);
	}
	closedir(dir);
}

void reap_all(const struct config *cfg)
{
	const struct timespec pause = { .tv_nsec = 2000000 };
	int64_t deadline = clock_ms() + 500;

	for (;;) {
		pid_t pid;

		if (cfg->own_pidns)
			kill(-1, SIGKILL);
		else
			kill_children();
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if ((pid < 0 && errno == ECHILD) || clock_ms() >= deadline)
			return;
		nanosleep(&pause, NULL);
	}
}

/*
 * See reap.h. In a pid namespace of our own everything but us is ours. Else
 * we are a subreaper: orphans become our children, so killing our children
 * until none is left gets them all. Must not know sessions.
 */
#include "reap.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "clock.h"
#include "proc.h"

void reap_init(const struct config *cfg)
{
	if (!cfg->own_pidns)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
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
		struct proc_stat st;

		if (pid > 1 && proc_stat(dirfd(dir), e->d_name, &st) && st.parent == self)
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

/* See caller.h. Any thread. */
#include "caller.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "io.h"

#define BIT(number) (UINT64_C(1) << ((number)-1))

/* A line of /proc/PID/status that holds a set of signals. */
static bool find_set(const char *status, const char *name, uint64_t *ret)
{
	const char *at = strstr(status, name);

	return at && sscanf(at + strlen(name), "%" SCNx64, ret) == 1;
}

static bool ends_waiting(const char *status)
{
	const uint64_t asks = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGHUP) | BIT(SIGQUIT);
	const uint64_t harmless = BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) |
				  BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU);
	uint64_t own, shared, blocked, ignored, caught, pending;

	if (!find_set(status, "\nSigPnd:", &own) || !find_set(status, "\nShdPnd:", &shared) ||
	    !find_set(status, "\nSigBlk:", &blocked) || !find_set(status, "\nSigIgn:", &ignored) ||
	    !find_set(status, "\nSigCgt:", &caught))
		return true;
	pending = (own | shared) & ~blocked & ~ignored;
	return pending & ((caught & asks) | (~caught & ~harmless));
}

bool caller_wants_out(pid_t tid)
{
	char path[32], status[32 * 1024]; /* somebody may be in hundreds of groups */
	int fd CLEANUP_FD = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : pread_all(fd, status, sizeof(status) - 1, 0);
	if (n <= 0)
		return true;
	status[n] = '\0';
	return ends_waiting(status);
}

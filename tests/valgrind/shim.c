/*
 * For programs under valgrind, by LD_PRELOAD: what Debian's valgrind cannot do for
 * them. It does not know pidfds: they are asked of pidfds.py, on the socket
 * $PIDFD_SOCKET. /proc/self/exe is valgrind itself, and close_range in a child that
 * is being spawned ends it if the hint fuse-compatible is given.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* The one that this library hides. */
#define HIDDEN(function) ((__typeof__(&(function)))(uintptr_t)dlsym(RTLD_NEXT, #function))

/* ---- pidfds ---- */

/* A descriptor, or a negative errno. */
static int receive_fd(int s)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	int error = EIO, fd = -1;
	struct iovec iov = { .iov_base = &error, .iov_len = sizeof(error) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	const struct cmsghdr *h;

	if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(error))
		return -EIO;
	h = CMSG_FIRSTHDR(&m);
	if (error == 0 && h)
		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	return fd >= 0 ? fd : -error;
}

static int open_pidfd(int pid)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const char *path = getenv("PIDFD_SOCKET");
	int s, r = -ENOSYS;

	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -errno;
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path ? path : "");
	if (connect(s, (struct sockaddr *)&to, sizeof(to)) == 0 &&
	    send(s, &pid, sizeof(pid), MSG_NOSIGNAL) == (ssize_t)sizeof(pid))
		r = receive_fd(s);
	close(s);
	return r;
}

static int signal_pidfd(int fd, int sig)
{
	char name[64], line[128];
	int pid = 0;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	f = fopen(name, "re");
	if (!f)
		return -EBADF;
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, "Pid:", 4) == 0)
			pid = atoi(line + 4);
	fclose(f);
	if (pid <= 0) /* it is gone */
		return -ESRCH;
	return kill(pid, sig) < 0 ? -errno : 0;
}

long syscall(long number, ...)
{
	long args[6], r;
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_pidfd_open)
		r = open_pidfd((int)args[0]);
	else if (number == SYS_pidfd_send_signal)
		r = signal_pidfd((int)args[0], (int)args[1]);
	else
		return HIDDEN(syscall)(number, args[0], args[1], args[2], args[3], args[4],
				       args[5]);
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

/* ---- /proc/self/exe ---- */

static const char *past_valgrind(const char *path)
{
	return strcmp(path, "/proc/self/exe") == 0 ? (const char *)(uintptr_t)getauxval(AT_EXECFN)
						   : path;
}

char *realpath(const char *restrict path, char *restrict ret)
{
	return HIDDEN(realpath)(past_valgrind(path), ret);
}

int execv(const char *path, char *const argv[])
{
	return HIDDEN(execv)(past_valgrind(path), argv);
}

int posix_spawn(pid_t *restrict ret, const char *restrict path,
		const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attr,
		char *const argv[restrict], char *const env[restrict])
{
	return HIDDEN(posix_spawn)(ret, past_valgrind(path), actions, attr, argv, env);
}

/* ---- close_range ---- */

int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from)
{
	(void)actions;
	(void)from;
	return 0;
}

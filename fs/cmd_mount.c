/*
 * threadfs mount: checks, detaches, and stays until it is told to end. The main
 * thread only waits; everything happens on the loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cmd.h"
#include "io.h"
#include "log.h"
#include "mount.h"
#include "mounts.h"
#include "privilege.h"
#include "systemd.h"

/* ---- before ---- */

static int check_mountpoint(const struct options *o, struct buf *why)
{
	struct stat st;

	if (stat(o->mountpoint, &st) < 0) {
		int r = -errno;

		buf_printf(why, "the mountpoint %s: %s", o->mountpoint, strerrordesc_np(-r));
		return r;
	}
	if (!S_ISDIR(st.st_mode)) {
		buf_printf(why, "the mountpoint %s is not a directory", o->mountpoint);
		return -ENOTDIR;
	}
	if (mounts_is_ours(o->mountpoint)) {
		mount_say_busy(o->mountpoint, why);
		return -EBUSY;
	}
	return 0;
}

static int fail(struct buf *why, int r)
{
	fprintf(stderr, "threadfs: %s\n", why->len ? why->data : strerrordesc_np(-r));
	return 1;
}

/* ---- detaching: before any thread is started ---- */

/* The parent's end: waits for the word of the child. */
static int wait_for(int fd, pid_t pid)
{
	struct buf said CLEANUP_BUF = BUF_INIT(64 * KIB);
	char piece[512];
	ssize_t n;

	while ((n = read(fd, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0)
			buf_append(&said, piece, (size_t)n);
	}
	if (said.len == 1 && said.data[0] == '\n')
		return 0;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	fprintf(stderr, "threadfs: %s\n", said.len ? said.data : "the daemon died at its start");
	return 1;
}

/* A link of theirs would have us write to a file of ours. Root's is /dev/stderr, for one. */
static bool is_their_link(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != geteuid() &&
	       st.st_uid != 0;
}

static int open_log(const struct options *o, struct buf *why)
{
	const char *path = o->log ?: "/dev/null";
	const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int fd = open(path, flags | O_NOFOLLOW, 0600);
	struct stat st;
	int r;

	if (fd < 0 && errno == ELOOP && !is_their_link(path))
		fd = open(path, flags, 0600);
	r = fd < 0 ? -errno : 0;

	/* One that somebody has laid ready in /tmp is theirs to read, and to replace. */
	if (r == 0 && fstat(fd, &st) == 0 && !S_ISCHR(st.st_mode) &&
	    (!S_ISREG(st.st_mode) || st.st_uid != geteuid()))
		r = -EPERM;
	if (r < 0) {
		buf_printf(why, "cannot open the log %s: %s", o->log,
			   r == -EPERM && fd >= 0               ? "it is not a file of yours"
			   : r == -ELOOP && is_their_link(path) ? "it is not a link of yours"
								: strerrordesc_np(-r));
		cleanup_fd_(&fd);
	}
	return r < 0 ? r : fd;
}

static void take_stdio(int log_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		close(null);
	}
	dup2(log_fd, STDERR_FILENO);
}

/* ---- staying ---- */

static int stay(struct mount *m, int signals)
{
	int mounts CLEANUP_FD = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	struct pollfd fds[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = mount_fd(m), .events = POLLIN },
		{ .fd = mounts, .events = POLLPRI },
	};
	bool leaving = false;

	for (;;) {
		if (poll(fds, ARRAY_SIZE(fds), leaving ? 1000 : -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents)
			break; /* unmounted */
		if ((leaving || fds[2].revents) && mount_is_stuck(m, &leaving))
			break;
		if (fds[0].revents & POLLIN) {
			struct signalfd_siginfo si;

			if (read(signals, &si, sizeof(si)) != sizeof(si))
				continue;
			if (si.ssi_signo == SIGHUP)
				continue; /* a terminal that closes; there is nothing to reload */
			log_info("ending: %s", strsignal((int)si.ssi_signo));
			break;
		}
	}
	systemd_tell("STOPPING=1\nSTATUS=Unmounting");
	return mount_stop(m) < 0 ? 1 : 0;
}

/* The usual 1024 are a matter of select(2), which nobody uses here. */
static void raise_files(void)
{
	const rlim_t wanted = 65536;
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= wanted)
		return;
	files.rlim_cur = MIN(files.rlim_max, wanted);
	setrlimit(RLIMIT_NOFILE, &files);
}

/* tell: where the parent reads; -1 in the foreground. */
static int run(const struct options *o, int tell, int log_fd)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	struct mount *m;
	sigset_t set;
	int signals, r;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	log_set_name("threadfs");
	umask(0077);
	privilege_drop();
	raise_files();
	if (tell >= 0) /* before anything is logged: what goes wrong now is told in one line */
		take_stdio(log_fd);
	log_set_topics(o->debug);
	log_look_at_stream();
	r = mount_start(o, &m, &why);
	if (r < 0) {
		privilege_end();
		if (tell < 0) {
			systemd_tell("STATUS=%s\nERRNO=%d",
				     why.len ? why.data : strerrordesc_np(-r), -r);
			return fail(&why, r);
		}
		(void)!write(tell, why.data, why.len);
		return 1;
	}
	if (tell >= 0) {
		/* Not before: an automount point lets nobody through until it is mounted but the
		 * process group that mounts. */
		setsid();
		(void)!write(tell, "\n", 1);
		close(tell);
	} else {
		systemd_tell("READY=1\nSTATUS=Mounted at %s", o->mountpoint);
	}
	r = stay(m, signals);
	privilege_end();
	return r;
}

int cmd_mount(struct options *o)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	int r = check_mountpoint(o, &why), fds[2], log_fd;
	pid_t pid;

	systemd_begin();
	if (r < 0)
		return fail(&why, r);
	log_fd = open_log(o, &why);
	if (log_fd < 0)
		return fail(&why, log_fd);
	if (o->foreground) {
		if (o->log)
			dup2(log_fd, STDERR_FILENO);
		close(log_fd);
		return run(o, -1, -1);
	}
	if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return fail(&why, -errno);
	if (pid > 0) {
		close(fds[1]);
		return wait_for(fds[0], pid);
	}
	close(fds[0]);
	(void)!chdir("/");
	return run(o, fds[1], log_fd);
}

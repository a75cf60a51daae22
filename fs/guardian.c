/*
 * Both ends of the pipe between a daemon and its guardian: the daemon writes
 * which mount it is, and a last byte when it ends in order; an end of file
 * without that byte is its death. One thread each.
 */
#include "guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "environment.h"
#include "io.h"
#include "log.h"
#include "paths.h"
#include "privilege.h"
#include "unmount.h"

enum {
	MESSAGE_MOUNTED = 'm', /* and a dev_t */
	MESSAGE_ENDED = 'e',
	LOOKS = 100, /* until a daemon that dies is dead to the kernel, too */
	LOOK_EVERY_MS = 50,
	LOCK_FD = STDERR_FILENO + 1, /* a guardian's */
};

/* ---- the daemon's end ---- */

/*
 * The directory below the mount; or a file that stands for it, if that is an automount point: who
 * has one open keeps it from ever being found idle.
 */
static int open_place(const char *mountpoint)
{
	int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	char *runtime CLEANUP_FREE = NULL, *path CLEANUP_FREE = NULL;
	struct statfs vfs;
	struct stat st;

	if (fd < 0 || fstatfs(fd, &vfs) < 0 || vfs.f_type != AUTOFS_SUPER_MAGIC)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : paths_runtime(&runtime);
	close(fd);
	/* Those of one map are directories of one file system. */
	if (r < 0 || asprintf(&path, "%s/automount-%u:%u:%ju", runtime, major(st.st_dev),
			      minor(st.st_dev), (uintmax_t)st.st_ino) < 0) {
		path = NULL;
		return -1;
	}
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/*
 * A mount that follows another at the same place may have the same device number: a guardian that
 * is late would take the new one away. So each locks the place, and the next mount waits for that;
 * of two that are begun at one time the second does so until it sees the first. Returns -1 where
 * that cannot be.
 */
static int lock_place(const char *mountpoint)
{
	int fd = open_place(mountpoint);

	for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == 2 * LOOKS || mounts_is_ours(mountpoint)) {
			close(fd);
			return -1;
		}
		poll(NULL, 0, LOOK_EVERY_MS);
	}
	return fd;
}

static int spawn_guardian(const char *mountpoint, int fd, int lock, pid_t *ret_pid)
{
	const char *const argv[] = { GUARDIAN_NAME, mountpoint, NULL };
	char *env[ENVIRONMENT_MAX];
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int r = -posix_spawn_file_actions_init(&actions);

	if (r < 0)
		return r;
	r = -posix_spawnattr_init(&attr);
	if (r < 0) {
		posix_spawn_file_actions_destroy(&actions);
		return r;
	}
	environment_choose(env); /* it lives as long as we, and has no use for keys */
	/* Nobody's pipe is kept open by it, and no terminal's Ctrl-C ends it. */
	r = -posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
	if (r == 0)
		r = -posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
						      O_WRONLY, 0);
	if (r == 0)
		r = -posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
	if (r == 0 && lock >= 0)
		r = -posix_spawn_file_actions_adddup2(&actions, lock, LOCK_FD);
	if (r == 0)
		r = -posix_spawn_file_actions_addclosefrom_np(&actions,
							      LOCK_FD + (lock >= 0 ? 1 : 0));
	if (r == 0)
		r = -posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	if (r == 0)
		r = -posix_spawn(ret_pid, "/proc/self/exe", &actions, &attr, (char *const *)argv,
				 env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

int guardian_begin(struct guardian *g, const char *mountpoint)
{
	int lock CLEANUP_FD = lock_place(mountpoint); /* the guardian has it from then on */
	int fds[2], r;

	*g = (struct guardian){ .fd = -1 };
	if (mounts_is_ours(mountpoint)) /* by now: nobody else mounts while we have the place */
		return -EBUSY;
	r = pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
	if (r == 0) {
		r = spawn_guardian(mountpoint, fds[0], lock, &g->pid);
		close(fds[0]);
		if (r < 0)
			close(fds[1]);
		else
			g->fd = fds[1];
	}
	if (r < 0)
		log_warn("without a guardian: %s; if this daemon is killed the mountpoint stays "
			 "until the next mount or unmount",
			 strerrordesc_np(-r));
	return 0;
}

void guardian_watch(struct guardian *g, dev_t dev)
{
	char message[1 + sizeof(dev)] = { MESSAGE_MOUNTED };

	memcpy(message + 1, &dev, sizeof(dev));
	if (g->fd >= 0)
		(void)!write(g->fd, message, sizeof(message));
}

void guardian_end(struct guardian *g)
{
	const char message = MESSAGE_ENDED;

	if (g->fd < 0)
		return;
	(void)!write(g->fd, &message, 1);
	close(g->fd);
	g->fd = -1;
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* ---- the guardian's end ---- */

/*
 * A daemon that was killed while the kernel holds one of its threads (a notification that
 * waits for a directory) does not end, so its pipe stays open, and who holds the directory waits
 * for an answer that never comes. But its first thread, our parent, has ended.
 */
static volatile sig_atomic_t died;

static void on_death(int sig)
{
	(void)sig;
	died = true;
}

/* A death before this is an end of file: nothing is mounted yet that could hold the daemon. */
static void hear_of_death(void)
{
	struct sigaction act = { .sa_handler = on_death };
	sigset_t death;

	sigemptyset(&death);
	sigaddset(&death, SIGUSR1);
	sigprocmask(SIG_SETMASK, &death, NULL); /* it comes in ppoll() only */
	sigaction(SIGUSR1, &act, NULL);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
}

/* Ends all who wait for answers, and so what keeps the daemon from its end. */
static void abort_connection(const struct mount_entry *mount)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", minor(mount->dev));
	int fd CLEANUP_FD = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		unmount_abort(mount);
}

/* Waits for the daemon's end. True: it ended in order. */
static bool wait_for_end(dev_t *ret_dev)
{
	char bytes[1 + sizeof(*ret_dev)];
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	static const struct timespec at_once;
	sigset_t none;
	ssize_t n;

	sigemptyset(&none);
	for (;;) {
		/* With what has come first: the signal may be that of an end in order. */
		bool last = died;

		if (ppoll(&in, 1, last ? &at_once : NULL, &none) <= 0) {
			if (last)
				return false;
			continue;
		}
		n = read(STDIN_FILENO, bytes, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || bytes[0] == MESSAGE_ENDED)
			return n > 0;
		/* Written in one piece, which a pipe keeps together. */
		if (read(STDIN_FILENO, bytes + 1, sizeof(*ret_dev)) == sizeof(*ret_dev))
			memcpy(ret_dev, bytes + 1, sizeof(*ret_dev));
	}
}

/* Where the directory below the mount is by now: one above it may have been renamed. */
static const char *find_place(const char *point, char path[PATH_MAX])
{
	char link[64];
	struct stat st;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", LOCK_FD);
	if (fstat(LOCK_FD, &st) < 0 || !S_ISDIR(st.st_mode))
		return point; /* not locked, or an automount point */
	n = readlink(link, path, PATH_MAX - 1);
	if (n <= 0)
		return point;
	path[n] = '\0';
	return path;
}

/*
 * By the place, which we have locked: another mount may have the number by now, but not there. Adds
 * the device, if we were not told it.
 */
static void let_go(const char *point, dev_t *dev)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	const struct mount_entry *mount;
	char path[PATH_MAX];

	if (mounts_read(&m) < 0)
		return;
	mount = mounts_at(&m, find_place(point, path));
	if (!mount_entry_is_ours(mount))
		return;
	if (*dev == 0)
		*dev = mount->dev;
	else if (*dev == mount->dev)
		abort_connection(mount);
}

/*
 * Wherever it is by now, and was bound to. If another mount has the number somebody answers for it.
 * Returns whether there is any left.
 */
static bool take_away(dev_t dev)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	bool left = false;

	if (mounts_read(&m) < 0)
		return false;
	for (const struct mount_entry *mount = NULL; (mount = mounts_of(&m, dev, mount));) {
		struct buf words CLEANUP_BUF = BUF_INIT(UNMOUNT_WORDS);

		if (!unmount_is_dead(mount) || unmount_wherever(mount, &words) < 0)
			left = true;
	}
	return left;
}

static int guard(const char *point)
{
	static const int deaf_to[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	dev_t dev = 0;

	for (size_t i = 0; i < ARRAY_SIZE(deaf_to); i++)
		signal(deaf_to[i], SIG_IGN); /* it ends with its daemon, never before */
	(void)!chdir("/");
	hear_of_death();
	if (wait_for_end(&dev))
		return 0;
	let_go(point, &dev);
	for (int i = 0; i < LOOKS && take_away(dev); i++)
		poll(NULL, 0, LOOK_EVERY_MS);
	return 0;
}

int guardian_main(int argc, char **argv)
{
	int r = EXIT_FAILURE;

	privilege_drop();
	if (argc == 2)
		r = guard(argv[1]);
	privilege_end();
	return r;
}

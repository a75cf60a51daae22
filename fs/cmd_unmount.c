/*
 * threadfs unmount. Asks the kernel, or for ordinary users fusermount3, which
 * may; then waits until the mount is off the kernel's list and its daemon has
 * ended. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "clock.h"
#include "cmd.h"
#include "mounts.h"
#include "presence.h"

enum {
	GONE_MS = 10000,
	END_MS = 90000,
	WORDS_MAX = 4096, /* of fusermount3 */
};

/* ---- fusermount3 ---- */

/* Collects what it says up to its end of file. */
static void collect(int fd, struct buf *words)
{
	char piece[512];
	ssize_t n;

	while ((n = read(fd, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0)
			buf_append(words, piece, (size_t)n); /* too much: the rest is dropped */
	while (words->len > 0 && words->data[words->len - 1] == '\n')
		words->data[--words->len] = '\0';
}

static int start(const char *point, bool lazy, int words, pid_t *ret_pid)
{
	const char *const plain[] = { "fusermount3", "-u", "--", point, NULL };
	const char *const when_free[] = { "fusermount3", "-u", "-z", "--", point, NULL };
	const char *const *argv = lazy ? when_free : plain;
	posix_spawn_file_actions_t actions;
	int r;

	r = -posix_spawn_file_actions_init(&actions);
	if (r < 0)
		return r;
	r = -posix_spawn_file_actions_adddup2(&actions, words, STDERR_FILENO);
	if (r == 0)
		r = -posix_spawnp(ret_pid, argv[0], &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* 0, -EBUSY, or another errno with its words where there are any. */
static int fusermount(const char *point, bool lazy, struct buf *words)
{
	int pipe_fds[2], status, r;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	r = start(point, lazy, pipe_fds[1], &pid);
	close(pipe_fds[1]);
	if (r == 0)
		collect(pipe_fds[0], words);
	close(pipe_fds[0]);
	if (r < 0) {
		buf_printf(words, "fusermount3 cannot be run: %s", strerrordesc_np(-r));
		return r;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return words->len > 0 && strstr(words->data, "busy") ? -EBUSY : -EIO;
}

/* ---- the end of the mount ---- */

/* The kernel wakes who polls its list whenever that changes. */
static int wait_until_gone(int id)
{
	int fd CLEANUP_FD = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	int64_t end = clock_ms() + GONE_MS;

	if (fd < 0)
		return -errno;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLPRI };
		struct mounts m CLEANUP_MOUNTS = { 0 };
		int64_t left = end - clock_ms();
		int r = mounts_read(&m);

		if (r < 0)
			return r;
		if (!mounts_has_id(&m, id))
			return 0;
		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
			return -errno;
	}
}

static int unmount(const struct mount_entry *mount, bool lazy, struct buf *words)
{
	int daemon CLEANUP_FD = presence_open(mount->dev);
	int r = -EPERM;

	if (geteuid() == 0)
		r = umount2(mount->point, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0 ? -errno
											 : 0;
	/* Root of a container may be nobody special to the kernel. */
	if (r == -EPERM)
		r = fusermount(mount->point, lazy, words);
	if (r == 0)
		r = wait_until_gone(mount->id);
	/* It uploads what is left and stops its sandboxes; in use or lazily, that may be a while.
	 */
	if (r == 0 && daemon >= 0 && !lazy)
		r = presence_wait(daemon, END_MS);
	return r;
}

int cmd_unmount(const char *mountpoint, bool lazy)
{
	struct buf words CLEANUP_BUF = BUF_INIT(WORDS_MAX);
	struct mounts m CLEANUP_MOUNTS = { 0 };
	char *point CLEANUP_FREE = NULL;
	const struct mount_entry *mount;
	int r = mounts_read(&m);

	if (r == 0)
		r = mounts_resolve(&m, mountpoint, &point);
	if (r < 0)
		return cmd_fail("'%s': %s", mountpoint, strerrordesc_np(-r));
	mount = mounts_at(&m, point);
	if (!mount)
		return cmd_fail("'%s': nothing is mounted there", mountpoint);
	if (!mount_entry_is_ours(mount))
		return cmd_fail("'%s' is a mount of type %s, not of threadfs", mountpoint,
				mount->type);
	r = unmount(mount, lazy, &words);
	if (r == -EBUSY)
		return cmd_fail("'%s' is busy: fuser -vm '%s' shows who uses it; with -l it goes "
				"when they are done",
				mountpoint, mount->point);
	if (r == -ETIMEDOUT)
		return cmd_fail("'%s' is unmounted, but its daemon has not ended yet", mountpoint);
	if (r < 0)
		return cmd_fail("'%s' cannot be unmounted: %s", mountpoint,
				words.len > 0 ? words.data : strerrordesc_np(-r));
	return 0;
}

/*
 * Taking a mount away: by the kernel, or for ordinary users by fusermount3, which
 * may. Any process, without threads or with.
 */
#include "unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "clock.h"

enum {
	GONE_MS = 10000,
	STALE_MAX = 64, /* dead ones over one another */
	MOVES_MAX = 64, /* renames above it while it is looked for */
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
	if (r != 0) {
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
static int wait_until_gone(const struct mount_entry *mount)
{
	int fd CLEANUP_FD = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	int64_t end = clock_ms() + GONE_MS;

	if (fd < 0)
		return -errno;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLPRI };
		struct mounts m CLEANUP_MOUNTS = { 0 };
		const struct mount_entry *there;
		int64_t left = end - clock_ms();
		int r = mounts_read(&m);

		if (r < 0)
			return r;
		there = mounts_by_id(&m, mount->id);
		if (!there || there->dev != mount->dev)
			return 0;
		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
			return -errno;
	}
}

/* ---- one mount, and no other ---- */

/*
 * What is at a path may be another mount a moment later: whoever may rename a directory above it
 * can put a link there. So it is opened, compared, and then called by its descriptor.
 */
struct self {
	char path[32]; /* of the descriptor, for calls that know paths only */
};

static struct self self(int fd)
{
	struct self s;

	snprintf(s.path, sizeof(s.path), "/proc/self/fd/%d", fd);
	return s;
}

/* Asks nothing of its daemon, which may be dead, stuck, or we. */
static bool is_it(int fd, const struct mount_entry *mount)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &sx) < 0 ||
	    makedev(sx.stx_dev_major, sx.stx_dev_minor) != mount->dev)
		return false;
	/* Since Linux 5.8. */
	return !(sx.stx_mask & STATX_MNT_ID) || sx.stx_mnt_id == (uint64_t)mount->id;
}

/* -ESTALE: something else is there by now. */
static int open_mount(int dir, const char *path, const struct mount_entry *mount)
{
	int fd = openat(dir, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (is_it(fd, mount))
		return fd;
	close(fd);
	return -ESTALE;
}

static int take_lazily(const struct mount_entry *mount)
{
	int fd CLEANUP_FD = open_mount(AT_FDCWD, mount->point, mount);

	if (fd < 0)
		return fd;
	return umount2(self(fd).path, MNT_DETACH) < 0 ? -errno : 0;
}

/*
 * Whoever has it open uses it, so only the directory that it is in stays open: whatever is renamed
 * above that, the name in it is looked up there.
 */
static int take_if_free(const struct mount_entry *mount)
{
	char *parent CLEANUP_FREE = strdup(mount->point), *path CLEANUP_FREE = NULL;
	char *name = parent ? strrchr(parent, '/') : NULL;
	int dir CLEANUP_FD = -1, fd;

	if (!name)
		return parent ? -EINVAL : -ENOMEM;
	*name++ = '\0';
	dir = open(*parent ? parent : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	fd = open_mount(dir, name, mount);
	if (fd < 0)
		return fd;
	close(fd);
	if (asprintf(&path, "%s/%s", self(dir).path, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return umount2(path, UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

/* By its name: what is there is looked at only so that none is taken away that covers it. */
static int take_by_name(const struct mount_entry *mount, bool lazy, struct buf *words)
{
	int fd = open_mount(AT_FDCWD, mount->point, mount);

	if (fd < 0)
		return fd;
	close(fd);
	return fusermount(mount->point, lazy, words);
}

int unmount(const struct mount_entry *mount, bool lazy, struct buf *words)
{
	int r = -EPERM;

	if (geteuid() == 0)
		r = lazy ? take_lazily(mount) : take_if_free(mount);
	/* Root of a container may be nobody special to the kernel. */
	if (r == -EPERM)
		r = take_by_name(mount, lazy, words);
	return r == 0 ? wait_until_gone(mount) : r;
}

int unmount_wherever(const struct mount_entry *mount, struct buf *words)
{
	int r = unmount(mount, true, words);

	for (int i = 0; i < MOVES_MAX && (r == -ESTALE || r == -ENOENT); i++) {
		struct mounts m CLEANUP_MOUNTS = { 0 };
		const struct mount_entry *now;

		r = mounts_read(&m);
		if (r < 0)
			return r;
		now = mounts_by_id(&m, mount->id);
		if (!now || now->dev != mount->dev)
			return 0;
		r = unmount(now, true, words);
	}
	return r;
}

void unmount_abort(const struct mount_entry *mount)
{
	int fd CLEANUP_FD = open_mount(AT_FDCWD, mount->point, mount);

	if (fd >= 0)
		umount2(self(fd).path, MNT_FORCE); /* we have it open, so it is busy: only aborts */
}

bool unmount_is_dead(const struct mount_entry *mount)
{
	int fd CLEANUP_FD = open_mount(AT_FDCWD, mount->point, mount);
	struct statvfs vfs;

	/* Not stat(2): the kernel may remember the attributes of a mount whose program is gone. */
	return fd >= 0 && fstatvfs(fd, &vfs) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

int unmount_stale(const char *path, struct buf *words)
{
	for (int i = 0; i < STALE_MAX; i++) {
		struct mounts m CLEANUP_MOUNTS = { 0 };
		char *point CLEANUP_FREE = NULL;
		const struct mount_entry *mount;
		int r = mounts_read(&m);

		if (r == 0)
			r = mounts_resolve(&m, path, &point);
		if (r != 0)
			return r;
		mount = mounts_at(&m, point);
		if (!mount_entry_is_ours(mount) || !unmount_is_dead(mount))
			return 0;
		/* Whoever has a file or his working directory there gets ENOTCONN for ever. */
		r = unmount(mount, true, words);
		if (r < 0)
			return r;
	}
	return -EBUSY;
}

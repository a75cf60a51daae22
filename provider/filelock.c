/*
 * flock(2) on files that may be removed by their holder. The lock belongs to
 * the open file, not to the process, so that two of them in one process
 * exclude each other as well. Nothing waits; any thread.
 */
#include "filelock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

/* Each try in vain means that somebody had it and removed it in that moment. */
enum { TRIES = 64 };

static int flock_now(int fd, bool exclusive)
{
	while (flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0) {
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	}
	return 0;
}

/* Whether the name is still that of the open file: 1, 0, or a negative errno. */
static int is_at(int fd, int dir, const char *path)
{
	struct stat open_one, named;

	if (fstat(fd, &open_one) < 0)
		return -errno;
	if (fstatat(dir, path, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

static int try_lock(int dir, const char *path, int flags, bool exclusive)
{
	for (unsigned i = 0; i < TRIES; i++) {
		int fd CLEANUP_FD = openat(
			dir, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
		int r;

		if (fd < 0)
			return -errno;
		r = flock_now(fd, exclusive);
		if (r < 0)
			return r;
		/* The holder before us may have removed it between our open and our lock. */
		r = is_at(fd, dir, path);
		if (r < 0)
			return r;
		if (r > 0)
			return steal_fd(&fd);
	}
	return -EAGAIN;
}

int filelock_try(const char *path, bool exclusive)
{
	return try_lock(AT_FDCWD, path, O_CREAT, exclusive);
}

int filelock_try_existing(const char *path, bool exclusive)
{
	return try_lock(AT_FDCWD, path, 0, exclusive);
}

int filelock_try_at(int dir, const char *name, bool exclusive, bool make)
{
	return try_lock(dir, name, make ? O_CREAT : 0, exclusive);
}

bool filelock_is_at(int fd, int dir, const char *name)
{
	return is_at(fd, dir, name) > 0;
}

/*
 * The kernel drops the old lock before it looks whether the new one can be had.
 * Whoever gets in between may even remove the file: a lock on what has no name
 * keeps nobody out.
 */
int filelock_change(int fd, bool exclusive)
{
	struct stat st;
	int r = flock_now(fd, exclusive);

	if (r < 0 && r != -EAGAIN)
		return r;
	if (r == -EAGAIN && flock_now(fd, !exclusive) < 0)
		return -ENOLCK;
	if (fstat(fd, &st) < 0 || st.st_nlink == 0)
		return -ENOLCK;
	return r;
}

void filelock_remove_at(int dir, const char *name, int fd)
{
	if (is_at(fd, dir, name) > 0)
		unlinkat(dir, name, 0);
	close(fd);
}

void filelock_remove(const char *path, int fd)
{
	filelock_remove_at(AT_FDCWD, path, fd);
}

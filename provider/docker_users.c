/*
 * Who uses a container, among the processes of this machine that share a runtime
 * directory: each has a shared lock of a file there. Who holds it exclusively knows that
 * nobody else does. The locks die with their holders. Blocks on the disk; for workers.
 */
#include <errno.h>
#include <stdio.h>

#include "docker_i.h"
#include "filelock.h"
#include "paths.h"

static char *path_of(const char *locks, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", locks, name) < 0 ? NULL : path;
}

static int try_lock(const char *locks, const char *name, bool exclusive)
{
	char *path CLEANUP_FREE = path_of(locks, name);
	int fd;

	if (!path)
		return -ENOMEM;
	fd = filelock_try(path, exclusive);
	if (fd != -ENOENT)
		return fd;
	/* Those who clean up old temporary files take empty directories along. */
	fd = paths_make(locks, 0700);
	return fd < 0 ? fd : filelock_try(path, exclusive);
}

int users_enter(const char *locks, const char *name)
{
	return try_lock(locks, name, false);
}

int users_claim(const char *locks, const char *name, int *fd)
{
	int r;

	if (*fd >= 0) {
		r = filelock_change(*fd, true);
		if (r == -ENOLCK)
			close(steal_fd(fd));
	} else {
		r = try_lock(locks, name, true);
		if (r >= 0) {
			*fd = r;
			return 0;
		}
	}
	return r == -EAGAIN || r == -ENOLCK ? -EBUSY : r;
}

int users_share(int *fd)
{
	int r = filelock_change(*fd, false);

	if (r == -ENOLCK)
		close(steal_fd(fd));
	return r;
}

void users_leave(const char *locks, const char *name, int fd)
{
	char *path CLEANUP_FREE = path_of(locks, name);

	if (path && filelock_change(fd, true) == 0)
		filelock_remove(path, fd);
	else
		close(fd);
}

/* Whether a mount's daemon lives, by a lock that dies with it. */
#include "presence.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

#include "clock.h"
#include "paths.h"

enum { LOOK_EVERY_MS = 20 };

static int file_name(dev_t dev, char **ret)
{
	char *runtime CLEANUP_FREE = NULL;
	int r = paths_runtime(&runtime);

	if (r < 0)
		return r;
	return asprintf(ret, "%s/mount-%u:%u", runtime, major(dev), minor(dev)) < 0 ? -ENOMEM : 0;
}

void presence_begin(struct presence *p, dev_t dev)
{
	*p = (struct presence){ .fd = -1 };
	if (file_name(dev, &p->path) < 0) {
		p->path = NULL;
		return;
	}
	p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	/* A file of before has no lock any more: its daemon had this number. */
	if (p->fd >= 0 && flock(p->fd, LOCK_EX | LOCK_NB) < 0) {
		close(p->fd);
		p->fd = -1;
	}
}

void presence_end(struct presence *p)
{
	if (p->fd >= 0) {
		unlink(p->path);
		close(p->fd);
	}
	p->fd = -1;
	free(STEAL(p->path));
}

int presence_open(dev_t dev)
{
	char *path CLEANUP_FREE = NULL;
	int r = file_name(dev, &path), fd;

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

int presence_wait(int fd, int64_t timeout_ms)
{
	int64_t end = clock_ms() + timeout_ms;

	while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (clock_ms() >= end)
			return -ETIMEDOUT;
		poll(NULL, 0, LOOK_EVERY_MS);
	}
	return 0;
}

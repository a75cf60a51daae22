/*
 * Files without a name, and the account of what they take. Knows nothing of
 * what is in them. Loop thread only.
 */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>

#include "io.h"

int spool_open(struct spool *s, struct fs *fs)
{
	int fd = openat(fs->cache_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	*s = (struct spool){ .fs = fs, .fd = fd };
	return 0;
}

static void count(struct spool *s, uint64_t bytes)
{
	s->fs->cache_used += bytes - s->bytes;
	s->bytes = bytes;
}

void spool_close(struct spool *s)
{
	if (!s->fs || s->fd < 0)
		return;
	close(s->fd);
	count(s, 0);
	s->fd = -1;
}

/* Holes count too: what is behind the end today may be written tomorrow. */
static int reserve(struct spool *s, uint64_t size)
{
	if (size <= s->bytes)
		return 0;
	if (s->fs->cache_used + (size - s->bytes) > s->fs->opt->cache_size)
		return -ENOSPC;
	count(s, size);
	return 0;
}

int spool_write(struct spool *s, const void *bytes, size_t len, uint64_t offset)
{
	const char *p = bytes;
	int r;

	if (offset > INT64_MAX - len)
		return -EFBIG;
	r = reserve(s, offset + len);
	if (r < 0)
		return r;
	while (len > 0) {
		ssize_t n = pwrite(s->fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

ssize_t spool_read(struct spool *s, void *to, size_t len, uint64_t offset)
{
	return pread_all(s->fd, to, len, offset);
}

int spool_truncate(struct spool *s, uint64_t size)
{
	int r;

	if (size > INT64_MAX)
		return -EFBIG;
	r = reserve(s, size);
	if (r < 0)
		return r;
	if (ftruncate(s->fd, (off_t)size) < 0)
		return -errno;
	count(s, size);
	return 0;
}

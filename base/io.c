/* See io.h. */
#include "io.h"

#include <errno.h>

int write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

ssize_t pread_all(int fd, void *to, size_t len, uint64_t offset)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(fd, (char *)to + got, len - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

struct dirent *dir_next(DIR *dir, int *ret)
{
	struct dirent *e;

	errno = 0;
	e = readdir(dir);
	if (!e)
		*ret = -errno;
	return e;
}

/*
 * Putting bytes into a file: appended, over the old content in place, or (as
 * the daemon does) staged. Knows no requests; blocks, runs on workers, keeps
 * no state.
 */
#include <errno.h>
#include <fcntl.h>

#include "file.h"
#include "io.h"
#include "stage.h"

int file_make_dirs(char *path)
{
	for (char *p = path + 1;; p++) {
		struct stat st;
		char c = *p;
		int err = 0;

		if (c && c != '/')
			continue;
		*p = '\0';
		/* An existing one may also fail with EROFS or EACCES: look. */
		if (mkdir(path, 0777) < 0) {
			err = errno;
			if (stat(path, &st) == 0)
				err = S_ISDIR(st.st_mode) ? 0 : c ? ENOTDIR : EEXIST;
		}
		*p = c;
		if (err || !c)
			return -err;
	}
}

/* Appends go out in one write(2), so that those of several clients do not mix. */
static int write_regular(int fd, const char *data, size_t len)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? write_all(fd, data, len) : -EINVAL;
}

int file_store(const struct server *srv, const char *path, const char *data, size_t len,
	       bool append)
{
	char real[PATH_MAX];
	struct stage s;
	int r = sandbox_path(srv, path, real);

	if (r < 0)
		return r;
	if (append || srv->cfg->dialect != DIALECT_AIOD)
		r = stage_open_in_place(&s, real, append ? O_APPEND : O_TRUNC);
	else
		r = stage_open(&s, "write", real);
	if (r < 0)
		return r;
	r = write_regular(s.fd, data, len);
	if (r == 0)
		return stage_put(&s, NULL);
	stage_release(&s);
	return r;
}

/*
 * Putting bytes into a file: appended, over the old content in place, or
 * (as the daemon does) into a new file that is renamed over the old one, so
 * that readers see the old or the new content and nothing between. Knows no
 * requests; blocks, runs on workers, keeps no state.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "file.h"

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

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Opens, making the directories above on the way if they are missing. */
static int open_making_dirs(const char *path, int flags)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	int fd, r;

	flags |= O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	fd = open(path, flags, 0666);
	if (fd >= 0 || errno != ENOENT || !slash || slash == path)
		return fd < 0 ? -errno : fd;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	r = file_make_dirs(dir);
	if (r < 0)
		return r;
	fd = open(path, flags, 0666);
	return fd < 0 ? -errno : fd;
}

/*
 * Appends go out in one write(2), so that those of several clients do not
 * mix. Close is checked: some file systems report a full disk only there.
 */
static int store_in_place(const char *path, const char *data, size_t len, bool append)
{
	int fd = open_making_dirs(path, append ? O_APPEND : O_TRUNC), r = 0;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EINVAL;
	if (r == 0)
		r = write_all(fd, data, len);
	if (close(fd) < 0 && r == 0 && errno != EINTR)
		r = -errno;
	return r;
}

/* ".aiod-write-<random>.part" beside target. */
static int part_name(const char *target, char *out)
{
	const char *slash = strrchr(target, '/');
	int dir_len = slash ? (int)(slash + 1 - target) : 0, n;
	uint64_t id;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return -EIO;
	n = snprintf(out, PATH_MAX, "%.*s.aiod-write-%016llx.part", dir_len, target,
		     (unsigned long long)id);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Fills the new file and gives it the owner and mode of the old one, if any. */
static int fill_part(int fd, const char *data, size_t len, const struct stat *old)
{
	struct stat st;
	int r = write_all(fd, data, len);

	if (r < 0 || !old)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
	    fchown(fd, old->st_uid, old->st_gid) < 0)
		return -EPERM;
	return fchmod(fd, old->st_mode & 07777) < 0 ? -errno : 0;
}

static int store_staged(const char *target, const char *data, size_t len, const struct stat *old)
{
	char part[PATH_MAX];
	int r = part_name(target, part), fd;

	if (r < 0)
		return r;
	fd = open_making_dirs(part, O_EXCL | O_NOFOLLOW);
	if (fd < 0)
		return fd;
	r = fill_part(fd, data, len, old);
	if (close(fd) < 0 && r == 0 && errno != EINTR)
		r = -errno;
	if (r == 0 && rename(part, target) < 0)
		r = -errno;
	if (r < 0)
		unlink(part);
	return r;
}

/* Whether a failure only says that this file cannot be replaced by another. */
static bool must_be_in_place(int r)
{
	return r == -EACCES || r == -EPERM || r == -EBUSY || r == -EXDEV;
}

static int store_replacing(const char *path, const char *data, size_t len)
{
	char target[PATH_MAX];
	struct stat st;
	int r;

	if (stat(path, &st) == 0) {
		if (!S_ISREG(st.st_mode))
			return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
		/* A rename would not ask whether the file may be written. */
		if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
			return -errno;
		if (!realpath(path, target))
			return -errno;
		r = store_staged(target, data, len, &st);
	} else if (errno == ENOENT && lstat(path, &st) < 0) {
		r = store_staged(path, data, len, NULL);
	} else {
		return store_in_place(path, data, len, false); /* a dangling link, or an error */
	}
	return must_be_in_place(r) ? store_in_place(path, data, len, false) : r;
}

int file_store(const struct server *srv, const char *path, const char *data, size_t len,
	       bool append)
{
	char real[PATH_MAX];
	int r = sandbox_path(srv, path, real);

	if (r < 0)
		return r;
	/* A name that ends in a slash is left to the kernel to refuse. */
	if (append || srv->cfg->dialect != DIALECT_AIOD || real[strlen(real) - 1] == '/')
		return store_in_place(real, data, len, append);
	return store_replacing(real, data, len);
}

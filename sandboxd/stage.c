/*
 * See stage.h. Knows nothing of forms and little of requests. Blocks; a stage
 * belongs to one thread at a time.
 */
#include "stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>

#include "file.h"

enum {
	MAX_LINKS = 40, /* the kernel's own limit */
	COPY_PIECE = 8 * MIB,
	FD_PATH_SIZE = 32,
	OPEN_FLAGS = O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
};

/* ---- the target ---- */

/* Length of the directory part with its last slash. */
static int dir_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash + 1 - path) : 0;
}

/* The directory of path, without its last slash. */
static void dir_of(const char *path, char *ret_dir)
{
	int len = dir_length(path);

	if (len == 0)
		ret_dir[len++] = '.';
	else
		memcpy(ret_dir, path, (size_t)len);
	if (len > 1 && ret_dir[len - 1] == '/')
		len--;
	ret_dir[len] = '\0';
}

/* Replaces path by what it finally points to, which need not exist. */
static int follow_links(char *path)
{
	char link[PATH_MAX], next[PATH_MAX];

	for (int i = 0; i < MAX_LINKS; i++) {
		ssize_t n = readlink(path, link, sizeof(link) - 1);
		int len;

		if (n < 0)
			return 0; /* not a link, or stat() will say what is wrong */
		link[n] = '\0';
		len = link[0] == '/' ? 0 : dir_length(path);
		len = snprintf(next, sizeof(next), "%.*s%s", len, path, link);
		if (len < 0 || (size_t)len >= sizeof(next))
			return -ENAMETOOLONG;
		memcpy(path, next, (size_t)len + 1);
	}
	return -ELOOP;
}

/* Finds the target, and refuses what a rename would quietly do away with. */
static int set_target(struct stage *s, const char *kind, const char *path)
{
	size_t len = strlen(path);
	int r;

	s->fd = -1;
	s->in_place = s->replaces = false;
	s->kind = kind;
	s->part[0] = '\0';
	if (len == 0)
		return -ENOENT;
	if (len >= sizeof(s->target))
		return -ENAMETOOLONG;
	if (path[len - 1] == '/')
		return -EISDIR;
	memcpy(s->target, path, len + 1);
	r = follow_links(s->target);
	if (r < 0)
		return r;
	if (stat(s->target, &s->old) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(s->old.st_mode))
		return S_ISDIR(s->old.st_mode) ? -EISDIR : -EINVAL;
	if (faccessat(AT_FDCWD, s->target, W_OK, AT_EACCESS) < 0)
		return -errno;
	s->replaces = true;
	return 0;
}

/*
 * Whether a failure only says that the old file, which may be written, cannot
 * be replaced by another: its directory is closed to us, it is a mount point,
 * or the new one would belong to somebody else.
 */
static bool must_be_in_place(const struct stage *s, int r)
{
	return s->replaces &&
	       (r == -EACCES || r == -EPERM || r == -EROFS || r == -EBUSY || r == -EXDEV);
}

/* ---- the staged file ---- */

static int make_part_name(const struct stage *s, char *ret_part)
{
	uint64_t id;
	int n;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return -EIO;
	n = snprintf(ret_part, PATH_MAX, "%.*s.aiod-%s-%016llx.part", dir_length(s->target),
		     s->target, s->kind, (unsigned long long)id);
	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Gives a nameless file its name beside the target. */
static int link_part(struct stage *s, int fd)
{
	char from[FD_PATH_SIZE], part[PATH_MAX];
	int r = make_part_name(s, part);

	if (r < 0)
		return r;
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, from, AT_FDCWD, part, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	memcpy(s->part, part, sizeof(part));
	return 0;
}

/* Gives it the target's name, if nobody has that by now. */
static int link_target(const struct stage *s)
{
	char from[FD_PATH_SIZE];

	snprintf(from, sizeof(from), "/proc/self/fd/%d", s->fd);
	return linkat(AT_FDCWD, from, AT_FDCWD, s->target, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* The old file's, as far as the umask lets it: nobody may read more than before. */
static mode_t mode_to_open(const struct stage *s)
{
	return s->replaces ? s->old.st_mode & 0777 : 0666;
}

/* For filesystems that have no files without a name. */
static int open_part(struct stage *s)
{
	char part[PATH_MAX];
	int r = make_part_name(s, part), fd;

	if (r < 0)
		return r;
	fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | OPEN_FLAGS, mode_to_open(s));
	if (fd < 0)
		return -errno;
	memcpy(s->part, part, sizeof(part));
	return fd;
}

static int open_beside(struct stage *s)
{
	const int flags = O_TMPFILE | O_RDWR | O_CLOEXEC;
	char dir[PATH_MAX];
	int fd, r;

	dir_of(s->target, dir);
	fd = open(dir, flags, mode_to_open(s));
	if (fd < 0 && errno == ENOENT) {
		r = file_make_dirs(dir);
		if (r < 0)
			return r;
		fd = open(dir, flags, mode_to_open(s));
	}
	if (fd >= 0)
		return fd;
	return errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT ? open_part(s) : -errno;
}

int stage_open(struct stage *s, const char *kind, const char *path)
{
	int r = set_target(s, kind, path), fd;

	if (r < 0)
		return r;
	fd = open_beside(s);
	if (must_be_in_place(s, fd)) {
		s->in_place = true;
		fd = open(s->target, O_WRONLY | O_TRUNC | OPEN_FLAGS);
		if (fd < 0)
			fd = -errno;
	}
	if (fd < 0)
		return fd;
	s->fd = fd;
	return 0;
}

int stage_open_in_place(struct stage *s, const char *path, int flags)
{
	char dir[PATH_MAX];
	int fd, r;

	s->fd = -1;
	s->in_place = true;
	s->replaces = false;
	s->part[0] = '\0';
	flags |= O_WRONLY | O_CREAT | OPEN_FLAGS;
	fd = open(path, flags, 0666);
	if (fd < 0 && errno == ENOENT && strlen(path) < sizeof(dir)) {
		dir_of(path, dir);
		r = file_make_dirs(dir);
		if (r < 0)
			return r;
		fd = open(path, flags, 0666);
	}
	if (fd < 0)
		return -errno;
	s->fd = fd;
	return 0;
}

int stage_adopt(struct stage *s, const char *kind, const char *path, int fd)
{
	int r = set_target(s, kind, path);

	if (r == 0)
		r = link_part(s, fd);
	if (r == 0)
		s->fd = fd;
	return r;
}

/* ---- putting it in place ---- */

int stage_copy(struct request *r, int from, int to)
{
	off_t at = 0;

	for (;;) {
		ssize_t n = sendfile(to, from, &at, COPY_PIECE);

		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (r && request_gone(r))
			return -ECANCELED;
	}
}

/* Some filesystems report a failed write only when a descriptor is closed. */
static int flush(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0 || (close(copy) < 0 && errno != EINTR))
		return -errno;
	return 0;
}

/* The new file looks like the old one from outside, but that it lends nobody's rights: any
 * write takes that away. */
static int keep_attributes(const struct stage *s)
{
	mode_t mode = s->old.st_mode & 07777 & ~(mode_t)(S_ISUID | S_ISGID);
	struct stat st;

	if (!s->replaces)
		return 0;
	if (fstat(s->fd, &st) < 0)
		return -errno;
	if ((st.st_uid != s->old.st_uid || st.st_gid != s->old.st_gid) &&
	    fchown(s->fd, s->old.st_uid, s->old.st_gid) < 0)
		return -EPERM; /* whatever it says of an owner that is not mapped here */
	/* Not in vain: watchers of the directory would hear of it. */
	if ((st.st_mode & 07777) != mode && fchmod(s->fd, mode) < 0)
		return -errno;
	return 0;
}

static int replace_target(struct stage *s, const struct request *r)
{
	int e = keep_attributes(s);

	/* As late as can be: whoever gave it up may have put something else there since. */
	if (e == 0 && r && request_left(r))
		e = -ECANCELED;
	if (e == 0 && !s->part[0] && !s->replaces && link_target(s) == 0)
		return 0;
	if (e == 0 && !s->part[0])
		e = link_part(s, s->fd);
	if (e == 0 && rename(s->part, s->target) < 0)
		e = -errno;
	if (e == 0)
		s->part[0] = '\0';
	return e;
}

static int copy_onto_target(const struct stage *s)
{
	int fd CLEANUP_FD = open(s->target, O_WRONLY | O_TRUNC | OPEN_FLAGS);
	int r;

	if (fd < 0)
		return -errno;
	r = stage_copy(NULL, s->fd, fd); /* half of it would help nobody */
	return r < 0 ? r : flush(fd);
}

int stage_put(struct stage *s, const struct request *r)
{
	int e = flush(s->fd);

	if (e == 0 && !s->in_place) {
		e = replace_target(s, r);
		if (must_be_in_place(s, e))
			e = copy_onto_target(s);
	}
	stage_release(s);
	return e;
}

void stage_release(struct stage *s)
{
	if (s->fd >= 0)
		close(steal_fd(&s->fd));
	if (s->part[0])
		unlink(s->part);
	s->part[0] = '\0';
}

/*
 * POST /v1/file/stat, mkdir and delete, which only the daemon has. Runs on a
 * worker.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"

static void reply_path(struct request *r, const char *path)
{
	struct jw *w = reply_begin(r, NULL);

	jw_obj(w);
	jw_kstr(w, "path", path);
	jw_obj_end(w);
	reply_end(r);
}

/* ---- stat ---- */

void file_stat(struct request *r)
{
	const struct stat_args *a = r->args;
	char path[PATH_MAX], mode[11];
	struct stat st = { 0 };
	struct jw *w;
	int e = sandbox_path(r->srv, a->path, path);

	if (e == 0 &&
	    fstatat(AT_FDCWD, path, &st, a->follow_symlinks ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
		e = -errno;
	if (e < 0) {
		reply_file_error(r, "stat", a->path, -e);
		return;
	}
	file_mode_string(st.st_mode, mode);
	w = reply_begin(r, NULL);
	jw_obj(w);
	jw_kstr(w, "path", a->path);
	jw_kint(w, "size", st.st_size);
	jw_kstr(w, "permissions", mode);
	jw_kbool(w, "is_directory", S_ISDIR(st.st_mode));
	jw_kbool(w, "is_symlink", S_ISLNK(st.st_mode));
	file_write_mtime(w, st.st_mtim.tv_sec);
	jw_obj_end(w);
	reply_end(r);
}

/* ---- mkdir ---- */

void file_mkdir(struct request *r)
{
	const struct mkdir_args *a = r->args;
	char path[PATH_MAX];
	int e = sandbox_path(r->srv, a->path, path);

	if (e == 0 && a->parents)
		e = file_make_dirs(path);
	else if (e == 0 && mkdir(path, 0777) < 0)
		e = -errno;
	if (e < 0)
		reply_file_error(r, "mkdir", a->path, -e);
	else
		reply_path(r, a->path);
}

/* ---- delete ---- */

enum { MAX_OPEN_DEPTH = 32 };

struct removal {
	struct request *r;
	int rootfd;     /* the directory being deleted */
	uint64_t dev;   /* its file system */
	unsigned moved; /* directories moved up into the root */
	uint64_t entries;
};

/* Opens a directory that is not a link; -EBUSY for the root of a mount. */
static int open_own_dir(int dirfd, const char *name, struct stat *ret_st)
{
	int fd CLEANUP_FD =
		openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct statx stx;

	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH, 0, &stx) == 0 &&
	    (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return -EBUSY;
	if (fstat(fd, ret_st) < 0)
		return -errno;
	return steal_fd(&fd);
}

static int remove_contents(struct removal *d, int fd, unsigned depth);

/* Moves a directory up into the root, whose next pass will meet it there. */
static int move_up(struct removal *d, int dirfd, const char *name)
{
	char up[48];

	do {
		snprintf(up, sizeof(up), ".aiod-delete-%u", d->moved++);
		if (renameat2(dirfd, name, d->rootfd, up, RENAME_NOREPLACE) == 0)
			return 0;
	} while (errno == EEXIST);
	return -errno;
}

/*
 * A directory below one that is open. Each level holds an fd, so the depth is
 * limited, by flattening what is deeper.
 */
static int remove_dir(struct removal *d, int dirfd, const char *name, unsigned depth)
{
	struct stat st = { 0 };
	int fd, r;

	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	if (depth >= MAX_OPEN_DEPTH)
		return move_up(d, dirfd, name);
	fd = open_own_dir(dirfd, name, &st);
	if (fd < 0)
		return fd;
	if (st.st_dev != d->dev) {
		close(fd);
		return -EBUSY;
	}
	r = remove_contents(d, fd, depth + 1);
	if (r == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

static int remove_name(struct removal *d, int dirfd, const char *name, unsigned depth)
{
	if (++d->entries % 256 == 0 && request_gone(d->r))
		return -ECANCELED;
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	return errno == EISDIR ? remove_dir(d, dirfd, name, depth) : -errno;
}

/* Takes fd. */
static int remove_contents(struct removal *d, int fd, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = remove_name(d, fd, e->d_name, depth);
	closedir(dir);
	return r;
}

static int remove_tree(struct request *r, const char *path)
{
	struct removal d = { .r = r, .rootfd = -1 };
	struct stat st = { 0 };
	unsigned moved;
	int e, fd;

	d.rootfd = open_own_dir(AT_FDCWD, path, &st);
	if (d.rootfd < 0)
		return d.rootfd;
	d.dev = st.st_dev;
	do {
		moved = d.moved;
		fd = openat(d.rootfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		e = fd < 0 ? -errno : remove_contents(&d, fd, 0);
	} while (e == 0 && d.moved != moved);
	close(d.rootfd);
	if (e == 0 && rmdir(path) < 0)
		e = -errno;
	return e;
}

/* Whether path is the root, the data directory or home: never to be deleted. */
static bool is_precious(const struct server *srv, const struct stat *st)
{
	const char *const precious[] = { "/", SANDBOX_DATA, srv->cfg->map_data, srv->cfg->home };
	struct stat other;

	for (size_t i = 0; i < ARRAY_SIZE(precious); i++)
		if (precious[i] && stat(precious[i], &other) == 0 && other.st_dev == st->st_dev &&
		    other.st_ino == st->st_ino)
			return true;
	return false;
}

static int delete_path(struct request *r, char *path, bool recursive)
{
	size_t len = strlen(path);
	bool slash = false;
	const char *name;
	struct stat st;

	while (len > 1 && path[len - 1] == '/') {
		path[--len] = '\0';
		slash = true;
	}
	name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode)) {
		if (slash)
			return -ENOTDIR;
		return unlink(path) < 0 ? -errno : 0;
	}
	if (is_precious(r->srv, &st))
		return -EBUSY;
	if (rmdir(path) == 0)
		return 0;
	/* EEXIST is the other way to say that a directory is not empty. */
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	return recursive ? remove_tree(r, path) : -ENOTEMPTY;
}

void file_delete(struct request *r)
{
	const struct delete_args *a = r->args;
	char path[PATH_MAX];
	int e = sandbox_path(r->srv, a->path, path);

	if (e == 0)
		e = delete_path(r, path, a->recursive);
	if (e < 0)
		reply_file_error(r, "delete", a->path, -e);
	else
		reply_path(r, a->path);
}

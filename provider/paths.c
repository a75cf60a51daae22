/*
 * The layout of the data root and of the runtime directory. Below the data
 * root everything is opened name by name without following links: sandboxes
 * write there. Knows no sandbox. Blocks on the disk; any thread.
 */
#include "paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io.h"

#define LEGACY_USER "default"
#define DIR_FLAGS   (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/* What a thread has, parents first. */
static const struct {
	const char *name;
	int parent; /* -1: the thread's directory */
} thread_dirs[] = {
	{ "user-data", -1 }, { "workspace", 0 },      { "uploads", 0 },
	{ "outputs", 0 },    { "acp-workspace", -1 },
};
enum { THREAD_DIRS = ARRAY_SIZE(thread_dirs) };

static bool is_dir(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Whether the thread has its directories where deer-flow had them before it knew users. */
static bool is_legacy(const char *data, const char *user, const char *thread)
{
	char *now CLEANUP_FREE = NULL, *then CLEANUP_FREE = NULL;

	if (strcmp(user, LEGACY_USER) != 0)
		return false;
	if (asprintf(&then, "%s/threads/%s", data, thread) < 0) {
		then = NULL;
		return false;
	}
	if (asprintf(&now, "%s/users/%s/threads/%s", data, user, thread) < 0) {
		now = NULL;
		return false;
	}
	return is_dir(then) && !is_dir(now);
}

static char *below_thread(const char *data, const char *user, const char *thread, const char *below)
{
	char *path;
	int r;

	if (is_legacy(data, user, thread))
		r = asprintf(&path, "%s/threads/%s%s", data, thread, below);
	else
		r = asprintf(&path, "%s/users/%s/threads/%s%s", data, user, thread, below);
	return r < 0 ? NULL : path;
}

char *paths_thread_dir(const char *data, const char *user, const char *thread)
{
	return below_thread(data, user, thread, "");
}

char *paths_user_data(const char *data, const char *user, const char *thread)
{
	return below_thread(data, user, thread, "/user-data");
}

char *paths_threads(const char *data, const char *user)
{
	char *path;

	return asprintf(&path, "%s/users/%s/threads", data, user) < 0 ? NULL : path;
}

char *paths_legacy_threads(const char *data, const char *user)
{
	char *path;

	if (strcmp(user, LEGACY_USER) != 0)
		return NULL;
	return asprintf(&path, "%s/threads", data) < 0 ? NULL : path;
}

/* ---- opening and making, one name at a time ---- */

int paths_open_dir(int at, const char *name)
{
	int fd = openat(at, name, DIR_FLAGS | O_NOFOLLOW);
	struct stat st;
	int r;

	if (fd >= 0)
		return fd;
	r = -errno;
	/* Together the two flags say ENOTDIR of a link. */
	if (r == -ENOTDIR && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISLNK(st.st_mode))
		return -ELOOP;
	return r;
}

int paths_make_dir(int at, const char *name, mode_t mode, bool *ret_made)
{
	bool made = mkdirat(at, name, mode) == 0;
	int fd;

	if (!made && errno != EEXIST)
		return -errno;
	fd = paths_open_dir(at, name);
	if (fd >= 0 && ret_made)
		*ret_made = made;
	return fd;
}

int paths_make(const char *path, mode_t mode)
{
	char *p CLEANUP_FREE = strdup(path);
	struct stat st;
	char *end;

	if (!p)
		return -ENOMEM;
	for (end = p + strspn(p, "/"); *end;) {
		char was;

		end += strcspn(end, "/");
		was = *end;
		*end = '\0';
		/* Where we may not write (EACCES, EROFS) it may be there all the same. */
		if (mkdir(p, mode) < 0) {
			int r = -errno;

			if (stat(p, &st) < 0)
				return r;
			if (!S_ISDIR(st.st_mode))
				return -ENOTDIR;
		}
		*end = was;
		end += strspn(end, "/");
	}
	return 0;
}

int paths_open_data(const char *data, bool make)
{
	int fd = open(data, DIR_FLAGS);
	int r;

	if (fd >= 0)
		return fd;
	if (errno != ENOENT || !make)
		return -errno;
	r = paths_make(data, 0700);
	if (r < 0)
		return r;
	fd = open(data, DIR_FLAGS);
	return fd >= 0 ? fd : -errno;
}

static int open_thread(const char *data, const char *user, const char *thread, bool make)
{
	const char *names[] = { "users", user, "threads", thread };
	size_t first = is_legacy(data, user, thread) ? 2 : 0;
	int fd CLEANUP_FD = paths_open_data(data, make);

	for (size_t i = first; i < ARRAY_SIZE(names) && fd >= 0; i++) {
		int next = make ? paths_make_dir(fd, names[i], 0755, NULL)
				: paths_open_dir(fd, names[i]);

		close(fd);
		fd = next;
	}
	return steal_fd(&fd);
}

/* ---- a thread's directories ---- */

struct thread_fds {
	int thread;
	int fds[THREAD_DIRS]; /* -1: missing */
};
#define CLEANUP_THREAD_FDS CLEANUP(close_fds)

static void close_fds(struct thread_fds *t)
{
	cleanup_fd_(&t->thread);
	for (size_t i = 0; i < THREAD_DIRS; i++)
		cleanup_fd_(&t->fds[i]);
}

static void no_fds(struct thread_fds *t)
{
	t->thread = -1;
	for (size_t i = 0; i < THREAD_DIRS; i++)
		t->fds[i] = -1;
}

static int parent_of(const struct thread_fds *t, size_t i)
{
	return thread_dirs[i].parent < 0 ? t->thread : t->fds[thread_dirs[i].parent];
}

/* mkdir(2) minds the umask; and whoever made it may have died before this. */
static int let_all_write(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & 07777) == 0777 || fchmod(fd, 0777) == 0)
		return 0;
	/* Somebody else's is as they want it. */
	return errno == EPERM && st.st_uid != geteuid() ? 0 : -errno;
}

/* Inside user-data a command may have put what it likes in a directory's place: it stays. */
static bool is_the_sandboxs(size_t i, int error)
{
	return thread_dirs[i].parent >= 0 && (error == -ELOOP || error == -ENOTDIR);
}

static int make_thread(const char *data, const char *user, const char *thread, bool all)
{
	struct thread_fds t CLEANUP_THREAD_FDS;
	int r;

	no_fds(&t);
	t.thread = open_thread(data, user, thread, true);
	if (t.thread < 0)
		return t.thread;
	for (size_t i = 0; i < THREAD_DIRS; i++) {
		t.fds[i] = paths_make_dir(parent_of(&t, i), thread_dirs[i].name, 0777, NULL);
		if (!all && is_the_sandboxs(i, t.fds[i]))
			continue;
		r = t.fds[i] < 0 ? t.fds[i] : let_all_write(t.fds[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

int paths_make_thread(const char *data, const char *user, const char *thread)
{
	return make_thread(data, user, thread, false);
}

int paths_make_thread_to_bind(const char *data, const char *user, const char *thread)
{
	return make_thread(data, user, thread, true);
}

static bool belongs(int parent, const char *name)
{
	for (size_t i = 0; i < THREAD_DIRS; i++) {
		if (thread_dirs[i].parent == parent && strcmp(thread_dirs[i].name, name) == 0)
			return true;
	}
	return false;
}

/* 0 if there is nothing in it but those of our directories that belong there. */
static int holds_nothing(int fd, int index)
{
	int again = openat(fd, ".", DIR_FLAGS); /* a position of its own in the directory */
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	const struct dirent *e;
	int r = 0;

	if (!dir) {
		r = -errno;
		cleanup_fd_(&again);
		return r;
	}
	while (r == 0 && (e = dir_next(dir, &r))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    !belongs(index, e->d_name))
			r = -ENOTEMPTY;
	}
	closedir(dir);
	return r;
}

static int open_empty(const char *data, const char *user, const char *thread, struct thread_fds *t)
{
	int r;

	t->thread = open_thread(data, user, thread, false);
	if (t->thread < 0)
		return t->thread;
	r = holds_nothing(t->thread, -1);
	for (size_t i = 0; i < THREAD_DIRS && r == 0; i++) {
		int parent = parent_of(t, i);

		if (parent < 0)
			continue;
		t->fds[i] = paths_open_dir(parent, thread_dirs[i].name);
		if (t->fds[i] >= 0)
			r = holds_nothing(t->fds[i], (int)i);
		else if (t->fds[i] != -ENOENT)
			r = is_the_sandboxs(i, t->fds[i]) ? -ENOTEMPTY : t->fds[i];
	}
	return r;
}

int paths_is_empty(const char *data, const char *user, const char *thread)
{
	struct thread_fds t CLEANUP_THREAD_FDS;

	no_fds(&t);
	return open_empty(data, user, thread, &t);
}

static int remove_dirs(const struct thread_fds *t)
{
	for (size_t i = THREAD_DIRS; i-- > 0;) {
		if (t->fds[i] < 0)
			continue;
		if (unlinkat(parent_of(t, i), thread_dirs[i].name, AT_REMOVEDIR) < 0 &&
		    errno != ENOENT)
			return errno == EEXIST ? -ENOTEMPTY : -errno;
	}
	return 0;
}

int paths_remove_thread(const char *data, const char *user, const char *thread)
{
	struct thread_fds t CLEANUP_THREAD_FDS;
	int parent CLEANUP_FD = -1;
	int r, again;

	no_fds(&t);
	r = open_empty(data, user, thread, &t);
	if (r < 0)
		return r;
	parent = openat(t.thread, "..", DIR_FLAGS);
	if (parent < 0)
		return -errno;
	r = remove_dirs(&t);
	if (r == 0 && unlinkat(parent, thread, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = errno == EEXIST ? -ENOTEMPTY : -errno;
	if (r == -ENOTEMPTY) {
		/* Something came into it while we looked: then all of it is to stay. */
		again = paths_make_thread(data, user, thread);
		if (again < 0)
			r = again;
	}
	return r;
}

/* ---- the runtime directory ---- */

int paths_check_own(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}

/* Makes sure that it is there, ours and nobody else's to look into. */
static int claim_dir(const char *path)
{
	int fd CLEANUP_FD = paths_make_dir(AT_FDCWD, path, 0700, NULL);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	return (st.st_mode & 077) && fchmod(fd, 0700) < 0 ? -errno : 0;
}

const char *paths_own_runtime(bool alone)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (!xdg || xdg[0] != '/' || stat(xdg, &st) < 0 || st.st_uid != geteuid())
		return NULL;
	/* Where others can write, a sticky bit keeps them from what is not theirs. */
	return !(st.st_mode & 022) || (!alone && (st.st_mode & S_ISVTX)) ? xdg : NULL;
}

int paths_runtime(char **ret)
{
	const char *xdg = paths_own_runtime(false);
	char *path CLEANUP_FREE = NULL;
	int r, n;

	if (xdg)
		n = asprintf(&path, "%s/threadfs", xdg);
	else if (geteuid() == 0)
		n = asprintf(&path, "/run/threadfs");
	else
		n = asprintf(&path, "/tmp/threadfs-%u", (unsigned)geteuid());
	if (n < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = claim_dir(path);
	if (r == 0)
		*ret = STEAL(path);
	return r;
}

/*
 * The runtime directory of one sandbox: its files and its two locks (see
 * embedded_i.h). Knows nothing of the loop and starts nothing. Blocks on the
 * disk; for workers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "embedded_i.h"
#include "filelock.h"
#include "ident.h"
#include "io.h"
#include "paths.h"

enum { ENTER_TRIES = 32, WHO_MAX = 8192 };

bool den_is_id(const char *name)
{
	return strlen(name) == SANDBOX_ID_LEN && strspn(name, "0123456789abcdef") == SANDBOX_ID_LEN;
}

bool den_fits(const char *root)
{
	return strlen(root) + 1 + SANDBOX_ID_LEN + sizeof("/sock") <= DEN_PATH;
}

void den_init(struct den *d, const char *root, const char *id)
{
	snprintf(d->root, DEN_PATH, "%s", root);
	snprintf(d->id, sizeof(d->id), "%s", id);
	snprintf(d->dir, DEN_PATH, "%s/%s", root, id);
	snprintf(d->sock, DEN_PATH, "%s/%s/sock", root, id);
	snprintf(d->pid, DEN_PATH, "%s/%s/pid", root, id);
}

/* ---- the directory ---- */

int den_open_root(const char *root)
{
	int fd = paths_open_dir(AT_FDCWD, root);
	int r = fd < 0 ? fd : paths_check_own(fd);

	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}

/*
 * Everything in it is opened, made and removed through this descriptor: it is a
 * directory of ours, not a link, and stays the same one whatever becomes of its
 * name. By their paths, somebody else's files could be in the place of ours.
 */
static int open_dir(const struct den *d)
{
	int root CLEANUP_FD = den_open_root(d->root);
	int fd, r;

	if (root < 0)
		return root;
	fd = paths_open_dir(root, d->id);
	r = fd < 0 ? fd : paths_check_own(fd);
	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}

static int make_dir(const struct den *d)
{
	int root CLEANUP_FD = den_open_root(d->root);

	if (root == -ENOENT) {
		/* Those who clean up old temporary files take empty ones along. */
		int r = paths_make(d->root, 0700);

		if (r < 0)
			return r;
		root = den_open_root(d->root);
	}
	if (root < 0)
		return root;
	return mkdirat(root, d->id, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* ---- locks ---- */

/* A file of ours that has no other name: a second one could be somebody else's. */
static bool is_plain(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1;
}

static int lock_in(int dir, const char *name, bool exclusive, bool make)
{
	struct stat st;

	/* Before it is opened: opening a device may do something. */
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
	} else if (!is_plain(&st)) {
		return S_ISLNK(st.st_mode) ? -ELOOP : -EPERM;
	}
	return filelock_try_at(dir, name, exclusive, make);
}

static int lock_by_name(const struct den *d, const char *name, bool exclusive, bool make)
{
	int dir CLEANUP_FD = open_dir(d);

	return dir < 0 ? dir : lock_in(dir, name, exclusive, make);
}

int den_lock_users(const struct den *d, bool exclusive, bool make)
{
	return lock_by_name(d, "users", exclusive, make);
}

int den_enter(const struct den *d, int *ret_users)
{
	int fd = -EAGAIN;

	/* Somebody who removes it may do so between the two. */
	for (unsigned i = 0; i < ENTER_TRIES; i++) {
		int r = make_dir(d);

		if (r < 0)
			return r;
		fd = den_lock_users(d, false, true);
		if (fd != -ENOENT)
			break;
	}
	if (fd < 0)
		return fd == -ENOENT ? -EAGAIN : fd;
	*ret_users = fd;
	return 0;
}

static int is_alive_in(int dir)
{
	int fd = lock_in(dir, "alive", false, false);

	if (fd == -EAGAIN)
		return 1;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	close(fd);
	return 0;
}

int den_is_alive(const struct den *d)
{
	int dir CLEANUP_FD = open_dir(d);

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	return is_alive_in(dir);
}

static int claim_in(int dir)
{
	int fd = lock_in(dir, "alive", true, true);
	int r;

	if (fd != -EAGAIN)
		return fd;
	/* Those who only look have a shared lock, and do not keep another looker out. */
	r = is_alive_in(dir);
	return r > 0 ? -EEXIST : r < 0 ? r : -EAGAIN;
}

int den_claim(const struct den *d)
{
	int dir CLEANUP_FD = open_dir(d);

	return dir < 0 ? dir : claim_in(dir);
}

/* ---- whose it is, and which process ---- */

static ssize_t read_text(const struct den *d, const char *name, char *to, size_t size)
{
	int dir CLEANUP_FD = open_dir(d), fd CLEANUP_FD = -1;
	struct stat st;
	ssize_t n;

	if (dir < 0)
		return dir;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPERM;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, to, size - 1);
	if (n < 0)
		return -errno;
	to[n] = '\0';
	return n;
}

int den_write_who(const struct den *d, const char *user, const char *thread, const char *root)
{
	int dir CLEANUP_FD = open_dir(d), fd CLEANUP_FD = -1;
	char text[WHO_MAX];
	int n, r;

	n = snprintf(text, sizeof(text), "%s\n%s\n%s%s", user, thread, root ?: "",
		     root ? "\n" : "");
	if (n >= (int)sizeof(text))
		return -EINVAL;
	if (dir < 0)
		return dir;
	if (unlinkat(dir, "who.tmp", 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir, "who.tmp", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, (size_t)n);
	if (r == 0 && renameat(dir, "who.tmp", dir, "who") < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir, "who.tmp", 0);
	return r;
}

/* What `pid` says; 0: nothing. */
static pid_t read_pid(const struct den *d)
{
	char text[32];
	long pid = 0;

	if (read_text(d, "pid", text, sizeof(text)) > 0)
		pid = strtol(text, NULL, 10);
	return pid > 1 && pid < INT32_MAX ? (pid_t)pid : 0;
}

int den_place(const struct den *d, struct place *ret)
{
	struct place p CLEANUP_PLACE = { 0 };
	char text[WHO_MAX], *user = text, *thread, *end, *root;

	memcpy(p.id, d->id, sizeof(p.id));
	p.pid = read_pid(d);
	p.socket = strdup(d->sock);
	if (!p.socket)
		return -ENOMEM;
	if (read_text(d, "who", text, sizeof(text)) > 0 && (thread = strchr(text, '\n')) &&
	    (end = strchr(thread + 1, '\n'))) {
		*thread++ = *end = '\0';
		if (ident_is_user(user) && ident_is_thread(thread)) {
			p.user = strdup(user);
			p.thread = strdup(thread);
			if (!p.user || !p.thread)
				return -ENOMEM;
		}
		root = end + 1;
		end = strchr(root, '\n');
		if (root[0] == '/' && end) {
			*end = '\0';
			p.root = strdup(root);
			if (!p.root)
				return -ENOMEM;
		}
	}
	*ret = p;
	p = (struct place){ 0 };
	return 0;
}

int den_find(const struct den *d, struct process *ret)
{
	int dir CLEANUP_FD = open_dir(d);
	struct stat st;

	if (dir < 0)
		return dir;
	if (fstatat(dir, "alive", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	/* Whoever holds the lock of another file is no sandbox, and not to be stopped. */
	if (!is_plain(&st))
		return -EPERM;
	/* The file may be missing, or tell of an earlier one: the lock tells the truth. */
	return process_find_holder(&st, read_pid(d), ret);
}

/* ---- removing ---- */

/* Names that we or the sandbox make, but the locks. Nothing else is ever removed. */
static bool is_ours(const char *name)
{
	static const char *const names[] = { "sock", "pid", "who", "who.tmp" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	/* The sandbox's pid file before it is in place. */
	return strncmp(name, "pid.", 4) == 0 && name[4] &&
	       strspn(name + 4, "0123456789") == strlen(name + 4);
}

static void sweep_in(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!dir) {
		cleanup_fd_(&fd);
		return;
	}
	while ((e = readdir(dir)))
		if (is_ours(e->d_name))
			unlinkat(dir_fd, e->d_name, 0);
	closedir(dir);
}

int den_sweep(const struct den *d, int alive)
{
	int dir CLEANUP_FD = open_dir(d);

	if (dir < 0)
		return dir;
	if (!filelock_is_at(alive, dir, "alive"))
		return -ESTALE;
	sweep_in(dir);
	return 0;
}

void den_remove(const struct den *d, int users, int alive)
{
	int dir CLEANUP_FD = open_dir(d), root CLEANUP_FD = -1;

	/* Our locks are on the files of this very directory, or it is none of our business. */
	if (dir < 0 || !filelock_is_at(users, dir, "users") ||
	    !filelock_is_at(alive, dir, "alive")) {
		close(alive);
		close(users);
		return;
	}
	sweep_in(dir);
	filelock_remove_at(dir, "alive", alive);
	filelock_remove_at(dir, "users", users);
	/* Not if somebody has come in the moment before: then it is theirs. */
	root = den_open_root(d->root);
	if (root >= 0)
		unlinkat(root, d->id, AT_REMOVEDIR);
}

int den_bury(const struct den *d, int users)
{
	int dir CLEANUP_FD = open_dir(d);
	int alive;

	if (dir == -ENOENT) {
		close(users);
		return 0;
	}
	if (dir < 0)
		return dir;
	if (!filelock_is_at(users, dir, "users"))
		return -ESTALE;
	alive = claim_in(dir);
	if (alive < 0)
		return alive;
	den_remove(d, users, alive);
	return 0;
}

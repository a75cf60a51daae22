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

enum { ENTER_TRIES = 32, WHO_MAX = 512 };

bool den_is_id(const char *name)
{
	return strlen(name) == SANDBOX_ID_LEN && strspn(name, "0123456789abcdef") == SANDBOX_ID_LEN;
}

bool den_fits(const char *root)
{
	/* "/ID/alive" is the longest; the temporary names are longer but no sockets. */
	return strlen(root) + 1 + SANDBOX_ID_LEN + sizeof("/alive") <= DEN_PATH;
}

void den_init(struct den *d, const char *root, const char *id)
{
	snprintf(d->dir, DEN_PATH, "%s/%s", root, id);
	snprintf(d->sock, DEN_PATH, "%s/%s/sock", root, id);
	snprintf(d->alive, DEN_PATH, "%s/%s/alive", root, id);
	snprintf(d->users, DEN_PATH, "%s/%s/users", root, id);
	snprintf(d->who, DEN_PATH, "%s/%s/who", root, id);
	snprintf(d->pid, DEN_PATH, "%s/%s/pid", root, id);
}

/* ---- locks ---- */

/*
 * Whether it is a directory, itself and not through a link, and ours. Nothing
 * below a path is opened, made or removed without that: a link in its place
 * would lead us to somebody else's files.
 */
static int check_dir(const struct den *d)
{
	struct stat st;

	if (lstat(d->dir, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return st.st_uid == geteuid() ? 0 : -EPERM;
}

int den_lock_users(const struct den *d, bool exclusive, bool make)
{
	int r = check_dir(d);

	if (r < 0)
		return r;
	return make ? filelock_try(d->users, exclusive)
		    : filelock_try_existing(d->users, exclusive);
}

int den_enter(const struct den *d, int *ret_users)
{
	int fd = -EAGAIN;

	/* Somebody who removes it may do so between the two. */
	for (unsigned i = 0; i < ENTER_TRIES; i++) {
		if (mkdir(d->dir, 0700) < 0 && errno != EEXIST)
			return -errno;
		fd = den_lock_users(d, false, true);
		if (fd != -ENOENT)
			break;
	}
	if (fd < 0)
		return fd == -ENOENT ? -EAGAIN : fd;
	*ret_users = fd;
	return 0;
}

int den_is_alive(const struct den *d)
{
	int fd = check_dir(d);

	if (fd == 0)
		fd = filelock_try_existing(d->alive, false);
	if (fd == -EAGAIN)
		return 1;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	close(fd);
	return 0;
}

int den_claim(const struct den *d)
{
	int fd = filelock_try(d->alive, true);
	int r;

	if (fd != -EAGAIN)
		return fd;
	/* Those who only look have a shared lock, and do not keep another looker out. */
	r = den_is_alive(d);
	return r > 0 ? -EEXIST : r < 0 ? r : -EAGAIN;
}

/* ---- whose it is, and which process ---- */

static ssize_t read_text(const char *path, char *to, size_t size)
{
	int fd CLEANUP_FD = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, to, size - 1);
	if (n < 0)
		return -errno;
	to[n] = '\0';
	return n;
}

int den_write_who(const struct den *d, const char *user, const char *thread)
{
	char tmp[DEN_PATH + 8], text[WHO_MAX];
	int fd CLEANUP_FD = -1;
	int n, r;

	n = snprintf(text, sizeof(text), "%s\n%s\n", user, thread);
	if (n >= (int)sizeof(text))
		return -EINVAL;
	snprintf(tmp, sizeof(tmp), "%s.tmp", d->who);
	unlink(tmp);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, (size_t)n);
	if (r == 0 && rename(tmp, d->who) < 0)
		r = -errno;
	if (r < 0)
		unlink(tmp);
	return r;
}

int den_place(const struct den *d, const char *id, struct place *ret)
{
	struct place p CLEANUP_PLACE = { 0 };
	char text[WHO_MAX], *user = text, *thread, *end;

	memcpy(p.id, id, sizeof(p.id));
	p.socket = strdup(d->sock);
	if (!p.socket)
		return -ENOMEM;
	if (read_text(d->who, text, sizeof(text)) > 0 && (thread = strchr(text, '\n')) &&
	    (end = strchr(thread + 1, '\n'))) {
		*thread++ = *end = '\0';
		if (ident_is_user(user) && ident_is_thread(thread)) {
			p.user = strdup(user);
			p.thread = strdup(thread);
			if (!p.user || !p.thread)
				return -ENOMEM;
		}
	}
	*ret = p;
	p = (struct place){ 0 };
	return 0;
}

int den_find(const struct den *d, struct process *ret)
{
	char text[32];
	long hint = 0;

	if (read_text(d->pid, text, sizeof(text)) > 0)
		hint = strtol(text, NULL, 10);
	/* The file may be missing, or tell of an earlier one: the lock tells the truth. */
	return process_find_holder(d->alive, hint > 0 && hint < INT32_MAX ? (pid_t)hint : 0, ret);
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

void den_sweep(const struct den *d)
{
	int fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!dir) {
		cleanup_fd_(&fd);
		return;
	}
	while ((e = readdir(dir)))
		if (is_ours(e->d_name))
			unlinkat(fd, e->d_name, 0);
	closedir(dir);
}

void den_remove(const struct den *d, int users, int alive)
{
	den_sweep(d);
	if (alive >= 0)
		filelock_remove(d->alive, alive);
	filelock_remove(d->users, users);
	/* Not if somebody has come in the moment before: then it is theirs. */
	rmdir(d->dir);
}

int den_bury(const struct den *d, int users)
{
	int alive = check_dir(d);

	if (alive == 0)
		alive = den_claim(d);

	if (alive < 0)
		return alive;
	den_remove(d, users, alive);
	return 0;
}

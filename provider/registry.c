/*
 * The registry's files. A new one is written under a name that no thread can
 * have (it begins with a dot), made durable, then renamed. Its writer holds a
 * lock on it until then, so that others can tell what a crash left behind.
 * Knows no sandbox. Blocks on the disk; any thread.
 */
#include "registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "clock.h"
#include "ident.h"
#include "io.h"
#include "json.h"
#include "jsonw.h"
#include "log.h"
#include "paths.h"
#include "uuid.h"

enum {
	FILE_MAX = 64 * 1024,
	NAME_SIZE = 64 + sizeof(".json"),
	TMP_SIZE = 64,
	TRIES = 8,
};

void registry_entry_release(struct registry_entry *e)
{
	free(e->user);
	free(e->thread);
	free(e->backend);
	*e = (struct registry_entry){ 0 };
}
#define CLEANUP_ENTRY CLEANUP(registry_entry_release)

static void file_name(const char *thread, char name[NAME_SIZE])
{
	snprintf(name, NAME_SIZE, "%s.json", thread);
}

/* ---- directories ---- */

/* The user's directory, or -ENOENT. */
static int open_user(const char *data, const char *user)
{
	int root CLEANUP_FD = paths_open_data(data, false);
	int registry CLEANUP_FD = -1;

	if (root < 0)
		return root;
	registry = paths_open_dir(root, "registry");
	return registry < 0 ? registry : paths_open_dir(registry, user);
}

/* As paths_make_dir(), and the new name survives a crash. */
static int make_dir(int at, const char *name)
{
	bool made;
	int fd CLEANUP_FD = paths_make_dir(at, name, 0700, &made);

	if (fd >= 0 && made && fsync(at) < 0)
		return -errno;
	return steal_fd(&fd);
}

static int make_user(const char *data, const char *user)
{
	int root CLEANUP_FD = paths_open_data(data, true);
	int registry CLEANUP_FD = -1;

	if (root < 0)
		return root;
	registry = make_dir(root, "registry");
	return registry < 0 ? registry : make_dir(registry, user);
}

static DIR *list(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int err = errno;

	if (!d)
		cleanup_fd_(&fd);
	errno = err;
	return d;
}

/* ---- reading ---- */

static int read_text(int dir, const char *name, struct buf *text, const char **ret_why)
{
	int fd CLEANUP_FD = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	ssize_t n;
	int r;

	*ret_why = "it cannot be read";
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		*ret_why = "it is no file";
		return -EINVAL;
	}
	/* Not what its size says: somebody may be writing to it. */
	r = buf_reserve(text, FILE_MAX + 1);
	if (r < 0)
		return r;
	while (text->len <= FILE_MAX) {
		n = read(fd, text->data + text->len, FILE_MAX + 1 - text->len);
		if (n == 0)
			return 0;
		if (n > 0)
			text->len += (size_t)n;
		else if (errno != EINTR)
			return -errno;
	}
	*ret_why = "it is too large";
	return -EFBIG;
}

static const char *string_at(const cJSON *j, const char *key)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, key));

	return s && !json_has_nul(s) ? s : NULL;
}

static bool is_same(const char *a, const char *b)
{
	return a && strcmp(a, b) == 0;
}

static int decode(struct buf *text, const char *user, const char *thread,
		  struct registry_entry *ret, const char **ret_why)
{
	struct registry_entry e CLEANUP_ENTRY = { 0 };
	const cJSON *created;
	cJSON *j CLEANUP_JSON = NULL;
	int r = json_parse(text->data, text->len, &j, ret_why);

	if (r < 0)
		return r;
	if (!is_same(string_at(j, "user"), user) || !is_same(string_at(j, "thread"), thread)) {
		*ret_why = "it names another thread";
		return -EINVAL;
	}
	created = cJSON_GetObjectItemCaseSensitive(j, "created");
	e.created = cJSON_IsNumber(created) ? created->valuedouble : 0;
	e.user = strdup(user);
	e.thread = strdup(thread);
	e.backend = strdup(string_at(j, "backend") ?: "");
	if (!e.user || !e.thread || !e.backend)
		return -ENOMEM;
	*ret = e;
	e = (struct registry_entry){ 0 };
	return 0;
}

/* Says nothing about the file: it may be as good as ever. */
static bool is_shortage(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* 0, -ENOENT, a shortage, or another errno for what is not an entry (and has been logged). */
static int load(int dir, const char *user, const char *thread, struct registry_entry *ret)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	const char *why = NULL;
	char name[NAME_SIZE];
	int r;

	file_name(thread, name);
	r = read_text(dir, name, &text, &why);
	if (r == 0)
		r = decode(&text, user, thread, ret, &why);
	if (r < 0 && r != -ENOENT && !is_shortage(r))
		log_warn("registry/%s/%s is of no use: %s (%s)", user, name, why ?: "",
			 strerrorname_np(-r));
	return r;
}

/* "THREAD.json" */
static bool is_entry(const char *name, char thread[NAME_SIZE])
{
	size_t len = strlen(name);

	if (len <= 5 || len >= NAME_SIZE || strcmp(name + len - 5, ".json") != 0)
		return false;
	memcpy(thread, name, len - 5);
	thread[len - 5] = '\0';
	return ident_is_thread(thread);
}

int registry_read(const char *data, const char *user,
		  int (*each)(void *ctx, const struct registry_entry *e), void *ctx)
{
	int dir CLEANUP_FD = open_user(data, user);
	const struct dirent *d;
	char thread[NAME_SIZE];
	DIR *names;
	int r = 0;

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	names = list(dir);
	if (!names)
		return -errno;
	while (r == 0 && (d = dir_next(names, &r))) {
		struct registry_entry e CLEANUP_ENTRY = { 0 };

		if (!is_entry(d->d_name, thread))
			continue;
		r = load(dir, user, thread, &e);
		if (r == 0)
			r = each(ctx, &e);
		else if (!is_shortage(r))
			r = 0;
	}
	closedir(names);
	return r;
}

/* ---- writing ---- */

static bool is_tmp(const char *name)
{
	size_t len = strlen(name);

	return name[0] == '.' && len > 4 && strcmp(name + len - 4, ".tmp") == 0;
}

/* What has no writer any more. Whoever has just made one and finds it locked makes another. */
static void remove_leftovers(int dir)
{
	const struct dirent *d;
	DIR *names = list(dir);

	if (!names)
		return;
	while ((d = readdir(names))) {
		int fd CLEANUP_FD = -1;

		if (!is_tmp(d->d_name))
			continue;
		fd = openat(dir, d->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(dir, d->d_name, 0);
	}
	closedir(names);
}

/* A new file, locked by us: its descriptor. */
static int make_tmp(int dir, char name[TMP_SIZE])
{
	for (unsigned i = 0; i < TRIES; i++) {
		int fd CLEANUP_FD = -1;
		char unique[TMP_SIZE];
		struct stat st;
		int r;

		uuid_make(unique);
		snprintf(name, TMP_SIZE, ".%.40s.tmp", unique);
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			r = -errno;
			if (r == -EWOULDBLOCK)
				continue; /* somebody takes it for a leftover */
			unlinkat(dir, name, 0);
			return r;
		}
		if (fstat(fd, &st) < 0)
			return -errno;
		if (st.st_nlink > 0)
			return steal_fd(&fd);
	}
	return -EAGAIN;
}

static int encode(struct buf *out, const char *user, const char *thread, const char *backend)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "user", user);
	jw_kstr(&w, "thread", thread);
	jw_kstr(&w, "backend", backend);
	jw_knum(&w, "created", clock_wall());
	jw_obj_end(&w);
	return buf_putc(out, '\n');
}

/* One that somebody else put there meanwhile stays, but not one that is of no use. */
static int put_in_place(int dir, const char *tmp, const char *name, bool replace)
{
	if (!replace) {
		if (renameat2(dir, tmp, dir, name, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno == EEXIST) {
			unlinkat(dir, tmp, 0);
			return 0;
		}
		if (errno != EINVAL && errno != ENOSYS)
			return -errno;
	}
	return renameat(dir, tmp, dir, name) < 0 ? -errno : 0;
}

static int store(int dir, const char *user, const char *thread, const char *backend, bool replace)
{
	struct buf text CLEANUP_BUF = BUF_INIT(FILE_MAX);
	char tmp[TMP_SIZE], name[NAME_SIZE];
	int fd CLEANUP_FD = -1;
	int r = encode(&text, user, thread, backend);

	if (r < 0)
		return r;
	fd = make_tmp(dir, tmp);
	if (fd < 0)
		return fd;
	file_name(thread, name);
	r = write_all(fd, text.data, text.len);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0)
		r = put_in_place(dir, tmp, name, replace);
	if (r < 0)
		unlinkat(dir, tmp, 0);
	return r;
}

int registry_add(const char *data, const char *user, const char *thread, const char *backend)
{
	int dir CLEANUP_FD = make_user(data, user);
	struct registry_entry e CLEANUP_ENTRY = { 0 };
	int r;

	if (dir < 0)
		return dir;
	remove_leftovers(dir);
	r = load(dir, user, thread, &e);
	if (is_shortage(r))
		return r;
	if (r < 0)
		r = store(dir, user, thread, backend ?: "", r != -ENOENT);
	/* Also for one that was there: whoever wrote it may not have come so far. */
	if (r == 0 && fsync(dir) < 0)
		r = -errno;
	return r;
}

int registry_remove(const char *data, const char *user, const char *thread)
{
	int dir CLEANUP_FD = open_user(data, user);
	char name[NAME_SIZE];

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	file_name(thread, name);
	if (unlinkat(dir, name, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return fsync(dir) < 0 ? -errno : 0;
}

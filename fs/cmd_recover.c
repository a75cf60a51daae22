/*
 * threadfs recover: what is kept in a cache directory because no sandbox has
 * confirmed it (ledger.h). Looking and saving need no mount; what a mount
 * works on is its own, and asked of it. One thread.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd.h"
#include "home.h"
#include "in_force.h"
#include "io.h"
#include "ledger.h"
#include "mounts.h"
#include "status_text.h"
#include "uuid.h"

struct recovery {
	const struct recover_args *args;
	char *point; /* of the mount; NULL: none */
	char *cache;
	int dir; /* the ledger */
	int to;  /* of --save */
	char boot[UUID_LEN + 1];
	unsigned done; /* so many */
	int status;
	struct table table;
};

/* ---- where ---- */

/* The mount says itself which directory it uses. */
static int ask_mount(const char *point, char **ret)
{
	struct buf config CLEANUP_BUF = BUF_INIT(0);
	int r = in_force_read(point, &config);

	if (r < 0)
		return r;
	*ret = in_force_value(&config, "cache");
	return *ret ? 0 : -ENOENT;
}

static int find_mount(struct recovery *v)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	char *whole CLEANUP_FREE = NULL;
	const struct mount_entry *mount;
	int r = mounts_read(&m);

	if (r == 0)
		r = mounts_resolve(&m, v->args->path, &whole);
	if (r < 0)
		return cmd_fail("'%s': %s", v->args->path, strerrordesc_np(-r));
	mount = mounts_around(&m, whole);
	if (!mount_entry_is_ours(mount))
		return cmd_fail(
			"'%s' is not in a mount of threadfs (--cache DIR shows what one left)",
			v->args->path);
	v->point = strdup(mount->point);
	r = v->point ? ask_mount(v->point, &v->cache) : -ENOMEM;
	if (r < 0)
		return cmd_fail("'%s': %s", mount->point, strerrordesc_np(-r));
	return 0;
}

/* 0, or the exit status; v->dir -1: there is none, and so nothing in it. */
static int open_ledger(struct recovery *v)
{
	int cache CLEANUP_FD = -1;
	int r = 0;

	if (v->args->path)
		r = find_mount(v);
	else if (v->args->cache)
		r = home_absolute(v->args->cache, &v->cache);
	else if (getenv("THREADFS_CACHE"))
		r = home_absolute(getenv("THREADFS_CACHE"), &v->cache);
	else
		r = home_xdg("XDG_CACHE_HOME", ".cache", &v->cache);
	if (r > 0)
		return r;
	if (r < 0)
		return cmd_fail("the cache directory: %s", strerrordesc_np(-r));
	assert(v->cache);
	cache = open(v->cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	v->dir = cache < 0 ? -errno : ledger_open(cache, false);
	/* One that is named is expected to be there. */
	if (v->dir == -ENOENT && (cache >= 0 || !v->args->cache)) {
		v->dir = -1;
		return 0;
	}
	if (v->dir < 0)
		return cmd_fail("'%s': %s", v->cache, strerrordesc_np(-v->dir));
	return 0;
}

/* What a failure of the power may have taken part of. */
static const char *doubt(const struct recovery *v, const struct ledger_found *f)
{
	return ledger_is_certain(&f->rec, v->boot, f->size) ? "" : ", may be incomplete";
}

/* ---- --list ---- */

static void add_state(struct recovery *v, const struct ledger_found *f)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&text, f->busy ? "mounted" : "waits");
	if (f->rec.error)
		buf_printf(&text, " (%s)", text_errno(f->rec.error));
	buf_puts(&text, doubt(v, f));
	table_take(&v->table, &text);
}

static int list_one(void *ctx, struct ledger_found *f, int err, const char *why)
{
	struct recovery *v = ctx;
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	char when[TEXT_TIME];

	if (err < 0) {
		text_escape(&text, f->name, 64);
		v->status = cmd_fail("%s/" LEDGER_DIR "/%s is left alone: %s", v->cache, text.data,
				     why);
		return 0;
	}
	if (f->rec.settled)
		return 0;
	v->done++;
	buf_printf(&text, "%.8s", f->name);
	table_take(&v->table, &text);
	add_state(v, f);
	text_size(&text, f->size - MIN(f->rec.from, f->size));
	table_take(&v->table, &text);
	table_cell(&v->table, text_time((double)f->rec.mtime.tv_sec, when));
	table_cell(&v->table, f->rec.source);
	table_cell(&v->table, f->rec.user);
	buf_printf(&text, "%s/%s%s", f->rec.thread, f->rec.path,
		   f->rec.kind == LEDGER_PATCH    ? " (parts of it)"
		   : f->rec.kind == LEDGER_APPEND ? " (appended)"
						  : "");
	table_cell(&v->table, text.data);
	return 0;
}

static int list(struct recovery *v)
{
	static const char *const heads[] = { "RECORD", "STATE", "SIZE", "WRITTEN",
					     "SOURCE", "USER",  "FILE" };
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	int r;

	v->table.columns = ARRAY_SIZE(heads);
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
		table_cell(&v->table, heads[i]);
	r = v->dir >= 0 ? ledger_scan(v->dir, list_one, v) : 0;
	if (r == 0 && v->done > 0)
		r = table_print(&v->table, &text);
	else if (r == 0)
		r = buf_printf(&text, "nothing is waiting in %s\n", v->cache);
	if (r < 0)
		return cmd_fail("'%s': %s", v->cache, strerrordesc_np(-r));
	fputs(text.data, stdout);
	return fflush(stdout) != 0 ? EXIT_FAILURE : v->status;
}

/* ---- --save ---- */

/* The directory below, made if it is missing, never through a link; at is closed. */
static int go_down(int at, const char *name)
{
	int dir = -1, r = 0;

	if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0) {
		dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = dir < 0 ? -errno : 0;
	}
	close(at);
	return r < 0 ? r : dir;
}

/* The directory of a path, which is cut into its parts; its last one is left in *path. */
static int make_dirs(int at, char **path)
{
	int dir = fcntl(at, F_DUPFD_CLOEXEC, 0);

	if (dir < 0)
		return -errno;
	while (dir >= 0 && strchr(*path, '/'))
		dir = go_down(dir, strsep(path, "/"));
	return dir;
}

/* A name that nobody has: the file's own, or with the record's behind it. */
static int create(int dir, const char *name, const char *record)
{
	char *other CLEANUP_FREE = NULL;
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd >= 0 || errno != EEXIST)
		return fd < 0 ? -errno : fd;
	if (asprintf(&other, "%.200s.%.8s", name, record) < 0)
		return -ENOMEM;
	fd = openat(dir, other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static int copy_out(const struct ledger_found *f, int to)
{
	char piece[64 * 1024];
	uint64_t at = f->rec.from;

	while (at < f->size) {
		ssize_t n = pread_all(f->fd, piece, sizeof(piece), LEDGER_HEAD + at);
		int r;

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		r = write_all(to, piece, (size_t)n);
		if (r < 0)
			return r;
		at += (uint64_t)n;
	}
	return fsync(to) < 0 ? -errno : 0;
}

static int save_one(struct recovery *v, const struct ledger_found *f)
{
	char *path CLEANUP_FREE = NULL;
	char *name;
	int dir CLEANUP_FD = -1, fd CLEANUP_FD = -1;
	int r;

	if (asprintf(&path, "%s/%s", f->rec.thread, f->rec.path) < 0)
		return -ENOMEM;
	name = path;
	dir = make_dirs(v->to, &name);
	if (dir < 0)
		return dir;
	fd = create(dir, name, f->name);
	r = fd < 0 ? fd : copy_out(f, fd);
	if (r == 0 && f->rec.mode >= 0)
		(void)!fchmod(fd, (mode_t)f->rec.mode & 0700);
	return r;
}

/* ---- --discard ---- */

static int ask_to_discard(const struct recovery *v, const char *name)
{
	char *path CLEANUP_FREE = NULL;
	char words[64];
	int fd CLEANUP_FD = -1;

	if (asprintf(&path, "%s/.ctl/recover", v->point) < 0)
		return -ENOMEM;
	snprintf(words, sizeof(words), "discard %.36s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 || write(fd, words, strlen(words)) < 0 ? -errno : 0;
}

/* With its lock; or by the one who has it. */
static int discard_one(struct recovery *v, const struct ledger_found *f)
{
	if (!f->busy)
		return unlinkat(v->dir, f->name, 0) < 0 ? -errno : 0;
	return v->point ? ask_to_discard(v, f->name) : -EBUSY;
}

/* ---- each of them ---- */

static void do_one(struct recovery *v, const struct ledger_found *f)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	int r;

	if (f->rec.settled)
		return;
	r = v->args->save ? save_one(v, f) : discard_one(v, f);
	buf_printf(&text, "%s/", f->rec.thread);
	text_escape(&text, f->rec.path, 0);
	if (r == 0) {
		v->done++;
		if (v->args->save)
			printf("saved %s%s\n", text.data, doubt(v, f));
		else
			printf("discarded %s\n", text.data);
	} else {
		v->status = cmd_fail(
			"%s: %s%s", text.data, strerrordesc_np(-r),
			r != -EBUSY ? ""
			: v->point  ? " (it is open there, or on its way: remove the file instead)"
				    : " (a mount has it: name its mountpoint)");
	}
}

static int do_found(void *ctx, struct ledger_found *f, int err, const char *why UNUSED)
{
	if (err == 0)
		do_one(ctx, f);
	return 0;
}

static int do_some(struct recovery *v)
{
	int r = 0;

	if (v->dir >= 0 && !v->args->records[0])
		r = ledger_scan(v->dir, do_found, v);
	for (char **name = v->args->records; *name; name++) {
		struct ledger_found f = { .fd = -1 };

		r = v->dir >= 0 ? ledger_find(v->dir, *name, &f) : -ENOENT;
		if (r == 0)
			do_one(v, &f);
		else
			v->status = cmd_fail("'%s': %s", *name,
					     r == -EEXIST   ? "several records begin so"
					     : r == -EINVAL ? "not the beginning of a record"
							    : strerrordesc_np(-r));
		ledger_found_release(&f);
		r = 0;
	}
	if (r < 0)
		return cmd_fail("'%s': %s", v->cache, strerrordesc_np(-r));
	if (v->done == 0 && v->status == 0)
		printf("nothing is waiting in %s\n", v->cache);
	return fflush(stdout) != 0 ? EXIT_FAILURE : v->status;
}

static int retry(const struct recovery *v)
{
	char *path CLEANUP_FREE = NULL;
	int fd CLEANUP_FD = -1;

	if (asprintf(&path, "%s/.ctl/recover", v->point) < 0)
		return cmd_fail("%s", strerrordesc_np(ENOMEM));
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || write(fd, "retry", 5) != 5)
		return cmd_fail("'%s': %s", v->point, strerrordesc_np(errno));
	return 0;
}

static int run(struct recovery *v)
{
	int r = open_ledger(v);

	if (r != 0)
		return r;
	if (v->args->retry)
		return retry(v);
	if (!v->args->save && !v->args->discard)
		return list(v);
	if (v->args->save) {
		if (mkdir(v->args->save, 0700) < 0 && errno != EEXIST)
			return cmd_fail("'%s': %s", v->args->save, strerrordesc_np(errno));
		v->to = open(v->args->save, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (v->to < 0)
			return cmd_fail("'%s': %s", v->args->save, strerrordesc_np(errno));
	}
	return do_some(v);
}

int cmd_recover(const struct recover_args *a)
{
	struct recovery v = { .args = a, .dir = -1, .to = -1 };
	int status;

	ledger_boot(v.boot);
	status = run(&v);
	table_release(&v.table);
	if (v.dir >= 0)
		close(v.dir);
	if (v.to >= 0)
		close(v.to);
	free(v.point);
	free(v.cache);
	return status;
}

/* See every.h. The table is in the order of sandbox.h. */
#include "every.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io.h"

/* A line is ten bytes, so that any cut shows. */
static void content(char *to)
{
	for (int i = 0; i < EVERY_SIZE; i += 10)
		memcpy(to + i, "123456789\n", 10);
}

/* Three paths at once at most. */
static const char *in(struct attempt *a, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(a->paths); i++) {
		if (a->paths[i][0])
			continue;
		snprintf(a->paths[i], sizeof(a->paths[i]), "%s/%s", a->dir, name);
		return a->paths[i];
	}
	abort();
}

/* ---- what it is ---- */

static void start_context(struct attempt *a, struct sandbox *sb)
{
	sandbox_context(sb, &a->call, &a->result.info);
}

static void release_info(struct attempt *a)
{
	sandbox_info_release(&a->result.info);
}

static void start_wait_ready(struct attempt *a, struct sandbox *sb)
{
	sandbox_wait_ready(sb, &a->call, 200, 20);
}

static void start_ping(struct attempt *a, struct sandbox *sb)
{
	sandbox_ping(sb, &a->call);
}

/* ---- directories and attributes ---- */

static void start_list(struct attempt *a, struct sandbox *sb)
{
	sandbox_list(sb, &a->call, a->dir, 1, &a->result.entries);
}

static void start_tree(struct attempt *a, struct sandbox *sb)
{
	sandbox_list(sb, &a->call, a->dir, 0, &a->result.entries);
}

static void start_trees(struct attempt *a, struct sandbox *sb)
{
	static const char *const names[] = { "file", "empty", "link", "other" };

	sandbox_list_trees(sb, &a->call, a->dir, names, ARRAY_SIZE(names), 100, &a->result.entries);
}

static void start_near(struct attempt *a, struct sandbox *sb)
{
	sandbox_list_near(sb, &a->call, a->dir, 2, 0, &a->result.entries);
}

static void release_entries(struct attempt *a)
{
	entries_release(&a->result.entries);
}

static void start_lstat(struct attempt *a, struct sandbox *sb)
{
	sandbox_lstat(sb, &a->call, in(a, "file"), &a->result.attr);
}

static void start_readlink(struct attempt *a, struct sandbox *sb)
{
	sandbox_readlink(sb, &a->call, in(a, "link"), &a->result.text);
}

static void release_text(struct attempt *a)
{
	free(a->result.text);
}

static void start_mkdir(struct attempt *a, struct sandbox *sb)
{
	sandbox_mkdir(sb, &a->call, in(a, "new"), 0755, NULL);
}

static void start_rmdir(struct attempt *a, struct sandbox *sb)
{
	sandbox_rmdir(sb, &a->call, in(a, "empty"));
}

static void start_unlink(struct attempt *a, struct sandbox *sb)
{
	sandbox_unlink(sb, &a->call, in(a, "other"));
}

static void start_rename(struct attempt *a, struct sandbox *sb)
{
	sandbox_rename(sb, &a->call, in(a, "other"), in(a, "new"), 0, NULL);
}

static void start_rename_noreplace(struct attempt *a, struct sandbox *sb)
{
	sandbox_rename(sb, &a->call, in(a, "other"), in(a, "new"), RENAME_NOREPLACE, NULL);
}

static void start_link(struct attempt *a, struct sandbox *sb)
{
	sandbox_link(sb, &a->call, in(a, "other"), in(a, "new"), NULL);
}

static void start_symlink(struct attempt *a, struct sandbox *sb)
{
	sandbox_symlink(sb, &a->call, "../anywhere", in(a, "new"), NULL);
}

static void start_chmod(struct attempt *a, struct sandbox *sb)
{
	sandbox_chmod(sb, &a->call, in(a, "other"), 0640, NULL);
}

static void start_utimens(struct attempt *a, struct sandbox *sb)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1234567890 } };

	sandbox_utimens(sb, &a->call, in(a, "other"), times, NULL);
}

static void start_truncate(struct attempt *a, struct sandbox *sb)
{
	sandbox_truncate(sb, &a->call, in(a, "other"), 7);
}

static void start_statfs(struct attempt *a, struct sandbox *sb)
{
	sandbox_statfs(sb, &a->call, a->dir, &a->result.fs);
}

static void start_copy(struct attempt *a, struct sandbox *sb)
{
	sandbox_copy(sb, &a->call, in(a, "file"), in(a, "new"));
}

static void start_copy_range(struct attempt *a, struct sandbox *sb)
{
	sandbox_copy_range(sb, &a->call, in(a, "file"), 10, in(a, "other"), 20, 100,
			   &a->result.copied);
}

/* ---- whole files ---- */

static void start_gather(struct attempt *a, struct sandbox *sb)
{
	static const char *const names[] = { "file", "other" };

	sandbox_gather(sb, &a->call, a->dir, names, 2, EVERY_SIZE, 2 * EVERY_SIZE,
		       &a->result.bundle);
}

/* By way of a file in the sandbox. */
static void start_gather_file(struct attempt *a, struct sandbox *sb)
{
	static const char *const names[] = { "file", "other" };

	sandbox_gather(sb, &a->call, a->dir, names, 2, EVERY_SIZE, MIB, &a->result.bundle);
}

static void release_bundle(struct attempt *a)
{
	bundle_release(&a->result.bundle);
}

static bool bundle_fits(const struct attempt *a)
{
	const struct bundle *b = &a->result.bundle;
	char want[EVERY_SIZE];

	content(want);
	for (size_t i = 0; i < b->n; i++) {
		/* What is not read is for the caller to see. */
		if (b->v[i].was_read && (b->v[i].attr.size != EVERY_SIZE ||
					 memcmp(b->v[i].bytes, want, EVERY_SIZE) != 0))
			return false;
	}
	return b->n == 2;
}

static void start_read_file(struct attempt *a, struct sandbox *sb)
{
	sandbox_read_file(sb, &a->call, in(a, "file"), 0, 0, &a->result.buf);
}

static void release_buf(struct attempt *a)
{
	buf_release(&a->result.buf);
}

static void start_write_file(struct attempt *a, struct sandbox *sb)
{
	sandbox_write_file(sb, &a->call, in(a, "other"), "some\0thing\n", 11);
}

static void start_append(struct attempt *a, struct sandbox *sb)
{
	sandbox_append(sb, &a->call, in(a, "other"), "more\n", 5);
}

static void start_update_file(struct attempt *a, struct sandbox *sb)
{
	sandbox_update_file(sb, &a->call, in(a, "other"), "something else\n", 15);
}

/* ---- transfers ---- */

static int take(void *ctx, const void *bytes UNUSED, size_t len)
{
	struct attempt *a = ctx;

	/* Who knows how much he wants stops there: a file may grow for ever. */
	a->moved += len;
	return a->moved > 32 * MIB ? -EFBIG : 0;
}

static void start_download(struct attempt *a, struct sandbox *sb)
{
	const struct download how = { .data = take, .ctx = a };

	sandbox_download(sb, &a->call, in(a, "file"), &how);
}

static void start_download_part(struct attempt *a, struct sandbox *sb)
{
	const struct download how = {
		.offset = 100, .length = 1000, .expect = &a->expect, .data = take, .ctx = a
	};

	sandbox_download(sb, &a->call, in(a, "file"), &how);
}

static void start_upload(struct attempt *a, struct sandbox *sb)
{
	const struct upload how = { .size = EVERY_SIZE, .mode = 0644, .fd = a->fd };

	sandbox_upload(sb, &a->call, in(a, "other"), &how);
}

static ssize_t give(void *ctx, char *to, size_t len)
{
	struct attempt *a = ctx;

	len = MIN(len, MIN(EVERY_SIZE - a->moved, 1000));
	memset(to, 'u', len);
	a->moved += len;
	return (ssize_t)len;
}

static void start_upload_written(struct attempt *a, struct sandbox *sb)
{
	const struct upload how = {
		.size = -1, .mode = -1, .flags = UPLOAD_NEW, .read = give, .ctx = a, .fd = -1
	};

	sandbox_upload(sb, &a->call, in(a, "new"), &how);
}

/* ---- commands ---- */

static void start_execute_command(struct attempt *a, struct sandbox *sb)
{
	sandbox_execute_command(sb, &a->call, "echo said", &a->result.command);
}

static void release_command(struct attempt *a)
{
	command_result_release(&a->result.command);
}

static void start_bash(struct attempt *a, struct sandbox *sb)
{
	const struct bash_command cmd = { .command = "echo said" };

	sandbox_bash(sb, &a->call, &cmd, &a->result.bash);
}

static void release_bash(struct attempt *a)
{
	bash_result_release(&a->result.bash);
}

static void start_bash_start(struct attempt *a, struct sandbox *sb)
{
	const struct bash_command cmd = { .command = "true" };

	sandbox_bash_start(sb, &a->call, &cmd, &a->result.text);
}

static void start_bash_output(struct attempt *a, struct sandbox *sb)
{
	sandbox_bash_output(sb, &a->call, a->job, 0, 0, 60000, &a->result.output);
}

static void release_output(struct attempt *a)
{
	bash_result_release(&a->result.output.result);
}

static void start_bash_write(struct attempt *a, struct sandbox *sb)
{
	sandbox_bash_write(sb, &a->call, a->job, "line\n", 5);
}

static void start_bash_kill(struct attempt *a, struct sandbox *sb)
{
	sandbox_bash_kill(sb, &a->call, a->job, SIGTERM);
}

static void start_bash_close(struct attempt *a, struct sandbox *sb)
{
	sandbox_bash_close(sb, &a->call, a->job);
}

/* ---- runs ---- */

/* The name of one that there is not. */
#define NO_RUN "00000000-0000-4000-8000-000000000000"

static void start_run_start(struct attempt *a, struct sandbox *sb)
{
	const struct run_spec spec = { .script = "true", .len = 4, .dir = a->dir };

	sandbox_run_start(sb, &a->call, &spec, &a->result.text);
}

static void start_run_shell(struct attempt *a, struct sandbox *sb)
{
	const struct run_spec spec = { .script = "true", .len = 4, .shell = "every" };

	sandbox_run_start(sb, &a->call, &spec, &a->result.text);
}

static void start_run_look(struct attempt *a, struct sandbox *sb)
{
	sandbox_run_look(sb, &a->call, NO_RUN, 0, 0, 1000, 100, &a->result.news);
}

static void release_news(struct attempt *a)
{
	run_news_release(&a->result.news);
}

static void start_run_feed(struct attempt *a, struct sandbox *sb)
{
	sandbox_run_feed(sb, &a->call, NO_RUN, 0, "line\n", 5, true);
}

static void start_run_kill(struct attempt *a, struct sandbox *sb)
{
	sandbox_run_kill(sb, &a->call, NO_RUN, SIGTERM);
}

static void start_run_drop(struct attempt *a, struct sandbox *sb)
{
	sandbox_run_drop(sb, &a->call, NO_RUN);
}

/* ---- watching ---- */

static void on_live(void *ctx)
{
	((struct attempt *)ctx)->live++;
}

static void on_lost(void *ctx, int err UNUSED)
{
	((struct attempt *)ctx)->lost++;
}

static void on_event(void *ctx, const struct watch_event *ev UNUSED)
{
	((struct attempt *)ctx)->events++;
}

static void start_watch(struct attempt *a, struct sandbox *sb)
{
	const struct watch how = { .live = on_live, .lost = on_lost, .event = on_event, .ctx = a };

	sandbox_watch(sb, &a->call, a->dir, &how);
}

/* ---- what comes of them ---- */

static bool entries_fit(const struct attempt *a)
{
	const struct entries *e = &a->result.entries;
	bool found = false;

	for (size_t i = 0; i < e->n; i++)
		found |= !strcmp(e->v[i].name, "file") && e->v[i].attr.size == EVERY_SIZE;
	return found && e->n == 4 && e->dropped == 0;
}

static bool attr_fits(const struct attempt *a)
{
	return a->result.attr.size == EVERY_SIZE && S_ISREG(a->result.attr.mode);
}

static bool target_fits(const struct attempt *a)
{
	return !strcmp(a->result.text, "file");
}

static bool fs_fits(const struct attempt *a)
{
	return a->result.fs.block_size > 0 && a->result.fs.blocks > 0;
}

static bool copied_fits(const struct attempt *a)
{
	return a->result.copied == 100;
}

static bool text_fits(const struct attempt *a)
{
	char bytes[EVERY_SIZE];

	content(bytes);
	return a->result.buf.len == sizeof(bytes) &&
	       !memcmp(a->result.buf.data, bytes, sizeof(bytes));
}

static bool all_moved(const struct attempt *a)
{
	return a->moved == EVERY_SIZE;
}

static bool part_moved(const struct attempt *a)
{
	return a->moved == 1000;
}

static bool command_fits(const struct attempt *a)
{
	return a->result.command.exit_code == 0 && strstr(a->result.command.output, "said");
}

static bool bash_fits(const struct attempt *a)
{
	return a->result.bash.exit_code == 0 && !strcmp(a->result.bash.out, "said\n");
}

static struct attr attr_of(const struct stat *st)
{
	return (struct attr){ .mode = st->st_mode,
			      .size = (uint64_t)st->st_size,
			      .blocks = (uint64_t)st->st_blocks,
			      .ino = st->st_ino,
			      .dev = st->st_dev,
			      .nlink = (uint32_t)st->st_nlink,
			      .uid = st->st_uid,
			      .gid = st->st_gid,
			      .mtime = st->st_mtim,
			      .ctime = st->st_ctim };
}

/* Of a file on this side; mode 0 if it is not there. */
static struct attr now(const struct attempt *a, const char *name)
{
	char path[320];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", a->host_dir, name);
	if (lstat(path, &st) < 0)
		return (struct attr){ 0 };
	return attr_of(&st);
}

static bool made_directory(const struct attempt *a)
{
	return S_ISDIR(now(a, "new").mode);
}

static bool removed_directory(const struct attempt *a)
{
	return !now(a, "empty").mode;
}

static bool removed(const struct attempt *a)
{
	return !now(a, "other").mode;
}

static bool renamed(const struct attempt *a)
{
	return removed(a) && now(a, "new").size == EVERY_SIZE;
}

static bool linked(const struct attempt *a)
{
	return now(a, "other").nlink == 2 && now(a, "new").ino == now(a, "other").ino;
}

static bool symlinked(const struct attempt *a)
{
	return S_ISLNK(now(a, "new").mode);
}

static bool changed_mode(const struct attempt *a)
{
	return (now(a, "other").mode & 07777) == 0640;
}

static bool changed_time(const struct attempt *a)
{
	return now(a, "other").mtime.tv_sec == 1234567890;
}

static bool truncated(const struct attempt *a)
{
	return now(a, "other").size == 7;
}

static bool copied(const struct attempt *a)
{
	return now(a, "new").size == EVERY_SIZE;
}

static bool written(const struct attempt *a)
{
	return now(a, "other").size == 11;
}

static bool appended(const struct attempt *a)
{
	return now(a, "other").size == EVERY_SIZE + 5;
}

static bool updated(const struct attempt *a)
{
	return now(a, "other").size == 15;
}

/* The content is the same as before: the file is another one, or a later one. */
static bool uploaded(const struct attempt *a)
{
	struct attr attr = now(a, "other");

	return attr.size == EVERY_SIZE && (attr.mode & 07777) == 0644;
}

const struct every_op every_op[] = {
	{ "context", 0, start_context, release_info, NULL },
	{ "wait_ready", EVERY_STATUS_ONLY, start_wait_ready, NULL, NULL },
	{ "ping", EVERY_STATUS_ONLY, start_ping, NULL, NULL },
	{ "list", 0, start_list, release_entries, entries_fit },
	{ "tree", 0, start_tree, release_entries, entries_fit },
	{ "trees", 0, start_trees, release_entries, entries_fit },
	{ "near", 0, start_near, release_entries, entries_fit },
	{ "lstat", 0, start_lstat, NULL, attr_fits },
	{ "readlink", 0, start_readlink, release_text, target_fits },
	{ "mkdir", EVERY_NO_RESULT, start_mkdir, NULL, made_directory },
	{ "rmdir", EVERY_NO_RESULT, start_rmdir, NULL, removed_directory },
	{ "unlink", EVERY_NO_RESULT, start_unlink, NULL, removed },
	{ "rename", EVERY_NO_RESULT, start_rename, NULL, renamed },
	{ "rename_noreplace", EVERY_NO_RESULT, start_rename_noreplace, NULL, renamed },
	{ "link", EVERY_NO_RESULT, start_link, NULL, linked },
	{ "symlink", EVERY_NO_RESULT, start_symlink, NULL, symlinked },
	{ "chmod", EVERY_NO_RESULT, start_chmod, NULL, changed_mode },
	{ "utimens", EVERY_NO_RESULT, start_utimens, NULL, changed_time },
	{ "truncate", EVERY_NO_RESULT, start_truncate, NULL, truncated },
	{ "statfs", 0, start_statfs, NULL, fs_fits },
	{ "copy", EVERY_NO_RESULT, start_copy, NULL, copied },
	{ "copy_range", 0, start_copy_range, NULL, copied_fits },
	{ "read_file", 0, start_read_file, release_buf, text_fits },
	{ "gather", 0, start_gather, release_bundle, bundle_fits },
	{ "gather_file", 0, start_gather_file, release_bundle, bundle_fits },
	{ "write_file", EVERY_NO_RESULT, start_write_file, NULL, written },
	{ "append", EVERY_NO_RESULT, start_append, NULL, appended },
	{ "update_file", EVERY_NO_RESULT, start_update_file, NULL, updated },
	{ "download", EVERY_TAKES_BYTES | EVERY_ON_SILENCE, start_download, NULL, all_moved },
	{ "download_part", EVERY_TAKES_BYTES | EVERY_ON_SILENCE, start_download_part, NULL,
	  part_moved },
	{ "upload", EVERY_NO_RESULT | EVERY_ON_SILENCE, start_upload, NULL, uploaded },
	{ "upload_written", EVERY_NO_RESULT | EVERY_ON_SILENCE, start_upload_written, NULL,
	  copied },
	{ "execute_command", EVERY_TELLS_OUTPUT, start_execute_command, release_command,
	  command_fits },
	{ "bash", EVERY_NEEDS_BASH | EVERY_TELLS_OUTPUT, start_bash, release_bash, bash_fits },
	{ "bash_start", EVERY_NEEDS_BASH, start_bash_start, release_text, NULL },
	{ "bash_output", EVERY_NEEDS_BASH | EVERY_NEEDS_JOB, start_bash_output, release_output,
	  NULL },
	{ "bash_write", EVERY_NEEDS_BASH | EVERY_NEEDS_JOB | EVERY_NO_RESULT, start_bash_write,
	  NULL, NULL },
	{ "bash_kill", EVERY_NEEDS_BASH | EVERY_NEEDS_JOB | EVERY_NO_RESULT, start_bash_kill, NULL,
	  NULL },
	{ "bash_close", EVERY_NEEDS_BASH | EVERY_NEEDS_JOB | EVERY_NO_RESULT, start_bash_close,
	  NULL, NULL },
	{ "run_start", 0, start_run_start, release_text, NULL },
	{ "run_shell", 0, start_run_shell, release_text, NULL },
	{ "run_look", EVERY_NEEDS_JOB, start_run_look, release_news, NULL },
	{ "run_feed", EVERY_NEEDS_JOB | EVERY_NO_RESULT, start_run_feed, NULL, NULL },
	{ "run_kill", EVERY_NEEDS_JOB | EVERY_NO_RESULT, start_run_kill, NULL, NULL },
	{ "run_drop", EVERY_NO_RESULT, start_run_drop, NULL, NULL },
	{ "watch", EVERY_ENDLESS | EVERY_ON_SILENCE, start_watch, NULL, NULL },
};
const size_t every_op_len = ARRAY_SIZE(every_op);

/* ---- attempts ---- */

void attempt_init(struct attempt *a, const struct every_op *op, int64_t timeout_ms)
{
	*a = (struct attempt){ .op = op, .job = "nobody", .fd = -1 };
	call_init(&a->call, timeout_ms);
	memset(&a->result, 0x5a, sizeof(a->result));
	if (op->start == start_read_file)
		a->result.buf = BUF_INIT(0);
	a->before = a->result;
	/* Where nothing is prepared the files do not exist, which is well enough. */
	strcpy(a->dir, "/mnt/user-data/none");
}

static int put(const char *dir, const char *name)
{
	char path[320], bytes[EVERY_SIZE];
	int fd CLEANUP_FD = -1;

	content(bytes);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || write_all(fd, bytes, sizeof(bytes)) < 0 || fchmod(fd, 0666) < 0)
		abort();
	return steal_fd(&fd);
}

void attempt_prepare(struct attempt *a, const struct fixture *f)
{
	static atomic_uint number;
	unsigned n = atomic_fetch_add(&number, 1);
	char path[320];

	snprintf(a->dir, sizeof(a->dir), "%s/a%u", f->dir, n);
	snprintf(a->host_dir, sizeof(a->host_dir), "%s/a%u", f->host_dir, n);
	if (mkdir(a->host_dir, 0777) < 0 || chmod(a->host_dir, 0777) < 0)
		abort();
	close(put(a->host_dir, "other"));
	a->fd = put(a->host_dir, "file");
	a->expect = now(a, "file");
	snprintf(path, sizeof(path), "%s/empty", a->host_dir);
	if (mkdir(path, 0777) < 0)
		abort();
	snprintf(path, sizeof(path), "%s/link", a->host_dir);
	if (symlink("file", path) < 0)
		abort();
}

void attempt_start(struct attempt *a, struct sandbox *sb)
{
	memset(a->paths, 0, sizeof(a->paths));
	a->op->start(a, sb);
}

bool attempt_has_ended(struct attempt *a)
{
	bool ended;

	lock(&a->call.lock);
	ended = a->call.finished;
	unlock(&a->call.lock);
	return ended;
}

const char *attempt_judge(const struct attempt *a)
{
	if (a->call.error > 0)
		return "the error is positive";
	/* One began as a copy of the other, padding included. */
	if (a->call.error) /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
		return memcmp(&a->result, &a->before, sizeof(a->result)) ? "the result was touched"
									 : NULL;
	return !a->op->fits || a->op->fits(a) ? NULL : "the result is not what was prepared";
}

void attempt_release(struct attempt *a)
{
	if (a->call.error == 0 && a->call.finished && a->op->release)
		a->op->release(a);
	if (a->fd >= 0)
		close(a->fd);
	call_release(&a->call);
}

/* ---- how slow we are ---- */

bool is_under_valgrind(void)
{
	return getenv("TFS_VALGRIND") != NULL;
}

bool measuring_is_vain(void)
{
#ifdef SANITIZED
	return true;
#else
	return is_under_valgrind();
#endif
}

int slowness(void)
{
	return measuring_is_vain() ? 10 : 1;
}

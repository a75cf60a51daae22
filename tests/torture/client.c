/*
 * client/ under torture, against a real server that is not tortured: one sandbox
 * per run, in the dialect of TFS_DIALECT. What an operation says it did is there, what it says it
 * did not do may be there or not, and a file is never half of one version.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "daemon.h"
#include "inject.h"
#include "io.h"
#include "lock.h"
#include "sandbox.h"
#include "scratch.h"
#include "torture.h"

enum { WAIT_MS = 30000, BIG = 300 * 1000 };

static struct daemon *server;
static bool has_bash;

/* One run's. */
static struct loop *loop;
static struct sandbox *sb;
static char dir[128], host_dir[256];
static char big[BIG], other[BIG];

#define DO(op, ...)                                                                                \
	({                                                                                         \
		struct call call_;                                                                 \
		int result_;                                                                       \
		call_init(&call_, WAIT_MS);                                                        \
		LOUDLY(op(sb, &call_, ##__VA_ARGS__));                                             \
		result_ = call_wait(&call_);                                                       \
		call_release(&call_);                                                              \
		result_;                                                                           \
	})
/* With failures: whether it succeeded. Without: it has to. */
#define TRY(op, ...)  ENDED(DO(op, ##__VA_ARGS__))
#define MUST(op, ...) must(#op, DO(op, ##__VA_ARGS__))

static void must(const char *what, int r)
{
	DEMAND_THAT(r == 0, "%s: %s", what, strerrorname_np(-r));
}

/* ---- files, seen from both sides ---- */

/* Good until it is called some more times. */
static const char *join(const char *where, const char *name)
{
	static char paths[8][512];
	static unsigned next;
	char *to = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(to, sizeof(paths[0]), "%s/%s", where, name);
	return to;
}

static const char *in(const char *name)
{
	return join(dir, name);
}

static const char *host(const char *name)
{
	return join(host_dir, name);
}

static void fill(char *to, size_t len, uint64_t x)
{
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		to[i] = (char)(x >> 32);
	}
}

static void put(const char *name, const void *bytes, size_t len)
{
	int fd = open(host(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	DEMAND(fd >= 0 && write_all(fd, bytes, len) == 0);
	close(fd);
}

static bool has(const char *name, const void *bytes, size_t len)
{
	static char have[BIG + 1];
	int fd = open(host(name), O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = pread_all(fd, have, sizeof(have), 0);
	close(fd);
	return n == (ssize_t)len && memcmp(have, bytes, len) == 0;
}

static bool exists(const char *name)
{
	struct stat st;

	return lstat(host(name), &st) == 0;
}

/* ---- a run ---- */

static int connect_to(void)
{
	struct sandbox_config config = { .socket = daemon_socket(server), .label = "torture" };
	int r = LOUD(loop_new(&loop));

	if (r < 0)
		return r;
	r = LOUD(sandbox_new(loop, &config, &sb, NULL));
	if (r < 0)
		loop_free(STEAL(loop));
	return r;
}

static void disconnect(void)
{
	LOUDLY(sandbox_unref(STEAL(sb)));
	loop_free(STEAL(loop));
}

static void make_dirs(void)
{
	snprintf(dir, sizeof(dir), "/mnt/user-data/t%d", (int)getpid());
	snprintf(host_dir, sizeof(host_dir), "%s/t%d", daemon_data(server), (int)getpid());
	DEMAND(mkdir(host_dir, 0777) == 0);
	fill(big, BIG, 1);
	fill(other, BIG, 2);
}

static void begin(void)
{
	make_dirs();
	must("connect", connect_to());
	MUST(sandbox_ping);
}

static void end(void)
{
	disconnect();
	DEMAND(scratch_remove(host_dir));
}

/* ---- scenarios ---- */

static void live_once(void)
{
	struct sandbox_info info = { 0 };

	if (!ENDED(connect_to()))
		return;
	if (TRY(sandbox_ping) && TRY(sandbox_context, &info)) {
		DEMAND(info.version && info.home_dir);
		sandbox_info_release(&info);
	}
	(void)TRY(sandbox_wait_ready, 5000, 100);
	disconnect();
}

static void life(void)
{
	make_dirs();
	inject_arm();
	live_once();
	inject_disarm();
	must("connect", connect_to());
	MUST(sandbox_ping);
	end();
}

static void look_around(bool expect)
{
	struct entries e = { 0 };
	struct attr a = { 0 };
	struct fs_stat st = { 0 };
	char *target = NULL;
	bool ok;

	ok = TRY(sandbox_list, dir, 1, &e);
	DEMAND(ok || !expect);
	if (ok) {
		DEMAND_THAT(e.n == 4, "%zu entries", e.n);
		entries_release(&e);
	}
	e = (struct entries){ 0 };
	ok = TRY(sandbox_list_near, dir, 2, 100, &e);
	DEMAND(ok || !expect);
	if (ok)
		entries_release(&e);
	ok = TRY(sandbox_lstat, in("a"), &a);
	DEMAND(ok || !expect);
	DEMAND(!ok || (a.size == 3 && S_ISREG(a.mode)));
	ok = TRY(sandbox_readlink, in("link"), &target);
	DEMAND(ok || !expect);
	if (ok) {
		DEMAND(strcmp(target, "a") == 0);
		free(target);
	}
	ok = TRY(sandbox_statfs, dir, &st);
	DEMAND(ok || !expect);
	/* What is not there is not there, or nobody can tell. */
	DEMAND(!TRY(sandbox_lstat, in("none"), &a));
}

static void list(void)
{
	begin();
	put("a", "abc", 3);
	put("b\xff\n", "", 0);
	DEMAND(symlink("a", host("link")) == 0 && mkdir(host("d"), 0755) == 0);
	put("d/e", "e", 1);
	inject_arm();
	look_around(false);
	inject_disarm();
	look_around(true);
	end();
}

static void change_names(void)
{
	struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 2 } };
	struct attr a;

	if (TRY(sandbox_mkdir, in("d"), 0755, &a))
		DEMAND(exists("d"));
	if (TRY(sandbox_rename, in("a"), in("b"), 0, NULL))
		DEMAND(!exists("a") && has("b", "abc", 3));
	DEMAND_THAT(has("a", "abc", 3) || has("b", "abc", 3), "a file is lost");
	if (TRY(sandbox_symlink, "x", in("s"), &a))
		DEMAND(exists("s"));
	if (TRY(sandbox_link, in("c"), in("l"), &a))
		DEMAND(has("l", "c", 1));
	(void)TRY(sandbox_chmod, in("c"), 0600, &a);
	(void)TRY(sandbox_utimens, in("c"), times, &a);
	if (TRY(sandbox_truncate, in("c"), 0))
		DEMAND(has("c", "", 0));
	if (TRY(sandbox_unlink, in("c")))
		DEMAND(!exists("c"));
	if (TRY(sandbox_rmdir, in("d")))
		DEMAND(!exists("d"));
}

static void names(void)
{
	begin();
	put("a", "abc", 3);
	put("c", "c", 1);
	inject_arm();
	change_names();
	inject_disarm();
	MUST(sandbox_mkdir, in("again"), 0755, NULL);
	MUST(sandbox_rename, in("again"), in("moved"), 0, NULL);
	MUST(sandbox_rmdir, in("moved"));
	DEMAND(!exists("moved"));
	end();
}

/* What a download gave. */
struct got {
	char bytes[BIG + 1];
	size_t len;
};

static int on_data(void *ctx, const void *bytes, size_t len)
{
	struct got *g = ctx;

	if (len > sizeof(g->bytes) - g->len)
		return -EFBIG;
	memcpy(g->bytes + g->len, bytes, len);
	g->len += len;
	return 0;
}

static void fetch(const char *name, uint64_t offset, const char *bytes, size_t len, bool expect)
{
	static struct got got;
	struct attr a;
	struct download how = { .offset = offset, .data = on_data, .ctx = &got };
	bool ok;

	got.len = 0;
	ok = TRY(sandbox_download, in(name), &how);
	DEMAND(ok || !expect);
	DEMAND(!ok || (got.len == len && memcmp(got.bytes, bytes, len) == 0));
	if (!TRY(sandbox_lstat, in(name), &a))
		return;
	got.len = 0;
	how.expect = &a;
	ok = TRY(sandbox_download, in(name), &how);
	DEMAND(ok || !expect);
	DEMAND(!ok || (got.len == len && memcmp(got.bytes, bytes, len) == 0));
}

static void download_them(bool expect)
{
	fetch("small", 0, "small", 5, expect);
	fetch("big", 0, big, BIG, expect);
	fetch("big", BIG - 1000, big + BIG - 1000, 1000, expect);
}

static void download(void)
{
	begin();
	put("small", "small", 5);
	put("big", big, BIG);
	inject_arm();
	download_them(false);
	inject_disarm();
	download_them(true);
	end();
}

struct source {
	const char *bytes;
	size_t len, at;
};

static ssize_t on_read(void *ctx, char *to, size_t len)
{
	struct source *s = ctx;
	size_t n = MIN(len, s->len - s->at);

	memcpy(to, s->bytes + s->at, n);
	s->at += n;
	return (ssize_t)n;
}

static void on_rewind(void *ctx)
{
	((struct source *)ctx)->at = 0;
}

/* How many names begin as those that an upload makes. */
static unsigned temporaries(void)
{
	struct entries e = { 0 };
	unsigned n = 0;

	must("list", DO(sandbox_list, dir, 1, &e));
	for (size_t i = 0; i < e.n; i++)
		n += strncmp(e.v[i].name, UPLOAD_TEMPORARY, strlen(UPLOAD_TEMPORARY)) == 0;
	entries_release(&e);
	return n;
}

static bool send_up(const char *name, const char *bytes, size_t len, int64_t size, unsigned flags)
{
	struct source from = { bytes, len, 0 };
	struct upload how = { .size = size,
			      .mode = 0644,
			      .flags = flags,
			      .read = on_read,
			      .rewind = on_rewind,
			      .ctx = &from,
			      .fd = -1 };
	bool ok = TRY(sandbox_upload, in(name), &how);

	if (ok)
		DEMAND_THAT(has(name, bytes, len), "%s: success, but not the bytes", name);
	return ok;
}

static void upload_them(void)
{
	int fd = open(host("big"), O_RDONLY | O_CLOEXEC);
	struct upload from_fd = { .size = BIG, .mode = -1, .fd = fd };

	DEMAND(fd >= 0);
	if (!send_up("new", "tiny", 4, 4, UPLOAD_DIR_THERE | UPLOAD_NAME_FREE))
		DEMAND(!exists("new") || has("new", "tiny", 4));
	if (!send_up("old", big, BIG, -1, 0))
		DEMAND_THAT(has("old", "old", 3) || has("old", big, BIG), "half an upload shows");
	if (!send_up("excl", "x", 1, 1, UPLOAD_NEW))
		DEMAND(!exists("excl") || has("excl", "x", 1));
	DEMAND(!send_up("big", "x", 1, 1, UPLOAD_NEW));
	if (TRY(sandbox_upload, in("copy"), &from_fd))
		DEMAND(has("copy", big, BIG));
	close(fd);
	DEMAND(has("big", big, BIG));
}

static void upload(void)
{
	begin();
	put("old", "old", 3);
	put("big", big, BIG);
	inject_arm();
	upload_them();
	inject_disarm();
	DEMAND(send_up("old", other, BIG, BIG, 0));
	/* What was to be removed has been asked for on other connections. */
	for (int64_t until = clock_ms() + WAIT_MS; temporaries() > 0 && !inject_is_burst();)
		DEMAND_THAT(clock_ms() < until, "temporary names are left");
	end();
}

static bool is_one_of(const char *name, const char *a, const char *b)
{
	return has(name, a, strlen(a)) || has(name, b, strlen(b));
}

static void whole_files(bool expect)
{
	static const char *const wanted[] = { "a", "g" };
	struct buf text = BUF_INIT(1 << 20);
	struct bundle bundle = { 0 };
	bool ok;

	put("a", "one\ntwo\n", 8);
	put("g", "gather", 6);
	put("u", "old", 3);
	put("p", "", 0);
	ok = TRY(sandbox_read_file, in("a"), 0, 0, &text);
	DEMAND(ok || !expect);
	DEMAND(!ok || (text.len == 8 && memcmp(text.data, "one\ntwo\n", 8) == 0));
	buf_release(&text);
	ok = TRY(sandbox_write_file, in("w"), "written", 7);
	DEMAND(ok || !expect);
	DEMAND(!ok || has("w", "written", 7));
	ok = TRY(sandbox_append, in("p"), "once", 4);
	DEMAND(ok || !expect);
	DEMAND_THAT(has("p", "once", 4) || (!ok && has("p", "", 0)), "not once");
	ok = TRY(sandbox_update_file, in("u"), "new", 3);
	DEMAND(ok || !expect);
	DEMAND(ok ? has("u", "new", 3) : is_one_of("u", "old", "new"));
	ok = TRY(sandbox_gather, dir, wanted, 2, 1000, 14, &bundle);
	DEMAND(ok || !expect);
	if (ok) {
		DEMAND(bundle.n == 2 && bundle.v[1].was_read && bundle.v[1].attr.size == 6 &&
		       memcmp(bundle.v[1].bytes, "gather", 6) == 0);
		bundle_release(&bundle);
	}
}

static void files(void)
{
	begin();
	inject_arm();
	whole_files(false);
	inject_disarm();
	whole_files(true);
	end();
}

/* Each leaves a line when it runs. */
static void ran(const char *name, bool ok)
{
	DEMAND_THAT(has(name, "x\n", 2) || (!ok && !exists(name)), "%s: not once", name);
}

static void commands(void)
{
	struct command_result shell = { 0 };
	struct bash_result bash = { 0 };
	char text[600];
	bool ok;

	snprintf(text, sizeof(text), "echo x >> %s; echo out", in("shell"));
	ok = TRY(sandbox_execute_command, text, &shell);
	if (ok) {
		DEMAND(shell.exit_code == 0 && strstr(shell.output, "out"));
		command_result_release(&shell);
	}
	ran("shell", ok);
	if (!has_bash)
		return;
	snprintf(text, sizeof(text), "echo x >> %s; echo out; echo err >&2; exit 3", in("bash"));
	ok = TRY(sandbox_bash, &(struct bash_command){ .command = text }, &bash);
	if (ok) {
		DEMAND(bash.exit_code == 3 && strcmp(bash.out, "out\n") == 0);
		bash_result_release(&bash);
	}
	ran("bash", ok);
}

static void exec(void)
{
	struct command_result shell = { 0 };

	begin();
	inject_arm();
	commands();
	inject_disarm();
	MUST(sandbox_execute_command, "echo again", &shell);
	DEMAND(strstr(shell.output, "again"));
	command_result_release(&shell);
	end();
}

/* Until it has ended, or somebody says that he does not know. */
static bool follow(const char *id, struct run_news *n)
{
	for (int64_t until = clock_ms() + WAIT_MS;;) {
		DEMAND_THAT(clock_ms() < until, "a run never ends");
		if (!TRY(sandbox_run_look, id, 0, 0, 1000, 1000, n))
			return false;
		if (n->ended)
			return true;
		run_news_release(n);
	}
}

static void run_one(const char *name, const char *shell, bool expect)
{
	struct run_news news = { 0 };
	char text[600], *id = NULL;
	bool ok;

	snprintf(text, sizeof(text), "echo x >> %s; echo out; echo err >&2; exit 3", in(name));
	ok = TRY(sandbox_run_start,
		 &(struct run_spec){ .script = text, .len = strlen(text), .shell = shell }, &id);
	DEMAND(ok || !expect);
	if (!ok)
		return;
	ok = follow(id, &news);
	DEMAND(ok || !expect);
	if (ok) {
		DEMAND_THAT(news.exit_code == 3 && news.out_len == 4 && news.err_len == 4,
			    "exit code %d", news.exit_code);
		run_news_release(&news);
		ran(name, true);
	}
	ok = TRY(sandbox_run_drop, id);
	DEMAND(ok || !expect);
	free(id);
}

static void run(void)
{
	begin();
	inject_arm();
	run_one("own", NULL, false);
	run_one("shared", "sh", false);
	inject_disarm();
	run_one("own2", NULL, true);
	run_one("shared2", "sh", true);
	end();
}

/* ---- watching ---- */

static struct lock watch_lock = LOCK_INIT;
static unsigned lives, losses, events;

static void count_one(unsigned *what)
{
	lock(&watch_lock);
	(*what)++;
	unlock(&watch_lock);
}

static unsigned count_of(unsigned *what)
{
	unsigned n;

	lock(&watch_lock);
	n = *what;
	unlock(&watch_lock);
	return n;
}

static void on_live(void *ctx)
{
	count_one(&lives);
}

static void on_lost(void *ctx, int err)
{
	count_one(&losses);
}

static void on_event(void *ctx, const struct watch_event *ev)
{
	count_one(&events);
}

static bool is_over(struct call *c)
{
	bool over;

	lock(&c->lock);
	over = c->finished;
	unlock(&c->lock);
	return over;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

/* A change is told, or that one may have been missed, or that watching is over. */
static void watch_one(bool expect)
{
	struct watch how = { .live = on_live, .lost = on_lost, .event = on_event };
	unsigned lost, seen;
	struct call c;
	int r;

	lives = losses = events = 0;
	call_init(&c, WAIT_MS);
	LOUDLY(sandbox_watch(sb, &c, dir, &how));
	for (int64_t until = clock_ms() + WAIT_MS; !count_of(&lives) && !is_over(&c); nap())
		DEMAND_THAT(clock_ms() < until, "neither live nor over");
	lost = count_of(&losses);
	seen = count_of(&events);
	put("changed", "x", 1);
	for (int64_t until = clock_ms() + WAIT_MS;
	     count_of(&events) == seen && count_of(&losses) == lost && !is_over(&c); nap())
		DEMAND_THAT(clock_ms() < until, "a change was not told");
	DEMAND(!expect || count_of(&events) > 0);
	LOUDLY(call_cancel(&c));
	r = call_wait(&c);
	DEMAND(!expect || r == -ECANCELED);
	(void)ENDED(r);
	call_release(&c);
	DEMAND(unlink(host("changed")) == 0);
}

static void watch(void)
{
	begin();
	if (!has_bash) {
		/* There is no such route in 1.0: it says so. */
		inject_arm();
		DEMAND(!TRY(
			sandbox_watch, dir,
			&(struct watch){ .live = on_live, .lost = on_lost, .event = on_event }));
		inject_disarm();
	} else {
		inject_arm();
		watch_one(false);
		inject_disarm();
		watch_one(true);
	}
	end();
}

/* ---- the program ---- */

static bool start(void)
{
	const char *dialect = getenv("TFS_DIALECT") ?: "aiod";

	has_bash = strcmp(dialect, "1.0") != 0;
	server = daemon_start(&(struct daemon_options){ .dialect = dialect });
	return server != NULL;
}

static bool stop(void)
{
	return daemon_stop(server) == 0;
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "life", life },         { "list", list },     { "names", names },
		{ "download", download }, { "upload", upload }, { "files", files },
		{ "exec", exec },         { "run", run },       { "watch", watch },
	};

	return torture_main(
		argc, argv,
		&(struct torture_area){ "client", scenarios, ARRAY_SIZE(scenarios), start, stop });
}

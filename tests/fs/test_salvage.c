/* fs/salvage*.c: where what was left goes, and where it must not. */
#include "salvage.h"

#include <glob.h>

#include "ledger.h"
#include "stage_i.h"
#include "staged.h"
#include "staging.h"

/* ---- what is left ---- */

static char other_boot[] = "00000000-0000-0000-0000-000000000000";
static char user[] = "u", thread_name[] = "t";

static char *this_boot(void)
{
	static char boot[UUID_LEN + 1];

	ledger_boot(boot);
	assert_true(uuid_is(boot));
	return boot;
}

/* Of the file as it is now. */
static struct ledger_record make_record(struct fsrig *r, const char *name)
{
	struct ledger_record rec = { .user = user,
				     .thread = thread_name,
				     .path = (char *)name,
				     .mode = -1,
				     .boot = this_boot() };
	struct stat st;

	if (stat(fsrig_host_path(r, name), &st) == 0)
		rec.base = (struct ledger_version){ .there = true,
						    .size = (uint64_t)st.st_size,
						    .ino = st.st_ino,
						    .mtime = st.st_mtim };
	return rec;
}

/* Before the ledger is opened. */
static void leave(struct fsrig *r, struct ledger_record rec, const char *content)
{
	char *source CLEANUP_FREE = staging_source(&r->opt);
	int dir CLEANUP_FD = ledger_open(r->fs.cache_dir, true);
	int fd CLEANUP_FD = openat(r->fs.cache_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct ledger_entry *e;
	bool changed;

	rec.source = source;
	assert_int_equal(pwrite(fd, content, strlen(content), LEDGER_HEAD), strlen(content));
	assert_int_equal(ledger_entry_new(dir, fd, &e), 0);
	assert_int_equal(ledger_entry_write(e, &rec, &changed), 0);
	ledger_entry_keep(e);
}

static void open_ledger(struct fsrig *r)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(staging_open(&r->fs, &why), 0);
}

static void do_salvage(void *ctx)
{
	salvage_begin(&((struct fsrig *)ctx)->fs);
}

static bool is_saved(void *ctx)
{
	struct salvage_view v;

	return !salvage_next(&((struct fsrig *)ctx)->fs, NULL, &v);
}

static void save(struct fsrig *r)
{
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(fsrig_wait(r, is_saved, r));
}

static void do_close_ledger(void *ctx)
{
	staging_free(((struct fsrig *)ctx)->fs.staging);
}

static bool holds(struct fsrig *r, const char *name, const char *content)
{
	return is_there(r, name, content, strlen(content));
}

/* Whether it has that content beside it, and nothing else. */
static bool has_beside(struct fsrig *r, const char *name, const char *content)
{
	char pattern[512];
	glob_t found;
	bool has;

	snprintf(pattern, sizeof(pattern), "%s.threadfs-conflict-*", fsrig_host_path(r, name));
	if (glob(pattern, 0, NULL, &found) != 0)
		return false;
	has = found.gl_pathc == 1 && file_is(found.gl_pathv[0], content, strlen(content));
	globfree(&found);
	return has;
}

static void unlink_beside(struct fsrig *r, const char *name)
{
	char pattern[512];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s.threadfs-conflict-*", fsrig_host_path(r, name));
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		assert_int_equal(unlink(found.gl_pathv[i]), 0);
	globfree(&found);
}

/* ---- after a failure of the power ---- */

static void test_same_boot(void **state)
{
	struct fsrig *r = *state;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	leave(r, make_record(r, "x"), "mine");
	leave(r, make_record(r, "new"), "mine");
	save(r);
	assert_true(holds(r, "x", "mine"));
	assert_true(holds(r, "new", "mine"));
	expect_names(r, 2);
}

static void test_not_certain_to_be_on_the_disk(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	put_file(fsrig_host_path(r, "short"), "old", 3);
	put_file(fsrig_host_path(r, "first"), "old", 3);
	rec = make_record(r, "x");
	rec.boot = other_boot;
	rec.size = 4;
	leave(r, rec, "mine");
	rec = make_record(r, "new");
	rec.boot = other_boot;
	leave(r, rec, "mine");
	/* what was to be longer */
	rec = make_record(r, "short");
	rec.boot = other_boot;
	rec.durable = true;
	rec.size = 5;
	leave(r, rec, "mine");
	/* as the first version wrote it */
	rec = make_record(r, "first");
	rec.boot = NULL;
	leave(r, rec, "mine");
	save(r);
	assert_true(holds(r, "x", "old") && has_beside(r, "x", "mine"));
	assert_true(holds(r, "short", "old") && has_beside(r, "short", "mine"));
	assert_true(holds(r, "first", "old") && has_beside(r, "first", "mine"));
	assert_true(has_beside(r, "new", "mine"));
	expect_names(r, 7);
}

static void test_certain_to_be_on_the_disk(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	rec = make_record(r, "x");
	rec.boot = other_boot;
	rec.durable = true;
	rec.size = 4;
	leave(r, rec, "mine");
	save(r);
	assert_true(holds(r, "x", "mine"));
	expect_names(r, 1);
}

/* It had arrived; what did is not put beside it. */
static void test_not_certain_and_there(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	rec.boot = other_boot;
	leave(r, rec, "two");
	rec = make_record(r, "x");
	rec.boot = other_boot;
	leave(r, rec, "mine");
	put_file(fsrig_host_path(r, "x"), "mine", 4);
	put_file(fsrig_host_path(r, "log"), "onetwo", 6);
	save(r);
	expect_names(r, 2);
}

static void test_not_certain_parts(void **state)
{
	static struct extent written[] = { { 1, 3 } };
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	rec.boot = other_boot;
	rec.from = 1;
	leave(r, rec, ".two");
	put_file(fsrig_host_path(r, "x"), "01234", 5);
	rec = make_record(r, "x");
	rec.kind = LEDGER_PATCH;
	rec.boot = other_boot;
	rec.base_len = 5;
	rec.written = (struct extents){ written, 1, 1 };
	leave(r, rec, ".ab..");
	save(r);
	assert_true(holds(r, "log", "one") && has_beside(r, "log", "two"));
	assert_true(holds(r, "x", "01234") && has_beside(r, "x", "0ab34"));
	expect_names(r, 4);
}

static int find_record(void *ctx, struct ledger_found *f, int err, const char *why UNUSED)
{
	struct ledger_record *rec = ctx;

	if (err == 0) {
		ledger_record_release(rec);
		*rec = f->rec;
		f->rec = (struct ledger_record){ 0 };
	}
	return 0;
}

/* The one that there is. */
static bool is_durable(struct fsrig *r, bool durable, uint64_t size)
{
	struct ledger_record rec CLEANUP_RECORD = { 0 };

	assert_int_equal(ledger_scan(r->fs.staging->dir, find_record, &rec), 0);
	return rec.boot && strcmp(rec.boot, this_boot()) == 0 && rec.durable == durable &&
	       rec.size == size;
}

/* Once it is on the disk the record says so; until somebody writes again. */
static void test_record_says_what_is_on_the_disk(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	open_ledger(r);
	f = open_new(r, "x");
	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	WAIT_UNTIL(is_durable(r, true, 3));
	assert_int_equal(write_at(&f, 3, "d", 1), 0);
	WAIT_UNTIL(is_durable(r, false, 4));
	WAIT_UNTIL(is_durable(r, true, 4));
	assert_int_equal(flush(&f), 0);
	close_staged(&f);
}

static void on_kept(void *ctx, int err)
{
	((struct staged *)ctx)->result = err;
}

static void do_keep(void *ctx)
{
	struct staged *f = ctx;

	stage_keep(f->s, on_kept, f);
}

/* What was appended is put behind the rest, in another file, which is not on the disk yet. */
static void test_record_of_another_file(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "one", 3);
	open_ledger(r);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, "two", 3), 0);
	WAIT_UNTIL(is_durable(r, true, 3));
	fsrig_run(r, do_keep, &f);
	WAIT_UNTIL(is_durable(r, false, 6));
	WAIT_UNTIL(is_durable(r, true, 6));
	assert_int_equal(flush(&f), 0);
	assert_true(holds(r, "x", "onetwo"));
	close_staged(&f);
}

static void do_shelve(void *ctx)
{
	struct staged *f = ctx;

	f->r->fs.ending = true;
	f->result = staging_shelve(f->s);
}

/* What the mount could not deliver before its end is there, also after the next boot. */
static void test_shelved_then_another_boot(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	open_ledger(r);
	f = open_staged(r, "x", STAGE_EMPTY, -1);
	assert_int_equal(write_at(&f, 0, "mine", 4), 0);
	fsrig_run(r, do_shelve, &f);
	assert_int_equal(f.result, 0);
	close_staged(&f);
	fsrig_run(r, do_close_ledger, r);
	open_ledger(r);
	strcpy(r->fs.staging->boot, other_boot);
	r->fs.ending = false;
	fsrig_run(r, do_salvage, r);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(holds(r, "x", "mine"));
	expect_names(r, 1);
}

/* ---- what is there already ---- */

/* Uploaded, and the answer was lost: what is there is ours, also if it was made of parts. */
static void test_parts_without_an_answer(void **state)
{
	static struct extent written[] = { { 1, 3 } };
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "x"), "01234", 5);
	rec = make_record(r, "x");
	rec.kind = LEDGER_PATCH;
	rec.base_len = 5;
	rec.written = (struct extents){ written, 1, 1 };
	leave(r, rec, ".ab..");
	ROGUE_ADD(r->f->rogue, .body_contains = "mv -fT", .action = ROGUE_REPLACE, .times = 1,
		  .reply = { .body = "nonsense" });
	save(r);
	assert_true(holds(r, "x", "0ab34"));
	expect_names(r, 1);
}

/* Of the content; not of its mode and its time. */
static void test_attributes_of_what_is_there(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;
	struct stat st;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	rec.mode = 0600;
	leave(r, rec, "two");
	put_file(fsrig_host_path(r, "log"), "onetwo", 6);
	rec = make_record(r, "x");
	rec.mode = 0640;
	rec.times = true;
	rec.mtime = (struct timespec){ 1000000000, 5 };
	leave(r, rec, "mine");
	put_file(fsrig_host_path(r, "x"), "mine", 4);
	save(r);
	assert_int_equal(mode_of(r, "log"), 0600);
	assert_int_equal(stat(fsrig_host_path(r, "x"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_mtim.tv_sec, 1000000000);
	assert_int_equal(st.st_mtim.tv_nsec, 5);
	expect_names(r, 2);
}

/* ---- appends ---- */

/* Or is over already: it may be tried again before anybody looks. */
static bool has_failed(void *ctx)
{
	struct salvage_view v;

	return !salvage_next(&((struct fsrig *)ctx)->fs, NULL, &v) ||
	       (v.state == SALVAGE_WAITS && v.error);
}

/* In one job: it may be under way again in the next. */
static bool close_failed(void *ctx)
{
	if (!has_failed(ctx))
		return false;
	do_close_ledger(ctx);
	return true;
}

static bool is_stuck(void *ctx)
{
	struct salvage_view v;

	return salvage_next(&((struct fsrig *)ctx)->fs, NULL, &v) && v.state == SALVAGE_STUCK;
}

/* The connection breaks: the request may be carried out any time, and is not sent again, nor by
 * the next mount. */
static void test_append_without_an_answer(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	leave(r, rec, "two");
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .take_bytes = 10, .action = ROGUE_CLOSE);
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(fsrig_wait(r, close_failed, r));
	rogue_clear(r->f->rogue);
	save(r);
	assert_true(holds(r, "log", "one"));
	assert_true(has_beside(r, "log", "two"));
	assert_int_equal(rogue_count(r->f->rogue, NULL, WRITE_ROUTE), 1);
}

/* What was refused is. */
static void test_append_refused(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	leave(r, rec, "two");
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .action = ROGUE_ANSWER,
		  .reply = { .body = "{\"success\":false,\"message\":\"no\",\"data\":{\"errno\":"
				     "13,\"error_type\":\"permission_denied\"}}" });
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(rogue_wait_for(r->f->rogue, NULL, WRITE_ROUTE, 1, 20000));
	assert_true(fsrig_wait(r, is_stuck, r));
	rogue_clear(r->f->rogue);
	fsrig_run(r, do_close_ledger, r);
	save(r);
	assert_true(holds(r, "log", "onetwo"));
	expect_names(r, 1);
}

static void do_retry(void *ctx)
{
	staging_retry(&((struct fsrig *)ctx)->fs);
}

/* Said to be there, and not: the record stays until it is. */
static void test_append_that_is_not_there(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	leave(r, rec, "two");
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .action = ROGUE_ANSWER, .times = 1,
		  .reply = { .body = "{\"success\":true,\"data\":{\"bytes_written\":3}}" });
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(fsrig_wait(r, has_failed, r));
	fsrig_run(r, do_retry, r);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(holds(r, "log", "onetwo"));
	expect_names(r, 1);
}

/* Likewise where it goes beside the file. */
static void test_append_beside_that_is_short(void **state)
{
	struct fsrig *r = *state;
	struct shortener s = { .host_dir = r->f->host_dir,
			       .prefix = UPLOAD_TEMPORARY,
			       .says_size = true };
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	leave(r, rec, "two");
	put_file(fsrig_host_path(r, "log"), "", 0);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .action = ROGUE_REPLACE, .handler = shorten,
		  .ctx = &s, .times = 1);
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(fsrig_wait(r, has_failed, r));
	assert_true(has_beside(r, "log", "tw"));
	unlink_beside(r, "log");
	fsrig_run(r, do_retry, r);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(has_beside(r, "log", "two"));
}

/* ---- names go and move ---- */

struct name {
	struct fsrig *r;
	const char *name, *to;
	struct salvage_hold *hold;
};

static void do_hold(void *ctx)
{
	struct name *n = ctx;

	n->hold = salvage_hold(n->r->root, n->name);
}

static void do_let_go(void *ctx)
{
	salvage_let_go(((struct name *)ctx)->hold);
}

static void do_removed(void *ctx)
{
	struct name *n = ctx;

	salvage_removed(n->r->root, n->name);
}

static void do_moved(void *ctx)
{
	struct name *n = ctx;

	salvage_moved(n->r->root, n->name, n->r->root, n->to);
}

/* While the name is being taken away, which takes long, nothing begins to go there. */
static void test_nothing_begins_at_a_held_name(void **state)
{
	struct fsrig *r = *state;
	struct name n = { .r = r, .name = "x" };

	put_file(fsrig_host_path(r, "x"), "old", 3);
	leave(r, make_record(r, "x"), "mine");
	open_ledger(r);
	fsrig_run(r, do_hold, &n);
	fsrig_run(r, do_salvage, r);
	assert_false(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 2500));
	assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
	fsrig_run(r, do_removed, &n);
	assert_true(fsrig_wait(r, is_saved, r));
	fsrig_run(r, do_let_go, &n);
	expect_names(r, 0);
}

/* If it stays after all, it goes on. */
static void test_held_and_let_go(void **state)
{
	struct fsrig *r = *state;
	struct name n = { .r = r, .name = "d" };

	assert_int_equal(mkdir(fsrig_host_path(r, "d"), 0777), 0);
	leave(r, make_record(r, "d/x"), "mine");
	leave(r, make_record(r, "dx"), "mine");
	open_ledger(r);
	fsrig_run(r, do_hold, &n);
	fsrig_run(r, do_salvage, r);
	WAIT_UNTIL(holds(r, "dx", "mine"));
	assert_false(file_exists(fsrig_host_path(r, "d/x")));
	fsrig_run(r, do_let_go, &n);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(holds(r, "d/x", "mine"));
}

/* Removed in the moment in which the upload is through: that finds nothing there, and makes
 * nothing. */
static void test_removed_while_it_runs(void **state)
{
	struct fsrig *r = *state;
	struct name n = { .r = r, .name = "x" };

	put_file(fsrig_host_path(r, "x"), "old", 3);
	leave(r, make_record(r, "x"), "mine");
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .delay_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
	assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
	fsrig_run(r, do_removed, &n);
	rogue_release(r->f->rogue);
	assert_true(fsrig_wait(r, is_saved, r));
	expect_names(r, 0);
}

/* Its last steps are not for the name that it had. */
static void test_moved_while_it_runs(void **state)
{
	struct fsrig *r = *state;
	struct name n = { .r = r, .name = "x", .to = "y" };
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	rec = make_record(r, "x");
	rec.times = true;
	leave(r, rec, "mine");
	ROGUE_ADD(r->f->rogue, .body_contains = "touch -h", .hold_ms = ROGUE_UNTIL_RELEASED,
		  .times = 1);
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	WAIT_UNTIL(rogue_count_body(r->f->rogue, NULL, NULL, "touch -h") == 1);
	assert_int_equal(rename(fsrig_host_path(r, "x"), fsrig_host_path(r, "y")), 0);
	fsrig_run(r, do_moved, &n);
	rogue_release(r->f->rogue);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(holds(r, "y", "mine"));
	expect_names(r, 1);
}

struct settling {
	struct name n;
	bool settled; /* loop thread */
};

static void on_settled(void *ctx)
{
	((struct settling *)ctx)->settled = true;
}

static void do_hold_and_settle(void *ctx)
{
	struct settling *s = ctx;

	do_hold(&s->n);
	salvage_settle(s->n.hold, on_settled, s);
}

static bool is_settled(void *ctx)
{
	return ((struct settling *)ctx)->settled;
}

/* So that it goes in more than one piece. */
static char *long_text(void)
{
	char *text = malloc(3 * MIB);

	memset(text, 'l', 3 * MIB - 1);
	text[3 * MIB - 1] = '\0';
	return text;
}

/* What is on its way by name is awaited, and no other piece follows: that would go into the file
 * which comes there. */
static void test_held_while_it_appends(void **state)
{
	struct fsrig *r = *state;
	struct settling s = { .n = { .r = r, .name = "log" } };
	char *text CLEANUP_FREE = long_text();
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	put_file(fsrig_host_path(r, "new"), "new", 3);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	leave(r, rec, text);
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(rogue_wait_for(r->f->rogue, NULL, WRITE_ROUTE, 1, 20000));
	fsrig_run(r, do_hold_and_settle, &s);
	assert_false(rogue_wait_for(r->f->rogue, NULL, WRITE_ROUTE, 2, 300));
	assert_false(s.settled);
	rogue_release(r->f->rogue);
	assert_true(fsrig_wait(r, is_settled, &s));
	assert_int_equal(rename(fsrig_host_path(r, "new"), fsrig_host_path(r, "log")), 0);
	fsrig_run(r, do_let_go, &s.n);
	fsrig_run(r, do_retry, r);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(holds(r, "log", "new"));
	assert_true(has_beside(r, "log", text));
	assert_int_equal(rogue_count(r->f->rogue, NULL, WRITE_ROUTE), 1);
}

/* Others do not wait: that another file is large enough proves nothing. */
static void test_replaced_while_it_is_appended_to(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec;

	put_file(fsrig_host_path(r, "log"), "one", 3);
	put_file(fsrig_host_path(r, "new"), "something else", 14);
	rec = make_record(r, "log");
	rec.kind = LEDGER_APPEND;
	leave(r, rec, "two");
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .action = ROGUE_REPLACE, .times = 1,
		  .delay_ms = ROGUE_UNTIL_RELEASED,
		  .reply = { .body = "{\"success\":true,\"data\":{\"bytes_written\":3}}" });
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	WAIT_UNTIL(holds(r, "log", "onetwo"));
	assert_int_equal(rename(fsrig_host_path(r, "new"), fsrig_host_path(r, "log")), 0);
	rogue_release(r->f->rogue);
	assert_true(fsrig_wait(r, has_failed, r));
	fsrig_run(r, do_retry, r);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(holds(r, "log", "something else"));
	assert_true(has_beside(r, "log", "two"));
}

/* ---- the end ---- */

static void do_end(void *ctx)
{
	((struct fsrig *)ctx)->fs.ending = true;
}

/* What waits behind it does not wait for nothing when the mount ends. */
static void test_stage_behind_one_at_the_end(void **state)
{
	struct fsrig *r = *state;
	struct staged f;
	struct flushed w;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	leave(r, make_record(r, "x"), "mine");
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	open_ledger(r);
	fsrig_run(r, do_salvage, r);
	assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
	f = open_staged(r, "x", STAGE_EMPTY, -1);
	assert_int_equal(write_at(&f, 0, "later", 5), 0);
	fsrig_run(r, do_end, r);
	begin_flush(&f, &w);
	rogue_release(r->f->rogue);
	assert_int_equal(end_flush(&f, &w), 0);
	assert_true(holds(r, "x", "later"));
	assert_true(fsrig_wait(r, is_saved, r));
	close_staged(&f);
}

static void refuse_uploads(struct fsrig *r, const char *body)
{
	rogue_clear(r->f->rogue);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .action = ROGUE_ANSWER, .reply = { .body = body });
}

static void do_abandon(void *ctx)
{
	stage_abandon(ctx);
}

/* Who closed it heard that it is kept. What the end of the mount hears is told to nobody. */
static void test_refused_at_the_end(void **state)
{
	struct fsrig *r = *state;
	struct ledger_record rec CLEANUP_RECORD = { 0 };
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	open_ledger(r);
	f = open_staged(r, "x", STAGE_EMPTY, -1);
	assert_int_equal(write_at(&f, 0, "mine", 4), 0);
	refuse_uploads(r, "{\"success\":false,\"message\":\"x\",\"data\":{\"errno\":28}}");
	assert_int_equal(flush(&f), -ENOSPC);
	fsrig_run(r, do_abandon, f.s);
	refuse_uploads(r, "{\"success\":false,\"message\":\"x\",\"data\":{\"errno\":13}}");
	fsrig_run(r, do_end, r);
	assert_int_equal(flush(&f), -EACCES);
	assert_null(f.n->stage);
	assert_int_equal(ledger_scan(r->fs.staging->dir, find_record, &rec), 0);
	assert_non_null(rec.path);
	assert_string_equal(rec.path, "x");
	assert_int_equal(rec.error, -EACCES);
	fsrig_put(r, f.n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FSRIG_TEST(test_same_boot),
		FSRIG_TEST(test_not_certain_to_be_on_the_disk),
		FSRIG_TEST(test_certain_to_be_on_the_disk),
		FSRIG_TEST(test_not_certain_and_there),
		FSRIG_TEST(test_not_certain_parts),
		FSRIG_TEST(test_record_says_what_is_on_the_disk),
		FSRIG_TEST(test_record_of_another_file),
		FSRIG_TEST(test_shelved_then_another_boot),
		FSRIG_TEST(test_parts_without_an_answer),
		FSRIG_TEST(test_attributes_of_what_is_there),
		FSRIG_TEST(test_append_without_an_answer),
		FSRIG_TEST(test_append_refused),
		FSRIG_TEST(test_append_that_is_not_there),
		FSRIG_TEST(test_append_beside_that_is_short),
		FSRIG_TEST(test_nothing_begins_at_a_held_name),
		FSRIG_TEST(test_held_and_let_go),
		FSRIG_TEST(test_removed_while_it_runs),
		FSRIG_TEST(test_moved_while_it_runs),
		FSRIG_TEST(test_held_while_it_appends),
		FSRIG_TEST(test_replaced_while_it_is_appended_to),
		FSRIG_TEST(test_stage_behind_one_at_the_end),
		FSRIG_TEST(test_refused_at_the_end),
	};

	return FSRIG_RUN(tests);
}

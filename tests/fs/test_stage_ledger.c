/* fs/stage_ledger.c: what it says of the disk, which here is as slow and as bad as a test wants. */
#include <errno.h>
#include <glob.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

#include "clock.h"
#include "ledger.h"
#include "salvage.h"
#include "stage_i.h"
#include "staged.h"
#include "staging.h"
#include "workers.h"

/* ---- the disk ---- */

static struct {
	atomic_uint begun;
	_Atomic(int64_t) free_ms; /* it is busy until then */
	atomic_int error;         /* the next one fails so */
} disk;

/* In place of the C library's. */
int fdatasync(int fd)
{
	int error = atomic_exchange(&disk.error, 0);

	disk.begun++;
	while (clock_ms() < disk.free_ms)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	if (error == 0)
		return (int)syscall(SYS_fdatasync, fd);
	errno = error;
	return -1;
}

static int setup(void **state)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	int r = fsrig_setup(state);

	disk.begun = 0;
	disk.free_ms = 0;
	disk.error = 0;
	return r ?: staging_open(&((struct fsrig *)*state)->fs, &why);
}

#define DISK_TEST(t) cmocka_unit_test_setup_teardown(t, setup, fsrig_teardown)

/* ---- records ---- */

struct wanted {
	const char *path;
	struct ledger_record rec;
};

static int find_record(void *ctx, struct ledger_found *f, int err, const char *why UNUSED)
{
	struct wanted *w = ctx;

	if (err == 0 && strcmp(f->rec.path, w->path) == 0) {
		ledger_record_release(&w->rec);
		w->rec = f->rec;
		f->rec = (struct ledger_record){ 0 };
	}
	return 0;
}

/* For the caller to release. */
static struct ledger_record record_of(struct staged *f, const char *path)
{
	struct wanted w = { .path = path };

	assert_int_equal(ledger_scan(f->r->fs.staging->dir, find_record, &w), 0);
	return w.rec;
}

static bool is_noted(struct staged *f, const char *path, uint64_t size)
{
	struct ledger_record rec CLEANUP_RECORD = record_of(f, path);

	return rec.path && rec.size == size;
}

static bool is_durable(struct staged *f, const char *path)
{
	struct ledger_record rec CLEANUP_RECORD = record_of(f, path);

	assert_non_null(rec.path);
	return rec.durable;
}

static bool is_syncing(void *ctx)
{
	return ((struct staged *)ctx)->s->sync;
}

/* ---- one that fails ---- */

static void do_shelve(void *ctx)
{
	struct staged *f = ctx;

	f->r->fs.ending = true;
	f->result = staging_shelve(f->s);
}

static bool is_synced(void *ctx)
{
	const struct stage *s = ((struct staged *)ctx)->s;

	return !s->sync && s->synced == s->changes;
}

/* The kernel says once that pages were not written; the next sync ends well. */
static void test_failed_once(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_new(r, "x");

	disk.error = EIO;
	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	WAIT_UNTIL(disk.begun == 1);
	assert_true(fsrig_wait(r, is_synced, &f));
	assert_false(is_durable(&f, "x"));
	assert_int_equal(write_at(&f, 3, "d", 1), 0);
	assert_true(fsrig_wait(r, is_synced, &f));
	assert_false(is_durable(&f, "x"));
	fsrig_run(r, do_shelve, &f);
	assert_int_equal(f.result, 0);
	assert_false(is_durable(&f, "x"));
	close_staged(&f);
}

/* Likewise one at the end of the mount. */
static void test_failed_at_the_end(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_new(r, "x");

	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	disk.error = EIO;
	fsrig_run(r, do_shelve, &f);
	assert_int_equal(f.result, 0);
	assert_int_equal(disk.begun, 1);
	assert_false(is_durable(&f, "x"));
	close_staged(&f);
}

/* ---- others ---- */

struct listing {
	struct work work;
	struct fsrig *r;
	atomic_bool done;
};

static void list_run(struct work *w UNUSED)
{
}

static void list_done(struct work *w)
{
	CONTAINER_OF(w, struct listing, work)->done = true;
}

static void do_list(void *ctx)
{
	struct listing *l = ctx;

	workers_submit(l->r->fs.workers, &l->work);
}

/* Who lists the threads has his answer from a worker. */
static void test_syncs_hold_up_nobody(void **state)
{
	struct fsrig *r = *state;
	struct listing l = { .work = { .run = list_run, .done = list_done }, .r = r };
	struct staged f = open_new(r, "x");

	disk.free_ms = INT64_MAX;
	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	assert_true(fsrig_wait(r, is_syncing, &f));
	fsrig_run(r, do_list, &l);
	WAIT_UNTIL(l.done);
	disk.free_ms = 0;
	WAIT_UNTIL(is_durable(&f, "x"));
	close_staged(&f);
}

/* ---- more parts than a record has room for ---- */

enum { PLACES = 2500, FIRST = 501, APART = 8000 };

/* One byte each, all over the file. */
static void write_places(struct staged *f, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		assert_int_equal(write_at(f, i * APART, "x", 1), 0);
}

static bool has_parts(struct staged *f, const char *path, size_t n)
{
	struct ledger_record rec CLEANUP_RECORD = record_of(f, path);

	return rec.path && rec.kind == LEDGER_PATCH && rec.written.n == n;
}

static bool is_certain(struct staged *f, const char *path)
{
	struct ledger_record rec CLEANUP_RECORD = record_of(f, path);

	assert_non_null(rec.path);
	return ledger_is_certain(&rec, f->r->fs.staging->boot, rec.size);
}

/* Its base does not come before the rule is removed. */
static struct staged write_all_over(struct fsrig *r)
{
	struct staged f = open_staged(r, "x", 0, -1);

	ROGUE_ADD(r->f->rogue, .path = DOWN_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED);
	write_places(&f, 0, FIRST);
	WAIT_UNTIL(has_parts(&f, "x", FIRST));
	assert_true(is_certain(&f, "x"));
	write_places(&f, FIRST, PLACES);
	return f;
}

static void let_base_come(struct fsrig *r)
{
	rogue_clear(r->f->rogue);
	rogue_release(r->f->rogue);
}

/* Once all of the file is here there are no parts any more. */
static void test_many_parts_then_all(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_big(r, "x", 1);
	struct staged f = write_all_over(r);

	WAIT_UNTIL(!is_certain(&f, "x"));
	let_base_come(r);
	WAIT_UNTIL(is_certain(&f, "x"));
	assert_int_equal(flush(&f), 0);
	for (unsigned i = 0; i < PLACES; i++)
		bytes[i * APART] = 'x';
	assert_true(is_there(r, "x", bytes, BIG));
	close_staged(&f);
}

static void do_next_mount(void *ctx)
{
	struct fsrig *r = ctx;
	struct buf why CLEANUP_BUF = BUF_INIT(0);

	staging_free(r->fs.staging);
	r->fs.ending = false;
	if (staging_open(&r->fs, &why) < 0)
		abort();
	salvage_begin(&r->fs);
}

static bool is_saved(void *ctx)
{
	struct salvage_view v;

	return !salvage_next(&((struct fsrig *)ctx)->fs, NULL, &v);
}

/* So many of the bytes were written, and the others are as they were. */
static unsigned places_in(const char *file, const char *bytes)
{
	char *have CLEANUP_FREE = malloc(BIG);
	FILE *from = fopen(file, "r");
	unsigned n = 0;

	assert_non_null(from);
	assert_int_equal(fread(have, 1, BIG, from), BIG);
	fclose(from);
	for (size_t i = 0; i < BIG; i++) {
		if (i % APART == 0 && i / APART < PLACES && have[i] == 'x')
			n++;
		else
			assert_int_equal(have[i], bytes[i]);
	}
	return n;
}

/* Some of them are not the file, and whoever ends the mount hears of it. */
static void test_many_parts_and_the_end(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_big(r, "x", 1), pattern[512];
	struct staged f = write_all_over(r);
	glob_t found;

	fsrig_run(r, do_shelve, &f);
	assert_int_equal(f.result, -E2BIG);
	assert_false(is_certain(&f, "x"));
	close_staged(&f);
	let_base_come(r);
	fsrig_run(r, do_next_mount, r);
	assert_true(fsrig_wait(r, is_saved, r));
	assert_true(is_there(r, "x", bytes, BIG));
	snprintf(pattern, sizeof(pattern), "%s.threadfs-conflict-*", fsrig_host_path(r, "x"));
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	assert_true(places_in(found.gl_pathv[0], bytes) > 1700);
	globfree(&found);
	expect_names(r, 2);
}

/* ---- the end ---- */

/* As at the end of a mount, before its stages go. */
static void do_end_syncers(void *ctx)
{
	workers_free(STEAL(((struct fsrig *)ctx)->fs.syncers));
}

/* The first one's sync is under way then, the second one's turn has not come. */
static void test_end_while_it_syncs(void **state)
{
	struct fsrig *r = *state;
	struct staged f[2];

	disk.free_ms = INT64_MAX;
	for (unsigned i = 0; i < 2; i++) {
		f[i] = open_new(r, i ? "second" : "first");
		assert_int_equal(write_at(&f[i], 0, "abc", 3), 0);
		WAIT_UNTIL(is_noted(&f[i], i ? "second" : "first", 3));
	}
	assert_true(fsrig_wait(r, is_syncing, &f[0]) && fsrig_wait(r, is_syncing, &f[1]));
	WAIT_UNTIL(disk.begun == 1);
	disk.free_ms = clock_ms() + 300;
	fsrig_run(r, do_end_syncers, r);
	assert_int_equal(disk.begun, 1);
	assert_true(is_durable(&f[0], "first"));
	assert_false(is_durable(&f[1], "second"));
	for (unsigned i = 0; i < 2; i++)
		close_staged(&f[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		DISK_TEST(test_failed_once),
		DISK_TEST(test_failed_at_the_end),
		DISK_TEST(test_syncs_hold_up_nobody),
		DISK_TEST(test_many_parts_then_all),
		DISK_TEST(test_many_parts_and_the_end),
		DISK_TEST(test_end_while_it_syncs),
	};

	return FSRIG_RUN(tests);
}

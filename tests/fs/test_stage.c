/* fs/stage*.c: what is written here, on its way to a real sandbox: all goes well. */
#include "staged.h"

#include "clock.h"
#include "entry.h"
#include "shelf.h"

/* ---- new files ---- */

struct look {
	const struct node *n;
	bool unborn, has_attr, fresh;
	uint64_t size;
};

/* On the loop, where events come. */
static void do_look(void *ctx)
{
	struct look *l = ctx;

	l->unborn = l->n->unborn;
	l->has_attr = l->n->has_attr;
	l->fresh = node_is_fresh(l->n);
	l->size = l->n->attr.size;
}

static void test_new_files(void **state)
{
	static const size_t sizes[] = { 0, 1, 5000, MIB - 1, MIB, 7 * MIB + 13 };
	struct fsrig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *bytes CLEANUP_FREE = make_content(sizes[i], (unsigned)i);
		char name[16];
		struct staged f;
		struct look l;

		snprintf(name, sizeof(name), "x%zu", i);
		f = open_new(r, name);
		write_all_at(&f, 0, bytes, sizes[i]);
		assert_int_equal(stat_of(&f)->st_size, sizes[i]);
		assert_true(shows(&f, bytes, sizes[i]));
		assert_int_equal(flush(&f), 0);
		assert_true(is_there(r, name, bytes, sizes[i]));
		l.n = f.n;
		fsrig_run(r, do_look, &l);
		assert_false(l.unborn);
		assert_true(l.has_attr);
		assert_int_equal(l.size, sizes[i]);
		assert_false(l.fresh); /* the rest is asked for when it is wanted */
		assert_true(fsrig_wait(r, is_clean, &f));
		assert_true(shows(&f, bytes, sizes[i]));
		close_staged(&f);
	}
	expect_names(r, ARRAY_SIZE(sizes));
}

static void test_flush_of_nothing_new_needs_no_request(void **state)
{
	struct fsrig *r = *state;
	struct staged f;
	size_t before;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	f = open_staged(r, "x", 0, -1);
	before = rogue_count(r->f->rogue, NULL, UP_ROUTE);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), before);
	assert_int_equal(write_at(&f, 0, "n", 1), 0);
	assert_int_equal(flush(&f), 0);
	before = rogue_count(r->f->rogue, NULL, UP_ROUTE);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), before);
	assert_true(is_there(r, "x", "nld", 3));
	close_staged(&f);
}

static void test_upload_begins_before_the_flush(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(3 * MIB, 1);
	struct staged f = open_new(r, "x");

	write_all_at(&f, 0, bytes, MIB + 5);
	assert_true(fsrig_wait(r, has_upload, &f));
	assert_false(file_exists(fsrig_host_path(r, "x")));
	write_all_at(&f, MIB + 5, bytes + MIB + 5, 2 * MIB - 5);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, 3 * MIB));
	assert_int_equal(rogue_count(r->f->rogue, "POST", UP_ROUTE), 1);
	close_staged(&f);
	expect_names(r, 1);
}

static void test_seeking_back_cancels_the_stream(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(3 * MIB, 2);
	struct staged f = open_new(r, "x");

	write_all_at(&f, 0, bytes, 2 * MIB);
	assert_true(fsrig_wait(r, has_upload, &f));
	assert_int_equal(write_at(&f, 10, "HELLO", 5), 0);
	memcpy(bytes + 10, "HELLO", 5);
	write_all_at(&f, 2 * MIB, bytes + 2 * MIB, MIB);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, 3 * MIB));
	close_staged(&f);
	expect_names(r, 1);
}

static void test_truncating_cancels_the_stream(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 3);
	struct staged f = open_new(r, "x");

	write_all_at(&f, 0, bytes, 2 * MIB);
	assert_true(fsrig_wait(r, has_upload, &f));
	assert_int_equal(truncate_to(&f, 100), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, 100));
	close_staged(&f);
	expect_names(r, 1);
}

static void test_sparse(void **state)
{
	struct fsrig *r = *state;
	size_t len = 3 * MIB + 1;
	char *bytes CLEANUP_FREE = calloc(1, len);
	struct staged f = open_new(r, "x");

	bytes[len - 1] = 'z';
	memcpy(bytes + 1000, "abc", 3);
	assert_int_equal(write_at(&f, len - 1, "z", 1), 0);
	assert_int_equal(write_at(&f, 1000, "abc", 3), 0);
	assert_true(shows(&f, bytes, len));
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, len));
	close_staged(&f);
}

/* Bytes that were cut off do not come back. */
static void test_truncate_without_a_base(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_new(r, "x");

	assert_int_equal(write_at(&f, 0, "0123456789", 10), 0);
	assert_int_equal(truncate_to(&f, 4), 0);
	assert_int_equal(truncate_to(&f, 8), 0);
	assert_true(shows(&f, "0123\0\0\0\0", 8));
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "0123\0\0\0\0", 8));
	assert_int_equal(truncate_to(&f, 0), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "", 0));
	assert_int_equal(truncate_to(&f, UINT64_MAX), -EFBIG);
	assert_int_equal(write_at(&f, INT64_MAX, "ab", 2), -EFBIG);
	close_staged(&f);
}

/* ---- existing files ---- */

static void test_overwrite_in_the_middle(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_big(r, "x", 4);
	struct staged f = open_staged(r, "x", 0, -1);
	char piece[100];

	assert_int_equal(rogue_count(r->f->rogue, NULL, DOWN_ROUTE), 0);
	for (size_t at = 5; at < BIG; at += 3 * MIB) {
		memcpy(bytes + at, "SOMETHING", 9);
		assert_int_equal(write_at(&f, at, bytes + at, 9), 0);
	}
	assert_int_equal(read_at(&f, BIG - 50, piece, 100), 50);
	assert_memory_equal(piece, bytes + BIG - 50, 50);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, BIG));
	assert_true(shows(&f, bytes, BIG));
	assert_int_equal(rogue_count(r->f->rogue, NULL, DOWN_ROUTE), 1);
	close_staged(&f);
}

static void test_truncate_with_a_base(void **state)
{
	struct fsrig *r = *state;
	static const uint64_t sizes[] = { 0, 5, 10, 25 };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		uint64_t size = sizes[i / 2];
		char want[32] = "0123456789";
		struct staged f;

		put_file(fsrig_host_path(r, "x"), "0123456789", 10);
		f = open_staged(r, "x", 0, -1);
		if (i & 1) {
			assert_int_equal(write_at(&f, 2, "ab", 2), 0);
			memcpy(want + 2, "ab", 2);
		}
		assert_int_equal(truncate_to(&f, size), 0);
		assert_int_equal(stat_of(&f)->st_size, size);
		if (size < 10)
			memset(want + size, 0, sizeof(want) - size);
		assert_int_equal(truncate_to(&f, 12), 0);
		assert_true(shows(&f, want, 12));
		assert_int_equal(truncate_to(&f, size), 0);
		assert_int_equal(flush(&f), 0);
		assert_true(is_there(r, "x", want, size));
		close_staged(&f);
	}
}

static void test_emptied(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	assert_int_equal(chmod(fsrig_host_path(r, "x"), 0604), 0);
	f = open_staged(r, "x", STAGE_EMPTY, -1);
	assert_int_equal(stat_of(&f)->st_size, 0);
	assert_true(is_there(r, "x", "0123456789", 10));
	assert_int_equal(write_at(&f, 0, "new", 3), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "new", 3));
	assert_int_equal(mode_of(r, "x"), 0604);
	assert_int_equal(rogue_count(r->f->rogue, NULL, DOWN_ROUTE), 0);
	close_staged(&f);
}

/* Nobody has seen the old one: the new one is what is written into. */
static void test_base_that_changes_before_it_is_fetched(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	f = open_staged(r, "x", 0, -1);
	put_file(fsrig_host_path(r, "x"), "ABCDEF", 6);
	assert_int_equal(write_at(&f, 1, "-", 1), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "A-CDEF", 6));
	close_staged(&f);

	f = open_staged(r, "x", 0, -1);
	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	assert_int_equal(write_at(&f, 7, "-", 1), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "0123456-89", 10));
	close_staged(&f);
}

/* Goes silent in the middle of the file until rogue_release(). */
static void stall_download(struct fsrig *r)
{
	ROGUE_ADD(r->f->rogue, .path = DOWN_ROUTE, .fault = ROGUE_STALL, .after = MIB, .times = 1);
}

static bool has_download(void *ctx)
{
	const struct fsrig *r = ctx;
	const struct transfer *x = r->thread->transfers;

	return x && !x->up && x->moved >= MIB / 2;
}

/*
 * What came of the old version must not show behind the end of the new one. What
 * is read is more than sockets hold: if all of it could still come of the old one it
 * might be that.
 */
static void test_base_that_changes_in_the_middle(void **state)
{
	enum { LAST = 15 * 1024 * 1024 };
	struct fsrig *r = *state;
	char *bytes UNUSED CLEANUP_FREE = make_big(r, "x", 15);
	char *want CLEANUP_FREE = calloc(1, LAST + 1);
	struct staged f = open_staged(r, "x", 0, -1);

	stall_download(r);
	assert_int_equal(write_at(&f, LAST, "z", 1), 0);
	assert_true(fsrig_wait(r, has_download, r));
	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	rogue_release(r->f->rogue);
	memcpy(want, "0123456789", 10);
	want[LAST] = 'z';
	assert_true(shows(&f, want, LAST + 1));
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", want, LAST + 1));
	close_staged(&f);
}

/* Never bytes of two versions. */
static void test_base_that_changes_after_it_was_read(void **state)
{
	struct fsrig *r = *state;
	char *bytes UNUSED CLEANUP_FREE = make_big(r, "x", 16);
	struct staged f = open_staged(r, "x", 0, -1);
	char c;

	stall_download(r);
	assert_int_equal(write_at(&f, 5, "z", 1), 0);
	assert_int_equal(read_at(&f, 0, &c, 1), 1);
	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	rogue_release(r->f->rogue);
	assert_int_equal(read_at(&f, BIG - 1, &c, 1), -ESTALE);
	assert_int_equal(flush(&f), -ESTALE);
	assert_true(is_there(r, "x", "0123456789", 10));
	/* all that was there is given up */
	assert_int_equal(truncate_to(&f, 0), 0);
	assert_int_equal(write_at(&f, 0, "new", 3), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "new", 3));
	close_staged(&f);
}

static void test_base_that_goes_away(void **state)
{
	struct fsrig *r = *state;
	struct staged f;
	char c;

	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	f = open_staged(r, "x", 0, -1);
	assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
	assert_int_equal(write_at(&f, 1, "-", 1), 0);
	assert_int_equal(flush(&f), -ESTALE);
	assert_int_equal(read_at(&f, 0, &c, 1), -ESTALE);
	assert_int_equal(read_at(&f, 1, &c, 1), 1);
	assert_false(file_exists(fsrig_host_path(r, "x")));
	close_staged(&f);
}

/* ---- appends ---- */

static void append_on_host(struct fsrig *r, const char *name, const char *text)
{
	int fd CLEANUP_FD = open(fsrig_host_path(r, name), O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
}

static void test_appends_fetch_nothing(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, "one\n", 4), 0);
	assert_int_equal(append(&f, "two\n", 4), 0);
	assert_int_equal(stat_of(&f)->st_size, 12);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "old\none\ntwo\n", 12));
	/* what others add is not lost */
	append_on_host(r, "x", "sandbox\n");
	assert_int_equal(append(&f, "three\n", 6), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "old\none\ntwo\nsandbox\nthree\n", 26));
	assert_int_equal(stat_of(&f)->st_size, 26);
	assert_int_equal(rogue_count(r->f->rogue, NULL, DOWN_ROUTE), 0);
	assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), 0);
	assert_int_equal(rogue_count(r->f->rogue, NULL, WRITE_ROUTE), 2);
	close_staged(&f);
}

static void test_many_appends(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(5 * MIB + 77, 5);
	struct staged f;

	put_file(fsrig_host_path(r, "x"), bytes, 77);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	for (size_t at = 0; at < 5 * MIB; at += 64 * KIB)
		assert_int_equal(append(&f, bytes + 77 + at, 64 * KIB), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, 5 * MIB + 77));
	assert_int_equal(rogue_count(r->f->rogue, NULL, DOWN_ROUTE), 0);
	close_staged(&f);
}

static void test_append_then_read(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, "one\n", 4), 0);
	append_on_host(r, "x", "sandbox\n");
	assert_true(shows(&f, "old\nsandbox\none\n", 16));
	assert_int_equal(append(&f, "two\n", 4), 0);
	assert_true(shows(&f, "old\nsandbox\none\ntwo\n", 20));
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "old\nsandbox\none\ntwo\n", 20));
	close_staged(&f);
}

static void test_append_then_write_elsewhere(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, "one\n", 4), 0);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(append(&f, "two\n", 4), 0);
	assert_int_equal(write_at(&f, 1, "L", 1), 0);
	assert_true(shows(&f, "oLd\none\ntwo\n", 12));
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "oLd\none\ntwo\n", 12));
	close_staged(&f);

	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, "three\n", 6), 0);
	assert_int_equal(truncate_to(&f, 13), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "oLd\none\ntwo\nt", 13));
	close_staged(&f);

	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, "gone", 4), 0);
	assert_int_equal(truncate_to(&f, 0), 0);
	assert_int_equal(append(&f, "stays", 5), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "stays", 5));
	close_staged(&f);
}

static void test_write_elsewhere_while_an_append_is_sent(void **state)
{
	struct fsrig *r = *state;
	struct flushed w;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	assert_int_equal(append(&f, "one\n", 4), 0);
	begin_flush(&f, &w);
	assert_true(rogue_wait_for(r->f->rogue, NULL, WRITE_ROUTE, 1, 20000));
	assert_int_equal(append(&f, "two\n", 4), 0);
	assert_int_equal(write_at(&f, 0, "O", 1), 0);
	rogue_release(r->f->rogue);
	assert_int_equal(end_flush(&f, &w), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "Old\none\ntwo\n", 12));
	close_staged(&f);
}

/* What may have been done is not done again; the error is told, also to who closes it. */
static void test_append_without_an_answer(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .action = ROGUE_REPLACE, .times = 1,
		  .reply = { .body = "nonsense" });
	assert_int_equal(append(&f, "one\n", 4), 0);
	assert_int_equal(flush(&f), -EBADMSG);
	assert_int_equal(append(&f, "two\n", 4), 0);
	assert_int_equal(flush(&f), -EBADMSG);
	assert_int_equal(flush(&f), -EBADMSG);
	assert_true(is_there(r, "x", "old\none\ntwo\n", 12));
	close_staged(&f);
}

/* Nor is one that the server says it has done, and has not. */
static void test_append_that_is_not_there(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .action = ROGUE_ANSWER, .times = 1,
		  .reply = { .body = "{\"success\":true,\"data\":{\"bytes_written\":4}}" });
	assert_int_equal(append(&f, "one\n", 4), 0);
	assert_int_equal(flush(&f), -EIO);
	assert_int_equal(append(&f, "two\n", 4), 0);
	assert_int_equal(flush(&f), -EIO);
	assert_true(is_there(r, "x", "old\ntwo\n", 8));
	close_staged(&f);
}

/* Others may empty the file, or put another one there: what we append to it is there. */
static void test_append_to_what_others_empty(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "0123456789", 10);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(truncate(fsrig_host_path(r, "x"), 0), 0);
	assert_int_equal(append(&f, "one\n", 4), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "one\n", 4));
	put_file(fsrig_host_path(r, "y"), "other", 5);
	assert_int_equal(rename(fsrig_host_path(r, "y"), fsrig_host_path(r, "x")), 0);
	assert_int_equal(append(&f, "0123456789", 10), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "other0123456789", 15));
	close_staged(&f);
}

static void test_append_that_is_refused_stays(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old\n", 4);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	ROGUE_ADD(r->f->rogue, .path = WRITE_ROUTE, .action = ROGUE_ANSWER, .times = 1,
		  .reply = { .body = "{\"success\":false,\"message\":\"no\",\"data\":{\"errno\":13}"
				     "}" });
	assert_int_equal(append(&f, "one\n", 4), 0);
	assert_int_equal(flush(&f), -EACCES);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "old\none\n", 8));
	close_staged(&f);
}

/* ---- attributes ---- */

static void do_set_attr(void *ctx)
{
	struct staged *f = ctx;

	stage_set_attr(f->s, f->mode, f->bytes);
}

static void set_attr(struct staged *f, int mode, const struct timespec *mtime)
{
	f->mode = mode;
	f->bytes = mtime;
	fsrig_run(f->r, do_set_attr, f);
}

static void test_mode_and_time(void **state)
{
	const struct timespec then = { .tv_sec = 1000000000, .tv_nsec = 123456789 };
	struct fsrig *r = *state;
	struct staged f = open_staged(r, "x", STAGE_EMPTY, 0640);
	struct stat st;

	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	assert_int_equal(stat_of(&f)->st_mode, S_IFREG | 0640);
	set_attr(&f, -1, &then);
	assert_int_equal(stat_of(&f)->st_mtim.tv_nsec, then.tv_nsec);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(mode_of(r, "x"), 0640);
	assert_int_equal(stat(fsrig_host_path(r, "x"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, then.tv_sec);
	assert_int_equal(st.st_mtim.tv_nsec, then.tv_nsec);
	/* alone, without the content */
	set_attr(&f, 0600, NULL);
	assert_int_equal(stat_of(&f)->st_mode, S_IFREG | 0600);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(mode_of(r, "x"), 0600);
	assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), 1);
	/* a write has a time of its own */
	set_attr(&f, -1, &then);
	assert_int_equal(write_at(&f, 3, "d", 1), 0);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(stat(fsrig_host_path(r, "x"), &st), 0);
	assert_true(st.st_mtim.tv_sec > then.tv_sec);
	assert_int_equal(mode_of(r, "x"), 0600);
	close_staged(&f);
}

static void test_mode_set_while_it_streams(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 6);
	struct staged f = open_new(r, "x");

	write_all_at(&f, 0, bytes, 2 * MIB);
	assert_true(fsrig_wait(r, has_upload, &f));
	set_attr(&f, 0600, NULL);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(mode_of(r, "x"), 0600);
	assert_true(is_there(r, "x", bytes, 2 * MIB));
	close_staged(&f);
}

static void test_name_that_is_taken_meanwhile(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_staged(r, "x", STAGE_EMPTY | STAGE_EXCL, 0644);

	assert_int_equal(write_at(&f, 0, "mine", 4), 0);
	put_file(fsrig_host_path(r, "x"), "theirs", 6);
	assert_int_equal(flush(&f), -EEXIST);
	assert_true(is_there(r, "x", "theirs", 6));
	assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "mine", 4));
	/* from now on it is ours to replace */
	assert_int_equal(write_at(&f, 0, "M", 1), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "Mine", 4));
	close_staged(&f);
	expect_names(r, 1);
}

/* ---- several at once ---- */

static void test_write_during_a_flush(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 7);
	struct staged f = open_new(r, "x");
	struct flushed w[3];

	write_all_at(&f, 0, bytes, MIB / 2);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	begin_flush(&f, &w[0]);
	begin_flush(&f, &w[1]);
	assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
	write_all_at(&f, MIB / 2, bytes + MIB / 2, MIB / 2);
	assert_int_equal(write_at(&f, 0, "X", 1), 0);
	bytes[0] = 'X';
	begin_flush(&f, &w[2]);
	assert_false(w[0].done);
	rogue_release(r->f->rogue);
	assert_int_equal(end_flush(&f, &w[0]), 0);
	assert_int_equal(end_flush(&f, &w[1]), 0);
	assert_int_equal(end_flush(&f, &w[2]), 0);
	assert_true(is_there(r, "x", bytes, MIB));
	assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), 2);
	close_staged(&f);
}

static void test_truncate_during_a_flush(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 8);
	struct staged f = open_new(r, "x");
	struct flushed w;

	write_all_at(&f, 0, bytes, MIB / 2);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	begin_flush(&f, &w);
	assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
	assert_int_equal(truncate_to(&f, 10), 0);
	rogue_release(r->f->rogue);
	assert_int_equal(end_flush(&f, &w), 0);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", bytes, 10));
	close_staged(&f);
	expect_names(r, 1);
}

/* ---- what is known of the directory ---- */

/* The watch is live, and the thread's root is known to be empty. */
static void know_root(void *ctx)
{
	struct fsrig *r = ctx;
	struct moment asked;

	r->thread->watched = true;
	r->thread->live_ms = clock_ms() - 10;
	asked = node_moment(r->thread);
	entry_is_empty_dir(r->root, &asked);
}

static void forget_root(void *ctx)
{
	struct fsrig *r = ctx;

	r->thread->watched = false;
	shelf_clear(r->thread);
}

static size_t to_temporary(struct fsrig *r)
{
	return rogue_count_body(r->f->rogue, "POST", UP_ROUTE, ".threadfs-upload-");
}

static void test_known_directory_is_not_asked(void **state)
{
	struct fsrig *r = *state;
	struct staged f;

	fsrig_run(r, know_root, r);
	/* The first one tells the mode that uploads give. */
	f = open_staged(r, "a", STAGE_EMPTY | STAGE_EXCL, 0644);
	assert_int_equal(flush(&f), 0);
	close_staged(&f);
	rogue_forget(r->f->rogue);
	f = open_staged(r, "b", STAGE_EMPTY | STAGE_EXCL, 0644);
	write_all_at(&f, 0, "new", 3);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "b", "new", 3));
	assert_int_equal(rogue_count(r->f->rogue, NULL, "/v1/file/find"), 0);
	assert_int_equal(to_temporary(r), 0);
	assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), 1);
	assert_int_equal(rogue_count_body(r->f->rogue, NULL, NULL, "command mv"), 0);
	/* It is there now: the next ones go over it as ever. */
	write_all_at(&f, 0, "more", 4);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "b", "more", 4));
	close_staged(&f);
	fsrig_run(r, forget_root, r);
	rogue_forget(r->f->rogue);
	f = open_staged(r, "c", STAGE_EMPTY | STAGE_EXCL, 0644);
	assert_int_equal(flush(&f), 0);
	assert_int_equal(to_temporary(r), 1);
	close_staged(&f);
	expect_names(r, 3);
}

/* ---- what is sent after what ---- */

/* A server that puts what it has all of in its place when it gets to that, also for nobody. */
struct late {
	const char *host_dir;
	atomic_bool has_it, may; /* go on */
	char said[128];
};

/* The part "path", whose name is in host_dir; and the bytes of the part "file". */
static int store_late(void *ctx, const struct rogue_request *q, struct rogue_reply *reply)
{
	struct late *l = ctx;
	char *path = strstr(q->body, "\r\n\r\n") + 4, *end = strstr(path, "\r\n");
	char *bytes = strstr(end, "\r\n\r\n") + 4, host[512];
	size_t tail = strlen("\r\n") + (size_t)(strstr(q->body, "\r\n") - q->body) + 4;
	size_t len = q->body_len - (size_t)(bytes - q->body) - tail;
	char *name = memrchr(path, '/', (size_t)(end - path));

	atomic_store(&l->has_it, true);
	for (int i = 0; i < 2000 && !atomic_load(&l->may); i++)
		usleep(10000);
	snprintf(host, sizeof(host), "%s/%.*s", l->host_dir, (int)(end - name - 1), name + 1);
	put_file(host, bytes, len);
	snprintf(l->said, sizeof(l->said), "{\"success\":true,\"data\":{\"file_size\":%zu}}", len);
	*reply = (struct rogue_reply){ .body = l->said };
	return 0;
}

static void expect_in_order(struct fsrig *r, struct staged f, size_t len)
{
	char *bytes CLEANUP_FREE = make_content(len, 16);
	struct late l = { .host_dir = r->f->host_dir };
	struct flushed one, other;

	rogue_clear(r->f->rogue);
	rogue_forget(r->f->rogue);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .action = ROGUE_ANSWER, .handler = store_late,
		  .ctx = &l, .times = 1);
	write_all_at(&f, 0, bytes, len);
	begin_flush(&f, &one);
	WAIT_UNTIL(atomic_load(&l.has_it));
	assert_int_equal(truncate_to(&f, 0), 0);
	assert_int_equal(write_at(&f, 0, "small", 5), 0);
	begin_flush(&f, &other);
	assert_false(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 2, 500));
	assert_true(shows(&f, "small", 5));
	atomic_store(&l.may, true);
	assert_int_equal(end_flush(&f, &one), 0);
	assert_int_equal(end_flush(&f, &other), 0);
	assert_true(is_there(r, "x", "small", 5));
	assert_true(fsrig_wait(r, is_clean, &f));
	close_staged(&f);
	expect_names(r, 1);
	assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
}

/* What the sandbox has all of does not come after what is sent later, whatever way it goes. */
static void test_emptied_when_all_was_sent(void **state)
{
	static const size_t sizes[] = { 1000, 300 * KIB };
	struct fsrig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		put_file(fsrig_host_path(r, "x"), "old", 3);
		expect_in_order(r, open_staged(r, "x", STAGE_EMPTY, -1), sizes[i]);
		expect_in_order(r, open_new(r, "x"), sizes[i]);
		fsrig_run(r, know_root, r);
		expect_in_order(r, open_staged(r, "x", STAGE_EMPTY | STAGE_EXCL, -1), sizes[i]);
		fsrig_run(r, forget_root, r);
	}
}

/* If that is refused it is nobody's loss; if there is no answer, nobody knows. */
static void test_emptied_and_refused(void **state)
{
	struct fsrig *r = *state;

	for (unsigned i = 0; i < 2; i++) {
		struct staged f;
		struct flushed one, other;

		rogue_clear(r->f->rogue);
		put_file(fsrig_host_path(r, "x"), "old", 3);
		f = open_staged(r, "x", STAGE_EMPTY, -1);
		ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .times = 1,
			  .action = i ? ROGUE_CLOSE : ROGUE_ANSWER, .hold_ms = ROGUE_UNTIL_RELEASED,
			  .reply = { .body = "{\"success\":false,\"message\":\"x\","
					     "\"data\":{\"errno\":28}}" });
		if (i)
			ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .action = ROGUE_CLOSE);
		assert_int_equal(write_at(&f, 0, "large", 5), 0);
		rogue_forget(r->f->rogue);
		begin_flush(&f, &one);
		assert_true(rogue_wait_body(r->f->rogue, NULL, UP_ROUTE, 100, 20000));
		assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
		assert_int_equal(truncate_to(&f, 0), 0);
		begin_flush(&f, &other);
		rogue_release(r->f->rogue);
		assert_int_equal(end_flush(&f, &one), i ? -ECONNRESET : 0);
		assert_int_equal(end_flush(&f, &other), i ? -ECONNRESET : 0);
		rogue_clear(r->f->rogue);
		assert_int_equal(flush(&f), 0);
		assert_true(is_there(r, "x", "", 0));
		close_staged(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FSRIG_TEST(test_new_files),
		FSRIG_TEST(test_flush_of_nothing_new_needs_no_request),
		FSRIG_TEST(test_upload_begins_before_the_flush),
		FSRIG_TEST(test_seeking_back_cancels_the_stream),
		FSRIG_TEST(test_truncating_cancels_the_stream),
		FSRIG_TEST(test_sparse),
		FSRIG_TEST(test_truncate_without_a_base),
		FSRIG_TEST(test_overwrite_in_the_middle),
		FSRIG_TEST(test_truncate_with_a_base),
		FSRIG_TEST(test_emptied),
		FSRIG_TEST(test_base_that_changes_before_it_is_fetched),
		FSRIG_TEST(test_base_that_changes_in_the_middle),
		FSRIG_TEST(test_base_that_changes_after_it_was_read),
		FSRIG_TEST(test_base_that_goes_away),
		FSRIG_TEST(test_appends_fetch_nothing),
		FSRIG_TEST(test_many_appends),
		FSRIG_TEST(test_append_then_read),
		FSRIG_TEST(test_append_then_write_elsewhere),
		FSRIG_TEST(test_write_elsewhere_while_an_append_is_sent),
		FSRIG_TEST(test_append_without_an_answer),
		FSRIG_TEST(test_append_that_is_not_there),
		FSRIG_TEST(test_append_to_what_others_empty),
		FSRIG_TEST(test_append_that_is_refused_stays),
		FSRIG_TEST(test_mode_and_time),
		FSRIG_TEST(test_mode_set_while_it_streams),
		FSRIG_TEST(test_name_that_is_taken_meanwhile),
		FSRIG_TEST(test_write_during_a_flush),
		FSRIG_TEST(test_truncate_during_a_flush),
		FSRIG_TEST(test_known_directory_is_not_asked),
		FSRIG_TEST(test_emptied_when_all_was_sent),
		FSRIG_TEST(test_emptied_and_refused),
	};

	return FSRIG_RUN(tests);
}

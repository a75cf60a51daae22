/* fs/stage*.c: full disks, other names, nobody who waits, and ends at any time. */
#include "staged.h"

/* ---- failures ---- */

static void refuse_uploads(struct fsrig *r, int64_t take)
{
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .action = ROGUE_ANSWER, .take_bytes = take,
		  .reply = { .body = "{\"success\":false,\"message\":\"full\",\"data\":{\"errno\":"
				     "28,\"error_type\":\"no_space_left\"}}" });
}

static void do_pending(void *ctx)
{
	struct staged *f = ctx;

	f->len = stage_pending(f->s);
}

static size_t pending(struct staged *f)
{
	fsrig_run(f->r, do_pending, f);
	return f->len;
}

static void test_disk_of_the_sandbox_is_full(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(3 * MIB, 9);
	struct staged f;

	put_file(fsrig_host_path(r, "x"), "old", 3);
	for (unsigned i = 0; i < 2; i++) {
		f = open_staged(r, "x", STAGE_EMPTY, -1);
		refuse_uploads(r, i ? 1000000 : 0);
		write_all_at(&f, 0, bytes, 3 * MIB);
		assert_int_equal(flush(&f), -ENOSPC);
		assert_true(i == 1 || is_there(r, "x", "old", 3));
		assert_int_equal(pending(&f), 3 * MIB);
		rogue_clear(r->f->rogue);
		assert_int_equal(flush(&f), 0);
		assert_true(is_there(r, "x", bytes, 3 * MIB));
		close_staged(&f);
	}
	expect_names(r, 1);
}

static void test_cache_is_full(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_big(r, "x", 10);
	struct staged f = open_staged(r, "x", 0, -1);

	r->opt.cache_size = MIB;
	assert_int_equal(write_at(&f, 0, "new", 3), -ENOSPC);
	assert_int_equal(flush(&f), 0);
	close_staged(&f);
	f = open_staged(r, "x", STAGE_EMPTY, -1);
	assert_int_equal(write_at(&f, 0, bytes, MIB), 0);
	assert_int_equal(write_at(&f, MIB, bytes, 1), -ENOSPC);
	assert_true(is_there(r, "x", bytes, BIG));
	close_staged(&f);
	f = open_staged(r, "x", STAGE_APPEND, -1);
	assert_int_equal(append(&f, bytes, MIB + 1), -ENOSPC);
	assert_true(is_there(r, "x", bytes, BIG));
	close_staged(&f);
}

static void test_server_that_stores_something_else(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_new(r, "x");

	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .action = ROGUE_REPLACE,
		  .times = 3, /* it is tried twice more: see remote.c */
		  .reply = { .body = "{\"success\":true,\"data\":{\"file_size\":1}}" });
	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	assert_int_equal(flush(&f), -EIO);
	assert_int_equal(flush(&f), 0);
	assert_true(is_there(r, "x", "abc", 3));
	close_staged(&f);
	expect_names(r, 1);
}

/* ---- names ---- */

struct settling {
	struct staged *f;
	bool settled; /* loop thread */
};

static void on_settled(void *ctx)
{
	((struct settling *)ctx)->settled = true;
}

static void do_settle(void *ctx)
{
	struct settling *s = ctx;

	stage_settle(s->f->s, on_settled, s);
}

static bool is_settled(void *ctx)
{
	return ((struct settling *)ctx)->settled;
}

static void do_move_and_resume(void *ctx)
{
	struct staged *f = ctx;

	f->result = node_move(f->n, f->r->root, "y");
	stage_resume(f->s);
}

static void test_rename_while_it_streams(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(3 * MIB, 11);
	struct staged f = open_new(r, "x");
	struct settling s = { .f = &f };
	struct flushed w;

	write_all_at(&f, 0, bytes, 2 * MIB);
	assert_true(fsrig_wait(r, has_upload, &f));
	fsrig_run(r, do_settle, &s);
	assert_true(fsrig_wait(r, is_settled, &s));
	/* nothing begins before it has its new name */
	write_all_at(&f, 2 * MIB, bytes + 2 * MIB, MIB);
	begin_flush(&f, &w);
	assert_null(r->thread->transfers);
	fsrig_run(r, do_move_and_resume, &f);
	assert_int_equal(f.result, 0);
	assert_int_equal(end_flush(&f, &w), 0);
	assert_true(is_there(r, "y", bytes, 3 * MIB));
	assert_false(file_exists(fsrig_host_path(r, "x")));
	close_staged(&f);
	expect_names(r, 1);
}

static void test_rename_during_a_flush(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_new(r, "x");
	struct settling s = { .f = &f };
	struct flushed w;

	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	begin_flush(&f, &w);
	assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
	fsrig_run(r, do_settle, &s);
	assert_false(s.settled);
	rogue_release(r->f->rogue);
	assert_true(fsrig_wait(r, is_settled, &s));
	assert_int_equal(end_flush(&f, &w), 0);
	assert_true(is_there(r, "x", "abc", 3));
	close_staged(&f);
}

static void do_orphan(void *ctx)
{
	struct staged *f = ctx;

	stage_orphan(f->s);
	f->n->unborn = false;
	node_detach(f->n);
}

struct flushed_orphan {
	struct staged *f;
	struct flushed w;
};

/* In one go, so that nothing of it is sent. */
static void do_flush_and_orphan(void *ctx)
{
	struct flushed_orphan *o = ctx;

	do_flush(&o->w);
	do_orphan(o->f);
}

/* Without a flush, before it is sent, and while it is under way. */
static void test_orphan(void **state)
{
	struct fsrig *r = *state;

	for (unsigned i = 0; i < 3; i++) {
		struct staged f = open_new(r, "x");
		struct flushed_orphan o = { &f, { .op.done = on_flushed, .s = f.s } };
		size_t before;

		assert_int_equal(write_at(&f, 0, "abc", 3), 0);
		ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED,
			  .times = 1);
		if (i > 1) {
			begin_flush(&f, &o.w);
			assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
		}
		fsrig_run(r, i == 1 ? do_flush_and_orphan : do_orphan, i == 1 ? (void *)&o : &f);
		if (i > 0)
			assert_int_equal(end_flush(&f, &o.w), 0);
		rogue_clear(r->f->rogue);
		rogue_release(r->f->rogue);
		before = rogue_count(r->f->rogue, NULL, UP_ROUTE);
		assert_true(shows(&f, "abc", 3));
		assert_int_equal(write_at(&f, 3, "d", 1), 0);
		assert_int_equal(flush(&f), 0);
		assert_true(shows(&f, "abcd", 4));
		assert_int_equal(rogue_count(r->f->rogue, NULL, UP_ROUTE), before);
		assert_true(fsrig_wait(r, is_clean, &f));
		close_staged(&f);
	}
	expect_names(r, 0);
}

struct keeping {
	struct staged *f;
	int err;
	bool done;
};

static void on_kept(void *ctx, int err)
{
	struct keeping *k = ctx;

	k->err = err;
	k->done = true;
}

static void do_keep(void *ctx)
{
	struct keeping *k = ctx;

	stage_keep(k->f->s, on_kept, k);
}

static bool is_kept(void *ctx)
{
	return ((struct keeping *)ctx)->done;
}

static void test_keep(void **state)
{
	struct fsrig *r = *state;

	for (unsigned i = 0; i < 2; i++) {
		char *bytes CLEANUP_FREE = make_big(r, "x", 12);
		struct staged f = open_staged(r, "x", i ? STAGE_APPEND : 0, -1);
		struct keeping k = { .f = &f };

		if (i)
			assert_int_equal(append(&f, "tail", 4), 0);
		fsrig_run(r, do_keep, &k);
		assert_true(fsrig_wait(r, is_kept, &k));
		assert_int_equal(k.err, 0);
		assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
		fsrig_run(r, do_orphan, &f);
		bytes = realloc(bytes, BIG + 4);
		memcpy(bytes + BIG, "tail", 4);
		assert_true(shows(&f, bytes, BIG + (i ? 4 : 0)));
		close_staged(&f);
	}
}

/* ---- nobody waits ---- */

static void do_abandon(void *ctx)
{
	stage_abandon(ctx);
}

static bool has_no_stage(void *ctx)
{
	return !((struct node *)ctx)->stage;
}

static void abandon(struct staged *f)
{
	fsrig_run(f->r, do_abandon, f->s);
}

static void do_forget_attr(void *ctx)
{
	((struct node *)ctx)->has_attr = false;
}

static void test_abandoned(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 13);

	for (unsigned i = 0; i < 3; i++) {
		struct staged f = open_new(r, "x");
		size_t len = i == 0 ? 0 : i == 1 ? 1000 : 2 * MIB;

		write_all_at(&f, 0, bytes, len);
		if (i == 2)
			assert_true(fsrig_wait(r, has_upload, &f));
		abandon(&f);
		assert_true(fsrig_wait(r, has_no_stage, f.n));
		assert_true(is_there(r, "x", bytes, len));
		assert_int_equal(unlink(fsrig_host_path(r, "x")), 0);
		fsrig_run(r, do_forget_attr, f.n);
		fsrig_put(r, f.n);
	}
	expect_names(r, 0);
}

static bool has_failed(void *ctx)
{
	return ((struct fsrig *)ctx)->thread->last_error == -ENOSPC;
}

static void test_abandoned_and_failed(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_new(r, "x");

	refuse_uploads(r, 0);
	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	abandon(&f);
	assert_true(fsrig_wait(r, has_failed, r));
	assert_ptr_equal(f.n->stage, f.s);
	assert_int_equal(pending(&f), 3);
	rogue_clear(r->f->rogue);
	/* somebody opens and flushes it before its time has come */
	assert_int_equal(flush(&f), 0);
	assert_true(fsrig_wait(r, has_no_stage, f.n));
	assert_true(is_there(r, "x", "abc", 3));
	fsrig_put(r, f.n);
}

/* Told to who closed it, and final: it does not appear later. */
static void test_abandoned_and_refused(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_staged(r, "x", STAGE_EMPTY | STAGE_EXCL, 0644);

	put_file(fsrig_host_path(r, "x"), "theirs", 6);
	assert_int_equal(flush(&f), -EEXIST);
	abandon(&f);
	assert_true(fsrig_wait(r, has_no_stage, f.n));
	assert_null(f.n->parent);
	assert_true(is_there(r, "x", "theirs", 6));
	fsrig_put(r, f.n);
}

/* Its upload is refused for good and the stage goes: who waits to remove the name hears of it. */
static void test_refused_while_somebody_settles(void **state)
{
	struct fsrig *r = *state;
	struct staged f = open_staged(r, "x", STAGE_EMPTY | STAGE_EXCL, 0644);
	struct settling s = { .f = &f };

	put_file(fsrig_host_path(r, "x"), "theirs", 6);
	assert_int_equal(write_at(&f, 0, "abc", 3), 0);
	ROGUE_ADD(r->f->rogue, .path = UP_ROUTE, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	abandon(&f);
	assert_true(rogue_wait_for(r->f->rogue, NULL, UP_ROUTE, 1, 20000));
	fsrig_run(r, do_settle, &s);
	assert_false(s.settled);
	rogue_release(r->f->rogue);
	assert_true(fsrig_wait(r, has_no_stage, f.n));
	assert_true(fsrig_wait(r, is_settled, &s));
	assert_true(is_there(r, "x", "theirs", 6));
	fsrig_put(r, f.n);
}

/* ---- the end at any time ---- */

static void do_cancel_flush(void *ctx)
{
	struct flushed *w = ctx;

	if (!w->done)
		stage_flush_cancel(w->s, &w->op);
}

static void test_free_at_any_time(void **state)
{
	static const char *const routes[] = { UP_ROUTE,         DOWN_ROUTE,      WRITE_ROUTE,
					      "/v1/shell/exec", "/v1/bash/exec", "/v1/file/find" };
	struct fsrig *r = *state;
	unsigned used = 0;

	put_file(fsrig_host_path(r, "old"), "0123456789", 10);
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(routes); i++) {
		const char *route = routes[i / 4];
		struct staged f =
			i % 4 == 0 ? open_new(r, "new")
				   : open_staged(r, "old", i % 4 == 1 ? STAGE_APPEND : 0, -1);
		size_t before = rogue_count(r->f->rogue, NULL, route);
		struct flushed w;

		ROGUE_ADD(r->f->rogue, .path = route, .hold_ms = ROGUE_UNTIL_RELEASED);
		if (i % 4 == 1)
			assert_int_equal(append(&f, "a", 1), 0);
		else
			assert_int_equal(write_at(&f, 0, "a", 1), 0);
		begin_flush(&f, &w);
		/* not every route is used by each server */
		if (i % 4 < 3)
			used += rogue_wait_for(r->f->rogue, NULL, route, before + 1, 300);
		fsrig_run(r, do_cancel_flush, &w);
		close_staged(&f);
		rogue_clear(r->f->rogue);
		rogue_release(r->f->rogue);
		unlink(fsrig_host_path(r, "new"));
		put_file(fsrig_host_path(r, "old"), "0123456789", 10);
	}
	assert_true(used > 4);
}

/* ---- a sandbox that dies ---- */

static void test_killed_in_the_middle(void **state)
{
	struct fsrig *r = *state;
	char *bytes CLEANUP_FREE = make_content(40 * MIB, 14);
	struct staged f;
	struct flushed w;
	int err;

	f = open_new(r, "workspace/x");
	assert_int_equal(write_at(&f, 0, "old", 3), 0);
	assert_int_equal(flush(&f), 0);
	close_staged(&f);
	f = open_staged(r, "workspace/x", STAGE_EMPTY, -1);
	write_all_at(&f, 0, bytes, 40 * MIB);
	begin_flush(&f, &w);
	rig_kill(r->rig, r->thread->tenant);
	err = end_flush(&f, &w);
	if (err < 0) {
		assert_true(is_there(r, "workspace/x", "old", 3));
		assert_int_equal(flush(&f), 0);
	}
	assert_true(is_there(r, "workspace/x", bytes, 40 * MIB));
	assert_true(shows(&f, bytes, 40 * MIB));
	close_staged(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FSRIG_TEST(test_disk_of_the_sandbox_is_full),
		FSRIG_TEST(test_cache_is_full),
		FSRIG_TEST(test_server_that_stores_something_else),
		FSRIG_TEST(test_rename_while_it_streams),
		FSRIG_TEST(test_rename_during_a_flush),
		FSRIG_TEST(test_orphan),
		FSRIG_TEST(test_keep),
		FSRIG_TEST(test_abandoned),
		FSRIG_TEST(test_abandoned_and_failed),
		FSRIG_TEST(test_abandoned_and_refused),
		FSRIG_TEST(test_refused_while_somebody_settles),
		FSRIG_TEST(test_free_at_any_time),
		FSRIG_EMBEDDED_TEST(test_killed_in_the_middle),
	};

	return FSRIG_RUN(tests);
}

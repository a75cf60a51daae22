/* Coalescing of file events, the log they end in, and the table of directories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "watch_event.h"
#include "watch_tree.h"

static void add(struct pending *p, enum watch_kind kind, const char *path)
{
	assert_int_equal(pending_add(p, kind, path, false, 1.0), 0);
}

static void add_dir(struct pending *p, enum watch_kind kind, const char *path)
{
	assert_int_equal(pending_add(p, kind, path, true, 1.0), 0);
}

static void move(struct pending *p, const char *old, const char *path, bool is_dir)
{
	assert_int_equal(pending_rename(p, old, path, is_dir, 1.0), 0);
}

/* The next event is this one. */
static void next(struct pending *p, enum watch_kind kind, const char *path, const char *old)
{
	struct pending_event *e = pending_pop(p);

	assert_non_null(e);
	assert_string_equal(watch_kind_name(e->kind), watch_kind_name(kind));
	assert_string_equal(e->path, path);
	if (old)
		assert_string_equal(e->old, old);
	else
		assert_null(e->old);
	free(e);
}

static void end(struct pending *p)
{
	assert_null(pending_pop(p));
	assert_int_equal(p->count, 0);
	assert_int_equal(p->bytes, 0);
	assert_null(p->by_path);
}

static void test_merge_table(void **state)
{
	static const struct {
		enum watch_kind first, second, result;
	} rows[] = {
		{ WATCH_CREATE, WATCH_WRITE, WATCH_CREATE },
		{ WATCH_CREATE, WATCH_CHMOD, WATCH_CREATE },
		{ WATCH_CREATE, WATCH_CREATE, WATCH_CREATE },
		{ WATCH_CREATE, WATCH_REMOVE, WATCH_REMOVE },
		{ WATCH_WRITE, WATCH_WRITE, WATCH_WRITE },
		{ WATCH_WRITE, WATCH_CHMOD, WATCH_WRITE },
		{ WATCH_WRITE, WATCH_REMOVE, WATCH_REMOVE },
		{ WATCH_WRITE, WATCH_CREATE, WATCH_WRITE },
		{ WATCH_CHMOD, WATCH_CHMOD, WATCH_CHMOD },
		{ WATCH_CHMOD, WATCH_WRITE, WATCH_WRITE },
		{ WATCH_CHMOD, WATCH_REMOVE, WATCH_REMOVE },
		{ WATCH_REMOVE, WATCH_CREATE, WATCH_WRITE },
		{ WATCH_REMOVE, WATCH_CHMOD, WATCH_REMOVE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct pending p = { 0 };

		add(&p, rows[i].first, "f");
		add(&p, rows[i].second, "f");
		next(&p, rows[i].result, "f", NULL);
		end(&p);
	}
}

static void test_unknown_file_comes_back_as_new(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_CREATE, "f");
	add(&p, WATCH_REMOVE, "f");
	add(&p, WATCH_CREATE, "f");
	next(&p, WATCH_CREATE, "f", NULL);
	end(&p);
}

static void test_order_is_of_first_occurrence(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_WRITE, "b");
	add(&p, WATCH_WRITE, "a");
	add(&p, WATCH_WRITE, "b");
	next(&p, WATCH_WRITE, "b", NULL);
	next(&p, WATCH_WRITE, "a", NULL);
	end(&p);
}

static void test_save_by_rename(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_CREATE, "tmp");
	add(&p, WATCH_WRITE, "tmp");
	move(&p, "tmp", "f", false);
	add(&p, WATCH_CHMOD, "f");
	next(&p, WATCH_CREATE, "tmp", NULL);
	next(&p, WATCH_RENAME, "f", "tmp");
	next(&p, WATCH_CHMOD, "f", NULL);
	end(&p);
}

static void test_log_rotation(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_WRITE, "log");
	move(&p, "log", "log.1", false);
	add(&p, WATCH_CREATE, "log");
	next(&p, WATCH_WRITE, "log", NULL);
	next(&p, WATCH_RENAME, "log.1", "log");
	next(&p, WATCH_CREATE, "log", NULL);
	end(&p);
}

static void test_renames_are_never_merged(void **state)
{
	struct pending p = { 0 };

	move(&p, "a", "t", false);
	move(&p, "b", "a", false);
	move(&p, "t", "b", false);
	next(&p, WATCH_RENAME, "t", "a");
	next(&p, WATCH_RENAME, "a", "b");
	next(&p, WATCH_RENAME, "b", "t");
	end(&p);
}

static void test_directory_rename_parts_before_from_after(void **state)
{
	struct pending p = { 0 };
	struct pending_event *e;

	add(&p, WATCH_CREATE, "d/f");
	move(&p, "d", "e", true);
	add(&p, WATCH_WRITE, "d/f");
	e = pending_pop(&p);
	assert_string_equal(e->path, "d/f");
	assert_int_equal(e->kind, WATCH_CREATE);
	assert_true(e->overtaken);
	free(e);
	next(&p, WATCH_RENAME, "e", "d");
	next(&p, WATCH_WRITE, "d/f", NULL);
	end(&p);
}

static void test_directory_that_returns(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_REMOVE, "d/f");
	add_dir(&p, WATCH_REMOVE, "d");
	add_dir(&p, WATCH_CREATE, "d");
	add(&p, WATCH_CREATE, "d/f");
	next(&p, WATCH_REMOVE, "d/f", NULL);
	next(&p, WATCH_REMOVE, "d", NULL);
	next(&p, WATCH_CREATE, "d", NULL);
	next(&p, WATCH_CREATE, "d/f", NULL);
	end(&p);
}

static void test_change_of_type(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_REMOVE, "x");
	add_dir(&p, WATCH_CREATE, "x");
	next(&p, WATCH_REMOVE, "x", NULL);
	next(&p, WATCH_CREATE, "x", NULL);
	end(&p);
}

static void test_clear(void **state)
{
	struct pending p = { 0 };

	add(&p, WATCH_CREATE, "a");
	move(&p, "a", "b", false);
	pending_clear(&p);
	end(&p);
}

static void fill_path(char *path, size_t size, unsigned n)
{
	memset(path, 'x', size - 1);
	path[size - 1] = '\0';
	path[snprintf(path, size, "%u", n)] = '/';
}

static void test_pending_has_limits(void **state)
{
	struct pending p = { 0 };
	char path[4000], old[4000];
	unsigned n = 0;
	size_t bytes;

	for (n = 0; !pending_full(&p); n++) {
		snprintf(path, sizeof(path), "%u", n);
		add(&p, WATCH_CREATE, path);
	}
	assert_int_equal(n, PENDING_MAX_EVENTS);
	free(pending_pop(&p));
	assert_false(pending_full(&p));
	pending_clear(&p);
	end(&p);

	for (n = 0; !pending_full(&p); n++) {
		fill_path(path, sizeof(path), n);
		fill_path(old, sizeof(old), n + 100000);
		move(&p, old, path, false);
	}
	assert_in_range(n, 200, 300);
	assert_in_range(p.bytes, PENDING_MAX_BYTES, PENDING_MAX_BYTES + 3 * sizeof(path));
	bytes = p.bytes;
	add(&p, WATCH_WRITE, "short");
	add(&p, WATCH_CHMOD, "short"); /* merged */
	assert_in_range(p.bytes, bytes + 6, bytes + 500);
	while (p.count > 0)
		free(pending_pop(&p));
	end(&p);
}

static void test_kind_names(void **state)
{
	enum watch_kind kind;

	for (int i = 0; i < WATCH_KINDS; i++) {
		assert_int_equal(watch_kind_parse(watch_kind_name((enum watch_kind)i), &kind), 0);
		assert_int_equal(kind, i);
	}
	assert_int_equal(watch_kind_parse("open", &kind), -EINVAL);
	assert_int_equal(watch_kind_parse("", &kind), -EINVAL);
}

static void push(struct evlog *l, uint64_t seq, const char *path)
{
	struct watch_event *e = watch_event_new(path, NULL);

	assert_non_null(e);
	e->seq = seq;
	evlog_push(l, e);
}

static void test_log_keeps_the_last(void **state)
{
	struct evlog l = { 0 };

	for (uint64_t i = 1; i <= EVLOG_MAX_EVENTS; i++)
		push(&l, i * 2, "f");
	assert_int_equal(l.gap, 0);
	push(&l, 30000, "f");
	assert_int_equal(l.count, EVLOG_MAX_EVENTS);
	assert_int_equal(l.gap, 2);
	assert_int_equal(evlog_after(&l, 0)->seq, 4);
	assert_int_equal(evlog_after(&l, 4)->seq, 6);
	assert_int_equal(evlog_after(&l, 5)->seq, 6);
	assert_int_equal(evlog_after(&l, 29999)->seq, 30000);
	assert_null(evlog_after(&l, 30000));
	evlog_release(&l);
}

static void test_log_has_a_limit_in_bytes(void **state)
{
	struct evlog l = { 0 };
	char path[4000];

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	for (uint64_t i = 1; i <= 5000; i++)
		push(&l, i, path);
	assert_true(l.bytes <= EVLOG_MAX_BYTES);
	assert_true(l.count > 1000 && l.count < 5000);
	assert_int_equal(l.gap, 5000 - l.count);
	evlog_release(&l);
}

static void test_logs_share_a_pool(void **state)
{
	size_t pool = 0, sum = 0;
	struct evlog logs[128];
	char path[4000];
	uint64_t seq = 0;

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(logs); i++) {
		logs[i] = (struct evlog){ .pool = &pool };
		for (int n = 0; n < 3000; n++)
			push(&logs[i], ++seq, path);
		/* The first come have more, the last their own. */
		assert_true(logs[i].bytes > (i < 4 ? EVLOG_MAX_BYTES : EVLOG_OWN_BYTES) - 5000);
		assert_int_equal(logs[i].gap, seq - logs[i].count);
		assert_null(evlog_after(&logs[i], seq));
		assert_int_equal(evlog_after(&logs[i], 0)->seq, logs[i].gap + 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(logs); i++)
		sum += logs[i].bytes;
	assert_true(pool <= EVLOG_POOL_BYTES);
	assert_true(sum <= 64 * 1024 * 1024);

	/* What one gives up others may have. */
	evlog_overflow(&logs[0], ++seq);
	for (int n = 0; n < 1000; n++)
		push(&logs[127], ++seq, path);
	assert_true(logs[127].bytes > EVLOG_OWN_BYTES + 3000000);
	for (size_t i = 1; i < ARRAY_SIZE(logs); i++)
		evlog_release(&logs[i]);
	assert_int_equal(pool, 0);
	evlog_release(&logs[0]);
}

static void test_log_overflow(void **state)
{
	struct evlog l = { 0 };

	push(&l, 1, "a");
	evlog_overflow(&l, 2);
	assert_int_equal(l.gap, 2);
	assert_null(evlog_after(&l, 0));
	push(&l, 3, "b");
	assert_int_equal(evlog_after(&l, 2)->seq, 3);
	evlog_release(&l);
}

static void assert_path(const struct wdir *d, const char *name, const char *expected)
{
	char path[PATH_MAX];

	assert_int_equal(wtree_path(d, name, path), 0);
	assert_string_equal(path, expected);
}

static void test_tree_moves_with_its_children(void **state)
{
	struct wtree t = { 0 };
	struct wdir *root = wtree_add(&t, 1, NULL, NULL);
	struct wdir *a = wtree_add(&t, 2, root, "a"), *b = wtree_add(&t, 3, a, "b");

	assert_path(root, NULL, "");
	assert_path(root, "x", "x");
	assert_path(b, "x", "a/b/x");
	assert_ptr_equal(wtree_child(&t, a, "b"), b);
	assert_ptr_equal(wtree_find(&t, 3), b);
	assert_int_equal(wtree_move(&t, a, b, "a"), -ELOOP);
	assert_int_equal(wtree_move(&t, a, root, "c"), 0);
	assert_null(wtree_child(&t, root, "a"));
	assert_path(b, NULL, "c/b");
	while (t.root)
		wtree_remove(&t, wtree_leaf(t.root));
	assert_null(t.by_wd);
	assert_null(t.by_key);
}

static void test_tree_refuses_long_paths(void **state)
{
	struct wtree t = { 0 };
	struct wdir *d = wtree_add(&t, 0, NULL, NULL);
	char name[NAME_MAX + 1], path[PATH_MAX];

	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	for (int i = 1; i < 16; i++)
		d = wtree_add(&t, i, d, name);
	assert_int_equal(wtree_path(d, NULL, path), 0);
	assert_int_equal(strlen(path), 15 * 256 - 1);
	assert_int_equal(wtree_path(d, name, path), 0);
	assert_int_equal(strlen(path), PATH_MAX - 1);
	d = wtree_add(&t, 16, d, name);
	assert_int_equal(wtree_path(d, "x", path), -ENAMETOOLONG);
	while (t.root)
		wtree_remove(&t, wtree_leaf(t.root));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_merge_table),
		cmocka_unit_test(test_unknown_file_comes_back_as_new),
		cmocka_unit_test(test_order_is_of_first_occurrence),
		cmocka_unit_test(test_save_by_rename),
		cmocka_unit_test(test_log_rotation),
		cmocka_unit_test(test_renames_are_never_merged),
		cmocka_unit_test(test_directory_rename_parts_before_from_after),
		cmocka_unit_test(test_directory_that_returns),
		cmocka_unit_test(test_change_of_type),
		cmocka_unit_test(test_clear),
		cmocka_unit_test(test_pending_has_limits),
		cmocka_unit_test(test_kind_names),
		cmocka_unit_test(test_log_keeps_the_last),
		cmocka_unit_test(test_log_has_a_limit_in_bytes),
		cmocka_unit_test(test_logs_share_a_pool),
		cmocka_unit_test(test_log_overflow),
		cmocka_unit_test(test_tree_moves_with_its_children),
		cmocka_unit_test(test_tree_refuses_long_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

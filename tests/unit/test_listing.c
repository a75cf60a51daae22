/* What is known of one directory, changed name by name; and the journal that settles races. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the ones above first */
#include <cmocka.h>

#include "journal.h"
#include "listing.h"

static struct attr file_of(uint64_t size)
{
	return (struct attr){
		.mode = S_IFREG | 0644,
		.nlink = 1,
		.size = size,
		.ino = size + 1,
		.dev = 7,
		.mtime = { 1700000000, 5 },
		.ctime = { -1, 999999999 },
	};
}

static void put(struct listing *l, const char *name, uint64_t size)
{
	struct attr a = file_of(size);

	assert_int_equal(listing_put(l, name, strlen(name), &a, NULL), 0);
}

static struct listing *make(size_t expect)
{
	struct listing *l;

	assert_int_equal(listing_new("a/b", expect, &l), 0);
	return l;
}

static enum item_state state_of(struct listing *l, const char *name)
{
	struct item *i = listing_find(l, name);

	return i ? i->state : ITEM_GONE;
}

static void test_names_and_attributes(void **state)
{
	struct listing *l = make(0);
	struct attr a = file_of(3), got;

	(void)state;
	put(l, "x", 3);
	put(l, "xy", 4);
	assert_null(listing_find(l, ""));
	assert_null(listing_find(l, "xyz"));
	assert_string_equal(item_name(l, listing_find(l, "xy")), "xy");
	item_attr(listing_find(l, "x"), &got);
	assert_memory_equal(&got.mtime, &a.mtime, sizeof(a.mtime));
	assert_memory_equal(&got.ctime, &a.ctime, sizeof(a.ctime));
	assert_int_equal(got.size, 3);
	assert_int_equal(got.ino, 4);
	assert_int_equal(got.mode, a.mode);
	assert_int_equal(l->live, 2);
	listing_unref(l);
}

static void test_one_change_leaves_the_others_known(void **state)
{
	struct listing *l = make(4);

	(void)state;
	put(l, "a", 1);
	put(l, "b", 2);
	put(l, "c", 3);
	listing_void(l, "a");
	assert_int_equal(listing_doubt(l, "b"), 0);
	assert_int_equal(listing_doubt(l, "new"), 0);
	listing_remove(l, "c");
	listing_remove(l, "never");
	assert_int_equal(state_of(l, "a"), ITEM_STALE);
	assert_int_equal(state_of(l, "b"), ITEM_UNSURE);
	assert_int_equal(state_of(l, "new"), ITEM_UNSURE);
	assert_null(listing_find(l, "c"));
	assert_int_equal(l->live, 3);
	assert_int_equal(l->stale, 3);
	assert_int_equal(l->unsure, 2);
	put(l, "b", 5);
	put(l, "c", 6);
	listing_remove(l, "new");
	assert_int_equal(state_of(l, "b"), ITEM_KNOWN);
	assert_int_equal(listing_find(l, "c")->size, 6);
	assert_int_equal(l->live, 3);
	assert_int_equal(l->stale, 1);
	assert_int_equal(l->unsure, 0);
	listing_unref(l);
}

static void test_places_stay(void **state)
{
	struct listing *l = make(0);
	char name[16];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put(l, name, (uint64_t)i);
	}
	listing_ref(l); /* somebody reads it */
	for (int i = 0; i < 1000; i += 2) {
		snprintf(name, sizeof(name), "f%d", i);
		listing_remove(l, name);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "g%d", i);
		put(l, name, (uint64_t)i);
		listing_remove(l, name);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_string_equal(item_name(l, &l->v[i]), name);
		assert_int_equal(l->v[i].state, i % 2 ? ITEM_KNOWN : ITEM_GONE);
	}
	put(l, "f0", 7); /* it comes back where it was */
	assert_int_equal(l->v[0].state, ITEM_KNOWN);
	listing_unref(l);
	listing_unref(l);
}

static void test_holes_do_not_pile_up(void **state)
{
	struct listing *l = make(0);
	struct attr link = { .mode = S_IFLNK | 0777 };
	char name[32];

	(void)state;
	put(l, "stays", 1);
	assert_int_equal(listing_put(l, "link", 4, &link, "target"), 0);
	for (int i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "tmp_obj_%d", i);
		put(l, name, 1);
		listing_remove(l, name);
	}
	assert_true(l->n < 2000);
	assert_int_equal(l->live, 2);
	assert_int_equal(state_of(l, "stays"), ITEM_KNOWN);
	assert_string_equal(item_target(l, listing_find(l, "link")), "target");
	assert_true(listing_size(l) < 1000000);
	listing_unref(l);
}

static void test_a_serial_is_of_names(void **state)
{
	struct listing *l = make(0);
	struct attr a = file_of(9);
	uint64_t serial;

	(void)state;
	put(l, "a", 1);
	serial = l->serial;
	listing_update(l, "a", &a);
	listing_void(l, "a");
	listing_update(l, "a", &a);
	listing_update(l, "absent", &a);
	assert_int_equal(l->serial, serial);
	assert_int_equal(listing_doubt(l, "a"), 0);
	assert_true(l->serial != serial);
	serial = l->serial;
	put(l, "b", 1);
	assert_true(l->serial != serial);
	serial = l->serial;
	listing_remove(l, "b");
	assert_true(l->serial != serial);
	listing_unref(l);
}

static void test_many_names(void **state)
{
	enum { COUNT = 100000 };
	struct listing *l = make(COUNT);
	char name[16];

	(void)state;
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "%x", i * 7919);
		put(l, name, (uint64_t)i);
	}
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "%x", i * 7919);
		assert_int_equal(listing_find(l, name)->size, i);
	}
	assert_true(listing_size(l) < (size_t)COUNT * 160);
	listing_unref(l);
}

/* ---- the journal ---- */

static void test_journal_knows_paths(void **state)
{
	struct journal *j = calloc(1, sizeof(*j));
	uint64_t before = journal_now(j), between;

	(void)state;
	journal_note(j, "a/b", NOTE_NAME);
	between = journal_now(j);
	journal_note(j, "c", NOTE_TREE);
	assert_true(journal_has(j, "a/b", before));
	assert_false(journal_has(j, "a/b", between));
	assert_false(journal_has(j, "a", before));
	assert_false(journal_has(j, "a/b/c", before));
	assert_true(journal_has(j, "c", between));
	assert_true(journal_has(j, "c/d/e", between));
	assert_false(journal_has(j, "cd", between));
	assert_false(journal_has(j, "c", journal_now(j)));
	journal_free(j);
}

static void count_note(void *ctx, const char *path, enum note what)
{
	(void)path;
	(void)what;
	++*(unsigned *)ctx;
}

static void test_journal_forgets(void **state)
{
	struct journal *j = calloc(1, sizeof(*j));
	unsigned count = 0;

	(void)state;
	for (int i = 0; i < JOURNAL_LEN + 10; i++)
		journal_note(j, "x", NOTE_ATTR);
	assert_true(journal_has(j, "y", 9));
	assert_false(journal_has(j, "y", 10));
	assert_false(journal_each(j, 9, count_note, &count));
	assert_int_equal(count, 0);
	assert_true(journal_each(j, 10, count_note, &count));
	assert_int_equal(count, JOURNAL_LEN);
	journal_free(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_attributes),
		cmocka_unit_test(test_one_change_leaves_the_others_known),
		cmocka_unit_test(test_places_stay),
		cmocka_unit_test(test_holes_do_not_pile_up),
		cmocka_unit_test(test_a_serial_is_of_names),
		cmocka_unit_test(test_many_names),
		cmocka_unit_test(test_journal_knows_paths),
		cmocka_unit_test(test_journal_forgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

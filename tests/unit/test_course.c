/* fs/course.c: who goes through a directory in an order, and who does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "course.h"

static struct course after(const uint32_t *places, unsigned n)
{
	struct course c = { 0 };

	for (unsigned i = 0; i < n; i++)
		course_add(&c, places[i]);
	return c;
}

#define AFTER(...)                                                                                 \
	after((const uint32_t[]){ __VA_ARGS__ },                                                   \
	      sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static bool follows(struct course c)
{
	return course_follows(&c, NULL);
}

static void test_one_file_is_no_way(void **state)
{
	struct course c = { 0 };

	assert_false(course_follows(&c, NULL));
	assert_true(course_add(&c, 7));
	assert_false(course_follows(&c, NULL));
	/* The same one again, as often as one likes. */
	for (int i = 0; i < 20; i++)
		assert_false(course_add(&c, 7));
	assert_false(course_follows(&c, NULL));
	assert_false(course_wanders(&c));
}

static void test_neighbours_are_a_way(void **state)
{
	assert_true(follows(AFTER(0, 1)));
	assert_true(follows(AFTER(41, 42)));
	assert_true(follows(AFTER(90, 3, 41, 42)));
	assert_false(follows(AFTER(42, 41)));
	assert_false(follows(AFTER(UINT32_MAX, 0)));
}

static void test_small_steps_are_a_way_at_the_third(void **state)
{
	assert_false(follows(AFTER(3, 9)));
	assert_true(follows(AFTER(3, 9, 15)));
	assert_true(follows(AFTER(3, 3 + COURSE_REACH, 3 + 2 * COURSE_REACH)));
	assert_false(follows(AFTER(3, 9, 9 + COURSE_REACH + 1)));
	assert_false(follows(AFTER(3, 30, 36)));
	assert_false(follows(AFTER(9, 3, 15)));
	assert_false(follows(AFTER(15, 9, 3)));
}

static void test_ranks_instead_of_places(void **state)
{
	const uint32_t rank[] = { 5, 6, 7 };
	struct course c = AFTER(70, 12, 300);

	assert_false(course_follows(&c, NULL));
	assert_true(course_follows(&c, rank));
}

static void test_only_the_last_ones_count(void **state)
{
	struct course c = { 0 };

	for (uint32_t i = 0; i < 1000; i++)
		course_add(&c, i * 1000 % 7777);
	assert_int_equal(c.n, COURSE_SEEN);
	assert_int_equal(c.total, 1000);
	assert_false(course_follows(&c, NULL));
	course_add(&c, 8000);
	course_add(&c, 8001);
	assert_true(course_follows(&c, NULL));
	assert_int_equal(c.places[COURSE_SEEN - 1], 8001);
}

static void test_wandering_takes_different_files(void **state)
{
	struct course to_and_fro = AFTER(1, 90, 1, 90, 1, 90);
	struct course three = AFTER(9, 50, 20);
	struct course four = AFTER(9, 50, 20, 40);

	assert_false(course_wanders(&to_and_fro));
	assert_false(course_wanders(&three));
	assert_true(course_wanders(&four));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_file_is_no_way),
		cmocka_unit_test(test_neighbours_are_a_way),
		cmocka_unit_test(test_small_steps_are_a_way_at_the_third),
		cmocka_unit_test(test_ranks_instead_of_places),
		cmocka_unit_test(test_only_the_last_ones_count),
		cmocka_unit_test(test_wandering_takes_different_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

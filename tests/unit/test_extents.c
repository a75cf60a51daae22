/* fs/extents.c: against a bit per byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "extents.h"

enum { SPACE = 64 };

static void expect_ranges(const struct extents *e, const struct extent *want, size_t n)
{
	assert_int_equal(e->n, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(e->v[i].start, want[i].start);
		assert_int_equal(e->v[i].end, want[i].end);
	}
}
#define EXPECT(e, ...)                                                                             \
	do {                                                                                       \
		const struct extent want_[] = { __VA_ARGS__ };                                     \
		expect_ranges((e), want_, ARRAY_SIZE(want_));                                      \
	} while (0)

static void test_joining(void **state UNUSED)
{
	struct extents e = { 0 };

	assert_int_equal(extents_add(&e, 10, 20), 0);
	assert_int_equal(extents_add(&e, 30, 40), 0);
	assert_int_equal(extents_add(&e, 5, 5), 0);
	EXPECT(&e, { 10, 20 }, { 30, 40 });
	assert_int_equal(extents_add(&e, 20, 25), 0); /* touches */
	EXPECT(&e, { 10, 25 }, { 30, 40 });
	assert_int_equal(extents_add(&e, 50, 60), 0);
	assert_int_equal(extents_add(&e, 0, 5), 0);
	assert_int_equal(extents_add(&e, 24, 50), 0); /* swallows one, touches another */
	EXPECT(&e, { 0, 5 }, { 10, 60 });
	assert_int_equal(extents_add(&e, 12, 13), 0);
	assert_int_equal(extents_add(&e, 0, 100), 0);
	EXPECT(&e, { 0, 100 });
	extents_release(&e);
	assert_int_equal(e.n, 0);
}

static void test_cutting(void **state UNUSED)
{
	struct extents e = { 0 };

	assert_int_equal(extents_add(&e, 10, 20), 0);
	assert_int_equal(extents_add(&e, 30, 40), 0);
	extents_cut(&e, 50);
	EXPECT(&e, { 10, 20 }, { 30, 40 });
	extents_cut(&e, 35);
	EXPECT(&e, { 10, 20 }, { 30, 35 });
	extents_cut(&e, 30);
	EXPECT(&e, { 10, 20 });
	extents_cut(&e, 0);
	assert_int_equal(e.n, 0);
	extents_release(&e);
}

static void test_the_ends_of_the_world(void **state UNUSED)
{
	struct extents e = { 0 };

	assert_true(extents_cover(&e, 5, 5));
	assert_false(extents_cover(&e, 0, 1));
	assert_int_equal(extents_next_gap(&e, 7), 7);
	assert_true(extents_next_set(&e, 0) == UINT64_MAX);
	assert_int_equal(extents_add(&e, UINT64_MAX - 1, UINT64_MAX), 0);
	assert_true(extents_next_set(&e, 0) == UINT64_MAX - 1);
	assert_true(extents_cover(&e, UINT64_MAX - 1, UINT64_MAX));
	extents_release(&e);
}

static void compare(const struct extents *e, const bool *model)
{
	for (size_t i = 1; i < e->n; i++)
		assert_true(e->v[i - 1].end < e->v[i].start);
	for (uint64_t at = 0; at < SPACE; at++) {
		uint64_t gap = at, set = at;

		while (gap < SPACE && model[gap])
			gap++;
		while (set < SPACE && !model[set])
			set++;
		assert_int_equal(extents_next_gap(e, at), gap);
		assert_true(extents_next_set(e, at) == (set == SPACE ? UINT64_MAX : set));
		for (uint64_t end = at; end < SPACE; end++)
			assert_int_equal(extents_cover(e, at, end), gap >= end);
	}
}

static void test_like_a_bit_per_byte(void **state UNUSED)
{
	unsigned seed = 1;

	for (unsigned round = 0; round < 100; round++) {
		struct extents e = { 0 };
		bool model[SPACE] = { 0 };

		for (unsigned i = 0; i < 20; i++) {
			uint64_t a = (uint64_t)(rand_r(&seed) % SPACE);
			uint64_t len = (uint64_t)(rand_r(&seed) % 9), b = MIN(a + len, SPACE);

			if (rand_r(&seed) % 8 == 0) {
				extents_cut(&e, a);
				memset(model + a, 0, SPACE - a);
			} else {
				assert_int_equal(extents_add(&e, a, b), 0);
				memset(model + a, 1, b - a);
			}
			compare(&e, model);
		}
		extents_release(&e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_joining),
		cmocka_unit_test(test_cutting),
		cmocka_unit_test(test_the_ends_of_the_world),
		cmocka_unit_test(test_like_a_bit_per_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

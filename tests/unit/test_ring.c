/* The output ring: absolute offsets, the cap, and reads at its edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ring.h"

static void expect(const struct ring *r, uint64_t offset, uint64_t want_offset, const char *want)
{
	size_t len;
	const char *p = ring_read(r, &offset, &len);

	assert_int_equal(offset, want_offset);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(p, want, len);
}

static void put(struct ring *r, const char *s)
{
	assert_int_equal(ring_write(r, s, strlen(s)), 0);
}

static void test_empty(void **state UNUSED)
{
	struct ring r;

	ring_init(&r, 8);
	assert_int_equal(ring_end(&r), 0);
	expect(&r, 0, 0, "");
	expect(&r, 99, 0, "");
	put(&r, "");
	assert_int_equal(ring_end(&r), 0);
	ring_release(&r);
}

static void test_offsets(void **state UNUSED)
{
	struct ring r;

	ring_init(&r, 8);
	put(&r, "abc");
	put(&r, "de");
	assert_int_equal(ring_end(&r), 5);
	expect(&r, 0, 0, "abcde");
	expect(&r, 3, 3, "de");
	expect(&r, 5, 5, "");
	expect(&r, UINT64_MAX, 5, "");
	ring_release(&r);
}

static void test_full_is_kept(void **state UNUSED)
{
	struct ring r;

	ring_init(&r, 8);
	put(&r, "abcd");
	put(&r, "efgh");
	expect(&r, 0, 0, "abcdefgh");
	ring_release(&r);
}

static void test_oldest_half_dropped(void **state UNUSED)
{
	struct ring r;

	ring_init(&r, 8);
	put(&r, "abcdefg");
	put(&r, "hi");
	assert_int_equal(ring_end(&r), 9);
	expect(&r, 0, 5, "fghi");
	expect(&r, 7, 7, "hi");
	put(&r, "jklm");
	expect(&r, 0, 5, "fghijklm");
	ring_release(&r);
}

static void test_write_larger_than_cap(void **state UNUSED)
{
	struct ring r;

	ring_init(&r, 8);
	put(&r, "ab");
	put(&r, "0123456789");
	assert_int_equal(ring_end(&r), 12);
	expect(&r, 0, 8, "6789");
	ring_release(&r);
}

static void test_many_writes_stay_bounded(void **state UNUSED)
{
	uint64_t total = 0;
	char block[777];
	struct ring r;

	memset(block, 'x', sizeof(block));
	ring_init(&r, 10000);
	for (int i = 0; i < 1000; i++) {
		size_t len = (size_t)i % sizeof(block);

		assert_int_equal(ring_write(&r, block, len), 0);
		total += len;
		assert_int_equal(ring_end(&r), total);
		assert_true(r.buf.len <= 10000);
		assert_true(r.buf.cap <= 10001);
	}
	ring_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_full_is_kept),
		cmocka_unit_test(test_oldest_half_dropped),
		cmocka_unit_test(test_write_larger_than_cap),
		cmocka_unit_test(test_many_writes_stay_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fs/window.c: bytes in, bytes out, and how much is held when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "window.h"

enum { PLENTY = 1 << 30 };

static char byte_at(uint64_t offset)
{
	return (char)(offset * 2654435761u >> 13);
}

static void add(struct window *w, size_t len)
{
	char *bytes CLEANUP_FREE = malloc(len + 1);

	for (size_t i = 0; i < len; i++)
		bytes[i] = byte_at(w->end + i);
	assert_int_equal(window_add(w, bytes, len), 0);
}

static void check(struct window *w, uint64_t offset, size_t len)
{
	struct iovec iov[WINDOW_IOV];
	int n;

	assert_true(window_has(w, offset, len));
	n = window_find(w, offset, len, iov, WINDOW_IOV);
	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		const char *p = iov[i].iov_base;

		for (size_t k = 0; k < iov[i].iov_len; k++, offset++, len--)
			assert_int_equal(p[k], byte_at(offset));
	}
	assert_int_equal(len, 0);
}

static void test_bytes_come_back(void **state)
{
	struct window w = { 0 };

	window_reset(&w, 12345);
	for (size_t len = 1; len < 200000; len = len * 3 + 1)
		add(&w, len);
	check(&w, 12345, w.end - 12345);
	check(&w, 12345 + 70000, 1);
	check(&w, w.end - 1, 1);
	check(&w, w.end, 0);
	assert_false(window_has(&w, 12344, 1));
	assert_false(window_has(&w, w.end - 1, 2));
	assert_false(window_has(&w, w.end + 1, 0));
	assert_true(window_memory(&w) < w.end - w.start + 2 * WINDOW_BLOCK);
	window_release(&w);
	assert_int_equal(window_memory(&w), 0);
}

static void test_too_many_pieces(void **state)
{
	struct window w = { 0 };
	struct iovec iov[2];

	window_reset(&w, 0);
	add(&w, 3 * WINDOW_BLOCK);
	assert_int_equal(window_find(&w, 0, 2 * WINDOW_BLOCK, iov, 2), 2);
	assert_true(window_find(&w, 1, 2 * WINDOW_BLOCK, iov, 2) < 0);
	window_release(&w);
}

/* What is received in its place is only counted. */
static void test_space(void **state)
{
	struct window w = { 0 };
	size_t n;

	window_reset(&w, 5);
	for (int i = 0; i < 5; i++) {
		char *to = window_space(&w, &n);

		assert_non_null(to);
		assert_true(n > 0 && n <= WINDOW_BLOCK);
		assert_true(window_is_next(&w, to));
		assert_false(window_is_next(&w, to + 1));
		for (size_t k = 0; k < n; k++)
			to[k] = byte_at(w.end + k);
		assert_int_equal(window_add(&w, to, n), 0);
		assert_false(window_is_next(&w, to));
		add(&w, 1000);
	}
	check(&w, 5, w.end - 5);
	window_release(&w);
}

/* Who never waits has enough. */
static void test_it_does_not_grow_for_nothing(void **state)
{
	struct window w = { 0 };

	window_reset(&w, 0);
	for (uint64_t at = 0; at < 8 * MIB; at += 128 * KIB) {
		while (window_hungry(&w, at, at + 128 * KIB, PLENTY))
			add(&w, 16 * KIB);
		window_pass(&w, at + 128 * KIB, PLENTY);
	}
	assert_int_equal(w.ahead, WINDOW_FIRST);
	window_release(&w);
}

/* A reader in pieces of 128 KiB: never more than what is allowed, and it doubles. */
static void test_it_grows_with_progress(void **state)
{
	struct window w = { 0 };
	size_t most = 0;

	window_reset(&w, 0);
	for (uint64_t at = 0; at < 64 * MIB; at += 128 * KIB) {
		while (window_hungry(&w, at, at + 128 * KIB, PLENTY))
			add(&w, 16 * KIB);
		check(&w, at, 128 * KIB);
		if (at == 0)
			assert_true(w.end <= WINDOW_FIRST + 16 * KIB);
		window_starve(&w);
		most = MAX(most, window_memory(&w));
		window_pass(&w, at + 128 * KIB, PLENTY);
	}
	assert_int_equal(w.ahead, WINDOW_MAX);
	assert_true(most <= WINDOW_MAX + WINDOW_BEHIND + 4 * WINDOW_BLOCK);
	window_release(&w);
}

static void test_without_memory_it_holds_what_is_asked_for(void **state)
{
	struct window w = { 0 };

	window_reset(&w, 0);
	for (uint64_t at = 0; at < 8 * MIB; at += 128 * KIB) {
		while (window_hungry(&w, at, at + 128 * KIB, 0))
			add(&w, 16 * KIB);
		check(&w, at, 128 * KIB);
		window_pass(&w, at + 128 * KIB, 0);
		assert_true(window_memory(&w) <= 128 * KIB + 2 * WINDOW_LEAST + 2 * WINDOW_BLOCK);
	}
	assert_int_equal(w.ahead, WINDOW_FIRST);
	window_release(&w);
}

/* It was large; now memory is short. */
static void test_it_shrinks_again(void **state)
{
	struct window w = { 0 };
	uint64_t at = 0;

	window_reset(&w, 0);
	w.ahead = WINDOW_MAX;
	while (window_hungry(&w, UINT64_MAX, 0, PLENTY))
		add(&w, 64 * KIB);
	assert_true(window_memory(&w) >= WINDOW_MAX);
	for (; at < 64 * MIB; at += 128 * KIB) {
		while (window_hungry(&w, at, at + 128 * KIB, 0))
			add(&w, 64 * KIB);
		window_pass(&w, at + 128 * KIB, 0);
	}
	assert_int_equal(w.ahead, WINDOW_FIRST);
	assert_true(window_memory(&w) <= MIB);
	window_release(&w);
}

static void test_what_is_waited_for_is_kept(void **state)
{
	struct window w = { 0 };

	window_reset(&w, 0);
	add(&w, MIB);
	window_pass(&w, MIB, PLENTY);
	assert_true(window_hungry(&w, 1000, 0, PLENTY));
	assert_int_equal(w.start, 1000);
	check(&w, 1000, 5000);
	/* nobody waits there any more: what is left is as much as is kept behind */
	assert_true(window_hungry(&w, UINT64_MAX, 0, PLENTY));
	assert_int_equal(w.start, MIB - WINDOW_BEHIND_LEAST);
	check(&w, w.start, MIB - w.start);
	window_release(&w);
}

static void test_a_read_far_ahead_is_reached(void **state)
{
	struct window w = { 0 };

	window_reset(&w, 0);
	while (window_hungry(&w, UINT64_MAX, 0, PLENTY))
		add(&w, 64 * KIB);
	assert_true(w.end < 2 * WINDOW_FIRST);
	while (window_hungry(&w, 3 * MIB, 3 * MIB + 1, PLENTY))
		add(&w, 64 * KIB);
	check(&w, 3 * MIB, 1);
	window_release(&w);
}

static void test_emptied_it_goes_on(void **state)
{
	struct window w = { 0 };

	window_reset(&w, 0);
	add(&w, 300000);
	window_pass(&w, 200000, PLENTY);
	window_empty(&w, 200000);
	assert_int_equal(window_memory(&w), 0);
	assert_int_equal(w.start, 200000);
	add(&w, 100000);
	check(&w, 200000, 100000);
	assert_int_equal(w.passed, 200000);
	window_release(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_come_back),
		cmocka_unit_test(test_too_many_pieces),
		cmocka_unit_test(test_space),
		cmocka_unit_test(test_it_does_not_grow_for_nothing),
		cmocka_unit_test(test_it_grows_with_progress),
		cmocka_unit_test(test_without_memory_it_holds_what_is_asked_for),
		cmocka_unit_test(test_it_shrinks_again),
		cmocka_unit_test(test_what_is_waited_for_is_kept),
		cmocka_unit_test(test_a_read_far_ahead_is_reached),
		cmocka_unit_test(test_emptied_it_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

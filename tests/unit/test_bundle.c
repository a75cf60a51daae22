/* client/bundle.c: several files in one stretch of bytes, honest and not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "bundle.h"

static char *names[] = { (char[]){ "a" }, (char[]){ "b b" }, (char[]){ "d/c" } };

/* What stat would print of a file of so many bytes. */
static void line(struct buf *to, unsigned size)
{
	buf_printf(to, "81a4 %u 8 11 22 1 0 0 1700000000.000000001 1700000000.000000002\n", size);
}

static void lines(struct buf *to, unsigned a, unsigned b, unsigned c)
{
	buf_putc(to, '\n');
	line(to, a);
	line(to, b);
	line(to, c);
}

static int parse(struct bundle *ret, struct buf *from)
{
	int r;

	*ret = (struct bundle){ 0 };
	r = bundle_parse(ret, &from->data, from->len, names, 3);
	if (r == 0)
		*from = BUF_INIT(0);
	return r;
}

static bool has(const struct bundle *b, size_t i, const char *bytes)
{
	const struct bundle_file *f = &b->v[i];

	return f->was_read && f->attr.size == strlen(bytes) &&
	       memcmp(f->bytes, bytes, strlen(bytes)) == 0;
}

static void test_files_come_back(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct bundle r;

	buf_puts(&b, "==> a <==\none\n\n==> b b <==\n\n==> d/c <==\nno end of line");
	lines(&b, 4, 0, 14);
	assert_int_equal(parse(&r, &b), 0);
	assert_int_equal(r.n, 3);
	assert_true(has(&r, 0, "one\n"));
	assert_true(has(&r, 1, ""));
	assert_true(has(&r, 2, "no end of line"));
	assert_int_equal(r.v[0].attr.ino, 11);
	assert_int_equal(r.v[2].attr.ctime.tv_nsec, 2);
	bundle_release(&r);
}

static void test_any_bytes(void **state)
{
	static const char bytes[] = "\n==> d/c <==\n\0\n\n==> b b <==\n";
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct bundle r;

	buf_puts(&b, "==> a <==\n");
	buf_append(&b, bytes, sizeof(bytes));
	buf_puts(&b, "\n==> b b <==\nx\n==> d/c <==\ny");
	lines(&b, sizeof(bytes), 1, 1);
	assert_int_equal(parse(&r, &b), 0);
	assert_true(r.v[0].was_read);
	assert_memory_equal(r.v[0].bytes, bytes, sizeof(bytes));
	assert_true(has(&r, 1, "x") && has(&r, 2, "y"));
	bundle_release(&r);
}

static void test_what_cannot_be_opened_is_left_out(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct bundle r;

	buf_puts(&b, "==> b b <==\ntwo\n==> d/c <==\nthree");
	lines(&b, 3, 3, 5);
	assert_int_equal(parse(&r, &b), 0);
	assert_false(r.v[0].was_read);
	assert_true(has(&r, 1, "two") && has(&r, 2, "three"));
	bundle_release(&r);
	buf_puts(&b, "==> a <==\none\n==> d/c <==\nthree");
	lines(&b, 3, 3, 5);
	assert_int_equal(parse(&r, &b), 0);
	assert_true(has(&r, 0, "one") && has(&r, 2, "three"));
	assert_false(r.v[1].was_read);
	bundle_release(&r);
	lines(&b, 3, 3, 5);
	assert_int_equal(parse(&r, &b), 0);
	assert_false(r.v[0].was_read || r.v[1].was_read || r.v[2].was_read);
	bundle_release(&r);
}

/* stat saw another size than head read. */
static void test_a_change_spoils_it_and_those_behind(void **state)
{
	static const unsigned sizes[][3] = { { 3, 2, 5 }, { 3, 4, 5 }, { 3, 999, 5 } };

	for (size_t i = 0; i < 3; i++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);
		struct bundle r;

		buf_puts(&b, "==> a <==\none\n==> b b <==\ntwo\n==> d/c <==\nthree");
		lines(&b, sizes[i][0], sizes[i][1], sizes[i][2]);
		assert_int_equal(parse(&r, &b), 0);
		assert_true(has(&r, 0, "one"));
		assert_false(r.v[1].was_read);
		assert_false(r.v[2].was_read);
		bundle_release(&r);
	}
}

static void test_the_last_one_is_neither_long_nor_short(void **state)
{
	for (unsigned size = 4; size <= 6; size++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);
		struct bundle r;

		buf_puts(&b, "==> a <==\none\n==> b b <==\ntwo\n==> d/c <==\nthree");
		lines(&b, 3, 3, size);
		assert_int_equal(parse(&r, &b), 0);
		assert_true(has(&r, 0, "one") && has(&r, 1, "two"));
		assert_int_equal(r.v[2].was_read, size == 5);
		bundle_release(&r);
	}
}

static void test_garbage_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"\n",
		"==> a <==\none",
		"\n1\n2\n3\n",
		/* two lines instead of three */
		("==> a <==\none\n81a4 3 8 1 2 1 0 0 1.000000000 1.000000000\n"
		 "81a4 3 8 1 2 1 0 0 1.000000000 1.000000000\n"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);
		struct bundle r;

		buf_puts(&b, bad[i]);
		assert_int_equal(parse(&r, &b), -EBADMSG);
		assert_non_null(b.data);
		assert_null(r.v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_come_back),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_what_cannot_be_opened_is_left_out),
		cmocka_unit_test(test_a_change_spoils_it_and_those_behind),
		cmocka_unit_test(test_the_last_one_is_neither_long_nor_short),
		cmocka_unit_test(test_garbage_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

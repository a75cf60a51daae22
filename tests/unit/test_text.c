/* What text goes through between files and JSON. Expectations are Python's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text.h"

static void test_newlines(void **state UNUSED)
{
	static const char *const rows[][2] = {
		{ "", "" },
		{ "plain\n", "plain\n" },
		{ "a\r\nb\r\n", "a\nb\n" },
		{ "a\rb\r", "a\nb\n" },
		{ "\r\r\n\n\r", "\n\n\n\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char s[32];
		size_t n;

		strcpy(s, rows[i][0]);
		n = text_translate_newlines(s, strlen(s));
		assert_int_equal(n, strlen(rows[i][1]));
		assert_memory_equal(s, rows[i][1], n);
	}
	assert_int_equal(text_translate_newlines(NULL, 0), 0);
}

/* Joins the lines with '|' to compare them at once. */
static void expect_lines(const char *s, const char *want)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	size_t n = strlen(s), next;

	buf_puts(&b, "");
	for (size_t at = 0; at < n; at += next) {
		size_t len = text_line(s + at, n - at, &next);

		buf_append(&b, s + at, len);
		buf_putc(&b, '|');
	}
	assert_string_equal(b.data, want);
}

static void test_lines(void **state UNUSED)
{
	expect_lines("", "");
	expect_lines("a", "a|");
	expect_lines("a\nb\n", "a|b|");
	expect_lines("a\r\nb\rc\n\nd", "a|b|c||d|");
	expect_lines("a\vb\fc\x1c"
		     "d\x1d"
		     "e\x1e"
		     "f\x1fg",
		     "a|b|c|d|e|f\x1fg|");
	expect_lines("a\xc2\x85"
		     "b\xe2\x80\xa8"
		     "c\xe2\x80\xa9"
		     "d\xe2\x80\xaa\xc2\x86",
		     "a|b|c|d\xe2\x80\xaa\xc2\x86|");
}

static void expect_base64(const char *s, const char *want, size_t len)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	const char *why = NULL;

	assert_int_equal(text_decode_base64(s, strlen(s), &b, &why), 0);
	assert_int_equal(b.len, len);
	assert_memory_equal(b.data, want, len);
}

static void refuse_base64(const char *s)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	const char *why = NULL;

	assert_int_equal(text_decode_base64(s, strlen(s), &b, &why), -EINVAL);
	assert_non_null(why);
}

static void test_base64(void **state UNUSED)
{
	expect_base64("", "", 0);
	expect_base64("AP8Q", "\0\xff\x10", 3);
	expect_base64("aGVsbG8=", "hello", 5);
	expect_base64("aGVsbA==", "hell", 4);
	expect_base64("aG Vs\nbG!8-=", "hello", 5);
	expect_base64("=aGVs", "hel", 3);
	expect_base64("aGVsbA==aGVs", "hell", 4); /* padding ends it */
	expect_base64("!!!!", "", 0);
	expect_base64("+/+/", "\xfb\xff\xbf", 3);
	refuse_base64("a");
	refuse_base64("aG");
	refuse_base64("aGVsbG8");
	refuse_base64("aG=");
	refuse_base64("aGVs\xc3\xa9");
}

static void test_latin1(void **state UNUSED)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(text_decode_latin1("a\0\xc2\x80\xc3\xbf", 6, &b), 0);
	assert_int_equal(b.len, 4);
	assert_memory_equal(b.data, "a\0\x80\xff", 4);
	buf_reset(&b);
	assert_int_equal(text_decode_latin1("\xc4\x80", 2, &b), -EINVAL);
	buf_reset(&b);
	assert_int_equal(text_decode_latin1("\xe2\x82\xac", 3, &b), -EINVAL);
	buf_reset(&b);
	assert_int_equal(text_decode_latin1("", 0, &b), 0);
	assert_int_equal(b.len, 0);
}

static void test_valid(void **state UNUSED)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(text_append_valid(&b, "a\xff\xc3\xa9\xc3", 5), 0);
	assert_string_equal(b.data, "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
}

static void expect_replaced(const char *s, const char *old, const char *new, const char *want,
			    size_t want_count)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	size_t count = 99;

	assert_int_equal(
		text_replace_all(&b, s, strlen(s), old, strlen(old), new, strlen(new), &count), 0);
	assert_string_equal(b.data, want);
	assert_int_equal(count, want_count);
}

static void test_replace(void **state UNUSED)
{
	struct buf small CLEANUP_BUF = BUF_INIT(4);
	size_t count = 99;

	expect_replaced("", "a", "b", "", 0);
	expect_replaced("banana", "an", "", "ba", 2);
	expect_replaced("aaa", "aa", "b", "ba", 1);
	expect_replaced("a.a", "a", "aa", "aa.aa", 2);
	expect_replaced("abc", "abcd", "x", "abc", 0);
	assert_int_equal(text_replace_all(&small, "aaa", 3, "a", 1, "xx", 2, &count), -EFBIG);
	assert_int_equal(count, 99);
}

static void test_size(void **state UNUSED)
{
	static const struct {
		const char *s;
		int r;
		uint64_t v;
	} rows[] = {
		{ "0", 0, 0 },
		{ "10485760", 0, 10485760 },
		{ "500K", 0, 500 * KIB },
		{ "1M", 0, MIB },
		{ "1m", 0, MIB },
		{ "2GB", 0, 2 * GIB },
		{ "7b", 0, 7 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 1 },
		{ "18446744073709551615K", -ERANGE, 1 },
		{ "", -EINVAL, 1 },
		{ "M", -EINVAL, 1 },
		{ "-1", -EINVAL, 1 },
		{ " 1", -EINVAL, 1 },
		{ "1.5M", -EINVAL, 1 },
		{ "1MBs", -EINVAL, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t v = 1;

		assert_int_equal(text_parse_size(rows[i].s, &v), rows[i].r);
		assert_int_equal(v, rows[i].v);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_newlines), cmocka_unit_test(test_lines),
		cmocka_unit_test(test_base64),   cmocka_unit_test(test_latin1),
		cmocka_unit_test(test_valid),    cmocka_unit_test(test_replace),
		cmocka_unit_test(test_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

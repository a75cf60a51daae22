/* Terminal output to plain text: every rule, whole and cut at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "shell_text.h"
#include "utf8.h"

#define FFFD "\xef\xbf\xbd"

static void check(const char *in, size_t len, const char *want, size_t want_len)
{
	/* In one piece, and in two for every place to cut. */
	for (size_t cut = 0; cut <= len; cut++) {
		CLEANUP_BUF struct buf out = BUF_INIT(0);
		struct shell_text t = { 0 };

		assert_int_equal(shell_text_feed(&t, in, cut, &out), 0);
		assert_int_equal(shell_text_feed(&t, in + cut, len - cut, &out), 0);
		assert_int_equal(out.len, want_len);
		assert_memory_equal(out.data ? out.data : "", want, want_len);
		assert_true(utf8_valid(out.data ? out.data : "", out.len));
	}
}

#define CHECK(in, want) check((in), sizeof(in) - 1, (want), sizeof(want) - 1)

static void test_plain(void **state)
{
	(void)state;
	CHECK("", "");
	CHECK("a\tb\nc", "a\tb\nc");
	CHECK("a\0b\001\a", "a\0b\001\a");
}

static void test_carriage_returns(void **state)
{
	(void)state;
	CHECK("a\r\nb\r\r\n", "a\nb\n");
	CHECK("10%\r20%\n", "10%20%\n");
}

static void test_sequences(void **state)
{
	(void)state;
	CHECK("\033[31mred\033[0m", "red");
	CHECK("a\033[2K\033[1;32;40mb\033[?25lc", "abc");
	CHECK("\033(Ba\033=b\0337c\033Mx", "abcx");
	CHECK("\033]0;title\atext", "text");
	CHECK("\033]8;;http://x\033\\link\033]8;;\033\\", "link");
	CHECK("\033Pq#0\033\\x\033_y\033\\z", "xz");
}

static void test_broken_sequences(void **state)
{
	(void)state;
	CHECK("a\033\033[1mb", "ab");
	CHECK("a\033[1\nb", "a\nb");
	CHECK("a\033[1\033[2mb", "ab");
	CHECK("a\033]never\nb", "a\nb");
	CHECK("a\033\nb", "a\nb");
	CHECK("a\033", "a");
	CHECK("a\033[\xc3\xa4", "a\xc3\xa4");
}

/* A control string without an end costs 4 KiB of the output, not all of it. */
static void test_endless_string(void **state)
{
	CLEANUP_BUF struct buf out = BUF_INIT(0);
	struct shell_text t = { 0 };
	char junk[5000];

	(void)state;
	memset(junk, 'x', sizeof(junk));
	shell_text_feed(&t, "\033]", 2, &out);
	shell_text_feed(&t, junk, sizeof(junk), &out);
	assert_in_range(out.len, 800, 1000);
}

static void test_backspace(void **state)
{
	(void)state;
	CHECK("ab\bc", "ac");
	CHECK("a\b\b\bb", "b");
	CHECK("a\n\bb", "a\nb");
	CHECK("N\bNA\bA", "NA");
	CHECK("x\xe2\x82\xac\by", "xy");
	CHECK("abc\b \b", "ab");
}

static void test_utf8(void **state)
{
	(void)state;
	CHECK("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	CHECK("a\xff"
	      "b",
	      "a" FFFD "b");
	CHECK("\xe2\x82"
	      "b",
	      FFFD "b");
	CHECK("\xe2\x82\xe2\x82\xac", FFFD FFFD "\xe2\x82\xac");
	CHECK("\xc0\x80", FFFD FFFD);
	CHECK("\xed\xa0\x80", FFFD FFFD FFFD);
	CHECK("\xc3\033[0m", FFFD);
}

static void test_trim(void **state)
{
	(void)state;
	assert_int_equal(shell_text_trim(NULL, 0), 0);
	assert_int_equal(shell_text_trim("\n\n", 2), 0);
	assert_int_equal(shell_text_trim("a\n\nb \n\n", 7), 5);
}

static void test_shorten(void **state)
{
	enum { MAX_CHARS = 1000 };
	CLEANUP_BUF struct buf out = BUF_INIT(0);
	CLEANUP_BUF struct buf in = BUF_INIT(0);

	(void)state;
	for (int i = 0; i < MAX_CHARS; i++)
		buf_puts(&in, "\xc3\xa4");
	assert_int_equal(shell_text_shorten(in.data, in.len, MAX_CHARS, &out), 0);
	assert_int_equal(out.len, 0);
	buf_puts(&in, "E");
	assert_int_equal(shell_text_shorten(in.data, in.len, MAX_CHARS, &out), 1);
	assert_true(utf8_valid(out.data, out.len));
	assert_true(utf8_length(out.data, out.len) <= MAX_CHARS);
	assert_non_null(strstr(out.data, "\n[... 101 characters truncated ...]\n"));
	assert_int_equal(out.data[0], '\xc3');
	assert_int_equal(out.data[out.len - 1], 'E');
	assert_int_equal(shell_text_shorten(NULL, 0, MAX_CHARS, &out), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),          cmocka_unit_test(test_carriage_returns),
		cmocka_unit_test(test_sequences),      cmocka_unit_test(test_broken_sequences),
		cmocka_unit_test(test_endless_string), cmocka_unit_test(test_backspace),
		cmocka_unit_test(test_utf8),           cmocka_unit_test(test_trim),
		cmocka_unit_test(test_shorten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a look at a run says, and what strangers make of that. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "run_news.h"

enum { MOST = 1000 };

static int parse(const char *text, size_t len, size_t max, struct run_news *ret)
{
	struct buf said CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(buf_append(&said, text, len), 0);
	return run_news_parse(&said, max, ret);
}

static void it_has_numbers_and_output(void **state UNUSED)
{
	static const char text[] = "1 7 3 2 3 2\na\0bxy";
	struct run_news n;

	assert_int_equal(parse(text, sizeof(text) - 1, MOST, &n), 0);
	assert_int_equal(n.out_len, 3);
	assert_memory_equal(n.out, "a\0b", 4);
	assert_int_equal(n.err_len, 2);
	assert_string_equal(n.err, "xy");
	assert_true(n.started && n.ended);
	assert_int_equal(n.exit_code, 7);
	run_news_release(&n);
	assert_null(n.out);
}

static void it_has_not_ended_before_its_last_byte(void **state UNUSED)
{
	static const char *const texts[] = { "1 - 1 0 1 0\na", "1 0 2 0 1 0\na", "1 0 1 1 1 0\na" };
	struct run_news n;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(parse(texts[i], strlen(texts[i]), MOST, &n), 0);
		assert_false(n.ended);
		assert_int_equal(n.exit_code, -1);
		run_news_release(&n);
	}
	assert_int_equal(parse("0 - 0 0 0 0\n", 12, MOST, &n), 0);
	assert_false(n.started || n.ended);
	run_news_release(&n);
}

static void nonsense_is_refused(void **state UNUSED)
{
	static const char *const texts[] = {
		"",
		"\n",
		"1 0 0 0 0 0",         /* no end of the line */
		"1 0 0 0 0\n",         /* a number is missing */
		"1 0 0 0 0 0 0\n",     /* or too many */
		"2 0 0 0 0 0\n",       /* neither started nor not */
		"-1 0 0 0 0 0\n",      /* likewise */
		"1 256 0 0 0 0\n",     /* no exit code */
		"1 -2 0 0 0 0\n",      /* likewise */
		"1 1x 0 0 0 0\n",      /* likewise */
		"1 0 0 0 1 0\na",      /* more than there is */
		"1 0 9 0 3 0\nab",     /* less than it says */
		"1 0 9 0 1 0\nab",     /* and more */
		"1 0 -1 0 -1 0\na",    /* negative, and so very large */
		"1 0 2000 0 1001 0\n", /* more than was asked for */
	};
	struct run_news n = { .exit_code = -2 };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(parse(texts[i], strlen(texts[i]), MOST, &n), -EBADMSG);
	assert_int_equal(parse("1 0\0 0 0 0 0\n", 13, MOST, &n), -EBADMSG);
	assert_int_equal(n.exit_code, -2); /* untouched */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_has_numbers_and_output),
		cmocka_unit_test(it_has_not_ended_before_its_last_byte),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

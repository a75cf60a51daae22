/* Text for people and for Prometheus: harmless whatever a sandbox said, and in form. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "status_text.h"
#include "utf8.h"

static void assert_escaped(const char *text, size_t max, const char *expected)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&b, "");
	text_escape(&b, text, max);
	assert_int_equal(b.error, 0);
	assert_string_equal(b.data, expected);
}

/* ---- what others said ---- */

static void what_is_harmless_stays(void **state)
{
	assert_escaped("", 0, "");
	assert_escaped("no such file: a\\b \"c\"", 0, "no such file: a\\b \"c\"");
	assert_escaped("größe 大小 😀", 0, "größe 大小 😀");
	assert_escaped("\xc2\xa0", 0, "\xc2\xa0"); /* a space that does not break */
}

static void what_is_not_is_escaped(void **state)
{
	assert_escaped("\x1b[2J\x1b]0;evil\x07", 0, "\\x1b[2J\\x1b]0;evil\\x07");
	assert_escaped("a\nb\tc\rd\x7f", 0, "a\\x0ab\\x09c\\x0dd\\x7f");
	/* not UTF-8: alone, cut, overlong, a surrogate */
	assert_escaped("\xff", 0, "\\xff");
	assert_escaped("a\xe2\x82", 0, "a\\xe2\\x82");
	assert_escaped("\xc0\x9b", 0, "\\xc0\\x9b");
	assert_escaped("\xed\xa0\x80", 0, "\\xed\\xa0\\x80");
	/* C1: terminals take the second for ESC [ */
	assert_escaped("\xc2\x80\xc2\x9b", 0, "\\xc2\\x80\\xc2\\x9b");
	/* what turns the direction, and line ends that are none in ASCII */
	assert_escaped("a\u202eb\u2066c\u200fd\u061c", 0,
		       "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\x8fd\\xd8\\x9c");
	assert_escaped("\u2028\u2029\ufeff", 0, "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\\xef\\xbb\\xbf");
}

/* Of every pair of bytes: what comes out is UTF-8 without a control character. */
static void nothing_gets_through(void **state)
{
	for (int a = 1; a < 256; a++) {
		for (int c = 0; c < 256; c++) {
			struct buf b CLEANUP_BUF = BUF_INIT(0);
			char text[] = { (char)a, (char)c, 0 };

			text_escape(&b, text, 0);
			assert_true(utf8_valid(b.data, b.len));
			for (size_t i = 0; i < b.len; i++) {
				unsigned char x = (unsigned char)b.data[i];

				assert_true(x >= 0x20 && x != 0x7f);
				if (x == 0xc2)
					assert_true((unsigned char)b.data[i + 1] >= 0xa0);
			}
		}
	}
}

static void long_ones_are_cut(void **state)
{
	assert_escaped("abc", 3, "abc");
	assert_escaped("abcd", 3, "abc…");
	assert_escaped("äöüß", 3, "äöü…");
	assert_escaped("\x1b\x1b\x1b\x1b", 2, "\\x1b\\x1b…");
}

/* ---- times and sizes ---- */

static void times(void **state)
{
	char t[TEXT_TIME];

	assert_string_equal(text_time(0, t), "");
	assert_string_equal(text_time(-5, t), "");
	assert_string_equal(text_time(NAN, t), "");
	assert_string_equal(text_time(INFINITY, t), "");
	assert_string_equal(text_time(1e300, t), "");
	assert_string_equal(text_time(1, t), "1970-01-01T00:00:01.000Z");
	assert_string_equal(text_time(951827696.5, t), "2000-02-29T12:34:56.500Z");
	assert_string_equal(text_time(4102444799.9999, t), "2099-12-31T23:59:59.999Z");
}

static void durations_and_sizes(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} durations[] = {
		{ -1, "0s" },    { 0, "0s" },        { 59.9, "59s" },   { 60, "1m" },
		{ 3599, "59m" }, { 3600, "1h" },     { 172799, "47h" }, { 172800, "2d" },
		{ NAN, "0s" },   { INFINITY, "0s" },
	};
	static const struct {
		uint64_t bytes;
		const char *text;
	} sizes[] = {
		{ 0, "0 B" },           { 1023, "1023 B" },         { 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },    { MIB - 1, "1.0 MiB" },     { 64 * MIB, "64.0 MiB" },
		{ 4 * GIB, "4.0 GiB" }, { UINT64_MAX, "16.0 EiB" },
	};
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	for (size_t i = 0; i < ARRAY_SIZE(durations); i++) {
		buf_reset(&b);
		text_duration(&b, durations[i].seconds);
		assert_string_equal(b.data, durations[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		buf_reset(&b);
		text_size(&b, sizes[i].bytes);
		assert_string_equal(b.data, sizes[i].text);
	}
	assert_string_equal(text_errno(-ETIMEDOUT), "ETIMEDOUT");
	assert_string_equal(text_errno(ENOENT), "ENOENT");
	assert_string_equal(text_errno(-99999), "EIO");
}

/* ---- tables ---- */

static void tables_fit(void **state)
{
	struct table t CLEANUP_TABLE = { .columns = 3 };
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	table_cell(&t, "A");
	table_cell(&t, "NAME");
	table_cell(&t, "LAST");
	table_number(&t, 12345);
	table_cell(&t, "x");
	table_cell(&t, "bad\x1b[31m\nline");
	table_cell(&t, NULL);
	table_cell(&t, "grüße");
	table_cell(&t, "");
	assert_int_equal(table_print(&t, &b), 0);
	assert_string_equal(b.data, "A      NAME   LAST\n"
				    "12345  x      bad\\x1b[31m\\x0aline\n"
				    "-      grüße  -\n");
}

/* However long a message is, it is one line and not the whole screen. */
static void long_cells_are_cut(void **state)
{
	struct table t CLEANUP_TABLE = { .columns = 1 };
	struct buf b CLEANUP_BUF = BUF_INIT(0), text CLEANUP_BUF = BUF_INIT(0);

	for (unsigned i = 0; i < 10000; i++)
		buf_puts(&text, "\n");
	table_cell(&t, text.data);
	assert_int_equal(table_print(&t, &b), 0);
	assert_true(b.len < 2000);
	assert_ptr_equal(strchr(b.data, '\n'), b.data + b.len - 1);
}

static void tables_tell_of_errors(void **state)
{
	struct table t CLEANUP_TABLE = { .columns = 1 };
	struct buf full CLEANUP_BUF = BUF_INIT(2), b CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&full, "longer");
	table_take(&t, &full);
	table_cell(&t, "fine");
	assert_int_equal(table_print(&t, &b), -EFBIG);
}

/* ---- metrics ---- */

static void metrics_are_in_form(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	metric(&b, "threadfs_x_total", METRIC_COUNTER, "Of x.", 9007199254740991.0 - 9e15);
	metric(&b, "threadfs_y_seconds", METRIC_GAUGE, "Of y.", 0.25);
	metric_begin(&b, "threadfs_z_bytes", METRIC_GAUGE, "Of z.");
	metric_value(&b, "threadfs_z_bytes", 1234567890123.0, "thread", "a", "user", "u", NULL);
	metric_value(&b, "threadfs_z_bytes", 0, "thread", "b\"\\\n{},=\xff", NULL);
	assert_string_equal(b.data,
			    "# HELP threadfs_x_total Of x.\n"
			    "# TYPE threadfs_x_total counter\n"
			    "threadfs_x_total 7199254740991\n"
			    "# HELP threadfs_y_seconds Of y.\n"
			    "# TYPE threadfs_y_seconds gauge\n"
			    "threadfs_y_seconds 0.25\n"
			    "# HELP threadfs_z_bytes Of z.\n"
			    "# TYPE threadfs_z_bytes gauge\n"
			    "threadfs_z_bytes{thread=\"a\",user=\"u\"} 1234567890123\n"
			    "threadfs_z_bytes{thread=\"b\\\"\\\\\\n{},=\xef\xbf\xbd\"} 0\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_harmless_stays),
		cmocka_unit_test(what_is_not_is_escaped),
		cmocka_unit_test(nothing_gets_through),
		cmocka_unit_test(long_ones_are_cut),
		cmocka_unit_test(times),
		cmocka_unit_test(durations_and_sizes),
		cmocka_unit_test(tables_fit),
		cmocka_unit_test(long_cells_are_cut),
		cmocka_unit_test(tables_tell_of_errors),
		cmocka_unit_test(metrics_are_in_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Range, If-Range, ETag, dates and Content-Disposition of downloads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "httprange.h"

static void ranges(void **state)
{
	static const struct {
		const char *header;
		uint64_t size;
		enum range_kind kind;
		uint64_t first, len;
	} rows[] = {
		{ NULL, 10, RANGE_WHOLE, 0, 10 },
		{ "", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=0-0", 10, RANGE_PART, 0, 1 },
		{ "bytes=0-", 10, RANGE_PART, 0, 10 },
		{ "bytes=2-4", 10, RANGE_PART, 2, 3 },
		{ "bytes=9-9", 10, RANGE_PART, 9, 1 },
		{ "bytes=9-100", 10, RANGE_PART, 9, 1 },
		{ "bytes=-3", 10, RANGE_PART, 7, 3 },
		{ "bytes=-30", 10, RANGE_PART, 0, 10 },
		{ "BYTES = 1-2 ", 10, RANGE_PART, 1, 2 },
		{ "bytes=1-99999999999999999999999", 10, RANGE_PART, 1, 9 },
		{ "bytes=-99999999999999999999999", 10, RANGE_PART, 0, 10 },
		{ "bytes=0-18446744073709551615", 10, RANGE_PART, 0, 10 },
		{ "bytes=10-", 10, RANGE_UNSATISFIABLE, 0, 10 },
		{ "bytes=10-20", 10, RANGE_UNSATISFIABLE, 0, 10 },
		{ "bytes=18446744073709551615-", 10, RANGE_UNSATISFIABLE, 0, 10 },
		{ "bytes=18446744073709551614-99999999999999999999999", 10, RANGE_UNSATISFIABLE, 0,
		  10 },
		{ "bytes=-0", 10, RANGE_UNSATISFIABLE, 0, 10 },
		{ "bytes=0-", 0, RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=-1", 0, RANGE_UNSATISFIABLE, 0, 0 },
		{ "bytes=4-2", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=0-1,3-4", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=0-1,", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=-", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes 0-1", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=1", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=--1", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=+1-2", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=0x1-2", 10, RANGE_WHOLE, 0, 10 },
		{ "bytes=1-2x", 10, RANGE_WHOLE, 0, 10 },
		{ "lines=1-2", 10, RANGE_WHOLE, 0, 10 },
		{ "bytesx=1-2", 10, RANGE_WHOLE, 0, 10 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct byte_range range = { 99, 99 };

		assert_int_equal(http_range(rows[i].header, rows[i].size, &range), rows[i].kind);
		assert_int_equal(range.first, rows[i].first);
		assert_int_equal(range.len, rows[i].len);
	}
}

static void if_range(void **state)
{
	static const char etag[] = "\"a-b-c\"", date[] = "Sun, 06 Nov 1994 08:49:37 GMT";

	assert_true(http_if_range(NULL, etag, date));
	assert_true(http_if_range("\"a-b-c\"", etag, date));
	assert_true(http_if_range(" \"a-b-c\"\t", etag, date));
	assert_true(http_if_range(date, etag, date));
	assert_false(http_if_range("", etag, date));
	assert_false(http_if_range("a-b-c", etag, date));
	assert_false(http_if_range("W/\"a-b-c\"", etag, date));
	assert_false(http_if_range("\"a-b-c\", \"d\"", etag, date));
	assert_false(http_if_range("Sun, 06 Nov 1994 08:49:38 GMT", etag, date));
	assert_false(http_if_range("Sunday, 06-Nov-94 08:49:37 GMT", etag, date));
}

static void etags(void **state)
{
	struct stat st = { .st_size = 0x1000, .st_ino = 0xabc };
	char a[HTTP_ETAG_SIZE], b[HTTP_ETAG_SIZE];

	st.st_mtim.tv_sec = 1;
	http_etag(&st, a);
	assert_string_equal(a, "\"3b9aca00-1000-abc\"");
	st.st_mtim.tv_nsec = 1;
	http_etag(&st, b);
	assert_string_not_equal(a, b);
	st.st_size = INT64_MAX;
	st.st_ino = UINT64_MAX;
	st.st_mtim.tv_sec = INT64_MAX;
	http_etag(&st, a);
	assert_int_equal(a[strlen(a) - 1], '"');
}

static void dates(void **state)
{
	char out[HTTP_DATE_SIZE];

	http_date(784111777, out);
	assert_string_equal(out, "Sun, 06 Nov 1994 08:49:37 GMT");
	http_date(0, out);
	assert_string_equal(out, "Thu, 01 Jan 1970 00:00:00 GMT");
	http_date(-1, out);
	assert_string_equal(out, "Wed, 31 Dec 1969 23:59:59 GMT");
	http_date(INT64_MAX, out);
	assert_string_equal(out, "Thu, 01 Jan 1970 00:00:00 GMT");
	http_date(253402300800, out); /* the year 10000 */
	assert_string_equal(out, "Thu, 01 Jan 1970 00:00:00 GMT");
}

static void dispositions(void **state)
{
	static const char *const rows[][2] = {
		{ "a.txt", "attachment; filename=\"a.txt\"" },
		{ "A-Z_0~.9", "attachment; filename=\"A-Z_0~.9\"" },
		{ "a b", "attachment; filename*=utf-8''a%20b" },
		{ "é", "attachment; filename*=utf-8''%C3%A9" },
		{ "\"", "attachment; filename*=utf-8''%22" },
		{ "a\r\nX: y", "attachment; filename*=utf-8''a%0D%0AX%3A%20y" },
		{ "\xff%", "attachment; filename*=utf-8''%FF%25" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf out CLEANUP_BUF = BUF_INIT(0);

		assert_int_equal(http_disposition(&out, rows[i][0]), 0);
		assert_string_equal(out.data, rows[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges), cmocka_unit_test(if_range),     cmocka_unit_test(etags),
		cmocka_unit_test(dates),  cmocka_unit_test(dispositions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

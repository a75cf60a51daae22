/* Listings by /v1/file/list, as servers answer and as they might. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "buf.h"
#include "entries.h"

static int list(struct entries *e, const char *json, const char *dir, bool recursive)
{
	cJSON *data CLEANUP_JSON = NULL;
	char *text CLEANUP_FREE = strdup(json);

	assert_non_null(text);
	assert_int_equal(json_parse(text, strlen(text), &data, NULL), 0);
	return entries_parse_json(e, data, dir, recursive);
}

static void good_list(void **state)
{
	static const char text[] =
		"{\"path\":\"/d\",\"files\":["
		"{\"name\":\"f\xc3\xa9\",\"path\":\"/d/f\xc3\xa9\",\"is_directory\":false,"
		"\"size\":9007199254740991,\"modified_time\":\"1776823501\","
		"\"permissions\":\"-rwsr-x--t\",\"extension\":\"\"},"
		"{\"name\":\"s\",\"path\":\"/d/s\",\"is_directory\":true,\"size\":null,"
		"\"modified_time\":null,\"permissions\":null,\"extension\":null},"
		"{\"name\":\"bare\",\"is_directory\":false}],\"total_count\":3}";
	struct entries e CLEANUP_ENTRIES = { 0 };

	assert_int_equal(list(&e, text, "/d", false), 0);
	assert_int_equal(e.n, 3);
	assert_int_equal(e.dropped, 0);
	assert_false(e.truncated);
	assert_string_equal(e.v[0].name, "f\xc3\xa9");
	assert_null(e.v[0].target);
	assert_true(e.v[0].attr.partial);
	assert_int_equal(e.v[0].attr.mode, S_IFREG | 05751);
	assert_int_equal(e.v[0].attr.size, 9007199254740991);
	assert_int_equal(e.v[0].attr.mtime.tv_sec, 1776823501);
	assert_int_equal(e.v[0].attr.ino, 0);
	assert_int_equal(e.v[1].attr.mode, S_IFDIR | 0755);
	assert_int_equal(e.v[1].attr.size, 0);
	assert_int_equal(e.v[1].attr.mtime.tv_sec, 0);
	assert_int_equal(e.v[2].attr.mode, S_IFREG | 0644);
}

static void shapes(void **state)
{
	static const char *const bad[] = {
		"null",
		"[]",
		"\"x\"",
		"{}",
		"{\"files\":null}",
		"{\"files\":{}}",
		"{\"files\":[null]}",
		"{\"files\":[[]]}",
		"{\"files\":[\"x\"]}",
		"{\"files\":[{}]}",
		"{\"files\":[{\"name\":\"x\"}]}",
		"{\"files\":[{\"is_directory\":true}]}",
		"{\"files\":[{\"name\":1,\"is_directory\":true}]}",
		"{\"files\":[{\"name\":\"x\",\"is_directory\":\"no\"}]}",
	};
	struct entries e CLEANUP_ENTRIES = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(list(&e, bad[i], "/d", false), -EBADMSG);
	assert_int_equal(entries_parse_json(&e, NULL, "/d", false), -EBADMSG);
	assert_int_equal(e.n, 0);
	assert_int_equal(list(&e, "{\"files\":[]}", "/d", false), 0);
	assert_int_equal(e.n, 0);
}

/* The one entry "x" with this member besides; 0 or the error. */
static int list_with(const char *member, const char *value, struct attr *ret)
{
	struct entries e CLEANUP_ENTRIES = { 0 };
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	int r;

	buf_printf(&b, "{\"files\":[{\"name\":\"x\",\"is_directory\":false,\"%s\":%s}]}", member,
		   value);
	r = list(&e, b.data, "/d", false);
	assert_int_equal(e.n, r == 0);
	if (r == 0)
		*ret = e.v[0].attr;
	return r;
}

static void permissions(void **state)
{
	static const struct {
		const char *value;
		mode_t mode; /* 0: refused */
	} rows[] = {
		{ "\"-rw-r--r--\"", S_IFREG | 0644 },
		{ "\"----------\"", S_IFREG },
		{ "\"-rwxrwxrwx\"", S_IFREG | 0777 },
		{ "\"-rwsr-sr-t\"", S_IFREG | 07755 },
		{ "\"---S--S--T\"", S_IFREG | 07000 },
		{ "\"prw-------\"", S_IFIFO | 0600 },
		{ "\"srwx------\"", S_IFSOCK | 0700 },
		{ "\"crw-rw-rw-\"", S_IFCHR | 0666 },
		{ "\"brw-------\"", S_IFBLK | 0600 },
		{ "\"lrwxrwxrwx\"", S_IFLNK | 0777 },
		{ "\"?rw-r--r--\"", S_IFREG | 0644 },
		{ "\"drwxr-xr-x\"", S_IFREG | 0755 },
		{ "\"0644\"", S_IFREG | 0644 },
		{ "\"755\"", S_IFREG | 0755 },
		{ "\"0\"", S_IFREG },
		{ "\"7777\"", S_IFREG | 07777 },
		{ "null", S_IFREG | 0644 },
		{ "\"-rw-r--r-\"", 0 },
		{ "\"-rw-r--r--+\"", 0 },
		{ "\"-rx-r--r--\"", 0 },
		{ "\"-rw-r--r-s\"", 0 },
		{ "\"-rw-r-tr--\"", 0 },
		{ "\"-sw-r--r--\"", 0 },
		{ "\"10000\"", 0 },
		{ "\"0o644\"", 0 },
		{ "\"888\"", 0 },
		{ "\"\"", 0 },
		{ "644", 0 },
		{ "true", 0 },
		{ "[]", 0 },
		{ "\"-rw\\u0000r--r-\"", 0 },
	};
	struct attr a;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(list_with("permissions", rows[i].value, &a),
				 rows[i].mode ? 0 : -EBADMSG);
		if (rows[i].mode)
			assert_int_equal(a.mode, rows[i].mode);
	}
}

static void sizes(void **state)
{
	static const struct {
		const char *value;
		int64_t size; /* -1: refused */
	} rows[] = {
		{ "0", 0 },
		{ "-0", 0 },
		{ "1e3", 1000 },
		{ "9223372036854774784", 9223372036854774784 },
		{ "9223372036854775807", INT64_MAX },
		{ "null", 0 },
		{ "-1", -1 },
		{ "1.5", -1 },
		{ "9223372036854780000", -1 },
		{ "1e300", -1 },
		{ "1e999", -1 },
		{ "\"1\"", -1 },
		{ "false", -1 },
	};
	struct attr a;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(list_with("size", rows[i].value, &a),
				 rows[i].size < 0 ? -EBADMSG : 0);
		if (rows[i].size >= 0)
			assert_int_equal(a.size, rows[i].size);
	}
}

static void times(void **state)
{
	static const struct {
		const char *value;
		int64_t sec;
	} good[] = {
		{ "\"0\"", 0 },
		{ "\"-2\"", -2 },
		{ "\"1776823501\"", 1776823501 },
		{ "\"1776823501.9\"", 1776823501 },
		{ "\"-1.5\"", -2 },
		{ "1776823501", 1776823501 },
		{ "1776823501.9", 1776823501 },
		{ "-1.5", -2 },
		{ "null", 0 },
		{ "\"1970-01-01T00:00:00Z\"", 0 },
		{ "\"1970-01-01T00:00\"", 0 },
		{ "\"1970-01-01 00:00:00\"", 0 },
		{ "\"1969-12-31T23:59:59Z\"", -1 },
		{ "\"2026-04-22T02:05:01\"", 1776823501 },
		{ "\"2026-04-22T02:05:01.123456\"", 1776823501 },
		{ "\"2026-04-22T02:05:01.999999999+00:00\"", 1776823501 },
		{ "\"2026-04-22T04:05:01+02:00\"", 1776823501 },
		{ "\"2026-04-21T20:35:01-0530\"", 1776823501 },
		{ "\"2026-04-22T04:05:01+02\"", 1776823501 },
		{ "\"2016-12-31T23:59:60Z\"", 1483228800 },
		{ "\"2024-02-29T00:00:00Z\"", 1709164800 },
		{ "\"0001-01-01T00:00:00Z\"", -62135596800 },
		{ "\"9999-12-31T23:59:59Z\"", 253402300799 },
	};
	static const char *const bad[] = {
		"\"\"",
		"\"-\"",
		"\"now\"",
		"\" 1\"",
		"\"1 \"",
		"\"0x10\"",
		"\"9223372036854775808\"",
		"1e300",
		"-1e999",
		"true",
		"{}",
		"\"2026-04-22\"",
		"\"2026-04-22T\"",
		"\"2026-04-22T02\"",
		"\"2026-4-22T02:05:01\"",
		"\"2026-00-22T02:05:01\"",
		"\"2026-13-22T02:05:01\"",
		"\"2026-06-31T02:05:01\"",
		"\"2026-02-29T02:05:01\"",
		"\"2026-04-00T02:05:01\"",
		"\"2026-04-22T24:00:00\"",
		"\"2026-04-22T02:60:01\"",
		"\"2026-04-22T02:05:61\"",
		"\"2026-04-22T02:05:01.\"",
		"\"2026-04-22T02:05:01z\"",
		"\"2026-04-22T02:05:01ZZ\"",
		"\"2026-04-22T02:05:01+\"",
		"\"2026-04-22T02:05:01+2\"",
		"\"2026-04-22T02:05:01+02:\"",
		"\"2026-04-22T02:05:01+02:0\"",
		"\"2026-04-22T02:05:01+24:00\"",
		"\"2026-04-22T02:05:01+02:60\"",
		"\"2026-04-22T02:05:01 0200\"",
		"\"2026-04-22T02:05:010200\"",
		"\"2026-04-22T02:05:01\\u0000\"",
	};
	struct attr a;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(list_with("modified_time", good[i].value, &a), 0);
		assert_int_equal(a.mtime.tv_sec, good[i].sec);
		assert_int_equal(a.mtime.tv_nsec, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(list_with("modified_time", bad[i], &a), -EBADMSG);
}

static void names(void **state)
{
	static const struct {
		const char *dir, *path;
		const char *want; /* NULL: dropped */
	} rows[] = {
		{ "/d", "/d/a", "a" },      { "/d", "/d/a/b", "a/b" },
		{ "/d/", "/d/a/b", "a/b" }, { "/", "/a/b", "a/b" },
		{ "/d", "/d", NULL },       { "/d", "/d/", NULL },
		{ "/d", "/da", NULL },      { "/d", "/e/a", NULL },
		{ "/d", "a", NULL },        { "/d", "", NULL },
		{ "/d", "/", NULL },        { "/", "/", NULL },
		{ "/d", "/d/..", NULL },    { "/d", "/d/../d/a", NULL },
		{ "/d", "/d//a", NULL },    { "/d", "/d/a/", NULL },
		{ "/d", "/d/a/./b", NULL }, { "/d", "/d/a\\u0000b", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct entries e CLEANUP_ENTRIES = { 0 };
		struct buf b CLEANUP_BUF = BUF_INIT(0);

		/* In a recursive listing the name does not matter. */
		buf_printf(&b,
			   "{\"files\":[{\"name\":\"..\",\"path\":\"%s\",\"is_directory\":false}]}",
			   rows[i].path);
		assert_int_equal(list(&e, b.data, rows[i].dir, true), 0);
		assert_int_equal(e.n, rows[i].want != NULL);
		assert_int_equal(e.dropped, rows[i].want == NULL);
		if (e.n)
			assert_string_equal(e.v[0].name, rows[i].want);
		assert_int_equal(list(&e, b.data, rows[i].dir, false), 0);
		assert_int_equal(e.dropped, 1 + (rows[i].want == NULL));
	}
}

static void flat_names(void **state)
{
	static const char text[] =
		"{\"files\":[{\"name\":\"a\\u0000b\",\"is_directory\":false},"
		"{\"name\":\"a/b\",\"is_directory\":false},{\"name\":\"\",\"is_directory\":true},"
		"{\"name\":\".\",\"is_directory\":true},{\"name\":\"..\",\"is_directory\":true},"
		"{\"name\":\" \\n\",\"is_directory\":true}]}";
	struct entries e CLEANUP_ENTRIES = { 0 };

	assert_int_equal(list(&e, text, "/d", false), 0);
	assert_int_equal(e.n, 1);
	assert_string_equal(e.v[0].name, " \n");
	assert_int_equal(e.dropped, 5);
}

static bool list_is_cut(size_t n, const char *rest)
{
	struct entries e CLEANUP_ENTRIES = { 0 };
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&b, "{\"files\":[");
	for (size_t i = 0; i < n; i++)
		buf_printf(&b, "%s{\"name\":\"%s\",\"is_directory\":false}", i ? "," : "",
			   i ? "n" : "..");
	buf_printf(&b, "]%s}", rest);
	assert_int_equal(list(&e, b.data, "/d", false), 0);
	assert_int_equal(e.n, n - 1);
	return e.truncated;
}

static void truncation(void **state)
{
	assert_false(list_is_cut(9999, ""));
	assert_true(list_is_cut(10000, ""));
	assert_false(list_is_cut(10001, ""));
	assert_false(list_is_cut(1, ",\"truncated\":false"));
	assert_true(list_is_cut(1, ",\"truncated\":true"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_list),   cmocka_unit_test(shapes),
		cmocka_unit_test(permissions), cmocka_unit_test(sizes),
		cmocka_unit_test(times),       cmocka_unit_test(names),
		cmocka_unit_test(flat_names),  cmocka_unit_test(truncation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

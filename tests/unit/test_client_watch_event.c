/* Events of a watcher, as the client reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "buf.h"
#include "watch_event.h"

/* Decodes what the text says; the strings of ret stay valid until the next call. */
static int decode(const char *json, struct watch_event *ret)
{
	static cJSON *root;
	char *text CLEANUP_FREE = json ? strdup(json) : NULL;

	cJSON_Delete(root);
	root = NULL;
	if (!json)
		return 0;
	assert_non_null(text);
	assert_int_equal(json_parse(text, strlen(text), &root, NULL), 0);
	return watch_event_decode(root, ret);
}

static int forget(void **state)
{
	return decode(NULL, NULL);
}

static const char plain[] =
	"{\"seq\":12,\"watcher_id\":\"0123456789ab\",\"type\":\"write\",\"path\":\"/d/a/b\","
	"\"relative_path\":\"a/b\",\"old_path\":null,\"is_dir\":0,\"timestamp\":1.5,"
	"\"mtime\":1.25,\"size\":3,\"inode\":77}";

static void plain_event(void **state)
{
	struct watch_event ev;

	assert_int_equal(decode(plain, &ev), 0);
	assert_int_equal(ev.type, WATCH_WRITE);
	assert_int_equal(ev.seq, 12);
	assert_string_equal(ev.path, "/d/a/b");
	assert_string_equal(ev.relative, "a/b");
	assert_null(ev.old_path);
	assert_false(ev.is_dir);
	assert_int_equal(ev.size, 3);
	assert_int_equal(ev.ino, 77);
}

static void removed_directory_itself(void **state)
{
	struct watch_event ev;

	assert_int_equal(decode("{\"seq\":0,\"type\":\"remove\",\"path\":\"/\","
				"\"relative_path\":\".\",\"is_dir\":true,\"mtime\":null,"
				"\"size\":null,\"inode\":null}",
				&ev),
			 0);
	assert_int_equal(ev.type, WATCH_REMOVE);
	assert_string_equal(ev.path, "/");
	assert_string_equal(ev.relative, ".");
	assert_true(ev.is_dir);
	assert_int_equal(ev.size, -1);
	assert_int_equal(ev.ino, 0);
}

/* The plain event with one member in place of its own. */
static int decode_with(const char *key, const char *value, struct watch_event *ret)
{
	static const struct {
		const char *key, *value;
	} rows[] = {
		{ "seq", "1" },         { "type", "\"create\"" },
		{ "path", "\"/d/a\"" }, { "relative_path", "\"a\"" },
		{ "old_path", "null" }, { "is_dir", "false" },
		{ "size", "null" },     { "inode", "null" },
	};
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	buf_putc(&b, '{');
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool is_it = strcmp(rows[i].key, key) == 0;

		if (!is_it || value)
			buf_printf(&b, "%s\"%s\":%s", b.len > 1 ? "," : "", rows[i].key,
				   is_it ? value : rows[i].value);
	}
	buf_putc(&b, '}');
	return decode(b.data, ret);
}

static void types(void **state)
{
	static const char *const names[] = { "\"create\"", "\"write\"", "\"remove\"", "\"rename\"",
					     "\"chmod\"" };
	static const char *const bad[] = { NULL,      "null",       "1",
					   "\"\"",    "\"Create\"", "\"create\\u0000\"",
					   "\"move\"" };
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(decode_with("type", names[i], &ev), 0);
		assert_int_equal(ev.type, i);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(decode_with("type", bad[i], &ev), -EBADMSG);
}

static void renames(void **state)
{
	static const char start[] =
		"{\"seq\":1,\"type\":\"rename\",\"path\":\"/d/b\",\"relative_path\":\"b\","
		"\"is_dir\":1";
	static const struct {
		const char *rest, *old;
		int want;
	} rows[] = {
		{ ",\"old_path\":\"/d/a\"}", "/d/a", 0 }, /* as it should be */
		{ ",\"old_path\":null}", NULL, 0 },
		{ "}", NULL, 0 },
		{ ",\"old_path\":\"a\"}", NULL, -EBADMSG },
		{ ",\"old_path\":\"/d/../a\"}", NULL, -EBADMSG },
		{ ",\"old_path\":1}", NULL, -EBADMSG },
	};
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);

		buf_printf(&b, "%s%s", start, rows[i].rest);
		assert_int_equal(decode(b.data, &ev), rows[i].want);
		if (rows[i].want == 0 && rows[i].old)
			assert_string_equal(ev.old_path, rows[i].old);
		else if (rows[i].want == 0)
			assert_null(ev.old_path);
	}
	/* of no interest elsewhere */
	assert_int_equal(decode_with("old_path", "\"/d/x\"", &ev), 0);
	assert_null(ev.old_path);
}

static void paths(void **state)
{
	static const char *const good[] = { "\"/\"", "\"/a\"", "\"/a/ \\n/...\"" };
	static const char *const bad[] = {
		NULL,        "null",     "1",         "[\"/a\"]",       "\"\"",
		"\"a\"",     "\"./a\"",  "\"//\"",    "\"/a//b\"",      "\"/a/\"",
		"\"/a/..\"", "\"/..\"",  "\"/../a\"", "\"/a/../b\"",    "\"/a/./b\"",
		"\"..\"",    "\"/a/.\"", "\"/.\"",    "\"/a\\u0000b\"",
	};
	struct watch_event ev = { .seq = 42 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(decode_with("path", bad[i], &ev), -EBADMSG);
	assert_int_equal(ev.seq, 42);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(decode_with("path", good[i], &ev), 0);
}

static void relative_paths(void **state)
{
	static const char *const good[] = { "\".\"", "\"a\"", "\"...\"", "\"a/ \\n/.b\"" };
	static const char *const bad[] = {
		NULL,       "null",       "1",           "\"\"",         "\"/\"",   "\"/a\"",
		"\"..\"",   "\"a/..\"",   "\"../a\"",    "\"./a\"",      "\"a/.\"", "\"a/\"",
		"\"a//b\"", "\"a/../b\"", "\"\\u0000\"", "\"a\\u0000\"",
	};
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(decode_with("relative_path", bad[i], &ev), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(decode_with("relative_path", good[i], &ev), 0);
}

/* A quoted path of n bytes in names of k. */
static char *long_path(size_t n, size_t k, bool absolute)
{
	struct buf b = BUF_INIT(0);

	buf_putc(&b, '"');
	for (size_t i = absolute ? 0 : 1; i < n + !absolute; i++)
		buf_putc(&b, i % (k + 1) == 0 ? '/' : 'n');
	buf_putc(&b, '"');
	assert_int_equal(b.error, 0);
	return b.data;
}

static void path_lengths(void **state)
{
	static const struct {
		size_t n, k;
		bool absolute;
		int want;
	} rows[] = {
		{ 256, 255, true, 0 },          { 257, 256, true, -EBADMSG },
		{ 4095, 255, true, 0 },         { 4096, 200, true, -EBADMSG },
		{ 255, 255, false, 0 },         { 256, 256, false, -EBADMSG },
		{ 4095, 255, false, 0 },        { 4096, 200, false, -EBADMSG },
		{ 100000, 1, false, -EBADMSG },
	};
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *path CLEANUP_FREE = long_path(rows[i].n, rows[i].k, rows[i].absolute);

		assert_int_equal(
			decode_with(rows[i].absolute ? "path" : "relative_path", path, &ev),
			rows[i].want);
	}
}

static void numbers(void **state)
{
	static const struct {
		const char *value;
		int64_t number; /* -1: as if missing, -2: refused */
	} rows[] = {
		{ "0", 0 },
		{ "1e2", 100 },
		{ "9007199254740992", 9007199254740992 },
		{ "9007199254741000", -1 }, /* not exact any more */
		{ "18446744073709551615", -1 },
		{ "1e999", -1 },
		{ "null", -1 },
		{ NULL, -1 },
		{ "-1", -2 },
		{ "0.5", -2 },
		{ "\"1\"", -2 },
		{ "true", -2 },
		{ "{}", -2 },
	};
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int64_t n = rows[i].number;
		int want = n == -2 ? -EBADMSG : 0;

		assert_int_equal(decode_with("size", rows[i].value, &ev), want);
		if (want == 0)
			assert_int_equal(ev.size, n);
		assert_int_equal(decode_with("inode", rows[i].value, &ev), want);
		if (want == 0)
			assert_int_equal(ev.ino, n < 0 ? 0 : n);
		/* the sequence number is needed */
		assert_int_equal(decode_with("seq", rows[i].value, &ev), n < 0 ? -EBADMSG : 0);
		if (n >= 0)
			assert_int_equal(ev.seq, n);
	}
}

static void flags(void **state)
{
	static const struct {
		const char *value;
		int want; /* -1: refused */
	} rows[] = {
		{ "0", 0 },   { "1", 1 },    { "false", 0 },  { "true", 1 },  { "2", -1 },
		{ "-1", -1 }, { "0.5", -1 }, { "\"1\"", -1 }, { "null", -1 }, { NULL, -1 },
	};
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(decode_with("is_dir", rows[i].value, &ev),
				 rows[i].want < 0 ? -EBADMSG : 0);
		if (rows[i].want >= 0)
			assert_int_equal(ev.is_dir, rows[i].want);
	}
}

static void shapes(void **state)
{
	static const char *const bad[] = { "null", "[]", "1", "\"x\"", "true", "{}", "[{}]" };
	struct watch_event ev;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(decode(bad[i], &ev), -EBADMSG);
	assert_int_equal(watch_event_decode(NULL, &ev), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_event),  cmocka_unit_test(removed_directory_itself),
		cmocka_unit_test(types),        cmocka_unit_test(renames),
		cmocka_unit_test(paths),        cmocka_unit_test(relative_paths),
		cmocka_unit_test(path_lengths), cmocka_unit_test(numbers),
		cmocka_unit_test(flags),        cmocka_unit_test(shapes),
	};

	return cmocka_run_group_tests(tests, NULL, forget);
}

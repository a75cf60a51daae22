/* Which paths may be named: tables, and random paths against a simple checker. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "view.h"

static void roots(void **state)
{
	static const char *const rows[][2] = {
		{ "/", "/" },
		{ "//", "/" },
		{ "/.", "/" },
		{ "/././/", "/" },
		{ "/mnt/user-data", "/mnt/user-data" },
		{ "/mnt/user-data/", "/mnt/user-data" },
		{ "//mnt///user-data//", "/mnt/user-data" },
		{ "/./mnt/./user-data/.", "/mnt/user-data" },
		{ "/.hidden/...", "/.hidden/..." },
		{ "/a b/\xff", "/a b/\xff" },
		{ "", NULL },
		{ ".", NULL },
		{ "mnt", NULL },
		{ "~/x", NULL },
		{ "/..", NULL },
		{ "/a/../b", NULL },
		{ "/a/..", NULL },
		{ "/a\\..\\b", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char untouched[] = "untouched", *root = untouched;

		if (rows[i][1]) {
			assert_int_equal(view_root(rows[i][0], &root), 0);
			assert_string_equal(root, rows[i][1]);
			free(root);
		} else {
			assert_int_equal(view_root(rows[i][0], &root), -EINVAL);
			assert_ptr_equal(root, untouched);
		}
	}
}

static void checks(void **state)
{
	static const char root[] = "/mnt/user-data";
	static const struct {
		const char *root, *path;
		int err;
	} rows[] = {
		{ root, "/mnt/user-data", 0 },
		{ root, "/mnt/user-data/", 0 },
		{ root, "/mnt/user-data/outputs/a b", 0 },
		{ root, "/mnt/user-data//x", 0 },
		{ root, "/mnt/user-data/./x", 0 },
		{ root, "/mnt/user-data/..x", 0 },
		{ root, "/mnt/user-data/x..", 0 },
		{ root, "/mnt/user-data/...", 0 },
		{ root, "/mnt/user-data/a\\b", 0 },
		{ root, "/mnt/user-data/\n", 0 },
		{ root, "", -EINVAL },
		{ root, "mnt/user-data/x", -EINVAL },
		{ root, "..", -EINVAL },
		{ root, "/", -EACCES },
		{ root, "/etc/passwd", -EACCES },
		{ root, "/mnt", -EACCES },
		{ root, "/mnt/user-dat", -EACCES },
		{ root, "/mnt/user-data2", -EACCES },
		{ root, "/mnt/user-data2/x", -EACCES },
		{ root, "/MNT/user-data/x", -EACCES },
		{ root, "//mnt/user-data/x", -EACCES },
		{ root, "/mnt/user-data/..", -EACCES },
		{ root, "/mnt/user-data/../user-data/x", -EACCES },
		{ root, "/mnt/user-data/workspace/../../etc/passwd", -EACCES },
		{ root, "/mnt/user-data/a/../b", -EACCES },
		{ root, "/mnt/user-data/..\\..\\etc\\passwd", -EACCES },
		{ root, "/mnt/user-data/a\\../b", -EACCES },
		{ root, "/mnt/user-data/a/..\\b", -EACCES },
		{ root, "/mnt/user-data\\..\\x", -EACCES },
		{ "/", "/", 0 },
		{ "/", "/etc", 0 },
		{ "/", "//etc", 0 },
		{ "/", "/..", -EACCES },
		{ "/", "etc", -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		static const char untouched[] = "untouched";
		const char *why = untouched;

		assert_int_equal(view_check(rows[i].root, rows[i].path, &why), rows[i].err);
		assert_true((why == untouched) == (rows[i].err == 0));
	}
}

static void lengths(void **state)
{
	char path[5000], *root = NULL;
	const char *why;

	/* a name of 255 bytes is the longest */
	memset(path, 'x', sizeof(path));
	memcpy(path, "/r/", 3);
	path[3 + 255] = '\0';
	assert_int_equal(view_check("/r", path, &why), 0);
	assert_int_equal(view_root(path, &root), 0);
	free(root);
	path[3 + 255] = 'x';
	path[3 + 256] = '\0';
	assert_int_equal(view_check("/r", path, &why), -ENAMETOOLONG);
	assert_int_equal(view_root(path, &root), -EINVAL);
	path[3 + 256] = '/';
	path[3 + 257] = '\0';
	assert_int_equal(view_check("/r", path, &why), -ENAMETOOLONG);

	/* and a path of 4095 */
	for (size_t i = 0; i < sizeof(path); i++)
		path[i] = i % 100 ? 'x' : '/';
	path[4095] = '\0';
	assert_int_equal(view_check("/", path, &why), 0);
	assert_int_equal(view_root(path, &root), 0);
	free(root);
	path[4095] = 'x';
	path[4096] = '\0';
	assert_int_equal(view_check("/", path, &why), -ENAMETOOLONG);
	assert_int_equal(view_root(path, &root), -EINVAL);
	/* outside is said first */
	assert_int_equal(view_check("/mnt", path, &why), -EACCES);
}

/* What a path of these tests must give, found by looking for substrings. */
static int expected(const char *root, const char *path)
{
	char slashed[200], below[200];

	if (path[0] != '/')
		return -EINVAL;
	snprintf(slashed, sizeof(slashed), "%s/", path);
	for (char *s = slashed; *s; s++)
		if (*s == '\\')
			*s = '/';
	if (strstr(slashed, "/../"))
		return -EACCES;
	snprintf(below, sizeof(below), "%s/", strcmp(root, "/") == 0 ? "" : root);
	if (strcmp(path, root) != 0 && strstr(path, below) != path)
		return -EACCES;
	return 0;
}

static void random_paths(void **state)
{
	static const char *const pieces[] = { "/", "/",  "/",  ".",     "..", "\\",
					      "a", "ab", "/a", "/a/ab", "\n", "..." };
	static const char *const given[] = { "/", "/a", "/a/ab", "/a/..." };
	unsigned seen[3] = { 0 };

	srandom(3);
	for (int round = 0; round < 200000; round++) {
		const char *root = given[random() % (long)ARRAY_SIZE(given)], *why = NULL;
		char path[100] = "";
		int want;

		if (random() % 2)
			strcpy(path, root);
		for (long n = random() % 8; n > 0; n--)
			strcat(path, pieces[random() % (long)ARRAY_SIZE(pieces)]);
		want = expected(root, path);
		if (view_check(root, path, &why) != want)
			fail_msg("root '%s' path '%s': not %d", root, path, want);
		seen[want == 0 ? 0 : want == -EACCES ? 1 : 2]++;
	}
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
		assert_true(seen[i] > 1000);
}

static void random_roots_are_normal(void **state)
{
	static const char *const pieces[] = { "/", "/", ".", "/.", "a", "..", "/b", "\\" };

	srandom(4);
	for (int round = 0; round < 100000; round++) {
		char given[100] = "/", padded[110], *root = NULL, *again = NULL;
		int r;

		for (long n = random() % 8; n > 0; n--)
			strcat(given, pieces[random() % (long)ARRAY_SIZE(pieces)]);
		r = view_root(given, &root);
		assert_int_equal(r, expected("/", given) == 0 ? 0 : -EINVAL);
		if (r < 0)
			continue;
		snprintf(padded, sizeof(padded), "%s/", strcmp(root, "/") == 0 ? "" : root);
		assert_null(strstr(padded, "//"));
		assert_null(strstr(padded, "/./"));
		assert_int_equal(root[0], '/');
		assert_int_equal(view_root(root, &again), 0);
		assert_string_equal(root, again);
		free(root);
		free(again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(roots),
		cmocka_unit_test(checks),
		cmocka_unit_test(lengths),
		cmocka_unit_test(random_paths),
		cmocka_unit_test(random_roots_are_normal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

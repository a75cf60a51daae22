/* Where links may lead: no text that a sandbox can come up with leads out of its thread. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "symlink.h"

enum { LONGEST = 4095 };
#define ROOT "/mnt/user-data"

struct row {
	const char *root, *dir, *target;
	const char *result; /* NULL: -EPERM */
};

static void check(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *w = &rows[i];
		char *result = NULL;
		int r = symlink_contain(w->root, w->dir, w->target, &result);

		if (r != (w->result ? 0 : -EPERM) || (w->result && strcmp(result, w->result) != 0))
			fail_msg("%s, in \"%s\": \"%s\" is \"%s\" (%d), not \"%s\"", w->root,
				 w->dir, w->target, result ? result : "", r,
				 w->result ? w->result : "EPERM");
		free(result);
	}
}

/* ---- shown ---- */

static void absolute_targets(void **state)
{
	static const struct row rows[] = {
		{ ROOT, "", ROOT "/outputs/x", "outputs/x" },
		{ ROOT, "outputs", ROOT "/outputs/x", "x" },
		{ ROOT, "workspace/a/b", ROOT "/outputs/x", "../../../outputs/x" },
		{ ROOT, "workspace/a/b", ROOT "/workspace/c", "../../c" },
		{ ROOT, "workspace/a", ROOT "/workspace/ab", "../ab" },
		/* the root itself, the link's own directory, and one above */
		{ ROOT, "", ROOT, "." },
		{ ROOT, "", ROOT "/", "." },
		{ ROOT, "a", ROOT, ".." },
		{ ROOT, "a/b/c", ROOT "/.", "../../.." },
		{ ROOT, "a/b", ROOT "/a/b", "." },
		{ ROOT, "a/b", ROOT "/a", ".." },
		/* written in other ways */
		{ ROOT, "", "//mnt///user-data//x", "x" },
		{ ROOT, "", "/./mnt/./user-data/./x/.", "x" },
		{ ROOT, "", "/../../mnt/user-data/x/", "x" },
		{ ROOT, "", "/etc/../mnt/user-data/x", "x" },
		{ ROOT, "", ROOT "/a/../b", "b" },
		{ ROOT, "", ROOT "/../user-data/b", "b" },
		{ ROOT, "a", ROOT "/a/b/../../c", "../c" },
		/* names that only look like it */
		{ ROOT, "", ROOT "/...", "..." },
		{ ROOT, "", ROOT "/..x/.y", "..x/.y" },
	};

	check(rows, ARRAY_SIZE(rows));
}

static void absolute_targets_outside(void **state)
{
	static const struct row rows[] = {
		{ ROOT, "", "/", NULL },
		{ ROOT, "", "/etc/passwd", NULL },
		{ ROOT, "", "/mnt", NULL },
		{ ROOT, "", "/mnt/user-data2", NULL },
		{ ROOT, "", "/mnt/user-data2/x", NULL },
		{ ROOT, "", "/mnt/user-dat", NULL },
		{ ROOT, "", "/mnt/user-data.", NULL },
		{ ROOT, "", "/mnt//user-data/../x", NULL },
		{ ROOT, "", ROOT "/..", NULL },
		{ ROOT, "a/b/c", ROOT "/a/../../x", NULL },
		{ ROOT, "", "/x" ROOT "/y", NULL },
		{ ROOT, "", "/MNT/user-data", NULL },
		{ ROOT, "", "/..", NULL },
		{ ROOT, "", "//", NULL },
	};

	check(rows, ARRAY_SIZE(rows));
}

static void relative_targets(void **state)
{
	static const struct row rows[] = {
		/* fine as they are: what was written is what is read */
		{ ROOT, "", "x", "x" },
		{ ROOT, "", "./x", "./x" },
		{ ROOT, "", "a//b/", "a//b/" },
		{ ROOT, "", ".", "." },
		{ ROOT, "a", "..", ".." },
		{ ROOT, "a", "../", "../" },
		{ ROOT, "a", "./../b", "./../b" },
		{ ROOT, "a/b", "../b/c", "../b/c" },
		{ ROOT, "a/b", "../../outputs/x", "../../outputs/x" },
		{ ROOT, "", "...", "..." },
		{ ROOT, "", "..x", "..x" },
		{ ROOT, "", "mnt/user-data", "mnt/user-data" },
		{ ROOT, "", " ", " " },
		{ ROOT, "", "a\\..\\b", "a\\..\\b" },
		{ ROOT, "", "\xff\x1b", "\xff\x1b" },
		/* ".." behind a name */
		{ ROOT, "", "a/..", "." },
		{ ROOT, "", "a/../b", "b" },
		{ ROOT, "a", "b/../../c", "../c" },
		{ ROOT, "a/b", "../x/../..", "../.." },
		{ ROOT, "a/b", "c/../d/./e//", "d/e" },
		/* out, and in again by naming the root */
		{ ROOT, "", "../../mnt/user-data/x", "x" },
		{ ROOT, "", "../user-data/x", "x" },
		{ ROOT, "", "../user-data", "." },
		{ ROOT, "a/b", "../../../user-data/a/c", "../c" },
		{ ROOT, "a", "../../../../../../mnt/user-data/x", "../x" },
		/* out */
		{ ROOT, "", "..", NULL },
		{ ROOT, "", "../", NULL },
		{ ROOT, "", "./..", NULL },
		{ ROOT, "", "../x", NULL },
		{ ROOT, "", "../user-data2/x", NULL },
		{ ROOT, "", "a/../..", NULL },
		{ ROOT, "a", "../../etc/passwd", NULL },
		{ ROOT, "a/b", "../../..", NULL },
		{ ROOT, "a/b", "../.././../mnt/x", NULL },
		{ ROOT, "a", "../../../../../../../etc/passwd", NULL },
	};

	check(rows, ARRAY_SIZE(rows));
}

/* Nobody is led to a control file: not even by way of another link. */
static void control_files(void **state)
{
	static const struct row rows[] = {
		{ ROOT, "", ".ctl", NULL },
		{ ROOT, "", "./.ctl/exec", NULL },
		{ ROOT, "outputs", "../.ctl/destroy", NULL },
		{ ROOT, "outputs", ROOT "/.ctl/events", NULL },
		{ ROOT, "outputs", "link-to-the-root/.ctl/events", NULL },
		{ ROOT, "outputs", "x/../../.ctl//exec/", NULL },
		{ "/", "", "/.ctl", NULL },
		{ ROOT, "", ".ctl/../x", "x" },
		{ ROOT, "", ".ctl2/ctl/..ctl", ".ctl2/ctl/..ctl" },
		{ ROOT, "workspace/.ctl", "../x", "../x" },
	};

	check(rows, ARRAY_SIZE(rows));
}

/* The view is all of the sandbox: nothing is outside, but the host is. */
static void root_is_slash(void **state)
{
	static const struct row rows[] = {
		{ "/", "", "/", "." },
		{ "/", "", "/etc/passwd", "etc/passwd" },
		{ "/", "home/u", "/etc/passwd", "../../etc/passwd" },
		{ "/", "home/u", "/", "../.." },
		{ "/", "home/u", "/home/u/x", "x" },
		/* as in the sandbox, ".." of its root is its root */
		{ "/", "", "..", "." },
		{ "/", "", "../../x", "x" },
		{ "/", "a", "../../../etc/passwd", "../etc/passwd" },
		{ "/", "a", "/../x", "../x" },
	};

	check(rows, ARRAY_SIZE(rows));
}

/* A text of len bytes made of a pattern, for the caller to free. */
static char *repeat(const char *pattern, size_t len)
{
	char *text = malloc(len + 1);
	size_t n = strlen(pattern);

	assert_non_null(text);
	for (size_t i = 0; i < len; i++)
		text[i] = pattern[i % n];
	text[len] = '\0';
	return text;
}

static void lengths(void **state)
{
	static const char *const patterns[] = { "a", "a/", "/a", "./", "/mnt/user-data/../.." };
	char *untouched = (char *)(uintptr_t) "untouched", *result = untouched, *text;

	assert_int_equal(symlink_contain(ROOT, "", "", &result), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		text = repeat(patterns[i], LONGEST + 1);
		assert_int_equal(symlink_contain("/", "", text, &result), -EINVAL);
		assert_ptr_equal(result, untouched);
		text[LONGEST] = '\0';
		assert_int_equal(symlink_contain("/", "", text, &result), 0);
		assert_in_range(strlen(result), 1, LONGEST);
		free(result);
		free(text);
		result = untouched;
	}
	text = repeat("../", LONGEST);
	assert_int_equal(symlink_contain(ROOT, "a/b/c", text, &result), -EPERM);
	assert_int_equal(symlink_contain("/", "a/b/c", text, &result), 0);
	assert_string_equal(result, "../../..");
	free(result);
	free(text);
}

/* From deep down the way is longer than the target was; too long is said, not cut. */
static void deep_directories(void **state)
{
	char *dir = repeat("d/", 2729), *result = NULL, *absolute; /* 1365 deep */

	assert_int_equal(symlink_contain(ROOT, dir, ROOT, &result), 0);
	assert_int_equal(strlen(result), 1365 * 3 - 1);
	free(STEAL(result));
	assert_int_equal(symlink_contain(ROOT, dir, ROOT "/x", &result), -EINVAL);
	assert_null(result);
	free(dir);

	dir = repeat("d/", LONGEST);
	assert_int_equal(symlink_contain("/", dir, "/", &result), -EINVAL);
	assert_int_equal(symlink_contain("/", dir, "../x/..", &result), 0);
	assert_string_equal(result, "..");
	free(STEAL(result));
	absolute = repeat("/d", LONGEST - 1);
	assert_int_equal(symlink_contain("/", dir, absolute, &result), 0);
	assert_string_equal(result, "..");
	free(result);
	free(absolute);
	free(dir);
}

/* ---- of anything ---- */

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33) % below;
}

static void random_path(uint64_t *seed, unsigned pieces, char *to)
{
	static const char *const piece[] = { "/",    "/",          "/",   "..",        "..",
					     "../",  "/..",        ".",   "./",        "a",
					     "b",    "c",          "mnt", "user-data", "...",
					     "/mnt", "user-data2", ROOT,  "..a" };

	*to = '\0';
	for (unsigned i = 0; i < pieces; i++)
		strcat(to, piece[draw(seed, ARRAY_SIZE(piece))]);
}

/* How often it climbs before the first name; -1 if it is absolute, empty, or climbs after one. */
static int climbs(const char *path)
{
	bool named = false;
	int up = 0;

	if (path[0] == '/' || path[0] == '\0')
		return -1;
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && strncmp(path, "..", 2) == 0) {
			if (named)
				return -1;
			up++;
		} else if (len > 0 && !(len == 1 && path[0] == '.')) {
			named = true;
		}
		path += len;
		path += *path == '/';
	}
	return up;
}

/* An absolute path made normal, as a sandbox without links would take it. */
static void normalize(const char *path, char *to)
{
	char *end = to;

	while (*path) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 2 && strncmp(path, "..", 2) == 0) {
			while (end > to && *--end != '/')
				;
		} else if (len > 0 && !(len == 1 && path[0] == '.')) {
			*end++ = '/';
			end = (char *)mempcpy(end, path, len);
		}
		path += len;
	}
	*end = '\0';
}

/* Where a target leads from a directory of the view. */
static void resolve(const char *root, const char *dir, const char *target, char *to)
{
	char path[2048];

	if (target[0] == '/')
		snprintf(path, sizeof(path), "%s", target);
	else
		snprintf(path, sizeof(path), "%s/%s/%s", root, dir, target);
	normalize(path, to);
}

static void whatever_it_is_it_stays_inside(void **state)
{
	static const char *const dirs[] = { "", "a", "a/b", "a/b/c", "mnt/user-data" };
	static const char *const roots[] = { ROOT, "/", "/a" };
	uint64_t seed = 20;
	unsigned inside = 0, outside = 0;

	for (unsigned i = 0; i < 200000; i++) {
		const char *root = roots[draw(&seed, ARRAY_SIZE(roots))];
		unsigned d = draw(&seed, ARRAY_SIZE(dirs));
		int depth = d < 4 ? (int)d : 2, up, r;
		char target[1024], want[2048], have[2048];
		size_t root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
		char *result = NULL;

		random_path(&seed, 1 + draw(&seed, 9), target);
		r = symlink_contain(root, dirs[d], target, &result);
		resolve(root, dirs[d], target, want);
		if (r == -EPERM) {
			outside++;
			assert_null(result);
			if (strncmp(want, root, root_len) == 0 &&
			    (want[root_len] == '/' || want[root_len] == '\0'))
				fail_msg("%s/%s: %s is inside", root, dirs[d], target);
			continue;
		}
		assert_int_equal(r, 0);
		inside++;
		up = climbs(result);
		if (up < 0 || up > depth)
			fail_msg("%s/%s: %s became %s", root, dirs[d], target, result);
		resolve(root, dirs[d], result, have);
		if (strcmp(have, want) != 0)
			fail_msg("%s/%s: %s became %s: %s, not %s", root, dirs[d], target, result,
				 have, want);
		free(result);
	}
	assert_true(inside > 10000 && outside > 10000);
}

/* ---- stored ---- */

static void exported(void **state)
{
#define HOST "/home/u/agents/threads/t"
	static const struct {
		const char *root, *mount_thread, *target, *result;
	} rows[] = {
		{ ROOT, HOST, HOST "/outputs/x", ROOT "/outputs/x" },
		{ ROOT, HOST, HOST, ROOT },
		{ ROOT, HOST, HOST "/", ROOT "/" },
		{ ROOT, HOST, HOST "//a/../b/", ROOT "//a/../b/" },
		{ ROOT, HOST, "/home//u/./agents/threads/t/x", ROOT "/x" },
		{ ROOT, HOST "/", HOST "/x", ROOT "/x" },
		{ "/", HOST, HOST "/etc/x", "/etc/x" },
		{ "/", HOST, HOST, "/" },
		{ "/", HOST, HOST "/", "/" },
		/* everything else */
		{ ROOT, HOST, HOST "2/x", HOST "2/x" },
		{ ROOT, HOST, HOST "/../other", HOST "/../other" },
		{ ROOT, HOST, HOST "/a/../../other", HOST "/a/../../other" },
		{ ROOT, HOST, "/home/u", "/home/u" },
		{ ROOT, HOST, "/etc/passwd", "/etc/passwd" },
		{ ROOT, HOST, "x/../y", "x/../y" },
		{ ROOT, HOST, "../..", "../.." },
		{ ROOT, HOST, "home/u/agents/threads/t/x", "home/u/agents/threads/t/x" },
		{ ROOT, HOST, "", "" },
		{ ROOT, NULL, HOST "/x", HOST "/x" },
	};
	char *longest, *result = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(
			symlink_export(rows[i].root, rows[i].mount_thread, rows[i].target, &result),
			0);
		assert_string_equal(result, rows[i].result);
		free(STEAL(result));
	}
	longest = repeat("/h", LONGEST);
	assert_int_equal(symlink_export(ROOT, "/h", longest, &result), -ENAMETOOLONG);
	assert_null(result);
	assert_int_equal(symlink_export("/", "/h", longest, &result), 0);
	free(result);
	free(longest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(absolute_targets),
		cmocka_unit_test(absolute_targets_outside),
		cmocka_unit_test(relative_targets),
		cmocka_unit_test(control_files),
		cmocka_unit_test(root_is_slash),
		cmocka_unit_test(lengths),
		cmocka_unit_test(deep_directories),
		cmocka_unit_test(whatever_it_is_it_stays_inside),
		cmocka_unit_test(exported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

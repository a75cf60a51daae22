/* Shell patterns: names, paths, braces, and that no pattern takes for ever. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "glob_match.h"

struct row {
	const char *pattern, *text;
	bool match;
};

static void test_names(void **state UNUSED)
{
	static const struct row rows[] = {
		{ "", "", true },
		{ "", "a", false },
		{ "*", "", true },
		{ "*", ".hidden", true },
		{ "a*c", "abc", true },
		{ "a*c", "ac", true },
		{ "a*c", "acb", false },
		{ "*.py", "a.py", true },
		{ "*.py", "a.pyc", false },
		{ "*a*b*", "xxaxxbxx", true },
		{ "?", "a", true },
		{ "?", "", false },
		{ "?", "\xc3\xa9", true },
		{ "??", "\xc3\xa9", false },
		{ "?", "\xff", true },
		{ "[a-c]x", "bx", true },
		{ "[a-c]x", "dx", false },
		{ "[!a-c]x", "dx", true },
		{ "[^a]", "b", true },
		{ "[]]", "]", true },
		{ "[]-]", "-", true },
		{ "[a-]", "-", true },
		{ "[", "[", true },
		{ "[a", "[a", true },
		{ "a[1]", "a1", true },
		{ "a[1]", "a[1]", false },
		{ "[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true },
		{ "\\*", "\\a", true },
		{ "\\*", "*", false },
		{ "A", "a", false },
		{ "**", "abc", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (glob_match_name(rows[i].pattern, strlen(rows[i].pattern), rows[i].text,
				    strlen(rows[i].text)) != rows[i].match)
			fail_msg("%s on %s", rows[i].pattern, rows[i].text);
}

static void test_paths(void **state UNUSED)
{
	static const struct row rows[] = {
		{ "a/b", "a/b", true },
		{ "a/*", "a/b", true },
		{ "a/*", "a/b/c", false },
		{ "*/c", "a/b/c", false },
		{ "**/c", "c", true },
		{ "**/c", "a/b/c", true },
		{ "**", "a/b/c", true },
		{ "a/**", "a", true },
		{ "a/**", "a/b/c", true },
		{ "a/**", "b/a", false },
		{ "a/**/d", "a/d", true },
		{ "a/**/d", "a/b/c/d", true },
		{ "a/**/d", "a/b/c/d/e", false },
		{ "**/a/**/b", "x/a/y/a/z/b", true },
		{ "**/**", "a", true },
		{ "a/b", "a", false },
		{ "a", "a/b", false },
		{ "**/*.c", "src/x.c", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (glob_match_path(rows[i].pattern, rows[i].text) != rows[i].match)
			fail_msg("%s on %s", rows[i].pattern, rows[i].text);
}

static bool set_matches(const char *pattern, const char *path)
{
	struct glob_set set;
	bool match;

	assert_int_equal(glob_set_init(&set, &pattern, 1), 0);
	match = glob_set_match(&set, path);
	glob_set_release(&set);
	return match;
}

static void test_sets(void **state UNUSED)
{
	assert_true(set_matches("*.py", "a/b/x.py"));
	assert_true(set_matches("node_modules", "a/node_modules"));
	assert_false(set_matches("node_modules", "a/node_modules/x"));
	assert_true(set_matches("src/*.c", "src/x.c"));
	assert_true(set_matches("/src/*.c", "src/x.c"));
	assert_false(set_matches("src/*.c", "a/src/x.c"));
	assert_true(set_matches("*.{ts,tsx}", "x.tsx"));
	assert_false(set_matches("*.{ts,tsx}", "x.js"));
	assert_true(set_matches("*.{c,{h,hh}}", "x.hh"));
	assert_true(set_matches("{a,b}{1,2}", "b1"));
	assert_true(set_matches("x{,y}", "x"));
	assert_true(set_matches("{a", "{a"));
	assert_true(set_matches("a}", "a}"));
	assert_true(set_matches("{a/b,c}", "a/b"));
}

static void test_set_limits(void **state UNUSED)
{
	const char *many = "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}";
	struct glob_set set;
	char deep[65];
	const char *p = deep;

	assert_int_equal(glob_set_init(&set, &many, 1), -E2BIG);
	glob_set_release(&set);
	memset(deep, '{', 32);
	memset(deep + 32, '}', 32);
	deep[64] = '\0';
	assert_int_equal(glob_set_init(&set, &p, 1), -E2BIG);
	glob_set_release(&set);
	assert_int_equal(glob_set_init(&set, NULL, 0), 0);
	assert_false(glob_set_match(&set, "a"));
}

/* Exponential matchers would not come back from these. */
static void test_cost(void **state UNUSED)
{
	char pattern[512], text[4096], deep[4001];

	for (size_t i = 0; i + 2 < sizeof(pattern); i += 2)
		memcpy(pattern + i, "*a", 2);
	strcpy(pattern + sizeof(pattern) - 3, "b");
	memset(text, 'a', sizeof(text));
	assert_false(glob_match_name(pattern, strlen(pattern), text, sizeof(text)));
	for (size_t i = 0; i < 4000; i += 2)
		memcpy(deep + i, "a/", 2);
	deep[3999] = '\0';
	assert_false(glob_match_path("**/a/**/a/**/a/**/a/**/a/**/b", deep));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names), cmocka_unit_test(test_paths),
		cmocka_unit_test(test_sets),  cmocka_unit_test(test_set_limits),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

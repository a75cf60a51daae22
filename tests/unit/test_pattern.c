/* Regular expressions: what is accepted, what matches, what is stopped. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "filetype.h"
#include "pattern.h"

static int search(const char *regex, unsigned flags, const char *text, size_t *from, size_t *to)
{
	struct pattern *p CLEANUP_PATTERN = NULL;
	char why[200];

	assert_int_equal(pattern_new(regex, flags, &p, why, sizeof(why)), 0);
	return pattern_search(p, text, strlen(text), 0, from, to);
}

static void expect(const char *regex, unsigned flags, const char *text, int want)
{
	size_t from, to;

	if (search(regex, flags, text, &from, &to) != want)
		fail_msg("%s on %s", regex, text);
}

static void test_matches(void **state UNUSED)
{
	size_t from, to;

	expect("b+", 0, "abbbc", 1);
	expect("^b", 0, "a\nb", 0);
	expect("^b", PATTERN_MULTILINE, "a\nb", 1);
	expect("a.b", 0, "a\nb", 0);
	expect("a.b", PATTERN_MULTILINE, "a\nb", 1);
	expect("ABC", 0, "abc", 0);
	expect("ABC", PATTERN_CASELESS, "abc", 1);
	expect("\xc3\x89", PATTERN_CASELESS, "\xc3\xa9", 1);
	expect("a.c", PATTERN_LITERAL, "abc", 0);
	expect("a.c", PATTERN_LITERAL | PATTERN_CASELESS | PATTERN_MULTILINE, "xA.C", 1);
	expect("^.$", 0, "\xc3\xa9", 1);
	expect("(?P<q>['\"]).*?(?P=q)", 0, "say 'x'", 1);
	expect("\\d", 0, "\xd9\xa3", 1); /* as in Python */
	expect("b", 0,
	       "\xff\xfe"
	       "b",
	       1);
	expect(".", 0, "\xff", 0);
	assert_int_equal(search("b+", 0, "abbbc", &from, &to), 1);
	assert_int_equal(from, 1);
	assert_int_equal(to, 4);
}

static void test_refused(void **state UNUSED)
{
	static const char *const bad[] = {
		"(", "[", "*a", "a{2,1}", "(?P<n>a)(?P<n>b)", "\\C", "(((a{900}){900}){900})"
	};
	struct pattern *p = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char why[200] = "";

		if (pattern_new(bad[i], 0, &p, why, sizeof(why)) != -EINVAL)
			fail_msg("%s was accepted", bad[i]);
		assert_true(why[0]);
		assert_null(p);
	}
	pattern_free(NULL);
}

static void test_runaway(void **state UNUSED)
{
	expect("(a|aa)+$", 0, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", -E2BIG);
	expect("(x+x+)+y", 0, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.y", -E2BIG);
}

static void test_filetypes(void **state UNUSED)
{
	assert_string_equal(filetype_globs("rust")[0], "*.rs");
	assert_null(filetype_globs("rust")[1]);
	assert_null(filetype_globs("nonsense"));
	assert_null(filetype_globs(""));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matches),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_runaway),
		cmocka_unit_test(test_filetypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

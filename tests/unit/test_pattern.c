/* Regular expressions: what is accepted, what matches, what is stopped. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
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

/* Every start costs the rest of the line, in few steps as PCRE2 counts them. */
#define QUADRATIC "[a-z0-9]+[.][a-z]{2,}|[A-Z]{3}\\d"

static struct pattern *new_pattern(const char *regex, unsigned flags)
{
	struct pattern *p = NULL;
	char why[200];

	assert_int_equal(pattern_new(regex, flags, &p, why, sizeof(why)), 0);
	return p;
}

static char *new_line(size_t len)
{
	char *s = malloc(len);

	assert_non_null(s);
	memset(s, 'a', len);
	return s;
}

static bool is_late(void *ctx)
{
	const int64_t *end = ctx;

	return clock_ms() >= *end;
}

static void test_stopped(void **state UNUSED)
{
	static const char *const slow[] = {
		QUADRATIC, "(?:a(?!a*+b))*c", /* many scans from one start */
		"(a+)(?:.(?!\\1))*+c",        /* backreferences */
		"(?:(?=a{60000}b)|a)*+c",     /* scans that fail */
	};
	size_t from, to, len = 64 * MIB;
	char *line CLEANUP_FREE = new_line(len);

	for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
		struct pattern *p CLEANUP_PATTERN = new_pattern(slow[i], 0);
		int64_t end = clock_ms() + 50;

		pattern_limit(p, PATTERN_MS, is_late, &end);
		if (pattern_search(p, line, len, 0, &from, &to) != -ECANCELED)
			fail_msg("%s was not stopped", slow[i]);
		if (clock_ms() > end + 60000) /* far more than even valgrind takes */
			fail_msg("%s was stopped late", slow[i]);
	}
}

static void test_time(void **state UNUSED)
{
	struct pattern *p CLEANUP_PATTERN = new_pattern(QUADRATIC, 0);
	size_t from, to, len = 900 * KIB;
	char *line CLEANUP_FREE = new_line(len);

	/* One line too many … */
	assert_int_equal(pattern_search(p, line, len, 0, &from, &to), -E2BIG);
	/* … does not spoil the next one. */
	assert_int_equal(pattern_search(p, "go to example.org", 17, 0, &from, &to), 1);
	assert_int_equal(from, 6);
	pattern_limit(p, 100, NULL, NULL);
	assert_int_equal(pattern_search(p, line, len, 0, &from, &to), -ETIME);
	assert_int_equal(pattern_search(p, line, len, 0, &from, &to), -ETIME);
}

static void test_long_text(void **state UNUSED)
{
	struct pattern *word CLEANUP_PATTERN = new_pattern("b[c]", 0);
	struct pattern *x CLEANUP_PATTERN = new_pattern("a", PATTERN_MULTILINE);
	struct pattern *classes CLEANUP_PATTERN = NULL;
	size_t from, to, at, len = 64 * MIB;
	char *line CLEANUP_FREE = new_line(len);
	char many[2048] = "[";

	memcpy(line + len - 2, "bc", 2);
	assert_int_equal(pattern_search(word, line, len, 0, &from, &to), 1);
	assert_int_equal(from, len - 2);

	/* A search costs what it goes over, not what there is. */
	for (at = 0; at < 100000; at = to)
		assert_int_equal(pattern_search(x, line, len, at, &from, &to), 1);

	for (size_t i = 1; i + 3 < sizeof(many); i += 2)
		memcpy(many + i, "\xc3\xa9", 3);
	many[strlen(many)] = ']';
	classes = new_pattern(many, 0);
	assert_int_equal(pattern_search(classes, line, len, 0, &from, &to), -E2BIG);
	assert_int_equal(pattern_search(classes, line, MIB, 0, &from, &to), 0);
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
		cmocka_unit_test(test_matches),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_runaway),   cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_time),      cmocka_unit_test(test_long_text),
		cmocka_unit_test(test_filetypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

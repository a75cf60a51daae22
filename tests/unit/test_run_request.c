/* fs/run_request.c: what a program may ask to be run, and what signals are called. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run_bash.h"
#include "run_request.h"

static int parse(const char *text, struct run_request *ret)
{
	char copy[4096];

	assert_true(strlen(text) < sizeof(copy));
	strcpy(copy, text);
	return run_request_parse(copy, strlen(copy), ret);
}

static void test_whole(void **state UNUSED)
{
	struct run_request r CLEANUP_RUN_REQUEST = { 0 };

	assert_int_equal(parse("{\"argv\":[\"make\",\"a b\"],\"dir\":\"/outputs//x/./\","
			       "\"env\":{\"A\":\"1\",\"_b2\":\"\"},\"stdin\":true}",
			       &r),
			 0);
	assert_string_equal(r.dir, "outputs/x");
	assert_string_equal(r.env[0], "A");
	assert_string_equal(r.env[1], "1");
	assert_string_equal(r.env[2], "_b2");
	assert_string_equal(r.env[3], "");
	assert_null(r.env[4]);
	assert_true(r.fed);
	assert_non_null(strstr(r.script.data, "make"));
}

static void test_defaults(void **state UNUSED)
{
	struct run_request r CLEANUP_RUN_REQUEST = { 0 };

	assert_int_equal(parse("{\"script\":\"cd x &&\\nls\"}", &r), 0);
	assert_string_equal(r.script.data, "cd x &&\nls");
	assert_int_equal(r.script.len, strlen("cd x &&\nls"));
	assert_string_equal(r.dir, "");
	assert_null(r.env[0]);
	assert_false(r.fed);
}

static void test_refuses(void **state UNUSED)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"make",
		"{\"argv\":[]}",
		"{\"argv\":\"make\"}",
		"{\"argv\":[1]}",
		"{\"argv\":[\"a\\u0000b\"]}",
		"{\"argv\":[\"a\"],\"script\":\"a\"}",
		"{\"script\":\"\"}",
		"{\"script\":\"a\\u0000b\"}",
		"{\"script\":\"a\",\"dir\":\"..\"}",
		"{\"script\":\"a\",\"dir\":\"a/../b\"}",
		"{\"script\":\"a\",\"dir\":\"/..\"}",
		"{\"script\":\"a\",\"dir\":\"a\\u0000\"}",
		"{\"script\":\"a\",\"dir\":7}",
		"{\"script\":\"a\",\"env\":[]}",
		"{\"script\":\"a\",\"env\":{\"1A\":\"x\"}}",
		"{\"script\":\"a\",\"env\":{\"A B\":\"x\"}}",
		"{\"script\":\"a\",\"env\":{\"\":\"x\"}}",
		"{\"script\":\"a\",\"env\":{\"A\":1}}",
		"{\"script\":\"a\",\"env\":{\"A\":\"x\\u0000\"}}",
		"{\"script\":\"a\",\"stdin\":1}",
		"{\"script\":\"a\",\"cwd\":\"x\"}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct run_request r = { 0 };

		assert_int_equal(parse(bad[i], &r), -EINVAL);
		assert_null(r.dir);
		assert_null(r.script.data);
	}
}

static void test_dots_in_names_are_names(void **state UNUSED)
{
	struct run_request r CLEANUP_RUN_REQUEST = { 0 };

	assert_int_equal(parse("{\"script\":\"a\",\"dir\":\"..a/.b/c..\"}", &r), 0);
	assert_string_equal(r.dir, "..a/.b/c..");
}

/* What bash makes of it is what was meant. */
static void test_argv_survives_bash(void **state UNUSED)
{
	static const char *const argv[] = { "printf", "<%s>", "a b",      "",     "$HOME", "`id`",
					    "'",      "\"",   "\\",       "*",    "a\nb",  "!x",
					    "-n",     "\xff", "\xc3\xa9", "#;&|", NULL };
	struct buf script CLEANUP_BUF = BUF_INIT(0), out CLEANUP_BUF = BUF_INIT(0);
	struct buf wanted CLEANUP_BUF = BUF_INIT(0);

	for (size_t i = 2; argv[i]; i++)
		buf_printf(&wanted, "<%s>", argv[i]);
	assert_int_equal(run_script(&script, argv), 0);
	assert_int_equal(run_bash("", &script, "", &out), 0);
	assert_int_equal(out.len, wanted.len);
	assert_memory_equal(out.data, wanted.data, wanted.len);
}

static void test_no_argv(void **state UNUSED)
{
	struct buf script CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(run_script(&script, (const char *const[]){ NULL }), -EINVAL);
}

static void test_signals(void **state UNUSED)
{
	static const struct {
		const char *text;
		int signal;
	} t[] = {
		{ "", SIGTERM },
		{ "\n", SIGTERM },
		{ "x\n", SIGTERM },
		{ "INT\n", SIGINT },
		{ "SIGINT", SIGINT },
		{ "int", SIGINT },
		{ " sigkill ", SIGKILL },
		{ "KILL", SIGKILL },
		{ "HUP", SIGHUP },
		{ "TERM", SIGTERM },
		{ "9\n", SIGKILL },
		{ "15", SIGTERM },
		{ "1\n", SIGHUP },
		{ "2", SIGINT },
		{ "USR1", -EINVAL },
		{ "SIGSTOP", -EINVAL },
		{ "SIGNONSENSE", -EINVAL },
		{ "0", -EINVAL },
		{ "19", -EINVAL },
		{ "999999999999", -EINVAL },
		{ "please end this now, would you", SIGTERM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(run_signal(t[i].text, strlen(t[i].text)), t[i].signal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_dots_in_names_are_names),
		cmocka_unit_test(test_argv_survives_bash),
		cmocka_unit_test(test_no_argv),
		cmocka_unit_test(test_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

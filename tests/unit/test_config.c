/*
 * fs/config.c: what is taken from a config file, where the file is wrong, and
 * that no file, however hostile, costs more than its bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "io.h"
#include "options.h"

static struct options o;
static struct buf why;
static char dir[SCRATCH_MAX], path[SCRATCH_MAX + 16];

static int setup(void **state UNUSED)
{
	why = BUF_INIT(0);
	if (!scratch_dir(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/config.yaml", dir);
	return options_init(&o);
}

static int teardown(void **state UNUSED)
{
	options_release(&o);
	buf_release(&why);
	return scratch_remove(dir) ? 0 : -1;
}

static int load_bytes(const char *text, size_t len)
{
	int fd CLEANUP_FD = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, len), 0);
	buf_reset(&why);
	return options_config_file(&o, path, &why);
}

static void load(const char *text)
{
	if (load_bytes(text, strlen(text)) != 0)
		fail_msg("%s", why.data);
	assert_int_equal(why.len, 0);
}

/* Refused, at this line and with these words. */
static void refused(const char *text, unsigned line, const char *words)
{
	char expected[512];

	snprintf(expected, sizeof(expected), "%s:%u: %s", path, line, words);
	assert_int_equal(load_bytes(text, strlen(text)), -EINVAL);
	assert_string_equal(why.data, expected);
}

/* ---- what is taken ---- */

static void test_sections(void **state UNUSED)
{
	load("# deer-flow's file\n"
	     "models:\n"
	     "  - name: some\n"
	     "    api_key: $NOT_SET_ANYWHERE\n"
	     "    linger: 99\n"
	     "sandbox:\n"
	     "  use: deerflow.community.aio_sandbox:AioSandboxProvider\n"
	     "  image: some/image:1\n"
	     "  port: 8080\n"
	     "  container_prefix: deer-flow-sandbox\n"
	     "  provisioner_url: http://host:8002\n"
	     "  provisioner_api_key: $NOT_SET_ANYWHERE\n"
	     "  idle_timeout: 120\n"
	     "  replicas: 5\n"
	     "  auto_restart: false\n"
	     "  linger: ignored, being ours\n"
	     "  mounts:\n"
	     "    - host_path: /a\n"
	     "      container_path: /b\n"
	     "  environment:\n"
	     "    replicas: 77\n"
	     "  ownership: {type: redis, idle_timeout: 9}\n"
	     "threadfs:\n"
	     "  linger: 1.5\n"
	     "  ro: True\n"
	     "  user: 'ann'\n"
	     "  umask: 027\n"
	     "  data: \"/with, comma\"\n"
	     "tools:\n"
	     "  threadfs: {linger: x}\n"
	     "  sandbox: [1, 2]\n");
	assert_int_equal(o.idle_timeout_ms, 120000);
	assert_int_equal(o.replicas, 5);
	assert_false(o.auto_restart);
	assert_int_equal(o.linger_ms, 1500);
	assert_true(o.ro);
	assert_string_equal(o.user, "ann");
	assert_int_equal(o.umask, 027);
	assert_string_equal(o.data, "/with, comma");
}

static void test_our_section_wins_wherever_it_stands(void **state UNUSED)
{
	load("threadfs: {idle_timeout: 1, replicas: 1}\n"
	     "sandbox: {idle_timeout: 2}\n");
	assert_int_equal(o.idle_timeout_ms, 1000);
	load("sandbox: {idle_timeout: 2}\n"
	     "threadfs: {replicas: 1}\n");
	assert_int_equal(o.idle_timeout_ms, 2000);
	assert_int_equal(o.replicas, 1);
}

static void test_empty_files(void **state UNUSED)
{
	load("");
	load("# nothing\n");
	load("---\n...\n");
	load("~\n");
	load("{}\n");
	load("threadfs:\nsandbox:\n");
	load("threadfs: null\nsandbox: ~\n");
	load("threadfs: {}\n");
	load("models: [a, b]\n");
	load("\xef\xbb\xbfthreadfs: {linger: 4}\n"); /* a byte order mark */
	assert_int_equal(o.linger_ms, 4000);
}

static void test_null_is_the_default(void **state UNUSED)
{
	load("threadfs:\n  linger:\n  user: ~\n  ro: null\nsandbox:\n  replicas:\n");
	assert_int_equal(o.linger_ms, 30000);
	assert_string_equal(o.user, "default");
	assert_int_equal(o.replicas, 3);
	refused("threadfs:\n  linger: ''\n", 2, "linger: a value is missing, as in linger=SECONDS");
	refused("threadfs:\n  user: '~'\n", 2,
		"user: '~': expected up to 200 letters, digits, '-' and '_'");
}

static void test_references_to_the_environment(void **state UNUSED)
{
	setenv("TFS_TEST_REPLICAS", "9", 1);
	setenv("TFS_TEST_USER", "bob", 1);
	unsetenv("TFS_TEST_NONE");
	load("sandbox:\n  replicas: $TFS_TEST_REPLICAS\nthreadfs:\n  user: \"$TFS_TEST_USER\"\n");
	assert_int_equal(o.replicas, 9);
	assert_string_equal(o.user, "bob");
	refused("threadfs:\n\n  user: $TFS_TEST_NONE\n", 3,
		"user: the environment variable 'TFS_TEST_NONE' is not set");
	unsetenv("TFS_TEST_REPLICAS");
	unsetenv("TFS_TEST_USER");
}

static void test_precedence(void **state UNUSED)
{
	setenv("THREADFS_REPLICAS", "20", 1);
	setenv("THREADFS_TIMEOUT", "20", 1);
	load("threadfs: {linger: 10, replicas: 10, timeout: 10}\n");
	assert_int_equal(options_environment(&o, &why), 0);
	assert_int_equal(options_parse(&o, "timeout=40", &why), 0);
	unsetenv("THREADFS_REPLICAS");
	unsetenv("THREADFS_TIMEOUT");
	assert_int_equal(o.start_timeout_ms, 60000); /* the default */
	assert_int_equal(o.linger_ms, 10000);        /* the file */
	assert_int_equal(o.replicas, 20);            /* the environment */
	assert_int_equal(o.timeout_ms, 40000);       /* -o */
}

/* ---- what is refused ---- */

static void test_bad_values(void **state UNUSED)
{
	refused("threadfs:\n  ro: true\n  linger: soon\n", 3,
		"linger: 'soon': expected seconds, such as 30 or 0.5");
	refused("sandbox:\n  replicas: many\n", 2,
		"replicas: 'many': expected a number from 0 to 100000");
	refused("threadfs:\n  ligner: 3\n", 2, "unknown key 'ligner': did you mean 'linger'?");
	refused("threadfs:\n  models: x\n", 2, "unknown key 'models'");
	refused("threadfs:\n  linger: [1]\n", 2, "linger: expected one plain value");
	refused("threadfs:\n  linger: {a: 1}\n", 2, "linger: expected one plain value");
	refused("sandbox:\n  replicas:\n    - 1\n", 3, "replicas: expected one plain value");
	refused("threadfs: 3\n", 1, "threadfs: expected a section with keys");
	refused("threadfs: [linger]\n", 1, "threadfs: expected a section with keys");
	refused("sandbox: yes\n", 1, "sandbox: expected a section with keys");
	refused("- threadfs\n", 1, "expected sections with keys");
	refused("just words\n", 1, "expected sections with keys");
	refused("threadfs:\n  [a, b]: c\n", 2, "expected a key");
	refused("? [a, b]\n: c\n", 1, "expected the name of a section");
	refused("threadfs: {linger: 1}\n---\nthreadfs: {linger: 2}\n", 2,
		"a second document begins here");
	refused("threadfs:\n  user: \"a\\0b\"\n", 2, "a NUL stands here");
	refused("threadfs:\n  \"ro\\0x\": 1\n", 2, "a NUL stands here");
}

static void test_no_secrets(void **state UNUSED)
{
	assert_int_equal(load_bytes("threadfs:\n  api_key: hush\n", 26), -EINVAL);
	assert_non_null(strstr(why.data, ":2: a secret in a config file can be read by others"));
	assert_null(strstr(why.data, "hush"));
}

static void test_malformed(void **state UNUSED)
{
	static const struct {
		const char *text;
		unsigned line;
	} rows[] = {
		{ "threadfs:\n  linger: 1\n bad: 2\n", 3 },
		{ "threadfs:\n\tlinger: 1\n", 2 },
		{ "a: b\nthreadfs: {linger: 1\n", 3 },
		{ "a: 'open\n", 2 },
		{ "a: b: c\n", 1 },
		{ "a: \"\\q\"\n", 1 },
		{ "a: 1\n%%\n", 2 },
		{ "a: 1\n]\n", 2 },
		{ "a:\n  - b\n c\n", 3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char begin[SCRATCH_MAX + 32];

		snprintf(begin, sizeof(begin), "%s:%u: ", path, rows[i].line);
		assert_int_equal(load_bytes(rows[i].text, strlen(rows[i].text)), -EINVAL);
		if (strstr(why.data, begin) != why.data)
			fail_msg("%zu: %s, not in line %u", i, why.data, rows[i].line);
		assert_null(strchr(why.data, '\n'));
	}
}

static void test_bytes_that_are_no_text(void **state UNUSED)
{
	assert_int_equal(load_bytes("a: \xff\xfe\n", 6), -EINVAL);
	assert_int_equal(load_bytes("a: \0\n", 5), -EINVAL);
	assert_int_equal(load_bytes("\0\0\0\0", 4), -EINVAL);
	assert_int_equal(load_bytes("threadfs:\n  user: \033[2J\n", 23), -EINVAL);
	assert_null(strchr(why.data, '\033'));
}

static void test_files_that_cannot_be_read(void **state UNUSED)
{
	char expected[256];

	assert_int_equal(options_config_file(&o, path, &why), -ENOENT);
	snprintf(expected, sizeof(expected),
		 "config file '%s' cannot be read: No such file or directory", path);
	assert_string_equal(why.data, expected);
	buf_reset(&why);
	assert_int_equal(options_config_file(&o, dir, &why), -EISDIR);
}

/* ---- hostile ones ---- */

static int load_repeated(const char *head, const char *piece, size_t count, const char *tail)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&text, head);
	for (size_t i = 0; i < count; i++)
		buf_puts(&text, piece);
	buf_puts(&text, tail);
	assert_int_equal(text.error, 0);
	return load_bytes(text.data, text.len);
}

static void test_deep(void **state UNUSED)
{
	assert_int_equal(load_repeated("a: ", "[", 90, ""), -EINVAL); /* it never ends */
	assert_null(strstr(why.data, "nested too deep"));
	assert_int_equal(load_repeated("a: ", "[", 500000, ""), -EINVAL);
	assert_non_null(strstr(why.data, "nested too deep"));
	assert_int_equal(load_repeated("a: ", "{a: ", 200000, ""), -EINVAL);
	assert_non_null(strstr(why.data, "nested too deep"));
	assert_int_equal(load_repeated("a:\n ", "- ", 300000, "x\n"), -EINVAL);
	assert_non_null(strstr(why.data, "nested too deep"));
	assert_int_equal(load_repeated("sandbox: {x: ", "[", 500000, ""), -EINVAL);
	assert_non_null(strstr(why.data, "nested too deep"));
}

static void test_large(void **state UNUSED)
{
	char expected[256];

	assert_int_equal(load_repeated("", "# a comment ...\n", 65536, ""), 0); /* 1 MiB */
	assert_int_equal(load_repeated("", "# a comment ...\n", 65536, "#"), -EFBIG);
	snprintf(expected, sizeof(expected), "config file '%s' is larger than 1 MiB", path);
	assert_string_equal(why.data, expected);
	assert_int_equal(load_repeated("threadfs: {user: ", "x", 1000000, "}\n"), -EINVAL);
	assert_true(why.len < 400);
	assert_int_equal(load_repeated("threadfs: {", "x", 1000, ": 1}\n"), -EINVAL);
	assert_true(why.len < 400);
	assert_int_equal(load_repeated("a:\n", "- b\n", 200000, "threadfs: {linger: 6}\n"), 0);
	assert_int_equal(o.linger_ms, 6000);
}

/* A billion laughs: nobody follows them, and in our sections there are none. */
static void test_aliases(void **state UNUSED)
{
	load("a: &a [x, x, x, x]\n"
	     "b: &b [*a, *a, *a, *a, *a, *a, *a, *a]\n"
	     "c: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
	     "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\n"
	     "e: &e [*d, *d, *d, *d, *d, *d, *d, *d]\n"
	     "f: *e\n"
	     "g: {*a : b}\n"
	     "threadfs: {linger: 3}\n");
	assert_int_equal(o.linger_ms, 3000);
	refused("x: &x {linger: 1}\nthreadfs: *x\n", 2, "threadfs: aliases are not supported here");
	refused("x: &x 1\nthreadfs:\n  linger: *x\n", 3,
		"threadfs: aliases are not supported here");
	refused("x: &x {replicas: 1}\nsandbox:\n  <<: *x\n", 3,
		"sandbox: aliases are not supported here");
	refused("x: &x threadfs\n*x : {linger: 1}\n", 2, "expected the name of a section");
	load("threadfs: &t\n  linger: &l 5\n"); /* an anchor alone does nothing */
	assert_int_equal(o.linger_ms, 5000);
}

/* Every piece of a good file, and every good file with one byte changed, is survived. */
static void test_damaged(void **state UNUSED)
{
	static const char good[] = "a: &x [1, {b: c}]\n"
				   "sandbox:\n  replicas: 4\n  mounts: [{a: *x}]\n"
				   "threadfs:\n  linger: \"2\"\n  ro: true\n";
	static const char bytes[] = "\n\t :-[]{}&*!|>'\"%@`#,?\\x\xff";
	char text[sizeof(good)];

	for (size_t len = 0; len < sizeof(good); len++)
		(void)!load_bytes(good, len);
	for (size_t at = 0; at + 1 < sizeof(good); at++) {
		for (size_t i = 0; i < sizeof(bytes); i++) {
			memcpy(text, good, sizeof(good));
			text[at] = bytes[i];
			(void)!load_bytes(text, sizeof(good) - 1);
			assert_true(why.len == 0 || !strchr(why.data, '\n'));
		}
	}
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_sections),
		TEST(test_our_section_wins_wherever_it_stands),
		TEST(test_empty_files),
		TEST(test_null_is_the_default),
		TEST(test_references_to_the_environment),
		TEST(test_precedence),
		TEST(test_bad_values),
		TEST(test_no_secrets),
		TEST(test_malformed),
		TEST(test_bytes_that_are_no_text),
		TEST(test_files_that_cannot_be_read),
		TEST(test_deep),
		TEST(test_large),
		TEST(test_aliases),
		TEST(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

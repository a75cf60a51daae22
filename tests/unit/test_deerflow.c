/*
 * fs/deerflow.c: which sandboxes deer-flow's config.yaml and environment mean, where
 * its threads are, and whose sandboxes are.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "io.h"
#include "options.h"

static struct options o;
static struct buf why;
static char dir[SCRATCH_MAX], path[SCRATCH_MAX + 32], old_dir[256];

static const char *const variables[] = {
	"DEER_FLOW_HOME",
	"DEER_FLOW_PROJECT_ROOT",
	"DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL",
	"DEER_FLOW_STREAM_BRIDGE_REDIS_URL",
	"REDIS_URL",
	"THREADFS_PROVISIONER_API_KEY",
	"TEST_KEY",
	"TEST_URL",
};

static int setup(void **state UNUSED)
{
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	setenv("HOME", "/home/somebody", 1);
	unsetenv("XDG_STATE_HOME");
	why = BUF_INIT(0);
	if (!scratch_dir(dir) || !getcwd(old_dir, sizeof(old_dir)) || chdir(dir) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/config.yaml", dir);
	return options_init(&o);
}

static int teardown(void **state UNUSED)
{
	options_release(&o);
	buf_release(&why);
	return chdir(old_dir) == 0 && scratch_remove(dir) ? 0 : -1;
}

static int load(const char *text)
{
	int fd CLEANUP_FD = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
	buf_reset(&why);
	return options_config_file(&o, path, &why);
}

/* A file, and all that follows from it. */
static void given(const char *text)
{
	options_release(&o);
	assert_int_equal(options_init(&o), 0);
	if (load(text) != 0 || options_environment(&o, &why) != 0 || options_finish(&o, &why) != 0)
		fail_msg("%s", why.data);
}

/* Refused when it is read, with these words behind "FILE:". */
static void refused(const char *text, const char *words)
{
	char want[512];

	options_release(&o);
	assert_int_equal(options_init(&o), 0);
	assert_int_equal(load(text), -EINVAL);
	snprintf(want, sizeof(want), "%s:%s", path, words);
	assert_string_equal(why.data, want);
}

/* Refused when all is known. */
static void impossible(const char *text, int error, const char *words)
{
	options_release(&o);
	assert_int_equal(options_init(&o), 0);
	if (load(text) != 0)
		fail_msg("%s", why.data);
	assert_int_equal(options_finish(&o, &why), error);
	if (!strstr(why.data, words))
		fail_msg("%s", why.data);
}

#define AIO "sandbox:\n  use: deerflow.community.aio_sandbox:AioSandboxProvider\n"

/* ---- which sandboxes ---- */

static void test_docker(void **state UNUSED)
{
	setenv("TEST_KEY", "from the environment", 1);
	given(AIO "  image: some/image:1.11.0\n"
		  "  port: 9000\n"
		  "  container_prefix: my-sandbox\n"
		  "  idle_timeout: 0\n"
		  "  auto_start: true\n"
		  "  thread_data_mounts: false\n"
		  "  mounts:\n"
		  "    - host_path: /srv/a\n"
		  "      container_path: /mnt/a\n"
		  "      read_only: true\n"
		  "    - {container_path: /mnt/b, host_path: /srv/b, unknown: x}\n"
		  "  environment:\n"
		  "    NODE_ENV: production\n"
		  "    API_KEY: $TEST_KEY\n"
		  "    EMPTY: ''\n");
	assert_int_equal(o.source, SOURCE_DOCKER);
	assert_string_equal(o.source_text, "docker:");
	assert_string_equal(o.image, "some/image:1.11.0");
	assert_int_equal(o.port, 9000);
	assert_string_equal(o.prefix, "my-sandbox");
	assert_int_equal(o.idle_timeout_ms, 0);
	assert_int_equal(o.deerflow.thread_data_mounts, THREAD_MOUNTS_NO);
	assert_int_equal(o.deerflow.nmounts, 2);
	assert_string_equal(o.deerflow.mounts[0].host_path, "/srv/a");
	assert_string_equal(o.deerflow.mounts[0].container_path, "/mnt/a");
	assert_true(o.deerflow.mounts[0].read_only);
	assert_string_equal(o.deerflow.mounts[1].host_path, "/srv/b");
	assert_false(o.deerflow.mounts[1].read_only);
	assert_int_equal(o.deerflow.nenvironment, 3);
	assert_string_equal(o.deerflow.environment[0].name, "NODE_ENV");
	assert_string_equal(o.deerflow.environment[1].value, "$TEST_KEY"); /* the backend's */
	assert_string_equal(o.deerflow.environment[2].value, "");
}

static void test_provisioner(void **state UNUSED)
{
	struct buf shown CLEANUP_BUF = BUF_INIT(0);

	setenv("TEST_KEY", "hush", 1);
	setenv("TEST_URL", "http://provisioner:8002/", 1);
	given(AIO "  provisioner_url: $TEST_URL\n"
		  "  provisioner_api_key: $TEST_KEY\n");
	assert_int_equal(o.source, SOURCE_PROVISIONER);
	assert_string_equal(o.url, "http://provisioner:8002");
	assert_string_equal(o.deerflow.provisioner_key, "hush");
	options_print(&o, &shown);
	assert_non_null(strstr(shown.data, "source=provisioner:http://provisioner:8002/\n"));
	assert_non_null(strstr(shown.data, "\nprovisioner_api_key=********\n"));
	assert_null(strstr(shown.data, "hush"));

	/* deer-flow takes a key in the file, so we do; an empty one is none */
	given(AIO "  provisioner_url: http://h\n  provisioner_api_key: plain\n");
	assert_string_equal(o.deerflow.provisioner_key, "plain");
	given(AIO "  provisioner_url: http://h\n  provisioner_api_key: ''\n");
	assert_null(o.deerflow.provisioner_key);
	given(AIO "  provisioner_url: ''\n");
	assert_int_equal(o.source, SOURCE_DOCKER);
}

static void test_where_the_key_comes_from(void **state UNUSED)
{
	static const char text[] = AIO "  provisioner_url: http://h\n"
				       "  provisioner_api_key: $TEST_KEY\n";
	int fd;

	impossible(text, -EINVAL,
		   "provisioner_api_key: the environment variable 'TEST_KEY' is not set");
	setenv("THREADFS_PROVISIONER_API_KEY", "ours", 1);
	given(text);
	assert_string_equal(o.deerflow.provisioner_key, "ours");
	unsetenv("THREADFS_PROVISIONER_API_KEY");

	fd = open("key", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write_all(fd, "in a file\n", 10), 0);
	close(fd);
	given(AIO "  provisioner_url: http://h\n"
		  "  provisioner_api_key: $TEST_KEY\n"
		  "threadfs:\n  provisioner_key_file: key\n");
	assert_string_equal(o.deerflow.provisioner_key, "in a file");
	impossible(AIO "  provisioner_url: http://h\n"
		       "threadfs:\n  provisioner_key_file: missing\n",
		   -ENOENT, "option provisioner_key_file: ");
	/* where it is of no use, nobody minds */
	given(AIO "  provisioner_api_key: $TEST_KEY\n");
}

static void test_who_names_a_source_gets_it(void **state UNUSED)
{
	assert_int_equal(options_source(&o, "embedded:", &why), 0);
	assert_int_equal(load(AIO "  provisioner_url: http://h\n"), 0);
	assert_int_equal(options_finish(&o, &why), 0);
	assert_int_equal(o.source, SOURCE_EMBEDDED);

	/* or leaves the rest to the file */
	options_release(&o);
	assert_int_equal(options_init(&o), 0);
	assert_int_equal(options_source(&o, "provisioner:", &why), 0);
	assert_int_equal(options_finish(&o, &why), -EINVAL);
	assert_string_equal(why.data, "source: expected provisioner:http://HOST:8002");
	assert_int_equal(load(AIO "  provisioner_url: http://h:1\n"), 0);
	assert_int_equal(options_finish(&o, &why), 0);
	assert_string_equal(o.url, "http://h:1");
}

static void test_other_providers(void **state UNUSED)
{
	given("sandbox:\n  use: deerflow.sandbox.local:LocalSandboxProvider\n");
	assert_int_equal(o.source, SOURCE_EMBEDDED);
	given("sandbox:\n  idle_timeout: 5\n");
	assert_int_equal(o.source, SOURCE_EMBEDDED);
	impossible("sandbox:\n  use: deerflow.community.e2b_sandbox:E2BSandboxProvider\n",
		   -EOPNOTSUPP, "E2BSandboxProvider, whose sandboxes cannot be mounted");
	impossible(AIO "  provisioner_url: provisioner:8002\n", -EINVAL,
		   "source: the URL does not start with http:// or https://");
}

static void test_bad_values(void **state UNUSED)
{
	refused(AIO "  mounts:\n    - host_path: a\n", "4: mounts.host_path: expected an "
						       "absolute path");
	refused(AIO "  mounts:\n    - /a:/b\n", "4: mounts: expected keys with values");
	refused(AIO "  mounts: {a: b}\n", "3: mounts: expected a list");
	refused(AIO "  mounts: x\n", "3: mounts: expected a list");
	refused(AIO "  mounts:\n    - read_only: perhaps\n",
		"4: mounts.read_only: expected true or false");
	refused(AIO "  mounts:\n    - host_path: {a: b}\n", "4: mounts: nothing is expected this "
							    "deep");
	refused(AIO "  environment: [A=1]\n", "3: environment: expected keys with values");
	refused(AIO "  environment: A=1\n", "3: environment: expected keys with values");
	refused(AIO "  use: [a]\n", "3: use: expected one plain value");
	refused(AIO "  port: 70000\n", "3: port: '70000': expected a number from 1 to 65535");
	refused(AIO "  provisioner_url: $TEST_URL\n", "3: provisioner_url: the environment "
						      "variable 'TEST_URL' is not set");
	refused(AIO "  provisioner_api_key: \"a\\nb\"\n",
		"3: provisioner_api_key: the key holds a byte that is not printable ASCII");
	refused(AIO "  thread_data_mounts: 7\n", "3: thread_data_mounts: expected true or false");
	refused(AIO "  ownership:\n    type: file\n", "4: ownership.type: expected memory or "
						      "redis");
	refused(AIO "  ownership:\n    ttl_multiplier: 1.9\n",
		"4: ownership.ttl_multiplier: expected a number of at least 2");
	refused(AIO "  ownership:\n    renewal_interval_seconds: 0\n",
		"4: ownership.renewal_interval_seconds: expected a number above 0");
	impossible(AIO "  mounts:\n    - host_path: /a\n", -EINVAL,
		   "sandbox.mounts: number 1 has no container_path");
	/* null is as good as nothing, and what deer-flow allows we do not mind */
	given(AIO "  mounts:\n  environment: ~\n  ownership: null\n  image:\n"
		  "  boxes: [[1, {a: [b]}], 2]\n");
	assert_int_equal(o.deerflow.nmounts, 0);
	assert_int_equal(o.deerflow.ownership.type, OWNERSHIP_MEMORY);
}

/* ---- where its threads are ---- */

static void data_is(const char *want)
{
	assert_string_equal(o.data, want);
}

static void test_home(void **state UNUSED)
{
	char want[2 * SCRATCH_MAX];

	given(AIO);
	data_is("/home/somebody/.local/state/threadfs");

	assert_int_equal(mkdir("backend", 0755), 0);
	assert_int_equal(mkdir("backend/.deer-flow", 0755), 0);
	given(AIO);
	snprintf(want, sizeof(want), "%s/backend/.deer-flow", dir);
	data_is(want);
	assert_int_equal(mkdir(".deer-flow", 0755), 0);
	assert_int_equal(chdir("/"), 0);
	given(AIO);
	snprintf(want, sizeof(want), "%s/.deer-flow", dir);
	data_is(want);

	setenv("DEER_FLOW_PROJECT_ROOT", "/project", 1);
	given(AIO);
	data_is("/project/.deer-flow");
	setenv("DEER_FLOW_HOME", "/deer-flow's/home", 1);
	given(AIO);
	data_is("/deer-flow's/home");
	given(AIO "threadfs:\n  data: /mine\n");
	data_is("/mine");
	/* also for its local provider, and without a file */
	given("sandbox:\n  use: deerflow.sandbox.local:LocalSandboxProvider\n");
	data_is("/deer-flow's/home");
	options_release(&o);
	assert_int_equal(options_init(&o), 0);
	assert_int_equal(options_source(&o, "docker:", &why), 0);
	assert_int_equal(options_finish(&o, &why), 0);
	data_is("/deer-flow's/home");
	/* but what has nothing to do with deer-flow stays where it is */
	given("threadfs:\n  linger: 1\n");
	data_is("/home/somebody/.local/state/threadfs");
}

static void deerflow_dir(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	if (mkdir(name, 0700) < 0)
		assert_int_equal(errno, EEXIST);
	assert_int_equal(chown(name, uid, gid), 0);
	assert_int_equal(chmod(name, mode), 0);
}

static void config_is_of(uid_t uid, gid_t gid)
{
	int fd CLEANUP_FD = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fchown(fd, uid, gid), 0);
}

enum { ANN = 65533, EVE = 65532 };

static void found_in(const char *below)
{
	char want[2 * SCRATCH_MAX];

	given(AIO);
	snprintf(want, sizeof(want), "%s/%s/.deer-flow", dir, below);
	data_is(want);
}

/* We are root and stand in "pub", the file is Ann's. */
static void stand_in_pub(void)
{
	config_is_of(ANN, ANN);
	assert_int_equal(mkdir("pub", 0755), 0);
	assert_int_equal(mkdir("backend", 0755), 0);
	deerflow_dir("backend/.deer-flow", ANN, ANN, 0755);
	assert_int_equal(chdir("pub"), 0);
}

static void test_a_strangers_home_is_passed_over(void **state UNUSED)
{
	static const struct {
		uid_t uid;
		gid_t gid;
		mode_t mode;
		const char *found;
	} rows[] = {
		{ 0, 0, 0755, "pub" },         { 0, 0, 0775, "pub" },
		{ ANN, ANN, 0755, "pub" },     { ANN, ANN, 0775, "pub" },
		{ ANN, EVE, 0755, "pub" },     { ANN, EVE, 0775, "backend" },
		{ ANN, ANN, 0777, "backend" }, { 0, EVE, 0775, "backend" },
		{ 0, 0, 01777, "backend" },    { EVE, EVE, 0755, "backend" },
		{ EVE, 0, 0700, "backend" },   { EVE, ANN, 0777, "backend" },
	};

	if (geteuid() != 0)
		skip();
	stand_in_pub();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		deerflow_dir(".deer-flow", rows[i].uid, rows[i].gid, rows[i].mode);
		found_in(rows[i].found);
	}
	/* Who says where it is gets it, whosever it is. */
	given(AIO "threadfs:\n  data: .deer-flow\n");
	assert_non_null(strstr(o.data, "/pub/.deer-flow"));
}

/* It would make a data root of whatever is ours. */
static void test_a_strangers_link_to_a_home_is_passed_over(void **state UNUSED)
{
	if (geteuid() != 0)
		skip();
	stand_in_pub();
	deerflow_dir("other", ANN, ANN, 0755);
	assert_int_equal(symlink("other", ".deer-flow"), 0);
	found_in("pub");
	assert_int_equal(lchown(".deer-flow", EVE, EVE), 0);
	found_in("backend");
}

/* ---- whose they are ---- */

static void ownership_is(enum ownership_type type, const char *url)
{
	const struct ownership_config *c = &o.deerflow.ownership;

	assert_int_equal(c->type, type);
	if (url)
		assert_string_equal(c->redis_url, url);
	else
		assert_null(c->redis_url);
}

static void test_default_config_is_memory(void **state UNUSED)
{
	given(AIO);
	ownership_is(OWNERSHIP_MEMORY, NULL);
	assert_string_equal(o.deerflow.ownership.key_prefix, "deerflow:sandbox:owner");
	assert_true(o.deerflow.ownership.renewal_interval_s == 30);
	assert_true(o.deerflow.ownership.ttl_multiplier == 4);
}

static void test_ownership(void **state UNUSED)
{
	struct buf shown CLEANUP_BUF = BUF_INIT(0);

	given(AIO "  ownership:\n"
		  "    type: redis\n"
		  "    redis_url: redis://:hush@redis:6379/1\n"
		  "    renewal_interval_seconds: 1.5\n"
		  "    ttl_multiplier: 2\n"
		  "    key_prefix: 'mine:owner::'\n"
		  "    another: key\n");
	ownership_is(OWNERSHIP_REDIS, "redis://:hush@redis:6379/1");
	assert_string_equal(o.deerflow.ownership.key_prefix, "mine:owner");
	assert_true(o.deerflow.ownership.renewal_interval_s == 1.5);
	assert_true(o.deerflow.ownership.ttl_multiplier == 2);
	options_print(&o, &shown);
	assert_non_null(strstr(shown.data, "\nownership=redis\n"));
	assert_null(strstr(shown.data, "hush"));
}

static void test_ownership_is_inferred(void **state UNUSED)
{
	static const char bridge[] =
		AIO "stream_bridge:\n  type: redis\n  redis_url: redis://bridge\n";

	/* the stream bridge of the file first, then the environment */
	given(bridge);
	ownership_is(OWNERSHIP_REDIS, "redis://bridge");
	setenv("DEER_FLOW_STREAM_BRIDGE_REDIS_URL", "redis://env", 1);
	given(bridge);
	ownership_is(OWNERSHIP_REDIS, "redis://bridge");
	given(AIO "stream_bridge:\n  type: redis\n");
	ownership_is(OWNERSHIP_REDIS, "redis://env");
	given(AIO);
	ownership_is(OWNERSHIP_REDIS, "redis://env");
	setenv("DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL", "redis://owner", 1);
	given(AIO);
	ownership_is(OWNERSHIP_REDIS, "redis://owner");
	/* what is said wins over what can be inferred */
	given(AIO "  ownership:\n    type: memory\n");
	ownership_is(OWNERSHIP_MEMORY, NULL);
	given(AIO "  ownership:\n    type: redis\n");
	ownership_is(OWNERSHIP_REDIS, "redis://owner");
	unsetenv("DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL");
	unsetenv("DEER_FLOW_STREAM_BRIDGE_REDIS_URL");
	/* this one only says where */
	setenv("REDIS_URL", "redis://any", 1);
	given(AIO);
	ownership_is(OWNERSHIP_MEMORY, NULL);
	given(AIO "  ownership:\n    type: redis\n");
	ownership_is(OWNERSHIP_REDIS, "redis://any");
	unsetenv("REDIS_URL");
	given(AIO "  ownership:\n    type: redis\n");
	ownership_is(OWNERSHIP_REDIS, "redis://localhost:6379/0");
	given(AIO "stream_bridge:\n  type: memory\n  redis_url: redis://x\n");
	ownership_is(OWNERSHIP_MEMORY, NULL);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_docker),
		TEST(test_provisioner),
		TEST(test_where_the_key_comes_from),
		TEST(test_who_names_a_source_gets_it),
		TEST(test_other_providers),
		TEST(test_bad_values),
		TEST(test_home),
		TEST(test_a_strangers_home_is_passed_over),
		TEST(test_a_strangers_link_to_a_home_is_passed_over),
		TEST(test_default_config_is_memory),
		TEST(test_ownership),
		TEST(test_ownership_is_inferred),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

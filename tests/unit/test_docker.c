/*
 * provider/docker_address.c, docker_answer.c, docker_spec.c: addresses, what an engine's
 * answers say (Docker's 20.10 and 26, Podman's 4.3), and what it is asked to make.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "docker_address.h"
#include "docker_answer.h"
#include "docker_spec.h"

static cJSON *parse(const char *text)
{
	char *copy CLEANUP_FREE = strdup(text);
	cJSON *root = NULL;

	assert_int_equal(json_parse(copy, strlen(copy), &root, NULL), 0);
	return root;
}

/* ---- addresses ---- */

static void address_is(const char *text, const char *socket, const char *url, const char *host)
{
	struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
	struct buf why CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(docker_parse_address(text, &a, &why), 0);
	assert_string_equal(a.socket ?: "", socket ?: "");
	assert_string_equal(a.url ?: "", url ?: "");
	assert_string_equal(a.host ?: "", host ?: "");
}

static void test_addresses_of_engines(void **state UNUSED)
{
	static const char *const bad[] = { "",         "unix://x",         "tcp://",
					   "tcp://:5", "npipe:////./pipe", "tcp://a:b@c:1",
					   "docker",   "tcp://[::1" };

	address_is("unix:///var/run/docker.sock", "/var/run/docker.sock", NULL, NULL);
	address_is("/run/podman/podman.sock", "/run/podman/podman.sock", NULL, NULL);
	address_is("tcp://10.0.0.7:2375", NULL, "http://10.0.0.7:2375", "10.0.0.7");
	address_is("tcp://engine", NULL, "http://engine:2375", "engine");
	address_is("tcp://engine:2375/", NULL, "http://engine:2375", "engine");
	address_is("tcp://[::1]:2375", NULL, "http://[::1]:2375", "::1");
	address_is("http://engine:80", NULL, "http://engine:80", "engine");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
		struct buf why CLEANUP_BUF = BUF_INIT(0);

		assert_int_equal(docker_parse_address(bad[i], &a, &why), -EINVAL);
		assert_true(why.len > 0);
	}
}

static void test_addresses_that_cannot_be_had_say_so(void **state UNUSED)
{
	static const struct {
		const char *address, *words;
	} rows[] = {
		{ "ssh://me@host", "ssh -L" },
		{ "https://host:2376", "TLS" },
		{ "unix:///nonexistent/docker.sock", "/nonexistent/docker.sock does not exist" },
		{ "unix:///", "does not listen at /" },
		{ "nonsense", "'nonsense'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
		struct buf why CLEANUP_BUF = BUF_INIT(0);

		assert_true(docker_find_engine(rows[i].address, &a, &why) < 0);
		if (!strstr(why.data ?: "", rows[i].words))
			fail_msg("'%s' is not in '%s'", rows[i].words, why.data ?: "");
		assert_null(strchr(why.data, '\n'));
	}
}

/* The socket of an engine that is found with that runtime directory, "" for none there. */
static void found_with(const char *runtime, mode_t mode, const char *want)
{
	struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
	struct buf why CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(chmod(runtime, mode), 0);
	(void)!docker_find_engine(NULL, &a, &why);
	if (!a.socket || strncmp(a.socket, runtime, strlen(runtime)) != 0)
		assert_string_equal("", want);
	else
		assert_string_equal(a.socket + strlen(runtime), want);
}

static int listen_at(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 5), 0);
	return fd;
}

/* su and sudo -E leave us with his, and what he has at his socket would be sent our keys. */
static void test_another_users_engine_is_not_found(void **state UNUSED)
{
	char dir[SCRATCH_MAX], path[SCRATCH_MAX + 32];
	struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	int fd CLEANUP_FD = -1;

	if (access("/var/run/docker.sock", F_OK) == 0 ||
	    access("/run/podman/podman.sock", F_OK) == 0)
		skip(); /* they come first */
	unsetenv("DOCKER_HOST");
	assert_true(scratch_dir(dir));
	setenv("XDG_RUNTIME_DIR", dir, 1);
	snprintf(path, sizeof(path), "%s/docker.sock", dir);
	fd = listen_at(path);
	found_with(dir, 0700, "/docker.sock");
	found_with(dir, 0755, "/docker.sock");
	found_with(dir, 0777, "");
	found_with(dir, 01777, ""); /* anybody may have made that name */
	if (geteuid() == 0) {
		assert_int_equal(chown(dir, 65533, 65533), 0);
		found_with(dir, 0755, "");
		assert_int_equal(docker_find_engine(NULL, &a, &why), -ENOENT);
		assert_non_null(strstr(why.data, "XDG_RUNTIME_DIR is not yours alone"));
	}
	/* who names it gets it */
	assert_int_equal(docker_find_engine(path, &a, &why), 0);
	assert_string_equal(a.socket, path);
	unsetenv("XDG_RUNTIME_DIR");
	assert_true(scratch_remove(dir));
}

static void bound(const char *host, const char *given, const char *want)
{
	const char *reason = NULL;

	assert_string_equal(docker_bind_host(host, given, &reason), want);
	assert_non_null(reason);
}

/* test_resolve_docker_bind_host_…: deer-flow's table. */
static void test_bind_host(void **state UNUSED)
{
	const char *reason;

	bound("localhost", NULL, "127.0.0.1");
	bound("127.0.0.1", NULL, "127.0.0.1");
	bound("", "", "127.0.0.1");
	bound("::1", NULL, "::1");
	bound("[::1]", NULL, "::1");
	bound("host.docker.internal", NULL, "0.0.0.0"); /* deer-flow itself in a container */
	bound("10.1.2.3", NULL, "0.0.0.0");
	bound("host.docker.internal", "172.17.0.1", "172.17.0.1");
	bound("localhost", "0.0.0.0", "0.0.0.0");
	bound("localhost", "[::1]", "::1");
	/* What is open to everybody is said so. */
	docker_bind_host("10.1.2.3", NULL, &reason);
	assert_non_null(strstr(reason, "open to whoever"));
}

static void url_is(const char *host, const char *bind, const char *want)
{
	struct buf url CLEANUP_BUF = BUF_INIT(0);

	docker_put_url(&url, host, bind, 8081);
	assert_string_equal(url.data, want);
}

static void test_urls(void **state UNUSED)
{
	url_is("localhost", "127.0.0.1", "http://127.0.0.1:8081");
	url_is("localhost", "0.0.0.0", "http://127.0.0.1:8081");
	url_is("localhost", "::1", "http://[::1]:8081");
	url_is("::1", "::1", "http://[::1]:8081");
	url_is("[::1]", "::1", "http://[::1]:8081");
	url_is("host.docker.internal", "0.0.0.0", "http://host.docker.internal:8081");
}

/* ---- containers ---- */

static const char inspected[] =
	"{\"Id\":\"974a484d2a30\",\"Created\":\"2026-11-16T21:28:35.743941601Z\","
	"\"Name\":\"/deer-flow-sandbox-0123456789abcdef\","
	"\"State\":{\"Status\":\"running\",\"Running\":true,\"Pid\":4378},"
	"\"Config\":{\"Labels\":{\"threadfs.user\":\"u\",\"threadfs.thread\":\"t\","
	"\"threadfs.maker\":\"host:/run\"},\"Env\":[\"A=b\"]},"
	"\"NetworkSettings\":{\"Ports\":{\"9090/tcp\":[{\"HostIp\":\"\",\"HostPort\":\"1\"}],"
	"\"8080/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"8085\"}]}}}";

static void test_inspect(void **state UNUSED)
{
	cJSON *root CLEANUP_JSON = parse(inspected);
	struct container c CLEANUP_CONTAINER = { 0 };

	assert_int_equal(container_from_inspect(root, &c), 0);
	assert_string_equal(c.key, "974a484d2a30");
	assert_string_equal(c.name, "deer-flow-sandbox-0123456789abcdef");
	assert_true(c.running && !c.unborn);
	assert_int_equal(c.port, 8085);
	assert_int_equal((int64_t)c.created, 1794864515);
	assert_string_equal(c.user, "u");
	assert_string_equal(c.thread, "t");
	assert_string_equal(c.maker, "host:/run");
}

/* test_extract_host_port_…: none when unmapped, missing fields. */
static void test_inspect_without_a_port(void **state UNUSED)
{
	static const char *const settings[] = {
		"{}",
		"null",
		"{\"Ports\":null}",
		"{\"Ports\":{}}",
		"{\"Ports\":{\"8080/tcp\":null}}",
		"{\"Ports\":{\"8080/tcp\":[]}}",
		"{\"Ports\":{\"8080/tcp\":[{}]}}",
		"{\"Ports\":{\"8080/tcp\":[{\"HostPort\":\"x\"}]}}",
		"{\"Ports\":{\"8080/tcp\":[{\"HostPort\":\"70000\"}]}}",
		"{\"Ports\":{\"8080/udp\":[{\"HostPort\":\"8080\"}]}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		struct container c CLEANUP_CONTAINER = { 0 };
		char text[300];
		cJSON *root CLEANUP_JSON = NULL;

		snprintf(text, sizeof(text),
			 "{\"Id\":\"a\",\"Name\":\"/n\",\"State\":{\"Running\":false,"
			 "\"Status\":\"created\"},\"NetworkSettings\":%s}",
			 settings[i]);
		root = parse(text);
		assert_int_equal(container_from_inspect(root, &c), 0);
		assert_int_equal(c.port, 0);
		assert_true(!c.running && c.unborn);
		assert_null(c.user);
	}
}

static void test_inspect_of_nonsense(void **state UNUSED)
{
	static const char *const bad[] = {
		"[]",
		"{}",
		"7",
		"{\"Id\":\"a\",\"Name\":\"/n\"}",
		"{\"Id\":\"a\",\"Name\":\"/n\",\"State\":{\"Running\":\"yes\"}}",
		"{\"Id\":\"../b\",\"Name\":\"/n\",\"State\":{\"Running\":true}}",
		"{\"Id\":7,\"Name\":\"/n\",\"State\":{\"Running\":true}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cJSON *root CLEANUP_JSON = parse(bad[i]);
		struct container c = { 0 };

		assert_int_equal(container_from_inspect(root, &c), -EBADMSG);
	}
}

static void test_list(void **state UNUSED)
{
	cJSON *root CLEANUP_JSON = parse(
		"{\"Id\":\"974a\",\"Names\":[\"/deer-flow-sandbox-0123\"],\"State\":\"running\","
		"\"Created\":1794864515,\"Labels\":{\"threadfs.user\":\"u\"},"
		"\"Ports\":[{\"PrivatePort\":9090,\"PublicPort\":9,\"Type\":\"tcp\"},"
		"{\"PrivatePort\":8080,\"Type\":\"tcp\"},"
		"{\"PrivatePort\":8080,\"PublicPort\":8086,\"Type\":\"tcp\"}]}");
	struct container c CLEANUP_CONTAINER = { 0 };

	assert_int_equal(container_from_list(root, &c), 0);
	assert_string_equal(c.name, "deer-flow-sandbox-0123");
	assert_int_equal(c.port, 8086);
	assert_true(c.running);
	assert_null(c.user); /* labels are all there, or none counts */
}

static void test_names(void **state UNUSED)
{
	static const char *const others[] = {
		"deer-flow-sandbox",       "deer-flow-sandbox-",
		"deer-flow-sandboxx-0123", "my-deer-flow-sandbox-0123",
		"deer-flow-sandbox-redis", "deer-flow-sandbox-0123456789abcdef0",
		"deer-flow-sandbox-01/3",  "",
	};

	assert_string_equal(container_id("deer-flow-sandbox-0123", "deer-flow-sandbox"), "0123");
	assert_string_equal(container_id("p-0123456789abcdef", "p"), "0123456789abcdef");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_null(container_id(others[i], "deer-flow-sandbox"));
}

static void test_ports_that_are_taken(void **state UNUSED)
{
	cJSON *list CLEANUP_JSON =
		parse("[{\"Ports\":[{\"PublicPort\":8080},{\"PublicPort\":8079},"
		      "{\"PrivatePort\":8081}]},{},7,"
		      "{\"Ports\":[{\"PublicPort\":8082},{\"PublicPort\":8083}]}]");
	bool taken[3] = { false };

	docker_mark_ports(list, 8080, taken, 3);
	assert_true(taken[0] && !taken[1] && taken[2]);
}

static void test_timestamps(void **state UNUSED)
{
	assert_int_equal((int64_t)docker_time("2026-04-08T01:22:50.123456789Z"), 1775611370);
	assert_true(docker_time("2026-04-08T01:22:50.5Z") == 1775611370.5);
	assert_true(docker_time("2026-04-08T01:22:50Z") == 1775611370);
	assert_true(docker_time("2026-04-08T03:22:50+02:00") == 1775611370);
	assert_true(docker_time("2026-04-07T23:22:50.0-02:00") == 1775611370);
	assert_true(docker_time("") == 0);
	assert_true(docker_time(NULL) == 0);
	assert_true(docker_time("yesterday") == 0);
	assert_true(docker_time("2026-04-08T01:22:50") == 0);
	assert_true(docker_time("0001-01-01T00:00:00Z") == 0);
}

static void test_api_versions(void **state UNUSED)
{
	assert_int_equal(docker_api("1.41", "1.24", 44), 41);
	assert_int_equal(docker_api("1.52", "1.24", 44), 44);
	assert_int_equal(docker_api("1.60", "1.50", 44), 50);
	assert_int_equal(docker_api("1.41", NULL, 44), 41);
	assert_int_equal(docker_api("4.3.1", NULL, 44), -1);
	assert_int_equal(docker_api("1.x", NULL, 44), -1);
	assert_int_equal(docker_api(NULL, "1.24", 44), -1);
}

/* ---- refusals ---- */

static void test_refusals(void **state UNUSED)
{
	static const struct {
		int status;
		const char *words;
		enum docker_refusal want;
	} rows[] = {
		{ 404, "No such container: deer-flow-sandbox-1", DOCKER_GONE },
		{ 404, "no container with name or ID \"x\" found: no such container", DOCKER_GONE },
		{ 404, "page not found", DOCKER_REFUSED },
		{ 404, NULL, DOCKER_REFUSED },
		{ 404, "network podman not found", DOCKER_REFUSED },
		{ 500, "cannot reach storage: no such container", DOCKER_REFUSED },
		{ 500, "container 77b5 does not exist in database: no such container",
		  DOCKER_GONE },
		{ 404, "No such image: a:b", DOCKER_NO_IMAGE },
		{ 404, "no such image: localhost/none: image not known", DOCKER_NO_IMAGE },
		{ 409,
		  "Conflict. The container name \"/x\" is already in use by container \"974a\". "
		  "You have to remove (or rename) that container to be able to reuse that name.",
		  DOCKER_NAME_TAKEN },
		{ 500,
		  "container create: creating container storage: the container name \"x\" is "
		  "already in use by 974a. You have to remove that container to be able to reuse "
		  "that name: that name is already in use",
		  DOCKER_NAME_TAKEN },
		{ 500,
		  "driver failed programming external connectivity on endpoint x: Bind for "
		  "127.0.0.1:8080 failed: port is already allocated",
		  DOCKER_PORT_TAKEN },
		{ 500,
		  "cannot listen on the TCP port: listen tcp4 127.0.0.1:8080: bind: address "
		  "already in use",
		  DOCKER_PORT_TAKEN },
		{ 409, "removal of container x is already in progress", DOCKER_BUSY },
		{ 500, "the disk is full", DOCKER_REFUSED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(docker_refusal(rows[i].status, rows[i].words), rows[i].want);
}

/* ---- images ---- */

static void pull_is(const char *image, const char *want)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(docker_put_pull(&b, image), 0);
	assert_string_equal(b.data, want);
}

static void test_image_references(void **state UNUSED)
{
	pull_is("busybox", "fromImage=busybox&tag=latest");
	pull_is("a/b:1.11.0", "fromImage=a/b&tag=1.11.0");
	pull_is("host:5000/a/b", "fromImage=host%3A5000/a/b&tag=latest");
	pull_is("host:5000/a/b:2", "fromImage=host%3A5000/a/b&tag=2");
	pull_is("a/b@sha256:0123", "fromImage=a/b&tag=sha256%3A0123");
}

static void feed(struct docker_progress *p, const char *text)
{
	char *copy CLEANUP_FREE = strdup(text);

	docker_progress_line(p, copy, strlen(copy));
}

static void progress_is(const struct docker_progress *p, const char *want)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	docker_progress_put(p, &b);
	assert_string_equal(b.data, want);
}

static void test_progress(void **state UNUSED)
{
	struct docker_progress *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	progress_is(p, "begun");
	feed(p, "{\"status\":\"Pulling from a/b\",\"id\":\"latest\"}");
	progress_is(p, "Pulling from a/b");
	feed(p, "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":1000000,"
		"\"total\":40000000},\"id\":\"aa\"}");
	feed(p, "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":5000000,"
		"\"total\":60000000},\"id\":\"bb\"}");
	feed(p, "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":7000000,"
		"\"total\":40000000},\"id\":\"aa\"}");
	progress_is(p, "12 of 100 MB");
	feed(p, "{\"status\":\"Extracting\",\"progressDetail\":{\"current\":1,"
		"\"total\":40000000},\"id\":\"aa\"}");
	feed(p, "not JSON");
	feed(p, "[]");
	feed(p, "{\"progressDetail\":{\"current\":-1,\"total\":\"x\"},\"id\":7}");
	progress_is(p, "12 of 100 MB");
	assert_null(p->error);
	feed(p, "{\"errorDetail\":{\"message\":\"manifest "
		"unknown\"},\"error\":\"manifest\\nunknown\"}");
	assert_non_null(strstr(p->error, "manifest"));
	assert_null(strchr(p->error, '\n'));
	for (int i = 0; i < 2 * DOCKER_LAYERS_MAX; i++) {
		char line[128];

		snprintf(line, sizeof(line),
			 "{\"id\":\"layer%d\",\"progressDetail\":{\"current\":1,\"total\":2}}", i);
		feed(p, line);
	}
	assert_int_equal(p->nlayers, DOCKER_LAYERS_MAX);
	docker_progress_release(p);
	free(p);
}

/* ---- what is asked for ---- */

static const struct docker_env environment[] = {
	{ .name = (char *)"PLAIN", .value = (char *)"as it is" },
	{ .name = (char *)"FROM_HERE", .value = (char *)"$TEST_DOCKER_SECRET" },
	{ .name = (char *)"MISSING", .value = (char *)"$TEST_DOCKER_NO_SUCH" },
};
static const struct docker_mount mounts[] = {
	{ .source = (char *)"/srv/skills", .target = (char *)"/mnt/skills", .read_only = true },
	{ .source = (char *)"/srv/up", .target = (char *)"/mnt/user-data/uploads" },
};

static void test_spec(void **state UNUSED)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct docker_spec s = {
		.image = "i:1",
		.bind_host = "127.0.0.1",
		.port = 8085,
		.stop_timeout_s = 10,
		.user = "u",
		.thread = "t",
		.maker = "m",
		.mounts = mounts,
		.nmounts = ARRAY_SIZE(mounts),
		.environment = environment,
		.nenvironment = ARRAY_SIZE(environment),
		.thread_dir = "/data/users/u/threads/t",
	};

	setenv("TEST_DOCKER_SECRET", "a \"secret\"", 1);
	unsetenv("TEST_DOCKER_NO_SUCH");
	assert_int_equal(docker_put_spec(&b, &s), 0);
	assert_string_equal(
		b.data,
		"{\"Image\":\"i:1\",\"Env\":[\"PLAIN=as it is\",\"FROM_HERE=a \\\"secret\\\"\","
		"\"MISSING=\"],\"ExposedPorts\":{\"8080/tcp\":{}},\"StopTimeout\":10,"
		"\"Labels\":{\"threadfs.user\":\"u\",\"threadfs.thread\":\"t\","
		"\"threadfs.maker\":\"m\"},"
		"\"HostConfig\":{\"AutoRemove\":true,\"SecurityOpt\":[\"seccomp=unconfined\"],"
		"\"PortBindings\":{\"8080/tcp\":[{\"HostIp\":\"127.0.0.1\","
		"\"HostPort\":\"8085\"}]},\"Mounts\":["
		"{\"Type\":\"bind\",\"Source\":\"/data/users/u/threads/t/user-data/workspace\","
		"\"Target\":\"/mnt/user-data/workspace\",\"ReadOnly\":false},"
		/* uploads are where the configuration wants them */
		"{\"Type\":\"bind\",\"Source\":\"/data/users/u/threads/t/user-data/outputs\","
		"\"Target\":\"/mnt/user-data/outputs\",\"ReadOnly\":false},"
		"{\"Type\":\"bind\",\"Source\":\"/data/users/u/threads/t/acp-workspace\","
		"\"Target\":\"/mnt/acp-workspace\",\"ReadOnly\":true},"
		"{\"Type\":\"bind\",\"Source\":\"/srv/skills\",\"Target\":\"/mnt/skills\","
		"\"ReadOnly\":true},"
		"{\"Type\":\"bind\",\"Source\":\"/srv/up\",\"Target\":\"/mnt/user-data/uploads\","
		"\"ReadOnly\":false}]}}");
}

/* No path is taken apart at a colon, as -v would. */
static void test_spec_keeps_paths_whole(void **state UNUSED)
{
	struct docker_mount odd = { .source = (char *)"C:/a,b:c", .target = (char *)"/mnt/x" };
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct docker_spec s = { .image = "i", .bind_host = "::1", .mounts = &odd, .nmounts = 1 };

	assert_int_equal(docker_put_spec(&b, &s), 0);
	assert_non_null(strstr(b.data, "\"Source\":\"C:/a,b:c\",\"Target\":\"/mnt/x\""));
	assert_non_null(strstr(b.data, "\"HostIp\":\"::1\""));
	assert_null(strstr(b.data, "NetworkMode"));
	assert_null(strstr(b.data, "user-data")); /* without thread_data_mounts */
}

static void test_only_names_of_variables_are_for_a_log(void **state UNUSED)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	docker_put_env_names(&b, environment, ARRAY_SIZE(environment));
	assert_string_equal(b.data, "PLAIN FROM_HERE MISSING");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses_of_engines),
		cmocka_unit_test(test_addresses_that_cannot_be_had_say_so),
		cmocka_unit_test(test_another_users_engine_is_not_found),
		cmocka_unit_test(test_bind_host),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_inspect),
		cmocka_unit_test(test_inspect_without_a_port),
		cmocka_unit_test(test_inspect_of_nonsense),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_ports_that_are_taken),
		cmocka_unit_test(test_timestamps),
		cmocka_unit_test(test_api_versions),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_image_references),
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_spec),
		cmocka_unit_test(test_spec_keeps_paths_whole),
		cmocka_unit_test(test_only_names_of_variables_are_for_a_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

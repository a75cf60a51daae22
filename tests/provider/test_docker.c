/*
 * provider/backend_docker.c with a real engine (tests/lib/engine.sh) and real sandboxes in its
 * containers: what is made, what is found, whose it is, what is stopped, and what an engine
 * that hangs or is gone is taken for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ask.h"
#include "backend_docker.h"
#include "clock.h"
#include "engine.h"
#include "fixture.h"
#include "ident.h"
#include "paths.h"
#include "rig.h"
#include "scratch.h"

#define PREFIX "tfs"

static struct loop *loop;
static struct engine engine;
static char dir[SCRATCH_MAX], data[SCRATCH_MAX + 8], runtime[SCRATCH_MAX + 8];
static struct backend *backend;

static struct docker_config defaults(void)
{
	return (struct docker_config){
		.image = engine.image,
		.prefix = PREFIX,
		.data = data,
		.runtime = runtime,
		.stop_timeout_s = 5,
	};
}

static struct backend *make(const struct docker_config *config)
{
	struct backend *b = NULL;
	char *why CLEANUP_FREE = NULL;

	if (backend_docker_new(loop, config, &b, &why) < 0)
		fail_msg("%s", why);
	return b;
}

static int setup(void **state UNUSED)
{
	struct docker_config c = defaults();

	assert_true(scratch_dir(dir));
	snprintf(data, sizeof(data), "%s/data", dir);
	snprintf(runtime, sizeof(runtime), "%s/run", dir);
	assert_int_equal(mkdir(runtime, 0700), 0);
	backend = make(&c);
	return 0;
}

static unsigned count_locks(void)
{
	char path[SCRATCH_MAX + 32];

	snprintf(path, sizeof(path), "%s/containers", runtime);
	return rmdir(path) == 0 || errno == ENOENT ? 0 : 1;
}

/* Nothing may be left of a test: no container, no lock. */
static int teardown(void **state UNUSED)
{
	backend_free(backend);
	assert_int_equal(engine_count(&engine), 0);
	assert_int_equal(count_locks(), 0);
	assert_true(scratch_remove(dir));
	return 0;
}

static const char *id(void)
{
	static char made[SANDBOX_ID_LEN + 1];

	if (!made[0]) /* those who were asked may still look at it */
		ident_make("u", "t", made);
	return made;
}

static const char *name_of(const char *sandbox)
{
	static char name[64];

	snprintf(name, sizeof(name), PREFIX "-%s", sandbox);
	return name;
}

static const char *name(void)
{
	return name_of(id());
}

/* Its answer is this error, with these words. */
static void refused(struct backend *b, enum ask_kind kind, int error, const char *words)
{
	struct ask a;

	assert_int_equal(ask(&a, b, kind, id()), error);
	if (words && !(a.op.why && strstr(a.op.why, words)))
		fail_msg("'%s' is not in '%s'", words, a.op.why ?: "(nothing)");
	assert_null(a.op.place.url);
	assert_int_equal(a.op.nplaces, 0);
	assert_false(a.op.alive);
	ask_release(&a);
}

static void alive_is(struct backend *b, bool alive)
{
	struct ask a;

	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), 0);
	assert_int_equal(a.op.alive, alive);
	ask_release(&a);
}

/* Who has just forgotten it gives his lock up in the background: that is waited for. */
static int ask_when_free(struct ask *a, struct backend *b, enum ask_kind kind)
{
	int r = ask(a, b, kind, id());

	for (int i = 0; i < 200 && r == -EBUSY; i++) {
		ask_release(a);
		usleep(25000);
		r = ask(a, b, kind, id());
	}
	return r;
}

/* Asks for a place and returns its URL, for the caller to free. */
static char *place(struct backend *b, enum ask_kind kind)
{
	struct ask a;
	char *url;
	int r = ask_when_free(&a, b, kind);

	if (r < 0)
		fail_msg("%s: %s", ask_kind_name(kind), a.op.why ?: strerrordesc_np(-r));
	assert_string_equal(a.op.place.id, id());
	url = STEAL(a.op.place.url);
	ask_release(&a);
	return url;
}

static void destroy(struct backend *b)
{
	struct ask a;
	int r = ask_when_free(&a, b, ASK_DESTROY);

	if (r < 0)
		fail_msg("destroy: %s", a.op.why ?: strerrordesc_np(-r));
	ask_release(&a);
	assert_false(engine_runs(&engine, name()));
}

static void forget_on_loop(void *ctx)
{
	struct backend *b = ctx;

	b->ops->forget(b, id());
}

static void forget(struct backend *b)
{
	loop_run(loop, forget_on_loop, b);
}

/* ---- create ---- */

static void has(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' is not in '%s'", words, text);
}

static struct sandbox *open_sandbox(const char *url)
{
	struct sandbox *sb = NULL;
	struct call c;

	assert_int_equal(
		sandbox_new(loop, &(struct sandbox_config){ .url = url, .root = "/" }, &sb, NULL),
		0);
	call_init(&c, 60000);
	sandbox_wait_ready(sb, &c, 5000, 50);
	assert_int_equal(call_wait(&c), 0);
	call_release(&c);
	return sb;
}

static void test_create(void **state UNUSED)
{
	const struct docker_mount extra = { .source = dir,
					    .target = (char *)"/mnt/extra",
					    .read_only = true };
	const struct docker_env env[] = {
		{ .name = (char *)"PLAIN", .value = (char *)"plain-value" },
		{ .name = (char *)"SECRET", .value = (char *)"$TEST_DOCKER_SECRET" },
	};
	struct docker_config c = defaults();
	struct backend *b;
	struct sandbox *sb;
	cJSON *root CLEANUP_JSON = NULL;
	char *url CLEANUP_FREE = NULL, *printed CLEANUP_FREE = NULL, *log CLEANUP_FREE = NULL;
	char path[SCRATCH_MAX + 64];
	struct rig rig = { 0 }; /* only for its log */

	setenv("TEST_DOCKER_SECRET", "hush-hush", 1);
	c.mounts = &extra;
	c.nmounts = 1;
	c.environment = env;
	c.nenvironment = ARRAY_SIZE(env);
	rig_begin_log(&rig);
	b = make(&c);
	url = place(b, ASK_CREATE);
	log = rig_end_log(&rig);
	assert_string_equal(url, "http://127.0.0.1:8080");
	has(log, "bound to 127.0.0.1: sandboxes are reached by loopback");
	has(log, "PLAIN SECRET");
	assert_null(strstr(log, "plain-value"));
	assert_null(strstr(log, "hush"));

	root = engine_inspect(&engine, name());
	assert_non_null(root);
	printed = cJSON_PrintUnformatted(root);
	has(printed, "\"AutoRemove\":true");
	has(printed, "\"seccomp=unconfined\"");
	has(printed, "\"8080/tcp\":[{\"HostIp\":\"127.0.0.1\",\"HostPort\":\"8080\"}]");
	has(printed, "\"SECRET=hush-hush\"");
	has(printed, "\"threadfs.user\":\"u\"");

	sb = open_sandbox(url);
	assert_int_equal(SYNC(sb, sandbox_write_file, "/mnt/user-data/uploads/f", "hello", 5), 0);
	assert_int_equal(SYNC(sb, sandbox_write_file, "/mnt/extra/f", "x", 1), -EROFS);
	assert_int_equal(SYNC(sb, sandbox_write_file, "/mnt/acp-workspace/f", "x", 1), -EROFS);
	sandbox_unref(sb);
	snprintf(path, sizeof(path), "%s/users/u/threads/t/user-data/uploads/f", data);
	assert_int_equal(access(path, R_OK), 0); /* where deer-flow looks for it */
	destroy(b);
	backend_free(b);
}

static void test_create_without_directories_of_the_thread(void **state UNUSED)
{
	struct docker_config c = defaults();
	cJSON *root CLEANUP_JSON = NULL;
	struct backend *b;
	char *url CLEANUP_FREE = NULL;

	c.no_thread_mounts = true;
	b = make(&c);
	url = place(b, ASK_CREATE);
	root = engine_inspect(&engine, name());
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "Mounts")), 0);
	destroy(b);
	backend_free(b);
}

static void test_create_on_a_network(void **state UNUSED)
{
	static const char *const bad[] = { "host", "none", "container:x", "a/b" };
	struct docker_config c = defaults();
	cJSON *root CLEANUP_JSON = NULL;
	const cJSON *networks;
	struct backend *b = NULL;
	char *url CLEANUP_FREE = NULL;

	c.network = "apart";
	b = make(&c);
	refused(b, ASK_CREATE, -EIO, "apart"); /* there is none */
	assert_int_equal(engine_ask(&engine, "POST", "/v1.41/networks/create",
				    "{\"Name\":\"apart\",\"Driver\":\"bridge\"}", NULL),
			 201);
	url = place(b, ASK_CREATE);
	sandbox_unref(open_sandbox(url)); /* it answers */
	root = engine_inspect(&engine, name());
	networks = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "NetworkSettings"), "Networks");
	assert_int_equal(cJSON_GetArraySize(networks), 1);
	assert_non_null(cJSON_GetObjectItem(networks, "apart"));
	destroy(b);
	backend_free(b);
	assert_int_equal(engine_ask(&engine, "DELETE", "/v1.41/networks/apart", NULL, NULL), 204);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *why CLEANUP_FREE = NULL;

		c.network = bad[i];
		assert_int_equal(backend_docker_new(loop, &c, &b, &why), -EINVAL);
		assert_non_null(strstr(why, bad[i]));
	}
}

/* The engine is root on the host and follows links: it must not hear of any. */
static void test_links_are_not_bound(void **state UNUSED)
{
	static const char *const names[] = { "user-data/workspace", "user-data/uploads",
					     "user-data/outputs", "user-data", "acp-workspace" };
	unsigned before = engine_requests(&engine, "/containers/create");
	char path[sizeof(data) + 64], thread[sizeof(data) + 32];

	snprintf(thread, sizeof(thread), "%s/users/u/threads/t", data);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(paths_make_thread(data, "u", "t"), 0);
		snprintf(path, sizeof(path), "%s/%s", thread, names[i]);
		assert_true(scratch_remove(path));
		assert_int_equal(symlink("/", path), 0);
		refused(backend, ASK_CREATE, -ELOOP, "a symbolic link stands where");
		assert_int_equal(unlink(path), 0);
		assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
		refused(backend, ASK_CREATE, -ENOTDIR, "a file stands where");
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(engine_requests(&engine, "/containers/create"), before);
	assert_int_equal(engine_count(&engine), 0);
}

static void test_a_name_that_is_taken(void **state UNUSED)
{
	char *url CLEANUP_FREE = NULL, *again CLEANUP_FREE = NULL;
	struct docker_config c = defaults();
	struct backend *elsewhere;

	/* By one that runs: it is found. */
	engine_run(&engine, name(), 9001, NULL);
	refused(backend, ASK_CREATE, -EEXIST, "runs already");
	url = place(backend, ASK_DISCOVER);
	assert_string_equal(url, "http://127.0.0.1:9001");
	forget(backend);
	engine_remove(&engine, name());
	/* By one that was killed a moment ago. */
	again = place(backend, ASK_CREATE);
	engine_kill(&engine, name());
	free(STEAL(again));
	again = place(backend, ASK_CREATE); /* what is left of it may still be there */
	destroy(backend);
	/* Somebody has made it and may be about to start it: that is waited for. */
	c.stop_timeout_s = 1;
	elsewhere = make(&c);
	engine_make(&engine, name(), 9001, NULL);
	{
		struct ask a;
		char target[128];

		ask_start(&a, elsewhere, ASK_CREATE,
			  &(struct whom){ .id = id(), .user = "u", .thread = "t" });
		assert_false(ask_wait(&a, 1000));
		snprintf(target, sizeof(target), "/v1.41/containers/%s/start", name());
		assert_int_equal(engine_ask(&engine, "POST", target, NULL, NULL), 204);
		assert_true(ask_wait(&a, 60000));
		assert_int_equal(a.op.error, -EEXIST);
		ask_release(&a);
	}
	engine_remove(&engine, name());
	backend_free(elsewhere);
}

static int listen_at(unsigned port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void test_a_port_that_is_taken(void **state UNUSED)
{
	struct docker_config c = defaults();
	struct backend *last;
	char *url CLEANUP_FREE = NULL;
	int by_a_program = listen_at(8081), no_more;

	/* 8080 by a container, which the engine's list tells; 8081 by what it does not know. */
	engine_run(&engine, "somebody", 8080, NULL);
	url = place(backend, ASK_CREATE);
	assert_string_equal(url, "http://127.0.0.1:8082");
	destroy(backend);
	engine_remove(&engine, "somebody");
	close(by_a_program);

	no_more = listen_at(65535);
	c.port = 65535;
	last = make(&c);
	refused(last, ASK_CREATE, -EADDRINUSE, "none of the ports from 65535 to 65535 is free");
	assert_null(engine_inspect(&engine, name())); /* what could not be started is gone */
	backend_free(last);
	close(no_more);
}

static void test_an_image_that_is_missing(void **state UNUSED)
{
	struct docker_config c = defaults();
	struct backend *b;

	c.image = "127.0.0.1:1/no/such:image";
	b = make(&c);
	refused(b, ASK_CREATE, -EIO, "image 127.0.0.1:1/no/such:image cannot be pulled: ");
	backend_free(b);
}

static void test_what_cannot_be_started_is_removed(void **state UNUSED)
{
	const struct docker_mount bad = { .source = (char *)"/proc/self/nonexistent/x",
					  .target = (char *)"/mnt/x" };
	struct docker_config c = defaults();
	struct backend *b;
	struct ask a;

	c.mounts = &bad;
	c.nmounts = 1;
	b = make(&c);
	refused(b, ASK_CREATE, -EIO, "the engine says: ");
	backend_free(b);
	/* Nor does a start that is given up leave anything. */
	ask_start(&a, backend, ASK_CREATE,
		  &(struct whom){ .id = id(), .user = "u", .thread = "t" });
	for (int64_t end = clock_ms() + 30000; engine_count(&engine) == 0 && !ask_has_ended(&a);)
		assert_true(clock_ms() < end);
	ask_cancel(&a);
	assert_true(ask_wait(&a, 30000));
	if (a.op.error == 0)
		destroy(backend); /* it was faster */
	else
		assert_int_equal(a.op.error, -ECANCELED);
	ask_release(&a);
	assert_int_equal(engine_count(&engine), 0);
}

/* ---- discover, list ---- */

static void test_discover(void **state UNUSED)
{
	struct docker_config c = defaults();
	struct backend *other = make(&c);
	char *url CLEANUP_FREE = NULL;
	struct ask a;

	refused(backend, ASK_DISCOVER, -ENOENT, "there is no container " PREFIX "-");
	url = place(backend, ASK_CREATE);
	assert_int_equal(ask(&a, other, ASK_DISCOVER, id()), 0);
	assert_string_equal(a.op.place.url, url);
	assert_string_equal(a.op.place.user, "u");
	assert_string_equal(a.op.place.thread, "t");
	ask_release(&a);
	/* Somebody uses it: nobody stops it under him. */
	refused(backend, ASK_DESTROY, -EBUSY, "another program uses");
	alive_is(backend, true);
	forget(other);
	destroy(backend);
	refused(other, ASK_DISCOVER, -ENOENT, NULL);
	backend_free(other);
	/* One that cannot be reached is not there to be used, but that is said. */
	engine_run(&engine, name(), 0, NULL);
	refused(backend, ASK_DISCOVER, -EADDRNOTAVAIL, "publishes no port 8080");
	engine_remove(&engine, name());
}

/* deer-flow's own, without labels, by any of the ids that it has given. */
static void test_discover_by_older_ids(void **state UNUSED)
{
	for (unsigned form = 0; form < IDENT_FORMS; form++) {
		char old[SANDBOX_ID_LEN + 1];
		struct ask a;

		ident_form("u", "t", form, old);
		engine_run(&engine, name_of(old), 9000 + form, NULL);
		assert_int_equal(ask(&a, backend, ASK_DISCOVER, old), 0);
		assert_string_equal(a.op.place.id, old);
		assert_null(a.op.place.user);
		ask_release(&a);
		assert_int_equal(ask(&a, backend, ASK_ADOPT, old), -EBUSY);
		ask_release(&a);
		assert_int_equal(ask(&a, backend, ASK_DESTROY, old), 0); /* when asked to */
		ask_release(&a);
		assert_false(engine_runs(&engine, name_of(old)));
	}
}

static void test_list(void **state UNUSED)
{
	unsigned before, requests;
	char *url CLEANUP_FREE = NULL;
	bool with_port = false, without = false;
	struct ask a;

	assert_int_equal(ask(&a, backend, ASK_LIST_RUNNING, id()), 0);
	assert_int_equal(a.op.nplaces, 0);
	ask_release(&a);
	url = place(backend, ASK_CREATE);
	engine_run(&engine, PREFIX "-0123", 0, NULL);
	engine_run(&engine, PREFIX "x-0123", 0, NULL);
	engine_run(&engine, "my-" PREFIX "-0123", 0, NULL);
	engine_run(&engine, PREFIX "-redis", 0, NULL);
	engine_make(&engine, PREFIX "-4567", 0, NULL); /* does not run */
	before = engine_requests(&engine, "HTTP/1.1\"");
	assert_int_equal(ask(&a, backend, ASK_LIST_RUNNING, id()), 0);
	requests = engine_requests(&engine, "HTTP/1.1\"") - before;
	assert_int_equal(requests, 1); /* however many there are */
	assert_int_equal(a.op.nplaces, 2);
	for (size_t i = 0; i < a.op.nplaces; i++) {
		const struct place *p = &a.op.places[i];

		if (strcmp(p->id, id()) == 0) {
			with_port = true;
			assert_string_equal(p->url, url);
			assert_string_equal(p->user, "u");
			assert_string_equal(p->thread, "t");
		} else {
			without = true;
			assert_string_equal(p->id, "0123");
			assert_null(p->url);
			assert_null(p->user);
		}
	}
	assert_true(with_port && without);
	ask_release(&a);
	engine_remove(&engine, PREFIX "-0123");
	engine_remove(&engine, PREFIX "x-0123");
	engine_remove(&engine, "my-" PREFIX "-0123");
	engine_remove(&engine, PREFIX "-redis");
	engine_remove(&engine, PREFIX "-4567");
	destroy(backend);
}

/* ---- adopt ---- */

static void test_adopt(void **state UNUSED)
{
	struct docker_config c = defaults();
	struct backend *next, *stranger;
	char *url CLEANUP_FREE = NULL, *adopted CLEANUP_FREE = NULL;
	char elsewhere[SCRATCH_MAX + 8];

	refused(backend, ASK_ADOPT, -ENOENT, NULL);
	url = place(backend, ASK_CREATE);
	next = make(&c);
	refused(next, ASK_ADOPT, -EBUSY, "in use");
	/* Whose locks are elsewhere can prove nothing. */
	snprintf(elsewhere, sizeof(elsewhere), "%s/else", dir);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	c.runtime = elsewhere;
	stranger = make(&c);
	refused(stranger, ASK_ADOPT, -EBUSY, "another program made");
	backend_free(stranger);
	/* Its maker is gone, with its locks. */
	forget(backend);
	adopted = place(next, ASK_ADOPT);
	assert_string_equal(adopted, url);
	refused(backend, ASK_DESTROY, -EBUSY, NULL);
	destroy(next);
	backend_free(next);
}

/* ---- alive, unknown ---- */

static void test_alive(void **state UNUSED)
{
	char *url CLEANUP_FREE = NULL;

	alive_is(backend, false);
	url = place(backend, ASK_CREATE);
	alive_is(backend, true);
	engine_kill(&engine, name());
	alive_is(backend, false);
	/* Another one of its name is not the one that was asked for; and is left alone. */
	engine_remove(&engine, name());
	engine_run(&engine, name(), 9001, NULL);
	alive_is(backend, false);
	{
		struct ask a;

		assert_int_equal(ask(&a, backend, ASK_DESTROY, id()), 0);
		ask_release(&a);
	}
	assert_true(engine_runs(&engine, name()));
	engine_remove(&engine, name());
}

static void test_an_engine_that_is_gone(void **state UNUSED)
{
	static const enum ask_kind kinds[] = { ASK_CREATE,   ASK_DESTROY, ASK_IS_ALIVE,
					       ASK_DISCOVER, ASK_ADOPT,   ASK_LIST_RUNNING };
	struct docker_config c = defaults();
	char *why CLEANUP_FREE = NULL;
	struct backend *b = NULL;

	free(place(backend, ASK_CREATE));
	engine_stop(&engine);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		refused(backend, kinds[i], -ECONNREFUSED, "the engine does not answer: ");
	assert_int_equal(backend_docker_new(loop, &c, &b, &why), -ECONNREFUSED);
	has(why, "the engine does not listen at /");
	engine_start(&engine);
	alive_is(backend, true); /* containers outlive it */
	destroy(backend);
}

/* ---- stop ---- */

static void test_stop(void **state UNUSED)
{
	static const char deaf[] =
		"[\"/bin/bash\",\"-c\",\"trap '' TERM; while :; do sleep 1; done\"]";
	struct docker_config c = defaults();
	struct backend *b;
	int64_t began;

	destroy(backend); /* also when there is none */
	c.stop_timeout_s = 1;
	b = make(&c);
	engine_run(&engine, name(), 9001, deaf);
	began = clock_ms();
	destroy(b); /* it is killed then */
	assert_true(clock_ms() - began >= 1000);
	backend_free(b);
}

/* A stop that does not end is an error, in time, and no success. */
static void test_a_stop_that_hangs(void **state UNUSED)
{
	struct docker_config c = defaults();
	char *url CLEANUP_FREE = NULL;
	struct backend *b;
	int64_t began;

	c.stop_timeout_s = 1;
	b = make(&c);
	url = place(b, ASK_CREATE);
	assert_int_equal(kill(engine.pid, SIGSTOP), 0);
	began = clock_ms();
	refused(b, ASK_DESTROY, -ETIMEDOUT, "did not stop container");
	assert_true(clock_ms() - began < 15000);
	/* Nor is it called dead or gone meanwhile. */
	refused(b, ASK_IS_ALIVE, -ETIMEDOUT, "does not answer");
	refused(b, ASK_DISCOVER, -ETIMEDOUT, "does not answer");
	assert_int_equal(kill(engine.pid, SIGCONT), 0);
	destroy(b);
	backend_free(b);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_create),
		TEST(test_create_without_directories_of_the_thread),
		TEST(test_create_on_a_network),
		TEST(test_links_are_not_bound),
		TEST(test_a_name_that_is_taken),
		TEST(test_a_port_that_is_taken),
		TEST(test_an_image_that_is_missing),
		TEST(test_what_cannot_be_started_is_removed),
		TEST(test_discover),
		TEST(test_discover_by_older_ids),
		TEST(test_list),
		TEST(test_adopt),
		TEST(test_alive),
		TEST(test_an_engine_that_is_gone),
		TEST(test_stop),
		TEST(test_a_stop_that_hangs),
	};
	int failed;

	if (loop_new(&loop) < 0 || !engine_open(&engine, loop)) {
		fputs("to be run by tests/lib/engine.sh run\n", stderr);
		return 2;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	engine_close(&engine);
	loop_free(loop);
	return failed;
}

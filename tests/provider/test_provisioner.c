/*
 * provider/backend_provisioner.c against a server of the provisioner's API with
 * real sandboxes behind it: every route, status and auth case, and what a dead
 * pod, a dead provisioner and nonsense are taken for.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "backend_provisioner.h"
#include "clock.h"
#include "fixture.h"
#include "ident.h"
#include "provider.h"
#include "provisioner.h"
#include "request.h"

static struct loop *loop;
static struct provisioner_server server;
static struct backend *backend;

static struct backend *make(const struct provisioner_config *config)
{
	struct backend *b = NULL;
	const char *why = NULL;

	if (backend_provisioner_new(loop, config, &b, &why) < 0)
		fail_msg("%s", why);
	return b;
}

static int setup(void **state UNUSED)
{
	assert_int_equal(loop_new(&loop), 0);
	provisioner_server_start(&server, loop, PROVISIONER_KEY);
	backend =
		make(&(struct provisioner_config){ .url = server.url, .api_key = PROVISIONER_KEY });
	return 0;
}

static int teardown(void **state UNUSED)
{
	backend_free(backend);
	provisioner_server_stop(&server);
	loop_free(loop);
	return 0;
}

static const char *id(void)
{
	static char made[SANDBOX_ID_LEN + 1];

	ident_make("u", "t", made);
	return made;
}

static int ask_id(struct ask *a, enum ask_kind kind)
{
	return ask(a, backend, kind, id());
}

/* Its answer is only this error, and these words are in it. */
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

static void alive_is(bool alive)
{
	struct ask a;

	assert_int_equal(ask_id(&a, ASK_IS_ALIVE), 0);
	assert_int_equal(a.op.alive, alive);
	ask_release(&a);
}

static struct sandbox *open_sandbox(const char *url)
{
	struct sandbox *sb = NULL;

	assert_int_equal(sandbox_new(loop, &(struct sandbox_config){ .url = url }, &sb, NULL), 0);
	return sb;
}

/* Waits until the sandbox answers and its pod is called Running. */
static void await(const char *url)
{
	struct sandbox *sb = open_sandbox(url);
	struct call c;
	int r;

	call_init(&c, 30000);
	sandbox_wait_ready(sb, &c, 5000, 20);
	r = call_wait(&c);
	call_release(&c);
	sandbox_unref(sb);
	assert_int_equal(r, 0);
	for (int64_t end = clock_ms() + 10000;;) {
		struct ask a;

		r = ask_id(&a, ASK_IS_ALIVE);
		ask_release(&a);
		if (r == 0)
			return;
		assert_int_equal(r, -EAGAIN);
		assert_true(clock_ms() < end);
	}
}

static char *create(void)
{
	struct ask a;
	char *url;

	assert_int_equal(ask_id(&a, ASK_CREATE), 0);
	assert_string_equal(a.op.place.id, id());
	assert_null(a.op.place.socket);
	assert_null(a.op.place.root);
	url = STEAL(a.op.place.url);
	ask_release(&a);
	return url;
}

static bool was_asked(const char *words)
{
	char *all CLEANUP_FREE = provisioner_server_requests(&server);

	return strstr(all, words);
}

/* ---- create ---- */

static void test_create(void **state UNUSED)
{
	char *url CLEANUP_FREE = create();
	char *again CLEANUP_FREE = NULL;
	char want[200];

	await(url);
	snprintf(want, sizeof(want),
		 "{\\\"sandbox_id\\\":\\\"%s\\\",\\\"thread_id\\\":\\\"t\\\","
		 "\\\"user_id\\\":\\\"u\\\"}",
		 id());
	assert_true(was_asked(want));
	assert_true(was_asked("\"key\": \"" PROVISIONER_KEY "\""));
	/* It is idempotent: who comes second gets the first one's. */
	again = create();
	assert_string_equal(url, again);
}

static void test_create_forwards_the_mounts_that_a_provisioner_knows(void **state UNUSED)
{
	const struct provisioner_mount mounts[] = {
		{ "/.deer-flow/acp", "/mnt/acp-workspace", true },
		{ "/home/me/project", "/mnt/project", false },
		{ "/.deer-flow/skills", "/mnt/skills/custom", false },
	};
	struct backend *b = make(&(struct provisioner_config){ .url = server.url,
							       .api_key = PROVISIONER_KEY,
							       .mounts = mounts,
							       .nmounts = ARRAY_SIZE(mounts) });
	struct ask a;

	assert_int_equal(ask(&a, b, ASK_CREATE, id()), 0);
	ask_release(&a);
	backend_free(b);
	assert_true(was_asked("\\\"extra_mounts\\\":["
			      "{\\\"host_path\\\":\\\"/.deer-flow/acp\\\","
			      "\\\"container_path\\\":\\\"/mnt/acp-workspace\\\","
			      "\\\"read_only\\\":true},"
			      "{\\\"host_path\\\":\\\"/.deer-flow/skills\\\","
			      "\\\"container_path\\\":\\\"/mnt/skills/custom\\\","
			      "\\\"read_only\\\":false}]"));
	assert_false(was_asked("/home/me/project"));
}

static void test_create_fails(void **state UNUSED)
{
	const struct provisioner_mount outside = { "/etc", "/mnt/skills/custom", false };
	struct backend *b = make(&(struct provisioner_config){
		.url = server.url, .api_key = PROVISIONER_KEY, .mounts = &outside, .nmounts = 1 });
	struct ask a;

	refused(b, ASK_CREATE, -EINVAL, "outside DeerFlow state: /etc (HTTP 400)");
	backend_free(b);
	ask_start(&a, backend, ASK_CREATE,
		  &(struct whom){ .id = "0123", .user = "a user", .thread = "t" });
	assert_true(ask_wait(&a, 60000));
	assert_int_equal(a.op.error, -EINVAL);
	assert_non_null(strstr(a.op.why, "user_id")); /* 422 names the field */
	ask_release(&a);
	provisioner_server_say(&server, "POST", 500, "{\"detail\":\"Pod creation failed: x\"}");
	refused(backend, ASK_CREATE, -EIO, "Pod creation failed: x (HTTP 500)");
	provisioner_server_say(&server, "POST", 404, "{\"detail\":\"Not Found\"}");
	refused(backend, ASK_CREATE, -EPROTO, "there is no provisioner");
}

static void test_create_replaces_the_remains_of_a_dead_pod(void **state UNUSED)
{
	static const char *const ways[] = { "Failed", "delete" };

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		char *url CLEANUP_FREE = create();
		char *again CLEANUP_FREE = NULL;

		await(url);
		provisioner_server_order(&server, id(), ways[i]);
		alive_is(false);
		refused(backend, ASK_DISCOVER, -ENOENT, "remains");
		again = create();
		await(again);
		alive_is(true);
	}
	/* One that dies at once is not replaced for ever. */
	provisioner_server_order(&server, id(), "Failed");
	for (int i = 0; i < 2; i++)
		provisioner_server_say(&server, "DELETE", 200, "{\"ok\":true}");
	refused(backend, ASK_CREATE, -EIO, "died at once");
}

/* ---- is it alive? ---- */

static void test_alive_only_when_running(void **state UNUSED)
{
	char *url CLEANUP_FREE = NULL;

	alive_is(false); /* 404 */
	url = create();
	await(url);
	alive_is(true);
	/* Coming is neither. */
	provisioner_server_order(&server, id(), "Pending");
	refused(backend, ASK_IS_ALIVE, -EAGAIN, "being started");
	/* The pod's state cannot be read, but the sandbox answers. */
	provisioner_server_order(&server, id(), "NotFound");
	alive_is(true);
	provisioner_server_order(&server, id(), "Unknown");
	alive_is(true);
	provisioner_server_order(&server, id(), "Succeeded");
	alive_is(false);
}

static void test_what_is_not_known_is_not_dead(void **state UNUSED)
{
	char *url CLEANUP_FREE = create();
	struct ask a;

	await(url);
	provisioner_server_say(&server, "GET", 500, "{\"detail\":\"etcd is tired\"}");
	refused(backend, ASK_IS_ALIVE, -EIO, "etcd is tired (HTTP 500)");
	/* Not a provisioner's 404, but that of whoever stands in its place. */
	provisioner_server_say(&server, "GET", 404, "<h1>404</h1>");
	refused(backend, ASK_IS_ALIVE, -EPROTO, "there is no provisioner");
	provisioner_server_say(&server, "GET", 404, "{\"detail\":\"Not Found\"}");
	refused(backend, ASK_IS_ALIVE, -EPROTO, "there is no provisioner");
	provisioner_server_say(&server, "GET", 200, "{\"status\":\"Running\"}");
	refused(backend, ASK_IS_ALIVE, -EBADMSG, "another sandbox");
	provisioner_server_say(&server, "GET", 200, "");
	refused(backend, ASK_IS_ALIVE, -EBADMSG, "not JSON");
	/* It hangs. */
	provisioner_server_delay(&server, "GET", 1);
	ask_start(&a, backend, ASK_IS_ALIVE, &(struct whom){ .id = id() });
	ask_cancel(&a);
	assert_true(ask_wait(&a, 60000));
	assert_int_equal(a.op.error, -ECANCELED);
	ask_release(&a);
	alive_is(true);
}

static void test_a_provisioner_that_is_gone(void **state UNUSED)
{
	static const enum ask_kind kinds[] = { ASK_CREATE, ASK_DESTROY, ASK_IS_ALIVE, ASK_DISCOVER,
					       ASK_LIST_RUNNING };

	provisioner_server_stop(&server);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		refused(backend, kinds[i], -ECONNREFUSED, "the provisioner does not answer: ");
	provisioner_server_start(&server, loop, PROVISIONER_KEY);
}

/* ---- discover, list, destroy ---- */

static void test_discover(void **state UNUSED)
{
	char *url CLEANUP_FREE = NULL;
	struct ask a;

	refused(backend, ASK_DISCOVER, -ENOENT, "knows no sandbox");
	url = create();
	assert_int_equal(ask_id(&a, ASK_DISCOVER), 0);
	assert_string_equal(a.op.place.url, url);
	assert_string_equal(a.op.place.id, id());
	assert_null(a.op.place.user); /* it does not say whose it is */
	ask_release(&a);
	provisioner_server_say(&server, "GET", 500, "{}");
	refused(backend, ASK_DISCOVER, -EIO, NULL);
	provisioner_server_say(
		&server, "GET", 200,
		"{\"sandbox_id\":\"0123456789abcdef\",\"sandbox_url\":\"http://h\"}");
	refused(backend, ASK_DISCOVER, -EBADMSG, "another sandbox");
}

static void test_list(void **state UNUSED)
{
	char *url CLEANUP_FREE = NULL;
	struct ask a;

	assert_int_equal(ask_id(&a, ASK_LIST_RUNNING), 0);
	assert_int_equal(a.op.nplaces, 0);
	ask_release(&a);
	url = create();
	assert_int_equal(ask_id(&a, ASK_LIST_RUNNING), 0);
	assert_int_equal(a.op.nplaces, 1);
	assert_string_equal(a.op.places[0].id, id());
	assert_string_equal(a.op.places[0].url, url);
	ask_release(&a);
}

static void test_a_list_with_nonsense_in_it(void **state UNUSED)
{
	static const char *const bad[] = { "[]", "{\"sandboxes\":{}}", "{\"count\":0}", "no JSON" };
	struct ask a;

	provisioner_server_say(
		&server, "GET", 200,
		"{\"sandboxes\":[7,null,\"x\",{},{\"sandbox_id\":\"a\"},"
		"{\"sandbox_id\":\"\",\"sandbox_url\":\"http://h:1\"},"
		"{\"sandbox_id\":\"b\",\"sandbox_url\":7},"
		"{\"sandbox_id\":\"c\",\"sandbox_url\":\"file:///etc/passwd\"},"
		"{\"sandbox_id\":\"e\",\"sandbox_url\":\"http://169.254.169.254\"},"
		"{\"sandbox_id\":\"f\",\"sandbox_url\":\"http://[fe80::1]:80\"},"
		"{\"sandbox_id\":\"g\",\"sandbox_url\":\"http://u:p@h/\"},"
		"{\"sandbox_id\":\"longer-than-any-of-ours\",\"sandbox_url\":\"http://h:1\"},"
		"{\"sandbox_id\":\"d\",\"sandbox_url\":"
		"\"http://sandbox-d-svc.deer-flow.svc.cluster.local:8080\"}],\"count\":10}");
	assert_int_equal(ask_id(&a, ASK_LIST_RUNNING), 0);
	assert_int_equal(a.op.nplaces, 1);
	assert_string_equal(a.op.places[0].id, "d");
	assert_string_equal(a.op.places[0].url,
			    "http://sandbox-d-svc.deer-flow.svc.cluster.local:8080");
	ask_release(&a);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		provisioner_server_say(&server, "GET", 200, bad[i]);
		refused(backend, ASK_LIST_RUNNING, -EBADMSG, "makes no sense");
	}
	provisioner_server_say(&server, "GET", 500, "{\"detail\":\"Failed to list services: x\"}");
	refused(backend, ASK_LIST_RUNNING, -EIO, "Failed to list services");
}

static void test_destroy(void **state UNUSED)
{
	char *url CLEANUP_FREE = create();
	struct ask a;

	await(url);
	provisioner_server_say(&server, "DELETE", 500, "{\"detail\":\"Partial cleanup: pod: x\"}");
	refused(backend, ASK_DESTROY, -EIO, "Partial cleanup: pod: x");
	alive_is(true);
	for (int i = 0; i < 2; i++) { /* also when it is gone already */
		assert_int_equal(ask_id(&a, ASK_DESTROY), 0);
		ask_release(&a);
	}
	alive_is(false);
}

/* ---- keys, proxies, addresses ---- */

static void test_keys(void **state UNUSED)
{
	struct backend *wrong =
		make(&(struct provisioner_config){ .url = server.url, .api_key = "another" });
	struct backend *none = make(&(struct provisioner_config){ .url = server.url });

	for (enum ask_kind k = 0; k < ASK_KINDS; k++) {
		if (k == ASK_ADOPT)
			continue;
		refused(wrong, k, -EACCES, "refuses the API key");
		refused(none, k, -EACCES, "wants an API key");
	}
	backend_free(wrong);
	backend_free(none);
	assert_null(backend->ops->adopt); /* nobody can tell who made one */
	/* Whose administrator gave it none. */
	provisioner_server_stop(&server);
	provisioner_server_start(&server, loop, NULL);
	wrong = make(&(struct provisioner_config){ .url = server.url, .api_key = PROVISIONER_KEY });
	refused(wrong, ASK_DISCOVER, -EACCES, "refuses the API key");
	backend_free(wrong);
}

static void test_a_key_that_is_repeated_is_not_passed_on(void **state UNUSED)
{
	struct ask a;

	provisioner_server_say(&server, "GET", 500,
			       "{\"detail\":\"not the key " PROVISIONER_KEY "\\u001b[2J\"}");
	assert_int_equal(ask_id(&a, ASK_LIST_RUNNING), -EIO);
	assert_non_null(strstr(a.op.why, "not the key ***"));
	assert_null(strstr(a.op.why, PROVISIONER_KEY));
	assert_null(strchr(a.op.why, 27));
	ask_release(&a);
}

static void test_no_proxy_is_asked(void **state UNUSED)
{
	char *url CLEANUP_FREE = NULL;

	setenv("http_proxy", "http://127.0.0.1:9", 1);
	setenv("all_proxy", "http://127.0.0.1:9", 1);
	url = create();
	unsetenv("http_proxy");
	unsetenv("all_proxy");
	assert_non_null(url);
}

static void test_bad_addresses(void **state UNUSED)
{
	static const char *const bad[] = { "", "provisioner:8002", "ftp://h", "http://u:p@h" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct provisioner_config c = { .url = bad[i] };
		struct backend *b = NULL;
		const char *why = NULL;

		assert_int_equal(backend_provisioner_new(loop, &c, &b, &why), -EINVAL);
		assert_non_null(why);
		assert_null(b);
	}
}

/* ---- under a provider ---- */

static int acquire(struct tenant *t)
{
	struct errand e = { 0 };
	int r;

	call_init(&e.call, 60000);
	tenant_acquire(t, &e);
	r = call_wait(&e.call);
	call_release(&e.call);
	return r;
}

static struct provider *start_provider(const char *data)
{
	struct provider_config c = {
		.loop = loop,
		.data = data,
		.backend = make(&(struct provisioner_config){ .url = server.url,
							      .api_key = PROVISIONER_KEY }),
	};
	struct provider *p = NULL;

	assert_int_equal(provider_new(&c, &p, NULL), 0);
	return p;
}

static struct tenant *acquired(struct provider *p, const char *user, const char *thread)
{
	struct tenant *t = NULL;

	assert_int_equal(tenant_get(p, user, thread, &t), 0);
	assert_int_equal(acquire(t), 0);
	return t;
}

/* Two hosts: who found a sandbox leaves it running, who made it does not. */
static void test_two_providers_share_a_sandbox(void **state UNUSED)
{
	char a_dir[SCRATCH_MAX], b_dir[SCRATCH_MAX];
	struct provider *a, *b;
	struct tenant *at, *bt;
	struct sandbox *sb;
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	assert_true(scratch_dir(a_dir) && scratch_dir(b_dir));
	a = start_provider(a_dir);
	b = start_provider(b_dir);
	at = acquired(a, "u", "t");
	sb = tenant_sandbox(at);
	assert_non_null(sb);
	assert_int_equal(SYNC(sb, sandbox_write_file, "/mnt/user-data/f", "hello", 5), 0);
	sandbox_put(sb);
	bt = acquired(b, "u", "t");
	sb = tenant_sandbox(bt);
	assert_non_null(sb);
	assert_int_equal(SYNC(sb, sandbox_read_file, "/mnt/user-data/f", 0, 0, &text), 0);
	assert_string_equal(text.data, "hello");
	sandbox_put(sb);
	tenant_put(bt);
	provider_free(b);
	alive_is(true);
	tenant_put(at);
	provider_free(a);
	alive_is(false);
	assert_true(scratch_remove(a_dir) && scratch_remove(b_dir));
}

/* While the provisioner cannot answer, what runs goes on. */
static void test_unknown_evicts_nothing(void **state UNUSED)
{
	char dir[SCRATCH_MAX], lock_file[SCRATCH_MAX + 64];
	struct provider *p;
	struct tenant_status s;
	struct tenant *t;
	struct sandbox *sb;

	assert_true(scratch_dir(dir));
	p = start_provider(dir);
	t = acquired(p, "u", "t");
	/* deer-flow's lock, which others may be waiting for: it is never removed */
	snprintf(lock_file, sizeof(lock_file), "%s/users/u/threads/t/%s.lock", dir, id());
	assert_int_equal(access(lock_file, F_OK), 0);
	sb = tenant_sandbox(t);
	assert_true(tenant_report(t, sb, -ECONNRESET)); /* somebody calls it dead */
	provisioner_server_say(&server, "GET", 500, "{\"detail\":\"x\"}");
	assert_int_equal(acquire(t), 0);
	assert_int_equal(SYNC(sb, sandbox_ping), 0);
	sandbox_put(sb);
	assert_int_equal(tenant_status(t, &s), 0);
	assert_int_equal(s.starts, 1);
	assert_int_equal(s.restarts, 0);
	tenant_status_release(&s);
	tenant_put(t);
	provider_free(p);
	assert_true(scratch_remove(dir));
}

static void test_a_dead_pod_is_replaced(void **state UNUSED)
{
	char dir[SCRATCH_MAX];
	struct provider *p;
	struct tenant_status s;
	struct tenant *t;
	struct sandbox *sb;

	assert_true(scratch_dir(dir));
	p = start_provider(dir);
	t = acquired(p, "u", "t");
	provisioner_server_order(&server, id(), "delete");
	sb = tenant_sandbox(t);
	assert_true(tenant_report(t, sb, -ECONNREFUSED));
	sandbox_put(sb);
	assert_int_equal(acquire(t), 0);
	assert_int_equal(tenant_status(t, &s), 0);
	assert_int_equal(s.restarts, 1);
	tenant_status_release(&s);
	sb = tenant_sandbox(t);
	assert_int_equal(SYNC(sb, sandbox_ping), 0);
	sandbox_put(sb);
	tenant_put(t);
	provider_free(p);
	assert_true(scratch_remove(dir));
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_create),
		TEST(test_create_forwards_the_mounts_that_a_provisioner_knows),
		TEST(test_create_fails),
		TEST(test_create_replaces_the_remains_of_a_dead_pod),
		TEST(test_alive_only_when_running),
		TEST(test_what_is_not_known_is_not_dead),
		TEST(test_a_provisioner_that_is_gone),
		TEST(test_discover),
		TEST(test_list),
		TEST(test_a_list_with_nonsense_in_it),
		TEST(test_destroy),
		TEST(test_keys),
		TEST(test_a_key_that_is_repeated_is_not_passed_on),
		TEST(test_no_proxy_is_asked),
		TEST(test_bad_addresses),
		TEST(test_two_providers_share_a_sandbox),
		TEST(test_unknown_evicts_nothing),
		TEST(test_a_dead_pod_is_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

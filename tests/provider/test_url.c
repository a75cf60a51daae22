/* provider/backend_url.c against the real server: found, never made or stopped. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ask.h"
#include "backend_url.h"
#include "clock.h"
#include "every.h"
#include "fixture.h"
#include "ident.h"

static const char *id(void)
{
	static char made[SANDBOX_ID_LEN + 1];

	ident_make("u", "t", made);
	return made;
}

static struct backend *make(struct loop *loop, const struct sandbox_config *sandbox)
{
	struct url_config config = { .sandbox = *sandbox, .user = "u", .thread = "t", .id = id() };
	struct backend *b = NULL;

	assert_int_equal(backend_url_new(loop, &config, &b, NULL), 0);
	return b;
}

static struct backend *through_rogue(const struct fixture *f, const char *root)
{
	return make(f->loop,
		    &(struct sandbox_config){ .socket = rogue_socket(f->rogue), .root = root });
}

/* What the client itself says about this server. */
static int ping(struct loop *loop, const struct sandbox_config *config)
{
	struct sandbox *sb = NULL;
	int r;

	assert_int_equal(sandbox_new(loop, config, &sb, NULL), 0);
	r = SYNC(sb, sandbox_ping);
	sandbox_unref(sb);
	return r;
}

static bool says(const struct ask *a, const char *words)
{
	return a->op.why && strstr(a->op.why, words);
}

/* ---- discover ---- */

static void test_discover_finds_user_data(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	struct ask a;

	assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), 0);
	/* the client has gone before the answer: only the proxy's end may take a moment */
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
	assert_string_equal(a.op.place.id, id());
	assert_string_equal(a.op.place.socket, rogue_socket(f->rogue));
	assert_null(a.op.place.url);
	assert_string_equal(a.op.place.root, "/mnt/user-data");
	assert_string_equal(a.op.place.user, "u");
	assert_string_equal(a.op.place.thread, "t");
	assert_null(a.op.why);
	ask_release(&a);
	assert_true(rogue_wait_connections(f->rogue, 0, 20000));
	backend_free(b);
}

static void test_a_given_root_is_kept(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, "//srv/./files/");
	struct ask a;

	assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), 0);
	assert_string_equal(a.op.place.root, "/srv/files");
	ask_release(&a);
	backend_free(b);
}

static void test_by_url_and_with_a_key(void **state)
{
	struct fixture *f = *state;
	struct daemon *d = daemon_start(&(struct daemon_options){
		.dialect = f->dialect, .tcp = true, .api_key = "the key" });
	struct sandbox_config config = { .url = daemon_url(d), .api_key = "the key" };
	struct backend *b;
	struct ask a;

	assert_non_null(d);
	b = make(f->loop, &config);
	assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), 0);
	assert_string_equal(a.op.place.url, daemon_url(d));
	assert_null(a.op.place.socket);
	assert_string_equal(a.op.place.root, "/mnt/user-data");
	ask_release(&a);
	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), 0);
	assert_true(a.op.alive);
	ask_release(&a);
	backend_free(b);

	config.api_key = "another";
	b = make(f->loop, &config);
	assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), -EACCES);
	ask_release(&a);
	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), -EACCES);
	assert_false(a.op.alive);
	ask_release(&a);
	assert_int_equal(count_sockets_to(daemon_url(d)), 0);
	backend_free(b);
	assert_int_equal(daemon_stop(d), 0);
}

/* A server whose commands see this machine, which has no /mnt/user-data. */
static void test_without_user_data_it_is_the_home_directory(void **state)
{
	static const struct {
		const char *body, *root;
	} rows[] = {
		{ "{\"success\":true,\"home_dir\":\"/home/gem/\",\"version\":\"1\"}", "/home/gem" },
		{ "{\"success\":true,\"home_dir\":\"home/gem\",\"version\":\"1\"}", "/" },
		{ "{\"success\":true,\"home_dir\":\"/home/../etc\",\"version\":\"1\"}", "/" },
		{ "{\"success\":true,\"home_dir\":\"\",\"version\":\"1\"}", "/" },
		{ "{\"success\":true,\"version\":\"1\"}", "/" },
	};
	struct fixture *f = *state;
	struct daemon *d;
	struct rogue *rogue;
	struct backend *b;
	struct stat st;
	struct ask a;

	if (stat("/mnt/user-data", &st) == 0) {
		print_message("skipped: this machine has a /mnt/user-data\n");
		skip();
	}
	d = daemon_start(&(struct daemon_options){ .dialect = f->dialect, .isolation = "none" });
	assert_non_null(d);
	rogue = rogue_new(daemon_socket(d), false);
	assert_non_null(rogue);
	b = make(f->loop, &(struct sandbox_config){ .socket = rogue_socket(rogue) });
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rogue_clear(rogue);
		rogue_answer(rogue, "GET", "/v1/sandbox$", 200, rows[i].body);
		assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), 0);
		assert_string_equal(a.op.place.root, rows[i].root);
		ask_release(&a);
	}
	backend_free(b);
	rogue_free(rogue);
	assert_int_equal(daemon_stop(d), 0);
}

static void test_other_threads_are_not_there(void **state)
{
	static const char *const others[] = { "0123456789abcdef", "", "x" };
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	struct ask a;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(ask(&a, b, ASK_DISCOVER, others[i]), -ENOENT);
		assert_true(says(&a, "this mount shows one sandbox, the thread t"));
		ask_release(&a);
		assert_int_equal(ask(&a, b, ASK_IS_ALIVE, others[i]), -ENOENT);
		ask_release(&a);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
	backend_free(b);
}

/* Not -ENOENT, which would let the provider try to make one. */
static void test_an_unreachable_server_is_said(void **state)
{
	struct fixture *f = *state;
	struct sandbox_config config = { .socket = fixture_host_path(f, "nobody") };
	struct backend *b = make(f->loop, &config);
	int expected = ping(f->loop, &config);
	struct ask a;

	assert_int_not_equal(expected, 0);
	assert_int_not_equal(expected, -ENOENT);
	assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), expected);
	assert_non_null(a.op.why);
	ask_release(&a);
	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), expected);
	assert_false(a.op.alive);
	ask_release(&a);
	backend_free(b);
}

/* At each request of it in turn: a server that breaks off, one that has other worries. */
static void test_a_failing_server_is_said(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	size_t requests;
	struct ask a;
	int r;

	assert_int_equal(ask(&a, b, ASK_DISCOVER, id()), 0);
	ask_release(&a);
	requests = rogue_count(f->rogue, NULL, NULL);
	rogue_clear(f->rogue);
	ROGUE_ADD(f->rogue, .action = ROGUE_CLOSE);
	r = ask(&a, b, ASK_DISCOVER, id());
	assert_true(r < 0 && r != -ENOENT && r != -ETIME);
	ask_release(&a);
	rogue_clear(f->rogue);
	rogue_answer(f->rogue, NULL, "/v1/sandbox", 503, "{}");
	r = ask(&a, b, ASK_DISCOVER, id());
	assert_true(r < 0 && r != -ENOENT && r != -ETIME);
	ask_release(&a);
	for (unsigned i = 0; i < requests; i++) {
		rogue_clear(f->rogue);
		ROGUE_ADD(f->rogue, .skip = i, .action = ROGUE_CLOSE);
		r = ask(&a, b, ASK_DISCOVER, id());
		/* the last ones may be farewells, whose fate is not told */
		assert_true(r == 0 || (r != -ENOENT && r != -ETIME));
		assert_true(i > 0 || r < 0);
		if (r == 0)
			assert_string_equal(a.op.place.root, "/mnt/user-data");
		ask_release(&a);
	}
	backend_free(b);
}

/* ---- is_alive ---- */

static void test_alive_or_unknown_never_dead(void **state)
{
	struct fixture *f = *state;
	struct backend *b;
	struct ask a;

	fixture_own_daemon(f);
	b = make(f->loop, &(struct sandbox_config){ .socket = daemon_socket(f->daemon) });
	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), 0);
	assert_true(a.op.alive);
	assert_int_equal(count_sockets_to(daemon_socket(f->daemon)), 0);
	ask_release(&a);
	daemon_kill(f->daemon, SIGKILL);
	assert_true(ask(&a, b, ASK_IS_ALIVE, id()) < 0);
	assert_false(a.op.alive);
	assert_non_null(a.op.why);
	ask_release(&a);
	assert_true(daemon_restart(f->daemon));
	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), 0);
	assert_true(a.op.alive);
	ask_release(&a);
	backend_free(b);
}

static void test_alive_needs_a_200(void **state)
{
	static const int statuses[] = { 204, 301, 401, 404, 500, 502, 503 };
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	struct ask a;

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		rogue_clear(f->rogue);
		rogue_answer(f->rogue, NULL, "/v1/sandbox", statuses[i], "{}");
		assert_true(ask(&a, b, ASK_IS_ALIVE, id()) < 0);
		assert_false(a.op.alive);
		ask_release(&a);
	}
	backend_free(b);
}

static void test_alive_is_asked_for_five_seconds(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	int64_t begin = clock_ms(), took;
	struct ask a;

	ROGUE_ADD(f->rogue, .hold_ms = ROGUE_UNTIL_RELEASED);
	assert_int_equal(ask(&a, b, ASK_IS_ALIVE, id()), -ETIMEDOUT);
	took = clock_ms() - begin;
	assert_true(took >= 4900 && took < 10000 * slowness());
	ask_release(&a);
	rogue_release(f->rogue);
	backend_free(b);
}

/* ---- cancelling ---- */

static void test_cancelled_at_each_request(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	const struct whom whom = { .id = id() };
	unsigned i = 0, cancelled = 0;
	bool whole = false;
	struct ask a;

	for (; !whole && i < 30; i++) {
		rogue_clear(f->rogue);
		rogue_forget(f->rogue);
		/* one only: what the client says in farewell is answered */
		ROGUE_ADD(f->rogue, .skip = i, .times = 1, .hold_ms = ROGUE_UNTIL_RELEASED);
		ask_start(&a, b, ASK_DISCOVER, &whom);
		while (!ask_has_ended(&a) && rogue_count(f->rogue, NULL, NULL) <= i)
			usleep(1000);
		ask_cancel(&a);
		assert_true(ask_wait(&a, 10000));
		if (a.op.error)
			assert_int_equal(a.op.error, -ECANCELED);
		else
			whole = true;
		cancelled += a.op.error != 0;
		assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
		ask_release(&a);
		rogue_release(f->rogue);
		assert_true(rogue_wait_connections(f->rogue, 0, 20000));
	}
	assert_true(whole);
	assert_true(cancelled >= 2); /* the description and what follows */

	rogue_clear(f->rogue);
	ROGUE_ADD(f->rogue, .hold_ms = ROGUE_UNTIL_RELEASED);
	rogue_forget(f->rogue);
	ask_start(&a, b, ASK_IS_ALIVE, &whom);
	assert_true(rogue_wait_for(f->rogue, NULL, NULL, 1, 20000));
	ask_cancel(&a);
	assert_true(ask_wait(&a, 10000));
	assert_int_equal(a.op.error, -ECANCELED);
	ask_release(&a);
	rogue_release(f->rogue);
	backend_free(b);
}

static void test_cancelled_at_random(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	const struct whom whom = { .id = id() };
	unsigned seed = 7, ended[2] = { 0 };
	struct ask a;

	for (unsigned i = 0; i < 60; i++) {
		ask_start(&a, b, i % 4 ? ASK_DISCOVER : ASK_IS_ALIVE, &whom);
		if (i % 8)
			usleep((unsigned)rand_r(&seed) % 6000);
		ask_cancel(&a);
		assert_true(ask_wait(&a, 20000));
		assert_true(a.op.error == 0 || a.op.error == -ECANCELED);
		ended[a.op.error == 0]++;
		ask_release(&a);
	}
	print_message("%u cancelled, %u answered\n", ended[0], ended[1]);
	assert_true(ended[0] > 0);
	backend_free(b);
}

/* ---- the rest ---- */

static void test_nothing_is_made_or_stopped(void **state)
{
	struct fixture *f = *state;
	struct backend *b = through_rogue(f, NULL);
	struct ask a;

	assert_int_equal(ask(&a, b, ASK_CREATE, id()), -EPERM);
	assert_true(says(&a, "not made"));
	assert_null(a.op.place.socket);
	ask_release(&a);
	assert_int_equal(ask(&a, b, ASK_DESTROY, id()), -EOPNOTSUPP);
	assert_true(says(&a, "not ours to stop"));
	ask_release(&a);
	assert_null(b->ops->adopt);
	assert_null(b->ops->list_running);
	assert_false(b->ops->has_old_ids);
	assert_string_equal(b->ops->name, "url");
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
	backend_free(b);
}

static void test_bad_configurations_are_refused_with_words(void **state)
{
	static const struct sandbox_config rows[] = {
		{ 0 },
		{ .url = "ftp://h" },
		{ .url = "http://h", .root = "relative" },
		{ .url = "http://h", .root = "/a/../b" },
		{ .url = "http://h", .bearer = "a\nb" },
	};
	struct fixture *f = *state;
	struct backend *untouched = (struct backend *)&rows, *b = untouched;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct url_config config = {
			.sandbox = rows[i], .user = "u", .thread = "t", .id = id()
		};
		const char *why = NULL;

		assert_int_equal(backend_url_new(f->loop, &config, &b, &why), -EINVAL);
		assert_non_null(why);
		assert_ptr_equal(b, untouched);
	}
}

static void test_asking_often_keeps_nothing_open(void **state)
{
	struct fixture *f = *state;
	struct backend *b =
		make(f->loop, &(struct sandbox_config){ .socket = daemon_socket(f->daemon) });
	struct ask a;
	unsigned fds = 0;

	for (unsigned i = 0; i < 20; i++) {
		if (i == 2)
			fds = count_fds();
		assert_int_equal(ask(&a, b, i % 2 ? ASK_DISCOVER : ASK_IS_ALIVE, id()), 0);
		ask_release(&a);
	}
	assert_int_equal(count_fds(), fds);
	backend_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_discover_finds_user_data),
		FIXTURE_TEST(test_a_given_root_is_kept),
		FIXTURE_TEST(test_by_url_and_with_a_key),
		FIXTURE_TEST(test_without_user_data_it_is_the_home_directory),
		FIXTURE_TEST(test_other_threads_are_not_there),
		FIXTURE_TEST(test_an_unreachable_server_is_said),
		FIXTURE_TEST(test_a_failing_server_is_said),
		FIXTURE_TEST(test_alive_or_unknown_never_dead),
		FIXTURE_TEST(test_alive_needs_a_200),
		FIXTURE_TEST(test_alive_is_asked_for_five_seconds),
		FIXTURE_TEST(test_cancelled_at_each_request),
		FIXTURE_TEST(test_cancelled_at_random),
		FIXTURE_TEST(test_nothing_is_made_or_stopped),
		FIXTURE_TEST(test_bad_configurations_are_refused_with_words),
		FIXTURE_TEST(test_asking_often_keeps_nothing_open),
	};

	return FIXTURE_RUN(tests);
}

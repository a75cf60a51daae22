/*
 * A sandbox's life: made from good and bad configurations, closed in every way
 * there is, and what becomes of its connections meanwhile.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "direct.h"
#include "every.h"

enum {
	/* Farewells take half a second, or twice that; ten, if nobody waits for them. */
	CLOSE_MS = 8000,
	THREADS = 8,
};

/* An attempt of each kind on its own sandbox or on one. */
static struct attempt *attempts_new(const struct fixture *f, int64_t timeout_ms)
{
	struct attempt *v = calloc(every_op_len, sizeof(*v));

	assert_non_null(v);
	for (size_t i = 0; i < every_op_len; i++) {
		attempt_init(&v[i], &every_op[i], timeout_ms);
		attempt_prepare(&v[i], f);
	}
	return v;
}

static void attempts_free(struct attempt *v)
{
	for (size_t i = 0; i < every_op_len; i++)
		attempt_release(&v[i]);
	free(v);
}

static int ping(struct sandbox *sb)
{
	return SYNC(sb, sandbox_ping);
}

/* ---- configurations ---- */

static void test_bad_configurations_are_refused_with_words(void **state)
{
	static const struct {
		struct sandbox_config config;
		const char *word;
	} rows[] = {
		{ { 0 }, "URL" },
		{ { .url = "http://h", .socket = "/s" }, "URL" },
		{ { .url = "ftp://h/" }, "http" },
		{ { .url = "file:///etc/passwd" }, "http" },
		{ { .url = "h:8080" }, "http" },
		{ { .url = "" }, "http" },
		{ { .url = "http://" }, "host" },
		{ { .url = "http://user:pass@h/" }, "user" },
		{ { .url = "http://user@h/" }, "user" },
		{ { .url = "http://h/?ticket=1" }, "" },
		{ { .url = "http://h/#x" }, "" },
		{ { .url = "http://h\r\nX: y/" }, "" },
		{ { .url = "http://h", .bearer = "a\r\nX-Other: b" }, "key" },
		{ { .url = "http://h", .api_key = "a\nb" }, "key" },
		{ { .url = "http://h", .api_key = "a\x7f" }, "key" },
		{ { .url = "http://h", .root = "" }, "root" },
		{ { .url = "http://h", .root = "mnt" }, "root" },
		{ { .url = "http://h", .root = "/mnt/../etc" }, "root" },
		{ { .url = "http://h", .root = "/mnt/.." }, "root" },
	};
	struct fixture *f = *state;
	struct sandbox *untouched = (struct sandbox *)&rows, *sb = untouched;
	char long_path[200];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *why = NULL;

		assert_int_equal(sandbox_new(f->loop, &rows[i].config, &sb, &why), -EINVAL);
		assert_ptr_equal(sb, untouched);
		assert_non_null(why);
		if (!strstr(why, rows[i].word))
			fail_msg("row %zu: \"%s\" does not speak of \"%s\"", i, why, rows[i].word);
		/* The words are optional. */
		assert_int_equal(sandbox_new(f->loop, &rows[i].config, &sb, NULL), -EINVAL);
	}
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = 0;
	assert_int_equal(
		sandbox_new(f->loop, &(struct sandbox_config){ .socket = long_path }, &sb, NULL),
		-EINVAL);
}

static void test_nothing_is_sent_before_an_operation(void **state)
{
	struct fixture *f = *state;
	struct sandbox *sb = fixture_open(f, "/mnt/user-data");

	sandbox_unref(sb);
	sandbox_unref(NULL);
	assert_int_equal(rogue_connections_total(f->rogue), 0);
}

static void test_credentials_go_with_every_request(void **state)
{
	struct fixture *f = *state;
	static const struct {
		const char *bearer, *api_key, *authorization, *key;
	} rows[] = {
		{ "jwt.a.b", NULL, "Bearer jwt.a.b", NULL },
		{ NULL, "k", "Bearer k", "k" },
		{ "jwt", "k", "Bearer jwt", "k" },
		{ NULL, NULL, NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct sandbox_config config = {
			.socket = rogue_socket(f->rogue),
			.bearer = rows[i].bearer,
			.api_key = rows[i].api_key,
		};
		struct rogue_request q;
		struct sandbox *sb;
		char *sent;

		assert_int_equal(sandbox_new(f->loop, &config, &sb, NULL), 0);
		assert_int_equal(ping(sb), 0);
		assert_true(rogue_request(f->rogue, i, &q));
		sent = rogue_header(&q, "Authorization");
		if (rows[i].authorization)
			assert_string_equal(sent, rows[i].authorization);
		else
			assert_null(sent);
		free(sent);
		sent = rogue_header(&q, "X-AIO-API-Key");
		if (rows[i].key)
			assert_string_equal(sent, rows[i].key);
		else
			assert_null(sent);
		free(sent);
		rogue_request_release(&q);
		sandbox_unref(sb);
	}
}

/* ---- closing ---- */

static void test_close_is_idempotent(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(ping(f->sb), 0);
	for (int i = 0; i < 3; i++) {
		sandbox_close(f->sb);
		assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
	}
	assert_int_equal(ping(f->sb), -ENOTCONN);
}

static void *close_it(void *arg)
{
	sandbox_close(arg);
	return NULL;
}

/* Closes in several threads at once while everything is in flight; all calls end so. */
static void close_from_threads(struct fixture *f, struct sandbox *sb, unsigned n)
{
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, close_it, sb), 0);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
}

static void wait_all(struct attempt *v, int want)
{
	for (size_t i = 0; i < every_op_len; i++) {
		int r = call_wait(&v[i].call);

		if (r != want)
			fail_msg("%s: %d instead of %d", v[i].op->name, r, want);
		assert_null(attempt_judge(&v[i]));
	}
}

/* The requests are held by the server, so that each kind is truly under way. */
static void close_with_all_in_flight(struct fixture *f, unsigned threads)
{
	struct attempt *v = attempts_new(f, 0);
	int64_t start;

	rogue_add(f->rogue, &(struct rogue_rule){ .hold_ms = ROGUE_UNTIL_RELEASED });
	for (size_t i = 0; i < every_op_len; i++)
		attempt_start(&v[i], f->sb);
	assert_true(rogue_wait_for(f->rogue, NULL, NULL, 8, 10000));
	start = clock_ms();
	close_from_threads(f, f->sb, threads);
	assert_in_range(clock_ms() - start, 0, CLOSE_MS * slowness());
	wait_all(v, -ENOTCONN);
	attempts_free(v);
	rogue_clear(f->rogue);
}

static void test_close_ends_all_that_is_in_flight(void **state)
{
	close_with_all_in_flight(*state, 1);
}

static void test_close_from_eight_threads_at_once(void **state)
{
	close_with_all_in_flight(*state, THREADS);
}

/* No fault anywhere: a close that comes at any moment of a real conversation. */
static void test_close_at_any_moment(void **state)
{
	struct fixture *f = *state;

	for (int delay_ms = 0; delay_ms < 40; delay_ms += 4) {
		struct sandbox *sb = fixture_open(f, NULL);
		struct attempt *v = attempts_new(f, 30000);

		for (size_t i = 0; i < every_op_len; i++)
			attempt_start(&v[i], sb);
		usleep((useconds_t)delay_ms * 1000);
		sandbox_close(sb);
		assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
		for (size_t i = 0; i < every_op_len; i++) {
			/* In time, or not at all: never half of it. */
			if (call_wait(&v[i].call) != -ENOTCONN && v[i].call.error == -EIO)
				fail_msg("%s: %s", v[i].op->name, v[i].call.message);
			if (attempt_judge(&v[i]))
				fail_msg("%s: %s", v[i].op->name, attempt_judge(&v[i]));
		}
		attempts_free(v);
		sandbox_unref(sb);
	}
}

struct closing {
	struct call call;
	struct sandbox *sb;
	struct lock lock;
	pthread_cond_t cond;
	bool done;
	bool unref;
};

static void close_when_done(struct call *call)
{
	struct closing *c = call->ctx;

	if (c->unref)
		sandbox_unref(c->sb);
	else
		sandbox_close(c->sb);
	lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->cond);
	unlock(&c->lock);
}

static void close_on_loop(struct fixture *f, bool unref)
{
	struct closing c = { .sb = fixture_open(f, NULL), .unref = unref };
	struct attempt *v = attempts_new(f, 0);

	lock_init(&c.lock);
	pthread_cond_init(&c.cond, NULL);
	call_init(&c.call, 30000);
	c.call.done = close_when_done;
	c.call.ctx = &c;
	for (size_t i = 0; i < every_op_len; i++)
		attempt_start(&v[i], c.sb);
	sandbox_ping(c.sb, &c.call);
	lock(&c.lock);
	while (!c.done)
		pthread_cond_wait(&c.cond, &c.lock.mutex);
	unlock(&c.lock);
	for (size_t i = 0; i < every_op_len; i++)
		assert_true(call_wait(&v[i].call) <= 0);
	attempts_free(v);
	if (!unref) {
		/* Now it waits for what the other only began. */
		sandbox_close(c.sb);
		assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
		assert_int_equal(ping(c.sb), -ENOTCONN);
		sandbox_unref(c.sb);
	}
	assert_true(rogue_wait_connections(f->rogue, 0, 10000));
	call_release(&c.call);
	pthread_cond_destroy(&c.cond);
	lock_destroy(&c.lock);
}

static void test_close_from_a_callback_on_the_loop(void **state)
{
	close_on_loop(*state, false);
}

static void test_last_reference_given_up_on_the_loop(void **state)
{
	close_on_loop(*state, true);
}

static void test_use_after_close_fails_without_a_request(void **state)
{
	struct fixture *f = *state;
	struct attempt *v = attempts_new(f, 30000);
	struct call cancelled;

	assert_int_equal(ping(f->sb), 0);
	sandbox_close(f->sb);
	rogue_forget(f->rogue);
	for (size_t i = 0; i < every_op_len; i++)
		attempt_start(&v[i], f->sb);
	wait_all(v, -ENOTCONN);
	attempts_free(v);
	/* A path outside of the view makes no difference. */
	assert_int_equal(SYNC(f->sb, sandbox_rmdir, "/etc"), -ENOTCONN);
	call_init(&cancelled, 1000);
	sandbox_go_on(f->sb, &cancelled);
	call_cancel(&cancelled);
	sandbox_ping(f->sb, &cancelled);
	assert_int_equal(call_wait(&cancelled), -ECANCELED);
	call_release(&cancelled);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
}

/* The same after requests of every kind, so that there are sessions and watchers to delete. */
static void use_all(struct fixture *f, struct sandbox *sb)
{
	struct attempt *v = attempts_new(f, 30000);

	for (size_t i = 0; i < every_op_len; i++) {
		attempt_start(&v[i], sb);
		if (v[i].op->flags & EVERY_ENDLESS) {
			(void)!rogue_wait_for(f->rogue, "GET", "/v1/file/watch/", 1, 2000);
			call_cancel(&v[i].call);
		}
		(void)!call_wait(&v[i].call);
	}
	attempts_free(v);
}

static void test_close_of_a_dead_server_returns(void **state)
{
	struct fixture *f = *state;
	int64_t start;

	use_all(f, f->sb);
	rogue_stop_listening(f->rogue);
	rogue_close_connections(f->rogue, false);
	start = clock_ms();
	sandbox_close(f->sb);
	assert_in_range(clock_ms() - start, 0, CLOSE_MS * slowness());
	rogue_listen(f->rogue);
}

static void test_close_of_a_stalling_server_returns(void **state)
{
	struct fixture *f = *state;
	int64_t start;

	use_all(f, f->sb);
	rogue_add(f->rogue, &(struct rogue_rule){ .hold_ms = ROGUE_UNTIL_RELEASED });
	start = clock_ms();
	sandbox_close(f->sb);
	assert_in_range(clock_ms() - start, 0, CLOSE_MS * slowness());
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
}

static bool is_something_left(struct fixture *f)
{
	return direct_has(f, "/v1/shell/sessions", "threadfs") ||
	       (f->has_bash && direct_has(f, "/v1/file/watch", "watcher_id"));
}

/* What we made on the server goes with us. */
static void test_close_leaves_no_session_and_no_watcher(void **state)
{
	struct fixture *f = *state;
	struct sandbox *sb;

	fixture_own_daemon(f);
	sb = fixture_open(f, NULL);
	use_all(f, sb);
	assert_true(rogue_count(f->rogue, "POST", "/v1/shell/sessions/create") > 0);
	CLOSE_UNTIL(sb, !is_something_left(f));
	sandbox_unref(sb);
}

static void test_no_socket_is_left_over_tcp(void **state)
{
	struct fixture *f = *state;
	struct rogue *r = rogue_new(daemon_socket(f->daemon), true);
	const struct sandbox_config config = { .url = rogue_url(r) };
	struct attempt *v = attempts_new(f, 30000);
	struct sandbox *sb;

	assert_int_equal(sandbox_new(f->loop, &config, &sb, NULL), 0);
	assert_int_equal(ping(sb), 0);
	assert_int_equal(count_sockets_to(rogue_url(r)), 1);
	for (size_t i = 0; i < every_op_len; i++)
		attempt_start(&v[i], sb);
	sandbox_close(sb);
	assert_int_equal(count_sockets_to(rogue_url(r)), 0);
	for (size_t i = 0; i < every_op_len; i++)
		(void)!call_wait(&v[i].call);
	attempts_free(v);
	sandbox_unref(sb);
	assert_true(rogue_wait_connections(r, 0, 10000));
	rogue_free(r);
}

static void test_closing_one_does_not_touch_another(void **state)
{
	struct fixture *f = *state;
	struct sandbox *other = fixture_open(f, NULL);

	assert_int_equal(ping(f->sb), 0);
	assert_int_equal(ping(other), 0);
	sandbox_unref(other);
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 1);
	assert_int_equal(ping(f->sb), 0);
	assert_int_equal(rogue_connections_total(f->rogue), 2);
}

/* ---- connections ---- */

static void test_connections_are_reused(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 100; i++)
		assert_int_equal(ping(f->sb), 0);
	assert_int_equal(rogue_count(f->rogue, "GET", "/v1/sandbox$"), 100);
	assert_int_equal(rogue_connections_total(f->rogue), 1);
}

static void test_connections_are_capped(void **state)
{
	struct fixture *f = *state;
	struct call calls[100];

	rogue_add(f->rogue, &(struct rogue_rule){ .path = "/v1/sandbox", .hold_ms = 20 });
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		call_init(&calls[i], 30000);
		sandbox_ping(f->sb, &calls[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		assert_int_equal(call_wait(&calls[i]), 0);
		call_release(&calls[i]);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), ARRAY_SIZE(calls));
	assert_in_range(rogue_max_in_flight(f->rogue, NULL), 2, 8);
	assert_in_range(rogue_connections_total(f->rogue), 2, 8);
}

/* On the loop: the answer comes, and the time ends, while we have no processor. */
static void do_stall(void *ctx)
{
	rogue_release(ctx);
	usleep(5000 * 1000);
}

static void test_an_answer_that_is_there_is_not_late(void **state)
{
	struct fixture *f = *state;
	struct call call;

	assert_int_equal(ping(f->sb), 0);
	ROGUE_ADD(f->rogue, .path = "/v1/sandbox", .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	call_init(&call, 4000);
	sandbox_ping(f->sb, &call);
	assert_true(rogue_wait_for(f->rogue, NULL, "/v1/sandbox", 2, 20000));
	loop_run(f->loop, do_stall, f->rogue);
	assert_int_equal(call_wait(&call), 0);
	call_release(&call);
}

static void test_server_that_closes_idle_connections_is_no_problem(void **state)
{
	struct fixture *f = *state;
	struct attr attr;

	for (int i = 0; i < 10; i++) {
		assert_int_equal(ping(f->sb), 0);
		assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), 0);
		assert_int_equal(SYNC(f->sb, sandbox_append, fixture_path(f, "log"), "x", 1), 0);
		rogue_close_connections(f->rogue, true);
		assert_int_equal(rogue_connections_open(f->rogue), 0);
	}
	assert_int_equal(SYNC(f->sb, sandbox_lstat, fixture_path(f, "log"), &attr), 0);
	assert_int_equal(attr.size, 10);
}

/* An answer that nobody asked for, right behind another, is not taken for the next one's. */
static void test_unasked_answer_is_not_taken_for_the_next(void **state)
{
	static const char two[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
				  "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}";
	struct fixture *f = *state;

	rogue_add(f->rogue, &(struct rogue_rule){
				    .times = 1,
				    .action = ROGUE_ANSWER,
				    .reply = { .headers = "Content-Length: 2\r\nX-Junk: y\r\n\r\n{}"
							  "HTTP/1.1 500 No\r\n" } });
	rogue_add(f->rogue, &(struct rogue_rule){
				    .times = 1, .action = ROGUE_ANSWER, .reply = { .raw = two } });
	for (int i = 0; i < 4; i++)
		assert_int_equal(ping(f->sb), 0);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 4);
}

/* ---- sending again ---- */

/* Starts something on a connection that was used before, and has it die after the request. */
static void die_on_reuse(struct fixture *f, enum rogue_action how, unsigned times)
{
	assert_int_equal(ping(f->sb), 0);
	rogue_forget(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){ .reused = true, .times = times, .action = how });
}

static void test_what_is_not_idempotent_is_never_sent_twice(void **state)
{
	static const enum rogue_action hows[] = { ROGUE_CLOSE, ROGUE_RESET };
	struct fixture *f = *state;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(hows); i++) {
		die_on_reuse(f, hows[i], 0);
		r = SYNC(f->sb, sandbox_append, fixture_path(f, "log"), "x", 1);
		assert_true(r < 0 && r != -ENOENT && r != -ETIMEDOUT);
		/* One request that may change something; looking before or after is no harm. */
		assert_int_equal(rogue_count_body(f->rogue, "POST", NULL, "log"), 1);
		rogue_clear(f->rogue);
		assert_int_equal(access(fixture_host_path(f, "log"), F_OK), -1);
	}
}

static void test_idempotent_requests_are_sent_again(void **state)
{
	struct fixture *f = *state;
	struct attr attr;

	/* So that it is known where lstat goes. */
	assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), 0);
	for (unsigned times = 1; times <= 2; times++) {
		die_on_reuse(f, ROGUE_CLOSE, times);
		assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), 0);
		assert_true(S_ISDIR(attr.mode));
		rogue_clear(f->rogue);
	}
	for (unsigned times = 1; times <= 2; times++) {
		rogue_add(f->rogue,
			  &(struct rogue_rule){ .times = times,
						.action = ROGUE_ANSWER,
						.reply = { .status = 503, .body = "busy" } });
		assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), 0);
		rogue_clear(f->rogue);
	}
}

static void test_retries_are_bounded(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_ms();
	struct attr attr;
	int r;

	rogue_answer(f->rogue, NULL, "/", 503, "{\"success\":false,\"message\":\"busy\"}");
	r = SYNC(f->sb, sandbox_lstat, f->dir, &attr);
	assert_true(r < 0 && r != -ENOENT && r != -ETIMEDOUT);
	assert_in_range(rogue_count(f->rogue, NULL, NULL), 2, 6);
	assert_in_range(clock_ms() - start, 0, 5000 * slowness());
	rogue_clear(f->rogue);
	rogue_forget(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){ .action = ROGUE_CLOSE });
	r = SYNC(f->sb, sandbox_lstat, f->dir, &attr);
	assert_true(r < 0 && r != -ENOENT && r != -ETIMEDOUT);
	/* The farewell of the session above is said again meanwhile, six times at most. */
	assert_in_range(rogue_count(f->rogue, NULL, NULL), 2, 6 + 6);
	assert_in_range(clock_ms() - start, 0, 10000 * slowness());
}

/* A server that starts late: a refused connection is tried again as long as that is soon. */
static void test_refused_connection_is_an_error(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_ms();
	struct attr attr;

	rogue_stop_listening(f->rogue);
	assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), -ECONNREFUSED);
	assert_int_equal(SYNC(f->sb, sandbox_append, fixture_path(f, "log"), "x", 1),
			 -ECONNREFUSED);
	assert_in_range(clock_ms() - start, 0, 10000 * slowness());
	rogue_listen(f->rogue);
	assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_bad_configurations_are_refused_with_words),
		FIXTURE_TEST(test_nothing_is_sent_before_an_operation),
		FIXTURE_TEST(test_credentials_go_with_every_request),
		FIXTURE_TEST(test_close_is_idempotent),
		FIXTURE_TEST(test_close_ends_all_that_is_in_flight),
		FIXTURE_TEST(test_close_from_eight_threads_at_once),
		FIXTURE_TEST(test_close_at_any_moment),
		FIXTURE_TEST(test_close_from_a_callback_on_the_loop),
		FIXTURE_TEST(test_last_reference_given_up_on_the_loop),
		FIXTURE_TEST(test_use_after_close_fails_without_a_request),
		FIXTURE_TEST(test_close_of_a_dead_server_returns),
		FIXTURE_TEST(test_close_of_a_stalling_server_returns),
		FIXTURE_TEST(test_close_leaves_no_session_and_no_watcher),
		FIXTURE_TEST(test_no_socket_is_left_over_tcp),
		FIXTURE_TEST(test_closing_one_does_not_touch_another),
		FIXTURE_TEST(test_connections_are_reused),
		FIXTURE_TEST(test_connections_are_capped),
		FIXTURE_TEST(test_an_answer_that_is_there_is_not_late),
		FIXTURE_TEST(test_server_that_closes_idle_connections_is_no_problem),
		FIXTURE_TEST(test_unasked_answer_is_not_taken_for_the_next),
		FIXTURE_TEST(test_what_is_not_idempotent_is_never_sent_twice),
		FIXTURE_TEST(test_idempotent_requests_are_sent_again),
		FIXTURE_TEST(test_retries_are_bounded),
		FIXTURE_TEST(test_refused_connection_is_an_error),
	};

	return FIXTURE_RUN(tests);
}

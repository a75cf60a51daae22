/* sandbox_context, _dialect, _ping, _wait_ready: what the server is, and since when. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "clock.h"
#include "every.h"

static const char description[] = "/v1/sandbox$";

/* ---- context ---- */

static void test_context_tells_what_the_server_is(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };

	assert_string_equal(sandbox_dialect(f->sb), "");
	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_string_equal(info.dialect, f->dialect);
	assert_string_equal(sandbox_dialect(f->sb), f->dialect);
	assert_true(info.version[0] >= '0' && info.version[0] <= '9');
	assert_int_equal(info.home_dir[0], '/');
	assert_int_equal(info.has_bash, f->has_bash);
	assert_int_equal(info.has_watch, f->has_bash);
	if (f->has_bash)
		assert_string_equal(info.workspace, "/mnt/user-data/workspace");
	else
		assert_null(info.workspace);
	sandbox_info_release(&info);
	sandbox_info_release(&info);
}

/* Also what is missing: a 404 is not asked about again. */
static void test_context_is_asked_once(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info first = { 0 }, second = { 0 };

	assert_int_equal(SYNC(f->sb, sandbox_context, &first), 0);
	assert_int_equal(rogue_count(f->rogue, "GET", NULL), 4);
	assert_int_equal(SYNC(f->sb, sandbox_context, &second), 0);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 4);
	assert_string_equal(second.version, first.version);
	assert_string_equal(second.home_dir, first.home_dir);
	assert_string_equal(second.dialect, first.dialect);
	assert_ptr_not_equal(second.version, first.version);
	sandbox_info_release(&first);
	sandbox_info_release(&second);
}

static void test_context_asks_again_what_a_500_left_open(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };

	rogue_add(f->rogue, &(struct rogue_rule){ .path = "/v1/bash/sessions",
						  .times = 1,
						  .action = ROGUE_ANSWER,
						  .reply = { .status = 500, .body = "{}" } });
	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_false(info.has_bash);
	assert_string_equal(info.dialect, f->dialect); /* the watch gives 1.9 away */
	sandbox_info_release(&info);

	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_int_equal(info.has_bash, f->has_bash);
	assert_int_equal(rogue_count(f->rogue, "GET", "/v1/bash/sessions"), 2);
	assert_int_equal(rogue_count(f->rogue, "GET", "/v1/file/watch"), 1);
	sandbox_info_release(&info);

	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_int_equal(rogue_count(f->rogue, "GET", "/v1/bash/sessions"), 2);
	sandbox_info_release(&info);
}

static void test_context_of_two_at_once(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info infos[8] = { 0 };
	struct call calls[8];

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		call_init(&calls[i], 30000);
		sandbox_context(f->sb, &calls[i], &infos[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		assert_int_equal(call_wait(&calls[i]), 0);
		assert_string_equal(infos[i].dialect, f->dialect);
		assert_int_equal(infos[i].has_watch, f->has_bash);
		sandbox_info_release(&infos[i]);
		call_release(&calls[i]);
	}
}

static void test_context_reads_fields_inside_data_too(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };

	rogue_answer(f->rogue, "GET", description, 200,
		     "{\"success\":true,\"data\":{\"version\":\"2.0\",\"home_dir\":\"/home/x\","
		     "\"workspace\":\"/w\"}}");
	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_string_equal(info.version, "2.0");
	assert_string_equal(info.home_dir, "/home/x");
	assert_string_equal(info.workspace, "/w");
	sandbox_info_release(&info);
}

static void test_context_does_without_what_the_oldest_servers_leave_out(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };

	rogue_answer(f->rogue, "GET", description, 200,
		     "{\"success\":true,\"message\":\"ok\",\"data\":\"text\",\"home_dir\":7}");
	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_string_equal(info.version, "");
	assert_string_equal(info.home_dir, "");
	assert_null(info.workspace);
	sandbox_info_release(&info);
}

static void test_context_drops_words_that_are_not_printable(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };

	rogue_answer(
		f->rogue, "GET", description, 200,
		"{\"version\":\"1\\u001b[2J\",\"home_dir\":\"/a\\u0000b\",\"workspace\":\"/\\n\"}");
	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_string_equal(info.version, "");
	assert_string_equal(info.home_dir, "");
	assert_null(info.workspace);
	sandbox_info_release(&info);
}

static const struct failure {
	struct rogue_rule rule;
	int err;
} failures[] = {
	{ { .action = ROGUE_ANSWER, .reply = { .status = 500, .body = "{}" } }, -EIO },
	{ { .action = ROGUE_ANSWER, .reply = { .status = 401, .body = "no" } }, -EACCES },
	{ { .action = ROGUE_ANSWER, .reply = { .body = "<html>welcome</html>" } }, -EBADMSG },
	{ { .action = ROGUE_ANSWER, .reply = { .body = "[1,2]" } }, -EBADMSG },
	{ { .action = ROGUE_ANSWER,
	    .reply = { .status = 302, .headers = "Location: http://127.0.0.1:1/\r\n" } },
	  -EPROTO },
	{ { .action = ROGUE_ANSWER,
	    .reply = { .body = "{\"data\":\"", .unit = "aaaaaaaaaaaaaaaa", .units = 1u << 20 } },
	  -EMSGSIZE },
	{ { .fault = ROGUE_CUT, .after = 20 }, -EIO },
	{ { .action = ROGUE_CLOSE }, -ECONNRESET },
	{ { .fault = ROGUE_STALL, .after = 20 }, -ETIMEDOUT },
};

static void test_context_fails_with_an_errno(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		struct rogue_rule rule = failures[i].rule;
		struct sandbox_info info = { .version = (char *)f };
		int err = failures[i].err;

		rule.path = description;
		rogue_clear(f->rogue);
		rogue_add(f->rogue, &rule);
		assert_int_equal(
			SYNC_MS(err == -ETIMEDOUT ? 300 : 30000, f->sb, sandbox_context, &info),
			err);
		assert_ptr_equal(info.version, f); /* untouched */
		assert_string_equal(sandbox_dialect(f->sb), "");
	}
}

/* A web server, say. Its pages are not for people who want to mount a sandbox. */
static void test_context_of_something_else(void **state)
{
	static const struct {
		int status, want;
	} rows[] = { { 404, -EOPNOTSUPP }, { 200, -EBADMSG } };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sandbox_info info = { 0 };
		struct call call;

		rogue_clear(f->rogue);
		rogue_answer(f->rogue, "GET", description, rows[i].status, "<html><body>hello");
		call_init(&call, 30000);
		sandbox_context(f->sb, &call, &info);
		assert_int_equal(call_wait(&call), rows[i].want);
		assert_non_null(call.message);
		assert_non_null(strstr(call.message, "no AIO sandbox (GET /v1/sandbox: HTTP "));
		assert_null(strstr(call.message, "html"));
		call_release(&call);
	}
}

static void test_context_fails_when_a_probe_is_cut_off(void **state)
{
	struct fixture *f = *state;
	struct sandbox_info info = { 0 };

	rogue_add(f->rogue, &(struct rogue_rule){ .path = "/v1/file/watch", .fault = ROGUE_STALL });
	assert_int_equal(SYNC_MS(3000, f->sb, sandbox_context, &info), -ETIMEDOUT);
	rogue_clear(f->rogue);
	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	assert_string_equal(info.dialect, f->dialect);
	assert_int_equal(rogue_count(f->rogue, "GET", "/v1/bash/sessions"), 1);
	sandbox_info_release(&info);
}

/* ---- ping ---- */

static void test_ping_asks_each_time(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(SYNC(f->sb, sandbox_ping), 0);
	assert_int_equal(SYNC(f->sb, sandbox_ping), 0);
	assert_int_equal(rogue_count(f->rogue, "GET", description), 2);
	rogue_add(f->rogue, &(struct rogue_rule){ .action = ROGUE_ANSWER,
						  .reply = { .status = 502, .body = "<html>" } });
	assert_int_equal(SYNC(f->sb, sandbox_ping), -EAGAIN);
	assert_int_equal(rogue_count(f->rogue, "GET", description), 3);
	rogue_stop_listening(f->rogue);
	rogue_close_connections(f->rogue, false);
	assert_int_equal(SYNC(f->sb, sandbox_ping), -ECONNREFUSED);
	sandbox_close(f->sb);
	assert_int_equal(SYNC(f->sb, sandbox_ping), -ENOTCONN);
}

/* ---- readiness ---- */

static void test_wait_for_sandbox_ready_retries_request_errors(void **state)
{
	struct fixture *f = *state;

	rogue_refuse(f->rogue, 3);
	rogue_add(f->rogue, &(struct rogue_rule){ .path = description,
						  .times = 2,
						  .action = ROGUE_ANSWER,
						  .reply = { .status = 502, .body = "<html>" } });
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = description, .times = 1, .action = ROGUE_RESET });
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = description, .times = 1, .fault = ROGUE_STALL });
	assert_int_equal(SYNC_MS(60000, f->sb, sandbox_wait_ready, 3000, 20), 0);
	assert_int_equal(rogue_count(f->rogue, "GET", description), 5);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 5);
}

/* A server that accepts and says nothing; then one that is not there. */
static void test_wait_for_sandbox_ready_clamps_request_and_sleep_to_deadline(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_ms();

	rogue_add(f->rogue, &(struct rogue_rule){ .fault = ROGUE_STALL, .in_head = true });
	assert_int_equal(SYNC_MS(1000, f->sb, sandbox_wait_ready, 5000, 1000), -ETIMEDOUT);
	assert_in_range(clock_ms() - start, 900, 4500);
	assert_int_equal(rogue_count(f->rogue, "GET", description), 1);

	rogue_stop_listening(f->rogue);
	start = clock_ms();
	assert_int_equal(SYNC_MS(1000, f->sb, sandbox_wait_ready, 5000, 60000), -ECONNREFUSED);
	assert_in_range(clock_ms() - start, 900, 4500);

	rogue_clear(f->rogue);
	rogue_listen(f->rogue);
	assert_int_equal(SYNC_MS(10000, f->sb, sandbox_wait_ready, 5000, 1000), 0);
}

static void test_wait_for_sandbox_ready_says_what_the_last_try_met(void **state)
{
	struct fixture *f = *state;
	struct call call;

	rogue_answer(f->rogue, "GET", description, 500,
		     "{\"success\":false,\"message\":\"still getting up\"}");
	call_init(&call, 2000 * slowness());
	sandbox_wait_ready(f->sb, &call, 5000, 50);
	assert_int_equal(call_wait(&call), -EIO);
	assert_string_equal(call.message, "still getting up");
	assert_true(rogue_count(f->rogue, "GET", description) > 2);
	call_release(&call);

	/* nor does a try that the end of the time cuts off hide it */
	rogue_clear(f->rogue);
	ROGUE_ADD(f->rogue, .path = description, .times = 1, .action = ROGUE_ANSWER,
		  .reply = { .status = 500,
			     .body = "{\"success\":false,\"message\":\"still getting up\"}" });
	ROGUE_ADD(f->rogue, .path = description, .fault = ROGUE_STALL, .in_head = true);
	call_init(&call, 2000 * slowness());
	sandbox_wait_ready(f->sb, &call, 60000, 50);
	assert_int_equal(call_wait(&call), -EIO);
	assert_string_equal(call.message, "still getting up");
	call_release(&call);
}

/* Others that the server leaves without an answer hold all places: the time is over all the same.
 */
static void test_wait_for_sandbox_ready_ends_in_a_full_lane(void **state)
{
	struct fixture *f = *state;
	struct call calls[16];
	struct buf texts[16] = { 0 };
	int64_t start;

	ROGUE_ADD(f->rogue, .path = "/v1/file/read", .delay_ms = ROGUE_UNTIL_RELEASED);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		call_init(&calls[i], 20000);
		sandbox_read_file(f->sb, &calls[i], fixture_path(f, "x"), 0, 0, &texts[i]);
	}
	start = clock_ms();
	assert_int_equal(SYNC_MS(500, f->sb, sandbox_wait_ready, 5000, 50), -ETIMEDOUT);
	assert_in_range(clock_ms() - start, 400, 10000);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		call_cancel(&calls[i]);
		assert_int_equal(call_wait(&calls[i]), -ECANCELED);
		call_release(&calls[i]);
		buf_release(&texts[i]);
	}
}

static void test_wait_for_sandbox_ready_lasts_through_a_start(void **state)
{
	struct fixture *f = *state;
	struct call call;

	fixture_own_daemon(f);
	daemon_kill(f->daemon, SIGKILL);
	call_init(&call, 60000);
	sandbox_wait_ready(f->sb, &call, 5000, 50);
	assert_true(rogue_wait_for(f->rogue, "GET", description, 2, 10000));
	assert_true(daemon_restart(f->daemon));
	assert_int_equal(call_wait(&call), 0);
	call_release(&call);
}

/* ---- stopped from outside ---- */

static void begin_context(struct fixture *f, struct call *call)
{
	static struct sandbox_info never;

	sandbox_context(f->sb, call, &never);
}

static void begin_ping(struct fixture *f, struct call *call)
{
	sandbox_ping(f->sb, call);
}

/* Once in a try, once in a pause. */
static void begin_trying(struct fixture *f, struct call *call)
{
	sandbox_wait_ready(f->sb, call, 60000, 10);
}

static void begin_pausing(struct fixture *f, struct call *call)
{
	rogue_clear(f->rogue);
	rogue_answer(f->rogue, NULL, NULL, 502, "");
	sandbox_wait_ready(f->sb, call, 60000, 60000);
}

static void (*const beginnings[])(struct fixture *, struct call *) = {
	begin_context,
	begin_ping,
	begin_trying,
	begin_pausing,
};

static void stop(struct fixture *f, size_t i, bool by_close)
{
	int64_t start;
	struct call call;

	rogue_forget(f->rogue);
	rogue_clear(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){ .fault = ROGUE_STALL, .in_head = true });
	call_init(&call, 0);
	beginnings[i](f, &call);
	assert_true(rogue_wait_for(f->rogue, NULL, NULL, 1, 10000));
	start = clock_ms();
	if (by_close)
		sandbox_close(f->sb);
	else
		call_cancel(&call);
	assert_int_equal(call_wait(&call), by_close ? -ENOTCONN : -ECANCELED);
	assert_true(clock_ms() - start < 20000); /* it would take 60 s at least */
	call_release(&call);
}

static void test_cancelled_from_another_thread(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
		stop(f, i, false);
	rogue_clear(f->rogue);
	assert_int_equal(SYNC(f->sb, sandbox_ping), 0);
}

static void test_closed_meanwhile(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++) {
		stop(f, i, true);
		assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
		sandbox_unref(f->sb);
		f->sb = fixture_open(f, NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_context_tells_what_the_server_is),
		FIXTURE_TEST(test_context_is_asked_once),
		FIXTURE_TEST(test_context_asks_again_what_a_500_left_open),
		FIXTURE_TEST(test_context_of_two_at_once),
		FIXTURE_TEST(test_context_reads_fields_inside_data_too),
		FIXTURE_TEST(test_context_does_without_what_the_oldest_servers_leave_out),
		FIXTURE_TEST(test_context_drops_words_that_are_not_printable),
		FIXTURE_TEST(test_context_fails_with_an_errno),
		FIXTURE_TEST(test_context_of_something_else),
		FIXTURE_TEST(test_context_fails_when_a_probe_is_cut_off),
		FIXTURE_TEST(test_ping_asks_each_time),
		FIXTURE_TEST(test_wait_for_sandbox_ready_retries_request_errors),
		FIXTURE_TEST(test_wait_for_sandbox_ready_clamps_request_and_sleep_to_deadline),
		FIXTURE_TEST(test_wait_for_sandbox_ready_says_what_the_last_try_met),
		FIXTURE_TEST(test_wait_for_sandbox_ready_ends_in_a_full_lane),
		FIXTURE_TEST(test_wait_for_sandbox_ready_lasts_through_a_start),
		FIXTURE_TEST(test_cancelled_from_another_thread),
		FIXTURE_TEST(test_closed_meanwhile),
	};

	return FIXTURE_RUN(tests);
}

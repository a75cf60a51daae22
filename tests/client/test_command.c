/*
 * execute_command: one session, one command at a time, and never the same
 * command twice unless the server says that its session is confused.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

#include "direct.h"
#include "json.h"

#define EXEC     "/v1/shell/exec"
#define CREATE   "/v1/shell/sessions/create"
#define SESSIONS "/v1/shell/sessions/"
#define CONFUSED "'ErrorObservation' object has no attribute 'exit_code'"

static const char confused_answer[] =
	"{\"success\":true,\"message\":\"Command executed\",\"data\":{\"session_id\":\"x\","
	"\"command\":\"c\",\"status\":\"completed\",\"output\":\"" CONFUSED "\","
	"\"console\":null,\"exit_code\":null}}";

/* ---- helpers ---- */

static void expect_in(struct sandbox *sb, const char *command, const char *output, int exit_code)
{
	struct command_result r;

	assert_int_equal(SYNC(sb, sandbox_execute_command, command, &r), 0);
	assert_string_equal(r.output, output);
	assert_int_equal(r.output_len, strlen(output));
	assert_int_equal(r.exit_code, exit_code);
	assert_int_equal(r.status, COMMAND_COMPLETED);
	command_result_release(&r);
}

static void expect(struct fixture *f, const char *command, const char *output)
{
	expect_in(f->sb, command, output, 0);
}

/* The next exec is answered so, and the server never sees it. */
static void answer_next(struct fixture *f, int status, const char *body)
{
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = EXEC "$",
				    .times = 1,
				    .action = ROGUE_ANSWER,
				    .reply = { .status = status, .body = body },
			    });
}

static size_t execs(struct fixture *f)
{
	return rogue_count(f->rogue, "POST", EXEC "$");
}

static size_t deletions(struct fixture *f)
{
	return rogue_count(f->rogue, "DELETE", SESSIONS);
}

/* The n-th request (from 0) of that method and path; fails if there is none. */
static struct rogue_request nth(struct fixture *f, const char *method, const char *path, size_t n)
{
	struct rogue_request q;

	for (size_t i = 0; rogue_request(f->rogue, i, &q); i++) {
		if (strcmp(q.method, method) == 0 && strncmp(q.target, path, strlen(path)) == 0 &&
		    n-- == 0)
			return q;
		rogue_request_release(&q);
	}
	fail_msg("no such %s %s", method, path);
	return q;
}

/* The session that the n-th request to a route named; "" if none. */
static void session_in(struct fixture *f, const char *path, size_t n, char *to, size_t size)
{
	struct rogue_request q = nth(f, "POST", path, n);
	cJSON *body CLEANUP_JSON = cJSON_Parse(q.body);
	const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(body, "id"));

	assert_non_null(body);
	snprintf(to, size, "%s", id ?: "");
	rogue_request_release(&q);
}

static void session_of(struct fixture *f, size_t n, char *to, size_t size)
{
	session_in(f, EXEC, n, to, size);
}

/* Whether the n-th exec went elsewhere than the m-th. */
static bool sessions_differ(struct fixture *f, size_t n, size_t m)
{
	char a[200], b[200];

	session_of(f, n, a, sizeof(a));
	session_of(f, m, b, sizeof(b));
	return strcmp(a, b) != 0;
}

static bool server_has(struct fixture *f, const char *session)
{
	return direct_has(f, "/v1/shell/sessions", session);
}

/* ---- one at a time ---- */

enum { THREADS = 10, COMMANDS = 5 };

struct worker {
	struct sandbox *sb;
	pthread_t thread;
	unsigned number;
	int failed;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < COMMANDS; i++) {
		struct command_result r = { 0 };
		char command[128], want[64];
		struct call c;

		snprintf(want, sizeof(want), "<%u.%u>", w->number, i);
		snprintf(command, sizeof(command), "n=%u.%u; sleep 0.01; echo \"<$n>\"", w->number,
			 i);
		call_init(&c, 60000);
		sandbox_execute_command(w->sb, &c, command, &r);
		if (call_wait(&c) != 0 || strcmp(r.output, want) != 0)
			w->failed++;
		command_result_release(&r);
		call_release(&c);
	}
	return NULL;
}

static void test_lock_prevents_concurrent_execution(void **state)
{
	struct fixture *f = *state;
	struct worker workers[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .sb = f->sb, .number = i };
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].failed, 0);
	}
	assert_int_equal(execs(f), THREADS * COMMANDS);
	assert_int_equal(rogue_max_in_flight(f->rogue, EXEC "$"), 1);
	assert_int_equal(rogue_count(f->rogue, "POST", CREATE "$"), 1);
}

static void test_commands_run_in_order_of_arrival(void **state)
{
	enum { N = 12 };
	struct fixture *f = *state;
	struct command_result r[N] = { 0 };
	struct call *calls[N];
	char command[256], want[64] = "";

	for (int i = 0; i < N; i++) {
		calls[i] = new_call(60000);
		snprintf(command, sizeof(command), "echo -n '%d ' >>%s", i,
			 fixture_path(f, "order"));
		sandbox_execute_command(f->sb, calls[i], command, &r[i]);
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%d ", i);
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(finish_call(calls[i]), 0);
		command_result_release(&r[i]);
	}
	snprintf(command, sizeof(command), "cat %s", fixture_path(f, "order"));
	expect(f, command, want);
}

/* ---- the session ---- */

static void test_starts_in_the_root_of_the_view(void **state)
{
	struct fixture *f = *state;
	struct sandbox *sb = fixture_open(f, f->dir);

	expect(f, "pwd", "/mnt/user-data");
	expect_in(sb, "pwd", f->dir, 0);
	sandbox_unref(sb);
}

static void test_cd_and_export_last(void **state)
{
	struct fixture *f = *state;
	char command[256];

	snprintf(command, sizeof(command), "cd %s; export COLOUR=grün; f() { echo f$1; }", f->dir);
	expect(f, command, "");
	expect(f, "pwd", f->dir);
	expect(f, "bash -c 'echo $COLOUR'; f 1", "grün\nf1");
	assert_false(sessions_differ(f, 0, 2));
}

static void test_sandboxes_have_sessions_of_their_own(void **state)
{
	struct fixture *f = *state;
	struct sandbox *sb = fixture_open(f, NULL);

	expect(f, "x=1", "");
	expect_in(sb, "echo \"[$x]\"", "[]", 0);
	expect(f, "echo \"[$x]\"", "[1]");
	sandbox_unref(sb);
}

static void test_root_that_does_not_exist(void **state)
{
	struct fixture *f = *state;
	struct sandbox *sb = fixture_open(f, "/mnt/user-data/no-such-place");

	expect_in(sb, "echo here", "here", 0);
	sandbox_unref(sb);
}

static void test_session_is_made_elsewhere_if_the_root_is_refused(void **state)
{
	struct fixture *f = *state;

	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = CREATE "$",
				    .body_contains = "\"exec_dir\"",
				    .action = ROGUE_ANSWER,
				    .reply = { .status = 400,
					       .body = "{\"success\":false,\"message\":\"no "
						       "directory\",\"data\":null}" },
			    });
	expect(f, "echo here", "here");
	expect(f, "echo there", "there");
	assert_int_equal(rogue_count(f->rogue, "POST", CREATE "$"), 2);
	assert_int_equal(execs(f), 2);
}

static void test_session_cannot_be_made(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	rogue_answer(f->rogue, "POST", CREATE "$", 400,
		     "{\"success\":false,\"message\":\"Cannot create shell session: session limit "
		     "reached and all 10 existing sessions have active commands\",\"data\":null}");
	assert_int_not_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), 0);
	assert_int_equal(execs(f), 0);
	rogue_clear(f->rogue);
	expect(f, "echo now", "now");
}

static void test_server_without_sessions(void **state)
{
	struct fixture *f = *state;

	rogue_answer(f->rogue, "POST", CREATE "$", 404, "{\"detail\":\"Not Found\"}");
	expect(f, "pwd", "/mnt/user-data");
	expect(f, "echo 2", "2");
	assert_int_equal(rogue_count(f->rogue, "POST", CREATE "$"), 1);
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "\"id\""), 0);
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "\"no_change_timeout\":600"),
			 2);
	/* There is no fresh session to be had either: the answer stands. */
	answer_next(f, 200, confused_answer);
	expect_in(f->sb, "true", CONFUSED, -1);
	assert_int_equal(execs(f), 3);
	sandbox_close(f->sb);
	assert_int_equal(deletions(f), 0);
}

static void test_server_that_names_sessions_itself(void **state)
{
	struct fixture *f = *state;
	char *made CLEANUP_FREE = direct(f, "POST", CREATE, "{\"id\":\"its own%2f\"}");
	char id[200];

	assert_non_null(strstr(made, "its own"));
	rogue_answer(f->rogue, "POST", CREATE "$", 200,
		     "{\"success\":true,\"message\":\"\",\"data\":{\"session_id\":\"its own%2f\","
		     "\"working_dir\":\"/\"}}");
	expect(f, "echo 1", "1");
	session_of(f, 0, id, sizeof(id));
	assert_string_equal(id, "its own%2f");
	CLOSE_UNTIL(f->sb, !server_has(f, "its own"));
	assert_int_equal(rogue_count(f->rogue, "DELETE", SESSIONS "its%20own%252f$"), 1);
}

static void test_server_with_a_name_that_is_none(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	rogue_answer(f->rogue, "POST", CREATE "$", 200,
		     "{\"success\":true,\"data\":{\"session_id\":\"../../v1/file/list\"}}");
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), -EBADMSG);
	assert_int_equal(execs(f), 0);
}

static void test_lost_session_is_made_again(void **state)
{
	struct fixture *f = *state;
	char *answer CLEANUP_FREE = NULL;

	expect(f, "x=1; echo $x", "1");
	answer = direct(f, "DELETE", "/v1/shell/sessions", NULL);
	expect(f, "echo \"[$x]\"; pwd", "[]\n/mnt/user-data");
	assert_int_equal(execs(f), 3); /* the second was refused */
	assert_true(sessions_differ(f, 1, 2));
	assert_int_equal(rogue_count(f->rogue, "POST", CREATE "$"), 2);
}

static void test_session_that_is_lost_for_good(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	rogue_answer(f->rogue, "POST", EXEC "$", 404,
		     "{\"success\":false,\"message\":\"Session not found\",\"data\":null}");
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), -ESRCH);
	assert_int_equal(execs(f), 2);
}

/* A 404 is proof that nothing ran; words alone are none. */
static void test_lost_session_in_words_only_is_not_tried_again(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	rogue_answer(f->rogue, "POST", EXEC "$", 500,
		     "{\"success\":false,\"message\":\"Session not found\",\"data\":null}");
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), -ESRCH);
	assert_int_equal(execs(f), 1);
}

static void test_close_deletes_the_session(void **state)
{
	struct fixture *f = *state;
	char id[200];

	expect(f, "echo 1", "1");
	session_of(f, 0, id, sizeof(id));
	assert_int_equal(strncmp(id, "threadfs-", 9), 0);
	assert_true(server_has(f, id));
	CLOSE_UNTIL(f->sb, !server_has(f, id));
	assert_int_equal(deletions(f), 1);
}

/* ---- ErrorObservation ---- */

static void test_retry_on_error_observation(void **state)
{
	struct fixture *f = *state;

	answer_next(f, 200, confused_answer);
	expect(f, "echo again", "again");
	assert_int_equal(execs(f), 2);
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "echo again"), 2);
}

static void test_retry_creates_fresh_session_before_targeting_it(void **state)
{
	struct fixture *f = *state;
	struct rogue_request create, exec;
	char id[200], target[300];

	expect(f, "echo 1", "1");
	answer_next(f, 200, confused_answer);
	expect(f, "echo 2", "2");
	session_of(f, 2, id, sizeof(id));
	assert_int_equal(strlen(id), 36); /* a plain UUID */
	assert_int_equal(rogue_count_body(f->rogue, "POST", CREATE "$", id), 1);
	create = nth(f, "POST", CREATE, 1);
	exec = nth(f, "POST", EXEC, 2);
	assert_non_null(strstr(create.body, id));
	assert_true(create.end_ms > 0 && create.end_ms <= exec.start_ms);
	snprintf(target, sizeof(target), SESSIONS "%s$", id);
	assert_true(rogue_wait_for(f->rogue, "DELETE", target, 1, PATIENCE_MS));
	WAIT_UNTIL(!server_has(f, id));
	rogue_request_release(&create);
	rogue_request_release(&exec);
}

static void test_cleanup_failure_does_not_mask_successful_retry(void **state)
{
	struct fixture *f = *state;

	rogue_answer(f->rogue, "DELETE", SESSIONS, 500, "{\"success\":false}");
	answer_next(f, 200, confused_answer);
	expect(f, "echo fine", "fine");
	assert_true(rogue_wait_for(f->rogue, "DELETE", SESSIONS, 2, PATIENCE_MS));
	expect(f, "echo still", "still");
}

static void test_no_retry_on_clean_output(void **state)
{
	struct fixture *f = *state;

	expect(f, "echo ErrorObservation object", "ErrorObservation object");
	assert_int_equal(execs(f), 1);
	expect_in(f->sb, "echo oops >&2; false", "oops", 1);
	assert_int_equal(execs(f), 2);
}

static void test_second_error_observation_is_the_result(void **state)
{
	struct fixture *f = *state;

	rogue_answer(f->rogue, "POST", EXEC "$", 200, confused_answer);
	expect_in(f->sb, "true", CONFUSED, -1);
	assert_int_equal(execs(f), 2);
	assert_true(rogue_wait_for(f->rogue, "DELETE", SESSIONS, 2, PATIENCE_MS));
}

static void test_confused_session_is_not_used_again(void **state)
{
	struct fixture *f = *state;

	answer_next(f, 200, confused_answer);
	expect(f, "x=1; echo 1", "1");
	expect(f, "echo \"[$x]\"; pwd", "[]\n/mnt/user-data");
	expect(f, "echo 3", "3");
	assert_true(sessions_differ(f, 0, 2));
	assert_true(sessions_differ(f, 1, 2));
	assert_false(sessions_differ(f, 2, 3));
	CLOSE_UNTIL(f->sb, deletions(f) == 3);
}

static void test_no_fresh_session_to_be_had(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	expect(f, "echo 1", "1");
	rogue_answer(f->rogue, "POST", CREATE "$", 500, "{\"success\":false,\"message\":\"no\"}");
	answer_next(f, 200, confused_answer);
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), -EIO);
	assert_int_equal(execs(f), 2);
	rogue_clear(f->rogue);
	expect(f, "echo 2", "2");
}

static void test_cancelled_during_the_retry(void **state)
{
	struct fixture *f = *state;
	struct command_result r;
	struct call *c = new_call(30000);

	expect(f, "echo 1", "1");
	answer_next(f, 200, confused_answer);
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = CREATE "$", .hold_ms = ROGUE_UNTIL_RELEASED });
	sandbox_execute_command(f->sb, c, "true", &r);
	assert_true(rogue_wait_for(f->rogue, "POST", CREATE "$", 2, PATIENCE_MS));
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	rogue_clear(f->rogue);
	rogue_release(f->rogue);
	expect(f, "echo 2", "2");
	/* the confused one, the fresh one that may have been made */
	assert_true(rogue_wait_for(f->rogue, "DELETE", SESSIONS, 2, PATIENCE_MS));
}

/* ---- no_change_timeout ---- */

static void test_execute_command_passes_no_change_timeout(void **state)
{
	struct fixture *f = *state;

	expect(f, "echo 1", "1");
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "\"no_change_timeout\":600"),
			 1);
	assert_int_equal(
		rogue_count_body(f->rogue, "POST", CREATE "$", "\"no_change_timeout\":600"), 1);
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "hard_timeout"), 0);
}

static void test_retry_passes_no_change_timeout(void **state)
{
	struct fixture *f = *state;

	answer_next(f, 200, confused_answer);
	expect(f, "echo 1", "1");
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "\"no_change_timeout\":600"),
			 2);
	assert_int_equal(
		rogue_count_body(f->rogue, "POST", CREATE "$", "\"no_change_timeout\":600"), 2);
}

/* ---- never twice ---- */

static void never_twice(struct fixture *f, struct rogue_rule rule, int want)
{
	struct command_result r;
	size_t before;

	expect(f, "echo 1", "1"); /* a connection that could be reused */
	before = execs(f);
	rule.path = EXEC "$";
	rule.times = 1;
	rogue_add(f->rogue, &rule);
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "echo 2", &r), want);
	assert_int_equal(execs(f), before + 1);
	/* It may still run there. */
	expect(f, "echo 3", "3");
	assert_true(sessions_differ(f, before, before + 1));
	assert_int_equal(deletions(f), 0);
}

static void test_command_is_never_sent_again_when_the_connection_ends(void **state)
{
	never_twice(*state, (struct rogue_rule){ .action = ROGUE_CLOSE }, -ECONNRESET);
}

static void test_command_is_never_sent_again_when_it_may_have_run(void **state)
{
	never_twice(*state, (struct rogue_rule){ .fault = ROGUE_CUT, .in_head = true },
		    -ECONNRESET);
}

static void test_command_is_never_sent_again_after_half_an_answer(void **state)
{
	never_twice(*state, (struct rogue_rule){ .fault = ROGUE_CUT, .after = 20 }, -EIO);
}

static void test_command_is_never_sent_again_after_503(void **state)
{
	never_twice(*state,
		    (struct rogue_rule){ .action = ROGUE_ANSWER, .reply = { .status = 503 } },
		    -EAGAIN);
}

static void test_command_is_never_sent_again_after_500(void **state)
{
	never_twice(*state,
		    (struct rogue_rule){ .action = ROGUE_ANSWER,
					 .reply = { .status = 500,
						    .body = "{\"success\":false,\"message\":"
							    "\"boom\",\"data\":null}" } },
		    -EIO);
}

static void test_garbage_is_no_result(void **state)
{
	static const char *const garbage[] = {
		"",
		"<html>hello</html>",
		"[]",
		"{\"success\":true,\"data\":null}",
		"{\"success\":true,\"data\":{\"status\":\"sideways\",\"output\":\"\"}}",
		"{\"success\":true,\"data\":{\"status\":\"completed\",\"output\":[1]}}",
		"{\"success\":true,\"data\":{\"status\":7,\"output\":\"\"}}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++)
		never_twice(*state,
			    (struct rogue_rule){ .action = ROGUE_ANSWER,
						 .reply = { .body = garbage[i] } },
			    -EBADMSG);
}

static void test_answers_without_end_or_bottom(void **state)
{
	never_twice(
		*state,
		(struct rogue_rule){ .action = ROGUE_ANSWER, .reply = rogue_json_string(70 * MIB) },
		-EMSGSIZE);
	never_twice(*state,
		    (struct rogue_rule){ .action = ROGUE_ANSWER, .reply = rogue_json_deep(1000) },
		    -EMSGSIZE);
}

static void test_refused_command_leaves_the_session(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	expect(f, "x=1", "");
	answer_next(f, 422, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"no\",\"type\":\"t\"}]}");
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), -EINVAL);
	expect(f, "echo $x", "1");
}

static void test_nobody_listens(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	expect(f, "echo 1", "1");
	rogue_stop_listening(f->rogue);
	rogue_close_connections(f->rogue, false);
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), -ECONNREFUSED);
	rogue_listen(f->rogue);
	expect(f, "echo 2", "2");
}

static void test_command_that_is_not_utf8(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "echo \xff", &r), -EILSEQ);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

/* ---- giving up ---- */

/* A command that says when it runs and, when told to, goes on and leaves a file. */
static void start_long(struct fixture *f, struct call *c, struct command_result *r)
{
	char command[1024];

	snprintf(command, sizeof(command),
		 "touch %s; while [ ! -e %s ]; do sleep 0.05; done; touch %s",
		 fixture_path(f, "begun"), fixture_path(f, "go"), fixture_path(f, "ended"));
	sandbox_execute_command(f->sb, c, command, r);
	WAIT_UNTIL(file_exists(fixture_host_path(f, "begun")));
}

/* The command that was given up still runs, and others do not wait for it. */
static void expect_it_runs_on(struct fixture *f, size_t its_exec)
{
	char command[256];

	expect(f, "pwd", "/mnt/user-data");
	assert_true(sessions_differ(f, its_exec, its_exec + 1));
	assert_false(file_exists(fixture_host_path(f, "ended")));
	snprintf(command, sizeof(command), "touch %s", fixture_path(f, "go"));
	expect(f, command, "");
	WAIT_UNTIL(file_exists(fixture_host_path(f, "ended")));
	assert_int_equal(deletions(f), 0);
	CLOSE_UNTIL(f->sb, deletions(f) == 1); /* not the abandoned one */
}

static void test_cancel_ends_the_wait_not_the_command(void **state)
{
	struct fixture *f = *state;
	struct command_result r;
	struct call *c = new_call(0);
	int64_t since;

	start_long(f, c, &r);
	since = clock_ms();
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_in_range(clock_ms() - since, 0, 20000); /* it would go on for ever */
	expect_it_runs_on(f, 0);
}

static void test_deadline_ends_the_wait_not_the_command(void **state)
{
	struct fixture *f = *state;
	struct command_result r;
	struct call *c = new_call(6000);

	start_long(f, c, &r);
	assert_int_equal(finish_call(c), -ETIMEDOUT);
	expect_it_runs_on(f, 0);
}

static void test_stalled_server_meets_the_deadline(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	expect(f, "echo 1", "1");
	rogue_add(f->rogue,
		  &(struct rogue_rule){
			  .path = EXEC "$", .times = 1, .fault = ROGUE_STALL, .after = 10 });
	assert_int_equal(SYNC_MS(500, f->sb, sandbox_execute_command, "true", &r), -ETIMEDOUT);
	assert_int_equal(execs(f), 2);
	expect(f, "echo 2", "2");
	assert_true(sessions_differ(f, 1, 2));
}

static void test_queued_command_is_cancelled_unsent(void **state)
{
	struct fixture *f = *state;
	struct command_result r[3];
	struct call *first = new_call(0), *second = new_call(0), *third = new_call(0);
	char command[256];

	start_long(f, first, &r[0]);
	snprintf(command, sizeof(command), "touch %s", fixture_path(f, "second"));
	sandbox_execute_command(f->sb, second, command, &r[1]);
	sandbox_execute_command(f->sb, third, "echo third", &r[2]);
	call_cancel(second);
	assert_int_equal(finish_call(second), -ECANCELED);
	assert_int_equal(SYNC_MS(100, f->sb, sandbox_execute_command, command, &r[1]), -ETIMEDOUT);
	assert_int_equal(execs(f), 1);
	assert_int_equal(mkdir(fixture_host_path(f, "go"), 0700), 0);
	assert_int_equal(finish_call(first), 0);
	assert_int_equal(finish_call(third), 0);
	assert_string_equal(r[2].output, "third");
	assert_int_equal(execs(f), 2);
	assert_false(sessions_differ(f, 0, 1)); /* it was not disturbed */
	assert_false(file_exists(fixture_host_path(f, "second")));
	command_result_release(&r[0]);
	command_result_release(&r[2]);
}

static void test_cancelled_before_it_begins(void **state)
{
	struct fixture *f = *state;
	struct command_result r;
	struct call *c = new_call(0);

	call_cancel(c);
	sandbox_execute_command(f->sb, c, "true", &r);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_cancelled_while_the_session_is_made(void **state)
{
	struct fixture *f = *state;
	struct command_result r;
	struct call *c = new_call(0);
	char id[200];

	rogue_add(f->rogue, &(struct rogue_rule){ .path = CREATE "$",
						  .times = 1,
						  .delay_ms = ROGUE_UNTIL_RELEASED });
	sandbox_execute_command(f->sb, c, "true", &r);
	WAIT_UNTIL(rogue_count_body(f->rogue, "POST", CREATE "$", "}") == 1);
	session_in(f, CREATE, 0, id, sizeof(id));
	WAIT_UNTIL(server_has(f, id));
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_int_equal(execs(f), 0);
	rogue_release(f->rogue);
	CLOSE_UNTIL(f->sb, !server_has(f, id));
	assert_int_equal(deletions(f), 1);
}

static void test_session_that_may_have_been_made_is_used(void **state)
{
	struct fixture *f = *state;
	struct command_result r;
	char first[200], second[200];

	rogue_add(f->rogue, &(struct rogue_rule){ .path = CREATE "$",
						  .times = 1,
						  .delay_ms = ROGUE_UNTIL_RELEASED });
	assert_int_equal(SYNC_MS(300, f->sb, sandbox_execute_command, "true", &r), -ETIMEDOUT);
	expect(f, "echo 1", "1");
	session_in(f, CREATE, 0, first, sizeof(first));
	session_in(f, CREATE, 1, second, sizeof(second));
	assert_string_equal(first, second);
	assert_int_equal(execs(f), 1);
}

static void test_close_during_commands(void **state)
{
	struct fixture *f = *state;
	struct command_result r[3];
	struct call *running = new_call(0), *queued = new_call(0), *late = new_call(0);

	start_long(f, running, &r[0]);
	sandbox_execute_command(f->sb, queued, "true", &r[1]);
	/* Jobs of the loop run in order: once this is refused, that one is in the line. */
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "\xff", &r[2]), -EILSEQ);
	sandbox_close(f->sb);
	assert_int_equal(finish_call(running), -ENOTCONN);
	assert_int_equal(finish_call(queued), -ENOTCONN);
	sandbox_execute_command(f->sb, late, "true", &r[2]);
	assert_int_equal(finish_call(late), -ENOTCONN);
	assert_int_equal(execs(f), 1);
	assert_int_equal(rogue_count(f->rogue, "POST", CREATE "$"), 1);
	assert_int_equal(deletions(f), 0);
	assert_true(rogue_wait_connections(f->rogue, 0, PATIENCE_MS));
	/* The command is left alone. */
	assert_int_equal(mkdir(fixture_host_path(f, "go"), 0700), 0);
	WAIT_UNTIL(file_exists(fixture_host_path(f, "ended")));
}

static void test_random_cancellations(void **state)
{
	enum { ROUNDS = 60, AT_ONCE = 3 };
	struct fixture *f = *state;
	unsigned seed = 1;

	for (int i = 0; i < ROUNDS; i++) {
		struct command_result r[AT_ONCE] = { 0 };
		struct call *c[AT_ONCE];

		for (int j = 0; j < AT_ONCE; j++) {
			c[j] = new_call(20000);
			sandbox_execute_command(f->sb, c[j], "echo x", &r[j]);
		}
		nanosleep(&(struct timespec){ .tv_nsec = rand_r(&seed) % 8000000 }, NULL);
		call_cancel(c[rand_r(&seed) % AT_ONCE]);
		for (int j = 0; j < AT_ONCE; j++) {
			int err = finish_call(c[j]);

			assert_true(err == 0 || err == -ECANCELED);
			if (err == 0)
				assert_string_equal(r[j].output, "x");
			command_result_release(&r[j]);
		}
	}
	assert_int_equal(rogue_max_in_flight(f->rogue, EXEC "$") <= 2, true);
}

/* ---- results ---- */

static void expect_status(struct fixture *f, const char *name, enum command_status want, bool busy)
{
	struct command_result r;
	char body[512];
	size_t before;

	expect(f, "echo 1", "1");
	before = execs(f);
	snprintf(body, sizeof(body),
		 "{\"success\":true,\"message\":\"\",\"data\":{\"session_id\":\"s\",\"command\":"
		 "\"c\",\"status\":%s,\"output\":null,\"exit_code\":null}}",
		 name);
	answer_next(f, 200, body);
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), 0);
	assert_int_equal(r.status, want);
	assert_int_equal(r.exit_code, -1);
	assert_string_equal(r.output, "");
	assert_int_equal(r.output_len, 0);
	command_result_release(&r);
	expect(f, "echo 3", "3");
	assert_int_equal(sessions_differ(f, before, before + 1), busy);
	assert_int_equal(deletions(f), 0);
}

static void test_statuses(void **state)
{
	struct fixture *f = *state;

	expect_status(f, "\"completed\"", COMMAND_COMPLETED, false);
	expect_status(f, "null", COMMAND_COMPLETED, false);
	expect_status(f, "\"running\"", COMMAND_RUNNING, true);
	expect_status(f, "\"no_change_timeout\"", COMMAND_NO_CHANGE, true);
	expect_status(f, "\"hard_timeout\"", COMMAND_TIMED_OUT, false);
	expect_status(f, "\"terminated\"", COMMAND_TERMINATED, false);
}

static void test_nul_in_output(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	answer_next(f, 200,
		    "{\"success\":true,\"data\":{\"status\":\"completed\",\"exit_code\":0,"
		    "\"output\":\"a\\u0000b\\u0000\"}}");
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "true", &r), 0);
	assert_int_equal(r.output_len, 4);
	assert_memory_equal(r.output, "a\0b\0", 5);
	command_result_release(&r);
}

static void test_any_bytes_in_output(void **state)
{
	struct fixture *f = *state;

	expect(f, "printf 'a\\377b\\303\\244\\n\\n'",
	       "a\xef\xbf\xbd"
	       "bä");
}

static void test_large_output_is_whole(void **state)
{
	struct fixture *f = *state;
	struct command_result r;

	assert_int_equal(SYNC(f->sb, sandbox_execute_command,
			      "head -c 1048576 /dev/zero | tr '\\0' x; echo; echo end", &r),
			 0);
	if (f->has_bash) {
		assert_int_equal(r.output_len, 1048576 + 4);
		assert_int_equal(strspn(r.output, "x"), 1048576);
	} else { /* the oldest servers cannot be told not to cut */
		assert_in_range(r.output_len, 1000, 40000);
	}
	assert_string_equal(r.output + r.output_len - 4, "\nend");
	command_result_release(&r);
}

static void test_exit_codes(void **state)
{
	struct fixture *f = *state;

	expect_in(f->sb, "(exit 42)", "", 42);
	expect_in(f->sb, "no-such-program 2>/dev/null", "", 127);
	expect_in(f->sb, "exit 7", "", 7);
	expect_in(f->sb, "echo \"it's \\\"quoted\\\" \\$HOME\"", "it's \"quoted\" $HOME", 0);
	expect_in(f->sb, "cat <<'E'\n$x\n\ty\nE", "$x\n\ty", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_lock_prevents_concurrent_execution),
		FIXTURE_TEST(test_commands_run_in_order_of_arrival),
		FIXTURE_TEST(test_starts_in_the_root_of_the_view),
		FIXTURE_TEST(test_cd_and_export_last),
		FIXTURE_TEST(test_sandboxes_have_sessions_of_their_own),
		FIXTURE_TEST(test_root_that_does_not_exist),
		FIXTURE_TEST(test_session_is_made_elsewhere_if_the_root_is_refused),
		FIXTURE_TEST(test_session_cannot_be_made),
		FIXTURE_TEST(test_server_without_sessions),
		FIXTURE_TEST(test_server_that_names_sessions_itself),
		FIXTURE_TEST(test_server_with_a_name_that_is_none),
		FIXTURE_TEST(test_lost_session_is_made_again),
		FIXTURE_TEST(test_session_that_is_lost_for_good),
		FIXTURE_TEST(test_lost_session_in_words_only_is_not_tried_again),
		FIXTURE_TEST(test_close_deletes_the_session),
		FIXTURE_TEST(test_retry_on_error_observation),
		FIXTURE_TEST(test_retry_creates_fresh_session_before_targeting_it),
		FIXTURE_TEST(test_cleanup_failure_does_not_mask_successful_retry),
		FIXTURE_TEST(test_no_retry_on_clean_output),
		FIXTURE_TEST(test_second_error_observation_is_the_result),
		FIXTURE_TEST(test_confused_session_is_not_used_again),
		FIXTURE_TEST(test_no_fresh_session_to_be_had),
		FIXTURE_TEST(test_cancelled_during_the_retry),
		FIXTURE_TEST(test_execute_command_passes_no_change_timeout),
		FIXTURE_TEST(test_retry_passes_no_change_timeout),
		FIXTURE_TEST(test_command_is_never_sent_again_when_the_connection_ends),
		FIXTURE_TEST(test_command_is_never_sent_again_when_it_may_have_run),
		FIXTURE_TEST(test_command_is_never_sent_again_after_half_an_answer),
		FIXTURE_TEST(test_command_is_never_sent_again_after_503),
		FIXTURE_TEST(test_command_is_never_sent_again_after_500),
		FIXTURE_TEST(test_garbage_is_no_result),
		FIXTURE_TEST(test_answers_without_end_or_bottom),
		FIXTURE_TEST(test_refused_command_leaves_the_session),
		FIXTURE_TEST(test_nobody_listens),
		FIXTURE_TEST(test_command_that_is_not_utf8),
		FIXTURE_TEST(test_cancel_ends_the_wait_not_the_command),
		FIXTURE_TEST(test_deadline_ends_the_wait_not_the_command),
		FIXTURE_TEST(test_stalled_server_meets_the_deadline),
		FIXTURE_TEST(test_queued_command_is_cancelled_unsent),
		FIXTURE_TEST(test_cancelled_before_it_begins),
		FIXTURE_TEST(test_cancelled_while_the_session_is_made),
		FIXTURE_TEST(test_session_that_may_have_been_made_is_used),
		FIXTURE_TEST(test_close_during_commands),
		FIXTURE_TEST(test_random_cancellations),
		FIXTURE_TEST(test_statuses),
		FIXTURE_TEST(test_nul_in_output),
		FIXTURE_TEST(test_any_bytes_in_output),
		FIXTURE_TEST(test_large_output_is_whole),
		FIXTURE_TEST(test_exit_codes),
	};

	return FIXTURE_RUN(tests);
}

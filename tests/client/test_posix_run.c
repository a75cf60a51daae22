/*
 * The exec channel: which route, which session, how many at a time; lost,
 * confused and abandoned sessions; what is never sent twice; and that nothing
 * stays behind in the sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "direct.h"
#include "fake.h"
#include "json.h"

#define OK(op, ...)       assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), 0)
#define FAILS(e, op, ...) assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), -(e))
#define PATH(name)        fixture_path(f, name)
#define HOST(name)        fixture_host_path(f, name)

#define BASH     "/v1/bash/exec$"
#define SHELL    "/v1/shell/exec$"
#define CREATE   "/v1/shell/sessions/create$"
#define CONFUSED "'ErrorObservation' object has no attribute 'exit_code'"

/* ---- helpers ---- */

static size_t commands(struct fixture *f)
{
	return rogue_count(f->rogue, "POST", fake_route(f));
}

/* The next so many commands are answered so, and the server never sees them. */
static void answer(struct fixture *f, unsigned times, int status, const char *body)
{
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = fake_route(f),
				    .times = times,
				    .action = ROGUE_ANSWER,
				    .reply = { .status = status, .body = body },
			    });
}

/* Commands whose script has the text wait for rogue_release() before they reach the server. */
static void hold(struct fixture *f, const char *text, unsigned times)
{
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = fake_route(f),
				    .body_contains = text,
				    .times = times,
				    .hold_ms = ROGUE_UNTIL_RELEASED,
			    });
}

static const char *sessions_route(struct fixture *f)
{
	return f->has_bash ? "/v1/bash/sessions" : "/v1/shell/sessions";
}

static size_t farewells(struct fixture *f)
{
	size_t n = 0;
	struct rogue_request q;

	for (size_t i = 0; rogue_request(f->rogue, i, &q); i++) {
		n += strncmp(q.target, sessions_route(f), strlen(sessions_route(f))) == 0 &&
		     (strcmp(q.method, "DELETE") == 0 || strstr(q.target, "/close"));
		rogue_request_release(&q);
	}
	return n;
}

static bool sessions_left(struct fixture *f)
{
	return direct_has(f, sessions_route(f), "threadfs-");
}

static struct attr lstat_ok(struct fixture *f)
{
	struct attr a = { 0 };

	OK(sandbox_lstat, f->dir, &a);
	assert_true(S_ISDIR(a.mode));
	return a;
}

static bool litter(struct fixture *f)
{
	char *answer_ CLEANUP_FREE = direct(f, "POST", "/v1/shell/exec",
					    "{\"command\":\"compgen -G '/tmp/.threadfs-*' "
					    ">/dev/null && echo lit\\\"\\\"tered\"}");

	return strstr(answer_, "\"output\":\"littered\"") != NULL;
}

/* ---- routes and sessions ---- */

static void test_a_missing_bash_is_asked_for_once(void **state)
{
	enum { N = 30 };
	static struct call calls[N];
	static struct attr attrs[N];
	struct fixture *f = *state;

	for (unsigned i = 0; i < N; i++) {
		call_init(&calls[i], 60000);
		sandbox_lstat(f->sb, &calls[i], f->dir, &attrs[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(call_wait(&calls[i]), 0);
		call_release(&calls[i]);
	}
	lstat_ok(f);
	assert_int_equal(commands(f), N + 1);
	if (f->has_bash) {
		assert_int_equal(rogue_count(f->rogue, NULL, "/v1/shell"), 0);
	} else {
		assert_int_equal(rogue_count(f->rogue, NULL, "/v1/bash"), 1);
		assert_int_equal(rogue_count(f->rogue, NULL, CREATE), 1);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, "/v1/file"), 0);
}

static void test_a_500_of_bash_is_not_remembered(void **state)
{
	struct fixture *f = *state;
	struct attr a = { .ino = 42 };

	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = BASH,
				    .times = 2,
				    .action = ROGUE_ANSWER,
				    .reply = { .status = 500, .body = "{\"success\":false}" },
			    });
	FAILS(EIO, sandbox_lstat, f->dir, &a);
	FAILS(EIO, sandbox_lstat, f->dir, &a);
	assert_int_equal(a.ino, 42);
	assert_int_equal(rogue_count(f->rogue, NULL, BASH), 2);
	lstat_ok(f);
	assert_int_equal(rogue_count(f->rogue, NULL, BASH), 3);
	lstat_ok(f);
	assert_int_equal(rogue_count(f->rogue, NULL, BASH), f->has_bash ? 4 : 3);
}

/* One command at a time in a session, whatever the server could bear. */
static void test_sessions_are_never_shared(void **state)
{
	enum { N = 40, MAX = N + 10 };
	static struct call calls[N];
	static struct attr attrs[N];
	static struct entries lists[N];
	static struct {
		char id[64];
		int64_t start, end;
	} seen[MAX];
	struct fixture *f = *state;
	struct rogue_request q;
	size_t n = 0;

	for (unsigned i = 0; i < N; i++) {
		call_init(&calls[i], 60000);
		if (i % 4)
			sandbox_lstat(f->sb, &calls[i], f->dir, &attrs[i]);
		else
			sandbox_list(f->sb, &calls[i], f->dir, 0, &lists[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(call_wait(&calls[i]), 0);
		call_release(&calls[i]);
		entries_release(&lists[i]);
	}
	for (size_t i = 0; rogue_request(f->rogue, i, &q); i++) {
		cJSON *body CLEANUP_JSON = cJSON_Parse(q.body);
		const char *key = f->has_bash ? "session_id" : "id";
		const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(body, key));

		if (strstr(q.target, f->has_bash ? "/bash/exec" : "/shell/exec")) {
			assert_non_null(id);
			assert_true(n < MAX);
			snprintf(seen[n].id, sizeof(seen[n].id), "%s", id);
			seen[n].start = q.start_ms;
			seen[n++].end = q.end_ms;
		}
		rogue_request_release(&q);
	}
	assert_int_equal(n, N);
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < i; j++) {
			if (strcmp(seen[i].id, seen[j].id) == 0)
				assert_true(seen[i].start >= seen[j].end);
		}
	}
	assert_in_range(rogue_max_in_flight(f->rogue, fake_route(f)), 1, f->has_bash ? 4 : 2);
}

static void test_slow_commands_leave_room_for_others(void **state)
{
	enum { N = 6 };
	static struct call calls[N];
	struct fixture *f = *state;
	size_t most = f->has_bash ? 2 : 1;
	char name[16];

	lstat_ok(f); /* whether there is bash */
	OK(sandbox_symlink, "x", PATH("file"), NULL);
	hold(f, "exec cp ", 0);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "copy%u", i);
		call_init(&calls[i], 60000);
		sandbox_copy(f->sb, &calls[i], "/mnt/user-data/workspace", PATH(name));
	}
	for (unsigned i = 0; i < 20; i++)
		lstat_ok(f);
	WAIT_UNTIL(rogue_count_body(f->rogue, "POST", fake_route(f), "exec cp ") == most);
	rogue_clear(f->rogue);
	rogue_release(f->rogue);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(call_wait(&calls[i]), -EISDIR);
		call_release(&calls[i]);
	}
}

static void test_a_closed_sandbox_leaves_no_session(void **state)
{
	struct fixture *f = *state;

	lstat_ok(f);
	assert_true(sessions_left(f));
	CLOSE_UNTIL(f->sb, !sessions_left(f));
}

static void test_two_clients_do_not_share_sessions(void **state)
{
	struct fixture *f = *state;
	struct sandbox *other = fixture_open(f, NULL);
	struct attr a;

	lstat_ok(f);
	assert_int_equal(SYNC(other, sandbox_lstat, f->dir, &a), 0);
	sandbox_unref(other);
	assert_true(sessions_left(f));
	lstat_ok(f);
	assert_int_equal(rogue_count(f->rogue, NULL, CREATE), f->has_bash ? 0 : 2);
}

/* ---- lost and confused sessions ---- */

static void test_a_lost_session_is_made_again(void **state)
{
	struct fixture *f = *state;

	lstat_ok(f);
	for (int i = 0; i < 2; i++) {
		free(direct(f, "DELETE", "/v1/shell/sessions", NULL));
		if (f->has_bash) {
			/* that of bash is made on the way */
			assert_false(direct_has(f, "/v1/shell/sessions", "threadfs-"));
		}
		OK(sandbox_mkdir, PATH(i ? "b" : "a"), 0755, NULL); /* nothing ran: it is safe */
		lstat_ok(f);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, CREATE), f->has_bash ? 0 : 3);
}

static void test_a_session_that_is_always_lost(void **state)
{
	struct fixture *f = *state;
	struct attr a;

	lstat_ok(f);
	answer(f, 0, 404, "{\"success\":false,\"message\":\"Session not found\",\"data\":null}");
	FAILS(EIO, sandbox_lstat, f->dir, &a);
	assert_int_equal(commands(f), f->has_bash ? 2 : 3);
	rogue_clear(f->rogue);
	lstat_ok(f);
}

static const char confused_answer[] =
	"{\"success\":true,\"data\":{\"session_id\":\"x\",\"status\":\"completed\",\"output\":"
	"\"" CONFUSED "\",\"exit_code\":null}}";

static void test_a_confused_session_is_left(void **state)
{
	struct fixture *f = *state;

	if (f->has_bash) {
		print_message("skipped: only a shell gets confused\n");
		skip();
	}
	lstat_ok(f);
	answer(f, 1, 200, confused_answer);
	lstat_ok(f); /* may run twice */
	assert_int_equal(commands(f), 3);
	assert_int_equal(rogue_count(f->rogue, NULL, CREATE), 2);
	rogue_clear(f->rogue);
	answer(f, 1, 200, confused_answer);
	FAILS(EIO, sandbox_mkdir, PATH("d"), 0755, NULL); /* may not */
	assert_int_equal(commands(f), 4);
	lstat_ok(f);
	assert_int_equal(rogue_count(f->rogue, NULL, CREATE), 3);
	WAIT_UNTIL(farewells(f) == 2);
}

static void test_a_server_without_named_sessions(void **state)
{
	struct fixture *f = *state;

	rogue_answer(f->rogue, "POST", CREATE, 404, "not here");
	lstat_ok(f);
	OK(sandbox_mkdir, PATH("d"), 0755, NULL);
	lstat_ok(f);
	assert_int_equal(rogue_count(f->rogue, NULL, CREATE), f->has_bash ? 0 : 1);
	free(direct(f, "DELETE", "/v1/shell/sessions", NULL));
}

static void test_a_server_with_ids_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct attr a;

	if (f->has_bash) {
		print_message("skipped: old shells only\n");
		skip();
	}
	rogue_answer(f->rogue, "POST", CREATE, 200,
		     "{\"success\":true,\"data\":{\"session_id\":\"my own\"}}");
	answer(f, 0, 500, "{\"success\":false}");
	FAILS(EIO, sandbox_lstat, f->dir, &a);
	assert_int_equal(rogue_count_body(f->rogue, NULL, SHELL, "\"id\":\"my own\""), 1);
	assert_true(
		rogue_wait_for(f->rogue, "DELETE", "/v1/shell/sessions/my%20own$", 1, PATIENCE_MS));
	rogue_clear(f->rogue);
	rogue_answer(f->rogue, "POST", CREATE, 200,
		     "{\"success\":true,\"data\":{\"session_id\":\"../../x\"}}");
	FAILS(EBADMSG, sandbox_lstat, f->dir, &a);
	assert_int_equal(rogue_count(f->rogue, NULL, SHELL), 1);
}

static void test_no_session_to_be_had(void **state)
{
	static const struct {
		int status;
		const char *body;
		int want;
	} rows[] = {
		{ 400,
		  "{\"success\":false,\"message\":\"Cannot create shell session: session limit "
		  "reached and all 10 existing sessions have active commands\"}",
		  EBUSY },
		{ 500, "{\"success\":false,\"message\":\"[Errno 2] No such file or directory\"}",
		  EIO },
		{ 403, "{\"success\":false}", EACCES },
		{ 200, "{\"success\":false}", EIO },
	};
	struct fixture *f = *state;
	struct attr a;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rogue_clear(f->rogue);
		rogue_answer(f->rogue, "POST", f->has_bash ? BASH : CREATE, rows[i].status,
			     rows[i].body);
		FAILS(rows[i].want, sandbox_lstat, f->dir, &a);
	}
	rogue_clear(f->rogue);
	lstat_ok(f);
}

/* ---- what is never sent twice ---- */

static size_t mkdirs(const struct fixture *f)
{
	return rogue_count_body(f->rogue, "POST", fake_route(f), "exec mkdir");
}

static void test_a_change_is_never_sent_twice(void **state)
{
	struct fixture *f = *state;
	const struct rogue_rule faults[] = {
		{ .path = fake_route(f), .times = 1, .action = ROGUE_CLOSE },
		{ .path = fake_route(f), .times = 1, .action = ROGUE_CLOSE, .reused = true },
		{ .path = fake_route(f),
		  .times = 1,
		  .action = ROGUE_REPLACE,
		  .reply = { .status = 503, .body = "busy" } },
		{ .path = fake_route(f), .times = 1, .fault = ROGUE_CUT, .after = 10 },
		{ .path = fake_route(f), .times = 1, .fault = ROGUE_CUT, .in_head = true },
	};
	struct attr a;

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		unsigned tries = 0;
		size_t before;
		int r;

		lstat_ok(f); /* there is a connection to be reused */
		rogue_add(f->rogue, &faults[i]);
		do { /* unless that was idle for too long by now: then a new one was used */
			before = mkdirs(f);
			r = SYNC(f->sb, sandbox_mkdir, PATH("d"), 0755, NULL);
			assert_int_equal(mkdirs(f), before + 1);
			if (file_exists(HOST("d")))
				assert_int_equal(rmdir(HOST("d")), 0);
		} while (r == 0 && faults[i].reused && ++tries < 10);
		assert_int_not_equal(r, 0);
		rogue_clear(f->rogue);
	}
	for (size_t i = 0; i < 3; i++) { /* what only looks is */
		lstat_ok(f);
		rogue_forget(f->rogue);
		rogue_add(f->rogue, &faults[i]);
		OK(sandbox_lstat, f->dir, &a);
		rogue_clear(f->rogue);
	}
}

/* ---- what servers say ---- */

/* Nothing that goes wrong with the channel is about the file. */
static void test_errors_of_the_channel(void **state)
{
	static const struct {
		int status;
		const char *body;
		int want;
	} rows[] = {
		{ 400,
		  "{\"success\":false,\"message\":\"Failed to start command: [Errno 2] No such "
		  "file "
		  "or directory\"}",
		  EIO },
		{ 404, "{\"success\":false,\"message\":\"File does not exist: /\"}", EIO },
		{ 200,
		  "{\"success\":false,\"message\":\"no\",\"data\":{\"errno\":2,\"errno_name\":"
		  "\"ENOENT\"}}",
		  EIO },
		{ 401, "{\"success\":false,\"message\":\"Permission denied\"}", EACCES },
		{ 403, "", EACCES },
		{ 429, "{\"success\":false}", EBUSY },
		{ 500, "{\"success\":false,\"message\":\"[Errno 13] Permission denied\"}", EIO },
		{ 302, "", EIO },
		{ 200, "hello", EBADMSG },
		{ 200, "{\"success\":true,\"data\":null}", EBADMSG },
		{ 200, "{\"success\":true,\"data\":{\"status\":\"dancing\"}}", EBADMSG },
		{ 200, "{\"success\":true,\"data\":{\"status\":\"running\"}}", ETIMEDOUT },
		{ 200, "{\"success\":true,\"data\":{\"status\":\"no_change_timeout\"}}",
		  ETIMEDOUT },
		{ 200, "{\"success\":true,\"data\":{\"status\":\"timed_out\"}}", ETIMEDOUT },
		{ 200, "{\"success\":true,\"data\":{\"status\":\"killed\"}}", EIO },
		{ 200, "{\"success\":true,\"data\":{\"status\":\"terminated\"}}", EIO },
	};
	struct fixture *f = *state;
	struct attr a = { .ino = 42 };

	lstat_ok(f);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rogue_clear(f->rogue);
		rogue_answer(f->rogue, "POST", fake_route(f), rows[i].status, rows[i].body);
		FAILS(rows[i].want, sandbox_lstat, f->dir, &a);
	}
	assert_int_equal(a.ino, 42);
	rogue_clear(f->rogue);
	lstat_ok(f);
}

static void test_more_than_we_take(void **state)
{
	struct fixture *f = *state;
	struct attr a;
	struct entries e = { 0 };

	lstat_ok(f);
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = fake_route(f),
				    .action = ROGUE_ANSWER,
				    .reply = rogue_json_string(100 * MIB),
			    });
	FAILS(EMSGSIZE, sandbox_lstat, f->dir, &a);
	FAILS(EMSGSIZE, sandbox_list, f->dir, 1, &e);
	rogue_clear(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = fake_route(f),
				    .action = ROGUE_ANSWER,
				    .reply = rogue_json_deep(1000000),
			    });
	FAILS(EMSGSIZE, sandbox_lstat, f->dir, &a);
}

static void test_hostile_output(void **state)
{
	static const struct fake stats[] = {
		{ .out = "" },
		{ .out = "81a4" },
		{ .out = "ffff 1 1 1 1 1 1 1 1.0 1.0\n" },
		{ .out = "81a4 1 1 1 1 1 1 1 1.0 1.0\nmore\n" },
		{ .out = "81a4 99999999999999999999 1 1 1 1 1 1 1.0 1.0\n" },
	};
	static const struct fake links[] = {
		{ .out = "", .bytes = true },
		{ .out = "a\0b", .out_len = 3, .bytes = true },
	};
	struct fixture *f = *state;
	struct attr a = { .ino = 42 };
	char mine[] = "mine", *target = mine;
	uint64_t copied = 42;

	lstat_ok(f);
	for (size_t i = 0; i < ARRAY_SIZE(stats); i++) {
		rogue_clear(f->rogue);
		fake_command(f, &stats[i], 0);
		FAILS(EBADMSG, sandbox_lstat, f->dir, &a);
	}
	FAILS(EBADMSG, sandbox_copy_range, f->dir, 0, f->dir, 9, 1, &copied);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		rogue_clear(f->rogue);
		fake_command(f, &links[i], 0);
		FAILS(EBADMSG, sandbox_readlink, f->dir, &target);
	}
	assert_int_equal(a.ino, 42);
	assert_int_equal(copied, 42);
	assert_ptr_equal(target, mine);
}

/* ---- giving up ---- */

static void test_cancelled_in_line(void **state)
{
	enum { N = 12 };
	static struct attr attrs[N];
	static struct call calls[N];
	struct fixture *f = *state;
	unsigned places = f->has_bash ? 4 : 1;

	lstat_ok(f);
	hold(f, "exec stat", 0);
	for (unsigned i = 0; i < N; i++) {
		call_init(&calls[i], 60000);
		sandbox_lstat(f->sb, &calls[i], f->dir, &attrs[i]);
	}
	assert_true(rogue_wait_for(f->rogue, "POST", fake_route(f), 1 + places, PATIENCE_MS));
	for (unsigned i = N; i-- > N / 2;) {
		call_cancel(&calls[i]);
		assert_int_equal(call_wait(&calls[i]), -ECANCELED);
	}
	rogue_clear(f->rogue);
	rogue_release(f->rogue);
	for (unsigned i = 0; i < N / 2; i++)
		assert_int_equal(call_wait(&calls[i]), 0);
	for (unsigned i = 0; i < N; i++)
		call_release(&calls[i]);
	assert_int_equal(commands(f), 1 + N / 2);
	assert_int_equal(farewells(f), 0);
}

static void test_cancelled_in_flight(void **state)
{
	struct fixture *f = *state;
	struct call *c = new_call(60000);
	struct attr a = { .ino = 42 };

	lstat_ok(f);
	hold(f, "exec stat", 1);
	sandbox_lstat(f->sb, c, f->dir, &a);
	assert_true(rogue_wait_for(f->rogue, "POST", fake_route(f), 2, PATIENCE_MS));
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_int_equal(a.ino, 42);
	rogue_clear(f->rogue); /* perhaps its body had not come */
	/* What may still run there is ended, and the next command goes elsewhere. */
	WAIT_UNTIL(farewells(f) > 0);
	lstat_ok(f);
	rogue_release(f->rogue);
}

/* Nobody waits for the end of a session, so a busy server has time for it. */
static void test_a_farewell_is_heard_late(void **state)
{
	struct fixture *f = *state;
	struct call *c = new_call(60000);
	struct attr a;

	lstat_ok(f);
	assert_true(sessions_left(f));
	hold(f, "exec stat", 1);
	sandbox_lstat(f->sb, c, f->dir, &a);
	assert_true(rogue_wait_for(f->rogue, "POST", fake_route(f), 2, PATIENCE_MS));
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = sessions_route(f),
				    .hold_ms = 2000,
			    });
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	WAIT_UNTIL(!sessions_left(f));
}

static bool runs(struct fixture *f, const char *tool)
{
	struct command_result r;
	char command[64];
	bool found;

	snprintf(command, sizeof(command), "pgrep -x %s", tool);
	OK(sandbox_execute_command, command, &r);
	found = r.exit_code == 0;
	command_result_release(&r);
	return found;
}

/* A command that hangs in the sandbox is ended there when nobody waits for it any more. */
static void test_a_command_past_its_time_is_ended(void **state)
{
	struct fixture *f = *state;
	struct call *c = new_call(60000);

	/* from a pipe that nobody writes to */
	assert_int_equal(mkfifo(HOST("pipe"), 0644), 0);
	lstat_ok(f);
	sandbox_copy(f->sb, c, PATH("pipe"), PATH("x"));
	WAIT_UNTIL(runs(f, "cp"));
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	WAIT_UNTIL(!runs(f, "cp"));
	assert_int_equal(SYNC_MS(500, f->sb, sandbox_copy, PATH("pipe"), PATH("x")), -ETIMEDOUT);
	lstat_ok(f);
	WAIT_UNTIL(!runs(f, "cp"));
}

static void test_cancelled_before_and_after(void **state)
{
	struct fixture *f = *state;
	struct call *c = new_call(60000);
	struct attr a;

	call_cancel(c);
	sandbox_lstat(f->sb, c, f->dir, &a);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
	c = new_call(60000);
	sandbox_lstat(f->sb, c, f->dir, &a);
	assert_int_equal(call_wait(c), 0);
	call_cancel(c);
	assert_int_equal(finish_call(c), 0);
}

static void test_closed_with_commands_in_flight_and_in_line(void **state)
{
	enum { N = 12 };
	static struct attr attrs[N];
	static struct call calls[N];
	struct fixture *f = *state;
	struct attr a;

	lstat_ok(f);
	hold(f, "exec stat", 0);
	for (unsigned i = 0; i < N; i++) {
		call_init(&calls[i], 60000);
		sandbox_lstat(f->sb, &calls[i], f->dir, &attrs[i]);
	}
	assert_true(rogue_wait_for(f->rogue, "POST", fake_route(f), 2, PATIENCE_MS));
	sandbox_close(f->sb);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(call_wait(&calls[i]), -ENOTCONN);
		call_release(&calls[i]);
	}
	FAILS(ENOTCONN, sandbox_lstat, f->dir, &a);
	FAILS(ENOTCONN, sandbox_rename, PATH("a"), PATH("b"), 7, NULL);
	/* None of those in line was begun on the way out. */
	assert_in_range(commands(f), 2, 1 + (f->has_bash ? 4 : 1));
	rogue_release(f->rogue);
	WAIT_UNTIL(!sessions_left(f));
}

static void fill(struct fixture *f, unsigned n)
{
	char name[256];

	assert_int_equal(mkdir(HOST("d"), 0755), 0);
	assert_int_equal(close(creat(HOST("one"), 0644)), 0);
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "d/%0200u", i);
		assert_int_equal(link(HOST("one"), HOST(name)), 0);
	}
}

/* While the output lies in a file, or while it is being written there. */
static void test_nothing_stays_in_the_sandbox(void **state)
{
	static const struct {
		const char *method, *path;
		unsigned skip;
	} stages[] = {
		{ "GET", "/v1/file/download", 0 }, /* being fetched */
		{ "POST", "/v1/shell/exec$", 0 },  /* written, and the answer is on its way */
	};
	struct fixture *f = *state;
	struct entries e = { 0 };

	if (f->has_bash) {
		print_message("skipped: only output of a shell goes through a file so soon\n");
		skip();
	}
	lstat_ok(f);
	fill(f, 300);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(stages); i++) {
		struct sandbox *sb = fixture_open(f, NULL);
		struct call *c = new_call(60000);

		rogue_forget(f->rogue);
		rogue_add(f->rogue, &(struct rogue_rule){
					    .method = stages[i / 2].method,
					    .path = stages[i / 2].path,
					    .body_contains = i / 2 ? "find" : NULL,
					    .times = 1,
					    .delay_ms = ROGUE_UNTIL_RELEASED,
				    });
		sandbox_list(sb, c, PATH("d"), 1, &e);
		assert_true(rogue_wait_for(f->rogue, stages[i / 2].method, stages[i / 2].path, 1,
					   PATIENCE_MS));
		WAIT_UNTIL(litter(f));
		if (i % 2)
			sandbox_close(sb);
		else
			call_cancel(c);
		assert_int_equal(finish_call(c), i % 2 ? -ENOTCONN : -ECANCELED);
		rogue_clear(f->rogue);
		rogue_release(f->rogue);
		WAIT_UNTIL(!litter(f));
		sandbox_unref(sb);
	}
	sandbox_close(f->sb);
	WAIT_UNTIL(!sessions_left(f));
}

static void test_random_cancellations(void **state)
{
	enum { N = 300, AT_ONCE = 10 };
	struct fixture *f = *state;
	static struct call calls[AT_ONCE];
	static struct attr attrs[AT_ONCE];
	static struct entries lists[AT_ONCE];
	static char *targets[AT_ONCE];
	unsigned ended = 0;

	fill(f, 100);
	OK(sandbox_symlink, "target", PATH("link"), NULL);
	srand(7);
	for (unsigned i = 0; i < N; i += AT_ONCE) {
		for (unsigned j = 0; j < AT_ONCE; j++) {
			call_init(&calls[j], 60000);
			lists[j] = (struct entries){ 0 };
			targets[j] = NULL;
			switch (rand() % 4) {
			case 0:
				sandbox_list(f->sb, &calls[j], f->dir, 0, &lists[j]);
				break;
			case 1:
				sandbox_readlink(f->sb, &calls[j], PATH("link"), &targets[j]);
				break;
			case 2:
				sandbox_rename(f->sb, &calls[j], PATH("one"), PATH("two"), 0, NULL);
				break;
			default:
				sandbox_lstat(f->sb, &calls[j], f->dir, &attrs[j]);
			}
		}
		for (unsigned j = 0; j < AT_ONCE; j++) {
			nanosleep(&(struct timespec){ .tv_nsec = rand() % 3000000 }, NULL);
			call_cancel(&calls[rand() % AT_ONCE]);
		}
		for (unsigned j = 0; j < AT_ONCE; j++) {
			int r = call_wait(&calls[j]);

			assert_true(r == 0 || r == -ECANCELED || r == -ENOENT);
			assert_true(r == 0 || (lists[j].n == 0 && !targets[j]));
			ended += r == 0;
			entries_release(&lists[j]);
			free(targets[j]);
			call_release(&calls[j]);
		}
	}
	assert_in_range(ended, 1, N - 1);
	lstat_ok(f);
	sandbox_close(f->sb);
	if (!is_under_valgrind()) /* what ends sessions at the end has half a second */
		WAIT_UNTIL(!sessions_left(f));
	WAIT_UNTIL(!litter(f));
}

static int swallow(void *ctx UNUSED, const void *bytes UNUSED, size_t len UNUSED)
{
	return 0;
}

static atomic_bool closed_by_callback;

static void close_sandbox(struct call *call)
{
	sandbox_close(((struct fixture *)call->ctx)->sb);
	atomic_store(&closed_by_callback, true);
}

/* What an operation leaves to be cleaned up is also cleaned up when that is the end of all. */
static void test_closed_by_the_callback_of_one_that_cleans_up(void **state)
{
	struct fixture *f = *state;
	const struct download how = { .data = swallow };
	struct call call;
	int fd = open(fixture_host_path(f, "\xff"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	close(fd);
	atomic_store(&closed_by_callback, false);
	call_init(&call, 30000);
	call.done = close_sandbox;
	call.ctx = f;
	sandbox_download(f->sb, &call, PATH("\xff"), &how); /* through a link in /tmp */
	WAIT_UNTIL(atomic_load(&closed_by_callback));
	sandbox_close(f->sb);
	assert_int_equal(call.error, 0);
	call_release(&call);
	WAIT_UNTIL(!litter(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_a_missing_bash_is_asked_for_once),
		FIXTURE_TEST(test_a_500_of_bash_is_not_remembered),
		FIXTURE_TEST(test_sessions_are_never_shared),
		FIXTURE_TEST(test_slow_commands_leave_room_for_others),
		FIXTURE_TEST(test_a_closed_sandbox_leaves_no_session),
		FIXTURE_TEST(test_two_clients_do_not_share_sessions),
		FIXTURE_TEST(test_a_lost_session_is_made_again),
		FIXTURE_TEST(test_a_session_that_is_always_lost),
		FIXTURE_TEST(test_a_confused_session_is_left),
		FIXTURE_TEST(test_a_server_without_named_sessions),
		FIXTURE_TEST(test_a_server_with_ids_of_its_own),
		FIXTURE_TEST(test_no_session_to_be_had),
		FIXTURE_TEST(test_a_change_is_never_sent_twice),
		FIXTURE_TEST(test_errors_of_the_channel),
		FIXTURE_TEST(test_more_than_we_take),
		FIXTURE_TEST(test_hostile_output),
		FIXTURE_TEST(test_cancelled_in_line),
		FIXTURE_TEST(test_cancelled_in_flight),
		FIXTURE_TEST(test_a_farewell_is_heard_late),
		FIXTURE_TEST(test_a_command_past_its_time_is_ended),
		FIXTURE_TEST(test_cancelled_before_and_after),
		FIXTURE_TEST(test_closed_with_commands_in_flight_and_in_line),
		FIXTURE_TEST(test_nothing_stays_in_the_sandbox),
		FIXTURE_TEST(test_random_cancellations),
		FIXTURE_TEST(test_closed_by_the_callback_of_one_that_cleans_up),
	};

	return FIXTURE_RUN(tests);
}

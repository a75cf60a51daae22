/*
 * Commands through /v1/bash: environment, both streams, jobs; that nothing is
 * sent twice and nothing stays behind; and servers that have no such route.
 */
#include <errno.h>
#include <signal.h>

#include "direct.h"
#include "json.h"

#define EXEC     "/v1/bash/exec"
#define OUTPUT   "/v1/bash/output"
#define WRITE    "/v1/bash/write"
#define KILL     "/v1/bash/kill"
#define SESSIONS "/v1/bash/sessions"

#define NEEDS_BASH(f)                                                                              \
	do {                                                                                       \
		if (!(f)->has_bash)                                                                \
			skip(); /* dialect 1.0 has no /v1/bash */                                  \
	} while (0)

/* ---- helpers ---- */

static int bash(struct fixture *f, const char *command, struct bash_result *ret)
{
	struct bash_command cmd = { .command = command };

	return SYNC(f->sb, sandbox_bash, &cmd, ret);
}

static void expect_cmd(struct fixture *f, const struct bash_command *cmd, const char *out,
		       const char *err, int exit_code)
{
	struct bash_result r;

	assert_int_equal(SYNC(f->sb, sandbox_bash, cmd, &r), 0);
	assert_string_equal(r.out, out);
	assert_string_equal(r.err, err);
	assert_int_equal(r.out_len, strlen(out));
	assert_int_equal(r.err_len, strlen(err));
	assert_int_equal(r.exit_code, exit_code);
	assert_int_equal(r.status, COMMAND_COMPLETED);
	bash_result_release(&r);
}

static void expect(struct fixture *f, const char *command, const char *out, const char *err,
		   int exit_code)
{
	expect_cmd(f, &(struct bash_command){ .command = command }, out, err, exit_code);
}

static size_t execs(struct fixture *f)
{
	return rogue_count(f->rogue, "POST", EXEC "$");
}

static size_t closes(struct fixture *f)
{
	return rogue_count(f->rogue, "POST", SESSIONS "/threadfs-");
}

/* Whether the server has a session that was named in this test. */
static bool sessions_left(struct fixture *f)
{
	char *list CLEANUP_FREE = direct(f, "GET", SESSIONS, NULL);
	struct rogue_request q;
	bool found = false;

	for (size_t i = 0; !found && rogue_request(f->rogue, i, &q); i++) {
		cJSON *body CLEANUP_JSON = cJSON_Parse(q.body);
		const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(body, "session_id"));

		found = id && strstr(list, id);
		rogue_request_release(&q);
	}
	return found;
}

static void expect_no_sessions(struct fixture *f)
{
	WAIT_UNTIL(!sessions_left(f));
}

static void answer_next(struct fixture *f, const char *path, int status, const char *body)
{
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = path,
				    .times = 1,
				    .action = ROGUE_ANSWER,
				    .reply = { .status = status, .body = body },
			    });
}

static char *start(struct fixture *f, const char *command)
{
	struct bash_command cmd = { .command = command };
	char *job = NULL;

	assert_int_equal(SYNC(f->sb, sandbox_bash_start, &cmd, &job), 0);
	assert_non_null(job);
	return job;
}

static void close_job(struct fixture *f, char *job)
{
	assert_int_equal(SYNC(f->sb, sandbox_bash_close, job), 0);
	free(job);
}

/* Reads from offset 0 until the stdout of the job ends with the text. */
static void wait_for_output(struct fixture *f, const char *job, const char *text)
{
	struct bash_output o;
	bool found = false;

	for (int i = 0; i < 100 && !found; i++) {
		assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 100, &o), 0);
		found = o.result.out_len >= strlen(text) &&
			strcmp(o.result.out + o.result.out_len - strlen(text), text) == 0;
		bash_result_release(&o.result);
	}
	assert_true(found);
}

/* Reads until the job has ended; the result is that of the last read. */
static void wait_for_end(struct fixture *f, const char *job, struct bash_output *ret)
{
	int64_t out = 0, err = 0;

	for (;;) {
		assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, out, err, 20000, ret), 0);
		if (ret->result.status != COMMAND_RUNNING)
			return;
		out = ret->out_offset;
		err = ret->err_offset;
		bash_result_release(&ret->result);
	}
}

/* ---- servers without it ---- */

static void test_bash_exec_404_returns_actionable_error(void **state)
{
	struct fixture *f = *state;
	const char *const env[] = { "A", "1", NULL };
	struct bash_command cmd = { .command = "true", .env = env };
	struct bash_result r;
	struct call c;

	if (f->has_bash)
		rogue_answer(f->rogue, "POST", EXEC "$", 404, "{\"detail\":\"Not Found\"}");
	call_init(&c, 30000);
	sandbox_bash(f->sb, &c, &cmd, &r);
	assert_int_equal(call_wait(&c), -EOPNOTSUPP);
	assert_non_null(strstr(c.message, "/v1/bash"));
	assert_non_null(strstr(c.message, "1.9.3"));
	assert_non_null(strstr(c.message, "upgrade"));
	call_release(&c);
}

static void test_bash_exec_404_is_cached_and_stops_retry_storm(void **state)
{
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "true" };
	struct bash_output o;
	struct bash_result r;
	char *job;

	if (f->has_bash)
		rogue_answer(f->rogue, "POST", EXEC "$", 404, "{\"detail\":\"Not Found\"}");
	assert_int_equal(bash(f, "true", &r), -EOPNOTSUPP);
	assert_int_equal(execs(f), 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(bash(f, "true", &r), -EOPNOTSUPP);
	assert_int_equal(SYNC(f->sb, sandbox_bash_start, &cmd, &job), -EOPNOTSUPP);
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, "j", 0, 0, 0, &o), -EOPNOTSUPP);
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, "j", "x", 1), -EOPNOTSUPP);
	assert_int_equal(SYNC(f->sb, sandbox_bash_kill, "j", SIGTERM), -EOPNOTSUPP);
	assert_int_equal(SYNC(f->sb, sandbox_bash_close, "j"), -EOPNOTSUPP);
	sandbox_close(f->sb);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 1);
}

static void test_only_exec_tells_that_there_is_no_bash(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;

	NEEDS_BASH(f);
	answer_next(f, OUTPUT "$", 404, "{\"detail\":\"what job?\"}");
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, "j", 0, 0, 0, &o), -EOPNOTSUPP);
	expect(f, "echo 1", "1\n", "", 0);
}

static void test_bash_exec_non_404_error_is_not_cached(void **state)
{
	struct fixture *f = *state;
	struct bash_result r;

	answer_next(f, EXEC "$", 500, "{\"success\":false,\"message\":\"boom\",\"data\":null}");
	assert_int_equal(bash(f, "true", &r), -EIO);
	if (f->has_bash) {
		expect(f, "echo fine", "fine\n", "", 0);
	} else {
		assert_int_equal(bash(f, "true", &r), -EOPNOTSUPP);
	}
	assert_int_equal(execs(f), 2);
}

static void test_env_less_path_unaffected_after_404(void **state)
{
	struct fixture *f = *state;
	struct command_result c;
	struct bash_result r;

	if (f->has_bash)
		rogue_answer(f->rogue, "POST", EXEC "$", 404, "{\"detail\":\"Not Found\"}");
	assert_int_equal(bash(f, "true", &r), -EOPNOTSUPP);
	assert_int_equal(SYNC(f->sb, sandbox_execute_command, "echo shell", &c), 0);
	assert_string_equal(c.output, "shell");
	command_result_release(&c);
	assert_int_equal(rogue_count(f->rogue, "POST", "/v1/shell/exec$"), 1);
}

static void test_bash_exec_success_does_not_mark_unsupported(void **state)
{
	struct fixture *f = *state;
	struct bash_result r;

	NEEDS_BASH(f);
	expect(f, "echo 1", "1\n", "", 0);
	expect(f, "echo 2", "2\n", "", 0);
	/* Nor does a 404 afterwards: the route is known to be there. */
	answer_next(f, EXEC "$", 404, "<html>gateway</html>");
	assert_int_equal(bash(f, "true", &r), -EOPNOTSUPP);
	expect(f, "echo 3", "3\n", "", 0);
}

/* ---- one command ---- */

static void test_streams_and_exit_code(void **state)
{
	struct fixture *f = *state;

	NEEDS_BASH(f);
	expect(f, "echo out; echo err >&2; exit 3", "out\n", "err\n", 3);
	expect(f, "true", "", "", 0);
	expect(f, "kill -TERM $$", "", "", -SIGTERM);
	expect(f, "kill -KILL $$", "", "", -SIGKILL);
	expect(f, "echo \"it's \\\"quoted\\\" \\\\\"; echo $((1+1))", "it's \"quoted\" \\\n2\n", "",
	       0);
	assert_int_equal(rogue_count_body(f->rogue, "POST", EXEC "$", "\"max_output_length\":0"),
			 5);
}

static void test_environment(void **state)
{
	struct fixture *f = *state;
	const char *const env[] = { "PLAIN", "1",      "_Odd9", "a \"b\" 'c' $HOME\n\tä€",
				    "EMPTY", "",       "LATE",  "first",
				    "LATE",  "second", NULL };
	const char *const none[] = { NULL };
	struct bash_command cmd = {
		.command = "printf '%s|' \"$PLAIN\" \"$_Odd9\" \"${EMPTY-unset}\"",
		.env = env,
	};

	NEEDS_BASH(f);
	expect_cmd(f, &cmd, "1|a \"b\" 'c' $HOME\n\tä€||", "", 0);
	cmd = (struct bash_command){ .command = "echo ${PLAIN-unset}", .env = none };
	expect_cmd(f, &cmd, "unset\n", "", 0);
}

static void test_invalid_arguments_make_no_request(void **state)
{
	static const char *const bad[][5] = {
		{ "", "v", NULL },    { "1A", "v", NULL },
		{ "A-B", "v", NULL }, { "A=B", "v", NULL },
		{ "Ä", "v", NULL },   { "A B", "v", NULL },
		{ "A", NULL, NULL },  { "A", "v", "B\n", "v", NULL },
	};
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "true" };
	struct bash_result r;
	char *job;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cmd.env = bad[i];
		assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EINVAL);
		assert_int_equal(SYNC(f->sb, sandbox_bash_start, &cmd, &job), -EINVAL);
	}
	cmd.env = (const char *const[]){ "A", "\xff", NULL };
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EILSEQ);
	cmd = (struct bash_command){ .command = "\xc3" };
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EILSEQ);
	cmd = (struct bash_command){ .command = "true", .hard_timeout_s = -1 };
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EINVAL);
	cmd = (struct bash_command){ .command = "true", .dir = "/mnt/user-data/\xff" };
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EILSEQ);
	cmd = (struct bash_command){ .command = "true", .dir = "/mnt/user-data/../x" };
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EACCES);
	cmd = (struct bash_command){ .command = "true", .dir = "/etc" };
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -EACCES);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_a_secret_is_not_repeated(void **state)
{
	struct fixture *f = *state;
	const char *const env[] = { "s3cret-in-the-wrong-place", "TOKEN", NULL };
	struct bash_command cmd = { .command = "true", .env = env };
	struct bash_result r;
	struct call c;

	call_init(&c, 30000);
	sandbox_bash(f->sb, &c, &cmd, &r);
	assert_int_equal(call_wait(&c), -EINVAL);
	assert_null(strstr(c.message, "s3cret"));
	call_release(&c);
}

static void test_directory(void **state)
{
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "pwd", .dir = f->dir };
	struct sandbox *sb;
	struct bash_result r;
	char want[200];

	NEEDS_BASH(f);
	expect(f, "pwd", "/mnt/user-data\n", "", 0);
	snprintf(want, sizeof(want), "%s\n", f->dir);
	expect_cmd(f, &cmd, want, "", 0);
	cmd.dir = "/mnt/user-data/no-such-place";
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), -ENOENT);
	sb = fixture_open(f, f->dir);
	cmd.dir = NULL;
	assert_int_equal(SYNC(sb, sandbox_bash, &cmd, &r), 0);
	assert_string_equal(r.out, want);
	bash_result_release(&r);
	sandbox_unref(sb);
}

static void test_hard_timeout(void **state)
{
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "echo before; sleep 60", .hard_timeout_s = 3 };
	struct bash_result r;

	NEEDS_BASH(f);
	assert_int_equal(SYNC(f->sb, sandbox_bash, &cmd, &r), 0);
	assert_int_equal(r.status, COMMAND_TIMED_OUT);
	assert_int_equal(r.exit_code, -1);
	assert_string_equal(r.out, "before\n");
	bash_result_release(&r);
}

static void test_any_and_much_output(void **state)
{
	struct fixture *f = *state;
	struct bash_result r;

	NEEDS_BASH(f);
	assert_int_equal(bash(f, "printf 'a\\0b\\377c\\r\\n\\033[1m'", &r), 0);
	assert_int_equal(r.out_len, 13);
	assert_memory_equal(r.out,
			    "a\0b\xef\xbf\xbd"
			    "c\r\n\033[1m",
			    14);
	bash_result_release(&r);
	assert_int_equal(bash(f,
			      "head -c 1048576 /dev/zero | tr '\\0' x; "
			      "head -c 2000000 /dev/zero | tr '\\0' y >&2",
			      &r),
			 0);
	assert_int_equal(r.out_len, 1048576);
	assert_int_equal(strspn(r.out, "x"), 1048576);
	assert_int_equal(r.err_len, 2000000);
	assert_int_equal(strspn(r.err, "y"), 2000000);
	bash_result_release(&r);
}

static void test_long_command(void **state)
{
	enum { LEN = 300000 };
	struct fixture *f = *state;
	char *command;

	NEEDS_BASH(f);
	command = malloc(LEN + 100);
	assert_non_null(command);
	strcpy(command, "x=");
	memset(command + 2, 'a', LEN);
	strcpy(command + 2 + LEN, "; echo ${#x}");
	expect(f, command, "300000\n", "", 0);
	free(command);
}

static void test_session_is_closed_afterwards(void **state)
{
	struct fixture *f = *state;

	NEEDS_BASH(f);
	for (size_t i = 1; i <= 5; i++)
		expect(f, "echo 1", "1\n", "", 0);
	assert_true(rogue_wait_for(f->rogue, "POST", SESSIONS "/threadfs-", 5, PATIENCE_MS));
	expect_no_sessions(f);
}

static void test_failing_close_does_not_mask_the_result(void **state)
{
	struct fixture *f = *state;

	NEEDS_BASH(f);
	rogue_add(f->rogue, &(struct rogue_rule){ .path = SESSIONS "/",
						  .action = ROGUE_ANSWER,
						  .hold_ms = ROGUE_UNTIL_RELEASED,
						  .reply = { .status = 500 } });
	expect(f, "echo 1", "1\n", "", 0);
	expect(f, "echo 2", "2\n", "", 0);
	rogue_clear(f->rogue);
	rogue_release(f->rogue);
}

static void test_commands_do_not_queue_behind_each_other(void **state)
{
	struct fixture *f = *state;
	struct call *slow;
	struct bash_command cmd = { 0 };
	struct bash_result r;
	char command[400];

	NEEDS_BASH(f);
	slow = new_call(0);
	snprintf(command, sizeof(command), "while [ ! -e %s ]; do sleep 0.05; done; echo slow",
		 fixture_path(f, "go"));
	cmd.command = command;
	sandbox_bash(f->sb, slow, &cmd, &r);
	assert_true(rogue_wait_for(f->rogue, "POST", EXEC "$", 1, PATIENCE_MS));
	snprintf(command, sizeof(command), "touch %s", fixture_path(f, "go"));
	expect(f, command, "", "", 0);
	assert_int_equal(finish_call(slow), 0);
	assert_string_equal(r.out, "slow\n");
	bash_result_release(&r);
}

/* ---- never twice ---- */

static void never_twice(struct fixture *f, struct rogue_rule rule, int want)
{
	size_t before_execs, before_closes;
	struct bash_result r;

	expect(f, "echo 1", "1\n", "", 0);
	before_execs = execs(f);
	before_closes = before_execs;
	assert_true(rogue_wait_for(f->rogue, "POST", SESSIONS "/threadfs-", before_closes,
				   PATIENCE_MS));
	rule.path = EXEC "$";
	rule.times = 1;
	rogue_add(f->rogue, &rule);
	assert_int_equal(bash(f, "echo 2", &r), want);
	assert_int_equal(execs(f), before_execs + 1);
	/* What may run there is ended. */
	assert_true(rogue_wait_for(f->rogue, "POST", SESSIONS "/threadfs-", before_closes + 1,
				   PATIENCE_MS));
	expect_no_sessions(f);
}

static void test_command_is_never_sent_again(void **state)
{
	struct fixture *f = *state;

	NEEDS_BASH(f);
	never_twice(f, (struct rogue_rule){ .action = ROGUE_CLOSE }, -ECONNRESET);
	never_twice(f, (struct rogue_rule){ .fault = ROGUE_CUT, .in_head = true }, -ECONNRESET);
	never_twice(f, (struct rogue_rule){ .fault = ROGUE_CUT, .after = 20 }, -EIO);
	never_twice(f, (struct rogue_rule){ .action = ROGUE_ANSWER, .reply = { .status = 503 } },
		    -EAGAIN);
}

static void test_garbage_is_no_result(void **state)
{
	static const char *const garbage[] = {
		"",
		"<html>hello</html>",
		"[]",
		"{\"success\":true,\"data\":null}",
		"{\"success\":true,\"data\":{\"status\":\"sideways\"}}",
		"{\"success\":true,\"data\":{\"status\":\"completed\",\"stdout\":{}}}",
		"{\"success\":true,\"data\":{\"status\":\"completed\",\"stderr\":1}}",
		"{\"success\":true,\"data\":{\"status\":\"completed\",\"exit_code\":1e300}}",
		"{\"success\":true,\"data\":{\"status\":\"completed\",\"exit_code\":\"0\"}}",
	};
	struct fixture *f = *state;

	NEEDS_BASH(f);
	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++)
		never_twice(f,
			    (struct rogue_rule){ .action = ROGUE_ANSWER,
						 .reply = { .body = garbage[i] } },
			    -EBADMSG);
	never_twice(
		f,
		(struct rogue_rule){ .action = ROGUE_ANSWER, .reply = rogue_json_string(70 * MIB) },
		-EMSGSIZE);
}

static void test_server_that_stops_waiting(void **state)
{
	struct fixture *f = *state;

	NEEDS_BASH(f);
	never_twice(f,
		    (struct rogue_rule){
			    .action = ROGUE_ANSWER,
			    .reply = { .body = "{\"success\":true,\"data\":{\"status\":\"running\","
					       "\"stdout\":null,\"exit_code\":null}}" } },
		    -ETIMEDOUT);
}

static void test_missing_fields(void **state)
{
	struct fixture *f = *state;
	struct bash_result r;

	answer_next(f, EXEC "$", 200,
		    "{\"success\":true,\"data\":{\"status\":\"killed\",\"stdout\":\"\\u0000\"}}");
	assert_int_equal(bash(f, "true", &r), 0);
	assert_int_equal(r.status, COMMAND_TERMINATED);
	assert_int_equal(r.exit_code, -1);
	assert_int_equal(r.out_len, 1);
	assert_memory_equal(r.out, "\0", 2);
	assert_string_equal(r.err, "");
	bash_result_release(&r);
}

/* ---- giving up ---- */

/* A command that says when it runs and would leave a file some time after its end is near. */
static void start_long(struct fixture *f, struct call *c, struct bash_result *r)
{
	char command[600];
	struct bash_command cmd = { .command = command };

	snprintf(command, sizeof(command), "echo $$ >%s.new; mv %s.new %s; sleep 300 & wait",
		 fixture_path(f, "begun"), fixture_path(f, "begun"), fixture_path(f, "begun"));
	sandbox_bash(f->sb, c, &cmd, r);
	WAIT_UNTIL(file_exists(fixture_host_path(f, "begun")));
}

/* No process of its group is left. */
static void expect_it_is_killed(struct fixture *f)
{
	struct sandbox *sb = fixture_open(f, NULL);
	char command[400];
	struct bash_command cmd = { .command = command };
	struct bash_result r;

	snprintf(command, sizeof(command),
		 "for i in {1..400}; do kill -0 -- -$(cat %s) || exit 0; sleep 0.05; done; exit 1",
		 fixture_path(f, "begun"));
	assert_int_equal(SYNC(sb, sandbox_bash, &cmd, &r), 0);
	assert_int_equal(r.exit_code, 0);
	bash_result_release(&r);
	sandbox_unref(sb);
	expect_no_sessions(f);
}

static void test_cancel_kills(void **state)
{
	struct fixture *f = *state;
	struct call *c;
	struct bash_result r;
	int64_t since;

	NEEDS_BASH(f);
	c = new_call(0);
	start_long(f, c, &r);
	since = clock_ms();
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_in_range(clock_ms() - since, 0, 20000); /* it would take 300 s */
	expect_it_is_killed(f);
}

static void test_deadline_kills(void **state)
{
	struct fixture *f = *state;
	struct call *c;
	struct bash_result r;

	NEEDS_BASH(f);
	c = new_call(6000);
	start_long(f, c, &r);
	assert_int_equal(finish_call(c), -ETIMEDOUT);
	expect_it_is_killed(f);
}

static void test_close_kills(void **state)
{
	struct fixture *f = *state;
	struct call *c;
	struct bash_result r;

	NEEDS_BASH(f);
	c = new_call(0);
	start_long(f, c, &r);
	CLOSE_UNTIL(f->sb, closes(f) == 1);
	assert_int_equal(finish_call(c), -ENOTCONN);
	assert_int_equal(bash(f, "true", &r), -ENOTCONN);
	expect_it_is_killed(f);
}

static void test_stalled_server_meets_the_deadline(void **state)
{
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "true" };
	struct bash_result r;

	NEEDS_BASH(f);
	rogue_add(f->rogue,
		  &(struct rogue_rule){
			  .path = EXEC "$", .times = 1, .fault = ROGUE_STALL, .after = 10 });
	assert_int_equal(SYNC_MS(500, f->sb, sandbox_bash, &cmd, &r), -ETIMEDOUT);
	assert_int_equal(execs(f), 1);
	expect_no_sessions(f);
}

static void test_random_cancellations(void **state)
{
	enum { ROUNDS = 40, AT_ONCE = 4 };
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "echo x" };
	unsigned seed = 1;

	NEEDS_BASH(f);
	for (int i = 0; i < ROUNDS; i++) {
		struct bash_result r[AT_ONCE] = { 0 };
		struct call *c[AT_ONCE];

		for (int j = 0; j < AT_ONCE; j++) {
			c[j] = new_call(20000);
			sandbox_bash(f->sb, c[j], &cmd, &r[j]);
		}
		nanosleep(&(struct timespec){ .tv_nsec = rand_r(&seed) % 8000000 }, NULL);
		call_cancel(c[rand_r(&seed) % AT_ONCE]);
		for (int j = 0; j < AT_ONCE; j++) {
			int err = finish_call(c[j]);

			assert_true(err == 0 || err == -ECANCELED);
			if (err == 0)
				assert_string_equal(r[j].out, "x\n");
			bash_result_release(&r[j]);
		}
	}
	expect_no_sessions(f);
}

/* ---- jobs ---- */

static void test_job_output_resumes_at_offsets(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "echo one; echo uno >&2; read x; echo two; echo dos >&2; exit 5");
	wait_for_output(f, job, "one\n");
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "\n", 1), 0);
	wait_for_output(f, job, "one\ntwo\n");
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 4, 4, 0, &o), 0);
	assert_string_equal(o.result.out, "two\n");
	assert_int_equal(o.out_offset, 8);
	bash_result_release(&o.result);
	wait_for_end(f, job, &o);
	assert_int_equal(o.result.status, COMMAND_COMPLETED);
	assert_int_equal(o.result.exit_code, 5);
	bash_result_release(&o.result);
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 8, 0, 0, &o), 0);
	assert_string_equal(o.result.out, "");
	assert_string_equal(o.result.err, "uno\ndos\n");
	assert_int_equal(o.err_offset, 8);
	bash_result_release(&o.result);
	close_job(f, job);
	expect_no_sessions(f);
}

static void test_job_reads_what_is_written(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "cat");
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "gr\xc3\xbc\xc3\x9f", 6), 0);
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "\0\n", 2), 0);
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "\xff", 1), -EILSEQ);
	WAIT_UNTIL(({
		assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 0, &o), 0);
		bash_result_release(&o.result);
		o.out_offset == 8;
	}));
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 0, &o), 0);
	assert_int_equal(o.result.status, COMMAND_RUNNING);
	assert_int_equal(o.result.exit_code, -1);
	assert_memory_equal(o.result.out, "gr\xc3\xbc\xc3\x9f\0\n", 8);
	bash_result_release(&o.result);
	close_job(f, job);
}

static void test_job_wait_ends_in_time(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	int64_t since;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "sleep 300");
	since = clock_ms();
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 300, &o), 0);
	assert_in_range(clock_ms() - since, 250, PATIENCE_MS);
	assert_int_equal(o.result.status, COMMAND_RUNNING);
	assert_string_equal(o.result.out, "");
	bash_result_release(&o.result);
	close_job(f, job);
}

static void test_job_is_killed_with_its_group(void **state)
{
	static const int signals[] = { SIGTERM, SIGKILL, SIGINT };
	struct fixture *f = *state;
	struct bash_output o;
	char command[300];
	char *job;

	NEEDS_BASH(f);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		snprintf(command, sizeof(command), "trap 'exit 9' INT; sleep 300 & echo $!; wait");
		job = start(f, command);
		assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 20000, &o), 0);
		snprintf(command, sizeof(command),
			 "for i in {1..400}; do kill -0 %d || exit 0; sleep 0.05; done; exit 1",
			 (int)strtol(o.result.out, NULL, 10));
		bash_result_release(&o.result);
		assert_int_equal(SYNC(f->sb, sandbox_bash_kill, job, signals[i]), 0);
		wait_for_end(f, job, &o);
		assert_int_equal(o.result.exit_code, signals[i] == SIGINT ? 9 : -signals[i]);
		bash_result_release(&o.result);
		if (signals[i] != SIGINT) { /* background jobs of a script ignore that one */
			struct bash_result r;

			assert_int_equal(bash(f, command, &r), 0);
			assert_int_equal(r.exit_code, 0);
			bash_result_release(&r);
		}
		close_job(f, job);
	}
}

static void test_job_bad_arguments(void **state)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "../../shell/exec", "\xff" };
	struct fixture *f = *state;
	struct bash_output o;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(SYNC(f->sb, sandbox_bash_output, bad[i], 0, 0, 0, &o), -EINVAL);
		assert_int_equal(SYNC(f->sb, sandbox_bash_write, bad[i], "x", 1), -EINVAL);
		assert_int_equal(SYNC(f->sb, sandbox_bash_kill, bad[i], SIGTERM), -EINVAL);
		assert_int_equal(SYNC(f->sb, sandbox_bash_close, bad[i]), -EINVAL);
	}
	assert_int_equal(SYNC(f->sb, sandbox_bash_kill, "j", SIGHUP), -EINVAL);
	assert_int_equal(SYNC(f->sb, sandbox_bash_kill, "j", 0), -EINVAL);
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, "j", -1, 0, 0, &o), -EINVAL);
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, "j", 0, -1, 0, &o), -EINVAL);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_job_that_does_not_exist(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	const char *job = "a b?c=%2e%2e#ä";

	NEEDS_BASH(f);
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 1000, &o), -ESRCH);
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "x", 1), -ESRCH);
	assert_int_equal(SYNC(f->sb, sandbox_bash_kill, job, SIGTERM), -ESRCH);
	assert_int_equal(SYNC(f->sb, sandbox_bash_close, job), -ESRCH);
	assert_int_equal(
		rogue_count(f->rogue, "POST", SESSIONS "/a%20b%3Fc%3D%252e%252e%23%C3%A4/close$"),
		1);
}

static void test_job_close_ends_it(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	char *job, *copy;

	NEEDS_BASH(f);
	job = start(f, "sleep 300");
	copy = strdup(job);
	close_job(f, job);
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, copy, 0, 0, 0, &o), -ESRCH);
	free(copy);
}

static void test_job_outlives_the_client(void **state)
{
	struct fixture *f = *state;
	struct sandbox *sb;
	struct bash_output o;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "read x; echo got $x");
	sandbox_close(f->sb);
	assert_int_equal(closes(f), 0);
	sb = fixture_open(f, NULL);
	assert_int_equal(SYNC(sb, sandbox_bash_write, job, "it\n", 3), 0);
	assert_int_equal(SYNC(sb, sandbox_bash_output, job, 0, 0, 20000, &o), 0);
	assert_string_equal(o.result.out, "got it\n");
	bash_result_release(&o.result);
	assert_int_equal(SYNC(sb, sandbox_bash_close, job), 0);
	free(job);
	sandbox_unref(sb);
}

static void test_start_that_fails_leaves_no_job(void **state)
{
	struct fixture *f = *state;
	struct bash_command cmd = { .command = "sleep 300" };
	struct call *c;
	char *job = NULL;

	NEEDS_BASH(f);
	/* The server has begun, but we never hear of it. */
	rogue_add(f->rogue,
		  &(struct rogue_rule){
			  .path = EXEC "$", .times = 1, .fault = ROGUE_CUT, .in_head = true });
	assert_int_equal(SYNC(f->sb, sandbox_bash_start, &cmd, &job), -ECONNRESET);
	assert_int_equal(execs(f), 1);
	assert_true(rogue_wait_for(f->rogue, "POST", SESSIONS "/threadfs-", 1, PATIENCE_MS));
	expect_no_sessions(f);

	rogue_add(f->rogue, &(struct rogue_rule){ .path = EXEC "$",
						  .times = 1,
						  .delay_ms = ROGUE_UNTIL_RELEASED });
	c = new_call(0);
	sandbox_bash_start(f->sb, c, &cmd, &job);
	WAIT_UNTIL(sessions_left(f));
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	expect_no_sessions(f);
	assert_null(job);
}

static void test_job_write_is_never_sent_again(void **state)
{
	struct fixture *f = *state;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "cat");
	rogue_add(f->rogue,
		  &(struct rogue_rule){
			  .path = WRITE "$", .times = 1, .fault = ROGUE_CUT, .in_head = true });
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "once\n", 5), -ECONNRESET);
	assert_int_equal(rogue_count(f->rogue, "POST", WRITE "$"), 1);
	wait_for_output(f, job, "once\n");
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = KILL "$", .times = 1, .action = ROGUE_CLOSE });
	assert_int_equal(SYNC(f->sb, sandbox_bash_kill, job, SIGTERM), -ECONNRESET);
	assert_int_equal(rogue_count(f->rogue, "POST", KILL "$"), 1);
	close_job(f, job);
}

static void test_job_output_is_asked_for_again(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "echo x");
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = OUTPUT "$", .times = 1, .action = ROGUE_CLOSE });
	assert_int_equal(SYNC(f->sb, sandbox_bash_output, job, 0, 0, 20000, &o), 0);
	assert_string_equal(o.result.out, "x\n");
	bash_result_release(&o.result);
	assert_int_equal(rogue_count(f->rogue, "POST", OUTPUT "$"), 2);
	close_job(f, job);
}

static void test_job_output_garbage(void **state)
{
	static const char *const garbage[] = {
		"[]",
		"{\"success\":true,\"data\":null}",
		"{\"success\":true,\"data\":{\"stdout\":\"\",\"offset\":0,\"stderr_offset\":0,"
		"\"command\":null}}",
		"{\"success\":true,\"data\":{\"stdout\":\"\",\"offset\":-5,\"stderr_offset\":0,"
		"\"command\":{\"status\":\"running\"}}}",
		"{\"success\":true,\"data\":{\"stdout\":\"\",\"stderr_offset\":0,"
		"\"command\":{\"status\":\"running\"}}}",
	};
	struct fixture *f = *state;
	struct bash_output o;

	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		answer_next(f, OUTPUT "$", 200, garbage[i]);
		assert_int_equal(SYNC(f->sb, sandbox_bash_output, "j", 0, 0, 0, &o), -EBADMSG);
	}
}

static void test_job_wait_can_be_cancelled(void **state)
{
	struct fixture *f = *state;
	struct bash_output o;
	struct call *c;
	char *job;

	NEEDS_BASH(f);
	job = start(f, "read x; echo alive");
	c = new_call(0);
	sandbox_bash_output(f->sb, c, job, 0, 0, 600000, &o);
	assert_true(rogue_wait_for(f->rogue, "POST", OUTPUT "$", 1, PATIENCE_MS));
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	assert_int_equal(SYNC_MS(300, f->sb, sandbox_bash_output, job, 0, 0, 600000, &o),
			 -ETIMEDOUT);
	/* The job has felt nothing. */
	assert_int_equal(SYNC(f->sb, sandbox_bash_write, job, "\n", 1), 0);
	wait_for_output(f, job, "alive\n");
	close_job(f, job);
}

static void test_job_with_environment_and_directory(void **state)
{
	struct fixture *f = *state;
	const char *const env[] = { "TOKEN", "t0ken", NULL };
	struct bash_command cmd = { .command = "echo $TOKEN; pwd", .dir = f->dir, .env = env };
	struct bash_output o;
	char want[200], *job = NULL;

	NEEDS_BASH(f);
	assert_int_equal(SYNC(f->sb, sandbox_bash_start, &cmd, &job), 0);
	snprintf(want, sizeof(want), "t0ken\n%s\n", f->dir);
	wait_for_output(f, job, want);
	wait_for_end(f, job, &o);
	bash_result_release(&o.result);
	close_job(f, job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_bash_exec_404_returns_actionable_error),
		FIXTURE_TEST(test_bash_exec_404_is_cached_and_stops_retry_storm),
		FIXTURE_TEST(test_only_exec_tells_that_there_is_no_bash),
		FIXTURE_TEST(test_bash_exec_non_404_error_is_not_cached),
		FIXTURE_TEST(test_env_less_path_unaffected_after_404),
		FIXTURE_TEST(test_bash_exec_success_does_not_mark_unsupported),
		FIXTURE_TEST(test_streams_and_exit_code),
		FIXTURE_TEST(test_environment),
		FIXTURE_TEST(test_invalid_arguments_make_no_request),
		FIXTURE_TEST(test_a_secret_is_not_repeated),
		FIXTURE_TEST(test_directory),
		FIXTURE_TEST(test_hard_timeout),
		FIXTURE_TEST(test_any_and_much_output),
		FIXTURE_TEST(test_long_command),
		FIXTURE_TEST(test_session_is_closed_afterwards),
		FIXTURE_TEST(test_failing_close_does_not_mask_the_result),
		FIXTURE_TEST(test_commands_do_not_queue_behind_each_other),
		FIXTURE_TEST(test_command_is_never_sent_again),
		FIXTURE_TEST(test_garbage_is_no_result),
		FIXTURE_TEST(test_server_that_stops_waiting),
		FIXTURE_TEST(test_missing_fields),
		FIXTURE_TEST(test_cancel_kills),
		FIXTURE_TEST(test_deadline_kills),
		FIXTURE_TEST(test_close_kills),
		FIXTURE_TEST(test_stalled_server_meets_the_deadline),
		FIXTURE_TEST(test_random_cancellations),
		FIXTURE_TEST(test_job_output_resumes_at_offsets),
		FIXTURE_TEST(test_job_reads_what_is_written),
		FIXTURE_TEST(test_job_wait_ends_in_time),
		FIXTURE_TEST(test_job_is_killed_with_its_group),
		FIXTURE_TEST(test_job_bad_arguments),
		FIXTURE_TEST(test_job_that_does_not_exist),
		FIXTURE_TEST(test_job_close_ends_it),
		FIXTURE_TEST(test_job_outlives_the_client),
		FIXTURE_TEST(test_start_that_fails_leaves_no_job),
		FIXTURE_TEST(test_job_write_is_never_sent_again),
		FIXTURE_TEST(test_job_output_is_asked_for_again),
		FIXTURE_TEST(test_job_output_garbage),
		FIXTURE_TEST(test_job_wait_can_be_cancelled),
		FIXTURE_TEST(test_job_with_environment_and_directory),
	};

	return FIXTURE_RUN(tests);
}

/*
 * Every operation against every misbehaviour of a server, at every request that
 * the operation makes. Whatever the server does, the call ends in time with an
 * errno that does not lie, memory stays bounded, and the sandbox is as good as
 * new once the server behaves again.
 *
 * Per misbehaviour and request all operations run at once, each through a proxy
 * of its own to the one real server; those that test the memory run alone. As
 * most of that is waiting for deadlines, the misbehaviours are shared out among
 * several processes of this program, each with a server of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "clock.h"
#include "every.h"
#include "io.h"

enum {
	DEADLINE_MS = 300,
	REQUESTS_MAX = 6,           /* of an operation */
	GROWTH_MAX_KIB = 96 * 1024, /* the largest answer that anyone takes, and some */
	BIG = 100 * 1000 * 1000,
	SHARES = 4, /* of the misbehaviours */
};

enum {
	LOOKS_OK = 1,       /* a complete answer with status 200 */
	CLAIMS_SUCCESS = 2, /* and one that says so in JSON */
	SHORTER = 4,        /* a download cannot know that the file is longer */
	ALONE = 8,          /* one at a time: memory is looked at */
	ONLY_FIRST = 16,    /* later requests are not tried */
	SAYS_OUTPUT = 32,   /* that a command ended, and what it printed */
};

struct misbehaviour {
	const char *name;
	unsigned flags;
	struct rogue_rule rule;
	struct rogue_reply (*reply)(uint64_t bytes); /* fills rule.reply */
	uint64_t bytes;                              /* for that */
	void (*act)(struct rogue *r);                /* instead of a rule */
};

/* ---- what servers do ---- */

static void hang_up(struct rogue *r)
{
	rogue_stop_listening(r);
}

#define ANSWERS(...) .rule = { .action = ROGUE_ANSWER, .reply = { __VA_ARGS__ } }
#define SAYS(text)   ANSWERS(.body = text)

/* The target of the redirections; nobody may ever come there. */
static struct rogue *elsewhere;
static char redirection[256];

static const struct misbehaviour misbehaviours[] = {
	{ "refuses", ONLY_FIRST, .act = hang_up },
	{ "closes without an answer", 0, { .action = ROGUE_CLOSE } },
	{ "resets", 0, { .action = ROGUE_RESET } },
	{ "closes half-way through the request",
	  0,
	  { .action = ROGUE_CLOSE, .take_bytes = ROGUE_NOTHING } },
	{ "stalls before its answer", 0, { .delay_ms = ROGUE_UNTIL_RELEASED } },
	{ "never reads the request",
	  0,
	  { .take_bytes = ROGUE_NOTHING, .hold_ms = ROGUE_UNTIL_RELEASED } },
	{ "stalls in the head", 0, { .fault = ROGUE_STALL, .after = 20, .in_head = true } },
	{ "stalls in the body", 0, { .fault = ROGUE_STALL, .after = 5 } },
	{ "drips", 0, { .drip_ms = 40 } },
	{ "cuts the head", 0, { .fault = ROGUE_CUT, .after = 20, .in_head = true } },
	{ "cuts the body", 0, { .fault = ROGUE_CUT, .after = 5 } },
	{ "resets in the body", 0, { .fault = ROGUE_CUT_RESET, .after = 5 } },
	{ "promises more than it sends", 0, { .length_lie = 10 } },
	{ "promises less than it sends", SHORTER, { .length_lie = -1 } },
	{ "500 with words", 0,
	  ANSWERS(.status = 500,
		  .body = "{\"success\":false,\"message\":\"boom\",\"data\":null}") },
	{ "500 that claims success", 0,
	  ANSWERS(.status = 500, .body = "{\"success\":true,\"data\":{}}") },
	{ "500 without words", 0, ANSWERS(.status = 500, .headers = "") },
	{ "503 for ever", 0, ANSWERS(.status = 503, .body = "<html>busy</html>") },
	{ "401", 0, ANSWERS(.status = 401, .body = "{\"detail\":\"Unauthorized\"}") },
	{ "429", 0, ANSWERS(.status = 429, .body = "slower") },
	{ "404 of a web server", 0,
	  ANSWERS(.status = 404, .headers = "Content-Type: text/html\r\nServer: nginx/1.18.0\r\n",
		  .body = "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n"
			  "<center><h1>404 Not Found</h1></center>\r\n</body>\r\n</html>\r\n") },
	{ "302", 0, ANSWERS(.status = 302, .headers = redirection) },
	{ "307", 0, ANSWERS(.status = 307, .headers = redirection, .body = "{\"success\":true}") },
	{ "204", CLAIMS_SUCCESS, ANSWERS(.status = 204) },
	{ "206 that nobody asked for", 0,
	  ANSWERS(.status = 206, .headers = "Content-Range: bytes 7-8/100\r\n", .body = "ab") },
	{ "600", 0, ANSWERS(.status = 600, .body = "{\"success\":true,\"data\":{}}") },
	{ "1xx without end", 0,
	  ANSWERS(.raw = "HTTP/1.1 100 Continue\r\n\r\n",
		  .unit = "HTTP/1.1 102 Wait\r\nA: b\r\n\r\n", .units = ROGUE_FOREVER) },
	{ "garbage instead of HTTP", 0,
	  ANSWERS(.raw = "\x16\x03\x01\x02 SSH-2.0-OpenSSH_9.2\r\n\0\0\0", .raw_len = 30) },
	{ "garbage without end", 0,
	  ANSWERS(.raw = "x", .unit = "garbage ", .units = ROGUE_FOREVER) },
	{ "HTTP/0.9", 0, ANSWERS(.raw = "{\"success\":true,\"data\":{}}") },
	{ "bad chunks", 0,
	  ANSWERS(.raw = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n") },
	{ "a chunk of 2^64 bytes", 0,
	  ANSWERS(.raw = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			 "ffffffffffffffff0\r\n{}") },
	{ "a negative length", 0,
	  ANSWERS(.raw = "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}") },
	{ "an endless header", ALONE,
	  ANSWERS(.endless_head =
			  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") },
	{ "endless headers", ALONE, ANSWERS(.endless_head = "X-Header: value\r\n") },
	{ "an endless body", ALONE, ANSWERS(.unit = "    ", .units = ROGUE_FOREVER) },
	{ "an endless body without chunks", ALONE | ONLY_FIRST,
	  ANSWERS(.unit = "[[[[", .units = ROGUE_FOREVER, .until_close = true) },
	{ "100 MB of a string",
	  ALONE | ONLY_FIRST | LOOKS_OK | CLAIMS_SUCCESS,
	  { .action = ROGUE_ANSWER },
	  rogue_json_string,
	  BIG },
	{ "100 MB of numbers",
	  ALONE | LOOKS_OK | CLAIMS_SUCCESS,
	  { .action = ROGUE_ANSWER },
	  rogue_json_numbers,
	  BIG },
	{ "15 MB of numbers",
	  ALONE | ONLY_FIRST | LOOKS_OK | CLAIMS_SUCCESS,
	  { .action = ROGUE_ANSWER },
	  rogue_json_numbers,
	  15 * 1000 * 1000 },
	{ "deep JSON",
	  ALONE | LOOKS_OK,
	  { .action = ROGUE_ANSWER },
	  rogue_json_deep,
	  10 * 1000 * 1000 },
	{ "an empty body", LOOKS_OK, SAYS("") },
	{ "no JSON", LOOKS_OK, SAYS("<html>hello</html>") },
	{ "half of JSON", LOOKS_OK, SAYS("{\"success\":true,\"data\":{\"exit_code\":0") },
	{ "two of JSON", LOOKS_OK, SAYS("{\"success\":true}{\"success\":true}") },
	{ "invalid UTF-8", LOOKS_OK,
	  SAYS("{\"success\":true,\"data\":{\"status\":\"completed\",\"exit_code\":0,"
	       "\"stdout\":\"\xff\xfe\",\"output\":\"\xc3(\",\"content\":\"\xed\xa0\x80\"}}") },
	{ "a list", LOOKS_OK | CLAIMS_SUCCESS, SAYS("[]") },
	{ "a number", LOOKS_OK | CLAIMS_SUCCESS, SAYS("1e308") },
	{ "null", LOOKS_OK | CLAIMS_SUCCESS, SAYS("null") },
	{ "no data", LOOKS_OK | CLAIMS_SUCCESS, SAYS("{\"success\":true,\"data\":null}") },
	{ "data that is a list", LOOKS_OK | CLAIMS_SUCCESS,
	  SAYS("{\"success\":true,\"data\":[]}") },
	{ "success that is a word", LOOKS_OK | CLAIMS_SUCCESS,
	  SAYS("{\"success\":\"yes\",\"data\":{\"status\":1,\"exit_code\":\"x\",\"stdout\":{},"
	       "\"stderr\":[],\"output\":7,\"content\":9,\"files\":\"none\",\"watcher_id\":12,"
	       "\"session_id\":[],\"offset\":\"0\",\"file\":{}}}") },
	{ "numbers out of range", LOOKS_OK | CLAIMS_SUCCESS,
	  SAYS("{\"success\":true,\"data\":{\"status\":\"completed\",\"exit_code\":1e308,"
	       "\"stdout\":\"1e308 99999999999999999999 -1 x\\n\",\"stderr\":\"\",\"output\":null,"
	       "\"offset\":1e308,\"stderr_offset\":-1e308,\"watcher_id\":\"a/../b\"}}") },
	{ "an output that is no output", LOOKS_OK | CLAIMS_SUCCESS | SAYS_OUTPUT,
	  SAYS("{\"success\":true,\"data\":{\"status\":\"completed\",\"exit_code\":0,"
	       "\"stdout\":\"BAAAA====EE\",\"stderr\":null,\"offset\":-5,"
	       "\"output\":\"<tf00000000>\\u0000\"}}") },
	{ "a failure without a reason", LOOKS_OK, SAYS("{\"success\":false}") },
	{ "errno 0", LOOKS_OK, SAYS("{\"success\":false,\"data\":{\"errno\":0}}") },
	{ "errno -2", LOOKS_OK, SAYS("{\"success\":false,\"data\":{\"errno\":-2}}") },
	{ "errno 1e308", LOOKS_OK,
	  SAYS("{\"success\":false,\"data\":{\"errno\":1e308,\"errno_name\":7}}") },
};

/* ---- sharing them out ---- */

/* Another process that plays some of them. */
struct helper {
	pid_t pid; /* 0: none, or it has ended */
	int out;   /* what it says */
};

static struct helper helpers[SHARES]; /* the first share is our own */
static char *program;

/* Which share is ours; 0 for the process that sees to the others. */
static size_t own_share(void)
{
	const char *text = getenv("TFS_SHARE");

	return text ? strtoul(text, NULL, 10) : 0;
}

static void start_helper(size_t share)
{
	struct helper *h = &helpers[share];
	posix_spawn_file_actions_t files;
	char *argv[] = { program, NULL };
	char text[16];

	snprintf(text, sizeof(text), "%zu", share);
	h->out = memfd_create("helper", MFD_CLOEXEC);
	assert_true(h->out >= 0);
	assert_int_equal(posix_spawn_file_actions_init(&files), 0);
	posix_spawn_file_actions_adddup2(&files, h->out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, h->out, STDERR_FILENO);
	setenv("TFS_SHARE", text, 1);
	assert_int_equal(posix_spawn(&h->pid, program, &files, NULL, argv, environ), 0);
	unsetenv("TFS_SHARE");
	posix_spawn_file_actions_destroy(&files);
}

/* Waits for its end. Returns whether all went well; if not, says what it said. */
static bool end_helper(struct helper *h)
{
	char text[4096];
	ssize_t n;
	int status = 0;

	if (h->pid == 0)
		return true;
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	h->pid = 0;
	if (status != 0) {
		print_error("another process ended with %#x:\n", (unsigned)status);
		for (off_t at = 0; (n = pread(h->out, text, sizeof(text), at)) > 0; at += n)
			print_error("%.*s", (int)n, text);
	}
	close(h->out);
	return status == 0;
}

/* ---- the stage ---- */

/* What one operation plays on. */
struct scene {
	struct rogue *rogue;
	struct sandbox *sb;
	struct attempt attempt;
	size_t requests; /* that it makes when nothing is wrong */
	int64_t ended_ms;
	bool on; /* takes part in this round */
};

static struct fixture stage;
static struct scene *scenes;

static int open_stage(void **state UNUSED)
{
	struct daemon_options options = { .dialect = getenv("TFS_DIALECT") ?: "aiod",
					  .args = fixture_roomy };

	stage.has_bash = strcmp(options.dialect, "1.0") != 0;
	stage.daemon = daemon_start(&options);
	elsewhere = rogue_new(NULL, true);
	scenes = calloc(every_op_len, sizeof(*scenes));
	if (!stage.daemon || !elsewhere || !scenes || loop_new(&stage.loop) < 0)
		return -1;
	strcpy(stage.dir, "/mnt/user-data");
	snprintf(stage.host_dir, sizeof(stage.host_dir), "%s", daemon_data(stage.daemon));
	snprintf(redirection, sizeof(redirection), "Location: %s/v1/sandbox\r\n",
		 rogue_url(elsewhere));
	for (size_t i = 0; i < every_op_len; i++) {
		/* Both kinds of sockets; a reset is one only over TCP. */
		scenes[i].rogue = rogue_new(daemon_socket(stage.daemon), i % 2);
		if (!scenes[i].rogue)
			return -1;
	}
	return 0;
}

static int close_stage(void **state UNUSED)
{
	for (size_t i = 0; i < SHARES; i++)
		(void)end_helper(&helpers[i]); /* those left by a test that failed */
	for (size_t i = 0; i < every_op_len; i++)
		rogue_free(scenes[i].rogue);
	free(scenes);
	rogue_free(elsewhere);
	loop_free(stage.loop);
	return daemon_stop(stage.daemon);
}

static void open_scene(struct scene *s, size_t op)
{
	const char *socket = rogue_socket(s->rogue);
	const struct sandbox_config config = { .socket = socket,
					       .url = socket ? NULL : rogue_url(s->rogue),
					       .label = "hostile" };

	rogue_clear(s->rogue);
	assert_true(rogue_wait_connections(s->rogue, 0, 10000));
	rogue_forget(s->rogue);
	s->on = true;
	s->ended_ms = 0;
	assert_int_equal(sandbox_new(stage.loop, &config, &s->sb, NULL), 0);
	attempt_init(&s->attempt, &every_op[op], DEADLINE_MS);
	attempt_prepare(&s->attempt, &stage);
}

static void close_scene(struct scene *s)
{
	s->on = false;
	sandbox_unref(STEAL(s->sb));
	attempt_release(&s->attempt);
}

/* All up to there at once: each takes its time for farewells that nobody answers. */
static void close_scenes(size_t last)
{
	for (size_t i = 0; i < last; i++)
		if (scenes[i].on)
			sandbox_dismiss(sandbox_ref(scenes[i].sb), NULL, NULL);
	for (size_t i = 0; i < last; i++)
		if (scenes[i].on)
			close_scene(&scenes[i]);
}

/*
 * Waits for its end. What has none of its own is stopped when it has tried anew
 * after request number `hit`, or has had its time.
 */
static int wait_scene(struct scene *s, size_t hit)
{
	int64_t until = clock_ms() + DEADLINE_MS + 100;
	int r;

	while (s->attempt.op->flags & EVERY_ENDLESS && !attempt_has_ended(&s->attempt) &&
	       clock_ms() < until)
		if (rogue_wait_for(s->rogue, NULL, NULL, hit + 2, 5))
			break;
	if (s->attempt.op->flags & EVERY_ENDLESS)
		call_cancel(&s->attempt.call);
	r = call_wait(&s->attempt.call);
	s->ended_ms = clock_ms();
	return r;
}

/* ---- the plays ---- */

/* Nothing is wrong: what the operations do then, and how many requests they take. */
static void test_all_operations_work_when_nothing_is_wrong(void **state UNUSED)
{
	for (size_t i = 0; i < every_op_len; i++) {
		struct scene *s = &scenes[i];
		const struct every_op *op = &every_op[i];
		int r, want = 0;

		open_scene(s, i);
		s->attempt.call.timeout_ms = 30000;
		attempt_start(&s->attempt, s->sb);
		if (op->flags & EVERY_ENDLESS && stage.has_bash)
			assert_true(rogue_wait_for(s->rogue, "GET", "/v1/file/watch/", 1, 30000));
		/* What the server does not have ends by itself. */
		if (op->flags & EVERY_ENDLESS && !stage.has_bash)
			r = call_wait(&s->attempt.call);
		else
			r = wait_scene(s, 0);
		s->requests = rogue_count(s->rogue, NULL, NULL);
		if (op->flags & EVERY_ENDLESS)
			want = stage.has_bash ? -ECANCELED : -EOPNOTSUPP;
		else if (op->flags & EVERY_NEEDS_BASH && !stage.has_bash)
			want = -EOPNOTSUPP;
		else if (op->flags & EVERY_NEEDS_JOB)
			want = r == 0 ? 0 : -ESRCH; /* there is no such job */
		if (r != want)
			fail_msg("%s: %d instead of %d: %s", op->name, r, want,
				 s->attempt.call.message ?: "no words");
		if (attempt_judge(&s->attempt))
			fail_msg("%s: %s", op->name, attempt_judge(&s->attempt));
		assert_in_range(s->requests, 1, REQUESTS_MAX);
	}
	close_scenes(every_op_len);
}

static void misbehave(struct scene *s, const struct misbehaviour *m, size_t skip)
{
	struct rogue_rule rule = m->rule;

	if (m->act) {
		m->act(s->rogue);
		return;
	}
	if (m->reply)
		rule.reply = m->reply(m->bytes);
	rule.skip = (unsigned)skip;
	rogue_add(s->rogue, &rule);
}

static void behave(struct scene *s, const struct misbehaviour *m)
{
	rogue_clear(s->rogue);
	rogue_release(s->rogue);
	if (m->act)
		rogue_listen(s->rogue);
}

/* Whether an operation may take what came for the truth. */
static bool may_believe(const struct every_op *op, const struct misbehaviour *m)
{
	if (op->flags & EVERY_STATUS_ONLY)
		return m->flags & (LOOKS_OK | SHORTER);
	if (op->flags & EVERY_TAKES_BYTES)
		return m->flags & (LOOKS_OK | SHORTER);
	if (op->flags & EVERY_TELLS_OUTPUT)
		return m->flags & SAYS_OUTPUT;
	return op->flags & EVERY_NO_RESULT && m->flags & CLAIMS_SUCCESS;
}

static unsigned wrongs; /* so far */

static void judge(const struct scene *s, const struct misbehaviour *m, size_t skip, int64_t start)
{
	const struct attempt *a = &s->attempt;
	/* Machines are noisy; a call that does not see to its end has none. */
	int64_t most = (DEADLINE_MS + 10000) * slowness(), took = s->ended_ms - start;
	const char *wrong = NULL;

	if (a->call.error == -ENOENT)
		wrong = "ENOENT, which nobody said";
	else if (a->call.error || !may_believe(a->op, m))
		wrong = attempt_judge(a);
	if (a->events)
		wrong = "events that there were not";
	if (took > most)
		wrong = "it took too long";
	if (!wrong)
		return;
	wrongs++;
	print_error("%s, request %zu, server %s: %d (%s) after %lld ms: %s\n", a->op->name, skip,
		    m->name, a->call.error, a->call.message ?: "no words", (long long)took, wrong);
}

/* The same sandboxes, up to there, once their servers behave again. */
static void check_recovery(const struct misbehaviour *m, size_t last)
{
	struct call calls[64];

	assert_in_range(every_op_len, 1, ARRAY_SIZE(calls));
	for (size_t i = 0; i < last; i++) {
		if (!scenes[i].on)
			continue;
		behave(&scenes[i], m);
		call_init(&calls[i], 30000);
		sandbox_ping(scenes[i].sb, &calls[i]);
	}
	for (size_t i = 0; i < last; i++) {
		if (!scenes[i].on)
			continue;
		if (call_wait(&calls[i])) {
			wrongs++;
			print_error("%s, server %s: does not recover: %d (%s)\n", every_op[i].name,
				    m->name, calls[i].error, calls[i].message ?: "no words");
		}
		call_release(&calls[i]);
	}
}

static void play(size_t first, size_t last, const struct misbehaviour *m, size_t skip)
{
	int64_t start = clock_ms();

	for (size_t i = first; i < last; i++)
		if (scenes[i].on)
			attempt_start(&scenes[i].attempt, scenes[i].sb);
	for (size_t i = first; i < last; i++) {
		if (!scenes[i].on)
			continue;
		(void)!wait_scene(&scenes[i], skip);
		judge(&scenes[i], m, skip, start);
	}
}

/* Of the kernel's, the peak since the last call of reset_peak(). */
static size_t peak_kib(void)
{
	char line[256];
	size_t kib = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmHWM:", 6))
			kib = strtoul(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

static void reset_peak(void)
{
	int fd CLEANUP_FD = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, "5", 1), 0);
}

/* Plays it, and tells by how much the process grew. */
static size_t growth_of(size_t i, const struct misbehaviour *m, size_t skip)
{
	size_t before, after;

	reset_peak();
	before = peak_kib();
	play(i, i + 1, m, skip);
	after = peak_kib();
	return after > before ? after - before : 0;
}

/*
 * Those before have ended, but what their clients say afterwards is answered as badly, and takes
 * memory, too. So what is too much counts only if it is so again when they are gone.
 */
static void play_alone(size_t i, const struct misbehaviour *m, size_t skip)
{
	size_t grown = growth_of(i, m, skip);

	if (grown > GROWTH_MAX_KIB && !measuring_is_vain()) {
		check_recovery(m, i + 1);
		close_scenes(i + 1);
		open_scene(&scenes[i], i);
		misbehave(&scenes[i], m, skip);
		grown = growth_of(i, m, skip);
	}
	if (grown <= GROWTH_MAX_KIB || measuring_is_vain())
		return;
	wrongs++;
	print_error("%s, request %zu, server %s: grew by %zu KiB\n", every_op[i].name, skip,
		    m->name, grown);
}

static void play_round(const struct misbehaviour *m, size_t skip)
{
	for (size_t i = 0; i < every_op_len; i++) {
		if (skip >= scenes[i].requests)
			continue;
		open_scene(&scenes[i], i);
		misbehave(&scenes[i], m, skip);
	}
	if (m->flags & ALONE) {
		for (size_t i = 0; i < every_op_len; i++)
			if (scenes[i].on)
				play_alone(i, m, skip);
	} else {
		play(0, every_op_len, m, skip);
	}
	check_recovery(m, every_op_len);
	close_scenes(every_op_len);
}

static void test_every_operation_against_every_misbehaviour(void **state UNUSED)
{
	const char *only = getenv("TFS_ONLY");
	size_t most = 0, share = own_share();

	for (size_t i = 0; i < every_op_len; i++)
		most = MAX(most, scenes[i].requests);
	assert_true(most > 0);
	for (size_t i = 1; i < SHARES && !share && !only; i++)
		start_helper(i);
	for (size_t i = 0; i < ARRAY_SIZE(misbehaviours); i++) {
		const struct misbehaviour *m = &misbehaviours[i];
		int64_t start = clock_ms();

		if (only ? !strstr(m->name, only) : i % SHARES != share)
			continue;
		for (size_t skip = 0; skip < (m->flags & ONLY_FIRST ? 1 : most); skip++)
			play_round(m, skip);
		print_message("%-36s %5lld ms\n", m->name, (long long)(clock_ms() - start));
	}
	for (size_t i = 0; i < SHARES; i++)
		wrongs += !end_helper(&helpers[i]);
	assert_int_equal(wrongs, 0);
	assert_int_equal(rogue_connections_total(elsewhere), 0);
}

/* About so many bytes of them, in lines of 1000; to be freed. */
static char *print_headers(size_t bytes)
{
	static const char type[] = "Content-Type: application/json\r\n";
	struct buf b = BUF_INIT(bytes + sizeof(type) + 2000);

	buf_puts(&b, type);
	while (b.len + 1000 <= bytes)
		buf_printf(&b, "X-Header: %0*d\r\n", 1000 - 12, 0);
	buf_putc(&b, '\0');
	assert_int_equal(b.error, 0);
	return b.data;
}

static int ping_answered(const struct rogue_reply *reply, size_t *ret_growth)
{
	struct scene *s = &scenes[0];
	struct call call;
	size_t before;
	int r;

	open_scene(s, 0);
	ROGUE_ADD(s->rogue, .action = ROGUE_ANSWER, .reply = *reply);
	reset_peak();
	before = peak_kib();
	call_init(&call, 30000);
	sandbox_ping(s->sb, &call);
	r = call_wait(&call);
	*ret_growth = peak_kib() - before;
	call_release(&call);
	close_scenes(1);
	return r;
}

static void test_headers_have_a_cap_of_their_own(void **state UNUSED)
{
	char *some CLEANUP_FREE = print_headers(60 * 1024);
	char *many CLEANUP_FREE = print_headers(66 * 1024);
	struct rogue_reply reply = { .headers = some, .body = "{\"success\":true}" };
	size_t growth;

	assert_int_equal(ping_answered(&reply, &growth), 0);
	reply.headers = many;
	assert_int_equal(ping_answered(&reply, &growth), -EMSGSIZE);
	reply = (struct rogue_reply){ .endless_head = "X-Header: value\r\n" };
	assert_int_equal(ping_answered(&reply, &growth), -EMSGSIZE);
	assert_true(measuring_is_vain() || growth < 8 * 1024); /* KiB */
}

static void test_nothing_is_left_open(void **state UNUSED)
{
	for (size_t i = 0; i < every_op_len; i++) {
		const char *socket = rogue_socket(scenes[i].rogue);

		assert_int_equal(count_sockets_to(socket ? socket : rogue_url(scenes[i].rogue)), 0);
	}
}

int main(int argc UNUSED, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_operations_work_when_nothing_is_wrong),
		cmocka_unit_test(test_every_operation_against_every_misbehaviour),
		cmocka_unit_test(test_headers_have_a_cap_of_their_own),
		cmocka_unit_test(test_nothing_is_left_open),
	};

	program = argv[0];
	/* What is freed goes back to the system at once: the peak is what was needed. */
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	return cmocka_run_group_tests(tests, open_stage, close_stage);
}

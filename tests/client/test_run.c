/*
 * Runs: their output byte by byte, their ends, their shells, their input, and
 * that nothing of them stays behind.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "direct.h"
#include "every.h"

#define OK(op, ...)       assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), 0)
#define FAILS(e, op, ...) assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), -(e))

enum { LOOK = 1024 * 1024 };

/* ---- helpers ---- */

/* All that a run said. */
struct said {
	struct buf out, err;
	int code;
	unsigned looks;
};
#define CLEANUP_SAID CLEANUP(said_release)

static void said_release(struct said *s)
{
	buf_release(&s->out);
	buf_release(&s->err);
}

static char *start(struct fixture *f, const struct run_spec *spec)
{
	char *run = NULL;

	OK(sandbox_run_start, spec, &run);
	assert_non_null(run);
	return run;
}

static char *start_text(struct fixture *f, const char *shell, const char *script)
{
	return start(f,
		     &(struct run_spec){ .script = script, .len = strlen(script), .shell = shell });
}

/* One look at what there is behind what is known; returns whether it was the last one. */
static bool look(struct fixture *f, const char *run, size_t max, struct said *to)
{
	struct run_news n;
	bool ended;

	OK(sandbox_run_look, run, to->out.len, to->err.len, max, 200, &n);
	assert_true(n.out_len <= max && n.err_len <= max);
	assert_int_equal(buf_append(&to->out, n.out, n.out_len), 0);
	assert_int_equal(buf_append(&to->err, n.err, n.err_len), 0);
	assert_int_equal(n.out[n.out_len], 0);
	to->looks++;
	ended = n.ended;
	if (ended) {
		to->code = n.exit_code;
		assert_true(n.started || n.exit_code > 128);
	}
	run_news_release(&n);
	return ended;
}

static void finish(struct fixture *f, char *run, struct said *to)
{
	WAIT_UNTIL(look(f, run, LOOK, to));
	OK(sandbox_run_drop, run);
	free(run);
}

static void run(struct fixture *f, const char *shell, const char *script, struct said *to)
{
	finish(f, start_text(f, shell, script), to);
}

static void assert_bytes(const struct buf *b, const char *text)
{
	assert_string_equal(b->data ?: "", text);
	assert_int_equal(b->len, strlen(text));
}

#define assert_run(f, shell, script, code_, out_, err_)                                            \
	do {                                                                                       \
		struct said s_ CLEANUP_SAID = { 0 };                                               \
		run(f, shell, script, &s_);                                                        \
		assert_bytes(&s_.err, err_);                                                       \
		assert_bytes(&s_.out, out_);                                                       \
		assert_int_equal(s_.code, code_);                                                  \
	} while (0)

/* Waits for a file that the run makes in the test's directory. */
static void wait_for(struct fixture *f, const char *name)
{
	WAIT_UNTIL(file_exists(fixture_host_path(f, name)));
}

/* Makes one that the run waits for. */
static void make_file(struct fixture *f, const char *name)
{
	FILE *file = fopen(fixture_host_path(f, name), "we");

	assert_non_null(file);
	fclose(file);
}

/* The text with the test's directory for every @. */
static const char *in_dir(const struct fixture *f, const char *text)
{
	static char to[1000];
	size_t len = 0;

	for (; *text; text++)
		len += (size_t)snprintf(to + len, sizeof(to) - len, "%.*s",
					*text == '@' ? (int)sizeof(f->dir) : 1,
					*text == '@' ? f->dir : text);
	return to;
}

/* What a command in the sandbox says, without runs. */
static bool sandbox_says(struct sandbox *sb, const char *command, const char *what)
{
	struct command_result r;
	bool found;

	assert_int_equal(SYNC(sb, sandbox_execute_command, command, &r), 0);
	found = strstr(r.output, what) != NULL;
	command_result_release(&r);
	return found;
}

/* Files and processes of ours, or that all sessions are still busy; for the caller to free. */
static char *what_is_left(struct sandbox *sb)
{
	struct command_result r;
	char *text;
	int err = SYNC(sb, sandbox_execute_command,
		       "echo \"<$(find /tmp/.threadfs-* 2>/dev/null;"
		       " grep -lsa 'threadfs-\\(run\\|feed\\)' /proc/[0-9]*/cmdline)>\"",
		       &r);

	if (err == -EBUSY) {
		text = strdup("commands in every session");
		assert_non_null(text);
		return text;
	}
	assert_int_equal(err, 0);
	text = strdup(r.output);
	assert_non_null(text);
	command_result_release(&r);
	return text;
}

/* Closes the sandbox; then nothing of it may be left, at least after a moment. */
static void assert_leaves_nothing(struct fixture *f)
{
	struct sandbox *other = fixture_open(f, NULL);
	int64_t until = clock_ms() + PATIENCE_MS;
	char *left;

	sandbox_unref(f->sb);
	f->sb = other;
	while (left = what_is_left(other), !strstr(left, "<>")) {
		if (clock_ms() > until)
			fail_msg("left: %s", left);
		free(left);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	free(left);
}

/* ---- a process of its own ---- */

static void test_exit_codes(void **state)
{
	static const int codes[] = { 0, 1, 2, 42, 126, 127, 128, 200, 255 };
	struct fixture *f = *state;
	char script[40];

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		snprintf(script, sizeof(script), "exit %d", codes[i]);
		assert_run(f, NULL, script, codes[i], "", "");
		assert_run(f, "sh", script, codes[i], "", "");
	}
	assert_run(f, NULL, "", 0, "", "");
	assert_leaves_nothing(f);
}

static void test_signals_of_its_own(void **state)
{
	static const int signals[] = { SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGSEGV, SIGPIPE };
	struct fixture *f = *state;
	char script[40];

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		snprintf(script, sizeof(script), "kill -%d $$; sleep 30", signals[i]);
		assert_run(f, NULL, script, 128 + signals[i], "", "");
		assert_run(f, "sh", script, 128 + signals[i], "", "");
	}
}

static void test_stdout_and_stderr_stay_apart(void **state)
{
	struct fixture *f = *state;
	static const char script[] =
		"echo a; echo b >&2; echo c >/dev/stderr; echo d | tee /dev/stderr;"
		" echo e >/dev/stdout; readlink /proc/self/fd/0";

	assert_run(f, NULL, script, 0, "a\nd\ne\n/dev/null\n", "b\nc\nd\n");
	assert_run(f, "sh", script, 0, "a\nd\ne\n/dev/null\n", "b\nc\nd\n");
}

static void test_every_byte(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 }, t CLEANUP_SAID = { 0 };
	static const char script[] =
		"for i in {0..255}; do printf -v x '\\\\x%x' $i; printf \"$x\";"
		" printf \"$x\" >&2; done";

	run(f, NULL, script, &s);
	run(f, "sh", script, &t);
	assert_int_equal(s.out.len, 256);
	assert_int_equal(s.err.len, 256);
	assert_int_equal(t.out.len, 256);
	for (int i = 0; i < 256; i++) {
		assert_int_equal((unsigned char)s.out.data[i], i);
		assert_int_equal((unsigned char)s.err.data[i], i);
		assert_int_equal((unsigned char)t.out.data[i], i);
	}
}

static void test_much_output(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 };
	char *name = start_text(f, NULL,
				"seq 1 10000000 | head -c 50M; seq 5 1000000 | head -c 3M >&2;"
				" printf end");
	size_t at = 0;
	char line[20];

	WAIT_UNTIL(look(f, name, LOOK, &s));
	assert_int_equal(s.code, 0);
	assert_int_equal(s.out.len, 50 * MIB + 3);
	assert_int_equal(s.err.len, 3 * MIB);
	for (unsigned i = 1; at < 50 * MIB; i++) {
		size_t n = (size_t)snprintf(line, sizeof(line), "%u\n", i);

		n = MIN(n, 50 * MIB - at);
		assert_memory_equal(s.out.data + at, line, n);
		at += n;
	}
	assert_memory_equal(s.out.data + at, "end", 3);
	/* The same again, from the middle, and no more than asked for. */
	s.out.len = 20 * MIB;
	s.err.len = 3 * MIB;
	assert_false(look(f, name, 1000, &s));
	assert_int_equal(s.out.len, 20 * MIB + 1000);
	OK(sandbox_run_drop, name);
	free(name);
}

static void test_output_comes_while_it_runs(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 };
	char *name = start_text(
		f, NULL, in_dir(f, "echo one; until [ -e @/go ]; do sleep .05; done; echo two"));

	WAIT_UNTIL(look(f, name, LOOK, &s) || s.out.len);
	assert_bytes(&s.out, "one\n");
	make_file(f, "go");
	finish(f, name, &s);
	assert_bytes(&s.out, "one\ntwo\n");
}

/* 128 KiB: lines with quotes of all kinds, then what tells that all of it was there. */
static void test_a_long_script(void **state)
{
	static const char line[] =
		"x='a\"b$(x)`y`!\\' y=\"q'q\" z=$'\\'\t\xff\xfe\xc3' # \x80 \x1b[0m ü\n";
	static const char last[] = "printf '%s' \"$x$y$z\"; wc -c <\"${BASH_SOURCE[0]}\"\n";
	static const char want[] = "a\"b$(x)`y`!\\q'q'\t\xff\xfe\xc3"
				   "131072\n";
	static const char *const shells[] = { NULL, "sh" };
	struct fixture *f = *state;
	char *script = malloc(131073);
	size_t len = 0;

	assert_non_null(script);
	while (len + sizeof(line) + sizeof(last) < 131072) {
		memcpy(script + len, line, sizeof(line) - 1);
		len += sizeof(line) - 1;
	}
	memset(script + len, '\n', 131072 - len);
	memcpy(script + 131072 - (sizeof(last) - 1), last, sizeof(last) - 1);
	for (size_t i = 0; i < 2; i++) {
		struct said s CLEANUP_SAID = { 0 };
		struct run_spec spec = { .script = script, .len = 131072, .shell = shells[i] };

		rogue_forget(f->rogue);
		finish(f, start(f, &spec), &s);
		assert_bytes(&s.err, "");
		assert_int_equal(s.out.len, sizeof(want) - 1);
		assert_memory_equal(s.out.data, want, sizeof(want) - 1);
	}
	FAILS(E2BIG, sandbox_run_start, (&(struct run_spec){ .script = script, .len = 131073 }),
	      &script);
	FAILS(EINVAL, sandbox_run_start, (&(struct run_spec){ .script = "a\0b", .len = 3 }),
	      &script);
	free(script);
	assert_leaves_nothing(f);
}

static void test_directory_and_environment(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 };
	char big[20001], *name = NULL;
	const char *env[] = { "A", "a b'c\n\xff", "PATH", "/nowhere", "BIG", big, NULL };
	const char *bad[] = { "A B", "x", NULL };
	struct run_spec spec = { .script = "echo \"$PWD|$A|$PATH|${#BIG}|$LC_ALL|\"", .len = 40 };
	char want[300];

	spec.len = strlen(spec.script);
	memset(big, 'B', 20000);
	big[20000] = 0;
	spec.dir = f->dir;
	spec.env = env;
	finish(f, start(f, &spec), &s);
	snprintf(want, sizeof(want), "%s|a b'c\n\xff|/nowhere|20000||\n", f->dir);
	assert_bytes(&s.err, "");
	assert_bytes(&s.out, want);
	assert_run(f, NULL, "pwd", 0, "/mnt/user-data\n", "");

	spec.env = bad;
	FAILS(EINVAL, sandbox_run_start, &spec, &name);
	spec.env = NULL;
	spec.dir = "/etc";
	FAILS(EACCES, sandbox_run_start, &spec, &name);
	spec.dir = fixture_path(f, "none");
	FAILS(ENOENT, sandbox_run_start, &spec, &name);
	spec.shell = "sh";
	FAILS(EINVAL, sandbox_run_start, &spec, &name);
	assert_null(name);
	assert_leaves_nothing(f);
}

static void test_a_child_that_stays_does_not_hold_the_run(void **state)
{
	struct fixture *f = *state;
	static const char *const shells[] = { NULL, "sh" };

	for (size_t i = 0; i < 2; i++) {
		assert_run(f, shells[i],
			   "echo $BASHPID >pid; (exec sleep 60) & echo $! >pid; echo done", 0,
			   "done\n", "");
		assert_run(f, NULL, "kill $(<pid); rm pid", 0, "", "");
	}
	/* Not even one that never stops. */
	{
		struct said s CLEANUP_SAID = { 0 };

		run(f, NULL,
		    "{ echo y; >go; while :; do echo y; done; } & echo $! >pid; "
		    "until [ -e go ]; do sleep .02; done; rm go",
		    &s);
		assert_int_equal(s.code, 0);
		assert_true(s.out.len > 0);
		assert_run(f, NULL, "kill $(<pid); rm pid", 0, "", "");
	}
	assert_leaves_nothing(f);
}

/* ---- in a shell ---- */

static void test_a_shell_remembers(void **state)
{
	struct fixture *f = *state;

	assert_run(f, "sh", "pwd; cd /usr; export A=1; b=2; declare -x C=3; g() { echo g; }", 0,
		   "/mnt/user-data\n", "");
	assert_run(f, "sh", "pwd; echo $A$b$C; g; env | grep -c ^[AC]=", 0, "/usr\n123\ng\n2\n",
		   "");
	/* Another one is another one. */
	assert_run(f, "other", "pwd; echo $A", 0, "/mnt/user-data\n\n", "");
	assert_run(f, "sh", "wait; exit 7", 7, "", "");
	assert_run(f, "sh", "pwd; echo $A", 0, "/mnt/user-data\n\n", "");
	assert_leaves_nothing(f);
}

static void test_what_a_script_can_do_to_its_shell(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 };
	char *name;

	assert_run(f, "sh", "cd /usr", 0, "", "");
	run(f, "sh", "echo 'unfinished", &s);
	assert_int_not_equal(s.code, 0);
	assert_non_null(strstr(s.err.data, "unexpected EOF"));
	assert_run(f, "sh", "pwd; return 5", 5, "/usr\n", "");
	assert_run(f, "sh", "pwd; break; echo never", 0, "/usr\n", "");
	assert_run(f, "sh", "pwd; continue; echo never", 0, "/usr\n", "");
	assert_run(f, "sh", "exec >/dev/null; echo lost", 0, "", "");
	assert_run(f, "sh", "false", 1, "", "");
	assert_run(f, "sh", "trap 'echo bye' EXIT; read() { :; }; printf() { :; }; echo() { :; }",
		   0, "", "");
	assert_run(f, "sh", "unset -f echo; pwd; exit 3", 3, "/usr\nbye\n", "");
	assert_run(f, "sh", "set -euo pipefail; cd /usr; IFS=x; TMOUT=1", 0, "", "");
	assert_run(f, "sh", "pwd; false; echo never", 1, "/usr\n", "");
	assert_run(f, "sh", "pwd; exec bash -c 'echo other; exit 4'", 4, "/mnt/user-data\nother\n",
		   "");
	assert_run(f, "sh", "kill -9 $$; echo never", 137, "", "");
	assert_run(f, "sh", "kill -9 0; echo never", 137, "", "");
	assert_run(f, "sh", "pwd", 0, "/mnt/user-data\n", "");
	/* It executes nothing any more, not even what would tell that it is through. */
	name = start_text(f, "sh", in_dir(f, ">@/up; set -n"));
	wait_for(f, "up");
	OK(sandbox_run_kill, name, SIGKILL);
	finish(f, name, &s);
	assert_int_equal(s.code, 137);
	assert_run(f, "third", "echo there", 0, "there\n", "");
	assert_leaves_nothing(f);
}

static void test_in_order_of_arrival(void **state)
{
	enum { N = 12 };
	struct fixture *f = *state;
	struct call *calls[N];
	/* holds the others until all have arrived */
	char *first = start_text(f, "sh", in_dir(f, "until [ -e @/go ]; do sleep .02; done"));
	char *names[N] = { 0 }, script[N][40];
	struct said none CLEANUP_SAID = { 0 };
	char want[300] = "";
	struct run_news n;

	for (int i = 0; i < N; i++) {
		snprintf(script[i], sizeof(script[i]), "x+=' %d'; echo $x", i);
		calls[i] = new_call(30000);
		sandbox_run_start(f->sb, calls[i],
				  &(struct run_spec){ .script = script[i],
						      .len = strlen(script[i]),
						      .shell = "sh" },
				  &names[i]);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(finish_call(calls[i]), 0);
	OK(sandbox_run_look, names[N - 1], 0, 0, LOOK, 0, &n);
	assert_false(n.ended);
	run_news_release(&n);
	make_file(f, "go");
	finish(f, first, &none);
	for (int i = 0; i < N; i++) {
		struct said s CLEANUP_SAID = { 0 };
		char line[310];

		snprintf(want + strlen(want), 8, "%s%d", i ? " " : "", i);
		snprintf(line, sizeof(line), "%s\n", want);
		finish(f, names[i], &s);
		assert_bytes(&s.out, line);
	}
	assert_leaves_nothing(f);
}

/* ---- killing ---- */

static void assert_killed(struct fixture *f, const char *shell, const char *script, int signal)
{
	struct said s CLEANUP_SAID = { 0 };
	char *name;

	unlink(fixture_host_path(f, "up"));
	name = start_text(f, shell, in_dir(f, script));
	wait_for(f, "up");
	OK(sandbox_run_kill, name, signal);
	finish(f, name, &s);
	if (s.code != 128 + signal)
		fail_msg("%s in %s: %d after signal %d: %s", script, shell ?: "itself", s.code,
			 signal, s.err.data ?: "");
	assert_bytes(&s.out, "");
}

static void test_kill(void **state)
{
	static const int signals[] = { SIGTERM, SIGKILL, SIGINT, SIGHUP };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		assert_killed(f, NULL, ">@/up; sleep 60; echo never", signals[i]);
		assert_killed(f, NULL, ">@/up; while :; do :; done; echo never", signals[i]);
		assert_run(f, "sh", "cd /usr; x=kept", 0, "", "");
		assert_killed(f, "sh", ">@/up; sleep 60; echo never", signals[i]);
		assert_killed(f, "sh", "g() { >@/up; while :; do :; done; }; g; echo never",
			      signals[i]);
		/* bash sends itself the SIGINT that ended a substitution. */
		if (signals[i] != SIGINT)
			assert_killed(f, "sh", "y=$(>@/up; sleep 60; echo y); echo never",
				      signals[i]);
		/* The shell is the same. */
		assert_run(f, "sh", "pwd; echo $x", 0, "/usr\nkept\n", "");
		assert_killed(f, "sh", ">@/up; exec sleep 60", signals[i]);
		assert_run(f, "sh", "pwd", 0, "/mnt/user-data\n", "");
	}
	/* What ignores it goes on, except for SIGKILL. */
	assert_killed(f, "sh", "trap '' TERM USR2; >@/up; while :; do :; done", SIGKILL);
	assert_killed(f, NULL, "trap '' TERM; >@/up; sleep 60 & sleep 60", SIGKILL);
	assert_leaves_nothing(f);
}

static void test_kill_leaves_what_was_there_before(void **state)
{
	struct fixture *f = *state;

	assert_run(f, "sh", "sleep 60 & p=$!", 0, "", "");
	assert_killed(f, "sh", ">@/up; sleep 60", SIGTERM);
	assert_run(f, "sh", "kill -0 $p && echo lives; kill $p", 0, "lives\n", "");
}

static void test_kill_of_one_that_waits(void **state)
{
	struct fixture *f = *state;
	char *first = start_text(f, "sh", in_dir(f, ">@/up; sleep 60"));
	char *second = start_text(f, "sh", in_dir(f, ">@/never"));
	char *third = start_text(f, "sh", "echo third");
	struct said s CLEANUP_SAID = { 0 };
	struct run_news n;

	wait_for(f, "up");
	OK(sandbox_run_look, second, 0, 0, 10, 0, &n);
	assert_false(n.started);
	assert_false(n.ended);
	run_news_release(&n);
	OK(sandbox_run_kill, second, SIGTERM);
	OK(sandbox_run_look, second, 0, 0, 10, 0, &n);
	assert_false(n.started);
	assert_true(n.ended);
	assert_int_equal(n.exit_code, 143);
	run_news_release(&n);
	OK(sandbox_run_kill, first, SIGTERM);
	finish(f, third, &s);
	assert_bytes(&s.out, "third\n");
	assert_false(file_exists(fixture_host_path(f, "never")));
	OK(sandbox_run_kill, first, SIGTERM); /* long ended */
	OK(sandbox_run_drop, first);
	OK(sandbox_run_drop, second);
	free(first);
	free(second);
	assert_leaves_nothing(f);
}

/* Whoever kills the supervisors, too, gets an end. */
static void test_a_lost_supervisor(void **state)
{
	static const char *const shells[] = { NULL, "sh" };
	struct fixture *f = *state;

	for (size_t i = 0; i < 2; i++) {
		struct said s CLEANUP_SAID = { 0 };
		char *name;

		unlink(fixture_host_path(f, "up"));
		name = start_text(f, shells[i], in_dir(f, "echo said; >@/up; sleep 60"));
		wait_for(f, "up");
		assert_true(
			sandbox_says(f->sb,
				     "for p in $(grep -lsa 'threadfs-[r]' /proc/[0-9]*/cmdline);"
				     " do p=${p%/*}; kill -9 ${p#/proc/}; done; echo do''ne",
				     "done"));
		finish(f, name, &s);
		assert_int_equal(s.code, -1);
		assert_run(f, shells[i], "pwd", 0, "/mnt/user-data\n", "");
	}
	assert_leaves_nothing(f);
}

/* ---- feeding ---- */

static void test_feed(void **state)
{
	enum { SIZE = 5 * 1024 * 1024 };
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 };
	char *bytes = malloc(SIZE), *name;
	unsigned seed = 7;
	int r;

	assert_non_null(bytes);
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (char)rand_r(&seed);
	name = start(f, &(struct run_spec){ .script = "cat", .len = 3, .fed = true });
	OK(sandbox_run_feed, name, 0, bytes, 10, false);
	WAIT_UNTIL(look(f, name, LOOK, &s) || s.out.len == 10);
	OK(sandbox_run_feed, name, 0, bytes, 1000000, false);
	do {
		struct call *c = new_call(30000);

		sandbox_run_feed(f->sb, c, name, 900000, bytes + 900000, SIZE - 900000, false);
		r = finish_call(c);
	} while (r == -EAGAIN); /* it reads slower than we write */
	assert_int_equal(r, 0);
	OK(sandbox_run_feed, name, SIZE, NULL, 0, true);
	finish(f, name, &s);
	assert_int_equal(s.code, 0);
	assert_int_equal(s.out.len, SIZE);
	assert_memory_equal(s.out.data, bytes, SIZE);
	free(bytes);
	assert_leaves_nothing(f);
}

/* Who does not read makes who writes wait, and what was read takes no room. */
static void test_feed_waits_for_its_reader(void **state)
{
	enum { PIECE = 256 * 1024, MOST = 4 * 1024 * 1024 };
	struct fixture *f = *state;
	const char *script = in_dir(f, "until [ -e @/go ]; do sleep .02; done; wc -c");
	struct said s CLEANUP_SAID = { 0 };
	char *bytes = calloc(1, PIECE), *name;
	uint64_t at = 0;
	char expect[32];
	int r = 0;

	assert_non_null(bytes);
	name = start(f, &(struct run_spec){ .script = script, .len = strlen(script), .fed = true });
	while (r == 0 && at < MOST) {
		struct call *c = new_call(30000);

		sandbox_run_feed(f->sb, c, name, at, bytes, PIECE, false);
		r = finish_call(c);
		at += r == 0 ? PIECE : 0;
	}
	assert_int_equal(r, -EAGAIN);
	make_file(f, "go");
	for (unsigned more = 0; more < 4;) {
		struct call *c = new_call(30000);

		sandbox_run_feed(f->sb, c, name, at, bytes, PIECE, more == 3);
		r = finish_call(c);
		assert_true(r == 0 || r == -EAGAIN);
		at += r == 0 ? PIECE : 0;
		more += r == 0;
	}
	finish(f, name, &s);
	snprintf(expect, sizeof(expect), "%llu\n", (unsigned long long)at);
	assert_bytes(&s.out, expect);
	free(bytes);
	assert_leaves_nothing(f);
}

static void test_feed_that_is_not_read(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 }, t CLEANUP_SAID = { 0 };
	char zeroes[200000] = { 0 };
	const char *script = in_dir(f, "until [ -e @/go ]; do sleep .02; done; exit 9");
	char *name = start(
		f, &(struct run_spec){ .script = script, .len = strlen(script), .fed = true });
	char *other;

	OK(sandbox_run_feed, name, 0, zeroes, sizeof(zeroes), false);
	make_file(f, "go");
	WAIT_UNTIL(look(f, name, LOOK, &s));
	assert_int_equal(s.code, 9);
	FAILS(EPIPE, sandbox_run_feed, name, 0, "x", 1, true);
	OK(sandbox_run_drop, name);
	free(name);

	/* Nothing is ever sent; one byte is enough; none is wanted. */
	name = start(f, &(struct run_spec){ .script = "exit 8", .len = 6, .fed = true });
	finish(f, name, &t);
	assert_int_equal(t.code, 8);
	name = start(f,
		     &(struct run_spec){ .script = "head -c 1; exit 6", .len = 17, .fed = true });
	OK(sandbox_run_feed, name, 0, "xyz", 3, false);
	finish(f, name, &t);
	assert_bytes(&t.out, "x");
	other = start_text(f, NULL, "sleep .1");
	FAILS(EPIPE, sandbox_run_feed, other, 0, "x", 1, true);
	finish(f, other, &s);
	assert_leaves_nothing(f);
}

/* ---- the end ---- */

static void test_drop(void **state)
{
	struct fixture *f = *state;
	char *name =
		start_text(f, NULL, in_dir(f, "until [ -e @/go ]; do sleep .02; done; >@/went"));
	struct run_news n;

	OK(sandbox_run_drop, name);
	FAILS(ESRCH, sandbox_run_look, name, 0, 0, 10, 0, &n);
	FAILS(ESRCH, sandbox_run_kill, name, SIGTERM);
	FAILS(ESRCH, sandbox_run_feed, name, 0, "x", 1, true);
	OK(sandbox_run_drop, name);
	make_file(f, "go");
	wait_for(f, "went");
	FAILS(EINVAL, sandbox_run_drop, "../../etc");
	FAILS(EINVAL, sandbox_run_kill, name, SIGUSR1);
	free(name);
	assert_leaves_nothing(f);
}

/* A start that nobody hears of leaves nothing. */
static void test_a_cancelled_start(void **state)
{
	static const char *const shells[] = { NULL, "sh" };
	struct fixture *f = *state;

	for (unsigned i = 0; i < 16; i++) {
		struct call *c = new_call(30000);
		char *name = NULL;

		sandbox_run_start(f->sb, c,
				  &(struct run_spec){
					  .script = "sleep 60", .len = 8, .shell = shells[i % 2] },
				  &name);
		nanosleep(&(struct timespec){ .tv_nsec = 3000000 * i }, NULL);
		call_cancel(c);
		if (finish_call(c) == 0) {
			OK(sandbox_run_kill, name, SIGKILL);
			OK(sandbox_run_drop, name);
			free(name);
		}
	}
	assert_leaves_nothing(f);
}

/* Nor if the server has no session to spare at first for what removes it. */
static void test_a_cancelled_start_of_a_busy_server(void **state)
{
	struct fixture *f = *state;
	struct call *c = new_call(30000);
	const char *exec = f->has_bash ? "/v1/bash/exec$" : "/v1/shell/exec$";
	char *name = NULL;

	ROGUE_ADD(f->rogue, .path = exec, .body_contains = "threadfs-bar", .times = 2,
		  .action = ROGUE_ANSWER,
		  .reply = { .status = 429,
			     .body = "{\"success\":false,\"message\":\"session limit reached\"}" });
	ROGUE_ADD(f->rogue, .path = exec, .times = 1, .delay_ms = ROGUE_UNTIL_RELEASED);
	sandbox_run_start(f->sb, c, &(struct run_spec){ .script = "sleep 60", .len = 8 }, &name);
	WAIT_UNTIL(rogue_count_body(f->rogue, "POST", exec, "/once") == 1);
	call_cancel(c);
	assert_int_equal(finish_call(c), -ECANCELED);
	WAIT_UNTIL(rogue_count_body(f->rogue, "POST", exec, "threadfs-bar") == 3);
	assert_leaves_nothing(f);
}

/* Nor does one whose client goes, with the shell that it was for. */
static void test_a_start_at_the_end(void **state)
{
	static const char *const shells[] = { NULL, "sh" };
	struct fixture *f = *state;

	for (unsigned i = 0; i < 16; i++) {
		struct sandbox *sb = fixture_open(f, NULL);
		struct call *c = new_call(30000);
		char *name = NULL;

		sandbox_run_start(sb, c,
				  &(struct run_spec){
					  .script = "sleep 60", .len = 8, .shell = shells[i % 2] },
				  &name);
		nanosleep(&(struct timespec){ .tv_nsec = 3000000 * i }, NULL);
		if (i & 2)
			call_cancel(c);
		sandbox_close(sb);
		if (finish_call(c) == 0) {
			OK(sandbox_run_kill, name, SIGKILL);
			OK(sandbox_run_drop, name);
			free(name);
		}
		sandbox_unref(sb);
	}
	assert_leaves_nothing(f);
}

static void test_one_request_each(void **state)
{
	struct fixture *f = *state;
	struct said s CLEANUP_SAID = { 0 };
	char *name;

	assert_run(f, "sh", "true", 0, "", "");
	rogue_forget(f->rogue);
	name = start_text(f, "sh", "echo x");
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 1);
	look(f, name, LOOK, &s);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 2);
	finish(f, name, &s);
	assert_bytes(&s.out, "x\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_exit_codes),
		FIXTURE_TEST(test_signals_of_its_own),
		FIXTURE_TEST(test_stdout_and_stderr_stay_apart),
		FIXTURE_TEST(test_every_byte),
		FIXTURE_TEST(test_much_output),
		FIXTURE_TEST(test_output_comes_while_it_runs),
		FIXTURE_TEST(test_a_long_script),
		FIXTURE_TEST(test_directory_and_environment),
		FIXTURE_TEST(test_a_child_that_stays_does_not_hold_the_run),
		FIXTURE_TEST(test_a_shell_remembers),
		FIXTURE_TEST(test_what_a_script_can_do_to_its_shell),
		FIXTURE_TEST(test_in_order_of_arrival),
		FIXTURE_TEST(test_kill),
		FIXTURE_TEST(test_kill_leaves_what_was_there_before),
		FIXTURE_TEST(test_kill_of_one_that_waits),
		FIXTURE_TEST(test_a_lost_supervisor),
		FIXTURE_TEST(test_feed),
		FIXTURE_TEST(test_feed_waits_for_its_reader),
		FIXTURE_TEST(test_feed_that_is_not_read),
		FIXTURE_TEST(test_drop),
		FIXTURE_TEST(test_a_cancelled_start),
		FIXTURE_TEST(test_a_cancelled_start_of_a_busy_server),
		FIXTURE_TEST(test_a_start_at_the_end),
		FIXTURE_TEST(test_one_request_each),
	};

	return FIXTURE_RUN(tests);
}

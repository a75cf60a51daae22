/* fs/jobs.c and its parts: commands in a real sandbox, without FUSE. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fsrig.h"
#include "jobs.h"

/* ---- on the loop ---- */

struct starting {
	struct fsrig *rig;
	struct job_spec spec;
	struct job_start start;
	struct command *command; /* counted */
	int err;
	bool done, leave;
};

static void on_started(struct job_start *s, int err, struct command *c)
{
	struct starting *x = CONTAINER_OF(s, struct starting, start);

	x->err = err;
	x->command = c ? command_ref(c) : NULL;
	x->done = true;
}

static void begin(void *ctx)
{
	struct starting *x = ctx;

	x->start.done = on_started;
	x->err = jobs_start(x->rig->thread, &x->spec, &x->start);
	if (x->err < 0)
		x->done = true;
	if (x->leave)
		jobs_start_leave(&x->start);
}

static bool is_started(void *ctx)
{
	return ((struct starting *)ctx)->done;
}

static void start_begin(struct fsrig *r, struct starting *x, const char *script)
{
	x->rig = r;
	x->spec.script = script;
	x->spec.len = strlen(script);
	fsrig_run(r, begin, x);
}

static int start_end(struct fsrig *r, struct starting *x, struct command **ret)
{
	assert_true(fsrig_wait(r, is_started, x));
	*ret = x->command;
	return x->err;
}

static struct command *start(struct fsrig *r, const struct job_spec *how, const char *script)
{
	struct starting x = { .spec = *how };
	struct command *c;

	start_begin(r, &x, script);
	assert_int_equal(start_end(r, &x, &c), 0);
	return c;
}

static const struct job_spec in_shell = { 0 }, own = { .own = true },
			     fed = { .own = true, .fed = true };

static void put(void *ctx)
{
	command_unref(ctx);
}

/* Somebody waits for the end. */
struct waiting {
	struct job_wait wait;
	struct command *command;
	struct thread *thread;
	uint64_t epoch; /* of the thread when the end was heard of */
	bool over;
};

static void on_news(struct job_wait *w, int err UNUSED)
{
	struct waiting *x = CONTAINER_OF(w, struct waiting, wait);

	if (!command_is_over(x->command))
		return;
	x->over = true;
	x->epoch = x->thread->epoch;
	command_wait_end(w);
}

static void wait_begin(void *ctx)
{
	struct waiting *x = ctx;

	x->wait.wake = on_news;
	if (command_is_over(x->command))
		x->over = true;
	else
		command_wait(x->command, &x->wait);
}

static bool is_over(void *ctx)
{
	return ((struct waiting *)ctx)->over;
}

static void wait_over(struct fsrig *r, struct command *c)
{
	struct waiting x = { .command = c, .thread = r->thread };

	fsrig_run(r, wait_begin, &x);
	assert_true(fsrig_wait(r, is_over, &x));
}

struct reading {
	struct command *command;
	enum job_stream which;
	struct buf text;
	ssize_t last;
};

static void read_all(void *ctx)
{
	struct reading *x = ctx;
	struct job_cursor at = { 0 };
	char piece[1000];

	while ((x->last = command_read(x->command, x->which, &at, piece, sizeof(piece))) > 0)
		buf_append(&x->text, piece, (size_t)x->last);
}

/* What there is; valid until the second next call. */
static const char *text_of(struct fsrig *r, struct command *c, enum job_stream which)
{
	static char texts[2][1000];
	static unsigned turn;
	struct reading x = { .command = c, .which = which };
	char *to = texts[turn++ % 2];

	fsrig_run(r, read_all, &x);
	assert_int_equal(x.last, 0);
	snprintf(to, 1000, "%s", x.text.data ?: "");
	buf_release(&x.text);
	return to;
}

struct asking {
	struct job_ask ask;
	struct command *command;
	int signal;
	const char *bytes;
	size_t len;
	int err;
	bool done;
};

static void on_asked(struct job_ask *a, int err)
{
	struct asking *x = CONTAINER_OF(a, struct asking, ask);

	x->err = err;
	x->done = true;
}

static void ask_begin(void *ctx)
{
	struct asking *x = ctx;

	x->ask.done = on_asked;
	x->err = x->signal ? command_kill(x->command, x->signal, &x->ask)
			   : command_feed(x->command, x->bytes, x->len, &x->ask);
	x->done = x->err < 0;
}

static bool is_asked(void *ctx)
{
	return ((struct asking *)ctx)->done;
}

static int ask_it(struct fsrig *r, struct asking *x)
{
	fsrig_run(r, ask_begin, x);
	assert_true(fsrig_wait(r, is_asked, x));
	return x->err;
}

static int send_signal(struct fsrig *r, struct command *c, int signal)
{
	return ask_it(r, &(struct asking){ .command = c, .signal = signal });
}

static int feed(struct fsrig *r, struct command *c, const char *bytes, size_t len)
{
	return ask_it(r, &(struct asking){ .command = c, .bytes = bytes, .len = len });
}

static void open_stdin(void *ctx)
{
	struct asking *x = ctx;

	x->err = command_stdin_open(x->command);
}

static void close_stdin(void *ctx)
{
	command_stdin_close(ctx);
}

/* ---- tests ---- */

static void test_streams_and_code(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start(r, &in_shell, "echo out; echo err >&2; (exit 7)");

	wait_over(r, c);
	assert_int_equal(command_state(c), JOB_DONE);
	assert_int_equal(command_exit_code(c), 7);
	assert_int_equal(jobs_exit_code(r->thread), 7);
	assert_string_equal(text_of(r, c, JOB_OUT), "out\n");
	assert_string_equal(text_of(r, c, JOB_ERR), "err\n");
	assert_int_equal(strlen(text_of(r, c, JOB_BOTH)), 8);
	fsrig_run(r, put, c);
}

static void test_shell_remembers(void **state)
{
	struct fsrig *r = *state;
	struct command *a = start(r, &in_shell, "mkdir sub; cd sub; export V=1");
	struct command *b = start(r, &in_shell, "echo ${PWD##*/} $V");

	wait_over(r, b);
	assert_true(command_is_over(a));
	assert_string_equal(text_of(r, b, JOB_BOTH), "sub 1\n");
	fsrig_run(r, put, a);
	fsrig_run(r, put, b);
}

static void test_order_of_arrival(void **state)
{
	static const char *const scripts[] = { "sleep .2; echo 1 >>log", "echo 2 >>log",
					       "echo 3 >>log", "echo 4 >>log", "cat log" };
	enum { N = ARRAY_SIZE(scripts) };
	struct fsrig *r = *state;
	struct starting x[N] = { 0 };
	struct command *c[N];

	for (size_t i = 0; i < N; i++)
		start_begin(r, &x[i], scripts[i]);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(start_end(r, &x[i], &c[i]), 0);
		assert_int_equal(command_number(c[i]), i + 1);
	}
	wait_over(r, c[N - 1]);
	assert_string_equal(text_of(r, c[N - 1], JOB_OUT), "1\n2\n3\n4\n");
	for (size_t i = 0; i < N; i++)
		fsrig_run(r, put, c[i]);
}

static void test_caches_are_void_before_the_end_is_told(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start(r, &own, "sleep .1");
	struct waiting x = { .command = c, .thread = r->thread };
	uint64_t before = r->thread->epoch;

	fsrig_run(r, wait_begin, &x);
	assert_true(fsrig_wait(r, is_over, &x));
	assert_true(x.epoch > before);
	fsrig_run(r, put, c);
}

static void test_own_process(void **state)
{
	static const char *const env[] = { "A", "x y", NULL };
	struct fsrig *r = *state;
	struct command *c;

	assert_int_equal(mkdir(fsrig_host_path(r, "d"), 0755), 0);
	c = start(r, &(struct job_spec){ .own = true, .dir = "d", .env = env },
		  "echo ${PWD##*/} \"$A\"; cat");
	wait_over(r, c);
	assert_string_equal(text_of(r, c, JOB_OUT), "d x y\n");
	assert_int_equal(command_exit_code(c), 0);
	assert_int_equal(jobs_exit_code(r->thread), -1); /* the shell's only */
	fsrig_run(r, put, c);
}

static void test_no_such_directory(void **state)
{
	struct fsrig *r = *state;
	struct starting x = { .spec = { .own = true, .dir = "none" } };
	struct command *c;

	start_begin(r, &x, "true");
	assert_int_equal(start_end(r, &x, &c), -ENOENT);
	assert_false(jobs_has(r->thread, 1));
}

static void test_much_output(void **state)
{
	enum { SIZE = 3000000 };
	struct fsrig *r = *state;
	struct command *c = start(r, &own, "seq 1 1000000 | head -c 3000000; echo x >&2");
	struct reading x = { .command = c, .which = JOB_OUT };
	unsigned long n = 1;

	wait_over(r, c);
	fsrig_run(r, read_all, &x);
	assert_int_equal(x.last, 0);
	assert_int_equal(x.text.len, SIZE);
	for (const char *s = x.text.data; s && s[0]; n++) {
		char line[16];
		int len = snprintf(line, sizeof(line), "%lu\n", n);
		size_t left = (size_t)(x.text.data + SIZE - s);

		assert_memory_equal(s, line, MIN((size_t)len, left));
		s += MIN((size_t)len, left);
	}
	assert_string_equal(text_of(r, c, JOB_ERR), "x\n");
	buf_release(&x.text);
	fsrig_run(r, put, c);
}

static struct command *start_cat_of_one(struct fsrig *r)
{
	struct command *c = start(r, &fed, "cat");
	struct asking x = { .command = c };

	fsrig_run(r, open_stdin, &x);
	assert_int_equal(x.err, 0);
	assert_int_equal(feed(r, c, "one\n", 4), 0);
	return c;
}

static void test_stdin(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start_cat_of_one(r);
	struct asking x = { .command = c };

	assert_int_equal(feed(r, c, "two\n", 4), 0);
	fsrig_run(r, close_stdin, c);
	wait_over(r, c);
	assert_string_equal(text_of(r, c, JOB_OUT), "one\ntwo\n");
	assert_int_equal(feed(r, c, "x", 1), -EPIPE);
	fsrig_run(r, open_stdin, &x);
	assert_int_equal(x.err, -EPIPE);
	fsrig_run(r, put, c);
}

/* Its end is told for as long as it takes: nobody else could, and the command waits for it. */
static void test_end_of_stdin_is_told_again(void **state)
{
	static const char *const routes[] = { "/v1/bash/exec", "/v1/shell/exec" };
	struct fsrig *r = *state;
	struct command *c = start_cat_of_one(r);

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		rogue_answer(r->f->rogue, "POST", routes[i], 500, "broken");
	fsrig_run(r, close_stdin, c);
	nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 500000000 }, NULL);
	rogue_clear(r->f->rogue);
	wait_over(r, c);
	assert_string_equal(text_of(r, c, JOB_OUT), "one\n");
	fsrig_run(r, put, c);
}

static void test_stdin_that_nobody_writes_to(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start(r, &own, "cat; echo end");
	struct asking x = { .command = c };

	fsrig_run(r, open_stdin, &x);
	assert_int_equal(x.err, -EPIPE);
	wait_over(r, c);
	assert_string_equal(text_of(r, c, JOB_OUT), "end\n");
	fsrig_run(r, put, c);
}

static void test_signals(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGKILL };
	struct fsrig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct command *c = start(r, i % 2 ? &own : &in_shell, "exec sleep 1000");

		assert_int_equal(send_signal(r, c, signals[i]), 0);
		wait_over(r, c);
		assert_int_equal(command_state(c), JOB_DONE);
		assert_int_equal(command_exit_code(c), 128 + signals[i]);
		assert_int_equal(send_signal(r, c, signals[i]), -ESRCH);
		fsrig_run(r, put, c);
	}
}

static void test_killed_while_it_waits(void **state)
{
	struct fsrig *r = *state;
	struct command *a = start(r, &in_shell, "sleep 1000");
	struct command *b = start(r, &in_shell, "touch never");

	assert_int_equal(command_state(b), JOB_WAITING);
	assert_int_equal(send_signal(r, b, SIGTERM), 0);
	wait_over(r, b);
	assert_false(command_is_over(a));
	assert_int_equal(send_signal(r, a, SIGTERM), 0);
	wait_over(r, a);
	assert_int_equal(access(fsrig_host_path(r, "never"), F_OK), -1);
	fsrig_run(r, put, a);
	fsrig_run(r, put, b);
}

static void test_left_before_it_was_sent(void **state)
{
	struct fsrig *r = *state;
	struct starting first = { 0 }, second = { .leave = true };
	struct command *a, *b;

	start_begin(r, &first, "true");
	start_begin(r, &second, "touch never"); /* in the queue behind it */
	assert_int_equal(start_end(r, &first, &a), 0);
	b = start(r, &in_shell, "true");
	wait_over(r, b);
	assert_false(second.done);
	assert_int_equal(command_number(b), 2);
	assert_int_equal(access(fsrig_host_path(r, "never"), F_OK), -1);
	fsrig_run(r, put, a);
	fsrig_run(r, put, b);
}

/* Nobody waits: it ends all the same, and is heard of. */
static bool has_code(void *ctx)
{
	return jobs_exit_code(ctx) == 3;
}

static void test_unattended(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start(r, &in_shell, "sleep .3; (exit 3)");

	fsrig_run(r, put, c);
	assert_true(fsrig_wait(r, has_code, r->thread));
	assert_true(jobs_has(r->thread, 1));
}

static unsigned leases(struct fsrig *r)
{
	struct tenant_status s;
	unsigned n;

	assert_int_equal(tenant_status(r->thread->tenant, &s), 0);
	n = s.leases;
	tenant_status_release(&s);
	return n;
}

static void let_thread_go(void *ctx)
{
	thread_let_go(ctx);
}

static bool has_no_lease(void *ctx)
{
	return leases(ctx) == 0;
}

static bool has_one_lease(void *ctx)
{
	return leases(ctx) == 1;
}

static void test_holds_a_lease(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start(r, &own, "exec sleep 1000");

	fsrig_run(r, let_thread_go, r->thread);
	assert_true(fsrig_wait(r, has_one_lease, r)); /* the mount's own questions have one, too */
	assert_int_equal(send_signal(r, c, SIGKILL), 0);
	wait_over(r, c);
	fsrig_run(r, put, c);
	fsrig_run(r, let_thread_go, r->thread);
	assert_true(fsrig_wait(r, has_no_lease, r));
}

static void free_jobs(void *ctx)
{
	struct fsrig *r = ctx;

	jobs_free(r->thread->jobs);
}

/* The end of the mount: those who wait are told, the command goes on. */
static void test_end_of_the_mount(void **state)
{
	struct fsrig *r = *state;
	struct command *c = start(r, &own, "exec sleep 3");
	struct waiting x = { .command = c, .thread = r->thread };
	struct starting late = { 0 };

	fsrig_run(r, wait_begin, &x);
	start_begin(r, &late, "true");
	fsrig_run(r, free_jobs, r);
	assert_true(fsrig_wait(r, is_over, &x));
	assert_true(fsrig_wait(r, is_started, &late));
	assert_true(late.err < 0);
	assert_int_equal(command_state(c), JOB_LOST);
	assert_false(jobs_has(r->thread, 1));
	fsrig_run(r, put, c);
}

static void test_old_ones_are_forgotten(void **state)
{
	enum { N = JOBS_KEPT + 3 };
	struct fsrig *r = *state;
	struct command *c = NULL;

	for (unsigned i = 0; i < N; i++) {
		if (c)
			fsrig_run(r, put, c);
		c = start(r, &in_shell, "echo x");
	}
	wait_over(r, c);
	assert_false(jobs_has(r->thread, 3));
	assert_true(jobs_has(r->thread, 4));
	assert_true(jobs_has(r->thread, N));
	fsrig_run(r, put, c);
}

static bool has_run(void *ctx)
{
	struct stat st;

	return stat(fsrig_host_path(ctx, "ran"), &st) == 0 && st.st_size > 0;
}

/* The sandbox dies: the command is lost, is not run again, and nobody hangs. */
static void test_sandbox_dies(void **state)
{
	struct fsrig *r = *state;
	struct command *a = start(r, &in_shell, "echo x >>ran; echo out; sleep 1000");
	struct command *b = start(r, &in_shell, "echo x >>ran");
	struct reading x = { .command = a, .which = JOB_OUT };

	assert_true(fsrig_wait(r, has_run, r));
	assert_int_equal(rig_destroy(r->thread->tenant), 0);
	wait_over(r, a);
	wait_over(r, b);
	assert_int_equal(command_state(a), JOB_LOST);
	assert_int_equal(command_state(b), JOB_LOST);
	assert_int_equal(command_exit_code(a), -1);
	assert_int_equal(jobs_exit_code(r->thread), -1);
	fsrig_run(r, read_all, &x);
	assert_true(x.last < 0);
	buf_release(&x.text);
	fsrig_run(r, put, a);
	fsrig_run(r, put, b);
	a = start(r, &in_shell, "wc -l <ran"); /* in the next sandbox */
	wait_over(r, a);
	assert_string_equal(text_of(r, a, JOB_OUT), "1\n");
	fsrig_run(r, put, a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FSRIG_TEST(test_streams_and_code),
		FSRIG_TEST(test_shell_remembers),
		FSRIG_TEST(test_order_of_arrival),
		FSRIG_TEST(test_caches_are_void_before_the_end_is_told),
		FSRIG_TEST(test_own_process),
		FSRIG_TEST(test_no_such_directory),
		FSRIG_TEST(test_much_output),
		FSRIG_TEST(test_stdin),
		FSRIG_TEST(test_end_of_stdin_is_told_again),
		FSRIG_TEST(test_stdin_that_nobody_writes_to),
		FSRIG_TEST(test_signals),
		FSRIG_TEST(test_killed_while_it_waits),
		FSRIG_TEST(test_left_before_it_was_sent),
		FSRIG_TEST(test_unattended),
		FSRIG_TEST(test_holds_a_lease),
		FSRIG_TEST(test_end_of_the_mount),
		FSRIG_TEST(test_old_ones_are_forgotten),
		FSRIG_EMBEDDED_TEST(test_sandbox_dies),
	};

	return FSRIG_RUN(tests);
}

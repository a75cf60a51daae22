/*
 * Cancelling: any operation, at any moment, from another thread. It ends soon,
 * and nothing of it is left.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "every.h"

enum {
	ROUNDS = 5, /* of each operation */
	/* Without it they would wait for ever; machines are noisy. */
	MEDIAN_MS = 500, /* of all cancellations */
	LONGEST_MS = 10000,
	RANDOM = 1000, /* cancellations */
	THREADS = 4,
	DELAY_MAX_US = 20000,
};

/* ---- how soon ---- */

struct canceller {
	struct call *call;
	int64_t at_us;
};

static void *cancel_it(void *arg)
{
	struct canceller *c = arg;

	c->at_us = clock_us();
	call_cancel(c->call);
	return NULL;
}

/* Cancels the attempt from another thread. Returns how long its end took. */
static int64_t cancel_and_wait(struct attempt *a)
{
	struct canceller c = { .call = &a->call };
	pthread_t thread;
	int64_t end_us;
	int r;

	assert_int_equal(pthread_create(&thread, NULL, cancel_it, &c), 0);
	r = call_wait(&a->call);
	end_us = clock_us();
	pthread_join(thread, NULL);
	if (r != -ECANCELED)
		fail_msg("%s: %d (%s)", a->op->name, r, a->call.message ?: "no words");
	if (attempt_judge(a))
		fail_msg("%s: %s", a->op->name, attempt_judge(a));
	return end_us - c.at_us;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void check_times(const char *what, int64_t *us, size_t n)
{
	size_t middle = n / 2, nearly_last = n * 99 / 100;

	assert_true(n > 0);
	qsort(us, n, sizeof(*us), compare);
	print_message("%s, %zu times: median %.2f ms, 99 %% %.2f ms, longest %.2f ms\n", what, n,
		      (double)us[middle] / 1e3, (double)us[nearly_last] / 1e3,
		      (double)us[n - 1] / 1e3);
	assert_in_range(us[n / 2] / 1000, 0, MEDIAN_MS * slowness());
	assert_in_range(us[n - 1] / 1000, 0, LONGEST_MS * slowness());
}

/* What an operation goes through: a proxy of its own, so that nobody waits for another's end. */
struct way {
	struct rogue *rogue;
	struct sandbox *sb; /* NULL: not open */
	bool over;          /* it makes no more requests than were held */
};

static struct sandbox *open_way(struct fixture *f, struct rogue *rogue)
{
	const struct sandbox_config config = { .socket = rogue_socket(rogue), .label = "cancel" };
	struct sandbox *sb = NULL;

	assert_int_equal(sandbox_new(f->loop, &config, &sb, NULL), 0);
	return sb;
}

/* The server holds the operation's request number `held` (from 0); false if it makes fewer. */
static bool cancel_held(struct fixture *f, struct way *way, const struct every_op *op, size_t held,
			int64_t *ret_us)
{
	struct attempt a;
	bool cancelled;

	way->sb = open_way(f, way->rogue);
	attempt_init(&a, op, 0);
	attempt_prepare(&a, f);
	/* Requests of the one before still count until their connections have ended. */
	assert_true(rogue_wait_connections(way->rogue, 0, 10000));
	rogue_forget(way->rogue);
	rogue_add(way->rogue,
		  &(struct rogue_rule){ .skip = (unsigned)held, .hold_ms = ROGUE_UNTIL_RELEASED });
	attempt_start(&a, way->sb);
	while (!attempt_has_ended(&a) && !rogue_wait_for(way->rogue, NULL, NULL, held + 1, 5))
		;
	/* What is said after the end are farewells. */
	cancelled = !attempt_has_ended(&a);
	if (cancelled)
		*ret_us = cancel_and_wait(&a);
	attempt_release(&a);
	rogue_clear(way->rogue);
	rogue_release(way->rogue);
	/* Its farewells take a while: they are waited for together with the others'. */
	sandbox_dismiss(sandbox_ref(way->sb), NULL, NULL);
	return cancelled;
}

static void close_ways(struct way *ways)
{
	for (size_t i = 0; i < every_op_len; i++) {
		if (!ways[i].sb)
			continue;
		sandbox_unref(STEAL(ways[i].sb));
		assert_int_equal(count_sockets_to(rogue_socket(ways[i].rogue)), 0);
	}
}

/* Each operation once for each request that it makes. Returns how many that were. */
static size_t cancel_each(struct fixture *f, struct way *ways, int64_t *us, size_t max)
{
	size_t n = 0, before = 0;

	for (size_t i = 0; i < every_op_len; i++)
		ways[i].over = false;
	for (size_t held = 0; held == 0 || n > before; held++) {
		before = n;
		for (size_t i = 0; i < every_op_len; i++) {
			/* The stream of a watch has no end and no third request. */
			if (ways[i].over || (every_op[i].flags & EVERY_ENDLESS && held >= 2))
				continue;
			assert_true(n < max);
			if (cancel_held(f, &ways[i], &every_op[i], held, &us[n]))
				n++;
			else
				ways[i].over = true;
			assert_true(held > 0 || !ways[i].over);
		}
		close_ways(ways);
	}
	return n;
}

static void test_every_operation_ends_soon_when_cancelled(void **state)
{
	struct fixture *f = *state;
	struct way ways[64] = { 0 };
	int64_t us[1000];
	size_t n = 0;

	assert_in_range(every_op_len, 1, ARRAY_SIZE(ways));
	fixture_roomy_daemon(f);
	for (size_t i = 0; i < every_op_len; i++)
		assert_non_null(ways[i].rogue = rogue_new(daemon_socket(f->daemon), false));
	for (int round = 0; round < ROUNDS; round++)
		n += cancel_each(f, ways, us + n, ARRAY_SIZE(us) - n);
	for (size_t i = 0; i < every_op_len; i++)
		rogue_free(ways[i].rogue);
	check_times("held by the server", us, n);
}

/* ---- what takes long by itself ---- */

static int keep_waiting(void *ctx, const void *bytes UNUSED, size_t len UNUSED)
{
	atomic_store((atomic_bool *)ctx, true);
	return -EAGAIN;
}

static ssize_t nothing_yet(void *ctx, char *to UNUSED, size_t len UNUSED)
{
	atomic_store((atomic_bool *)ctx, true);
	return -EAGAIN;
}

static void wait_flag(const atomic_bool *flag)
{
	int64_t deadline = clock_ms() + 20000;

	while (!atomic_load(flag) && clock_ms() < deadline)
		usleep(1000);
	assert_true(atomic_load(flag));
}

static void test_paused_transfers_end_soon_when_cancelled(void **state)
{
	struct fixture *f = *state;
	int64_t us[2 * ROUNDS];
	size_t n = 0;

	for (int round = 0; round < ROUNDS; round++) {
		atomic_bool reached = false;
		const struct download down = { .data = keep_waiting, .ctx = &reached };
		const struct upload up = {
			.size = -1, .mode = -1, .read = nothing_yet, .ctx = &reached, .fd = -1
		};
		struct attempt a;

		attempt_init(&a, &every_op[0], 0);
		attempt_prepare(&a, f);
		snprintf(a.paths[0], sizeof(a.paths[0]), "%s/file", a.dir);
		sandbox_download(f->sb, &a.call, a.paths[0], &down);
		wait_flag(&reached);
		us[n++] = cancel_and_wait(&a);
		call_release(&a.call);

		atomic_store(&reached, false);
		call_init(&a.call, 0);
		sandbox_upload(f->sb, &a.call, a.paths[0], &up);
		wait_flag(&reached);
		us[n++] = cancel_and_wait(&a);
		attempt_release(&a);
	}
	check_times("paused transfers", us, n);
}

static void test_long_commands_end_soon_when_cancelled(void **state)
{
	const struct bash_command sleeps = { .command = "sleep 600" };
	struct fixture *f = *state;
	int64_t us[2 * ROUNDS];
	size_t n = 0;

	for (int round = 0; round < ROUNDS; round++) {
		struct attempt a;

		rogue_forget(f->rogue);
		attempt_init(&a, &every_op[0], 0);
		sandbox_execute_command(f->sb, &a.call, "sleep 600", &a.result.command);
		assert_true(rogue_wait_for(f->rogue, "POST", "/v1/shell/exec", 1, 20000));
		us[n++] = cancel_and_wait(&a);
		call_release(&a.call);
		if (!f->has_bash)
			continue;
		call_init(&a.call, 0);
		sandbox_bash(f->sb, &a.call, &sleeps, &a.result.bash);
		assert_true(rogue_wait_for(f->rogue, "POST", "/v1/bash/exec", 1, 20000));
		us[n++] = cancel_and_wait(&a);
		call_release(&a.call);
	}
	check_times("long commands", us, n);
}

/* ---- at any other time ---- */

static void test_cancelled_before_it_begins(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < every_op_len; i++) {
		struct attempt a;

		attempt_init(&a, &every_op[i], 0);
		call_cancel(&a.call);
		call_cancel(&a.call);
		attempt_start(&a, f->sb);
		assert_int_equal(call_wait(&a.call), -ECANCELED);
		call_cancel(&a.call); /* too late is fine, too */
		attempt_release(&a);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_cancelled_call_does_not_hold_up_the_next(void **state)
{
	struct fixture *f = *state;
	struct attr attr;

	for (size_t i = 0; i < every_op_len; i++) {
		struct attempt a;

		attempt_init(&a, &every_op[i], 0);
		attempt_prepare(&a, f);
		rogue_forget(f->rogue);
		rogue_add(f->rogue, &(struct rogue_rule){ .hold_ms = ROGUE_UNTIL_RELEASED });
		attempt_start(&a, f->sb);
		(void)!rogue_wait_for(f->rogue, NULL, NULL, 1, 200);
		rogue_clear(f->rogue);
		call_cancel(&a.call);
		(void)!call_wait(&a.call);
		attempt_release(&a);
		/* What the server still holds is its own affair. */
		assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &attr), 0);
	}
}

struct worker {
	const struct fixture *f;
	struct sandbox *shared;
	pthread_t thread;
	unsigned seed;
	int64_t us[RANDOM / THREADS];
	size_t n;
	unsigned cancelled, ended;
	char wrong[300];
};

/* Whether that is how the operation may have ended, cancelled or not. */
static bool is_fair(const struct attempt *a, const struct fixture *f)
{
	unsigned flags = a->op->flags;

	if (a->call.error == 0 || a->call.error == -ECANCELED)
		return true;
	if (!f->has_bash && flags & (EVERY_NEEDS_BASH | EVERY_ENDLESS))
		return a->call.error == -EOPNOTSUPP;
	return flags & EVERY_NEEDS_JOB && (a->call.error == -ESRCH || a->call.error == -EINVAL);
}

static void cancel_one(struct worker *w, struct sandbox *sb)
{
	const struct every_op *op = &every_op[(size_t)rand_r(&w->seed) % every_op_len];
	struct attempt a;
	int64_t start;
	int r;

	attempt_init(&a, op, 60000);
	attempt_prepare(&a, w->f);
	attempt_start(&a, sb);
	usleep((useconds_t)rand_r(&w->seed) % DELAY_MAX_US);
	start = clock_us();
	call_cancel(&a.call);
	r = call_wait(&a.call);
	w->us[w->n++] = clock_us() - start;
	if (r == -ECANCELED)
		w->cancelled++;
	else
		w->ended++;
	if (!w->wrong[0] && (!is_fair(&a, w->f) || attempt_judge(&a)))
		snprintf(w->wrong, sizeof(w->wrong), "%s: %d (%s), %s", op->name, r,
			 a.call.message ?: "no words", attempt_judge(&a) ?: "the result is fine");
	attempt_release(&a);
}

static struct sandbox *open_direct(const struct fixture *f)
{
	const struct sandbox_config config = { .socket = daemon_socket(f->daemon) };
	struct sandbox *sb;

	return sandbox_new(f->loop, &config, &sb, NULL) == 0 ? sb : NULL;
}

/* Half of them on a sandbox that all use, half on one that comes and goes. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct sandbox *own = open_direct(w->f);

	for (size_t i = 0; i < ARRAY_SIZE(w->us); i++) {
		if (i % 50 == 49) {
			sandbox_unref(own);
			own = open_direct(w->f);
		}
		cancel_one(w, i % 2 ? own : w->shared);
	}
	sandbox_unref(own);
	return NULL;
}

static void cancel_at_random(struct fixture *f, unsigned seed)
{
	struct worker *workers = calloc(THREADS, sizeof(*workers));
	struct sandbox *shared = open_direct(f);
	int64_t us[RANDOM];
	unsigned cancelled = 0, ended = 0;
	size_t n = 0;

	assert_non_null(shared);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .f = f, .shared = shared, .seed = seed + i };
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		struct worker *w = &workers[i];

		pthread_join(w->thread, NULL);
		memcpy(us + n, w->us, w->n * sizeof(*us));
		n += w->n;
		cancelled += w->cancelled;
		ended += w->ended;
	}
	for (unsigned i = 0; i < THREADS; i++)
		if (workers[i].wrong[0])
			fail_msg("%s", workers[i].wrong);
	free(workers);
	print_message("%u were cancelled, %u had ended\n", cancelled, ended);
	assert_true(cancelled > 0); /* how many end before depends on the machine */
	check_times("at random", us, n);
	sandbox_unref(shared);
}

static void test_a_thousand_random_cancellations_leave_nothing(void **state)
{
	struct fixture *f = *state;
	unsigned fds, seed = (unsigned)clock_ms();
	struct sandbox *sb;
	struct attr attr;

	print_message("seed %u\n", seed);
	fixture_own_daemon(f);
	fds = count_fds();
	cancel_at_random(f, seed);
	assert_int_equal(count_sockets_to(daemon_socket(f->daemon)), 0);
	assert_int_equal(count_fds(), fds);
	/* The server has room for another one: no sessions and watchers were left there. */
	sb = open_direct(f);
	assert_int_equal(SYNC(sb, sandbox_ping), 0);
	assert_int_equal(SYNC(sb, sandbox_lstat, f->dir, &attr), 0);
	sandbox_unref(sb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_every_operation_ends_soon_when_cancelled),
		FIXTURE_TEST(test_paused_transfers_end_soon_when_cancelled),
		FIXTURE_TEST(test_long_commands_end_soon_when_cancelled),
		FIXTURE_TEST(test_cancelled_before_it_begins),
		FIXTURE_TEST(test_cancelled_call_does_not_hold_up_the_next),
		FIXTURE_TEST(test_a_thousand_random_cancellations_leave_nothing),
	};

	return FIXTURE_RUN(tests);
}

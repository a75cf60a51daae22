/*
 * An operation's time does not depend on the wall's clock. That is set here by
 * standing in for the functions that libev asks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "clock.h"
#include "sandbox.h"

enum { TIMEOUT_MS = 1000, PATIENCE_MS = 20000 };

static atomic_long jump_s;

int clock_gettime(clockid_t which, struct timespec *t)
{
	int r = (int)syscall(SYS_clock_gettime, which, t);

	if (which == CLOCK_REALTIME)
		t->tv_sec += atomic_load(&jump_s);
	return r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone UNUSED)
{
	struct timespec now;
	int r = clock_gettime(CLOCK_REALTIME, &now);

	*t = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
	return r;
}

struct silence {
	char dir[SCRATCH_MAX];
	struct sockaddr_un address;
	int fd;
	struct loop *loop;
	struct sandbox *sb;
};

/* A server that takes connections and never says anything. */
static int setup(void **state)
{
	struct silence *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	assert_true(scratch_dir(s->dir));
	s->address.sun_family = AF_UNIX;
	snprintf(s->address.sun_path, sizeof(s->address.sun_path), "%s/socket", s->dir);
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&s->address, sizeof(s->address)), 0);
	assert_int_equal(listen(s->fd, 8), 0);
	assert_int_equal(loop_new(&s->loop), 0);
	assert_int_equal(sandbox_new(s->loop,
				     &(struct sandbox_config){ .socket = s->address.sun_path },
				     &s->sb, NULL),
			 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct silence *s = *state;

	atomic_store(&jump_s, 0);
	sandbox_unref(s->sb);
	loop_free(s->loop);
	close(s->fd);
	unlink(s->address.sun_path);
	rmdir(s->dir);
	free(s);
	return 0;
}

static atomic_bool is_over;

static void on_done(struct call *call UNUSED)
{
	atomic_store(&is_over, true);
}

/* How long it takes until a call ends while the wall's clock makes that jump; its end is sure. */
static int64_t time_of_call(struct silence *s, long jump)
{
	int64_t start = clock_ms(), end = start + PATIENCE_MS;
	struct call call;

	atomic_store(&is_over, false);
	call_init(&call, TIMEOUT_MS);
	call.done = on_done;
	sandbox_ping(s->sb, &call);
	nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	atomic_store(&jump_s, jump);
	while (!atomic_load(&is_over) && clock_ms() < end) {
		/* libev finds out when it wakes up. */
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	end = clock_ms();
	call_cancel(&call);
	while (!atomic_load(&is_over))
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	assert_int_equal(call.error, -ETIMEDOUT);
	call_release(&call);
	return end - start;
}

static void a_clock_that_is_set_back_does_not_prolong_a_call(void **state)
{
	assert_in_range(time_of_call(*state, -3600), TIMEOUT_MS, PATIENCE_MS - 1);
}

static void a_clock_that_is_put_forward_does_not_end_a_call(void **state)
{
	assert_in_range(time_of_call(*state, 3600), TIMEOUT_MS, PATIENCE_MS - 1);
}

static atomic_bool enough;

/* Tries again at once, for ever: a closed sandbox says no at once. */
static void try_again(struct call *call)
{
	struct sandbox *sb = call->ctx;

	call_release(call);
	if (atomic_load(&enough)) {
		atomic_store(&is_over, true);
		return;
	}
	call_init(call, 0);
	call->done = try_again;
	call->ctx = sb;
	sandbox_ping(sb, call);
}

static void callbacks_that_start_others_do_not_stop_the_clock(void **state)
{
	struct silence *s = *state;
	struct sandbox *closed;
	struct call stubborn, call;

	assert_int_equal(sandbox_new(s->loop,
				     &(struct sandbox_config){ .socket = s->address.sun_path },
				     &closed, NULL),
			 0);
	sandbox_close(closed);
	atomic_store(&enough, false);
	atomic_store(&is_over, false);
	call_init(&stubborn, 0);
	stubborn.ctx = closed;
	try_again(&stubborn);
	call_init(&call, TIMEOUT_MS);
	sandbox_ping(s->sb, &call);
	assert_int_equal(call_wait(&call), -ETIMEDOUT);
	call_release(&call);
	atomic_store(&enough, true);
	while (!atomic_load(&is_over))
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	sandbox_unref(closed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_clock_that_is_set_back_does_not_prolong_a_call,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_clock_that_is_put_forward_does_not_end_a_call,
						setup, teardown),
		cmocka_unit_test_setup_teardown(callbacks_that_start_others_do_not_stop_the_clock,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

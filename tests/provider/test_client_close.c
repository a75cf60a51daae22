/*
 * Closing a sandbox's client: whoever parks, stops or replaces a sandbox leaves
 * no socket to it, and no error of that stops the rest. Without isolation, so
 * that one signal reaches all of a sandbox.
 */
#include <errno.h>
#include <signal.h>

#include "rig.h"

enum { LONG_MS = 60000 };

static struct rig *start(void **state)
{
	return rig_start(state, &(struct rig_options){ .no_isolation = true });
}

static int ping(struct sandbox *sb)
{
	struct call c;
	int r;

	call_init(&c, LONG_MS);
	sandbox_ping(sb, &c);
	r = call_wait(&c);
	call_release(&c);
	return r;
}

/* A session, which the client would like to end when it is closed. */
static void open_session(struct sandbox *sb)
{
	struct call c;
	char *job = NULL;

	call_init(&c, LONG_MS);
	sandbox_bash_start(sb, &c, &(struct bash_command){ .command = "sleep 1000" }, &job);
	assert_int_equal(call_wait(&c), 0);
	call_release(&c);
	free(job);
}

/* A tenant with one lease, a client that somebody holds, a session and an open socket. */
static struct tenant *busy_tenant(struct rig *r, struct sandbox **ret)
{
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	*ret = tenant_sandbox(t);
	assert_non_null(*ret);
	open_session(*ret);
	assert_int_equal(rig_ping(t), 0);
	assert_true(rig_sockets(r, t) > 0);
	return t;
}

static pid_t halt(struct rig *r, struct tenant *t)
{
	pid_t pid = rig_pid(r, tenant_id(t));

	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	return pid;
}

/* ---- release ---- */

/* After the last release no socket is open, and the client is of no use any more. */
static void test_release_closes_cached_sandbox_client(void **state)
{
	struct rig *r = start(state);
	struct sandbox *sb;
	struct tenant *t = busy_tenant(r, &sb);

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(ping(sb), 0); /* that was not the last one */
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_null(tenant_sandbox(t));
	assert_int_equal(ping(sb), -ENOTCONN);
	assert_true(rig_wait_no_sockets(r, t));
	sandbox_put(sb);

	/* the sandbox itself goes on, with a new client */
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_true(rig_wait_no_sockets(r, t));
	tenant_put(t);
}

/* What is under way ends. */
static void test_release_ends_what_is_under_way(void **state)
{
	struct rig *r = start(state);
	struct sandbox *sb;
	struct tenant *t = busy_tenant(r, &sb);
	pid_t pid = halt(r, t);
	struct call c;

	call_init(&c, LONG_MS);
	sandbox_ping(sb, &c);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(call_wait(&c), -ENOTCONN);
	call_release(&c);
	assert_true(rig_wait_no_sockets(r, t));
	assert_int_equal(kill(pid, SIGCONT), 0);
	sandbox_put(sb);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* A server that is dead, or that does not answer the farewell: parked all the same. */
static void test_release_swallows_close_errors(void **state)
{
	struct rig *r = start(state);
	struct sandbox *sb;
	struct tenant *t = busy_tenant(r, &sb);
	pid_t pid = halt(r, t);

	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_leases(t), 0);
	assert_true(rig_wait_no_sockets(r, t));
	assert_int_equal(kill(pid, SIGCONT), 0);
	sandbox_put(sb);
	tenant_put(t);

	t = busy_tenant(r, &sb);
	assert_int_equal(rig_starts(t), 1);
	rig_kill(r, t);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_leases(t), 0);
	assert_true(rig_wait_no_sockets(r, t));
	sandbox_put(sb);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* ---- destroy ---- */

/* The client goes with the sandbox, though its user still has the lease. */
static void test_destroy_closes_cached_sandbox_client(void **state)
{
	struct rig *r = start(state);
	struct sandbox *sb;
	struct tenant *t = busy_tenant(r, &sb);

	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(rig_processes(r), 0);
	assert_true(rig_wait_state(t, TENANT_COLD));
	assert_null(tenant_sandbox(t));
	assert_int_equal(ping(sb), -ENOTCONN);
	assert_true(rig_wait_no_sockets(r, t));
	assert_int_equal(rig_leases(t), 1);
	sandbox_put(sb);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* A server that answers nothing any more is stopped all the same. */
static void test_destroy_swallows_close_errors_and_still_destroys_backend(void **state)
{
	struct rig *r = start(state);
	struct sandbox *sb;
	struct tenant *t = busy_tenant(r, &sb);

	halt(r, t); /* not to be continued: it is to be killed */
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_processes(r), 0);
	assert_int_equal(ping(sb), -ENOTCONN);
	assert_true(rig_wait_no_sockets(r, t));
	sandbox_put(sb);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);

	/* and so are the remains of a dead one */
	t = busy_tenant(r, &sb);
	rig_kill(r, t);
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 2);
	assert_true(rig_wait_no_sockets(r, t));
	assert_int_equal(rig_pid(r, tenant_id(t)), 0);
	sandbox_put(sb);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* The backend's failure does not keep the client open, nor the tenant in between. */
static void test_destroy_that_fails_closes_the_client(void **state)
{
	struct rig *r = start(state);
	struct sandbox *sb;
	struct tenant *t = busy_tenant(r, &sb);

	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_destroy(t), -EIO);
	assert_true(rig_wait_state(t, TENANT_COLD));
	assert_int_equal(ping(sb), -ENOTCONN);
	assert_true(rig_wait_no_sockets(r, t));
	sandbox_put(sb);
	/* it still runs, and is found again */
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_true(rig_is_ours(t));
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* ---- restart ---- */

/* The client of a dead one goes with it; many restarts leave none. */
static void test_restart_closes_the_client_it_drops(void **state)
{
	struct rig *r = start(state);
	struct tenant *t = rig_tenant(r, "a");
	struct sandbox *sb;

	assert_int_equal(rig_acquire(t), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rig_ping(t), 0);
		sb = tenant_sandbox(t);
		rig_kill(r, t);
		assert_true(tenant_report(t, sb, -ECONNRESET));
		assert_int_equal(rig_acquire(t), 0);
		assert_int_equal(tenant_release(t), 0);
		assert_int_equal(ping(sb), -ENOTCONN);
		sandbox_put(sb);
	}
	assert_int_equal(rig_starts(t), 4);
	assert_int_equal(tenant_release(t), 0);
	assert_true(rig_wait_no_sockets(r, t));
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_release_closes_cached_sandbox_client),
		RIG_TEST(test_release_ends_what_is_under_way),
		RIG_TEST(test_release_swallows_close_errors),
		RIG_TEST(test_destroy_closes_cached_sandbox_client),
		RIG_TEST(test_destroy_swallows_close_errors_and_still_destroys_backend),
		RIG_TEST(test_destroy_that_fails_closes_the_client),
		RIG_TEST(test_restart_closes_the_client_it_drops),
	};

	return RIG_RUN(tests);
}

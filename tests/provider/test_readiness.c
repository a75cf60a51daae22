/*
 * Waiting until a sandbox answers: how long, how often, and what becomes of one
 * that does not.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "backend_url.h"
#include "clock.h"
#include "daemon.h"
#include "ident.h"
#include "rig.h"

enum {
	LONG_MS = 60000,
	START_MS = 1500,
	MAKE_MS = 4000, /* a real one is made in it */
	/* A try may take 5 s, were it not cut to what is left. */
	UNCUT_MS = 5000,
};

static bool is_unready(int error)
{
	return error == -ETIMEDOUT || error == -ECONNREFUSED || error == -ENOENT;
}

/* ---- a socket that is not there, or that nobody serves ---- */

struct swapped {
	char path[256], away[264];
	int fd; /* who listens instead, or -1 */
};

static void swap_socket(struct swapped *s, struct rig *r, struct tenant *t, bool listening)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	snprintf(s->path, sizeof(s->path), "%s", rig_run_path(r, t, "sock"));
	snprintf(s->away, sizeof(s->away), "%s.away", s->path);
	assert_int_equal(rename(s->path, s->away), 0);
	s->fd = -1;
	if (!listening)
		return;
	assert_true(strlen(s->path) < sizeof(at.sun_path));
	memcpy(at.sun_path, s->path, strlen(s->path));
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(s->fd, 16), 0);
}

static void swap_back(struct swapped *s)
{
	assert_int_equal(rename(s->away, s->path), 0);
	if (s->fd >= 0)
		close(s->fd);
}

/* ---- waiting ---- */

/* Requests that fail are made again until one succeeds. */
static void test_wait_for_sandbox_ready_async_retries_request_errors(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct faulty *faults;
	struct provider *peer = rig_peer(r, &faults);
	struct tenant *theirs = rig_tenant(r, "a"), *t = rig_tenant_of(peer, "u", "a");
	struct swapped swapped;
	struct errand e;

	assert_int_equal(rig_acquire(theirs), 0);
	swap_socket(&swapped, r, theirs, false);
	rig_begin(&e, tenant_acquire, t);
	/* asked every second while it waits, whether it lives: so it has been tried twice */
	assert_true(faulty_wait(faults, ASK_IS_ALIVE, 2, LONG_MS));
	assert_true(rig_is_open(&e));
	assert_int_equal(rig_state(t), TENANT_STARTING);
	assert_null(tenant_sandbox(t));
	swap_back(&swapped);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_leases(t), 1);
	tenant_put(t);
	provider_free(peer);
	assert_int_equal(rig_ping(theirs), 0);
	tenant_put(theirs);
}

/* Neither a request nor the pause after it goes on past the end of the time. */
static void clamps(struct rig *r, bool silent)
{
	struct faulty *faults;
	struct tenant *theirs = rig_tenant(r, "a"), *t;
	struct swapped swapped;
	struct provider *peer;
	int64_t began;
	int error;

	assert_int_equal(rig_acquire(theirs), 0);
	r->options.start_timeout_ms = START_MS;
	peer = rig_peer(r, &faults);
	t = rig_tenant_of(peer, "u", "a");
	swap_socket(&swapped, r, theirs, silent);
	began = clock_ms();
	error = rig_acquire(t);
	began = clock_ms() - began;
	assert_true(is_unready(error));
	assert_in_range(began, START_MS - 100, UNCUT_MS - 1);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_leases(t), 0);
	swap_back(&swapped);
	tenant_put(t);
	provider_free(peer);
	assert_int_equal(rig_ping(theirs), 0);
	tenant_put(theirs);
}

static void test_wait_for_sandbox_ready_async_clamps_request_and_sleep_to_deadline(void **state)
{
	clamps(rig_start(state, NULL), true);
}

static void test_wait_for_sandbox_ready_async_clamps_sleep_to_deadline(void **state)
{
	clamps(rig_start(state, NULL), false);
}

/* A sandbox that is dead for certain is not waited for. */
static void test_sandbox_that_dies_while_it_starts_fails_early(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = 600000 });
	struct tenant *t = rig_tenant(r, "a");
	struct tenant_status s;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_DIE);
	assert_int_equal(rig_acquire(t), -EIO); /* and not -ETIMEDOUT after the 60 s of an errand */
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(tenant_status(t, &s), 0);
	assert_int_equal(s.last_error, -EIO);
	assert_non_null(strstr(s.last_message, "died"));
	assert_int_equal(s.starts, 0);
	tenant_status_release(&s);
	assert_int_equal(rig_processes(r), 0);

	fake_clock_add(&r->clock, LONG_MS);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* ---- one that does not get ready ---- */

/* It is ours from the moment it was made, so it is stopped; why is kept; it is not tried at once.
 */
static void test_create_sandbox_claims_ownership_before_readiness_timeout_destroy(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = MAKE_MS });
	struct tenant *t = rig_tenant(r, "a");
	struct tenant_status s;
	struct errand e;
	int error;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_WRONG);
	error = rig_acquire(t);
	assert_true(is_unready(error));
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_processes(r), 0);
	assert_int_equal(rig_leases(t), 0);
	assert_int_equal(tenant_status(t, &s), 0);
	assert_int_equal(s.last_error, error);
	assert_non_null(s.last_message);
	assert_int_equal(s.starts, 0);
	assert_false(s.ours);

	/* whoever comes now gets the same answer at once, with the same words */
	rig_begin(&e, tenant_acquire, t);
	assert_int_equal(call_wait(&e.call), error);
	assert_string_equal(e.call.message, s.last_message);
	call_release(&e.call);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	tenant_status_release(&s);

	/* after a pause it is tried again */
	fake_clock_add(&r->clock, 1000);
	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_FAIL, .error = -ENOSPC, .why = "full");
	assert_int_equal(rig_acquire(t), -ENOSPC);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	tenant_put(t);
}

/* Each failure in a row doubles the pause, up to 30 s; success forgets them. */
static void test_failed_start_is_tried_again_after_a_pause(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	static const int64_t pauses[] = { 1000, 2000, 4000, 8000, 16000, 30000, 30000 };

	for (unsigned round = 0; round < 2; round++) {
		unsigned before = faulty_count(r->faults, ASK_CREATE);

		FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_FAIL, .error = -ENOSPC,
			     .times = ARRAY_SIZE(pauses));
		for (unsigned i = 0; i < ARRAY_SIZE(pauses); i++) {
			assert_int_equal(rig_acquire(t), -ENOSPC);
			assert_int_equal(faulty_count(r->faults, ASK_CREATE), before + i + 1);
			fake_clock_add(&r->clock, pauses[i] - 1);
			assert_int_equal(rig_acquire(t), -ENOSPC);
			assert_int_equal(faulty_count(r->faults, ASK_CREATE), before + i + 1);
			fake_clock_add(&r->clock, 1);
		}
		assert_int_equal(rig_acquire(t), 0);
		assert_int_equal(rig_ping(t), 0);
		assert_int_equal(tenant_release(t), 0);
		rig_kill(r, t); /* the next round begins with a start, too */
	}
	tenant_put(t);
}

/* One that was only found is somebody else's: it does not answer us, and goes on. */
static void test_create_sandbox_skips_destroy_when_unready_sandbox_owned_by_peer(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *theirs = rig_tenant(r, "a"), *t;
	struct faulty *faults;
	struct provider *peer;
	pid_t pid;

	assert_int_equal(rig_acquire(theirs), 0);
	pid = rig_pid(r, tenant_id(theirs));
	r->options.start_timeout_ms = START_MS;
	peer = rig_peer(r, &faults);
	t = rig_tenant_of(peer, "u", "a");
	FAULTY_ORDER(faults, ASK_DISCOVER, .fault = FAULT_WRONG);
	FAULTY_ORDER(faults, ASK_ADOPT, .fault = FAULT_WRONG);
	assert_true(is_unready(rig_acquire(t)));
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(faulty_count(faults, ASK_DESTROY), 0);
	assert_int_equal(rig_pid(r, tenant_id(theirs)), pid);
	assert_int_equal(rig_ping(theirs), 0);

	/* it is not held on to, either: its owner may stop it */
	assert_int_equal(rig_destroy(theirs), 0);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
	provider_free(peer);
	tenant_put(theirs);
}

/* While an unready one is being stopped, no round takes it for an orphan. */
static void
test_reconcile_does_not_adopt_a_container_whose_unready_teardown_is_reserved(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = MAKE_MS });
	struct tenant *t = rig_tenant(r, "a");
	unsigned adopted;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_WRONG);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG);
	assert_true(is_unready(rig_acquire(t)));
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, LONG_MS));
	adopted = faulty_count(r->faults, ASK_ADOPT);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), adopted);
	assert_int_equal(rig_state(t), TENANT_STOPPING);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* One that could not be stopped is not lost: the next round adopts it. */
static void test_reconcile_adopts_unready_container_when_no_teardown_is_in_flight(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = MAKE_MS });
	struct tenant *t = rig_tenant(r, "a");

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_WRONG);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	assert_true(is_unready(rig_acquire(t)));
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* ---- proxies ---- */

static const char *const proxies[] = { "http_proxy", "https_proxy", "all_proxy",
				       "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY" };
static const char *const exceptions[] = { "no_proxy", "NO_PROXY" };

/* Before there is a thread that might read the environment. */
static int setup_with_proxy(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(proxies); i++)
		setenv(proxies[i], "http://127.0.0.1:1", 1); /* nobody listens there */
	for (size_t i = 0; i < ARRAY_SIZE(exceptions); i++)
		unsetenv(exceptions[i]);
	return rig_setup(state);
}

static int teardown_with_proxy(void **state)
{
	int r = rig_teardown(state);

	for (size_t i = 0; i < ARRAY_SIZE(proxies); i++)
		unsetenv(proxies[i]);
	return r;
}

static void test_wait_for_sandbox_ready_bypasses_environment_proxy(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* The same over TCP, where a proxy could be meant. */
static void test_wait_for_sandbox_ready_bypasses_environment_proxy_for_docker_host(void **state)
{
	struct rig *r = *state;
	struct daemon *d = daemon_start(&(struct daemon_options){ .tcp = true });
	char id[SANDBOX_ID_LEN + 1];
	struct backend *b = NULL;
	struct provider *p = NULL;
	const char *why = NULL;
	struct tenant *t;

	assert_non_null(d);
	ident_make("u", "a", id);
	assert_int_equal(backend_url_new(r->loop,
					 &(struct url_config){ .sandbox.url = daemon_url(d),
							       .user = "u",
							       .thread = "a",
							       .id = id },
					 &b, &why),
			 0);
	assert_int_equal(provider_new(&(struct provider_config){ .loop = r->loop,
								 .backend = b,
								 .start_timeout_ms = 20000 },
				      &p, &why),
			 0);
	t = rig_tenant_of(p, "u", "a");
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
	provider_free(p);
	assert_int_equal(daemon_stop(d), 0);
}

#define PROXY_TEST(t) cmocka_unit_test_setup_teardown(t, setup_with_proxy, teardown_with_proxy)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_wait_for_sandbox_ready_async_retries_request_errors),
		RIG_TEST(test_wait_for_sandbox_ready_async_clamps_request_and_sleep_to_deadline),
		RIG_TEST(test_wait_for_sandbox_ready_async_clamps_sleep_to_deadline),
		RIG_TEST(test_sandbox_that_dies_while_it_starts_fails_early),
		RIG_TEST(test_create_sandbox_claims_ownership_before_readiness_timeout_destroy),
		RIG_TEST(test_failed_start_is_tried_again_after_a_pause),
		RIG_TEST(test_create_sandbox_skips_destroy_when_unready_sandbox_owned_by_peer),
		RIG_TEST(
			test_reconcile_does_not_adopt_a_container_whose_unready_teardown_is_reserved),
		RIG_TEST(test_reconcile_adopts_unready_container_when_no_teardown_is_in_flight),
		PROXY_TEST(test_wait_for_sandbox_ready_bypasses_environment_proxy),
		PROXY_TEST(test_wait_for_sandbox_ready_bypasses_environment_proxy_for_docker_host),
	};

	return RIG_RUN(tests);
}

/*
 * Two programs that share their directories: rig_peer() is a second provider
 * with locks of its own. Whoever uses a sandbox keeps the others from stopping
 * it; when its maker has left, another user makes it its own.
 *
 * Of the reference's lines about peers, these are about a store of leases with
 * a time to live, which locks of the kernel do not need: …_expired_lease_…,
 * …_acquire_takes_over_ownership_…, those on renewal, on state loss and grace,
 * and on the teardown marker's heartbeat. What they promise (a dead owner's
 * sandbox is adopted, a live one's is not, a thread can move) is tested here and
 * in test_crash.c.
 */
#include <errno.h>

#include "clock.h"
#include "other.h"
#include "paths.h"
#include "rig.h"

enum { IDLE_MS = 600 * 1000 };

/* A peer that uses the thread. */
struct peer {
	struct faulty *faults;
	struct provider *provider;
	struct tenant *t;
};

static struct peer peer_start(struct rig *r, const char *thread)
{
	struct peer p;

	p.provider = rig_peer(r, &p.faults);
	p.t = rig_tenant_of(p.provider, "u", thread);
	assert_int_equal(rig_acquire(p.t), 0);
	return p;
}

static void peer_end(struct peer *p)
{
	tenant_put(p->t);
	provider_free(p->provider);
}

/* An operation has failed as if the sandbox were dead. */
static void report_dead(struct tenant *t)
{
	struct sandbox *sb = tenant_sandbox(t);

	assert_non_null(sb);
	assert_true(tenant_report(t, sb, -ECONNREFUSED));
	sandbox_put(sb);
}

static void wait_answered(struct faulty *f, enum ask_kind kind, unsigned n)
{
	for (int64_t until = clock_ms() + 20000; faulty_answered(f, kind) < n;) {
		assert_true(clock_ms() < until);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
}

/* ---- whose it is ---- */

static void test_reconcile_skips_container_owned_by_peer(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 1);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_false(rig_is_ours(t));

	/* Warm, it is still the peer's. */
	assert_int_equal(tenant_release(p.t), 0);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_acquire(p.t), 0);
	assert_int_equal(rig_starts(p.t), 1);
	assert_int_equal(rig_ping(p.t), 0);
	tenant_put(t);
	peer_end(&p);
}

/* Ours is idle, but it is the peer's sandbox: it is forgotten, not stopped. */
static void test_idle_reap_does_not_destroy_peer_owned_warm_entry(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	assert_false(rig_is_ours(t));
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_ping(p.t), 0);
	tenant_put(t);
	peer_end(&p);
}

/* What one worker parked no round and no end of another one stops. */
static void test_multi_worker_release_then_peer_reconcile_cannot_kill(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *t = rig_tenant(r, "a");
	struct faulty *faults;
	struct provider *peer;
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	pid = rig_pid(r, tenant_id(t));
	assert_int_equal(tenant_release(t), 0);
	peer = rig_peer(r, &faults);
	fake_clock_add(&r->clock, 2 * IDLE_MS);
	assert_int_equal(rig_reconcile(peer), 0);
	assert_int_equal(rig_tick(peer), 0);
	provider_free(peer);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(rig_starts(t), 1);
	tenant_put(t);
}

/* We believe that it is dead; that is no reason to stop what a peer uses. */
static void test_unhealthy_sandbox_owned_by_peer_is_not_destroyed(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = rig_pid(r, tenant_id(t));

	assert_int_equal(rig_acquire(t), 0);
	report_dead(t);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_WRONG);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_starts(t), 2); /* found anew */
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(rig_leases(t), 2);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_ping(p.t), 0);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_ping(p.t), 0);
	peer_end(&p);
	assert_int_equal(rig_processes(r), 0);
}

/* The same of one that is ours: the backend refuses, and both go on with it. */
static void test_unhealthy_sandbox_that_a_peer_uses_is_not_destroyed(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct peer p;

	assert_int_equal(rig_acquire(t), 0);
	p = peer_start(r, "a");
	report_dead(t);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_WRONG);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_ping(p.t), 0);
	assert_int_equal(rig_processes(r), 1);
	peer_end(&p);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_true(rig_is_ours(t));
	tenant_put(t);
}

static void test_shutdown_does_not_stop_a_peers_warm_container(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = rig_pid(r, tenant_id(t));

	assert_int_equal(tenant_release(p.t), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_acquire(p.t), 0);
	assert_int_equal(rig_ping(p.t), 0);
	assert_int_equal(rig_pid(r, tenant_id(p.t)), pid);
	peer_end(&p);
	assert_int_equal(rig_processes(r), 0);
}

/* ---- stopping is refused ---- */

static void test_refused_idle_destroy_keeps_the_warm_entry(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *t = rig_tenant(r, "a");
	struct peer p;

	assert_int_equal(rig_acquire(t), 0);
	p = peer_start(r, "a");
	assert_int_equal(tenant_release(t), 0);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_ping(p.t), 0);

	/* Its time begins anew; when the peer has gone, it is stopped. */
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	peer_end(&p);
	assert_int_equal(rig_processes(r), 1);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

static void test_evict_keeps_the_warm_entry_when_the_claim_is_refused(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .replicas = 1 });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct peer p;

	assert_int_equal(rig_acquire(a), 0);
	p = peer_start(r, "a");
	assert_int_equal(tenant_release(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, 20000));
	wait_answered(r->faults, ASK_DESTROY, 1);
	assert_true(rig_wait_state(a, TENANT_WARM));
	assert_int_equal(rig_state(b), TENANT_ACTIVE);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(rig_ping(p.t), 0);
	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_starts(a), 1);
	tenant_put(a);
	tenant_put(b);
	peer_end(&p);
}

/* Whoever asks for the end of what somebody else uses is told, and it goes on. */
static void test_destroy_of_what_a_peer_uses_is_refused(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_destroy(t), -EBUSY);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_destroy(t), -EBUSY);
	assert_int_equal(rig_ping(p.t), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
	rig_end_provider(r);
	peer_end(&p);
}

/* ---- the owner leaves ---- */

/* Its maker could not stop it because of us: then we do, in the end. */
static void test_a_sandbox_whose_owner_left_is_made_ours(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = rig_pid(r, tenant_id(t));

	assert_int_equal(rig_acquire(t), 0);
	assert_false(rig_is_ours(t));
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_false(rig_is_ours(t));
	peer_end(&p);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

/* The same while it is warm with us. */
static void test_a_warm_sandbox_whose_owner_left_is_made_ours(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p = peer_start(r, "a");
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	peer_end(&p);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

/* ---- the file lock ---- */

/* Both want the same thread at once: one starts it, the other finds it. */
static void test_two_providers_acquiring_one_thread_start_one_sandbox(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct peer p;
	struct tenant *t = rig_tenant(r, "a");
	struct errand mine, theirs;

	p.provider = rig_peer(r, &p.faults);
	p.t = rig_tenant_of(p.provider, "u", "a");
	/* The first one has the lock, and holds it until its sandbox answers. */
	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	rig_begin(&mine, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 1, 20000));
	rig_begin(&theirs, tenant_acquire, p.t);
	assert_true(rig_is_open(&theirs));
	assert_int_equal(rig_state(p.t), TENANT_STARTING);
	assert_int_equal(faulty_count(p.faults, ASK_DISCOVER), 0);
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&mine), 0);
	assert_int_equal(rig_end(&theirs), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(faulty_count(p.faults, ASK_CREATE), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_true(rig_is_ours(t));
	assert_false(rig_is_ours(p.t));
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_ping(p.t), 0);
	tenant_put(t);
	peer_end(&p);
}

/* The same with no help: whoever is first. */
static void test_two_providers_racing_for_threads_start_one_sandbox_each(void **state)
{
	enum { N = 8 };
	struct rig *r = rig_start(state, NULL);
	struct faulty *faults;
	struct provider *peer = rig_peer(r, &faults);
	struct tenant *t[2 * N];
	struct errand e[2 * N];
	char name[] = "t0";

	for (size_t i = 0; i < 2 * N; i++) {
		name[1] = (char)('0' + i / 2);
		t[i] = rig_tenant_of(i % 2 ? peer : r->provider, "u", name);
		call_init(&e[i].call, 60000);
		tenant_acquire(t[i], &e[i]);
	}
	for (size_t i = 0; i < 2 * N; i++)
		assert_int_equal(rig_end(&e[i]), 0);
	assert_int_equal(rig_processes(r), N);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE) + faulty_count(faults, ASK_CREATE), N);
	for (size_t i = 0; i < 2 * N; i += 2)
		assert_int_not_equal(rig_is_ours(t[i]), rig_is_ours(t[i + 1]));
	for (size_t i = 0; i < 2 * N; i++) {
		assert_int_equal(rig_ping(t[i]), 0);
		tenant_put(t[i]);
	}
	provider_free(peer);
	assert_int_equal(rig_processes(r), N);
	assert_int_equal(rig_reconcile(r->provider), 0);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

/* The lock of the thread's start, held by another process. */
static struct other hold_start_lock(struct rig *r, struct tenant *t, char path[512])
{
	struct other o;

	assert_int_equal(paths_make_thread(r->data, "u", tenant_thread(t)), 0);
	snprintf(path, 512, "%s/users/u/threads/%s/%s.lock", r->data, tenant_thread(t),
		 tenant_id(t));
	o = other_start((const char *const[]){ "lock", path, NULL });
	other_wait_ready(&o);
	return o;
}

/* Waiting for the lock can be cancelled, has a deadline, and takes no lock away. */
static void test_discover_or_create_only_unlocks_when_lock_succeeds(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;
	char path[512];
	struct other o = hold_start_lock(r, t, path);

	assert_int_equal(rig_acquire_ms(t, 100), -ETIMEDOUT);
	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_is_open(&e));
	assert_int_equal(rig_state(t), TENANT_STARTING);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);

	/* Nobody waits any more, so it does not either. */
	assert_true(rig_wait_state(t, TENANT_COLD));
	assert_int_equal(rig_leases(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(access(path, F_OK), 0);

	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_is_open(&e));
	other_end(&o, 0);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(access(path, F_OK), -1);
}

/* It is not waited for longer than a start may take, and the words say for what. */
static void test_a_lock_that_is_never_given_up_fails_the_start(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = 300 });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;
	char path[512];
	struct other o = hold_start_lock(r, t, path);

	rig_begin(&e, tenant_acquire, t);
	assert_int_equal(call_wait(&e.call), -ETIMEDOUT);
	assert_non_null(e.call.message);
	assert_non_null(strstr(e.call.message, "another program holds the lock"));
	call_release(&e.call);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(faulty_count(r->faults, ASK_DISCOVER), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(access(path, F_OK), 0);
	other_end(&o, 0);
	tenant_put(t);

	/* By the way: one that was left behind is no hindrance. */
	rig_end_provider(r);
	r->options.start_timeout_ms = 0;
	rig_restart_provider(r);
	t = rig_tenant(r, "a");
	assert_int_equal(rig_acquire(t), 0);
	tenant_put(t);
}

/* The kernel gives up the locks of the dead. */
static void test_a_lock_of_a_killed_program_is_no_hindrance(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;
	char path[512];
	struct other o = hold_start_lock(r, t, path);

	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_is_open(&e));
	other_end(&o, SIGKILL);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
}

/* Nor does it keep a thread from being forgotten. */
static void test_forget_is_not_kept_by_the_lock_of_a_killed_program(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	char path[512];
	struct other o = hold_start_lock(r, t, path);

	assert_int_equal(rig_forget(t), -ENOTEMPTY); /* somebody is about to start it */
	other_end(&o, SIGKILL);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(rig_forget(t), 0);
	assert_int_equal(access(path, F_OK), -1);
	tenant_put(t);
}

/* Ending does not wait for the lock either. */
static void test_shutdown_while_waiting_for_the_lock(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;
	char path[512];
	struct other o = hold_start_lock(r, t, path);

	rig_begin(&e, tenant_acquire, t);
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(rig_end(&e), -ESHUTDOWN);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(access(path, F_OK), 0);
	other_end(&o, 0);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_reconcile_skips_container_owned_by_peer),
		RIG_TEST(test_idle_reap_does_not_destroy_peer_owned_warm_entry),
		RIG_TEST(test_multi_worker_release_then_peer_reconcile_cannot_kill),
		RIG_TEST(test_unhealthy_sandbox_owned_by_peer_is_not_destroyed),
		RIG_TEST(test_unhealthy_sandbox_that_a_peer_uses_is_not_destroyed),
		RIG_TEST(test_shutdown_does_not_stop_a_peers_warm_container),
		RIG_TEST(test_refused_idle_destroy_keeps_the_warm_entry),
		RIG_TEST(test_evict_keeps_the_warm_entry_when_the_claim_is_refused),
		RIG_TEST(test_destroy_of_what_a_peer_uses_is_refused),
		RIG_TEST(test_a_sandbox_whose_owner_left_is_made_ours),
		RIG_TEST(test_a_warm_sandbox_whose_owner_left_is_made_ours),
		RIG_TEST(test_two_providers_acquiring_one_thread_start_one_sandbox),
		RIG_TEST(test_two_providers_racing_for_threads_start_one_sandbox_each),
		RIG_TEST(test_discover_or_create_only_unlocks_when_lock_succeeds),
		RIG_TEST(test_a_lock_that_is_never_given_up_fails_the_start),
		RIG_TEST(test_a_lock_of_a_killed_program_is_no_hindrance),
		RIG_TEST(test_forget_is_not_kept_by_the_lock_of_a_killed_program),
		RIG_TEST(test_shutdown_while_waiting_for_the_lock),
	};

	return RIG_RUN(tests);
}

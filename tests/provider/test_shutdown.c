/*
 * The end of a provider: within a bound whatever hangs, everybody who waits is
 * told, what is ours is stopped, what is not goes on.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "filelock.h"
#include "rig.h"

enum {
	LONG_MS = 60000,
	/* Less than the question that hangs may take by itself: so it was cut short. */
	PROMPT_MS = 9000,
	PROMPT_ALIVE_MS = 4500, /* whether it lives may take 5 s */
};

/* A worker writes it, and the end waits for that: its time is not what is measured. */
static void wait_registered(struct rig *r, const char *thread)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/registry/u/%s.json", r->data, thread);
	for (int64_t until = clock_ms() + LONG_MS; access(path, F_OK) < 0;) {
		assert_true(clock_ms() < until);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
}

/* Shuts down, and says how long that took. */
static int64_t timed_shutdown(struct rig *r)
{
	int64_t began = clock_ms();

	assert_int_equal(provider_shutdown(r->provider), 0);
	return clock_ms() - began;
}

/* ---- as usual ---- */

/* All kinds are stopped; a second time does nothing; later acquires are refused. */
static void test_shutdown_is_idempotent(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *active = rig_tenant(r, "a"), *warm = rig_tenant(r, "b");
	struct tenant *cold = rig_tenant(r, "c");

	assert_int_equal(rig_acquire(active), 0);
	assert_int_equal(rig_acquire(warm), 0);
	assert_int_equal(tenant_release(warm), 0);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(rig_processes(r), 0);
	assert_int_equal(rig_state(active), TENANT_COLD);
	assert_int_equal(rig_state(warm), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 2);
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 2);

	assert_int_equal(tenant_try_acquire(active), -EAGAIN);
	assert_int_equal(rig_acquire(active), -ESHUTDOWN);
	assert_int_equal(rig_acquire(cold), -ESHUTDOWN);
	assert_int_equal(rig_find(cold), -ESHUTDOWN);
	assert_int_equal(rig_tick(r->provider), -ESHUTDOWN);
	assert_int_equal(rig_reconcile(r->provider), -ESHUTDOWN);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	/* the lease that there was can still be given back, once */
	assert_int_equal(rig_leases(active), 1);
	assert_int_equal(tenant_release(active), 0);
	assert_int_equal(tenant_release(active), -EINVAL);
	tenant_put(active);
	tenant_put(warm);
	tenant_put(cold);
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

/* Every client is closed, also those that somebody still has in his hands. */
static void test_shutdown_closes_all_active_sandbox_clients(void **state)
{
	struct rig *r = rig_start(state, NULL);
	enum { N = 3 };
	static const char *const names[N] = { "a", "b", "c" };
	struct tenant *t[N];
	struct sandbox *sb[N];

	for (size_t i = 0; i < N; i++) {
		t[i] = rig_tenant(r, names[i]);
		assert_int_equal(rig_acquire(t[i]), 0);
		assert_int_equal(rig_ping(t[i]), 0);
		assert_true(rig_sockets(r, t[i]) > 0);
		sb[i] = tenant_sandbox(t[i]);
	}
	assert_int_equal(provider_shutdown(r->provider), 0);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(rig_sockets(r, t[i]), 0);
		assert_null(tenant_sandbox(t[i]));
		assert_int_equal(ping(sb[i]), -ENOTCONN);
		sandbox_put(sb[i]);
		tenant_put(t[i]);
	}
}

/* One that cannot be stopped does not keep the others from it; its next life finds it. */
static void test_shutdown_goes_on_after_an_error(void **state)
{
	struct rig *r = rig_start(state, NULL);
	enum { N = 3 };
	static const char *const names[N] = { "a", "b", "c" };
	struct tenant *t[N];

	for (size_t i = 0; i < N; i++) {
		t[i] = rig_tenant(r, names[i]);
		assert_int_equal(rig_acquire(t[i]), 0);
	}
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO, .why = "stuck");
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), N);
	assert_int_equal(rig_processes(r), 1);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(rig_sockets(r, t[i]), 0);
		tenant_put(t[i]);
	}
	rig_end_provider(r);
	rig_restart_provider(r); /* adopts it, and the end of the test stops it */
}

/* ---- others' ---- */

/* What another program made goes on, whether we used it or not. */
static void test_shutdown_does_not_stop_a_peers_warm_container(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *used = rig_tenant(r, "a"), *seen = rig_tenant(r, "b");
	struct tenant *mine = rig_tenant(r, "c");
	struct tenant *their_a = rig_tenant_of(peer, "u", "a");
	struct tenant *their_b = rig_tenant_of(peer, "u", "b");

	assert_int_equal(rig_acquire(their_a), 0);
	assert_int_equal(rig_acquire(their_b), 0);
	assert_int_equal(tenant_release(their_b), 0);
	assert_int_equal(rig_acquire(used), 0);
	assert_int_equal(rig_find(seen), 0);
	assert_int_equal(rig_acquire(mine), 0);
	assert_int_equal(rig_processes(r), 3);

	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_ping(their_a), 0);
	assert_int_equal(rig_state(their_b), TENANT_WARM);
	assert_int_equal(rig_acquire(their_b), 0);
	assert_int_equal(rig_starts(their_b), 1);
	tenant_put(used);
	tenant_put(seen);
	tenant_put(mine);
	rig_end_provider(r);
	/* and is not in their way any more */
	tenant_put(their_a);
	tenant_put(their_b);
	provider_free(peer);
	assert_int_equal(rig_processes(r), 0);
}

/* ---- while something hangs ---- */

/* A cold start hangs at this question: whoever waits is told, nothing is left. */
static void hangs_at(struct rig *r, enum ask_kind kind)
{
	struct tenant *t = rig_tenant(r, "a"), *other = rig_tenant(r, "b");
	struct errand acquire[2], find, destroy;

	assert_int_equal(rig_acquire(other), 0);
	FAULTY_ORDER(r->faults, kind, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	rig_begin(&acquire[0], tenant_acquire, t);
	assert_true(faulty_wait(r->faults, kind, 2, LONG_MS));
	rig_begin(&acquire[1], tenant_acquire, t);
	rig_begin(&find, tenant_find, t);
	rig_begin(&destroy, tenant_destroy, t);
	wait_registered(r, "b");
	assert_true(timed_shutdown(r) < PROMPT_MS);
	assert_int_equal(rig_end(&acquire[0]), -ESHUTDOWN);
	assert_int_equal(rig_end(&acquire[1]), -ESHUTDOWN);
	assert_int_equal(rig_end(&find), -ESHUTDOWN);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_leases(t), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
	tenant_put(other);
}

static void test_shutdown_while_create_hangs(void **state)
{
	hangs_at(rig_start(state, NULL), ASK_CREATE);
}

static void test_shutdown_while_discover_hangs(void **state)
{
	hangs_at(rig_start(state, NULL), ASK_DISCOVER);
}

/* It has been made, and just now answers that. */
static void test_shutdown_while_create_is_slow(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 1, LONG_MS));
	assert_true(timed_shutdown(r) < PROVIDER_SHUTDOWN_MS);
	assert_int_equal(rig_end(&e), -ESHUTDOWN);
	assert_int_equal(rig_processes(r), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	tenant_put(t);
}

/* A parked one, and one in use, are being checked. */
static void test_shutdown_while_is_alive_hangs(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *warm = rig_tenant(r, "a"), *active = rig_tenant(r, "b");
	struct sandbox *sb;
	struct errand e[2];

	assert_int_equal(rig_acquire(warm), 0);
	assert_int_equal(tenant_release(warm), 0);
	assert_int_equal(rig_acquire(active), 0);
	wait_registered(r, "a");
	wait_registered(r, "b");
	sb = tenant_sandbox(active);
	assert_true(tenant_report(active, sb, -ECONNRESET));
	sandbox_put(sb);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	rig_begin(&e[0], tenant_acquire, warm);
	rig_begin(&e[1], tenant_acquire, active);
	assert_true(faulty_wait(r->faults, ASK_IS_ALIVE, 2, LONG_MS));
	assert_true(timed_shutdown(r) < PROMPT_ALIVE_MS);
	assert_int_equal(rig_end(&e[0]), -ESHUTDOWN);
	assert_int_equal(rig_end(&e[1]), -ESHUTDOWN);
	assert_int_equal(rig_leases(warm), 0);
	assert_int_equal(rig_leases(active), 1);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(warm);
	tenant_put(active);
}

/* Another's sandbox was found, and may or may not be ours: it is left alone. */
static void test_shutdown_while_adopt_hangs(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "a");
	struct errand e;

	assert_int_equal(rig_acquire(theirs), 0);
	FAULTY_ORDER(r->faults, ASK_ADOPT, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_ADOPT, 1, LONG_MS));
	assert_true(timed_shutdown(r) < PROMPT_MS);
	assert_int_equal(rig_end(&e), -ESHUTDOWN);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_ping(theirs), 0);
	tenant_put(t);
	rig_end_provider(r);
	tenant_put(theirs);
	provider_free(peer);
}

static void test_shutdown_while_a_round_hangs(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct errand e[2];
	unsigned n = faulty_count(r->faults, ASK_LIST_RUNNING);

	FAULTY_ORDER(r->faults, ASK_LIST_RUNNING, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	rig_begin_round(&e[0], provider_tick, r->provider);
	rig_begin_round(&e[1], provider_reconcile, r->provider);
	assert_true(faulty_wait(r->faults, ASK_LIST_RUNNING, n + 1, LONG_MS));
	assert_true(timed_shutdown(r) < PROMPT_MS);
	assert_int_equal(rig_end(&e[0]), -ESHUTDOWN);
	assert_int_equal(rig_end(&e[1]), -ESHUTDOWN);
}

/* It waits for another program's lock. */
static void test_shutdown_while_the_lock_is_held(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	char path[256];
	struct errand e;
	int fd;

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_destroy(t), 0);
	wait_registered(r, "a");
	snprintf(path, sizeof(path), "%s/users/u/threads/a/%s.lock", r->data, tenant_id(t));
	fd = filelock_try(path, true);
	assert_true(fd >= 0);
	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_wait_state(t, TENANT_STARTING));
	assert_true(timed_shutdown(r) < PROMPT_MS);
	assert_int_equal(rig_end(&e), -ESHUTDOWN);
	assert_int_equal(filelock_try_existing(path, true), -EAGAIN);
	filelock_remove(path, fd);
	tenant_put(t);
}

/* It was made, and does not answer. */
static void test_shutdown_while_one_gets_ready(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_WRONG);
	/* the question whether it lives hangs, too */
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_IS_ALIVE, 1, LONG_MS));
	assert_int_equal(rig_processes(r), 1);
	assert_true(timed_shutdown(r) < PROMPT_ALIVE_MS);
	assert_int_equal(rig_end(&e), -ESHUTDOWN);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* Stopping itself hangs: that is waited for a while, then they are left behind. */
static void test_shutdown_while_destroy_hangs(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *active = rig_tenant(r, "a"), *warm = rig_tenant(r, "b");
	int64_t took;

	assert_int_equal(rig_acquire(active), 0);
	assert_int_equal(rig_acquire(warm), 0);
	assert_int_equal(tenant_release(warm), 0);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	took = timed_shutdown(r);
	assert_true(took < PROVIDER_SHUTDOWN_MS);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 2);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(rig_sockets(r, active), 0);
	tenant_put(active);
	tenant_put(warm);
	rig_end_provider(r);
	/* neither is lost */
	rig_restart_provider(r);
	active = rig_tenant(r, "a");
	assert_int_equal(rig_state(active), TENANT_WARM);
	assert_true(rig_is_ours(active));
	tenant_put(active);
}

/* ---- several at once ---- */

enum { CROWD = 8 };

struct one {
	pthread_t thread;
	struct provider *provider;
	struct tenant **tenants;
	unsigned seed;
	int result;
};

static void *run_shutdown(void *arg)
{
	struct one *o = arg;

	o->result = provider_shutdown(o->provider);
	return NULL;
}

/* Whoever calls it returns when it is over. */
static void test_concurrent_shutdowns(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct one all[CROWD];

	assert_int_equal(rig_acquire(t), 0);
	for (size_t i = 0; i < CROWD; i++) {
		all[i] = (struct one){ .provider = r->provider, .result = 1 };
		assert_int_equal(pthread_create(&all[i].thread, NULL, run_shutdown, &all[i]), 0);
	}
	for (size_t i = 0; i < CROWD; i++)
		pthread_join(all[i].thread, NULL);
	for (size_t i = 0; i < CROWD; i++)
		assert_int_equal(all[i].result, 0);
	assert_int_equal(rig_processes(r), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	tenant_put(t);
}

enum { TENANTS = 3 };
static atomic_uint turns;

/* Takes and gives leases until it is refused; any other answer is its result. */
static void *run_leases(void *arg)
{
	struct one *o = arg;
	int r = 0;

	while (r == 0) {
		struct tenant *t = o->tenants[rand_r(&o->seed) % TENANTS];

		r = tenant_try_acquire(t);
		if (r == -EAGAIN)
			r = rig_acquire(t);
		if (r == 0)
			r = tenant_release(t);
		atomic_fetch_add(&turns, 1);
	}
	o->result = r;
	return NULL;
}

static void test_shutdown_while_others_acquire(void **state)
{
	struct rig *r = rig_start(state, NULL);
	static const char *const names[TENANTS] = { "a", "b", "c" };
	struct tenant *t[TENANTS];
	struct one all[CROWD];

	atomic_store(&turns, 0);
	for (size_t i = 0; i < TENANTS; i++)
		t[i] = rig_tenant(r, names[i]);
	for (size_t i = 0; i < CROWD; i++) {
		all[i] = (struct one){ .tenants = t, .seed = (unsigned)i };
		assert_int_equal(pthread_create(&all[i].thread, NULL, run_leases, &all[i]), 0);
	}
	for (int64_t until = clock_ms() + LONG_MS;
	     atomic_load(&turns) < 1000 && clock_ms() < until;)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_int_equal(provider_shutdown(r->provider), 0);
	for (size_t i = 0; i < CROWD; i++)
		pthread_join(all[i].thread, NULL);
	assert_true(atomic_load(&turns) >= 1000);
	for (size_t i = 0; i < CROWD; i++)
		assert_int_equal(all[i].result, -ESHUTDOWN);
	assert_int_equal(rig_processes(r), 0);
	for (size_t i = 0; i < TENANTS; i++) {
		assert_int_equal(rig_leases(t[i]), 0);
		assert_int_equal(rig_sockets(r, t[i]), 0);
		assert_int_equal(rig_state(t[i]), TENANT_COLD);
		tenant_put(t[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_shutdown_is_idempotent),
		RIG_TEST(test_shutdown_closes_all_active_sandbox_clients),
		RIG_TEST(test_shutdown_goes_on_after_an_error),
		RIG_TEST(test_shutdown_does_not_stop_a_peers_warm_container),
		RIG_TEST(test_shutdown_while_create_hangs),
		RIG_TEST(test_shutdown_while_discover_hangs),
		RIG_TEST(test_shutdown_while_create_is_slow),
		RIG_TEST(test_shutdown_while_is_alive_hangs),
		RIG_TEST(test_shutdown_while_adopt_hangs),
		RIG_TEST(test_shutdown_while_a_round_hangs),
		RIG_TEST(test_shutdown_while_the_lock_is_held),
		RIG_TEST(test_shutdown_while_one_gets_ready),
		RIG_TEST(test_shutdown_while_destroy_hangs),
		RIG_TEST(test_concurrent_shutdowns),
		RIG_TEST(test_shutdown_while_others_acquire),
	};

	return RIG_RUN(tests);
}

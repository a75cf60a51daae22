/*
 * Counting leases: every acquire counts one, every release one less, the last
 * one parks; who fails or gives up has none; many at once share one start.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "filelock.h"
#include "provider_i.h"
#include "rig.h"

enum { LONG_MS = 60000, SHORT_MS = 200 };

/* As rig_begin(), with another time limit. */
static void begin_acquire(struct errand *e, struct tenant *t, int64_t timeout_ms)
{
	call_init(&e->call, timeout_ms);
	tenant_acquire(t, e);
}

/* A sandbox that died under its one lease: the next acquire is a start. */
static struct tenant *tenant_with_a_dead_one(struct rig *r)
{
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	rig_kill(r, t);
	assert_true(rig_ping(t) < 0);
	return t;
}

/* ---- counting ---- */

static void test_acquire_starts_and_release_parks(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
}

/* Acquire twice, release once: still active. */
static void test_acquire_twice_release_once_stays_active(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_leases(t), 2);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

/* An upload takes and gives up a lease of its own while somebody works: he keeps his client. */
static void test_temporary_lease_does_not_park_an_active_one(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *worker = rig_tenant(r, "a"), *upload;
	struct sandbox *before, *after;

	assert_int_equal(rig_acquire(worker), 0);
	before = tenant_sandbox(worker);
	for (unsigned i = 0; i < 3; i++) {
		upload = rig_tenant(r, "a");
		assert_ptr_equal(upload, worker);
		if (i == 1)
			assert_int_equal(tenant_try_acquire(upload), 0);
		else
			assert_int_equal(rig_acquire(upload), 0);
		assert_int_equal(rig_ping(upload), 0);
		assert_int_equal(tenant_release(upload), 0);
		tenant_put(upload);
		assert_int_equal(rig_state(worker), TENANT_ACTIVE);
		assert_int_equal(rig_leases(worker), 1);
	}
	after = tenant_sandbox(worker);
	assert_non_null(before);
	assert_ptr_equal(before, after);
	assert_int_equal(rig_ping(worker), 0);
	assert_int_equal(rig_starts(worker), 1);
	sandbox_put(before);
	sandbox_put(after);
	assert_int_equal(tenant_release(worker), 0);
	tenant_put(worker);
}

/* A release too many is refused and logged, and changes nothing. */
static void test_release_without_a_lease(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	char *log;

	assert_int_equal(tenant_release(t), -EINVAL);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_leases(t), 0);

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	rig_begin_log(r);
	assert_int_equal(tenant_release(t), -EINVAL);
	log = rig_end_log(r);
	assert_non_null(strstr(log, "u/a: sandbox "));
	assert_non_null(strstr(log, ": released without a lease"));
	free(log);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_leases(t), 0);
	assert_int_equal(rig_processes(r), 1);

	/* the one after it is not short of one */
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_starts(t), 1);
	tenant_put(t);
}

/* New, reused, reclaimed, discovered, restarted: each counts exactly one. */
static void test_every_kind_of_acquire_counts_one(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "b");
	struct tenant *found = rig_tenant(r, "b");

	assert_int_equal(rig_acquire(t), 0); /* new */
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_try_acquire(t), 0); /* reused */
	assert_int_equal(rig_leases(t), 2);
	assert_int_equal(rig_acquire(t), 0); /* reused, the long way */
	assert_int_equal(rig_leases(t), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_acquire(t), 0); /* reclaimed */
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);

	rig_kill(r, t);
	assert_true(rig_ping(t) < 0);
	assert_int_equal(rig_acquire(t), 0); /* restarted */
	assert_int_equal(rig_leases(t), 2);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);

	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_acquire(found), 0); /* discovered */
	assert_int_equal(rig_leases(found), 1);
	assert_int_equal(rig_leases(theirs), 1);
	assert_false(rig_is_ours(found));
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	assert_int_equal(tenant_release(found), 0);
	assert_int_equal(tenant_release(found), -EINVAL);
	assert_int_equal(rig_ping(theirs), 0);

	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
	tenant_put(found);
	rig_end_provider(r);
	tenant_put(theirs);
	provider_free(peer);
}

/* ---- failures ---- */

/* However an acquire fails, those who have a lease keep it, and nobody gets one more. */
static void test_failed_acquire_counts_none(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = tenant_with_a_dead_one(r);
	struct errand e;

	/* the backend refuses */
	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_FAIL, .error = -ENOSPC);
	assert_int_equal(rig_acquire(t), -ENOSPC);
	assert_int_equal(rig_leases(t), 1);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_acquire(t), -ENOSPC); /* refused without asking */
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);

	/* it cannot even look */
	fake_clock_add(&r->clock, LONG_MS);
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_acquire(t), -EIO);
	assert_int_equal(rig_leases(t), 1);

	/* the backend hangs: one caller's time is over, then the other is cancelled */
	fake_clock_add(&r->clock, LONG_MS);
	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 3, LONG_MS));
	assert_int_equal(rig_acquire_ms(t, SHORT_MS), -ETIMEDOUT);
	assert_int_equal(rig_leases(t), 1);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_try_acquire(t), -EAGAIN);

	/* what they gave up goes on, under the lease that there is */
	faulty_resume(r->faults, ASK_CREATE);
	assert_true(rig_wait_state(t, TENANT_ACTIVE));
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_leases(t), 2);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(tenant_release(t), -EINVAL);
	tenant_put(t);
}

static size_t count_records(struct rig *r)
{
	struct tenant_list list;
	size_t n;

	assert_int_equal(provider_status(r->provider, &list), 0);
	n = list.count;
	tenant_list_release(&list);
	return n;
}

/* A lease of a sandbox that is gone is given up as any other. */
static void test_release_after_a_failed_restart(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = tenant_with_a_dead_one(r);

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_FAIL, .error = -ENOSPC);
	assert_int_equal(rig_acquire(t), -ENOSPC);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(tenant_release(t), -EINVAL);
	assert_int_equal(rig_leases(t), 0);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	fake_clock_add(&r->clock, LONG_MS);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
	/* Nothing speaks for it any more. Who has just been told may still be held for a moment. */
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(rig_tick(r->provider), 0);
		if (count_records(r) == 0)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	assert_int_equal(count_records(r), 0);
}

/* The backend hangs for longer than a start may take. */
static void test_backend_that_hangs_counts_none(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = 3000 });
	struct tenant *t = rig_tenant(r, "a");

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_NONE);
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	assert_int_equal(rig_acquire(t), -ETIMEDOUT);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(rig_leases(t), 0);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	fake_clock_add(&r->clock, LONG_MS);
	r->provider->start_timeout_ms = 500; /* nothing has to be reached this time */
	assert_int_equal(rig_acquire(t), -ETIMEDOUT);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(rig_leases(t), 0);
	assert_int_equal(tenant_release(t), -EINVAL);
	tenant_put(t);
}

/* The program ends in the middle. */
static void test_shutdown_counts_none(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = tenant_with_a_dead_one(r);
	struct errand e;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 2, LONG_MS));
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_int_equal(rig_end(&e), -ESHUTDOWN);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(tenant_release(t), -EINVAL);
	tenant_put(t);
}

/* ---- many at once ---- */

enum { MANY = 200 };

struct one {
	pthread_t thread;
	struct tenant *tenant;
	int result;
};

static void *run_acquire(void *arg)
{
	struct one *o = arg;

	o->result = rig_acquire(o->tenant);
	return NULL;
}

/* 200 concurrent acquires of one thread make exactly one sandbox, and count 200. */
static void test_concurrent_acquires_make_one_sandbox(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	static struct one all[MANY];
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	/* so that all of them come while it starts */
	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	for (size_t i = 0; i < MANY; i++) {
		all[i] = (struct one){ .tenant = t, .result = 1 };
		assert_int_equal(pthread_create(&all[i].thread, &attr, run_acquire, &all[i]), 0);
	}
	pthread_attr_destroy(&attr);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 1, LONG_MS));
	faulty_resume(r->faults, ASK_CREATE);
	for (size_t i = 0; i < MANY; i++) {
		pthread_join(all[i].thread, NULL);
		assert_int_equal(all[i].result, 0);
	}
	assert_int_equal(rig_leases(t), MANY);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(rig_processes(r), 1);
	for (size_t i = 0; i < MANY; i++) {
		assert_int_equal(rig_state(t), TENANT_ACTIVE);
		assert_int_equal(tenant_release(t), 0);
	}
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(tenant_release(t), -EINVAL);
	tenant_put(t);
}

/* The same where all of them surely wait: begun one after the other, not one is answered. */
static void test_waiters_share_one_start(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	static struct errand all[MANY];

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	for (size_t i = 0; i < MANY; i++)
		rig_begin(&all[i], tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 1, LONG_MS));
	for (size_t i = 0; i < MANY; i++)
		assert_true(rig_is_open(&all[i]));
	assert_int_equal(rig_leases(t), 0);
	faulty_resume(r->faults, ASK_CREATE);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(rig_end(&all[i]), 0);
	assert_int_equal(rig_leases(t), MANY);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

/* Different threads never wait for each other: all are being made before one is. */
static void test_tenants_start_in_parallel(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .no_isolation = true });
	enum { N = 20 };
	struct tenant *t[N];
	struct errand e[N];
	char name[8];

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG, .times = N);
	for (size_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "t%zu", i);
		t[i] = rig_tenant(r, name);
		rig_begin(&e[i], tenant_acquire, t[i]);
	}
	assert_true(faulty_wait(r->faults, ASK_CREATE, N, LONG_MS));
	assert_int_equal(faulty_answered(r->faults, ASK_CREATE), 0);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_state(t[i]), TENANT_STARTING);
	faulty_resume(r->faults, ASK_CREATE);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_end(&e[i]), 0);
	assert_int_equal(rig_processes(r), N);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(rig_leases(t[i]), 1);
		assert_int_equal(tenant_release(t[i]), 0);
		tenant_put(t[i]);
	}
}

/* ---- giving up ---- */

/* One who gives up while the sandbox is made holds nothing that others need. */
static void test_acquire_async_cancellation_does_not_leak_thread_lock(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "a");
	struct errand e;

	/* after the file lock has been taken, before there is a sandbox */
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_DISCOVER, 1, LONG_MS));
	assert_int_equal(rig_acquire_ms(theirs, SHORT_MS), -ETIMEDOUT); /* it is taken indeed */
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	faulty_resume(r->faults, ASK_DISCOVER);
	assert_true(rig_wait_state(t, TENANT_COLD));
	assert_int_equal(rig_leases(t), 0);

	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
	rig_end_provider(r);
	tenant_put(theirs);
	provider_free(peer);
}

/* Of several who wait, some give up: the others get theirs, and only they. */
static void test_acquire_async_cancelled_waiter_does_not_block_successor(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand first, cancelled, late, last;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	rig_begin(&first, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 1, LONG_MS));
	rig_begin(&cancelled, tenant_acquire, t);
	begin_acquire(&late, t, SHORT_MS);
	assert_int_equal(rig_end(&late), -ETIMEDOUT);
	call_cancel(&cancelled.call);
	assert_int_equal(rig_end(&cancelled), -ECANCELED);
	rig_begin(&last, tenant_acquire, t);
	call_cancel(&first.call); /* it is his start, and goes on all the same */
	assert_int_equal(rig_end(&first), -ECANCELED);
	assert_true(rig_is_open(&last));
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&last), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

/* All have given up a sandbox that was being made: it waits for the next one. */
static void test_start_that_all_gave_up_ends_warm(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_CREATE, 1, LONG_MS));
	assert_int_equal(rig_acquire_ms(t, SHORT_MS), -ETIMEDOUT);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	faulty_resume(r->faults, ASK_CREATE);
	assert_true(rig_wait_state(t, TENANT_WARM));
	assert_int_equal(rig_leases(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* All have given up before anything was made: nothing is. */
static void test_start_that_nobody_waits_for_makes_nothing(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e[2];

	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_HANG);
	for (size_t i = 0; i < 2; i++)
		rig_begin(&e[i], tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_DISCOVER, 1, LONG_MS));
	for (size_t i = 0; i < 2; i++) {
		call_cancel(&e[i].call);
		assert_int_equal(rig_end(&e[i]), -ECANCELED);
	}
	assert_int_equal(rig_state(t), TENANT_STARTING);
	faulty_resume(r->faults, ASK_DISCOVER);
	assert_true(rig_wait_state(t, TENANT_COLD));
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* A lock that another program holds is waited for, in vain left alone, and got when free. */
static void test_discover_or_create_only_unlocks_when_lock_succeeds(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	char path[256];
	struct errand e;
	int fd;

	/* makes the directories */
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_destroy(t), 0);
	snprintf(path, sizeof(path), "%s/users/u/threads/a/%s.lock", r->data, tenant_id(t));
	fd = filelock_try(path, true);
	assert_true(fd >= 0);

	assert_int_equal(rig_acquire_ms(t, SHORT_MS), -ETIMEDOUT);
	assert_int_equal(filelock_try_existing(path, true), -EAGAIN);
	rig_begin(&e, tenant_acquire, t);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	assert_int_equal(filelock_try_existing(path, true), -EAGAIN);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);

	rig_begin(&e, tenant_acquire, t);
	filelock_remove(path, fd);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_acquire_starts_and_release_parks),
		RIG_TEST(test_acquire_twice_release_once_stays_active),
		RIG_TEST(test_temporary_lease_does_not_park_an_active_one),
		RIG_TEST(test_release_without_a_lease),
		RIG_TEST(test_every_kind_of_acquire_counts_one),
		RIG_TEST(test_failed_acquire_counts_none),
		RIG_TEST(test_release_after_a_failed_restart),
		RIG_TEST(test_backend_that_hangs_counts_none),
		RIG_TEST(test_shutdown_counts_none),
		RIG_TEST(test_concurrent_acquires_make_one_sandbox),
		RIG_TEST(test_waiters_share_one_start),
		RIG_TEST(test_tenants_start_in_parallel),
		RIG_TEST(test_acquire_async_cancellation_does_not_leak_thread_lock),
		RIG_TEST(test_acquire_async_cancelled_waiter_does_not_block_successor),
		RIG_TEST(test_start_that_all_gave_up_ends_warm),
		RIG_TEST(test_start_that_nobody_waits_for_makes_nothing),
		RIG_TEST(test_discover_or_create_only_unlocks_when_lock_succeeds),
	};

	return RIG_RUN(tests);
}

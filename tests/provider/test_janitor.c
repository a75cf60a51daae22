/*
 * The janitor's rounds: idle sandboxes are stopped, active ones never; room is
 * made for new ones at the expense of the oldest warm one; whoever asks for a
 * round gets one that began after he asked. Time passes by the fake clock.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "rig.h"

enum { IDLE_MS = 600 * 1000 };

static const struct rig_options with_idle = { .idle_timeout_ms = IDLE_MS };

static void make_warm(struct tenant *t)
{
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
}

static void tick(struct rig *r)
{
	assert_int_equal(rig_tick(r->provider), 0);
}

/* ---- idle ---- */

/* Whoever has a lease is never idle, however long; what is warm is, after its time. */
static void test_cleanup_idle_sandboxes_keeps_active_cleanup_and_delegates_warm_expiry(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *active = rig_tenant(r, "active"), *warm = rig_tenant(r, "warm");

	assert_int_equal(rig_acquire(active), 0);
	make_warm(warm);
	fake_clock_add(&r->clock, IDLE_MS - 1);
	tick(r);
	assert_int_equal(rig_state(warm), TENANT_WARM);
	assert_int_equal(rig_processes(r), 2);
	fake_clock_add(&r->clock, 1);
	tick(r);
	assert_int_equal(rig_state(warm), TENANT_COLD);
	assert_int_equal(rig_processes(r), 1);
	fake_clock_add(&r->clock, 100 * (int64_t)IDLE_MS);
	tick(r);
	assert_int_equal(rig_state(active), TENANT_ACTIVE);
	assert_int_equal(rig_ping(active), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);

	/* Its time begins when it is parked, not when it was last used. */
	assert_int_equal(tenant_release(active), 0);
	tick(r);
	assert_int_equal(rig_state(active), TENANT_WARM);
	fake_clock_add(&r->clock, IDLE_MS);
	tick(r);
	assert_int_equal(rig_state(active), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);

	/* Gone is not lost. */
	assert_int_equal(rig_acquire(warm), 0);
	assert_int_equal(rig_ping(warm), 0);
	assert_int_equal(rig_starts(warm), 2);
	tenant_put(active);
	tenant_put(warm);
}

/* Each has a time of its own. */
static void test_idle_stops_only_those_whose_time_is_over(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t[3];

	for (size_t i = 0; i < 3; i++) {
		t[i] = rig_tenant(r, (const char *const[]){ "a", "b", "c" }[i]);
		make_warm(t[i]);
		fake_clock_add(&r->clock, IDLE_MS / 2);
	}
	tick(r); /* 1.5, 1.0 and 0.5 of it */
	assert_int_equal(rig_state(t[0]), TENANT_COLD);
	assert_int_equal(rig_state(t[1]), TENANT_COLD);
	assert_int_equal(rig_state(t[2]), TENANT_WARM);
	assert_int_equal(rig_processes(r), 1);
	for (size_t i = 0; i < 3; i++)
		tenant_put(t[i]);
}

static void test_idle_timeout_zero_stops_nothing(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	make_warm(t);
	fake_clock_add(&r->clock, 1000 * (int64_t)IDLE_MS);
	tick(r);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_starts(t), 1);
	tenant_put(t);
}

/* It may fail to stop; then the next round finds it again, and the one after stops it. */
static void test_idle_stop_that_fails_is_made_good_for_later(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t = rig_tenant(r, "a");

	make_warm(t);
	fake_clock_add(&r->clock, IDLE_MS);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	tick(r);
	assert_int_equal(rig_processes(r), 1);
	tick(r);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(rig_is_ours(t));
	fake_clock_add(&r->clock, IDLE_MS);
	tick(r);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* ---- replicas ---- */

static void test_create_sandbox_evicts_oldest_warm_replica_via_shared_lifecycle(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .replicas = 3 });
	struct tenant *t[4];

	for (size_t i = 0; i < 4; i++)
		t[i] = rig_tenant(r, (const char *const[]){ "a", "b", "c", "d" }[i]);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(rig_acquire(t[i]), 0);
	/* The oldest is who was parked first, not who was started first. */
	assert_int_equal(tenant_release(t[1]), 0);
	fake_clock_add(&r->clock, 1000);
	assert_int_equal(tenant_release(t[0]), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_acquire(t[3]), 0);
	assert_true(rig_wait_state(t[1], TENANT_COLD));
	assert_int_equal(rig_state(t[0]), TENANT_WARM);
	assert_int_equal(rig_state(t[2]), TENANT_ACTIVE);
	assert_int_equal(rig_state(t[3]), TENANT_ACTIVE);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_processes(r), 3);

	/* Reclaiming needs no room. */
	assert_int_equal(rig_acquire(t[0]), 0);
	assert_int_equal(rig_starts(t[0]), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	for (size_t i = 0; i < 4; i++)
		tenant_put(t[i]);
}

/* The cap is soft: what is in use stays, and what is wanted is started. */
static void test_replicas_never_evict_an_active_one(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .replicas = 1 });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b"), *c = rig_tenant(r, "c");
	char *log;

	assert_int_equal(rig_acquire(a), 0);
	rig_begin_log(r);
	assert_int_equal(rig_acquire(b), 0);
	log = rig_end_log(r);
	assert_non_null(strstr(log, "2 sandboxes where 1 are meant to be"));
	free(log);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_ping(a), 0);
	assert_int_equal(rig_ping(b), 0);

	/* The next one gets rid of what is not in use any more. */
	assert_int_equal(tenant_release(a), 0);
	assert_int_equal(rig_acquire(c), 0);
	assert_true(rig_wait_state(a, TENANT_COLD));
	assert_int_equal(rig_state(b), TENANT_ACTIVE);
	assert_int_equal(rig_processes(r), 2);
	tenant_put(a);
	tenant_put(b);
	tenant_put(c);
}

/* Another program's sandbox is not stopped to make room: it is only forgotten. */
static void test_replicas_forget_a_warm_one_that_is_not_ours(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .replicas = 1 });
	struct faulty *faults;
	struct provider *peer = rig_peer(r, &faults);
	struct tenant *theirs = rig_tenant_of(peer, "u", "a");
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");

	assert_int_equal(rig_acquire(theirs), 0);
	make_warm(a);
	assert_false(rig_is_ours(a));
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(rig_state(a), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(rig_ping(theirs), 0);
	tenant_put(a);
	tenant_put(b);
	tenant_put(theirs);
	provider_free(peer);
}

/* ---- rounds ---- */

/* A round that has begun may have looked already: who asks now gets the next one. */
static void test_rounds_asked_while_one_runs_are_served_by_the_next(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t = rig_tenant(r, "a");
	struct errand first, second, third;
	unsigned before;

	make_warm(t);
	before = faulty_count(r->faults, ASK_LIST_RUNNING);
	FAULTY_ORDER(r->faults, ASK_LIST_RUNNING, .fault = FAULT_HANG, .times = 2);
	rig_begin_round(&first, provider_reconcile, r->provider);
	fake_clock_add(&r->clock, IDLE_MS);
	rig_begin_round(&second, provider_tick, r->provider);
	rig_begin_round(&third, provider_tick, r->provider);
	assert_int_equal(faulty_count(r->faults, ASK_LIST_RUNNING), before + 1);
	assert_int_equal(rig_state(t), TENANT_WARM);
	faulty_resume(r->faults, ASK_LIST_RUNNING);
	assert_int_equal(rig_end(&first), 0);
	assert_true(faulty_wait(r->faults, ASK_LIST_RUNNING, before + 2, 20000));
	assert_true(rig_is_open(&second));
	assert_true(rig_is_open(&third));
	faulty_resume(r->faults, ASK_LIST_RUNNING);
	assert_int_equal(rig_end(&second), 0);
	assert_int_equal(rig_end(&third), 0);
	assert_int_equal(faulty_count(r->faults, ASK_LIST_RUNNING), before + 2);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* It ends when what it began has ended. */
static void test_a_round_waits_for_what_it_stops(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct errand round;
	unsigned listed;

	make_warm(a);
	make_warm(b);
	fake_clock_add(&r->clock, IDLE_MS);
	listed = faulty_answered(r->faults, ASK_LIST_RUNNING);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_NONE);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG);
	rig_begin_round(&round, provider_tick, r->provider);
	assert_true(rig_wait_state(a, TENANT_COLD));
	for (int64_t until = clock_ms() + 20000;
	     faulty_answered(r->faults, ASK_LIST_RUNNING) == listed;) {
		assert_true(clock_ms() < until);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	assert_true(rig_is_open(&round));
	assert_int_equal(rig_state(b), TENANT_STOPPING);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&round), 0);
	assert_int_equal(rig_state(b), TENANT_COLD);
	tenant_put(a);
	tenant_put(b);
}

static void test_a_round_can_be_given_up(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct errand first, second;

	FAULTY_ORDER(r->faults, ASK_LIST_RUNNING, .fault = FAULT_HANG);
	rig_begin_round(&first, provider_tick, r->provider);
	rig_begin_round(&second, provider_tick, r->provider);
	call_cancel(&first.call);
	call_cancel(&second.call);
	assert_int_equal(rig_end(&first), -ECANCELED);
	assert_int_equal(rig_end(&second), -ECANCELED);
	faulty_resume(r->faults, ASK_LIST_RUNNING);
	tick(r);
}

/* The end does not wait for a listing that hangs; rounds are told, later ones refused. */
static void test_shutdown_ends_a_round_that_hangs(void **state)
{
	struct rig *r = rig_start(state, NULL);
	int64_t begin = clock_ms();
	struct errand first, second;

	FAULTY_ORDER(r->faults, ASK_LIST_RUNNING, .fault = FAULT_HANG);
	rig_begin_round(&first, provider_tick, r->provider);
	rig_begin_round(&second, provider_tick, r->provider);
	assert_int_equal(provider_shutdown(r->provider), 0);
	assert_true(clock_ms() - begin < 10000); /* a listing may take 15 s */
	assert_int_equal(rig_end(&first), -ESHUTDOWN);
	assert_int_equal(rig_end(&second), -ESHUTDOWN);
	assert_int_equal(rig_tick(r->provider), -ESHUTDOWN);
	assert_int_equal(rig_reconcile(r->provider), -ESHUTDOWN);
}

/* By itself, as often as it was told to. */
static void test_rounds_come_by_themselves(void **state)
{
	struct rig *r = rig_start(
		state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS, .janitor_ms = 20 });
	struct tenant *t = rig_tenant(r, "a");
	unsigned before;

	make_warm(t);
	before = faulty_count(r->faults, ASK_LIST_RUNNING);
	assert_true(faulty_wait(r->faults, ASK_LIST_RUNNING, before + 3, 20000));
	assert_int_equal(rig_state(t), TENANT_WARM);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_true(rig_wait_state(t, TENANT_COLD));
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(
			test_cleanup_idle_sandboxes_keeps_active_cleanup_and_delegates_warm_expiry),
		RIG_TEST(test_idle_stops_only_those_whose_time_is_over),
		RIG_TEST(test_idle_timeout_zero_stops_nothing),
		RIG_TEST(test_idle_stop_that_fails_is_made_good_for_later),
		RIG_TEST(test_create_sandbox_evicts_oldest_warm_replica_via_shared_lifecycle),
		RIG_TEST(test_replicas_never_evict_an_active_one),
		RIG_TEST(test_replicas_forget_a_warm_one_that_is_not_ours),
		RIG_TEST(test_rounds_asked_while_one_runs_are_served_by_the_next),
		RIG_TEST(test_a_round_waits_for_what_it_stops),
		RIG_TEST(test_a_round_can_be_given_up),
		RIG_TEST(test_shutdown_ends_a_round_that_hangs),
		RIG_TEST(test_rounds_come_by_themselves),
	};

	return RIG_RUN(tests);
}

/*
 * Two things at once about one sandbox, within one program: one side is held in
 * the middle (FAULT_HANG), the other acts, then the first goes on. "Reserved"
 * is what the reference calls a sandbox that is being stopped; here it is in
 * state `stopping`, in a flight, and in no other list.
 *
 * Lines of the reference whose mechanics do not exist here:
 * - test_renewal_does_not_drop_a_sandbox_this_instance_re_acquired,
 *   test_renewal_does_not_drop_a_sandbox_whose_takeover_is_mid_flight: ownership
 *   is a lock of the kernel and is not renewed.
 * - test_forget_without_an_epoch_still_refuses_an_id_being_acquired: there are
 *   no epochs; a forget waits for the flight (test_forget_during_start…).
 * - test_reconcile_does_not_adopt_a_container_this_instance_is_tearing_down is
 *   in test_reconcile.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "rig.h"

enum { IDLE_MS = 600 * 1000 };

static const struct rig_options with_idle = { .idle_timeout_ms = IDLE_MS };

/* A lease on a fresh sandbox; its pid. */
static pid_t acquire(struct rig *r, struct tenant *t)
{
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	pid = rig_pid(r, tenant_id(t));
	assert_true(pid > 0);
	return pid;
}

static pid_t make_warm(struct rig *r, struct tenant *t)
{
	pid_t pid = acquire(r, t);

	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	return pid;
}

/* The next question of this kind will hang. */
static void hold(struct rig *r, enum ask_kind kind)
{
	FAULTY_ORDER(r->faults, kind, .fault = FAULT_HANG);
}

/* Begins it, and returns when that question hangs. */
static void begin_until(struct rig *r, struct errand *e,
			void (*fn)(struct tenant *t, struct errand *e), struct tenant *t,
			enum ask_kind kind)
{
	unsigned n = faulty_count(r->faults, kind);

	hold(r, kind);
	rig_begin(e, fn, t);
	assert_true(faulty_wait(r->faults, kind, n + 1, 20000));
	assert_true(rig_is_open(e));
}

static void report_dead(struct tenant *t)
{
	struct sandbox *sb = tenant_sandbox(t);

	assert_non_null(sb);
	assert_true(tenant_report(t, sb, -ECONNREFUSED));
	sandbox_put(sb);
}

/* What the last flight ended in is usable, and there is one sandbox. */
static void assert_serves(struct rig *r, struct tenant *t, unsigned leases)
{
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_leases(t), leases);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
}

/* ---- in use again, just in time ---- */

static void test_warm_reaper_does_not_stop_a_container_this_instance_just_reclaimed(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);
	struct errand e;

	fake_clock_add(&r->clock, IDLE_MS);
	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
}

static void test_idle_destroy_does_not_stop_a_container_this_instance_just_reused(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);

	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_tick(r->provider), 0);
	/* Parked again, it is young. */
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
}

/* Of two that are idle, one is wanted again while the round begins. */
static void test_idle_destroy_skips_a_sandbox_re_acquired_after_the_idle_snapshot(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct errand round, e;
	pid_t pid;

	make_warm(r, a);
	pid = make_warm(r, b);
	fake_clock_add(&r->clock, IDLE_MS);
	begin_until(r, &e, tenant_acquire, b, ASK_IS_ALIVE);
	hold(r, ASK_DESTROY);
	rig_begin_round(&round, provider_tick, r->provider);
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, 20000));
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&round), 0);
	assert_int_equal(rig_state(a), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_serves(r, b, 1);
	assert_int_equal(rig_pid(r, tenant_id(b)), pid);
	tenant_put(a);
	tenant_put(b);
}

/* A release that comes too often, or late, takes nothing from whoever has acquired since. */
static void test_release_does_not_drop_a_warm_entry_this_instance_re_acquired(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	make_warm(r, t);
	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	assert_int_equal(tenant_release(t), -EINVAL);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_starts(t), 1);
	tenant_put(t);
}

/* Nobody waits for it any more when it has been checked: it is warm again. */
static void test_a_reclaim_that_was_cancelled_leaves_it_warm(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);
	struct errand e;

	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_true(rig_wait_state(t, TENANT_WARM));
	assert_int_equal(rig_leases(t), 0);
	assert_true(rig_wait_no_sockets(r, t));
	assert_int_equal(acquire(r, t), pid);
	assert_serves(r, t, 1);
	tenant_put(t);
}

/* ---- a destroy that comes while it is about to be handed out ---- */

/* The active one is checked: the one that is returned is not the one that is stopped. */
static void test_reuse_does_not_return_a_sandbox_reserved_during_its_health_check(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = acquire(r, t);
	struct errand e, destroy;

	report_dead(t);
	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	rig_begin(&destroy, tenant_destroy, t);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 2);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	tenant_put(t);
}

/* The same of a warm one. */
static void test_reclaim_does_not_return_a_sandbox_reserved_during_its_health_check(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);
	struct errand e, destroy;

	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	rig_begin(&destroy, tenant_destroy, t);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	tenant_put(t);
}

/* It dies while it is checked: the acquire falls through to a new one. */
static void test_reuse_falls_through_when_its_entry_is_dropped_while_publishing(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);
	struct errand e;

	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	rig_kill(r, t);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
}

/* A sandbox that runs, unknown to us and nobody's. */
static pid_t leave_running(struct rig *r, const char *thread)
{
	struct faulty *faults;
	struct provider *p = rig_peer(r, &faults);
	struct tenant *t = rig_tenant_of(p, "u", thread);
	pid_t pid = acquire(r, t);

	tenant_put(t);
	FAULTY_ORDER(faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	provider_free(p);
	return pid;
}

/* It is found and made ours while somebody wants it gone: the next one is handed out. */
static void destroy_while_it_is_found(struct rig *r, enum ask_kind step)
{
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = leave_running(r, "a");
	struct errand e, destroy;

	begin_until(r, &e, tenant_acquire, t, step);
	rig_begin(&destroy, tenant_destroy, t);
	assert_int_equal(rig_state(t), TENANT_STARTING);
	faulty_resume(r->faults, step);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	tenant_put(t);
}

static void test_discovery_does_not_install_a_sandbox_reserved_while_publishing(void **state)
{
	destroy_while_it_is_found(rig_start(state, NULL), ASK_DISCOVER);
}

static void test_adoption_does_not_install_a_sandbox_reserved_while_publishing(void **state)
{
	destroy_while_it_is_found(rig_start(state, NULL), ASK_ADOPT);
}

static void test_destroy_during_start(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e, destroy;

	begin_until(r, &e, tenant_acquire, t, ASK_CREATE);
	rig_begin(&destroy, tenant_destroy, t);
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	tenant_put(t);
}

/* Who started it has given up, and somebody wants it gone: nothing is left. */
static void test_destroy_during_a_start_that_was_cancelled(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e, destroy;

	begin_until(r, &e, tenant_acquire, t, ASK_CREATE);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	rig_begin(&destroy, tenant_destroy, t);
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* The thread is forgotten as soon as its start is over; whoever waited gets a new one. */
static void test_forget_during_start(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e, forget;

	begin_until(r, &e, tenant_acquire, t, ASK_CREATE);
	rig_begin(&forget, tenant_forget, t);
	assert_true(rig_is_open(&forget));
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&forget), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	tenant_put(t);
}

/* One that holds files is not forgotten, and its sandbox is handed out as it is. */
static void test_forget_during_start_of_a_thread_with_files(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e, forget;
	int fd;

	begin_until(r, &e, tenant_acquire, t, ASK_CREATE);
	fd = open(rig_host_path(r, "a", "workspace/f"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	rig_begin(&forget, tenant_forget, t);
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&forget), -ENOTEMPTY);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(access(rig_host_path(r, "a", "workspace/f"), F_OK), 0);
	tenant_put(t);
}

/* ---- what is being stopped ---- */

/* A dead one is being removed: it is not found again meanwhile. */
static void test_unhealthy_drop_refuses_discovery_of_the_container_it_is_stopping(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = acquire(r, t);
	struct errand first, second, find;

	rig_kill(r, t);
	report_dead(t);
	begin_until(r, &first, tenant_acquire, t, ASK_DESTROY);
	assert_int_equal(rig_state(t), TENANT_STOPPING);
	rig_begin(&second, tenant_acquire, t);
	rig_begin(&find, tenant_find, t);
	assert_true(rig_is_open(&second));
	assert_true(rig_is_open(&find));
	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	assert_null(tenant_sandbox(t));
	assert_int_equal(faulty_count(r->faults, ASK_DISCOVER), 1); /* the first start's */
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&first), 0);
	assert_int_equal(rig_end(&second), 0);
	assert_int_equal(rig_end(&find), 0);
	assert_serves(r, t, 3);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	tenant_put(t);
}

static void test_reclaim_does_not_hand_out_a_container_a_reaper_is_stopping(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);
	struct errand round, e;

	fake_clock_add(&r->clock, IDLE_MS);
	hold(r, ASK_DESTROY);
	rig_begin_round(&round, provider_tick, r->provider);
	assert_true(rig_wait_state(t, TENANT_STOPPING));
	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_is_open(&e));
	assert_int_equal(rig_leases(t), 0);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&round), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
}

static void test_reclaim_short_circuits_a_reserved_entry_without_touching_the_backend(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	unsigned counts[ASK_KINDS];
	struct errand destroy, e;

	make_warm(r, t);
	begin_until(r, &destroy, tenant_destroy, t, ASK_DESTROY);
	for (enum ask_kind kind = 0; kind < ASK_KINDS; kind++)
		counts[kind] = faulty_count(r->faults, kind);
	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_is_open(&e));
	for (enum ask_kind kind = 0; kind < ASK_KINDS; kind++)
		assert_int_equal(faulty_count(r->faults, kind), counts[kind]);
	call_cancel(&e.call);
	assert_int_equal(rig_end(&e), -ECANCELED);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	tenant_put(t);
}

/* However the stop ended, the thread can be used again. */
static void test_teardown_reservation_is_cleared_once_the_stop_returns(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = make_warm(r, t);

	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO, .why = "no");
	assert_int_equal(rig_destroy(t), -EIO);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(acquire(r, t), pid); /* it ran on, and was found */
	assert_true(rig_is_ours(t));
	assert_serves(r, t, 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(rig_processes(r), 0);
	assert_int_not_equal(acquire(r, t), pid);
	assert_serves(r, t, 1);
	tenant_put(t);
}

/* While it is stopped it is in no list of warm ones: no second stop, no eviction. */
static void test_warm_entry_is_removed_before_its_teardown_reservation_is_released(void **state)
{
	struct rig *r = rig_start(
		state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS, .replicas = 1 });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct errand destroy;

	make_warm(r, a);
	begin_until(r, &destroy, tenant_destroy, a, ASK_DESTROY);
	assert_int_equal(rig_state(a), TENANT_STOPPING);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_state(a), TENANT_STOPPING);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_state(a), TENANT_COLD);
	assert_serves(r, b, 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	tenant_put(a);
	tenant_put(b);
}

static void test_destroy_twice_at_once_stops_once(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand first, second, third;

	acquire(r, t);
	begin_until(r, &first, tenant_destroy, t, ASK_DESTROY);
	rig_begin(&second, tenant_destroy, t);
	rig_begin(&third, tenant_destroy, t);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&first), 0);
	assert_int_equal(rig_end(&second), 0);
	assert_int_equal(rig_end(&third), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_leases(t), 1); /* that is the thread's */
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* ---- release in the middle ---- */

/* The last lease goes while it is checked for another: that one gets the same sandbox. */
static void test_release_during_check(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = acquire(r, t);
	struct errand e;

	report_dead(t);
	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
}

/* The same of a dead one: that one gets a new sandbox. */
static void test_release_during_check_of_a_dead_one(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = acquire(r, t);
	struct errand e;

	rig_kill(r, t);
	report_dead(t);
	begin_until(r, &e, tenant_acquire, t, ASK_IS_ALIVE);
	assert_int_equal(tenant_release(t), 0);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
}

/* The lease of a sandbox that has been stopped is given up while the next one starts. */
static void test_release_during_the_next_start(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	acquire(r, t);
	assert_int_equal(rig_destroy(t), 0);
	begin_until(r, &e, tenant_acquire, t, ASK_CREATE);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_release(t), 0);
	faulty_resume(r->faults, ASK_CREATE);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

/* ---- one list at a time ---- */

/* Active, it is counted once, and is not the warm one that makes room. */
static void test_registering_a_sandbox_clears_any_stale_warm_entry(void **state)
{
	struct rig *r = rig_start(
		state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS, .replicas = 2 });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct tenant_list l;

	make_warm(r, a);
	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(provider_status(r->provider, &l), 0);
	assert_int_equal(l.count, 2);
	assert_int_equal(l.items[0].state, TENANT_ACTIVE);
	assert_int_equal(l.items[1].state, TENANT_ACTIVE);
	tenant_list_release(&l);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_ping(a), 0);
	assert_int_equal(rig_ping(b), 0);
	tenant_put(a);
	tenant_put(b);
}

/* Wanted while a round adopts it: it is handed out once, and not idle. */
static void test_a_container_adopted_during_register_is_not_reaped_from_the_warm_pool(void **state)
{
	struct rig *r = rig_start(state, &with_idle);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = leave_running(r, "a");
	struct errand round, e;

	hold(r, ASK_ADOPT);
	rig_begin_round(&round, provider_reconcile, r->provider);
	assert_true(faulty_wait(r->faults, ASK_ADOPT, 1, 20000));
	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_is_open(&e));
	fake_clock_add(&r->clock, IDLE_MS);
	faulty_resume(r->faults, ASK_ADOPT);
	assert_int_equal(rig_end(&round), 0);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	tenant_put(t);
}

/* The other way round: the round meets a start, and leaves it alone. */
static void test_reconcile_leaves_a_start_alone(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid = leave_running(r, "a");
	struct errand e;

	begin_until(r, &e, tenant_acquire, t, ASK_DISCOVER);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	faulty_resume(r->faults, ASK_DISCOVER);
	assert_int_equal(rig_end(&e), 0);
	assert_serves(r, t, 1);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_true(rig_is_ours(t));
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_warm_reaper_does_not_stop_a_container_this_instance_just_reclaimed),
		RIG_TEST(test_idle_destroy_does_not_stop_a_container_this_instance_just_reused),
		RIG_TEST(test_idle_destroy_skips_a_sandbox_re_acquired_after_the_idle_snapshot),
		RIG_TEST(test_release_does_not_drop_a_warm_entry_this_instance_re_acquired),
		RIG_TEST(test_a_reclaim_that_was_cancelled_leaves_it_warm),
		RIG_TEST(test_reuse_does_not_return_a_sandbox_reserved_during_its_health_check),
		RIG_TEST(test_reclaim_does_not_return_a_sandbox_reserved_during_its_health_check),
		RIG_TEST(test_reuse_falls_through_when_its_entry_is_dropped_while_publishing),
		RIG_TEST(test_discovery_does_not_install_a_sandbox_reserved_while_publishing),
		RIG_TEST(test_adoption_does_not_install_a_sandbox_reserved_while_publishing),
		RIG_TEST(test_destroy_during_start),
		RIG_TEST(test_destroy_during_a_start_that_was_cancelled),
		RIG_TEST(test_forget_during_start),
		RIG_TEST(test_forget_during_start_of_a_thread_with_files),
		RIG_TEST(test_unhealthy_drop_refuses_discovery_of_the_container_it_is_stopping),
		RIG_TEST(test_reclaim_does_not_hand_out_a_container_a_reaper_is_stopping),
		RIG_TEST(test_reclaim_short_circuits_a_reserved_entry_without_touching_the_backend),
		RIG_TEST(test_teardown_reservation_is_cleared_once_the_stop_returns),
		RIG_TEST(test_warm_entry_is_removed_before_its_teardown_reservation_is_released),
		RIG_TEST(test_destroy_twice_at_once_stops_once),
		RIG_TEST(test_release_during_check),
		RIG_TEST(test_release_during_check_of_a_dead_one),
		RIG_TEST(test_release_during_the_next_start),
		RIG_TEST(test_registering_a_sandbox_clears_any_stale_warm_entry),
		RIG_TEST(test_a_container_adopted_during_register_is_not_reaped_from_the_warm_pool),
		RIG_TEST(test_reconcile_leaves_a_start_alone),
	};

	return RIG_RUN(tests);
}

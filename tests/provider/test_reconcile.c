/*
 * What an earlier life left running is taken over: by the round at the start and
 * by later ones. A life "crashes" here by being unable to stop anything: its
 * sandboxes run on, and nobody has their locks any more. test_crash.c does it
 * with kill -9.
 */
#include <errno.h>
#include <string.h>

#include "backend_embedded.h"
#include "provider_i.h"
#include "rig.h"

enum {
	HOUR_MS = 3600 * 1000,
	IDLE_MS = 600 * 1000,
	START_MS = 4000, /* for one that never answers; a real one is made in it */
};

/* Ends the provider; what it made runs on. */
static void crash(struct rig *r)
{
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO,
		     .times = FAULTY_FOREVER);
	rig_end_provider(r);
}

/* A sandbox for the thread that nobody has a lock of. Returns its pid. */
static pid_t leave_running(struct rig *r, const char *thread)
{
	struct faulty *faults;
	struct provider *p = rig_peer(r, &faults);
	struct tenant *t = rig_tenant_of(p, "u", thread);
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	pid = rig_pid(r, tenant_id(t));
	assert_true(pid > 0);
	tenant_put(t);
	FAULTY_ORDER(faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO,
		     .times = FAULTY_FOREVER);
	provider_free(p);
	return pid;
}

static pid_t start_one(struct rig *r, const char *thread)
{
	struct tenant *t = rig_tenant(r, thread);
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	pid = rig_pid(r, tenant_id(t));
	assert_true(pid > 0);
	tenant_put(t);
	return pid;
}

/* Warm, ours, the same process; and it serves the next acquire. */
static void assert_adopted(struct rig *r, const char *thread, pid_t pid)
{
	struct tenant *t = rig_tenant(r, thread);

	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_leases(t), 0);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

static size_t count_tenants(struct provider *p)
{
	struct tenant_list l;
	size_t n;

	assert_int_equal(provider_status(p, &l), 0);
	n = l.count;
	tenant_list_release(&l);
	return n;
}

/* ---- adoption ---- */

/* One that is older than the idle timeout is warm, and its time begins now. */
static void test_reconcile_adopts_old_containers_into_warm_pool(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS });
	pid_t pid = start_one(r, "a");
	struct tenant *t;

	crash(r);
	fake_clock_add(&r->clock, HOUR_MS);
	rig_restart_provider(r);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_adopted(r, "a", pid);
	t = rig_tenant(r, "a");
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* A young one as well: how old it is does not matter. */
static void test_reconcile_adopts_young_containers(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS });
	pid_t pid = start_one(r, "a");

	crash(r);
	rig_restart_provider(r);
	assert_adopted(r, "a", pid);
}

static void test_reconcile_mixed_containers_all_adopted(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS });
	pid_t old = start_one(r, "old"), young;

	fake_clock_add(&r->clock, HOUR_MS);
	young = start_one(r, "young");
	crash(r);
	rig_restart_provider(r);
	assert_int_equal(rig_processes(r), 2);
	assert_adopted(r, "old", old);
	assert_adopted(r, "young", young);
}

static void test_reconcile_multiple_containers_all_adopted(void **state)
{
	struct rig *r = rig_start(state, NULL);
	char name[] = "t0";
	pid_t pids[5];

	for (size_t i = 0; i < 5; i++) {
		name[1] = (char)('0' + i);
		pids[i] = start_one(r, name);
	}
	crash(r);
	assert_int_equal(rig_processes(r), 5);
	rig_restart_provider(r);
	assert_int_equal(count_tenants(r->provider), 5);
	for (size_t i = 0; i < 5; i++) {
		name[1] = (char)('0' + i);
		assert_adopted(r, name, pids[i]);
	}
	assert_int_equal(rig_processes(r), 5);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

/* Without an idle timeout they are adopted, and stay. */
static void test_reconcile_idle_timeout_zero_adopts_all(void **state)
{
	struct rig *r = rig_start(state, NULL);
	pid_t a = start_one(r, "a"), b = start_one(r, "b");

	crash(r);
	rig_restart_provider(r);
	fake_clock_add(&r->clock, 100 * (int64_t)HOUR_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_adopted(r, "a", a);
	assert_adopted(r, "b", b);
}

/* What we know already, in use or warm, is left as it is. */
static void test_reconcile_skips_already_tracked_containers(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");

	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(tenant_release(b), 0);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	assert_int_equal(rig_state(a), TENANT_ACTIVE);
	assert_int_equal(rig_leases(a), 1);
	assert_int_equal(rig_state(b), TENANT_WARM);
	assert_int_equal(rig_starts(a), 1);
	assert_int_equal(rig_starts(b), 1);
	assert_int_equal(count_tenants(r->provider), 2);
	tenant_put(a);
	tenant_put(b);
}

/* Nothing changes when they cannot be listed; the next round makes good for it. */
static void test_reconcile_handles_backend_failure(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *mine = rig_tenant(r, "mine");
	unsigned before;
	pid_t pid;

	assert_int_equal(rig_acquire(mine), 0);
	pid = leave_running(r, "a");
	before = faulty_count(r->faults, ASK_LIST_RUNNING);
	FAULTY_ORDER(r->faults, ASK_LIST_RUNNING, .fault = FAULT_FAIL, .error = -EIO,
		     .why = "no list today", .times = 2);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_LIST_RUNNING), before + 2);
	assert_int_equal(count_tenants(r->provider), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_processes(r), 2);
	assert_int_equal(rig_ping(mine), 0);
	tenant_put(mine);

	/* Nor does one that cannot be adopted. */
	FAULTY_ORDER(r->faults, ASK_ADOPT, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(count_tenants(r->provider), 1);
	assert_int_equal(rig_processes(r), 2);

	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(count_tenants(r->provider), 2);
	mine = rig_tenant(r, "a");
	assert_int_equal(rig_state(mine), TENANT_WARM);
	assert_true(rig_is_ours(mine));
	assert_int_equal(rig_pid(r, tenant_id(mine)), pid);
	tenant_put(mine);
}

static void test_reconcile_no_running_containers(void **state)
{
	struct rig *r = rig_start(state, NULL);
	unsigned before = faulty_count(r->faults, ASK_LIST_RUNNING);

	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_LIST_RUNNING), before + 1);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	assert_int_equal(count_tenants(r->provider), 0);
}

/* A backend that cannot list: rounds work, and nothing is found by them. */
static void test_backend_list_running_default_returns_empty(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct backend *b = NULL;
	struct backend_ops without;
	struct provider *p = NULL;
	const char *why = NULL;
	struct tenant *t;
	pid_t pid = leave_running(r, "a");

	assert_int_equal(backend_embedded_new(r->loop,
					      &(struct embedded_config){
						      .data = r->data,
						      .runtime = r->runtime,
						      .program = getenv("SANDBOXD"),
					      },
					      &b, NULL),
			 0);
	without = *b->ops;
	without.list_running = NULL;
	b->ops = &without;
	assert_int_equal(
		provider_new(
			&(struct provider_config){ .loop = r->loop, .backend = b, .data = r->data },
			&p, &why),
		0);
	assert_int_equal(rig_reconcile(p), 0);
	assert_int_equal(rig_tick(p), 0);
	assert_int_equal(count_tenants(p), 0);
	assert_int_equal(rig_processes(r), 1);

	/* It is found when it is wanted. */
	t = rig_tenant_of(p, "u", "a");
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
	provider_free(p);
	assert_int_equal(rig_processes(r), 0);
}

/* ---- wrong answers ---- */

/* A listing that tells of what is not there: ignored, and nothing is stopped. */
static void test_reconcile_ignores_what_a_listing_makes_up(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t;
	pid_t pid = leave_running(r, "a");

	FAULTY_ORDER(r->faults, ASK_LIST_RUNNING, .fault = FAULT_WRONG);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(count_tenants(r->provider), 1);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	t = rig_tenant(r, "a");
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

static void make_other_id(const char *user, const char *thread, char *id)
{
	snprintf(id, SANDBOX_ID_LEN + 1, "fedcba98%08x", (unsigned)(user[0] * 256 + thread[0]));
}

/* A sandbox that says it is a thread's, but has not its id: neither adopted nor stopped. */
static void test_reconcile_ignores_a_sandbox_whose_names_do_not_make_its_id(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .make_id = make_other_id });
	pid_t pid = start_one(r, "a");
	struct tenant *t;

	crash(r);
	r->options.make_id = NULL;
	rig_restart_provider(r);
	t = rig_tenant(r, "a");
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 1);

	r->options.make_id = make_other_id;
	rig_restart_provider(r);
	assert_adopted(r, "a", pid);
}

/* An adoption that names a place where nobody listens is found out before it is handed out. */
static void test_reconcile_adoption_with_a_wrong_place_does_not_stay(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = START_MS });
	struct tenant *t = rig_tenant(r, "a");

	leave_running(r, "a");
	FAULTY_ORDER(r->faults, ASK_ADOPT, .fault = FAULT_WRONG);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_acquire(t), -ECONNREFUSED);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_processes(r), 0);
	fake_clock_add(&r->clock, HOUR_MS); /* by then it may be tried again */
	r->provider->start_timeout_ms = 60000;
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
}

/* ---- what is being stopped ---- */

/* Its listing is answered while we stop it: it is not adopted. */
static void test_reconcile_does_not_adopt_a_container_this_instance_is_tearing_down(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand destroy;

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG);
	rig_begin(&destroy, tenant_destroy, t);
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, 20000));
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	assert_int_equal(rig_state(t), TENANT_STOPPING);
	assert_int_equal(rig_processes(r), 1);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&destroy), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* Makes the tenant's sandbox one that never answers, although it runs. */
static void start_unready(struct rig *r, struct tenant *t)
{
	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_WRONG);
	assert_int_equal(rig_acquire(t), -ECONNREFUSED);
}

static void
test_reconcile_does_not_adopt_a_container_whose_unready_teardown_is_reserved(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = START_MS });
	struct tenant *t = rig_tenant(r, "a");

	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG);
	start_unready(r, t);
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, 20000));
	assert_int_equal(rig_state(t), TENANT_STOPPING);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	assert_int_equal(rig_state(t), TENANT_STOPPING);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

/* One that did not get ready and could not be stopped either is not lost. */
static void test_reconcile_adopts_unready_container_when_no_teardown_is_in_flight(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .start_timeout_ms = START_MS });
	struct tenant *t = rig_tenant(r, "a");

	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	start_unready(r, t);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_reconcile_adopts_old_containers_into_warm_pool),
		RIG_TEST(test_reconcile_adopts_young_containers),
		RIG_TEST(test_reconcile_mixed_containers_all_adopted),
		RIG_TEST(test_reconcile_multiple_containers_all_adopted),
		RIG_TEST(test_reconcile_idle_timeout_zero_adopts_all),
		RIG_TEST(test_reconcile_skips_already_tracked_containers),
		RIG_TEST(test_reconcile_handles_backend_failure),
		RIG_TEST(test_reconcile_no_running_containers),
		RIG_TEST(test_backend_list_running_default_returns_empty),
		RIG_TEST(test_reconcile_ignores_what_a_listing_makes_up),
		RIG_TEST(test_reconcile_ignores_a_sandbox_whose_names_do_not_make_its_id),
		RIG_TEST(test_reconcile_adoption_with_a_wrong_place_does_not_stay),
		RIG_TEST(test_reconcile_does_not_adopt_a_container_this_instance_is_tearing_down),
		RIG_TEST(
			test_reconcile_does_not_adopt_a_container_whose_unready_teardown_is_reserved),
		RIG_TEST(test_reconcile_adopts_unready_container_when_no_teardown_is_in_flight),
	};

	return RIG_RUN(tests);
}

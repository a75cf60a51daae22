/*
 * Providers that share their leases in a real Redis, with real embedded
 * sandboxes. Leases last 2 s and are renewed every 0.5 s; the grace of an
 * orphan is by the provider's clock, which stands still.
 *
 * The tests have the reference's names where they have the same subject. The
 * reference *takes* whatever it hands out; we take what we make and observe what
 * we find, so that its gateways are never robbed in the middle of a turn. Of its
 * lines these have no subject here: …_reuse_fails_closed_… and
 * …_discovered_sandbox_client_is_closed_when_ownership_publish_fails (nothing is
 * published then), …_acquire_takes_over_ownership_… (a thread moves all the same,
 * test_a_found_sandbox_is_observed_not_taken). Those on races within one process
 * are in test_races.c: reaping and reclaiming are flights, of which a tenant has
 * one at a time.
 */
#include <errno.h>

#include "other.h"
#include "provider_i.h"
#include "redis.h"

enum {
	RENEWAL_MS = 500,
	TTL_MS = 2000,
	PAST_TTL_MS = TTL_MS + RENEWAL_MS, /* what is not renewed is gone by then */
	WAIT_MS = 20000,
	IDLE_MS = 600000,
	LONG_MS = 20000,
};

static struct redis redis;
static char redis_dir[SCRATCH_MAX];
static struct ownership_config leases = {
	.type = OWNERSHIP_REDIS,
	.renewal_interval_s = RENEWAL_MS / 1e3,
	.ttl_multiplier = (double)TTL_MS / RENEWAL_MS,
};

static int setup(void **state)
{
	if (!scratch_dir(redis_dir))
		return -1;
	redis = redis_start(redis_dir, false);
	leases.redis_url = redis.url;
	setenv("HOLDER_REDIS", redis.url, 1);
	setenv("HOLDER_RENEWAL", "0.5", 1);
	return rig_setup(state);
}

static int teardown(void **state)
{
	int r;

	kill(redis.pid, SIGCONT);
	r = rig_teardown(state);
	redis_end(&redis);
	scratch_remove(redis_dir);
	return r;
}

static struct rig *start(void **state, struct rig_options o)
{
	o.ownership = &leases;
	return rig_start(state, &o);
}

static void pause_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* ---- what the store has ---- */

static const char *key_of(const char *id)
{
	static char key[80];

	snprintf(key, sizeof(key), "%s:%s", OWNERSHIP_KEY_PREFIX, id);
	return key;
}

static const char *lease(struct tenant *t)
{
	return redis_do(&redis, "GET %s", key_of(tenant_id(t)));
}

/* A gateway of deer-flow's, or what it would write. */
static void put_lease(struct tenant *t, const char *value)
{
	redis_do(&redis, "SET %s %s PX 600000", key_of(tenant_id(t)), value);
}

static void drop_lease(struct tenant *t)
{
	redis_do(&redis, "DEL %s", key_of(tenant_id(t)));
}

/* Waits until its lease begins so; "" means that there is none. */
static bool wait_lease(struct tenant *t, const char *begin)
{
	for (int64_t until = clock_ms() + WAIT_MS; clock_ms() < until; pause_ms(5)) {
		const char *value = lease(t);

		if (begin[0] ? strncmp(value, begin, strlen(begin)) == 0 : !value[0])
			return true;
	}
	return false;
}

static bool wait_ours(struct tenant *t, bool ours)
{
	for (int64_t until = clock_ms() + WAIT_MS; rig_is_ours(t) != ours; pause_ms(5)) {
		if (clock_ms() > until)
			return false;
	}
	return true;
}

#define PEER "gateway:0123456789abcdef0123456789abcdef"

/* How many scripts the server has run. */
static long scripts_run(void)
{
	const char *calls = strstr(redis_do(&redis, "INFO commandstats"), "cmdstat_eval:calls=");

	return calls ? strtol(calls + strlen("cmdstat_eval:calls="), NULL, 10) : 0;
}

/* ---- what we make ---- */

static void test_what_is_made_is_published_renewed_and_released(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");
	char mine[400];

	assert_string_equal(rig_owner(t), "");
	assert_int_equal(rig_acquire(t), 0);
	snprintf(mine, sizeof(mine), "own:%s", rig_owner(t));
	assert_int_not_equal(strlen(mine), 4);
	assert_string_equal(lease(t), mine); /* before it was handed out */

	/* test_renewal_loop_refreshes_owned_leases, …_covers_warm_entries_not_just_active */
	pause_ms(PAST_TTL_MS);
	assert_string_equal(lease(t), mine);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	pause_ms(PAST_TTL_MS);
	assert_string_equal(lease(t), mine);

	assert_int_equal(rig_destroy(t), 0);
	assert_true(wait_lease(t, ""));
	assert_string_equal(rig_owner(t), "");

	/* At the end, too. */
	assert_int_equal(rig_acquire(t), 0);
	assert_string_equal(lease(t), mine);
	rig_begin_log(r);
	assert_int_equal(provider_shutdown(r->provider), 0);
	free(rig_end_log(r));
	assert_string_equal(lease(t), "");
	assert_int_equal(rig_processes(r), 0);
	tenant_put(t);
}

static void test_get_does_not_touch_ownership_store(void **state)
{
	struct rig *r;
	struct tenant *t;
	long before;

	leases.renewal_interval_s = 1000; /* no beat meanwhile */
	r = start(state, (struct rig_options){ 0 });
	leases.renewal_interval_s = RENEWAL_MS / 1e3;
	t = rig_tenant(r, "a");
	assert_int_equal(rig_acquire(t), 0);
	before = scripts_run();
	for (int i = 0; i < 100; i++) {
		assert_int_equal(tenant_try_acquire(t), 0);
		sandbox_put(tenant_sandbox(t));
		assert_int_equal(tenant_release(t), 0);
	}
	assert_int_equal(scripts_run(), before);
	tenant_put(t);
}

static void test_acquire_fails_closed_when_ownership_cannot_be_published(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	redis_end(&redis);
	rig_begin(&e, tenant_acquire, t);
	assert_true(call_wait(&e.call) < 0);
	assert_non_null(strstr(e.call.message, "the ownership store"));
	call_release(&e.call);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_processes(r), 0);

	/* It is back. */
	redis_restart(&redis);
	fake_clock_add(&r->clock, 60000);
	assert_int_equal(rig_acquire(t), 0);
	assert_true(rig_is_ours(t));
	tenant_put(t);
}

static void test_created_sandbox_is_rolled_back_when_a_peer_is_destroying_its_id(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	put_lease(t, "del:" PEER);
	assert_int_equal(rig_acquire(t), -EBUSY);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(rig_processes(r), 0);
	assert_string_equal(lease(t), "del:" PEER);
	drop_lease(t);
	fake_clock_add(&r->clock, 60000);
	assert_int_equal(rig_acquire(t), 0);
	tenant_put(t);
}

/* A lease that a dead sandbox of a gateway left is no hindrance: it is a new sandbox. */
static void test_what_is_made_takes_the_lease_of_what_is_gone(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	put_lease(t, "own:" PEER);
	assert_int_equal(rig_acquire(t), 0);
	assert_true(rig_is_ours(t));
	assert_string_equal(lease(t) + 4, rig_owner(t));
	tenant_put(t);
}

/* ---- what we find ---- */

static void test_a_found_sandbox_is_observed_not_taken(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *t = rig_tenant(r, "a"), *theirs;
	struct faulty *faults;
	struct provider *peer = rig_peer(r, &faults);
	char mark[400];

	assert_int_equal(rig_acquire(t), 0);
	snprintf(mark, sizeof(mark), "%s", lease(t));
	theirs = rig_tenant_of(peer, "u", "a");
	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_ping(theirs), 0);
	assert_false(rig_is_ours(theirs));
	assert_string_equal(rig_owner(theirs), mark + 4);
	assert_string_equal(lease(t), mark);

	/* Neither idle nor at its end does the other one stop it. */
	assert_int_equal(tenant_release(theirs), 0);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(peer), 0);
	assert_int_equal(rig_state(theirs), TENANT_COLD);
	assert_int_equal(rig_acquire(theirs), 0);
	tenant_put(theirs);
	provider_free(peer);
	assert_string_equal(lease(t), mark);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
}

/* Made by a gateway, which has the lease; the backend has nothing against stopping it. */
static void leave_to_gateway(struct rig *r, struct tenant *t)
{
	assert_int_equal(rig_acquire(t), 0);
	put_lease(t, "own:" PEER);
	assert_true(wait_ours(t, false));
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
}

static void test_destroy_of_what_another_owns_is_refused(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	leave_to_gateway(r, t);
	rig_begin(&e, tenant_destroy, t);
	assert_int_equal(call_wait(&e.call), -EBUSY);
	assert_non_null(strstr(e.call.message, "another program owns it"));
	call_release(&e.call);
	/* Everything is as it was. */
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_string_equal(lease(t), "own:" PEER);

	/* What is nobody's is stopped, if somebody wants that. */
	drop_lease(t);
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(rig_processes(r), 0);
	assert_true(wait_lease(t, ""));
	tenant_put(t);
}

static void test_acquire_refuses_a_container_a_peer_is_destroying(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	leave_to_gateway(r, t);
	assert_int_equal(tenant_release(t), 0);
	/* test_reclaim_drops_a_container_a_peer_is_destroying */
	put_lease(t, "del:" PEER);
	r->provider->start_timeout_ms = 1500;
	rig_begin(&e, tenant_acquire, t);
	assert_true(rig_wait_state(t, TENANT_STARTING));
	assert_int_equal(call_wait(&e.call), -EBUSY);
	call_release(&e.call);
	assert_int_equal(rig_find(t), -EBUSY); /* failed a moment ago */
	fake_clock_add(&r->clock, 60000);
	assert_int_equal(rig_find(t), -ENOENT);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);

	/* It is spared: whoever waits gets it. */
	r->provider->start_timeout_ms = 60000;
	rig_begin(&e, tenant_acquire, t);
	pause_ms(100);
	assert_true(rig_is_open(&e));
	put_lease(t, "own:" PEER);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_string_equal(rig_owner(t), PEER);
	drop_lease(t);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
}

/* The store is silent: what runs is used all the same, and not stopped. */
static void test_what_is_found_is_used_when_ownership_is_unknown(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a"), *theirs;
	struct faulty *faults;
	struct provider *peer = rig_peer(r, &faults);

	assert_int_equal(rig_acquire(t), 0);
	redis_end(&redis);
	theirs = rig_tenant_of(peer, "u", "a");
	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_ping(theirs), 0);
	assert_false(rig_is_ours(theirs));
	assert_string_equal(rig_owner(theirs), "");
	tenant_put(theirs);
	provider_free(peer);
	assert_int_equal(rig_ping(t), 0);
	redis_restart(&redis);
	assert_true(wait_lease(t, "own:"));
	tenant_put(t);
}

/* Attached; its owner stops it under us, and starts another one later. */
static void test_an_attached_sandbox_that_is_stopped_and_returns(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a"), *theirs;
	struct faulty *faults;
	struct provider *peer = rig_peer(r, &faults);

	assert_int_equal(rig_acquire(t), 0);
	theirs = rig_tenant_of(peer, "u", "a");
	assert_int_equal(rig_acquire(theirs), 0);
	rig_kill(r, t);
	assert_true(rig_ping(theirs) < 0);
	/* Its owner makes the new one. */
	assert_true(rig_ping(t) < 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_ping(theirs), 0);
	assert_false(rig_is_ours(theirs));
	assert_int_equal(rig_leases(theirs), 2);
	assert_int_equal(faulty_count(faults, ASK_CREATE), 0);
	tenant_put(theirs);
	provider_free(peer);
	tenant_put(t);
}

/* It is alive, but where we know it nobody answers: it is looked for. */
static void test_an_attached_sandbox_that_moved_is_found(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");
	struct sandbox *sb, *fresh;

	leave_to_gateway(r, t);
	sb = tenant_sandbox(t);
	assert_true(tenant_report(t, sb, -ECONNREFUSED));
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_WRONG);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_starts(t), 2);
	fresh = tenant_sandbox(t);
	assert_ptr_not_equal(fresh, sb);
	sandbox_put(fresh);
	sandbox_put(sb);

	/* One that is where it was stays. */
	sb = tenant_sandbox(t);
	assert_true(tenant_report(t, sb, -ECONNREFUSED));
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_starts(t), 2);
	sandbox_put(sb);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	drop_lease(t);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
}

/* ---- renewing ---- */

static void test_lost_lease_drops_sandbox_without_destroying_container(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");
	pid_t pid;

	/* In use: it goes on, as one that was found. */
	leave_to_gateway(r, t);
	pid = rig_pid(r, tenant_id(t));
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 1);
	redis_do(&redis, "FLUSHALL");

	/* Warm: it is forgotten. */
	rig_restart_provider(r);
	t = rig_tenant(r, "a");
	fake_clock_add(&r->clock, TTL_MS);
	assert_int_equal(rig_reconcile(r->provider), 0); /* adopted */
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(rig_is_ours(t));
	put_lease(t, "own:" PEER);
	assert_true(rig_wait_state(t, TENANT_COLD));
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(rig_processes(r), 1);
	assert_string_equal(lease(t), "own:" PEER);
	drop_lease(t);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
}

static void test_store_losing_all_state_does_not_evict_live_sandboxes(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct faulty *faults;
	struct provider *peer;

	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(tenant_release(b), 0);
	redis_do(&redis, "FLUSHALL");
	/* test_peer_reconcile_after_state_loss_does_not_steal_a_live_container */
	peer = rig_peer(r, &faults);
	assert_int_equal(rig_reconcile(peer), 0);
	assert_int_equal(faulty_count(faults, ASK_ADOPT), 0);
	assert_true(wait_lease(a, "own:"));
	assert_true(wait_lease(b, "own:"));
	assert_true(rig_is_ours(a) && rig_is_ours(b));
	assert_int_equal(rig_ping(a), 0);
	assert_int_equal(rig_state(b), TENANT_WARM);
	fake_clock_add(&r->clock, 10 * TTL_MS);
	assert_int_equal(rig_reconcile(peer), 0);
	assert_int_equal(faulty_count(faults, ASK_ADOPT), 0);
	provider_free(peer);
	tenant_put(a);
	tenant_put(b);
}

/* …_keeps_the_sandbox_when_the_store_cannot_answer, …_when_lapsed_reclaim_cannot_answer */
static void test_renewal_keeps_the_sandbox_when_the_store_cannot_answer(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	redis_end(&redis);
	pause_ms(PAST_TTL_MS);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_ping(t), 0);
	/* It can be given up and used again meanwhile. */
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_true(rig_is_ours(t));
	redis_restart(&redis);
	assert_true(wait_lease(t, "own:"));
	assert_true(rig_is_ours(t));
	tenant_put(t);
}

/* ---- orphans ---- */

/* A program that makes the thread's sandbox and is killed; with its lease. */
static void leave_orphan(struct rig *r, const char *thread)
{
	struct other o =
		other_start((const char *const[]){ "life", r->data, r->runtime, thread, NULL });

	other_wait_ready(&o);
	other_end(&o, SIGKILL);
}

static void test_adoption_grace_expires_so_a_truly_orphaned_container_is_still_adopted(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	leave_orphan(r, "a");
	assert_memory_equal(lease(t), "own:", 4);
	/* test_reconcile_skips_container_owned_by_peer */
	assert_int_equal(rig_reconcile(r->provider), 0);
	fake_clock_add(&r->clock, 10 * TTL_MS);
	put_lease(t, "own:" PEER);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);

	/* test_expired_lease_lets_peer_adopt_crashed_owner_container; not at once */
	drop_lease(t);
	assert_int_equal(rig_reconcile(r->provider), 0);
	fake_clock_add(&r->clock, TTL_MS - 1);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	fake_clock_add(&r->clock, 1);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(rig_is_ours(t));
	assert_string_equal(lease(t) + 4, rig_owner(t));
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

static void test_adoption_grace_restarts_when_a_live_owner_republishes(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	leave_orphan(r, "a");
	drop_lease(t);
	assert_int_equal(rig_reconcile(r->provider), 0);
	fake_clock_add(&r->clock, TTL_MS / 2);
	put_lease(t, "own:" PEER);
	assert_int_equal(rig_reconcile(r->provider), 0);
	drop_lease(t);
	fake_clock_add(&r->clock, TTL_MS / 2);
	assert_int_equal(rig_reconcile(r->provider), 0); /* from now on */
	fake_clock_add(&r->clock, TTL_MS / 2);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);

	/* test_reconcile_fails_closed_when_ownership_unknown: that restarts it, too. */
	redis_end(&redis);
	fake_clock_add(&r->clock, TTL_MS);
	assert_int_equal(rig_reconcile(r->provider), 0);
	redis_restart(&redis);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(faulty_count(r->faults, ASK_ADOPT), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);

	/* In use, and still nobody's: it becomes ours under the lease. */
	assert_int_equal(rig_acquire(t), 0);
	assert_false(rig_is_ours(t));
	fake_clock_add(&r->clock, TTL_MS);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_true(rig_is_ours(t));
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_string_equal(lease(t) + 4, rig_owner(t));
	tenant_put(t);
}

/* ---- stopping ---- */

static void test_teardown_marker_is_held_for_a_stop_that_outlives_the_lease_ttl(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	assert_int_equal(rig_acquire(t), 0);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG);
	rig_begin(&e, tenant_destroy, t);
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, LONG_MS));
	for (int i = 0; i < 30; i++) {
		assert_memory_equal(lease(t), "del:", 4);
		pause_ms(PAST_TTL_MS / 25);
	}
	/* test_teardown_heartbeat_stops_when_the_stop_returns */
	faulty_resume(r->faults, ASK_DESTROY);
	assert_int_equal(rig_end(&e), 0);
	assert_true(wait_lease(t, ""));
	pause_ms(2 * RENEWAL_MS);
	assert_string_equal(lease(t), "");
	tenant_put(t);
}

static void test_destroy_releases_the_teardown_marker_when_the_stop_fails(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_destroy(t), -EIO);
	assert_true(wait_lease(t, ""));
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
}

/* Somebody else uses it, which the backend knows: it goes on, and so does its lease. */
static void test_a_stop_that_is_refused_gives_the_lease_back(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *t = rig_tenant(r, "a");
	char mine[400];

	assert_int_equal(rig_acquire(t), 0);
	snprintf(mine, sizeof(mine), "%s", lease(t));
	assert_int_equal(tenant_release(t), 0);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EBUSY);
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_true(wait_lease(t, mine));
	assert_true(rig_is_ours(t));
	pause_ms(PAST_TTL_MS);
	assert_true(wait_lease(t, mine));
	tenant_put(t);
}

/* test_refused_idle_destroy_…, test_evict_keeps_the_warm_entry_when_the_claim_is_refused */
static void test_refused_idle_destroy_keeps_the_warm_entry(void **state)
{
	struct rig *r;
	struct tenant *a, *b;

	leases.renewal_interval_s = 1000; /* the beat does not find out first */
	r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS, .replicas = 1 });
	leases.renewal_interval_s = RENEWAL_MS / 1e3;
	a = rig_tenant(r, "a");
	b = rig_tenant(r, "b");
	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(tenant_release(a), 0);
	put_lease(a, "own:" PEER);
	assert_int_equal(rig_acquire(b), 0); /* there is no room, but none can be made */
	assert_true(wait_ours(a, false));
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_processes(r), 2);
	assert_string_equal(lease(a), "own:" PEER);

	/* Not ours any more, it is forgotten. */
	fake_clock_add(&r->clock, IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(a), TENANT_COLD);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	drop_lease(a);
	assert_int_equal(rig_destroy(a), 0);
	tenant_put(a);
	tenant_put(b);
}

static void test_unhealthy_sandbox_owned_by_peer_is_not_destroyed(void **state)
{
	struct rig *r;
	struct tenant *t;
	struct sandbox *sb;

	leases.renewal_interval_s = 1000;
	r = start(state, (struct rig_options){ 0 });
	leases.renewal_interval_s = RENEWAL_MS / 1e3;
	t = rig_tenant(r, "a");
	assert_int_equal(rig_acquire(t), 0);
	put_lease(t, "own:" PEER);
	sb = tenant_sandbox(t);
	assert_true(tenant_report(t, sb, -ECONNREFUSED));
	sandbox_put(sb);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_WRONG); /* "it is dead" */
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_false(rig_is_ours(t));
	assert_string_equal(rig_owner(t), PEER);
	assert_string_equal(lease(t), "own:" PEER);
	drop_lease(t);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
}

/* …_claims_ownership_before_readiness_timeout_destroy, …_skips_destroy_when_unready_… */
static void test_unready_sandbox_is_destroyed_unless_a_peer_owns_it(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .start_timeout_ms = 3500 });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;

	FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_WRONG, .times = 2);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_HANG);
	assert_true(rig_acquire(t) < 0);
	assert_true(faulty_wait(r->faults, ASK_DESTROY, 1, LONG_MS));
	assert_memory_equal(lease(t), "del:", 4);
	faulty_resume(r->faults, ASK_DESTROY);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_true(wait_lease(t, ""));
	assert_int_equal(rig_processes(r), 0);

	fake_clock_add(&r->clock, 60000);
	rig_begin(&e, tenant_acquire, t);
	assert_true(wait_lease(t, "own:"));
	put_lease(t, "own:" PEER);
	assert_true(rig_end(&e) < 0);
	assert_true(rig_wait_state(t, TENANT_FAILED));
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 1);
	assert_int_equal(rig_processes(r), 1);
	drop_lease(t);
	assert_int_equal(rig_destroy(t), 0);
	tenant_put(t);
}

/* ---- a store that stops answering ---- */

/* test_destroy_fails_closed_when_ownership_unknown; and who waits for nothing does not notice. */
static void test_a_silent_store_stops_nothing(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct errand destroy, round;
	int64_t begun;

	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(tenant_release(b), 0);
	kill(redis.pid, SIGSTOP);
	begun = clock_ms();
	rig_begin(&destroy, tenant_destroy, a);
	fake_clock_add(&r->clock, IDLE_MS);
	rig_begin_round(&round, provider_tick, r->provider);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rig_ping(a), 0);
	assert_true(clock_ms() - begun < 4000);
	assert_int_equal(rig_end(&destroy), -ETIMEDOUT);
	assert_int_equal(rig_end(&round), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(rig_state(a), TENANT_ACTIVE);
	assert_int_equal(rig_state(b), TENANT_WARM);
	assert_int_equal(rig_ping(a), 0);

	/* The marks that were asked for reach it late, and are taken back. */
	kill(redis.pid, SIGCONT);
	assert_true(wait_lease(a, "own:"));
	assert_true(wait_lease(b, "own:"));
	pause_ms(PAST_TTL_MS);
	assert_true(wait_lease(a, "own:"));
	assert_true(wait_lease(b, "own:"));
	assert_true(rig_is_ours(a) && rig_is_ours(b));
	tenant_put(a);
	tenant_put(b);
}

/* The end does not wait for it for ever, and leaves what it cannot claim. */
static void test_shutdown_leaves_what_it_cannot_claim(void **state)
{
	struct rig *r = start(state, (struct rig_options){ 0 });
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	tenant_put(t);
	redis_end(&redis);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 1);

	/* The next life has it after a whole lease without an owner. */
	redis_restart(&redis);
	rig_restart_provider(r);
	t = rig_tenant(r, "a");
	assert_int_equal(rig_state(t), TENANT_COLD);
	fake_clock_add(&r->clock, TTL_MS);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

/* ---- two processes ---- */

static void test_two_processes_share_a_sandbox(void **state)
{
	struct rig *r = start(state, (struct rig_options){ .idle_timeout_ms = IDLE_MS });
	struct tenant *t = rig_tenant(r, "a");
	struct other o =
		other_start((const char *const[]){ "life", r->data, r->runtime, "a", NULL });
	char theirs[400];

	other_wait_ready(&o);
	snprintf(theirs, sizeof(theirs), "%s", lease(t));
	assert_int_equal(rig_acquire(t), 0);
	assert_false(rig_is_ours(t));
	assert_string_equal(rig_owner(t), theirs + 4);
	assert_int_equal(rig_ping(t), 0);

	/* A flush in between: its owner has it again, and nobody else. */
	redis_do(&redis, "FLUSHALL");
	assert_true(wait_lease(t, theirs));
	fake_clock_add(&r->clock, 10 * TTL_MS);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_false(rig_is_ours(t));
	assert_string_equal(lease(t), theirs);

	/* It leaves; we use it, so it goes on; it is nobody's, and then ours. */
	other_end(&o, 0);
	assert_true(wait_lease(t, ""));
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_false(rig_is_ours(t));
	assert_string_equal(rig_owner(t), "");
	fake_clock_add(&r->clock, TTL_MS);
	assert_int_equal(rig_reconcile(r->provider), 0);
	assert_true(rig_is_ours(t));
	assert_string_equal(lease(t) + 4, rig_owner(t));
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_is_made_is_published_renewed_and_released),
		TEST(test_get_does_not_touch_ownership_store),
		TEST(test_acquire_fails_closed_when_ownership_cannot_be_published),
		TEST(test_created_sandbox_is_rolled_back_when_a_peer_is_destroying_its_id),
		TEST(test_what_is_made_takes_the_lease_of_what_is_gone),
		TEST(test_a_found_sandbox_is_observed_not_taken),
		TEST(test_destroy_of_what_another_owns_is_refused),
		TEST(test_acquire_refuses_a_container_a_peer_is_destroying),
		TEST(test_what_is_found_is_used_when_ownership_is_unknown),
		TEST(test_an_attached_sandbox_that_is_stopped_and_returns),
		TEST(test_an_attached_sandbox_that_moved_is_found),
		TEST(test_lost_lease_drops_sandbox_without_destroying_container),
		TEST(test_store_losing_all_state_does_not_evict_live_sandboxes),
		TEST(test_renewal_keeps_the_sandbox_when_the_store_cannot_answer),
		TEST(test_adoption_grace_expires_so_a_truly_orphaned_container_is_still_adopted),
		TEST(test_adoption_grace_restarts_when_a_live_owner_republishes),
		TEST(test_teardown_marker_is_held_for_a_stop_that_outlives_the_lease_ttl),
		TEST(test_destroy_releases_the_teardown_marker_when_the_stop_fails),
		TEST(test_a_stop_that_is_refused_gives_the_lease_back),
		TEST(test_refused_idle_destroy_keeps_the_warm_entry),
		TEST(test_unhealthy_sandbox_owned_by_peer_is_not_destroyed),
		TEST(test_unready_sandbox_is_destroyed_unless_a_peer_owns_it),
		TEST(test_a_silent_store_stops_nothing),
		TEST(test_shutdown_leaves_what_it_cannot_claim),
		TEST(test_two_processes_share_a_sandbox),
	};

	if (!redis_program()) {
		fprintf(stderr, "there is no redis-server (Debian: redis-tools)\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

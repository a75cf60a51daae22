/*
 * Dead sandboxes: only a definite no evicts one, the next acquire makes another
 * with the same files, and whoever is asked whether it lives holds up nobody.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "rig.h"

enum { LONG_MS = 60000 };

/* Says that the client's connection broke, as an operation does. */
static void blame(struct tenant *t)
{
	struct sandbox *sb = tenant_sandbox(t);

	assert_non_null(sb);
	assert_true(tenant_report(t, sb, -ECONNRESET));
	sandbox_put(sb);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* The size of a file as the sandbox sees it, or a negative errno. */
static int64_t size_inside(struct tenant *t, const char *path)
{
	struct sandbox *sb = tenant_sandbox(t);
	struct attr attr = { 0 };
	struct call c;
	int r;

	assert_non_null(sb);
	call_init(&c, LONG_MS);
	sandbox_lstat(sb, &c, path, &attr);
	r = call_wait(&c);
	call_release(&c);
	sandbox_put(sb);
	return r < 0 ? r : (int64_t)attr.size;
}

/* ---- dead for certain ---- */

/* A dead one in use is dropped, and the next acquire makes another, with the data of before. */
static void test_acquire_drops_dead_cached_sandbox(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct tenant_status s;
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	write_file(rig_host_path(r, "a", "workspace/kept"), "precious");
	assert_int_equal(size_inside(t, "/mnt/user-data/workspace/kept"), 8);
	pid = rig_pid(r, tenant_id(t));
	rig_kill(r, t);
	assert_true(rig_ping(t) < 0);
	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_not_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_starts(t), 2);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(size_inside(t, "/mnt/user-data/workspace/kept"), 8);
	assert_int_equal(tenant_status(t, &s), 0);
	assert_int_equal(s.last_error, -ENOTCONN);
	assert_non_null(s.last_message);
	tenant_status_release(&s);

	/* the lease of before protects the new one */
	assert_int_equal(rig_leases(t), 2);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

/* A dead one in the warm pool is not handed out. */
static void test_acquire_skips_dead_warm_pool_sandbox(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	rig_kill(r, t);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_starts(t), 2);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* A report about the client of before does not blame the sandbox of now. */
static void test_drop_unhealthy_sandbox_skips_recreated_entry(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct sandbox *old, *now;
	unsigned asked;

	assert_int_equal(rig_acquire(t), 0);
	old = tenant_sandbox(t);
	rig_kill(r, t);
	assert_true(tenant_report(t, old, -ECONNRESET));
	assert_int_equal(rig_acquire(t), 0);
	now = tenant_sandbox(t);
	assert_ptr_not_equal(now, old);
	asked = faulty_count(r->faults, ASK_IS_ALIVE);

	assert_true(tenant_report(t, old, -ECONNRESET)); /* acquiring anew does help him */
	assert_int_equal(tenant_try_acquire(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), asked);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	assert_int_equal(rig_leases(t), 4);
	/* while one about itself does */
	assert_true(tenant_report(t, now, -ECONNRESET));
	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), asked + 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	sandbox_put(old);
	sandbox_put(now);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* That its remains cannot be removed does not keep a dead one in use. */
static void test_auto_restart_evicts_even_if_destroy_fails(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");

	assert_int_equal(rig_acquire(t), 0);
	rig_kill(r, t);
	blame(t);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_starts(t), 2);
	assert_int_equal(rig_ping(t), 0);

	rig_kill(r, t);
	blame(t);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_AFTER, .error = -EACCES);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_starts(t), 3);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 2);
	assert_int_equal(rig_leases(t), 3);
	assert_int_equal(rig_processes(r), 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* What another program uses is let go of, not stopped, even if it seems to be dead. */
static void test_unhealthy_sandbox_owned_by_peer_is_not_destroyed(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "a");

	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_acquire(t), 0);
	blame(t);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_WRONG);
	assert_int_equal(rig_acquire(t), 0); /* found again */
	assert_int_equal(rig_starts(t), 2);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(rig_ping(theirs), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
	rig_end_provider(r);
	assert_int_equal(rig_ping(theirs), 0);
	tenant_put(theirs);
	provider_free(peer);
}

/* ---- not known ---- */

/* A check that fails, or that nobody answers, evicts nothing. */
static void test_acquire_keeps_cached_sandbox_when_health_check_errors(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct sandbox *before, *after;

	assert_int_equal(rig_acquire(t), 0);
	before = tenant_sandbox(t);
	blame(t);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), 1);
	assert_int_equal(rig_leases(t), 2);

	/* nobody answers: as long as a check may take */
	blame(t);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_HANG);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), 2);
	assert_int_equal(rig_leases(t), 3);

	after = tenant_sandbox(t);
	assert_ptr_equal(before, after);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	sandbox_put(before);
	sandbox_put(after);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(tenant_release(t), 0);

	/* the same of a warm one */
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* One that lives is kept, and is above suspicion from then on. */
static void test_check_of_a_live_one_clears_it(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct sandbox *sb;

	assert_int_equal(rig_acquire(t), 0);
	blame(t);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), 1);
	assert_int_equal(tenant_try_acquire(t), 0);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), 1);
	assert_int_equal(rig_starts(t), 1);

	/* errors that a live one answers with do not make it a suspect */
	sb = tenant_sandbox(t);
	assert_false(tenant_report(t, sb, -ENOENT));
	assert_false(tenant_report(t, sb, -EACCES));
	assert_false(tenant_report(t, sb, -ECANCELED));
	assert_int_equal(tenant_try_acquire(t), 0);
	sandbox_put(sb);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* Without auto_restart the stale one is handed out as it is, and nobody is asked. */
static void test_no_auto_restart_returns_the_stale_one(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .no_auto_restart = true });
	struct tenant *t = rig_tenant(r, "a");
	struct sandbox *before, *after;

	assert_int_equal(rig_acquire(t), 0);
	before = tenant_sandbox(t);
	rig_kill(r, t);
	assert_true(rig_ping(t) < 0);
	assert_false(tenant_report(t, before, -ECONNRESET));
	assert_int_equal(tenant_try_acquire(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	after = tenant_sandbox(t);
	assert_ptr_equal(before, after);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_leases(t), 3);
	assert_int_equal(faulty_count(r->faults, ASK_IS_ALIVE), 0);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 1);
	assert_int_equal(rig_processes(r), 0);
	sandbox_put(before);
	sandbox_put(after);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* ---- alive, and silent ---- */

struct silence {
	struct tenant *tenant;
	struct sandbox *sb;
};

static void tell_silence(void *ctx)
{
	struct silence *s = ctx;

	tenant_silent(s->tenant, s->sb);
}

/* As an operation that timed out does, which heard nothing. */
static void call_silent(struct rig *r, struct tenant *t)
{
	struct silence s = { t, tenant_sandbox(t) };

	assert_non_null(s.sb);
	loop_run(r->loop, tell_silence, &s);
	sandbox_put(s.sb);
}

static struct breaker_status breaker_of(struct tenant *t)
{
	struct breaker_status b;
	struct tenant_status s;

	assert_int_equal(tenant_status(t, &s), 0);
	b = s.breaker;
	tenant_status_release(&s);
	return b;
}

static bool wait_breaker(struct tenant *t, enum breaker_state state)
{
	for (int i = 0; i < 2000 && breaker_of(t).state != state; i++)
		poll(NULL, 0, 10);
	return breaker_of(t).state == state;
}

/* A sandbox that is stopped is not dead: who wants it hears at once, also when it is parked. */
static void test_silent_sandbox_is_refused_until_it_answers(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .no_isolation = true });
	struct tenant *t = rig_tenant(r, "a");
	struct errand e;
	unsigned asked;
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	pid = rig_pid(r, tenant_id(t));
	assert_int_equal(kill(pid, SIGSTOP), 0);
	call_silent(r, t);
	assert_int_equal(tenant_try_acquire(t), -EAGAIN);
	rig_begin(&e, tenant_acquire, t); /* waits, as long as that is in doubt */
	assert_int_equal(rig_end(&e), -EHOSTDOWN);
	assert_int_equal(breaker_of(t).state, BREAKER_OPEN);
	asked = faulty_count(r->faults, ASK_IS_ALIVE);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(rig_acquire(t), -EHOSTDOWN);
	/* by the probes, whose pauses grow; not by these */
	assert_in_range(faulty_count(r->faults, ASK_IS_ALIVE), asked, asked + 9);
	assert_int_equal(breaker_of(t).refused, 11);
	assert_int_equal(breaker_of(t).opened, 1);
	assert_int_equal(rig_find(t), 0); /* there is one */
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_acquire(t), -EHOSTDOWN);

	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_true(wait_breaker(t, BREAKER_CLOSED)); /* nobody else asks */
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(rig_starts(t), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* Destroying it, and the end of the program, do not wait for its answer. */
static void test_silent_sandbox_can_be_destroyed(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .no_isolation = true });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");

	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(kill(rig_pid(r, tenant_id(a)), SIGSTOP), 0);
	assert_int_equal(kill(rig_pid(r, tenant_id(b)), SIGSTOP), 0);
	call_silent(r, a);
	call_silent(r, b);
	assert_true(wait_breaker(a, BREAKER_OPEN));
	assert_true(wait_breaker(b, BREAKER_OPEN));
	assert_int_equal(rig_destroy(a), 0);
	assert_int_equal(breaker_of(a).state, BREAKER_CLOSED);
	assert_int_equal(rig_acquire(a), 0); /* another one */
	assert_int_equal(rig_ping(a), 0);
	assert_int_equal(tenant_release(a), 0);
	assert_int_equal(tenant_release(a), 0);
	tenant_put(a);
	tenant_put(b);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

/* ---- meanwhile ---- */

/* A check that hangs delays neither other threads nor those who look at this one. */
static void test_liveness_check_holds_up_nobody(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct tenant_status s;
	struct tenant_list list;
	struct sandbox *sb;
	struct errand e;

	assert_int_equal(rig_acquire(a), 0);
	blame(a);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, a);
	assert_true(faulty_wait(r->faults, ASK_IS_ALIVE, 1, LONG_MS));

	assert_int_equal(tenant_status(a, &s), 0);
	assert_int_equal(s.state, TENANT_ACTIVE);
	tenant_status_release(&s);
	assert_int_equal(provider_status(r->provider, &list), 0);
	assert_int_equal(list.count, 2);
	tenant_list_release(&list);
	sb = tenant_sandbox(a);
	assert_non_null(sb);
	sandbox_put(sb);
	assert_int_equal(rig_ping(a), 0);
	/* not one of these needed the answer */
	assert_true(rig_is_open(&e));
	assert_int_equal(faulty_answered(r->faults, ASK_IS_ALIVE), 0);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);

	/* nor does another thread wait; reclaimed, which is quicker than a check may take */
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(tenant_release(b), 0);
	blame(a);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, a);
	assert_true(faulty_wait(r->faults, ASK_IS_ALIVE, 2, LONG_MS));
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(rig_ping(b), 0);
	assert_true(rig_is_open(&e));
	assert_int_equal(faulty_answered(r->faults, ASK_IS_ALIVE), 2);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_leases(a), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(tenant_release(a), 0);
	assert_int_equal(tenant_release(b), 0);
	tenant_put(a);
	tenant_put(b);
}

/* The last lease is given up while it is checked: parked, and still handed out or replaced. */
static void check_while_released(struct rig *r, bool dead)
{
	struct tenant *t = rig_tenant(r, "a");
	unsigned asked, starts;
	struct errand e;

	assert_int_equal(rig_acquire(t), 0);
	asked = faulty_count(r->faults, ASK_IS_ALIVE);
	starts = rig_starts(t);
	blame(t);
	if (dead)
		rig_kill(r, t);
	FAULTY_ORDER(r->faults, ASK_IS_ALIVE, .fault = FAULT_HANG);
	rig_begin(&e, tenant_acquire, t);
	assert_true(faulty_wait(r->faults, ASK_IS_ALIVE, asked + 1, LONG_MS));
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	faulty_resume(r->faults, ASK_IS_ALIVE);
	assert_int_equal(rig_end(&e), 0);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_starts(t), starts + dead);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

static void test_release_while_it_is_checked(void **state)
{
	struct rig *r = rig_start(state, NULL);

	check_while_released(r, false);
	check_while_released(r, true);
}

enum { CROWD = 16 };

struct one {
	pthread_t thread;
	struct tenant *tenant;
	int result, pinged;
};

static void *run_one(void *arg)
{
	struct one *o = arg;
	struct sandbox *sb = tenant_sandbox(o->tenant);

	if (sb) {
		tenant_report(o->tenant, sb, -ECONNREFUSED);
		sandbox_put(sb);
	}
	o->result = rig_acquire(o->tenant);
	o->pinged = o->result < 0 ? o->result : rig_ping(o->tenant);
	return NULL;
}

/* All notice at once that it is dead: one new one is made for all of them. */
static void test_concurrent_reports_start_one_new_one(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct one all[CROWD];

	assert_int_equal(rig_acquire(t), 0);
	rig_kill(r, t);
	for (size_t i = 0; i < CROWD; i++) {
		all[i] = (struct one){ .tenant = t };
		assert_int_equal(pthread_create(&all[i].thread, NULL, run_one, &all[i]), 0);
	}
	for (size_t i = 0; i < CROWD; i++)
		pthread_join(all[i].thread, NULL);
	for (size_t i = 0; i < CROWD; i++) {
		assert_int_equal(all[i].result, 0);
		assert_int_equal(all[i].pinged, 0);
	}
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 2);
	assert_int_equal(rig_starts(t), 2);
	assert_int_equal(rig_processes(r), 1);
	assert_int_equal(rig_leases(t), 1 + CROWD);
	for (size_t i = 0; i < 1 + CROWD; i++)
		assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_acquire_drops_dead_cached_sandbox),
		RIG_TEST(test_acquire_skips_dead_warm_pool_sandbox),
		RIG_TEST(test_drop_unhealthy_sandbox_skips_recreated_entry),
		RIG_TEST(test_auto_restart_evicts_even_if_destroy_fails),
		RIG_TEST(test_unhealthy_sandbox_owned_by_peer_is_not_destroyed),
		RIG_TEST(test_acquire_keeps_cached_sandbox_when_health_check_errors),
		RIG_TEST(test_check_of_a_live_one_clears_it),
		RIG_TEST(test_no_auto_restart_returns_the_stale_one),
		RIG_TEST(test_silent_sandbox_is_refused_until_it_answers),
		RIG_TEST(test_silent_sandbox_can_be_destroyed),
		RIG_TEST(test_liveness_check_holds_up_nobody),
		RIG_TEST(test_release_while_it_is_checked),
		RIG_TEST(test_concurrent_reports_start_one_new_one),
	};

	return RIG_RUN(tests);
}

/*
 * What tests of provider/ need: a directory of their own, a loop, a provider
 * with real embedded sandboxes behind a wrapper that injects faults on order,
 * and a clock that stands still until it is told. Each test has these to itself;
 * afterwards no process, socket or lock file may be left.
 *
 *	static void test_x(void **state)
 *	{
 *		struct rig *r = rig_start(state, &(struct rig_options){ .replicas = 2 });
 *		struct tenant *t = rig_tenant(r, "a");
 *
 *		assert_int_equal(rig_acquire(t), 0);
 *		assert_int_equal(tenant_release(t), 0);
 *		tenant_put(t);
 *	}
 *	… RIG_TEST(test_x) …, RIG_RUN(tests)
 *
 * Main thread, but for what says otherwise.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_clock.h"
#include "faulty.h"
#include "provider.h"
#include "scratch.h"

struct rig_options {
	unsigned replicas;        /* 0: none */
	int64_t idle_timeout_ms;  /* 0: never */
	int64_t start_timeout_ms; /* 0: 60 s */
	int64_t janitor_ms;       /* by the real clock; 0: only rig_tick() */
	bool no_auto_restart;
	bool no_isolation;                        /* faster under sanitizers */
	const char *program;                      /* instead of the real threadfs-sandboxd */
	const struct ownership_config *ownership; /* NULL: in memory */
	void (*make_id)(const char *user, const char *thread, char *id);
};

struct rig {
	char dir[SCRATCH_MAX];
	char data[SCRATCH_MAX + 8], runtime[SCRATCH_MAX + 8];
	struct rig_options options;
	struct loop *loop;
	struct fake_clock clock;
	struct faulty *faults;
	struct provider *provider; /* NULL after rig_end_provider() */
	unsigned fds;              /* open before */
	int log_fd, stderr_fd;     /* between rig_begin_log() and rig_end_log() */
};

/* cmocka's hooks. */
int rig_setup(void **state);
int rig_teardown(void **state);
#define RIG_TEST(t)    cmocka_unit_test_setup_teardown(t, rig_setup, rig_teardown)
#define RIG_RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

/* Starts the provider and waits for its first round. options may be NULL. */
struct rig *rig_start(void **state, const struct rig_options *options);
/* Ends it as an unmount does. The directories stay. */
void rig_end_provider(struct rig *r);
/* Another provider on the same directories, as another process would have; to be freed. */
struct provider *rig_peer(struct rig *r, struct faulty **ret_faults);
/* After rig_end_provider() (or for a program that was killed): a new life. */
void rig_restart_provider(struct rig *r);

/* Tenants of the user "u"; to be put. */
struct tenant *rig_tenant(struct rig *r, const char *thread);
struct tenant *rig_tenant_of(struct provider *p, const char *user, const char *thread);

/* Waiting forms of the errands, 60 s. Any thread. */
int rig_acquire(struct tenant *t);
int rig_acquire_ms(struct tenant *t, int64_t timeout_ms);
int rig_find(struct tenant *t);
int rig_destroy(struct tenant *t);
int rig_forget(struct tenant *t);
int rig_tick(struct provider *p);
int rig_reconcile(struct provider *p);
/* In the background: it has been begun when these return; rig_end() waits and tells how it went. */
void rig_begin(struct errand *e, void (*fn)(struct tenant *t, struct errand *e), struct tenant *t);
void rig_begin_round(struct errand *e, void (*fn)(struct provider *p, struct errand *e),
		     struct provider *p);
int rig_end(struct errand *e);
/* Whether it is still under way. */
bool rig_is_open(struct errand *e);
/* One GET with the tenant's client: 0 or a negative errno; -ENOTCONN without a client. */
int rig_ping(struct tenant *t);

enum tenant_state rig_state(struct tenant *t);
unsigned rig_leases(struct tenant *t);
unsigned rig_starts(struct tenant *t);
bool rig_is_ours(struct tenant *t);
/* Who has its lease, as the status says; "" if nobody. Valid until the next call. */
const char *rig_owner(struct tenant *t);
/* Waits up to 20 s. */
bool rig_wait_state(struct tenant *t, enum tenant_state state);

/* The supervisor of a sandbox, from its pid file; 0 if there is none. ctx is the rig. */
pid_t rig_pid(void *ctx, const char *id);
/* kill -9 of it; returns when it is dead and nobody listens any more. */
void rig_kill(struct rig *r, struct tenant *t);
/* How many threadfs-sandboxd supervisors serve a socket of this rig. */
unsigned rig_processes(struct rig *r);
/* Sockets of this process that are connected to the tenant's sandbox. */
unsigned rig_sockets(struct rig *r, struct tenant *t);
bool rig_wait_no_sockets(struct rig *r, struct tenant *t);
/* The host's path of a file in the thread's user-data. Valid until the next call. */
const char *rig_host_path(struct rig *r, const char *thread, const char *name);
/* A file of its sandbox in the runtime directory: "sock". Valid until the next call. */
const char *rig_run_path(struct rig *r, struct tenant *t, const char *name);

/* What the library logs between these two; rig_end_log() gives it, for the caller to free. */
void rig_begin_log(struct rig *r);
char *rig_end_log(struct rig *r);

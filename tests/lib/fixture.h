/*
 * What most tests of client/ need: a real threadfs-sandboxd in the dialect of
 * TFS_DIALECT (one per test program), a recording proxy before it (on a unix socket; with
 * TFS_TCP on 127.0.0.1), a loop, and a sandbox that goes through the proxy; each test has these to
 * itself, and a directory of its own.
 *
 *	static void test_x(void **state)
 *	{
 *		struct fixture *f = *state;
 *		struct attr a;
 *		assert_int_equal(SYNC(f->sb, sandbox_lstat, f->dir, &a), 0);
 *	}
 *	int main(void)
 *	{
 *		const struct CMUnitTest tests[] = { FIXTURE_TEST(test_x) };
 *		return FIXTURE_RUN(tests);
 *	}
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon.h"
#include "rogue.h"
#include "sandbox.h"

struct fixture {
	const char *dialect; /* "1.0", "1.9", "aiod" */
	bool has_bash;       /* /v1/bash and the watch routes: not in 1.0 */
	struct daemon *daemon;
	struct rogue *rogue;
	struct loop *loop;
	struct sandbox *sb;
	char dir[128];      /* a fresh directory in the sandbox, below /mnt/user-data */
	char host_dir[256]; /* the same on this side */
};

/* cmocka's hooks. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
int fixture_group_teardown(void **state);

#define FIXTURE_TEST(t)    cmocka_unit_test_setup_teardown(t, fixture_setup, fixture_teardown)
#define FIXTURE_RUN(tests) cmocka_run_group_tests(tests, NULL, fixture_group_teardown)

/* Another client of the same server through the proxy; root NULL: the default. To be unref'ed. */
struct sandbox *fixture_open(struct fixture *f, const char *root);
/* A daemon for this test alone, in place of the shared one; proxy and sandbox follow. For tests
 * that kill it. */
void fixture_own_daemon(struct fixture *f);
/* Likewise, one that has room for the sessions and watchers of every operation at once. */
void fixture_roomy_daemon(struct fixture *f);
extern const char *const fixture_roomy[]; /* its arguments */

/* dir + "/" + name; valid until the fourth next call in this thread. */
const char *fixture_path(const struct fixture *f, const char *name);
const char *fixture_host_path(const struct fixture *f, const char *name);

/* Runs an operation and waits for it: SYNC(sb, sandbox_mkdir, path, 0755). */
#define SYNC(sb, op, ...) SYNC_MS(30000, sb, op, ##__VA_ARGS__)
#define SYNC_MS(ms, sb, op, ...)                                                                   \
	({                                                                                         \
		struct call call_;                                                                 \
		int result_;                                                                       \
		call_init(&call_, (ms));                                                           \
		op((sb), &call_, ##__VA_ARGS__);                                                   \
		result_ = call_wait(&call_);                                                       \
		fixture_note(#op, &call_);                                                         \
		call_release(&call_);                                                              \
		result_;                                                                           \
	})
/* Remembers what a call that failed said; printed when the test fails. Private to SYNC. */
void fixture_note(const char *op, const struct call *call);

/*
 * What tests of fs/ need without a mount: a struct fs over one thread's real
 * sandbox, with a cache directory of its own. Either a threadfs-sandboxd in the
 * dialect of TFS_DIALECT behind a recording proxy (FSRIG_TEST; fixture.h), or an
 * embedded provider, whose sandbox can be killed and is started anew (FSRIG_EMBEDDED_TEST; rig.h).
 *
 *	static void test_x(void **state)
 *	{
 *		struct fsrig *r = *state;
 *		struct node *n;
 *
 *		put_file(fsrig_host_path(r, "a"), …);
 *		n = fsrig_node(r, "a");
 *		fsrig_run(r, do_something_on_the_loop, n);
 *		fsrig_put(r, n);
 *	}
 *
 * Main thread, but for what says otherwise. At the end everything of fs/ must have
 * been given back: memory, descriptors, leases and the accounts are looked at.
 */
#pragma once

#include <pthread.h>

#include "fixture.h"
#include "node.h"
#include "read_op.h"
#include "rig.h"
#include "thread.h"

struct fsrig {
	struct fs fs;
	struct options opt; /* by hand; may be changed before anything is begun */
	struct thread *thread;
	struct node *root; /* of the thread */
	struct fixture *f; /* or */
	struct rig *rig;   /* or, for who starts it himself: */
	char host_dir[256];
	char cache[SCRATCH_MAX];
	/* private */
	void *state;
	bool cache_given;
	struct node *above;
	unsigned fds;
};

int fsrig_setup(void **state);
int fsrig_embedded_setup(void **state);
int fsrig_teardown(void **state);
#define FSRIG_TEST(t) cmocka_unit_test_setup_teardown(t, fsrig_setup, fsrig_teardown)
#define FSRIG_EMBEDDED_TEST(t)                                                                     \
	cmocka_unit_test_setup_teardown(t, fsrig_embedded_setup, fsrig_teardown)
#define FSRIG_RUN(tests) cmocka_run_group_tests(tests, NULL, fixture_group_teardown)

/*
 * For who has a loop and a provider himself, of whose thread "t" of user "u" the files are in
 * host_dir: from there on. A cache directory that was given stays, else there is one meanwhile.
 * fsrig_stop() says whether all was given back, and ends a ledger that somebody opened; loop and
 * provider are the caller's.
 */
void fsrig_start(struct fsrig *r, struct loop *loop, struct provider *p);
bool fsrig_stop(struct fsrig *r) MUST_CHECK;

/* Runs fn(ctx) on the loop and waits. */
void fsrig_run(struct fsrig *r, void (*fn)(void *ctx), void *ctx);
/* Waits until fn(ctx) is true on the loop, 20 s at most. Returns whether. */
bool fsrig_wait(struct fsrig *r, bool (*fn)(void *ctx), void *ctx) MUST_CHECK;

/* The host's path of a file in the thread; valid until the fourth next call. */
const char *fsrig_host_path(struct fsrig *r, const char *name);
/* The node of a path below the thread's root, made if need be, with fresh attributes if the
 * sandbox has it. Counted: fsrig_put(). */
struct node *fsrig_node(struct fsrig *r, const char *path);
/* Asks for its attributes: 0 or a negative errno. */
int fsrig_lstat(struct fsrig *r, struct node *n);
void fsrig_put(struct fsrig *r, struct node *n);

/*
 * A read that somebody waits for. read: reader_read or stage_read, by an adapter;
 * called on the loop.
 */
struct fsrig_read {
	struct read_op op;
	/* once done */
	ssize_t got; /* bytes, or a negative errno */
	bool done;
	/* private */
	void (*read)(void *what, struct read_op *op);
	void *what;
	char *to;
	pthread_mutex_t lock;
	pthread_cond_t cond;
};
void fsrig_read_begin(struct fsrig *r, struct fsrig_read *rd,
		      void (*read)(void *what, struct read_op *op), void *what, void *to,
		      size_t len, uint64_t offset);
bool fsrig_read_is_done(struct fsrig_read *rd);
/* Waits, 60 s at most (then -ETIME). Any thread. */
ssize_t fsrig_read_end(struct fsrig_read *rd);
/* Both. */
ssize_t fsrig_read(struct fsrig *r, void (*read)(void *what, struct read_op *op), void *what,
		   void *to, size_t len, uint64_t offset);

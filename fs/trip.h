/*
 * A FUSE request that takes one or more operations on the sandbox, one after
 * the other, and then is answered. Loop thread only.
 *
 *	t = trip_new(fs, req, node);
 *	t->name = strdup(name);
 *	trip_begin(t, start, done);	start() as in remote.h
 *
 * done() looks at err and either answers (parked_…) and returns, after which the trip is
 * freed, or begins another operation with trip_begin().
 */
#pragma once

#include "node.h"
#include "parked.h"
#include "remote.h"
#include "thread.h"

struct salvage_hold;

struct trip {
	struct remote remote;
	struct parked parked;
	struct fs *fs;
	struct node *node, *other; /* counted */
	char *name, *name2;
	struct moment asked; /* when the operation began */
	uint64_t writes;     /* the thread's, likewise */
	bool interrupted;    /* the kernel says so once: the next operation does not run, either */
	bool changes;        /* something in the sandbox, so caches are not to be believed */
	void (*done)(struct trip *t, int err);

	/* counted; nothing of these is uploaded until the trip has ended: file_settle() */
	struct node **held;
	size_t held_count;
	struct salvage_hold *hold, *hold2; /* likewise what an earlier daemon left */

	/* what operations take and give; whose is their business */
	struct attr attr;
	struct entries entries;
	struct fs_stat fs_stat;
	char *target;
	mode_t mode;
	unsigned flags;
	uint64_t offset, offset2, length, copied;
	struct timespec times[2];
	int to_set;
	bool looked; /* the last operation saw what it made: t->attr */
	bool same;   /* a rename: both are names of one file, so both stay */
	void *priv;
	unsigned looks; /* trip_looks_again() */

	/* lister.h: it waits for a listing */
	void (*listed)(struct trip *t, int err, struct listing *l);
	bool reads;
	struct trip *prev, *next;
};

/* NULL: there is no memory, and the request was answered so. The node is counted. */
struct trip *trip_new(struct fs *fs, fuse_req_t req, struct node *n);
/* The name, copied; false: no memory, the request is answered and the trip gone. */
bool trip_name(struct trip *t, char **where, const char *name) MUST_CHECK;
/* Answers with an error (or 0) and frees a trip that has not begun, or waits for something else. */
void trip_end(struct trip *t, int err);
/* Frees a trip that was answered otherwise and has nothing under way. */
void trip_drop(struct trip *t);
void trip_begin(struct trip *t, void (*start)(struct remote *r, struct sandbox *sb),
		void (*done)(struct trip *t, int err));
/*
 * For callbacks of what a trip waited for between two operations: false if the
 * caller did not want to wait; then it is answered, and now freed.
 */
bool trip_goes_on(struct trip *t) MUST_CHECK;
static inline struct trip *trip_of(struct remote *r)
{
	return CONTAINER_OF(r, struct trip, remote);
}
/* Nothing happened to what it looks at (t->name in t->node, or that itself) since the operation
 * began, as far as we know: its answer may be kept. */
bool trip_is_current(const struct trip *t);
/* After a callback of what a trip waited for: frees it if it is answered and nothing is under way.
 */
void trip_settle(struct trip *t);

/*
 * In done() of a look: whether it is worth another one, as something was changed through us
 * meanwhile and the answer may be of before or after. Not for ever.
 */
bool trip_looks_again(struct trip *t) MUST_CHECK;

/* For start(): the path, for the caller to free; NULL: failed, and so has the operation. */
char *trip_path(struct trip *t, const struct node *n, const char *name, struct sandbox *sb);
/* start() that looks at t->node (t->name in it, if there is one) and puts it into t->attr. */
void trip_lstat(struct remote *r, struct sandbox *sb);

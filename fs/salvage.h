/*
 * What an earlier daemon left in the ledger (or this one gave up) goes to its
 * sandbox, in the background: a look at the file first. If it is the version that was
 * written over, or there is none, the content takes its place; if it has the
 * content already, nothing is to be done; otherwise both are kept, the content beside it as
 * NAME.threadfs-conflict-DATE. A record goes when the sandbox has confirmed it, with its size.
 * Loop thread only, but for salvage_gather().
 */
#pragma once

#include "node.h"
#include "staging.h"

/* For status. */
enum salvage_state {
	SALVAGE_WAITS, /* for its turn, or for the next try */
	SALVAGE_RUNS,
	SALVAGE_STUCK, /* the sandbox refuses it: somebody has to do something */
	SALVAGE_NO_THREAD,
};
struct salvage_view {
	const char *name; /* of the record */
	const char *thread, *path;
	uint64_t bytes;
	enum salvage_state state;
	int error; /* of the last try; 0: none failed */
};

/* Takes what is there for this source and user and nobody has. Before the loop has anything of the
 * mount. */
int salvage_gather(struct fs *fs) MUST_CHECK;
/* The mount answers: begins. */
void salvage_begin(struct fs *fs);
/* One more record, which was just given up. */
void salvage_add(struct fs *fs, const char *name);
void salvage_release(struct staging *g);
/* The mount is about to end: those of its own are tried once more, until staging->last_try_ms; only
 * where there is a staging. How many have not arrived. */
void salvage_last_try(struct fs *fs);
unsigned salvage_unfinished(const struct fs *fs);

/* The thread's sandbox answers; somebody asks for another try; and for its end: 0 (soon,
 * if it is on its way), -EBUSY: it is none, so a stage has it. */
void salvage_wake(struct thread *t);
void salvage_retry(struct fs *fs);
int salvage_discard(struct fs *fs, const char *name) MUST_CHECK;
/*
 * Somebody is about to take a name away, or to put another file there: what is under way there, or
 * below it, is stopped, and nothing begins until salvage_let_go(). NULL: no memory, or nothing
 * waits; that is fine for the others.
 */
struct salvage_hold;
struct salvage_hold *salvage_hold(const struct node *dir, const char *name);
/* then(ctx) once nothing is under way there any more, perhaps at once. One at a time; not after
 * salvage_let_go(). */
void salvage_settle(struct salvage_hold *h, void (*then)(void *ctx), void *ctx);
void salvage_let_go(struct salvage_hold *h);
/* And has: what was to go there goes with it. Or it, with all that is below it, has another name.
 */
void salvage_removed(const struct node *dir, const char *name);
void salvage_moved(const struct node *dir, const char *name, const struct node *to_dir,
		   const char *to_name);
/* Whether one is on its way to this very file: nothing else should be. */
bool salvage_is_at(const struct node *n);

/* The next one behind `last` (NULL: the first); false: there is none. */
struct salvage;
const struct salvage *salvage_next(const struct fs *fs, const struct salvage *last,
				   struct salvage_view *ret);

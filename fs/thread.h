/*
 * One thread of the mount: its tenant, the lease that the mount itself keeps
 * while the thread is in use, and what is shared by all of its files.
 * Loop thread only.
 */
#pragma once

#include <uthash.h>

#include "fs.h"
#include "transfer.h"

struct node;
struct jobs;
struct coherence;

struct thread {
	struct fs *fs;
	char id[65];
	struct tenant *tenant;
	unsigned refs;
	bool known;        /* is listed: it was made, found or listed; not only looked for */
	bool removing;     /* rmdir is under way: nothing is tried again on another sandbox */
	bool removed;      /* by rmdir, and not made or found since: nothing starts a sandbox */
	struct node *root; /* of its view, "threads/<id>"; not counted; NULL: nobody looked */
	UT_hash_handle hh; /* fs->threads by id */

	/* the mount's own lease */
	bool own_lease;
	ev_timer linger;

	unsigned open_files;
	unsigned commands; /* that run */
	/*
	 * What is cached of the sandbox was true in this epoch; another number
	 * voids it all (a command has run, the sandbox was another one).
	 */
	uint64_t epoch;
	bool watched; /* the sandbox tells of changes: what is cached does not age (cache.h) */
	/* Counts our own changes: an answer that was asked for before one is not cached. */
	uint64_t writes;
	/* Counts what was found to be untrue, a node at a time: node->void_seq. */
	uint64_t voids;

	struct coherence *coherence; /* coherence.h; NULL: it was never watched */

	struct transfer *transfers; /* transfer.h */
	bool no_range;              /* its server sends whole files only: fetch.c found out */
	struct jobs *jobs;          /* jobs.h; NULL: none yet */

	int last_error; /* negative errno of the last failure that somebody should know of; 0 */
	char *last_message;
	double last_error_wall;
};

/*
 * The record of a thread, made if there is none (nothing is started). -EINVAL:
 * not an id. Counted: thread_unref().
 */
int thread_get(struct fs *fs, const char *id, struct thread **ret) MUST_CHECK;
struct thread *thread_ref(struct thread *t);
void thread_unref(struct thread *t); /* NULL is fine */
/* Known threads are listed, and stay (with their jobs) until they are forgotten. */
void thread_set_known(struct thread *t, bool known);
/* The record if there is one, not counted. */
struct thread *thread_find(struct fs *fs, const char *id);

/* The thread is in use: the mount takes a lease of its own if it can, for `linger` from now. */
void thread_touch(struct thread *t);
/* Gives that lease up now. */
void thread_let_go(struct thread *t);

/*
 * A lease of an open file or of a transfer that outlives one operation. The
 * caller has one already by an operation that runs (so the sandbox is active); -EAGAIN if that is
 * not so.
 */
int thread_lease(struct thread *t) MUST_CHECK;
void thread_unlease(struct thread *t);

/* Everything cached of the sandbox is void, in the kernel too. */
void thread_void_caches(struct thread *t);
/* Remembers a failure for status; logs it once. message may be NULL. */
void thread_failed(struct thread *t, const char *what, int err, const char *message);

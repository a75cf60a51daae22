/*
 * One thread of the mount: its tenant, the lease that the mount itself keeps
 * while the thread is in use, and what is shared by all of its files.
 * Loop thread only.
 */
#pragma once

#include <limits.h>

#include "fs.h"
#include "hash.h"
#include "transfer.h"

struct node;
struct jobs;
struct coherence;
struct journal;
struct listing;
struct lister;
struct ahead;
struct peers;

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
	unsigned resting;  /* uploads that failed and wait until the sandbox returns */
	/*
	 * What is cached of the sandbox was true in this epoch; another number
	 * voids it all (a command has run, the sandbox was another one).
	 */
	uint64_t epoch;
	bool watched;    /* the sandbox tells of changes: what is cached does not age (cache.h) */
	int64_t live_ms; /* since when */
	/* The latest time that a listing counts from: one of a huge directory, from later on than
	 * it was asked for (lister.c). */
	int64_t ahead_ms;
	/* Counts our own changes: what was learned of a file before one may be of before. */
	uint64_t writes;
	unsigned changing; /* of these, under way: what is not to be found may just be moving */
	struct journal *journal;         /* what changed, for answers that were asked for before */
	struct listing *shelf;           /* shelf.h: its listings, by path */
	struct shelf_place *places;      /* shelf.c: of these, and of what is above them */
	struct lister *listers;          /* lister.h: what is being asked for */
	struct {                         /* lister.h: whether somebody walks through the tree */
		fuse_ino_t parent;       /* of the directory that was asked for last */
		char name[NAME_MAX + 1]; /* its own */
		int64_t ms;              /* when */
		unsigned row;            /* so many of that parent, one after the other */
		int64_t told_ms;         /* when something was had from what a walk brought */
		unsigned spell;          /* requests of this walk */
		bool unable;             /* the sandbox cannot */
	} walk;
	struct { /* dir.c: whether those who read directories want attributes, too */
		bool wanted;
		fuse_ino_t dir;        /* that was read without, to find out */
		int64_t ms;            /* when the last one was read */
		unsigned searched;     /* names looked up in it */
		unsigned spell, until; /* directories with, until the next without */
	} plus;
	struct peers *peers; /* peers.h: files that changed, whose other names are looked for */

	struct coherence *coherence; /* coherence.h; NULL: it was never watched */

	struct ahead *ahead;        /* ahead.h; NULL: nobody has opened a file */
	struct transfer *transfers; /* transfer.h */
	bool no_range;              /* its server sends whole files only: fetch.c found out */
	struct jobs *jobs;          /* jobs.h; NULL: none yet */

	int last_error; /* negative errno of the last failure that somebody should know of; 0 */
	char *last_message;
	double last_error_wall;
	double given_up_wall; /* when somebody gave its sandbox up by .ctl; 0: nobody has */
	int64_t destroyed_ms; /* when it was stopped so; 0: it was not */
	int64_t logged_ms;    /* since when failures are counted that were logged */
	unsigned logged;
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
/* Whether its share of the log is not used up; counts one more line. */
bool thread_may_log(struct thread *t);
/* Remembers a failure for status; logs it once. message may be NULL. */
void thread_failed(struct thread *t, const char *what, int err, const char *message);
/* Its sandbox was given up on purpose: that it could not be reached until now is no failure that
 * status shows. */
void thread_given_up(struct thread *t);
/* And it was stopped: who had something there may hear of it later. */
void thread_destroyed(struct thread *t);
/* A line of the log that names the thread and its sandbox; needs log.h. fmt: a literal. */
#define thread_warn(t, fmt, ...)                                                                   \
	log_warn("thread %s: sandbox %s: " fmt, (t)->id, tenant_id((t)->tenant), ##__VA_ARGS__)
#define thread_info(t, fmt, ...)                                                                   \
	log_info("thread %s: sandbox %s: " fmt, (t)->id, tenant_id((t)->tenant), ##__VA_ARGS__)

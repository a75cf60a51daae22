/*
 * One operation on a thread's sandbox: a lease for its duration, the sandbox
 * (started if need be), and more tries when the sandbox turned out to be dead
 * and that is safe: the first at once, then a few with pauses within the mount's
 * timeout, as one that is about to be dead still counts as alive, and what
 * replaces it may die as well. Loop thread only, as everything in fs/.
 *
 *	remote_begin(&r, thread, start, done);
 *
 * start() begins exactly one operation of sandbox.h with &r->call on the given
 * sandbox; it may be called several times, so what it needs must still be there.
 * done() comes exactly once, never from inside remote_begin() or
 * remote_cancel(); afterwards the memory is the owner's again.
 */
#pragma once

#include "provider.h"

struct thread;

struct remote {
	/* set by the owner before remote_begin(), zero is fine */
	int64_t timeout_ms; /* of the operation; 0: the mount's; -1: none */
	bool once;          /* doing it twice is not the same: try again only if nothing was sent */
	bool quiet;         /* nobody asked for it: the thread is not in use because of it */

	/* for the owner: the call to use in start(); call.message in done() has the words */
	struct call call;
	struct thread *thread;

	/* private */
	void (*start)(struct remote *r, struct sandbox *sb);
	void (*done)(struct remote *r, int err);
	struct errand errand;
	struct sandbox *sb; /* counted, while the operation runs */
	enum { REMOTE_IDLE, REMOTE_ACQUIRES, REMOTE_RUNS, REMOTE_PAUSES } phase;
	bool leased, cancelled;
	unsigned retries;
	int64_t began_ms;
	/* What was there when a lease was asked for, and when: only compared, never used. */
	const struct sandbox *suspected;
	int64_t asked_ms;
	ev_timer pause; /* before another try */
	struct job fail_job;
	int fail_error;
};

/* r is zeroed but for the owner's settings. The thread is counted meanwhile. */
void remote_begin(struct remote *r, struct thread *t,
		  void (*start)(struct remote *r, struct sandbox *sb),
		  void (*done)(struct remote *r, int err));
/* In start(), in place of an operation: it ends with this error. */
void remote_fail(struct remote *r, int err);
/* In start(): the path in the sandbox of what is `rel` below the thread's root (NULL: there was no
 * memory for that), for the caller to free. NULL: remote_fail() was called. */
char *remote_path(struct remote *r, struct sandbox *sb, const char *rel);
/* done() comes soon, with -ECANCELED unless it ended otherwise. Harmless when idle. */
void remote_cancel(struct remote *r);
static inline bool remote_is_busy(const struct remote *r)
{
	return r->phase != REMOTE_IDLE;
}

/* The errno that a user sees for an error of client/ or provider/; positive. */
int remote_errno(int err);
/* Whether it is that nobody answers. */
bool remote_is_unreachable(int err);

/*
 * One call of a sandbox operation, as its caller sees it: how long it may
 * take, a way to cancel it, and how it ended. The memory is the caller's.
 *
 *	struct call c;
 *	call_init(&c, 30000);
 *	sandbox_lstat(sb, &c, "/mnt/user-data/x", &attr);
 *	r = call_wait(&c);		0 or a negative errno
 *	call_release(&c);
 *
 * or, without a thread that waits: set c.done before the operation; it is then
 * called once, on the loop's thread, and must not block. Arguments are copied
 * when the operation is started; ret_ pointers have to stay valid until the
 * call is done, and are untouched on failure. Every call ends: at the latest
 * when its time is over, when it is cancelled, or when its sandbox is closed.
 */
#pragma once

#include "lock.h"
#include "loop.h"

struct call {
	/* set by call_init() and, before the operation, by the caller */
	int64_t timeout_ms; /* of the whole operation; of its silence for transfers. 0: none */
	void (*done)(struct call *call); /* may release the call; NULL: somebody waits */
	void *ctx;                       /* the caller's own */

	/* once done */
	int error;     /* 0 or a negative errno */
	char *message; /* the server's words about the error, for the log; or NULL */

	/* private to call.c and op.c */
	struct loop *loop;     /* guarded by lock; NULL until the operation is started */
	struct op *op;         /* loop thread only, once started */
	struct job job;        /* begins or refuses the operation */
	struct job cancel_job; /* stops it */
	struct job go_on_job;  /* wakes it when it is paused */
	struct lock lock;      /* may be held when the loop's is taken, no other */
	pthread_cond_t cond;
	bool cancelled, ending, finished; /* guarded by lock */
};

void call_init(struct call *c, int64_t timeout_ms);
/* The call must be done (or never have been started). Frees what it holds. */
void call_release(struct call *c);

/* Waits until the call is done; not on the loop's thread. Returns c->error. */
int call_wait(struct call *c) MUST_CHECK;

/*
 * Any thread, any time between call_init() and call_release(): the operation
 * ends soon with -ECANCELED, unless it ended before. Cancelling before the
 * operation is started makes it fail at once.
 */
void call_cancel(struct call *c);

/* ---- for the library ---- */

/* Any thread, as call_cancel(): op->go_on() is called soon, unless the call ends before. */
void call_go_on(struct call *c);
/* Any thread: hands the call to the loop, which runs c->job there. */
void call_begin(struct call *c, struct loop *loop);
/*
 * Loop thread: marks the call as done and tells its owner, who may free it at
 * once. message is taken over; NULL for none.
 */
void call_finish(struct call *c, int error, char *message);
bool call_is_cancelled(struct call *c);

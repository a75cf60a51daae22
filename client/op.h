/*
 * An operation under way, on the loop's thread: a chain of steps (HTTP
 * exchanges, commands), one at a time, that ends in exactly one op_finish().
 *
 * A concrete operation embeds struct op as its first member:
 *
 *	struct lstat_op { struct op op; struct posix_run run; struct attr *ret; };
 *
 * The public function allocates it, copies the arguments, and calls
 * op_submit(). `start` then runs on the loop and starts the first step; the
 * step's own callback starts the next one or finishes. The deadline, a
 * cancellation and sandbox_close() stop whatever step is current and finish
 * the operation from outside; after that no callback comes.
 */
#pragma once

#include "call.h"

struct sandbox;

/* What an operation waits for. A kind of step embeds this. */
struct step {
	/* Ends the step without calling anybody back. */
	void (*stop)(struct step *s);
};

enum { SLOWEST_TRANSFER = 32 }; /* bytes a second */

struct op {
	struct sandbox *sb; /* counted */
	struct call *call;
	struct step *current; /* set by op_wait(), cleared by op_go_on() */
	void (*start)(struct op *op);
	/* Frees what the operation holds and the operation itself. */
	void (*release)(struct op *op);
	/*
	 * Optional: called instead of finishing when the deadline, a
	 * cancellation or a close stopped the operation (err says which), to
	 * leave things tidy without waiting, e.g. by farewell requests. Finishing
	 * follows by itself.
	 */
	void (*interrupted)(struct op *op, int err);
	/* Optional: sandbox_go_on() was called for a paused transfer. */
	void (*go_on)(struct op *op);
	bool on_silence; /* timeout_ms counts from the last op_progress() */
	int slowest;     /* with on_silence: fewer bytes a second than that are silence, too */
	bool held;       /* with on_silence: paused by us, the time stands still */
	bool farewell;   /* runs while the sandbox is being closed */

	/* private to op.c */
	ev_timer timer;
	int64_t since_ms;       /* start or last progress; libev's own time is the wall's */
	uint64_t moved;         /* bytes since then */
	struct op *prev, *next; /* the sandbox's list */
};

/*
 * Any thread. Takes ownership of op; both callbacks run on the loop. If op is
 * NULL (no memory) the call ends with -ENOMEM.
 */
void op_submit(struct op *op, struct sandbox *sb, struct call *call, void (*start)(struct op *),
	       void (*release)(struct op *));
/* Any thread: the call ends with this error without an operation (bad arguments). */
void op_reject(struct sandbox *sb, struct call *call, int err, const char *fmt, ...)
	PRINTF_LIKE(4, 5);

/* Loop thread only, all of the following. */

/* The operation now waits for this step / no longer waits for any. */
void op_wait(struct op *op, struct step *s);
void op_go_on(struct op *op);
/* With on_silence the time starts anew. */
void op_progress(struct op *op);
/* So many bytes moved, which is progress unless they are too few. */
void op_moved(struct op *op, uint64_t bytes);
/* Milliseconds that are left; INT64_MAX without a deadline. */
int64_t op_left_ms(const struct op *op);
/* It has no more than so long from now on. */
void op_hurry(struct op *op, int64_t ms);

/* Stops the current step and finishes with err. */
void op_interrupt(struct op *op, int err);

/* Ends the operation; it is gone afterwards. No step may be current. */
void op_finish(struct op *op, int err);
/* The same with words for the log; the string is taken over (may be NULL). */
void op_finish_with(struct op *op, int err, char *message);

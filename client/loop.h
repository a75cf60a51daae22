/*
 * The event loop: one thread for the whole process that owns libcurl, every
 * socket and every timer of the client. Others hand it jobs.
 */
#pragma once

#include <ev.h>

#include "util.h"

struct loop;
struct traffic;

/* Something to do on the loop; its memory is the caller's until it has run. */
struct job {
	void (*run)(struct job *job);
	struct job *prev, *next; /* guarded by the loop's lock */
	bool queued;             /* guarded by the loop's lock */
};

/* Starts the thread. Returns 0 or a negative errno. */
int loop_new(struct loop **ret) MUST_CHECK;
/* Ends and joins the thread. All sandboxes must have been freed before. NULL is fine. */
void loop_free(struct loop *l);

/* Any thread: runs the job soon, in order of posting. A job that is queued already stays once. */
void loop_post(struct loop *l, struct job *job);
/* Any thread: takes the job back if it has not begun. Returns whether it was still queued. */
bool loop_withdraw(struct loop *l, struct job *job);
/* Runs fn(ctx) on the loop and waits for its end. On the loop's own thread: at once. */
void loop_run(struct loop *l, void (*fn)(void *ctx), void *ctx);

/* Whether this is the loop's own thread. */
bool loop_is_current(const struct loop *l);
/* Loop thread only, both. */
struct ev_loop *loop_ev(struct loop *l);
struct traffic *loop_traffic(struct loop *l);

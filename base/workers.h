/*
 * A few threads beside an event loop, for work that may block on a disk. Work
 * is run in order of arrival, and its done() is called on the loop thread, as
 * are all functions here.
 */
#pragma once

#include <ev.h>

#include "util.h"

struct workers;

struct work {
	void (*run)(struct work *w);  /* on a worker */
	void (*done)(struct work *w); /* on the loop; may free w */
	struct work *next;
};

int workers_new(struct ev_loop *loop, unsigned threads, struct workers **ret) MUST_CHECK;
/* Lets what runs finish, drops what waits, calls done() for both, ends the threads. */
void workers_free(struct workers *p);
void workers_submit(struct workers *p, struct work *w);

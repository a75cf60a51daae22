/*
 * A few threads for work that may block (directory walks, text files). Work
 * is run in order of arrival, and its done() is called on the loop thread.
 */
#pragma once

#include "server.h"

struct work {
	void (*run)(struct work *w);  /* on a worker */
	void (*done)(struct work *w); /* on the loop; may free w */
	struct work *next;
};

int workers_new(struct ev_loop *loop, unsigned threads, struct workers **ret);
/* Lets what runs finish, drops what waits, calls done() for both, ends the threads. */
void workers_free(struct workers *p);
void workers_submit(struct workers *p, struct work *w);

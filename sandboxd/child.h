/*
 * Who is told when a child has ended. As PID 1 or subreaper the server also
 * reaps children it never started. Loop thread only.
 */
#pragma once

#include <ev.h>
#include <sys/types.h>

/* A child that was started; fn gets the wait status, once. */
struct child {
	ev_child watcher;
	pid_t pid;
	void (*fn)(struct child *c, int wstatus);
};

void child_watch(struct ev_loop *loop, struct child *c, pid_t pid,
		 void (*fn)(struct child *c, int wstatus));
/* Forgets it; fn is not called any more. Harmless if it was not watched. */
void child_forget(struct ev_loop *loop, struct child *c);

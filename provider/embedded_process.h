/*
 * One process, by a descriptor that cannot come to mean another one: starting,
 * signalling, hearing of its end, reaping it if it is our child.
 */
#pragma once

#include <ev.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "util.h"

struct process {
	pid_t pid;
	int pidfd; /* -1: none */
	ev_io io;  /* loop thread only, as the next */
	/* Once, on the loop's thread, when it has ended and been reaped. May free the process. */
	void (*ended)(struct process *p);
	int status; /* as wait(2) tells it; -1: not known, it was somebody else's child */
};
#define PROCESS_INIT ((struct process){ .pidfd = -1, .status = -1 })

struct process_plan {
	const char *program;
	char *const *argv;
	int log_fd;  /* its stdout and stderr */
	int keep[2]; /* these descriptors it gets under the same numbers; above 2 */
};

/* Any thread: starts it in a session of its own, with a small environment. */
int process_spawn(const struct process_plan *plan, struct process *ret) MUST_CHECK;
/* Any thread: an existing one; -ESRCH. */
int process_open(pid_t pid, struct process *ret) MUST_CHECK;
/* Closes the descriptor; it must not be watched. */
void process_release(struct process *p);

/* Loop thread. p must stay where it is while it is watched. */
void process_watch(struct process *p, struct ev_loop *ev, void (*ended)(struct process *p));
void process_unwatch(struct process *p, struct ev_loop *ev);
/* Any thread. One that has ended is fine. */
void process_signal(const struct process *p, int sig);

/*
 * Any thread: finds the process of ours that holds an exclusive flock(2) on the
 * file, asking the one first that is hinted at (0: nobody). Never this one.
 * -ESRCH: nobody whom we can look into does. Reads /proc.
 */
int process_find_holder(const struct stat *file, pid_t hint, struct process *ret) MUST_CHECK;

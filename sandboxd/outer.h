/* What both programs, the supervisor and the server, do outside of the walls. */
#pragma once

#include "listen.h"
#include "options.h"

/* What is to be done, and undone, around the time when the server serves. */
struct outer {
	struct options *o;
	struct listener listener;
	char *pid_path; /* absolute: isolation none changes the working directory */
	char *pid_tmp;  /* written, not yet in place */
	bool pid_done;  /* in place */
};

/* The first thing in main(): the command line. Returns -1 to go on, or the exit status. */
int outer_begin(int argc, char **argv, struct options *ret) MUST_CHECK;
/* The next: signals and descriptors, whatever was inherited. 0, or a negative errno, logged. */
int outer_settle(void) MUST_CHECK;

/*
 * Opens the data directory and the socket, reads the key, calls serve(), and
 * tidies up. Logs why it failed. Returns 0 or a negative errno.
 */
int outer_run(struct options *o, int (*serve)(struct outer *out, int data_fd)) MUST_CHECK;

/* The server answers: tells everyone who waits. ctx is the struct outer. */
void outer_announce(void *ctx);

/*
 * deer-flow's provisioner for a test: tests/lib/provisioner.py with sandboxes of
 * the real threadfs-sandboxd, in a directory of its own. Main thread only.
 */
#pragma once

#include "loop.h"
#include "scratch.h"

struct provisioner_server {
	char dir[SCRATCH_MAX];
	char url[64];
	pid_t pid;
	struct sandbox *client; /* of its routes for tests */
};

#define PROVISIONER_KEY "the provisioner's key"

/*
 * Starts the script that $PROVISIONER names, and waits until it is ready. key NULL: it has
 * none, and lets nobody in. Aborts with a word if it does not start.
 */
void provisioner_server_start(struct provisioner_server *s, struct loop *loop, const char *key);
/* Ends it and its sandboxes, and removes its directory. */
void provisioner_server_stop(struct provisioner_server *s);
/* Without an end: as a host that loses its power, or SIGSTOP and SIGCONT. */
void provisioner_server_signal(struct provisioner_server *s, int sig);

/* POST /test/pods/ID: kill, delete, or a phase; see the script. */
void provisioner_server_order(struct provisioner_server *s, const char *id, const char *what);
/* The next answer to such a request; body is text. */
void provisioner_server_say(struct provisioner_server *s, const char *method, int status,
			    const char *body);
/* The next such request waits so long. */
void provisioner_server_delay(struct provisioner_server *s, const char *method, double seconds);
/* All requests so far, as JSON; for the caller to free. */
char *provisioner_server_requests(struct provisioner_server *s);

/* What the load generator's subcommands share: the parsed command line. */
#pragma once

#include <signal.h>

#include "http.h"

struct options {
	struct address address;
	const char *where; /* the address in words */
	unsigned seconds;
	unsigned clients;
	unsigned connections;
	uint64_t seed;
	uint64_t size; /* of the file that stalled clients ask for */
	bool body;     /* loris: drip the body instead of the header */
	bool verbose;
};

/* Set by SIGINT and SIGTERM: wind down, clean up, report. */
extern volatile sig_atomic_t interrupted;

#define WORKSPACE "/mnt/user-data/workspace"

/* Each returns 0 if the server behaved, 1 if not, or a negative errno. */
int mix_run(const struct options *o);
int hold_idle(const struct options *o);
int hold_loris(const struct options *o);
int hold_stall(const struct options *o);

/*
 * Posts a JSON body on a fresh connection and waits up to 30 s. r must be
 * initialised; it is reset first. Returns 0 or a negative errno.
 */
int post_json(const struct address *a, const char *path, const struct buf *json,
	      struct response *r) MUST_CHECK;
/* The same without a body, for any method. */
int simple_request(const struct address *a, const char *method, const char *path,
		   struct response *r) MUST_CHECK;
/* Runs a command by bash/exec, or shell/exec where a server lacks that. */
int run_command(const struct address *a, const char *command) MUST_CHECK;

/*
 * Sandboxes on this machine: one threadfs-sandboxd per thread on a unix socket.
 * They outlive this program; the next one finds them again.
 *
 *	RUNTIME/<hash of the data root>/<id>/
 *		sock	it listens there
 *		alive	locked by the sandbox itself as long as it lives
 *		users	locked (shared) by every program that uses it
 *		who	"USER\nTHREAD\n", and the root if it has no walls
 *		pid	written by the sandbox when it answers
 *	DATA/logs/<id>.log, .1, .2
 */
#pragma once

#include "backend.h"

struct embedded_config {
	const char *data;    /* data root, absolute; made if missing */
	const char *runtime; /* NULL: paths_runtime() */
	const char *program; /* threadfs-sandboxd; NULL: beside this program, else in PATH */
	bool no_isolation;   /* --isolation none */
	bool net_host;       /* --net host */
	const char *dialect; /* NULL: the program's default */
	int64_t ready_ms;    /* for READY after a start; 0: 60,000 */
	int64_t log_max;     /* bytes before a log is rotated; 0: 1 MiB */
};

/*
 * Returns 0, or a negative errno with ret_why in words (for the caller to free).
 * Touches the disk; not on the loop's thread.
 */
int backend_embedded_new(struct loop *loop, const struct embedded_config *config,
			 struct backend **ret, char **ret_why) MUST_CHECK;

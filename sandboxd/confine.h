/*
 * The walls: the process that the user started stays outside as supervisor
 * and runs this program a second time inside bubblewrap, as the server.
 *
 *	supervisor ── fork ── bwrap ── clone ── inner server (PID 1 inside)
 *	    │ lifeline pipe: only the supervisor has the write end      │
 *	    └────────────── EOF means: stop ──────────────────────────►┘
 *
 * The inner server gets the listening socket, the lifeline, a pipe to say that
 * it serves, and a pipe with the API key; it never learns the host's paths.
 */
#pragma once

#include "options.h"

/*
 * Runs the sandbox until it ends or SIGTERM, SIGINT or SIGHUP arrives; then
 * everything in it is gone. Calls ready(ctx) once it serves. data_fd is the
 * open data directory; listen_fd stays the caller's; server is the path of the
 * server's program. Logs why it failed.
 * Returns 0 or a negative errno. Single-threaded callers only; leaves those
 * signals blocked.
 */
int confine_run(const struct options *o, const char *server, int data_fd, int listen_fd,
		void (*ready)(void *ctx), void *ctx) MUST_CHECK;

/*
 * The server: one event-loop thread (libev) owns libmicrohttpd, all sessions,
 * watchers and timers; a few workers run file operations that may block.
 * Everything in struct server is "loop thread only" unless it says otherwise.
 */
#pragma once

#include <ev.h>
#include <stdatomic.h>

#include "config.h"

struct request;
struct shell;
struct bash;
struct watch;
struct workers;
struct crowd;

struct server {
	const struct config *cfg; /* immutable, any thread */
	struct ev_loop *loop;
	struct workers *workers;
	struct shell *shell;
	struct bash *bash;
	struct watch *watch;
	struct http *http;
	struct crowd *crowd;
	atomic_bool stopping; /* long work on workers ends early; any thread */
};

/*
 * Serves listen_fd until told to stop (lifeline EOF, SIGTERM/SIGINT, idle
 * exit), then ends everything it started. Calls ready() once it answers.
 * Returns 0 or a negative errno.
 */
int server_run(const struct config *cfg, int listen_fd, void (*ready)(void *ctx), void *ctx);

/* Something happened that counts as use (for --idle-exit). Loop thread. */
void server_touch(struct server *srv);

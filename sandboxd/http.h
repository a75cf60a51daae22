/* HTTP on the event loop: connections, bodies, suspending. Loop thread only. */
#pragma once

#include "server.h"

struct http;

/* Takes listen_fd over. Returns 0 or a negative errno. */
int http_start(struct server *srv, int listen_fd);
/* No new connections from now on. */
void http_quiesce(struct server *srv);
/* Tells handlers on workers that nobody waits for them any more. */
void http_abandon(struct server *srv);
/* Requests that have not ended yet. */
unsigned http_active(const struct server *srv);
/*
 * Fails whatever still waits with 503 and closes everything. Workers must be
 * gone by now.
 */
void http_stop(struct server *srv);

/*
 * What to do about a fork bomb. The kernel's RLIMIT_NPROC does not bind the
 * host's root, even inside a user namespace; and where the kernel does enforce
 * a limit, a bomb fills it and nobody else can work. Loop thread.
 */
#pragma once

#include "server.h"

/* Sets srv->crowd. 0 or -ENOMEM. */
int crowd_start(struct server *srv);
void crowd_stop(struct server *srv);

/*
 * A command was started, or could not be because there are too many: looks
 * how many there are until all are gone.
 */
void crowd_watch(const struct server *srv, bool started);

/*
 * Ending what commands left behind. Loop thread, at shutdown only.
 */
#pragma once

#include "config.h"

/*
 * Makes orphans of our commands ours, so that they can be found and reaped.
 * To be called once at start.
 */
void reap_init(const struct config *cfg);

/* SIGKILLs every process that descends from us, also those that left their
 * session or process group, and waits for them. Bounded to half a second. */
void reap_all(const struct config *cfg);

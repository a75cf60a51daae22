/*
 * The settings that a mount says are in force (its .ctl/config). For the commands, not for the
 * mount; one thread.
 */
#pragma once

#include "buf.h"

/* Of the mount at point. One that does not answer is not waited for: -ETIMEDOUT. */
int in_force_read(const char *point, struct buf *to) MUST_CHECK;
/* The value of a setting, to be freed. NULL: it has none (or there is no memory). */
char *in_force_value(const struct buf *config, const char *name);

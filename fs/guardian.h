/*
 * The guardian of a mount: a small process beside the daemon that takes the mount
 * away when the daemon dies without having done so (kill -9, out of memory), so that
 * the mountpoint does not stay dead. It is this program by another name
 * (GUARDIAN_NAME), with nothing open but a pipe to the daemon, whose end it
 * waits for, and a lock on the place of the mount. Not on the loop's thread.
 */
#pragma once

#include <sys/types.h>

#include "util.h"

#define GUARDIAN_NAME "threadfs-guardian"

struct guardian {
	int fd; /* -1: there is none */
	pid_t pid;
};

/*
 * Before it is mounted. Waits for the guardian of a mount that was there before. -EBUSY: a mount of
 * ours is there, also one that was begun at the same time. Else 0, as well as it goes: without a
 * guardian the mountpoint is freed by the next mount or unmount, that is all. Logs why.
 */
int guardian_begin(struct guardian *g, const char *mountpoint) MUST_CHECK;
/* It is mounted: that one, and no other at the same place. */
void guardian_watch(struct guardian *g, dev_t dev);
/* The mount is gone or will be: waits until the guardian has ended. Harmless without one. */
void guardian_end(struct guardian *g);

/* The guardian itself, as main() finds it by its name; returns the exit status. */
int guardian_main(int argc, char **argv);

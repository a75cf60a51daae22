/*
 * That a mount's daemon lives, for whoever unmounts it: a locked file per mount
 * in the runtime directory, named after its device number. The kernel gives the lock
 * up when the daemon ends, however it does. Not on the loop's thread.
 */
#pragma once

#include <sys/types.h>

#include "util.h"

struct presence {
	char *path;
	int fd; /* -1: none */
};

/* As well as it goes: without it an unmount does not wait, that is all. */
void presence_begin(struct presence *p, dev_t dev);
void presence_end(struct presence *p);

/* The file of a mount, to be opened while it is there: a descriptor or a negative errno. */
int presence_open(dev_t dev) MUST_CHECK;
/* Waits until its daemon has ended: 0, or -ETIMEDOUT. */
int presence_wait(int fd, int64_t timeout_ms) MUST_CHECK;

/*
 * Reading and writing a control file without ever waiting for it: a child process does
 * it, so that a mount which does not answer holds up nobody but the child. For the
 * commands, not for the mount; one thread.
 */
#pragma once

#include "buf.h"

struct aside {
	int fd; /* to poll for reading; -1: nothing is under way */
	pid_t pid;
	struct buf bytes; /* private: what came */
};

#define ASIDE_NONE ((struct aside){ .fd = -1, .pid = -1 })

/* Begins to read a whole file, or to write these bytes to it. Returns 0 or a negative errno. */
int aside_read(struct aside *a, const char *path) MUST_CHECK;
int aside_write(struct aside *a, const char *path, const char *bytes) MUST_CHECK;
/*
 * To be called when fd is readable. -EAGAIN: not yet; otherwise it is over: 0 with the content
 * in to (of a read), or a negative errno.
 */
int aside_take(struct aside *a, struct buf *to) MUST_CHECK;
/* Gives up: the child is killed, and not waited for. Harmless if nothing is under way. */
void aside_drop(struct aside *a);
/* All of it, at most so long: -ETIMEDOUT. */
int aside_read_within(const char *path, int timeout_ms, struct buf *to) MUST_CHECK;

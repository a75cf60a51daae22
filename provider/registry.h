/*
 * The threads that are known, on disk: one small file each, put in place by
 * rename, so that a crash leaves the old or the new state and processes that
 * share a data root need no lock:
 *
 *	DATA/registry/USER/THREAD.json	{"user":…,"thread":…,"backend":…,"created":…}
 *
 * The functions touch the disk: for workers and start-up. Any thread.
 */
#pragma once

#include "util.h"

struct registry_entry {
	char *user, *thread;
	char *backend;  /* which made it; "" if unknown */
	double created; /* wall time */
};
void registry_entry_release(struct registry_entry *e);

/* Adds or keeps it (an entry that is there stays as it is). Durable when it returns 0. */
int registry_add(const char *data, const char *user, const char *thread,
		 const char *backend) MUST_CHECK;
/* 0 also if there was none. */
int registry_remove(const char *data, const char *user, const char *thread) MUST_CHECK;
/* Calls each() for every entry of a user; damaged files are logged and skipped. */
int registry_read(const char *data, const char *user,
		  int (*each)(void *ctx, const struct registry_entry *e), void *ctx) MUST_CHECK;

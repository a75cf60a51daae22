/*
 * What a mount says of itself in .ctl/status.json, read for `threadfs top`. Every text is
 * made harmless here: names and errors come from sandboxes. Pure.
 */
#pragma once

#include "buf.h"
#include "histogram.h"

struct top_thread {
	char *id;   /* as the mount knows it; NULL: another user's, it cannot be reached there */
	char *name; /* these are for people */
	char *state, *sandbox, *watch, *error;
	unsigned leases, open_files;
	double idle_s; /* since it was used last; -1: never */
};

struct top_transfer {
	char *thread, *path; /* for people */
	bool up;
	double moved, total; /* bytes; total -1: not known */
	double rate, left_s; /* left_s -1: not known */
};

enum { TOP_CACHES = 5 };

struct top_view {
	char *version, *source, *mountpoint;
	double uptime_s;
	int64_t taken_us; /* clock_us() */

	struct top_thread *threads;
	size_t nthreads;
	struct top_transfer *transfers;
	size_t ntransfers;

	char *states; /* "2 active, 1 warm" */
	double open_files, waiting, commands, requests, errors, remote_failed;
	double bytes_down, bytes_up, pending_files, pending_bytes;
	double cache_used, cache_size, memory_used, memory;
	double hits[TOP_CACHES], misses[TOP_CACHES]; /* by top_cache_names */
	struct histogram request_times, sandbox_times;
};

extern const char *const top_cache_names[TOP_CACHES];

/* Parses the file, which is changed. 0, -EINVAL: it is not that; -ENOMEM. */
int top_view_read(char *text, size_t len, struct top_view *ret) MUST_CHECK;
void top_view_release(struct top_view *v);
#define CLEANUP_TOP_VIEW CLEANUP(top_view_release)

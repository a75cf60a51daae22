/*
 * What was asked of servers, by kind, and how long it took, from the wait in its lane to
 * the end of the answer. One record per loop; loop thread only. Who gives up is not counted.
 */
#pragma once

#include "histogram.h"

enum traffic_kind {
	TRAFFIC_CONTEXT, /* what the server is, and whether it answers */
	TRAFFIC_LIST,    /* directories */
	TRAFFIC_FILE,    /* small pieces of files: read, write, append, find */
	TRAFFIC_DOWNLOAD,
	TRAFFIC_UPLOAD,
	TRAFFIC_COMMAND, /* also those of our own, for what has no route */
	TRAFFIC_SESSION, /* making and ending shells and watches */
	TRAFFIC_WATCH,   /* waiting for changes, minutes at a time */
	TRAFFIC_BACKEND, /* not to a sandbox, but to who makes them */
	TRAFFIC_KINDS,
};

struct traffic {
	struct histogram times[TRAFFIC_KINDS];
	uint64_t failed[TRAFFIC_KINDS]; /* no answer, or one of 500 and above */
};

/* "context", "list" and so on. */
const char *traffic_name(enum traffic_kind kind);
/* Of a request's target, "/v1/file/list?…". */
enum traffic_kind traffic_kind_of(const char *target);

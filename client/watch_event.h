/* One change in a watched tree, and how it is read from JSON. Pure. */
#pragma once

#include "json.h"
#include "util.h"

enum watch_type {
	WATCH_CREATE,
	WATCH_WRITE,
	WATCH_REMOVE,
	WATCH_RENAME,
	WATCH_CHMOD,
};

struct watch_event {
	enum watch_type type;
	int64_t seq;
	const char *path;     /* absolute, in the sandbox */
	const char *relative; /* below the watched directory, a chain of names; "." is itself */
	const char *old_path; /* absolute, of a rename; or NULL */
	bool is_dir;
	int64_t size; /* -1: not given, or too large for a JSON number */
	uint64_t ino; /* 0: the same */
};

/*
 * Decodes an event object; the strings point into json. Returns 0 or -EBADMSG
 * (missing or wrong fields, unknown type, a path with NUL, ".." or the like).
 */
int watch_event_decode(const cJSON *json, struct watch_event *ret) MUST_CHECK;

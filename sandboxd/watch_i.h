/*
 * What the two families of watch routes share: those about watchers (watch.c)
 * and the one that waits for a single path (watch_wait.c). Loop thread only.
 */
#pragma once

#include "request.h"
#include "watcher.h"

struct watched;
struct waits;

enum {
	WATCH_MAX_PATTERNS = 256,
	WATCH_MAX_PATTERN = 255,
};

struct watch {
	struct watched *list;
	unsigned count;
	struct watcher_shared shared;
	struct waits *waits;
};

/*
 * An error with a code that programs look at: bare {"detail":{…}} in 1.9; an
 * envelope in aiod, which has it in data as well.
 */
void watch_reply_error(struct request *r, unsigned status, const char *code, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
/* A path cannot be used; err is a positive errno. */
void watch_reply_path_error(struct request *r, const char *path, int err);
/*
 * {"data": value} in 1.9, the full envelope in aiod: begin, write one value,
 * end. With bare, 1.9 has the value alone.
 */
struct jw *watch_reply_begin(struct request *r, bool bare);
void watch_reply_end(struct request *r, bool bare);

/* One event; base is the watched path as the client named it. */
void watch_write_event(struct jw *w, enum dialect dialect, const char *id, const char *base,
		       const struct watch_event *e);

struct wait_args {
	const char *path;
	int64_t timeout;
	struct strv event_types;
};

int waits_new(struct server *srv, struct waits **ret) MUST_CHECK;
void waits_free(struct waits *ws);
void watch_wait(struct request *r);

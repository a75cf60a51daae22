/*
 * Server-sent events, piece by piece as they arrive (the WHATWG rules: CR, LF
 * or CRLF; a leading byte order mark; fields event, data, id; comments; an
 * event is dispatched by an empty line, an unfinished one is dropped).
 * Lines and events are capped. Pure; one owner at a time.
 */
#pragma once

#include "buf.h"

struct sse_event {
	const char *type; /* "message" if none was given */
	const char *data; /* NUL-terminated, lines joined with \n */
	size_t data_len;
	const char *id; /* the last id seen so far; "" if none */
};

struct sse {
	/*
	 * Returns 0 to go on, or a negative errno that sse_feed() passes on
	 * without touching s any more. Events without data are dropped, as the
	 * rules say.
	 */
	int (*event)(void *ctx, const struct sse_event *ev);
	void *ctx;
	/* private */
	struct buf line, type, data;
	struct buf id, new_id; /* the last one; that of the event under way */
	bool after_cr, started, has_data, has_new_id;
};

enum { SSE_MAX = 1024 * 1024 /* bytes of one line, and of one event's data */ };

void sse_init(struct sse *s, int (*event)(void *ctx, const struct sse_event *ev), void *ctx);
void sse_release(struct sse *s);
/* Forgets a half-read event and its id (a new connection), keeps the last id. */
void sse_reset(struct sse *s);
/*
 * Returns 0, the callback's error, -EMSGSIZE, -ENOMEM. After an error only
 * reset and release make sense.
 */
int sse_feed(struct sse *s, const char *bytes, size_t len) MUST_CHECK;

/* The inside of a request, shared by request.c and http.c only. */
#pragma once

#include "request.h"
#include "workers.h"

struct peer;

struct request_i {
	struct request *owner;
	struct peer *peer; /* http.c's: its connection */

	/* reading */
	int64_t started_ms, moved_ms; /* when it began, when bytes of its body came last */
	struct buf body;
	cJSON *json;
	uint64_t dropped;     /* bytes of a refused body read so far */
	bool refuse;          /* an error is set: drop the body, then send it */
	bool dispatched;      /* the handler was called */
	uint64_t taken;       /* bytes of the body so far */
	bool direct;          /* the rest of the body is read by us */
	uint64_t direct_left; /* bytes of it to come */

	/* answering */
	unsigned status; /* 0 = no reply yet */
	struct MHD_Response *response;
	size_t held; /* bytes counted in http's budget */

	/* waiting; loop thread only except gone */
	bool suspended;
	bool working; /* a worker has it */
	atomic_bool gone;
	ev_io hangup;
	ev_timer timer;
	void (*timer_fn)(struct request *r);
	struct work work;
	struct request *prev, *next; /* http's list of all requests */

	/* streaming */
	int (*fill)(struct request *r, struct buf *out);
	struct buf stream;
	size_t stream_at; /* already sent */
	bool stream_ended;
};

/* http.c: continues a connection that was suspended. */
void http_resume(struct request *r);
/* http.c: suspends it (from a handler's return or a stream that has to wait). */
void http_suspend(struct request *r);

/* request.c: a new request, and the end of one. */
struct request *request_new(struct server *srv, struct MHD_Connection *conn);
void request_free(struct request *r);
/* request.c: the libmicrohttpd response for what was replied; NULL if out of memory. */
struct MHD_Response *request_response(struct request *r);

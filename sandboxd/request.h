/*
 * One HTTP request, from its handler's point of view. A handler reads
 * r->args, r->path_arg and the query, and then either replies or defers.
 *
 * Threads: handlers run on the loop thread, those of routes marked BLOCKING
 * on a worker that has the request to itself. The reply functions only fill
 * the request, so both may use them; what waits or streams is for the loop.
 */
#pragma once

#include <ev.h>
#include <microhttpd.h>
#include <stdatomic.h>

#include "args.h"
#include "jsonw.h"
#include "server.h"

struct route;

struct request {
	struct server *srv;
	const struct route *route;
	struct MHD_Connection *conn; /* loop thread only */
	bool head;                   /* HEAD: same answer without the body */
	char path_arg[129];          /* the {id} part of the route, or "" */
	void *args;                  /* of the type the route's table fills */
	bool wants_sse;              /* Accept: text/event-stream */

	/* For the handler: its own state, released by cleanup exactly once, on
	 * the loop, when the request has ended in whatever way (answered,
	 * client gone, shutting down). */
	void *op;
	void (*cleanup)(struct request *r);

	/* The rest belongs to request.c and http.c. */
	struct request_i *i;
	struct jw jw;
	struct buf out;
};

/* ---- answering ---- */

/*
 * {"success":true,"message":M,"data": … the caller writes one value with the
 * returned writer … ,"hint":null}: begin, write, end. message NULL is the
 * default "Operation successful".
 */
struct jw *reply_begin(struct request *r, const char *message);
void reply_end(struct request *r);

/* The same with success=false and HTTP 200. */
struct jw *reply_begin_failed(struct request *r, const char *message);

/* Envelope with data null: success with HTTP 200, or success=false with status. */
void reply_ok(struct request *r, const char *message);
void reply_error(struct request *r, unsigned status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/*
 * A file operation failed with err (positive errno). Dialect decides: 1.0
 * sends HTTP 500 with "[Errno N]" in the message, later ones HTTP 200 with a
 * FileOperationError. operation is "read", "list", …
 */
void reply_file_error(struct request *r, const char *operation, const char *path, int err);
/* The same for a fault without errno, e.g. decode_error/UnicodeDecodeError. */
void reply_file_fault(struct request *r, const char *operation, const char *path,
		      const char *error_type, const char *exception_type, const char *message);

/* No session of that kind ("shell", "bash") could be made; -EBUSY: all limit are in use. */
void reply_session_error(struct request *r, const char *kind, unsigned limit, int error);

/* Body without the envelope: begin returns the writer, the caller writes one value. */
struct jw *reply_plain_begin(struct request *r);
void reply_plain_end(struct request *r, unsigned status);

/* 422 for a query parameter. */
void reply_query_error(struct request *r, const char *name, const char *msg, const char *type);

/* A response made by the caller (a file, say); takes ownership. Loop thread. */
void reply_response(struct request *r, unsigned status, struct MHD_Response *response);

/* ---- reading ---- */

/*
 * Query parameter: 1 and *ret (owned by the connection), 0 if absent,
 * -EINVAL if it holds NUL. Loop thread.
 */
int request_query(struct request *r, const char *name, const char **ret);
/* Header value or NULL. Loop thread. */
const char *request_header(struct request *r, const char *name);

/*
 * Where a path of the sandbox is for this process. Writes to out (PATH_MAX
 * bytes); returns 0 or -ENAMETOOLONG. Any thread.
 */
int sandbox_path(const struct server *srv, const char *path, char *out) MUST_CHECK;

/* Whether the client has gone; long loops on workers look now and then. */
bool request_gone(struct request *r);
/*
 * For a worker that has it, the same, asked of its socket at this moment: before what would come
 * over something that the client did after it had given this up. False on the loop, where it was
 * looked at just before.
 */
bool request_left(const struct request *r);

/* ---- waiting (loop thread) ---- */

/*
 * A handler on the loop that returns without having replied has deferred the
 * request: its client waits, at the cost of no thread, until somebody replies
 * and calls request_resume(). r->cleanup runs if the client goes away first;
 * after that r is gone.
 */
void request_resume(struct request *r);
/* One timer per request; fn may reply and resume. Seconds from now. */
void request_timer(struct request *r, double seconds, void (*fn)(struct request *r));
void request_timer_stop(struct request *r);

/* ---- streaming (server-sent events) ---- */

/*
 * Answers 200 text/event-stream. fill appends what there is to out; returns 0
 * (nothing appended = wait until request_wake) or -ENODATA at the end. It is
 * called on the loop, only when the client has taken what came before, so a
 * slow client costs no memory.
 */
void request_stream(struct request *r, int (*fill)(struct request *r, struct buf *out));
void request_wake(struct request *r);

/*
 * Makes libmicrohttpd go on with an answer though nothing happened on the
 * socket: for a file whose sendfile has come up short. Loop thread.
 */
void request_nudge(struct request *r);

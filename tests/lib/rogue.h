/*
 * A server that misbehaves on order, inside the test program. It listens on a
 * unix socket or on 127.0.0.1, records every request, and answers by rules or
 * passes the request on to a real server (the upstream), so that faults can be
 * injected into a real conversation. A thread per connection; bodies are
 * streamed in both directions, with backpressure.
 *
 *	struct rogue *r = rogue_new(daemon_socket(d), false);
 *	ROGUE_ADD(r, .path = "/v1/file/download", .fault = ROGUE_STALL, .after = 100);
 *	… the client talks to rogue_socket(r) …
 *	rogue_free(r);
 *
 * All functions may be called from any thread, but rogue_free(),
 * rogue_stop_listening() and rogue_listen() from one at a time. Whatever cannot
 * happen in a test (no memory, no threads) aborts.
 */
#pragma once

#include "util.h"

struct rogue;

/*
 * upstream: path of a unix socket, "127.0.0.1:PORT" or "http://127.0.0.1:PORT";
 * NULL: none. Returns NULL, having said why on stderr, if it cannot listen.
 */
struct rogue *rogue_new(const char *upstream, bool tcp);
/* Ends connections and threads. A handler that does not return would hold it up. NULL is fine. */
void rogue_free(struct rogue *r);

/* "http://127.0.0.1:PORT", or "http://localhost" with a unix socket. */
const char *rogue_url(const struct rogue *r);
/* Path of the unix socket; NULL with TCP. */
const char *rogue_socket(const struct rogue *r);

/* ---- rules ---- */

#define ROGUE_FOREVER UINT64_MAX

enum {
	ROGUE_UNTIL_RELEASED = -1, /* as a time: until rogue_release() or the client leaves */
	ROGUE_NOTHING = -1,        /* as take_bytes */
};

/*
 * An answer. Its body is `body`, then `units` times `unit`, then `tail`; with
 * members unset it is an empty 200.
 */
struct rogue_reply {
	int status;          /* 0: 200 */
	const char *headers; /* "Name: value\r\n"…; NULL: Content-Type: application/json */
	const char *body;
	size_t body_len; /* 0: strlen(body) */
	const char *unit;
	uint64_t units; /* ROGUE_FOREVER makes it chunked, unless it goes on until_close */
	const char *tail;
	bool chunked;
	bool until_close; /* neither a length nor chunks */
	/*
	 * Sent instead of status line and headers, as they are; then the body,
	 * without framing, then the end of the connection.
	 */
	const char *raw;
	size_t raw_len;           /* 0: strlen(raw) */
	const char *endless_head; /* after the status line, this, for ever */
	void *owned;              /* by a handler: freed when the answer was sent */
};

/* Valid JSON of about so many bytes: an object whose "data" is a string, or an array of numbers. */
struct rogue_reply rogue_json_string(uint64_t bytes);
struct rogue_reply rogue_json_numbers(uint64_t bytes);
/* So many opening brackets, and none that closes. */
struct rogue_reply rogue_json_deep(uint64_t depth);

struct rogue_request {
	char *method, *target;
	char *headers; /* the head as it came */
	char *body;    /* at most ROGUE_BODY_KEPT bytes of it; NUL-terminated */
	size_t body_len;
	uint64_t body_total;    /* how many came */
	bool body_done;         /* all of it */
	int status;             /* of the answer; 0: none (yet) */
	unsigned connection;    /* counted from 1 */
	unsigned on_connection; /* which request of its connection, from 1 */
	int64_t start_ms;       /* clock_ms() when its head had come */
	int64_t end_ms; /* just before the last byte went, or the connection ended; 0: not yet */
	unsigned in_flight; /* requests under way then, this one included */
};

enum { ROGUE_BODY_KEPT = 1024 * 1024 };

enum rogue_action {
	ROGUE_FORWARD, /* to the upstream; 404 where there is none */
	ROGUE_ANSWER,  /* with reply; the upstream never sees it */
	ROGUE_REPLACE, /* the upstream does it, but the client gets reply */
	ROGUE_CLOSE,   /* no answer */
	ROGUE_RESET,   /* no answer but a TCP reset (a plain end of a unix socket) */
};

enum rogue_fault {
	ROGUE_WHOLE,     /* none */
	ROGUE_STALL,     /* goes silent, until rogue_release() or the client leaves */
	ROGUE_CUT,       /* ends the connection */
	ROGUE_CUT_RESET, /* ends it with a reset */
};

struct rogue_rule {
	/* which requests; members unset match all */
	const char *method;
	const char *path;          /* a prefix of the target; with '$' at its end all of the path */
	const char *body_contains; /* in what is kept of the body */
	bool reused;               /* not the first one of its connection */
	unsigned skip;             /* not the first so many that match */
	unsigned times;            /* then only so many; 0: all */

	/* before acting */
	int64_t take_bytes; /* of the body; 0: all that the action needs, or ROGUE_NOTHING */
	int hold_ms;        /* then a pause; or ROGUE_UNTIL_RELEASED */

	enum rogue_action action;
	struct rogue_reply reply;
	/*
	 * For ROGUE_ANSWER and ROGUE_REPLACE, instead of a fixed reply: gets
	 * `reply`, or what the upstream answered (status and body), and changes
	 * it. What that points to must live until the answer was sent (owned).
	 * Non-zero ends the connection without an answer. Called on the
	 * connection's thread: nothing may be asserted there.
	 */
	int (*handler)(void *ctx, const struct rogue_request *request, struct rogue_reply *reply);
	void *ctx;

	/* how the answer goes out, wherever it comes from */
	int delay_ms;           /* before its first byte; or ROGUE_UNTIL_RELEASED */
	unsigned drip_ms;       /* before each single byte, */
	bool quick_head;        /* but for the head's */
	int64_t length_lie;     /* added to Content-Length; if > 0 the connection ends afterwards */
	enum rogue_fault fault; /* after so many bytes: */
	uint64_t after;         /* of the body (in chunks: as they are on the wire), or */
	bool in_head;           /* of the whole answer */
};

/* Adds a rule after those there are; the first that matches counts. Everything is copied. */
void rogue_add(struct rogue *r, const struct rogue_rule *rule);
/* ROGUE_ADD(r, .path = "/v1", .action = ROGUE_CLOSE) */
#define ROGUE_ADD(r, ...) rogue_add((r), &(struct rogue_rule){ __VA_ARGS__ })
/* A rule that answers so. method and body may be NULL. */
void rogue_answer(struct rogue *r, const char *method, const char *path, int status,
		  const char *body);
/* Forgets all rules; requests that are being served keep theirs. */
void rogue_clear(struct rogue *r);
/* Ends the pauses until then, and the stalls, of all requests that have come: also those ahead. */
void rogue_release(struct rogue *r);

/* ---- the server as a whole ---- */

/* The next so many connections are closed as they are accepted. */
void rogue_refuse(struct rogue *r, unsigned connections);
/* Connections that are open live on, new ones are refused; then again at the same place. */
void rogue_stop_listening(struct rogue *r);
void rogue_listen(struct rogue *r);
/*
 * Ends all connections, or those with no request under way, and waits for their
 * threads: not to be called by a handler.
 */
void rogue_close_connections(struct rogue *r, bool idle_only);

/* ---- what happened; method NULL: any; path as in a rule, NULL: any ---- */

/* Requests whose head has come. */
size_t rogue_count(struct rogue *r, const char *method, const char *path);
/* Those of them whose body has the text. */
size_t rogue_count_body(struct rogue *r, const char *method, const char *path, const char *text);
/* Waits until there are at least so many that have their rule: a later one does not get it. Returns
 * whether. */
bool rogue_wait_for(struct rogue *r, const char *method, const char *path, size_t count,
		    int timeout_ms) MUST_CHECK;
/* Waits until one of them has had at least so many bytes of body. Returns whether. */
bool rogue_wait_body(struct rogue *r, const char *method, const char *path, uint64_t bytes,
		     int timeout_ms) MUST_CHECK;
/* How many of them were under way at once, at most. */
unsigned rogue_max_in_flight(struct rogue *r, const char *path);
/* The i-th request (from 0). Returns whether there is one; the copy is to be released. */
bool rogue_request(struct rogue *r, size_t i, struct rogue_request *ret) MUST_CHECK;
void rogue_request_release(struct rogue_request *q);
/* The value of a header, for the caller to free; NULL if it has none. */
char *rogue_header(const struct rogue_request *q, const char *name);
/* Forgets the requests that have ended. */
void rogue_forget(struct rogue *r);

/* Connections that clients have open, and how many there ever were. */
unsigned rogue_connections_open(struct rogue *r);
unsigned rogue_connections_total(struct rogue *r);
/* Waits until so many are open. Returns whether. */
bool rogue_wait_connections(struct rogue *r, unsigned open, int timeout_ms) MUST_CHECK;

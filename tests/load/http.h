/*
 * Just enough of an HTTP/1.1 client for the load generator: where the server
 * is, and a response parser that is fed whatever arrived. It knows nothing of
 * the API and never sleeps except in http_exchange(). Not thread-safe.
 */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include "buf.h"

struct address {
	struct sockaddr_storage sa;
	socklen_t len;
};

/* A unix socket. 0 or -ENAMETOOLONG. */
int address_set_unix(struct address *a, const char *path) MUST_CHECK;
/* "127.x.y.z:PORT", "localhost:PORT" or "[::1]:PORT"; -EINVAL for anything else. */
int address_set_loopback(struct address *a, const char *host_port) MUST_CHECK;
/*
 * Returns a connected (or, over TCP, still connecting) non-blocking socket or a
 * negative errno. -EAGAIN: the unix socket's backlog is full, try again later.
 */
int address_connect(const struct address *a) MUST_CHECK;

enum response_state {
	RESPONSE_STATUS_LINE,
	RESPONSE_HEADERS,
	RESPONSE_BODY,        /* Content-Length */
	RESPONSE_UNTIL_CLOSE, /* neither a length nor chunks */
	RESPONSE_CHUNK_SIZE,
	RESPONSE_CHUNK_DATA,
	RESPONSE_CHUNK_END,
	RESPONSE_TRAILER,
	RESPONSE_DONE,
};

struct response {
	enum response_state state;
	bool to_head; /* set by the caller: answers a HEAD, hence no body */
	int status;
	int64_t content_length; /* -1 = not sent */
	int64_t range_from;     /* of Content-Range, -1 = not sent */
	bool chunked;
	bool closes;       /* the server will close the connection */
	uint64_t received; /* body bytes so far */
	uint64_t left;     /* of the body or of this chunk */
	struct buf line;
	struct buf body; /* what on_body did not take, up to its cap */
	/* if set, gets the body instead of `body` */
	void (*on_body)(void *arg, uint64_t offset, const char *data, size_t len);
	void *on_body_arg;
};

void response_init(struct response *r);
void http_response_release(struct response *r);
/* Ready for the next response on the same connection; keeps the memory. */
void response_reset(struct response *r);

/*
 * Returns the number of bytes taken (all of them unless the response ended
 * before: the rest belongs to the next one) or -EPROTO.
 */
ssize_t response_feed(struct response *r, const char *data, size_t len) MUST_CHECK;
/* The peer closed. 0 if the response is complete by that, else -EPIPE. */
int response_eof(struct response *r) MUST_CHECK;

/*
 * Sends a request on a fresh connection and waits for the whole answer.
 * Returns 0, -ETIMEDOUT or another negative errno. Blocks up to timeout_ms.
 */
int http_exchange(const struct address *a, const char *request, size_t len, int timeout_ms,
		  struct response *r) MUST_CHECK;

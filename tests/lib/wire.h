/*
 * HTTP/1.1 as bytes on a socket, for test servers that pass messages on: a
 * buffered reader, the head of a message, and where its body ends. Requests and
 * answers alike; nothing of servers, rules or the API. Not thread-safe.
 */
#pragma once

#include <sys/types.h>

#include "buf.h"

enum { WIRE_SIZE = 64 * 1024 }; /* the reader's buffer, and the largest head */

struct wire {
	int fd; /* not owned */
	char *data;
	size_t start, end; /* bytes that came and were not taken yet */
};

/* Aborts when out of memory, as everything here does. */
void wire_init(struct wire *w, int fd);
void wire_release(struct wire *w);
/* Forgets what was buffered and reads from another socket. */
void wire_reset(struct wire *w, int fd);
/* One recv(). Returns how many bytes came, 0 at the end, -ENOBUFS if full, or another errno. */
ssize_t wire_fill(struct wire *w);
/* Sends everything, without SIGPIPE. For blocking sockets. */
int wire_send(int fd, const void *data, size_t len) MUST_CHECK;

struct wire_head {
	char *text; /* as it came, up to and with the empty line */
	size_t len;
	char *method, *target; /* of a request, else NULL */
	int status;            /* of an answer, else 0 */
	int64_t length;        /* -1: none given */
	bool chunked, close, expects_continue;
};

void wire_head_release(struct wire_head *h);
/* Takes a head from what is buffered. Returns 1, 0 if it is not complete yet, or -EBADMSG. */
int wire_take_head(struct wire *w, struct wire_head *ret);
/* The head's text with another Content-Length (it must have one). */
void wire_head_with_length(const struct wire_head *h, int64_t length, struct buf *to);
/* The value of a header in a text of "Name: value\r\n" lines, for the caller to free; or NULL. */
char *wire_header(const char *text, const char *name);

enum wire_framing { WIRE_LENGTH, WIRE_CHUNKED, WIRE_UNTIL_CLOSE };

/* How far a body has come. */
struct wire_body {
	enum wire_framing framing;
	bool done;
	uint64_t left; /* of the body or of this chunk */
	enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER } state;
	bool line_is_empty; /* CHUNK_TRAILER */
};

void wire_body_of_request(struct wire_body *b, const struct wire_head *h);
void wire_body_of_answer(struct wire_body *b, const struct wire_head *h, bool to_head_request);
/*
 * Returns how many of the bytes belong to the body, its framing included, or
 * -EBADMSG. content() gets what is inside the framing.
 */
ssize_t wire_body_scan(struct wire_body *b, const char *data, size_t len,
		       void (*content)(void *ctx, const char *data, size_t len), void *ctx);

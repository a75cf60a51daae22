/*
 * A plain visitor of the rogue server, for the tests of the test library: one
 * request by libcurl, or a socket to say and hear whatever one likes. What
 * asserts says so, and belongs to the main thread.
 */
#pragma once

#include <curl/curl.h>

#include "buf.h"
#include "rogue.h"

enum { LONG_MS = 20000 }; /* for what must happen, and soon does */

struct visit {
	CURLcode code;
	long status;
	uint64_t total;         /* bytes of body */
	struct buf body;        /* the first MiB of it */
	struct buf head;        /* likewise */
	uint64_t give_up_after; /* bytes of body; 0: never */
};

void visit_release(struct visit *v);
#define CLEANUP_VISIT CLEANUP(visit_release)

/* A request on a connection of its own; body NULL: GET. To be released. */
struct visit visit(struct rogue *r, const char *target, const char *body);
/* Asserts on how it ends. */
void visit_expect(struct rogue *r, const char *target, const char *body, long status,
		  const char *text);
void visit_fails(struct rogue *r, const char *target, const char *body, CURLcode code);

/* The same in steps: a handle, where it goes, other options, and then. */
CURL *visit_client(void);
void visit_point(CURL *h, const char *socket, const char *url, const char *target);
struct visit visit_perform(CURL *h, uint64_t give_up_after, long timeout_ms);

/* A connected socket. Asserts, as do the next two. */
int visit_dial(struct rogue *r);
void visit_say(int fd, const char *text);
/* Nothing more comes, and the connection has not ended. */
void visit_silence(int fd);
/*
 * Reads until the text has come (NULL: none), size is reached or the connection
 * ended. Returns how many bytes; they are NUL-terminated.
 */
size_t visit_hear(int fd, const char *until, char *to, size_t size);

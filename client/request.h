/*
 * One plain HTTP request, for servers that are no sandboxes but stand behind
 * them: what makes them and knows where they are. The server is a struct sandbox
 * all the same (its URL or socket, its connections and their end, the rules about
 * proxies and TLS); of what sandboxes understand nothing is sent.
 */
#pragma once

#include "sandbox.h"

struct request {
	const char *method; /* static */
	const char *target; /* "/path?query", percent-encoded; copied */
	const void *json;   /* the body; copied. NULL: none */
	size_t len;
	const char *const *headers; /* "Name: value", NULL at the end; copied. Or NULL */
	bool idempotent;            /* may be sent again, see exchange.h */
	bool slow;         /* the server may think for long: quick ones do not wait for it */
	size_t answer_max; /* bytes of an answer that is kept; 0: ANSWER_MAX */
	/*
	 * Optional, on the loop's thread: the bytes of a 200 as they come, which are not kept
	 * then. The call's timeout_ms counts silence, not the whole. Non-zero ends the request
	 * with it.
	 */
	int (*data)(void *ctx, const char *bytes, size_t len);
	void *ctx;
};

struct response {
	int status;
	struct buf body; /* NUL-terminated if there is any; may be modified */
};
void response_release(struct response *r);
#define CLEANUP_RESPONSE CLEANUP(response_release)

/*
 * The call ends with 0 when a complete answer came, whatever its status, and with
 * the transport's error otherwise.
 */
void sandbox_request(struct sandbox *sb, struct call *call, const struct request *request,
		     struct response *ret);

/*
 * What a failed answer's body says, in one line for people: "detail", "message" or
 * "error" of a JSON object, else the text itself. To be freed; NULL: nothing.
 */
char *response_words(const struct response *r);

/*
 * A plain request over a unix socket, without libcurl: that costs as much as all else
 * of a small read together, and copies what could be received where it belongs.
 * Only what every server does is done here: a head of HTTP/1.1 with the length of
 * the body, then the body. Whatever else comes is *unfit*: the connection is closed
 * and the request is libcurl's, which knows the rest. So only what may be sent twice is
 * asked for here. Loop thread only.
 */
#pragma once

#include "buf.h"
#include "loop.h"

struct wire;
struct wires; /* connections to one socket, and those of them that are idle */

enum { WIRE_UNFIT = 1 };

struct wire_user {
	/* Something has come: of the head a line, or bytes of the body. */
	void (*moved)(void *ctx);
	/*
	 * The next bytes of the body: 0, -EAGAIN to pause (they come again), or an
	 * errno that ends it. The head is known by then.
	 */
	int (*data)(void *ctx, const char *bytes, size_t len);
	/*
	 * Where they should be received, and how many fit. NULL: with 0 bytes, nowhere for now
	 * (as -EAGAIN); otherwise it does not matter.
	 */
	char *(*space)(void *ctx, size_t *ret_len);
	/*
	 * Once: 0: all has come; WIRE_UNFIT: nothing was given to data(), because the server
	 * answers in another way (then why is not NULL) or not at all; or an errno. The wire is
	 * still there: give it back with wire_drop().
	 */
	void (*over)(void *ctx, int err, const char *why);
};

int wires_new(struct loop *loop, const char *path, struct wires **ret) MUST_CHECK;
/* All wires must have been dropped. NULL is fine. */
void wires_free(struct wires *ws);

/*
 * Sends a request, its head and its body, and takes the memory it is in. NULL: it could not be
 * sent at once. What follows comes by the user's callbacks, from the loop.
 */
struct wire *wire_ask(struct wires *ws, struct buf *request, const struct wire_user *user,
		      void *ctx);
/* Ends it: the connection is kept if all has come, else closed. */
void wire_drop(struct wire *w);
/* After -EAGAIN from data(). Not from inside a callback. */
void wire_go_on(struct wire *w);

/* Of the answer, in data() and over(). */
int wire_status(const struct wire *w);
int64_t wire_length(const struct wire *w);
const char *wire_said(const struct wire *w, const char *header); /* or NULL */

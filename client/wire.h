/*
 * A plain request over a unix socket or TCP, without libcurl: that costs as much as all else
 * of a small read together, and copies what could be received where it belongs, or sent from
 * the file it is in.
 * Only what every server does is done here: a head of HTTP/1.1 with the length of
 * the body, then the body. Whatever else comes is *unfit*: the connection is closed
 * and the request is libcurl's, which knows the rest. So only what may be sent twice is
 * asked for here. Loop thread only.
 */
#pragma once

#include <sys/socket.h>

#include "buf.h"
#include "loop.h"

struct wire;
struct wires; /* connections to one address, and those of them that are idle */

struct wire_address {
	struct sockaddr_storage addr;
	socklen_t len; /* 0: it is not known */
};

enum { WIRE_UNFIT = 1 };

/* The next of a body: bytes, valid until more is asked for, and behind them some of a file. */
struct wire_piece {
	const char *bytes;
	size_t len;
	size_t lent;
	uint64_t lent_at;
};

struct wire_user {
	/* So many bytes of a body have gone. */
	void (*sent)(void *ctx, size_t n);
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
	/*
	 * NULL: the request is whole. Otherwise a body follows it: 1 and the next piece, not empty,
	 * 0 behind the last one, -EAGAIN to pause, or an errno that ends it. Comes from the
	 * loop.
	 */
	int (*feed)(void *ctx, struct wire_piece *ret);
	/*
	 * With feed(): the file that has what was lent, and where in it the byte `at` is. Asked
	 * each time; -1: it is gone, which ends it. The bytes must not change until all is over,
	 * unless it does not matter what is sent.
	 */
	int (*file)(void *ctx, uint64_t at, off_t *ret_offset);
};

/* The address is the owner's, and may change: that counts for new connections. */
int wires_new(struct loop *loop, const struct wire_address *at, struct wires **ret) MUST_CHECK;
/* All wires must have been dropped. NULL is fine. */
void wires_free(struct wires *ws);

/*
 * Sends a request, its head and, unless that is fed, its body, and takes the memory it is in. NULL:
 * it cannot be sent in one go. What follows comes by the user's callbacks, from the loop.
 */
struct wire *wire_ask(struct wires *ws, struct buf *request, const struct wire_user *user,
		      void *ctx);
/* Ends it: the connection is kept if all has come, else closed. */
void wire_drop(struct wire *w);
/* After -EAGAIN from data() or feed(). Not from inside a callback. */
void wire_go_on(struct wire *w);

/* Of the answer, in data() and over(). */
int wire_status(const struct wire *w);
int64_t wire_length(const struct wire *w);
const char *wire_said(const struct wire *w, const char *header); /* or NULL */

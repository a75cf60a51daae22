/*
 * A streaming reader of multipart/form-data (RFC 7578). It is fed the body in
 * pieces cut anywhere and calls back with each part's name and bytes; the
 * bytes are passed on where they lie, not copied. Pure: no I/O, no server
 * state. One owner at a time.
 */
#pragma once

#include "buf.h"

enum {
	MULTIPART_MAX_BOUNDARY = 200, /* RFC 2046 allows 70 */
	MULTIPART_MAX_HEADERS = 16 * 1024,
	MULTIPART_MAX_PARTS = 100,
};

/* Each returns 0 or a negative errno, which ends the parsing. */
struct multipart_ops {
	/* A part begins. filename is NULL unless given; both end with the call. */
	int (*part)(void *ctx, const char *name, const char *filename);
	int (*data)(void *ctx, const char *data, size_t len);
	int (*part_end)(void *ctx);
};

enum multipart_state {
	MULTIPART_PREAMBLE,
	MULTIPART_DATA,
	MULTIPART_AFTER_DELIM, /* between a delimiter and the end of its line */
	MULTIPART_HEADERS,
	MULTIPART_EPILOGUE,
};

struct multipart {
	const struct multipart_ops *ops;
	void *ctx;
	enum multipart_state state;
	bool in_part; /* ops->part was called and ops->part_end not yet */
	int error;    /* sticky */
	unsigned parts;
	char delim[MULTIPART_MAX_BOUNDARY + 8]; /* "\r\n--boundary" */
	size_t delim_len;
	size_t matched; /* bytes of delim seen at the end of the last piece */
	char after[64]; /* seen after a delimiter, not yet understood */
	size_t after_len;
	struct buf headers;
};

/*
 * Starts with the request's Content-Type. Returns 0, or -EINVAL when that is
 * not multipart/form-data with a usable boundary. ctx is passed to ops.
 */
int multipart_init(struct multipart *m, const char *content_type, const struct multipart_ops *ops,
		   void *ctx) MUST_CHECK;
void multipart_release(struct multipart *m);

/*
 * Takes the next piece. Returns 0, -EINVAL (malformed), -E2BIG (too many parts
 * or headers too long), -ENOMEM, or what a callback returned; sticky.
 */
int multipart_feed(struct multipart *m, const char *data, size_t len) MUST_CHECK;

/* At the end of the body: 0, the sticky error, or -EINVAL when it was cut short. */
int multipart_finish(const struct multipart *m) MUST_CHECK;

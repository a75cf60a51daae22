/*
 * Private to the mixed load: ops.c and answers.c know the API (what to ask and
 * what to expect), mix.c knows connections (when to send, when to hang up).
 */
#pragma once

#include "http.h"
#include "mixload.h"

enum {
	FILES_PER_CLIENT = 6,
	MAX_RETIRED = 64,
	MAX_PIPELINE = 8,
	MAX_FILE = 4 * 1024 * 1024,
	BIG_FILE = 8 * 1024 * 1024,
};

/* What a file holds: a function of seed and offset, so nothing is kept. */
struct content {
	uint64_t seed;
	uint64_t size;
	bool text;
};

struct file {
	unsigned number; /* of its name; a retired name is never used again */
	bool known;      /* the server confirmed `content` */
	struct content content;
};

enum feature {
	HAS_BASH = 1,
	HAS_WATCH = 2,
	HAS_STAT = 4, /* and mkdir, delete, HEAD, Range */
	HAS_GREP = 8,
};

enum verify {
	VERIFY_NOTHING,
	VERIFY_JSON,    /* the body is JSON */
	VERIFY_SUCCESS, /* and says success: true; content then becomes known */
	VERIFY_BYTES,   /* the body is this part of the content */
	VERIFY_LENGTH,  /* Content-Length is the content's */
	VERIFY_TEXT,    /* data.content of the JSON is the content */
	VERIFY_MARKER,  /* if the command completed, its output has the marker */
	VERIFY_WATCH,   /* remember the watcher's id */
};

enum expect_flag {
	EXPECT_OK = 1,        /* any status but 200 (or 206) is an error */
	EXPECT_MISSING = 2,   /* the status must be 404 */
	EXPECT_ANY = 4,       /* malformed: an error status or a hang-up will do */
	EXPECT_STREAM = 8,    /* does not end by itself: we hang up */
	EXPECT_MAY_5XX = 16,  /* a generation answers 500 or 503 by design */
	EXPECT_MAY_CUT = 32,  /* raced by a writer: the body may be cut */
	EXPECT_MUTATES = 64,  /* `file` is unknown until it is answered */
	EXPECT_TO_HEAD = 128, /* a HEAD: no body follows */
};

struct op;

struct expect {
	const struct op *op;
	unsigned flags;
	enum verify verify;
	struct file *file; /* of this client, or NULL */
	struct content content;
	uint64_t from; /* VERIFY_BYTES: asked for [from, to) */
	uint64_t to;
	char marker[24];
	bool wrong;                      /* some byte was not as expected */
	const struct response *response; /* the answer arriving, for op_body() */
};

struct client {
	unsigned number;
	uint64_t random; /* state of its generator */
	const struct options *o;
	unsigned features;
	struct file files[FILES_PER_CLIENT];
	unsigned next_name;
	struct {
		unsigned number;
		int64_t at_ms;
	} retired[MAX_RETIRED];
	unsigned retired_count;
	char watch[33]; /* "" = none */
	bool last;      /* the request being built is the last on its connection */
	struct buf out; /* bytes to send on this connection */
};

struct op {
	const char *name;
	unsigned weight;
	unsigned needs; /* features */
	void (*build)(struct client *c, struct expect *e);
};

extern const struct op ops[];
extern const size_t ops_count;

void content_fill(const struct content *k, uint64_t offset, char *out, size_t len);
bool content_matches(const struct content *k, uint64_t offset, const char *data, size_t len);
/* The file that all clients download and nobody changes. */
struct content big_content(const struct options *o);
void big_path(const struct options *o, struct buf *b);

uint64_t client_random(struct client *c);
/* 0 .. n-1 */
unsigned pick(struct client *c, unsigned n);

/* Appends one request to c->out and says what its answer must be. */
void op_build(struct client *c, struct expect *e);
/* Appends the upload of a content to c->out. */
void op_put_upload(struct client *c, const char *path, const struct content *k);
/* Takes a piece of a body, for answers that are verified as they arrive. */
void op_body(void *expect, uint64_t offset, const char *data, size_t len);
bool op_wants_body(const struct expect *e);
/*
 * A complete answer came. Returns NULL, or what is wrong with it (static).
 * Modifies the kept body.
 */
const char *op_check(struct client *c, struct expect *e, struct response *r);
/* No complete answer will come: whatever it did to a file is unknown. */
void op_forget(struct client *c, struct expect *e);

/* Finds out what the server can do, uploads the shared file. Blocks. */
int ops_setup(const struct options *o, unsigned *ret_features) MUST_CHECK;
/* Removes what the load left behind. Blocks. */
void ops_cleanup(const struct options *o, unsigned features);

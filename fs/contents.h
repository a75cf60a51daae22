/*
 * Contents of small files, kept in memory with the version that they are of:
 * fetched ahead of a reader who goes through a directory (ahead.h), and good for
 * whoever opens that version. By thread and path, as there may be no node
 * yet. That the file is still that version is for its user to know, so nothing here
 * is ever wrong, only useless. Bounded: a quarter of `memory`. Loop thread only.
 */
#pragma once

#include "node.h"
#include "read_op.h"

enum { CONTENT_MAX = 128 * 1024 }; /* what a small file is */

struct content {
	struct fs *fs;
	enum { CONTENT_COMING, CONTENT_HERE, CONTENT_FAILED } state;
	struct attr version;
	char *bytes;   /* version.size of them, once here */
	unsigned walk; /* for whom it was fetched: ahead.c */
	bool used;     /* somebody opened it */

	/* private */
	unsigned refs;
	bool listed; /* to be found; else only its users have it */
	int64_t made_ms;
	struct read_op *waiting;
	struct content *prev, *next; /* one of the two lists */
	UT_hash_handle hh;
	char *key; /* the thread's id, a slash, the path */
	size_t key_len;
};

/* The end: nobody has one open or fetches one any more. */
void contents_release(struct fs *fs);

/* The content, coming or here, of the version that the node has now; NULL: none. Not counted. */
struct content *contents_of(struct node *n);
/* Whether there is one of that version; of a path below the thread's root. */
bool contents_have(struct thread *t, const char *path, const struct attr *version);
/*
 * One will come: the caller fetches it, and says how that ended. Counted. NULL: there is no
 * room without giving up what is not used yet.
 */
struct content *contents_expect(struct thread *t, const char *path, const struct attr *version);
/* Copies the bytes, of which there must be version.size; answers who waits. */
void content_arrived(struct content *c, const char *bytes);
/* It will not come. */
void content_failed(struct content *c);

struct content *content_ref(struct content *c);
void content_unref(struct content *c); /* NULL is fine */
/* Somebody opened it: it is a candidate for being forgotten from now on. */
void content_use(struct content *c);

/* Answers, perhaps later; with -EAGAIN if it failed: read in another way. */
void content_read(struct content *c, struct read_op *op);
/* Whoever asked does not want it any more; done() is not called. */
void content_cancel(struct content *c, struct read_op *op);

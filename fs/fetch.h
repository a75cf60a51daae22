/*
 * One download of a piece of a file, [at, to), for a reader. It may be left
 * alone at any time: then it ends by itself. Loop thread only.
 *
 * A strict one is of exactly one version, and says so when it ends with 0. While
 * the thread is watched that is not asked of the sandbox (sandbox.h, download.watched)
 * but follows from having heard of no change: the node still has the attributes of the
 * version, and they are fresh. A
 * loose one is for files that grow all the time: it stops when it has its bytes
 * (`complete`), and its owner has to find out what they are worth.
 */
#pragma once

#include "node.h"
#include "remote.h"
#include "thread.h"

enum { ETAG_MAX = 72 };

struct fetch {
	/* set by the owner before fetch_begin() */
	struct attr version;
	bool loose;
	uint64_t at;   /* the next byte */
	uint64_t to;   /* the end; of a strict one without `bounded` that of the file */
	uint64_t from; /* bytes before are had already: they are not taken, but */
	char *known;   /* of them these are compared (taken over); or NULL */
	size_t known_len;
	uint64_t known_at;
	bool bounded; /* only these bytes are asked for */
	/*
	 * What the server calls the version, ETAG_MAX bytes of the owner's; "": not known yet,
	 * then it is put there. A server that calls it otherwise ends it with -ESTALE.
	 */
	char *etag;
	/* Takes what lies at f->at: 0, or -EAGAIN to pause, or an errno that ends it. */
	int (*take)(struct fetch *f, const char *bytes, size_t len);
	/* Where they should be received, so that take() need not copy them: sandbox.h. Or NULL. */
	char *(*space)(struct fetch *f, size_t *ret_len);
	void (*moved)(struct fetch *f);          /* some were taken */
	void (*ended)(struct fetch *f, int err); /* once; not if it was left alone */
	void *owner;                             /* NULL: it was left alone */

	/* to be looked at */
	bool paused;
	uint64_t taken; /* bytes */
	bool complete;  /* a loose one has all */
	bool differs;   /* what was known is not so any more: ended with -ECANCELED */
	bool ranging;   /* it counts on the server's ranges */
	bool unranged;  /* the server has no ranges, and that is news: likewise */
	bool unsure;    /* a strict one ended with 0, but something was heard of the file meanwhile:
			   look at it before you believe that */

	/* private */
	struct remote remote;
	bool watched;      /* instead of the proof that what came is of the version */
	struct node *node; /* counted */
	struct transfer transfer;
};

/* From `at` on; listed in .ctl/transfers if it is to be seen. The memory is on the heap. */
void fetch_begin(struct fetch *f, struct node *n, bool seen);
void fetch_go_on(struct fetch *f);
/* Cancels and forgets it: it frees itself. NULL is fine. */
void fetch_leave(struct fetch *f);

/*
 * Open files of sandboxes: who has what open, and whether its bytes come from
 * the sandbox (reader.h) or from what is being written here (stage.h).
 * Loop thread only.
 */
#pragma once

#include "node.h"

struct content;
struct reader;
struct trip;

struct handle {
	struct node *node; /* counted */
	int flags;         /* of open(2) */
	bool writes;
	bool wrote; /* or emptied it */
	int64_t opened_ms;
	bool made;         /* the file, which may be in the sandbox only when this is closed */
	bool direct_reads; /* past the kernel's pages */
	bool direct;       /* writes past the kernel's pages: see has_direct_writer() in file.c */
	struct content *content; /* counted; serves it while the file is that version; or NULL */
	uint64_t content_end;    /* so far that was handed out */
	int64_t content_ms;      /* when some was last */
	struct reader *reader;   /* NULL: not needed yet */
	struct attr pages;       /* the version that the kernel had pages of; mode 0: none */
	int64_t pages_ms;        /* when that was */
	unsigned reading;        /* reads that wait for it */
	bool reader_old; /* the file was written here since: to be replaced when nobody waits */
	struct handle *prev, *next; /* node->handles */
};

/* The node's content, if it is here or coming, else a reader; who may have pages needs none yet. */
int file_begin_reading(struct handle *h, bool has_pages) MUST_CHECK;
/* Has a reader afterwards, of the file as it is now. */
int file_turn_to_reader(struct handle *h) MUST_CHECK;
/* Makes n->stage for somebody who writes (only appends, if so). 0 if there is one. */
int file_stage(struct node *n, bool appends) MUST_CHECK;
/* No stage any more, if all that was written is in the sandbox and nobody waits for a read. */
void file_unstage(struct node *n);
/* The stage is about to go, with what could not be uploaded: its readers see what the sandbox has
 * from then on. False: somebody needs it. */
bool file_let_stage_go(struct node *n);
/*
 * Before the name of n goes away: what is open stays readable. done(ctx) once,
 * perhaps at once; what could not be had is logged, and lost for its readers.
 */
void file_keep(struct node *n, void (*done)(void *ctx), void *ctx);
/* The file was changed in the sandbox: what is held of it is compared before it is used again. */
void file_suspect(struct handle *h);
/* The name is gone. Detaches the node; what is staged belongs nowhere. */
void file_gone(struct node *n);
/*
 * Before n, or what is below it, gets another path: no upload is on its way there, and none
 * begins before the trip has ended. done(t, err) once, perhaps at once. With `born`, a file that
 * is not in the sandbox yet is there afterwards (or err says why not).
 */
void file_settle(struct trip *t, struct node *n, bool born, void (*done)(struct trip *t, int err));
/* The end of the mount: closes all that is open of it. What is not confirmed is kept for the next
 * one: 0, or why it could not be. */
int file_end(struct node *n) MUST_CHECK;
/* For the end of the mount: whether something is still to be uploaded. */
unsigned file_unfinished(struct fs *fs);

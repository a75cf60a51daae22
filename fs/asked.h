/*
 * What the kernel asks: of which kind a request is, how long the answers took, and
 * how many came at once from what is known here. Loop thread only.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "histogram.h"

struct fs;

enum asked_kind {
	ASKED_OTHER, /* poll, seek, … */
	ASKED_LOOKUP,
	ASKED_GETATTR,
	ASKED_SETATTR,
	ASKED_READLINK,
	ASKED_READDIR, /* opendir and releasedir, too */
	ASKED_NAMES,   /* making, moving, removing them */
	ASKED_OPEN,    /* and create */
	ASKED_READ,
	ASKED_WRITE,
	ASKED_CLOSE, /* flush and release: an upload ends here */
	ASKED_SYNC,
	ASKED_STATFS,
	ASKED_KINDS,
};

/* Whose file it is: a sandbox's, or one of ours (control files, the threads' directory). */
enum asked_class { ASKED_SANDBOX, ASKED_CONTROL, ASKED_CLASSES };

struct asked {
	/* the request that is being handled, or was last */
	uint64_t serial;
	enum asked_kind kind;
	enum asked_class class;
	fuse_ino_t ino;
	bool handling;

	struct histogram times[ASKED_CLASSES][ASKED_KINDS];
	/*
	 * Of files of sandboxes: answered while the request was being handled, so by nobody
	 * else; or not. The kernel's own cache answers before we are asked.
	 */
	uint64_t hits[ASKED_KINDS], misses[ASKED_KINDS];
};

const char *asked_name(enum asked_kind kind);
const char *asked_class_name(enum asked_class class);
/* Whether what is cached can answer it. */
bool asked_is_cacheable(enum asked_kind kind);

/* Around the handling of a request as it came from the kernel. */
void asked_begin(struct fs *fs, const struct fuse_buf *request);
void asked_end(struct fs *fs);

/*
 * Walking a directory tree by file descriptors, so that neither long paths
 * nor links swapped underfoot lead astray. Knows nothing of routes; runs on a
 * worker, blocks.
 */
#pragma once

#include <sys/stat.h>

#include "buf.h"

struct request;

enum {
	WALK_MAX_DEPTH = 64, /* directories below the root; each holds an fd */
	WALK_MAX_LINKS = 40, /* on one path, as in the kernel */
	WALK_MAX_ENTRIES = 2000000,
};

struct walk_entry {
	int dirfd;
	const char *name; /* in dirfd */
	const char *path; /* the root's path as the client wrote it, and the way down */
	const char *rel;  /* the part of path below the root */
	struct stat st;   /* of a link's target */
	bool is_link;
};

enum walk_next {
	WALK_ON,
	WALK_PRUNE, /* do not enter this directory */
	WALK_STOP,  /* enough */
};

struct walk {
	struct request *r;
	bool hidden;        /* visit names that start with a dot */
	bool follow;        /* enter directories through links */
	unsigned max_depth; /* 0 = only what is in the root */
	enum walk_next (*visit)(struct walk *w, const struct walk_entry *e);
	void *ctx;

	/* results */
	bool cut; /* something was left out because of a limit */

	/* private */
	struct buf path;
	size_t root_len;
	uint64_t entries;
};

/*
 * Visits everything below the directory rootfd (closed in any case; -1 is an
 * empty one), parents first, in the order of the disk. Dangling links, what
 * cannot be stat'ed and what is in unreadable directories are left out.
 * Returns 0; -ECANCELED when the client has gone; -ENOMEM.
 */
int walk(struct walk *w, int rootfd, const char *root_path) MUST_CHECK;

/* The path without trailing slashes, and one slash: what names are appended to. */
int walk_path_prefix(struct buf *b, const char *path) MUST_CHECK;

/*
 * Opens a directory to be walked. 0 or a negative errno; *ret_fd is -1 for a
 * directory that exists and may not be read, which counts as empty.
 */
int walk_open_dir(const char *path, int *ret_fd) MUST_CHECK;

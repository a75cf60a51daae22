/*
 * Finding files by a pattern with directories in it, as Python's glob.glob()
 * with recursive=True does: names that start with a dot are matched only by
 * patterns that do too, "**" is any number of directories, links are followed
 * where the pattern names a directory. Runs on a worker, blocks.
 */
#pragma once

#include "buf.h"

struct request;

struct glob_found {
	int dirfd;
	const char *name; /* in dirfd; "." for a directory itself ("a/", "a/" of "a/" "**") */
	const char *path; /* the root's path, as given, and the way down */
	const char *rel;  /* the part of path below the root */
};

enum { GLOB_MAX_NAMES = 128 };

struct glob_walk {
	struct request *r;
	bool hidden; /* "*" and "**" also match names that start with a dot */
	bool follow; /* "**" goes through links */
	/* 0 to go on, 1 to stop, or a negative errno */
	int (*found)(struct glob_walk *g, const struct glob_found *f);
	void *ctx;

	/* results */
	bool cut; /* something was left out because of a limit */

	/* private */
	struct {
		const char *p;
		size_t len;
	} names[GLOB_MAX_NAMES]; /* the pattern, split at slashes */
	size_t n;
	struct buf path;
	size_t root_len;
	uint64_t entries;
};

/*
 * Calls found for each match below the directory rootfd (closed in any case;
 * -1 is an empty one). A file can be found twice if the pattern holds several
 * "**". Returns 0; -E2BIG when the pattern has too many parts; -ECANCELED when
 * the client has gone; -ENOMEM; or what found returned.
 */
int glob_walk(struct glob_walk *g, int rootfd, const char *root_path,
	      const char *pattern) MUST_CHECK;

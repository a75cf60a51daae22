/*
 * Which mounts of ours this process sees, as the kernel lists them in
 * /proc/self/mountinfo. Looking there touches no filesystem, so a mount whose
 * daemon is dead or stuck cannot hold anybody up. Any thread; blocks briefly.
 */
#pragma once

#include <sys/types.h>

#include "util.h"

#define MOUNTS_TYPE "fuse.threadfs"

struct mount_entry {
	int id;
	dev_t dev;
	char *point;  /* absolute, as it is */
	char *type;   /* "fuse.threadfs" */
	char *source; /* as it was mounted */
	uid_t owner;  /* who mounted it; (uid_t)-1: not said */
};

struct mounts {
	struct mount_entry *list; /* in the order in which they were mounted */
	size_t count;
};

#define CLEANUP_MOUNTS CLEANUP(mounts_release)

/* Every mount there is, of all types. */
int mounts_read(struct mounts *ret) MUST_CHECK;
void mounts_release(struct mounts *m);
/* One line of mountinfo, which is changed; ret points into it. False: not understood. */
bool mounts_parse_line(char *line, struct mount_entry *ret);

/* What is mounted on top at exactly this absolute path; NULL: nothing. */
const struct mount_entry *mounts_at(const struct mounts *m, const char *path);
/* The mount that an absolute path without links lies in; NULL if there is none. */
const struct mount_entry *mounts_around(const struct mounts *m, const char *path);
/* The last mounted of those below an absolute path, not at it; NULL: none. */
const struct mount_entry *mounts_below(const struct mounts *m, const char *path);
const struct mount_entry *mounts_by_id(const struct mounts *m, int id);
/*
 * One of ours by its device, wherever it is by now; after: the one that was found before, or NULL.
 * There are several if it was bound elsewhere; the last mounted, which may cover others, is first.
 */
const struct mount_entry *mounts_of(const struct mounts *m, dev_t dev,
				    const struct mount_entry *after);
bool mount_entry_is_ours(const struct mount_entry *mount); /* NULL is fine: no */

/* Whether this absolute path is where a mount of ours is. */
bool mounts_is_ours(const char *path);

/*
 * Makes a path absolute and free of links. If its last component is a mount point
 * it is not touched. For the caller to free.
 */
int mounts_resolve(const struct mounts *m, const char *path, char **ret) MUST_CHECK;

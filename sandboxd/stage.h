/*
 * A file's new content on its way to the file. Staged, it goes into a file
 * without a name beside the target and is renamed over it when complete, so
 * that readers see the old or the new content and a process that is killed
 * leaves nothing. Where that cannot be, it ends up in the old file in place.
 */
#pragma once

#include <limits.h>
#include <sys/stat.h>

#include "util.h"

struct request;

struct stage {
	int fd;        /* to be written; -1 = none */
	bool in_place; /* fd is the target itself */
	bool replaces; /* an existing file, which is old */
	struct stat old;
	const char *kind;      /* goes into the name */
	char target[PATH_MAX]; /* links followed */
	char part[PATH_MAX];   /* fd's name, to be renamed or removed, or "" */
};

/*
 * Opens s->fd for the new content of a file, making the directories above it;
 * 0 or a negative errno. EISDIR or EINVAL for what is no regular file, EACCES
 * for one that may not be written. Ended by stage_put or stage_release. kind is
 * a literal for the staged file's name: "upload" or "write".
 */
int stage_open(struct stage *s, const char *kind, const char *path) MUST_CHECK;

/* The same without staging; flags is O_TRUNC or O_APPEND. Opens any kind of file. */
int stage_open_in_place(struct stage *s, const char *path, int flags) MUST_CHECK;

/*
 * Stages fd, which has no name but content already. Takes fd, unless it fails
 * because fd is on another filesystem, or as stage_open does.
 */
int stage_adopt(struct stage *s, const char *kind, const char *path, int fd) MUST_CHECK;

/* Makes what was written the content of the target, unless r's client has left (ECANCELED); r may
 * be NULL. Releases s in any case. */
int stage_put(struct stage *s, const struct request *r) MUST_CHECK;

/* Drops what was staged. Harmless after stage_put. */
void stage_release(struct stage *s);

/* Copies all of from, until r's client has gone (ECANCELED); r may be NULL. */
int stage_copy(struct request *r, int from, int to) MUST_CHECK;

/*
 * The directories that one watcher watches, found by watch descriptor and by
 * place. A directory knows its parent and its name only, so renaming one
 * moves everything below it at no cost. Pure data: no system calls.
 * Not thread-safe; one owner at a time.
 */
#pragma once

#include <uthash.h>

#include "util.h"

struct wdir {
	int wd;
	bool queued;         /* in the list of directories to read */
	bool postponed;      /* in the list of those that were not at their place */
	bool report;         /* when read: what is found there is news */
	struct wdir *parent; /* NULL: the root */
	struct wdir *children, *prev, *next;
	struct wdir *scan_prev, *scan_next;
	struct wdir_key *key; /* parent and name; NULL for the root */
	UT_hash_handle by_wd, by_key;
};

struct wtree {
	struct wdir *root;
	struct wdir *by_wd, *by_key;
};

/*
 * Adds a directory; parent and name are NULL for the root. Neither wd nor
 * place may be taken. Returns NULL without memory.
 */
struct wdir *wtree_add(struct wtree *t, int wd, struct wdir *parent, const char *name);
/*
 * Moves d with all below it to a place that is free. Returns 0, -ELOOP if
 * that is below d itself, or -ENOMEM.
 */
int wtree_move(struct wtree *t, struct wdir *d, struct wdir *parent, const char *name) MUST_CHECK;
/* Removes and frees a directory that has no children. */
void wtree_remove(struct wtree *t, struct wdir *d);
/* A directory without children at or below d. */
struct wdir *wtree_leaf(struct wdir *d);

struct wdir *wtree_find(const struct wtree *t, int wd);
struct wdir *wtree_child(const struct wtree *t, const struct wdir *parent, const char *name);

/*
 * Writes the path from the root of name in d (name NULL: of d itself) to out,
 * PATH_MAX bytes; "" is the root. Returns 0 or -ENAMETOOLONG.
 */
int wtree_path(const struct wdir *d, const char *name, char *out) MUST_CHECK;

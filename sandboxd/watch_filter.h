/*
 * Which names a watcher cares about: one file, or all but the excluded ones,
 * or only those that match the patterns to include. Pure; immutable after
 * init.
 */
#pragma once

#include <limits.h>

#include "util.h"

struct watch_filter {
	char only[NAME_MAX + 1]; /* the one file, or "" */
	char **exclude, **include;
	size_t n_exclude, n_include;
};

/* Copies the patterns. Returns 0 or -ENOMEM; release in any case. */
int watch_filter_init(struct watch_filter *f, const char *const *exclude, size_t n_exclude,
		      const char *const *include, size_t n_include) MUST_CHECK;
void watch_filter_release(struct watch_filter *f);

/* An excluded directory is not looked into. */
bool watch_excludes(const struct watch_filter *f, const char *name);
/* Not excluded, and the patterns to include (none = everything) match. */
bool watch_wants(const struct watch_filter *f, const char *name);

/*
 * One watcher: a directory tree (or one file) watched with inotify, its
 * events debounced, numbered and kept for clients to read. Knows nothing of
 * HTTP, ids or leases. Loop thread only; never blocks for long: big trees are
 * read in steps, and the kernel's queue is drained piece by piece.
 *
 * What is watched is found once, when the watcher is made: symbolic links in
 * the path are resolved then. If it is deleted or moved away, the watcher
 * reports that, looks for its return once a second, and then reports what is
 * there as created.
 */
#pragma once

#include <ev.h>

#include "watch_event.h"

struct watcher;

/* What all watchers have in common; it must outlive them. */
struct watcher_shared {
	uint64_t seq;    /* of the last event */
	size_t log_pool; /* see struct evlog */
};

/* Patterns are shell patterns for base names. */
struct watcher_config {
	const char *path; /* as this process sees it */
	bool recursive;
	unsigned debounce_ms;
	const char *const *exclude;
	size_t n_exclude;
	const char *const *include; /* none = everything */
	size_t n_include;
};

struct watcher_ops {
	/*
	 * Once, after watcher_new() has returned: everything is watched (0), or
	 * it is not to be (negative errno). May free the watcher.
	 */
	void (*armed)(void *ctx, int error);
	/* There are new events, or some were lost. */
	void (*news)(void *ctx);
};

/*
 * The configuration is copied. Returns 0; -ENOENT and the like when the path
 * cannot be watched; -EMFILE when the kernel has no inotify instance left.
 */
int watcher_new(struct ev_loop *loop, const struct watcher_config *cfg,
		struct watcher_shared *shared, const struct watcher_ops *ops, void *ctx,
		struct watcher **ret) MUST_CHECK;
/* Accepts NULL. */
void watcher_free(struct watcher *w);

const struct evlog *watcher_log(const struct watcher *w);

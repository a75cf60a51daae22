/*
 * The inside of a watcher, shared by watcher.c (events) and watcher_dirs.c
 * (directories) only. Loop thread only.
 */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <sys/inotify.h>

#include "watch_filter.h"
#include "watch_tree.h"
#include "watcher.h"

enum { WATCHER_READ_SIZE = 32 * 1024 }; /* of the kernel's queue per turn of the loop */

#define WATCH_MASK                                                                                 \
	(IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |          \
	 IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW |               \
	 IN_EXCL_UNLINK)

enum state {
	STATE_STARTING, /* the first walk; armed() is still to come */
	STATE_RUNNING,
	STATE_RESYNC, /* events were lost; waiting to walk again, or walking */
	STATE_LOST,   /* the root is gone */
};

struct watcher {
	struct ev_loop *loop;
	const struct watcher_ops *ops;
	void *ctx;
	struct watcher_shared *shared;

	/* immutable after init */
	char dir[PATH_MAX]; /* the root, or the directory of the watched file; "" = "/" */
	struct watch_filter filter;
	bool recursive;
	double debounce_s;

	enum state state;
	int fd; /* inotify; -1 while the root is gone */
	dev_t dev;
	ino_t ino; /* of dir */
	struct wtree tree;
	struct pending pending;
	struct evlog log;

	ev_io io;
	ev_timer flush;
	size_t flush_left;      /* pending events that are due */
	ev_timer pair;          /* waits for the other half of a rename */
	ev_timer retry;         /* arms again after a loss */
	ev_timer step;          /* goes on reading directories */
	struct wdir *queue;     /* directories to read */
	struct wdir *postponed; /* those that were not found at their place */
	struct wdir *reading;
	DIR *stream; /* of reading */

	bool warned; /* that not everything can be watched */
	size_t buf_len;
	size_t settled; /* bytes of buf for which the wait for other halves is over */
	char buf[WATCHER_READ_SIZE] __attribute__((aligned(__alignof__(struct inotify_event))));
};

/* ---- watcher.c ---- */

/* Whether directories of that name are looked into. */
bool watcher_descends(const struct watcher *w, const char *name);
/* Where a directory of the table is. PATH_MAX bytes; 0 or -ENAMETOOLONG. */
int watcher_real_dir(const struct watcher *w, const char *rel, char *out) MUST_CHECK;
/* So much is pending that nothing more is taken in. */
bool watcher_choked(const struct watcher *w);
/* Goes on with what waits while too much is pending. */
void watcher_resume(struct watcher *w);
/* Starts a timer that does not run yet. */
void watcher_timer(struct watcher *w, ev_timer *t, double seconds);
/* Something happened to name in d (NULL: d itself). */
void watcher_note(struct watcher *w, enum watch_kind kind, const struct wdir *d, const char *name,
		  bool is_dir);
/* Events were lost: whoever has not read on from here has to look at everything. */
void watcher_overflow(struct watcher *w);

/* ---- watcher_dirs.c ---- */

/* Takes d, which has no children, out of the table. */
void watcher_forget(struct watcher *w, struct wdir *d);
/* Stops watching d and all below it. */
void watcher_drop(struct watcher *w, struct wdir *d);
void watcher_drop_child(struct watcher *w, struct wdir *parent, const char *name);
/* d is to be read; report: what is found there is news. */
void watcher_enqueue(struct watcher *w, struct wdir *d, bool report);
/* Something was moved: what could not be read may be found by now. */
void watcher_retry_postponed(struct watcher *w);
/*
 * Records that d is now at parent/name, in the place of what the table has
 * there. Returns -ELOOP if that is impossible, because the table is stale.
 */
int watcher_move_dir(struct watcher *w, struct wdir *d, struct wdir *parent,
		     const char *name) MUST_CHECK;
/* Places a directory that an event told of. */
void watcher_follow(struct watcher *w, struct wdir *parent, const char *name);
/* The step timer's callback: reads directories for a few milliseconds. */
void watcher_on_step(struct ev_loop *loop, ev_timer *t, int revents);

/*
 * What the status files show: everything that the mount and its provider know at
 * one moment, from memory alone; and the forms in which it is shown. To be
 * printed before the loop goes on: it points into the mount. Loop thread only.
 */
#pragma once

#include "buf.h"
#include "fs.h"
#include "ledger.h"

/* Content that is staged here and not confirmed by the sandbox. */
struct pending {
	const struct thread *thread; /* NULL: nobody has used it */
	char *path;                  /* below the thread's root */
	uint64_t bytes;
	char record[LEDGER_NAME + 1]; /* under the cache directory; "": none yet */
	const char *state;            /* in words */
	int error;                    /* of the last try; 0: none failed */
	const char *left;             /* by an earlier daemon: the thread's id; NULL: it was not */
};

struct thread_view {
	const struct tenant_status *tenant;
	const struct thread *thread; /* NULL: the mount has not used it, or it is another user's */
	/* the later one of the thread's and the provider's; 0: none */
	int error;
	const char *message; /* or NULL */
	double error_wall;
};

struct snapshot {
	struct fs *fs;
	struct tenant_list tenants;
	struct thread_view *threads; /* sorted by user and thread */
	size_t count;
	unsigned states[TENANT_STATES]; /* how many of them */
	struct pending *pending;
	size_t npending;
	uint64_t pending_bytes;
	double now_wall, uptime_s;
};
#define CLEANUP_SNAPSHOT CLEANUP(snapshot_release)

/* Everything; or, with `only`, what is about that thread. Never waits for a network. */
int snapshot_take(struct snapshot *s, struct fs *fs, const struct thread *only) MUST_CHECK;
void snapshot_release(struct snapshot *s);

/* Each appends; errors are the buffer's. status_show.c, status_json.c, metrics.c */
void status_show(const struct snapshot *s, struct buf *to);
void status_show_thread(const struct snapshot *s, const struct thread_view *v, struct buf *to);
void status_json(const struct snapshot *s, struct buf *to);
void status_json_thread(const struct snapshot *s, const struct thread_view *v, struct buf *to);
void metrics_print(const struct snapshot *s, struct buf *to);

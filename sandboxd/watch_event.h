/*
 * What happened to paths: raw events gather in a pending list, where they are
 * coalesced until the debounce time is over, and end in a log with bounds,
 * from which clients read by sequence number. Pure data: no system calls, no
 * inotify, no HTTP. Not thread-safe; one owner at a time.
 *
 * Paths are relative to the root of the watch; "" is the root itself.
 */
#pragma once

#include <sys/stat.h>
#include <uthash.h>

#include "util.h"

enum watch_kind {
	WATCH_CREATE,
	WATCH_WRITE,
	WATCH_REMOVE,
	WATCH_RENAME,
	WATCH_CHMOD,
	WATCH_KINDS,
};

const char *watch_kind_name(enum watch_kind kind);
/* Returns 0 or -EINVAL. */
int watch_kind_parse(const char *name, enum watch_kind *ret) MUST_CHECK;

/* ---- gathering ---- */

struct pending_event {
	enum watch_kind kind;
	bool is_dir;
	bool fresh;       /* the first thing seen of the path was its creation */
	bool overtaken;   /* by a rename or a return: the path may be something else now */
	unsigned epoch;   /* of the pending list when it was added */
	double timestamp; /* wall time of the first raw event */
	const char *old;  /* of a rename, else NULL; allocated with the struct */
	struct pending_event *prev, *next;
	UT_hash_handle hh; /* only the latest event of a path is in the hash */
	char path[];
};

struct pending {
	struct pending_event *list; /* in order of first occurrence */
	struct pending_event *by_path;
	size_t count;
	size_t bytes;
	unsigned epoch;
};

enum {
	PENDING_MAX_EVENTS = 10000,
	PENDING_MAX_BYTES = 2 * 1024 * 1024,
};

/* The owner should take events out before it adds more: adding sets no bounds. */
bool pending_full(const struct pending *p);

/*
 * Notes that something happened to path, merging it into what is pending for
 * the path. The result, reported in order, is right for a client that only
 * looks at paths as well as for one that moves what it knows on a rename.
 * Returns 0 or -ENOMEM.
 */
int pending_add(struct pending *p, enum watch_kind kind, const char *path, bool is_dir,
		double timestamp) MUST_CHECK;
/* The same for a rename, which is never merged with anything. */
int pending_rename(struct pending *p, const char *old, const char *path, bool is_dir,
		   double timestamp) MUST_CHECK;
/* Takes out the oldest event (to be freed by the caller), or NULL. */
struct pending_event *pending_pop(struct pending *p);
void pending_clear(struct pending *p);

/* ---- keeping ---- */

struct watch_event {
	uint64_t seq;
	enum watch_kind kind;
	bool is_dir;
	bool has_stat; /* mtime, size and inode are known */
	double timestamp;
	double mtime;
	int64_t size;
	uint64_t inode;
	const char *old; /* NULL, or allocated with the struct */
	char path[];
};

struct evlog {
	struct watch_event **ring;
	size_t cap, head, count;
	size_t bytes;
	uint64_t gap; /* events up to this number were lost; 0 = none */
	size_t *pool; /* what all logs with this pool have taken from it; or NULL */
};

/*
 * A log may always keep EVLOG_OWN_BYTES; what it keeps beyond is taken from
 * the pool. So 128 of them have 64 MiB at most.
 */
enum {
	EVLOG_MAX_EVENTS = 10000,
	EVLOG_MAX_BYTES = 8 * 1024 * 1024,
	EVLOG_OWN_BYTES = 256 * 1024,
	EVLOG_POOL_BYTES = 32 * 1024 * 1024,
};

/* Copies the paths; the rest is the caller's to fill in. NULL without memory. */
struct watch_event *watch_event_new(const char *path, const char *old);

void watch_event_set_stat(struct watch_event *e, const struct stat *st);

/* Takes e, whose seq is higher than all before; old ones give way to it and
 * leave a gap, as does e without memory. */
void evlog_push(struct evlog *l, struct watch_event *e);
/* Events got lost: forgets everything up to seq, which no event has. */
void evlog_overflow(struct evlog *l, uint64_t seq);
/* The oldest event with a number higher than cursor, or NULL. */
const struct watch_event *evlog_after(const struct evlog *l, uint64_t cursor);
void evlog_release(struct evlog *l);

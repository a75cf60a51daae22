/*
 * The ledger: files under the cache directory (pending/) with content that a
 * sandbox has not confirmed yet, each behind its record (ledger_record.h), so that it outlives
 * the daemon. One file is one record; its name is random; whoever works on it
 * holds its lock (flock), which dies with him.
 *
 * A file is made without a name and gets it when the record is in it: there is none without a
 * record. Nothing here waits for a network; the host's disk is touched. Any thread, one at a
 * time for each record.
 */
#pragma once

#include "buf.h"
#include "ledger_record.h"
#include "util.h"
#include "uuid.h"

#define LEDGER_DIR "pending"

enum {
	LEDGER_NAME = UUID_LEN, /* characters of a name, which is one */
	LEDGER_RECORDS = 100000 /* so many are looked at */
};

/* One that we hold. The descriptor is the owner's, and has the lock once it has a name. */
struct ledger_entry {
	int dir, fd;
	char name[LEDGER_NAME + 1]; /* "": none yet */
	uint64_t seq;
	size_t last_len;
	char *last; /* what was written last, but for its number */
};

/* The directory, made 0700 if it is missing: a descriptor or a negative errno (-ELOOP: a link,
 * -EPERM: others may write there, or it is another's). */
int ledger_open(int cache, bool make) MUST_CHECK;

/* The boot id of the running kernel, as records have it: UUID_LEN characters and a NUL, or "" if it
 * is not known. */
void ledger_boot(char *out);

/* fd: a file without a name, its content behind LEDGER_HEAD. */
int ledger_entry_new(int dir, int fd, struct ledger_entry **ret) MUST_CHECK;
/* Writes the record down if it is another one than before; the first time the file gets its
 * name. -E2BIG: it cannot be. ret_changed: whether it was written. */
int ledger_entry_write(struct ledger_entry *e, const struct ledger_record *rec,
		       bool *ret_changed) MUST_CHECK;
/* It has been confirmed, or is not wanted: the name goes. NULL is fine. */
void ledger_entry_drop(struct ledger_entry *e);
/* The name stays for the next one; the lock goes with the descriptor. NULL is fine. */
void ledger_entry_keep(struct ledger_entry *e);

/* ---- what is there ---- */

/* One that was found. */
struct ledger_found {
	char name[256]; /* of LEDGER_NAME characters, unless it is refused */
	struct ledger_record rec;
	uint64_t seq;
	uint64_t size; /* of the content */
	int fd;        /* open; with the lock unless busy */
	bool busy;     /* somebody has it */
};
void ledger_found_release(struct ledger_found *f);

/*
 * Every name there: each(ctx, f, err, why), err 0 or why it is refused (then f has its name only).
 * What it wants to keep it takes out of f. Returns 0 or a negative errno, also of each(). Nothing
 * is changed on disk.
 */
int ledger_scan(int dir, int (*each)(void *ctx, struct ledger_found *f, int err, const char *why),
		void *ctx) MUST_CHECK;
/* Whether it may be the beginning of a record's name. */
bool ledger_is_name(const char *text);
/* One by its name, or by how it begins. -ENOENT, -EEXIST: several begin so, -EINVAL: not a name,
 * or what is wrong with it. */
int ledger_find(int dir, const char *name, struct ledger_found *ret) MUST_CHECK;
/* A record that was found and is not busy becomes one that we hold: its descriptor goes to
 * the caller, f is empty but for the record. */
int ledger_take(int dir, struct ledger_found *f, struct ledger_entry **ret) MUST_CHECK;

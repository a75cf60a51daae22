/*
 * What outlives the daemon: the stages of a mount that have something which no
 * sandbox has confirmed are looked at ten times a second, and what is older than that is written
 * down (ledger.h); what an earlier daemon left is taken up by salvage.h. What is
 * confirmed sooner costs nothing. Loop thread only, but for the first two.
 *
 * Promised: what write(2) took a quarter of a second ago outlives a kill of the
 * daemon. It is on the host's disk, for a failure of the power, 5 s later, and at once
 * when an upload has failed or the mount ends: first the content, then a record that says so
 * (ledger_is_certain()).
 */
#pragma once

#include <ev.h>

#include "buf.h"
#include "fs.h"
#include "uuid.h"

struct stage;
struct salvage;
struct salvage_hold;

struct staging {
	struct fs *fs;
	int dir;
	char *source; /* what is mounted, as records name it */
	char boot[UUID_LEN + 1];
	ev_timer sweep;
	struct stage *dirty;     /* by book_prev, book_next */
	bool told;               /* that it cannot be written down */
	bool told_sync;          /* that the disk does not take it */
	struct salvage *salvage; /* salvage.h: what was found */
	unsigned running;        /* of these */
	unsigned refused;        /* records that nobody can read */
	unsigned left;           /* that were too many */
	ev_timer salvage_timer;
	int64_t last_try_ms;        /* at the end of the mount: our own are tried until then */
	struct salvage_hold *holds; /* names at which nothing of it may begin */
};

/* What records name as their source; NULL: no memory. Pure; for the caller to free. */
char *staging_source(const struct options *o);
/* Opens the ledger in the cache directory and takes what there is for this source and user; not
 * on the loop's thread yet. why: one line, initialised by the caller. */
int staging_open(struct fs *fs, struct buf *why) MUST_CHECK;
/* After everything else; what is not done stays for the next mount. NULL is fine. */
void staging_free(struct staging *g);

/* What is written down when the daemon ends or the stage goes without having been delivered:
 * its record stays. Returns 0, or why there is none, or not of all of it (-E2BIG: of some parts).
 */
int staging_shelve(struct stage *s);
/* The thread's sandbox answers: what rests because it did not is tried again; unless it failed just
 * now, but for one that is known to have returned since. */
void staging_wake(struct thread *t, bool returned);
/* Somebody asks for it: everything that waits or was given up. */
void staging_retry(struct fs *fs);
/* The mount is about to end: likewise what failed, until then (as clock_ms()). */
void staging_last_try(struct fs *fs, int64_t until_ms);

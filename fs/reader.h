/*
 * Reading one open file of a sandbox that nobody here writes: a sequential
 * reader is served from a bounded window in memory ahead of him, filled by one
 * download; jumps are ranged requests where the server has Range, else the file
 * is spooled once to an unlinked file in the cache directory. Never bytes of two
 * versions: see reader_read(). Loop thread only.
 */
#pragma once

#include "node.h"
#include "read_op.h"

struct reader;

/*
 * For one open file. version: the attributes at its opening. The node stays
 * valid as long as the reader (the caller's reference); its path is asked for
 * anew with every request, as it may be renamed. Starts the download of the
 * beginning as far as memory allows.
 */
int reader_new(struct node *n, const struct attr *version, struct reader **ret) MUST_CHECK;
/* The same for one who was served by the kernel so far, which had pages of the version, since then.
 */
int reader_new_after_pages(struct node *n, const struct attr *version, int64_t since_ms,
			   struct reader **ret) MUST_CHECK;
/*
 * The same with the bytes of the version, all of them, of which those up to handed_out were handed
 * out, the last ones at since_ms: for one who was served otherwise so far.
 */
int reader_new_with(struct node *n, const struct attr *version, const char *bytes,
		    uint64_t handed_out, int64_t since_ms, struct reader **ret) MUST_CHECK;
/* What waits must have been cancelled. NULL is fine. */
void reader_free(struct reader *r);

/*
 * Reads. The end of a version is handed out when all bytes are known to be of it: by a
 * look at the file, or, while the thread is watched, because nothing was heard of a
 * change (fetch.h). What an event comes too late for is what lies before.
 *
 * If the file has become another version meanwhile:
 *  - nothing was read of the old one yet, or the read begins at or behind its
 *    end (tail -f): the new one is taken;
 *  - it only grew, and the bytes just before are still the same: likewise;
 *  - it was changed in place, and the last read went to its end, or this one begins at
 *    its start: likewise, as whoever reads it again wants to see that; but for a moment after
 *    that last read -ESTALE, as it may be the same pass, which would end with bytes of another;
 *  - otherwise -ESTALE, from then on.
 */
void reader_read(struct reader *r, struct read_op *op);
/* It may be another version: to be seen before anything more is read. */
void reader_suspect(struct reader *r);
/* Whoever asked does not want it any more; done() is not called. */
void reader_cancel(struct reader *r, struct read_op *op);

/*
 * Before the name goes away: gets the whole rest of the file into the spool, so
 * that it can be read until it is closed. done(ctx, 0 or an errno) once, perhaps at once.
 */
void reader_keep(struct reader *r, void (*done)(void *ctx, int err), void *ctx);

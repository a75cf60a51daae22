/*
 * The content of one file that is being written here: bytes go to a staging
 * file in the cache directory and from there, a sequential writer's at once, up
 * to the sandbox, which sees the old file or the new one. One stage per node,
 * shared by its open files; it also reads back what was written. Loop thread only.
 *
 * Four beginnings: a file that does not exist yet or is to be emptied (no base);
 * an existing one (its content is downloaded into the staging file in the
 * background, where nobody has written; reads wait for it); only appends (kept
 * in memory and sent with the server's append; becomes one of the others when somebody
 * writes elsewhere).
 */
#pragma once

#include "node.h"
#include "read_op.h"

struct stage;

enum {
	STAGE_EMPTY = 1,  /* new, or O_TRUNC: there is no base; counts as a change */
	STAGE_APPEND = 2, /* begin with appends */
	STAGE_EXCL = 4,   /* new, with O_EXCL: the upload fails with -EEXIST if the name is taken */
};

/* Makes n->stage. base: n->attr. mode: of a new file; -1 otherwise. */
int stage_new(struct node *n, unsigned flags, int mode, struct stage **ret) MUST_CHECK;
/*
 * Ends it and clears n->stage. What was not confirmed is lost: see stage_is_clean().
 * Nobody may wait. NULL is fine.
 */
void stage_free(struct stage *s);

/* Both at once: 0 or a negative errno (-ENOSPC, -EDQUOT, -EFBIG of the cache). Append: at the
 * stage's own end, whatever offset. */
int stage_write(struct stage *s, uint64_t offset, const void *bytes, size_t len,
		bool append) MUST_CHECK;
int stage_truncate(struct stage *s, uint64_t size) MUST_CHECK;
/* As reader_read() and reader_cancel(). */
void stage_read(struct stage *s, struct read_op *op);
void stage_cancel(struct stage *s, struct read_op *op);

/* A new mode, new times: set with the next upload (at once for the eye: node_stat). NULL, -1: as it
 * is. */
void stage_set_attr(struct stage *s, int mode, const struct timespec *mtime);

/* Somebody waits until all that was written before is confirmed by the sandbox. */
struct flush_op {
	void (*done)(struct flush_op *op, int err); /* once; perhaps from inside stage_flush() */
	/* private */
	uint64_t until;
	struct flush_op *prev, *next;
};
/*
 * Uploads what is not confirmed yet (an unborn file even if it is empty). After
 * an error the content stays, and the next flush tries again. Each error is told to
 * those who wait; if nobody does, the thread's status has it.
 */
void stage_flush(struct stage *s, struct flush_op *op);
/* Does not wait any more; the upload goes on. */
void stage_flush_cancel(struct stage *s, struct flush_op *op);

/*
 * Everything is in the sandbox (or belongs nowhere: stage_orphan), and nothing
 * is under way: may be freed without loss.
 */
bool stage_is_clean(const struct stage *s);
/* How the last upload failed; 0: it did not, or another one is under way. */
int stage_failure(const struct stage *s);
/* Whether that was not before then (as clock_ms()). */
bool stage_failed_since(const struct stage *s, int64_t since_ms);
/* Though it is clean: an error is to be told at close, or nothing may be uploaded for now. */
bool stage_is_needed(const struct stage *s);
bool stage_is_complete(const struct stage *s); /* no base is missing: reads need no sandbox */
uint64_t stage_size(const struct stage *s);
/* Fills in size, blocks, times, and mode if it was set. */
void stage_stat(const struct stage *s, struct stat *st);

/*
 * The file has no name any more: nothing is uploaded from now on, what is under way is
 * cancelled. The content stays for those who have it open.
 */
void stage_orphan(struct stage *s);
/*
 * Before the node (or a directory above it) gets another name: done(ctx) once
 * no upload to the old path is under way; those that only stream ahead of a writer are
 * cancelled and begin anew later. Perhaps at once. No upload begins until stage_resume(),
 * which is harmless when it is not settled; settling counts: one resume for each.
 */
void stage_settle(struct stage *s, void (*done)(void *ctx), void *ctx);
void stage_resume(struct stage *s);
/* Whether something of it is on its way to the sandbox or waits for its turn there. */
bool stage_is_uploading(const struct stage *s);
/* Before the name goes away: gets what is missing of the base, so that it can be read until
 * it is closed. done(ctx, 0 or an errno) once, perhaps at once. */
void stage_keep(struct stage *s, void (*done)(void *ctx, int err), void *ctx);

/*
 * The last open file was closed. Uploads what is not confirmed in the background
 * (holding a lease) and then frees the stage, and gives up the reference to the node that the
 * stage then holds; one that fails is handed over to salvage.h.
 */
void stage_abandon(struct stage *s);
/* Files have other names now: where what was written down goes is told before anybody hears of
 * it. */
void stage_note_moved(struct fs *fs);
/* If it rests after a failure: tries again now. */
void stage_wake(struct stage *s);
/* For status: what is staged and not confirmed; bytes. */
uint64_t stage_pending(const struct stage *s);
/* Likewise: what is done about it in a word, and the name of its record ("": it has none), of
 * which there is room for 36 characters. Returns the last error, 0 if there was none. */
int stage_tell(const struct stage *s, const char **ret_state, char *ret_record);

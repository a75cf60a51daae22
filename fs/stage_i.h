/*
 * A stage from the inside, as stage.c (content), stage_fill.c (the base comes
 * down), stage_upload.c (it goes up) and stage_flush.c (when, and who waits)
 * share it. Loop thread only.
 *
 * Content is one sparse file, the spool. What shows is, from the start: the base
 * as far as base_len, where nobody has written over it; and behind that what was
 * written, up to own_end, with holes. Once all of the base is in the spool there is no
 * base any more (base_len 0).
 *
 * Changes are numbered: a waiter waits for a number, a delivery covers all up to one.
 */
#pragma once

#include <ev.h>

#include "extents.h"
#include "ledger.h"
#include "remote.h"
#include "spool.h"
#include "stage.h"
#include "thread.h"

enum {
	STREAM_MIN = 1024 * 1024, /* an upload begins before its end is known with so much */
	PIECE_MAX = 1024 * 1024,  /* of one append */
};

struct fill;
struct delivery;

/* Somebody waits for stage_settle() or stage_keep(). */
struct stage_waiter {
	void (*settled)(void *ctx);
	void (*kept)(void *ctx, int err);
	void *ctx;
	struct stage_waiter *prev, *next;
};

struct stage {
	struct fs *fs;
	struct node *n; /* outlives the stage by its open files; counted once abandoned */
	unsigned entered;
	bool freed; /* while entered: goes with the last stage_leave() */

	/* content */
	struct spool spool;     /* opened when it is needed */
	struct extents written; /* what the base must not overwrite */
	uint64_t own_end;
	struct read_op *reads; /* they wait for the base */

	/* the base */
	struct attr base;
	uint64_t cut;       /* it was truncated: only so much of it counts */
	uint64_t base_len;  /* MIN(base.size, cut) */
	uint64_t filled;    /* up to here it is in the spool, proven or not */
	uint64_t fill_high; /* no fill has ever written behind this */
	bool base_old;      /* look at it before anything is fetched, or replaces it */
	bool tail;          /* behind base.size, as it was then, is what was to be appended: */
	size_t tail_sent;   /* the file may have so much of it by now. See take_base() */
	bool base_read;     /* somebody has seen a part that is not proven yet */
	bool stale;         /* and then it became another version */
	unsigned tries;     /* at a version that holds still */
	struct fill *fill;  /* under way */
	struct stage_waiter *keepers;

	/* appends: what is not sent yet, a queue in a file of its own */
	bool appending;
	struct spool queue;
	uint64_t queue_at, queue_end;

	/* changes, by number */
	uint64_t changes;   /* the last one */
	uint64_t content;   /* the last one of the content */
	uint64_t sent;      /* the content up to this one is in the sandbox */
	uint64_t confirmed; /* all up to this one, attributes too, and looked at */
	int mode;           /* to be set; -1: none */
	bool times;         /* mtime is to be set */
	uint64_t mode_change, times_change;
	struct timespec mtime; /* as stat(2) shows it */
	bool excl;

	/* uploads */
	struct delivery *delivery; /* under way */
	struct flush_op *waiters;
	uint64_t asked; /* somebody waited for this change, and may have given up since */
	struct stage_waiter *settlers;
	unsigned held;
	bool no_stream; /* until the next flush: nothing is moved ahead of it; it was in vain */
	bool orphan, abandoned, leased;
	int last_error;
	int append_error;  /* of a piece that may be there or not, until the stage ends */
	bool told;         /* whoever waited heard of that */
	bool sought;       /* since then it was asked which version that replaces */
	int64_t failed_ms; /* when */
	int64_t late_ms;   /* when the base did not come in time; 0: never */
	ev_timer retry;

	/* stage_ledger.c: what outlives the daemon */
	struct ledger_version origin; /* of the file that this replaces */
	bool listed;                  /* in staging->dirty */
	int64_t dirty_ms;             /* since when something is not written down */
	uint64_t noted, noted_moves;  /* changes, and the mount's moves, up to which it is */
	bool partly;                  /* not all parts that were written are */
	uint64_t synced;              /* the content of this one is on the disk, as it is */
	bool unsyncable;              /* that failed once, and nothing is said of it any more */
	int64_t sync_ms;              /* when that is to be seen to next */
	struct sync *sync;            /* under way */
	struct look *look;            /* likewise: what the file is that we made */
	struct stage *book_prev, *book_next;
};

/*
 * Around callbacks to others, who may do anything, even free the stage: it stays
 * until stage_leave(), but s->freed is to be looked at.
 */
static inline void stage_enter(struct stage *s)
{
	s->entered++;
}
void stage_leave(struct stage *s);

/* stage.c */
static inline bool stage_is_dirty(const struct stage *s)
{
	return s->confirmed < s->changes;
}
/* Something shows through, or may: what is known of the base is old. */
static inline bool stage_has_base(const struct stage *s)
{
	return s->base_len > 0 || s->base_old;
}
int stage_open_spool(struct stage *s) MUST_CHECK;
/* All of the base is in the spool: it is no more. */
void stage_absorb(struct stage *s);
/* Answers the reads that can be; or all, with an error. */
void stage_serve(struct stage *s);
void stage_fail_reads(struct stage *s, int err);
void stage_tell_keepers(struct stage *s, int err);
/* Bytes for an upload: all of len, zeros where nothing is. */
int stage_get(struct stage *s, char *to, size_t len, uint64_t offset) MUST_CHECK;
/* Appends are over, the queue is empty: the file is the base. */
void stage_end_appends(struct stage *s);
/* In start(): the path of the node, for the caller to free. NULL: there is none, r has failed. s
 * may be NULL. */
char *stage_path(struct stage *s, struct remote *r, struct sandbox *sb);

/* stage_fill.c: harmless when it is complete or under way. Ends in stage_serve() and stage_pump(),
 * or in stage_fill_failed(). */
void stage_fill(struct stage *s);
void stage_stop_fill(struct stage *s);

/* stage_upload.c */
/* Content changed from `offset` on (truncated: it also ends there). */
void stage_upload_changed(struct stage *s, uint64_t offset, bool truncated);
bool stage_is_streaming(const struct stage *s);
size_t stage_sending_appends(const struct stage *s); /* so many bytes are on their way */
void stage_stream(struct stage *s);                  /* begins, end unknown */
void stage_end_stream(struct stage *s); /* what there is now is all: harmless otherwise */
void stage_send(struct stage *s);       /* begins, all that there is */
void stage_send_appends(struct stage *s);
void stage_send_attrs(struct stage *s);
/* Whether the sandbox has said that nothing of an append was written, or never got it: else it may
 * be there, or still come. */
bool stage_append_was_refused(int err);
void stage_cancel_delivery(struct stage *s); /* its end comes soon, and changes nothing */
void stage_drop_delivery(struct stage *s);   /* nobody wants to hear of its end */

/* stage_ledger.c: all are fine without a ledger */
void stage_note_dirty(struct stage *s);
/* The sandbox has it all. */
void stage_note_clean(struct stage *s);
/* Writes down now what there is, and why it is still here (s->last_error). 0, or why not. */
int stage_note_now(struct stage *s);
/* What is written down is on the disk when this returns, or a record that does not say so. */
void stage_note_durable(struct stage *s);
/* The version that the next content will replace: it was looked at, or only its size is known. */
void stage_note_origin(struct stage *s, const struct attr *seen, bool looked);
/* Nothing of it is wanted: there is no record afterwards. */
void stage_note_dropped(struct stage *s);

/* stage_flush.c */
bool stage_error_is_final(int err);
/* Begins what is due. */
void stage_pump(struct stage *s);
/* A delivery has ended (s->delivery is NULL): 0, -ECANCELED if by us, or why it failed. */
void stage_delivered(struct stage *s, int err, const char *message);
/* The base cannot be had. */
void stage_fill_failed(struct stage *s, int err, const char *message);
void stage_flush_release(struct stage *s);
/* Nothing is on its way to the old name. */
void stage_tell_settlers(struct stage *s);

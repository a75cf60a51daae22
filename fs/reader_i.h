/* One open file as the files of the reader share it. Private to reader*.c. Loop thread only. */
#pragma once

#include "fetch.h"
#include "reader.h"
#include "spool.h"
#include "window.h"

enum {
	SMALL_FILE = 128 * 1024, /* fetched as a whole when it is opened */
	REACH = 512 * 1024,      /* so far ahead of a stream, or of who waits for it, one waits */
	GOAL_MAX = 8 * REACH,    /* but of a stream no further than that and REACH */
	JUMPS_MAX = 16,
	SAMPLE_MAX = 4096,
	CHANGES_MAX = 8,
	LOOKS_MAX = 4,       /* in a row, as the file was changed here meanwhile */
	MOVES_MAX = 1000,    /* in a row, as something is being changed here */
	IDLE_MS = 3000,      /* then a stream that nobody reads is ended */
	IDLE_SHORT_MS = 100, /* when memory is short */
	ERROR_MS = 2000,     /* so long a failure answers whoever asks again */
	PASS_MS = 100,       /* who asks again so soon is still going through the file once */
};

struct keep {
	void (*done)(void *ctx, int err);
	void *ctx;
	struct keep *prev, *next;
};

/* Bytes that were handed out, to be compared when the file grows. */
struct sample {
	char bytes[SAMPLE_MAX];
	size_t len;
	uint64_t end;
};

/* One read somewhere else in the file. */
struct jump {
	struct reader *reader;
	struct fetch *fetch; /* NULL: it has ended, all is here, but not the proof */
	struct read_op *op;
	uint64_t from;
	size_t len;
	char *bytes;
	struct jump *prev, *next;
};

struct reader {
	struct node *node; /* the opener's */
	struct fs *fs;

	/* which version */
	struct attr version;
	bool touched; /* bytes of it were handed out */
	bool pages;   /* not by us: the kernel had some */
	bool proven;  /* all that is held is of it, up to its end */
	bool growing; /* it changes too fast for strict fetches */
	/* It grew: whether these samples of what was handed out are still so is to be seen. */
	unsigned doubt;
	bool anew; /* if they are not, nobody minds: it is read from the start, or was to the end */
	bool suspect;        /* the node was seen as another: serve nothing */
	bool stale;          /* it is lost */
	int64_t lost_until;  /* it was lost to whoever was going through it: until then */
	bool kept;           /* all is here: the sandbox is not asked any more */
	unsigned changes;    /* of the version, since bytes were handed out */
	struct check *check; /* somebody looks at the file */
	bool again;          /* who looks may have asked before it was changed once more */
	int64_t again_until; /* so long that is tried; 0: it is the first look */
	unsigned looks;      /* that may have seen it as it was before */
	unsigned moves;      /* likewise, while it may be on its way to another name */
	char etag[ETAG_MAX]; /* what the server calls the version; "": not known */

	/* what is held: in memory, or on disk once that is open */
	struct window win;
	size_t counted;  /* in memory_used */
	size_t promised; /* what the stream that was begun at open will take, before it has */
	struct spool spool;
	bool spooling;
	uint64_t spool_from, spool_to;
	/* what was handed out first, and last */
	struct sample first, last;

	/* under way */
	struct fetch *stream; /* to the end; fills window or spool */
	struct fetch *probe;  /* compares a sample */
	struct jump *jumps;
	unsigned jump_count;
	uint64_t jump_end; /* of the last one */
	bool jumped;

	struct read_op *waiting;
	struct keep *keeps;
	int error; /* the last failure */
	int64_t error_until;
	ev_timer idle;
	int64_t used_ms;
	int64_t handed_ms; /* when bytes were handed out last */
	bool idles;        /* nobody waits, and something is held: in fs->idlers */
	struct reader *prev_idle, *next_idle;

	unsigned depth; /* inside callbacks of others: not to be freed */
	bool dead;
};

static inline uint64_t reader_end_of(const struct reader *r, const struct read_op *op)
{
	uint64_t left = r->version.size > op->offset ? r->version.size - op->offset : 0;

	return op->offset + MIN(left, op->size);
}

/* What doubt counts down: both, the last one alone. */
enum { DOUBT_LAST = 1, DOUBT_ALL = 2 };

/* ---- reader.c ---- */

/* Everything that can be done now: answers, begins, goes on. r may be gone afterwards. */
void reader_pump(struct reader *r);
/* For those that call others back: r stays until the last leave. */
void reader_enter(struct reader *r);
void reader_leave(struct reader *r);
void reader_answer(struct reader *r, struct read_op *op, int err, const struct iovec *iov,
		   int count);
void reader_hand_out(struct reader *r, struct read_op *op, const struct iovec *iov, int count);
/* Ends what waits (but for jumps) and is to be kept. */
void reader_fail_waiting(struct reader *r, int err);
/* The same, and for whoever asks within the next moments. */
void reader_fail(struct reader *r, int err);
void reader_account(struct reader *r);
/* All that is held reaches the end of the version, and nothing is under way. */
bool reader_has_end(const struct reader *r);
/* Forgets all that is held and all that is under way. */
void reader_drop(struct reader *r, bool keep_bytes);

/* ---- reader_fetch.c: what is under way ---- */

/* Each returns 0 or a negative errno. In doubt they may begin a probe instead. */
int reader_stream_from(struct reader *r, uint64_t from) MUST_CHECK;
int reader_spool_from_start(struct reader *r) MUST_CHECK;
int reader_jump(struct reader *r, struct read_op *op) MUST_CHECK;
struct jump *reader_jump_of(const struct reader *r, const struct read_op *op);
void reader_jump_free(struct jump *j);
/* Its bytes are good: answers its read and frees it. */
void reader_jump_answer(struct jump *j);
void reader_stop_stream(struct reader *r);
void reader_stop(struct reader *r); /* all */
/* The window becomes the beginning of a spool, and the stream goes on there. */
int reader_to_spool(struct reader *r) MUST_CHECK;
/* A paused stream goes on if the window has room. */
void reader_feed(struct reader *r);
bool reader_is_near(const struct reader *r, const struct read_op *op);

/* ---- reader_check.c: versions ---- */

/* Looks at the file, if nobody does; what follows from that happens later. */
void reader_check(struct reader *r);
/* Before a read: is what is known of the file news? */
void reader_look(struct reader *r, const struct read_op *op);
void reader_check_leave(struct reader *r);
/* Something ended with -ESTALE. */
void reader_changed(struct reader *r);
/* Whoever is going through the old version cannot go on: for a moment nothing is served. */
bool reader_is_lost(const struct reader *r);
/* What was handed out is not what the version that was taken has. */
void reader_differs(struct reader *r);
/* The node was seen as another version, and not only longer. */
bool reader_is_outdated(const struct reader *r);

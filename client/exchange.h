/*
 * One HTTP request and its answer, as a step of an operation. Loop thread only.
 *
 *	exchange_init(&o->x, &o->op, "POST", "/v1/bash/exec", on_answer);
 *	jw_init(&w, &o->x.body); …			a JSON body
 *	exchange_start(&o->x);
 *
 * on_answer(x, err): err is 0 whenever a complete answer came, whatever its
 * status (see answer.h for what it means), else a negative errno of the
 * transport with x->why in words. The exchange may be started again from there
 * after exchange_init().
 */
#pragma once

#include <curl/curl.h>

#include "buf.h"
#include "op.h"
#include "uuid.h"

/* Requests of one lane never wait for those of another. */
enum lane {
	LANE_QUICK,  /* answered at once */
	LANE_STREAM, /* uploads and downloads */
	LANE_WAIT,   /* commands, long polls, event streams */
	LANES,
};

enum {
	ANSWER_MAX = 16 * 1024 * 1024, /* default cap of an answer kept in memory */
};

struct exchange {
	struct step step;
	struct op *op;
	void (*done)(struct exchange *x, int err);

	/* what to ask; set between init and start */
	const char *method; /* static */
	char *target;       /* "/v1/…?…", owned */
	struct buf body;    /* JSON; sent if not empty or the method is POST */
	struct curl_slist *headers;
	enum lane lane;
	bool idempotent;    /* may be sent again: after a connection that broke, after 502 to 504 */
	bool fresh;         /* on a connection of its own, never a reused one */
	bool direct;        /* needs nothing of libcurl's if it is idempotent: see wire.h */
	int64_t timeout_ms; /* of one try, the wait in the lane included; 0: none. -ETIMEDOUT */

	/* a form with one file, its bytes coming from read(); NULL: none */
	const char *form_path; /* the part "path"; must stay valid */
	int64_t form_size;     /* -1: not known yet */
	/*
	 * Fills at most len bytes, those at x->form_sent of the file (which is 0
	 * again when something idempotent is sent once more). Returns how many, 0
	 * at the end, -EAGAIN to pause, or an errno that ends the exchange. A
	 * file that does not end at form_size ends it with -EIO.
	 */
	ssize_t (*read)(struct exchange *x, char *to, size_t len);
	/*
	 * With direct; may be NULL: the bytes at x->form_sent lie in a file, from which they are
	 * sent without being read. How many are taken, at most max, as if by read(); 0: ask that.
	 */
	size_t (*lend)(struct exchange *x, size_t max);
	/* Where those taken are that are at `at` of the form's file: a descriptor, -1: gone. */
	int (*lent_file)(struct exchange *x, uint64_t at, off_t *ret_offset);

	/*
	 * With data(): the status line and header of a 200 or 206 are known (see
	 * exchange_said). Non-zero ends the exchange with it.
	 */
	int (*head)(struct exchange *x);
	/*
	 * Bytes of a 200 or 206 answer, instead of keeping them in `answer`.
	 * Returns 0, -EAGAIN to pause (the same bytes come again, perhaps with
	 * others behind them), or an errno that ends the exchange. Other answers
	 * are always kept.
	 */
	int (*data)(struct exchange *x, const char *bytes, size_t len);
	/*
	 * With direct: where the next bytes for data() should be received, so that they need not be
	 * copied, and how many; NULL: with 0, pause; otherwise anywhere. May be NULL.
	 */
	char *(*space)(struct exchange *x, size_t *ret_len);
	size_t answer_max;

	/* the answer */
	int status;
	struct buf answer;
	int64_t content_length; /* -1: not given */
	int64_t range_start;    /* of a 206; -1: not given */
	int64_t range_total;    /* -1: not given */
	uint64_t form_sent;     /* bytes of the file that were taken from read() */
	char why[CURL_ERROR_SIZE];

	/* private: exchange_i.h */
	CURL *easy;
	struct wire *wire; /* instead */
	bool unfit;        /* for that */
	struct curl_slist *all_headers;
	struct buf form_head, form_tail; /* what the form has around the file */
	struct buf form;                 /* all of a small one */
	char form_type[UUID_LEN + 64];   /* its header */
	size_t sent;                     /* of body, or of form_head and form_tail */
	bool form_ended;                 /* the file, not its tail */
	char *piece;                     /* by wire: of the form, as it is sent */
	bool framed, fed;                /* likewise: a chunk has begun; all was given to it */
	size_t header_bytes;             /* of the answer */
	curl_off_t uploaded;
	unsigned tries;
	int64_t since_us; /* when it was started */
	bool queued, running, paused;
	bool is_set;                  /* easy has all that does not change */
	bool whole_head;              /* the empty line at its end has come */
	bool knows_head, told_head;   /* the answer's header was read; the owner has it */
	int error;                    /* what a callback of ours decided, */
	const char *words;            /* why (static); NULL: that is the owner's business */
	ev_timer pause;               /* before another try, and for timeout_ms */
	struct job room;              /* lets another one run while this one is paused */
	struct exchange *prev, *next; /* the lane's queue */
};

/* method and done must stay valid; target is copied. */
void exchange_init(struct exchange *x, struct op *op, const char *method, const char *target,
		   void (*done)(struct exchange *, int err));
/* Adds "?name=value" or "&name=value", percent-encoded byte by byte. */
int exchange_query(struct exchange *x, const char *name, const char *value) MUST_CHECK;
/* Adds a header "Name: value". */
int exchange_header(struct exchange *x, const char *line) MUST_CHECK;

/*
 * Starts it; done() comes later, never from here (except through the loop).
 * The operation waits for x->step unless the owner is a step itself: then that
 * has to stop the exchange in its own stop().
 */
void exchange_start(struct exchange *x);
/* Stops without done(); harmless when nothing runs. */
void exchange_stop(struct exchange *x);
/* After -EAGAIN from data() or read(): goes on. Not from inside a callback of the exchange. */
void exchange_go_on(struct exchange *x);
/* Whether the server may have all of the request, whatever became of it. A form's: no idea. */
bool exchange_was_sent(const struct exchange *x);
/* In head(): what the answer's header says; NULL if nothing. Valid during the callback. */
const char *exchange_said(const struct exchange *x, const char *header);
/* Frees everything it holds; stops it first if need be. Once per init; harmless on zeroes. */
void exchange_release(struct exchange *x);

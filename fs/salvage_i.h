/* A salvage from the inside, as salvage.c (when) and salvage_run.c (how) share it. */
#pragma once

#include "ledger.h"
#include "remote.h"
#include "salvage.h"
#include "spool.h"
#include "thread.h"

struct salvage {
	struct fs *fs;
	char name[LEDGER_NAME + 1];
	struct ledger_record rec;
	struct spool spool; /* with the record's entry */
	enum salvage_state state;
	bool listed; /* the thread was there when it was looked for */
	bool ours;   /* this daemon's own */
	int64_t next_ms, pause_ms;
	struct salvage *prev, *next;

	bool resting;  /* counted in the thread, until the next try */
	bool unwanted; /* its name was removed */
	bool filled;   /* what was only a part is the whole file by now */
	bool stopped;  /* it was, or is about to be, or is another one: no further step is taken */

	/* while it runs or rests */
	struct thread *thread; /* counted */
	struct remote r;
	struct attr seen;
	char *path;        /* where it goes, below the thread's root */
	bool conflict;     /* which is beside the file */
	unsigned suffix;   /* of such a name */
	uint64_t from;     /* the content that goes begins here */
	uint64_t at;       /* and so far it has gone, or been compared */
	uint64_t compared; /* so much is to be */
	bool differs;
	bool again;  /* it was another one when the upload was through: looked at once more */
	char *piece; /* of an append */
	bool asked;  /* that has gone out, perhaps */
};

/* Begins; ends in salvage_ended(), not from inside. */
void salvage_run(struct salvage *v);
void salvage_ended(struct salvage *v, int err, const char *message);

/*
 * The exec channel: one small command in the sandbox, for what the server has
 * no route for. As a step of an operation; loop thread only.
 *
 *	posix_run_init(&o->run, &o->op, on_ran);
 *	shell_printf(&o->run.script, "exec mkdir -m %o -- %s", mode, path);
 *	posix_run_start(&o->run);
 *
 * The script is one line of bash with LC_ALL=C, run in a process of its own; it
 * may use exec and exit. Where the server has /v1/bash it is one request there,
 * in one of a few sessions of ours; otherwise it goes through one shell session
 * (and another while a slow one is in that). In order of arrival, a few at a time.
 */
#pragma once

#include "exchange.h"

enum posix_output {
	POSIX_ASCII, /* small, printable: taken as it is */
	POSIX_BYTES, /* any bytes, any size up to POSIX_OUTPUT_MAX */
};

/*
 * Armour for any bytes is a process more. A script that knows when it has none but printable
 * ASCII to print may have a second form, `plain`, that prints lines where the other prints what
 * ends with NUL, and any control character as soon as it cannot. It is used where the server counts
 * what it sends, so that nothing can be missing; if it was of no use the other one runs.
 */

/* What a shell session that was used by two at once says instead of output. */
#define SHELL_ERROR_OBSERVATION "'ErrorObservation' object has no attribute 'exit_code'"

enum { POSIX_OUTPUT_MAX = 128 * 1024 * 1024 };

struct posix_run {
	struct step step;
	struct op *op;
	/* err: 0 if the command ended (see exit_code), else why it could not run. */
	void (*done)(struct posix_run *run, int err);

	/* set between init and start */
	struct buf script;
	struct buf plain; /* of POSIX_BYTES, idempotent; "": there is none */
	enum posix_output output;
	bool large;      /* POSIX_BYTES may be many */
	bool slow;       /* may take long: never takes the last place in line from the others */
	bool idempotent; /* may run twice */

	/* once done */
	int exit_code;
	struct buf out, err; /* what it printed; of err perhaps only the end */
	char *message;       /* the server's words if it could not run; or NULL */
	/* also once stopped: no answer tells of its end, so it may run yet, or only begin to */
	bool adrift;

	/* private to posix_run.c */
	struct exchange x;
	struct slot *slot;             /* NULL: not its turn */
	bool in_shell;                 /* sent, or to be sent, to the shell session */
	bool is_plain;                 /* sent so */
	bool no_plain;                 /* that was of no use */
	bool renewed;                  /* a lost session was made again once */
	char mark[16];                 /* brackets the output in a terminal's noise */
	bool was_cut;                  /* by the server: the output is to go into a file */
	bool spills;                   /* sent so */
	bool litters;                  /* that file may be there */
	char file[64];                 /* its name, to which mktemp adds a suffix */
	int fetch_error;               /* why it could not be had from there */
	struct posix_run *prev, *next; /* the line */
};

void posix_run_init(struct posix_run *run, struct op *op,
		    void (*done)(struct posix_run *, int err));
void posix_run_start(struct posix_run *run);
/* Frees everything it holds. Harmless on zeroes. */
void posix_run_release(struct posix_run *run);

/* The errno behind a command that ended with a non-zero exit code; negative, never 0. */
int posix_run_errno(const struct posix_run *run);

/*
 * For the usual last step: finishes the operation with err, with the errno of
 * the command, or with 0; the words go to the call.
 */
void posix_run_finish_op(struct posix_run *run, int err);

/*
 * The scripts of a run (sandbox.h): what is sent through the exec channel to
 * start one, look at it, feed, kill and drop it. Each is one line for
 * posix_run. Pure.
 *
 * A run is a directory RUN_DIR<id> with these files:
 *	once		made by whoever started it: never twice
 *	bar		it was taken back: if it has not been started it will not be
 *	script		what it does
 *	out, err	what it printed so far
 *	o, e		pipes that its stdout and stderr are, with a tee each that fills those
 *	started		it does not wait for its shell any more
 *	sup		pid and birth of its supervisor; dead without rc: the run is lost
 *	child		of a process of its own: likewise of that
 *	in, end, bell	its stdin, that this is all of it, and a pipe that wakes its feeder
 *	at, deaf	how much of stdin it was given, and that it takes no more
 *	sh, before	in a shell: the shell's directory, and the children that it had before
 *	killed		the signal, if there was one
 *	rc		exit code (-1: output is lost), and how long out and err were then
 *	kill.t, rc.t	room for these two
 * A shell is a directory with q, the messages to its supervisor, go, the orders
 * to bash, sup, and shell: pid and birth of bash.
 */
#pragma once

#include "buf.h"
#include "uuid.h"

#define RUN_DIR "/tmp/.threadfs-"

enum {
	RUN_PIECE =
		66 * 1024, /* of bytes that fit into one command, armoured, with a script of ours */
	RUN_WORDS_MAX = 16 * 1024,       /* of directory and environment, beside such a piece */
	RUN_WORDS_ALONE_MAX = 96 * 1024, /* and without one */
	RUN_INPUT_MAX = 2 * 1024 * 1024, /* of stdin, that wait in the sandbox to be read */
	/* exit codes */
	RUN_UNKNOWN = 93, /* there is no such run */
	RUN_DEAF = 94,    /* it does not read what is fed to it, or has ended */
	RUN_FULL = 95,    /* it has not read enough of what was fed to it */
};

/* Bytes for a place in the run's file. */
struct run_piece {
	uint64_t offset;
	const void *bytes;
	size_t len;
};

/* A piece of the script, before the one that is sent with the start. May run twice. */
void run_script_piece(struct buf *to, const char *id, const struct run_piece *piece);
/* A process of its own. words: its environment, quoted NAME=VALUE; may be "". */
void run_script_start(struct buf *to, const char *id, const struct run_piece *piece,
		      const char *dir, const char *words, bool fed);
/* In a shell, which is made if it is not there. */
void run_script_enqueue(struct buf *to, const char *id, const struct run_piece *piece,
			const char *shell_id, const char *root);
/*
 * Prints whether it started (0 or 1), its exit code or '-', how many bytes of
 * out and err there are from the offsets on, and how many of each follow after
 * the line's end, first those of out.
 */
void run_script_look(struct buf *to, const char *id, uint64_t out_offset, uint64_t err_offset,
		     size_t max, int64_t wait_ms);
/* May run twice. */
void run_script_feed(struct buf *to, const char *id, const struct run_piece *piece, bool end);
void run_script_kill(struct buf *to, const char *id, int signal);
void run_script_drop(struct buf *to, const char *id);
/* Ends what may have been started and removes it. adrift: perhaps it is only to be started yet,
 * which then does not happen any more. */
void run_script_undo(struct buf *to, const char *id, bool adrift);
/* The shell is to end after the runs that it has. */
void run_script_bye(struct buf *to, const char *shell_id);

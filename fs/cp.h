/*
 * For `threadfs cp`: copying one file so that it can go on after an interruption, checksums
 * of both sides, and showing how far it is. One thread.
 *
 * The copy has a name of its own beside its target until it is whole and proven, made of the
 * target's and of the source's size and time: a source that changed begins anew. On this machine it
 * is a file that grows. In a sandbox files are replaced as a whole, so what is larger than CP_PIECE
 * goes there in pieces, each of them an ordinary file, which are joined in the sandbox.
 */
#pragma once

#include <sys/stat.h>

#include "util.h"

enum { CP_PIECE = 64 * 1024 * 1024, CP_SUM = 65 /* hex digits, NUL */ };

struct cp_progress {
	bool on_terminal;
	const char *name; /* for people: escaped when shown */
	uint64_t total, done;
	uint64_t kept; /* of done: from the last time */
	int64_t since_ms, shown_ms;
};

/* Set by SIGINT, SIGTERM and SIGHUP: everything ends soon, with -EINTR. */
bool cp_is_interrupted(void);
void cp_catch_signals(void);

/* cp_file.c. 0; -EINTR; or another negative errno, after one line that says why. */
int cp_file(const char *from, const char *to, struct cp_progress *p) MUST_CHECK;

/* cp_sum.c: SHA-256, inside the sandbox if it has sha256sum, else by reading it all. */
int cp_sum(const char *path, char to[CP_SUM]) MUST_CHECK;
/* Runs a command in the sandbox directory that dir shows; its output to `to`. Exit status or
 * -errno. */
int cp_run(const char *dir, const char *const argv[], char *to, size_t size) MUST_CHECK;
/* Whether the path lies in a thread of a mount. */
bool cp_is_remote(const char *path);

/* cp_progress.c */
void cp_progress_begin(struct cp_progress *p, const char *name, uint64_t total);
void cp_progress_moved(struct cp_progress *p, uint64_t bytes);
void cp_progress_say(struct cp_progress *p, const char *what); /* instead of rate and time */
void cp_progress_clear(struct cp_progress *p);                 /* before a line of text */
void cp_progress_end(struct cp_progress *p, const char *to, const char *sum, bool was_there);

/*
 * The commands of one thread: each has a number, and its output is kept on the
 * host (unlinked files in the cache directory, capped) as long as the job is known: the last
 * ones, and fewer of those with much output. Loop thread only; knows nothing of FUSE requests.
 *
 * A command is started once and never again. While it is under way it holds a
 * lease, and the sandbox is asked how it goes: often while somebody waits, now
 * and then otherwise.
 */
#pragma once

#include "thread.h"

struct jobs;
struct command;
struct feed;

enum {
	JOB_SCRIPT_MAX = 128 * 1024, /* bytes of one command */
	JOBS_KEPT = 100,             /* that have ended, per thread */
	JOBS_UNFINISHED = 256,       /* that have not, per thread */
};
#define JOB_OUTPUT_MAX (256 * MIB)

/* The numbers of the jobs that are known, for listing jobs/; for the caller to free. */
int jobs_numbers(struct thread *t, unsigned **ret, size_t *ret_count) MUST_CHECK;
bool jobs_has(struct thread *t, unsigned number);
/* Ends what waits and forgets all; running commands go on in the sandbox. NULL is fine. */
void jobs_free(struct jobs *j);

/* ---- starting ---- */

struct job_spec {
	const void *script; /* any bytes but NUL */
	size_t len;
	bool own;               /* a process of its own; else in the thread's shell, in order */
	const char *dir;        /* own: below the thread's root; NULL or "": the root itself */
	const char *const *env; /* own: NAME, VALUE, …, NULL; or NULL */
	bool fed;               /* own: there is a stdin */
};

/* Somebody waits until the sandbox has accepted a command; embedded in whoever does. */
struct job_start {
	/* Once, never from inside jobs_start(): 0 with the command (not counted), or an errno. */
	void (*done)(struct job_start *s, int err, struct command *c);
	struct command *command; /* private */
};
/* Starts what spec says (copied). Returns 0, or a negative errno and nothing happens: -EAGAIN if
 * too many have not ended. */
int jobs_start(struct thread *t, const struct job_spec *spec, struct job_start *s) MUST_CHECK;
/*
 * Does not wait any more: what has not been sent never will be; what has is a
 * job as any other once it is accepted.
 */
void jobs_start_leave(struct job_start *s);

/* ---- what there is ---- */

enum job_state {
	JOB_STARTING, /* not known to anybody else yet */
	JOB_WAITING,  /* for the commands before it */
	JOB_RUNNING,
	JOB_DONE,
	JOB_LOST, /* nobody knows how it ended: the sandbox or its shell is gone */
};
const char *job_state_name(enum job_state s);

/* Not counted; NULL: none. The newest is that of the shell. */
struct command *jobs_find(struct thread *t, unsigned number);
struct command *jobs_newest(struct thread *t);
/* Of the shell's command that ended last; -1: there is none. */
int jobs_exit_code(const struct thread *t);

struct command *command_ref(struct command *c);
void command_unref(struct command *c); /* NULL is fine */

unsigned command_number(const struct command *c);
enum job_state command_state(const struct command *c);
bool command_is_over(const struct command *c);  /* done or lost */
bool command_is_cut(const struct command *c);   /* there was more output than is kept */
int command_exit_code(const struct command *c); /* -1: none (yet) */
int command_error(const struct command *c);     /* why it was lost; 0 */
const char *command_script(const struct command *c, size_t *ret_len);

/* ---- its output ---- */

enum job_stream { JOB_OUT = 1, JOB_ERR = 2, JOB_BOTH = JOB_OUT | JOB_ERR };

/* How far somebody has read; zero is the start. */
struct job_cursor {
	size_t extent;
	uint64_t at;
};
/* Bytes; 0 at the end; -EAGAIN: nothing yet; the reason if it was lost; another errno. */
ssize_t command_read(struct command *c, enum job_stream which, struct job_cursor *at, void *to,
		     size_t size) MUST_CHECK;
/* Whether command_read() would give something else than -EAGAIN. */
bool command_is_readable(const struct command *c, enum job_stream which, struct job_cursor at);

/* Somebody waits for news of a command; embedded in whoever does. */
struct job_wait {
	/*
	 * Each time when there may be something new, and with a negative errno when
	 * the sandbox did not answer. May end this wait, but no other.
	 */
	void (*wake)(struct job_wait *w, int err);
	struct command *command; /* private; counted; NULL: does not wait */
	struct job_wait *prev, *next;
};
void command_wait(struct command *c, struct job_wait *w);
void command_wait_end(struct job_wait *w); /* harmless if it does not wait */

/* ---- to it ---- */

/* Embedded in whoever asks; done() comes once, never from inside the function that was asked. */
struct job_ask {
	void (*done)(struct job_ask *a, int err);
	/* private */
	struct command *command;
	struct sandbox *sb;
	struct call call;
	struct feed *feed;
};
/* SIGTERM, SIGKILL, SIGINT or SIGHUP. Returns 0, or -ESRCH if it is over. */
int command_kill(struct command *c, int signal, struct job_ask *a) MUST_CHECK;
/* done() comes soon. */
void command_kill_cancel(struct job_ask *a);

/* Each writer of its stdin; when the last one has left, the input ends. -EPIPE: it has none. */
int command_stdin_open(struct command *c) MUST_CHECK;
void command_stdin_close(struct command *c);
/*
 * Appends bytes (copied); one after the other. Returns 0, -EPIPE, -ENOMEM, or why something before
 * did not arrive that somebody left.
 */
int command_feed(struct command *c, const void *bytes, size_t len, struct job_ask *a) MUST_CHECK;
/*
 * Does not wait any more: done() does not come, and what has not been sent yet never will be.
 * Returns how much was: that the command gets.
 */
size_t command_feed_leave(struct job_ask *a);

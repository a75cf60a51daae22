/* What the files of the jobs share: jobs.c, job_look.c, job_output.c, job_input.c. */
#pragma once

#include "jobs.h"
#include "remote.h"
#include "spool.h"

/* A piece of the output that came on one stream; it begins where the one before ends. */
struct extent {
	uint64_t end;
	enum job_stream stream;
};

struct command {
	unsigned refs;
	unsigned number; /* 0: not accepted yet */
	struct fs *fs;
	struct jobs *jobs;     /* NULL: forgotten */
	struct thread *thread; /* counted, and valid, while `alive` or starting */
	enum job_state state;
	bool alive; /* accepted and not let go: counted by itself */

	/* what it is */
	char *script;
	size_t len;
	bool own, fed;
	char *dir;  /* below the root */
	char **env; /* or NULL */

	/* starting */
	struct remote remote;
	struct job_start *starter; /* NULL: nobody waits */
	char *full_dir;
	bool sent;

	/* in the sandbox; while alive */
	struct sandbox *sb; /* the one that runs it; counted */
	int64_t began_ms;   /* there */
	char *run;
	bool leased;
	struct call call; /* a look; at the end, the dropping */
	bool calling;
	struct job synced; /* the kernel knows that files may have changed; then it ends */
	bool syncing;
	int last_code; /* meanwhile: what it ended with */
	struct run_news news;
	ev_timer timer; /* the next look */
	int64_t pause_ms, looked_ms;
	int64_t failing_ms; /* since when it does not answer; 0: it does */
	struct job_wait *waiters;

	/* the output: all of it in order of arrival */
	struct spool spool;
	struct extent *extents;
	size_t extent_count, extent_cap;
	uint64_t size, out_size, err_size;
	bool cut;

	/* stdin */
	struct feed *feeds; /* the first one is under way */
	uint64_t fed_bytes;
	unsigned writers;
	bool input_ended;
	int feed_error; /* what nobody waited for did not arrive */

	/* the end */
	uint64_t ended; /* the how manieth of its thread to do so */
	int exit_code;  /* -1: none */
	int error;

	struct command *prev, *next; /* jobs->all or jobs->starts */
};

struct jobs {
	struct thread *thread; /* not counted: it owns this */
	struct command *all;   /* accepted, by number; counted */
	/* Being started, counted: of the shell, in order, the first one is under way; others. */
	struct command *starts, *starts_own;
	unsigned last;
	uint64_t ended; /* how many have */
	int exit_code;
};

/* The command of the shell that runs or is next to; NULL: none. */
struct command *jobs_front(const struct jobs *j);
/*
 * Forgets those that ended first and nobody has open, if there are many or their
 * output is large.
 */
void jobs_trim(struct jobs *j);

/* job_look.c: it was accepted, by c->sb as c->run. */
void command_begin(struct command *c);
/* Nobody is interested any more: ends without waiting for anything. */
void command_abandon(struct command *c);
/* Look soon. */
void command_hurry(struct command *c);
void command_hold_sandbox(struct command *c); /* a lease of its own, if it can have one */
void command_let_go_sandbox(struct command *c);

/* job_output.c: takes what came. */
void command_take(struct command *c, enum job_stream stream, const char *bytes, size_t len);
void command_output_release(struct command *c);

/* job_input.c: it is over, nobody reads it any more. */
void command_input_end(struct command *c);

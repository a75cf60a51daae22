/*
 * The shell's sessions: each has a bash of its own, a queue of commands that
 * run one after the other, and a record of the latest ones. bash is started
 * when a command needs it, and again if one has ended it. Knows nothing of
 * requests. Loop thread only.
 */
#pragma once

#include <uthash.h>

#include "shell_pty.h"
#include "shell_text.h"

enum {
	SHELL_ID_MAX = 128,
	SHELL_MAX_CHARS = 30000, /* of an answer that is to be truncated */
};

enum shell_status {
	SHELL_RUNNING, /* or still in the queue */
	SHELL_COMPLETED,
	SHELL_NO_CHANGE, /* only ever said to a client: the command runs on */
	SHELL_HARD_TIMEOUT,
	SHELL_TERMINATED,
};

const char *shell_status_name(enum shell_status status);

struct shell_command {
	struct shell_command *prev, *next;
	unsigned refs; /* the session's, and one per request that waits */
	uint64_t seq;  /* 0 until bash has got it */
	char *text;
	char *dir; /* to change to before, or NULL */
	bool symlinks;
	double hard_timeout_s; /* 0 = none */

	char *ps1; /* NULL until it starts */
	enum shell_status status;
	bool exited; /* exit_code is known */
	int exit_code;
	bool overdue; /* its hard timeout has passed */
	int64_t queued_ms;

	/* The output, cleaned; bytes out_start .. out_start + out.len of it. */
	struct shell_text clean;
	struct buf out;
	uint64_t out_start;

	/* In the shell's list of those whose output is only kept for a request. */
	struct shell *keeper; /* NULL = is not */
	struct shell_command *kept_prev, *kept_next;
};

/* Told of output, of the end of a command and of the session's own. */
struct shell_waiter {
	struct shell_waiter *prev, *next;
	struct shell_session *session; /* NULL once it is gone */
	void (*fn)(struct shell_waiter *w);
};

struct shell_session {
	UT_hash_handle hh;
	struct shell *shell;
	char id[SHELL_ID_MAX + 1];
	struct shell_pty pty;
	bool ready;                     /* bash waits for a command or runs one of ours */
	bool doomed;                    /* it is being killed and gets no command any more */
	char *dir;                      /* where it is, or was last */
	bool symlinks;                  /* when bash is started */
	unsigned no_change_s;           /* default of its commands */
	struct shell_command *commands; /* oldest first: finished, current, queued */
	struct shell_command *current;
	unsigned ncommands, nqueued;
	size_t queued_bytes;
	uint64_t seq, reported; /* the latest numbers: given, and heard from this bash */
	ev_timer timer;         /* of the current command's hard timeout */
	unsigned step;          /* what the timer does next */
	ev_timer watch;         /* whether bash is still ours while it runs a command */
	unsigned strikes;
	struct shell_waiter *waiters;
	int64_t output_ms, used_ms;
	double created, used; /* wall time */
};

struct shell {
	struct server *srv;
	struct shell_session *sessions; /* by id */
	struct shell_command *kept;     /* oldest first */
	size_t kept_bytes;
	ev_timer expiry;
	bool stopping;
};

struct shell_session *shell_find(struct shell *sh, const char *id);
/*
 * Makes a session in dir (a path for this process; NULL = home). id NULL: one
 * is made up. -EBUSY: as many as allowed, and all are busy; otherwise the one
 * idle longest has to go. -ENOMEM.
 */
int shell_session_new(struct shell *sh, const char *id, const char *dir, bool symlinks,
		      struct shell_session **ret) MUST_CHECK;
/* Ends it and all it started. Waiters are told. */
void shell_session_free(struct shell_session *s);

/* Whether a command runs or waits. */
bool shell_session_busy(const struct shell_session *s);
/* The running command, or the one that ran last; NULL if there was none. */
struct shell_command *shell_session_latest(const struct shell_session *s);
/* Counts as use, for expiry and eviction. */
void shell_session_touch(struct shell_session *s);

/*
 * Queues a command. dir as above, NULL = stay. ret_command, if given, gets a
 * reference. -EAGAIN: too many wait already. -ENOMEM.
 */
int shell_session_submit(struct shell_session *s, const char *text, const char *dir, bool symlinks,
			 double hard_timeout_s, struct shell_command **ret_command) MUST_CHECK;
/* When output or the queueing of this command last gave a sign of life. */
int64_t shell_command_changed_ms(const struct shell_session *s, const struct shell_command *c);
void shell_command_unref(struct shell_command *c);

void shell_wait_begin(struct shell_session *s, struct shell_waiter *w);
/* Harmless if it does not wait (any more). */
void shell_wait_end(struct shell_waiter *w);

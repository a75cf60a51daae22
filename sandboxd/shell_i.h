/*
 * What the files of the /v1/shell routes share, and nobody else needs. Loop
 * thread only.
 */
#pragma once

#include "request.h"
#include "shell_session.h"

#define SHELL_MAX_SECONDS 1e9

/* A request that waits for a session; in r->op, freed with the request. */
struct shell_op {
	struct request *r;
	struct shell_waiter waiter;
	struct shell_command *cmd; /* a reference, or NULL */
	char id[SHELL_ID_MAX + 1]; /* the session's, which may go first */
	bool truncate;
	unsigned no_change_s; /* 0 = does not matter */
	double timeout_s;     /* as asked for; 0 = none */
	int64_t until_ms;     /* the end of the wait; 0 = none */

	/* streams */
	bool connected;
	bool over; /* nothing more is to come */
	bool ping; /* a keepalive is due */
	unsigned silent_s;
	uint64_t at, end; /* of the output: next byte to send, and where to stop */
};

/* NULL after replying. */
struct shell_op *shell_op_new(struct request *r, const struct shell_session *s);

/* The session, or NULL after replying. */
struct shell_session *shell_find_or_404(struct request *r, const char *id);
/* Makes one; NULL after replying. */
struct shell_session *shell_make_session(struct request *r, const char *id, const char *dir,
					 bool symlinks);
/* Finds the directory of a request: 0 and its path for us (PATH_MAX), or a negative errno. */
int shell_find_dir(struct request *r, const char *dir, bool symlinks, char *out) MUST_CHECK;
/* Queues a command; false after replying. */
bool shell_submit(struct request *r, struct shell_session *s, const char *text, const char *dir,
		  bool symlinks, double hard_timeout, struct shell_command **ret) MUST_CHECK;

/* Each writes one key with its value, the second a value. */
void shell_write_output(struct jw *w, const struct shell_command *c, bool shorten);
void shell_write_record(struct jw *w, const struct shell_command *c);
void shell_write_exit_code(struct jw *w, const char *key, const struct shell_command *c);

/* POST /v1/shell/exec */
struct shell_exec_args {
	const char *id, *exec_dir, *command;
	bool async_mode, strict, preserve_symlinks, truncate;
	struct opt_num timeout, hard_timeout;
	struct opt_int no_change_timeout;
};

extern const struct arg shell_exec_args[];
void shell_exec(struct request *r);

/* POST /v1/shell/view as server-sent events. */
void shell_view_stream(struct request *r, struct shell_session *s);

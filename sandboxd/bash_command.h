/*
 * One command of a bash session and its process: bash -c with three pipes in
 * a process group of its own. Loop thread only.
 */
#pragma once

#include "buf.h"
#include "child.h"
#include "server.h"
#include "uuid.h"

enum bash_stream { BASH_STDOUT, BASH_STDERR, BASH_STREAMS };

enum bash_status {
	BASH_PENDING, /* waits for the session */
	BASH_RUNNING,
	BASH_COMPLETED, /* also when a signal ended it */
	BASH_TIMED_OUT, /* hard_timeout */
	BASH_KILLED,    /* with its session, or it could not be started */
};

enum {
	BASH_READ_SIZE = 64 * 1024,   /* of bash->scratch */
	BASH_INPUT_MAX = 1024 * 1024, /* bytes of stdin that the command has not taken */
};

struct bash;
struct bash_session;

/*
 * The reading end of stdout or stderr. Belongs to the command while that
 * runs; if a background process still holds the other end it lingers on and
 * its output goes to the session.
 */
struct bash_pipe {
	ev_io io;
	struct bash_session *session;
	struct bash_command *command; /* NULL once it lingers */
	enum bash_stream stream;
	pid_t group;
	struct bash_pipe *prev, *next; /* bash->lingering */
};

struct bash_command {
	struct bash_session *session;
	struct bash_command *prev, *next; /* session->commands */
	char id[UUID_LEN + 1];
	char *text;
	char *dir;           /* as the client sees it; until it starts */
	char **env;          /* complete; NULL = the default */
	double hard_timeout; /* seconds; negative = none */
	size_t bytes;        /* memory that text, dir and env take, roughly */
	enum bash_status status;
	bool has_exit_code;
	int exit_code;
	int start_error;               /* negative errno: never ran */
	uint64_t offset[BASH_STREAMS]; /* where its output starts in the session's */

	/* while it runs */
	struct child child;
	pid_t group;
	bool timed_out; /* killed, the end has not been seen yet */
	struct bash_pipe *pipes[BASH_STREAMS];
	int stdin_fd;
	ev_io stdin_io;
	struct buf input;
	ev_timer hard_timer;
};

static inline bool bash_command_ended(const struct bash_command *c)
{
	return c->status > BASH_RUNNING;
}

/* Copies text and dir. Takes ownership of env, also on failure. NULL = out of memory. */
struct bash_command *bash_command_new(const char *text, const char *dir, char **env,
				      double hard_timeout);
/* Of a command that does not run. Accepts NULL. */
void bash_command_free(struct bash_command *c);

/*
 * Starts it. 0 or the negative errno, which is also kept in start_error; the
 * command has then ended.
 */
int bash_command_start(struct bash_command *c) MUST_CHECK;

/* Sends sig to its process group, if it runs. */
void bash_command_signal(struct bash_command *c, int sig);
/* Kills a running command and forgets it without waiting: BASH_KILLED. */
void bash_command_abandon(struct bash_command *c);

/*
 * Bytes for its stdin. 0; -EINVAL if it does not run; -EPIPE if nobody reads
 * it any more; -ENOBUFS if too much waits to be read; -ENOMEM.
 */
int bash_command_input(struct bash_command *c, const char *data, size_t len) MUST_CHECK;

/* Closes a pipe, wherever it is listed. */
void bash_pipe_free(struct bash_pipe *p);

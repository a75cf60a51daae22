/*
 * Sessions of /v1/bash: a queue of commands that run one at a time, their
 * history, and two output rings. Knows nothing of HTTP. Loop thread only.
 */
#pragma once

#include "bash_command.h"
#include "ring.h"

enum {
	BASH_ID_MAX = 128, /* bytes of a session id */
};

struct bash_waiter;

struct bash_session {
	struct bash *bash;
	char id[BASH_ID_MAX + 1];
	char *working_dir; /* as the client sees it */
	double created_at; /* wall time */
	double last_used_at;
	int64_t last_used_ms;          /* monotonic */
	struct ring out[BASH_STREAMS]; /* stdout, stderr */
	struct bash_command *commands; /* oldest first: ended, running, waiting */
	struct bash_command *running;  /* or NULL */
	unsigned n_waiting;            /* commands in the queue */
	unsigned n_commands;           /* in the list */
	size_t bytes;                  /* memory of those commands */
	unsigned long total_commands;  /* ever submitted */
	struct bash_waiter *waiters;
	struct bash_session *prev, *next; /* bash->sessions */
};

struct bash {
	struct server *srv;
	struct bash_session *sessions; /* in order of creation */
	unsigned n_sessions;
	struct bash_pipe *lingering; /* oldest first */
	unsigned n_lingering;
	unsigned n_active; /* commands that run or wait, in all sessions */
	ev_timer expiry;
	char *scratch; /* for reading pipes */
};

/*
 * Somebody who waits for a command to end, or for output as well: has_news,
 * if there is one, says whether what came is worth waking for. fn is called
 * once, after the waiter was taken off the list.
 */
struct bash_waiter {
	struct bash_command *command;
	bool (*has_news)(const struct bash_waiter *w);
	void (*fn)(struct bash_waiter *w);
	struct bash_waiter *prev, *next;
	bool listed;
};

/* The session or NULL. */
struct bash_session *bash_session_find(struct bash *b, const char *id);

/*
 * Makes a session; id NULL or "" generates one. Past the cap the least
 * recently used idle session goes. Returns 0, -EBUSY when all of them are
 * busy, -ENOMEM.
 */
int bash_session_new(struct bash *b, const char *id, const char *working_dir,
		     struct bash_session **ret) MUST_CHECK;
/* Kills what runs, wakes who waits (their commands are "killed"), frees it. */
void bash_session_close(struct bash_session *s);

/*
 * Queues cmd, which then belongs to the session, and starts it if nothing
 * runs; it may have ended when this returns. The session's directory is from
 * now on that of cmd. -EAGAIN when too much waits, -ENOMEM; nothing has changed
 * then and cmd is still the caller's.
 */
int bash_session_submit(struct bash_session *s, struct bash_command *cmd) MUST_CHECK;

/* A command of the session by id, or NULL. */
struct bash_command *bash_session_command(struct bash_session *s, const char *id);
/* The running command, else the newest that ended, or NULL. */
struct bash_command *bash_session_current(struct bash_session *s);

void bash_waiter_add(struct bash_waiter *w);
/* Harmless if it is not on a list. */
void bash_waiter_remove(struct bash_waiter *w);

/* ---- for bash_command.c ---- */

void bash_session_output(struct bash_session *s, enum bash_stream stream, const char *data,
			 size_t len);
/* The running command has ended; starts the next one. */
void bash_session_ended(struct bash_session *s);

/*
 * One interactive bash behind a pseudo-terminal. It takes its commands from a
 * memfd and reports each one's end on a socket, so neither its terminal nor
 * what commands do to it gets in the way. Knows nothing of sessions, queues or
 * requests. Loop thread only.
 */
#pragma once

#include "buf.h"
#include "child.h"
#include "server.h"

struct shell_pty;

/* None of these may close the pty. */
struct shell_pty_events {
	void (*output)(struct shell_pty *p, const char *data, size_t len);
	/* Command seq has ended with status, and bash is in dir and waits for
	 * the next. All of the command's output came before. seq 0 = just started. */
	void (*report)(struct shell_pty *p, uint64_t seq, int status, const char *dir);
	/* bash itself has ended, and with it everything it had started. */
	void (*ended)(struct shell_pty *p, int wstatus);
};

struct shell_pty {
	struct server *srv;
	const struct shell_pty_events *events;
	pid_t pid; /* of bash, and the session id of all it starts; 0 = none runs */
	int master, text, control;
	ino_t peer; /* the socket that is bash's end of control */
	ev_io on_master, on_control;
	struct child child;
	struct buf report; /* received but not complete */
};

void shell_pty_init(struct shell_pty *p, struct server *srv, const struct shell_pty_events *events);

/*
 * Starts bash in dir (a path for this process); symlinks: keep dir's own in
 * $PWD. 0 or a negative errno. Its first report says that it is ready.
 */
int shell_pty_start(struct shell_pty *p, const char *dir, bool symlinks) MUST_CHECK;

/*
 * Has bash run a command, in dir unless that is NULL or cannot be entered.
 * Only after a report. 0 or a negative errno: bash is then of no more use.
 */
int shell_pty_run(struct shell_pty *p, uint64_t seq, const char *command, const char *dir,
		  bool symlinks) MUST_CHECK;

/* Sends sig to whatever has the terminal. False: that is bash itself. */
bool shell_pty_interrupt(struct shell_pty *p, int sig);

/*
 * Whether bash has its control socket in place and the terminal to itself. For
 * longer than a moment after shell_pty_run() that means that its loop is broken.
 */
bool shell_pty_in_loop(const struct shell_pty *p) MUST_CHECK;

/* Has bash go on if it was stopped. */
void shell_pty_continue(const struct shell_pty *p);

/* The directory bash is in; 0 or a negative errno. */
int shell_pty_cwd(const struct shell_pty *p, char *buf, size_t size) MUST_CHECK;

/* Sends sig to bash and everything on its terminal. */
void shell_pty_signal(const struct shell_pty *p, int sig);

/* Kills bash and everything on its terminal; no more events. Harmless if none runs. */
void shell_pty_close(struct shell_pty *p);

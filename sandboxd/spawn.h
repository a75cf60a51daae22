/*
 * Starting commands: fork, limits, session or process group, exec. The child
 * calls only async-signal-safe functions, because workers may run. Loop thread.
 */
#pragma once

#include "server.h"

struct spawn {
	const char *const *argv; /* argv[0] is the program's absolute path */
	const char *const *env;  /* complete environment; NULL = the sandbox's default */
	const char *cwd;         /* path for this process; must exist */
	int stdin_fd, stdout_fd, stderr_fd;
	bool tty;         /* stdin_fd is a terminal: new session, controlling tty */
	int extra_fds[2]; /* become fds 62 and 63 of the child; -1 = none */
};

/*
 * Starts the command in a process group of its own. The fds stay the
 * caller's. Returns the pid, or a negative errno, also that of a failed
 * chdir or exec.
 */
pid_t spawn(const struct server *srv, const struct spawn *s) MUST_CHECK;

/*
 * The sandbox's environment plus name=value pairs, as spawn() takes it.
 * Free with spawn_env_free(). NULL when out of memory.
 */
char **spawn_env(const struct server *srv, const char *const *names, const char *const *values,
		 size_t n);
void spawn_env_free(char **env);

/* Sends sig to the whole group of a command; never to others. */
void spawn_kill(pid_t group, int sig);

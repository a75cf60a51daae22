/*
 * A real threadfs-sandboxd for a test, in a directory of its own below /tmp,
 * and a few questions about the test program itself. Main thread only: the
 * program ends when the thread that started it does.
 */
#pragma once

#include <sys/types.h>

#include "util.h"

struct daemon;

struct daemon_options {
	const char *dialect;     /* "1.0", "1.9" or "aiod"; NULL: the program's default */
	const char *isolation;   /* "bwrap" or "none"; NULL: the program's default */
	bool tcp;                /* on 127.0.0.1 instead of a unix socket */
	const char *api_key;     /* NULL: none */
	const char *const *args; /* more of them, NULL-terminated; may be NULL */
};

/*
 * Starts the program that $SANDBOXD names, else threadfs-sandboxd in the folder
 * above the test program's, and waits until it is ready. options may be NULL.
 * Returns NULL, with its log on stderr, if it is not within 20 s.
 */
struct daemon *daemon_start(const struct daemon_options *options);
/*
 * Sends a signal, SIGKILL to all of its processes, and waits for the end;
 * afterwards nobody listens any more. For servers that die in the middle: how it
 * ended is then not judged.
 */
void daemon_kill(struct daemon *d, int sig);
/* After daemon_kill(): again, on the same socket or port and the same data. Returns whether. */
bool daemon_restart(struct daemon *d) MUST_CHECK;
/*
 * Ends it with SIGTERM, after 5 s with SIGKILL, and removes its directory.
 * Returns 0 if it ended cleanly and its log holds no report of a sanitizer and
 * no failed assertion; else the exit status, 128 + the signal or 255, with the
 * log on stderr. NULL is fine.
 */
int daemon_stop(struct daemon *d) MUST_CHECK;

/* "http://127.0.0.1:PORT", or "http://localhost" with a unix socket. */
const char *daemon_url(const struct daemon *d);
const char *daemon_socket(const struct daemon *d); /* NULL with TCP */
const char *daemon_data(const struct daemon *d);   /* what is /mnt/user-data inside */
pid_t daemon_pid(const struct daemon *d);          /* 0 after daemon_kill() */
/* What it has logged so far, for the caller to free. */
char *daemon_log(const struct daemon *d);

/* Open file descriptors of this process. */
unsigned count_fds(void);
/* Its memory in RAM. */
size_t rss_kib(void);
/*
 * Sockets of this process that are connected to an address: the path of a unix
 * socket, or "http://127.0.0.1:PORT". The accepted ends are not among them, but
 * those of a rogue server to its upstream are.
 */
unsigned count_sockets_to(const char *address);

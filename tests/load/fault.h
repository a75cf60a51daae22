/*
 * What can go wrong around a mount, on order: its sandboxes die or stand still,
 * connections break, the watch ends. Finds everything by itself under the
 * runtime directory of the mount, so it works whatever the daemon is doing, and
 * signals nothing that does not belong there. Needs root for cutting. Not
 * thread-safe.
 */
#pragma once

#include <sys/types.h>

#include "util.h"

enum {
	FAULT_SANDBOXES = 64, /* at most so many are seen */
};

/* One embedded sandbox that runs: supervisor, bubblewrap, server. */
struct fault_sandbox {
	pid_t supervisor, server;
	char sock[108];
};

/* Those of a mount, by its XDG_RUNTIME_DIR. Returns how many. */
size_t fault_sandboxes(const char *run, struct fault_sandbox all[static FAULT_SANDBOXES]);
/* Whether it still is that sandbox. */
bool fault_is_sandbox(pid_t supervisor);
/* A signal to the server, or to the supervisor. Returns whether there was one. */
bool fault_signal(const struct fault_sandbox *s, bool server, int sig);
/* SIGKILL, as above, and waits (seconds at most) until nothing of it is left. Returns whether. */
bool fault_kill(const struct fault_sandbox *s, bool server);
/*
 * Breaks connections of the program to sandboxes: all, or (odds > 1) one in so
 * many by the random number. Returns how many.
 */
unsigned fault_cut(pid_t program, const char *run, unsigned odds, uint64_t random);
/* The server drops every watcher that it has. Returns how many. */
unsigned fault_drop_watch(const struct fault_sandbox *s);

/* xorshift64*: a sequence that is the same everywhere. The state must not be 0. */
uint64_t fault_random(uint64_t *state);

/* What the parts of confine share; for confine*.c only. */
#pragma once

#include "options.h"

/* A growing argument vector. Errors are sticky, as in struct buf. */
struct argvec {
	char **v; /* NULL-terminated, owned */
	size_t n, cap;
	int error;
};

void argvec_release(struct argvec *a);

/* Everything that decides what is inside. */
struct walls {
	const struct config *cfg;
	const char *data_path; /* resolved path on the host */
	const char *server;    /* resolved path of the server's program */
	bool other_user;       /* the sandbox's, who may reach less than we do */
	bool kernel_root;      /* user 1000 inside is the host's root */
	bool disable_userns;
	int listen_fd, lifeline_fd, status_fd;
	int key_fd; /* -1 = no key */
};

enum { WALLS_MAX_FDS = 96 };

/* File descriptors that bwrap is to inherit. */
struct handover {
	int fds[WALLS_MAX_FDS];
	size_t n;
	size_t owned; /* so many at the end of fds are closed by handover_release() */
};

void handover_release(struct handover *h);

/* Builds bwrap's argument vector. Returns 0 or a negative errno. */
int walls_args(const struct walls *w, struct argvec *ret_args, struct handover *ret_fds) MUST_CHECK;

/*
 * The filter of system calls that bwrap is to install: a file of its own, for the
 * caller to close. -EOPNOTSUPP: there is none for this processor.
 */
int filter_open(void) MUST_CHECK;

struct cgroup;

/*
 * A cgroup for one sandbox, with limits on processes and memory, where this
 * process may make one. NULL = none (the reason is logged at debug level).
 */
struct cgroup *cgroup_new(uint64_t max_processes, uint64_t max_memory);
/*
 * fork(), with the child in the cgroup; NULL = plain fork(). Must follow
 * cgroup_new() soon, others may wait for it. Single-threaded callers only; the
 * child may do what a child of fork() may, until it calls exec.
 */
pid_t cgroup_fork(struct cgroup *cg);
/* Whether its processes together have a limit on memory. Takes NULL. */
bool cgroup_holds_memory(const struct cgroup *cg);
/* Removes it; waits a moment for processes that are just ending. Takes NULL. */
void cgroup_free(struct cgroup *cg);

/* What /proc says of a process. Any thread. */
#pragma once

#include <sys/types.h>

#include "util.h"

struct proc_stat {
	char state; /* R, S, T, Z, … */
	pid_t parent;
	pid_t session;
};

/*
 * name is the process's directory below dir: "123" with dir open on /proc, or
 * a whole path with AT_FDCWD. False if there is no such process (any more).
 */
bool proc_stat(int dir, const char *name, struct proc_stat *ret);

/* The process behind a FUSE request. */
#pragma once

#include <sys/types.h>

#include "util.h"

/*
 * Whether a thread that waits for us is to stop waiting: a signal has come that ends it, or one
 * that it handles and that asks for an end (SIGINT, SIGTERM, SIGHUP, SIGQUIT). For every other
 * (SIGCHLD, SIGALRM, SIGWINCH, SIGTSTP, a debugger's) file systems do not fail calls, and programs
 * do not expect it: they come when the call has returned. True also if nothing can be known of it.
 */
bool caller_wants_out(pid_t tid);

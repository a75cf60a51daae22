/*
 * What a program writes to .ctl/run, and the names of signals. Pure.
 *
 *	{"argv": ["make", "report"],      or "script": "make report",
 *	 "dir": "outputs",                below the thread's root; optional
 *	 "env": {"A": "b"},               optional
 *	 "stdin": true}                   input comes by jobs/N/stdin; optional
 */
#pragma once

#include "buf.h"

struct run_request {
	struct buf script;
	char *dir;  /* below the thread's root, no slash at its ends; "" for the root */
	char **env; /* NAME, VALUE, …, NULL */
	bool fed;
};
#define CLEANUP_RUN_REQUEST CLEANUP(run_request_release)
void run_request_release(struct run_request *r);

/*
 * Reads one (text is modified, as by json_parse). Returns 0, -EINVAL for what
 * is not one (".." in dir, NUL anywhere, a name that no variable has, an unknown
 * key), -E2BIG, -ENOMEM. ret is untouched on failure.
 */
int run_request_parse(char *text, size_t len, struct run_request *ret) MUST_CHECK;

/* Appends a command line for bash that runs argv as it is. -EINVAL: it is empty. */
int run_script(struct buf *to, const char *const *argv) MUST_CHECK;
/* Whether a variable can be called that: [A-Za-z_][A-Za-z0-9_]* */
bool run_is_env_name(const char *name, size_t len);

/*
 * Which signal is meant: INT, TERM, KILL or HUP, with or without SIG, in any
 * case, or its number. Another signal: -EINVAL. Any other text, or none: SIGTERM.
 */
int run_signal(const char *text, size_t len) MUST_CHECK;

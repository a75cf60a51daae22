/*
 * The commands of the program, one file each (cmd_NAME.c); main.c has read their
 * arguments. Each returns the exit status: 0, or 1 after one line on standard error (cmd_exec:
 * the status of the command that it ran).
 */
#pragma once

#include "options.h"

enum { EXIT_USAGE = 2 };

/* "threadfs: …" and a newline on standard error; control characters are escaped. Returns 1. */
int cmd_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* The same of what is no failure. */
void cmd_note(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Mounts; returns when the mount answers or, in the foreground, when it has ended. */
int cmd_mount(struct options *o);

/* lazy: out of sight now, gone when nobody uses it any more. */
int cmd_unmount(const char *mountpoint, bool lazy);

/* Without a path: every mount of this user. */
int cmd_status(const char *path, bool json);

/* Shows a mount on the whole screen until the user quits; or, without a terminal, once. */
int cmd_top(const char *path);

/*
 * For commands that look at one mount (cmd_status.c). The mount that path lies in, or for NULL
 * the only one of this user; for the caller to free. NULL: there is none, or several; that
 * has been said.
 */
char *cmd_find_mount(const char *path, const char *command);
/* Says why a mount's control file cannot be read. Returns 1. */
int cmd_explain(const char *point, int err);

struct cp_args {
	char *const *from;
	size_t count; /* at least one */
	const char *to;
	bool recursive;
};
/* 130: interrupted. */
int cmd_cp(const struct cp_args *a);

struct recover_args {
	const char *path;  /* in a mount; NULL: none */
	const char *cache; /* a cache directory; NULL: the mount's, or the user's own */
	bool retry, discard;
	const char *save; /* a directory; NULL: no */
	char **records;   /* which, by how their names begin, NULL; none: all */
	bool all;         /* of discard: really all */
};
int cmd_recover(const struct recover_args *a);

struct exec_args {
	char **env;       /* NAME=VALUE…, NULL */
	const char *dir;  /* of -d; NULL: none */
	const char *path; /* in a thread */
	char **argv;      /* at least one, NULL */
};
int cmd_exec(const struct exec_args *a);

/* The page of a command, or of the program for NULL. False: there is no such command. */
bool help_page(const char *command, struct buf *to);
/* The name of each command that has a page, one after the other; NULL: that was all. */
const char *help_command(size_t i);
/* The command whose name is nearest to this; NULL: none is near. */
const char *help_nearest(const char *command);

/* threadfs help --complete [-- WORD...], see complete.c; the arguments behind it. Returns the exit
 * status. */
int complete_show(int argc, char **argv);

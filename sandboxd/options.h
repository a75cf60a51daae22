/*
 * The command line: one table gives parsing, --help and the hidden options
 * that the supervisor uses to start the inner server.
 */
#pragma once

#include "config.h"

struct options {
	struct config cfg;
	const char *api_key_file;

	/* Set only for the inner server (see confine.h); -1 otherwise. */
	int inherit_listen; /* the listening socket */
	int inherit_status; /* one byte is written here when it serves */
	int inherit_key;    /* the API key is read from here */
};

enum {
	OPTIONS_EXIT_FAILURE = 1,
	OPTIONS_EXIT_USAGE = 2,
};

/*
 * Parses argv. Strings in *ret point into argv. Prints --help and --version to
 * stdout and mistakes to stderr itself. Returns -1 when the program is to go
 * on, otherwise its exit status. Not thread-safe (getopt).
 */
int options_parse(int argc, char **argv, struct options *ret);

/*
 * Reads the first line of a key file or pipe, trimmed. *ret is the caller's to
 * free. Returns 0, -ENODATA when it is empty, -EMSGSIZE when it is too long.
 */
int options_read_key(int fd, char **ret) MUST_CHECK;

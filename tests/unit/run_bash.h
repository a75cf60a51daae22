/* For tests that ask a real bash: runs a script of any length and any bytes. */
#pragma once

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "buf.h"

/*
 * Appends what `env … bash SCRIPT …` writes to its stdout. before and after are
 * words of the command line: variables, redirections. Returns the exit code.
 */
static inline int run_bash(const char *before, const struct buf *script, const char *after,
			   struct buf *ret_out)
{
	int fd CLEANUP_FD = memfd_create("script", 0); /* inherited by the shell */
	char command[200], piece[4096];
	int status;
	size_t n;
	FILE *f;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, script->data, script->len), script->len);
	snprintf(command, sizeof(command), "env %s bash --norc /proc/self/fd/%d %s", before, fd,
		 after);
	f = popen(command, "re");
	assert_non_null(f);
	while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
		assert_int_equal(buf_append(ret_out, piece, n), 0);
	status = pclose(f);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/*
 * Scripts of the exec channel as each kind of server runs them, and how their
 * output is recovered from what it answers. The scripts are ours and one line
 * each; what comes back is a stranger's. Pure.
 */
#pragma once

#include "buf.h"

enum {
	/* A terminal's output is cut at 30,000 characters; this much fits, armoured. */
	SHELL_OUT_MAX = 16 * 1024,
	SHELL_ERR_MAX = 4 * 1024,        /* beside so much output, or */
	SHELL_ERR_ALONE_MAX = 20 * 1024, /* beside a line: a message with one path at its longest */
	BASH_OUT_MAX = 6 * 1024 * 1024,  /* 10 MiB are kept there */
};

/*
 * Makes the script put its output into a new file, whose name is prefix (a
 * plain word), a dot and more, and print 'I' and the output if that has at most
 * inline_max bytes (the file is gone then), else 'S' and the name. Its exit
 * code stays.
 */
void wrap_spill(struct buf *to, const struct buf *script, const char *prefix, size_t inline_max);

/* For /v1/bash, where text comes back as it is: only bytes need an armour. */
void wrap_bash_bytes(struct buf *to, const struct buf *script);
/*
 * The output of such a script. ret_cut: the server left some of it out (then
 * nothing is appended). Returns 0, -EBADMSG, or the buffer's error.
 */
int unwrap_bash_bytes(struct buf *to, const char *text, bool *ret_cut) MUST_CHECK;

/*
 * For the shell, which is a terminal. mark: a few letters and digits that
 * appear nowhere else. err_max: at most so much of the end of stderr is kept.
 */
void wrap_shell(struct buf *to, const struct buf *script, const char *mark, size_t err_max);
/* The same as above; out and err are appended to. */
int unwrap_shell(const char *text, const char *mark, struct buf *out, struct buf *err,
		 int *ret_exit_code, bool *ret_cut) MUST_CHECK;

/*
 * Commands for the sandbox's bash: the only place where a word is quoted. The
 * result is printable ASCII whatever the bytes, so that it survives JSON, a
 * terminal and any locale: '…' for plain words, $'…' with octal escapes else.
 */
#pragma once

#include "buf.h"

/* Appends the word, quoted; an empty one as ''. Errors are the buffer's; -EINVAL for NUL in it. */
int shellquote(struct buf *to, const char *word, size_t len);

/*
 * Appends a command from a template: %s is a quoted word (const char *), %d an
 * int64_t in decimal, %o an unsigned mode in octal, %% a percent sign; anything
 * else stands as it is.
 *	shell_printf(b, "exec mkdir -m %o -- %s", mode, path);
 */
int shell_printf(struct buf *to, const char *template, ...);

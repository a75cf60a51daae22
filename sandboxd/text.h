/*
 * What file contents go through between the disk and JSON, as a Python server
 * would do it: newline translation, str.splitlines(), lenient base64, Latin-1.
 * Pure: no I/O, no server state; any thread.
 */
#pragma once

#include "buf.h"

/* CRLF and lone CR become LF, in place; returns the new length. */
size_t text_translate_newlines(char *s, size_t n) MUST_CHECK;

/*
 * The first line of s (n > 0, UTF-8) by str.splitlines(): returns its length
 * without the boundary; *ret_next is where the next line starts.
 */
size_t text_line(const char *s, size_t n, size_t *ret_next);

/*
 * base64 as b64decode(validate=False) reads it: characters outside the
 * alphabet are skipped. 0, -EINVAL (padding, non-ASCII) with a static *ret_why,
 * or the buffer's error.
 */
int text_decode_base64(const char *s, size_t n, struct buf *out, const char **ret_why) MUST_CHECK;

/* One byte per character; -EINVAL if one is above U+00FF. s is UTF-8. */
int text_decode_latin1(const char *s, size_t n, struct buf *out) MUST_CHECK;

/* Appends s, each byte that is not UTF-8 as U+FFFD. */
int text_append_valid(struct buf *out, const char *s, size_t n);

/*
 * Appends s with every occurrence of old (not empty) replaced. 0 or the
 * buffer's error; *ret_count is the number of replacements.
 */
int text_replace_all(struct buf *out, const char *s, size_t n, const char *old, size_t old_len,
		     const char *new, size_t new_len, size_t *ret_count) MUST_CHECK;

/* "500K", "1M", "10485760": bytes. -EINVAL or -ERANGE. */
int text_parse_size(const char *s, uint64_t *ret) MUST_CHECK;

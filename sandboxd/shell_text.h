/*
 * What a terminal received, as plain text: without escape sequences, carriage
 * returns and what backspaces erased, always valid UTF-8. Pure.
 */
#pragma once

#include "buf.h"

/* Where the cleaning stands between two pieces. Zeroed = at the start. */
struct shell_text {
	unsigned state;
	unsigned swallowed; /* bytes of the control string under way */
	char cut[4];        /* the start of a character whose rest is to come */
	unsigned ncut;
};

/*
 * Appends data, cleaned, to out; a backspace erases from out, but never over
 * the start of a line. Returns 0 or out's error.
 */
int shell_text_feed(struct shell_text *t, const char *data, size_t len, struct buf *out);

/* len without the newlines at the end. */
size_t shell_text_trim(const char *s, size_t len);

/*
 * If s has more than max_chars characters: appends its head and its tail with
 * a line between them that says so, max_chars in all, and returns 1. Returns 0
 * and leaves out alone if it fits, or out's error. max_chars is at least 200.
 */
int shell_text_shorten(const char *s, size_t len, size_t max_chars, struct buf *out) MUST_CHECK;

/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates. Pure. */
#pragma once

#include "util.h"

/*
 * Length of the valid sequence at the start of s (1..4), or 0 if the first
 * byte does not start one that is complete within len. len must be > 0.
 */
size_t utf8_sequence(const char *s, size_t len);

/*
 * Whether s, which has no complete sequence at its start, could become one
 * with more bytes: tells "cut" from "wrong".
 */
bool utf8_is_cut(const char *s, size_t len);

/*
 * Whether a whole character of len bytes is invisible and changes how what follows is
 * shown: controls (C0, DEL, C1), line ends, marks, embeddings and overrides of direction.
 */
bool utf8_is_control(const char *s, size_t len);
/* What others said, for a terminal or a log, in place: controls and what is no UTF-8 become '?'. */
void utf8_disarm(char *s);

bool utf8_valid(const char *s, size_t len);

/* Number of characters, an invalid byte counting as one. */
size_t utf8_length(const char *s, size_t len);
/* Byte offset of character number n (or len when there are fewer). */
size_t utf8_offset(const char *s, size_t len, size_t n);

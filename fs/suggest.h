/* The nearest of several names to one that was mistyped. Pure; any thread. */
#pragma once

#include "util.h"

struct suggestion {
	const char *word;    /* what was typed */
	const char *nearest; /* the best so far; NULL: none is near */
	unsigned distance;
};

#define SUGGESTION_INIT(word_) ((struct suggestion){ .word = (word_) })

/* Looks at one more candidate, which must stay valid. Of equals the first wins. */
void suggest_try(struct suggestion *s, const char *candidate);

/* How many letters must be added, dropped, replaced or swapped with their neighbour to make one
 * of the other. Only for words of up to SUGGEST_BYTES_MAX bytes; UINT_MAX beyond. */
enum { SUGGEST_BYTES_MAX = 32 };
unsigned suggest_distance(const char *a, const char *b);

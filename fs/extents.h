/*
 * A set of byte ranges: sorted, apart from each other. Pure; no threads.
 */
#pragma once

#include "util.h"

struct extent {
	uint64_t start, end; /* end is not part of it */
};

/* Zeroed: the empty set. */
struct extents {
	struct extent *v;
	size_t n, cap;
};

void extents_release(struct extents *e); /* empty again */
/* Adds start..end (without end), joined with what it touches. Returns 0 or -ENOMEM (unchanged). */
int extents_add(struct extents *e, uint64_t start, uint64_t end) MUST_CHECK;
/* Nothing from `at` on is part of it any more. */
void extents_cut(struct extents *e, uint64_t at);
/* Whether all of start..end is in it; an empty range is. */
bool extents_cover(const struct extents *e, uint64_t start, uint64_t end);
/* The first offset from `at` on that is not in it; that is; UINT64_MAX if there is none. */
uint64_t extents_next_gap(const struct extents *e, uint64_t at);
uint64_t extents_next_set(const struct extents *e, uint64_t at);

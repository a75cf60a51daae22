/*
 * Whether somebody who opens one file of a directory after the other follows an
 * order. Places are those of the files in that order. Pure; no threads.
 */
#pragma once

#include "util.h"

enum {
	COURSE_SEEN = 8, /* so many of the last ones are remembered */
	COURSE_REACH =
		16, /* so many may be left out in between: directories, other kinds of files */
};

struct course {
	uint32_t places[COURSE_SEEN]; /* the last one last; each another than the one before */
	unsigned n;
	unsigned total; /* n counts no further than the array */
};

/* A file was opened; the same one again is no news. Returns whether it was. */
bool course_add(struct course *c, uint32_t place);
/*
 * Whether the places so far look like those of somebody who goes through the
 * order: two that follow each other directly, or three that go forward in small
 * steps. rank: for each place of the course its place in the order; NULL: itself.
 */
bool course_follows(const struct course *c, const uint32_t *rank);
/* Whether so many were opened that all of a small directory will be, in whatever order. */
bool course_wanders(const struct course *c);

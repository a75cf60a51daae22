/* Where the bytes of an answer stand in their file: the header Content-Range. Pure. */
#pragma once

#include "util.h"

struct content_range {
	int64_t start; /* of the first byte; -1: not known */
	int64_t total; /* of the file; -1: not known */
};

/*
 * "bytes 5-9/20", where a star may stand for what is not known; anything else, NULL too, is -1
 * and -1. What is known is true in itself: a start is before the total.
 */
struct content_range content_range_parse(const char *header);

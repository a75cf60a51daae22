/* From settings to the backend that they ask for. */
#pragma once

#include "backend.h"
#include "options.h"

/*
 * Makes the backend of the source. Not on the loop's thread; may block. Returns 0, or a
 * negative errno with one line in why.
 */
int backends_open(const struct options *o, struct loop *loop, struct backend **ret,
		  struct buf *why) MUST_CHECK;

/* Somebody waits for a piece of a file: embedded in whoever asks. Loop thread only. */
#pragma once

#include <sys/uio.h>

#include "util.h"

struct read_op {
	uint64_t offset;
	size_t size;
	/*
	 * Once: 0 with the bytes (valid during the call; fewer than size only at the end of
	 * the file), or a negative errno. May come from inside the function that was asked.
	 */
	void (*done)(struct read_op *op, int err, const struct iovec *iov, int count);
	/* private to who was asked */
	struct read_op *prev, *next;
};

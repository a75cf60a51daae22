/*
 * A piece of a file in memory, [start, end), that moves forward: bytes are
 * added at its end and dropped at its start, in blocks that readers point into.
 * Besides, how much of it to hold for a reader who goes through the file.
 * Pure: no I/O, no threads.
 */
#pragma once

#include <sys/uio.h>

#include "util.h"

enum {
	WINDOW_BLOCK = 64 * 1024,
	WINDOW_FIRST = 256 * 1024,    /* ahead of a reader who has just begun */
	WINDOW_MAX = 8 * 1024 * 1024, /* ahead of one who goes on and on */
	WINDOW_LEAST = 64 * 1024,     /* when memory is short */
	WINDOW_BEHIND = 1024 * 1024,  /* kept behind him, at most: requests overtake each other */
	WINDOW_BEHIND_LEAST = 512 * 1024, /* unless memory is short */
	WINDOW_IOV = 64,                  /* pieces of one read, at most */
};

struct window {
	uint64_t start, end;
	char **blocks; /* the first holds start */
	size_t count, room;
	uint64_t base; /* where in the file the first one begins */

	/* the reader */
	uint64_t passed;  /* he has had the bytes up to here, and perhaps some behind */
	size_t ahead;     /* how far to go beyond */
	uint64_t doubled; /* where ahead became what it is */
	bool starved;     /* he had to wait since */
};

/* Zeroed is empty, at 0. */
void window_release(struct window *w);
/* Empties it; the next byte is the one at `at`. The reader is a new one. */
void window_reset(struct window *w, uint64_t at);
/* Empties it, but the reader goes on where he is. */
void window_empty(struct window *w, uint64_t at);

/* Adds bytes at the end: all of them, or -ENOMEM and none. */
int window_add(struct window *w, const void *bytes, size_t len) MUST_CHECK;
/*
 * Where the next byte will be, and how many bytes fit there: window_add() of what was put there
 * only counts it. NULL: no memory. Valid until something is dropped or added.
 */
char *window_space(struct window *w, size_t *ret_len);
bool window_is_next(const struct window *w, const void *bytes);
/* Memory that the blocks take. */
size_t window_memory(const struct window *w);
bool window_has(const struct window *w, uint64_t offset, size_t len);
/* Where these bytes (of those it has) are; how many pieces, -E2BIG: more than max. */
int window_find(const struct window *w, uint64_t offset, size_t len, struct iovec *iov,
		int max) MUST_CHECK;

/* The reader waits for bytes that have yet to come. */
void window_starve(struct window *w);
/* The reader had the bytes up to here; spare: memory that is free for windows, in all. */
void window_pass(struct window *w, uint64_t to, int64_t spare);
/*
 * Whether it should take more now. wanted: what is waited for ends there; 0: nothing.
 * low: the lowest byte that is waited for; UINT64_MAX: none. Drops what is far behind both.
 */
bool window_hungry(struct window *w, uint64_t low, uint64_t wanted, int64_t spare);

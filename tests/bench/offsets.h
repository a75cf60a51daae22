/*
 * Where the random reads of scripts/bench mount go: the same places for
 * everyone, in no order, and a sum that does not depend on the order.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { OFFSETS_PIECE = 4096 };

struct offsets {
	uint64_t state;
	uint64_t pieces; /* of the file */
};

static inline void offsets_init(struct offsets *o, uint64_t size)
{
	o->state = 88172645463325252ull;
	o->pieces = size / OFFSETS_PIECE ? size / OFFSETS_PIECE : 1;
}

static inline uint64_t offsets_next(struct offsets *o)
{
	/* xorshift64 */
	o->state ^= o->state << 13;
	o->state ^= o->state >> 7;
	o->state ^= o->state << 17;
	return o->state % o->pieces * OFFSETS_PIECE;
}

static inline uint64_t offsets_sum(const unsigned char *bytes, size_t len)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += bytes[i];
	return sum;
}

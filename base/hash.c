/* See hash.h. */
#include "hash.h"

#include <endian.h>
#include <pthread.h>

#include "random.h"

static uint64_t key[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
	random_fill(key, sizeof(key));
}

static uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static void mix(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

uint64_t hash_with(const uint64_t with[2], const void *bytes, size_t len)
{
	const unsigned char *at = bytes;
	uint64_t v[4] = { with[0] ^ 0x736f6d6570736575, with[1] ^ 0x646f72616e646f6d,
			  with[0] ^ 0x6c7967656e657261, with[1] ^ 0x7465646279746573 };
	uint64_t word, last = (uint64_t)len << 56;

	for (size_t i = 0; i < len / 8; i++, at += 8) {
		memcpy(&word, at, 8);
		word = le64toh(word);
		v[3] ^= word;
		mix(v);
		v[0] ^= word;
	}
	for (size_t i = 0; i < len % 8; i++)
		last |= (uint64_t)at[i] << (8 * i);
	v[3] ^= last;
	mix(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint32_t hash_of(const void *bytes, size_t len)
{
	uint64_t h;

	pthread_once(&once, make_key);
	h = hash_with(key, bytes, len);
	return (uint32_t)(h ^ h >> 32);
}

/*
 * What the mixed load's files hold: a function of a seed and the offset, so
 * that any part of any file can be checked without keeping it. Pure.
 */
#include <string.h>

#include "mix_i.h"

static uint64_t content_word(const struct content *k, uint64_t index)
{
	uint64_t z = (k->seed + index) * 0x9e3779b97f4a7c15ull;

	z ^= z >> 29;
	return z * 0xbf58476d1ce4e5b9ull;
}

/* Eight bytes: noise with what looks like a part's end now and then, or text. */
static void content_block(const struct content *k, uint64_t index, char out[8])
{
	uint64_t w = content_word(k, index);

	if (k->text) {
		for (unsigned i = 0; i < 7; i++)
			out[i] = (char)('a' + (w >> (8 * i)) % 26);
		out[7] = index % 8 == 7 ? '\n' : ' ';
	} else if (w >> 60 == 0) {
		memcpy(out, "\r\n--mixl", 8);
	} else {
		memcpy(out, &w, 8);
	}
}

void content_fill(const struct content *k, uint64_t offset, char *out, size_t len)
{
	while (len) {
		char block[8];
		size_t skip = offset % 8;
		size_t n = MIN(8 - skip, len);

		content_block(k, offset / 8, block);
		memcpy(out, block + skip, n);
		out += n;
		offset += n;
		len -= n;
	}
}

bool content_matches(const struct content *k, uint64_t offset, const char *data, size_t len)
{
	char want[4096];

	while (len) {
		size_t n = MIN(len, sizeof(want));

		content_fill(k, offset, want, n);
		if (memcmp(want, data, n))
			return false;
		data += n;
		offset += n;
		len -= n;
	}
	return true;
}

struct content big_content(const struct options *o)
{
	return (struct content){ .seed = o->seed + 1, .size = BIG_FILE };
}

void big_path(const struct options *o, struct buf *b)
{
	buf_printf(b, WORKSPACE "/mix-%llu-shared/big", (unsigned long long)o->seed);
}

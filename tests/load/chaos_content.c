/* What the files of chaos hold, as a function of their names and versions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "chaos_i.h"

enum { HEAD = 64 };

void slot_name(char *name, size_t size, uint32_t generation, unsigned slot, bool second)
{
	snprintf(name, size, "s%u.g%u.%c", slot, generation, second ? 'b' : 'a');
}

size_t content_make(char *buf, unsigned thread, uint32_t generation, unsigned slot,
		    uint32_t version)
{
	uint64_t x = (chaos.seed ^ ((uint64_t)thread << 56) ^ ((uint64_t)slot << 48) ^
		      ((uint64_t)generation << 32) ^ version) *
			     0x9e3779b97f4a7c15ull |
		     1;
	uint64_t kind = fault_random(&x) % 40;
	size_t most = kind == 0 ? CONTENT_MAX - HEAD : kind < 6 ? 200000 : 12000;
	size_t len = HEAD + fault_random(&x) % most;

	memset(buf, ' ', HEAD);
	snprintf(buf, HEAD, "T%u S%u G%u V%u N%zu", thread, slot, generation, version, len);
	buf[HEAD - 1] = '\n';
	for (size_t i = HEAD; i < len; i += 8) {
		uint64_t word = fault_random(&x);

		memcpy(buf + i, &word, MIN(8, len - i));
	}
	return len;
}

uint32_t content_version(const char *data, size_t len, char *scratch, unsigned thread,
			 uint32_t generation, unsigned slot)
{
	char head[HEAD + 1] = "", *at;
	uint32_t version;

	memcpy(head, data, MIN(len, (size_t)HEAD));
	at = strchr(head, 'V');
	version = at ? (uint32_t)strtoul(at + 1, NULL, 10) : 0;
	if (version == 0 || content_make(scratch, thread, generation, slot, version) != len ||
	    memcmp(scratch, data, len) != 0)
		return 0;
	return version;
}

/* What a version's bytes at `at` are, in a file that was made longer without more of them. */
static bool is_of(const char *data, const char *whole, size_t whole_len, size_t at, size_t end)
{
	size_t mid = MIN(MAX(whole_len, at), end);

	if (memcmp(data + at, whole + at, mid - at) != 0)
		return false;
	for (size_t i = mid; i < end; i++)
		if (data[i])
			return false;
	return true;
}

static bool is_mix(const char *data, size_t len, const char *before, size_t before_len,
		   const char *after, size_t after_len)
{
	if (len < MIN(before_len, after_len) || len > MAX(before_len, after_len))
		return false;
	for (size_t at = 0; at < len; at += BLOCK) {
		size_t end = MIN(at + BLOCK, len), mid = MIN(MAX(after_len, at), end);

		if (!is_of(data, before, before_len, at, end) &&
		    !(is_of(data, after, after_len, at, mid) &&
		      is_of(data, before, before_len, mid, end)))
			return false;
	}
	return true;
}

bool content_is_edit(const char *data, size_t len, unsigned thread, const struct slot *s,
		     unsigned slot)
{
	static char before[CONTENT_MAX], after[CONTENT_MAX];
	uint32_t edited = s->edited;
	size_t before_len, after_len;

	if (!edited)
		return false;
	after_len = content_make(after, thread, s->generation, slot, edited);
	for (uint32_t v = MAX(s->confirmed, 1u); v < edited; v++) {
		before_len = content_make(before, thread, s->generation, slot, v);
		if (is_mix(data, len, before, before_len, after, after_len))
			return true;
	}
	return false;
}

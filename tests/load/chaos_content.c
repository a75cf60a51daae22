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

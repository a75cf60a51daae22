/* Random identifiers from the kernel's generator. */
#include "uuid.h"

#include <stdio.h>
#include <string.h>

#include "random.h"

void uuid_make(char *out)
{
	unsigned char b[16];

	random_fill(b, sizeof(b));
	b[6] = (b[6] & 0x0f) | 0x40;
	b[8] = (b[8] & 0x3f) | 0x80;
	snprintf(out, UUID_LEN + 1,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		 b[15]);
}

bool uuid_is(const char *s)
{
	return strlen(s) == UUID_LEN && strspn(s, "0123456789abcdef-") == UUID_LEN;
}

/* See redact.h. */
#include "redact.h"

#include <string.h>
#include <strings.h>

enum { KEY_LEAST = 4 };

void redact(char *text, const char *header)
{
	static const char bearer[] = "Bearer ";
	size_t len;

	header += strspn(header, " ");
	if (strncasecmp(header, bearer, sizeof(bearer) - 1) == 0)
		header += sizeof(bearer) - 1;
	len = strlen(header);
	if (len < KEY_LEAST)
		return;
	for (char *at = text; (at = strstr(at, header)); at += len)
		memset(at, '*', len);
	/* One that was cut off with the text. */
	for (size_t n = MIN(len - 1, strlen(text)); n >= KEY_LEAST; n--) {
		char *end = text + strlen(text) - n;

		if (strncmp(end, header, n) == 0)
			memset(end, '*', n);
	}
}

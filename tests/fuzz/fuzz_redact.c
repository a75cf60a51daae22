/*
 * Keys that a server repeats. The first line is the header that the key was sent in, the rest is
 * what the server said.
 */
#include <assert.h>
#include <string.h>
#include <strings.h>

#include "redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEY_LEAST = 4 };

/* Not by the code that is being checked. */
static const char *key_of(const char *header)
{
	while (*header == ' ')
		header++;
	return strncasecmp(header, "bearer ", 7) == 0 ? header + 7 : header;
}

static bool ends_with(const char *text, const char *s, size_t n)
{
	size_t len = strlen(text);

	return len >= n && memcmp(text + len - n, s, n) == 0;
}

static void check_none_left(const char *text, const char *key)
{
	assert(!strstr(text, key));
	for (size_t n = KEY_LEAST; n < strlen(key); n++)
		assert(!ends_with(text, key, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *header CLEANUP_FREE = malloc(size + 1), *said CLEANUP_FREE = NULL;
	char *text CLEANUP_FREE = NULL, *newline;
	const char *key;

	assert(header);
	if (size > 0)
		memcpy(header, data, size);
	header[size] = '\0';
	newline = strchr(header, '\n');
	if (!newline)
		return 0;
	*newline = '\0';
	said = strdup(newline + 1);
	text = strdup(said); /* exactly: a byte too many is seen */
	assert(said && text);
	redact(text, header);
	key = key_of(header);
	assert(strlen(text) == strlen(said));
	for (size_t i = 0; said[i]; i++)
		assert(text[i] == said[i] || text[i] == '*');
	if (strlen(key) < KEY_LEAST)
		assert(strcmp(text, said) == 0);
	/* One with asterisks cannot be told from what was overwritten. */
	if (strlen(key) >= KEY_LEAST && !strchr(key, '*'))
		check_none_left(text, key);
	return 0;
}

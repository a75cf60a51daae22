/*
 * Reading JSON from a stranger: size, depth and node count are checked before
 * cJSON allocates anything, the text must be UTF-8, and U+0000 survives.
 *
 * cJSON keeps strings NUL-terminated, which would cut "a\u0000b" short without
 * a word. The checked parser therefore hands it the bytes C0 80 for \u0000
 * ("modified UTF-8": impossible in valid input), and the readers below turn
 * them back or refuse them.
 */
#pragma once

#include <cjson/cJSON.h>

#include "util.h"

enum {
	JSON_MAX_DEPTH = 64,
	JSON_MAX_NODES = 200000,
};

static inline void cleanup_cjson_(cJSON **j)
{
	cJSON_Delete(*j);
}
#define CLEANUP_JSON CLEANUP(cleanup_cjson_)

/*
 * Parses text (modified in place, text[len] must be writable or NUL).
 * Returns 0, -EINVAL (not JSON or not UTF-8), -E2BIG (too deep or too many
 * values), -ENOMEM. ret_why, if given, gets a static string on failure.
 */
int json_parse(char *text, size_t len, cJSON **ret, const char **ret_why) MUST_CHECK;

/* Whether a string parsed by json_parse() holds U+0000. */
bool json_has_nul(const char *s);

/* Turns C0 80 back into NUL in place; returns the length in bytes. */
size_t json_restore_nul(char *s);

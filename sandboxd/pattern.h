/*
 * Regular expressions of clients: PCRE2 with limits, so that no pattern can
 * hold a worker for long. Used by the thread that
 * made it; knows nothing of files.
 */
#pragma once

#include "util.h"

struct pattern;

enum {
	PATTERN_CASELESS = 1,
	PATTERN_LITERAL = 2,
	PATTERN_MULTILINE = 4, /* ^ and $ at every line, . matches newlines */
};

/*
 * 0; -EINVAL with what is wrong in why (if it is to be shown to the client);
 * -ENOMEM.
 */
int pattern_new(const char *text, unsigned flags, struct pattern **ret, char *why,
		size_t why_size) MUST_CHECK;
void pattern_free(struct pattern *p);

/*
 * Searches s from offset start on; bytes that are not UTF-8 never match.
 * 1 and the match's bounds; 0; -E2BIG when this search costs too much; -ETIME
 * when the thread that made the pattern has used up the time for all of them;
 * -ENOMEM.
 */
int pattern_search(struct pattern *p, const char *s, size_t len, size_t start, size_t *ret_from,
		   size_t *ret_to) MUST_CHECK;

static inline void cleanup_pattern_(struct pattern **p)
{
	pattern_free(*p);
}
#define CLEANUP_PATTERN CLEANUP(cleanup_pattern_)

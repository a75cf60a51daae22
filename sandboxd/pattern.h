/*
 * Regular expressions of clients: PCRE2 with limits, so that no pattern can
 * hold a worker for long. Used by the thread that made it; knows nothing of
 * files.
 */
#pragma once

#include "util.h"

struct pattern;

enum {
	PATTERN_CASELESS = 1,
	PATTERN_LITERAL = 2,
	PATTERN_MULTILINE = 4, /* ^ and $ at every line, . matches newlines */
};

enum { PATTERN_MS = 10000 }; /* for all searches of a pattern */

/*
 * 0; -EINVAL with what is wrong in why (if it is to be shown to the client);
 * -ENOMEM.
 */
int pattern_new(const char *text, unsigned flags, struct pattern **ret, char *why,
		size_t why_size) MUST_CHECK;
void pattern_free(struct pattern *p);

/*
 * Searching ends with -ETIME once the thread has worked for more than ms since
 * this call (or else PATTERN_MS since pattern_new; waiting for disks does not
 * count), and with -ECANCELED once stop, which may be NULL, says so.
 */
void pattern_limit(struct pattern *p, unsigned ms, bool (*stop)(void *ctx), void *ctx);

/*
 * Searches s, which must be UTF-8, from offset start, where a character must
 * begin. 1 and the match's bounds; 0; -E2BIG when this search alone costs too
 * much; -ETIME or -ECANCELED, see above; -ENOMEM.
 */
int pattern_search(struct pattern *p, const char *s, size_t len, size_t start, size_t *ret_from,
		   size_t *ret_to) MUST_CHECK;

static inline void cleanup_pattern_(struct pattern **p)
{
	pattern_free(*p);
}
#define CLEANUP_PATTERN CLEANUP(cleanup_pattern_)

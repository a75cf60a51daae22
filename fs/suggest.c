/* See suggest.h. */
#include "suggest.h"

#include <limits.h>
#include <string.h>

/* Damerau and Levenshtein's distance, in the variant that edits no piece twice. */
unsigned suggest_distance(const char *a, const char *b)
{
	unsigned d[SUGGEST_BYTES_MAX + 1][SUGGEST_BYTES_MAX + 1];
	size_t la = strlen(a), lb = strlen(b);

	if (la > SUGGEST_BYTES_MAX || lb > SUGGEST_BYTES_MAX)
		return UINT_MAX;
	for (size_t i = 0; i <= la; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= la; i++) {
		for (size_t j = 1; j <= lb; j++) {
			unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			best = MIN(best, d[i - 1][j] + 1);
			best = MIN(best, d[i][j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, d[i - 2][j - 2] + 1);
			d[i][j] = best;
		}
	}
	return d[la][lb];
}

void suggest_try(struct suggestion *s, const char *candidate)
{
	/* Of a short word not everything may be replaced: "xy" does not mean "ro",
	 * nor "foo" "top". */
	size_t enough = (MIN(strlen(s->word), strlen(candidate)) + 2) / 3;
	unsigned distance = suggest_distance(s->word, candidate);

	if (distance > enough || (s->nearest && distance >= s->distance))
		return;
	s->nearest = candidate;
	s->distance = distance;
}

/*
 * The header Content-Range of an answer: what is believed of it is true in itself, was said, and
 * is understood again.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "content_range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_said(const char *header, int64_t n)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%" PRId64, n);
	assert(strstr(header, digits));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *header CLEANUP_FREE = malloc(size + 1);
	char again[80];
	struct content_range r, same;

	assert(header);
	if (size > 0)
		memcpy(header, data, size);
	header[size] = '\0';
	r = content_range_parse(header);
	assert(r.start >= -1 && r.total >= -1);
	assert(r.start < 0 || r.total < 0 || r.start < r.total);
	if (r.start < 0 && r.total < 0)
		return 0;
	/* that it is not known is said, or nothing is believed */
	if (r.total < 0)
		assert(strcmp(strrchr(header, '/'), "/*") == 0);
	if (r.start >= 0)
		check_said(header, r.start);
	if (r.total >= 0)
		check_said(header, r.total);
	if (r.start < 0)
		snprintf(again, sizeof(again), "bytes */%" PRId64, r.total);
	else if (r.total < 0)
		snprintf(again, sizeof(again), "bytes %" PRId64 "-%" PRId64 "/*", r.start, r.start);
	else
		snprintf(again, sizeof(again), "bytes %" PRId64 "-%" PRId64 "/%" PRId64, r.start,
			 r.total - 1, r.total);
	same = content_range_parse(again);
	assert(same.start == r.start && same.total == r.total);
	return 0;
}

/* See content_range.h. By hand, not with sscanf(): every jump in a file has one. */
#include "content_range.h"

#include <string.h>

/* Digits at *at, and the character behind them; -1 if it is not that. */
static int64_t take_number(const char **at, char end)
{
	const char *p = *at;
	int64_t n = 0;

	if (*p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (n > (INT64_MAX - 9) / 10)
			return -1;
		n = n * 10 + (*p - '0');
	}
	if (*p != end)
		return -1;
	*at = p + (end != '\0');
	return n;
}

struct content_range content_range_parse(const char *header)
{
	struct content_range r = { .start = -1, .total = -1 };
	const char *p = header;
	int64_t first, last, total;

	if (!p || strncmp(p, "bytes ", 6) != 0)
		return r;
	p += 6;
	p += strspn(p, " ");
	if (strncmp(p, "*/", 2) == 0) {
		p += 2;
		r.total = take_number(&p, '\0');
		return r;
	}
	first = take_number(&p, '-');
	last = first >= 0 ? take_number(&p, '/') : -1;
	if (last < first || last < 0)
		return r;
	total = take_number(&p, '\0');
	if (total > last)
		r.total = total;
	if (total > last || strcmp(p, "*") == 0)
		r.start = first;
	return r;
}

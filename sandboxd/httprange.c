/* See httprange.h. Pure; any thread. */
#include "httprange.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char *skip_blank(const char *s)
{
	while (*s == ' ' || *s == '\t')
		s++;
	return s;
}

/* Digits at *s, saturating; false if there are none. */
static bool read_number(const char **s, uint64_t *ret)
{
	const char *p = *s;
	uint64_t v = 0;
	bool over = false;

	for (; *p >= '0' && *p <= '9'; p++)
		over |= __builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*p - '0'), &v);
	if (p == *s)
		return false;
	*s = p;
	*ret = over ? UINT64_MAX : v;
	return true;
}

enum range_kind http_range(const char *header, uint64_t size, struct byte_range *ret_range)
{
	uint64_t first = 0, last = UINT64_MAX;
	bool has_first, has_last;
	const char *s = header;

	*ret_range = (struct byte_range){ 0, size };
	if (!s || strncasecmp(s, "bytes", 5) != 0)
		return RANGE_WHOLE;
	s = skip_blank(s + 5);
	if (*s++ != '=')
		return RANGE_WHOLE;
	s = skip_blank(s);
	has_first = read_number(&s, &first);
	if (*s++ != '-')
		return RANGE_WHOLE;
	has_last = read_number(&s, &last);
	/* A comma would make it several ranges. */
	if (*skip_blank(s) || (!has_first && !has_last) || (has_first && last < first))
		return RANGE_WHOLE;
	if (!has_first) { /* the last so many bytes */
		if (last == 0 || size == 0)
			return RANGE_UNSATISFIABLE;
		first = size - MIN(last, size);
		last = size - 1;
	}
	if (first >= size)
		return RANGE_UNSATISFIABLE;
	ret_range->first = first;
	ret_range->len = MIN(last, size - 1) - first + 1;
	return RANGE_PART;
}

bool http_if_range(const char *header, const char *etag, const char *last_modified)
{
	size_t len;

	if (!header)
		return true;
	header = skip_blank(header);
	len = strlen(header);
	while (len > 0 && (header[len - 1] == ' ' || header[len - 1] == '\t'))
		len--;
	return (len == strlen(etag) && memcmp(header, etag, len) == 0) ||
	       (len == strlen(last_modified) && memcmp(header, last_modified, len) == 0);
}

void http_etag(const struct stat *st, char *out)
{
	uint64_t ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;

	snprintf(out, HTTP_ETAG_SIZE, "\"%llx-%llx-%llx\"", (unsigned long long)ns,
		 (unsigned long long)st->st_size, (unsigned long long)st->st_ino);
}

/* strftime would follow the locale. */
void http_date(time_t t, char *out)
{
	static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
	static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
					    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	struct tm tm;

	/* A year of more than four digits does not fit the format. */
	if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
		t = 0;
		gmtime_r(&t, &tm);
	}
	snprintf(out, HTTP_DATE_SIZE, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
		 tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
		 tm.tm_sec);
}

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       strchr("_.-~", c);
}

int http_disposition(struct buf *out, const char *name)
{
	const char *p = name;

	while (*p && is_plain(*p))
		p++;
	if (!*p)
		return buf_printf(out, "attachment; filename=\"%s\"", name);
	buf_puts(out, "attachment; filename*=utf-8''");
	for (p = name; *p; p++) {
		if (is_plain(*p))
			buf_putc(out, *p);
		else
			buf_printf(out, "%%%02X", (unsigned char)*p);
	}
	return out->error;
}

/*
 * The headers of a download: Range, If-Range, ETag, Last-Modified and
 * Content-Disposition. Pure: no I/O, no server state.
 */
#pragma once

#include <sys/stat.h>

#include "buf.h"

enum {
	HTTP_DATE_SIZE = 80, /* of any year; gcc checks */
	HTTP_ETAG_SIZE = 64,
};

struct byte_range {
	uint64_t first;
	uint64_t len;
};

enum range_kind {
	RANGE_WHOLE,         /* none, malformed or several: answer 200 */
	RANGE_PART,          /* answer 206 */
	RANGE_UNSATISFIABLE, /* answer 416 */
};

/*
 * Reads a Range header (NULL = none) for a file of size bytes. ret_range is
 * the whole file unless the result is RANGE_PART.
 */
enum range_kind http_range(const char *header, uint64_t size, struct byte_range *ret_range);

/*
 * Whether an If-Range header (NULL = none) lets the Range count. A date has to
 * be exactly the one we sent, a tag must be strong (RFC 9110, 13.1.5).
 */
bool http_if_range(const char *header, const char *etag, const char *last_modified);

/* A strong validator, with its quotes: out has HTTP_ETAG_SIZE bytes. */
void http_etag(const struct stat *st, char *out);

/* "Sun, 06 Nov 1994 08:49:37 GMT": out has HTTP_DATE_SIZE bytes. */
void http_date(time_t t, char *out);

/*
 * Appends an attachment disposition for a file of that name. Anything but the
 * plainest characters is percent-encoded, so no name can add to the header.
 */
int http_disposition(struct buf *out, const char *name) MUST_CHECK;

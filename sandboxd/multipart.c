/*
 * The parser behind multipart.h. Must not know what the parts are for.
 * Threads: pure; whoever owns the struct.
 *
 * A delimiter is "\r\n--boundary", and CR cannot be part of a boundary. So a
 * match that was begun and then fails holds no start of another one, and the
 * bytes of a match cut by the end of a piece need not be kept: they are the
 * delimiter's own. That is why bulk data is searched with memmem and passed on
 * without a copy.
 */
#include "multipart.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* ---- header parameters ---- */

static const char *skip_blank(const char *s)
{
	while (*s == ' ' || *s == '\t')
		s++;
	return s;
}

/*
 * Reads `name=value` or `name="value"` at *s, after any ';' and blanks, and
 * moves *s behind it. name and value get the unquoted text and are reused.
 * Returns 1, 0 at the end, -EINVAL, or a buffer's error.
 */
static int next_param(const char **s, struct buf *name, struct buf *value)
{
	const char *p = *s, *start;
	int r = 0;

	while (*p == ';' || *p == ' ' || *p == '\t')
		p++;
	if (!*p)
		return 0;
	start = p;
	p += strcspn(p, "=; \t\"");
	buf_reset(name);
	buf_reset(value);
	r = buf_append(name, start, (size_t)(p - start));
	p = skip_blank(p);
	if (r < 0 || p == start || *p++ != '=')
		return r < 0 ? r : -EINVAL;
	p = skip_blank(p);
	if (*p != '"') {
		start = p;
		p += strcspn(p, "; \t");
		r = buf_append(value, start, (size_t)(p - start));
	} else {
		for (p++; *p && *p != '"' && r == 0; p++) {
			/* Other backslashes are kept: they come from Windows paths. */
			if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
				p++;
			r = buf_putc(value, *p);
		}
		if (r == 0 && *p++ != '"')
			return -EINVAL;
	}
	*s = p;
	return r < 0 ? r : 1;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 5987: charset'language'percent-encoded; the charset is taken for UTF-8. */
static int decode_extended(const char *s, struct buf *out)
{
	int r = 0;

	buf_reset(out);
	for (int quotes = 0; quotes < 2; quotes++) {
		s = strchr(s, '\'');
		if (!s)
			return -EINVAL;
		s++;
	}
	for (; *s && r == 0; s++) {
		int hi = *s == '%' ? hex_digit(s[1]) : -1;
		int lo = hi >= 0 ? hex_digit(s[2]) : -1;

		if (*s == '%' && (lo < 0 || hi * 16 + lo == 0))
			return -EINVAL;
		r = buf_putc(out, *s == '%' ? (char)(hi * 16 + lo) : *s);
		if (*s == '%')
			s += 2;
	}
	return r;
}

/* The text behind "type" if s begins with that media or disposition type. */
static const char *after_type(const char *s, const char *type)
{
	size_t len = strlen(type);

	s = skip_blank(s);
	if (strncasecmp(s, type, len) != 0)
		return NULL;
	s = skip_blank(s + len);
	return *s == ';' || *s == '\0' ? s : NULL;
}

/* ---- setting up ---- */

int multipart_init(struct multipart *m, const char *content_type, const struct multipart_ops *ops,
		   void *ctx)
{
	struct buf name CLEANUP_BUF = BUF_INIT(MULTIPART_MAX_HEADERS);
	struct buf value CLEANUP_BUF = BUF_INIT(MULTIPART_MAX_HEADERS);
	const char *s = content_type ? after_type(content_type, "multipart/form-data") : NULL;
	int r = s ? 0 : -EINVAL;

	memset(m, 0, sizeof(*m));
	m->headers = BUF_INIT(MULTIPART_MAX_HEADERS);
	m->ops = ops;
	m->ctx = ctx;
	while (s && (r = next_param(&s, &name, &value)) > 0)
		if (strcasecmp(name.data, "boundary") == 0)
			break;
	if (r <= 0)
		return r < 0 ? r : -EINVAL;
	if (value.len == 0 || value.len > MULTIPART_MAX_BOUNDARY ||
	    memchr(value.data, '\r', value.len) || memchr(value.data, '\n', value.len))
		return -EINVAL;
	memcpy(m->delim, "\r\n--", 4);
	memcpy(m->delim + 4, value.data, value.len);
	m->delim_len = value.len + 4;
	/* The first delimiter needs no line break before it. */
	m->matched = 2;
	return 0;
}

void multipart_release(struct multipart *m)
{
	buf_release(&m->headers);
}

/* ---- part headers ---- */

/* Takes name and filename out of one Content-Disposition. */
static int disposition(const char *value, struct buf *name, struct buf *filename,
		       bool *ret_has_filename)
{
	struct buf key CLEANUP_BUF = BUF_INIT(MULTIPART_MAX_HEADERS);
	struct buf val CLEANUP_BUF = BUF_INIT(MULTIPART_MAX_HEADERS);
	const char *s = after_type(value, "form-data");
	bool has_name = false, extended = false;
	int r = -EINVAL;

	while (s && (r = next_param(&s, &key, &val)) > 0) {
		/* An empty value leaves val.data as it was, possibly NULL. */
		const char *text = val.len ? val.data : "";

		if (strcasecmp(key.data, "name") == 0 && !has_name) {
			has_name = true;
			r = buf_puts(name, text);
		} else if (strcasecmp(key.data, "filename") == 0 && !*ret_has_filename) {
			*ret_has_filename = true;
			r = buf_puts(filename, text);
		} else if (strcasecmp(key.data, "filename*") == 0 && !extended) {
			extended = *ret_has_filename = true;
			r = decode_extended(text, filename);
		}
		if (r < 0)
			return r;
	}
	return r < 0 ? r : has_name ? 0 : -EINVAL;
}

/* One header line, NUL-terminated. Only Content-Disposition matters. */
static int header_line(const char *line, struct buf *name, struct buf *filename, bool *has_filename,
		       bool *seen)
{
	static const char wanted[] = "content-disposition";
	size_t len = strcspn(line, ":");

	if (line[len] != ':')
		return -EINVAL;
	if (len != sizeof(wanted) - 1 || strncasecmp(line, wanted, len) != 0)
		return 0;
	if (*seen)
		return -EINVAL;
	*seen = true;
	return disposition(line + len + 1, name, filename, has_filename);
}

/* All headers of a part are in m->headers, with the empty line at the end. */
static int begin_part(struct multipart *m)
{
	struct buf name CLEANUP_BUF = BUF_INIT(MULTIPART_MAX_HEADERS);
	struct buf filename CLEANUP_BUF = BUF_INIT(MULTIPART_MAX_HEADERS);
	bool has_filename = false, seen = false;
	char *line = m->headers.data, *end = line + m->headers.len;
	int r = 0;

	if (memchr(line, '\0', m->headers.len))
		return -EINVAL;
	if (++m->parts > MULTIPART_MAX_PARTS)
		return -E2BIG;
	/* Ends at the empty line. A line that starts with a blank continues
	 * the one before. */
	while (r == 0 && line + 2 < end) {
		char *eol = memmem(line, (size_t)(end - line), "\r\n", 2);

		while (eol && eol + 2 < end && (eol[2] == ' ' || eol[2] == '\t')) {
			eol[0] = eol[1] = ' ';
			eol = memmem(eol, (size_t)(end - eol), "\r\n", 2);
		}
		if (!eol)
			return -EINVAL;
		*eol = '\0';
		r = header_line(line, &name, &filename, &has_filename, &seen);
		line = eol + 2;
	}
	if (r == 0 && !seen)
		r = -EINVAL;
	buf_release(&m->headers);
	if (r < 0)
		return r;
	m->in_part = true;
	m->state = MULTIPART_DATA;
	m->matched = 0;
	return m->ops->part(m->ctx, name.len ? name.data : "",
			    !has_filename  ? NULL
			    : filename.len ? filename.data
					   : "");
}

/* Collects up to the empty line. Returns bytes taken or a negative errno. */
static ssize_t feed_headers(struct multipart *m, const char *data, size_t len)
{
	const char *nl = memchr(data, '\n', len);
	size_t take = nl ? (size_t)(nl - data) + 1 : len;
	struct buf *h = &m->headers;
	int r = buf_append(h, data, take);

	if (r == -EFBIG)
		return -E2BIG;
	if (r == 0 && nl && h->len >= 2 && memcmp(h->data + h->len - 2, "\r\n", 2) == 0 &&
	    (h->len == 2 || h->data[h->len - 3] == '\n'))
		r = begin_part(m);
	return r < 0 ? r : (ssize_t)take;
}

/* ---- data and delimiters ---- */

static int emit(struct multipart *m, const char *data, size_t len)
{
	if (!m->in_part || len == 0)
		return 0;
	return m->ops->data(m->ctx, data, len);
}

static void delimiter_seen(struct multipart *m)
{
	m->matched = 0;
	m->after_len = 0;
	m->state = MULTIPART_AFTER_DELIM;
}

/* Goes on with a match that the last piece ended in. */
static ssize_t continue_match(struct multipart *m, const char *data, size_t len)
{
	size_t want = MIN(m->delim_len - m->matched, len), held = m->matched;

	if (memcmp(data, m->delim + m->matched, want) == 0) {
		m->matched += want;
		if (m->matched == m->delim_len)
			delimiter_seen(m);
		return (ssize_t)want;
	}
	m->matched = 0;
	return emit(m, m->delim, held);
}

/* How many bytes at the end of data begin a delimiter. */
static size_t match_at_end(const struct multipart *m, const char *data, size_t len)
{
	size_t tail = MIN(len, m->delim_len - 1);
	const char *end = data + len, *p = end - tail;

	while ((p = memchr(p, '\r', (size_t)(end - p)))) {
		if (memcmp(p, m->delim, (size_t)(end - p)) == 0)
			return (size_t)(end - p);
		p++;
	}
	return 0;
}

static ssize_t feed_data(struct multipart *m, const char *data, size_t len)
{
	const char *hit;
	size_t n;
	int r;

	if (m->matched)
		return continue_match(m, data, len);
	hit = memmem(data, len, m->delim, m->delim_len);
	if (hit) {
		n = (size_t)(hit - data);
		r = emit(m, data, n);
		if (r < 0)
			return r;
		delimiter_seen(m);
		return (ssize_t)(n + m->delim_len);
	}
	m->matched = match_at_end(m, data, len);
	r = emit(m, data, len - m->matched);
	return r < 0 ? r : (ssize_t)len;
}

/* What followed the boundary shows that it was none: it was data. */
static int not_a_delimiter(struct multipart *m)
{
	int r = emit(m, m->delim, m->delim_len);

	if (r == 0)
		r = emit(m, m->after, m->after_len);
	m->state = m->in_part ? MULTIPART_DATA : MULTIPART_PREAMBLE;
	return r;
}

static int end_part(struct multipart *m, enum multipart_state next)
{
	bool in_part = m->in_part;

	m->in_part = false;
	m->state = next;
	return in_part ? m->ops->part_end(m->ctx) : 0;
}

/* A real delimiter goes on with "--", or with blanks and a line break. */
static ssize_t feed_after_delim(struct multipart *m, char c)
{
	char last = m->after_len ? m->after[m->after_len - 1] : '\0';
	int r;

	if (last == '-' && c == '-') {
		r = end_part(m, MULTIPART_EPILOGUE);
	} else if (last == '\r' && c == '\n') {
		r = end_part(m, MULTIPART_HEADERS);
	} else if ((c == '-' && m->after_len == 0) ||
		   ((c == ' ' || c == '\t' || c == '\r') && last != '-' && last != '\r' &&
		    m->after_len < sizeof(m->after))) {
		m->after[m->after_len++] = c;
		return 1;
	} else {
		/* c itself may begin the next delimiter: it is not taken. */
		r = not_a_delimiter(m);
		return r;
	}
	return r < 0 ? r : 1;
}

int multipart_feed(struct multipart *m, const char *data, size_t len)
{
	while (len > 0 && m->error == 0) {
		ssize_t n = -EINVAL;

		switch (m->state) {
		case MULTIPART_PREAMBLE:
		case MULTIPART_DATA:
			n = feed_data(m, data, len);
			break;
		case MULTIPART_AFTER_DELIM:
			n = feed_after_delim(m, *data);
			break;
		case MULTIPART_HEADERS:
			n = feed_headers(m, data, len);
			break;
		case MULTIPART_EPILOGUE:
			n = (ssize_t)len;
			break;
		}
		if (n < 0) {
			m->error = (int)n;
			break;
		}
		data += n;
		len -= (size_t)n;
	}
	return m->error;
}

int multipart_finish(const struct multipart *m)
{
	if (m->error)
		return m->error;
	return m->state == MULTIPART_EPILOGUE ? 0 : -EINVAL;
}

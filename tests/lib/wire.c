/* See wire.h. */
#include "wire.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

void wire_init(struct wire *w, int fd)
{
	*w = (struct wire){ .fd = fd, .data = malloc(WIRE_SIZE) };
	if (!w->data)
		abort();
}

void wire_release(struct wire *w)
{
	free(STEAL(w->data));
}

void wire_reset(struct wire *w, int fd)
{
	w->fd = fd;
	w->start = w->end = 0;
}

ssize_t wire_fill(struct wire *w)
{
	ssize_t n;

	memmove(w->data, w->data + w->start, w->end - w->start);
	w->end -= w->start;
	w->start = 0;
	if (w->end == WIRE_SIZE)
		return -ENOBUFS;
	do
		n = recv(w->fd, w->data + w->end, WIRE_SIZE - w->end, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	w->end += (size_t)n;
	return n;
}

int wire_send(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

void wire_head_release(struct wire_head *h)
{
	free(h->text);
	free(h->method);
	free(h->target);
	*h = (struct wire_head){ 0 };
}

static char *copy(const char *s, size_t len)
{
	char *p = strndup(s, len);

	if (!p)
		abort();
	return p;
}

char *wire_header(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncasecmp(line, name, len) || line[len] != ':')
			continue;
		line += len + 1;
		line += strspn(line, " \t");
		return copy(line, strcspn(line, "\r\n"));
	}
	return NULL;
}

static bool header_says(const char *text, const char *name, const char *word)
{
	char *value CLEANUP_FREE = wire_header(text, name);

	return value && strcasestr(value, word);
}

/* "METHOD TARGET HTTP/1.x" or "HTTP/1.x STATUS …" */
static int parse_first_line(struct wire_head *h)
{
	const char *s = h->text, *version = s;
	size_t len = strcspn(s, "\r\n"), method, target;

	if (strncmp(s, "HTTP/1.", 7) == 0) {
		h->status = len > 12 ? (int)strtol(s + 9, NULL, 10) : 0;
		if (h->status < 100 || h->status > 999)
			return -EBADMSG;
	} else {
		method = strcspn(s, " \r\n");
		target = s[method] == ' ' ? strcspn(s + method + 1, " \r\n") : 0;
		version = s + method + 1 + target + 1;
		if (!target || method + target + 10 != len || strncmp(version, "HTTP/1.", 7))
			return -EBADMSG;
		h->method = copy(s, method);
		h->target = copy(s + method + 1, target);
	}
	h->close = version[7] == '0';
	return 0;
}

static int parse_head(struct wire_head *h)
{
	char *length CLEANUP_FREE = NULL;
	char *end;

	if (strlen(h->text) != h->len || parse_first_line(h) < 0)
		return -EBADMSG;
	h->length = -1;
	length = wire_header(h->text, "Content-Length");
	if (length) {
		h->length = strtoll(length, &end, 10);
		if (!isdigit((unsigned char)*length) || *end)
			return -EBADMSG;
	}
	h->chunked = header_says(h->text, "Transfer-Encoding", "chunked");
	h->close |= header_says(h->text, "Connection", "close");
	h->expects_continue = header_says(h->text, "Expect", "100-continue");
	return 0;
}

int wire_take_head(struct wire *w, struct wire_head *ret)
{
	const char *from = w->data + w->start;
	const char *end = memmem(from, w->end - w->start, "\r\n\r\n", 4);
	struct wire_head h = { 0 };

	if (!end)
		return 0;
	h.len = (size_t)(end - from) + 4;
	h.text = copy(from, h.len);
	w->start += h.len;
	if (parse_head(&h) < 0) {
		wire_head_release(&h);
		return -EBADMSG;
	}
	*ret = h;
	return 1;
}

void wire_head_with_length(const struct wire_head *h, int64_t length, struct buf *to)
{
	const char *line = strcasestr(h->text, "\nContent-Length:") + 1;
	const char *rest = line + strcspn(line, "\r");

	buf_append(to, h->text, (size_t)(line - h->text));
	buf_printf(to, "Content-Length: %" PRId64, length);
	buf_puts(to, rest);
}

void wire_body_of_request(struct wire_body *b, const struct wire_head *h)
{
	*b = (struct wire_body){
		.framing = h->chunked ? WIRE_CHUNKED : WIRE_LENGTH,
		.left = h->length > 0 && !h->chunked ? (uint64_t)h->length : 0,
		.done = !h->chunked && h->length <= 0,
	};
}

void wire_body_of_answer(struct wire_body *b, const struct wire_head *h, bool to_head_request)
{
	wire_body_of_request(b, h);
	if (!h->chunked && h->length < 0) {
		b->framing = WIRE_UNTIL_CLOSE;
		b->done = false;
	}
	if (to_head_request || h->status < 200 || h->status == 204 || h->status == 304)
		b->done = true;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte that is not content. */
static int chunk_byte(struct wire_body *b, char c)
{
	int digit = hex_digit(c);

	switch (b->state) {
	case CHUNK_SIZE:
		if (digit >= 0 && b->left < UINT64_MAX / 16) {
			b->left = b->left * 16 + (unsigned)digit;
			return 0;
		}
		if (digit >= 0)
			return -EBADMSG;
		b->state = CHUNK_EXTENSION;
		__attribute__((fallthrough));
	case CHUNK_EXTENSION:
		if (c == '\n')
			b->state = b->left ? CHUNK_DATA : CHUNK_TRAILER;
		b->line_is_empty = true;
		return 0;
	case CHUNK_END:
		if (c == '\n')
			b->state = CHUNK_SIZE;
		return c == '\n' || c == '\r' ? 0 : -EBADMSG;
	default:
		if (c == '\n')
			b->done = b->line_is_empty;
		if (c != '\r')
			b->line_is_empty = c == '\n';
		return 0;
	}
}

ssize_t wire_body_scan(struct wire_body *b, const char *data, size_t len,
		       void (*content)(void *ctx, const char *data, size_t len), void *ctx)
{
	size_t pos = 0;

	while (pos < len && !b->done) {
		bool counted = b->framing != WIRE_UNTIL_CLOSE;
		size_t n = len - pos;

		if (b->framing == WIRE_CHUNKED && b->state != CHUNK_DATA) {
			if (chunk_byte(b, data[pos++]) < 0)
				return -EBADMSG;
			continue;
		}
		if (counted)
			n = (size_t)MIN((uint64_t)n, b->left);
		content(ctx, data + pos, n);
		pos += n;
		b->left -= counted ? n : 0;
		if (!counted || b->left)
			continue;
		b->done = b->framing == WIRE_LENGTH;
		b->state = CHUNK_END;
	}
	return (ssize_t)pos;
}

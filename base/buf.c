/* See buf.h. */
#include "buf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void buf_release(struct buf *b)
{
	free(b->data);
	*b = BUF_INIT(b->max);
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->error = 0;
	if (b->data)
		b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t len)
{
	size_t want, cap;
	char *data;

	if (b->error)
		return b->error;
	if (len > SIZE_MAX / 4 - b->len || (b->max && b->len + len > b->max))
		return b->error = -EFBIG;
	want = b->len + len + 1;
	if (want <= b->cap)
		return 0;
	cap = MAX(b->cap + b->cap / 2, (size_t)256);
	if (b->max)
		cap = MIN(cap, b->max + 1);
	cap = MAX(cap, want);
	data = realloc(b->data, cap);
	if (!data)
		return b->error = -ENOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

int buf_append(struct buf *b, const void *data, size_t len)
{
	int r = buf_reserve(b, len);

	if (r < 0)
		return r;
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_append(b, &c, 1);
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return b->error = b->error ? b->error : -EINVAL;
	r = buf_reserve(b, (size_t)n);
	if (r < 0)
		return r;
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_consume(struct buf *b, size_t n)
{
	n = MIN(n, b->len);
	if (!n)
		return;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
	b->data[b->len] = '\0';
}

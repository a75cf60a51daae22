/* See ring.h. */
#include "ring.h"

#include <errno.h>

void ring_init(struct ring *r, size_t cap)
{
	*r = (struct ring){ .buf = BUF_INIT(cap), .cap = cap };
}

void ring_release(struct ring *r)
{
	buf_release(&r->buf);
}

uint64_t ring_end(const struct ring *r)
{
	return r->start + r->buf.len;
}

int ring_write(struct ring *r, const char *data, size_t len)
{
	uint64_t end = ring_end(r) + len;

	/* Half at once, so that the bytes are not moved for every write. */
	if (len > r->cap - r->buf.len) {
		size_t keep = r->cap / 2;

		if (len >= keep) {
			buf_reset(&r->buf);
			data += len - keep;
			len = keep;
		} else if (r->buf.len > keep - len) {
			buf_consume(&r->buf, r->buf.len - (keep - len));
		}
	}
	if (buf_append(&r->buf, data, len) < 0) {
		buf_release(&r->buf);
		r->start = end;
		return -ENOMEM;
	}
	r->start = end - r->buf.len;
	return 0;
}

const char *ring_read(const struct ring *r, uint64_t *offset, size_t *ret_len)
{
	uint64_t end = ring_end(r);

	*offset = MIN(MAX(*offset, r->start), end);
	*ret_len = (size_t)(end - *offset);
	return r->buf.data ? r->buf.data + (*offset - r->start) : "";
}

/* See sse.h. */
#include "sse.h"

#include <errno.h>
#include <string.h>

void sse_init(struct sse *s, int (*event)(void *ctx, const struct sse_event *ev), void *ctx)
{
	*s = (struct sse){
		.event = event,
		.ctx = ctx,
		.line = BUF_INIT(SSE_MAX),
		.type = BUF_INIT(SSE_MAX),
		.data = BUF_INIT(SSE_MAX + 1), /* a line end that is not part of it */
		.id = BUF_INIT(SSE_MAX),
		.new_id = BUF_INIT(SSE_MAX),
	};
}

void sse_release(struct sse *s)
{
	buf_release(&s->line);
	buf_release(&s->type);
	buf_release(&s->data);
	buf_release(&s->id);
	buf_release(&s->new_id);
}

static void forget_event(struct sse *s)
{
	buf_reset(&s->type);
	buf_reset(&s->data);
	s->has_data = false;
	s->has_new_id = false;
}

void sse_reset(struct sse *s)
{
	buf_reset(&s->line);
	forget_event(s);
	s->after_cr = false;
	s->started = false;
}

/* An empty line: the event is complete. */
static int dispatch(struct sse *s)
{
	struct sse_event ev;
	int r;

	/* Only now: an id that came without its event must not be resumed from. */
	if (s->has_new_id) {
		struct buf old = s->id;

		s->id = s->new_id;
		s->new_id = old;
	}
	if (s->has_data) {
		s->data.data[--s->data.len] = '\0';
		ev = (struct sse_event){
			.type = s->type.len ? s->type.data : "message",
			.data = s->data.data,
			.data_len = s->data.len,
			.id = s->id.len ? s->id.data : "",
		};
		r = s->event(s->ctx, &ev);
		if (r < 0)
			return r; /* s may be gone */
	}
	forget_event(s);
	return 0;
}

/* Only the caps of the buffers speak of -EFBIG; a callback may mean something else by it. */
static int append(struct buf *to, const char *bytes, size_t len)
{
	int r = buf_append(to, bytes, len);

	return r == -EFBIG ? -EMSGSIZE : r;
}

static int set(struct buf *to, const char *value, size_t len)
{
	buf_reset(to);
	return append(to, value, len);
}

/* Type and id are handed out as C strings: with a NUL they are ignored. */
static int take_field(struct sse *s, const char *name, size_t name_len, const char *value,
		      size_t len)
{
	bool nul = memchr(value, '\0', len) != NULL;

	if (name_len == 4 && memcmp(name, "data", 4) == 0) {
		s->has_data = true;
		append(&s->data, value, len);
		return append(&s->data, "\n", 1);
	}
	if (name_len == 5 && memcmp(name, "event", 5) == 0 && !nul)
		return set(&s->type, value, len);
	if (name_len == 2 && memcmp(name, "id", 2) == 0 && !nul) {
		s->has_new_id = true;
		return set(&s->new_id, value, len);
	}
	return 0;
}

/* s->line is complete, without its end. */
static int take_line(struct sse *s)
{
	const char *line = s->line.len ? s->line.data : "", *colon;
	size_t len = s->line.len, name_len;

	if (!s->started && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
		line += 3;
		len -= 3;
	}
	s->started = true;
	if (len == 0)
		return dispatch(s);
	colon = memchr(line, ':', len);
	if (!colon)
		return take_field(s, line, len, "", 0);
	name_len = (size_t)(colon - line);
	len -= name_len + 1;
	colon++;
	if (len > 0 && *colon == ' ') {
		colon++;
		len--;
	}
	return take_field(s, line, name_len, colon, len); /* a comment has no name */
}

/* Bytes before the next line end, or all of them. */
static size_t line_length(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] == '\r' || bytes[i] == '\n')
			return i;
	return len;
}

int sse_feed(struct sse *s, const char *bytes, size_t len)
{
	size_t n;
	int r;

	for (; len > 0; bytes += n, len -= n) {
		n = line_length(bytes, len);
		if (n == 0 && s->after_cr && *bytes == '\n') {
			s->after_cr = false;
			n = 1;
			continue;
		}
		s->after_cr = false;
		r = append(&s->line, bytes, n);
		if (r < 0 || n == len)
			return r;
		s->after_cr = bytes[n++] == '\r';
		r = take_line(s);
		if (r < 0)
			return r;
		buf_reset(&s->line);
	}
	return 0;
}

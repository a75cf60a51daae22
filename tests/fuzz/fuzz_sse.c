/*
 * Event streams: a byte says how many cuts there are, the bytes after it how
 * far apart, the rest is the stream. No cut may change what is heard.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS_MAX = 16 };

static int hear(void *ctx, const struct sse_event *ev)
{
	struct buf *heard = ctx;

	assert(ev->type[0] && ev->data[ev->data_len] == '\0');
	buf_printf(heard, "[%s %s %zu ", ev->type, ev->id, ev->data_len);
	return buf_append(heard, ev->data, ev->data_len);
}

/* Feeds pieces of these sizes, then the rest, each from a block of its own. */
static void feed(struct buf *heard, const uint8_t *stream, size_t size, const uint8_t *sizes,
		 size_t n)
{
	struct sse s CLEANUP(sse_release);

	sse_init(&s, hear, heard);
	for (size_t i = 0; i <= n; i++) {
		size_t len = i < n ? MIN(sizes[i], size) : size;
		char *piece = malloc(len ? len : 1);
		int r;

		assert(piece);
		memcpy(piece, stream, len);
		r = sse_feed(&s, piece, len);
		free(piece);
		assert(r == 0);
		stream += len;
		size -= len;
	}
}

/* A second connection hears nothing of what the first one left half said. */
static void feed_after_reset(struct buf *heard, const uint8_t *stream, size_t size)
{
	static const char end[] = "\n\ndata:x\n\n";
	struct sse s CLEANUP(sse_release);
	size_t before;
	int r;

	sse_init(&s, hear, heard);
	r = sse_feed(&s, (const char *)stream, size);
	assert(r == 0);
	sse_reset(&s);
	before = heard->len;
	r = sse_feed(&s, end, sizeof(end) - 1);
	assert(r == 0);
	assert(memcmp(heard->data + before, "[message ", 9) == 0);
	assert(memcmp(heard->data + heard->len - 4, " 1 x", 4) == 0);
}

static void check_same(const struct buf *a, const struct buf *b)
{
	assert(!a->error && !b->error);
	assert(a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole CLEANUP_BUF = BUF_INIT(0), cut CLEANUP_BUF = BUF_INIT(0);
	struct buf reset CLEANUP_BUF = BUF_INIT(0);
	const uint8_t *cuts;
	size_t n;

	if (size < 1)
		return 0;
	n = MIN(data[0] % CUTS_MAX, size - 1);
	cuts = data + 1;
	size -= 1 + n;
	feed(&whole, cuts + n, size, NULL, 0);
	feed(&cut, cuts + n, size, cuts, n);
	check_same(&whole, &cut);
	feed_after_reset(&reset, cuts + n, size);
	return 0;
}

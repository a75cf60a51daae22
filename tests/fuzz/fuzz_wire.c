/*
 * Heads of answers that are read without libcurl: what is understood of one when it comes whole is
 * understood when it comes byte by byte, and never more than was said. The functions are
 * the file's own.
 */
#include "../../client/wire.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(struct wire *w, const uint8_t *data, size_t size, size_t step)
{
	int r = -EAGAIN;

	memset(w, 0, sizeof(*w));
	while (r == -EAGAIN && size > 0) {
		size_t n = MIN(MIN(step, size), HEAD_MAX - w->have);

		memcpy(w->head + w->have, data, n);
		w->have += n;
		data += n;
		size -= n;
		r = take_head(w);
	}
	return r;
}

static void check(const struct wire *w)
{
	assert(w->status >= 200 && w->status <= 599);
	assert(w->length == w->left && w->length < UINT64_C(1000000000000000000));
	assert(w->count <= FIELDS_MAX);
	assert(w->held >= w->head && w->held + w->held_len == w->head + w->have);
	for (unsigned i = 0; i < w->count; i++) {
		assert(w->fields[i].name[0] && !strpbrk(w->fields[i].name, "\r\n: "));
		assert(!strchr(w->fields[i].value, '\n'));
	}
	assert(!wire_said(w, "Transfer-Encoding") && !wire_said(w, "Content-Encoding"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire *whole = malloc(sizeof(*whole)), *bytes = malloc(sizeof(*bytes));
	int r, again;

	assert(whole && bytes);
	r = take(whole, data, size, size);
	again = take(bytes, data, size, 1);
	assert(r == again || r == -EAGAIN || again == -EAGAIN);
	if (r == 0) {
		check(whole);
		assert(again == 0);
		check(bytes);
		assert(whole->status == bytes->status && whole->length == bytes->length &&
		       whole->keeps == bytes->keeps && whole->count == bytes->count);
	}
	free(whole);
	free(bytes);
	return 0;
}

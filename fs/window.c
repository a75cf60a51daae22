/* A moving piece of a file; see the header. Knows nothing of downloads. Pure. */
#include "window.h"

#include <errno.h>
#include <string.h>

void window_release(struct window *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->blocks[i]);
	free(w->blocks);
	*w = (struct window){ 0 };
}

void window_empty(struct window *w, uint64_t at)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->blocks[i]);
	w->count = 0;
	w->start = w->end = w->base = at;
}

void window_reset(struct window *w, uint64_t at)
{
	window_empty(w, at);
	w->passed = w->doubled = at;
	w->ahead = WINDOW_FIRST;
	w->starved = false;
}

size_t window_memory(const struct window *w)
{
	return w->count * WINDOW_BLOCK;
}

/* Makes room behind the end. */
static int extend(struct window *w, size_t len)
{
	uint64_t need = (w->end + len - w->base + WINDOW_BLOCK - 1) / WINDOW_BLOCK;
	size_t had = w->count;

	if (need > w->room) {
		size_t room = MAX(need, w->room * 2);
		char **blocks = realloc(w->blocks, room * sizeof(*blocks));

		if (!blocks)
			return -ENOMEM;
		w->blocks = blocks;
		w->room = room;
	}
	while (w->count < need) {
		char *block = malloc(WINDOW_BLOCK);

		if (!block) {
			while (w->count > had)
				free(w->blocks[--w->count]);
			return -ENOMEM;
		}
		w->blocks[w->count++] = block;
	}
	return 0;
}

static char *place(const struct window *w, uint64_t offset, size_t *ret_len)
{
	uint64_t in = offset - w->base;

	*ret_len = WINDOW_BLOCK - in % WINDOW_BLOCK;
	return w->blocks[in / WINDOW_BLOCK] + in % WINDOW_BLOCK;
}

char *window_space(struct window *w, size_t *ret_len)
{
	if (extend(w, 1) < 0) {
		*ret_len = 1;
		return NULL;
	}
	return place(w, w->end, ret_len);
}

bool window_is_next(const struct window *w, const void *bytes)
{
	size_t n;

	return w->end - w->base < (uint64_t)w->count * WINDOW_BLOCK &&
	       bytes == place(w, w->end, &n);
}

int window_add(struct window *w, const void *bytes, size_t len)
{
	const char *p = bytes;
	int r = extend(w, len);

	if (r < 0)
		return r;
	while (len > 0) {
		size_t n;
		char *to = place(w, w->end, &n);

		n = MIN(n, len);
		if (to != p)
			memcpy(to, p, n);
		p += n;
		len -= n;
		w->end += n;
	}
	return 0;
}

bool window_has(const struct window *w, uint64_t offset, size_t len)
{
	return offset >= w->start && offset <= w->end && len <= w->end - offset;
}

int window_find(const struct window *w, uint64_t offset, size_t len, struct iovec *iov, int max)
{
	int count = 0;

	while (len > 0) {
		size_t n;
		char *at = place(w, offset, &n);

		if (count == max)
			return -E2BIG;
		n = MIN(n, len);
		iov[count++] = (struct iovec){ .iov_base = at, .iov_len = n };
		offset += n;
		len -= n;
	}
	return count;
}

/* Whole blocks go; the rest of the first one stays until it is passed, too. */
static void drop_below(struct window *w, uint64_t to)
{
	size_t n;

	to = MIN(to, w->end);
	if (to <= w->start)
		return;
	w->start = to;
	n = (to - w->base) / WINDOW_BLOCK;
	if (n == 0)
		return;
	for (size_t i = 0; i < n; i++)
		free(w->blocks[i]);
	w->count -= n;
	memmove(w->blocks, w->blocks + n, w->count * sizeof(*w->blocks));
	w->base += (uint64_t)n * WINDOW_BLOCK;
}

/* ---- how much ---- */

static size_t ahead_now(const struct window *w, int64_t spare)
{
	return spare > 0 ? w->ahead : WINDOW_LEAST;
}

void window_starve(struct window *w)
{
	w->starved = true;
}

/*
 * A reader who has used up what was ahead of him, and had to wait, gets twice as
 * much, if that does not take more than half of what is left: others come, too.
 * One who never waits has enough: bytes that are handed on soon are still in the
 * processor's cache, so more would make him slower.
 */
void window_pass(struct window *w, uint64_t to, int64_t spare)
{
	if (to <= w->passed)
		return;
	w->passed = to;
	if (to - w->doubled < w->ahead)
		return;
	w->doubled = to;
	if (w->starved && w->ahead < WINDOW_MAX && (int64_t)w->ahead * 2 <= spare)
		w->ahead *= 2;
	else if (spare <= 0 && w->ahead > WINDOW_FIRST)
		w->ahead /= 2;
	w->starved = false;
}

bool window_hungry(struct window *w, uint64_t low, uint64_t wanted, int64_t spare)
{
	size_t ahead = ahead_now(w, spare);
	size_t behind =
		MIN(spare > 0 ? MAX(ahead / 2, WINDOW_BEHIND_LEAST) : ahead / 2, WINDOW_BEHIND);
	uint64_t keep = w->passed > behind ? w->passed - behind : 0;

	drop_below(w, MIN(keep, low));
	return w->end < wanted || w->end < w->passed + ahead;
}

/* A set of byte ranges, as a sorted array. Pure; no threads. */
#include "extents.h"

#include <errno.h>
#include <string.h>

void extents_release(struct extents *e)
{
	free(e->v);
	*e = (struct extents){ 0 };
}

/* The first one that ends at or behind `at`. */
static size_t find(const struct extents *e, uint64_t at)
{
	size_t low = 0, high = e->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (e->v[mid].end < at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int grow(struct extents *e)
{
	size_t cap = MAX(e->cap * 2, 8);
	struct extent *v = reallocarray(e->v, cap, sizeof(*v));

	if (!v)
		return -ENOMEM;
	e->v = v;
	e->cap = cap;
	return 0;
}

int extents_add(struct extents *e, uint64_t start, uint64_t end)
{
	size_t first, last;

	if (start >= end)
		return 0;
	/* first..last (without last) touch it and become one. */
	first = last = find(e, start);
	while (last < e->n && e->v[last].start <= end)
		last++;
	if (first == last) {
		if (e->n == e->cap && grow(e) < 0)
			return -ENOMEM;
		memmove(e->v + first + 1, e->v + first, (e->n - first) * sizeof(*e->v));
		e->v[first] = (struct extent){ start, end };
		e->n++;
		return 0;
	}
	e->v[first].start = MIN(e->v[first].start, start);
	e->v[first].end = MAX(e->v[last - 1].end, end);
	memmove(e->v + first + 1, e->v + last, (e->n - last) * sizeof(*e->v));
	e->n -= last - first - 1;
	return 0;
}

void extents_cut(struct extents *e, uint64_t at)
{
	while (e->n > 0 && e->v[e->n - 1].start >= at)
		e->n--;
	if (e->n > 0)
		e->v[e->n - 1].end = MIN(e->v[e->n - 1].end, at);
}

uint64_t extents_next_gap(const struct extents *e, uint64_t at)
{
	size_t i = find(e, at);

	if (i < e->n && e->v[i].end == at)
		i++;
	return i < e->n && e->v[i].start <= at ? e->v[i].end : at;
}

uint64_t extents_next_set(const struct extents *e, uint64_t at)
{
	size_t i = find(e, at);

	if (i < e->n && e->v[i].end == at)
		i++;
	return i < e->n ? MAX(e->v[i].start, at) : UINT64_MAX;
}

bool extents_cover(const struct extents *e, uint64_t start, uint64_t end)
{
	return start >= end || extents_next_gap(e, start) >= end;
}

/* See the header. */
#include "course.h"

#include <string.h>

enum { WANDERS = 4 };

bool course_add(struct course *c, uint32_t place)
{
	if (c->n > 0 && c->places[c->n - 1] == place)
		return false;
	if (c->n == COURSE_SEEN) {
		memmove(c->places, c->places + 1, (COURSE_SEEN - 1) * sizeof(c->places[0]));
		c->n--;
	}
	c->places[c->n++] = place;
	c->total++;
	return true;
}

static uint32_t at(const struct course *c, const uint32_t *rank, unsigned back)
{
	unsigned i = c->n - 1 - back;

	return rank ? rank[i] : c->places[i];
}

static bool is_step(uint32_t from, uint32_t to, uint32_t reach)
{
	return to > from && to - from <= reach;
}

bool course_follows(const struct course *c, const uint32_t *rank)
{
	if (c->n < 2)
		return false;
	if (is_step(at(c, rank, 1), at(c, rank, 0), 1))
		return true;
	return c->n >= 3 && is_step(at(c, rank, 2), at(c, rank, 1), COURSE_REACH) &&
	       is_step(at(c, rank, 1), at(c, rank, 0), COURSE_REACH);
}

bool course_wanders(const struct course *c)
{
	unsigned different = 0;

	for (unsigned i = 0; i < c->n; i++) {
		unsigned k = 0;

		while (k < i && c->places[k] != c->places[i])
			k++;
		different += k == i;
	}
	return different >= WANDERS;
}

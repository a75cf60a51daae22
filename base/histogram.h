/*
 * How long things took: counts by upper bound, as Prometheus wants them. The bounds
 * are the same everywhere, so that sums and quotients of two make sense. Not thread-safe.
 */
#pragma once

#include "util.h"

enum { HISTOGRAM_BOUNDS = 13 };

/* In seconds, rising; what took longer than the last one is in a bucket of its own. */
extern const double histogram_bounds[HISTOGRAM_BOUNDS];

struct histogram {
	uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* each bucket for itself */
	uint64_t count;
	int64_t sum_us;
};

void histogram_add(struct histogram *h, int64_t us);
/* Adds what is in another one. */
void histogram_merge(struct histogram *to, const struct histogram *from);
/*
 * The time in seconds that the fraction q (0 to 1) of them did not exceed, between two
 * bounds taken as evenly spread; beyond the last bound that bound. -1: there are none.
 */
double histogram_quantile(const struct histogram *h, double q);

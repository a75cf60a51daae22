/* See histogram.h. */
#include "histogram.h"

const double histogram_bounds[HISTOGRAM_BOUNDS] = {
	0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100,
};

void histogram_add(struct histogram *h, int64_t us)
{
	double seconds = (double)us / 1e6;
	size_t i = 0;

	while (i < HISTOGRAM_BOUNDS && seconds > histogram_bounds[i])
		i++;
	h->counts[i]++;
	h->count++;
	h->sum_us += us;
}

void histogram_merge(struct histogram *to, const struct histogram *from)
{
	for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
		to->counts[i] += from->counts[i];
	to->count += from->count;
	to->sum_us += from->sum_us;
}

double histogram_quantile(const struct histogram *h, double q)
{
	double wanted = q * (double)h->count, below = 0, low = 0;

	if (h->count == 0)
		return -1;
	for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
		double here = (double)h->counts[i];

		if (here > 0 && below + here >= wanted)
			return low + (histogram_bounds[i] - low) * (wanted - below) / here;
		below += here;
		low = histogram_bounds[i];
	}
	return low;
}

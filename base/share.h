/*
 * A share of a thread's time, for what others can make it do: one part in so many, by the clock
 * (where a thread has little of the processor it would never use up a share of that), and some (the
 * burst) at once. Whoever has used it up is let wait until that is made up for. Pure; no locks.
 */
#pragma once

#include <stdbool.h>

#include "clock.h"
#include "util.h"

enum {
	SHARE_PARTS = 5,
	SHARE_DEBT_MAX_US = 2000000, /* if we were stopped meanwhile it took no hours */
};

/* Zeros: nothing has been used. */
struct share {
	int64_t debt_us, as_of_us;
};

/* For what began then (as clock_us()) and is over now. */
static inline void share_pay(struct share *s, int64_t began_us)
{
	int64_t now = clock_us();
	int64_t rest = MAX(s->debt_us - (now - s->as_of_us) / SHARE_PARTS, 0);

	s->debt_us = MIN(rest + now - began_us, SHARE_DEBT_MAX_US);
	s->as_of_us = now;
}

static inline bool share_is_used_up(const struct share *s, int64_t burst_us)
{
	return s->debt_us > burst_us;
}

/* How long that takes to be made up for. */
static inline double share_pause_s(const struct share *s)
{
	return (double)s->debt_us * SHARE_PARTS / 1e6;
}

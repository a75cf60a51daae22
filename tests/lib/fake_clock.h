/*
 * A clock that only moves when a test says so, for struct provider_config:
 *
 *	struct fake_clock clock = FAKE_CLOCK_INIT;
 *	config.now_ms = fake_clock_now;
 *	config.now_ctx = &clock;
 *	fake_clock_add(&clock, 600000);
 *
 * Any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct fake_clock {
	_Atomic int64_t now;
};

/* Not 0: that often means "never". */
#define FAKE_CLOCK_INIT                                                                            \
	{                                                                                          \
		1000000                                                                            \
	}

static inline int64_t fake_clock_now(void *ctx)
{
	return atomic_load(&((struct fake_clock *)ctx)->now);
}

static inline void fake_clock_add(struct fake_clock *c, int64_t ms)
{
	atomic_fetch_add(&c->now, ms);
}

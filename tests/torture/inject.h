/*
 * Makes one fallible call of the program fail: allocations, descriptors, files,
 * sockets, threads and processes. The calls of our own objects are redirected at
 * link time (ld --wrap, see inject_list), those of libcurl and cJSON for memory by their hooks;
 * what other libraries and the C library do inside is left alone.
 *
 * A call is known by its *place* (a hash of its stack) and by how often that came before it, not by
 * a plain number: threads take turns in any order, places do not change.
 * All state is in memory shared with the processes that are forked, so that who
 * waits for one can see where it failed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INJECT_FRAMES = 14 };

/* One call that can fail. */
struct inject_call {
	uint64_t place;
	uint32_t turn; /* how often this place came before */
	const char *name;
};

struct inject_hit {
	bool was;
	const char *name;
	int error;
	int depth;
	void *frames[INJECT_FRAMES];
};

/* Once, before anything of libcurl and before any fork. */
void inject_init(void);
/* What the next run is for: to list all calls; or one call (with burst - 1 more of its kind behind
 * it) fails. variant: which of its errors. */
void inject_count(void);
void inject_plan(const struct inject_call *call, unsigned burst, unsigned variant);

/* Between these two calls count. Of the thread that armed it only those inside LOUD(), and by the
 * function that armed it or below. */
__attribute__((noinline)) void inject_arm(void);
void inject_disarm(void);
void inject_loud(int by);
#define LOUD(expression)                                                                           \
	({                                                                                         \
		__typeof__(expression) result_;                                                    \
		inject_loud(1);                                                                    \
		result_ = (expression);                                                            \
		inject_loud(-1);                                                                   \
		result_;                                                                           \
	})
#define LOUDLY(statement)                                                                          \
	do {                                                                                       \
		inject_loud(1);                                                                    \
		statement;                                                                         \
		inject_loud(-1);                                                                   \
	} while (0)

/* After a run. The calls stay valid until the next inject_count(). */
const struct inject_call *inject_calls(size_t *ret_count);
const struct inject_hit *inject_hit(void);
/* In a run: whether more than one call fails, so that cleaning up may fail as well. */
bool inject_is_burst(void);

/*
 * Runs scenarios of an area again and again, each time in a process of its own
 * in which one other fallible call fails (inject.h), and tells what is not
 * in order: a crash, a hang, a report of a sanitizer, a leak of descriptors or memory, or what the
 * scenario itself complains of. That an operation fails is in order.
 *
 *	static void list(void)
 *	{
 *		…				what has to work
 *		inject_arm();
 *		r = LOUD(operation());		any error will do; what succeeds is looked at
 *		inject_disarm();
 *		DEMAND(operation() == 0);	everything works again
 *		…				everything is given back
 *	}
 *
 * The parent has one thread, so that it can fork; a scenario starts from nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct scenario {
	const char *name;
	void (*run)(void);
};

struct torture_area {
	const char *name;
	const struct scenario *scenarios;
	size_t count;
	/* In the parent, once before and once behind everything. May be NULL. False: failed. */
	bool (*begin)(void);
	bool (*end)(void);
};

/* main(): [--seconds N] [--seed N] [--burst N] [--only SCENARIO[:PLACE:TURN]] [--list] */
int torture_main(int argc, char **argv, const struct torture_area *area);

/* In a scenario: complains, and the process ends. */
#define DEMAND(condition) DEMAND_THAT(condition, "%s", "")
#define DEMAND_THAT(condition, ...)                                                                \
	do {                                                                                       \
		if (!(condition))                                                                  \
			torture_complain(__FILE__, __LINE__, #condition, __VA_ARGS__);             \
	} while (0)
__attribute__((noreturn, format(printf, 4, 5))) void
torture_complain(const char *file, int line, const char *condition, const char *fmt, ...);

/*
 * An operation came back with r: whatever it is, it must not be the end of its time: nothing here
 * is slow, so that means that somebody was forgotten. Returns whether it succeeded.
 */
#define ENDED(r) torture_ended(__FILE__, __LINE__, #r, (r))
bool torture_ended(const char *file, int line, const char *what, int r);

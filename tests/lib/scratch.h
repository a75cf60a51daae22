/*
 * A fresh directory for a test: in $TMPDIR, which scripts/test makes and
 * removes, so that nothing stays behind even if the program crashes.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Room for its name. A socket's path has to be short. */
enum { SCRATCH_MAX = 64 };

/* Writes its name to `to`; "" and false if it cannot be made. */
static inline bool scratch_dir(char to[SCRATCH_MAX])
{
	const char *tmp = getenv("TMPDIR");
	int n = snprintf(to, SCRATCH_MAX, "%s/tfc.XXXXXX", tmp ? tmp : "/tmp");

	if (n < SCRATCH_MAX && mkdtemp(to))
		return true;
	to[0] = '\0';
	return false;
}

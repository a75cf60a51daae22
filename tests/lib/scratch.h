/*
 * A fresh directory for a test: in $TMPDIR, which scripts/test makes and
 * removes, so that nothing stays behind even if the program crashes.
 */
#pragma once

#include <ftw.h>
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

static inline int scratch_remove_one(const char *path, const struct stat *st, int type,
				     struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

/* Removes it and all that is in it. Returns whether. */
static inline bool scratch_remove(const char *dir)
{
	return nftw(dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0;
}

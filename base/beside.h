/* Programs of ours that lie beside the one that runs. Any thread. */
#pragma once

#include "util.h"

/*
 * The path of the program NAME in the directory of the one that runs, for the caller to free.
 * -ENOENT: there is none; -EPERM: it is a link, or belongs to a stranger, or anybody may
 * write to it.
 */
int beside_find(const char *name, char **ret) MUST_CHECK;

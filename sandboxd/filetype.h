/* The file types a grep can be limited to, by ripgrep's names. Pure. */
#pragma once

#include <stddef.h>

enum { FILETYPE_MAX_GLOBS = 8 };

/* The patterns of a type, ended by NULL; NULL if there is no such type. */
const char *const *filetype_globs(const char *name);

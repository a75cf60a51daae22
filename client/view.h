/* Which paths an operation may name: those below the view's root. Pure. */
#pragma once

#include "util.h"

/*
 * A root as the user gave it, made normal: no "." segments, no double or
 * trailing slash. Returns 0, -ENOMEM, or -EINVAL for one that is not absolute,
 * has a ".." segment (links decide where that leads) or is too long.
 */
int view_root(const char *root, char **ret) MUST_CHECK;

/*
 * Checks an absolute path of the sandbox, in this order: -EINVAL for a
 * relative or empty one, -EACCES for a ".." segment (split at '/' and at '\')
 * or a path that is neither the root nor below it, -ENAMETOOLONG over 4095
 * bytes or for a component over 255. ret_why (static) says why.
 */
int view_check(const char *root, const char *path, const char **ret_why) MUST_CHECK;

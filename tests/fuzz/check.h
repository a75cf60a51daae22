/* What must be true of anything that the client has decoded. Each aborts if it is not. */
#pragma once

#include "entries.h"

/* Whether these are words for a file that is missing: the only reason for ENOENT. */
bool says_missing(const char *text, size_t len);

void check_attr(const struct attr *a);
/* Names and targets are what a directory can hold, attributes are sound. */
void check_entries(const struct entries *e, bool recursive);

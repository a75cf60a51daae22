/* Random identifiers. Any thread. */
#pragma once

#include <stdbool.h>

enum { UUID_LEN = 36 };

/* Writes a random UUID (version 4): UUID_LEN characters and a NUL. */
void uuid_make(char *out);
/* Whether it has the length and the characters of one; where the dashes are is not looked at. */
bool uuid_is(const char *s);

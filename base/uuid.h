/* Random identifiers. Any thread. */
#pragma once

enum { UUID_LEN = 36 };

/* Writes a random UUID (version 4): UUID_LEN characters and a NUL. */
void uuid_make(char *out);

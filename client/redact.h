/*
 * Keys in what servers say: a server that is asked with a key may repeat it, in an
 * error message for one. Pure.
 */
#pragma once

#include "util.h"

/*
 * Overwrites the key wherever it stands in the text, in place, with asterisks. `header` is
 * the value of the header that it was sent in: blanks before it and a scheme ("Bearer ")
 * do not belong to it. Keys of fewer than four bytes are left: they are in every text.
 */
void redact(char *text, const char *header);

/* Bytes from the kernel's generator. Any thread; waits only if the kernel has just started. */
#pragma once

#include <stddef.h>

/* At most 256, which come whole. Ends the program if the kernel has no such thing. */
void random_fill(void *to, size_t len);

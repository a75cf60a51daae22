/* Input and output that system calls do by halves. Any thread. */
#pragma once

#include "util.h"

/* Writes everything. Returns 0 or a negative errno. */
int write_all(int fd, const void *data, size_t len) MUST_CHECK;

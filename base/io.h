/* Input and output that system calls do by halves. Any thread. */
#pragma once

#include <dirent.h>

#include "util.h"

/* Writes everything. Returns 0 or a negative errno. */
int write_all(int fd, const void *data, size_t len) MUST_CHECK;
/*
 * Reads what there is from that offset on, len bytes at most: fewer only at the end of the file.
 * Returns how many, or a negative errno.
 */
ssize_t pread_all(int fd, void *to, size_t len, uint64_t offset) MUST_CHECK;
/* As readdir(3); NULL: no more of them with 0 in *ret, or it failed with a negative errno there. */
struct dirent *dir_next(DIR *dir, int *ret);

/*
 * Bytes that are kept: as long as they are few in memory, then in a file without
 * a name in the cache directory. What all of them hold together is capped
 * (cache_size), and so is what they hold in memory. Loop thread only; the calls
 * block on the host's disk at most.
 */
#pragma once

#include "fs.h"

struct spool {
	struct fs *fs; /* NULL: it is not open */
	int fd;        /* -1: it has no file */
	char *mem;     /* without a file: the bytes */
	size_t mem_cap;
	uint64_t bytes; /* counted in fs->cache_used */
};

static inline bool spool_is_open(const struct spool *s)
{
	return s->fs != NULL;
}
int spool_open(struct spool *s, struct fs *fs) MUST_CHECK;
void spool_close(struct spool *s); /* harmless on one that is not open */
/* All of it, or a negative errno: -ENOSPC also at the cap. */
int spool_write(struct spool *s, const void *bytes, size_t len, uint64_t offset) MUST_CHECK;
/* As pread(2) but whole: short only at the end of the file. */
ssize_t spool_read(struct spool *s, void *to, size_t len, uint64_t offset) MUST_CHECK;
int spool_truncate(struct spool *s, uint64_t size) MUST_CHECK;

/*
 * Bytes that are kept: as long as they are few in memory, then in a file in the cache
 * directory: without a name, until somebody writes down what it is (ledger.h). What all of them
 * hold together is capped (cache_size), and so is what they hold in memory. Loop thread only; the
 * calls block on the host's disk at most.
 */
#pragma once

#include "fs.h"

struct ledger_entry;

struct spool {
	struct fs *fs; /* NULL: it is not open */
	int fd;        /* -1: it has no file */
	char *mem;     /* without a file: the bytes */
	size_t mem_cap;
	uint64_t bytes;             /* counted in fs->cache_used */
	struct ledger_entry *entry; /* of the file; NULL: it has no record */
};

static inline bool spool_is_open(const struct spool *s)
{
	return s->fs != NULL;
}
int spool_open(struct spool *s, struct fs *fs) MUST_CHECK;
/* What a sandbox has not confirmed and somebody wrote down: all of it. Takes the descriptor, which
 * is the entry's, and the entry. */
void spool_adopt(struct spool *s, struct fs *fs, struct ledger_entry *entry, uint64_t bytes);
/* With its record, if it has one. Harmless on one that is not open. */
void spool_close(struct spool *s);
/* From memory to a file, if it has none; an entry for it, if it has none. */
int spool_to_file(struct spool *s, int ledger) MUST_CHECK;
/* Whether the process may have one more such file open: others need descriptors, too. */
bool spool_has_room(const struct fs *fs);
/* All of it, or a negative errno: -ENOSPC also at the cap, -ENFILE if there are too many files. */
int spool_write(struct spool *s, const void *bytes, size_t len, uint64_t offset) MUST_CHECK;
/* As pread(2) but whole: short only at the end of the file. */
ssize_t spool_read(struct spool *s, void *to, size_t len, uint64_t offset) MUST_CHECK;
/* How many bytes from `offset` on lie in its file; and where, with the descriptor (-1: nowhere). */
uint64_t spool_filed(const struct spool *s, uint64_t offset);
int spool_file(const struct spool *s, uint64_t offset, off_t *ret_offset);
int spool_truncate(struct spool *s, uint64_t size) MUST_CHECK;

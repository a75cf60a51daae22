/*
 * Bytes in memory or in files without a name, and the account of what they take.
 * Knows nothing of what is in them. Loop thread only.
 */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "io.h"
#include "ledger.h"

enum {
	MEMORY_FIRST = 4 * 1024,
	MEMORY_MAX = 128 * 1024,           /* of one */
	MEMORY_MAX_ALL = 16 * 1024 * 1024, /* of all of them */
	FILES_SPARED = 64, /* descriptors at least, for connections and the like; and a quarter */
};

int spool_open(struct spool *s, struct fs *fs)
{
	*s = (struct spool){ .fs = fs, .fd = -1 };
	return 0;
}

static void count(struct spool *s, uint64_t bytes)
{
	s->fs->cache_used += bytes - s->bytes;
	s->bytes = bytes;
}

static void free_memory(struct spool *s)
{
	s->fs->spool_memory -= s->mem_cap;
	s->mem_cap = 0;
	free(STEAL(s->mem));
}

void spool_close(struct spool *s)
{
	if (!s->fs)
		return;
	ledger_entry_drop(STEAL(s->entry));
	if (s->fd >= 0) {
		close(s->fd);
		s->fs->spool_files--;
	}
	free_memory(s);
	count(s, 0);
	s->fs = NULL;
	s->fd = -1;
}

/* Holes count too: what is behind the end today may be written tomorrow. */
static int reserve(struct spool *s, uint64_t size)
{
	if (size <= s->bytes)
		return 0;
	if (s->fs->cache_used + (size - s->bytes) > s->fs->opt->cache_size)
		return -ENOSPC;
	return 0;
}

/* In the file the bytes lie behind the room for a record. */
static int write_file(int fd, const char *p, size_t len, uint64_t offset)
{
	offset += LEDGER_HEAD;
	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

bool spool_has_room(const struct fs *fs)
{
	struct rlimit all;

	if (getrlimit(RLIMIT_NOFILE, &all) < 0 || all.rlim_cur == RLIM_INFINITY)
		return true;
	return fs->spool_files + MAX(all.rlim_cur / 4, FILES_SPARED) < all.rlim_cur;
}

/* From memory to a file. */
static int spill(struct spool *s)
{
	int fd, r;

	if (!spool_has_room(s->fs))
		return -ENFILE;
	fd = openat(s->fs->cache_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_file(fd, s->mem, s->bytes, 0);
	if (r < 0) {
		close(fd);
		return r;
	}
	/* Holes at the end too, which is where the content ends for whoever finds it. */
	if (ftruncate(fd, (off_t)(LEDGER_HEAD + s->bytes)) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	free_memory(s);
	s->fd = fd;
	s->fs->spool_files++;
	return 0;
}

int spool_to_file(struct spool *s, int ledger)
{
	int r = s->fd < 0 ? spill(s) : 0;

	if (r == 0 && !s->entry)
		r = ledger_entry_new(ledger, s->fd, &s->entry);
	return r;
}

void spool_adopt(struct spool *s, struct fs *fs, struct ledger_entry *entry, uint64_t bytes)
{
	*s = (struct spool){ .fs = fs, .fd = entry->fd, .entry = entry };
	fs->spool_files++;
	count(s, bytes);
}

/* Has it hold `size` bytes, those behind the end zeros: in memory if they fit. */
static int make_room(struct spool *s, uint64_t size)
{
	size_t cap = MAX(s->mem_cap, MEMORY_FIRST);
	char *mem;

	if (s->fd >= 0)
		return 0;
	while (cap < size && cap < MEMORY_MAX)
		cap *= 2;
	if (cap < size || s->fs->spool_memory + (cap - s->mem_cap) > MEMORY_MAX_ALL)
		return spill(s);
	if (cap > s->mem_cap) {
		mem = realloc(s->mem, cap);
		if (!mem)
			return spill(s);
		s->mem = mem;
		s->fs->spool_memory += cap - s->mem_cap;
		s->mem_cap = cap;
	}
	if (size > s->bytes)
		memset(s->mem + s->bytes, 0, size - s->bytes);
	return 0;
}

int spool_write(struct spool *s, const void *bytes, size_t len, uint64_t offset)
{
	int r;

	if (offset > INT64_MAX - LEDGER_HEAD - len)
		return -EFBIG;
	r = reserve(s, offset + len);
	if (r == 0)
		r = make_room(s, offset + len);
	if (r < 0)
		return r;
	count(s, MAX(s->bytes, offset + len));
	if (s->fd >= 0)
		return write_file(s->fd, bytes, len, offset);
	memcpy(s->mem + offset, bytes, len);
	return 0;
}

ssize_t spool_read(struct spool *s, void *to, size_t len, uint64_t offset)
{
	if (s->fd < 0) {
		size_t got = offset < s->bytes ? MIN(len, s->bytes - offset) : 0;

		if (got > 0)
			memcpy(to, s->mem + offset, got);
		return (ssize_t)got;
	}
	return pread_all(s->fd, to, len, LEDGER_HEAD + offset);
}

uint64_t spool_filed(const struct spool *s, uint64_t offset)
{
	return s->fs && s->fd >= 0 && offset < s->bytes ? s->bytes - offset : 0;
}

int spool_file(const struct spool *s, uint64_t offset, off_t *ret_offset)
{
	*ret_offset = (off_t)(LEDGER_HEAD + offset);
	return s->fs ? s->fd : -1;
}

int spool_truncate(struct spool *s, uint64_t size)
{
	int r;

	if (size > INT64_MAX - LEDGER_HEAD)
		return -EFBIG;
	r = reserve(s, size);
	if (r == 0)
		r = make_room(s, size);
	if (r < 0)
		return r;
	if (s->fd >= 0 && ftruncate(s->fd, (off_t)(LEDGER_HEAD + size)) < 0)
		return -errno;
	count(s, size);
	return 0;
}

/*
 * What find, stat and dd print: one byte says whether recursively and how many entries are wanted,
 * the rest is the output.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "buf.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The entries as find would have printed them. */
static void print(const struct entries *e, struct buf *out)
{
	for (size_t i = 0; i < e->n; i++) {
		const struct attr *a = &e->v[i].attr;
		mode_t type = a->mode & S_IFMT;
		char letter = type == S_IFREG    ? 'f'
			      : type == S_IFDIR  ? 'd'
			      : type == S_IFLNK  ? 'l'
			      : type == S_IFIFO  ? 'p'
			      : type == S_IFSOCK ? 's'
			      : type == S_IFBLK  ? 'b'
						 : 'c';

		buf_printf(out, "%c %o %ju %ju %ju %ju %u %u %u %jd.%09ld0 %jd.%09ld0 %s%c%s%c",
			   letter, a->mode & 07777, (uintmax_t)a->size, (uintmax_t)a->blocks,
			   (uintmax_t)a->ino, (uintmax_t)a->dev, a->nlink, a->uid, a->gid,
			   (intmax_t)a->mtime.tv_sec, a->mtime.tv_nsec, (intmax_t)a->ctime.tv_sec,
			   a->ctime.tv_nsec, e->v[i].name, 0, e->v[i].target ? e->v[i].target : "",
			   0);
	}
	assert(!out->error);
}

static bool same(const struct attr *a, const struct attr *b)
{
	return a->mode == b->mode && a->size == b->size && a->blocks == b->blocks &&
	       a->ino == b->ino && a->dev == b->dev && a->nlink == b->nlink && a->uid == b->uid &&
	       a->gid == b->gid && a->mtime.tv_sec == b->mtime.tv_sec &&
	       a->mtime.tv_nsec == b->mtime.tv_nsec && a->ctime.tv_sec == b->ctime.tv_sec &&
	       a->ctime.tv_nsec == b->ctime.tv_nsec;
}

/* What was understood is understood again, the same way. */
static void check_again(const struct entries *e, bool recursive)
{
	struct entries again CLEANUP_ENTRIES = { 0 };
	struct buf out CLEANUP_BUF = BUF_INIT(0);
	int r;

	print(e, &out);
	r = entries_parse_find(&again, out.data, out.len, recursive);
	assert(r == 0 && again.n == e->n && again.dropped == 0);
	for (size_t i = 0; i < e->n; i++) {
		const char *a = e->v[i].target, *b = again.v[i].target;

		assert(strcmp(e->v[i].name, again.v[i].name) == 0);
		assert((!a && !b) || (a && b && strcmp(a, b) == 0));
		assert(same(&e->v[i].attr, &again.v[i].attr));
	}
}

static void read_find(const char *bytes, size_t len, bool recursive)
{
	struct entries e CLEANUP_ENTRIES = { 0 };
	int r = entries_parse_find(&e, bytes, len, recursive);

	assert(r == 0 || r == -EBADMSG);
	check_entries(&e, recursive);
	check_again(&e, recursive);
}

/* The first entries of an output are those that it begins with. */
static void read_first(const char *bytes, size_t len, size_t max, bool recursive)
{
	struct entries all CLEANUP_ENTRIES = { 0 }, first CLEANUP_ENTRIES = { 0 };
	size_t n = entries_find_len(bytes, len, max);
	int whole = entries_parse_find(&all, bytes, len, recursive), r;

	assert(n <= len && (n == 0) == (len == 0 || max == 0));
	assert(entries_find_len(bytes, n, max) == n);
	r = entries_parse_find(&first, bytes, n, recursive);
	assert(first.n + first.dropped <= max);
	assert(r == 0 || whole < 0);
	assert(first.n <= all.n && first.dropped <= all.dropped);
	for (size_t i = 0; i < first.n; i++)
		assert(strcmp(first.v[i].name, all.v[i].name) == 0);
}

/* What other tools print: modes, how much was copied. */
static void read_numbers(const char *bytes, size_t len)
{
	mode_t mode = 0;
	uint64_t copied = 0;
	int r = mode_parse(bytes, len, &mode);

	assert(r == 0 || r == -EBADMSG);
	assert(r == 0 ? memchr(bytes, '\n', len) != NULL : mode == 0);
	assert((mode & ~(mode_t)07777) == 0);
	r = copied_parse(bytes, len, &copied);
	assert(r == 0 || r == -EBADMSG);
	assert(r == 0 ? memmem(bytes, len, " byte", 5) != NULL : copied == 0);
}

static void read_stat(const char *bytes, size_t len)
{
	struct attr a = { .mode = S_IFREG };
	struct fs_stat fs;
	int r = attr_parse_stat(bytes, len, &a);

	assert(r == 0 || r == -EBADMSG);
	check_attr(&a);
	r = fs_stat_parse(bytes, len, &fs);
	assert(r == 0 || r == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *bytes CLEANUP_FREE = NULL;

	if (size < 1)
		return 0;
	bytes = malloc(size); /* exactly: a byte too many is seen */
	assert(bytes);
	memcpy(bytes, data + 1, size - 1);
	bytes[size - 1] = '\xff';
	read_find(bytes, size - 1, data[0] & 1);
	read_first(bytes, size - 1, data[0] >> 1, data[0] & 1);
	read_stat(bytes, size - 1);
	read_numbers(bytes, size - 1);
	return 0;
}

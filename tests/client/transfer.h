/*
 * What the tests of downloads and uploads share: content, a reader and a
 * writer that pause on order, files on this side of the sandbox. What asserts
 * belongs to the main thread; the callbacks run on the loop.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "direct.h"
#include "io.h"

/* Bytes that tell where they are from: no two pages alike. */
static inline char *make_content(size_t len, unsigned seed)
{
	char *c = malloc(len + 1);
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	assert_non_null(c);
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		c[i] = (char)(x >> 32);
	}
	c[len] = 0;
	return c;
}

static inline void put_file(const char *host_path, const void *bytes, size_t len)
{
	int fd = open(host_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, bytes, len), 0);
	assert_int_equal(close(fd), 0);
}

/* As if it had been written a while ago. */
static inline void make_old(const char *host_path)
{
	struct timespec times[2] = { { .tv_sec = 1000000000, .tv_nsec = 123456789 },
				     { .tv_sec = 1000000000, .tv_nsec = 123456789 } };

	assert_int_equal(utimensat(AT_FDCWD, host_path, times, 0), 0);
}

static inline bool file_is(const char *host_path, const void *bytes, size_t len)
{
	char *have CLEANUP_FREE = malloc(len + 2);
	int fd CLEANUP_FD = open(host_path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t got;

	assert_non_null(have);
	if (fd < 0)
		return false;
	while (n <= len && (got = read(fd, have + n, len + 1 - n)) > 0)
		n += (size_t)got;
	return n == len && memcmp(have, bytes, len) == 0;
}

/* How many names a directory of this side holds. */
static inline unsigned count_names(const char *host_dir)
{
	DIR *d = opendir(host_dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

/* Names in the sandbox's /tmp that begin as ours do. */
static inline unsigned count_aliases(struct fixture *f)
{
	struct sandbox *sb = fixture_open(f, "/");
	struct entries e CLEANUP_ENTRIES = { 0 };
	unsigned n = 0;

	assert_int_equal(SYNC(sb, sandbox_list, "/tmp", 1, &e), 0);
	for (size_t i = 0; i < e.n; i++)
		n += strncmp(e.v[i].name, ".threadfs-", 10) == 0 &&
		     e.v[i].target; /* not the output of this very listing */
	sandbox_unref(sb);
	return n;
}

/* ---- reading ---- */

struct reader {
	struct buf bytes; /* what came */
	bool drop;        /* count only */
	uint64_t total;
	uint64_t pause_at;  /* says -EAGAIN once it has so many; UINT64_MAX: never */
	uint64_t refuse_at; /* says refusal once it has so many */
	int refusal;
	unsigned heads;
	struct download_head head;
	char etag[128];
	atomic_bool paused;
	atomic_bool open; /* never pauses again */
};

#define READER         ((struct reader){ .pause_at = UINT64_MAX, .refuse_at = UINT64_MAX })
#define CLEANUP_READER CLEANUP(reader_release)

static inline void reader_release(struct reader *r)
{
	buf_release(&r->bytes);
}

static inline int reader_head(void *ctx, const struct download_head *head)
{
	struct reader *r = ctx;

	r->heads++;
	r->head = *head;
	snprintf(r->etag, sizeof(r->etag), "%s", head->etag ?: "");
	return 0;
}

static inline int reader_data(void *ctx, const void *bytes, size_t len)
{
	struct reader *r = ctx;

	if (r->total >= r->refuse_at)
		return r->refusal;
	if (r->total >= r->pause_at && !atomic_load(&r->open)) {
		atomic_store(&r->paused, true);
		return -EAGAIN;
	}
	if (!r->drop && buf_append(&r->bytes, bytes, len) < 0)
		return -ENOMEM;
	r->total += len;
	return 0;
}

static inline struct download reading(struct reader *r)
{
	return (struct download){ .head = reader_head, .data = reader_data, .ctx = r };
}

static inline bool reader_has(const struct reader *r, const char *bytes, size_t len)
{
	return r->bytes.len == len && (len == 0 || memcmp(r->bytes.data, bytes, len) == 0);
}

/* ---- writing ---- */

struct writer {
	const char *bytes;
	uint64_t len, sent;
	uint64_t pause_at; /* as a reader's */
	size_t most;       /* at once; 0: any */
	int refusal;       /* instead of the end; 0: none */
	atomic_bool paused, open;
};

#define WRITER(b, n) ((struct writer){ .bytes = (b), .len = (n), .pause_at = UINT64_MAX })

static inline ssize_t writer_read(void *ctx, char *to, size_t len)
{
	struct writer *w = ctx;

	if (w->sent >= w->pause_at && !atomic_load(&w->open)) {
		atomic_store(&w->paused, true);
		return -EAGAIN;
	}
	if (w->most)
		len = MIN(len, w->most);
	len = MIN(len, w->len - w->sent);
	if (!atomic_load(&w->open))
		len = MIN(len, w->pause_at - w->sent);
	if (len == 0 && w->refusal)
		return w->refusal;
	memcpy(to, w->bytes + w->sent, len);
	w->sent += len;
	return (ssize_t)len;
}

static inline struct upload writing(struct writer *w, int64_t size)
{
	return (struct upload){ .size = size, .mode = -1, .read = writer_read, .ctx = w, .fd = -1 };
}

/*
 * A handler for ROGUE_REPLACE: of each file in a directory whose name begins so the last byte is
 * gone before the client hears that it was stored, and, unless it says_size, not how much.
 */
struct shortener {
	const char *host_dir, *prefix;
	bool says_size;
};

static inline int shorten(void *ctx, const struct rogue_request *request, struct rogue_reply *reply)
{
	const struct shortener *s = ctx;
	DIR *d = opendir(s->host_dir);
	struct dirent *e;

	(void)request;
	while (d && (e = readdir(d))) {
		struct stat st;
		int fd =
			e->d_type == DT_REG && strncmp(e->d_name, s->prefix, strlen(s->prefix)) == 0
				? openat(dirfd(d), e->d_name, O_WRONLY | O_CLOEXEC)
				: -1;

		if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
			(void)!ftruncate(fd, st.st_size - 1);
		if (fd >= 0)
			close(fd);
	}
	if (d)
		closedir(d);
	if (!s->says_size) {
		reply->body = "{\"success\":true,\"data\":{}}";
		reply->body_len = 0;
	}
	return 0;
}

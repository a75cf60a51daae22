/* Listings and attributes by commands: what find and stat print, and what they might. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "buf.h"
#include "entries.h"

/* ---- find ---- */

#define ATTRS " 644 3 8 12 2049 1 1000 1000 1700000000.1234567890 1700000001.0000000000 "

static int find(struct entries *e, const char *bytes, size_t len, bool recursive)
{
	/* Its own block, so that a sanitizer sees the first byte too many. */
	char *copy = malloc(len ? len : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = entries_parse_find(e, copy, len, recursive);
	free(copy);
	return r;
}

/* The bytes of a literal, which hold NULs, without the last one. */
#define FIND(e, literal, recursive) find(e, literal, sizeof(literal) - 1, recursive)

static void find_record(void **state)
{
	struct entries e CLEANUP_ENTRIES = { 0 };
	const struct attr *a;

	assert_int_equal(FIND(&e,
			      "f" ATTRS " a \n\xff\0\0"
			      "l 777 3 0 13 1 2 0 4294967295 0.5 -1.5000000000 l\0to\n\0",
			      false),
			 0);
	assert_int_equal(e.n, 2);
	assert_int_equal(e.dropped, 0);
	assert_string_equal(e.v[0].name, " a \n\xff");
	assert_null(e.v[0].target);
	a = &e.v[0].attr;
	assert_int_equal(a->mode, S_IFREG | 0644);
	assert_int_equal(a->size, 3);
	assert_int_equal(a->blocks, 8);
	assert_int_equal(a->ino, 12);
	assert_int_equal(a->dev, 2049);
	assert_int_equal(a->nlink, 1);
	assert_int_equal(a->uid, 1000);
	assert_int_equal(a->mtime.tv_sec, 1700000000);
	assert_int_equal(a->mtime.tv_nsec, 123456789);
	assert_int_equal(a->ctime.tv_sec, 1700000001);
	assert_int_equal(a->ctime.tv_nsec, 0);
	assert_false(a->partial);
	assert_string_equal(e.v[1].name, "l");
	assert_string_equal(e.v[1].target, "to\n");
	a = &e.v[1].attr;
	assert_int_equal(a->mode, S_IFLNK | 0777);
	assert_int_equal(a->gid, UINT32_MAX);
	assert_int_equal(a->mtime.tv_nsec, 500000000);
	/* find prints the two parts of a time as they are */
	assert_int_equal(a->ctime.tv_sec, -1);
	assert_int_equal(a->ctime.tv_nsec, 500000000);
}

static void find_types(void **state)
{
	static const struct {
		char letter;
		mode_t type;
	} rows[] = {
		{ 'f', S_IFREG },  { 'd', S_IFDIR }, { 'l', S_IFLNK }, { 'p', S_IFIFO },
		{ 's', S_IFSOCK }, { 'b', S_IFBLK }, { 'c', S_IFCHR }, { 'D', 0 },
		{ 'U', 0 },        { 'N', 0 },       { '-', 0 },       { '?', 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct entries e CLEANUP_ENTRIES = { 0 };
		char record[] = "?" ATTRS "n\0";

		record[0] = rows[i].letter;
		assert_int_equal(find(&e, record, sizeof(record), false), 0);
		assert_int_equal(e.n, rows[i].type != 0);
		assert_int_equal(e.dropped, rows[i].type == 0);
		if (e.n)
			assert_int_equal(e.v[0].attr.mode, rows[i].type | 0644);
	}
}

static void find_numbers(void **state)
{
	static const struct {
		const char *fields;
		int want;
	} rows[] = {
		{ "7777 9223372036854775807 9223372036854775807 18446744073709551615 "
		  "18446744073709551615 4294967295 4294967295 4294967295 9223372036854775807.9 "
		  "-9223372036854775808.0000000000",
		  0 },
		{ "0 0 0 0 0 0 0 0 0 0", 0 },
		{ "10000 0 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "8 0 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 9223372036854775808 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 0 9223372036854775808 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 0 0 18446744073709551616 0 0 0 0 0 0", -EBADMSG },
		{ "0 0 0 0 18446744073709551616 0 0 0 0 0", -EBADMSG },
		{ "0 0 0 0 0 4294967296 0 0 0 0", -EBADMSG },
		{ "0 0 0 0 0 0 4294967296 0 0 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 99999999999999999999999 0 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 9223372036854775808 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 0 -9223372036854775809", -EBADMSG },
		{ "0 -1 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 +1 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0  1 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 0x1 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 1e1 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 1.0 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 . 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 1. 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 .5 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 --1 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 1.-5 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 1,5 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 0", -EBADMSG },
		{ "0 0 0 0 0 0 0 0 0 0 0\t", 0 }, /* a name */
		{ "", -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);
		struct entries e CLEANUP_ENTRIES = { 0 };

		buf_printf(&b, "f %s n%c%c", rows[i].fields, 0, 0);
		assert_int_equal(find(&e, b.data, b.len, false), rows[i].want);
		assert_int_equal(e.n, rows[i].want == 0);
	}
}

static void find_drops_what_is_no_name(void **state)
{
	static const struct {
		const char *name;
		bool flat, recursive;
	} rows[] = {
		{ "a", true, true },
		{ "...", true, true },
		{ ".a", true, true },
		{ "..a", true, true },
		{ "a..", true, true },
		{ "\\", true, true },
		{ "a/b", false, true },
		{ "a/.b/...", false, true },
		{ ".", false, false },
		{ "..", false, false },
		{ "/", false, false },
		{ "/a", false, false },
		{ "a/", false, false },
		{ "a//b", false, false },
		{ "a/..", false, false },
		{ "../a", false, false },
		{ "a/../b", false, false },
		{ "a/./b", false, false },
		{ "/etc/passwd", false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (int recursive = 0; recursive < 2; recursive++) {
			struct buf b CLEANUP_BUF = BUF_INIT(0);
			struct entries e CLEANUP_ENTRIES = { 0 };
			bool keep = recursive ? rows[i].recursive : rows[i].flat;

			buf_printf(&b, "f" ATTRS "%s%c%c", rows[i].name, 0, 0);
			assert_int_equal(find(&e, b.data, b.len, recursive), 0);
			assert_int_equal(e.n, keep);
			assert_int_equal(e.dropped, !keep);
		}
	}
}

static void find_lengths(void **state)
{
	static const struct {
		size_t name, components, target, kept;
	} rows[] = {
		{ 255, 1, 0, 1 },  { 256, 1, 0, 0 },  { 255, 15, 0, 1 },   { 255, 16, 0, 1 },
		{ 254, 17, 0, 0 }, { 240, 17, 0, 0 }, { 1, 1, 4095, 1 },   { 1, 1, 4096, 0 },
		{ 1, 2048, 0, 1 }, { 1, 2049, 0, 0 }, { 1, 100000, 0, 0 }, { 1000, 5, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct entries e CLEANUP_ENTRIES = { 0 };
		struct buf b CLEANUP_BUF = BUF_INIT(0);

		buf_puts(&b, rows[i].target ? "l" ATTRS : "f" ATTRS);
		for (size_t n = 0; n < rows[i].components; n++) {
			if (n)
				buf_putc(&b, '/');
			for (size_t k = 0; k < rows[i].name; k++)
				buf_putc(&b, 'n');
		}
		buf_putc(&b, '\0');
		for (size_t k = 0; k < rows[i].target; k++)
			buf_putc(&b, 't');
		buf_putc(&b, '\0');
		assert_int_equal(find(&e, b.data, b.len, true), 0);
		assert_int_equal(e.n, rows[i].kept);
		assert_int_equal(e.dropped, 1 - rows[i].kept);
		if (e.n && rows[i].target)
			assert_int_equal(strlen(e.v[0].target), rows[i].target);
	}
}

static void find_odds(void **state)
{
	struct entries e CLEANUP_ENTRIES = { 0 };

	assert_int_equal(FIND(&e, "", false), 0);
	assert_int_equal(entries_parse_find(&e, NULL, 0, false), 0);
	/* the directory itself */
	assert_int_equal(FIND(&e, "d" ATTRS "\0\0", false), 0);
	assert_int_equal(e.n + e.dropped, 0);
	/* a link that could not be read */
	assert_int_equal(FIND(&e, "l" ATTRS "n\0\0", false), 0);
	assert_int_equal(e.n, 1);
	assert_null(e.v[0].target);
	/* duplicates stay */
	assert_int_equal(FIND(&e, "f" ATTRS "n\0\0f" ATTRS "n\0\0", false), 0);
	assert_int_equal(e.n, 3);
	assert_int_equal(FIND(&e, "f" ATTRS "n\0target\0", false), -EBADMSG);
	assert_int_equal(FIND(&e, "\0\0", false), -EBADMSG);
	assert_int_equal(FIND(&e, "\0" ATTRS "n\0\0", false), -EBADMSG);
	assert_int_equal(FIND(&e, "find: hello\n", false), -EBADMSG);
	assert_int_equal(FIND(&e, "ff" ATTRS "n\0\0", false), -EBADMSG);
	assert_int_equal(FIND(&e, "\nf" ATTRS "n\0\0", false), -EBADMSG);
	assert_int_equal(e.n, 3);
	entries_release(&e);
	assert_int_equal(e.n, 0);
}

/* Every cut of a listing is an error unless it is between two records. */
static void find_cut(void **state)
{
	static const char all[] = "f" ATTRS "a\0\0d" ATTRS "b\0\0l" ATTRS "c\0to\0";

	for (size_t len = 0; len < sizeof(all); len++) {
		struct entries e CLEANUP_ENTRIES = { 0 };
		int r = find(&e, all, len, false);

		if (len == 0 || (len > 3 && all[len - 1] == '\0' && strchr("fdl", all[len]) &&
				 (all[len - 2] == '\0' || e.n == 3)))
			assert_int_equal(r, 0);
		else
			assert_int_equal(r, -EBADMSG);
	}
}

static void find_has_a_cap(void **state)
{
	struct entries e CLEANUP_ENTRIES = { 0 };
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	int r = 0;

	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "f" ATTRS "n%c%c", 0, 0);
	for (int i = 0; i < ENTRIES_MAX / 1000; i++) {
		assert_int_equal(r, 0);
		r = entries_parse_find(&e, b.data, b.len, true);
	}
	assert_int_equal(r, 0);
	assert_int_equal(e.n, ENTRIES_MAX);
	assert_int_equal(entries_parse_find(&e, b.data, b.len, true), -E2BIG);
	assert_int_equal(e.n, ENTRIES_MAX);
}

static uint64_t random_u64(void)
{
	uint64_t v = (uint64_t)random() << 42 ^ (uint64_t)random() << 21 ^ (uint64_t)random();

	return v >> random() % 64;
}

/* Any bytes but NUL and, for names, '/'; never "." or "..". */
static void random_bytes(char *to, size_t max, bool slash)
{
	size_t len = 1 + (size_t)random() % (random() % 8 ? 16 : max);

	for (size_t i = 0; i < len; i++) {
		do
			to[i] = (char)(1 + random() % 255);
		while (to[i] == '/' && !slash);
	}
	if (to[0] == '.')
		to[0] = '-';
	to[len] = '\0';
}

/* What is written comes back. */
static void find_round_trip(void **state)
{
	static const char letters[] = "fdlpsbc";
	static const mode_t types[] = { S_IFREG,  S_IFDIR, S_IFLNK, S_IFIFO,
					S_IFSOCK, S_IFBLK, S_IFCHR };
	static struct {
		struct attr a;
		char name[256], target[4096];
	} want[500];
	struct entries e CLEANUP_ENTRIES = { 0 };
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	srandom(3);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct attr *a = &want[i].a;
		size_t type = (size_t)random() % ARRAY_SIZE(types);

		a->mode = types[type] | (mode_t)(random() % 010000);
		a->size = random_u64() >> 1;
		a->blocks = random_u64() >> 1;
		a->ino = random_u64();
		a->dev = random_u64();
		a->nlink = (uint32_t)random_u64();
		a->uid = (uint32_t)random_u64();
		a->gid = (uint32_t)random_u64();
		a->mtime = (struct timespec){ (time_t)random_u64(), random() % 1000000000 };
		a->ctime = (struct timespec){ -(time_t)random_u64(), random() % 1000000000 };
		random_bytes(want[i].name, 255, false);
		if (types[type] == S_IFLNK)
			random_bytes(want[i].target, 4095, true);
		buf_printf(&b, "%c %o %ju %ju %ju %ju %u %u %u %jd.%09ld0 %jd.%09ld0 %s%c%s%c",
			   letters[type], a->mode & 07777, (uintmax_t)a->size, (uintmax_t)a->blocks,
			   (uintmax_t)a->ino, (uintmax_t)a->dev, a->nlink, a->uid, a->gid,
			   (intmax_t)a->mtime.tv_sec, a->mtime.tv_nsec, (intmax_t)a->ctime.tv_sec,
			   a->ctime.tv_nsec, want[i].name, 0, want[i].target, 0);
	}
	assert_int_equal(find(&e, b.data, b.len, false), 0);
	assert_int_equal(e.n, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		const struct attr *a = &e.v[i].attr, *w = &want[i].a;

		assert_string_equal(e.v[i].name, want[i].name);
		if (S_ISLNK(w->mode))
			assert_string_equal(e.v[i].target, want[i].target);
		else
			assert_null(e.v[i].target);
		assert_int_equal(a->mode, w->mode);
		assert_int_equal(a->size, w->size);
		assert_int_equal(a->blocks, w->blocks);
		assert_int_equal(a->ino, w->ino);
		assert_int_equal(a->dev, w->dev);
		assert_int_equal(a->nlink, w->nlink);
		assert_int_equal(a->uid, w->uid);
		assert_int_equal(a->gid, w->gid);
		assert_memory_equal(&a->mtime, &w->mtime, sizeof(w->mtime));
		assert_memory_equal(&a->ctime, &w->ctime, sizeof(w->ctime));
	}
}

/* ---- stat ---- */

static void stat_times(void **state)
{
	static const struct {
		const char *text;
		time_t sec;
		long nsec;
	} rows[] = {
		{ "0.000000000", 0, 0 },
		{ "1700000000.123456789", 1700000000, 123456789 },
		{ "1700000000", 1700000000, 0 },
		{ "-1.500000000", -2, 500000000 },
		{ "-0.250000000", -1, 750000000 },
		{ "-2.000000000", -2, 0 },
		{ "-1.000000001", -2, 999999999 },
		{ "-0.000000000", 0, 0 },
		{ "9223372036854775807.999999999", INT64_MAX, 999999999 },
		{ "-9223372036854775808.000000000", INT64_MIN, 0 },
		{ "-9223372036854775807.500000000", INT64_MIN, 500000000 },
	};
	char line[256];
	struct attr a;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int n = snprintf(line, sizeof(line), "81a4 1 2 3 4 5 6 7 %s 1.5\n", rows[i].text);

		assert_int_equal(attr_parse_stat(line, (size_t)n, &a), 0);
		assert_int_equal(a.mtime.tv_sec, rows[i].sec);
		assert_int_equal(a.mtime.tv_nsec, rows[i].nsec);
		assert_int_equal(a.mode, S_IFREG | 0644);
		assert_int_equal(a.gid, 7);
	}
}

static void stat_refuses(void **state)
{
	static const char *const rows[] = {
		"",
		"\n",
		"81a4",
		"81a4 1 2 3 4 5 6 7 1.5",
		"81a4 1 2 3 4 5 6 7 1.5 1.5 1.5",
		"81a4 1 2 3 4 5 6 7 1.5 1.5\n\n",
		"81a4 1 2 3 4 5 6 7 1.5 1.5 \n",
		" 81a4 1 2 3 4 5 6 7 1.5 1.5\n",
		"81A4 1 2 3 4 5 6 7 1.5 1.5\n",
		"181a4 1 2 3 4 5 6 7 1.5 1.5\n",
		"1a4 1 2 3 4 5 6 7 1.5 1.5\n",  /* no type */
		"f1a4 1 2 3 4 5 6 7 1.5 1.5\n", /* no such type */
		"81a4 -1 2 3 4 5 6 7 1.5 1.5\n",
		"81a4 1 2 3 4 5 6 7 -9223372036854775808.500000000 1.5\n",
		"stat: cannot statx 'x': No such file or directory\n",
	};
	struct attr a = { .size = 42 };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(attr_parse_stat(rows[i], strlen(rows[i]), &a), -EBADMSG);
	assert_int_equal(attr_parse_stat(NULL, 0, &a), -EBADMSG);
	assert_int_equal(a.size, 42);
}

static void fs_stat_lines(void **state)
{
	static const char line[] = "4096 66053021 61889993 20921269 16777216 16361382 255\n";
	static const char endless[] = "18446744073709551615 -1 -1 -1 18446744073709551615 -1 255";
	static const char *const bad[] = { "",
					   "4096",
					   "-1 1 1 1 1 1 1",
					   "1 1 1 1 1 1",
					   "1 1 1 1 1 1 1 1",
					   "1 1 1 1 1 1 18446744073709551616",
					   "1 1 1 1 1 -9223372036854775809 1",
					   "? ? ? ? ? ? ?" };
	struct fs_stat f = { 0 };

	assert_int_equal(fs_stat_parse(line, strlen(line), &f), 0);
	assert_int_equal(f.block_size, 4096);
	assert_int_equal(f.blocks, 66053021);
	assert_int_equal(f.free, 61889993);
	assert_int_equal(f.available, 20921269);
	assert_int_equal(f.files, 16777216);
	assert_int_equal(f.files_free, 16361382);
	assert_int_equal(f.name_max, 255);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(fs_stat_parse(bad[i], strlen(bad[i]), &f), -EBADMSG);
	assert_int_equal(fs_stat_parse(NULL, 0, &f), -EBADMSG);
	assert_int_equal(f.block_size, 4096);
	assert_int_equal(fs_stat_parse(endless, strlen(endless), &f), 0);
	assert_int_equal(f.files_free, UINT64_MAX);
	assert_int_equal(f.block_size, UINT64_MAX);
}

static void modes(void **state)
{
	static const char *const bad[] = { "",      "644",    "\n",   "10000\n",
					   "648\n", " 644\n", "-1\n", "0x1\n" };
	mode_t mode = 1;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(mode_parse(bad[i], strlen(bad[i]), &mode), -EBADMSG);
	assert_int_equal(mode_parse(NULL, 0, &mode), -EBADMSG);
	assert_int_equal(mode, 1);
	assert_int_equal(mode_parse("4755\n1\n", 7, &mode), 0);
	assert_int_equal(mode, 04755);
}

static void copied(void **state)
{
	static const struct {
		const char *text;
		uint64_t want;
	} rows[] = {
		{ "5 bytes copied, 0.1 s, 50 B/s", 5 },
		{ "1 byte copied, 0.1 s, 10 B/s\n\n", 1 },
		{ "0+1 records in\n0+1 records out\n1048576 bytes (1.0 MB, 1.0 MiB) copied\n",
		  1048576 },
		{ "18446744073709551615 bytes", UINT64_MAX },
	};
	static const char *const bad[] = {
		"",         "\n",       "5",     "5 ",         "5 byt",
		"-5 bytes", " 5 bytes", "bytes", "5 bytes\nx", "18446744073709551616 bytes",
	};
	uint64_t n = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(copied_parse(bad[i], strlen(bad[i]), &n), -EBADMSG);
	assert_int_equal(copied_parse(NULL, 0, &n), -EBADMSG);
	assert_int_equal(n, 7);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(copied_parse(rows[i].text, strlen(rows[i].text), &n), 0);
		assert_int_equal(n, rows[i].want);
	}
}

static void first_entries(void **state)
{
	static const char bytes[] = "a\0b\0c\0d\0e";

	assert_int_equal(entries_find_len(bytes, 9, 0), 0);
	assert_int_equal(entries_find_len(bytes, 9, 1), 4);
	assert_int_equal(entries_find_len(bytes, 9, 2), 8);
	assert_int_equal(entries_find_len(bytes, 9, 3), 9);
	assert_int_equal(entries_find_len(bytes, 3, 1), 3);
	assert_int_equal(entries_find_len(NULL, 0, 1), 0);
}

/* ---- the real tools ---- */

static char scratch[] = "/tmp/test_entries.XXXXXX";

static int make_scratch(void **state)
{
	return mkdtemp(scratch) && chdir(scratch) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static int remove_scratch(void **state)
{
	return chdir("/") == 0 ? nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS) : -1;
}

static void make_file(const char *name)
{
	int fd CLEANUP_FD = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
}

static void make_old_file(const char *name, time_t sec, long nsec)
{
	struct timespec ts[2] = { { 1, 0 }, { sec, nsec } };

	make_file(name);
	assert_int_equal(utimensat(AT_FDCWD, name, ts, 0), 0);
}

static void make_odd_files(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	int fd CLEANUP_FD = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int64_t large = 5ll << 30;

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	make_old_file("half past", -2, 500000000);
	make_old_file("whole past", -2, 0);
	make_old_file("just past", -1, 999999999);
	make_old_file("epoch", 0, 0);
	make_old_file("one", 1, 1);
	make_old_file("future", 15000000000, 999999999);
	make_file("sparse");
	assert_int_equal(truncate("sparse", large), 0);
	make_file("setuid");
	assert_int_equal(chmod("setuid", 06755), 0);
	make_file("shut");
	assert_int_equal(chmod("shut", 0), 0);
	assert_int_equal(mkdir("dir", 0755), 0);
	assert_int_equal(chmod("dir", 03777), 0);
	assert_int_equal(mkdir("dir/ sub\n", 0755), 0);
	make_file("dir/ sub\n/file");
	assert_int_equal(link("setuid", "dir/second name"), 0);
	assert_int_equal(mkfifo("fifo", 0640), 0);
	assert_int_equal(symlink("a\nb/ \xff", "link"), 0);
	assert_int_equal(symlink("/", "dir/ up"), 0);
	if (mknod("null", S_IFCHR | 0600, (dev_t)0x103) < 0 || /* only root may */
	    mknod("disk", S_IFBLK | 0600, (dev_t)0x700) < 0)
		print_message("devices left out: errno %d\n", errno);
}

static void make_random_names(unsigned n)
{
	char name[256];

	srandom(1);
	while (n > 0) {
		random_bytes(name, 255, false);
		if (access(name, F_OK) == 0)
			continue;
		make_file(name);
		n--;
	}
}

/* The output of a tool in the C locale. */
static void run(const char *const *argv, struct buf *out)
{
	posix_spawn_file_actions_t actions;
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(setenv("LC_ALL", "C", 1), 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
	assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fds[1], 1), 0);
	assert_int_equal(posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ),
			 0);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	do {
		assert_int_equal(buf_reserve(out, 65536), 0);
		n = read(fds[0], out->data + out->len, 65536);
		assert_true(n >= 0);
		out->len += (size_t)n;
	} while (n > 0);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void assert_same(const struct attr *a, const struct stat *st)
{
	assert_int_equal(a->mode, st->st_mode);
	assert_int_equal(a->size, st->st_size);
	assert_int_equal(a->blocks, st->st_blocks);
	assert_int_equal(a->ino, st->st_ino);
	assert_int_equal(a->dev, st->st_dev);
	assert_int_equal(a->nlink, st->st_nlink);
	assert_int_equal(a->uid, st->st_uid);
	assert_int_equal(a->gid, st->st_gid);
	assert_int_equal(a->mtime.tv_sec, st->st_mtim.tv_sec);
	assert_int_equal(a->mtime.tv_nsec, st->st_mtim.tv_nsec);
	assert_int_equal(a->ctime.tv_sec, st->st_ctim.tv_sec);
	assert_int_equal(a->ctime.tv_nsec, st->st_ctim.tv_nsec);
	assert_false(a->partial);
}

/* Every entry is as lstat(2) and readlink(2) have it, and none is there twice. */
static void assert_all_true(const struct entries *e)
{
	char target[4096];
	struct stat st;

	for (size_t i = 0; i < e->n; i++) {
		assert_int_equal(lstat(e->v[i].name, &st), 0);
		assert_same(&e->v[i].attr, &st);
		if (S_ISLNK(st.st_mode)) {
			ssize_t n = readlink(e->v[i].name, target, sizeof(target) - 1);

			assert_true(n > 0);
			target[n] = '\0';
			assert_string_equal(e->v[i].target, target);
		} else {
			assert_null(e->v[i].target);
		}
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(e->v[i].name, e->v[k].name);
	}
}

static size_t nfiles, nbelow;

static int count_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	nfiles += ftw->level == 1;
	nbelow += ftw->level >= 1;
	return 0;
}

/* stat, given all the names at once. */
static void stat_agrees(const struct entries *e)
{
	const char **argv = calloc(e->n + 5, sizeof(*argv));
	struct buf out CLEANUP_BUF = BUF_INIT(0);
	const char *line;
	struct attr a;
	struct stat st;
	size_t argc = 0;

	assert_non_null(argv);
	argv[argc++] = "stat";
	argv[argc++] = "-c";
	argv[argc++] = ATTR_STAT_FORMAT;
	argv[argc++] = "--";
	for (size_t i = 0; i < e->n; i++)
		argv[argc++] = e->v[i].name;
	run(argv, &out);
	free(argv);
	line = out.data;
	for (size_t i = 0; i < e->n; i++) {
		const char *end = memchr(line, '\n', out.len - (size_t)(line - out.data));

		assert_non_null(end);
		assert_int_equal(attr_parse_stat(line, (size_t)(end - line) + i % 2, &a), 0);
		assert_int_equal(lstat(e->v[i].name, &st), 0);
		assert_same(&a, &st);
		line = end + 1;
	}
	assert_ptr_equal(line, out.data + out.len);
}

static void real_tools_and_odd_files(void **state)
{
	static const char *const flat[] = { "find",      ".", "-mindepth", "1",
					    "-maxdepth", "1", "-printf",   ENTRIES_FIND_FORMAT,
					    NULL };
	static const char *const all[] = { "find", ".", "-printf", ENTRIES_FIND_FORMAT, NULL };
	struct entries e CLEANUP_ENTRIES = { 0 }, deep CLEANUP_ENTRIES = { 0 };
	struct buf out CLEANUP_BUF = BUF_INIT(0);

	make_odd_files();
	make_random_names(200);
	assert_int_equal(nftw(".", count_one, 16, FTW_PHYS), 0);
	assert_true(nfiles > 200);
	assert_int_equal(nbelow, nfiles + 4);

	run(flat, &out);
	assert_int_equal(find(&e, out.data, out.len, false), 0);
	assert_int_equal(e.n, nfiles);
	assert_int_equal(e.dropped, 0);
	assert_all_true(&e);
	stat_agrees(&e);

	buf_reset(&out);
	run(all, &out);
	assert_int_equal(find(&deep, out.data, out.len, true), 0);
	assert_int_equal(deep.n, nbelow);
	assert_int_equal(deep.dropped, 0);
	assert_all_true(&deep);
}

static void real_stat_of_a_filesystem(void **state)
{
	static const char *const argv[] = { "stat", "-f", "-c", FS_STAT_FORMAT, "--", "/", NULL };
	struct buf out CLEANUP_BUF = BUF_INIT(0);
	struct statvfs vfs;
	struct fs_stat f;

	run(argv, &out);
	assert_int_equal(fs_stat_parse(out.data, out.len, &f), 0);
	assert_int_equal(statvfs("/", &vfs), 0);
	assert_int_equal(f.block_size, vfs.f_frsize);
	assert_int_equal(f.blocks, vfs.f_blocks);
	assert_int_equal(f.files, vfs.f_files);
	assert_int_equal(f.name_max, vfs.f_namemax);
	assert_true(f.available <= f.free && f.free <= f.blocks && f.files_free <= f.files);
}

static void names_hold_no_nul(void **state)
{
	assert_false(name_is_component("a\0b", 3));
	assert_true(name_is_component("a\0b", 1));
	assert_false(name_is_chain("a/b\0c", 5));
	assert_true(name_is_chain("a/b\0c", 3));
	assert_false(name_is_chain("", 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(find_record),
		cmocka_unit_test(find_types),
		cmocka_unit_test(find_numbers),
		cmocka_unit_test(find_drops_what_is_no_name),
		cmocka_unit_test(find_lengths),
		cmocka_unit_test(find_odds),
		cmocka_unit_test(find_cut),
		cmocka_unit_test(find_has_a_cap),
		cmocka_unit_test(find_round_trip),
		cmocka_unit_test(stat_times),
		cmocka_unit_test(stat_refuses),
		cmocka_unit_test(fs_stat_lines),
		cmocka_unit_test(modes),
		cmocka_unit_test(copied),
		cmocka_unit_test(first_entries),
		cmocka_unit_test_setup_teardown(real_tools_and_odd_files, make_scratch,
						remove_scratch),
		cmocka_unit_test(real_stat_of_a_filesystem),
		cmocka_unit_test(names_hold_no_nul),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

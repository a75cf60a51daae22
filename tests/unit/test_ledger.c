/* fs/ledger*.c: what is written down is read back, or refused; never removed by looking. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "io.h"
#include "ledger.h"

/* ---- the form ---- */

static struct extent pieces[] = { { 1, 5 }, { 9, 4096 } };

static struct ledger_record make_record(void)
{
	return (struct ledger_record){
		.source = (char *)"embedded:/data",
		.user = (char *)"default",
		.thread = (char *)"demo",
		.path = (char *)"outputs/\xff\x1b[31m",
		.kind = LEDGER_PATCH,
		.base = { .there = true, .size = 70000, .ino = 7, .mtime = { 1, 2 } },
		.base_len = 69999,
		.mode = -1,
		.times = true,
		.mtime = { 1700000000, 999999999 },
		.error = -ENOSPC,
		.written = { pieces, 2, 2 },
		.boot = (char *)"01234567-89ab-cdef-0123-456789abcdef",
		.size = 70001,
		.durable = true,
		.maybe = 12,
	};
}

static void put_slot(char *head, const struct ledger_record *rec, uint64_t seq)
{
	size_t len;

	assert_int_equal(ledger_encode(rec, seq, head + seq % 2 * LEDGER_SLOT, &len), 0);
	assert_true(len <= LEDGER_SLOT);
}

static void test_comes_back(void **state)
{
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD);
	struct ledger_record want = make_record(), rec CLEANUP_RECORD = { 0 };
	uint64_t seq = 0;

	(void)state;
	put_slot(head, &want, 41);
	assert_int_equal(ledger_decode(head, &rec, &seq), 0);
	assert_int_equal(seq, 41);
	assert_string_equal(rec.source, want.source);
	assert_string_equal(rec.user, want.user);
	assert_string_equal(rec.thread, want.thread);
	assert_string_equal(rec.path, want.path);
	assert_int_equal(rec.kind, LEDGER_PATCH);
	assert_true(rec.base.there && rec.times && !rec.settled);
	assert_int_equal(rec.base.size, 70000);
	assert_int_equal(rec.base.mtime.tv_nsec, 2);
	assert_int_equal(rec.base_len, 69999);
	assert_int_equal(rec.mode, -1);
	assert_int_equal(rec.error, -ENOSPC);
	assert_int_equal(rec.mtime.tv_nsec, 999999999);
	assert_int_equal(rec.written.n, 2);
	assert_int_equal(rec.written.v[1].end, 4096);
	assert_string_equal(rec.boot, want.boot);
	assert_int_equal(rec.size, 70001);
	assert_true(rec.durable);
	assert_int_equal(rec.maybe, 12);
}

/* As the first version of the program wrote it: a slot with the number 2. */
static const char old_slot[] =
	"threadfs-ledger\0\1\0\0\0\xac\0\0\0\2\0\0\0\0\0\0\0"
	"\xd4\x5d\x41\x7a\xc1\x6f\x33\x20\x86\xc1\x96\xd1\x90\xd9\x7d\xf7"
	"\xff\x81\x38\x4f\x71\xd8\xd2\xf2\xe3\x94\x9f\xee\xcb\xce\x19\xd7"
	"\1\0\0\0\0\0\0\0u\1\0\0\0\0\0\0\0u\1\0\0\0\0\0\0\0t\1\0\0\0\0\0\0\0f"
	"\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\11\0\0\0\0\0\0\0"
	"\7\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0"
	"\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0"
	"\3\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
	"\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0";

/* It is read, and written anew, and nobody knows whether its content is all there. */
static void test_of_the_first_version(void **state)
{
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD);
	struct ledger_record old CLEANUP_RECORD = { 0 }, rec CLEANUP_RECORD = { 0 };
	uint64_t seq = 0;

	(void)state;
	memcpy(head, old_slot, sizeof(old_slot));
	assert_int_equal(ledger_decode(head, &old, &seq), 0);
	assert_int_equal(seq, 2);
	assert_string_equal(old.path, "f");
	assert_int_equal(old.base.size, 9);
	assert_int_equal(old.written.n, 1);
	assert_false(ledger_is_certain(&old, "01234567-89ab-cdef-0123-456789abcdef", 0));
	assert_false(ledger_is_certain(&old, "", 0));
	put_slot(head, &old, 3);
	assert_int_equal(ledger_decode(head, &rec, &seq), 0);
	assert_int_equal(seq, 3);
	assert_string_equal(rec.path, "f");
	assert_false(ledger_is_certain(&rec, "", 0));
}

static void test_certain(void **state)
{
	struct ledger_record rec = make_record();

	(void)state;
	assert_true(ledger_is_certain(&rec, "ffffffff-89ab-cdef-0123-456789abcdef", 70001));
	assert_false(ledger_is_certain(&rec, "ffffffff-89ab-cdef-0123-456789abcdef", 70000));
	assert_false(ledger_is_certain(&rec, "ffffffff-89ab-cdef-0123-456789abcdef", 70002));
	rec.durable = false;
	assert_false(ledger_is_certain(&rec, "ffffffff-89ab-cdef-0123-456789abcdef", 70001));
	/* this kernel has it still, whatever the disk has */
	assert_true(ledger_is_certain(&rec, rec.boot, 1));
	rec.boot = (char *)"";
	assert_false(ledger_is_certain(&rec, "", 70001));
}

/* Every byte counts: one that is torn leaves the other slot, two leave nothing. */
static void test_torn(void **state)
{
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD);
	char *copy CLEANUP_FREE = malloc(LEDGER_HEAD);
	struct ledger_record first = make_record(), second = make_record();
	size_t len;

	(void)state;
	second.thread = (char *)"dema"; /* as long as the other */
	put_slot(head, &first, 2);
	put_slot(head, &second, 3);
	assert_int_equal(ledger_encode(&second, 3, copy, &len), 0);
	for (size_t i = 0; i < len; i++) {
		struct ledger_record rec CLEANUP_RECORD = { 0 };
		uint64_t seq;

		memcpy(copy, head, LEDGER_HEAD);
		copy[LEDGER_SLOT + i] ^= 0x10;
		assert_int_equal(ledger_decode(copy, &rec, &seq), 0);
		assert_int_equal(seq, 2);
		assert_string_equal(rec.thread, "demo");
		ledger_record_release(&rec);
		copy[i] ^= 0x10;
		assert_int_equal(ledger_decode(copy, &rec, &seq), -EBADMSG);
	}
}

/* A record that is whole and says what none of ours would. */
static void test_nonsense(void **state)
{
	static const char *const paths[] = { "",   "/etc/passwd", "../x",  "a/../b", "a//b",
					     "a/", ".",           "a/./b", "a/.." };
	char *head CLEANUP_FREE = calloc(1, LEDGER_HEAD);
	struct ledger_record rec = make_record(), got;
	uint64_t seq;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		rec.path = (char *)paths[i];
		put_slot(head, &rec, 2);
		assert_int_equal(ledger_decode(head, &got, &seq), -EBADMSG);
	}
	rec = make_record();
	rec.thread = (char *)"../demo";
	put_slot(head, &rec, 2);
	assert_int_equal(ledger_decode(head, &got, &seq), -EBADMSG);
	rec = make_record();
	rec.mode = 010000;
	put_slot(head, &rec, 2);
	assert_int_equal(ledger_decode(head, &got, &seq), -EBADMSG);
	rec = make_record();
	rec.base_len = rec.base.size + 1;
	put_slot(head, &rec, 2);
	assert_int_equal(ledger_decode(head, &got, &seq), -EBADMSG);
}

static void test_too_many_pieces(void **state)
{
	enum { MANY = 4000 };
	struct extent *many CLEANUP_FREE = calloc(MANY, sizeof(*many));
	char *slot CLEANUP_FREE = malloc(LEDGER_SLOT);
	struct ledger_record rec = make_record();
	size_t len;

	(void)state;
	rec.written = (struct extents){ many, MANY, MANY };
	assert_int_equal(ledger_encode(&rec, 1, slot, &len), -E2BIG);
}

/* ---- the files ---- */

struct room {
	char path[SCRATCH_MAX];
	int cache, dir;
};

static int enter(void **state)
{
	struct room *r = calloc(1, sizeof(*r));

	if (!r || !scratch_dir(r->path))
		return -1;
	r->cache = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r->dir = ledger_open(r->cache, true);
	*state = r;
	return r->dir < 0 ? -1 : 0;
}

static int leave(void **state)
{
	struct room *r = *state;

	if (r->dir >= 0)
		close(r->dir);
	close(r->cache);
	scratch_remove(r->path);
	free(r);
	return 0;
}

static int make_content(const struct room *r, const char *content)
{
	int fd = openat(r->cache, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, content, strlen(content), LEDGER_HEAD), strlen(content));
	return fd;
}

struct seen {
	unsigned good, busy, refused;
	uint64_t size;
	char why[64];
};

static int see(void *ctx, struct ledger_found *f, int err, const char *why)
{
	struct seen *s = ctx;

	if (err < 0) {
		s->refused++;
		snprintf(s->why, sizeof(s->why), "%s", why);
	} else {
		s->good++;
		s->busy += f->busy;
		s->size = f->size;
	}
	return 0;
}

static struct seen scan(const struct room *r)
{
	struct seen s = { 0 };

	assert_int_equal(ledger_scan(r->dir, see, &s), 0);
	return s;
}

static void test_life(void **state)
{
	const struct room *r = *state;
	struct ledger_record rec = make_record();
	struct ledger_found f = { .fd = -1 };
	struct ledger_entry *e;
	int fd = make_content(r, "hello");
	bool changed = false;
	struct stat st;

	assert_int_equal(ledger_entry_new(r->dir, fd, &e), 0);
	assert_int_equal(scan(r).good, 0); /* no name before there is a record */
	assert_int_equal(ledger_entry_write(e, &rec, &changed), 0);
	assert_true(changed);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(ledger_entry_write(e, &rec, &changed), 0);
	assert_false(changed);
	assert_int_equal(scan(r).busy, 1);
	rec.error = 0;
	assert_int_equal(ledger_entry_write(e, &rec, &changed), 0);
	assert_true(changed);
	/* whoever had it dies */
	ledger_entry_keep(e);
	close(fd);
	assert_int_equal(scan(r).busy, 0);
	assert_int_equal(scan(r).size, 5);
	/* and another one takes it, alone */
	assert_int_equal(ledger_find(r->dir, "0", &f), -EINVAL);
	assert_int_equal(ledger_find(r->dir, "ffffffff-0000", &f), -ENOENT);
	{
		struct seen s = { 0 };
		char name[LEDGER_NAME + 1];
		FILE *p;
		char command[128];

		snprintf(command, sizeof(command), "ls %s/" LEDGER_DIR, r->path);
		p = popen(command, "re");
		assert_non_null(p);
		assert_int_equal(fscanf(p, "%36s", name), 1);
		pclose(p);
		assert_int_equal(ledger_find(r->dir, name, &f), 0);
		assert_int_equal(f.rec.error, 0);
		s = scan(r);
		assert_int_equal(s.busy, 1);
	}
	fd = f.fd;
	assert_int_equal(ledger_take(r->dir, &f, &e), 0);
	ledger_found_release(&f);
	ledger_entry_drop(e);
	close(fd);
	assert_int_equal(scan(r).good, 0);
}

/* What is not ours is told of, and stays. */
static void test_refused(void **state)
{
	const struct room *r = *state;
	static const char name[] = "00000000-0000-0000-0000-000000000000";
	char other[SCRATCH_MAX + 16];
	int fd;

	snprintf(other, sizeof(other), "%s/other", r->path);
	fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "secret", 6), 6);
	close(fd);
	/* a link, with and without an end */
	assert_int_equal(symlinkat(other, r->dir, name), 0);
	assert_int_equal(scan(r).refused, 1);
	assert_string_equal(scan(r).why, "a symbolic link");
	assert_int_equal(unlinkat(r->dir, name, 0), 0);
	/* a second name of somebody's file */
	assert_int_equal(linkat(AT_FDCWD, other, r->dir, name, 0), 0);
	assert_string_equal(scan(r).why, "it has another name");
	assert_int_equal(unlinkat(r->dir, name, 0), 0);
	/* a pipe does not hold anybody up */
	assert_int_equal(mkfifoat(r->dir, name, 0600), 0);
	assert_string_equal(scan(r).why, "not a regular file");
	assert_int_equal(unlinkat(r->dir, name, 0), 0);
	/* noise */
	fd = openat(r->dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "noise", 5), 5);
	close(fd);
	assert_int_equal(scan(r).refused, 1);
	close(openat(r->dir, "foreign", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(scan(r).refused, 2);
	assert_int_equal(faccessat(r->dir, name, F_OK, 0), 0);
	assert_int_equal(faccessat(r->dir, "foreign", F_OK, 0), 0);
}

static void test_directory(void **state)
{
	const struct room *r = *state;

	assert_int_equal(fchmod(r->dir, 0777), 0);
	assert_int_equal(ledger_open(r->cache, true), -EPERM);
	assert_int_equal(fchmod(r->dir, 0700), 0);
	assert_int_equal(renameat(r->cache, LEDGER_DIR, r->cache, "moved"), 0);
	assert_int_equal(ledger_open(r->cache, false), -ENOENT);
	assert_int_equal(symlinkat("moved", r->cache, LEDGER_DIR), 0);
	assert_int_equal(ledger_open(r->cache, true), -ELOOP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_comes_back),
		cmocka_unit_test(test_of_the_first_version),
		cmocka_unit_test(test_certain),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_too_many_pieces),
		cmocka_unit_test_setup_teardown(test_life, enter, leave),
		cmocka_unit_test_setup_teardown(test_refused, enter, leave),
		cmocka_unit_test_setup_teardown(test_directory, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

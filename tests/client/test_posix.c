/*
 * Operations on single files, each with its errnos, judged by the same files
 * on this side of the wall. The sandbox's user has no privileges there.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "direct.h"

#define OK(op, ...)       assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), 0)
#define FAILS(e, op, ...) assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), -(e))
#define PATH(name)        fixture_path(f, name)
#define HOST(name)        fixture_host_path(f, name)

/* ---- helpers ---- */

static void write_host(const char *path, const char *text)
{
	FILE *out = fopen(path, "we");

	assert_non_null(out);
	assert_true(fputs(text, out) >= 0);
	assert_int_equal(fclose(out), 0);
}

static void assert_content(const char *path, const char *text)
{
	char got[256];
	FILE *in = fopen(path, "re");
	size_t n;

	assert_non_null(in);
	n = fread(got, 1, sizeof(got) - 1, in);
	fclose(in);
	got[n] = '\0';
	assert_string_equal(got, text);
}

static struct stat host_stat(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* file (5 bytes), dir, full/inner, link, dangling, loop, pipe. */
static void populate(struct fixture *f)
{
	write_host(HOST("file"), "hello");
	assert_int_equal(mkdir(HOST("dir"), 0755), 0);
	assert_int_equal(mkdir(HOST("full"), 0755), 0);
	write_host(HOST("full/inner"), "x");
	assert_int_equal(symlink("file", HOST("link")), 0);
	assert_int_equal(symlink("nowhere", HOST("dangling")), 0);
	assert_int_equal(symlink("loop", HOST("loop")), 0);
	assert_int_equal(mkfifo(HOST("pipe"), 0644), 0);
}

/* A name that is one byte too long; the view refuses it before the server can. */
static const char *too_long(void)
{
	static char name[257];

	memset(name, 'n', 256);
	return name;
}

static int setup(void **state)
{
	int r = fixture_setup(state);

	if (r == 0)
		populate(*state);
	return r;
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, fixture_teardown)

/* ---- lstat, readlink, statfs ---- */

static void assert_same_time(struct timespec a, struct timespec b)
{
	assert_int_equal(a.tv_sec, b.tv_sec);
	assert_int_equal(a.tv_nsec, b.tv_nsec);
}

static void assert_lstat(struct fixture *f, const char *name)
{
	struct stat st = host_stat(HOST(name));
	struct attr a;

	OK(sandbox_lstat, PATH(name), &a);
	assert_int_equal(a.mode, st.st_mode);
	assert_int_equal(a.size, st.st_size);
	assert_int_equal(a.blocks, st.st_blocks);
	assert_int_equal(a.ino, st.st_ino);
	assert_int_equal(a.dev, st.st_dev);
	assert_int_equal(a.nlink, st.st_nlink);
	assert_same_time(a.mtime, st.st_mtim);
	assert_same_time(a.ctime, st.st_ctim);
	assert_false(a.partial);
	/* Who started the server is user 1000 inside. */
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(a.uid, 1000);
	assert_int_equal(a.gid, 1000);
}

static void test_lstat_equals_that_of_the_host(void **state)
{
	static const char *const names[] = {
		"file", "dir", "full", "link", "dangling", "loop", "pipe", "special", "other", ".",
	};
	struct fixture *f = *state;

	write_host(HOST("special"), "");
	assert_int_equal(chmod(HOST("special"), 06751), 0);
	assert_int_equal(chmod(HOST("dir"), 01777), 0);
	assert_int_equal(link(HOST("file"), HOST("other")), 0);
	assert_int_equal(truncate(HOST("other"), 5000000000), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_lstat(f, names[i]);
}

static void test_lstat_gives_nanoseconds(void **state)
{
	static const struct timespec times[] = {
		{ 0, 0 },          { 1, 1 },          { 1700000000, 999999999 }, { -1, 0 },
		{ -1, 500000000 }, { -2, 999999999 }, { 4294967296, 123456789 },
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		struct timespec both[2] = { times[i], times[i] };
		struct attr a;

		assert_int_equal(utimensat(AT_FDCWD, HOST("file"), both, 0), 0);
		OK(sandbox_lstat, PATH("file"), &a);
		assert_same_time(a.mtime, times[i]);
	}
}

static void test_lstat_errnos(void **state)
{
	struct fixture *f = *state;
	struct attr a = { .ino = 42 };

	FAILS(ENOENT, sandbox_lstat, PATH("none"), &a);
	FAILS(ENOENT, sandbox_lstat, PATH("none/x"), &a);
	FAILS(ENOTDIR, sandbox_lstat, PATH("file/x"), &a);
	FAILS(ELOOP, sandbox_lstat, PATH("loop/x"), &a);
	FAILS(ENOENT, sandbox_lstat, PATH("dangling/x"), &a);
	FAILS(ENAMETOOLONG, sandbox_lstat, PATH(too_long()), &a);
	assert_int_equal(chmod(HOST("full"), 0), 0);
	FAILS(EACCES, sandbox_lstat, PATH("full/inner"), &a);
	assert_int_equal(chmod(HOST("full"), 0755), 0);
	assert_int_equal(a.ino, 42);
}

static void test_readlink(void **state)
{
	struct fixture *f = *state;
	char *target = NULL, bytes[256], *longest = malloc(4096);

	OK(sandbox_readlink, PATH("link"), &target);
	assert_string_equal(target, "file");
	free(target);
	for (int i = 0; i < 255; i++)
		bytes[i] = (char)(i + 1);
	bytes[255] = '\0';
	assert_int_equal(symlink(bytes, HOST("bytes")), 0);
	OK(sandbox_readlink, PATH("bytes"), &target);
	assert_string_equal(target, bytes);
	free(target);
	memset(longest, '\377', 4095);
	longest[4095] = '\0';
	assert_int_equal(symlink(longest, HOST("longest")), 0);
	OK(sandbox_readlink, PATH("longest"), &target);
	assert_string_equal(target, longest);
	free(target);
	free(longest);
	assert_int_equal(symlink("line\n\n", HOST("lines")), 0);
	OK(sandbox_readlink, PATH("lines"), &target);
	assert_string_equal(target, "line\n\n");
	free(target);
}

static void test_readlink_errnos(void **state)
{
	struct fixture *f = *state;
	char mine[] = "mine", *target = mine;

	FAILS(EINVAL, sandbox_readlink, PATH("file"), &target);
	FAILS(EINVAL, sandbox_readlink, PATH("dir"), &target);
	FAILS(ENOENT, sandbox_readlink, PATH("none"), &target);
	FAILS(ENOTDIR, sandbox_readlink, PATH("file/x"), &target);
	FAILS(ELOOP, sandbox_readlink, PATH("loop/x"), &target);
	assert_ptr_equal(target, mine);
}

static void test_statfs(void **state)
{
	struct fixture *f = *state;
	struct fs_stat s = { .block_size = 7 };

	FAILS(ENOENT, sandbox_statfs, PATH("none"), &s);
	assert_int_equal(s.block_size, 7);
	OK(sandbox_statfs, f->dir, &s);
	assert_true(s.block_size >= 512);
	assert_true(s.blocks > 0 && s.free <= s.blocks && s.available <= s.free);
	assert_true(s.files_free <= s.files);
	assert_int_equal(s.name_max, 255);
}

/* ---- mkdir, rmdir, unlink, link, symlink ---- */

static void test_mkdir(void **state)
{
	static const mode_t modes[] = { 0755, 0700, 0777, 0, 01777 };
	struct fixture *f = *state;
	char name[16];

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		snprintf(name, sizeof(name), "new%zu", i);
		OK(sandbox_mkdir, PATH(name), S_IFDIR | modes[i], NULL);
		assert_int_equal(host_stat(HOST(name)).st_mode, S_IFDIR | modes[i]);
	}
	assert_int_equal(chmod(HOST("dir"), 02777), 0);
	OK(sandbox_mkdir, PATH("dir/heir"), 0750, NULL);
	assert_int_equal(host_stat(HOST("dir/heir")).st_mode, S_IFDIR | 02750);
}

static void test_mkdir_errnos(void **state)
{
	struct fixture *f = *state;

	FAILS(EEXIST, sandbox_mkdir, PATH("dir"), 0755, NULL);
	FAILS(EEXIST, sandbox_mkdir, PATH("file"), 0755, NULL);
	FAILS(EEXIST, sandbox_mkdir, PATH("dangling"), 0755, NULL);
	FAILS(ENOENT, sandbox_mkdir, PATH("none/x"), 0755, NULL);
	FAILS(ENOTDIR, sandbox_mkdir, PATH("file/x"), 0755, NULL);
	FAILS(ELOOP, sandbox_mkdir, PATH("loop/x"), 0755, NULL);
	assert_int_equal(chmod(HOST("dir"), 0555), 0);
	FAILS(EACCES, sandbox_mkdir, PATH("dir/x"), 0755, NULL);
}

static void test_rmdir(void **state)
{
	struct fixture *f = *state;

	OK(sandbox_rmdir, PATH("dir"));
	assert_false(exists(HOST("dir")));
	FAILS(ENOENT, sandbox_rmdir, PATH("dir"));
	FAILS(ENOTEMPTY, sandbox_rmdir, PATH("full"));
	FAILS(ENOTDIR, sandbox_rmdir, PATH("file"));
	FAILS(ENOTDIR, sandbox_rmdir, PATH("link"));
	assert_int_equal(mkdir(HOST("full/sub"), 0755), 0);
	assert_int_equal(chmod(HOST("full"), 0555), 0);
	FAILS(EACCES, sandbox_rmdir, PATH("full/sub"));
	assert_int_equal(chmod(HOST("full"), 0755), 0);
}

static void test_unlink(void **state)
{
	struct fixture *f = *state;

	OK(sandbox_unlink, PATH("link"));
	assert_false(exists(HOST("link")));
	assert_true(exists(HOST("file")));
	OK(sandbox_unlink, PATH("file"));
	OK(sandbox_unlink, PATH("pipe"));
	OK(sandbox_unlink, PATH("dangling"));
	assert_false(exists(HOST("file")));
	FAILS(ENOENT, sandbox_unlink, PATH("file"));
	FAILS(EISDIR, sandbox_unlink, PATH("dir"));
	FAILS(ELOOP, sandbox_unlink, PATH("loop/x"));
	assert_int_equal(chmod(HOST("full"), 0555), 0);
	FAILS(EACCES, sandbox_unlink, PATH("full/inner"));
	assert_int_equal(chmod(HOST("full"), 0755), 0);
}

static void test_link(void **state)
{
	struct fixture *f = *state;

	OK(sandbox_link, PATH("file"), PATH("other"), NULL);
	assert_int_equal(host_stat(HOST("other")).st_ino, host_stat(HOST("file")).st_ino);
	assert_int_equal(host_stat(HOST("file")).st_nlink, 2);
	/* of the link itself, as link(2) does it */
	OK(sandbox_link, PATH("link"), PATH("other link"), NULL);
	assert_true(S_ISLNK(host_stat(HOST("other link")).st_mode));
	FAILS(EEXIST, sandbox_link, PATH("file"), PATH("other"), NULL);
	FAILS(EEXIST, sandbox_link, PATH("file"), PATH("dir"), NULL);
	FAILS(ENOENT, sandbox_link, PATH("none"), PATH("x"), NULL);
	FAILS(ENOENT, sandbox_link, PATH("file"), PATH("none/x"), NULL);
	FAILS(ENOTDIR, sandbox_link, PATH("file"), PATH("file/x"), NULL);
	FAILS(EPERM, sandbox_link, PATH("dir"), PATH("x"), NULL);
}

static void test_symlink(void **state)
{
	static const char *const targets[] = {
		"file", "/etc/passwd", "../..", "-rf",    "$(x)", "a'b",
		"\\",   "\n",          " ",     "\377\1", "*",
	};
	struct fixture *f = *state;
	char name[16], got[64], *longest = calloc(1, 4097);
	ssize_t n;

	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		snprintf(name, sizeof(name), "new%zu", i);
		OK(sandbox_symlink, targets[i], PATH(name), NULL);
		n = readlink(HOST(name), got, sizeof(got) - 1);
		assert_true(n > 0);
		got[n] = '\0';
		assert_string_equal(got, targets[i]);
	}
	FAILS(EEXIST, sandbox_symlink, "x", PATH("file"), NULL);
	FAILS(EEXIST, sandbox_symlink, "x", PATH("dir"), NULL);
	FAILS(EEXIST, sandbox_symlink, "x", PATH("dangling"), NULL);
	FAILS(ENOENT, sandbox_symlink, "x", PATH("none/x"), NULL);
	FAILS(ENOTDIR, sandbox_symlink, "x", PATH("file/x"), NULL);
	FAILS(ENOENT, sandbox_symlink, "", PATH("empty"), NULL);
	memset(longest, 't', 4095);
	OK(sandbox_symlink, longest, PATH("longest"), NULL);
	assert_int_equal(host_stat(HOST("longest")).st_size, 4095);
	longest[4095] = 't';
	FAILS(ENAMETOOLONG, sandbox_symlink, longest, PATH("longer"), NULL);
	free(longest);
	assert_false(exists(HOST("longer")) || exists(HOST("empty")));
}

/* ---- rename ---- */

static void test_rename(void **state)
{
	struct fixture *f = *state;
	ino_t ino = host_stat(HOST("file")).st_ino;

	OK(sandbox_rename, PATH("file"), PATH("new"), 0, NULL);
	assert_false(exists(HOST("file")));
	assert_int_equal(host_stat(HOST("new")).st_ino, ino);
	OK(sandbox_rename, PATH("new"), PATH("full/inner"), 0, NULL); /* over another, elsewhere */
	assert_content(HOST("full/inner"), "hello");
	assert_int_equal(host_stat(HOST("full/inner")).st_ino, ino);
	OK(sandbox_rename, PATH("full"), PATH("dir"), 0, NULL); /* over an empty directory */
	assert_content(HOST("dir/inner"), "hello");
	assert_false(exists(HOST("full")));
	OK(sandbox_rename, PATH("dangling"), PATH("dir/dangling"), 0, NULL);
	assert_true(S_ISLNK(host_stat(HOST("dir/dangling")).st_mode));
	OK(sandbox_rename, PATH("pipe"), PATH("loop"), 0,
	   NULL); /* over a link, not where it leads */
	assert_true(S_ISFIFO(host_stat(HOST("loop")).st_mode));
}

static void test_rename_replaces_links_not_what_they_lead_to(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(symlink("dir", HOST("to dir")), 0);
	OK(sandbox_rename, PATH("link"), PATH("to dir"), 0, NULL);
	assert_true(S_ISLNK(host_stat(HOST("to dir")).st_mode));
	OK(sandbox_rename, PATH("file"), PATH("to dir"), 0, NULL);
	assert_content(HOST("to dir"), "hello");
	assert_true(exists(HOST("dir")));
}

static void test_rename_of_one_file_to_itself_does_nothing(void **state)
{
	struct fixture *f = *state;
	bool same = false;

	assert_int_equal(link(HOST("file"), HOST("other")), 0);
	assert_int_equal(link(HOST("file"), HOST("full/other")), 0);
	assert_int_equal(link(HOST("link"), HOST("other link")), 0);
	OK(sandbox_rename, PATH("file"), PATH("file"), 0, NULL);
	OK(sandbox_rename, PATH("dir"), PATH("dir"), 0, NULL);
	OK(sandbox_rename, PATH("link"), PATH("link"), 0, NULL);
	OK(sandbox_rename, PATH("file"), PATH("other"), 0, &same);
	assert_true(same);
	OK(sandbox_rename, PATH("file"), PATH("full/other"), 0, NULL);
	OK(sandbox_rename, PATH("link"), PATH("other link"), 0, NULL);
	assert_int_equal(host_stat(HOST("file")).st_nlink, 3);
	assert_int_equal(host_stat(HOST("link")).st_nlink, 2);
	/* A link to it is another file. */
	same = false;
	OK(sandbox_rename, PATH("other"), PATH("link"), 0, &same);
	assert_false(same);
	assert_false(exists(HOST("other")));
	assert_true(S_ISREG(host_stat(HOST("link")).st_mode));
	assert_int_equal(symlink("dir", HOST("to dir")), 0);
	FAILS(EISDIR, sandbox_rename, PATH("to dir"), PATH("dir"), 0, NULL);
	/* What mv cannot do must not look done. */
	FAILS(EOPNOTSUPP, sandbox_rename, PATH("other link"), PATH("file"), 0, NULL);
	assert_true(exists(HOST("other link")));
	assert_content(HOST("file"), "hello");
}

static void test_rename_errnos(void **state)
{
	struct fixture *f = *state;

	FAILS(ENOENT, sandbox_rename, PATH("none"), PATH("x"), 0, NULL);
	FAILS(ENOENT, sandbox_rename, PATH("file"), PATH("none/x"), 0, NULL);
	FAILS(ENOENT, sandbox_rename, PATH("none/x"), PATH("x"), 0, NULL);
	FAILS(ENOTDIR, sandbox_rename, PATH("file"), PATH("pipe/x"), 0, NULL);
	FAILS(EISDIR, sandbox_rename, PATH("file"), PATH("dir"), 0, NULL);
	FAILS(ENOTDIR, sandbox_rename, PATH("dir"), PATH("file"), 0, NULL);
	FAILS(ENOTEMPTY, sandbox_rename, PATH("dir"), PATH("full"), 0, NULL);
	FAILS(EINVAL, sandbox_rename, PATH("full"), PATH("full/sub"), 0, NULL);
	FAILS(ELOOP, sandbox_rename, PATH("file"), PATH("loop/x"), 0, NULL);
	FAILS(ENAMETOOLONG, sandbox_rename, PATH("file"), PATH(too_long()), 0, NULL);
	assert_int_equal(chmod(HOST("full"), 0555), 0);
	FAILS(EACCES, sandbox_rename, PATH("full/inner"), PATH("x"), 0, NULL);
	FAILS(EACCES, sandbox_rename, PATH("file"), PATH("full/x"), 0, NULL);
	assert_int_equal(chmod(HOST("full"), 0755), 0);
	assert_content(HOST("file"), "hello");
}

static void test_rename_flags_are_checked_first(void **state)
{
	struct fixture *f = *state;

	FAILS(EINVAL, sandbox_rename, PATH("file"), PATH("x"), RENAME_NOREPLACE | RENAME_EXCHANGE,
	      NULL);
	FAILS(EINVAL, sandbox_rename, PATH("file"), PATH("x"), RENAME_WHITEOUT, NULL);
	FAILS(EINVAL, sandbox_rename, PATH("file"), PATH("x"), 1u << 31, NULL);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_rename_noreplace(void **state)
{
	struct fixture *f = *state;

	FAILS(EEXIST, sandbox_rename, PATH("file"), PATH("full/inner"), RENAME_NOREPLACE, NULL);
	FAILS(EEXIST, sandbox_rename, PATH("file"), PATH("dangling"), RENAME_NOREPLACE, NULL);
	FAILS(EEXIST, sandbox_rename, PATH("full"), PATH("dir"), RENAME_NOREPLACE, NULL);
	FAILS(EEXIST, sandbox_rename, PATH("file"), PATH("file"), RENAME_NOREPLACE, NULL);
	FAILS(ENOENT, sandbox_rename, PATH("none"), PATH("x"), RENAME_NOREPLACE, NULL);
	assert_content(HOST("full/inner"), "x");
	OK(sandbox_rename, PATH("file"), PATH("full/new"), RENAME_NOREPLACE, NULL);
	assert_content(HOST("full/new"), "hello");
	assert_false(exists(HOST("file")));
	OK(sandbox_rename, PATH("full"), PATH("\n\377"), RENAME_NOREPLACE, NULL);
	assert_content(HOST("\n\377/new"), "hello");
}

static void test_rename_exchange_or_a_clean_no(void **state)
{
	struct fixture *f = *state;
	int r = SYNC(f->sb, sandbox_rename, PATH("file"), PATH("full/inner"), RENAME_EXCHANGE,
		     NULL);

	/* coreutils can do it from 9.5 on */
	assert_true(r == 0 || r == -EOPNOTSUPP);
	assert_content(HOST("file"), r ? "hello" : "x");
	assert_content(HOST("full/inner"), r ? "x" : "hello");
}

static void test_rename_between_mounts_is_exdev(void **state)
{
	struct fixture *f = *state;
	struct sandbox *all = fixture_open(f, "/");
	char to[64];
	struct attr a;

	snprintf(to, sizeof(to), "/tmp/exdev-%d", getpid());
	assert_int_equal(SYNC(all, sandbox_rename, PATH("file"), to, 0, NULL), -EXDEV);
	assert_int_equal(SYNC(all, sandbox_rename, PATH("dir"), to, 0, NULL), -EXDEV);
	assert_int_equal(SYNC(all, sandbox_rename, PATH("file"), to, RENAME_NOREPLACE, NULL),
			 -EXDEV);
	assert_int_equal(SYNC(all, sandbox_rename, PATH("none"), to, 0, NULL), -EXDEV);
	assert_int_equal(SYNC(all, sandbox_rename, PATH("file"), "/top", 0, NULL), -EXDEV);
	assert_int_equal(SYNC(all, sandbox_link, PATH("file"), to, NULL), -EXDEV);
	assert_int_equal(SYNC(all, sandbox_lstat, to, &a), -ENOENT);
	assert_content(HOST("file"), "hello");
	sandbox_unref(all);
}

static void test_rename_in_parents_that_cannot_be_read(void **state)
{
	struct fixture *f = *state;
	struct sandbox *all = fixture_open(f, "/");

	assert_int_equal(chmod(HOST("full"), 0300), 0);
	assert_int_equal(chmod(HOST("dir"), 0300), 0);
	OK(sandbox_rename, PATH("full/inner"), PATH("dir/inner"), 0, NULL);
	assert_content(HOST("dir/inner"), "x");
	assert_int_equal(SYNC(all, sandbox_rename, PATH("dir/inner"), "/tmp/inner", 0, NULL),
			 -EXDEV);
	sandbox_unref(all);
	assert_int_equal(chmod(HOST("full"), 0), 0);
	FAILS(EACCES, sandbox_rename, PATH("dir/inner"), PATH("full/inner"), 0, NULL);
}

/* ---- chmod, utimens ---- */

static void test_chmod(void **state)
{
	static const mode_t modes[] = { 0644, 0, 0777, 01644, 01777, 0755 };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		OK(sandbox_chmod, PATH("file"), S_IFREG | modes[i], NULL);
		assert_int_equal(host_stat(HOST("file")).st_mode, S_IFREG | modes[i]);
		OK(sandbox_chmod, PATH("dir"), modes[i], NULL);
		assert_int_equal(host_stat(HOST("dir")).st_mode, S_IFDIR | modes[i]);
	}
	/* Nothing in a sandbox lends its owner's rights. */
	FAILS(EPERM, sandbox_chmod, PATH("file"), 04755, NULL);
	FAILS(EPERM, sandbox_chmod, PATH("dir"), 02755, NULL);
	OK(sandbox_chmod, PATH("link"), 0640, NULL);
	assert_int_equal(host_stat(HOST("file")).st_mode, S_IFREG | 0640);
	FAILS(ENOENT, sandbox_chmod, PATH("none"), 0644, NULL);
	FAILS(ENOENT, sandbox_chmod, PATH("dangling"), 0644, NULL);
	FAILS(ENOTDIR, sandbox_chmod, PATH("file/x"), 0644, NULL);
	FAILS(ELOOP, sandbox_chmod, PATH("loop/x"), 0644, NULL);
}

static void test_utimens(void **state)
{
	static const struct timespec at[] = {
		{ 1700000000, 123456789 }, { 0, 0 },  { -1, 0 },
		{ -1, 999999999 },         { -5, 1 }, { 4294967296, 1 },
	};
	struct fixture *f = *state;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		const struct timespec both[2] = { at[i], at[i] };
		const struct timespec other[2] = { at[(i + 1) % ARRAY_SIZE(at)], at[i] };

		OK(sandbox_utimens, PATH("file"), both, NULL);
		st = host_stat(HOST("file"));
		assert_same_time(st.st_atim, both[0]);
		assert_same_time(st.st_mtim, both[1]);
		OK(sandbox_utimens, PATH("file"), other, NULL);
		st = host_stat(HOST("file"));
		assert_same_time(st.st_atim, other[0]);
		assert_same_time(st.st_mtim, other[1]);
	}
}

static void test_utimens_now_and_omit(void **state)
{
	const struct timespec old = { 1000, 5 }, now = { 0, UTIME_NOW }, omit = { 7, UTIME_OMIT };
	struct fixture *f = *state;
	struct stat st;

	OK(sandbox_utimens, PATH("file"), ((struct timespec[]){ old, old }), NULL);
	OK(sandbox_utimens, PATH("file"), ((struct timespec[]){ now, omit }), NULL);
	st = host_stat(HOST("file"));
	assert_true(st.st_atim.tv_sec > 1700000000);
	assert_same_time(st.st_mtim, old);
	OK(sandbox_utimens, PATH("file"), ((struct timespec[]){ old, omit }), NULL);
	OK(sandbox_utimens, PATH("file"), ((struct timespec[]){ omit, now }), NULL);
	st = host_stat(HOST("file"));
	assert_same_time(st.st_atim, old);
	assert_true(st.st_mtim.tv_sec > 1700000000);
	OK(sandbox_utimens, PATH("file"), ((struct timespec[]){ { 9, UTIME_NOW }, now }), NULL);
	st = host_stat(HOST("file"));
	assert_true(st.st_atim.tv_sec > 1700000000);
	rogue_forget(f->rogue);
	OK(sandbox_utimens, PATH("file"), ((struct timespec[]){ omit, { 0, UTIME_OMIT } }), NULL);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_utimens_of_links_and_errnos(void **state)
{
	const struct timespec both[2] = { { 5, 6 }, { 7, 8 } };
	const struct timespec bad[2] = { { 5, 1000000000 }, { 7, 8 } };
	struct fixture *f = *state;

	OK(sandbox_utimens, PATH("dangling"), both, NULL);
	assert_same_time(host_stat(HOST("dangling")).st_mtim, both[1]);
	assert_false(exists(HOST("nowhere")));
	OK(sandbox_utimens, PATH("dir"), both, NULL);
	assert_same_time(host_stat(HOST("dir")).st_mtim, both[1]);
	FAILS(ENOENT, sandbox_utimens, PATH("none"), both, NULL);
	assert_false(exists(HOST("none")));
	FAILS(ENOTDIR, sandbox_utimens, PATH("file/x"), both, NULL);
	FAILS(EINVAL, sandbox_utimens, PATH("file"), bad, NULL);
}

/* ---- truncate, copy ---- */

static void test_truncate(void **state)
{
	struct fixture *f = *state;

	OK(sandbox_truncate, PATH("file"), 3);
	assert_content(HOST("file"), "hel");
	OK(sandbox_truncate, PATH("file"), 3);
	assert_content(HOST("file"), "hel");
	OK(sandbox_truncate, PATH("link"), 6000000000);
	assert_int_equal(host_stat(HOST("file")).st_size, 6000000000);
	OK(sandbox_truncate, PATH("file"), 0);
	assert_int_equal(host_stat(HOST("file")).st_size, 0);
}

static void test_truncate_errnos(void **state)
{
	struct fixture *f = *state;

	FAILS(ENOENT, sandbox_truncate, PATH("none"), 5);
	FAILS(ENOENT, sandbox_truncate, PATH("dangling"), 5);
	FAILS(ENOENT, sandbox_truncate, PATH("none"), 0);
	FAILS(EISDIR, sandbox_truncate, PATH("dir"), 0);
	FAILS(EISDIR, sandbox_truncate, PATH("dir"), 5);
	FAILS(ENOTDIR, sandbox_truncate, PATH("file/x"), 0);
	FAILS(ELOOP, sandbox_truncate, PATH("loop"), 0);
	FAILS(EFBIG, sandbox_truncate, PATH("file"), 100000000000); /* the sandbox's own limit */
	FAILS(EFBIG, sandbox_truncate, PATH("file"), INT64_MAX);
	FAILS(EFBIG, sandbox_truncate, PATH("file"), UINT64_MAX);
	FAILS(ENXIO, sandbox_truncate, PATH("pipe"), 0);
	assert_int_equal(chmod(HOST("file"), 0444), 0);
	FAILS(EACCES, sandbox_truncate, PATH("file"), 0);
	assert_false(exists(HOST("none")) || exists(HOST("nowhere")));
	assert_content(HOST("file"), "hello");
}

static void test_copy(void **state)
{
	struct fixture *f = *state;
	ino_t ino = host_stat(HOST("full/inner")).st_ino;

	OK(sandbox_copy, PATH("file"), PATH("new"));
	assert_content(HOST("new"), "hello");
	OK(sandbox_copy, PATH("link"), PATH("full/inner"));
	assert_content(HOST("full/inner"), "hello");
	assert_int_equal(host_stat(HOST("full/inner")).st_ino, ino);
	OK(sandbox_copy, PATH("file"), PATH("file"));
	assert_content(HOST("file"), "hello");
	FAILS(ENOENT, sandbox_copy, PATH("none"), PATH("x"));
	FAILS(ENOENT, sandbox_copy, PATH("file"), PATH("none/x"));
	FAILS(EISDIR, sandbox_copy, PATH("dir"), PATH("x"));
	FAILS(EISDIR, sandbox_copy, PATH("file"), PATH("dir"));
	assert_int_equal(chmod(HOST("file"), 0), 0);
	FAILS(EACCES, sandbox_copy, PATH("file"), PATH("x"));
}

static void test_copy_range(void **state)
{
	struct fixture *f = *state;
	uint64_t n = 0;

	write_host(HOST("from"), "0123456789");
	write_host(HOST("to"), "abcdefghij");
	OK(sandbox_copy_range, PATH("from"), 2, PATH("to"), 5, 3, &n);
	assert_int_equal(n, 3);
	assert_content(HOST("to"), "abcde234ij");
	OK(sandbox_copy_range, PATH("from"), 8, PATH("to"), 9, 100, &n);
	assert_int_equal(n, 2);
	assert_content(HOST("to"), "abcde234i89");
	OK(sandbox_copy_range, PATH("from"), 0, PATH("to"), 1, 1, &n);
	assert_int_equal(n, 1);
	OK(sandbox_copy_range, PATH("from"), 10, PATH("to"), 0, 5, &n);
	assert_int_equal(n, 0);
	OK(sandbox_copy_range, PATH("from"), 1000, PATH("to"), 0, UINT64_MAX, &n);
	assert_int_equal(n, 0);
	OK(sandbox_copy_range, PATH("from"), 0, PATH("to"), 0, 0, &n);
	assert_int_equal(n, 0);
	assert_content(HOST("to"), "a0cde234i89");
	OK(sandbox_copy_range, PATH("from"), 0, PATH("from"), 10, 10, &n);
	assert_int_equal(n, 10);
	assert_content(HOST("from"), "01234567890123456789");
}

static void test_copy_range_of_megabytes(void **state)
{
	enum { SIZE = 5 * 1024 * 1024 + 17 };
	struct fixture *f = *state;
	char *bytes = malloc(SIZE), *got = malloc(SIZE + 3);
	uint64_t n = 0;
	int fd;

	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (char)(i * 31 + i / 251);
	fd = open(HOST("big"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_int_equal(write(fd, bytes, SIZE), SIZE);
	close(fd);
	OK(sandbox_copy_range, PATH("big"), 7, PATH("file"), 3, SIZE, &n);
	assert_int_equal(n, SIZE - 7);
	fd = open(HOST("file"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, got, SIZE + 3), SIZE - 4);
	close(fd);
	assert_memory_equal(got, "hel", 3);
	assert_memory_equal(got + 3, bytes + 7, SIZE - 7);
	free(bytes);
	free(got);
}

static void test_copy_range_errnos(void **state)
{
	struct fixture *f = *state;
	uint64_t n = 77;

	assert_int_equal(link(HOST("file"), HOST("other")), 0);
	FAILS(ENOENT, sandbox_copy_range, PATH("none"), 0, PATH("file"), 0, 1, &n);
	FAILS(ENOENT, sandbox_copy_range, PATH("file"), 0, PATH("none"), 0, 1, &n);
	FAILS(EISDIR, sandbox_copy_range, PATH("dir"), 0, PATH("file"), 0, 1, &n);
	FAILS(EISDIR, sandbox_copy_range, PATH("file"), 0, PATH("dir"), 0, 1, &n);
	FAILS(EINVAL, sandbox_copy_range, PATH("file"), 0, PATH("file"), 2, 3, &n);
	FAILS(EINVAL, sandbox_copy_range, PATH("file"), 2, PATH("other"), 0, 3, &n);
	FAILS(EINVAL, sandbox_copy_range, PATH("file"), UINT64_MAX, PATH("dir"), 0, 1, &n);
	assert_int_equal(n, 77);
	assert_false(exists(HOST("none")));
	assert_content(HOST("file"), "hello");
}

/* ---- names and paths ---- */

static void test_names_that_mean_something_to_a_shell(void **state)
{
	static const char *const names[] = {
		"-rf",      "--",    "$(x)",     "`x`",          "a'b",
		"\"",       "$HOME", "a\nb",     "\n",           "\t",
		"\033[0m",  "*",     "?",        "[a]",          " lead",
		"end ",     "\\",    "\\n",      "\xef\xbf\xbd", "e\xcc\x81",
		"\xc3\xa9", "~",     "#",        "!!",           "!x",
		";",        "&",     "|",        "a=b",          "{a,b}",
		"\177",     "\1",    "\377\376", "\xc0\x80",     "%s%n",
		"...",      ".x",    "<tf1234>", "\r",           "\xed\xa0\x80",
		"a\\\nb",   "'",
	};
	struct fixture *f = *state;
	struct attr a;
	char other[300];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(other, sizeof(other), "%s2", names[i]);
		OK(sandbox_mkdir, PATH(names[i]), 0755, NULL);
		assert_true(exists(HOST(names[i])));
		OK(sandbox_lstat, PATH(names[i]), &a);
		assert_int_equal(a.ino, host_stat(HOST(names[i])).st_ino);
		OK(sandbox_rename, PATH(names[i]), PATH(other), 0, NULL);
		assert_true(exists(HOST(other)));
		FAILS(ENOENT, sandbox_lstat, PATH(names[i]), &a);
		FAILS(EISDIR, sandbox_unlink, PATH(other));
		OK(sandbox_rmdir, PATH(other));
	}
}

static void test_names_of_255_bytes(void **state)
{
	struct fixture *f = *state;
	char longest[256], other[256];
	struct attr a;

	memset(longest, '\377', 255);
	memset(other, '\'', 255);
	longest[255] = other[255] = '\0';
	OK(sandbox_copy, PATH("file"), PATH(longest));
	OK(sandbox_rename, PATH(longest), PATH(other), 0, NULL);
	OK(sandbox_lstat, PATH(other), &a);
	assert_int_equal(a.size, 5);
	FAILS(EISDIR, sandbox_rename, PATH(other), PATH("dir"), 0, NULL);
	FAILS(ENOENT, sandbox_rename, PATH(longest), PATH("dir"), 0, NULL);
	OK(sandbox_unlink, PATH(other));
}

/* A chain of directories whose path has so many bytes in the sandbox; made here, piece by piece. */
static void make_deep(struct fixture *f, char *path, size_t len)
{
	int dir = open(f->host_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next;
	char name[256];
	size_t at = strlen(f->dir);

	assert_true(dir >= 0);
	memcpy(path, f->dir, at);
	while (at < len) {
		size_t n = MIN(len - at - 1, (size_t)200);

		if (len - at - 1 - n == 1) /* no room for a slash and a name then */
			n--;
		memset(name, at % 2 ? '\377' : 'd', n);
		name[n] = '\0';
		assert_int_equal(mkdirat(dir, name, 0755), 0);
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(dir);
		dir = next;
		path[at++] = '/';
		memcpy(path + at, name, n + 1);
		at += n;
	}
	close(dir);
	assert_int_equal(strlen(path), len);
}

static void test_paths_of_4095_bytes(void **state)
{
	struct fixture *f = *state;
	char path[4200], other[4200];
	struct attr a;
	char *target;

	make_deep(f, path, 4090);
	memcpy(other, path, sizeof(path));
	strcat(path, "/abcd");
	strcat(other, "/efgh");
	OK(sandbox_mkdir, path, 0755, NULL);
	OK(sandbox_lstat, path, &a);
	assert_true(S_ISDIR(a.mode));
	OK(sandbox_rename, path, other, 0, NULL);
	OK(sandbox_symlink, other, path, NULL);
	OK(sandbox_readlink, path, &target);
	assert_string_equal(target, other);
	free(target);
	FAILS(EISDIR, sandbox_rename, path, other, 0, NULL);
	FAILS(ENOTDIR, sandbox_rename, other, path, 0, NULL);
	FAILS(EISDIR, sandbox_unlink, other);
	OK(sandbox_rename, path, PATH("link"), 0, NULL);
	OK(sandbox_rename, PATH("link"), path, 0, NULL);
	OK(sandbox_unlink, path);
	OK(sandbox_rmdir, other);
	strcat(path, "e");
	FAILS(ENAMETOOLONG, sandbox_lstat, path, &a);
}

static void test_paths_outside_the_view_are_refused(void **state)
{
	const struct timespec both[2] = { { 1, 1 }, { 1, 1 } };
	struct fixture *f = *state;
	struct attr a;
	struct fs_stat s;
	uint64_t n;
	char *t;

	FAILS(EACCES, sandbox_lstat, "/etc/passwd", &a);
	FAILS(EACCES, sandbox_lstat, "/mnt/user-data/../x", &a);
	FAILS(EACCES, sandbox_lstat, "/mnt/user-data2", &a);
	FAILS(EINVAL, sandbox_lstat, "relative", &a);
	FAILS(EINVAL, sandbox_lstat, "", &a);
	FAILS(EACCES, sandbox_readlink, "/x", &t);
	FAILS(EACCES, sandbox_statfs, "/x", &s);
	FAILS(EACCES, sandbox_mkdir, "/x", 0755, NULL);
	FAILS(EACCES, sandbox_rmdir, "/x");
	FAILS(EACCES, sandbox_unlink, "/x");
	FAILS(EACCES, sandbox_rename, "/x", PATH("x"), 0, NULL);
	FAILS(EACCES, sandbox_rename, PATH("file"), "/x", 0, NULL);
	FAILS(EACCES, sandbox_link, "/x", PATH("x"), NULL);
	FAILS(EACCES, sandbox_link, PATH("file"), "/x", NULL);
	FAILS(EACCES, sandbox_symlink, "y", "/x", NULL);
	FAILS(EACCES, sandbox_chmod, "/x", 0, NULL);
	FAILS(EACCES, sandbox_utimens, "/x", both, NULL);
	FAILS(EACCES, sandbox_truncate, "/x", 0);
	FAILS(EACCES, sandbox_copy, "/x", PATH("x"));
	FAILS(EACCES, sandbox_copy, PATH("file"), "/x");
	FAILS(EACCES, sandbox_copy_range, "/x", 0, PATH("x"), 0, 1, &n);
	FAILS(EACCES, sandbox_copy_range, PATH("file"), 0, "/x", 0, 1, &n);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

static void test_failures_come_with_the_words_of_the_tool(void **state)
{
	struct fixture *f = *state;
	struct call *c = new_call(30000);

	sandbox_rmdir(f->sb, c, PATH("full"));
	assert_int_equal(call_wait(c), -ENOTEMPTY);
	assert_non_null(c->message);
	assert_non_null(strstr(c->message, "Directory not empty"));
	call_release(c);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lstat_equals_that_of_the_host),
		TEST(test_lstat_gives_nanoseconds),
		TEST(test_lstat_errnos),
		TEST(test_readlink),
		TEST(test_readlink_errnos),
		TEST(test_statfs),
		TEST(test_mkdir),
		TEST(test_mkdir_errnos),
		TEST(test_rmdir),
		TEST(test_unlink),
		TEST(test_link),
		TEST(test_symlink),
		TEST(test_rename),
		TEST(test_rename_replaces_links_not_what_they_lead_to),
		TEST(test_rename_of_one_file_to_itself_does_nothing),
		TEST(test_rename_errnos),
		TEST(test_rename_flags_are_checked_first),
		TEST(test_rename_noreplace),
		TEST(test_rename_exchange_or_a_clean_no),
		TEST(test_rename_between_mounts_is_exdev),
		TEST(test_rename_in_parents_that_cannot_be_read),
		TEST(test_chmod),
		TEST(test_utimens),
		TEST(test_utimens_now_and_omit),
		TEST(test_utimens_of_links_and_errnos),
		TEST(test_truncate),
		TEST(test_truncate_errnos),
		TEST(test_copy),
		TEST(test_copy_range),
		TEST(test_copy_range_of_megabytes),
		TEST(test_copy_range_errnos),
		TEST(test_names_that_mean_something_to_a_shell),
		TEST(test_names_of_255_bytes),
		TEST(test_paths_of_4095_bytes),
		TEST(test_paths_outside_the_view_are_refused),
		TEST(test_failures_come_with_the_words_of_the_tool),
	};

	return FIXTURE_RUN(tests);
}

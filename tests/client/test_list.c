/*
 * Listings: all attributes, any names, any size, while things change, and what
 * is left of a listing where the sandbox has no find. Judged by the same files
 * on this side of the wall.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "direct.h"
#include "fake.h"

#define OK(op, ...)       assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), 0)
#define FAILS(e, op, ...) assert_int_equal(SYNC(f->sb, op, __VA_ARGS__), -(e))
#define PATH(name)        fixture_path(f, name)
#define HOST(name)        fixture_host_path(f, name)

/* ---- helpers ---- */

static void make_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Sorted by name. */
static struct entries list(struct fixture *f, const char *dir, unsigned depth)
{
	struct entries e = { 0 };

	OK(sandbox_list, dir, depth, &e);
	if (e.n)
		qsort(e.v, e.n, sizeof(*e.v), compare);
	return e;
}

static const struct entry *find(const struct entries *e, const char *name)
{
	struct entry key = { .name = (char *)(uintptr_t)name };

	return e->n ? bsearch(&key, e->v, e->n, sizeof(key), compare) : NULL;
}

/* The names, joined with blanks. */
static void assert_names(const struct entries *e, const char *want)
{
	struct buf got CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&got, "");
	for (size_t i = 0; i < e->n; i++)
		buf_printf(&got, "%s%s", i ? " " : "", e->v[i].name);
	assert_string_equal(got.data ?: "", want);
}

static void assert_whole(const struct entries *e)
{
	assert_false(e->truncated || e->incomplete);
	assert_int_equal(e->dropped, 0);
}

static size_t commands(struct fixture *f)
{
	return rogue_count(f->rogue, "POST", fake_route(f));
}

/* a, b/c, b/d/e, link -> ../x, pipe */
static void populate(struct fixture *f)
{
	make_file(HOST("a"), "hello");
	assert_int_equal(mkdir(HOST("b"), 0700), 0);
	make_file(HOST("b/c"), "");
	assert_int_equal(mkdir(HOST("b/d"), 0755), 0);
	assert_int_equal(chmod(HOST("b/d"), 01777), 0);
	make_file(HOST("b/d/e"), "12");
	assert_int_equal(symlink("../x", HOST("link")), 0);
	assert_int_equal(mkfifo(HOST("pipe"), 0600), 0);
}

/* ---- what it gives ---- */

static void test_list_gives_all_attributes(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	struct stat st;

	populate(f);
	assert_int_equal(utimensat(AT_FDCWD, HOST("a"),
				   (struct timespec[]){ { 1, 2 }, { -3, 123456789 } }, 0),
			 0);
	e = list(f, f->dir, 0);
	assert_names(&e, "a b b/c b/d b/d/e link pipe");
	assert_whole(&e);
	for (size_t i = 0; i < e.n; i++) {
		const struct attr *a = &e.v[i].attr;

		assert_int_equal(lstat(HOST(e.v[i].name), &st), 0);
		assert_int_equal(a->mode, st.st_mode);
		assert_int_equal(a->size, st.st_size);
		assert_int_equal(a->blocks, st.st_blocks);
		assert_int_equal(a->ino, st.st_ino);
		assert_int_equal(a->dev, st.st_dev);
		assert_int_equal(a->nlink, st.st_nlink);
		assert_int_equal(a->uid, 1000);
		assert_int_equal(a->gid, 1000);
		assert_int_equal(a->mtime.tv_sec, st.st_mtim.tv_sec);
		assert_int_equal(a->mtime.tv_nsec, st.st_mtim.tv_nsec);
		assert_int_equal(a->ctime.tv_sec, st.st_ctim.tv_sec);
		assert_int_equal(a->ctime.tv_nsec, st.st_ctim.tv_nsec);
		assert_false(a->partial);
		if (S_ISLNK(st.st_mode))
			assert_string_equal(e.v[i].target, "../x");
		else
			assert_null(e.v[i].target);
	}
}

static void test_list_depths(void **state)
{
	static const char *const want[] = {
		"a b b/c b/d b/d/e link pipe", "a b link pipe",
		"a b b/c b/d link pipe",       "a b b/c b/d b/d/e link pipe",
		"a b b/c b/d b/d/e link pipe",
	};
	struct fixture *f = *state;
	struct entries all CLEANUP_ENTRIES = { 0 };

	populate(f);
	all = list(f, f->dir, UINT_MAX);
	assert_names(&all, want[0]);
	for (unsigned depth = 0; depth < ARRAY_SIZE(want); depth++) {
		struct entries e CLEANUP_ENTRIES = list(f, f->dir, depth);

		assert_names(&e, want[depth]);
		assert_whole(&e);
	}
}

static void test_trees_come_in_order_and_are_cut(void **state)
{
	static const char *const names[] = { "b", "x y'\n" };
	struct fixture *f = *state;
	struct entries e = { 0 };
	char path[64];

	populate(f);
	assert_int_equal(mkdir(HOST(names[1]), 0755), 0);
	for (int i = 0; i < 50; i++) {
		snprintf(path, sizeof(path), "%s/%d", names[1], i);
		make_file(HOST(path), "");
	}
	OK(sandbox_list_trees, f->dir, names, 2, 1000, &e);
	assert_whole(&e);
	assert_int_equal(e.n, 4 + 51);
	assert_string_equal(e.v[0].name, "b"); /* before what it holds */
	assert_string_equal(e.v[4].name, names[1]);
	for (size_t i = 5; i < e.n; i++)
		assert_int_equal(strncmp(e.v[i].name, names[1], strlen(names[1])), 0);
	entries_release(&e);

	OK(sandbox_list_trees, f->dir, names, 2, 10, &e);
	assert_true(e.truncated);
	assert_int_equal(e.n, 10);
	assert_string_equal(e.v[0].name, "b");
	entries_release(&e);

	FAILS(EINVAL, sandbox_list_trees, f->dir, (const char *const[]){ "b/d" }, 1, 10, &e);
	FAILS(EINVAL, sandbox_list_trees, f->dir, (const char *const[]){ ".." }, 1, 10, &e);
	FAILS(ENOENT, sandbox_list_trees, PATH("none"), names, 2, 10, &e);
	/* one that is gone by now takes nothing from the others */
	OK(sandbox_list_trees, f->dir, ((const char *const[]){ "gone", "b" }), 2, 100, &e);
	assert_int_equal(e.n, 4);
	entries_release(&e);
}

static void make_files(const char *dir, int count)
{
	char path[PATH_MAX];

	assert_int_equal(mkdir(dir, 0755), 0);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/a-name-that-takes-some-room-%d", dir, i);
		make_file(path, "");
	}
}

static size_t below(const struct entries *e, const char *dir)
{
	size_t n = 0;

	for (size_t i = 0; i < e->n; i++)
		n += strncmp(e->v[i].name, dir, strlen(dir)) == 0 && e->v[i].name[strlen(dir)];
	return n;
}

static void test_what_is_near_comes_along(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	char path[PATH_MAX];

	populate(f);
	make_files(HOST("large"), 400);
	make_files(HOST("wide"), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(path, sizeof(path), "%s/%d", HOST("wide"), i);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	OK(sandbox_list_near, f->dir, 1, 0, &e);
	qsort(e.v, e.n, sizeof(*e.v), compare);
	assert_int_equal(e.depth, 1);
	assert_names(&e, "a b large link pipe wide");
	entries_release(&e);

	OK(sandbox_list_near, f->dir, 2, 0, &e);
	qsort(e.v, e.n, sizeof(*e.v), compare);
	assert_int_equal(e.depth, 2);
	assert_int_equal(below(&e, "b"), 2); /* not what is in b/d */
	/* Whether it entered a directory is to be seen from its attributes. */
	assert_true(attr_is_near(&find(&e, "b")->attr));
	assert_false(attr_is_near(&find(&e, "large")->attr));
	assert_int_equal(below(&e, "large"), 0);
	assert_int_equal(below(&e, "wide"), attr_is_near(&find(&e, "wide")->attr) ? 40 : 0);
	assert_whole(&e);
	entries_release(&e);

	OK(sandbox_list_near, f->dir, 3, 5, &e);
	assert_int_equal(e.n, 5);
	assert_true(e.truncated);
	entries_release(&e);
	FAILS(ENOENT, sandbox_list_near, PATH("none"), 2, 0, &e);
	FAILS(ENOTDIR, sandbox_list_near, PATH("a"), 2, 0, &e);
}

static void test_list_of_an_empty_directory(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = list(f, f->dir, 1);

	assert_int_equal(e.n, 0);
	assert_whole(&e);
}

static void test_list_follows_a_link_but_not_those_inside(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };

	populate(f);
	assert_int_equal(symlink("b", HOST("to b")), 0);
	assert_int_equal(symlink("..", HOST("b/up")), 0);
	e = list(f, PATH("to b"), 0);
	assert_names(&e, "c d d/e up");
}

static void test_list_errnos(void **state)
{
	struct fixture *f = *state;
	struct entries e = { .n = 42 };

	populate(f);
	assert_int_equal(symlink("loop", HOST("loop")), 0);
	FAILS(ENOENT, sandbox_list, PATH("none"), 1, &e);
	FAILS(ENOENT, sandbox_list, PATH("link"), 0, &e);
	FAILS(ENOTDIR, sandbox_list, PATH("a"), 1, &e);
	FAILS(ENOTDIR, sandbox_list, PATH("a/x"), 0, &e);
	FAILS(ENOTDIR, sandbox_list, PATH("pipe"), 0, &e);
	FAILS(ELOOP, sandbox_list, PATH("loop"), 1, &e);
	assert_int_equal(chmod(HOST("b"), 0), 0);
	FAILS(EACCES, sandbox_list, PATH("b"), 1, &e);
	FAILS(EACCES, sandbox_list, PATH("b/d"), 0, &e);
	assert_int_equal(chmod(HOST("b"), 0311), 0); /* may be entered, not read */
	FAILS(EACCES, sandbox_list, PATH("b"), 1, &e);
	FAILS(EACCES, sandbox_list, PATH("b"), 0, &e);
	assert_int_equal(chmod(HOST("b"), 0755), 0);
	FAILS(EACCES, sandbox_list, "/etc", 1, &e);
	FAILS(EINVAL, sandbox_list, "etc", 1, &e);
	assert_int_equal(e.n, 42);
}

static void test_unreadable_subdirectories_make_it_incomplete(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };

	populate(f);
	assert_int_equal(chmod(HOST("b/d"), 0), 0);
	e = list(f, f->dir, 0);
	assert_names(&e, "a b b/c b/d link pipe");
	assert_true(e.incomplete);
	assert_false(e.truncated);
	entries_release(&e);
	e = list(f, PATH("b"), 1); /* not looked into */
	assert_names(&e, "c d");
	assert_false(e.incomplete);
	assert_int_equal(chmod(HOST("b/d"), 0755), 0);
}

/* More complaints than a terminal shows. */
static void test_many_unreadable_subdirectories(void **state)
{
	enum { N = 400 };
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	char name[256];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%0200d", i);
		assert_int_equal(mkdir(HOST(name), 0), 0);
	}
	e = list(f, f->dir, 0);
	assert_int_equal(e.n, N);
	assert_true(e.incomplete);
}

static void test_list_of_a_directory_with_the_longest_path(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	char path[4096], name[256];
	size_t at = strlen(f->dir);
	int dir = open(f->host_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	memcpy(path, f->dir, at);
	while (at < 4095) {
		size_t n = MIN((size_t)4095 - at - 1, (size_t)150);
		int next;

		if (4095 - at - 1 - n == 1)
			n--;
		memset(name, '\n', n);
		name[n] = '\0';
		assert_int_equal(mkdirat(dir, name, 0755), 0);
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(dir);
		dir = next;
		path[at] = '/';
		memcpy(path + at + 1, name, n);
		at += n + 1;
	}
	path[at] = '\0';
	memset(name, '\377', 255);
	name[255] = '\0';
	assert_int_equal(mkdirat(dir, name, 0755), 0);
	close(dir);
	e = list(f, path, 0);
	assert_int_equal(e.n, 1);
	assert_string_equal(e.v[0].name, name);
}

/* ---- names ---- */

enum { FILES = 500 };

/* The n-th name: one byte, where that is a name; later ones are long and of any bytes. */
static void name_of(unsigned n, char to[static 256])
{
	unsigned seed = n * 2654435761u, len = 4 + n % 251;

	snprintf(to, 256, "%u", n);
	if (n < 255 && n + 1 != '/' && n + 1 != '.') {
		to[0] = (char)(n + 1);
		to[1] = '\0';
	}
	if (n < 255)
		return;
	for (unsigned i = 3; i < len; i++) {
		seed = seed * 1664525 + 1013904223;
		to[i] = (char)(seed >> 24);
		if (to[i] == '\0' || to[i] == '/')
			to[i] = '.';
	}
	to[len] = '\0';
}

static void wait_all(struct call *calls, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(call_wait(&calls[i]), 0);
		call_release(&calls[i]);
	}
}

static void assert_listed(struct fixture *f, const char *prefix)
{
	struct entries e CLEANUP_ENTRIES = list(f, f->dir, 1);
	char name[256], listed[300];

	assert_int_equal(e.n, FILES);
	assert_whole(&e);
	for (unsigned i = 0; i < FILES; i++) {
		const struct entry *got;

		name_of(i, name);
		snprintf(listed, sizeof(listed), "%s%s", prefix, name);
		got = find(&e, listed);
		assert_non_null(got);
		assert_string_equal(got->target, name);
		assert_int_equal(faccessat(AT_FDCWD, HOST(listed), F_OK, AT_SYMLINK_NOFOLLOW), 0);
	}
}

static void test_names_of_every_byte_round_trip(void **state)
{
	static struct call calls[FILES];
	static struct attr attrs[FILES];
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	char name[256], other[300];

	for (unsigned i = 0; i < FILES; i++) {
		name_of(i, name);
		call_init(&calls[i], 120000);
		sandbox_symlink(f->sb, &calls[i], name, PATH(name), NULL);
	}
	wait_all(calls, FILES);
	assert_listed(f, "");
	for (unsigned i = 0; i < FILES; i += 5) {
		name_of(i, name);
		call_init(&calls[i / 5], 120000);
		sandbox_lstat(f->sb, &calls[i / 5], PATH(name), &attrs[i]);
	}
	wait_all(calls, FILES / 5);
	for (unsigned i = 0; i < FILES; i += 5) {
		name_of(i, name);
		assert_true(S_ISLNK(attrs[i].mode));
		assert_int_equal(attrs[i].size, strlen(name));
	}
	for (unsigned i = 0; i < FILES; i++) {
		name_of(i, name);
		snprintf(other, sizeof(other), "\377%s", name);
		call_init(&calls[i], 120000);
		sandbox_rename(f->sb, &calls[i], PATH(name), PATH(other), 0, NULL);
	}
	wait_all(calls, FILES);
	assert_listed(f, "\377");
	for (unsigned i = 0; i < FILES; i++) {
		name_of(i, name);
		snprintf(other, sizeof(other), "\377%s", name);
		call_init(&calls[i], 120000);
		sandbox_unlink(f->sb, &calls[i], PATH(other));
	}
	wait_all(calls, FILES);
	e = list(f, f->dir, 0);
	assert_int_equal(e.n, 0);
}

/* ---- size ---- */

static void test_20000_entries_in_one_request(void **state)
{
	enum { DIRS = 20, PER_DIR = 1000 };
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	char name[64];

	make_file(HOST("one"), ""); /* further names cost less than further files */
	for (unsigned i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "directory %03u", i);
		assert_int_equal(mkdir(HOST(name), 0755), 0);
		for (unsigned j = 0; j < PER_DIR; j++) {
			snprintf(name, sizeof(name), "directory %03u/file %03u", i, j);
			assert_int_equal(link(HOST("one"), HOST(name)), 0);
		}
	}
	e = list(f, f->dir, 0);
	assert_int_equal(e.n, 1 + DIRS * (PER_DIR + 1));
	assert_whole(&e);
	for (unsigned i = 0; i < DIRS; i++) {
		for (unsigned j = 0; j < PER_DIR; j++) {
			snprintf(name, sizeof(name), "directory %03u/file %03u", i, j);
			assert_non_null(find(&e, name));
		}
	}
	if (f->has_bash) {
		assert_int_equal(rogue_count(f->rogue, NULL, NULL), 1);
	} else {
		/* asking for bash, a session, the list, fetching it, removing it */
		assert_int_equal(rogue_count(f->rogue, NULL, NULL), 5);
		assert_int_equal(rogue_count(f->rogue, "GET", "/v1/file/download"), 1);
	}
}

/* Files of ours in the sandbox's /tmp. */
static bool litter(struct fixture *f)
{
	struct command_result r;
	bool any;

	OK(sandbox_execute_command, "compgen -G '/tmp/.threadfs-*'", &r);
	any = r.exit_code == 0;
	command_result_release(&r);
	return any;
}

/* A shell cuts at 30,000 characters, bash at 10 MiB: just below and well above either. */
static void test_output_that_a_server_cuts(void **state)
{
	static const unsigned counts[] = { 50, 90, 40000 };
	struct fixture *f = *state;
	char name[256];
	unsigned n = 0;

	assert_int_equal(mkdir(HOST("d"), 0755), 0);
	make_file(HOST("one"), "");
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		struct entries e CLEANUP_ENTRIES = { 0 };

		for (; n < counts[i]; n++) {
			snprintf(name, sizeof(name), "d/%0200u", n);
			assert_int_equal(link(HOST("one"), HOST(name)), 0);
		}
		e = list(f, PATH("d"), 1);
		assert_int_equal(e.n, n);
		assert_whole(&e);
		for (unsigned j = 0; j < n; j++) {
			snprintf(name, sizeof(name), "%0200u", j);
			assert_string_equal(e.v[j].name, name);
		}
		assert_int_equal(rogue_count(f->rogue, "GET", "/v1/file/download"),
				 f->has_bash ? i / 2 : i);
	}
	assert_false(litter(f));
}

static void test_a_failed_download_is_no_missing_directory(void **state)
{
	static const struct {
		int status, want;
		const char *body;
	} rows[] = {
		{ 404, EIO, "{\"success\":false,\"message\":\"File does not exist: /tmp/x\"}" },
		{ 500, EIO, "nonsense" },
		{ 206, EIO, "part" },
	};
	struct fixture *f = *state;
	struct entries e = { .n = 42 };
	char name[256];

	if (f->has_bash) {
		print_message("skipped: only output of a shell goes through a file so soon\n");
		skip();
	}
	for (unsigned i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "%0200u", i);
		make_file(HOST(name), "");
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rogue_clear(f->rogue);
		rogue_answer(f->rogue, "GET", "/v1/file/download", rows[i].status, rows[i].body);
		FAILS(rows[i].want, sandbox_list, f->dir, 1, &e);
		assert_int_equal(e.n, 42);
	}
	rogue_clear(f->rogue);
	assert_false(litter(f));
}

/* ---- changes ---- */

struct changer {
	struct fixture *f;
	pthread_t thread;
	atomic_bool stop;
};

/* Files and directories that come and go, for ever. */
static void *change(void *arg)
{
	struct changer *c = arg;
	char name[300];

	for (unsigned i = 0; !atomic_load(&c->stop); i++) {
		unsigned n = i % 50;

		snprintf(name, sizeof(name), "%s/passing/f%u", c->f->host_dir, n);
		if (symlink("x", name) < 0)
			unlink(name);
		snprintf(name, sizeof(name), "%s/passing/d%u", c->f->host_dir, n);
		if (mkdir(name, 0755) < 0)
			rmdir(name);
	}
	return NULL;
}

static void test_listing_while_entries_change(void **state)
{
	enum { STAY = 300 };
	struct fixture *f = *state;
	struct changer c = { .f = f };
	unsigned failed = 0;
	char name[64];

	assert_int_equal(mkdir(HOST("passing"), 0755), 0);
	for (unsigned i = 0; i < STAY; i++) {
		snprintf(name, sizeof(name), "passing/stays%u", i);
		make_file(HOST(name), "");
	}
	assert_int_equal(pthread_create(&c.thread, NULL, change, &c), 0);
	for (unsigned i = 0; i < 30; i++) {
		struct entries e CLEANUP_ENTRIES = { 0 };
		unsigned stay = 0;

		failed += SYNC(f->sb, sandbox_list, f->dir, i % 2 ? 0 : 2, &e) != 0;
		for (size_t j = 0; j < e.n; j++)
			stay += strncmp(e.v[j].name, "passing/stays", 13) == 0;
		failed += stay != STAY || e.incomplete || e.truncated || e.dropped;
	}
	atomic_store(&c.stop, true);
	pthread_join(c.thread, NULL);
	assert_int_equal(failed, 0);
}

/* ---- promises of the reference ---- */

static void test_list_dir_passes_no_change_timeout(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = list(f, f->dir, 1);

	assert_int_equal(e.n, 0);
	if (f->has_bash) {
		/* No shell is asked; the command ends by itself a little after we give up. */
		assert_int_equal(rogue_count(f->rogue, NULL, "/v1/shell"), 0);
		assert_int_equal(
			rogue_count_body(f->rogue, "POST", fake_route(f), "\"hard_timeout\":3"), 1);
		return;
	}
	assert_int_equal(commands(f), 1);
	assert_int_equal(
		rogue_count_body(f->rogue, "POST", fake_route(f), "\"no_change_timeout\":600"), 1);
}

static void test_list_dir_uses_lock(void **state)
{
	enum { N = 24 };
	static struct call calls[N];
	static struct entries e[N];
	struct fixture *f = *state;

	populate(f);
	for (unsigned i = 0; i < N; i++) {
		call_init(&calls[i], 60000);
		sandbox_list(f->sb, &calls[i], f->dir, i % 2, &e[i]);
	}
	wait_all(calls, N);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(e[i].n, i % 2 ? 4 : 7);
		entries_release(&e[i]);
	}
	assert_int_equal(commands(f), N);
	/* Each in a session that nobody else uses meanwhile: see test_posix_run.c. */
	assert_in_range(rogue_max_in_flight(f->rogue, fake_route(f)), 1, f->has_bash ? 4 : 2);
}

/* ---- without find ---- */

static void assert_partial(const struct entries *e, const char *name, mode_t mode, uint64_t size)
{
	const struct entry *got = find(e, name);

	assert_non_null(got);
	assert_true(got->attr.partial);
	assert_int_equal(got->attr.mode, mode);
	assert_int_equal(got->attr.size, size);
	assert_true(got->attr.mtime.tv_sec > 1700000000);
	assert_null(got->target);
}

static void test_without_find_the_server_lists(void **state)
{
	static const struct fake fakes[] = {
		{ .err = "bash: line 1: exec: find: not found\n", .exit_code = 127 },
		{ .err = "find: unrecognized: -printf\nBusyBox v1.36.1", .exit_code = 1 },
	};
	struct fixture *f = *state;

	populate(f);
	for (size_t i = 0; i < ARRAY_SIZE(fakes); i++) {
		struct sandbox *old = f->sb;
		struct entries e CLEANUP_ENTRIES = { 0 };
		struct fake k = fakes[i];

		k.bytes = k.spills = true;
		f->sb = fixture_open(f, NULL);
		rogue_clear(f->rogue);
		rogue_forget(f->rogue);
		fake_command(f, &k, 1);
		e = list(f, f->dir, 0);
		assert_non_null(find(&e, "b/d/e"));
		assert_null(find(&e, "link")); /* leads nowhere: the server is silent about it */
		assert_partial(&e, "a", S_IFREG | 0644, 5);
		assert_partial(&e, "b", S_IFDIR | 0700, 0);
		assert_partial(&e, "b/d", S_IFDIR | 01777, 0);
		entries_release(&e);
		e = list(f, f->dir, 2);
		assert_non_null(find(&e, "b/d"));
		assert_null(find(&e, "b/d/e"));
		entries_release(&e);
		e = list(f, PATH("b"), 1);
		assert_names(&e, "c d");
		assert_int_equal(commands(f), 1); /* asked once */
		assert_int_equal(rogue_count(f->rogue, "POST", "/v1/file/list$"), 3);
		FAILS(ENOENT, sandbox_list, PATH("none"), 1, &e);
		FAILS(ENOTDIR, sandbox_list, PATH("a"), 1, &e);
		FAILS(EOPNOTSUPP, sandbox_list, PATH("\377"), 1, &e); /* JSON cannot say that */
		sandbox_unref(f->sb);
		f->sb = old;
	}
}

static void test_what_the_server_leaves_out_is_told(void **state)
{
	static const struct fake none = { .exit_code = 127, .bytes = true, .spills = true };
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };

	fake_command(f, &none, 1);
	rogue_answer(
		f->rogue, "POST", "/v1/file/list", 200,
		"{\"success\":true,\"data\":{\"files\":[{\"name\":\"a\",\"is_directory\":true},"
		"{\"name\":\"..\",\"is_directory\":true}],\"truncated\":true}}");
	e = list(f, f->dir, 1);
	assert_names(&e, "a");
	assert_true(e.truncated);
	assert_int_equal(e.dropped, 1);
}

/* A file below that speaks of what is not supported is not a find that is missing. */
static void test_find_that_complains_is_not_missing(void **state)
{
	static const struct fake k = {
		.err = "find: './x': Operation not supported\n",
		.exit_code = 1,
		.bytes = true,
		.spills = true,
	};
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };

	populate(f);
	fake_command(f, &k, 1);
	e = list(f, f->dir, 1);
	assert_int_equal(e.n, 0);
	assert_true(e.incomplete);
	entries_release(&e);
	e = list(f, f->dir, 1);
	assert_int_equal(e.n, 4);
	assert_int_equal(rogue_count(f->rogue, "POST", "/v1/file/list$"), 0);
}

/* What find could not write is missing from the listing, not from the directory. */
static void test_find_that_cannot_write_has_failed(void **state)
{
	static const char out[] = "f 644 5 8 7 64769 1 1000 1000 1.5 2.5 a\0";
	static const struct fake k = {
		.out = out,
		.out_len = sizeof(out),
		.err = "find: 'standard output': No space left on device\nfind: write error\n",
		.exit_code = 1,
		.bytes = true,
		.spills = true,
	};
	struct fixture *f = *state;
	struct entries e = { 0 };

	fake_command(f, &k, 1);
	FAILS(ENOSPC, sandbox_list, f->dir, 1, &e);
	assert_null(e.v);
}

/* ---- hostile ---- */

#define FILE_LINE "f 644 5 8 7 64769 1 1000 1000 1.5 2.5 "

static void test_hostile_names_are_dropped(void **state)
{
	static const char out[] = FILE_LINE
		"ok\0\0" FILE_LINE "a/b\0\0" FILE_LINE "..\0\0" FILE_LINE ".\0\0" FILE_LINE
		"/etc\0\0" FILE_LINE "../x\0\0" FILE_LINE "a//b\0\0" FILE_LINE "b/\0";
	static const struct fake k = {
		.out = out,
		.out_len = sizeof(out),
		.bytes = true,
		.spills = true,
	};
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };

	fake_command(f, &k, f->has_bash ? 4 : 2); /* in lines at first, which these are not */
	e = list(f, f->dir, 1);
	assert_names(&e, "ok");
	assert_int_equal(e.dropped, 7);
	entries_release(&e);
	e = list(f, f->dir, 0);
	assert_names(&e, "a/b ok");
	assert_int_equal(e.dropped, 6);
}

static void test_garbage_is_refused(void **state)
{
	static const struct fake fakes[] = {
		{ .out = "hello" },
		{ .out = FILE_LINE "x\0", .out_len = sizeof(FILE_LINE) + 1 },
		{ .out = FILE_LINE, .out_len = 5 },
		{ .out = "f 644 99999999999999999999 8 7 64769 1 0 0 1.5 2.5 x\0", .out_len = 54 },
	};
	struct fixture *f = *state;
	struct entries e = { .n = 42 };

	for (size_t i = 0; i < ARRAY_SIZE(fakes); i++) {
		struct fake k = fakes[i];

		k.bytes = k.spills = true;
		rogue_clear(f->rogue);
		fake_command(f, &k, f->has_bash ? 2 : 1);
		FAILS(EBADMSG, sandbox_list, f->dir, 1, &e);
	}
	assert_int_equal(e.n, 42);
}

/* Armour is a process more, and only for names that need it. */
static void test_plain_names_need_no_armour(void **state)
{
	struct fixture *f = *state;
	struct entries e CLEANUP_ENTRIES = { 0 };
	struct attr a;

	if (!f->has_bash)
		skip();
	OK(sandbox_lstat, f->dir, &a); /* that it has is known from now on */
	make_file(HOST("a b"), "x");
	assert_int_equal(symlink("to here", HOST("l")), 0);
	rogue_forget(f->rogue);
	e = list(f, f->dir, 1);
	assert_names(&e, "a b l");
	assert_string_equal(find(&e, "l")->target, "to here");
	assert_int_equal(rogue_count_body(f->rogue, "POST", fake_route(f), "base64"), 0);
	assert_int_equal(rogue_count(f->rogue, "POST", fake_route(f)), 1);
	entries_release(&e);
	assert_int_equal(symlink("to\nthere", HOST("m")), 0);
	e = list(f, f->dir, 1);
	assert_names(&e, "a b l m");
	assert_string_equal(find(&e, "m")->target, "to\nthere");
	assert_int_equal(rogue_count_body(f->rogue, "POST", fake_route(f), "base64"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_list_gives_all_attributes),
		FIXTURE_TEST(test_list_depths),
		FIXTURE_TEST(test_trees_come_in_order_and_are_cut),
		FIXTURE_TEST(test_what_is_near_comes_along),
		FIXTURE_TEST(test_list_of_an_empty_directory),
		FIXTURE_TEST(test_list_follows_a_link_but_not_those_inside),
		FIXTURE_TEST(test_list_errnos),
		FIXTURE_TEST(test_unreadable_subdirectories_make_it_incomplete),
		FIXTURE_TEST(test_many_unreadable_subdirectories),
		FIXTURE_TEST(test_list_of_a_directory_with_the_longest_path),
		FIXTURE_TEST(test_names_of_every_byte_round_trip),
		FIXTURE_TEST(test_20000_entries_in_one_request),
		FIXTURE_TEST(test_output_that_a_server_cuts),
		FIXTURE_TEST(test_a_failed_download_is_no_missing_directory),
		FIXTURE_TEST(test_listing_while_entries_change),
		FIXTURE_TEST(test_list_dir_passes_no_change_timeout),
		FIXTURE_TEST(test_list_dir_uses_lock),
		FIXTURE_TEST(test_without_find_the_server_lists),
		FIXTURE_TEST(test_what_the_server_leaves_out_is_told),
		FIXTURE_TEST(test_find_that_complains_is_not_missing),
		FIXTURE_TEST(test_find_that_cannot_write_has_failed),
		FIXTURE_TEST(test_hostile_names_are_dropped),
		FIXTURE_TEST(test_garbage_is_refused),
		FIXTURE_TEST(test_plain_names_need_no_armour),
	};

	return FIXTURE_RUN(tests);
}

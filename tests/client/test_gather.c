/*
 * Several small files in one go: all bytes, all names, what cannot be read, what
 * changes meanwhile, and that nothing is left behind. Judged by the same files on this
 * side of the wall.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "direct.h"

#define GATHER(dir, names, n, max, about, ret)                                                     \
	SYNC(f->sb, sandbox_gather, dir, (const char *const *)(names), n, max, about, ret)
#define PATH(name) fixture_path(f, name)
#define HOST(name) fixture_host_path(f, name)

static void put(const char *path, const char *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

static void assert_attr(const struct attr *a, const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(a->mode, st.st_mode);
	assert_int_equal(a->size, st.st_size);
	assert_int_equal(a->ino, st.st_ino);
	assert_int_equal(a->dev, st.st_dev);
	assert_int_equal(a->mtime.tv_nsec, st.st_mtim.tv_nsec);
	assert_int_equal(a->ctime.tv_sec, st.st_ctim.tv_sec);
	assert_int_equal(a->ctime.tv_nsec, st.st_ctim.tv_nsec);
}

/* Other kinds of files of ours have a suffix. */
static bool is_swept(struct fixture *f)
{
	struct command_result r = { 0 };
	bool none;

	assert_int_equal(SYNC(f->sb, sandbox_execute_command,
			      "ls -A /tmp | grep -c '^[.]threadfs-[-0-9a-f]*$'", &r),
			 0);
	none = r.output[0] == '0';
	command_result_release(&r);
	return none;
}

static void test_bytes_and_attributes(void **state)
{
	static const char *const names[] = { "one", "two words", "\xff\xfe 'odd\"\n$x", "d/below" };
	struct fixture *f = *state;
	struct bundle b = { 0 };
	char bytes[256];

	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	assert_int_equal(mkdir(HOST("d"), 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(HOST(names[i]), bytes, sizeof(bytes) - i);
	assert_int_equal(GATHER(f->dir, names, 4, 4096, 1000, &b), 0);
	assert_int_equal(b.n, 4);
	for (size_t i = 0; i < b.n; i++) {
		assert_true(b.v[i].was_read);
		assert_memory_equal(b.v[i].bytes, bytes, sizeof(bytes) - i);
		assert_attr(&b.v[i].attr, HOST(names[i]));
	}
	bundle_release(&b);
}

/* More than an answer carries: by a file, which is gone afterwards. */
static void test_many_bytes(void **state)
{
	enum { N = 200, SIZE = 20000 };
	struct fixture *f = *state;
	struct bundle b = { 0 };
	char *names[N], *bytes = malloc(SIZE);

	for (int i = 0; i < N; i++) {
		assert_true(asprintf(&names[i], "file-%d", i) > 0);
		memset(bytes, 'a' + i % 26, SIZE);
		put(HOST(names[i]), bytes, SIZE);
	}
	assert_int_equal(GATHER(f->dir, names, N, SIZE, N * SIZE, &b), 0);
	for (int i = 0; i < N; i++) {
		assert_true(b.v[i].was_read);
		assert_int_equal(b.v[i].attr.size, SIZE);
		memset(bytes, 'a' + i % 26, SIZE);
		assert_memory_equal(b.v[i].bytes, bytes, SIZE);
		free(names[i]);
	}
	bundle_release(&b);
	free(bytes);
	WAIT_UNTIL(is_swept(f));
}

static void test_what_cannot_be_read(void **state)
{
	static const char *const names[] = { "a", "closed", "longer", "b" };
	struct fixture *f = *state;
	struct bundle b = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(HOST(names[i]), "12345", 5);
	assert_int_equal(chmod(HOST("closed"), 0), 0);
	put(HOST("longer"), "123456789", 9);
	assert_int_equal(GATHER(f->dir, names, 4, 5, 20, &b), 0);
	assert_true(b.v[0].was_read);
	assert_false(b.v[1].was_read);
	assert_false(b.v[2].was_read);
	assert_attr(&b.v[1].attr, HOST("closed"));
	bundle_release(&b);
}

static void test_errnos(void **state)
{
	static const char *const names[] = { "a", "gone" }, *const bad[] = { "-a" },
				 *const out[] = { "../a" };
	struct fixture *f = *state;
	struct bundle b = { .n = 42 };

	put(HOST("a"), "12345", 5);
	assert_int_equal(GATHER(f->dir, names, 2, 5, 20, &b), -ENOENT);
	assert_int_equal(GATHER(f->dir, names, 2, 5, 10 * MIB, &b), -ENOENT);
	assert_int_equal(GATHER(PATH("none"), names, 1, 5, 20, &b), -ENOENT);
	assert_int_equal(GATHER(PATH("a"), names, 1, 5, 20, &b), -ENOTDIR);
	assert_int_equal(GATHER(f->dir, bad, 1, 5, 20, &b), -EINVAL);
	assert_int_equal(GATHER(f->dir, out, 1, 5, 20, &b), -EINVAL);
	assert_int_equal(GATHER("/etc", names, 1, 5, 20, &b), -EACCES);
	assert_int_equal(b.n, 42);
	WAIT_UNTIL(is_swept(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_bytes_and_attributes),
		FIXTURE_TEST(test_many_bytes),
		FIXTURE_TEST(test_what_cannot_be_read),
		FIXTURE_TEST(test_errnos),
	};

	return FIXTURE_RUN(tests);
}

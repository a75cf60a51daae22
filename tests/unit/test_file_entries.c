/* Listed files: their orders, extensions and permission strings. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "file.h"

static void add(struct file_entries *e, const char *path, mode_t mode, off_t size, time_t mtime)
{
	struct stat st = { .st_mode = mode, .st_size = size, .st_mtim.tv_sec = mtime };

	assert_int_equal(file_entries_add(e, path, &st), 0);
}

/* The names in their order, each followed by a blank. */
static void expect(struct file_entries *e, const char *by, bool descending, const char *want)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	file_entries_sort(e, by, descending);
	for (size_t i = 0; i < e->n; i++)
		buf_printf(&b, "%s ", e->v[i].name);
	assert_string_equal(b.data, want);
}

static void test_orders(void **state UNUSED)
{
	struct file_entries e = { 0 };

	add(&e, "/x/b.py", S_IFREG, 1, 300);
	add(&e, "/x/sub/", S_IFDIR, 4096, 50);
	add(&e, "/x/C.md", S_IFREG, 22, 200);
	add(&e, "/x/a.txt", S_IFREG, 333, 100);
	expect(&e, "name", false, "a.txt b.py C.md sub ");
	expect(&e, "name", true, "sub C.md b.py a.txt ");
	expect(&e, "path", false, "C.md a.txt b.py sub ");
	expect(&e, "size", false, "sub b.py C.md a.txt ");
	expect(&e, "modified", true, "b.py C.md a.txt sub ");
	expect(&e, "type", false, "sub C.md b.py a.txt ");
	expect(&e, "nonsense", false, "a.txt b.py C.md sub ");
	add(&e, "/x/b.py", S_IFREG, 1, 300);
	file_entries_sort(&e, "path", false);
	file_entries_unique(&e);
	assert_int_equal(e.n, 4);
	file_entries_release(&e);
	file_entries_unique(&e);
	assert_int_equal(e.n, 0);
}

static void test_cap(void **state UNUSED)
{
	struct file_entries e = { 0 };
	struct stat st = { .st_mode = S_IFREG };
	char *path = malloc(MIB + 1);
	int r = 0;

	assert_non_null(path);
	memset(path, 'x', MIB);
	path[MIB] = '\0';
	for (unsigned i = 0; i < 64 && r == 0; i++)
		r = file_entries_add(&e, path, &st);
	assert_int_equal(r, -EFBIG);
	assert_int_equal(e.n, 32);
	file_entries_release(&e);
	free(path);
}

static void test_extension(void **state UNUSED)
{
	static const char *const rows[][2] = {
		{ "a.py", ".py" }, { "a.tar.gz", ".gz" }, { "a", "" },     { ".bashrc", "" },
		{ "..x", "" },     { ".a.b", ".b" },      { "dot.", "." }, { "", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(file_extension(rows[i][0]), rows[i][1]);
}

static void test_mode(void **state UNUSED)
{
	static const struct {
		mode_t mode;
		const char *want;
	} rows[] = {
		{ S_IFREG | 0644, "-rw-r--r--" },  { S_IFDIR | 0755, "drwxr-xr-x" },
		{ S_IFLNK | 0777, "lrwxrwxrwx" },  { S_IFREG | 04755, "-rwsr-xr-x" },
		{ S_IFREG | 04644, "-rwSr--r--" }, { S_IFREG | 02755, "-rwxr-sr-x" },
		{ S_IFREG | 02644, "-rw-r-Sr--" }, { S_IFDIR | 01777, "drwxrwxrwt" },
		{ S_IFDIR | 01776, "drwxrwxrwT" }, { S_IFIFO | 0, "p---------" },
		{ S_IFSOCK | 0, "s---------" },    { S_IFCHR | 0, "c---------" },
		{ S_IFBLK | 0, "b---------" },
	};
	char mode[11];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		file_mode_string(rows[i].mode, mode);
		assert_string_equal(mode, rows[i].want);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_cap),
		cmocka_unit_test(test_extension),
		cmocka_unit_test(test_mode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

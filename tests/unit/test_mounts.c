/* fs/mounts.c: reading mountinfo and finding one's way in it; fs/help.c: its pages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "cmd.h"
#include "mounts.h"

static bool parse(const char *line, struct mount_entry *ret)
{
	static char copy[512];

	snprintf(copy, sizeof(copy), "%s", line);
	return mounts_parse_line(copy, ret);
}

static void test_lines(void **state UNUSED)
{
	struct mount_entry m;

	assert_true(parse("36 35 0:42 / /mnt/a rw,nosuid shared:1 master:2 - fuse.threadfs "
			  "embedded: rw,user_id=1000,group_id=100\n",
			  &m));
	assert_int_equal(m.id, 36);
	assert_string_equal(m.point, "/mnt/a");
	assert_string_equal(m.type, "fuse.threadfs");
	assert_string_equal(m.source, "embedded:");
	assert_int_equal(m.owner, 1000);
	assert_true(mount_entry_is_ours(&m));

	assert_true(parse("1 1 8:1 / / rw - ext4 /dev/sda1 rw,errors=remount-ro\n", &m));
	assert_string_equal(m.point, "/");
	assert_int_equal(m.owner, (uid_t)-1);
	assert_false(mount_entry_is_ours(&m));
	assert_false(mount_entry_is_ours(NULL));

	/* Blank, tab, newline, backslash and '#'; what only looks like one of them stays. */
	assert_true(parse("9 1 0:1 / /a\\040b\\011c\\012d\\134040\\043\\9\\04 rw - fuse.threadfs "
			  "x\\040y rw\n",
			  &m));
	assert_string_equal(m.point, "/a b\tc\nd\\040#\\9\\04");
	assert_string_equal(m.source, "x y");

	assert_true(parse("9 1 0:1 / /a rw - tmpfs  rw\n", &m)); /* no source */
	assert_string_equal(m.source, "");
}

static void test_broken_lines(void **state UNUSED)
{
	static const char good[] = "36 35 0:42 / /mnt rw x:1 - fuse.threadfs embedded: rw";
	struct mount_entry m = { .id = -7 };
	char cut[sizeof(good)];

	for (size_t len = 0; len + strlen(" rw") < strlen(good); len++) {
		memcpy(cut, good, len);
		cut[len] = '\0';
		assert_false(parse(cut, &m));
	}
	assert_false(parse("\n", &m));
	assert_false(parse("x 35 0:42 / /mnt rw - t s rw\n", &m));
	assert_false(parse("36 35 0:42 /  rw - t s rw\n", &m)); /* mounted nowhere */
	assert_int_equal(m.id, -7);
}

static char root[] = "/", agents[] = "/srv/agents", inner[] = "/srv/agents/threads/a";
static char ours[] = MOUNTS_TYPE, other[] = "ext4";

static void test_finding(void **state UNUSED)
{
	struct mount_entry list[] = {
		{ .id = 1, .point = root, .type = other },
		{ .id = 2, .point = agents, .type = other },
		{ .id = 3, .point = agents, .type = ours },
		{ .id = 4, .point = inner, .type = other },
	};
	struct mounts m = { .list = list, .count = ARRAY_SIZE(list) };

	assert_int_equal(mounts_at(&m, "/srv/agents")->id, 3);
	assert_int_equal(mounts_at(&m, "/")->id, 1);
	assert_null(mounts_at(&m, "/srv"));
	assert_int_equal(mounts_around(&m, "/")->id, 1);
	assert_int_equal(mounts_around(&m, "/srv/agentsx")->id, 1);
	assert_int_equal(mounts_around(&m, "/srv/agents")->id, 3);
	assert_int_equal(mounts_around(&m, "/srv/agents/threads/b")->id, 3);
	assert_int_equal(mounts_around(&m, "/srv/agents/threads/a/x/y")->id, 4);
	assert_null(mounts_around(&m, "relative"));
	assert_int_equal(mounts_below(&m, "/srv/agents")->id, 4);
	assert_int_equal(mounts_below(&m, "/")->id, 4);
	assert_null(mounts_below(&m, "/srv/agents/threads/ab"));
	assert_null(mounts_below(&m, list[3].point));
	assert_ptr_equal(mounts_by_id(&m, 4), &list[3]);
	assert_null(mounts_by_id(&m, 5));
	m.count = 0;
	assert_null(mounts_around(&m, "/"));
}

static void test_by_device(void **state UNUSED)
{
	struct mount_entry list[] = {
		{ .id = 1, .dev = 7, .point = agents, .type = ours },
		{ .id = 2, .dev = 7, .point = inner, .type = other },
		{ .id = 3, .dev = 8, .point = agents, .type = ours },
		{ .id = 4, .dev = 7, .point = inner, .type = ours },
		{ .id = 5, .dev = 9, .point = root, .type = other },
	};
	struct mounts m = { .list = list, .count = ARRAY_SIZE(list) };

	assert_ptr_equal(mounts_of(&m, 7, NULL), &list[3]);
	assert_ptr_equal(mounts_of(&m, 7, &list[3]), &list[0]);
	assert_null(mounts_of(&m, 7, &list[0]));
	assert_ptr_equal(mounts_of(&m, 8, NULL), &list[2]);
	assert_null(mounts_of(&m, 9, NULL));
	assert_null(mounts_of(&m, 0, NULL));
}

static void test_this_machine(void **state UNUSED)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };

	assert_int_equal(mounts_read(&m), 0);
	assert_non_null(mounts_at(&m, "/proc"));
	assert_string_equal(mounts_around(&m, "/proc/self/status")->type, "proc");
	assert_false(mounts_is_ours("/proc"));
	assert_false(mounts_is_ours("/nowhere"));
}

static void resolves(const char *path, const char *to)
{
	struct mounts none = { 0 };
	char *whole CLEANUP_FREE = NULL;

	assert_int_equal(mounts_resolve(&none, path, &whole), 0);
	assert_string_equal(whole, to);
}

static void test_resolving(void **state UNUSED)
{
	char scratch[SCRATCH_MAX], path[2 * SCRATCH_MAX], link[2 * SCRATCH_MAX];
	struct mount_entry list[1] = { { .id = 1, .type = ours } };
	struct mounts m = { .list = list, .count = 1 };
	char *dir CLEANUP_FREE = NULL, *before CLEANUP_FREE = getcwd(NULL, 0);
	char *whole CLEANUP_FREE = NULL;

	assert_true(scratch_dir(scratch));
	dir = realpath(scratch, NULL);
	snprintf(path, sizeof(path), "%s/a", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(symlink("a", link), 0);
	assert_int_equal(chdir(path), 0);
	resolves(path, path);
	resolves(link, path);
	resolves(".", path);
	resolves("./", path);
	resolves("..//a///", path);
	resolves("../link/.", path);
	resolves("/", "/");
	resolves("//", "/");
	resolves("/proc", "/proc");
	/* A mount point is not looked at: here it does not even exist. */
	snprintf(link, sizeof(link), "%s/gone", dir);
	list[0].point = link;
	assert_int_equal(mounts_resolve(&m, "../missing/x", &whole), -ENOENT);
	assert_int_equal(mounts_resolve(&m, "", &whole), -ENOENT);
	assert_int_equal(mounts_resolve(&m, "../link/../gone/", &whole), 0);
	assert_string_equal(whole, link);

	assert_int_equal(chdir(before), 0);
	assert_true(scratch_remove(scratch));
}

static void test_help(void **state UNUSED)
{
	static const char *const commands[] = {
		NULL, "mount", "unmount", "status", "exec", "help"
	};

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		struct buf page CLEANUP_BUF = BUF_INIT(0);
		size_t column = 0;

		assert_true(help_page(commands[i], &page));
		assert_ptr_equal(strstr(page.data, "usage: threadfs "), page.data);
		assert_non_null(strstr(page.data, "\nexample:\n  "));
		for (size_t c = 0; c < page.len; c++) {
			column = page.data[c] == '\n' ? 0 : column + 1;
			if (column > 80)
				fail_msg("too wide: %.*s", 80, page.data + c - 80);
		}
		assert_int_equal(column, 0);
	}
	assert_string_equal(help_nearest("umount"), "unmount");
	assert_string_equal(help_nearest("stat"), "status");
	assert_string_equal(help_nearest("moutn"), "mount");
	assert_null(help_nearest("xyzzy"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),        cmocka_unit_test(test_broken_lines),
		cmocka_unit_test(test_finding),      cmocka_unit_test(test_by_device),
		cmocka_unit_test(test_this_machine), cmocka_unit_test(test_resolving),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

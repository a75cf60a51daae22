/* provider/paths.c: the thread's directories, and that no link leads out of the data root. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "paths.h"

struct room {
	char dir[SCRATCH_MAX];
	char data[SCRATCH_MAX + 16]; /* not there yet */
	mode_t umask;
};

static int setup(void **state)
{
	struct room *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	assert_true(scratch_dir(r->dir));
	snprintf(r->data, sizeof(r->data), "%s/data", r->dir);
	r->umask = umask(027);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct room *r = *state;
	bool ok = scratch_remove(r->dir);

	umask(r->umask);
	free(r);
	return ok ? 0 : -1;
}

/* dir + "/" + name; valid until the fourth next call. */
static const char *in(const char *dir, const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *to = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(to, sizeof(paths[0]), "%s/%s", dir, name);
	return to;
}

static int mode_of(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 ? -errno : (int)(st.st_mode & 07777);
}

static bool is_dir(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void put(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	close(fd);
}

static unsigned count(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* ---- making ---- */

static void test_names(void **state UNUSED)
{
	char *p = paths_thread_dir("/d", "u", "t");

	assert_string_equal(p, "/d/users/u/threads/t");
	free(p);
	p = paths_user_data("/d", "u", "t");
	assert_string_equal(p, "/d/users/u/threads/t/user-data");
	free(p);
}

/* From before deer-flow knew users: the user default's, until there is another one. */
static void test_threads_of_the_old_layout(void **state)
{
	struct room *r = *state;
	char *t, *old;

	assert_int_equal(mkdir(r->data, 0700), 0);
	assert_int_equal(mkdir(in(r->data, "threads"), 0755), 0);
	assert_int_equal(mkdir(in(r->data, "threads/t"), 0755), 0);
	t = paths_thread_dir(r->data, "default", "t");
	old = strdup(in(r->data, "threads/t"));
	assert_string_equal(t, old);
	free(t);
	assert_int_equal(paths_make_thread(r->data, "default", "t"), 0);
	assert_true(is_dir(in(old, "user-data/outputs")));
	assert_false(is_dir(in(r->data, "users")));
	t = paths_user_data(r->data, "default", "t");
	assert_string_equal(t, in(old, "user-data"));
	free(t);
	/* nobody else's, and no other thread's */
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_true(is_dir(in(r->data, "users/u/threads/t")));
	assert_int_equal(paths_make_thread(r->data, "default", "t2"), 0);
	assert_true(is_dir(in(r->data, "users/default/threads/t2")));
	assert_int_equal(paths_remove_thread(r->data, "default", "t"), 0);
	assert_false(is_dir(old));
	/* the new place wins */
	assert_int_equal(mkdir(old, 0755), 0);
	assert_int_equal(mkdir(in(r->data, "users/default/threads/t"), 0755), 0);
	t = paths_thread_dir(r->data, "default", "t");
	assert_string_equal(t, in(r->data, "users/default/threads/t"));
	free(t);
	free(old);
}

static void test_ensure_thread_dirs_creates_acp_workspace(void **state)
{
	struct room *r = *state;
	char *t = paths_thread_dir(r->data, "u", "t");

	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_true(is_dir(in(t, "acp-workspace")));
	assert_true(is_dir(in(t, "user-data/workspace")));
	assert_true(is_dir(in(t, "user-data/uploads")));
	assert_true(is_dir(in(t, "user-data/outputs")));
	assert_int_equal(count(t), 2);
	assert_int_equal(count(in(t, "user-data")), 3);
	assert_int_equal(mode_of(r->data), 0700);
	free(t);
}

static void test_ensure_thread_dirs_acp_workspace_is_world_writable(void **state)
{
	struct room *r = *state;
	char *t = paths_thread_dir(r->data, "u", "t");

	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_int_equal(mode_of(in(t, "acp-workspace")), 0777);
	assert_int_equal(mode_of(in(t, "user-data")), 0777);
	assert_int_equal(mode_of(in(t, "user-data/workspace")), 0777);
	assert_int_equal(mode_of(in(t, "user-data/uploads")), 0777);
	assert_int_equal(mode_of(in(t, "user-data/outputs")), 0777);
	/* what only leads there is not */
	assert_int_equal(mode_of(t) & 022, 0);
	assert_int_equal(mode_of(in(r->data, "users")) & 022, 0);
	assert_int_equal(mode_of(in(r->data, "users/u/threads")) & 022, 0);
	free(t);
}

static void test_making_again_keeps_content_and_mends(void **state)
{
	struct room *r = *state;
	char *t = paths_thread_dir(r->data, "u", "t");

	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	put(in(t, "user-data/outputs/report"));
	assert_int_equal(rmdir(in(t, "user-data/uploads")), 0);
	assert_int_equal(chmod(in(t, "user-data/outputs"), 0700), 0);
	assert_int_equal(chmod(r->data, 0755), 0);
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_int_equal(access(in(t, "user-data/outputs/report"), F_OK), 0);
	assert_true(is_dir(in(t, "user-data/uploads")));
	assert_int_equal(mode_of(in(t, "user-data/outputs")), 0777);
	assert_int_equal(mode_of(r->data), 0755); /* not ours: it was there */
	free(t);
}

static void test_data_root_may_be_a_link(void **state)
{
	struct room *r = *state;

	assert_int_equal(mkdir(in(r->dir, "real"), 0700), 0);
	assert_int_equal(symlink("real", r->data), 0);
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_true(is_dir(in(r->dir, "real/users/u/threads/t/user-data/workspace")));
	assert_int_equal(paths_is_empty(r->data, "u", "t"), 0);
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), 0);
}

/* A link in place of each directory in turn, to where a sandbox would like us to go. */
static void test_links_are_not_followed(void **state)
{
	static const char *const names[] = {
		"users",
		"users/u",
		"users/u/threads",
		"users/u/threads/t",
		"users/u/threads/t/user-data",
		"users/u/threads/t/user-data/workspace",
		"users/u/threads/t/user-data/uploads",
		"users/u/threads/t/user-data/outputs",
		"users/u/threads/t/acp-workspace",
	};
	struct room *r = *state;
	const char *trap;

	trap = strdup(in(r->dir, "trap"));
	assert_int_equal(mkdir(trap, 0700), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		/* Commands may put links there: they are left alone, and are no reason to fail. */
		bool inside = strstr(names[i], "user-data/");
		int made = inside ? 0 : -ELOOP, held = inside ? -ENOTEMPTY : -ELOOP;

		assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
		assert_int_equal(rename(in(r->data, names[i]), in(r->dir, "aside")), 0);
		assert_int_equal(symlink(trap, in(r->data, names[i])), 0);
		assert_int_equal(paths_make_thread(r->data, "u", "t"), made);
		assert_int_equal(paths_make_thread_to_bind(r->data, "u", "t"), -ELOOP);
		assert_int_equal(paths_is_empty(r->data, "u", "t"), held);
		assert_int_equal(paths_remove_thread(r->data, "u", "t"), held);
		assert_int_equal(count(trap), 0);
		assert_int_equal(mode_of(trap), 0700);
		/* nor one that leads nowhere: nothing is made there */
		assert_int_equal(unlink(in(r->data, names[i])), 0);
		assert_int_equal(symlink(in(trap, "new"), in(r->data, names[i])), 0);
		assert_int_equal(paths_make_thread(r->data, "u", "t"), made);
		assert_int_equal(paths_make_thread_to_bind(r->data, "u", "t"), -ELOOP);
		assert_int_equal(count(trap), 0);
		assert_true(scratch_remove(r->data));
		assert_true(scratch_remove(in(r->dir, "aside")));
	}
	free((void *)trap);
}

static void test_a_file_in_the_way_is_said(void **state)
{
	struct room *r = *state;

	assert_int_equal(paths_make(in(r->data, "users/u/threads/t"), 0755), 0);
	put(in(r->data, "users/u/threads/t/user-data"));
	assert_int_equal(paths_make_thread(r->data, "u", "t"), -ENOTDIR);
	assert_int_equal(unlink(in(r->data, "users/u/threads/t/user-data")), 0);
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	/* ... but what is a command's is its own. */
	assert_int_equal(rmdir(in(r->data, "users/u/threads/t/user-data/outputs")), 0);
	put(in(r->data, "users/u/threads/t/user-data/outputs"));
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_int_equal(paths_make_thread_to_bind(r->data, "u", "t"), -ENOTDIR);
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), -ENOTEMPTY);
}

/* ---- removing ---- */

static void test_what_is_empty_is_removed(void **state)
{
	struct room *r = *state;

	assert_int_equal(paths_is_empty(r->data, "u", "t"), -ENOENT);
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), -ENOENT);
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	assert_int_equal(paths_make_thread(r->data, "u", "t2"), 0);
	assert_int_equal(paths_is_empty(r->data, "u", "t"), 0);
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), 0);
	assert_false(is_dir(in(r->data, "users/u/threads/t")));
	assert_true(is_dir(in(r->data, "users/u/threads/t2/user-data/outputs")));
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), -ENOENT);
	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
}

static void test_half_of_them_is_removed_too(void **state)
{
	struct room *r = *state;

	assert_int_equal(paths_make(in(r->data, "users/u/threads/t/user-data/uploads"), 0755), 0);
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), 0);
	assert_int_equal(paths_make(in(r->data, "users/u/threads/t"), 0755), 0);
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), 0);
	assert_false(is_dir(in(r->data, "users/u/threads/t")));
}

static void test_content_anywhere_keeps_everything(void **state)
{
	static const char *const names[] = {
		"user-data/workspace/x",
		"user-data/uploads/.hidden",
		"user-data/outputs/x",
		"user-data/x",
		"acp-workspace/x",
		"x",
		"workspace",
	};
	struct room *r = *state;
	char *t = paths_thread_dir(r->data, "u", "t");

	assert_int_equal(paths_make_thread(r->data, "u", "t"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		put(in(t, names[i]));
		assert_int_equal(paths_is_empty(r->data, "u", "t"), -ENOTEMPTY);
		assert_int_equal(paths_remove_thread(r->data, "u", "t"), -ENOTEMPTY);
		assert_int_equal(access(in(t, names[i]), F_OK), 0);
		assert_int_equal(unlink(in(t, names[i])), 0);
		assert_true(is_dir(in(t, "user-data/workspace")));
		assert_true(is_dir(in(t, "user-data/uploads")));
		assert_true(is_dir(in(t, "user-data/outputs")));
		assert_true(is_dir(in(t, "acp-workspace")));
	}
	assert_int_equal(paths_remove_thread(r->data, "u", "t"), 0);
	free(t);
}

/* ---- mkdir -p and the runtime directory ---- */

static void test_make(void **state)
{
	struct room *r = *state;

	assert_int_equal(paths_make(in(r->dir, "a//b/c/"), 0700), 0);
	assert_int_equal(mode_of(in(r->dir, "a")), 0700);
	assert_int_equal(mode_of(in(r->dir, "a/b/c")), 0700);
	assert_int_equal(paths_make(in(r->dir, "a/b/c"), 0700), 0);
	assert_int_equal(paths_make("/", 0700), 0);
	put(in(r->dir, "file"));
	assert_int_equal(paths_make(in(r->dir, "file"), 0700), -ENOTDIR);
	assert_int_equal(paths_make(in(r->dir, "file/x"), 0700), -ENOTDIR);
}

static void test_runtime_directory_is_ours_alone(void **state)
{
	struct room *r = *state;
	char *old = getenv("XDG_RUNTIME_DIR") ? strdup(getenv("XDG_RUNTIME_DIR")) : NULL;
	char *path = NULL;

	assert_int_equal(setenv("XDG_RUNTIME_DIR", r->dir, 1), 0);
	assert_int_equal(paths_runtime(&path), 0);
	assert_string_equal(path, in(r->dir, "threadfs"));
	assert_int_equal(mode_of(path), 0700);
	assert_int_equal(chmod(path, 0755), 0);
	free(STEAL(path));
	assert_int_equal(paths_runtime(&path), 0);
	assert_int_equal(mode_of(path), 0700);
	/* somebody else's, if we can play them */
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 12345, 12345), 0);
		free(STEAL(path));
		assert_int_equal(paths_runtime(&path), -EPERM);
		assert_null(path);
	}
	free(STEAL(path));
	/* a link is a way to make us write elsewhere */
	assert_int_equal(rmdir(in(r->dir, "threadfs")), 0);
	assert_int_equal(mkdir(in(r->dir, "other"), 0755), 0);
	assert_int_equal(symlink("other", in(r->dir, "threadfs")), 0);
	assert_int_equal(paths_runtime(&path), -ELOOP);
	assert_null(path);
	assert_int_equal(mode_of(in(r->dir, "other")), 0755 & ~027);
	if (old)
		setenv("XDG_RUNTIME_DIR", old, 1);
	else
		unsetenv("XDG_RUNTIME_DIR");
	free(old);
}

/* For a child: as another user, who was left with our XDG_RUNTIME_DIR. 0 if it is not used. */
static int runtime_as(uid_t uid)
{
	char want[64], *path = NULL;
	int r;

	if (setresuid(uid, uid, uid) < 0)
		return 2;
	snprintf(want, sizeof(want), "/tmp/threadfs-%u", (unsigned)uid);
	r = paths_runtime(&path) == 0 && strcmp(path, want) == 0 && rmdir(path) == 0 ? 0 : 1;
	free(path);
	return r;
}

static void test_another_users_runtime_directory_is_not_used(void **state)
{
	struct room *r = *state;
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(r->dir, 0777), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(setenv("XDG_RUNTIME_DIR", r->dir, 1) == 0 ? runtime_as(4000000001) : 3);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(in(r->dir, "threadfs"), F_OK), -1);
}

/* Where others may rename what is ours, and take its name. */
static void test_a_runtime_directory_that_others_write_to_is_not_used(void **state)
{
	struct room *r = *state;
	char *path = NULL;
	int failed;

	if (geteuid() != 0)
		skip(); /* it would be /tmp/threadfs-UID, which may be in use */
	setenv("XDG_RUNTIME_DIR", r->dir, 1);
	assert_int_equal(chmod(r->dir, 0777), 0);
	failed = paths_runtime(&path);
	unsetenv("XDG_RUNTIME_DIR");
	assert_true(failed || strncmp(path, r->dir, strlen(r->dir)) != 0);
	free(path);
	assert_int_equal(access(in(r->dir, "threadfs"), F_OK), -1);
}

static void test_own_directories_are_told_from_others(void **state)
{
	struct room *r = *state;
	int fd CLEANUP_FD = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(fchmod(fd, 0755), 0);
	assert_int_equal(paths_check_own(fd), 0);
	assert_int_equal(fchmod(fd, 01777), 0);
	assert_int_equal(paths_check_own(fd), -EPERM);
	assert_int_equal(fchmod(fd, 0770), 0);
	assert_int_equal(paths_check_own(fd), -EPERM);
	assert_int_equal(fchmod(fd, 0700), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(fchown(fd, 65534, 65534), 0);
	assert_int_equal(paths_check_own(fd), -EPERM);
}

#define PATHS_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		PATHS_TEST(test_threads_of_the_old_layout),
		PATHS_TEST(test_ensure_thread_dirs_creates_acp_workspace),
		PATHS_TEST(test_ensure_thread_dirs_acp_workspace_is_world_writable),
		PATHS_TEST(test_making_again_keeps_content_and_mends),
		PATHS_TEST(test_data_root_may_be_a_link),
		PATHS_TEST(test_links_are_not_followed),
		PATHS_TEST(test_a_file_in_the_way_is_said),
		PATHS_TEST(test_what_is_empty_is_removed),
		PATHS_TEST(test_half_of_them_is_removed_too),
		PATHS_TEST(test_content_anywhere_keeps_everything),
		PATHS_TEST(test_make),
		PATHS_TEST(test_runtime_directory_is_ours_alone),
		PATHS_TEST(test_another_users_runtime_directory_is_not_used),
		PATHS_TEST(test_a_runtime_directory_that_others_write_to_is_not_used),
		PATHS_TEST(test_own_directories_are_told_from_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

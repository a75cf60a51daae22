/* provider/filelock.c: one holder at a time, also when files are removed and holders killed. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "filelock.h"

enum { PROCESSES = 4, ROUNDS = 1000 };

struct room {
	char dir[SCRATCH_MAX];
	char path[SCRATCH_MAX + 16], count[SCRATCH_MAX + 16], inside[SCRATCH_MAX + 16];
};

static int setup(void **state)
{
	struct room *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	assert_true(scratch_dir(r->dir));
	snprintf(r->path, sizeof(r->path), "%s/lock", r->dir);
	snprintf(r->count, sizeof(r->count), "%s/count", r->dir);
	snprintf(r->inside, sizeof(r->inside), "%s/inside", r->dir);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct room *r = *state;
	bool ok = scratch_remove(r->dir);

	free(r);
	return ok ? 0 : -1;
}

/* A lock on a file that has no name, or another's, keeps nobody out. */
static bool is_real(const struct room *r, int fd)
{
	struct stat ours, named;

	return fstat(fd, &ours) == 0 && stat(r->path, &named) == 0 && ours.st_ino == named.st_ino;
}

/* In place of the C library's, so that others can come between an open and its lock. */
static void (*in_between)(const struct room *r);
static const struct room *in_between_room;

int flock(int fd, int operation)
{
	if (in_between)
		in_between(in_between_room);
	return (int)syscall(SYS_flock, fd, operation);
}

static void test_two_open_files_conflict(void **state)
{
	struct room *r = *state;
	struct stat st;
	int a = filelock_try(r->path, true), b;

	assert_true(a >= 0);
	assert_int_equal(stat(r->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(fcntl(a, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	assert_int_equal(filelock_try(r->path, false), -EAGAIN);
	assert_int_equal(filelock_try_existing(r->path, false), -EAGAIN);
	close(a);
	a = filelock_try(r->path, false);
	b = filelock_try_existing(r->path, false);
	assert_true(a >= 0 && b >= 0);
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	close(a);
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	close(b);
	a = filelock_try(r->path, true);
	assert_true(a >= 0);
	close(a);
}

static void test_existing_makes_none(void **state)
{
	struct room *r = *state;

	assert_int_equal(filelock_try_existing(r->path, true), -ENOENT);
	assert_int_equal(access(r->path, F_OK), -1);
}

static void test_links_and_directories_are_refused(void **state)
{
	struct room *r = *state;

	assert_int_equal(symlink(r->count, r->path), 0);
	assert_int_equal(filelock_try(r->path, true), -ELOOP);
	assert_int_equal(filelock_try_existing(r->path, true), -ELOOP);
	assert_int_equal(access(r->count, F_OK), -1);
	assert_int_equal(filelock_try(r->dir, true), -EISDIR);
}

static void test_change(void **state)
{
	struct room *r = *state;
	int a = filelock_try(r->path, false), b;

	assert_true(a >= 0);
	assert_int_equal(filelock_change(a, false), 0);
	assert_int_equal(filelock_change(a, true), 0);
	assert_int_equal(filelock_try(r->path, false), -EAGAIN);
	assert_int_equal(filelock_change(a, false), 0);
	b = filelock_try(r->path, false);
	assert_true(b >= 0);
	/* in vain, and the one that we had is kept */
	assert_int_equal(filelock_change(a, true), -EAGAIN);
	close(b);
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	assert_int_equal(filelock_change(a, true), 0);
	close(a);
}

/* Somebody else got it exclusively while we changed: as if we had lost it on the way. */
static void test_change_tells_of_a_lost_lock(void **state)
{
	struct room *r = *state;
	int a, b;

	a = filelock_try(r->path, true);
	b = open(r->path, O_RDWR | O_CLOEXEC);
	assert_true(a >= 0 && b >= 0);
	assert_int_equal(filelock_change(b, true), -ENOLCK);
	assert_int_equal(filelock_change(b, false), -ENOLCK);
	/* they even removed the file */
	filelock_remove(r->path, a);
	assert_int_equal(filelock_change(b, false), -ENOLCK);
	close(b);
}

static void test_removed_files_are_not_held(void **state)
{
	struct room *r = *state;
	int a = filelock_try(r->path, true), b, c;

	assert_true(a >= 0);
	b = open(r->path, O_RDWR | O_CLOEXEC); /* somebody in the middle of a try */
	assert_true(b >= 0);
	filelock_remove(r->path, a);
	assert_int_equal(fcntl(a, F_GETFD), -1);
	assert_int_equal(access(r->path, F_OK), -1);
	assert_int_equal(filelock_try_existing(r->path, true), -ENOENT);
	c = filelock_try(r->path, true);
	assert_true(c >= 0);
	/* the one in the middle does not remove what is not his */
	filelock_remove(r->path, b);
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	filelock_remove(r->path, c);
	assert_int_equal(access(r->path, F_OK), -1);
}

static unsigned removals;

static void remove_once(const struct room *r)
{
	if (removals++ == 0)
		unlink(r->path);
}

static void remove_always(const struct room *r)
{
	removals++;
	unlink(r->path);
}

static int others; /* descriptor of the one who was faster */

static void replace_and_keep(const struct room *r)
{
	in_between = NULL;
	unlink(r->path);
	others = filelock_try(r->path, true);
}

static void test_removal_between_open_and_lock_is_noticed(void **state)
{
	struct room *r = *state;
	int fd;

	in_between_room = r;
	removals = 0;
	in_between = remove_once;
	fd = filelock_try(r->path, true);
	assert_true(fd >= 0);
	assert_true(is_real(r, fd));
	assert_true(removals >= 2);
	close(fd);

	removals = 0;
	fd = filelock_try_existing(r->path, true);
	assert_int_equal(fd, -ENOENT);

	/* also if somebody does so without an end: it does not wait */
	in_between = remove_always;
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	assert_true(removals < 1000);

	in_between = replace_and_keep;
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	assert_true(is_real(r, others));
	close(others);
	in_between = NULL;
}

/* ---- several processes ---- */

static void test_a_killed_process_holds_nothing(void **state)
{
	struct room *r = *state;
	int ready[2], fd, status;
	char c;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fd = filelock_try(r->path, true);
		if (fd < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	assert_int_equal(filelock_try(r->path, true), -EAGAIN);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	fd = filelock_try_existing(r->path, true);
	assert_true(fd >= 0);
	close(fd);
}

/* A counter that only survives if nobody else is inside. Says what went wrong by a number. */
static int count_one(const struct room *r)
{
	int mark = open(r->inside, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	int fd = open(r->count, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	long n = 0;
	int ok;

	if (mark < 0 || fd < 0)
		return 10;
	if (pread(fd, &n, sizeof(n), 0) < 0)
		return 11;
	sched_yield();
	n++;
	ok = pwrite(fd, &n, sizeof(n), 0) == sizeof(n);
	close(fd);
	close(mark);
	if (unlink(r->inside) < 0)
		return 12;
	return ok ? 0 : 13;
}

static int compete(const struct room *r, unsigned seed)
{
	for (unsigned i = 0; i < ROUNDS;) {
		bool shared_first = rand_r(&seed) % 4 == 0;
		int fd = filelock_try(r->path, !shared_first), n;

		if (fd == -EAGAIN) {
			sched_yield();
			continue;
		}
		if (fd < 0)
			return 1;
		if (shared_first) {
			n = filelock_change(fd, true);
			if (n < 0) {
				close(fd);
				if (n != -EAGAIN && n != -ENOLCK)
					return 2;
				sched_yield();
				continue;
			}
		}
		if (!is_real(r, fd))
			return 3;
		n = count_one(r);
		if (n)
			return n;
		i++;
		if (rand_r(&seed) % 4)
			filelock_remove(r->path, fd);
		else
			close(fd);
	}
	return 0;
}

static void test_never_two_holders(void **state)
{
	struct room *r = *state;
	pid_t pids[PROCESSES];
	long n = 0;
	int fd, status;

	for (unsigned i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0) {
			alarm(50);
			_exit(compete(r, i + 1));
		}
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	fd = open(r->count, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	close(fd);
	assert_int_equal(n, PROCESSES * ROUNDS);
}

#define LOCK_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCK_TEST(test_two_open_files_conflict),
		LOCK_TEST(test_existing_makes_none),
		LOCK_TEST(test_links_and_directories_are_refused),
		LOCK_TEST(test_change),
		LOCK_TEST(test_change_tells_of_a_lost_lock),
		LOCK_TEST(test_removed_files_are_not_held),
		LOCK_TEST(test_removal_between_open_and_lock_is_noticed),
		LOCK_TEST(test_a_killed_process_holds_nothing),
		LOCK_TEST(test_never_two_holders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

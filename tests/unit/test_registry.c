/* provider/registry.c: what is added is there, whole, whatever happens to those who add. */
#include <dirent.h>
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "../lib/scratch.h"
#include "clock.h"
#include "io.h"
#include "registry.h"

enum { CRASHES = 50, PROCESSES = 4, EACH = 40 };

struct room {
	char dir[SCRATCH_MAX];
	char data[SCRATCH_MAX + 16];
};

static int setup(void **state)
{
	struct room *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	assert_true(scratch_dir(r->dir));
	snprintf(r->data, sizeof(r->data), "%s/data", r->dir);
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

/* ---- looking ---- */

enum { SEEN_MAX = 4096 };
struct seen {
	unsigned n, bad;
	bool numbers[SEEN_MAX]; /* threads "t0", "t1", … */
	char last_thread[80], last_backend[80];
	double last_created;
};

static int note(void *ctx, const struct registry_entry *e)
{
	struct seen *s = ctx;
	unsigned number;

	s->n++;
	if (strcmp(e->user, "u") != 0 || !e->backend || !e->thread)
		s->bad++;
	if (sscanf(e->thread, "t%u", &number) == 1 && number < SEEN_MAX) {
		if (s->numbers[number])
			s->bad++;
		s->numbers[number] = true;
	}
	snprintf(s->last_thread, sizeof(s->last_thread), "%s", e->thread);
	snprintf(s->last_backend, sizeof(s->last_backend), "%s", e->backend);
	s->last_created = e->created;
	return 0;
}

static struct seen look(const struct room *r)
{
	struct seen s = { 0 };

	assert_int_equal(registry_read(r->data, "u", note, &s), 0);
	assert_int_equal(s.bad, 0);
	return s;
}

static const char *file(const struct room *r, const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/registry/u/%s", r->data, name);
	return path;
}

static unsigned count_files(const struct room *r, const char *suffix)
{
	DIR *d = opendir(file(r, "."));
	const struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name), end = strlen(suffix);

		n += len > end && strcmp(e->d_name + len - end, suffix) == 0;
	}
	closedir(d);
	return n;
}

static void put(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, len), 0);
	close(fd);
}

/* ---- one process ---- */

static void test_an_added_thread_is_known(void **state)
{
	struct room *r = *state;
	struct seen s = look(r); /* without any directory */
	double before = clock_wall();
	struct stat st;

	assert_int_equal(s.n, 0);
	assert_int_equal(registry_add(r->data, "u", "Thread-1", "embedded"), 0);
	s = look(r);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.last_thread, "Thread-1");
	assert_string_equal(s.last_backend, "embedded");
	assert_true(s.last_created >= before - 1 && s.last_created <= clock_wall() + 1);
	assert_int_equal(stat(file(r, "Thread-1.json"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(count_files(r, ".tmp"), 0);
}

static void test_users_do_not_see_each_other(void **state)
{
	struct room *r = *state;

	assert_int_equal(registry_add(r->data, "other", "t", ""), 0);
	assert_int_equal(look(r).n, 0);
	assert_int_equal(registry_add(r->data, "u", "t", ""), 0);
	assert_int_equal(registry_remove(r->data, "other", "t"), 0);
	assert_int_equal(look(r).n, 1);
}

static void test_an_entry_stays_as_it_is(void **state)
{
	struct room *r = *state;
	double created;
	struct seen s;

	assert_int_equal(registry_add(r->data, "u", "t", "embedded"), 0);
	created = look(r).last_created;
	assert_int_equal(registry_add(r->data, "u", "t", "url"), 0);
	s = look(r);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.last_backend, "embedded");
	assert_true(s.last_created == created);
}

static void test_removal(void **state)
{
	struct room *r = *state;

	assert_int_equal(registry_remove(r->data, "u", "t"), 0);
	assert_int_equal(registry_add(r->data, "u", "t", NULL), 0);
	assert_string_equal(look(r).last_backend, "");
	assert_int_equal(registry_remove(r->data, "u", "t2"), 0);
	assert_int_equal(look(r).n, 1);
	assert_int_equal(registry_remove(r->data, "u", "t"), 0);
	assert_int_equal(look(r).n, 0);
	assert_int_equal(registry_remove(r->data, "u", "t"), 0);
}

static int stop_at_once(void *ctx, const struct registry_entry *e UNUSED)
{
	++*(int *)ctx;
	return -EINTR;
}

static void test_the_reader_can_stop(void **state)
{
	struct room *r = *state;
	int calls = 0;

	assert_int_equal(registry_add(r->data, "u", "a", ""), 0);
	assert_int_equal(registry_add(r->data, "u", "b", ""), 0);
	assert_int_equal(registry_read(r->data, "u", stop_at_once, &calls), -EINTR);
	assert_int_equal(calls, 1);
}

static int take_all_fds(void *ctx, const struct registry_entry *e UNUSED)
{
	struct rlimit lim;

	++*(int *)ctx;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	lim.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	return 0;
}

/* A thread must not be forgotten because somebody else has used up all descriptors. */
static void test_a_shortage_is_no_damage(void **state)
{
	struct room *r = *state;
	struct rlimit lim;
	int calls = 0, n;

	assert_int_equal(registry_add(r->data, "u", "a", ""), 0);
	assert_int_equal(registry_add(r->data, "u", "b", ""), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	n = registry_read(r->data, "u", take_all_fds, &calls);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	assert_int_equal(n, -EMFILE);
	assert_int_equal(calls, 1);
	assert_int_equal(look(r).n, 2);
}

/* ---- damage ---- */

static void test_damaged_files_are_skipped_and_mended(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"null",
		"[]",
		"\"t\"",
		"{}",
		"{\"user\":\"u\"}",
		"{\"user\":\"u\",\"thread\":\"other\",\"backend\":\"\",\"created\":1}",
		"{\"user\":\"v\",\"thread\":\"t\",\"backend\":\"\",\"created\":1}",
		"{\"user\":\"u\",\"thread\":\"t\\u0000x\",\"backend\":\"\",\"created\":1}",
		"{\"user\":1,\"thread\":\"t\"}",
		"{\"user\":\"u\",\"thread\":\"t\",\"backend\":\"\",\"created\":",
		"\xff\xfe",
	};
	struct room *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(registry_add(r->data, "u", "sound", "b"), 0);
		put(file(r, "t.json"), texts[i], strlen(texts[i]));
		assert_int_equal(look(r).n, 1);
		assert_int_equal(registry_add(r->data, "u", "t", "b"), 0);
		assert_int_equal(look(r).n, 2);
		assert_int_equal(registry_remove(r->data, "u", "t"), 0);
	}
}

static void test_sparse_entries_are_good_enough(void **state)
{
	static const char text[] = "{\"user\":\"u\",\"thread\":\"t\",\"more\":[1]}";
	struct room *r = *state;
	struct seen s;

	assert_int_equal(registry_add(r->data, "u", "t", "b"), 0);
	put(file(r, "t.json"), text, strlen(text));
	s = look(r);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.last_backend, "");
	assert_true(s.last_created == 0);
}

static void test_large_files_are_skipped(void **state)
{
	static const char head[] =
		"{\"user\":\"u\",\"thread\":\"t\",\"backend\":\"\",\"created\":1}";
	struct room *r = *state;
	char *text = malloc(65537);

	assert_non_null(text);
	memset(text, ' ', 65537);
	memcpy(text, head, strlen(head));
	assert_int_equal(registry_add(r->data, "u", "t", "b"), 0);
	put(file(r, "t.json"), text, 65536);
	assert_int_equal(look(r).n, 1);
	put(file(r, "t.json"), text, 65537);
	assert_int_equal(look(r).n, 0);
	free(text);
}

static void test_strange_names_and_kinds_are_skipped(void **state)
{
	static const char text[] =
		"{\"user\":\"u\",\"thread\":\"x\",\"backend\":\"\",\"created\":1}";
	struct room *r = *state;

	assert_int_equal(registry_add(r->data, "u", "t", "b"), 0);
	put(file(r, "x"), text, strlen(text));
	put(file(r, ".json"), text, strlen(text));
	put(file(r, "x.json~"), text, strlen(text));
	put(file(r, "a b.json"), text, strlen(text));
	assert_int_equal(mkdir(file(r, "d.json"), 0700), 0);
	assert_int_equal(mkfifo(file(r, "f.json"), 0600), 0);
	assert_int_equal(symlink("x", file(r, "x.json")), 0);
	assert_int_equal(look(r).n, 1);
	/* a link is replaced, not followed */
	assert_int_equal(registry_add(r->data, "u", "x", "b"), 0);
	assert_int_equal(look(r).n, 2);
	assert_int_equal(registry_add(r->data, "u", "d", "b"), -EISDIR);
	assert_int_equal(count_files(r, ".tmp"), 0);
}

static void test_links_to_directories_are_not_followed(void **state)
{
	struct room *r = *state;
	char path[300];
	struct seen s = { 0 };

	assert_int_equal(registry_add(r->data, "v", "t", "b"), 0);
	snprintf(path, sizeof(path), "%s/registry/u", r->data);
	assert_int_equal(symlink("v", path), 0);
	assert_int_equal(registry_read(r->data, "u", note, &s), -ELOOP);
	assert_int_equal(registry_add(r->data, "u", "t2", "b"), -ELOOP);
	assert_int_equal(registry_remove(r->data, "u", "t"), -ELOOP);
	assert_int_equal(s.n, 0);
}

static void test_leftovers_are_removed_unless_somebody_writes_them(void **state)
{
	struct room *r = *state;
	int fd;

	assert_int_equal(registry_add(r->data, "u", "a", "b"), 0);
	put(file(r, ".left.tmp"), "{", 1);
	put(file(r, ".busy.tmp"), "{", 1);
	fd = open(file(r, ".busy.tmp"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(look(r).n, 1);
	assert_int_equal(count_files(r, ".tmp"), 2);
	assert_int_equal(registry_add(r->data, "u", "a", "b"), 0);
	assert_int_equal(access(file(r, ".left.tmp"), F_OK), -1);
	assert_int_equal(access(file(r, ".busy.tmp"), F_OK), 0);
	close(fd);
	assert_int_equal(registry_add(r->data, "u", "c", "b"), 0);
	assert_int_equal(count_files(r, ".tmp"), 0);
}

/* ---- several processes ---- */

/* For ever: adds "t<from>", "t<from + 1>", … and says how far it is. */
static void add_on(const struct room *r, unsigned from, volatile unsigned *done)
{
	char name[32], backend[2000];

	memset(backend, 'b', sizeof(backend) - 1);
	backend[sizeof(backend) - 1] = '\0';
	for (unsigned i = from;; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		if (registry_add(r->data, "u", name, backend) < 0)
			_exit(1);
		*done = i + 1;
	}
}

static void test_killed_while_adding_leaves_whole_entries(void **state)
{
	struct room *r = *state;
	volatile unsigned *done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned seed = (unsigned)getpid(), left = 0;

	assert_ptr_not_equal((void *)done, MAP_FAILED);
	print_message("seed %u\n", seed);
	assert_int_equal(registry_add(r->data, "u", "t0", "b"), 0); /* and the directories */
	*done = 1;
	for (unsigned i = 0; i < CRASHES; i++) {
		unsigned from = *done, until = from + (unsigned)rand_r(&seed) % 4;
		struct timespec moment = { .tv_nsec = rand_r(&seed) % 1000000 };
		struct seen s;
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (pid == 0) {
			alarm(50);
			add_on(r, from, done);
		}
		while (*done < until && waitpid(pid, &status, WNOHANG) == 0)
			sched_yield();
		nanosleep(&moment, NULL); /* to meet it anywhere within an add */
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		s = look(r);
		/* what was reported is there; the one under way is, or is not */
		for (unsigned j = 0; j < *done; j++)
			assert_true(s.numbers[j]);
		assert_true(s.n == *done || s.n == *done + 1);
		assert_int_equal(count_files(r, ".json"), s.n);
		left += count_files(r, ".tmp") > 0;
	}
	print_message("%u threads, %u crashes left something\n", *done, left);
	assert_int_equal(registry_add(r->data, "u", "last", "b"), 0);
	assert_int_equal(count_files(r, ".tmp"), 0);
	munmap((void *)done, sizeof(*done));
}

/* Everybody adds the same names and cleans up behind the others. */
static void test_processes_add_side_by_side(void **state)
{
	struct room *r = *state;
	pid_t pids[PROCESSES];
	char name[32];
	struct seen s;
	int status;

	for (unsigned i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] > 0)
			continue;
		alarm(50);
		for (unsigned j = 0; j < EACH; j++) {
			int n;

			snprintf(name, sizeof(name), "t%u", j);
			n = registry_add(r->data, "u", name, "b");
			if (n < 0)
				_exit(-n);
		}
		_exit(0);
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	s = look(r);
	assert_int_equal(s.n, EACH);
	assert_int_equal(count_files(r, ".tmp"), 0);
}

#define REGISTRY_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		REGISTRY_TEST(test_an_added_thread_is_known),
		REGISTRY_TEST(test_users_do_not_see_each_other),
		REGISTRY_TEST(test_an_entry_stays_as_it_is),
		REGISTRY_TEST(test_removal),
		REGISTRY_TEST(test_the_reader_can_stop),
		REGISTRY_TEST(test_a_shortage_is_no_damage),
		REGISTRY_TEST(test_damaged_files_are_skipped_and_mended),
		REGISTRY_TEST(test_sparse_entries_are_good_enough),
		REGISTRY_TEST(test_large_files_are_skipped),
		REGISTRY_TEST(test_strange_names_and_kinds_are_skipped),
		REGISTRY_TEST(test_links_to_directories_are_not_followed),
		REGISTRY_TEST(test_leftovers_are_removed_unless_somebody_writes_them),
		REGISTRY_TEST(test_killed_while_adding_leaves_whole_entries),
		REGISTRY_TEST(test_processes_add_side_by_side),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

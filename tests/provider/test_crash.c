/*
 * kill -9 of a program that has sandboxes, or is about to: another process
 * (provider_holder) makes them and is killed; then the rig's provider begins its
 * life on the same directories.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "other.h"
#include "registry.h"
#include "rig.h"

enum { N = 4, KILLS = 10 };

static const char *const names[N] = { "t0", "t1", "t2", "t3" };

/* The other program, with these threads. */
static struct other start_life(struct rig *r)
{
	return other_start((const char *const[]){ "life", r->data, r->runtime, names[0], names[1],
						  names[2], names[3], NULL });
}

static void get_tenants(struct rig *r, struct tenant *t[N])
{
	for (size_t i = 0; i < N; i++)
		t[i] = rig_tenant(r, names[i]);
}

static void put_tenants(struct tenant *t[N])
{
	for (size_t i = 0; i < N; i++)
		tenant_put(t[i]);
}

/* The ids do not depend on the life: those of a provider that makes nothing. */
static void get_pids(struct rig *r, struct tenant *t[N], pid_t pids[N])
{
	for (size_t i = 0; i < N; i++)
		pids[i] = rig_pid(r, tenant_id(t[i]));
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void assert_file(const char *path, const char *text)
{
	char have[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(read(fd, have, sizeof(have) - 1) >= 0);
	close(fd);
	assert_string_equal(have, text);
}

/* All at once; each answers, and each has a process of its own. */
static void acquire_all(struct rig *r, struct tenant *t[N])
{
	struct errand e[N];
	pid_t pids[N];

	for (size_t i = 0; i < N; i++) {
		call_init(&e[i].call, 60000);
		tenant_acquire(t[i], &e[i]);
	}
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_end(&e[i]), 0);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_ping(t[i]), 0);
	get_pids(r, t, pids);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(kill(pids[i], 0), 0);
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(pids[i], pids[k]);
	}
	assert_int_equal(rig_processes(r), N);
}

/* ---- with sandboxes ---- */

/* The next life has all of them, the same ones, and stops them in the end. */
static void test_killed_daemon_next_start_adopts_its_sandboxes(void **state)
{
	struct rig *r = *state;
	struct other o = start_life(r);
	pid_t before[N], after[N];
	struct tenant *t[N];

	other_wait_ready(&o);
	for (size_t i = 0; i < N; i++)
		write_file(rig_host_path(r, names[i], "workspace/f"), names[i]);
	assert_int_equal(rig_processes(r), N);
	other_end(&o, SIGKILL);
	assert_int_equal(rig_processes(r), N);

	rig_start(state, NULL);
	get_tenants(r, t);
	get_pids(r, t, before);
	for (size_t i = 0; i < N; i++) {
		assert_true(before[i] > 0);
		assert_int_equal(rig_state(t[i]), TENANT_WARM);
		assert_true(rig_is_ours(t[i]));
	}
	acquire_all(r, t);
	get_pids(r, t, after);
	assert_memory_equal(before, after, sizeof(before));
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(rig_starts(t[i]), 1);
		assert_file(rig_host_path(r, names[i], "workspace/f"), names[i]);
	}
	put_tenants(t);
	rig_end_provider(r);
	assert_int_equal(rig_processes(r), 0);
}

/* A life that goes on meanwhile finds them in its next round. */
static void test_killed_peer_leaves_its_sandboxes_to_a_live_one(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct other o = start_life(r);
	struct tenant *t[N];

	other_wait_ready(&o);
	get_tenants(r, t);
	assert_int_equal(rig_reconcile(r->provider), 0);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_state(t[i]), TENANT_COLD);
	/* One of them is used by both. */
	assert_int_equal(rig_acquire(t[0]), 0);
	assert_false(rig_is_ours(t[0]));
	other_end(&o, SIGKILL);
	assert_int_equal(rig_ping(t[0]), 0);
	assert_int_equal(rig_reconcile(r->provider), 0);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(rig_state(t[i]), i == 0 ? TENANT_ACTIVE : TENANT_WARM);
		assert_true(rig_is_ours(t[i]));
	}
	assert_int_equal(tenant_release(t[0]), 0);
	acquire_all(r, t);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	put_tenants(t);
}

/* Both the program and its sandboxes: what they left is no hindrance, the data is there. */
static void test_killed_with_its_sandboxes(void **state)
{
	struct rig *r = *state;
	struct other o = start_life(r);
	struct tenant *t[N];
	char ids[N][SANDBOX_ID_LEN + 1];

	other_wait_ready(&o);
	/* Only to learn the ids; it neither adopts nor stops what the other one uses. */
	rig_start(state, NULL);
	get_tenants(r, t);
	for (size_t i = 0; i < N; i++) {
		memcpy(ids[i], tenant_id(t[i]), sizeof(ids[i]));
		write_file(rig_host_path(r, names[i], "workspace/f"), ids[i]);
	}
	other_end(&o, SIGKILL);
	for (size_t i = 0; i < N; i++)
		rig_kill(r, t[i]);
	put_tenants(t);
	rig_end_provider(r);

	rig_restart_provider(r);
	get_tenants(r, t);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(rig_state(t[i]), TENANT_COLD);
		assert_int_equal(rig_pid(r, ids[i]), 0); /* the remains are gone */
	}
	acquire_all(r, t);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), N);
	for (size_t i = 0; i < N; i++)
		assert_file(rig_host_path(r, names[i], "workspace/f"), ids[i]);
	put_tenants(t);
}

/* ---- in the middle ---- */

/* How long the other program takes from its start to being ready. */
static int64_t measure_start_us(struct rig *r)
{
	int64_t begin = clock_ms();
	struct other o = start_life(r);

	other_wait_ready(&o);
	begin = clock_ms() - begin;
	other_end(&o, 0);
	assert_int_equal(rig_processes(r), 0);
	return MAX(begin, 1) * 1000;
}

/* The file lock of a start that was killed is nobody's, and stays until the next start. */
static void sweep_locks(struct rig *r)
{
	rig_restart_provider(r);
	for (size_t i = 0; i < N; i++) {
		struct tenant *t = rig_tenant(r, names[i]);

		assert_int_equal(rig_acquire(t), 0);
		tenant_put(t);
	}
}

/* Wherever it was killed: one sandbox per thread in the next life, none after it. */
static void test_killed_in_the_middle_of_starts(void **state)
{
	struct rig *r = *state;
	int64_t us = measure_start_us(r);
	unsigned seed = (unsigned)getpid();
	struct tenant *t[N];

	print_message("seed %u, a start takes %lld us\n", seed, (long long)us);
	for (unsigned i = 0; i < KILLS; i++) {
		struct other o = start_life(r);

		/* Not to wait for something: to be at a random place. */
		usleep((useconds_t)(rand_r(&seed) % us));
		other_end(&o, SIGKILL);
		rig_restart_provider(r);
		get_tenants(r, t);
		acquire_all(r, t);
		put_tenants(t);
		rig_end_provider(r);
		assert_int_equal(rig_processes(r), 0);
	}
	sweep_locks(r);
}

/* The same, but the next life only begins and ends: it has stopped what it found. */
static void test_killed_in_the_middle_of_starts_nothing_is_leaked(void **state)
{
	struct rig *r = *state;
	int64_t us = measure_start_us(r);
	unsigned seed = (unsigned)getpid();

	for (unsigned i = 0; i < KILLS; i++) {
		struct other o = start_life(r);

		usleep((useconds_t)(rand_r(&seed) % us));
		other_end(&o, SIGKILL);
		rig_restart_provider(r);
		assert_int_equal(rig_reconcile(r->provider), 0);
		rig_end_provider(r);
		assert_int_equal(rig_processes(r), 0);
	}
	sweep_locks(r);
}

/*
 * A program in place of threadfs-sandboxd that takes a while before it becomes it. It has no
 * children: one that is about to be another program would look like a sandbox (rig_processes()).
 */
static void write_slow_program(struct rig *r, char path[512])
{
	char text[1024], never[512];

	snprintf(never, sizeof(never), "%s/never", r->dir);
	assert_int_equal(mkfifo(never, 0600), 0);
	snprintf(path, 512, "%s/slow", r->dir);
	snprintf(text, sizeof(text), "#!/usr/bin/env bash\nread -rt 1 <>'%s'\nexec '%s' \"$@\"\n",
		 never, getenv("SANDBOXD"));
	write_file(path, text);
	assert_int_equal(chmod(path, 0700), 0);
}

/* Adopted although it does not answer yet: it is not handed out before it does. */
static void test_a_sandbox_adopted_while_it_starts_is_waited_for(void **state)
{
	struct rig *r = *state;
	char *real CLEANUP_FREE = strdup(getenv("SANDBOXD"));
	struct tenant *t[N];
	char path[512];
	struct other o;

	write_slow_program(r, path);
	setenv("SANDBOXD", path, 1);
	o = start_life(r);
	setenv("SANDBOXD", real, 1);
	for (int64_t until = clock_ms() + 20000; rig_processes(r) < N;) {
		assert_true(clock_ms() < until);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	other_end(&o, SIGKILL);
	rig_start(state, NULL);
	get_tenants(r, t);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_state(t[i]), TENANT_WARM);
	acquire_all(r, t);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(rig_starts(t[i]), 1);
	put_tenants(t);
}

/* ---- the registry ---- */

static void assert_threads(struct rig *r, const char *const *want, size_t n)
{
	char **have = NULL;
	size_t count = 0;

	assert_int_equal(provider_threads(r->provider, "u", &have, &count), 0);
	assert_int_equal(count, n);
	for (size_t i = 0; i < count; i++) {
		assert_string_equal(have[i], want[i]);
		free(have[i]);
	}
	free(have);
}

static const char *registry_path(struct rig *r, const char *thread)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/registry/u/%s.json", r->data, thread);
	return path;
}

static int count_one(void *ctx, const struct registry_entry *e)
{
	++*(unsigned *)ctx;
	return 0;
}

static unsigned count_registered(struct rig *r)
{
	unsigned n = 0;
	int e = registry_read(r->data, "u", count_one, &n);

	assert_true(e == 0 || e == -ENOENT);
	return n;
}

/* The next life knows the threads of one that was killed; damaged files are skipped. */
static void test_registry_knows_the_threads_after_a_crash(void **state)
{
	static const char *const more[] = { "ghost", "t0", "t1", "t2", "t3" };
	struct rig *r = *state;
	struct other o = start_life(r);
	struct tenant *t[N];

	other_wait_ready(&o);
	/* Written soon after, not waited for by whoever acquires. */
	for (int64_t until = clock_ms() + 20000; count_registered(r) < N;) {
		assert_true(clock_ms() < until);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	other_end(&o, SIGKILL);

	/* These have no directory: only the registry can tell. */
	assert_int_equal(registry_add(r->data, "u", "ghost", "embedded"), 0);
	write_file(registry_path(r, "broken"), "{\"user\":\"u\",\"thr");
	write_file(registry_path(r, "empty"), "");
	write_file(registry_path(r, "liar"), "{\"user\":\"u\",\"thread\":\"ghost\"}");
	write_file(registry_path(r, "t1"), "\x01\x02 not json");
	rig_start(state, NULL);
	assert_threads(r, more, 5);
	get_tenants(r, t);
	acquire_all(r, t);
	put_tenants(t);
	assert_threads(r, more, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_killed_daemon_next_start_adopts_its_sandboxes),
		RIG_TEST(test_killed_peer_leaves_its_sandboxes_to_a_live_one),
		RIG_TEST(test_killed_with_its_sandboxes),
		RIG_TEST(test_killed_in_the_middle_of_starts),
		RIG_TEST(test_killed_in_the_middle_of_starts_nothing_is_leaked),
		RIG_TEST(test_a_sandbox_adopted_while_it_starts_is_waited_for),
		RIG_TEST(test_registry_knows_the_threads_after_a_crash),
	};

	return RIG_RUN(tests);
}

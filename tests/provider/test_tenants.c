/*
 * Tenants as such: valid names, ids that collide, looking without touching,
 * forgetting a thread, and the list of those that are known.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clock.h"
#include "ident.h"
#include "registry.h"
#include "rig.h"

enum { LONG_MS = 60000 };

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* The registry is written in the background. */
static bool comes_to_exist(const char *path)
{
	for (int64_t until = clock_ms() + LONG_MS; !exists(path);) {
		if (clock_ms() > until)
			return false;
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	return true;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static unsigned all_questions(struct faulty *f)
{
	unsigned n = 0;

	for (unsigned kind = 0; kind < ASK_KINDS; kind++)
		n += faulty_count(f, kind);
	return n;
}

/* ---- names ---- */

static void test_invalid_ids_are_refused(void **state)
{
	struct rig *r = rig_start(state, NULL);
	static const char *const bad[] = { "",      ".",    "..",  "a/b",      "a b", "a.b",
					   "../up", "a\nb", "a:b", "\xc3\xa4", "/",   "a\\b" };
	struct tenant *const untouched = (struct tenant *)r;
	struct tenant *t = untouched;
	char long_thread[66], long_user[202];
	struct tenant_list list;

	memset(long_thread, 'a', 65);
	long_thread[65] = '\0';
	memset(long_user, 'a', 201);
	long_user[201] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(tenant_get(r->provider, "u", bad[i], &t), -EINVAL);
		assert_int_equal(tenant_get(r->provider, bad[i], "a", &t), -EINVAL);
	}
	assert_int_equal(tenant_get(r->provider, "u", long_thread, &t), -EINVAL);
	assert_int_equal(tenant_get(r->provider, long_user, "a", &t), -EINVAL);
	assert_ptr_equal(t, untouched);
	assert_int_equal(provider_status(r->provider, &list), 0);
	assert_int_equal(list.count, 0);
	tenant_list_release(&list);

	/* the longest that are valid, and what they are called */
	long_thread[64] = '\0';
	long_user[200] = '\0';
	t = rig_tenant_of(r->provider, long_user, long_thread);
	assert_string_equal(tenant_user(t), long_user);
	assert_string_equal(tenant_thread(t), long_thread);
	assert_int_equal(strlen(tenant_id(t)), SANDBOX_ID_LEN);
	tenant_put(t);
}

/* ---- looking ---- */

/* The client in use is known without asking anybody; looking counts as activity. */
static void test_get_uses_in_memory_registry_only(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct tenant_status s;
	struct sandbox *sb;
	unsigned before;

	assert_null(tenant_sandbox(t));
	assert_int_equal(rig_acquire(t), 0);
	rig_kill(r, t); /* get does not look whether it lives */
	for (unsigned kind = 0; kind < ASK_KINDS; kind++)
		FAULTY_ORDER(r->faults, kind, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	before = all_questions(r->faults);
	fake_clock_add(&r->clock, 12345);
	for (unsigned i = 0; i < 100; i++) {
		sb = tenant_sandbox(t);
		assert_non_null(sb);
		sandbox_put(sb);
	}
	assert_int_equal(tenant_status(t, &s), 0);
	assert_int_equal(s.used_ms, fake_clock_now(&r->clock));
	tenant_status_release(&s);
	assert_int_equal(all_questions(r->faults), before);
	faulty_clear(r->faults);
	assert_int_equal(tenant_release(t), 0);
	assert_null(tenant_sandbox(t));
	tenant_put(t);
}

/* Looking for a sandbox makes none, writes nothing and takes no lease. */
static void test_find_never_creates(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "b");
	struct tenant *b = rig_tenant(r, "b");
	char path[256];

	assert_int_equal(rig_find(t), -ENOENT);
	assert_int_equal(rig_state(t), TENANT_COLD);
	snprintf(path, sizeof(path), "%s/users/u", r->data);
	assert_false(exists(path));
	snprintf(path, sizeof(path), "%s/registry", r->data);
	assert_false(exists(path));

	/* cannot be told is not the same as no */
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_find(t), -EIO);

	/* one that runs elsewhere */
	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_find(b), 0);
	assert_int_equal(rig_leases(b), 0);
	assert_int_equal(tenant_release(b), -EINVAL);
	assert_int_equal(rig_state(b), TENANT_WARM);
	assert_false(rig_is_ours(b));
	/* and one that is in use here */
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(rig_find(b), 0);
	assert_int_equal(rig_leases(b), 1);
	assert_int_equal(faulty_count(r->faults, ASK_CREATE), 0);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(t);
	tenant_put(b);
	rig_end_provider(r);
	tenant_put(theirs);
	provider_free(peer);
}

/* One who only looks is not carried on by the one who wants it, nor the other way round. */
static void test_find_beside_an_acquire(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	struct errand find, acquire;

	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_HANG);
	rig_begin(&find, tenant_find, t);
	assert_true(faulty_wait(r->faults, ASK_DISCOVER, 1, LONG_MS));
	rig_begin(&acquire, tenant_acquire, t);
	faulty_resume(r->faults, ASK_DISCOVER);
	assert_int_equal(rig_end(&acquire), 0);
	(void)rig_end(&find); /* either is true: not there before, there since */
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

/* ---- ids that collide ---- */

static void same_id(const char *user, const char *thread, char *id)
{
	ident_make("u", strcmp(user, "u") == 0 && strcmp(thread, "other") == 0 ? "other" : "same",
		   id);
}

/* Two threads of one id: the second gets nothing rather than the first one's files. */
static void test_aio_forced_collision_never_overwrites_active_tenant(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .make_id = same_id });
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b");
	struct tenant *other = rig_tenant(r, "other");
	struct sandbox *before, *after;
	pid_t pid;

	assert_string_equal(tenant_id(a), tenant_id(b));
	assert_int_equal(rig_acquire(a), 0);
	before = tenant_sandbox(a);
	pid = rig_pid(r, tenant_id(a));

	assert_int_equal(rig_acquire(b), -EADDRINUSE);
	assert_int_equal(rig_leases(b), 0);
	assert_null(tenant_sandbox(b));
	assert_int_equal(rig_find(b), -EADDRINUSE);
	assert_int_equal(rig_destroy(b), 0);
	assert_int_equal(rig_forget(b), 0);
	assert_int_equal(rig_acquire(other), 0);
	assert_int_equal(tenant_release(other), 0);

	assert_int_equal(rig_state(a), TENANT_ACTIVE);
	assert_int_equal(rig_pid(r, tenant_id(a)), pid);
	assert_int_equal(rig_ping(a), 0);
	after = tenant_sandbox(a);
	assert_ptr_equal(before, after);
	sandbox_put(before);
	sandbox_put(after);

	/* warm, it is still a's; gone, the id is free */
	assert_int_equal(tenant_release(a), 0);
	fake_clock_add(&r->clock, LONG_MS);
	assert_int_equal(rig_acquire(b), -EADDRINUSE);
	assert_int_equal(rig_state(a), TENANT_WARM);
	assert_int_equal(rig_destroy(a), 0);
	fake_clock_add(&r->clock, LONG_MS);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(rig_acquire(a), -EADDRINUSE);
	assert_int_equal(tenant_release(b), 0);
	tenant_put(a);
	tenant_put(b);
	tenant_put(other);
}

/* The same if the other's sandbox is another program's. */
static void test_aio_forced_collision_with_a_peer(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .make_id = same_id });
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *a = rig_tenant_of(peer, "u", "a"), *b = rig_tenant(r, "b");

	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(rig_acquire(b), -EADDRINUSE);
	assert_int_equal(rig_leases(b), 0);
	assert_null(tenant_sandbox(b));
	assert_int_equal(rig_destroy(b), -EBUSY);
	assert_int_equal(rig_ping(a), 0);
	assert_int_equal(rig_processes(r), 1);
	tenant_put(b);
	tenant_put(a);
	provider_free(peer); /* is not kept from stopping it */
	assert_int_equal(rig_processes(r), 0);
}

/* ---- forgetting ---- */

static bool knows(struct rig *r, const char *user, const char *thread)
{
	char **names;
	size_t n;
	bool found = false;

	assert_int_equal(provider_threads(r->provider, user, &names, &n), 0);
	for (size_t i = 0; i < n; i++) {
		found |= strcmp(names[i], thread) == 0;
		free(names[i]);
	}
	free(names);
	return found;
}

/* What deer-flow made before it knew users is the user default's. */
static void test_threads_of_the_old_layout_are_known(void **state)
{
	struct rig *r = rig_start(state, NULL);
	char path[256];

	snprintf(path, sizeof(path), "%s/threads", r->data);
	(void)mkdir(r->data, 0700);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/threads/old", r->data);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_true(knows(r, "default", "old"));
	assert_false(knows(r, "u", "old"));
}

/* A thread that holds files stays as it is, its sandbox too. */
static void test_forget_keeps_what_holds_files(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	char entry[256];
	pid_t pid;

	snprintf(entry, sizeof(entry), "%s/registry/u/a.json", r->data);
	assert_int_equal(rig_acquire(t), 0);
	pid = rig_pid(r, tenant_id(t));
	write_file(rig_host_path(r, "a", "workspace/kept"), "precious");
	assert_int_equal(rig_forget(t), -ENOTEMPTY);
	assert_int_equal(rig_state(t), TENANT_ACTIVE);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(rig_pid(r, tenant_id(t)), pid);
	assert_int_equal(faulty_count(r->faults, ASK_DESTROY), 0);
	assert_true(exists(rig_host_path(r, "a", "workspace/kept")));
	assert_true(exists(rig_host_path(r, "a", "outputs")));
	assert_true(comes_to_exist(entry));

	/* the same of a warm one, and of a cold one */
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_forget(t), -ENOTEMPTY);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(rig_forget(t), -ENOTEMPTY);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_true(exists(rig_host_path(r, "a", "workspace/kept")));
	assert_true(exists(entry));
	assert_true(knows(r, "u", "a"));
	tenant_put(t);
}

/* An empty one is stopped, and nothing of it stays. */
static void test_forget_removes_an_empty_thread(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	char entry[256], dir[256];

	snprintf(entry, sizeof(entry), "%s/registry/u/a.json", r->data);
	snprintf(dir, sizeof(dir), "%s/users/u/threads/a", r->data);
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_ping(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_true(comes_to_exist(entry));
	assert_true(exists(dir));
	assert_int_equal(rig_forget(t), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	assert_int_equal(rig_processes(r), 0);
	assert_false(exists(dir));
	assert_false(exists(entry));
	assert_false(knows(r, "u", "a"));
	assert_int_equal(rig_forget(t), 0); /* once more does no harm */

	/* it can come back, and is known again */
	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_destroy(t), 0);
	assert_true(exists(dir));
	assert_true(comes_to_exist(entry));
	tenant_put(t);
	assert_true(knows(r, "u", "a"));
}

/* A sandbox that could not be stopped still has its files. */
static void test_forget_fails_if_it_cannot_be_stopped(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "a");

	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(rig_forget(t), -EBUSY);
	assert_true(exists(rig_host_path(r, "a", "workspace")));
	assert_true(knows(r, "u", "a"));
	assert_int_equal(rig_ping(theirs), 0);
	tenant_put(t);
	rig_end_provider(r);
	tenant_put(theirs);
	provider_free(peer);
}

/* ---- the list ---- */

/* Threads are known from memory, from the registry, or from their directory; each once. */
static void test_threads_of_a_user(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *active = rig_tenant(r, "m-active"), *cold = rig_tenant(r, "cold");
	struct tenant *others = rig_tenant_of(r->provider, "v", "theirs");
	static const char *const expected[] = { "a-directory", "m-active", "z-registered" };
	char path[256], **names;
	size_t n;

	assert_int_equal(provider_threads(r->provider, "u", &names, &n), 0);
	assert_int_equal(n, 0);
	free(names);
	assert_int_equal(rig_acquire(active), 0);
	assert_int_equal(rig_acquire(others), 0);
	assert_int_equal(registry_add(r->data, "u", "z-registered", "embedded"), 0);
	assert_int_equal(registry_add(r->data, "u", "a-directory", "embedded"), 0);
	snprintf(path, sizeof(path), "%s/users/u/threads/a-directory", r->data);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/users/u/threads/no thread", r->data);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/users/u/threads/file", r->data);
	write_file(path, "");

	assert_int_equal(provider_threads(r->provider, "u", &names, &n), 0);
	assert_int_equal(n, ARRAY_SIZE(expected));
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(names[i], expected[i]);
		free(names[i]);
	}
	free(names);
	assert_true(knows(r, "v", "theirs"));
	assert_false(knows(r, "w", "theirs"));
	assert_int_equal(provider_threads(r->provider, "../u", &names, &n), -EINVAL);
	assert_int_equal(tenant_release(active), 0);
	assert_int_equal(tenant_release(others), 0);
	tenant_put(active);
	tenant_put(cold);
	tenant_put(others);
}

/* A tenant that could not be started is known, without anything on disk. */
static void test_threads_and_status_in_memory(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant_of(r->provider, "t", "z");
	struct tenant_list list;

	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_FAIL, .error = -EIO, .why = "no disk");
	assert_int_equal(rig_find(a), -EIO);
	/* Only looked for: nothing has failed that a start would have to wait for. */
	assert_int_equal(rig_state(a), TENANT_COLD);
	assert_false(knows(r, "u", "a"));
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_FAIL, .error = -EIO, .why = "no disk");
	assert_int_equal(rig_acquire(a), -EIO);
	assert_true(rig_wait_state(a, TENANT_FAILED));
	assert_true(knows(r, "u", "a"));
	assert_int_equal(provider_status(r->provider, &list), 0);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.items[0].user, "t");
	assert_string_equal(list.items[1].thread, "a");
	assert_string_equal(list.items[1].id, tenant_id(a));
	assert_int_equal(list.items[1].state, TENANT_FAILED);
	assert_int_equal(list.items[1].last_error, -EIO);
	assert_string_equal(list.items[1].last_message, "no disk");
	tenant_list_release(&list);
	tenant_put(a);
	tenant_put(b);
}

/* ---- one sandbox ---- */

static void get_status(struct tenant *t, struct tenant_status *s)
{
	assert_int_equal(tenant_status(t, s), 0);
}

static void assert_no_sandbox(struct tenant *t)
{
	struct tenant_status s;

	get_status(t, &s);
	assert_null(s.url);
	assert_int_equal(s.pid, 0);
	assert_true(s.created_wall == 0);
	assert_string_equal(s.dialect, "");
	tenant_status_release(&s);
}

/* Asks the sandbox what it is; from then on that is known. */
static void probe(struct tenant *t)
{
	struct sandbox *sb = tenant_sandbox(t);
	struct sandbox_info info;
	struct call call;

	assert_non_null(sb);
	call_init(&call, LONG_MS);
	sandbox_context(sb, &call, &info);
	assert_int_equal(call_wait(&call), 0);
	call_release(&call);
	sandbox_info_release(&info);
	sandbox_put(sb);
}

/* Where it is, whose process, since when; warm too, and nothing of it when it is gone. */
static void test_status_tells_of_the_sandbox(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	const double before = clock_wall();
	struct tenant_status s;
	char url[512];

	assert_no_sandbox(t);
	get_status(t, &s);
	assert_true(s.used_wall == 0);
	tenant_status_release(&s);

	assert_int_equal(rig_acquire(t), 0);
	probe(t);
	snprintf(url, sizeof(url), "unix:%s", rig_run_path(r, t, "sock"));
	get_status(t, &s);
	assert_string_equal(s.url, url);
	assert_true(s.pid > 1);
	assert_int_equal(s.pid, rig_pid(r, tenant_id(t)));
	assert_true(s.created_wall >= before && s.created_wall <= clock_wall());
	assert_string_equal(s.dialect, "aiod");
	assert_int_equal(s.restarts, 0);
	assert_true(s.error_wall == 0);
	tenant_status_release(&s);

	/* the last activity is as long ago as the provider's clock says */
	fake_clock_add(&r->clock, 3600000);
	get_status(t, &s);
	assert_true(s.used_wall <= clock_wall() - 3599 && s.used_wall >= before - 3601);
	tenant_status_release(&s);

	assert_int_equal(tenant_release(t), 0);
	get_status(t, &s);
	assert_int_equal(s.state, TENANT_WARM);
	assert_string_equal(s.url, url);
	assert_true(s.pid > 1 && s.created_wall > 0);
	assert_string_equal(s.dialect, "");
	tenant_status_release(&s);

	assert_int_equal(rig_destroy(t), 0);
	assert_no_sandbox(t);
	get_status(t, &s);
	assert_true(s.used_wall > 0);
	tenant_status_release(&s);
	tenant_put(t);
}

/* One that was found is as well known as one that was made. */
static void test_status_of_a_found_sandbox(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct provider *peer = rig_peer(r, NULL);
	struct tenant *t = rig_tenant(r, "a"), *theirs = rig_tenant_of(peer, "u", "a");
	struct tenant_status s, ours;

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_find(theirs), 0);
	get_status(t, &ours);
	get_status(theirs, &s);
	assert_string_equal(s.url, ours.url);
	assert_int_equal(s.pid, ours.pid);
	assert_true(s.created_wall > 0);
	tenant_status_release(&s);
	tenant_status_release(&ours);
	assert_int_equal(tenant_release(t), 0);
	tenant_put(theirs);
	provider_free(peer);
	tenant_put(t);
}

/* What takes the place of a dead one counts; what follows one that was stopped does not. */
static void test_status_counts_restarts(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *t = rig_tenant(r, "a");
	const double before = clock_wall();
	struct tenant_status s;
	pid_t pid;

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	get_status(t, &s);
	assert_int_equal(s.starts, 2);
	assert_int_equal(s.restarts, 0);
	pid = s.pid;
	tenant_status_release(&s);

	for (unsigned i = 1; i <= 2; i++) {
		rig_kill(r, t);
		assert_true(rig_ping(t) < 0);
		/* the first try fails: it is a restart all the same when it succeeds */
		if (i == 2) {
			FAULTY_ORDER(r->faults, ASK_CREATE, .fault = FAULT_FAIL, .error = -EIO);
			assert_int_equal(rig_acquire(t), -EIO);
			fake_clock_add(&r->clock, LONG_MS);
		}
		assert_int_equal(rig_acquire(t), 0);
		get_status(t, &s);
		assert_int_equal(s.restarts, i);
		assert_int_equal(s.starts, 2 + i);
		assert_int_not_equal(s.pid, pid);
		assert_int_equal(s.pid, rig_pid(r, tenant_id(t)));
		assert_int_equal(s.last_error, i == 1 ? -ENOTCONN : -EIO);
		assert_true(s.error_wall >= before && s.error_wall <= clock_wall());
		tenant_status_release(&s);
	}
	assert_int_equal(rig_destroy(t), 0);
	assert_int_equal(rig_acquire(t), 0);
	get_status(t, &s);
	assert_int_equal(s.restarts, 2);
	tenant_status_release(&s);
	while (rig_leases(t) > 0)
		assert_int_equal(tenant_release(t), 0);
	tenant_put(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_invalid_ids_are_refused),
		RIG_TEST(test_get_uses_in_memory_registry_only),
		RIG_TEST(test_find_never_creates),
		RIG_TEST(test_find_beside_an_acquire),
		RIG_TEST(test_aio_forced_collision_never_overwrites_active_tenant),
		RIG_TEST(test_aio_forced_collision_with_a_peer),
		RIG_TEST(test_threads_of_the_old_layout_are_known),
		RIG_TEST(test_forget_keeps_what_holds_files),
		RIG_TEST(test_forget_removes_an_empty_thread),
		RIG_TEST(test_forget_fails_if_it_cannot_be_stopped),
		RIG_TEST(test_threads_of_a_user),
		RIG_TEST(test_threads_and_status_in_memory),
		RIG_TEST(test_status_tells_of_the_sandbox),
		RIG_TEST(test_status_of_a_found_sandbox),
		RIG_TEST(test_status_counts_restarts),
	};

	return RIG_RUN(tests);
}

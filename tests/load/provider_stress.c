/*
 * The provider under many hands: 32 workers on 16 tenants acquire, use, release,
 * destroy, find and forget at random, sandboxes are killed, the janitor makes
 * its rounds by a clock that runs fast. At the end all leases are accounted for,
 * and nothing is left: no process, socket, lock file, descriptor (rig.h).
 * usage: provider_stress [SECONDS [SEED]]; with $TFS_STRESS_LOG, says what happens
 *
 * Workers never assert: what they find wrong is printed and counted, and judged
 * on the main thread. A watchdog aborts if one of them is stuck.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "clock.h"
#include "log.h"
#include "rig.h"

enum {
	WORKERS = 32,
	TENANTS = 16,
	HELD_MAX = 3, /* leases per worker at a time */
	REPLICAS = 8,
	IDLE_MS = 2000,     /* by the fast clock: about one round */
	PATIENT_MS = 40000, /* for what should not take long; less than the watchdog's */
	WATCHDOG_MS = 60000,
	KEEP_SIZE = 5, /* of the file that some threads have */
};
#define KEEP "workspace/keep"

/* What is counted. */
enum tally {
	OP_TRY,
	OP_ACQUIRE,
	OP_GIVEN_UP, /* too late, or cancelled */
	OP_FAILED,   /* acquires that failed otherwise */
	OP_PING,
	OP_LSTAT,
	OP_BROKEN, /* pings and lstats that failed */
	OP_RELEASE,
	OP_DESTROY,
	OP_FIND,
	OP_FORGET,
	OP_KILL,
	OP_TICK,
	OP_STATUS,
	TALLIES
};
static const char *const tally_names[TALLIES] = {
	[OP_TRY] = "try_acquire", [OP_ACQUIRE] = "acquire", [OP_GIVEN_UP] = "given up",
	[OP_FAILED] = "failed",   [OP_PING] = "ping",       [OP_LSTAT] = "lstat",
	[OP_BROKEN] = "broken",   [OP_RELEASE] = "release", [OP_DESTROY] = "destroy",
	[OP_FIND] = "find",       [OP_FORGET] = "forget",   [OP_KILL] = "kill",
	[OP_TICK] = "tick",       [OP_STATUS] = "status",
};

static struct rig *rig;
static int seconds = 10;
static uint64_t seed;
static _Atomic unsigned tallies[TALLIES], wrongs;
static _Atomic bool enough, all_joined;

struct worker {
	pthread_t thread;
	unsigned index;
	uint64_t random;
	struct tenant *held[HELD_MAX]; /* one lease each */
	unsigned nheld;
	_Atomic int64_t since_ms;
	_Atomic(const char *) doing;
	_Atomic unsigned with; /* which tenant */
};
static struct worker workers[WORKERS];

static void count(enum tally what)
{
	atomic_fetch_add(&tallies[what], 1);
}

PRINTF_LIKE(1, 2) static void wrong(const char *fmt, ...)
{
	va_list ap;
	char line[256];

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (atomic_fetch_add(&wrongs, 1) < 20)
		fprintf(stderr, "wrong: %s\n", line);
}

/* xorshift64* */
static uint32_t draw(struct worker *w, uint32_t below)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return (uint32_t)((w->random * 0x2545F4914F6CDD1Dull) >> 32) % below;
}

static void doing(struct worker *w, const char *what, unsigned with)
{
	atomic_store(&w->since_ms, clock_ms());
	atomic_store(&w->with, with);
	atomic_store(&w->doing, what);
}

static void thread_name(unsigned n, char to[16])
{
	snprintf(to, 16, "t%02u", n);
}

/* Every fourth thread has a file that must outlive whatever happens to its sandbox. */
static bool has_file(unsigned n)
{
	return n % 4 == 0;
}

static unsigned number_of(const struct tenant *t)
{
	return (unsigned)strtoul(tenant_thread(t) + 1, NULL, 10);
}

static struct tenant *get(unsigned n)
{
	struct tenant *t = NULL;
	char name[16];

	thread_name(n, name);
	if (tenant_get(rig->provider, "u", name, &t) < 0)
		wrong("no tenant %s", name);
	return t;
}

/* ---- what workers do ---- */

static bool in_list(int r, const int *list)
{
	for (; *list; list++)
		if (r == *list)
			return true;
	return false;
}

static void hold(struct worker *w, struct tenant *t)
{
	w->held[w->nheld++] = t;
}

/* Sometimes impatient, sometimes cancelled at once or a little later. */
static int wait_errand(struct worker *w, void (*fn)(struct tenant *, struct errand *),
		       struct tenant *t, bool *ret_hasty)
{
	uint32_t mood = draw(w, 8);
	struct errand e;
	int r;

	*ret_hasty = mood < 3;
	call_init(&e.call, mood == 0 ? 1 + draw(w, 60) : PATIENT_MS);
	fn(t, &e);
	if (mood == 2)
		usleep(draw(w, 40000));
	if (mood == 1 || mood == 2)
		call_cancel(&e.call);
	r = call_wait(&e.call);
	if (r < 0 && !*ret_hasty && r == -ETIMEDOUT)
		wrong("%s: an errand of %d s", tenant_thread(t), PATIENT_MS / 1000);
	call_release(&e.call);
	return r;
}

static void do_acquire(struct worker *w)
{
	/* It died while it started, or was just found dead; it is refused until it is retried. */
	static const int fine[] = { -EIO, -ENOTCONN, -ECONNREFUSED, -ECONNRESET, 0 };
	unsigned n = draw(w, TENANTS);
	struct tenant *t;
	bool hasty;
	int r;

	if (w->nheld == HELD_MAX)
		return;
	t = get(n);
	if (draw(w, 2)) {
		doing(w, "try_acquire", n);
		r = tenant_try_acquire(t);
		count(OP_TRY);
		if (r == 0) {
			hold(w, t);
			return;
		}
		if (r != -EAGAIN)
			wrong("try_acquire: %d", r);
	}
	doing(w, "acquire", n);
	r = wait_errand(w, tenant_acquire, t, &hasty);
	count(OP_ACQUIRE);
	if (r == 0) {
		hold(w, t);
		return;
	}
	if (hasty && (r == -ECANCELED || r == -ETIMEDOUT)) {
		count(OP_GIVEN_UP);
	} else {
		count(OP_FAILED);
		if (!in_list(r, fine))
			wrong("acquire of t%02u: %s", n, strerrordesc_np(-r));
	}
	tenant_put(t);
}

static int lstat_in(struct worker *w, struct sandbox *sb, unsigned n)
{
	bool keep = has_file(n);
	struct attr attr;
	struct call c;
	int r;

	doing(w, "lstat", n);
	call_init(&c, PATIENT_MS);
	sandbox_lstat(sb, &c, keep ? "/mnt/user-data/" KEEP : "/mnt/user-data/workspace", &attr);
	r = call_wait(&c);
	call_release(&c);
	count(OP_LSTAT);
	if (r == 0 && keep && attr.size != KEEP_SIZE)
		wrong("the file of t%02u has another size", n);
	return r;
}

static int ping_in(struct worker *w, struct sandbox *sb, unsigned n)
{
	struct call c;
	int r;

	doing(w, "ping", n);
	call_init(&c, draw(w, 8) ? PATIENT_MS : 1 + draw(w, 20));
	sandbox_ping(sb, &c);
	r = call_wait(&c);
	call_release(&c);
	count(OP_PING);
	return r;
}

static void do_use(struct worker *w)
{
	/*
	 * Killed, destroyed or too slow; shutting down (-EAGAIN); the command behind
	 * lstat was killed (-EIO). Never a file that is not there.
	 */
	static const int fine[] = { -ENOTCONN,     -ECONNREFUSED, -ECONNRESET, -EPIPE, -ETIMEDOUT,
				    -ECONNABORTED, -EAGAIN,       -EIO,        0 };
	struct sandbox *sb;
	struct tenant *t;
	unsigned n;
	int r;

	if (w->nheld == 0)
		return;
	t = w->held[draw(w, w->nheld)];
	n = number_of(t);
	sb = tenant_sandbox(t);
	if (!sb)
		return;
	r = draw(w, 3) ? ping_in(w, sb, n) : lstat_in(w, sb, n);
	if (r < 0) {
		count(OP_BROKEN);
		tenant_report(t, sb, r);
		if (!in_list(r, fine))
			wrong("use of t%02u: %s", n, strerrordesc_np(-r));
	}
	sandbox_put(sb);
}

static void release_one(struct worker *w, unsigned i)
{
	struct tenant *t = w->held[i];

	doing(w, "release", number_of(t));
	if (tenant_release(t) < 0)
		wrong("release of %s: no lease", tenant_thread(t));
	count(OP_RELEASE);
	tenant_put(t);
	w->held[i] = w->held[--w->nheld];
}

static void do_release(struct worker *w)
{
	if (w->nheld > 0)
		release_one(w, draw(w, w->nheld));
}

static void do_destroy(struct worker *w)
{
	unsigned n = draw(w, TENANTS);
	struct tenant *t = get(n);
	bool hasty;
	int r;

	doing(w, "destroy", n);
	r = wait_errand(w, tenant_destroy, t, &hasty);
	count(OP_DESTROY);
	if (r < 0 && !hasty)
		wrong("destroy of t%02u: %s", n, strerrordesc_np(-r));
	tenant_put(t);
}

static void do_forget(struct worker *w)
{
	unsigned n = draw(w, TENANTS);
	struct tenant *t = get(n);
	bool hasty;
	int r;

	doing(w, "forget", n);
	r = wait_errand(w, tenant_forget, t, &hasty);
	count(OP_FORGET);
	if (has_file(n) ? r == 0 : r == -ENOTEMPTY)
		wrong("forget of t%02u, which has %s file: %d", n, has_file(n) ? "a" : "no", r);
	else if (r < 0 && !hasty && r != -ENOTEMPTY)
		wrong("forget of t%02u: %s", n, strerrordesc_np(-r));
	tenant_put(t);
}

static void do_find(struct worker *w)
{
	unsigned n = draw(w, TENANTS);
	struct tenant *t = get(n);
	bool hasty;
	int r;

	doing(w, "find", n);
	r = wait_errand(w, tenant_find, t, &hasty);
	count(OP_FIND);
	if (r < 0 && r != -ENOENT && r != -EIO && r != -ENOTCONN && !hasty)
		wrong("find of t%02u: %s", n, strerrordesc_np(-r));
	tenant_put(t);
}

/* Whether the process that the descriptor means is a sandbox of ours, not one that got its pid. */
static bool is_ours(pid_t pid)
{
	char path[64], line[4096];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	len = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	return memmem(line, len, rig->runtime, strlen(rig->runtime)) != NULL;
}

static void kill_sandbox(unsigned n)
{
	struct tenant *t = get(n);
	pid_t pid = rig_pid(rig, tenant_id(t));
	int fd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (fd >= 0 && is_ours(pid) && syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0)
		count(OP_KILL);
	if (fd >= 0)
		close(fd);
	tenant_put(t);
}

static void do_kill(struct worker *w)
{
	unsigned n = draw(w, TENANTS);

	doing(w, "kill", n);
	kill_sandbox(n);
}

static void do_tick(struct worker *w)
{
	int r;

	doing(w, "tick", 0);
	fake_clock_add(&rig->clock, 500 + draw(w, 5000));
	r = draw(w, 4) ? rig_tick(rig->provider) : rig_reconcile(rig->provider);
	count(OP_TICK);
	if (r < 0)
		wrong("tick: %s", strerrordesc_np(-r));
}

static void do_status(struct worker *w)
{
	struct tenant_list l;
	char **names = NULL;
	size_t n = 0;

	doing(w, "status", 0);
	if (provider_status(rig->provider, &l) < 0) {
		wrong("no status");
		return;
	}
	for (size_t i = 0; i < l.count; i++) {
		const struct tenant_status *s = &l.items[i];

		if (s->leases > WORKERS * (HELD_MAX + 1))
			wrong("%s has %u leases", s->thread, s->leases);
		if (s->state == TENANT_ACTIVE && s->leases == 0)
			wrong("%s is active without a lease", s->thread);
	}
	tenant_list_release(&l);
	count(OP_STATUS);
	if (draw(w, 4))
		return;
	doing(w, "threads", 0);
	if (provider_threads(rig->provider, "u", &names, &n) < 0)
		wrong("no threads");
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

static const struct {
	unsigned weight;
	void (*run)(struct worker *w);
} menu[] = {
	{ 300, do_acquire }, { 400, do_use }, { 250, do_release },
	{ 10, do_destroy },  { 20, do_find }, { 5, do_forget },
	{ 10, do_kill },     { 10, do_tick }, { 20, do_status },
};

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned sum = 0;

	for (size_t i = 0; i < ARRAY_SIZE(menu); i++)
		sum += menu[i].weight;
	while (!atomic_load(&enough)) {
		unsigned at = draw(w, sum);
		size_t i = 0;

		while (at >= menu[i].weight)
			at -= menu[i++].weight;
		menu[i].run(w);
		if (draw(w, 16) == 0) {
			doing(w, "pause", 0);
			usleep(draw(w, 5000));
		}
	}
	while (w->nheld > 0)
		release_one(w, 0);
	doing(w, "nothing: it is through", 0);
	atomic_store(&w->since_ms, INT64_MAX); /* the watchdog need not mind it */
	return NULL;
}

/* ---- the watchdog ---- */

static void tell_all(void)
{
	struct tenant_list l;

	for (unsigned i = 0; i < WORKERS; i++)
		fprintf(stderr, "worker %u: %s t%02u, %u leases, for %lld ms\n", i,
			atomic_load(&workers[i].doing), atomic_load(&workers[i].with),
			workers[i].nheld,
			(long long)(clock_ms() - atomic_load(&workers[i].since_ms)));
	if (provider_status(rig->provider, &l) < 0)
		return;
	for (size_t i = 0; i < l.count; i++)
		fprintf(stderr, "%s: %s, %u leases, %u starts, %s\n", l.items[i].thread,
			tenant_state_name(l.items[i].state), l.items[i].leases, l.items[i].starts,
			l.items[i].last_message ?: "-");
	tenant_list_release(&l);
}

static void *watch(void *arg UNUSED)
{
	while (!atomic_load(&all_joined)) {
		usleep(100000);
		for (unsigned i = 0; i < WORKERS; i++) {
			if (clock_ms() - WATCHDOG_MS < atomic_load(&workers[i].since_ms))
				continue;
			fprintf(stderr, "worker %u is stuck\n", i);
			tell_all();
			for (unsigned n = 0; n < TENANTS; n++)
				kill_sandbox(n); /* or they would outlive us */
			abort();
		}
	}
	return NULL;
}

/* ---- the test ---- */

static void make_files(void)
{
	char name[16];

	for (unsigned n = 0; n < TENANTS; n++) {
		struct tenant *t;
		FILE *f;

		if (!has_file(n))
			continue;
		thread_name(n, name);
		t = rig_tenant(rig, name);
		assert_int_equal(rig_acquire(t), 0);
		f = fopen(rig_host_path(rig, name, KEEP), "we");
		assert_non_null(f);
		assert_int_equal(fwrite("keep\n", 1, KEEP_SIZE, f), KEEP_SIZE);
		assert_int_equal(fclose(f), 0);
		assert_int_equal(tenant_release(t), 0);
		tenant_put(t);
	}
}

/* Nobody holds anything any more: neither do the records say so. */
static void check_leases(void)
{
	struct stat st;

	for (unsigned n = 0; n < TENANTS; n++) {
		struct tenant *t = get(n);

		assert_non_null(t);
		assert_int_equal(rig_leases(t), 0);
		assert_int_not_equal(rig_state(t), TENANT_ACTIVE);
		if (n == 0)
			assert_int_equal(tenant_release(t), -EINVAL);
		if (has_file(n)) {
			assert_int_equal(stat(rig_host_path(rig, tenant_thread(t), KEEP), &st), 0);
			assert_int_equal(st.st_size, KEEP_SIZE);
		}
		tenant_put(t);
	}
}

static void report(void)
{
	unsigned all = 0;

	for (enum tally i = 0; i < TALLIES; i++) {
		if (i != OP_GIVEN_UP && i != OP_FAILED && i != OP_BROKEN)
			all += tallies[i];
		printf("%s%s %u", i ? ", " : "", tally_names[i], tallies[i]);
	}
	printf("\n%u operations in %d s, asked of the backend:", all, seconds);
	for (enum ask_kind k = 0; k < ASK_KINDS; k++)
		printf(" %s %u", ask_kind_name(k), faulty_count(rig->faults, k));
	printf("; seed %llu\n", (unsigned long long)seed);
}

static void test_stress(void **state)
{
	int64_t until;
	pthread_t dog;

	rig = rig_start(state,
			&(struct rig_options){ .replicas = REPLICAS, .idle_timeout_ms = IDLE_MS });
	make_files();
	until = clock_ms() + seconds * 1000ll;
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i].index = i;
		workers[i].random = (seed + i + 1) * 0x9E3779B97F4A7C15ull | 1;
		doing(&workers[i], "nothing yet", 0);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	assert_int_equal(pthread_create(&dog, NULL, watch, NULL), 0);
	while (clock_ms() < until)
		usleep(20000);
	atomic_store(&enough, true);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&all_joined, true);
	pthread_join(dog, NULL);
	report();
	check_leases();
	assert_int_equal(wrongs, 0);
	assert_true(tallies[OP_RELEASE] > 0 && tallies[OP_PING] > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { RIG_TEST(test_stress) };

	seed = (uint64_t)time(NULL);
	if (argc > 1)
		seconds = (int)strtol(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	if (seconds < 1) {
		fputs("usage: provider_stress [SECONDS [SEED]]\n", stderr);
		return 2;
	}
	printf("seed %llu, %d s\n", (unsigned long long)seed, seconds);
	fflush(stdout);
	log_set_level(getenv("TFS_STRESS_LOG") ? LOG_INFO : LOG_ERROR);
	return RIG_RUN(tests);
}

/*
 * What scripts/bench provider measures: one workload per run of this program,
 * its figures on one line of stdout. What is compared alternates within one run,
 * so that whatever else the machine does meets both. Sandboxes are real, embedded
 * ones; at the end, and after SIGINT or SIGTERM, all of them are stopped.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "backend_embedded.h"
#include "provider.h"

enum {
	HOT_MS = 400,     /* of one round of counting */
	HOT_BATCH = 1000, /* pairs between two looks at the clock */
	HOT_WORKERS = 8,
	CROWD = 20,
	ERRAND_MS = 60000,
	ROUNDS_MAX = 1000,
};

static const char *program, *on_disk, *in_memory; /* the last two: directories */
static struct loop *loop;
static struct provider *provider;
static volatile sig_atomic_t interrupted;

__attribute__((noreturn)) PRINTF_LIKE(1, 2) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("bench_provider: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	if (provider)
		provider_shutdown(provider);
	exit(1);
}

static void on_signal(int sig)
{
	interrupted = sig;
}

/* Between two steps: a sandbox that is just starting is waited for. */
static void stop_if_interrupted(void)
{
	if (interrupted)
		die("interrupted");
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

static double median_ratio(const double *a, const double *b, unsigned n)
{
	double q[ROUNDS_MAX];

	for (unsigned i = 0; i < n; i++)
		q[i] = a[i] / b[i];
	return median(q, n);
}

/* ---- the provider ---- */

static void open_provider(void)
{
	char data[256], runtime[256];
	struct backend *b;
	const char *why = NULL;
	char *words = NULL;

	snprintf(data, sizeof(data), "%s/data", on_disk);
	snprintf(runtime, sizeof(runtime), "%s/run", in_memory);
	if (loop_new(&loop) < 0)
		die("cannot start the loop");
	if (backend_embedded_new(loop,
				 &(struct embedded_config){
					 .data = data, .runtime = runtime, .program = program },
				 &b, &words) < 0)
		die("no backend: %s", words ?: "");
	if (provider_new(&(struct provider_config){ .loop = loop, .backend = b, .data = data },
			 &provider, &why) < 0)
		die("no provider: %s", why ?: "");
}

static struct tenant *new_tenant(void)
{
	static unsigned n;
	struct tenant *t;
	char name[32];

	snprintf(name, sizeof(name), "t%u", n++);
	if (tenant_get(provider, "bench", name, &t) < 0)
		die("no tenant");
	return t;
}

static void finish(struct errand *e, const char *what)
{
	int r = call_wait(&e->call);

	if (r < 0)
		die("%s: %s: %s", what, strerrordesc_np(-r), e->call.message ?: "");
	call_release(&e->call);
}

static void run(void (*fn)(struct tenant *, struct errand *), struct tenant *t, const char *what)
{
	struct errand e;

	stop_if_interrupted();
	call_init(&e.call, ERRAND_MS);
	fn(t, &e);
	finish(&e, what);
}

static void acquire(struct tenant *t)
{
	run(tenant_acquire, t, "acquire");
}

/* The end of a tenant with one lease. */
static void discard(struct tenant *t)
{
	if (tenant_release(t) < 0)
		die("no lease");
	run(tenant_destroy, t, "destroy");
	tenant_put(t);
}

/* ---- leases of an active sandbox ---- */

struct hot {
	struct tenant *t;
	int core; /* to stay on; -1: any */
	pthread_t thread;
	pthread_barrier_t *start;
	double until;
	unsigned long pairs;
	double seconds; /* of the core that they took */
};

/* Seconds that this thread was ready to run and another one had the core. */
static double waited_for_core_s(void)
{
	unsigned long long waited_ns = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "re");

	if (f && fscanf(f, "%*u %llu", &waited_ns) != 1)
		waited_ns = 0;
	if (f)
		fclose(f);
	return (double)waited_ns / 1e9;
}

static void *hot_worker(void *arg)
{
	struct hot *h = arg;
	double start, waited;
	cpu_set_t set;

	CPU_ZERO(&set);
	if (h->core >= 0) {
		CPU_SET((unsigned)h->core, &set);
		pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	}
	pthread_barrier_wait(h->start);
	start = now_s();
	waited = waited_for_core_s();
	do {
		for (unsigned i = 0; i < HOT_BATCH; i++) {
			if (tenant_try_acquire(h->t) < 0 || tenant_release(h->t) < 0)
				return NULL;
		}
		h->pairs += HOT_BATCH;
	} while (now_s() < h->until);
	/* Blocked time counts; what other programs took of the core does not. */
	h->seconds = now_s() - start - (waited_for_core_s() - waited);
	return NULL;
}

/* Pairs per second and core of all n together. */
static double count_pairs(struct tenant **tenants, unsigned n, int core)
{
	struct hot workers[HOT_WORKERS];
	pthread_barrier_t barrier;
	unsigned long pairs = 0;
	double start = now_s(), seconds = 0;

	stop_if_interrupted();
	pthread_barrier_init(&barrier, NULL, n);
	for (unsigned i = 0; i < n; i++) {
		workers[i] = (struct hot){
			.t = tenants[i],
			.core = core,
			.start = &barrier,
			.until = start + HOT_MS / 1e3,
		};
		if (pthread_create(&workers[i].thread, NULL, hot_worker, &workers[i]))
			die("no threads");
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(workers[i].thread, NULL);
		pairs += workers[i].pairs;
		seconds += workers[i].seconds;
		if (workers[i].seconds <= 0)
			die("a lease of an active sandbox was refused");
	}
	pthread_barrier_destroy(&barrier);
	return (double)pairs / seconds;
}

static int first_core(unsigned *ret_cores)
{
	cpu_set_t set;
	int core = 0;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		die("no processors");
	while (!CPU_ISSET((unsigned)core, &set))
		core++;
	*ret_cores = (unsigned)CPU_COUNT(&set);
	return core;
}

/*
 * hot: pairs per second of one worker on one core; pairs per second and core of
 * eight workers, each with a tenant; the ratio; how many cores.
 */
static void bench_hot(unsigned rounds)
{
	double one[ROUNDS_MAX], all[ROUNDS_MAX], ratio;
	struct tenant *tenants[HOT_WORKERS];
	unsigned cores;
	int core = first_core(&cores);

	for (unsigned i = 0; i < HOT_WORKERS; i++) {
		tenants[i] = new_tenant();
		acquire(tenants[i]);
	}
	for (unsigned i = 0; i < rounds; i++) {
		one[i] = count_pairs(tenants, 1, core);
		all[i] = count_pairs(tenants, HOT_WORKERS, -1);
	}
	ratio = median_ratio(all, one, rounds);
	printf("%.0f %.0f %.4f %u\n", median(one, rounds), median(all, rounds), ratio, cores);
	for (unsigned i = 0; i < HOT_WORKERS; i++)
		discard(tenants[i]);
}

/* ---- starts ---- */

static void must_spawn(pid_t *ret, const posix_spawn_file_actions_t *actions,
		       const char *const *argv)
{
	int r = posix_spawnp(ret, argv[0], actions, NULL, (char *const *)argv, environ);

	if (r)
		die("%s: %s", argv[0], strerrordesc_np(r));
}

static void must_end_well(pid_t pid, const char *what)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("%s is lost", what);
	if (status != 0)
		die("%s ended with status %d", what, status);
}

static double time_bwrap(void)
{
	const char *const argv[] = { "bwrap",         "--ro-bind",         "/",    "/",
				     "--unshare-all", "--die-with-parent", "true", NULL };
	double start = now_s();
	pid_t pid;

	stop_if_interrupted();
	must_spawn(&pid, NULL, argv);
	must_end_well(pid, "bwrap");
	return now_s() - start;
}

/* The same program without a provider, until it says that it is ready. */
static double time_alone(void)
{
	char data[256], sock[256], fd[16], heard[32] = "";
	const char *const argv[] = { program, "--socket",   sock, "--data",
				     data,    "--ready-fd", fd,   NULL };
	posix_spawn_file_actions_t actions;
	int p[2];
	double took, start;
	pid_t pid;

	stop_if_interrupted();
	snprintf(data, sizeof(data), "%s/alone", on_disk);
	snprintf(sock, sizeof(sock), "%s/alone.sock", in_memory);
	start = now_s();
	if (pipe2(p, O_CLOEXEC) < 0)
		die("no pipe");
	snprintf(fd, sizeof(fd), "%d", p[1]);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, p[1], p[1]);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	must_spawn(&pid, &actions, argv);
	posix_spawn_file_actions_destroy(&actions);
	close(p[1]);
	if (read(p[0], heard, sizeof(heard) - 1) < 0 || !strstr(heard, "READY=1"))
		heard[0] = '\0';
	took = now_s() - start;
	kill(pid, SIGTERM);
	close(p[0]);
	must_end_well(pid, "threadfs-sandboxd");
	if (!heard[0])
		die("threadfs-sandboxd did not get ready");
	return took;
}

static double time_cold(void)
{
	struct tenant *t = new_tenant();
	double start = now_s(), took;

	acquire(t);
	took = now_s() - start;
	discard(t);
	return took;
}

/* cold: seconds of an acquire, of bwrap, of the program alone; ratio to each. */
static void bench_cold(unsigned rounds)
{
	double cold[ROUNDS_MAX], bwrap[ROUNDS_MAX], alone[ROUNDS_MAX], to_bwrap, to_alone;

	time_cold(); /* the page cache */
	time_bwrap();
	for (unsigned i = 0; i < rounds; i++) {
		if (i % 2)
			cold[i] = time_cold();
		bwrap[i] = time_bwrap();
		alone[i] = time_alone();
		if (i % 2 == 0)
			cold[i] = time_cold();
	}
	to_bwrap = median_ratio(cold, bwrap, rounds);
	to_alone = median_ratio(cold, alone, rounds);
	printf("%.6f %.6f %.6f %.4f %.4f\n", median(cold, rounds), median(bwrap, rounds),
	       median(alone, rounds), to_bwrap, to_alone);
}

static double time_crowd(void)
{
	struct tenant *tenants[CROWD];
	struct errand e[CROWD];
	double start, took;

	stop_if_interrupted();
	for (unsigned i = 0; i < CROWD; i++)
		tenants[i] = new_tenant();
	start = now_s();
	for (unsigned i = 0; i < CROWD; i++) {
		call_init(&e[i].call, ERRAND_MS);
		tenant_acquire(tenants[i], &e[i]);
	}
	for (unsigned i = 0; i < CROWD; i++)
		finish(&e[i], "acquire");
	took = now_s() - start;
	for (unsigned i = 0; i < CROWD; i++)
		discard(tenants[i]);
	return took;
}

/* crowd: seconds until 20 tenants acquired at once are all ready, and of one; the ratio. */
static void bench_crowd(unsigned rounds)
{
	double all[ROUNDS_MAX], one[ROUNDS_MAX], ratio;

	time_cold();
	for (unsigned i = 0; i < rounds; i++) {
		one[i] = time_cold();
		all[i] = time_crowd();
	}
	ratio = median_ratio(all, one, rounds);
	printf("%.6f %.6f %.4f\n", median(all, rounds), median(one, rounds), ratio);
}

/* ---- reclaim ---- */

static void ping(struct tenant *t)
{
	struct sandbox *sb = tenant_sandbox(t);
	struct call c;
	int r;

	if (!sb)
		die("no client");
	call_init(&c, ERRAND_MS);
	sandbox_ping(sb, &c);
	r = call_wait(&c);
	if (r < 0)
		die("ping: %s", strerrordesc_np(-r));
	call_release(&c);
	sandbox_put(sb);
}

/*
 * warm: seconds of a reclaim, of one GET over a connection that is open already;
 * the median of what the reclaim takes longer.
 */
static void bench_warm(unsigned rounds)
{
	double get[ROUNDS_MAX], reclaim[ROUNDS_MAX], more[ROUNDS_MAX], start;
	struct tenant *t = new_tenant();
	struct tenant_status s;

	acquire(t);
	ping(t);
	for (unsigned i = 0; i < rounds; i++) {
		start = now_s();
		ping(t);
		get[i] = now_s() - start;
		if (tenant_release(t) < 0 || tenant_status(t, &s) < 0)
			die("no lease");
		if (s.state != TENANT_WARM)
			die("released, and not warm");
		tenant_status_release(&s);
		start = now_s();
		acquire(t);
		reclaim[i] = now_s() - start;
		more[i] = reclaim[i] - get[i];
		ping(t); /* connects */
	}
	printf("%.6f %.6f %.6f\n", median(reclaim, rounds), median(get, rounds),
	       median(more, rounds));
	discard(t);
}

static const struct {
	const char *name;
	void (*run)(unsigned rounds);
} workloads[] = {
	{ "hot", bench_hot },
	{ "cold", bench_cold },
	{ "crowd", bench_crowd },
	{ "warm", bench_warm },
};

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = on_signal };
	char *end = NULL;
	unsigned long rounds;

	if (argc != 6)
		die("usage: bench_provider DISK-DIR MEMORY-DIR THREADFS-SANDBOXD WORKLOAD ROUNDS");
	rounds = strtoul(argv[5], &end, 10);
	if (*end || rounds < 1 || rounds > ROUNDS_MAX)
		die("'%s' is no good number", argv[5]);
	on_disk = argv[1];
	in_memory = argv[2];
	program = argv[3];
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(workloads); i++) {
		if (strcmp(argv[4], workloads[i].name))
			continue;
		open_provider();
		workloads[i].run((unsigned)rounds);
		if (provider_shutdown(provider) < 0)
			die("sandboxes are left");
		provider_free(STEAL(provider));
		loop_free(loop);
		return 0;
	}
	die("no workload '%s'", argv[4]);
}

/*
 * What scripts/bench client measures of the library: one workload per run of
 * this program, its figures on one line of stdout. Seconds are those of the work
 * itself, without the start of the program.
 */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"
#include "every.h"
#include "jsonw.h"
#include "shellquote.h"

enum { DOWNLOADS = 4 /* at once per sandbox of a crowd */ };

static const char *address; /* of the first server */
static struct loop *loop;

static unsigned number(const char *s)
{
	char *end;
	unsigned long n = strtoul(s, &end, 10);

	if (*end || n < 1 || n > 10000000)
		die("'%s' is no good number", s);
	return (unsigned)n;
}

static struct sandbox *open_sandbox(const char *socket)
{
	const struct sandbox_config config = { .socket = socket };
	struct sandbox *sb;

	if (sandbox_new(loop, &config, &sb, NULL) < 0)
		die("cannot make a sandbox");
	return sb;
}

static void must_end_well(struct call *c, const char *what)
{
	if (call_wait(c) < 0)
		die("%s: %d, %s", what, c->error, c->message ?: "no words");
	call_release(c);
}

/* One whose server is known: it was asked what it can do, as before the first use of any. */
static struct sandbox *open_known(const char *socket)
{
	struct sandbox *sb = open_sandbox(socket);
	struct sandbox_info info;
	struct call c;

	call_init(&c, 60000);
	sandbox_context(sb, &c, &info);
	must_end_well(&c, "context");
	sandbox_info_release(&info);
	return sb;
}

/* A line of /proc/self/status. */
static unsigned long status_field(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long value = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = strtoul(line + strlen(name) + 1, NULL, 10);
	if (f)
		fclose(f);
	return value;
}

/* ---- transfers ---- */

struct sink {
	struct call call;
	uint64_t bytes;
};

static int swallow(void *ctx, const void *bytes UNUSED, size_t len)
{
	struct sink *s = ctx;

	s->bytes += len;
	return 0;
}

static void look_at(struct sandbox *sb, const char *path, struct attr *ret)
{
	struct call c;

	call_init(&c, 60000);
	sandbox_lstat(sb, &c, path, ret);
	must_end_well(&c, "lstat");
}

static void start_download(struct sandbox *sb, struct sink *s, const char *path,
			   const struct attr *expect)
{
	const struct download how = { .expect = expect, .data = swallow, .ctx = s };

	*s = (struct sink){ 0 };
	call_init(&s->call, 60000);
	sandbox_download(sb, &s->call, path, &how);
}

/*
 * download PATH: seconds and bytes. As a filesystem does it: the version is
 * known, and that all is of it is proven within the time.
 */
static void bench_download(char **args)
{
	struct sandbox *sb = open_known(address);
	struct attr expect;
	struct sink s;
	double start;

	look_at(sb, args[0], &expect);
	start = now_s();
	start_download(sb, &s, args[0], &expect);
	must_end_well(&s.call, "download");
	printf("%.6f %llu\n", now_s() - start, (unsigned long long)s.bytes);
	sandbox_unref(sb);
}

/* upload FILE PATH: seconds. */
static void bench_upload(char **args)
{
	struct sandbox *sb = open_known(address);
	int fd = open(args[0], O_RDONLY | O_CLOEXEC);
	struct upload how = { .mode = -1, .flags = UPLOAD_NEW, .fd = fd };
	double start = now_s();
	struct stat st;
	struct call c;

	if (fd < 0 || fstat(fd, &st) < 0)
		die("cannot read %s", args[0]);
	how.size = st.st_size;
	call_init(&c, 60000);
	sandbox_upload(sb, &c, args[1], &how);
	must_end_well(&c, "upload");
	printf("%.6f\n", now_s() - start);
	close(fd);
	sandbox_unref(sb);
}

/* crowd PATH SOCKET…: seconds, bytes, threads at the busiest, KiB of memory at the peak. */
static void bench_crowd(char **args)
{
	struct sandbox *sandboxes[1024];
	unsigned long threads, now;
	uint64_t bytes = 0;
	struct sink *sinks;
	struct attr expect;
	size_t n = 0;
	double start;

	for (; args[1 + n] && n < ARRAY_SIZE(sandboxes); n++)
		sandboxes[n] = open_known(args[1 + n]);
	sinks = calloc(n * DOWNLOADS, sizeof(*sinks));
	if (!n || !sinks)
		die("nothing to do");
	look_at(sandboxes[0], args[0], &expect); /* they all serve the same files */
	start = now_s();
	for (size_t i = 0; i < n * DOWNLOADS; i++)
		start_download(sandboxes[i / DOWNLOADS], &sinks[i], args[0], &expect);
	threads = status_field("Threads:");
	for (size_t i = 0; i < n * DOWNLOADS; i++) {
		must_end_well(&sinks[i].call, "download");
		now = status_field("Threads:");
		threads = MAX(threads, now);
		bytes += sinks[i].bytes;
	}
	printf("%.6f %llu %lu %lu\n", now_s() - start, (unsigned long long)bytes, threads,
	       status_field("VmHWM:"));
	for (size_t i = 0; i < n; i++)
		sandbox_unref(sandboxes[i]);
	free(sinks);
}

/* ---- many small ones ---- */

/* lstat COUNT PATH: seconds. */
static void bench_lstat(char **args)
{
	struct sandbox *sb = open_known(address);
	unsigned n = number(args[0]);
	double start = 0;

	/* The first one makes a session. */
	for (unsigned i = 0; i <= n; i++) {
		struct attr attr;
		struct call c;

		if (i == 1)
			start = now_s();
		call_init(&c, 60000);
		sandbox_lstat(sb, &c, args[1], &attr);
		must_end_well(&c, "lstat");
	}
	printf("%.6f\n", now_s() - start);
	sandbox_unref(sb);
}

static size_t collect(char *bytes, size_t size, size_t n, void *to)
{
	return buf_append(to, bytes, size * n) == 0 ? size * n : 0;
}

static void exec_body(struct buf *to, const char *command)
{
	struct jw w;

	jw_init(&w, to);
	jw_obj(&w);
	jw_kstr(&w, "command", command);
	jw_kstr(&w, "session_id", "bench");
	jw_kint(&w, "hard_timeout", 60);
	jw_kint(&w, "max_output_length", 0);
	jw_obj_end(&w);
	if (to->error)
		die("no memory");
}

/* The command n times by libcurl alone, on one connection. Prints the seconds. */
static void run_exec(unsigned n, const char *command)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	struct buf body CLEANUP_BUF = BUF_INIT(0), answer CLEANUP_BUF = BUF_INIT(64 * MIB);
	CURL *e = curl_easy_init();
	double start = 0;

	exec_body(&body, command);
	curl_easy_setopt(e, CURLOPT_URL, "http://localhost/v1/bash/exec");
	curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, address);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(e, CURLOPT_POSTFIELDS, body.data);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, collect);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, &answer);
	for (unsigned i = 0; i <= n; i++) {
		if (i == 1)
			start = now_s();
		buf_reset(&answer);
		if (curl_easy_perform(e) != CURLE_OK || !strstr(answer.data, "\"exit_code\":0"))
			die("exec: %s", answer.data ?: "no answer");
	}
	printf("%.6f\n", now_s() - start);
	curl_easy_cleanup(e);
	curl_slist_free_all(headers);
}

/* exec COUNT COMMAND: seconds. */
static void bench_exec(char **args)
{
	run_exec(number(args[0]), args[1]);
}

/* exec-stat COUNT PATH: the command behind lstat. */
static void bench_exec_stat(char **args)
{
	struct buf command CLEANUP_BUF = BUF_INIT(0);

	shell_printf(&command, "exec stat -c %s -- %s", ATTR_STAT_FORMAT, args[1]);
	run_exec(number(args[0]), command.data);
}

/* ---- listings ---- */

static double list_once(struct sandbox *sb, const char *path, size_t *ret_n)
{
	double start = now_s();
	struct entries e;
	struct call c;

	call_init(&c, 60000);
	sandbox_list(sb, &c, path, 0, &e);
	must_end_well(&c, "list");
	start = now_s() - start;
	if (e.truncated || e.incomplete || e.dropped)
		die("the listing is not complete");
	*ret_n = e.n;
	entries_release(&e);
	return start;
}

/* list PATH: seconds, entries and requests of a recursive listing. */
static void bench_list(char **args)
{
	struct rogue *r = rogue_new(address, false);
	struct sandbox *sb = open_sandbox(rogue_socket(r));
	size_t requests, n;
	double took;

	/* What counts is a server that is known. */
	list_once(sb, args[0], &n);
	rogue_forget(r);
	list_once(sb, args[0], &n);
	requests = rogue_count(r, NULL, NULL);
	sandbox_unref(sb);
	rogue_free(r);
	sb = open_sandbox(address);
	list_once(sb, args[0], &n);
	took = list_once(sb, args[0], &n);
	printf("%.6f %zu %zu\n", took, n, requests);
	sandbox_unref(sb);
}

/* ---- nothing is left ---- */

static void cycle(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct sandbox *sb = open_sandbox(address);
		struct call c;

		call_init(&c, 60000);
		sandbox_ping(sb, &c);
		must_end_well(&c, "ping");
		sandbox_unref(sb);
	}
}

/*
 * cycles COUNT: seconds; descriptors and KiB before and after. Then it waits for
 * the end of its input, so that somebody can look at its sockets.
 */
static void bench_cycles(char **args)
{
	unsigned n = number(args[0]), fds;
	size_t rss;
	double start;

	cycle(MIN(n, 200u));
	fds = count_fds();
	rss = rss_kib();
	start = now_s();
	cycle(n);
	printf("%.6f %u %u %zu %zu\n", now_s() - start, fds, count_fds(), rss, rss_kib());
	fflush(stdout);
	while (getchar() != EOF)
		;
}

static void *cancel_it(void *arg)
{
	double *at = ((struct call *)arg)->ctx;

	*at = now_s();
	call_cancel(arg);
	return NULL;
}

static double cancel_one(struct rogue *r, const struct every_op *op)
{
	struct sandbox *sb = open_sandbox(rogue_socket(r));
	struct attempt a;
	pthread_t thread;
	double at, end;

	/* Requests of the one before still count until their connections have ended. */
	if (!rogue_wait_connections(r, 0, 10000))
		die("%s follows one that is still connected", op->name);
	rogue_forget(r);
	rogue_clear(r);
	rogue_add(r, &(struct rogue_rule){ .hold_ms = ROGUE_UNTIL_RELEASED });
	attempt_init(&a, op, 0);
	a.call.ctx = &at;
	attempt_start(&a, sb);
	if (!rogue_wait_for(r, NULL, NULL, 1, 10000))
		die("%s asks nothing", op->name);
	if (pthread_create(&thread, NULL, cancel_it, &a.call))
		die("no threads");
	if (call_wait(&a.call) != -ECANCELED)
		die("%s ended with %d", op->name, a.call.error);
	end = now_s();
	pthread_join(thread, NULL);
	attempt_release(&a);
	/* Farewells to a silent server take half a second, which is not what counts here. */
	rogue_clear(r);
	rogue_add(r, &(struct rogue_rule){ .action = ROGUE_ANSWER });
	rogue_release(r);
	sandbox_unref(sb);
	return end - at;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* cancel ROUNDS: the median and the longest time to the end of a cancelled operation. */
static void bench_cancel(char **args)
{
	unsigned rounds = number(args[0]);
	struct rogue *r = rogue_new(NULL, false);
	size_t n = 0;
	double *took = calloc(rounds * every_op_len, sizeof(*took));

	if (!took)
		die("no memory");
	for (unsigned i = 0; i < rounds; i++)
		for (size_t op = 0; op < every_op_len; op++)
			took[n++] = cancel_one(r, &every_op[op]);
	qsort(took, n, sizeof(*took), compare);
	printf("%.6f %.6f %zu\n", took[n / 2], took[n - 1], n);
	rogue_free(r);
	free(took);
}

static const struct {
	const char *name;
	int args; /* at least */
	void (*run)(char **args);
} workloads[] = {
	{ "download", 1, bench_download }, { "upload", 2, bench_upload },
	{ "crowd", 2, bench_crowd },       { "lstat", 2, bench_lstat },
	{ "exec", 2, bench_exec },         { "exec-stat", 2, bench_exec_stat },
	{ "list", 1, bench_list },         { "cycles", 1, bench_cycles },
	{ "cancel", 1, bench_cancel },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 2 && i < ARRAY_SIZE(workloads); i++) {
		if (strcmp(argv[2], workloads[i].name) || argc - 3 < workloads[i].args)
			continue;
		address = argv[1];
		if (loop_new(&loop) < 0)
			die("cannot start the loop");
		workloads[i].run(argv + 3);
		loop_free(loop);
		return 0;
	}
	die("usage: bench_client SOCKET WORKLOAD ARGUMENT…");
}

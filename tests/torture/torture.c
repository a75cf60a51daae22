/* See torture.h. */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "clock.h"
#include "daemon.h"
#include "inject.h"
#include "io.h"
#include "scratch.h"
#include "util.h"

enum {
	HANGS_MS = 180000, /* nothing takes so long, on a busy machine with sanitizers */
	COMPLAINT = 3,
	LEAK = 4,
};

struct torture {
	const struct torture_area *area;
	int64_t until_ms; /* INT64_MAX: until everything was done */
	unsigned seed, burst;
	const char *only; /* scenario, or scenario:place:turn */
	bool list;
	unsigned runs, places, missed, findings;
	char kept[4096]; /* the area's processes */
};

/* ---- in the scenario's process ---- */

void torture_complain(const char *file, int line, const char *condition, const char *fmt, ...)
{
	va_list ap;

	inject_disarm();
	dprintf(STDERR_FILENO, "%s:%d: not so: %s ", file, line, condition);
	va_start(ap, fmt);
	vdprintf(STDERR_FILENO, fmt, ap);
	va_end(ap);
	dprintf(STDERR_FILENO, "\n");
	_exit(COMPLAINT);
}

bool torture_ended(const char *file, int line, const char *what, int r)
{
	if (r == -ETIMEDOUT || r == -ETIME)
		torture_complain(file, line, what, "ran out of time");
	return r >= 0;
}

/* LeakSanitizer's, where it is linked in. */
__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

static void be_scenario(const struct scenario *s, int log)
{
	unsigned fds;

	if (dup2(log, STDERR_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0)
		_exit(COMPLAINT);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	fds = count_fds();
	s->run();
	inject_disarm();
	DEMAND_THAT(count_fds() == fds, "%u descriptors before, %u after", fds, count_fds());
	if (&__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
		_exit(LEAK);
	_exit(0);
}

/* ---- in the parent ---- */

/* Children by now: a word each, as the kernel lists them. */
static void list_children(char text[4096])
{
	char path[64];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, 4095);
		close(fd);
	}
	text[MAX(n, 0)] = '\0';
}

/*
 * What a run that came to a bad end left, a sandbox and its commands, is ours now. Those of
 * `kept` are the area's.
 */
static void end_strays(const char *kept)
{
	char text[4096], *rest = NULL;
	bool some = true;

	while (some) {
		some = false;
		list_children(text);
		for (char *pid = strtok_r(text, " ", &rest); pid;
		     pid = strtok_r(NULL, " ", &rest)) {
			char word[32];

			snprintf(word, sizeof(word), "%s ", pid);
			if (strstr(kept, word))
				continue;
			some = true;
			kill((pid_t)strtol(pid, NULL, 10), SIGKILL);
			waitpid((pid_t)strtol(pid, NULL, 10), NULL, 0);
		}
	}
}

/* Returns what waitpid() says; -1: it hung, and was killed. */
static int run_once(const struct scenario *s, int log)
{
	int64_t until = clock_ms() + HANGS_MS;
	int status;
	pid_t pid;

	if (ftruncate(log, 0) < 0 || lseek(log, 0, SEEK_SET) < 0)
		abort();
	pid = fork();
	if (pid < 0)
		abort();
	if (pid == 0)
		be_scenario(s, log);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_ms() > until) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		poll(NULL, 0, 1);
	}
	return status;
}

/* Where it was, by addr2line if there is one. */
static void show_frames(const struct inject_hit *hit)
{
	char command[4096], self[1024];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int at;
	FILE *f;

	self[MAX(n, 0)] = '\0';
	at = snprintf(command, sizeof(command), "addr2line -s -p -f -e '%s'", self);
	fflush(stdout);
	f = fopen("/proc/self/maps", "re");
	uintptr_t base = 0;
	if (f) {
		if (fscanf(f, "%lx", &base) != 1)
			base = 0;
		fclose(f);
	}
	for (int i = 0; i < hit->depth; i++)
		at += snprintf(command + at, sizeof(command) - (size_t)at, " 0x%lx",
			       (uintptr_t)hit->frames[i] - base - 1);
	snprintf(command + at, sizeof(command) - (size_t)at, " 2>/dev/null | grep -v '^[?]'");
	f = popen(command, "re");
	for (char line[512]; f && fgets(line, sizeof(line), f);)
		printf("    %s", line);
	if (f)
		pclose(f);
}

static void show_log(int log)
{
	char bytes[8192];
	ssize_t n = pread(log, bytes, sizeof(bytes), 0);

	fflush(stdout);
	if (n > 0)
		(void)!write_all(STDOUT_FILENO, bytes, (size_t)n);
}

static const char *how_it_ended(int status, char text[64])
{
	if (status == -1)
		return "hang";
	if (WIFSIGNALED(status)) {
		snprintf(text, 64, "crash (SIG%s)", sigabbrev_np(WTERMSIG(status)) ?: "?");
		return text;
	}
	if (WEXITSTATUS(status) == COMPLAINT)
		return "complaint";
	if (WEXITSTATUS(status) == LEAK)
		return "leak";
	snprintf(text, 64, "exit %d (sanitizer, or exit())", WEXITSTATUS(status));
	return text;
}

static void one_call(struct torture *t, const struct scenario *s, const struct inject_call *call,
		     int log)
{
	const struct inject_hit *hit = inject_hit();
	char text[64];
	int status;

	inject_plan(call, t->burst, call->turn + t->seed);
	status = run_once(s, log);
	end_strays(t->kept);
	t->runs++;
	if (!hit->was)
		t->missed++;
	if (status == 0)
		return;
	t->findings++;
	printf("FINDING %s: %s: --only %s:%llx:%u --seed %u --burst %u\n", t->area->name,
	       how_it_ended(status, text), s->name, (unsigned long long)call->place, call->turn,
	       t->seed, t->burst);
	if (hit->was) {
		printf("  %s failed with %s, at\n", hit->name, strerrorname_np(hit->error));
		show_frames(hit);
	}
	show_log(log);
	fflush(stdout);
}

/* The n-th of them all, in an order that spreads: each place once, then each again. */
static int by_turn(const void *a, const void *b)
{
	const struct inject_call *x = a, *y = b;

	return x->turn != y->turn ? (x->turn < y->turn ? -1 : 1) : 0;
}

static void shuffle(struct inject_call *calls, size_t n, unsigned seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull;

	for (size_t i = n; i > 1; i--) {
		struct inject_call swap = calls[i - 1];
		size_t j;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		j = x % i;
		calls[i - 1] = calls[j];
		calls[j] = swap;
	}
}

static struct inject_call *list_calls(struct torture *t, const struct scenario *s, int log,
				      size_t *ret_n)
{
	const struct inject_call *all;
	struct inject_call *calls;
	char text[64];
	int status;

	inject_count();
	status = run_once(s, log);
	end_strays(t->kept);
	all = inject_calls(ret_n);
	if (status != 0 || *ret_n == 0) {
		printf("FINDING %s: %s: without any failure: %s\n", t->area->name, s->name,
		       status ? how_it_ended(status, text) : "no calls");
		show_log(log);
		t->findings++;
		return NULL;
	}
	calls = calloc(*ret_n, sizeof(*calls));
	if (!calls)
		abort();
	memcpy(calls, all, *ret_n * sizeof(*calls));
	shuffle(calls, *ret_n, t->seed);
	/* A stable order within a turn is not needed: it is shuffled. */
	qsort(calls, *ret_n, sizeof(*calls), by_turn);
	return calls;
}

static bool is_wanted(const struct torture *t, const struct scenario *s)
{
	size_t n = strlen(s->name);

	return !t->only ||
	       (strncmp(t->only, s->name, n) == 0 && (!t->only[n] || t->only[n] == ':'));
}

static void only_one(struct torture *t, const struct scenario *s, int log)
{
	struct inject_call call = { 0 };
	unsigned long long place;
	unsigned turn;

	if (sscanf(strchr(t->only, ':'), ":%llx:%u", &place, &turn) != 2)
		return;
	call.place = place;
	call.turn = turn;
	one_call(t, s, &call, log);
	if (t->findings == 0)
		show_log(log);
}

static void one_scenario(struct torture *t, const struct scenario *s, int64_t until_ms, int log)
{
	int64_t begun = clock_ms();
	struct inject_call *calls;
	unsigned before = t->runs, places = 0;
	size_t n;

	if (t->only && strchr(t->only, ':')) {
		only_one(t, s, log);
		return;
	}
	calls = list_calls(t, s, log, &n);
	for (size_t i = 0; calls && i < n; i++) {
		places += calls[i].turn == 0;
		if (t->list)
			printf("%s:%llx:%u %s\n", s->name, (unsigned long long)calls[i].place,
			       calls[i].turn, calls[i].name);
	}
	for (size_t i = 0; calls && !t->list && i < n && clock_ms() < until_ms; i++)
		one_call(t, s, &calls[i], log);
	printf("%s %s: %zu calls at %u places, %u made to fail, %.1f s\n", t->area->name, s->name,
	       calls ? n : 0, places, t->runs - before, (double)(clock_ms() - begun) / 1000);
	fflush(stdout);
	t->places += places;
	free(calls);
}

static void all_scenarios(struct torture *t, int log)
{
	size_t left = 0;

	for (size_t i = 0; i < t->area->count; i++)
		left += is_wanted(t, &t->area->scenarios[i]);
	for (size_t i = 0; i < t->area->count; i++) {
		int64_t now = clock_ms();

		if (!is_wanted(t, &t->area->scenarios[i]))
			continue;
		/* What one does not need the next ones have. */
		one_scenario(t, &t->area->scenarios[i],
			     t->until_ms == INT64_MAX
				     ? INT64_MAX
				     : now + MAX(t->until_ms - now, 0) / (int64_t)left,
			     log);
		left--;
	}
}

static bool parse(struct torture *t, int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'r' },
		{ "burst", required_argument, NULL, 'b' },
		{ "only", required_argument, NULL, 'o' },
		{ "list", no_argument, NULL, 'l' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			t->until_ms = clock_ms() + strtol(optarg, NULL, 10) * 1000;
		else if (c == 'r')
			t->seed = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'b')
			t->burst = MAX((unsigned)strtoul(optarg, NULL, 10), 1);
		else if (c == 'o')
			t->only = optarg;
		else if (c == 'l')
			t->list = true;
		else
			return false;
	}
	return optind == argc;
}

/* The same addresses in each run, so that --only means the same call. */
static void fix_addresses(char **argv)
{
	int now = personality(0xffffffff);

	if (now < 0 || (now & ADDR_NO_RANDOMIZE) ||
	    personality((unsigned long)now | ADDR_NO_RANDOMIZE) < 0)
		return;
	execv("/proc/self/exe", argv);
}

int torture_main(int argc, char **argv, const struct torture_area *area)
{
	struct torture t = { .area = area, .until_ms = INT64_MAX, .burst = 1 };
	char dir[SCRATCH_MAX];
	bool fine;
	int log;

	fix_addresses(argv);
	if (!parse(&t, argc, argv)) {
		fprintf(stderr,
			"usage: torture_%s [--seconds N] [--seed N] [--burst N] "
			"[--only SCENARIO[:PLACE:TURN]] [--list]\n",
			area->name);
		return 2;
	}
	setenv("TZ", "UTC", 1);
	inject_init();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	log = memfd_create("log", MFD_CLOEXEC);
	if (log < 0 || !scratch_dir(dir) || setenv("TMPDIR", dir, 1) < 0 ||
	    (area->begin && !area->begin()))
		return 1;
	list_children(t.kept);
	all_scenarios(&t, log);
	fine = !area->end || area->end();
	fine = scratch_remove(dir) && fine;
	printf("torture %s: %u places, %u runs, %u of them missed their call, %u findings\n",
	       area->name, t.places, t.runs, t.missed, t.findings);
	return t.findings == 0 && fine ? 0 : 1;
}

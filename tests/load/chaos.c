/*
 * Everything goes wrong at once, from a seed: writers, readers, renamers and
 * commands work in eight threads of a mount while their sandboxes are killed and
 * stopped, connections cut, the watch dropped, disks filled, and the daemon itself
 * killed and mounted again. Afterwards everything that was confirmed has to be
 * there. Always ends: what hangs is named, with where it hangs in the kernel.
 *
 *	chaos -s SEED -t SECONDS -m MOUNTPOINT -d DATA -c CACHE -R RUN-DIR -- MOUNT-COMMAND…
 *
 * DATA and CACHE are filesystems of their own, which are filled now and then. The
 * last line has the figures. Exits with 1 on a loss, 3 on a hang. As root.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "chaos_i.h"
#include "clock.h"

enum {
	STOPS = 16,      /* sandboxes that stand still at a time */
	HUNG_MS = 90000, /* timeout and start_timeout of the mount, and plenty */
	MOUNT_MS = 60000,
	GONE_MS = 30000,
};

enum kind { KILL, KILL_SERVER, STOP, CUT, CUT_SOME, WATCH, FILL, FILL_CACHE, DAEMON, KINDS };

static const struct {
	const char *name;
	unsigned weight;
} kinds[KINDS] = {
	[KILL] = { "sandboxes killed", 4 }, [KILL_SERVER] = { "servers killed", 4 },
	[STOP] = { "stopped", 5 },          [CUT] = { "connections cut", 3 },
	[CUT_SOME] = { "some cut", 4 },     [WATCH] = { "watches dropped", 4 },
	[FILL] = { "disk filled", 2 },      [FILL_CACHE] = { "cache filled", 1 },
	[DAEMON] = { "daemon killed", 2 },
};

struct chaos chaos;

static struct {
	const char *cache, *run;
	char **command;
	int seconds;
	uint64_t random;
	pid_t daemon;
	unsigned faults[KINDS];
	struct {
		struct fault_sandbox s;
		bool server;
		int64_t until_ms;
	} stops[STOPS];
	struct {
		char path[256];
		int64_t until_ms; /* 0: none */
	} balloons[2];
} world;

static uint64_t below(uint64_t n)
{
	return fault_random(&world.random) % n;
}

void chaos_loss(const char *fmt, ...)
{
	char text[700], when[16];
	time_t now = time(NULL);
	struct tm tm;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	chaos.shared->losses++;
	strftime(when, sizeof(when), "%H:%M:%S", gmtime_r(&now, &tm));
	fprintf(stderr, "chaos: %s LOSS: %s\n", when, text);
}

/* ---- the mount ---- */

static bool answers(void)
{
	char path[300];
	struct stat st;

	snprintf(path, sizeof(path), "%s/README", chaos.mount);
	return stat(path, &st) == 0;
}

static bool mount_it(void)
{
	int64_t end = clock_ms() + MOUNT_MS;

	world.daemon = fork();
	if (world.daemon == 0) {
		execv(world.command[0], world.command);
		_exit(127);
	}
	while (!answers()) {
		if (clock_ms() > end || waitpid(world.daemon, NULL, WNOHANG) != 0) {
			fprintf(stderr, "chaos: it cannot be mounted\n");
			return false;
		}
		usleep(20000);
	}
	chaos.shared->epoch++;
	return true;
}

static bool kill_daemon(void)
{
	chaos.shared->epoch++;
	kill(world.daemon, SIGKILL);
	for (int i = 0; waitpid(world.daemon, NULL, WNOHANG) == 0; i++) {
		usleep(10000);
		if (i * 10 < GONE_MS)
			continue;
		fprintf(stderr, "chaos: HANG: the daemon was killed and does not end\n");
		return false;
	}
	usleep((useconds_t)below(300000));
	return mount_it();
}

/* ---- faults ---- */

static void inflate(unsigned i, const char *dir)
{
	static char block[1 << 20];
	int64_t most = 2ll << 30;
	int fd;

	if (world.balloons[i].until_ms)
		return;
	snprintf(world.balloons[i].path, sizeof(world.balloons[i].path), "%s/balloon", dir);
	world.balloons[i].until_ms = clock_ms() + 50 + (int64_t)below(1500);
	fd = open(world.balloons[i].path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	for (size_t len = sizeof(block); fd >= 0 && len >= 4096 && most > 0;) {
		if (write(fd, block, len) < 0)
			len /= 2;
		most -= (int64_t)len;
	}
	if (fd >= 0)
		close(fd);
}

static void stop_one(const struct fault_sandbox *s)
{
	bool server = below(4);

	for (size_t i = 0; i < STOPS; i++) {
		if (world.stops[i].until_ms)
			continue;
		if (!fault_signal(s, server, SIGSTOP))
			return;
		world.stops[i].s = *s;
		world.stops[i].server = server;
		world.stops[i].until_ms = clock_ms() + 20 + (int64_t)below(below(3) ? 800 : 6000);
		return;
	}
}

/* Ends what lasts: all of it, or what is due. */
static void relieve(bool all)
{
	int64_t now = all ? INT64_MAX : clock_ms();

	for (size_t i = 0; i < STOPS; i++) {
		if (!world.stops[i].until_ms || world.stops[i].until_ms > now)
			continue;
		fault_signal(&world.stops[i].s, world.stops[i].server, SIGCONT);
		world.stops[i].until_ms = 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(world.balloons); i++) {
		if (!world.balloons[i].until_ms || world.balloons[i].until_ms > now)
			continue;
		unlink(world.balloons[i].path);
		world.balloons[i].until_ms = 0;
	}
}

static enum kind choose(void)
{
	unsigned total = 0, at;

	for (size_t i = 0; i < KINDS; i++)
		total += kinds[i].weight;
	at = (unsigned)below(total);
	for (size_t i = 0; i < KINDS; i++) {
		if (at < kinds[i].weight)
			return (enum kind)i;
		at -= kinds[i].weight;
	}
	return KILL;
}

static bool do_fault(void)
{
	struct fault_sandbox all[FAULT_SANDBOXES], *one;
	size_t n = fault_sandboxes(world.run, all);
	enum kind kind = choose();

	one = n ? &all[below(n)] : NULL;
	if (!one && kind != FILL && kind != FILL_CACHE && kind != DAEMON)
		return true;
	world.faults[kind]++;
	switch (kind) {
	case KILL:
	case KILL_SERVER:
		fault_signal(one, kind == KILL_SERVER, SIGKILL);
		break;
	case STOP:
		stop_one(one);
		break;
	case CUT:
	case CUT_SOME:
		fault_cut(world.daemon, world.run, kind == CUT ? 1 : 3,
			  fault_random(&world.random));
		break;
	case WATCH:
		fault_drop_watch(one);
		break;
	case FILL:
		inflate(0, chaos.data);
		break;
	case FILL_CACHE:
		inflate(1, world.cache);
		break;
	default:
		return kill_daemon();
	}
	return true;
}

/* ---- the workers ---- */

static void start_workers(void)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *w = &chaos.shared->workers[i];
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			(i < THREADS ? chaos_writer : chaos_visitor)(i % THREADS, w);
			_exit(0);
		}
		w->pid = pid;
	}
}

static void show_file(pid_t pid, const char *name)
{
	char path[64], text[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text));
	fprintf(stderr, "%s: %.*s\n", path, (int)MAX(n, 0), text);
}

/* Whether somebody waits for longer than anybody may. */
static bool hangs(void)
{
	bool found = false;

	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *w = &chaos.shared->workers[i];
		int64_t since = w->since_ms;

		if (!since || clock_ms() - since < HUNG_MS)
			continue;
		found = true;
		fprintf(stderr, "chaos: HANG: %.150s since %" PRId64 " s\n", w->op,
			(clock_ms() - since) / 1000);
		show_file(w->pid, "wchan");
		show_file(w->pid, "stack");
		show_file(w->pid, "syscall");
	}
	return found;
}

static bool all_ended(void)
{
	bool ended = true;

	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *w = &chaos.shared->workers[i];

		if (w->pid && waitpid(w->pid, NULL, WNOHANG) != 0)
			w->pid = 0;
		ended &= !w->pid;
	}
	return ended;
}

static void kill_workers(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (chaos.shared->workers[i].pid)
			kill(chaos.shared->workers[i].pid, SIGKILL);
}

/* ---- the whole ---- */

static bool make_threads(void)
{
	char path[300];

	for (unsigned i = 0; i < THREADS; i++) {
		snprintf(path, sizeof(path), "%s/threads/t%u", chaos.mount, i);
		if (mkdir(path, 0755)) {
			fprintf(stderr, "chaos: %s: %s\n", path, strerror(errno));
			return false;
		}
	}
	return true;
}

/* Whether nobody hung and every mount came up. */
static bool rage(void)
{
	int64_t end = clock_ms() + world.seconds * 1000ll, next = clock_ms();

	while (clock_ms() < end) {
		usleep(10000);
		relieve(false);
		if (hangs())
			return false;
		if (clock_ms() < next)
			continue;
		if (!do_fault())
			return false;
		next = clock_ms() + (int64_t)below(600);
	}
	relieve(true);
	chaos.shared->stop = true;
	while (!all_ended()) {
		usleep(10000);
		if (hangs())
			return false;
	}
	return true;
}

/* What failed closes left is sent when sandboxes return. */
static unsigned pending(void)
{
	char path[300], text[65536], *at;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/.ctl/status.json", chaos.mount);
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[MAX(n, 0)] = '\0';
	at = strstr(text, "\"pending_files\":");
	return at ? (unsigned)strtoul(at + strlen("\"pending_files\":"), NULL, 10) : 0;
}

static void settle(void)
{
	for (int i = 0; i < 600 && pending() > 0; i++)
		usleep(100000);
	if (pending() > 0)
		fprintf(stderr, "chaos: %u files are still pending\n", pending());
}

static bool unmount_it(void)
{
	int64_t end = clock_ms() + HUNG_MS;
	int status;

	kill(world.daemon, SIGTERM);
	while (waitpid(world.daemon, &status, WNOHANG) == 0) {
		if (clock_ms() > end) {
			fprintf(stderr, "chaos: HANG: the daemon does not end\n");
			kill(world.daemon, SIGKILL);
			return false;
		}
		usleep(20000);
	}
	if (status)
		fprintf(stderr, "chaos: the daemon ended with status %d\n", status);
	return status == 0;
}

static void print_figures(uint64_t files, double seconds)
{
	const struct shared *sh = chaos.shared;
	unsigned total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sh->errnos); i++)
		if (sh->errnos[i])
			fprintf(stderr, "chaos: %u operations ended with %s\n", sh->errnos[i],
				strerrorname_np((int)i));
	for (size_t i = 0; i < KINDS; i++)
		total += world.faults[i];
	printf("chaos: seed %" PRIu64 ", %.0f s: %u faults (", chaos.seed, seconds, total);
	for (size_t i = 0; i < KINDS; i++)
		printf("%s%s %u", i ? ", " : "", kinds[i].name, world.faults[i]);
	printf("); confirmed: %" PRIu64 " writes, %" PRIu64 " edits, %" PRIu64 " appends, %" PRIu64
	       " renames, %" PRIu64 " unlinks, %" PRIu64 " commands; %" PRIu64 " reads, %" PRIu64
	       " operations failed; %" PRIu64 " files verified; %u losses\n",
	       sh->tally[T_WRITES], sh->tally[T_EDITS], sh->tally[T_APPENDS], sh->tally[T_RENAMES],
	       sh->tally[T_UNLINKS], sh->tally[T_COMMANDS], sh->tally[T_READS], sh->tally[T_FAILED],
	       files, sh->losses);
}

static void arguments(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "s:t:m:d:c:R:")) != -1) {
		switch (c) {
		case 's':
			chaos.seed = strtoull(optarg, NULL, 10);
			break;
		case 't':
			world.seconds = (int)strtol(optarg, NULL, 10);
			break;
		case 'm':
			chaos.mount = optarg;
			break;
		case 'd':
			chaos.data = optarg;
			break;
		case 'c':
			world.cache = optarg;
			break;
		case 'R':
			world.run = optarg;
			break;
		default:
			exit(2);
		}
	}
	world.command = argv + optind;
	if (!chaos.mount || !chaos.data || !world.cache || !world.run || optind == argc) {
		fprintf(stderr, "usage: see the head of chaos.c\n");
		exit(2);
	}
	world.random = (chaos.seed + 1) * 0x2545f4914f6cdd1dull;
}

int main(int argc, char **argv)
{
	int64_t began = clock_ms();
	char root[300];
	uint64_t files;

	setvbuf(stderr, NULL, _IOLBF, 0);
	arguments(argc, argv);
	chaos.shared = mmap(NULL, sizeof(*chaos.shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (chaos.shared == MAP_FAILED)
		return 2;
	if (!mount_it() || !make_threads()) {
		kill(world.daemon, SIGTERM);
		return 2;
	}
	start_workers();
	if (!rage()) {
		relieve(true);
		kill_workers();
		kill(world.daemon, SIGKILL);
		return 3;
	}
	settle();
	printf("chaos: %u uploads were broken off and left a temporary file\n",
	       chaos_tidy(chaos.mount, chaos.data));
	snprintf(root, sizeof(root), "%s/threads", chaos.mount);
	files = chaos_verify(root, "", "through the mount");
	if (!unmount_it())
		chaos.shared->losses++;
	snprintf(root, sizeof(root), "%s/users/default/threads", chaos.data);
	chaos_verify(root, "/user-data", "in the sandbox");
	print_figures(files, (double)(clock_ms() - began) / 1000);
	return chaos.shared->losses ? 1 : 0;
}

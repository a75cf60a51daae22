/*
 * A file exerciser: random operations on one file of a mount, each compared with
 * a model in memory; after every fsync and close also what the sandbox really
 * has. The same seed does the same. With -F faults happen between operations
 * (sandboxes die, connections break, the watch ends), which nobody may notice, but
 * for what is never sent twice: it may say that its answer was lost, once or never done.
 *
 *	fsx [-s SEED] [-n OPERATIONS] [-m MAX-SIZE] [-H HOST-DIR] [-c EVERY]
 *	    [-F EVERY -R RUN-DIR -P PID] DIRECTORY
 *
 * DIRECTORY is one of a thread, directly below its root; HOST-DIR is the same
 * directory on the host; -c lets one operation in so many be a command in the
 * sandbox that changes the file. Exits with 1 on the first difference or error
 * and prints the seed, the last operations, and where the difference is.
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
#include <sys/stat.h>

#include "clock.h"
#include "fault.h"
#include "io.h"

enum {
	LOGGED = 80,      /* operations that are printed in the end */
	HUNG_S = 600,     /* an operation that takes so long hangs */
	LATE_US = 500000, /* in which a command ends whose answer was lost */
	PIECE = 64 << 10, /* most that one operation moves, mostly */
};

/* What happened lately. */
struct event {
	uint64_t number;
	const char *what;
	uint64_t offset, len, size; /* size: of the file afterwards */
};

static struct fsx {
	/* as told */
	uint64_t seed, operations, max;
	const char *dir, *host, *run;
	unsigned command_every, fault_every;
	pid_t daemon;
	/* the file */
	char name[32];
	unsigned generation; /* of names */
	int fd;              /* read-write, or -1 */
	int reader;          /* read-only, or -1 */
	char *model;         /* max bytes; beyond size all 0 */
	uint64_t size;
	char *buffer, *other; /* max bytes each */
	/* how it goes */
	uint64_t random, number;
	struct event log[LOGGED];
	const char *now;
	uint64_t faults, checks, commands;
	bool no_fallocate, no_copy;
} fsx = { .seed = 1, .operations = 10000, .max = 256 << 10, .fd = -1, .reader = -1 };

static uint64_t below(uint64_t n)
{
	return n ? fault_random(&fsx.random) % n : 0;
}

/* ---- telling ---- */

static void print_log(void)
{
	for (uint64_t i = 0; i < LOGGED; i++) {
		const struct event *e = &fsx.log[(fsx.number + 1 + i) % LOGGED];

		if (e->what)
			fprintf(stderr,
				"%8" PRIu64 " %-12s %8" PRIu64 " +%-8" PRIu64 " size %" PRIu64 "\n",
				e->number, e->what, e->offset, e->len, e->size);
	}
}

static _Noreturn void fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
static _Noreturn void fail(const char *fmt, ...)
{
	va_list ap;

	alarm(0);
	print_log();
	fprintf(stderr, "fsx: seed %" PRIu64 ", operation %" PRIu64 " (%s): ", fsx.seed, fsx.number,
		fsx.now);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static _Noreturn void fail_errno(const char *call)
{
	fail("%s: %s", call, strerror(errno));
}

static void on_alarm(int sig)
{
	static const char text[] = "fsx: an operation hangs\n";
	ssize_t n UNUSED = write(STDERR_FILENO, text, strlen(text));

	(void)sig;
	_exit(3);
}

static void note(const char *what, uint64_t offset, uint64_t len)
{
	fsx.now = what;
	fsx.log[fsx.number % LOGGED] =
		(struct event){ fsx.number, what, offset, len, MAX(fsx.size, 0) };
}

/* ---- the model ---- */

static void path_of(char *path, size_t size, const char *dir)
{
	snprintf(path, size, "%s/%s", dir, fsx.name);
}

static void compare(const char *who, uint64_t offset, const char *got, uint64_t len)
{
	uint64_t at = 0, end;

	if (!memcmp(got, fsx.model + offset, len))
		return;
	while (got[at] == fsx.model[offset + at])
		at++;
	for (end = at; end < len && got[end] != fsx.model[offset + end];)
		end++;
	fail("%s differs at offset %" PRIu64 " for %" PRIu64 " bytes: 0x%02x instead of 0x%02x",
	     who, offset + at, end - at, (unsigned char)got[at],
	     (unsigned char)fsx.model[offset + at]);
}

static void model_resize(uint64_t size)
{
	if (size < fsx.size)
		memset(fsx.model + size, 0, fsx.size - size);
	fsx.size = size;
}

static void model_write(uint64_t offset, const char *data, uint64_t len)
{
	memcpy(fsx.model + offset, data, len);
	fsx.size = MAX(fsx.size, offset + len);
}

static void fill(uint64_t len)
{
	uint64_t word = fault_random(&fsx.random);

	for (uint64_t i = 0; i < len; i++)
		fsx.buffer[i] = (char)(word >> (i % 8 * 8)) ^ (char)(i / 8);
}

/* A range that begins in the file, or (grow) anywhere where it has room. */
static void choose(bool grow, uint64_t *offset, uint64_t *len)
{
	uint64_t room = grow ? fsx.max : fsx.size;

	*offset = below(room);
	if (!below(3))
		*offset &= ~4095ull;
	*len = 1 + below(below(4) ? 4096 : PIECE);
	if (!below(200))
		*len = room;
	*len = MIN(*len, room - *offset);
}

/* ---- the whole file, elsewhere ---- */

static void check_file(const char *dir, const char *who)
{
	char path[512];
	struct stat st;
	ssize_t n;

	path_of(path, sizeof(path), dir);
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		fail("%s: open %s: %s", who, path, strerror(errno));
	if ((uint64_t)st.st_size != fsx.size)
		fail("%s has %" PRIu64 " bytes instead of %" PRIu64, who, (uint64_t)st.st_size,
		     fsx.size);
	n = pread_all(fd, fsx.buffer, fsx.max, 0);
	if (n < 0 || (uint64_t)n != fsx.size)
		fail("%s: read gave %zd instead of %" PRIu64, who, n, fsx.size);
	compare(who, 0, fsx.buffer, fsx.size);
	fsx.checks++;
}

static void check_host(void)
{
	if (fsx.host)
		check_file(fsx.host, "the sandbox's file");
}

static void open_file(int flags)
{
	char path[512];

	path_of(path, sizeof(path), fsx.dir);
	fsx.fd = open(path, O_RDWR | O_CLOEXEC | flags, 0644);
	if (fsx.fd < 0)
		fail_errno("open");
}

static void close_file(void)
{
	int fd = steal_fd(&fsx.fd);

	if (fd < 0)
		return;
	if (close(fd))
		fail_errno("close");
	check_host();
}

static void close_reader(void)
{
	if (fsx.reader >= 0)
		close(steal_fd(&fsx.reader));
}

static void need_open(void)
{
	if (fsx.fd < 0)
		open_file(0);
}

/* ---- the operations ---- */

static void read_from(int fd, const char *who)
{
	uint64_t offset, len;
	ssize_t n;

	choose(false, &offset, &len);
	note(who, offset, len);
	n = pread_all(fd, fsx.buffer, len, offset);
	if (n < 0)
		fail("read: %s", strerror((int)-n));
	if ((uint64_t)n != len)
		fail("%s: %zd bytes at %" PRIu64 " instead of %" PRIu64, who, n, offset, len);
	compare(who, offset, fsx.buffer, len);
}

static void do_read(void)
{
	need_open();
	read_from(fsx.fd, "read");
}

static void do_other_reader(void)
{
	char path[512];

	note("read-only", 0, 0);
	if (fsx.reader >= 0 && !below(4))
		close_reader();
	if (fsx.reader < 0) {
		path_of(path, sizeof(path), fsx.dir);
		fsx.reader = open(path, O_RDONLY | O_CLOEXEC);
		if (fsx.reader < 0)
			fail_errno("open to read");
	}
	read_from(fsx.reader, "read-only");
}

static void write_at(uint64_t offset, uint64_t len, const char *what)
{
	ssize_t n;

	fill(len);
	note(what, offset, len);
	n = pwrite(fsx.fd, fsx.buffer, len, (off_t)offset);
	if (n < 0)
		fail_errno("write");
	if ((uint64_t)n != len)
		fail("write took %zd of %" PRIu64, n, len);
	model_write(offset, fsx.buffer, len);
}

static void do_write(void)
{
	uint64_t offset, len;

	need_open();
	choose(true, &offset, &len);
	write_at(offset, len, "write");
}

/*
 * What must not be done twice may say, when a sandbox dies, that its answer was lost: it has
 * happened or not. Whether that is what was said just now.
 */
static bool answer_lost(unsigned tries)
{
	return fsx.fault_every && tries <= 5 &&
	       (errno == ENOTCONN || errno == EIO || errno == ETIMEDOUT);
}

/* Of a name that is taken away. */
static bool name_gone(const char *gone, const char *what, unsigned tries)
{
	if (!answer_lost(tries))
		fail_errno(what);
	return access(gone, F_OK) && errno == ENOENT;
}

/*
 * Of a change of the file: whether the sandbox's is another than the model. Nobody has it open
 * afterwards: until then whoever closes or syncs it is told of a lost append.
 */
static bool file_changed(const char *what, unsigned tries)
{
	char path[512];
	struct stat st;

	if (!fsx.host || !answer_lost(tries))
		fail_errno(what);
	usleep(LATE_US);
	if (fsx.fd >= 0 && close(steal_fd(&fsx.fd)) && !answer_lost(tries))
		fail_errno("close after a lost answer");
	path_of(path, sizeof(path), fsx.host);
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		fail_errno("open after a lost answer");
	return (uint64_t)st.st_size != fsx.size ||
	       pread_all(fd, fsx.other, fsx.size, 0) != (ssize_t)fsx.size ||
	       memcmp(fsx.other, fsx.model, fsx.size) != 0;
}

/* Opened, written and closed; -1 with errno. */
static int write_to(const char *path, int flags, const char *bytes, size_t len)
{
	int fd CLEANUP_FD = open(path, O_WRONLY | O_CLOEXEC | flags);

	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
		return -1;
	return close(steal_fd(&fd));
}

/* Through a handle of its own, which is the server's append where it can be. */
static void do_append(void)
{
	uint64_t len = 1 + below(below(3) ? 200 : PIECE);
	unsigned tries = 0;
	char path[512];

	len = MIN(len, fsx.max - fsx.size);
	if (fsx.fd >= 0 && below(2)) {
		write_at(fsx.size, len, "extend");
		return;
	}
	fill(len);
	note("append", fsx.size, len);
	path_of(path, sizeof(path), fsx.dir);
	while (write_to(path, O_APPEND, fsx.buffer, len) && !file_changed("append", ++tries))
		;
	model_write(fsx.size, fsx.buffer, len);
	if (fsx.fd < 0)
		check_host();
}

static void do_truncate(void)
{
	uint64_t size = below(2) ? below(fsx.size + 1) : below(fsx.max + 1);
	char path[512];

	if (!below(10))
		size = 0;
	note(fsx.fd >= 0 ? "ftruncate" : "truncate", size, 0);
	path_of(path, sizeof(path), fsx.dir);
	if (fsx.fd >= 0 ? ftruncate(fsx.fd, (off_t)size) : truncate(path, (off_t)size))
		fail_errno("truncate");
	model_resize(size);
	if (fsx.fd < 0)
		check_host();
}

static void do_map_read(void)
{
	uint64_t offset, len, page;
	char *p;

	need_open();
	choose(false, &offset, &len);
	note("mmap read", offset, len);
	if (!len)
		return;
	page = offset & ~4095ull;
	p = mmap(NULL, offset + len - page, PROT_READ, MAP_SHARED, fsx.fd, (off_t)page);
	if (p == MAP_FAILED)
		fail_errno("mmap");
	memcpy(fsx.buffer, p + (offset - page), len);
	munmap(p, offset + len - page);
	compare("mmap read", offset, fsx.buffer, len);
}

static void do_map_write(void)
{
	uint64_t offset, len, page;
	bool sync = below(2);
	char *p;

	need_open();
	choose(false, &offset, &len);
	note(sync ? "mmap write+s" : "mmap write", offset, len);
	if (!len)
		return;
	fill(len);
	page = offset & ~4095ull;
	p = mmap(NULL, offset + len - page, PROT_READ | PROT_WRITE, MAP_SHARED, fsx.fd,
		 (off_t)page);
	if (p == MAP_FAILED)
		fail_errno("mmap");
	memcpy(p + (offset - page), fsx.buffer, len);
	if (sync && msync(p, offset + len - page, MS_SYNC))
		fail_errno("msync");
	munmap(p, offset + len - page);
	model_write(offset, fsx.buffer, len);
	if (sync)
		check_host();
}

static void do_reopen(void)
{
	bool empty = !below(12);

	note(empty ? "reopen trunc" : "reopen", 0, 0);
	close_file();
	if (!below(4))
		return;
	open_file(empty ? O_TRUNC : 0);
	if (empty)
		model_resize(0);
}

static void do_sync(void)
{
	need_open();
	note("fsync", 0, 0);
	if (below(2) ? fsync(fsx.fd) : fdatasync(fsx.fd))
		fail_errno("fsync");
	check_host();
}

static void do_rename(void)
{
	char from[512], to[512];
	unsigned tries = 0;

	note(fsx.fd >= 0 ? "rename open" : "rename", 0, 0);
	path_of(from, sizeof(from), fsx.dir);
	snprintf(fsx.name, sizeof(fsx.name), "file.%u", ++fsx.generation % 7);
	path_of(to, sizeof(to), fsx.dir);
	while (rename(from, to) && !name_gone(from, "rename", ++tries))
		;
	if (!access(from, F_OK) || errno != ENOENT)
		fail("the old name is still there after a rename");
	if (fsx.fd < 0)
		check_host();
}

static void do_recreate(void)
{
	bool keep = fsx.fd >= 0 && below(2);
	unsigned tries = 0;
	char path[512];

	note(keep ? "orphan" : "recreate", 0, 0);
	close_reader();
	if (!keep)
		close_file();
	path_of(path, sizeof(path), fsx.dir);
	while (unlink(path) && !name_gone(path, "unlink", ++tries))
		;
	if (!access(path, F_OK) || errno != ENOENT)
		fail("the name is still there after unlink");
	if (keep) {
		/* a file without a name is still a file */
		read_from(fsx.fd, "orphan read");
		write_at(fsx.size / 2, MIN(fsx.max - fsx.size / 2, 5000), "orphan write");
		read_from(fsx.fd, "orphan read");
		if (close(steal_fd(&fsx.fd)))
			fail_errno("close of an unlinked file");
		if (!access(path, F_OK) || errno != ENOENT)
			fail("the name is back after the last close");
	}
	note("create", 0, 0);
	open_file(O_CREAT | O_EXCL);
	model_resize(0);
}

static void do_copy(void)
{
	uint64_t from, len, to;
	loff_t in, out;

	need_open();
	choose(false, &from, &len);
	to = below(fsx.max - len + 1);
	if (fsx.no_copy || !len || (to < from + len && from < to + len))
		return;
	note("copy_range", from, len);
	in = (loff_t)from;
	out = (loff_t)to;
	for (uint64_t left = len; left;) {
		ssize_t n = copy_file_range(fsx.fd, &in, fsx.fd, &out, left, 0);

		if (n < 0 && left == len && (errno == EOPNOTSUPP || errno == ENOSYS)) {
			fsx.no_copy = true;
			return;
		}
		if (n <= 0)
			fail("copy_file_range gave %zd: %s", n, strerror(errno));
		left -= (uint64_t)n;
	}
	memcpy(fsx.buffer, fsx.model + from, len);
	model_write(to, fsx.buffer, len);
}

static void do_allocate(void)
{
	static const struct {
		const char *name;
		int mode;
	} kinds[] = {
		{ "fallocate", 0 },
		{ "falloc keep", FALLOC_FL_KEEP_SIZE },
		{ "punch hole", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE },
		{ "zero range", FALLOC_FL_ZERO_RANGE },
	};
	unsigned kind = (unsigned)below(ARRAY_SIZE(kinds));
	uint64_t offset, len, inside;

	need_open();
	choose(true, &offset, &len);
	if (!len || (fsx.no_fallocate && kind == 0))
		return;
	note(kinds[kind].name, offset, len);
	if (fallocate(fsx.fd, kinds[kind].mode, (off_t)offset, (off_t)len)) {
		if (errno != EOPNOTSUPP && errno != ENOSYS)
			fail_errno(kinds[kind].name);
		fsx.no_fallocate |= kind == 0;
		return;
	}
	inside = offset < fsx.size ? MIN(len, fsx.size - offset) : 0;
	if (kind >= 2)
		memset(fsx.model + offset, 0, inside);
	if (kind == 0 || kind == 3)
		fsx.size = MAX(fsx.size, offset + len);
}

static void do_stat(void)
{
	char path[512];
	struct stat st;
	bool by_fd = fsx.fd >= 0 && below(2);

	note(by_fd ? "fstat" : "stat", 0, 0);
	path_of(path, sizeof(path), fsx.dir);
	if (by_fd ? fstat(fsx.fd, &st) : stat(path, &st))
		fail_errno("stat");
	if ((uint64_t)st.st_size != fsx.size)
		fail("stat says %" PRIu64 " bytes instead of %" PRIu64, (uint64_t)st.st_size,
		     fsx.size);
}

static void do_whole(void)
{
	note("whole", 0, fsx.size);
	check_file(fsx.dir, "the mount's file");
}

/* A program in the sandbox changes the file; what is seen then is what it made. */
static void do_command(void)
{
	const char *base = strrchr(fsx.dir, '/') + 1;
	uint64_t offset = below(fsx.max - 16), size = below(fsx.max);
	char path[512], text[256];
	bool resize = below(2);
	unsigned tries = 0;
	int len;

	close_file();
	close_reader();
	note(resize ? "cmd truncate" : "cmd write", resize ? size : offset, 8);
	if (resize)
		len = snprintf(text, sizeof(text), "truncate -s %" PRIu64 " %s/%s", size, base,
			       fsx.name);
	else
		len = snprintf(text, sizeof(text),
			       "printf %08" PRIu64 " | dd of=%s/%s bs=1 seek=%" PRIu64
			       " conv=notrunc status=none",
			       fsx.number % 100000000, base, fsx.name, offset);
	snprintf(path, sizeof(path), "%s/../.ctl/exec", fsx.dir);
	while (write_to(path, 0, text, (size_t)len) && !file_changed("command", ++tries))
		;
	if (resize) {
		model_resize(size);
	} else {
		snprintf(text, sizeof(text), "%08" PRIu64, fsx.number % 100000000);
		model_write(offset, text, 8);
	}
	fsx.commands++;
	check_host();
	do_stat();
}

/* ---- what goes wrong meanwhile ---- */

static void do_fault(void)
{
	static const char *const names[] = { "FAULT kill", "FAULT server", "FAULT cut",
					     "FAULT cut 1/2", "FAULT watch" };
	unsigned kind = (unsigned)below(ARRAY_SIZE(names));
	struct fault_sandbox all[FAULT_SANDBOXES];
	size_t n = fault_sandboxes(fsx.run, all);

	note(names[kind], 0, n);
	for (size_t i = 0; i < n && kind < 2; i++)
		fault_kill(&all[i], kind == 1);
	for (size_t i = 0; i < n && kind == 4; i++)
		fault_drop_watch(&all[i]);
	if (kind == 2 || kind == 3)
		fault_cut(fsx.daemon, fsx.run, kind - 1, fault_random(&fsx.random));
	fsx.faults++;
}

/* ---- all of it ---- */

static const struct {
	void (*run)(void);
	unsigned weight;
} operations[] = {
	{ do_read, 16 },        { do_write, 16 },    { do_append, 8 }, { do_truncate, 7 },
	{ do_map_read, 8 },     { do_map_write, 8 }, { do_reopen, 8 }, { do_sync, 4 },
	{ do_rename, 3 },       { do_recreate, 2 },  { do_copy, 5 },   { do_allocate, 4 },
	{ do_other_reader, 5 }, { do_stat, 8 },      { do_whole, 2 },
};

static void step(void)
{
	unsigned total = 0, at;

	if (fsx.fault_every && !below(fsx.fault_every)) {
		do_fault();
		fsx.number++;
	}
	if (fsx.command_every && !below(fsx.command_every)) {
		do_command();
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
		total += operations[i].weight;
	at = (unsigned)below(total);
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		if (at < operations[i].weight) {
			operations[i].run();
			return;
		}
		at -= operations[i].weight;
	}
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || !*text) {
		fprintf(stderr, "fsx: not a number: %s\n", text);
		exit(2);
	}
	return n;
}

static void arguments(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "s:n:m:H:c:F:R:P:")) != -1) {
		switch (c) {
		case 's':
			fsx.seed = number(optarg);
			break;
		case 'n':
			fsx.operations = number(optarg);
			break;
		case 'm':
			fsx.max = number(optarg);
			break;
		case 'H':
			fsx.host = optarg;
			break;
		case 'c':
			fsx.command_every = (unsigned)number(optarg);
			break;
		case 'F':
			fsx.fault_every = (unsigned)number(optarg);
			break;
		case 'R':
			fsx.run = optarg;
			break;
		case 'P':
			fsx.daemon = (pid_t)number(optarg);
			break;
		default:
			exit(2);
		}
	}
	if (optind + 1 != argc || fsx.max < 4096 || (fsx.fault_every && !fsx.run)) {
		fprintf(stderr, "usage: see the head of fsx.c\n");
		exit(2);
	}
	fsx.dir = argv[optind];
}

int main(int argc, char **argv)
{
	int64_t began = clock_ms();

	arguments(argc, argv);
	fsx.random = fsx.seed * 0x9e3779b97f4a7c15ull + 1;
	fsx.model = calloc(1, fsx.max);
	fsx.buffer = malloc(fsx.max);
	fsx.other = malloc(fsx.max);
	if (!fsx.model || !fsx.buffer || !fsx.other)
		return 2;
	signal(SIGALRM, on_alarm);
	snprintf(fsx.name, sizeof(fsx.name), "file.0");
	note("create", 0, 0);
	open_file(O_CREAT | O_EXCL);
	for (fsx.number = 1; fsx.number <= fsx.operations; fsx.number++) {
		alarm(HUNG_S);
		step();
	}
	note("the end", 0, 0);
	close_file();
	close_reader();
	check_file(fsx.dir, "the mount's file");
	printf("fsx: seed %" PRIu64 ": %" PRIu64 " operations, %" PRIu64 " whole files compared, "
	       "%" PRIu64 " commands, %" PRIu64 " faults, no difference, %.1f s%s%s\n",
	       fsx.seed, fsx.operations, fsx.checks, fsx.commands, fsx.faults,
	       (double)(clock_ms() - began) / 1000, fsx.no_fallocate ? "; no fallocate" : "",
	       fsx.no_copy ? "; no copy_file_range" : "");
	free(fsx.model);
	free(fsx.buffer);
	free(fsx.other);
	return 0;
}

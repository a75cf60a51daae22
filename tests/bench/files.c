/*
 * Workloads of scripts/bench mount on the files of a directory, where the usual
 * tools are too coarse. One per run, "SECONDS CHECK" on one line of stdout: the
 * check is the same for everyone who read the same. Seconds are those of the
 * work itself, without the start of the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bench.h"
#include "offsets.h"
#include "util.h"

enum { PIECE = 128 * 1024 /* what cat and cp read at a time */ };

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die("open %s: %m", path);
	return fd;
}

static void report(double start, uint64_t check)
{
	printf("%.6f %" PRIu64 "\n", now_s() - start, check);
}

struct reader {
	pthread_t thread;
	const char *path;
	uint64_t bytes;
};

static void *read_all(void *ctx)
{
	struct reader *r = ctx;
	int fd = open_file(r->path);
	char *piece = malloc(PIECE);
	ssize_t n;

	if (!piece)
		die("no memory");
	while ((n = read(fd, piece, PIECE)) > 0)
		r->bytes += (uint64_t)n;
	if (n < 0)
		die("read %s: %m", r->path);
	close(fd);
	free(piece);
	return NULL;
}

/* read FILE…: all of them to the end, at the same time. */
static void bench_read(int count, char **paths)
{
	struct reader *readers = calloc((size_t)count, sizeof(*readers));
	uint64_t bytes = 0;
	double start;

	if (!readers)
		die("no memory");
	start = now_s();
	for (int i = 0; i < count; i++) {
		readers[i].path = paths[i];
		if (pthread_create(&readers[i].thread, NULL, read_all, &readers[i]))
			die("no threads");
	}
	for (int i = 0; i < count; i++) {
		pthread_join(readers[i].thread, NULL);
		bytes += readers[i].bytes;
	}
	report(start, bytes);
	free(readers);
}

/* first FILE: its first byte. */
static void bench_first(int count UNUSED, char **args)
{
	double start = now_s();
	int fd = open_file(args[0]);
	unsigned char byte;

	if (read(fd, &byte, 1) != 1)
		die("read %s: %m", args[0]);
	report(start, byte);
	close(fd);
}

/* random FILE COUNT: pieces of 4 KiB, wherever offsets.h says. */
static void bench_random(int count UNUSED, char **args)
{
	unsigned char piece[OFFSETS_PIECE];
	unsigned long pieces = strtoul(args[1], NULL, 10);
	struct offsets offsets;
	struct stat st;
	uint64_t sum = 0;
	double start;
	int fd;

	start = now_s();
	fd = open_file(args[0]);
	if (fstat(fd, &st) < 0)
		die("stat %s: %m", args[0]);
	offsets_init(&offsets, (uint64_t)st.st_size);
	for (unsigned long i = 0; i < pieces; i++) {
		uint64_t at = offsets_next(&offsets);

		if (pread(fd, piece, sizeof(piece), (off_t)at) != sizeof(piece))
			die("read %s at %" PRIu64 ": %m", args[0], at);
		sum += offsets_sum(piece, sizeof(piece));
	}
	report(start, sum);
	close(fd);
}

/* stats DIR NAMES: one stat per line of the file NAMES, each below DIR; the sum of the sizes. */
static void bench_stats(int count UNUSED, char **args)
{
	FILE *f = fopen(args[1], "re");
	char **names = NULL, *line = NULL;
	size_t len = 0, room = 0, line_room = 0;
	uint64_t sizes = 0;
	struct stat st;
	double start;
	ssize_t n;
	int dir;

	if (!f)
		die("open %s: %m", args[1]);
	while ((n = getline(&line, &line_room, f)) > 0) {
		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		if (len == room) {
			room = room ? 2 * room : 1024;
			names = reallocarray(names, room, sizeof(*names));
			if (!names)
				die("no memory");
		}
		names[len++] = strdup(line);
	}
	fclose(f);
	free(line);
	start = now_s();
	dir = open(args[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		die("open %s: %m", args[0]);
	for (size_t i = 0; i < len; i++) {
		if (fstatat(dir, names[i], &st, 0) < 0)
			die("stat %s: %m", names[i]);
		sizes += (uint64_t)st.st_size;
	}
	report(start, sizes);
	close(dir);
	for (size_t i = 0; i < len; i++)
		free(names[i]);
	free(names);
}

static const struct {
	const char *name;
	int args; /* at least */
	void (*run)(int count, char **args);
} workloads[] = {
	{ "read", 1, bench_read },
	{ "first", 1, bench_first },
	{ "random", 2, bench_random },
	{ "stats", 2, bench_stats },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(workloads); i++) {
		if (strcmp(argv[1], workloads[i].name) || argc - 2 < workloads[i].args)
			continue;
		workloads[i].run(argc - 2, argv + 2);
		return 0;
	}
	die("usage: bench_files read FILE… | first FILE | random FILE COUNT | stats DIR NAMES");
}

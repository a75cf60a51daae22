/* After chaos: is everything there that was confirmed, whole, and nothing else? */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "buf.h"
#include "chaos_i.h"
#include "io.h"

enum { TIDY_TRIES = 300 };

static char data[CONTENT_MAX + 1], scratch[CONTENT_MAX];

/* The version at that name: 0 if there is none, UINT32_MAX if it is none of the file's. */
static uint32_t version_at(const char *dir, unsigned thread, const struct slot *s, unsigned slot,
			   bool second)
{
	char name[64], path[512];
	uint32_t version;
	ssize_t n;

	slot_name(name, sizeof(name), s->generation, slot, second);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	n = fd < 0 ? -errno : pread_all(fd, data, sizeof(data), 0);
	if (n < 0) {
		chaos_loss("%s cannot be read: %s", path, strerror((int)-n));
		return UINT32_MAX;
	}
	version = content_version(data, (size_t)n, scratch, thread, s->generation, slot);
	if (!version && content_is_edit(data, (size_t)n, thread, s, slot))
		return s->edited;
	if (!version) {
		chaos_loss("%s: %zd bytes that are no version of it: %.60s", path, n, data);
		return UINT32_MAX;
	}
	return version;
}

static void check_slot(const char *dir, const char *who, unsigned thread, const struct slot *s,
		       unsigned slot)
{
	if (s->torn)
		return;
	uint32_t here = version_at(dir, thread, s, slot, s->elsewhere);
	uint32_t there = version_at(dir, thread, s, slot, !s->elsewhere);
	uint32_t best = MAX(here, there);
	char name[64];

	slot_name(name, sizeof(name), s->generation, slot, s->elsewhere);
	if (best == UINT32_MAX)
		return;
	if (best > s->attempted)
		chaos_loss("%s: %s/%s: version %u, which nobody wrote", who, dir, name, best);
	if (best && best <= s->floor)
		chaos_loss("%s: %s/%s: version %u, which was removed", who, dir, name, best);
	if (best < s->confirmed && !(s->may_be_absent && !best))
		chaos_loss("%s: %s/%s: version %u, but %u was confirmed (%u tried)%s", who, dir,
			   name, best, s->confirmed, s->attempted, best ? "" : ": no such file");
	if (!s->unsure && there)
		chaos_loss("%s: %s/%s has its old name, too", who, dir, name);
}

/* Counts each whole "<THREAD.N" of a file in seen[]. */
static void count_marks(const char *path, unsigned thread, char end, uint8_t seen[static LINES])
{
	struct buf all CLEANUP_BUF = BUF_INIT(64 << 20);
	char mark[16], piece[65536];
	const char *at;
	ssize_t n;

	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && (n = read(fd, piece, sizeof(piece))) > 0)
		buf_append(&all, piece, (size_t)n);
	if (fd < 0 && errno != ENOENT)
		chaos_loss("%s cannot be read: %s", path, strerror(errno));
	snprintf(mark, sizeof(mark), "<%u.", thread);
	for (at = all.data ?: ""; (at = strstr(at, mark)); at++) {
		char *rest;
		unsigned long number = strtoul(at + strlen(mark), &rest, 10);

		if (*rest != end || number >= LINES)
			continue;
		rest += strcspn(rest, ">\n");
		if (*rest == '>' && seen[number] < UINT8_MAX)
			seen[number]++;
	}
}

/* Confirmed ones are there once, all others at most once. Returns how many there are. */
static uint64_t check_marks(const char *dir, const char *who, const char *file, unsigned thread,
			    char end, const _Atomic uint8_t *fates, unsigned n)
{
	static uint8_t seen[LINES];
	uint64_t found = 0;
	char path[512];

	memset(seen, 0, sizeof(seen));
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	count_marks(path, thread, end, seen);
	for (unsigned i = 0; i < n; i++) {
		found += seen[i];
		if (seen[i] > 1)
			chaos_loss("%s: %s: %u is there %u times", who, path, i, seen[i]);
		if (fates[i] == FATE_CONFIRMED && seen[i] == 0)
			chaos_loss("%s: %s: %u was confirmed and is not there", who, path, i);
	}
	return found;
}

static void check_names(const char *dir, const char *who, unsigned thread)
{
	unsigned slot, generation, version, saves = 0;
	struct dirent *e;
	DIR *d = opendir(dir);
	char which;

	if (!d) {
		chaos_loss("%s: %s cannot be listed: %s", who, dir, strerror(errno));
		return;
	}
	while ((e = readdir(d))) {
		const char *name = e->d_name;
		int end = 0;

		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "log") ||
		    !strcmp(name, "commands"))
			continue;
		if (sscanf(name, "s%u.g%u.%c%n", &slot, &generation, &which, &end) == 3 &&
		    name[end] == '\0')
			continue;
		/* What a killed daemon had not confirmed, and others wrote over since. */
		if (strstr(name, ".threadfs-conflict-"))
			continue;
		if (end && sscanf(name + end, ".v%u.tmp", &version) == 1 &&
		    ++saves <= chaos.shared->failed_saves[thread])
			continue;
		chaos_loss("%s: %s/%s was left behind", who, dir, name);
	}
	closedir(d);
}

/* Makes an hour pass for what broken uploads left in the directory. Returns how many there are. */
static unsigned age_temporaries(const char *dir)
{
	const struct timespec past[2] = { { .tv_nsec = UTIME_OMIT },
					  { .tv_sec = time(NULL) - 7200 } };
	struct dirent *e;
	DIR *d = opendir(dir);
	unsigned n = 0;

	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, ".threadfs-upload-", 17) != 0)
			continue;
		utimensat(dirfd(d), e->d_name, past, 0);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static void list(const char *dir)
{
	DIR *d = opendir(dir);

	while (d && readdir(d))
		;
	if (d)
		closedir(d);
}

unsigned chaos_tidy(const char *mount, const char *host)
{
	char dir[400];
	unsigned total = 0, left = 1;

	for (unsigned tries = 0; left && tries < TIDY_TRIES; tries++, usleep(100000)) {
		left = 0;
		for (unsigned t = 0; t < THREADS; t++) {
			snprintf(dir, sizeof(dir), "%s/users/default/threads/t%u/user-data/outputs",
				 host, t);
			left += age_temporaries(dir);
			snprintf(dir, sizeof(dir), "%s/threads/t%u/outputs", mount, t);
			list(dir);
		}
		total = MAX(total, left);
	}
	return total;
}

uint64_t chaos_verify(const char *root, const char *suffix, const char *who)
{
	struct shared *sh = chaos.shared;
	uint64_t files = 0;
	char dir[400];

	for (unsigned t = 0; t < THREADS; t++) {
		snprintf(dir, sizeof(dir), "%s/t%u%s/outputs", root, t, suffix);
		for (unsigned i = 0; i < SLOTS; i++, files++)
			check_slot(dir, who, t, &sh->slots[t][i], i);
		for (unsigned i = 0; i < sh->retired_count[t]; i++, files++)
			check_slot(dir, who, t, &sh->retired[t][i], sh->retired[t][i].moves);
		check_marks(dir, who, "log", t, ':', sh->lines[t], sh->line_count[t]);
		check_marks(dir, who, "commands", t, '>', sh->commands[t], sh->command_count[t]);
		check_names(dir, who, t);
	}
	return files;
}

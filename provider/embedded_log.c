/*
 * A sandbox's log: DATA/logs/ID.log, and what it was before in .1 and .2. The
 * sandbox appends to it as long as it runs, so it is rotated in place: its end
 * is copied, then it is cut. Knows nothing of sandboxes. Blocks on the disk; for
 * workers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "embedded_i.h"
#include "io.h"
#include "paths.h"

enum { WORDS_MAX = 600, TAIL_MAX = 16 * 1024 };

static char *log_path(const char *data, const char *id, const char *suffix)
{
	char *path;

	return asprintf(&path, "%s/logs/%s.log%s", data, id, suffix) < 0 ? NULL : path;
}

/* ---- rotating ---- */

/* From an offset to the end, also what is added meanwhile. */
static int copy_from(int from, off_t at, int to)
{
	char chunk[16 * 1024];
	ssize_t n;

	while ((n = pread(from, chunk, sizeof(chunk), at)) != 0) {
		int r = n < 0 ? -errno : write_all(to, chunk, (size_t)n);

		if (r == -EINTR)
			continue;
		if (r < 0)
			return r;
		at += n;
	}
	return 0;
}

static int shift(int fd, const char *data, const char *id, off_t from)
{
	char *one CLEANUP_FREE = log_path(data, id, ".1");
	char *two CLEANUP_FREE = log_path(data, id, ".2");
	int to CLEANUP_FD = -1;
	int r;

	if (!one || !two)
		return -ENOMEM;
	if (rename(one, two) < 0 && errno != ENOENT)
		return -errno;
	to = open(one, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	r = copy_from(fd, from, to);
	/* What cannot be kept (a full disk) is still to be cut, or it would grow for ever. */
	if (ftruncate(fd, 0) < 0 && r == 0)
		r = -errno;
	return r;
}

static void rotate(int fd, const char *data, const char *id, int64_t max)
{
	struct stat st;

	/* One at a time, among all programs that use the sandbox. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size > max)
		(void)!shift(fd, data, id, st.st_size - max);
	flock(fd, LOCK_UN);
}

void log_rotate(const char *data, const char *id, int64_t max)
{
	char *path CLEANUP_FREE = log_path(data, id, "");
	int fd CLEANUP_FD = -1;

	if (!path)
		return;
	fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		rotate(fd, data, id, max);
}

int log_open(const char *data, const char *id, int64_t max)
{
	char *path CLEANUP_FREE = log_path(data, id, "");
	char *dir CLEANUP_FREE = NULL;
	int fd, r;

	if (!path || asprintf(&dir, "%s/logs", data) < 0) {
		dir = NULL;
		return -ENOMEM;
	}
	r = paths_make(dir, 0700);
	if (r < 0)
		return r;
	log_rotate(data, id, max);
	fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

/* ---- last words ---- */

/* Whether the line is an error, and what it says without its head. */
static const char *error_text(const char *line)
{
	static const char mark[] = ": error: ";
	const char *at = strstr(line, mark);

	return at ? at + sizeof(mark) - 1 : NULL;
}

static char *join(const char *a, const char *b)
{
	char *text;
	int n = a ? asprintf(&text, "%.*s; %.*s", WORDS_MAX, a, WORDS_MAX, b)
		  : asprintf(&text, "%.*s", WORDS_MAX, b);

	if (n < 0)
		return NULL;
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return text;
}

char *log_last_words(int fd, int64_t from)
{
	const char *errors[2] = { NULL, NULL }, *last = NULL;
	char tail[TAIL_MAX], *save = NULL;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return NULL;
	n = pread(fd, tail, sizeof(tail) - 1, MAX(from, (int64_t)st.st_size - TAIL_MAX + 1));
	if (n <= 0)
		return NULL;
	for (ssize_t i = 0; i < n; i++)
		if (!tail[i])
			tail[i] = '?';
	tail[n] = '\0';
	/* Errors, at most two of them: the second may only say that the first was fatal. */
	for (char *line = strtok_r(tail, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *error = error_text(line);

		last = line[strspn(line, " \t\r")] ? line : last;
		if (!error)
			continue;
		errors[0] = errors[1];
		errors[1] = error;
	}
	if (errors[1])
		return join(errors[0], errors[1]);
	return last ? join(NULL, last) : NULL;
}

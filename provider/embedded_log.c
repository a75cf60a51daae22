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
#include "log.h"
#include "paths.h"

enum { WORDS_MAX = 600, TAIL_MAX = 16 * 1024 };

struct log_name {
	char text[SANDBOX_ID_LEN + sizeof(".log.1")];
};

static struct log_name log_name(const char *id, const char *suffix)
{
	struct log_name n;

	snprintf(n.text, sizeof(n.text), "%.*s.log%s", SANDBOX_ID_LEN, id, suffix);
	return n;
}

/* A directory of ours, not a link: files are replaced and cut in it. */
static int open_logs(const char *data, bool make)
{
	int root CLEANUP_FD = paths_open_data(data, make), fd;
	struct stat st;

	if (root < 0)
		return root;
	fd = make ? paths_make_dir(root, "logs", 0700, NULL) : paths_open_dir(root, "logs");
	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022))) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* One that has no other name: a second one could be somebody else's file. */
static int open_log(int dir, const char *id, int flags)
{
	int fd CLEANUP_FD =
		openat(dir, log_name(id, "").text,
		       O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0600);
	struct stat st;
	int high;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
		return -EPERM;
	/* It becomes another program's 1 and 2, and must not be one of those here. */
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	return high < 0 ? -errno : high;
}

/* ---- rotating ---- */

/* From an offset to the end, also what is added meanwhile, but not for ever. */
static int copy_from(int from, off_t at, off_t end, int to)
{
	char chunk[16 * 1024];

	while (at < end) {
		ssize_t n = pread(from, chunk, sizeof(chunk), at);
		int r;

		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? -errno : write_all(to, chunk, (size_t)n);
		if (r < 0)
			return r;
		at += n;
	}
	return 0;
}

static int keep(int fd, int dir, const char *id, off_t size, off_t max)
{
	const struct log_name one = log_name(id, ".1"), two = log_name(id, ".2");
	int to CLEANUP_FD = -1;

	if (renameat(dir, one.text, dir, two.text) < 0 && errno != ENOENT)
		return -errno;
	to = openat(dir, one.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	return copy_from(fd, size - max, size + max, to);
}

static void rotate(int fd, int dir, const char *id, int64_t max)
{
	struct stat st;

	/* One at a time, among all programs that use the sandbox. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size > max) {
		int r = keep(fd, dir, id, st.st_size, max);

		/* What cannot be kept (a full disk) is still cut, or it would grow for ever. */
		if (ftruncate(fd, 0) < 0 && r == 0)
			r = -errno;
		if (r < 0)
			log_warn("sandbox %s: its log could not be rotated: %s", id,
				 strerrordesc_np(-r));
	}
	flock(fd, LOCK_UN);
}

void log_rotate(const char *data, const char *id, int64_t max)
{
	int dir CLEANUP_FD = open_logs(data, false), fd CLEANUP_FD = -1;

	if (dir < 0)
		return;
	fd = open_log(dir, id, 0);
	if (fd >= 0)
		rotate(fd, dir, id, max);
}

int log_open(const char *data, const char *id, int64_t max)
{
	int dir CLEANUP_FD = open_logs(data, true);
	int fd;

	if (dir < 0)
		return dir;
	fd = open_log(dir, id, O_CREAT);
	if (fd >= 0)
		rotate(fd, dir, id, max);
	return fd;
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
	if (from > (int64_t)st.st_size)
		from = 0; /* it was rotated */
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

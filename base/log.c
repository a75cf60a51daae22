/* See log.h. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "lock.h"
#include "utf8.h"

static enum log_level max_level = LOG_INFO;
static const char *program = "threadfs";
static enum { STREAM_PLAIN, STREAM_FILE, STREAM_JOURNAL } stream;
static int out = STDERR_FILENO; /* immutable once threads run, as all of these */
unsigned log_topics_on;

static struct lock turn = LOCK_INIT; /* a leaf: nothing is waited for under it */
static unsigned long lost;           /* lines since the last one that got through; under turn */
static bool cut;                     /* what got through last is half a line; likewise */

void log_set_level(enum log_level level)
{
	max_level = level;
}

void log_set_name(const char *name)
{
	program = name;
}

void log_set_topics(unsigned topics)
{
	log_topics_on = topics;
}

/* systemd says in JOURNAL_STREAM which device and inode its stream has. */
static bool is_journal(const struct stat *st)
{
	const char *said = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;

	return said && sscanf(said, "%llu:%llu", &dev, &ino) == 2 && st->st_dev == dev &&
	       st->st_ino == ino;
}

/*
 * A description of our own: O_NONBLOCK on stderr's would be for all who share that. Where it cannot
 * be had (another user's), put_out() has nothing but poll(2) to go by.
 */
static void open_again(void)
{
	int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0)
		out = fd;
}

void log_look_at_stream(void)
{
	struct stat st;

	stream = STREAM_PLAIN;
	if (out != STDERR_FILENO)
		close(out);
	out = STDERR_FILENO;
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	if (is_journal(&st))
		stream = STREAM_JOURNAL;
	else if (S_ISREG(st.st_mode))
		stream = STREAM_FILE;
	else if (S_ISFIFO(st.st_mode) || isatty(STDERR_FILENO))
		open_again();
}

static int put_head(char *to, size_t size, enum log_level level)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	static const int priorities[] = { 3, 4, 6, 7 };
	struct timespec now;
	struct tm tm;
	size_t n;

	if (stream == STREAM_JOURNAL)
		return snprintf(to, size, "<%d>", priorities[level]);
	if (stream == STREAM_PLAIN)
		return snprintf(to, size, "%s: %s: ", program, names[level]);
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(to, size, "%Y-%m-%dT%H:%M:%S", &tm);
	return (int)n + snprintf(to + n, size - n, ".%03ldZ %s: %s: ", now.tv_nsec / 1000000,
				 program, names[level]);
}

/*
 * Whoever is behind it need not read, and nothing here may wait for that. A pipe that is ready has
 * room for PIPE_BUF bytes, more than a line; a terminal may have less, so half a line is possible.
 */
static bool put_out(const char *text, size_t n)
{
	struct pollfd p = { .fd = out, .events = POLLOUT };
	ssize_t done = send(out, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (done < 0 && errno == ENOTSOCK)
		done = poll(&p, 1, 0) > 0 ? write(out, text, n) : -1;
	if (done > 0)
		cut = text[done - 1] != '\n';
	return done == (ssize_t)n;
}

static bool put_note(void)
{
	char note[128];
	int n = put_head(note, sizeof(note), LOG_WARN);

	n += snprintf(note + n, sizeof(note) - (size_t)n,
		      "%lu line(s) of this log could not be written\n", lost);
	return (!cut || put_out("\n", 1)) && put_out(note, (size_t)n);
}

/* A line that would have to wait is lost, and counted. */
static void put_line(const char *line, size_t n)
{
	lock(&turn);
	if (lost > 0 && put_note())
		lost = 0;
	if (lost > 0 || !put_out(line, n))
		lost++;
	unlock(&turn);
}

PRINTF_LIKE(3, 0)
static void put(enum log_level level, const char *topic, const char *fmt, va_list ap)
{
	char line[2048];
	int head, n, err = errno;

	head = put_head(line, sizeof(line), level);
	head += snprintf(line + head, sizeof(line) - (size_t)head, "%s%s", topic ?: "",
			 topic ? ": " : "");
	n = vsnprintf(line + head, sizeof(line) - (size_t)head, fmt, ap);
	if (n < 0)
		return;
	n = MIN(head + n, (int)sizeof(line) - 2);
	/* What is logged may come from a peer: keep it to one harmless line. */
	line[n] = '\0';
	utf8_disarm(line + head);
	line[n++] = '\n';
	put_line(line, (size_t)n);
	errno = err;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (level > max_level)
		return;
	va_start(ap, fmt);
	put(level, NULL, fmt, ap);
	va_end(ap);
}

void log_topic_msg(unsigned topic, const char *fmt, ...)
{
	static const char *const names[] = { "fuse", "http", "lease", "file", "ctl" };
	va_list ap;

	va_start(ap, fmt);
	put(LOG_DEBUG, names[__builtin_ctz(topic)], fmt, ap);
	va_end(ap);
}

/* See log.h. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "utf8.h"

static enum log_level max_level = LOG_INFO;
static const char *program = "threadfs";
static enum { STREAM_PLAIN, STREAM_FILE, STREAM_JOURNAL } stream;
unsigned log_topics_on;

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

void log_look_at_stream(void)
{
	struct stat st;

	stream = STREAM_PLAIN;
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	if (is_journal(&st))
		stream = STREAM_JOURNAL;
	else if (S_ISREG(st.st_mode))
		stream = STREAM_FILE;
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

PRINTF_LIKE(3, 0)
static void put(enum log_level level, const char *topic, const char *fmt, va_list ap)
{
	char line[2048];
	int head, n;

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
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nowhere left to say it */
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

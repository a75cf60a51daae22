/* See log.h. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

static enum log_level max_level = LOG_INFO;
static const char *program = "threadfs";

void log_set_level(enum log_level level)
{
	max_level = level;
}

void log_set_name(const char *name)
{
	program = name;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	char line[2048];
	int head, n;
	va_list ap;

	if (level > max_level)
		return;
	head = snprintf(line, sizeof(line), "%s: %s: ", program, names[level]);
	va_start(ap, fmt);
	n = vsnprintf(line + head, sizeof(line) - (size_t)head, fmt, ap);
	va_end(ap);
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

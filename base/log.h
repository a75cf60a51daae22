/*
 * One line per event on stderr. Thread-safe (one write per line). Does not block, unless stderr is
 * a file: a line for which there is no room is lost, and how many were is told with the next one.
 *
 * A file gets the time with each line. A terminal and a pipe get none: whoever is behind it
 * knows the time. For the journal the level becomes the "<N>" that it understands, and the
 * program's name is left out, as it knows that as well.
 */
#pragma once

#include "util.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* What can be logged in detail, each for itself. */
enum log_topics {
	LOG_FUSE = 1,  /* requests of the kernel */
	LOG_HTTP = 2,  /* requests to servers */
	LOG_LEASE = 4, /* states of sandboxes, leases */
	LOG_FILE = 8,  /* uploads, downloads, watches */
	LOG_CTL = 16,  /* control files */
};

/* All are to be called before threads start. */
void log_set_level(enum log_level level);
void log_set_name(const char *name); /* must stay valid */
void log_set_topics(unsigned topics);
void log_look_at_stream(void); /* what stderr is; without it: a terminal */

void log_msg(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Use log_topic(). topic: one bit of enum log_topics. */
void log_topic_msg(unsigned topic, const char *fmt, ...) PRINTF_LIKE(2, 3);
extern unsigned log_topics_on; /* immutable once threads run */

/* "debug: http: …", if somebody wants to know; the arguments cost nothing otherwise. */
#define log_topic(topic, ...)                                                                      \
	do {                                                                                       \
		if (log_topics_on & (topic))                                                       \
			log_topic_msg(topic, __VA_ARGS__);                                         \
	} while (0)

#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)

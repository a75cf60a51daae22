/*
 * Text for people and for Prometheus: what others said made harmless, times and
 * sizes, tables with columns that fit, metrics. Knows nothing of the mount. Pure.
 */
#pragma once

#include "buf.h"
#include "histogram.h"

/*
 * What a sandbox said, for a terminal: control characters, what is not UTF-8,
 * and what turns the direction of writing become "\x1b" and the like. At most
 * max characters (0: all), then "…".
 */
void text_escape(struct buf *to, const char *text, size_t max);

enum { TEXT_TIME = 32 };
/* "2026-01-31T12:00:00.000Z"; "" for 0, which means never. Returns to. */
const char *text_time(double wall, char to[TEXT_TIME]);
/* "5s", "3m", "2h", "4d". */
void text_duration(struct buf *to, double seconds);
/* "512 B", "1.5 MiB". */
void text_size(struct buf *to, uint64_t bytes);
/* "ETIMEDOUT", of a positive or negative errno. */
const char *text_errno(int err);

/* ---- tables ---- */

enum { TABLE_COLUMNS = 8 };

/* Cells from left to right, line by line; nothing is padded behind the last column. */
struct table {
	size_t columns;
	char **cells;
	size_t count, room;
	int error; /* sticky: 0 or -ENOMEM */
};
#define CLEANUP_TABLE CLEANUP(table_release)
void table_release(struct table *t);
/* Any text: it is escaped. "" and NULL show as "-". */
void table_cell(struct table *t, const char *text);
void table_number(struct table *t, uint64_t n);
/* Takes what is in the buffer as it is, and empties it. */
void table_take(struct table *t, struct buf *text);
/* Returns 0 or a negative errno. */
int table_print(const struct table *t, struct buf *to) MUST_CHECK;

/* ---- metrics, in Prometheus' text format ---- */

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
/* Before the values of a metric, once. help: one line. */
void metric_begin(struct buf *to, const char *name, enum metric_type type, const char *help);
/* One value; labels are pairs of name and value, NULL at the end; values may be any text. */
void metric_value(struct buf *to, const char *name, double value, ...) __attribute__((sentinel));
/* A histogram in seconds, with two labels. */
void metric_histogram(struct buf *to, const char *name, const struct histogram *h,
		      const char *const labels[4]);
/* Both, for what has but one value. */
void metric(struct buf *to, const char *name, enum metric_type type, const char *help,
	    double value);

/* See status_text.h. Any thread. */
#include "status_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "utf8.h"

/* ---- what others said ---- */

void text_escape(struct buf *to, const char *text, size_t max)
{
	size_t left = strlen(text);

	for (size_t shown = 0; left > 0; shown++) {
		size_t len = utf8_sequence(text, left);
		bool harmless = len > 0 && !utf8_is_control(text, len);

		if (max > 0 && shown == max) {
			buf_puts(to, "…");
			return;
		}
		len = MAX(len, 1);
		if (harmless)
			buf_append(to, text, len);
		for (size_t i = 0; i < len && !harmless; i++)
			buf_printf(to, "\\x%02x", (unsigned char)text[i]);
		text += len;
		left -= len;
	}
}

/* ---- times, sizes, errors ---- */

const char *text_time(double wall, char to[TEXT_TIME])
{
	time_t seconds = (time_t)floor(wall);
	char day[24];
	struct tm tm;

	to[0] = '\0';
	if (!(wall > 0 && wall < 2e11) || !gmtime_r(&seconds, &tm))
		return to;
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(to, TEXT_TIME, "%s.%03uZ", day,
		 MIN((unsigned)((wall - (double)seconds) * 1e3), 999u));
	return to;
}

void text_duration(struct buf *to, double seconds)
{
	uint64_t s = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;

	if (s < 60)
		buf_printf(to, "%" PRIu64 "s", s);
	else if (s < 3600)
		buf_printf(to, "%" PRIu64 "m", s / 60);
	else if (s < 48 * 3600)
		buf_printf(to, "%" PRIu64 "h", s / 3600);
	else
		buf_printf(to, "%" PRIu64 "d", s / 86400);
}

void text_size(struct buf *to, uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double size = (double)bytes / 1024;
	size_t i = 0;

	if (bytes < 1024) {
		buf_printf(to, "%" PRIu64 " B", bytes);
		return;
	}
	for (; size >= 1023.95 && i + 1 < ARRAY_SIZE(units); i++)
		size /= 1024;
	buf_printf(to, "%.1f %s", size, units[i]);
}

const char *text_errno(int err)
{
	return strerrorname_np(err < 0 ? -err : err) ?: "EIO";
}

/* ---- tables ---- */

enum { CELL_MAX = 300 }; /* characters: a line is to stay one */

void table_release(struct table *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){ 0 };
}

void table_take(struct table *t, struct buf *text)
{
	char **more;

	if (text->error || !text->data) {
		t->error = t->error ?: text->error ?: -ENOMEM;
		return;
	}
	if (t->count == t->room) {
		more = reallocarray(t->cells, t->room + 64, sizeof(*more));
		if (!more) {
			t->error = -ENOMEM;
			return;
		}
		t->cells = more;
		t->room += 64;
	}
	t->cells[t->count++] = STEAL(text->data);
	*text = BUF_INIT(text->max);
}

void table_cell(struct table *t, const char *text)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	text_escape(&b, text && text[0] ? text : "-", CELL_MAX);
	table_take(t, &b);
}

void table_number(struct table *t, uint64_t n)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&b, "%" PRIu64, n);
	table_take(t, &b);
}

static size_t width(const char *cell)
{
	return utf8_length(cell, strlen(cell));
}

int table_print(const struct table *t, struct buf *to)
{
	size_t widths[TABLE_COLUMNS] = { 0 };

	if (t->error)
		return t->error;
	for (size_t i = 0; i < t->count; i++)
		widths[i % t->columns] = MAX(widths[i % t->columns], width(t->cells[i]));
	for (size_t i = 0; i < t->count; i++) {
		size_t column = i % t->columns;

		buf_puts(to, t->cells[i]);
		if (column + 1 == t->columns)
			buf_putc(to, '\n');
		else
			buf_printf(to, "%*s", (int)(widths[column] - width(t->cells[i]) + 2), "");
	}
	return to->error;
}

/* ---- metrics ---- */

void metric_begin(struct buf *to, const char *name, enum metric_type type, const char *help)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };

	buf_printf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

/* The format knows three escapes and wants UTF-8. */
static void put_label(struct buf *to, const char *name, const char *value)
{
	size_t left = strlen(value);

	buf_printf(to, "%s=\"", name);
	while (left > 0) {
		size_t len = utf8_sequence(value, left);

		if (len == 0)
			buf_puts(to, "\xef\xbf\xbd");
		else if (*value == '\n')
			buf_puts(to, "\\n");
		else if (*value == '\\' || *value == '"')
			buf_printf(to, "\\%c", *value);
		else
			buf_append(to, value, len);
		value += MAX(len, 1);
		left -= MAX(len, 1);
	}
	buf_putc(to, '"');
}

/* Whole numbers as such: counters of bytes are larger than what %g keeps. */
static void put_number(struct buf *to, double value)
{
	if (value >= -9e15 && value <= 9e15 && value == floor(value))
		buf_printf(to, " %.0f\n", value);
	else
		buf_printf(to, " %.15g\n", value);
}

void metric_value(struct buf *to, const char *name, double value, ...)
{
	const char *label;
	char before = '{';
	va_list ap;

	buf_puts(to, name);
	va_start(ap, value);
	while ((label = va_arg(ap, const char *))) {
		buf_putc(to, before);
		put_label(to, label, va_arg(ap, const char *));
		before = ',';
	}
	va_end(ap);
	if (before == ',')
		buf_putc(to, '}');
	put_number(to, value);
}

void metric(struct buf *to, const char *name, enum metric_type type, const char *help, double value)
{
	metric_begin(to, name, type, help);
	metric_value(to, name, value, NULL);
}

void metric_histogram(struct buf *to, const char *name, const struct histogram *h,
		      const char *const labels[4])
{
	char series[128], bound[32];
	uint64_t below = 0;

	snprintf(series, sizeof(series), "%s_bucket", name);
	for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		below += h->counts[i];
		snprintf(bound, sizeof(bound), "%g",
			 i < HISTOGRAM_BOUNDS ? histogram_bounds[i] : 0);
		metric_value(to, series, (double)below, labels[0], labels[1], "le",
			     i < HISTOGRAM_BOUNDS ? bound : "+Inf", labels[2], labels[3], NULL);
	}
	snprintf(series, sizeof(series), "%s_sum", name);
	metric_value(to, series, (double)h->sum_us / 1e6, labels[0], labels[1], labels[2],
		     labels[3], NULL);
	snprintf(series, sizeof(series), "%s_count", name);
	metric_value(to, series, (double)h->count, labels[0], labels[1], labels[2], labels[3],
		     NULL);
}

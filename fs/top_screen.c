/* See top_screen.h. */
#include "top_screen.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "status_text.h"
#include "utf8.h"

/* ---- text that fits ---- */

/* The next character: its bytes, and the columns that it takes; -1: the locale cannot show it. */
static int next_char(const char *text, size_t *ret_len)
{
	size_t len = utf8_sequence(text, strlen(text));
	wchar_t c;

	*ret_len = MAX(len, 1);
	if (len == 1)
		return 1;
	if (len == 0 || MB_CUR_MAX == 1 || mbtowc(&c, text, len) < 0)
		return -1;
	return wcwidth(c);
}

static size_t columns_of(const char *text)
{
	size_t columns = 0, len;

	for (; *text; text += len) {
		int w = next_char(text, &len);

		columns += w < 0 ? 1 : (size_t)w;
	}
	return columns;
}

void top_fit(struct buf *to, const char *text, size_t columns)
{
	bool cut = columns_of(text) > columns;
	size_t used = 0, room = cut && columns > 0 ? columns - 1 : columns;

	while (*text) {
		size_t len;
		int w = next_char(text, &len);

		if (used + (w < 0 ? 1 : (size_t)w) > room)
			break;
		if (w < 0)
			buf_putc(to, '?');
		else
			buf_append(to, text, len);
		used += w < 0 ? 1 : (size_t)w;
		text += len;
	}
	if (cut && columns > 0) {
		buf_puts(to, MB_CUR_MAX > 1 ? "…" : ">");
		used++;
	}
	if (used < columns)
		buf_printf(to, "%*s", (int)(columns - used), "");
}

void top_bar(struct buf *to, double fraction, size_t columns)
{
	size_t inner = columns > 2 ? columns - 2 : 0;
	size_t full = (size_t)(MIN(MAX(fraction, 0), 1) * (double)inner);

	buf_putc(to, '[');
	for (size_t i = 0; i < inner; i++)
		buf_putc(to, i < full ? '#' : '-');
	buf_putc(to, ']');
}

void top_clock(struct buf *to, double seconds)
{
	uint64_t s = seconds >= 0 && seconds < 1e9 ? (uint64_t)seconds : 0;

	if (seconds < 0)
		buf_putc(to, '-');
	else if (s >= 3600)
		buf_printf(to, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
			   s % 60);
	else
		buf_printf(to, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
}

static void put_size(struct buf *to, double bytes)
{
	text_size(to, bytes > 0 && bytes < 1e18 ? (uint64_t)bytes : 0);
}

void top_rate(struct buf *to, double bytes_per_s)
{
	put_size(to, bytes_per_s);
	buf_puts(to, "/s");
}

/* ---- rows ---- */

static struct top_row *add_row(struct top_screen *s, enum top_style style)
{
	struct top_row *more = reallocarray(s->rows, s->count + 1, sizeof(*more));

	if (!more) {
		s->error = -ENOMEM;
		return NULL;
	}
	s->rows = more;
	s->rows[s->count] = (struct top_row){ .style = style };
	return &s->rows[s->count++];
}

/* Takes the line, and makes it as wide as the screen. */
static void put_row(struct top_screen *s, enum top_style style, struct buf *line)
{
	struct top_row *row = add_row(s, style);

	buf_puts(line, "");
	if (!row || line->error) {
		s->error = s->error ?: -ENOMEM;
		return;
	}
	top_fit(&row->text, line->data, s->width);
	if (row->text.error)
		s->error = row->text.error;
	buf_reset(line);
}

static void put_text(struct top_screen *s, enum top_style style, const char *text)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&line, text);
	put_row(s, style, &line);
}

/* ---- the top ---- */

static void put_title(struct top_screen *s, const struct top_view *v)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0), left CLEANUP_BUF = BUF_INIT(0);
	struct buf right CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&left, "threadfs %s  %s on %s", v->version, v->source, v->mountpoint);
	buf_puts(&right, "  up ");
	text_duration(&right, v->uptime_s);
	if (!left.error && !right.error && s->width > right.len)
		top_fit(&line, left.data, s->width - right.len);
	buf_puts(&line, right.data ?: "");
	put_row(s, TOP_TITLE, &line);
}

static void put_counts(struct top_screen *s, const struct top_view *v)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&line, "threads %zu%s%s   open files %.0f   waiting %.0f   commands %.0f",
		   v->nthreads, *v->states ? ": " : "", v->states, v->open_files, v->waiting,
		   v->commands);
	put_row(s, TOP_PLAIN, &line);
}

static void put_time(struct buf *to, double seconds)
{
	if (seconds < 0)
		buf_puts(to, "-");
	else if (seconds < 0.0095)
		buf_printf(to, "%.1f ms", seconds * 1e3);
	else if (seconds < 0.9995)
		buf_printf(to, "%.0f ms", seconds * 1e3);
	else
		buf_printf(to, "%.1f s", seconds);
}

static double interval_s(const struct top_view *v, const struct top_view *before)
{
	return before ? (double)(v->taken_us - before->taken_us) / 1e6 : v->uptime_s;
}

/* How long they took since last time; without that, since the beginning. */
static void put_latency(struct buf *to, const char *what, const struct histogram *now,
			const struct histogram *before, double seconds)
{
	struct histogram h = *now;

	for (size_t i = 0; before && i <= HISTOGRAM_BOUNDS; i++)
		h.counts[i] -= MIN(before->counts[i], h.counts[i]);
	h.count = 0;
	for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
		h.count += h.counts[i];
	buf_printf(to, "%s %.0f/s", what, seconds > 0 ? (double)h.count / seconds : 0);
	buf_puts(to, "  50% ");
	put_time(to, histogram_quantile(&h, 0.5));
	buf_puts(to, "  99% ");
	put_time(to, histogram_quantile(&h, 0.99));
}

static void put_latencies(struct top_screen *s, const struct top_view *v,
			  const struct top_view *before)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);
	double seconds = interval_s(v, before);

	put_latency(&line, "requests", &v->request_times, before ? &before->request_times : NULL,
		    seconds);
	put_latency(&line, "   sandboxes", &v->sandbox_times,
		    before ? &before->sandbox_times : NULL, seconds);
	put_row(s, TOP_PLAIN, &line);
}

static void put_hits(struct top_screen *s, const struct top_view *v)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&line, "from cache");
	for (size_t i = 0; i < TOP_CACHES; i++) {
		double all = v->hits[i] + v->misses[i];

		buf_printf(&line, "  %s ", top_cache_names[i]);
		if (all > 0)
			buf_printf(&line, "%.0f%%", floor(100 * v->hits[i] / all));
		else
			buf_putc(&line, '-');
	}
	put_row(s, TOP_PLAIN, &line);
}

static void put_moved(struct buf *to, const char *what, double bytes, double before, double seconds)
{
	buf_printf(to, "%s ", what);
	put_size(to, bytes);
	if (seconds > 0) {
		buf_puts(to, " (");
		top_rate(to, MAX(bytes - before, 0) / seconds);
		buf_putc(to, ')');
	}
}

static void put_bytes(struct top_screen *s, const struct top_view *v, const struct top_view *before)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);
	double seconds = before ? interval_s(v, before) : 0;

	put_moved(&line, "down", v->bytes_down, before ? before->bytes_down : 0, seconds);
	put_moved(&line, "   up", v->bytes_up, before ? before->bytes_up : 0, seconds);
	buf_printf(&line, "   failed %.0f of %.0f", v->errors, v->requests);
	put_row(s, TOP_PLAIN, &line);
}

static void put_room(struct top_screen *s, const struct top_view *v)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&line, "cache ");
	put_size(&line, v->cache_used);
	buf_puts(&line, " of ");
	put_size(&line, v->cache_size);
	buf_puts(&line, "   memory ");
	put_size(&line, v->memory_used);
	buf_puts(&line, " of ");
	put_size(&line, v->memory);
	if (v->pending_files > 0) {
		buf_printf(&line, "   not in a sandbox yet: %.0f file%s, ", v->pending_files,
			   v->pending_files == 1 ? "" : "s");
		put_size(&line, v->pending_bytes);
	}
	put_row(s, TOP_PLAIN, &line);
}

/* ---- threads ---- */

static int compare(const void *a, const void *b, void *ctx)
{
	const struct top_thread *x = a, *y = b;
	int by = 0;

	switch (*(enum top_sort *)ctx) {
	case TOP_BY_NAME:
		break;
	case TOP_BY_STATE:
		by = strcmp(x->state, y->state);
		break;
	case TOP_BY_LEASES:
		by = (x->leases < y->leases) - (x->leases > y->leases);
		break;
	case TOP_BY_OPEN:
		by = (x->open_files < y->open_files) - (x->open_files > y->open_files);
		break;
	case TOP_BY_USE: /* never: last */
		by = ((x->idle_s < 0) - (y->idle_s < 0))
			     ?: (x->idle_s > y->idle_s) - (x->idle_s < y->idle_s);
		break;
	case TOP_BY_ERROR:
		by = (y->error[0] != 0) - (x->error[0] != 0);
		break;
	}
	return by ?: strcmp(x->name, y->name);
}

void top_sort_threads(struct top_view *v, enum top_sort sort)
{
	qsort_r(v->threads, v->nthreads, sizeof(*v->threads), compare, &sort);
}

/* The name's column: as wide as need be, up to a share of the screen. */
static size_t name_width(const struct top_screen *s, const struct top_view *v)
{
	size_t most = MAX(s->width / 4, 12), width = 6;

	for (size_t i = 0; i < v->nthreads; i++)
		width = MAX(width, columns_of(v->threads[i].name));
	return MIN(width, most);
}

static void put_thread(struct top_screen *s, const struct top_thread *t, size_t name, bool selected)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0), ago CLEANUP_BUF = BUF_INIT(0);
	enum top_style style = selected ? TOP_SELECTED : t->error[0] ? TOP_BAD : TOP_PLAIN;

	if (t->idle_s >= 0)
		text_duration(&ago, t->idle_s);
	buf_puts(&line, selected ? "> " : "  ");
	top_fit(&line, t->name, name);
	buf_puts(&line, "  ");
	top_fit(&line, t->state, 8);
	buf_printf(&line, "  %6u  %4u  %4s  ", t->leases, t->open_files, ago.data ?: "-");
	top_fit(&line, t->watch, 5);
	if (s->width >= 100) {
		buf_puts(&line, "  ");
		top_fit(&line, t->sandbox, 16);
	}
	buf_printf(&line, "  %s", t->error[0] ? t->error : "-");
	put_row(s, style, &line);
}

static void put_threads_head(struct top_screen *s, size_t name)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&line, "  ");
	top_fit(&line, "THREAD", name);
	buf_puts(&line, "  STATE     LEASES  OPEN  USED  WATCH");
	if (s->width >= 100)
		buf_puts(&line, "  SANDBOX         ");
	buf_puts(&line, "  LAST ERROR");
	put_row(s, TOP_HEAD, &line);
}

/* room: rows for threads and a line that says how many more there are. */
static void put_threads(struct top_screen *s, struct top_view *v, size_t room)
{
	size_t name = name_width(s, v);
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	top_sort_threads(v, s->sort);
	put_threads_head(s, name);
	s->page = MIN(room, v->nthreads);
	s->selected = MIN(s->selected, v->nthreads > 0 ? v->nthreads - 1 : 0);
	s->first = MIN(s->first, v->nthreads - s->page);
	if (s->selected < s->first)
		s->first = s->selected;
	if (s->page > 0 && s->selected >= s->first + s->page)
		s->first = s->selected - s->page + 1;
	for (size_t i = s->first; i < s->first + s->page; i++)
		put_thread(s, &v->threads[i], name, i == s->selected && !s->passive);
	if (v->nthreads == 0)
		put_text(s, TOP_PLAIN, "  none: mkdir MOUNTPOINT/threads/ID makes one");
	else if (s->page < v->nthreads) {
		buf_printf(&line, "  %zu to %zu of %zu", s->first + 1, s->first + s->page,
			   v->nthreads);
		put_row(s, TOP_KEYS, &line);
	}
}

/* ---- transfers ---- */

static void put_transfer(struct top_screen *s, const struct top_transfer *x)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0), what CLEANUP_BUF = BUF_INIT(0);
	struct buf rate CLEANUP_BUF = BUF_INIT(0), left CLEANUP_BUF = BUF_INIT(0);
	size_t bar = s->width >= 120 ? 40 : 16, rest = bar + 4 + 2 + 2 + 5 + 12 + 2 + 8;
	double part = x->total > 0 ? x->moved / x->total : x->total == 0;

	buf_printf(&what, "%s: %s", x->thread, x->path);
	buf_puts(&line, x->up ? "  up    " : "  down  ");
	top_fit(&line, what.data ?: "", s->width > rest + 18 ? s->width - rest - 8 : 10);
	buf_puts(&line, "  ");
	if (x->total >= 0) {
		top_bar(&line, part, bar);
		buf_printf(&line, " %3.0f%%", floor(MIN(part, 1) * 100));
	} else {
		buf_reset(&what);
		put_size(&what, x->moved);
		top_fit(&line, what.data ?: "", bar + 5);
	}
	top_rate(&rate, x->rate);
	top_clock(&left, x->left_s);
	buf_printf(&line, "  %12s  %8s", rate.data ?: "", left.data ?: "");
	put_row(s, TOP_PLAIN, &line);
}

static void put_transfers(struct top_screen *s, const struct top_view *v, size_t room)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);
	size_t shown = v->ntransfers <= room ? v->ntransfers : room - 1;

	put_text(s, TOP_PLAIN, "");
	buf_printf(&line, "  TRANSFERS %zu", v->ntransfers);
	put_row(s, TOP_HEAD, &line);
	for (size_t i = 0; i < shown; i++)
		put_transfer(s, &v->transfers[i]);
	if (shown < v->ntransfers) {
		buf_printf(&line, "  and %zu more", v->ntransfers - shown);
		put_row(s, TOP_KEYS, &line);
	}
}

/* ---- all of it ---- */

static const char *const sort_names[TOP_SORTS] = { "name",       "state", "leases",
						   "open files", "use",   "error" };

static void put_help(struct top_screen *s)
{
	static const char *const lines[] = {
		"threadfs top",
		"",
		"  up, down, j, k        choose a thread",
		"  PgUp, PgDn, Home, End the same, faster",
		"  r                     release its sandbox: the mount gives its lease up",
		"  d                     destroy its sandbox (asks first); its files stay",
		"  s                     sort by name, state, leases, open files, use, error",
		"  space                 look again now",
		"  h, ?                  this help",
		"  q                     quit",
		"",
		"requests: of programs, about files; sandboxes: HTTP requests to sandboxes.",
		"50% and 99% of these took no longer than that, since the last look.",
		"from cache: requests that were answered without asking the sandbox.",
		"",
		"any key goes back",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		put_text(s, i == 0 ? TOP_TITLE : TOP_PLAIN, lines[i]);
}

static void put_bottom(struct top_screen *s)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	while (s->height > 0 && s->count + 1 < s->height && !s->error)
		put_text(s, TOP_PLAIN, "");
	if (s->message) {
		put_text(s, s->is_bad ? TOP_BAD : TOP_KEYS, s->message);
		return;
	}
	buf_printf(&line, "q quit  r release  d destroy  s sort (%s)  up/down choose  h help",
		   sort_names[s->sort]);
	put_row(s, TOP_KEYS, &line);
}

static void forget_rows(struct top_screen *s)
{
	for (size_t i = 0; i < s->count; i++)
		buf_release(&s->rows[i].text);
	s->count = 0;
	s->error = 0;
}

/* What the screen has left for threads, when so many rows are below them. */
static size_t rows_left(const struct top_screen *s, size_t below)
{
	size_t taken = s->count + 1 + 1 + below + 1; /* blank line, head, threads, more, bottom */

	return s->height > taken + 1 ? s->height - taken - 1 : 1;
}

void top_draw(struct top_screen *s, struct top_view *v, const struct top_view *before)
{
	size_t transfers = v->ntransfers;

	forget_rows(s);
	if (s->help) {
		put_help(s);
		return;
	}
	put_title(s, v);
	put_counts(s, v);
	put_latencies(s, v, before);
	put_hits(s, v);
	put_bytes(s, v, before);
	put_room(s, v);
	put_text(s, TOP_PLAIN, "");
	if (s->height > 0)
		transfers = MIN(transfers, MAX(s->height / 4, 2));
	put_threads(s, v,
		    s->height > 0 ? rows_left(s, transfers > 0 ? transfers + 2 : 0) : v->nthreads);
	if (transfers > 0)
		put_transfers(s, v, transfers);
	if (!s->passive)
		put_bottom(s);
}

void top_screen_release(struct top_screen *s)
{
	forget_rows(s);
	free(s->rows);
	*s = (struct top_screen){ 0 };
}

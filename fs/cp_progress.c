/* See cp.h. On a terminal a line on stderr that is drawn over; otherwise a line per file. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "clock.h"
#include "cp.h"
#include "status_text.h"
#include "top_screen.h"

enum { SHOW_EVERY_MS = 200, BAR = 20 };

static size_t width_of_terminal(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : 80;
}

static double rate_of(const struct cp_progress *p)
{
	double seconds = (double)(clock_ms() - p->since_ms) / 1e3;

	return seconds > 0 ? (double)(p->done - p->kept) / seconds : 0;
}

/* "NAME  [####----]  45%   12.3 MiB/s     0:35", as wide as the terminal but for a column. */
static void draw(struct cp_progress *p, const char *what)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0), name CLEANUP_BUF = BUF_INIT(0);
	struct buf rate CLEANUP_BUF = BUF_INIT(0), left CLEANUP_BUF = BUF_INIT(0);
	double part = p->total > 0 ? (double)p->done / (double)p->total : 1;
	size_t width = width_of_terminal(), rest = 2 + BAR + 5 + 2 + 12 + 2 + 8 + 1;

	text_escape(&name, p->name, 0);
	top_rate(&rate, rate_of(p));
	top_clock(&left, rate_of(p) > 0 ? (double)(p->total - p->done) / rate_of(p) : -1);
	top_fit(&line, name.data ?: "", width > rest + 8 ? width - rest : 8);
	buf_puts(&line, "  ");
	top_bar(&line, part, BAR);
	buf_printf(&line, " %3d%%  ", (int)(MIN(part, 1) * 100));
	if (what)
		buf_printf(&line, "%-22s", what);
	else
		buf_printf(&line, "%12s  %8s", rate.data ?: "", left.data ?: "");
	if (!line.error)
		fprintf(stderr, "\r%s", line.data);
	p->shown_ms = clock_ms();
}

void cp_progress_begin(struct cp_progress *p, const char *name, uint64_t total)
{
	*p = (struct cp_progress){
		.on_terminal = p->on_terminal, .name = name, .total = total, .since_ms = clock_ms()
	};
}

void cp_progress_moved(struct cp_progress *p, uint64_t bytes)
{
	p->done = MIN(p->done + bytes, p->total);
	if (p->on_terminal && clock_ms() - p->shown_ms >= SHOW_EVERY_MS)
		draw(p, NULL);
}

void cp_progress_say(struct cp_progress *p, const char *what)
{
	if (p->on_terminal)
		draw(p, what);
}

void cp_progress_clear(struct cp_progress *p)
{
	if (p->on_terminal)
		fprintf(stderr, "\r%*s\r", (int)width_of_terminal() - 1, "");
}

void cp_progress_end(struct cp_progress *p, const char *to, const char *sum, bool was_there)
{
	struct buf line CLEANUP_BUF = BUF_INIT(0);

	if (p->on_terminal) {
		p->done = p->total;
		draw(p, was_there ? "was there, verified" : "verified");
		fputc('\n', stderr);
		return;
	}
	text_escape(&line, p->name, 0);
	buf_puts(&line, " -> ");
	text_escape(&line, to, 0);
	buf_puts(&line, was_there ? ": was there, " : ": ");
	text_size(&line, p->total);
	buf_printf(&line, ", sha256 %s\n", sum);
	if (!line.error)
		fputs(line.data, stdout);
	fflush(stdout);
}

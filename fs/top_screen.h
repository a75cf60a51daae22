/*
 * What `threadfs top` shows, as lines of text that fit: of a terminal's size, or as many
 * as it takes. Knows nothing of terminals, so that it can be printed and tested. Pure, but for the
 * locale (which characters there are, and how wide).
 */
#pragma once

#include "top_view.h"

enum top_sort { TOP_BY_NAME, TOP_BY_STATE, TOP_BY_LEASES, TOP_BY_OPEN, TOP_BY_USE, TOP_BY_ERROR };
enum { TOP_SORTS = TOP_BY_ERROR + 1 };

enum top_style { TOP_PLAIN, TOP_TITLE, TOP_HEAD, TOP_SELECTED, TOP_BAD, TOP_KEYS };

struct top_row {
	struct buf text;
	enum top_style style;
};

struct top_screen {
	/* set by the caller */
	size_t width, height; /* height 0: as many rows as it takes */
	enum top_sort sort;
	bool help;
	const char *message; /* instead of the keys; NULL: none */
	bool is_bad;         /* the message */
	bool passive;        /* nobody can press keys */

	/* kept from one drawing to the next */
	size_t selected, first; /* of the threads: which, and which is on top */
	size_t page;            /* so many of them are shown */

	struct top_row *rows;
	size_t count;
	int error; /* sticky: 0 or -ENOMEM */
};

void top_sort_threads(struct top_view *v, enum top_sort sort);
/* before: what was read before it, for rates; or NULL. Threads are sorted in place. */
void top_draw(struct top_screen *s, struct top_view *v, const struct top_view *before);
void top_screen_release(struct top_screen *s);

/* Texts that `threadfs cp` shows, too. "[###---]" of so many columns; fraction 0 to 1. */
void top_bar(struct buf *to, double fraction, size_t columns);
/* "1:02:03", "2:03", "0:03"; "-" below 0. */
void top_clock(struct buf *to, double seconds);
/* "1.5 MiB/s". */
void top_rate(struct buf *to, double bytes_per_s);
/* Appends text, cut or padded to exactly so many columns of the terminal. */
void top_fit(struct buf *to, const char *text, size_t columns);

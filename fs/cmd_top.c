/*
 * threadfs top: a mount's status on the whole screen, once a second. The mount is read and
 * written by child processes (aside.h): whatever it does, keys are heard. Where there is no
 * terminal for it, one look is printed. One thread.
 */
#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "aside.h"
#include "clock.h"
#include "cmd.h"
#include "terminal.h"
#include "top_screen.h"

enum {
	LOOK_EVERY_MS = 1000,
	SILENT_MS = 3000,   /* then we say so */
	MESSAGE_MS = 5000,  /* a message is shown for so long */
	PATIENCE_MS = 10000 /* of one look that is printed */
};

struct top {
	const char *mountpoint;
	struct top_screen screen;
	struct top_view view, before; /* before.version NULL: none yet */
	struct aside look, act;
	int64_t look_ms; /* when the one under way began, or the last one ended */
	bool was_silent;
	char chosen[80]; /* the id of the thread that is selected; "": none */
	char acting_on[80];
	bool destroys; /* what act does */
	bool asks;     /* whether to destroy */
	char message[160];
	bool is_bad;
	int64_t message_ms; /* when it was said */
	bool quit, redraw;
	int gone; /* a negative errno: the mount cannot be read any more */
};

static char *ctl_path(const char *mountpoint, const char *below)
{
	char *path;

	return asprintf(&path, "%s/%s", mountpoint, below) < 0 ? NULL : path;
}

PRINTF_LIKE(3, 4)
static void say(struct top *t, bool is_bad, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->message, sizeof(t->message), fmt, ap);
	va_end(ap);
	t->is_bad = is_bad;
	t->message_ms = clock_ms();
	t->redraw = true;
}

/* ---- looking ---- */

static void begin_look(struct top *t)
{
	char *path CLEANUP_FREE = ctl_path(t->mountpoint, ".ctl/status.json");

	if (!path || aside_read(&t->look, path) < 0)
		say(t, true, "cannot look: out of memory or processes");
	t->look_ms = clock_ms();
}

/* The selection stays with its thread, not with its place. */
static void find_chosen(struct top *t)
{
	for (size_t i = 0; i < t->view.nthreads; i++)
		if (t->view.threads[i].id && strcmp(t->view.threads[i].id, t->chosen) == 0)
			t->screen.selected = i;
}

static void remember_chosen(struct top *t)
{
	const struct top_thread *chosen =
		t->screen.selected < t->view.nthreads ? &t->view.threads[t->screen.selected] : NULL;

	snprintf(t->chosen, sizeof(t->chosen), "%s", chosen && chosen->id ? chosen->id : "");
}

static void take_look(struct top *t)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	struct top_view view;
	int r = aside_take(&t->look, &text);

	if (r == -EAGAIN)
		return;
	t->look_ms = clock_ms();
	t->redraw = true;
	if (t->was_silent)
		t->message[0] = '\0';
	t->was_silent = false;
	if (r == 0)
		r = top_view_read(text.data ?: (char[]){ "" }, text.len, &view);
	if (r == -ENOTCONN || r == -ENOENT || r == -ENOTDIR) {
		t->gone = r;
		return;
	}
	if (r < 0) {
		say(t, true, "the status cannot be read: %s", strerrordesc_np(-r));
		return;
	}
	top_view_release(&t->before);
	t->before = t->view;
	t->view = view;
	top_sort_threads(&t->view, t->screen.sort);
	find_chosen(t);
}

/* ---- doing ---- */

static void begin_act(struct top *t, bool destroy)
{
	char *below CLEANUP_FREE = NULL, *path CLEANUP_FREE = NULL;

	if (t->act.fd >= 0) {
		say(t, true, "%s: still under way", t->acting_on);
		return;
	}
	if (!t->chosen[0]) {
		say(t, true, "not a thread of this mount's user");
		return;
	}
	if (asprintf(&below, "threads/%s/.ctl/%s", t->chosen, destroy ? "destroy" : "release") < 0)
		below = NULL;
	path = below ? ctl_path(t->mountpoint, below) : NULL;
	memcpy(t->acting_on, t->chosen, sizeof(t->acting_on));
	t->destroys = destroy;
	if (!path || aside_write(&t->act, path, "1\n") < 0)
		say(t, true, "%s: out of memory or processes", t->chosen);
	else
		say(t, false, "%s: %s ...", t->chosen, destroy ? "destroying" : "releasing");
}

static void take_act(struct top *t)
{
	struct buf none CLEANUP_BUF = BUF_INIT(0);
	int r = aside_take(&t->act, &none);

	if (r == -EAGAIN)
		return;
	if (r < 0)
		say(t, true, "%s: not %s: %s", t->acting_on, t->destroys ? "destroyed" : "released",
		    strerrordesc_np(-r));
	else
		say(t, false, "%s: %s", t->acting_on, t->destroys ? "destroyed" : "released");
	t->look_ms = 0; /* now */
}

/* ---- drawing ---- */

static int attribute(enum top_style style, bool colour)
{
	switch (style) {
	case TOP_TITLE:
		return A_BOLD;
	case TOP_HEAD:
		return A_BOLD | (colour ? COLOR_PAIR(1) : A_UNDERLINE);
	case TOP_SELECTED:
		return A_REVERSE;
	case TOP_BAD:
		return colour ? COLOR_PAIR(2) : A_BOLD;
	case TOP_KEYS:
		return colour ? COLOR_PAIR(1) : A_NORMAL;
	case TOP_PLAIN:
		break;
	}
	return A_NORMAL;
}

static const char *message_of(struct top *t)
{
	static char silent[80];
	int64_t for_ms = clock_ms() - t->look_ms;

	if (t->asks)
		return t->message;
	if (t->look.fd >= 0 && for_ms >= SILENT_MS) {
		snprintf(silent, sizeof(silent), "the mount is not answering, for %lld s",
			 (long long)for_ms / 1000);
		t->is_bad = t->was_silent = true;
		return silent;
	}
	if (t->message[0] && clock_ms() - t->message_ms > MESSAGE_MS)
		t->message[0] = '\0';
	return t->message[0] ? t->message : NULL;
}

static void draw(struct top *t, bool colour)
{
	struct top_screen *s = &t->screen;
	int rows, columns;

	getmaxyx(stdscr, rows, columns);
	s->width = (size_t)MAX(columns, 1);
	s->height = (size_t)MAX(rows, 1);
	s->message = message_of(t);
	s->is_bad = t->is_bad;
	erase();
	if (!t->view.version) {
		mvaddnstr(0, 0, s->message ?: "looking ...", columns);
	} else {
		top_draw(s, &t->view, t->before.version ? &t->before : NULL);
		for (size_t i = 0; i < s->count && i < s->height && !s->error; i++) {
			/* The bottom line is what one must see, also on a very small screen. */
			size_t from = i + 1 == s->height ? s->count - 1 : i;

			attrset(attribute(s->rows[from].style, colour));
			mvaddstr((int)i, 0, s->rows[from].text.data ?: "");
		}
		attrset(A_NORMAL);
	}
	refresh();
	t->redraw = false;
}

/* ---- keys ---- */

static void move_by(struct top *t, int64_t by)
{
	int64_t to = (int64_t)t->screen.selected + by, last = (int64_t)t->view.nthreads - 1;

	t->screen.selected = (size_t)MAX(MIN(to, last), 0);
	remember_chosen(t);
}

static void resort(struct top *t)
{
	t->screen.sort = (t->screen.sort + 1) % TOP_SORTS;
	top_sort_threads(&t->view, t->screen.sort);
	find_chosen(t);
}

static void ask(struct top *t)
{
	if (!t->chosen[0]) {
		begin_act(t, true); /* which says why not */
		return;
	}
	say(t, true, "Stop the sandbox of %s? Its files stay. y/n", t->chosen);
	t->asks = true;
}

static void press(struct top *t, int key)
{
	int64_t page = (int64_t)MAX(t->screen.page, 1);

	t->redraw = true;
	if (key == KEY_RESIZE)
		return;
	if (t->screen.help) {
		t->screen.help = false;
		return;
	}
	if (t->asks) {
		t->asks = false;
		t->message[0] = '\0';
		if (key == 'y' || key == 'Y')
			begin_act(t, true);
		return;
	}
	switch (key) {
	case 'q':
	case 'Q':
		t->quit = true;
		break;
	case 'h':
	case '?':
		t->screen.help = true;
		break;
	case KEY_UP:
	case 'k':
		move_by(t, -1);
		break;
	case KEY_DOWN:
	case 'j':
		move_by(t, 1);
		break;
	case KEY_PPAGE:
		move_by(t, -page);
		break;
	case KEY_NPAGE:
		move_by(t, page);
		break;
	case KEY_HOME:
		move_by(t, INT32_MIN);
		break;
	case KEY_END:
		move_by(t, INT32_MAX);
		break;
	case 's':
		resort(t);
		break;
	case 'r':
		begin_act(t, false);
		break;
	case 'd':
		ask(t);
		break;
	case ' ':
		t->look_ms = 0;
		break;
	default:
		break;
	}
}

/* ---- the terminal ---- */

static bool begin_colour(void)
{
	const char *none = getenv("NO_COLOR");

	if ((none && *none) || !has_colors() || start_color() != OK)
		return false;
	use_default_colors();
	init_pair(1, COLOR_CYAN, -1);
	init_pair(2, COLOR_RED, -1);
	return true;
}

static int run(struct top *t)
{
	bool colour = begin_colour();

	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	begin_look(t);
	t->redraw = true;
	while (!t->quit && !t->gone) {
		struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
					{ .fd = t->look.fd, .events = POLLIN },
					{ .fd = t->act.fd, .events = POLLIN } };
		int key;

		if (t->redraw)
			draw(t, colour);
		if (poll(fds, ARRAY_SIZE(fds), 200) < 0 && errno != EINTR)
			return -errno;
		if (fds[0].revents & (POLLHUP | POLLERR))
			return -EIO; /* the terminal is gone */
		if (fds[1].revents)
			take_look(t);
		if (fds[2].revents)
			take_act(t);
		while ((key = getch()) != ERR)
			press(t, key);
		if (t->look.fd < 0 && clock_ms() - t->look_ms >= LOOK_EVERY_MS)
			begin_look(t);
		t->redraw |= t->look.fd >= 0 && clock_ms() - t->look_ms >= SILENT_MS;
		if (!t->chosen[0])
			remember_chosen(t);
	}
	return t->gone;
}

static int run_on_screen(const char *mountpoint)
{
	struct top t = { .mountpoint = mountpoint, .look = ASIDE_NONE, .act = ASIDE_NONE };
	SCREEN *screen = newterm(NULL, stdout, stdin);
	int r = screen ? run(&t) : -ENOTTY;

	if (screen) {
		endwin();
		delscreen(screen);
	}
	aside_drop(&t.look);
	aside_drop(&t.act);
	top_view_release(&t.view);
	top_view_release(&t.before);
	top_screen_release(&t.screen);
	return r < 0 ? cmd_explain(mountpoint, r) : 0;
}

/* ---- one look ---- */

static size_t width_of_lines(void)
{
	const char *columns = getenv("COLUMNS");
	long n = columns ? strtol(columns, NULL, 10) : 0;

	return n >= 40 && n <= 1000 ? (size_t)n : 132;
}

static int print_once(const char *mountpoint)
{
	struct top_screen s CLEANUP(top_screen_release) = { .width = width_of_lines(),
							    .passive = true };
	char *path CLEANUP_FREE = ctl_path(mountpoint, ".ctl/status.json");
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	struct top_view v CLEANUP_TOP_VIEW = { 0 };
	int r = path ? aside_read_within(path, PATIENCE_MS, &text) : -ENOMEM;

	if (r == 0)
		r = top_view_read(text.data ?: (char[]){ "" }, text.len, &v);
	if (r < 0)
		return cmd_explain(mountpoint, r);
	top_draw(&s, &v, NULL);
	for (size_t i = 0; i < s.count && !s.error; i++) {
		const char *line = s.rows[i].text.data ?: "";
		size_t len = strlen(line);

		while (len > 0 && line[len - 1] == ' ')
			len--;
		printf("%.*s\n", (int)len, line);
	}
	if (s.error || fflush(stdout) != 0)
		return cmd_fail("the status cannot be written");
	return 0;
}

int cmd_top(const char *path)
{
	char *mountpoint CLEANUP_FREE = cmd_find_mount(path, "top");

	if (!mountpoint)
		return EXIT_FAILURE;
	setlocale(LC_ALL, "");
	if (terminal_is_screen())
		return run_on_screen(mountpoint);
	if (isatty(STDOUT_FILENO) && isatty(STDIN_FILENO))
		fprintf(stderr, "threadfs: this terminal (TERM=%s) has no full screen: one look\n",
			getenv("TERM") ?: "");
	return print_once(mountpoint);
}

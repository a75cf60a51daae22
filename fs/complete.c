/*
 * threadfs help --complete: what the program says of itself, for the completions of
 * shells (docs/completions) and for the test that compares these and the manual with
 * it. It is read off the help pages and the table of settings, so a new command or option
 * has to be written down in one place only. One line each, its fields apart by tabs:
 *
 *	command  NAME  MEANING
 *	operand  COMMAND  WORD
 *	option   COMMAND  NAME  VALUE  MEANING
 *	source   TEXT  MEANING
 *	setting  NAME  VALUE  MEANING
 *
 * threadfs help --complete -- WORD…: what the last of these words could become, behind
 * the others; a line each, with its meaning behind a tab. A line ":files" or ":dirs" stands
 * for what the shell knows itself. No mount is touched whose daemon is gone.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "cmd.h"
#include "mounts.h"
#include "presence.h"
#include "settings.h"

/* ---- the table ---- */

/* Of a line "  TERM   MEANING": where both are. False: it is no such line. */
static bool split_line(const char *line, size_t len, int *term, const char **meaning)
{
	const char *gap;

	if (len < 3 || strncmp(line, "  ", 2) != 0 || line[2] == ' ')
		return false;
	gap = memmem(line + 2, len - 2, "  ", 2);
	if (!gap)
		return false;
	*term = (int)(gap - line - 2);
	*meaning = gap + strspn(gap, " ");
	return true;
}

/* "-l, --lazy" and "-o OPTION[,...]": a line for each name. */
static void put_option(struct buf *to, const char *command, const char *term, int len,
		       const char *meaning, int meaning_len)
{
	const char *end = term + len, *value = term;

	while ((value = memchr(value, ' ', (size_t)(end - value))) && value[-1] == ',')
		value++;
	value = value ? value + 1 : end;
	while (term < value && *term == '-') {
		int name = (int)strcspn(term, " ,");

		name = MIN(name, (int)(end - term));
		buf_printf(to, "option\t%s\t%.*s\t%.*s\t%.*s\n", command, name, term,
			   (int)(end - value), value, meaning_len, meaning);
		term += name;
		term += strspn(term, ", ");
	}
}

/* The words in capitals of the usage, but for what belongs to options. */
static void put_operands(struct buf *to, const char *command, const char *page)
{
	const char *end = strstr(page, "\n\n"), *at = page;

	while (at < end) {
		const char *begin = at;

		if (strncmp(at, "[-", 2) == 0) {
			while (at < end && *at != ']')
				at += *at == '[' && at != begin ? strcspn(at, "]") + 1 : 1;
			continue;
		}
		while (at < end && isupper((unsigned char)*at))
			at++;
		if (at - begin > 1)
			buf_printf(to, "operand\t%s\t%.*s\n", command, (int)(at - begin), begin);
		if (at == begin)
			at++;
	}
}

/* What the lines of a page are, up to its examples. command: NULL for the program's. */
static void put_page(struct buf *to, const char *command, const char *page)
{
	if (command)
		put_operands(to, command, page);
	for (const char *line = page, *next; *line && strncmp(line, "example:", 8) != 0;
	     line = next) {
		size_t len = strcspn(line, "\n");
		const char *term = line + 2, *meaning;
		int term_len;

		next = line + len + (line[len] == '\n');
		if (strncmp(line, "Options [", 9) == 0)
			break; /* of mount: the settings come from their table */
		if (!split_line(line, len, &term_len, &meaning))
			continue;
		len -= (size_t)(meaning - line);
		if (*term == '-')
			put_option(to, command ?: "", term, term_len, meaning, (int)len);
		else
			buf_printf(to, "%s\t%.*s\t%.*s\n", command ? "source" : "command",
				   (int)MIN(strcspn(term, " "), (size_t)term_len), term, (int)len,
				   meaning);
	}
}

static void put_table(struct buf *to)
{
	struct buf page CLEANUP_BUF = BUF_INIT(0);
	const char *command = NULL;

	for (size_t i = 0; i == 0 || command; i++) {
		buf_reset(&page);
		help_page(command, &page);
		put_page(to, command, page.data);
		command = help_command(i);
	}
	for (size_t i = 0; i < settings_count; i++)
		if (!settings[i].hidden)
			buf_printf(to, "setting\t%s\t%s\t%s\n", settings[i].name,
				   settings[i].value ?: "", settings[i].meaning);
}

/* ---- what a word could become ---- */

struct guess {
	const char *token; /* as far as it was typed */
	struct buf table, *to;
};

PRINTF_LIKE(3, 4)
static void offer(const struct guess *g, const char *meaning, const char *fmt, ...)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (!text.error && strncmp(text.data, g->token, strlen(g->token)) == 0)
		buf_printf(g->to, "%s\t%s\n", text.data, meaning);
}

/* Takes the next row of the table that is of this kind, and of this command unless it is NULL. */
static bool next_row(const char **at, const char *kind, const char *command, char *fields[4],
		     struct buf *room)
{
	while (*at && **at) {
		const char *line = *at, *end = strchr(line, '\n');
		char *rest;

		*at = end + 1;
		buf_reset(room);
		buf_append(room, line, (size_t)(end - line));
		buf_putc(room, '\0');
		if (room->error)
			return false;
		rest = room->data;
		if (strcmp(strsep(&rest, "\t"), kind) != 0)
			continue;
		if (command && strcmp(strsep(&rest, "\t"), command) != 0)
			continue;
		for (size_t i = 0; i < 4; i++)
			fields[i] = rest ? strsep(&rest, "\t") : NULL;
		return true;
	}
	return false;
}

static bool has_operand(const struct guess *g, const char *command, const char *word)
{
	struct buf room CLEANUP_BUF = BUF_INIT(0);
	const char *at = g->table.data;
	char *f[4];

	while (next_row(&at, "operand", command, f, &room))
		if (strcmp(f[0], word) == 0)
			return true;
	return false;
}

static void offer_rows(const struct guess *g, const char *kind, const char *command)
{
	struct buf room CLEANUP_BUF = BUF_INIT(0);
	const char *at = g->table.data;
	char *f[4];

	while (next_row(&at, kind, command, f, &room))
		if (strcmp(kind, "source") == 0) /* as far as it is not to be replaced */
			offer(g, f[1], "%.*s", (int)strcspn(f[0], "[ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
			      f[0]);
		else
			offer(g, command ? f[2] : f[1], "%s", f[0]);
	if (strcmp(kind, "option") == 0)
		offer(g, "explain", "--help");
}

/* Behind -o: settings, apart by commas. */
static void offer_settings(const struct guess *g)
{
	const char *comma = strrchr(g->token, ','), *item = comma ? comma + 1 : g->token;
	int before = (int)(item - g->token), name = (int)strcspn(item, "=");

	for (size_t i = 0; i < settings_count; i++) {
		const struct setting *s = &settings[i];

		if (s->hidden)
			continue;
		if (!item[name]) {
			offer(g, s->meaning, "%.*s%s%s", before, g->token, s->name,
			      s->value ? "=" : "");
		} else if (strlen(s->name) == (size_t)name &&
			   strncmp(s->name, item, (size_t)name) == 0) {
			for (size_t w = 0; s->words && s->words[w]; w++)
				offer(g, s->meaning, "%.*s%s=%s", before, g->token, s->name,
				      s->words[w]);
			if (s->kind == SETTING_PATH)
				buf_puts(g->to, ":files\n");
		}
	}
}

/* False: it is no option with a value. */
static bool offer_values(const struct guess *g, const char *command, const char *option)
{
	struct buf room CLEANUP_BUF = BUF_INIT(0);
	const char *at = g->table.data;
	char *f[4];

	while (next_row(&at, "option", command, f, &room)) {
		if (strcmp(f[0], option) != 0 || !*f[1])
			continue;
		if (strncmp(f[1], "OPTION", 6) == 0)
			offer_settings(g);
		else if (strcmp(f[1], "FILE") == 0)
			buf_puts(g->to, ":files\n");
		else if (strcmp(f[1], "DIR") == 0)
			buf_puts(g->to, ":dirs\n");
		return true;
	}
	return false;
}

/* ---- what there is ---- */

static bool is_served(const struct mount_entry *mount)
{
	int fd CLEANUP_FD = presence_open(mount->dev);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static void offer_threads(const struct guess *g, const char *point)
{
	char *path CLEANUP_FREE = NULL;
	struct dirent *e;
	DIR *dir;

	if (asprintf(&path, "%s/threads", point) < 0 || !(dir = opendir(path)))
		return;
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			offer(g, "thread", "%s/%s", path, e->d_name);
	closedir(dir);
}

static void offer_mounts(const struct guess *g, bool threads)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };

	if (mounts_read(&m) < 0)
		return;
	for (size_t i = 0; i < m.count; i++) {
		const struct mount_entry *mount = &m.list[i];

		if (!mount_entry_is_ours(mount) || mount->owner != getuid())
			continue;
		if (!threads)
			offer(g, mount->source, "%s", mount->point);
		else if (is_served(mount))
			offer_threads(g, mount->point);
	}
}

static void offer_operands(const struct guess *g, const char *command)
{
	if (has_operand(g, command, "PATH")) {
		offer_mounts(g, true);
		buf_puts(g->to, ":dirs\n");
	} else if (has_operand(g, command, "SOURCE")) {
		offer_rows(g, "source", NULL);
		buf_puts(g->to, ":dirs\n");
	} else if (has_operand(g, command, "MOUNTPOINT")) {
		offer_mounts(g, false);
	} else if (has_operand(g, command, "COMMAND")) {
		offer_rows(g, "command", NULL);
	} else {
		buf_puts(g->to, ":files\n");
	}
}

/* words: at least one; the last one is to be completed. */
static void put_guesses(struct buf *to, int count, char **words)
{
	struct guess g = { .token = words[count - 1], .table = BUF_INIT(0), .to = to };
	bool behind = false;

	put_table(&g.table);
	for (int i = 1; i < count - 1; i++)
		behind |= strcmp(words[i], "--") == 0;
	if (g.table.error)
		to->error = g.table.error;
	else if (count == 1)
		offer_rows(&g, *g.token == '-' ? "option" : "command", *g.token == '-' ? "" : NULL);
	else if (behind)
		buf_puts(to, ":files\n");
	else if (count > 2 && offer_values(&g, words[0], words[count - 2]))
		;
	else if (*g.token == '-')
		offer_rows(&g, "option", words[0]);
	else
		offer_operands(&g, words[0]);
	buf_release(&g.table);
}

int complete_show(int argc, char **argv)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	/* Nobody who presses the tabulator waits for a daemon that is stopped. */
	alarm(2);
	if (argc == 0)
		put_table(&text);
	else if (argc > 1 && strcmp(argv[0], "--") == 0)
		put_guesses(&text, argc - 1, argv + 1);
	else
		return cmd_fail("expected '--' and words behind --complete");
	if (text.error || (text.len > 0 && fputs(text.data, stdout) < 0) || fflush(stdout) != 0)
		return cmd_fail("the list cannot be written");
	return 0;
}

/*
 * POST /v1/file/grep: lines in many files, in ripgrep's manner: hidden files,
 * links, binary and large files are skipped. Matches go straight into the
 * answer while the tree is walked. Runs on a worker.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "file.h"
#include "filetype.h"
#include "glob_match.h"
#include "pattern.h"
#include "text.h"
#include "utf8.h"
#include "walk.h"

enum {
	MAX_LINE_CHARS = 10000, /* of a line shown */
	BINARY_PROBE = 8 * KIB,
};

struct grep {
	struct request *r;
	const struct grep_args *args;
	struct pattern *pattern;
	struct glob_set include, exclude, type;
	uint64_t max_size;
	struct buf file;        /* the one being searched */
	struct buf valid, line; /* scratch */
	int64_t seen;           /* matches, those before the offset included */
	int64_t returned, searched, matched;
	bool truncated;
	bool complete; /* one search at least came to its end */
	bool cut;      /* one at least did not */
	int error;     /* negative errno that ended it */
};

/* Lines from..to of the file, without the last newline; number counts from 1. */
struct span {
	size_t from, to;
	int64_t number;
};

static size_t line_end(const struct buf *b, size_t at)
{
	const char *nl = at < b->len ? memchr(b->data + at, '\n', b->len - at) : NULL;

	return nl ? (size_t)(nl - b->data) : b->len;
}

static size_t line_start(const struct buf *b, size_t at)
{
	const char *nl = at > 0 ? memrchr(b->data, '\n', at) : NULL;

	return nl ? (size_t)(nl - b->data) + 1 : 0;
}

/* A line as a JSON string: valid UTF-8, of bounded length, without its CR. */
static void write_line(struct grep *g, size_t from, size_t to)
{
	const char *s = g->file.data + from;
	size_t len = to - from;

	if (len > 0 && s[len - 1] == '\r')
		len--;
	len = MIN(len, (size_t)MAX_LINE_CHARS * 4);
	buf_reset(&g->line);
	if (text_append_valid(&g->line, s, len) < 0) {
		g->error = -ENOMEM;
		return;
	}
	len = utf8_offset(g->line.data, g->line.len, MAX_LINE_CHARS);
	jw_strn(&g->r->jw, g->line.data, len);
}

static void write_before(struct grep *g, size_t from)
{
	size_t first = from;

	if (g->args->context_before == 0) {
		jw_knull(&g->r->jw, "context_before");
		return;
	}
	for (int64_t i = 0; i < g->args->context_before && first > 0; i++)
		first = line_start(&g->file, first - 1);
	jw_key(&g->r->jw, "context_before");
	jw_arr(&g->r->jw);
	while (first < from) {
		size_t end = line_end(&g->file, first);

		write_line(g, first, end);
		first = end + 1;
	}
	jw_arr_end(&g->r->jw);
}

static void write_after(struct grep *g, size_t to)
{
	if (g->args->context_after == 0) {
		jw_knull(&g->r->jw, "context_after");
		return;
	}
	jw_key(&g->r->jw, "context_after");
	jw_arr(&g->r->jw);
	for (int64_t i = 0; i < g->args->context_after && to + 1 < g->file.len; i++) {
		size_t start = to + 1;

		to = line_end(&g->file, start);
		write_line(g, start, to);
	}
	jw_arr_end(&g->r->jw);
}

/* Counts a match and writes it if it is in the wanted window; false to stop. */
static bool add_match(struct grep *g, const char *path, const struct span *s)
{
	struct jw *w = &g->r->jw;

	if (g->seen++ < g->args->offset)
		return true;
	if (g->returned == g->args->max_results || g->r->out.len >= FILE_MAX_REPLY) {
		g->truncated = true;
		return false;
	}
	g->returned++;
	jw_obj(w);
	jw_kstr(w, "file", path);
	jw_kint(w, "line_number", s->number);
	jw_key(w, "line_content");
	write_line(g, s->from, s->to);
	write_before(g, s->from);
	write_after(g, s->to);
	jw_obj_end(w);
	return g->error == 0;
}

/*
 * 1, 0, or a negative errno. A text that costs too much is -E2BIG: it is left
 * out, and the answer says that something is missing.
 */
static int search_text(struct grep *g, const char *text, size_t len, size_t at, size_t *ret_from,
		       size_t *ret_to)
{
	int e = pattern_search(g->pattern, text, len, at, ret_from, ret_to);

	if (e >= 0)
		g->complete = true;
	else if (e == -E2BIG || e == -ETIME)
		g->cut = g->truncated = true;
	return e;
}

/* The next matching line at or after at: 1 and s, 0, or a negative errno. */
static int next_line_match(struct grep *g, size_t at, struct span *s)
{
	const struct buf *b = &g->file;
	size_t from, to;

	for (; at < b->len; at = s->to + 1, s->number++) {
		size_t len;
		int e;

		s->from = at;
		s->to = line_end(b, at);
		len = s->to - at;
		if (len > 0 && b->data[s->to - 1] == '\r')
			len--;
		e = search_text(g, b->data + at, len, 0, &from, &to);
		if (e != 0 && e != -E2BIG)
			return e;
	}
	return 0;
}

/* The same for a match that may span lines; all of them are shown. */
static int next_text_match(struct grep *g, size_t at, struct span *s)
{
	const struct buf *b = &g->file;
	size_t from, to;
	int e;

	if (at >= b->len)
		return 0;
	e = search_text(g, b->data, b->len, at, &from, &to);
	if (e <= 0)
		return e == -E2BIG ? 0 : e;
	s->from = line_start(b, from);
	if (s->from >= b->len) /* an empty match behind the last newline */
		return 0;
	s->to = line_end(b, MAX(s->from, to > from ? to - 1 : to));
	for (const char *p = b->data + at; (p = memchr(p, '\n', (size_t)(b->data + s->from - p)));
	     p++)
		s->number++;
	return 1;
}

static int64_t lines_in(const struct buf *b, const struct span *s)
{
	int64_t n = 1;

	for (size_t i = s->from; i < s->to; i++)
		n += b->data[i] == '\n';
	return n;
}

/* Makes the loaded file UTF-8, which searching relies on; it is shown that way too. */
static int make_valid(struct grep *g)
{
	struct buf raw = g->file;
	int e;

	if (utf8_valid(raw.data, raw.len))
		return 0;
	buf_reset(&g->valid);
	e = text_append_valid(&g->valid, raw.data, raw.len);
	if (e < 0)
		return e;
	g->file = g->valid;
	g->valid = raw;
	return 0;
}

/* Searches the loaded file; false to stop everything. */
static bool search_file(struct grep *g, const char *path)
{
	struct span s = { .number = 1 };
	int64_t before = g->seen;
	size_t at = 0;
	bool go_on = true;

	if (memchr(g->file.data, '\0', MIN(g->file.len, (size_t)BINARY_PROBE)))
		return true;
	if (make_valid(g) < 0) {
		g->truncated = true;
		return true;
	}
	g->searched++;
	while (go_on) {
		int e = g->args->multiline ? next_text_match(g, at, &s)
					   : next_line_match(g, at, &s);

		if (e == 0)
			break;
		if (e < 0 && e != -ETIME) /* out of time: what there is, is the answer */
			g->error = e;
		go_on = e > 0 && add_match(g, path, &s);
		at = s.to + 1;
		s.number += lines_in(&g->file, &s);
	}
	g->matched += g->seen > before;
	return go_on && g->error == 0;
}

/* ---- which files ---- */

static bool wanted(const struct grep *g, const char *rel)
{
	return (!g->args->include.set || !g->args->include.n || glob_set_match(&g->include, rel)) &&
	       (!g->args->type || glob_set_match(&g->type, rel));
}

static enum walk_next visit(struct walk *w, const struct walk_entry *e)
{
	struct grep *g = w->ctx;
	int fd CLEANUP_FD = -1;

	if (file_search_stopped(g->r)) {
		g->error = -ECANCELED;
		return WALK_STOP;
	}
	if (e->is_link || glob_set_match(&g->exclude, e->rel))
		return WALK_PRUNE;
	if (!S_ISREG(e->st.st_mode) || (uint64_t)e->st.st_size > g->max_size || !wanted(g, e->rel))
		return WALK_ON;
	fd = openat(e->dirfd, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	buf_reset(&g->file);
	/* What cannot be read is skipped, as a directory that cannot be read is. */
	if (fd < 0 || file_load_fd(g->r, fd, g->max_size, &g->file) < 0)
		return WALK_ON;
	return search_file(g, e->path) ? WALK_ON : WALK_STOP;
}

/* A path that is a file is searched whatever its name. */
static int grep_path(struct grep *g)
{
	struct walk w = {
		.r = g->r,
		.max_depth = g->args->recursive ? UINT_MAX : 0,
		.visit = visit,
		.ctx = g,
	};
	char path[PATH_MAX];
	int fd = -1, e = sandbox_path(g->r->srv, g->args->path, path);

	if (e == 0)
		e = walk_open_dir(path, &fd);
	if (e == 0) {
		e = walk(&w, fd, g->args->path);
		g->truncated |= w.cut;
	} else if (e == -ENOTDIR) {
		e = file_load(g->r, path, g->max_size, &g->file);
		if (e == 0)
			search_file(g, g->args->path);
		else if (e == -EFBIG)
			e = 0; /* skipped, as in a directory */
	}
	return e < 0 ? e : g->error;
}

static void write_result(struct grep *g, struct jw *w)
{
	jw_arr_end(w);
	jw_kint(w, "match_count", g->returned);
	jw_kint(w, "files_searched", g->searched);
	jw_kint(w, "files_matched", g->matched);
	jw_kbool(w, "truncated", g->truncated);
	jw_obj_end(w);
}

/* Checks the arguments; replies with 400 and returns false if they are no good. */
static bool prepare(struct grep *g)
{
	const struct grep_args *a = g->args;
	const char *const *globs = a->type ? filetype_globs(a->type) : NULL;
	unsigned flags = (a->case_insensitive ? PATTERN_CASELESS : 0) |
			 (a->fixed_strings ? PATTERN_LITERAL : 0) |
			 (a->multiline ? PATTERN_MULTILINE : 0);
	char why[200];
	size_t n = 0;
	int e;

	if (text_parse_size(a->max_file_size, &g->max_size) < 0) {
		reply_error(g->r, 400, "Invalid max_file_size: %.64s", a->max_file_size);
		return false;
	}
	g->max_size = MIN(g->max_size, (uint64_t)FILE_MAX_TEXT);
	if (a->type && !globs) {
		reply_error(g->r, 400, "Unrecognized file type: %.64s", a->type);
		return false;
	}
	while (globs && n < FILETYPE_MAX_GLOBS && globs[n])
		n++;
	if (glob_set_init(&g->include, a->include.v, a->include.n) < 0 ||
	    glob_set_init(&g->exclude, a->exclude.v, a->exclude.n) < 0 ||
	    glob_set_init(&g->type, globs, n) < 0) {
		reply_error(g->r, 400, "Invalid include or exclude: too many patterns");
		return false;
	}
	e = pattern_new(a->pattern, flags, &g->pattern, why, sizeof(why));
	if (e == 0)
		pattern_limit(g->pattern, PATTERN_MS, file_search_stopped, g->r);
	else if (e == -EINVAL)
		reply_error(g->r, 400, "Invalid regular expression: %s", why);
	else
		reply_file_error(g->r, "grep", a->path, -e);
	return e == 0;
}

static void run(struct grep *g)
{
	struct jw *w = reply_begin(g->r, NULL);
	int e;

	jw_obj(w);
	jw_kstr(w, "path", g->args->path);
	jw_kstr(w, "pattern", g->args->pattern);
	jw_key(w, "matches");
	jw_arr(w);
	e = grep_path(g);
	if (e == 0 && g->cut && !g->complete) {
		reply_error(g->r, 400, "Invalid regular expression: pattern too complex");
	} else if (e < 0) {
		reply_file_error(g->r, "grep", g->args->path, -e);
	} else {
		write_result(g, w);
		reply_end(g->r);
	}
}

void file_grep(struct request *r)
{
	struct grep g = {
		.r = r,
		.args = r->args,
		.file = BUF_INIT(FILE_MAX_TEXT + MIB),
		.valid = BUF_INIT(FILE_MAX_TEXT + MIB),
	};

	if (prepare(&g))
		run(&g);
	pattern_free(g.pattern);
	glob_set_release(&g.include);
	glob_set_release(&g.exclude);
	glob_set_release(&g.type);
	buf_release(&g.file);
	buf_release(&g.valid);
	buf_release(&g.line);
}

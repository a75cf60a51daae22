/*
 * POST /v1/file/find and glob: files by a pattern of their names. Runs on a
 * worker.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "file.h"
#include "glob_match.h"
#include "glob_walk.h"
#include "walk.h"

/* Opens the base directory and runs the walk; 0 or a negative errno. */
static int run(struct glob_walk *g, const char *base, const char *pattern)
{
	char path[PATH_MAX];
	int fd = -1, e = sandbox_path(g->r->srv, base, path);

	if (e == 0)
		e = walk_open_dir(path, &fd);
	return e < 0 ? e : glob_walk(g, fd, base, pattern);
}

static void reply_failure(struct request *r, const char *operation, const char *path, int e)
{
	if (e == -E2BIG)
		reply_error(r, 400, "Invalid pattern: too many parts");
	else
		reply_file_error(r, operation, path, -e);
}

/* ---- find ---- */

static int found_path(struct glob_walk *g, const struct glob_found *f)
{
	struct request *r = g->r;

	jw_str(&r->jw, f->path);
	return r->out.len >= FILE_MAX_REPLY; /* the answer has no way to say so */
}

void file_find(struct request *r)
{
	const struct find_args *a = r->args;
	struct glob_walk g = {
		.r = r,
		.follow = r->srv->cfg->dialect != DIALECT_AIOD,
		.found = found_path,
	};
	struct jw *w = reply_begin(r, NULL);
	int e;

	/* Straight into the answer: an error starts it anew. */
	jw_obj(w);
	jw_kstr(w, "path", a->path);
	jw_key(w, "files");
	jw_arr(w);
	e = a->glob[0] ? run(&g, a->path, a->glob) : 0;
	if (e < 0) {
		reply_failure(r, "find", a->path, e);
		return;
	}
	jw_arr_end(w);
	jw_obj_end(w);
	reply_end(r);
}

/* ---- glob ---- */

enum { GLOB_MAX_FOUND = 50000 }; /* before sorting and cutting */

struct globbing {
	const struct glob_args *args;
	struct glob_set exclude;
	struct file_entries entries;
	bool truncated;
};

/* Whether the file, or a directory it is in, is excluded. */
static bool is_excluded(const struct globbing *s, const char *rel)
{
	char part[PATH_MAX];
	size_t len = 0;

	while (s->exclude.n > 0 && rel[len]) {
		len += rel[len] == '/';
		len += strcspn(rel + len, "/");
		if (len >= sizeof(part))
			return false;
		memcpy(part, rel, len);
		part[len] = '\0';
		if (glob_set_match(&s->exclude, part))
			return true;
	}
	return false;
}

static int found_file(struct glob_walk *g, const struct glob_found *f)
{
	struct globbing *s = g->ctx;
	struct stat st;
	int e;

	/* The base directory itself is no match of "**". */
	if (!f->rel[0] || is_excluded(s, f->rel) || fstatat(f->dirfd, f->name, &st, 0) < 0)
		return 0;
	if (s->args->files_only && !S_ISREG(st.st_mode))
		return 0;
	if (s->entries.n == GLOB_MAX_FOUND)
		return s->truncated = true;
	e = file_entries_add(&s->entries, f->path, &st);
	if (e == -EFBIG)
		return s->truncated = true;
	return e;
}

static void write_found(struct jw *w, const struct glob_args *a, const struct file_entry *e)
{
	jw_obj(w);
	jw_kstr(w, "path", e->path);
	jw_kstr(w, "name", e->name);
	jw_kbool(w, "is_directory", S_ISDIR(e->mode));
	if (a->include_metadata && !S_ISDIR(e->mode))
		jw_kint(w, "size", e->size);
	else
		jw_knull(w, "size");
	if (a->include_metadata)
		file_write_mtime(w, e->mtime);
	else
		jw_knull(w, "modified_time");
	jw_obj_end(w);
}

static void reply_found(struct request *r, struct globbing *s, bool cut)
{
	const struct glob_args *a = s->args;
	struct jw *w = reply_begin(r, NULL);
	size_t n;

	file_entries_sort(&s->entries, "path", false);
	file_entries_unique(&s->entries);
	file_entries_sort(&s->entries, a->sort_by, a->sort_desc);
	n = MIN(s->entries.n, (size_t)a->max_results);
	jw_obj(w);
	jw_kstr(w, "path", a->path);
	jw_kstr(w, "pattern", a->pattern);
	jw_key(w, "files");
	jw_arr(w);
	for (size_t i = 0; i < n; i++)
		write_found(w, a, &s->entries.v[i]);
	jw_arr_end(w);
	jw_kint(w, "total_count", (int64_t)n);
	jw_kbool(w, "truncated", cut || s->truncated || n < s->entries.n);
	jw_obj_end(w);
	reply_end(r);
}

void file_glob(struct request *r)
{
	const struct glob_args *a = r->args;
	struct globbing s = { .args = a };
	struct glob_walk g = {
		.r = r,
		.hidden = a->include_hidden,
		.found = found_file,
		.ctx = &s,
	};
	int e = glob_set_init(&s.exclude, a->exclude.v, a->exclude.n);

	if (e == 0 && !a->pattern[0])
		reply_error(r, 400, "Invalid pattern: empty");
	else if (e < 0 || (e = run(&g, a->path, a->pattern)) < 0)
		reply_failure(r, "glob", a->path, e);
	else
		reply_found(r, &s, g.cut);
	glob_set_release(&s.exclude);
	file_entries_release(&s.entries);
}

/*
 * POST /v1/file/list. Must stay fast: one readdir and one stat per entry.
 * Runs on a worker.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "file.h"
#include "walk.h"

struct listing {
	const struct list_args *args;
	struct file_entries entries;
	bool truncated;
	int error;
};

/* Directories always pass. */
static bool type_wanted(const struct list_args *a, const struct walk_entry *e)
{
	const char *ext = file_extension(e->name);

	if (!a->file_types.set || S_ISDIR(e->st.st_mode))
		return true;
	for (size_t i = 0; i < a->file_types.n; i++) {
		const char *want = a->file_types.v[i];

		if (strcmp(want, ext) == 0 || (*ext && strcmp(want, ext + 1) == 0))
			return true;
	}
	return false;
}

static enum walk_next visit(struct walk *w, const struct walk_entry *e)
{
	struct listing *l = w->ctx;

	if (!type_wanted(l->args, e))
		return WALK_ON;
	if (l->entries.n == FILE_MAX_LISTED) {
		l->truncated = true;
		return WALK_STOP;
	}
	l->error = file_entries_add(&l->entries, e->path, &e->st);
	return l->error < 0 ? WALK_STOP : WALK_ON;
}

static void write_entry(struct jw *w, const struct list_args *a, const struct file_entry *e)
{
	bool dir = S_ISDIR(e->mode);
	char mode[11];

	jw_obj(w);
	jw_kstr(w, "name", e->name);
	jw_kstr(w, "path", e->path);
	jw_kbool(w, "is_directory", dir);
	if (a->include_size && !dir)
		jw_kint(w, "size", e->size);
	else
		jw_knull(w, "size");
	if (a->include_size)
		file_write_mtime(w, e->mtime);
	else
		jw_knull(w, "modified_time");
	file_mode_string(e->mode, mode);
	jw_kstr(w, "permissions", a->include_permissions ? mode : NULL);
	jw_kstr(w, "extension", dir ? NULL : file_extension(e->name));
	jw_obj_end(w);
}

static void reply_listing(struct request *r, const struct listing *l)
{
	struct jw *w = reply_begin(r, NULL);
	size_t dirs = 0;

	jw_obj(w);
	jw_kstr(w, "path", l->args->path);
	jw_key(w, "files");
	jw_arr(w);
	for (size_t i = 0; i < l->entries.n; i++) {
		write_entry(w, l->args, &l->entries.v[i]);
		dirs += S_ISDIR(l->entries.v[i].mode);
	}
	jw_arr_end(w);
	jw_kint(w, "total_count", (int64_t)l->entries.n);
	jw_kint(w, "directory_count", (int64_t)dirs);
	jw_kint(w, "file_count", (int64_t)(l->entries.n - dirs));
	if (r->srv->cfg->dialect == DIALECT_AIOD)
		jw_kbool(w, "truncated", l->truncated);
	jw_obj_end(w);
	reply_end(r);
}

/* How many levels below the directory itself are wanted. */
static unsigned depth_wanted(const struct list_args *a)
{
	if (!a->recursive)
		return 0;
	if (!a->max_depth.set)
		return UINT_MAX;
	return a->max_depth.v < 0 ? 0 : (unsigned)a->max_depth.v;
}

void file_list(struct request *r)
{
	const struct list_args *a = r->args;
	struct listing l = { .args = a };
	struct walk w = {
		.r = r,
		.hidden = a->show_hidden,
		/* The Python servers also go through links; the daemon does not. */
		.follow = r->srv->cfg->dialect != DIALECT_AIOD,
		.max_depth = depth_wanted(a),
		.visit = visit,
		.ctx = &l,
	};
	char path[PATH_MAX];
	int e, fd = -1;

	e = sandbox_path(r->srv, a->path, path);
	if (e == 0)
		e = walk_open_dir(path, &fd);
	if (e == 0)
		e = walk(&w, fd, a->path);
	if (e == 0)
		e = l.error;
	/* A listing of very long paths is cut as one of too many is. */
	if (e == -EFBIG) {
		l.truncated = true;
		e = 0;
	}
	if (e < 0) {
		reply_file_error(r, "list", a->path, -e);
	} else {
		l.truncated |= w.cut;
		file_entries_sort(&l.entries, a->sort_by, a->sort_desc);
		reply_listing(r, &l);
	}
	file_entries_release(&l.entries);
}

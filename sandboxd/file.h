/*
 * What the file routes share: how a path of the sandbox is opened, loaded and
 * stored, and what the listing of an entry looks like. All of it blocks and
 * belongs on a worker.
 */
#pragma once

#include <sys/stat.h>

#include "request.h"

struct route;

enum {
	FILE_MAX_TEXT = 64 * MIB,      /* of a file handled as text */
	FILE_MAX_TEXT_AIOD = 16 * MIB, /* the daemon's own limit */
	FILE_MAX_LISTED = 10000,
	FILE_MAX_REPLY = 64 * MIB, /* a search stops there */
};

/* ---- file.c ---- */

/*
 * Reads a regular file. 0 or a negative errno: EISDIR, EINVAL for what is
 * neither, EFBIG over max. Does not block on pipes and devices.
 */
int file_load(struct request *r, const char *path, size_t max, struct buf *out) MUST_CHECK;
/* The same for a file that is open already. */
int file_load_fd(struct request *r, int fd, size_t max, struct buf *out) MUST_CHECK;

/*
 * The text of a file with its newlines translated. On failure it replies (as
 * operation "read") and returns a negative errno.
 */
int file_load_text(struct request *r, const char *client_path, struct buf *out) MUST_CHECK;

/* "drwxr-xr-t" and the like; 11 bytes. */
void file_mode_string(mode_t mode, char out[11]);

/* A decimal string of whole seconds, as every generation sends it. */
void file_write_mtime(struct jw *w, int64_t mtime);

/* Makes the directory and, if needed, those above it; existing ones are fine. */
int file_make_dirs(char *path) MUST_CHECK;

/* ---- file_entries.c: listed files, sorted ---- */

struct file_entry {
	char *path; /* owned */
	const char *name;
	mode_t mode;
	int64_t size;
	int64_t mtime;
};

struct file_entries {
	struct file_entry *v;
	size_t n, cap;
	size_t bytes; /* of paths */
};

/* Copies path without final slashes; name is its last part.
 * 0, -ENOMEM, or -EFBIG (too many bytes of paths). */
int file_entries_add(struct file_entries *e, const char *path, const struct stat *st) MUST_CHECK;
void file_entries_release(struct file_entries *e);
/* By "path", "size", "modified", "type", else by name; equal ones by path. */
void file_entries_sort(struct file_entries *e, const char *by, bool descending);
/* Drops repeated paths; the entries must be sorted by path. */
void file_entries_unique(struct file_entries *e);
/* The extension with its dot, "" if there is none, as os.path.splitext(). */
const char *file_extension(const char *name);

/* ---- file_search.c ---- */

/* For pattern_limit(): whether nobody waits for this request's answer any more. */
bool file_search_stopped(void *request);

/* ---- file_store.c ---- */

/*
 * Writes data to a file of the sandbox, making the directories above it; in
 * place, or in the daemon's dialect through a new file that is renamed.
 */
int file_store(const struct server *srv, const char *path, const char *data, size_t len,
	       bool append) MUST_CHECK;

/* ---- handlers and their arguments ---- */

struct list_args {
	const char *path;
	bool recursive, show_hidden, include_size, include_permissions, sort_desc;
	struct strv file_types;
	struct opt_int max_depth;
	const char *sort_by;
};

struct read_args {
	const char *file;
	struct opt_int start_line, end_line;
	bool sudo;
};

struct write_args {
	const char *file, *encoding;
	struct text content;
	bool append, leading_newline, trailing_newline, sudo;
};

struct replace_args {
	const char *file;
	struct text old_str, new_str;
	bool sudo;
};

struct search_args {
	const char *file, *regex;
	bool sudo;
};

struct find_args {
	const char *path, *glob;
};

struct glob_args {
	const char *path, *pattern, *sort_by;
	struct strv exclude;
	bool include_hidden, files_only, include_metadata, sort_desc;
	int64_t max_results;
};

struct grep_args {
	const char *path, *pattern, *max_file_size, *type;
	struct strv include, exclude;
	bool case_insensitive, fixed_strings, multiline, recursive;
	int64_t context_before, context_after, max_results, offset;
};

struct stat_args {
	const char *path;
	bool follow_symlinks;
};

struct mkdir_args {
	const char *path;
	bool parents;
};

struct delete_args {
	const char *path;
	bool recursive;
};

void file_list(struct request *r);
void file_read(struct request *r);
void file_write(struct request *r);
void file_replace(struct request *r);
void file_search(struct request *r);
void file_find(struct request *r);
void file_glob(struct request *r);
void file_grep(struct request *r);
void file_stat(struct request *r);
void file_mkdir(struct request *r);
void file_delete(struct request *r);

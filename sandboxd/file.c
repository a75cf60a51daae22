/*
 * The table of the file routes and the helpers they share (see file.h). Knows
 * nothing of connections; everything runs on workers, without state of its own.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "route.h"
#include "text.h"
#include "utf8.h"

int file_load_fd(struct request *r, int fd, size_t max, struct buf *out)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	/* One byte more than there should be: the file may grow, or be in /proc. */
	for (size_t room = (size_t)st.st_size + 1;; room = 64 * KIB) {
		int e = buf_reserve(out, room);

		if (e < 0)
			return e;
		n = read(fd, out->data + out->len, MIN(room, MIB));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		out->len += (size_t)n;
		out->data[out->len] = '\0';
		if (n == 0)
			return 0;
		if (out->len > max)
			return -EFBIG;
		if (request_gone(r))
			return -ECANCELED;
	}
}

int file_load(struct request *r, const char *path, size_t max, struct buf *out)
{
	int fd CLEANUP_FD = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd < 0 ? -errno : file_load_fd(r, fd, max, out);
}

/* Says which byte is wrong, in Python's words. */
static void reply_decode_error(struct request *r, const char *path, const struct buf *b)
{
	const char *why = "invalid continuation byte";
	char message[128];
	unsigned char c;
	size_t at = 0, n;

	while ((n = utf8_sequence(b->data + at, b->len - at)) > 0)
		at += n;
	c = (unsigned char)b->data[at];
	if (c < 0xc2 || c > 0xf4)
		why = "invalid start byte";
	else if (utf8_is_cut(b->data + at, b->len - at))
		why = "unexpected end of data";
	snprintf(message, sizeof(message),
		 "'utf-8' codec can't decode byte 0x%02x in position %zu: %s", c, at, why);
	reply_file_fault(r, "read", path, "decode_error", "UnicodeDecodeError", message);
}

int file_load_text(struct request *r, const char *client_path, struct buf *out)
{
	bool aiod = r->srv->cfg->dialect == DIALECT_AIOD;
	char path[PATH_MAX];
	int e = sandbox_path(r->srv, client_path, path);

	if (e == 0)
		e = file_load(r, path, aiod ? FILE_MAX_TEXT_AIOD : FILE_MAX_TEXT, out);
	if (e < 0) {
		reply_file_error(r, "read", client_path, -e);
		return e;
	}
	if (!utf8_valid(out->data, out->len)) {
		reply_decode_error(r, client_path, out);
		return -EILSEQ;
	}
	out->len = text_translate_newlines(out->data, out->len);
	return 0;
}

void file_mode_string(mode_t mode, char out[11])
{
	static const struct {
		mode_t type;
		char letter;
	} types[] = {
		{ S_IFDIR, 'd' }, { S_IFLNK, 'l' }, { S_IFCHR, 'c' },
		{ S_IFBLK, 'b' }, { S_IFIFO, 'p' }, { S_IFSOCK, 's' },
	};

	out[0] = '-';
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((mode & S_IFMT) == types[i].type)
			out[0] = types[i].letter;
	for (unsigned i = 0; i < 9; i++)
		out[1 + i] = mode & (0400u >> i) ? "rwx"[i % 3] : '-';
	if (mode & S_ISUID)
		out[3] = mode & S_IXUSR ? 's' : 'S';
	if (mode & S_ISGID)
		out[6] = mode & S_IXGRP ? 's' : 'S';
	if (mode & S_ISVTX)
		out[9] = mode & S_IXOTH ? 't' : 'T';
	out[10] = '\0';
}

void file_write_mtime(struct jw *w, int64_t mtime)
{
	char s[24];

	snprintf(s, sizeof(s), "%lld", (long long)mtime);
	jw_kstr(w, "modified_time", s);
}

/* ---- routes ---- */

static const struct arg list_spec[] = {
	ARG_STR(struct list_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_BOOL(struct list_args, recursive, false),
	ARG_BOOL(struct list_args, show_hidden, true),
	ARG_STRV(struct list_args, file_types),
	ARG_OPT_INT(struct list_args, max_depth, INT_MIN, INT_MAX),
	ARG_BOOL(struct list_args, include_size, true),
	ARG_BOOL(struct list_args, include_permissions, false),
	ARG_STR_DEF(struct list_args, sort_by, "name"),
	ARG_BOOL(struct list_args, sort_desc, false),
	ARG_END,
};

static const struct arg read_spec[] = {
	ARG_STR(struct read_args, file, ARG_REQUIRED | ARG_PATH),
	ARG_OPT_INT(struct read_args, start_line, INT_MIN, INT_MAX),
	ARG_OPT_INT(struct read_args, end_line, INT_MIN, INT_MAX),
	ARG_BOOL(struct read_args, sudo, false),
	ARG_END,
};

static const struct arg write_spec[] = {
	ARG_STR(struct write_args, file, ARG_REQUIRED | ARG_PATH),
	ARG_TEXT(struct write_args, content, ARG_REQUIRED),
	ARG_ENUM(struct write_args, encoding, "utf-8", "utf-8|base64|raw"),
	ARG_BOOL(struct write_args, append, false),
	ARG_BOOL(struct write_args, leading_newline, false),
	ARG_BOOL(struct write_args, trailing_newline, false),
	ARG_BOOL(struct write_args, sudo, false),
	ARG_END,
};

static const struct arg replace_spec[] = {
	ARG_STR(struct replace_args, file, ARG_REQUIRED | ARG_PATH),
	ARG_TEXT(struct replace_args, old_str, ARG_REQUIRED),
	ARG_TEXT(struct replace_args, new_str, ARG_REQUIRED),
	ARG_BOOL(struct replace_args, sudo, false),
	ARG_END,
};

static const struct arg search_spec[] = {
	ARG_STR(struct search_args, file, ARG_REQUIRED | ARG_PATH),
	ARG_STR(struct search_args, regex, ARG_REQUIRED),
	ARG_BOOL(struct search_args, sudo, false),
	ARG_END,
};

static const struct arg find_spec[] = {
	ARG_STR(struct find_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_STR(struct find_args, glob, ARG_REQUIRED),
	ARG_END,
};

static const struct arg glob_spec[] = {
	ARG_STR(struct glob_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_STR(struct glob_args, pattern, ARG_REQUIRED),
	ARG_STRV(struct glob_args, exclude),
	ARG_BOOL(struct glob_args, include_hidden, false),
	ARG_BOOL(struct glob_args, files_only, true),
	ARG_BOOL(struct glob_args, include_metadata, true),
	ARG_INT(struct glob_args, max_results, 5000, 1, 50000),
	ARG_STR_DEF(struct glob_args, sort_by, "path"),
	ARG_BOOL(struct glob_args, sort_desc, false),
	ARG_END,
};

static const struct arg grep_spec[] = {
	ARG_STR(struct grep_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_STR(struct grep_args, pattern, ARG_REQUIRED),
	ARG_STRV(struct grep_args, include),
	ARG_STRV(struct grep_args, exclude),
	ARG_BOOL(struct grep_args, case_insensitive, false),
	ARG_BOOL(struct grep_args, fixed_strings, false),
	ARG_INT(struct grep_args, context_before, 0, 0, 20),
	ARG_INT(struct grep_args, context_after, 0, 0, 20),
	ARG_INT(struct grep_args, max_results, 500, 1, 10000),
	ARG_STR_DEF(struct grep_args, max_file_size, "1M"),
	ARG_BOOL(struct grep_args, multiline, false),
	ARG_INT(struct grep_args, offset, 0, 0, INT_MAX),
	ARG_STR(struct grep_args, type, 0),
	ARG_BOOL(struct grep_args, recursive, true),
	ARG_END,
};

static const struct arg stat_spec[] = {
	ARG_STR(struct stat_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_BOOL(struct stat_args, follow_symlinks, true),
	ARG_END,
};

static const struct arg mkdir_spec[] = {
	ARG_STR(struct mkdir_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_BOOL(struct mkdir_args, parents, false),
	ARG_END,
};

static const struct arg delete_spec[] = {
	ARG_STR(struct delete_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_BOOL(struct delete_args, recursive, false),
	ARG_END,
};

#define FILE_ROUTE(name, dialects)                                                                 \
	{                                                                                          \
		"POST", "/v1/file/" #name, (dialects), file_##name, name##_spec,                   \
			sizeof(struct name##_args), ROUTE_BLOCKING, NULL                           \
	}

const struct route file_routes[] = {
	FILE_ROUTE(list, D_ALL),    FILE_ROUTE(read, D_ALL),    FILE_ROUTE(write, D_ALL),
	FILE_ROUTE(replace, D_ALL), FILE_ROUTE(search, D_ALL),  FILE_ROUTE(stat, D_AIOD),
	FILE_ROUTE(mkdir, D_AIOD),  FILE_ROUTE(delete, D_AIOD), { 0 },
};

const struct route search_routes[] = {
	FILE_ROUTE(find, D_ALL),
	FILE_ROUTE(glob, D_FROM_1_9),
	FILE_ROUTE(grep, D_FROM_1_9),
	{ 0 },
};

/*
 * threadfs cp: which files go where. Copying one is cp_file.c's. What fails is told and left out;
 * the others are copied. One thread.
 */
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "cp.h"

enum { EXIT_INTERRUPTED = 130 };

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* "DIR/NAME" of a source that goes into a directory; for the caller to free. */
static char *inside(const char *dir, const char *source)
{
	size_t len = strlen(source);
	const char *name;
	char *path;

	while (len > 1 && source[len - 1] == '/')
		len--;
	name = memrchr(source, '/', len);
	name = name && len > 1 ? name + 1 : source;
	if (asprintf(&path, "%s/%.*s", dir, (int)(source + len - name), name) < 0)
		return NULL;
	return path;
}

static bool are_same(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int copy_link(const char *from, const char *to)
{
	char target[PATH_MAX];
	ssize_t n = readlink(from, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (unlink(to) < 0 && errno != ENOENT)
		return -errno;
	return symlink(target, to) < 0 ? -errno : 0;
}

/* A link that is where a directory is to be leads anywhere: a sandbox may have had it copied
 * before, for that. */
static int make_dir(const FTSENT *e, const char *to)
{
	struct stat st;

	if (mkdir(to, (e->fts_statp->st_mode & 0777) | 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (lstat(to, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

/* One of a tree. Returns 0 or a negative errno, after a line. */
static int copy_entry(const FTSENT *e, const char *to, struct cp_progress *p)
{
	int r = 0;

	switch (e->fts_info) {
	case FTS_D:
		r = make_dir(e, to);
		break;
	case FTS_DP:
		return 0;
	case FTS_F:
		return cp_file(e->fts_path, to, p);
	case FTS_SL:
	case FTS_SLNONE:
		r = copy_link(e->fts_path, to);
		break;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		r = -e->fts_errno;
		break;
	default:
		cmd_fail("'%s': neither a file nor a directory nor a link: left out", e->fts_path);
		return -EINVAL;
	}
	if (r < 0)
		cmd_fail("'%s': %s", e->fts_path, strerrordesc_np(-r));
	return r;
}

static int copy_tree(const char *from, const char *to, struct cp_progress *p)
{
	char *const roots[] = { (char *)from, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	int status = 0;
	FTSENT *e;

	if (!tree)
		return cmd_fail("'%s': %s", from, strerrordesc_np(errno));
	while (!cp_is_interrupted() && (e = fts_read(tree))) {
		char *path CLEANUP_FREE = NULL;

		if (asprintf(&path, "%s%s", to, e->fts_path + strlen(from)) < 0) {
			path = NULL;
			status = cmd_fail("out of memory");
			break;
		}
		if (copy_entry(e, path, p) < 0) {
			status = EXIT_FAILURE;
			fts_set(tree, e, FTS_SKIP); /* nothing below it either */
		}
	}
	fts_close(tree);
	return status;
}

static int copy_one(const struct cp_args *a, const char *from, const char *to,
		    struct cp_progress *p)
{
	struct stat st;

	if (lstat(from, &st) < 0)
		return cmd_fail("'%s': %s", from, strerrordesc_np(errno));
	if (are_same(from, to))
		return cmd_fail("'%s' and '%s' are the same file", from, to);
	if (is_dir(from) && !a->recursive)
		return cmd_fail("'%s' is a directory: with -r it is copied", from);
	if (is_dir(from) || (a->recursive && S_ISLNK(st.st_mode)))
		return copy_tree(from, to, p);
	return cp_file(from, to, p) < 0 ? EXIT_FAILURE : 0;
}

int cmd_cp(const struct cp_args *a)
{
	struct cp_progress p = { .on_terminal = isatty(STDERR_FILENO) };
	bool into = is_dir(a->to);
	int status = 0;

	setlocale(LC_ALL, "");
	if (!into && a->count > 1)
		return cmd_fail("'%s' is not a directory", a->to);
	cp_catch_signals();
	for (size_t i = 0; i < a->count && !cp_is_interrupted(); i++) {
		char *from CLEANUP_FREE = strdup(a->from[i]);
		char *to CLEANUP_FREE = into ? inside(a->to, a->from[i]) : strdup(a->to);
		size_t len = from ? strlen(from) : 0;

		if (!from || !to)
			return cmd_fail("out of memory");
		while (len > 1 && from[len - 1] == '/')
			from[--len] = '\0';
		status |= copy_one(a, from, to, &p);
	}
	if (!cp_is_interrupted())
		return status;
	cp_progress_clear(&p);
	cmd_fail("interrupted: what is there is kept; the same command goes on from there");
	return EXIT_INTERRUPTED;
}

/* See walk.h. */
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "request.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)

static void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

int walk_path_prefix(struct buf *b, const char *path)
{
	size_t len = strlen(path);

	while (len > 0 && path[len - 1] == '/')
		len--;
	buf_append(b, path, len);
	return buf_putc(b, '/');
}

int walk_open_dir(const char *path, int *ret_fd)
{
	int fd = open(path, OPEN_DIR);
	struct stat st;

	/* Tell "may not be read" from "may not even be looked up". */
	if (fd < 0 && (errno != EACCES || stat(path, &st) < 0))
		return -errno;
	if (fd < 0 && !S_ISDIR(st.st_mode))
		return -ENOTDIR;
	*ret_fd = fd;
	return 0;
}

static bool stat_entry(struct walk_entry *e, unsigned char d_type)
{
	struct stat lst;

	e->is_link = d_type == DT_LNK;
	if (d_type == DT_UNKNOWN && fstatat(e->dirfd, e->name, &lst, AT_SYMLINK_NOFOLLOW) == 0)
		e->is_link = S_ISLNK(lst.st_mode);
	return fstatat(e->dirfd, e->name, &e->st, 0) == 0;
}

static int walk_dir(struct walk *w, int dirfd, unsigned depth, unsigned links);

/* Goes into the directory just visited, if that is wanted and possible. */
static int enter(struct walk *w, const struct walk_entry *e, unsigned depth, unsigned links)
{
	int fd CLEANUP_FD = -1;

	if (!S_ISDIR(e->st.st_mode) || depth >= w->max_depth || (e->is_link && !w->follow))
		return 0;
	if (depth >= WALK_MAX_DEPTH) {
		w->cut = true;
		return 0;
	}
	fd = openat(e->dirfd, e->name, OPEN_DIR | (w->follow ? 0 : O_NOFOLLOW));
	if (fd < 0) {
		w->cut |= errno == EMFILE || errno == ENFILE;
		return 0;
	}
	if (buf_putc(&w->path, '/') < 0)
		return -ENOMEM;
	return walk_dir(w, steal_fd(&fd), depth + 1, links);
}

/* One name; the path of its directory, with a slash, is in w->path. */
static int walk_name(struct walk *w, int dirfd, const struct dirent *d, unsigned depth,
		     unsigned links)
{
	struct walk_entry e = { .dirfd = dirfd, .name = d->d_name };
	enum walk_next next;

	if (++w->entries % 256 == 0 && request_gone(w->r))
		return -ECANCELED;
	if (w->entries > WALK_MAX_ENTRIES) {
		w->cut = true;
		return WALK_STOP;
	}
	if (!stat_entry(&e, d->d_type))
		return 0;
	links += e.is_link;
	if (links > WALK_MAX_LINKS)
		return 0;
	if (buf_puts(&w->path, d->d_name) < 0)
		return -ENOMEM;
	e.path = w->path.data;
	e.rel = w->path.data + w->root_len;
	next = w->visit(w, &e);
	if (next != WALK_ON)
		return next == WALK_STOP ? WALK_STOP : 0;
	return enter(w, &e, depth, links);
}

/* Takes dirfd. 0, WALK_STOP or a negative errno. */
static int walk_dir(struct walk *w, int dirfd, unsigned depth, unsigned links)
{
	DIR *dir CLEANUP(cleanup_dir) = fdopendir(dirfd);
	size_t len = w->path.len;
	struct dirent *d;
	int r = 0;

	if (!dir) {
		close(dirfd);
		return -ENOMEM;
	}
	while (r == 0 && (d = readdir(dir))) {
		const char *n = d->d_name;

		if (n[0] == '.' && (!w->hidden || !n[1] || (n[1] == '.' && !n[2])))
			continue;
		r = walk_name(w, dirfd, d, depth, links);
		w->path.len = len;
	}
	return r;
}

int walk(struct walk *w, int rootfd, const char *root_path)
{
	int r;

	if (rootfd < 0)
		return 0;
	w->path = BUF_INIT(0);
	w->entries = 0;
	r = walk_path_prefix(&w->path, root_path);
	w->root_len = w->path.len;
	if (r < 0)
		close(rootfd);
	else
		r = walk_dir(w, rootfd, 0, 0);
	buf_release(&w->path);
	return r < 0 ? r : 0;
}

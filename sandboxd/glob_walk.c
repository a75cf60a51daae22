/* See glob_walk.h. */
#include "glob_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "glob_match.h"
#include "request.h"
#include "walk.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)

/* A directory on the way; g->path holds its path and a slash. */
struct level {
	int fd;
	unsigned depth, links;
	size_t name; /* which part of the pattern is next */
};

static int expand(struct glob_walk *g, struct level at);
static int below(struct glob_walk *g, struct level at);

static bool is_last(const struct glob_walk *g, size_t name)
{
	return name + 1 == g->n;
}

static bool is_any_depth(const struct glob_walk *g, size_t name)
{
	return g->names[name].len == 2 && memcmp(g->names[name].p, "**", 2) == 0;
}

static int report(struct glob_walk *g, int dirfd, const char *name)
{
	size_t len = g->path.len;
	struct glob_found f = { .dirfd = dirfd, .name = name };
	int r;

	/* The directory itself is reported as "dir/". */
	if (strcmp(name, ".") != 0 && buf_puts(&g->path, name) < 0)
		return -ENOMEM;
	f.path = g->path.data;
	f.rel = g->path.data + g->root_len;
	r = g->found(g, &f);
	g->path.len = len;
	g->path.data[len] = '\0';
	return r;
}

/* Goes on in the directory name (not a directory, or not to be opened: 0). */
static int descend(struct glob_walk *g, struct level at, const char *name, int flags,
		   int (*then)(struct glob_walk *g, struct level at))
{
	int fd CLEANUP_FD = openat(at.fd, name, OPEN_DIR | flags);
	size_t len = g->path.len;
	int r;

	if (fd < 0)
		return 0;
	if (++at.depth > WALK_MAX_DEPTH) {
		g->cut = true;
		return 0;
	}
	at.fd = fd;
	buf_puts(&g->path, name);
	r = buf_putc(&g->path, '/');
	if (r == 0)
		r = then(g, at);
	g->path.len = len;
	return r;
}

/* Calls fn for every name in the directory. */
static int each_name(struct glob_walk *g, struct level at,
		     int (*fn)(struct glob_walk *g, struct level at, const struct dirent *d))
{
	int fd = openat(at.fd, ".", OPEN_DIR), r = 0;
	struct dirent *d;
	DIR *dir;

	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (d = readdir(dir))) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (++g->entries % 256 == 0 && request_gone(g->r))
			r = -ECANCELED;
		else if (g->entries > WALK_MAX_ENTRIES)
			r = g->cut = true;
		else
			r = fn(g, at, d);
	}
	closedir(dir);
	return r;
}

static bool is_link(struct level at, const struct dirent *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return d->d_type == DT_LNK;
	return fstatat(at.fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* Whether opening it as a directory is worth a try. */
static bool may_be_dir(const struct dirent *d)
{
	return d->d_type == DT_DIR || d->d_type == DT_LNK || d->d_type == DT_UNKNOWN;
}

/* One name below "**". */
static int below_name(struct glob_walk *g, struct level at, const struct dirent *d)
{
	bool link;
	int r;

	if (d->d_name[0] == '.' && !g->hidden)
		return 0;
	if (is_last(g, at.name)) {
		r = report(g, at.fd, d->d_name);
		if (r != 0)
			return r;
	}
	if (!may_be_dir(d))
		return 0;
	link = is_link(at, d);
	if (link && (!g->follow || ++at.links > WALK_MAX_LINKS))
		return 0;
	return descend(g, at, d->d_name, link ? 0 : O_NOFOLLOW, below);
}

/* In a directory that "**" stands for: what follows it, and deeper ones. */
static int below(struct glob_walk *g, struct level at)
{
	struct level after = at;
	int r = 0;

	after.name++;
	if (!is_last(g, at.name))
		r = expand(g, after);
	return r != 0 ? r : each_name(g, at, below_name);
}

/* One name against a part like "*.c". */
static int match_name(struct glob_walk *g, struct level at, const struct dirent *d)
{
	const char *p = g->names[at.name].p;

	if (d->d_name[0] == '.' && p[0] != '.' && !g->hidden)
		return 0;
	if (!glob_match_name(p, g->names[at.name].len, d->d_name, strlen(d->d_name)))
		return 0;
	if (is_last(g, at.name))
		return report(g, at.fd, d->d_name);
	at.name++;
	return may_be_dir(d) ? descend(g, at, d->d_name, 0, expand) : 0;
}

/* A part without wildcards is looked up, which also serves ".." and ".git". */
static int literal_name(struct glob_walk *g, struct level at)
{
	char name[NAME_MAX + 1];
	struct stat st;

	if (g->names[at.name].len > NAME_MAX)
		return 0;
	memcpy(name, g->names[at.name].p, g->names[at.name].len);
	name[g->names[at.name].len] = '\0';
	if (!is_last(g, at.name)) {
		at.name++;
		return descend(g, at, name, 0, expand);
	}
	if (fstatat(at.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return report(g, at.fd, name);
}

static int expand(struct glob_walk *g, struct level at)
{
	const char *p = g->names[at.name].p;
	size_t len = g->names[at.name].len;

	if (len == 0) /* after a final slash */
		return report(g, at.fd, ".");
	if (is_any_depth(g, at.name)) {
		int r = is_last(g, at.name) ? report(g, at.fd, ".") : 0;

		return r != 0 ? r : below(g, at);
	}
	return glob_has_magic(p, len) ? each_name(g, at, match_name) : literal_name(g, at);
}

/* Splits at slashes; double ones count once, and so do "**" in a row. */
static int split(struct glob_walk *g, const char *pattern)
{
	const char *p = pattern + strspn(pattern, "/");

	for (g->n = 0;; p += strspn(p, "/")) {
		size_t len = strcspn(p, "/");

		if (g->n == GLOB_MAX_NAMES)
			return -E2BIG;
		g->names[g->n].p = p;
		g->names[g->n].len = len;
		if (g->n == 0 || !is_any_depth(g, g->n) || !is_any_depth(g, g->n - 1))
			g->n++;
		p += len;
		if (!*p)
			return 0;
	}
}

int glob_walk(struct glob_walk *g, int rootfd, const char *root_path, const char *pattern)
{
	int fd CLEANUP_FD = rootfd;
	int r = split(g, pattern);

	if (r < 0 || fd < 0)
		return r;
	g->path = BUF_INIT(0);
	g->entries = 0;
	r = walk_path_prefix(&g->path, root_path);
	g->root_len = g->path.len;
	if (r == 0)
		r = expand(g, (struct level){ .fd = fd });
	buf_release(&g->path);
	return r < 0 ? r : 0;
}

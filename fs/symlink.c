/*
 * Where links may lead. Everything is decided by the text alone: what the names
 * in a target are does not matter, because every link on the way is read
 * through here, too. Hence no ".." behind a name in what is handed out: if that
 * name were a link, ".." would lead out of where it points to. Knows nothing of
 * sandboxes, nodes or the kernel. Pure.
 */
#include "symlink.h"

#include <errno.h>
#include <string.h>

#include "entries.h"

/* ---- paths as names ---- */

struct name {
	const char *text;
	size_t len;
};

/* The next name of a path: neither empty nor ".". */
static bool next_name(const char **path, struct name *ret)
{
	for (;;) {
		const char *p = *path + strspn(*path, "/");
		size_t len = strcspn(p, "/");

		*path = p + len;
		if (len == 0)
			return false;
		if (len == 1 && p[0] == '.')
			continue;
		*ret = (struct name){ p, len };
		return true;
	}
}

static bool is_up(const struct name *n)
{
	return n->len == 2 && memcmp(n->text, "..", 2) == 0;
}

/*
 * The control directory is ours, in the sandbox there is none: a link that names
 * one is a trap for who reads or writes through it. In the middle, too: the
 * names before it may be links to the root.
 */
static bool is_ctl(const struct name *n)
{
	return n->len == 4 && memcmp(n->text, ".ctl", 4) == 0;
}

static bool is_same(const struct name *a, const struct name *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

struct names {
	struct name *items;
	size_t count;
};

static void names_release(struct names *n)
{
	free(n->items);
}
#define CLEANUP_NAMES CLEANUP(names_release)

/* Room for all names of paths that are together so long. */
static int names_init(struct names *n, size_t bytes)
{
	n->items = calloc(bytes / 2 + 4, sizeof(*n->items));
	return n->items ? 0 : -ENOMEM;
}

/* From where the names lead so far along the path; ".." at the top stays there. */
static void names_follow(struct names *n, const char *path)
{
	struct name name;

	while (next_name(&path, &name)) {
		if (!is_up(&name))
			n->items[n->count++] = name;
		else if (n->count > 0)
			n->count--;
	}
}

static size_t count_same(const struct names *a, const struct names *b)
{
	size_t i = 0;

	while (i < a->count && i < b->count && is_same(&a->items[i], &b->items[i]))
		i++;
	return i;
}

/* ---- what is shown ---- */

/* Relative, climbs only at its beginning and not too far, and names nothing of ours. */
static bool is_safe(const char *target, size_t depth)
{
	bool named = false;
	struct name name;
	size_t up = 0;

	if (target[0] == '/')
		return false;
	while (next_name(&target, &name)) {
		if (is_ctl(&name) || (is_up(&name) && (named || ++up > depth)))
			return false;
		named |= !is_up(&name);
	}
	return true;
}

/* `up` times "..", then the names; "." if that is nothing. */
static int print(size_t up, const struct name *names, size_t count, char **ret)
{
	size_t len = up * 3;
	char *out, *text;

	for (size_t i = 0; i < count; i++)
		len += names[i].len + 1;
	/* Each has a slash behind it, the last one the NUL. */
	if (len > PATH_BYTES_MAX + 1)
		return -EINVAL;
	text = out = malloc(MAX(len, 2));
	if (!text)
		return -ENOMEM;
	if (len == 0) {
		*out++ = '.';
		*out++ = '/';
	}
	for (size_t i = 0; i < up; i++)
		out = mempcpy(out, "../", 3);
	for (size_t i = 0; i < count; i++) {
		out = mempcpy(out, names[i].text, names[i].len);
		*out++ = '/';
	}
	out[-1] = '\0';
	*ret = text;
	return 0;
}

int symlink_contain(const char *root, const char *dir, const char *target, char **ret)
{
	struct names from CLEANUP_NAMES = { 0 }, to CLEANUP_NAMES = { 0 };
	size_t len = strlen(target), depth, common;
	size_t bytes = strlen(root) + strlen(dir) + len;

	if (len == 0 || len > PATH_BYTES_MAX)
		return -EINVAL;
	if (names_init(&from, bytes) < 0 || names_init(&to, bytes) < 0)
		return -ENOMEM;
	names_follow(&from, root);
	depth = from.count; /* the root's, so far */
	names_follow(&from, dir);
	if (is_safe(target, from.count - depth)) {
		*ret = strdup(target);
		return *ret ? 0 : -ENOMEM;
	}
	if (target[0] != '/') {
		memcpy(to.items, from.items, from.count * sizeof(*from.items));
		to.count = from.count;
	}
	names_follow(&to, target);
	common = count_same(&from, &to);
	if (common < depth)
		return -EPERM;
	for (size_t i = common; i < to.count; i++) {
		if (is_ctl(&to.items[i]))
			return -EPERM;
	}
	return print(from.count - common, to.items + common, to.count - common, ret);
}

/* ---- what is stored ---- */

/* What of an absolute path lies below dir; NULL: it does not. */
static const char *rest_below(const char *dir, const char *path)
{
	struct name want, have;
	const char *rest;
	size_t depth = 0;

	while (next_name(&dir, &want)) {
		if (!next_name(&path, &have) || !is_same(&want, &have))
			return NULL;
	}
	rest = path;
	while (next_name(&path, &have)) {
		if (!is_up(&have))
			depth++;
		else if (depth-- == 0)
			return NULL;
	}
	return rest;
}

int symlink_export(const char *root, const char *mount_thread, const char *target, char **ret)
{
	const char *rest = NULL;
	size_t root_len, len;
	char *text;

	if (mount_thread && target[0] == '/')
		rest = rest_below(mount_thread, target);
	if (!rest) {
		text = strdup(target);
	} else {
		root_len = strcmp(root, "/") == 0 && rest[0] ? 0 : strlen(root);
		len = root_len + strlen(rest);
		if (len > PATH_BYTES_MAX)
			return -ENAMETOOLONG;
		text = malloc(len + 1);
		if (text)
			strcpy(mempcpy(text, root, root_len), rest);
	}
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

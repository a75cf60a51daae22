/*
 * A list of files with what a listing shows of them, and its orders. Knows
 * neither requests nor where entries come from; one owner at a time.
 */
#include <errno.h>
#include <string.h>

#include "file.h"

enum { MAX_BYTES = 32 * MIB };

int file_entries_add(struct file_entries *e, const char *path, const struct stat *st)
{
	size_t len = strlen(path), cap = e->cap ? e->cap * 2 : 256;
	struct file_entry *v, *entry;
	const char *slash;
	char *copy;

	/* "dir/" is how a pattern that ends in a slash finds a directory. */
	while (len > 1 && path[len - 1] == '/')
		len--;
	if (len > MAX_BYTES - e->bytes)
		return -EFBIG;
	if (e->n == e->cap) {
		v = reallocarray(e->v, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		e->v = v;
		e->cap = cap;
	}
	copy = strndup(path, len);
	if (!copy)
		return -ENOMEM;
	slash = strrchr(copy, '/');
	entry = &e->v[e->n++];
	*entry = (struct file_entry){
		.path = copy,
		.name = slash ? slash + 1 : copy,
		.mode = st->st_mode,
		.size = S_ISDIR(st->st_mode) ? 0 : st->st_size,
		.mtime = st->st_mtim.tv_sec,
	};
	e->bytes += len;
	return 0;
}

void file_entries_release(struct file_entries *e)
{
	for (size_t i = 0; i < e->n; i++)
		free(e->v[i].path);
	free(e->v);
	*e = (struct file_entries){ 0 };
}

const char *file_extension(const char *name)
{
	const char *dot;

	name += strspn(name, "."); /* ".bashrc" has none */
	dot = strrchr(name, '.');
	return dot ? dot : "";
}

static int compare_int(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int by_path(const struct file_entry *a, const struct file_entry *b)
{
	return strcmp(a->path, b->path);
}

static int by_name(const struct file_entry *a, const struct file_entry *b)
{
	return strcasecmp(a->name, b->name);
}

static int by_size(const struct file_entry *a, const struct file_entry *b)
{
	return compare_int(a->size, b->size);
}

static int by_mtime(const struct file_entry *a, const struct file_entry *b)
{
	return compare_int(a->mtime, b->mtime);
}

/* Directories first, then by extension. */
static int by_type(const struct file_entry *a, const struct file_entry *b)
{
	if (S_ISDIR(a->mode) || S_ISDIR(b->mode))
		return S_ISDIR(b->mode) - S_ISDIR(a->mode);
	return strcasecmp(file_extension(a->name), file_extension(b->name));
}

struct order {
	const char *by;
	int (*compare)(const struct file_entry *a, const struct file_entry *b);
	bool descending;
};

static int compare(const void *a, const void *b, void *ctx)
{
	const struct order *o = ctx;
	int c = o->compare(a, b);

	if (c == 0)
		return by_path(a, b);
	return o->descending ? -c : c;
}

void file_entries_sort(struct file_entries *e, const char *by, bool descending)
{
	static const struct order orders[] = {
		{ "name", by_name },      { "path", by_path }, { "size", by_size },
		{ "modified", by_mtime }, { "type", by_type },
	};
	struct order o = orders[0];

	for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
		if (strcmp(by, orders[i].by) == 0)
			o = orders[i];
	o.descending = descending;
	if (e->n > 1)
		qsort_r(e->v, e->n, sizeof(*e->v), compare, &o);
}

void file_entries_unique(struct file_entries *e)
{
	size_t kept = MIN(e->n, (size_t)1);

	for (size_t i = 1; i < e->n; i++) {
		if (strcmp(e->v[i].path, e->v[kept - 1].path) == 0)
			free(e->v[i].path);
		else
			e->v[kept++] = e->v[i];
	}
	e->n = kept;
}

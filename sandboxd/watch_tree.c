/* See watch_tree.h. */
#include "watch_tree.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <utlist.h>

/* Hashed as bytes: the pointer, and the name without its NUL. */
struct wdir_key {
	const struct wdir *parent;
	char name[];
};

static size_t key_len(const char *name)
{
	return sizeof(struct wdir_key) + strlen(name);
}

static struct wdir_key *key_new(const struct wdir *parent, const char *name)
{
	struct wdir_key *k = malloc(key_len(name) + 1);

	if (!k)
		return NULL;
	k->parent = parent;
	memcpy(k->name, name, strlen(name) + 1);
	return k;
}

static void link_at(struct wtree *t, struct wdir *d, struct wdir *parent, struct wdir_key *key)
{
	d->parent = parent;
	d->key = key;
	DL_APPEND(parent->children, d);
	HASH_ADD_KEYPTR(by_key, t->by_key, key, key_len(key->name), d);
}

static void unlink_from(struct wtree *t, struct wdir *d)
{
	DL_DELETE(d->parent->children, d);
	HASH_DELETE(by_key, t->by_key, d);
	free(STEAL(d->key));
}

struct wdir *wtree_add(struct wtree *t, int wd, struct wdir *parent, const char *name)
{
	struct wdir *d CLEANUP_FREE = calloc(1, sizeof(*d));
	struct wdir_key *key = NULL;

	if (!d)
		return NULL;
	d->wd = wd;
	if (parent) {
		key = key_new(parent, name);
		if (!key)
			return NULL;
		link_at(t, d, parent, key);
	} else {
		t->root = d;
	}
	HASH_ADD(by_wd, t->by_wd, wd, sizeof(d->wd), d);
	return STEAL(d);
}

int wtree_move(struct wtree *t, struct wdir *d, struct wdir *parent, const char *name)
{
	struct wdir_key *key;

	for (const struct wdir *up = parent; up; up = up->parent)
		if (up == d)
			return -ELOOP;
	key = key_new(parent, name);
	if (!key)
		return -ENOMEM;
	unlink_from(t, d);
	link_at(t, d, parent, key);
	return 0;
}

void wtree_remove(struct wtree *t, struct wdir *d)
{
	if (d->parent)
		unlink_from(t, d);
	else
		t->root = NULL;
	HASH_DELETE(by_wd, t->by_wd, d);
	free(d);
}

struct wdir *wtree_leaf(struct wdir *d)
{
	while (d->children)
		d = d->children;
	return d;
}

struct wdir *wtree_find(const struct wtree *t, int wd)
{
	struct wdir *d;

	HASH_FIND(by_wd, t->by_wd, &wd, sizeof(wd), d);
	return d;
}

struct wdir *wtree_child(const struct wtree *t, const struct wdir *parent, const char *name)
{
	union {
		struct wdir_key key;
		char room[sizeof(struct wdir_key) + NAME_MAX + 1];
	} u;
	size_t len = strlen(name);
	struct wdir *d;

	if (len > NAME_MAX)
		return NULL;
	u.key.parent = parent;
	memcpy(u.room + sizeof(struct wdir_key), name, len);
	HASH_FIND(by_key, t->by_key, &u, key_len(name), d);
	return d;
}

int wtree_path(const struct wdir *d, const char *name, char *out)
{
	char *end = out + PATH_MAX - 1, *p = end;

	/* Built backwards at the end of the buffer, then moved to its start. */
	*end = '\0';
	if (!name && d->parent) {
		name = d->key->name;
		d = d->parent;
	}
	while (name) {
		size_t len = strlen(name);

		if ((size_t)(p - out) < len + 1)
			return -ENAMETOOLONG;
		if (p != end)
			*--p = '/';
		p -= len;
		memcpy(p, name, len);
		name = d->parent ? d->key->name : NULL;
		d = d->parent;
	}
	memmove(out, p, (size_t)(end - p) + 1);
	return 0;
}

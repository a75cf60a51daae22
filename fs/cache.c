/* See cache.h. Loop thread only. */
#include "cache.h"

#include <string.h>

#include "absent.h"
#include "file.h"
#include "listing.h"
#include "node.h"
#include "notifier.h"

void cache_live(struct thread *t)
{
	/* The kernel was given what it has for a second only. */
	t->epoch++;
	t->watched = true;
}

void cache_lost(struct thread *t)
{
	t->watched = false;
	thread_void_caches(t);
}

/* ---- one change ---- */

/*
 * The content was written in place: whoever has it open is to see that. Pages of what nobody
 * has open stay: with the attributes void the next one who opens it compares versions first. What
 * is written here has its own truth.
 */
static void void_content(struct node *n)
{
	struct handle *h;

	if (n->stage || !n->handles)
		return;
	for (h = n->handles; h; h = h->next)
		file_suspect(h);
	notify_inode(n->fs, n->ino, true);
}

static void void_node(struct node *n)
{
	node_void_attr(n);
	/* Where versions cannot be told apart for sure: see attr_same_version(). */
	if (n->attr.partial)
		n->kept.mode = 0;
	notify_inode(n->fs, n->ino, S_ISDIR(n->attr.mode));
}

static void void_below(struct node *n)
{
	struct node *child, *next;

	if (n->kind != NODE_SANDBOX)
		return;
	void_node(n);
	absent_void(n);
	HASH_ITER (by_name, n->children, child, next) {
		notify_entry(n->fs, n->ino, child->name);
		void_below(child);
	}
}

/* What a directory has changed, or only something of an entry of it. */
static void void_name(struct node *dir, const char *name, const struct watch_event *ev)
{
	struct node *n = node_child(dir, name);
	bool entries = ev->type != WATCH_WRITE && ev->type != WATCH_CHMOD;

	if (n && n->kind != NODE_SANDBOX)
		return; /* ours hides it */
	/* A node that is newer than the listing overrules it; without one all of it goes. */
	if (entries || !n)
		void_node(dir);
	/* In any case, as the server may call a file that was replaced written. */
	notify_entry(dir->fs, dir->ino, name);
	if (!n)
		return;
	if (entries && S_ISDIR(n->attr.mode))
		void_below(n);
	else
		void_node(n);
	if (ev->type == WATCH_WRITE)
		void_content(n);
	node_void_peers(n);
}

static void void_path(struct thread *t, const char *path, const struct watch_event *ev)
{
	struct node *dir = t->root, *n;
	char name[NAME_BYTES_MAX + 1];
	const char *slash;

	for (; (slash = strchr(path, '/')); path = slash + 1) {
		if ((size_t)(slash - path) >= sizeof(name))
			return;
		memcpy(name, path, (size_t)(slash - path));
		name[slash - path] = '\0';
		n = node_child(dir, name);
		if (!n) {
			/* Nothing is known below; but its own times are in the listing above it. */
			if (!strchr(slash + 1, '/'))
				node_void_attr(dir);
			return;
		}
		dir = n;
	}
	void_name(dir, path, ev);
}

void cache_event(struct thread *t, const struct watch_event *ev)
{
	if (!t->root)
		return;
	if (strcmp(ev->relative, ".") == 0) {
		if (ev->type == WATCH_CHMOD || ev->type == WATCH_WRITE)
			void_node(t->root);
		else
			thread_void_caches(t); /* the root itself has come or gone */
		return;
	}
	if (ev->old_path && ev->old_path[0])
		void_path(t, ev->old_path, ev);
	void_path(t, ev->relative, ev);
}

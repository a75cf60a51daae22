/* See cache.h. Loop thread only. */
#include "cache.h"

#include <stdio.h>
#include <string.h>

#include "absent.h"
#include "clock.h"
#include "file.h"
#include "node.h"
#include "notifier.h"
#include "peers.h"
#include "shelf.h"

void cache_live(struct thread *t)
{
	/* What was asked for before lasts for its second only: shelf_left_ms(). */
	t->watched = true;
	t->live_ms = MAX(clock_ms(), t->ahead_ms);
}

void cache_lost(struct thread *t)
{
	t->watched = false;
	thread_void_caches(t);
}

/* ---- one change ---- */

/* A path and what is known of it. */
struct spot {
	struct thread *thread;
	const char *path;
	const char *name;        /* its last part */
	char *above;             /* the others */
	struct listing *listing; /* of above; or NULL */
	struct node *dir, *node; /* of above, of path; or NULL */
};

static bool find_spot(struct thread *t, const char *path, struct spot *p)
{
	const char *slash = strrchr(path, '/');

	*p = (struct spot){ .thread = t, .path = path, .name = slash ? slash + 1 : path };
	p->above = slash ? strndup(path, (size_t)(slash - path)) : strdup("");
	if (!p->above)
		return false;
	p->listing = shelf_find(t, p->above);
	p->dir = node_find(t, p->above);
	p->node = p->dir ? node_child(p->dir, p->name) : NULL;
	return true;
}

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

void cache_void_file(struct node *n)
{
	if (n->stage)
		return;
	if (node_is_fresh(n))
		void_node(n);
	void_content(n);
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

/* We are changing the directory ourselves; its times are asked for when we have done. */
static bool is_guess(const struct node *dir)
{
	return dir->guess_ms > clock_ms();
}

static bool is_guessed(const struct spot *p)
{
	return p->dir && is_guess(p->dir);
}

/* Names came to a directory or went from it: its own attributes. */
static void void_dir(const struct spot *p)
{
	journal_note(p->thread->journal, p->above, NOTE_ATTR);
	shelf_doubt(p->thread, p->above, NOTE_ATTR);
	if (is_guessed(p))
		notify_inode(p->dir->fs, p->dir->ino, true);
	else if (p->dir)
		void_node(p->dir);
}

static bool is_same(const struct attr *a, bool has_attr, const struct watch_event *ev)
{
	return has_attr && !a->partial && a->ino && a->ino == ev->ino &&
	       S_ISDIR(a->mode) == ev->is_dir;
}

/* What is there is the file that we know to be there, so only something about it changed. */
static bool is_known(const struct spot *p, const struct watch_event *ev)
{
	const struct item *i = p->listing ? listing_find(p->listing, p->name) : NULL;
	struct attr attr;

	/* The kernel was told that there is none: whatever we remember is older than that. */
	if (ev->ino == 0 || (p->dir && absent_has(p->dir, p->name)))
		return false;
	if (p->node && !is_same(&p->node->attr, p->node->has_attr, ev))
		return false;
	/* What is void may have gone meanwhile, and numbers are used again. */
	if (!i || i->state == ITEM_UNSURE)
		return p->node && !p->listing && node_is_fresh(p->node);
	item_attr(i, &attr);
	return is_same(&attr, true, ev);
}

/* Nothing is there, and we know. */
static bool is_known_absent(const struct spot *p)
{
	return !p->node && p->listing && p->listing->complete &&
	       listing_left_ms(p->listing, p->thread) > 0 && !listing_find(p->listing, p->name);
}

static bool is_doubted(const struct spot *p)
{
	const struct item *i = p->listing ? listing_find(p->listing, p->name) : NULL;

	return i && i->state == ITEM_UNSURE;
}

static bool is_listed(const struct spot *p)
{
	const struct item *i = p->listing ? listing_find(p->listing, p->name) : NULL;

	return i && i->state != ITEM_UNSURE;
}

/*
 * A name that came may be another one of a file that is known; and one that is known to be one of
 * several is not the only one that changed. Most files have one name and are known by it:
 * that costs nothing.
 */
static int note_peers(const struct spot *p, const struct watch_event *ev, bool comes, bool known)
{
	const struct item *i = p->listing ? listing_find(p->listing, p->name) : NULL;
	const struct attr *a = p->node && p->node->has_attr ? &p->node->attr : NULL;
	uint32_t nlink = a ? a->nlink : i ? i->nlink : 0;
	uint64_t file = a ? a->ino : i ? i->ino : 0;
	fuse_ino_t own = p->node ? p->node->ino : 0;
	int r = 0;

	if (comes && !known && ev->ino)
		r = peers_note(p->thread, ev->ino, own);
	if (r == 0 && nlink > 1 && file)
		r = peers_note(p->thread, file, own);
	return r;
}

/* No memory to do it with care. The listing of the spot is gone afterwards. */
static void void_all(const struct spot *p)
{
	struct node *n = p->node ? node_ref(p->node) : NULL;

	thread_void_caches(p->thread);
	if (n) {
		void_below(n);
		void_content(n);
		node_unref(n);
	}
}

/* Not all servers know that of what is gone. */
static bool was_dir(const struct spot *p)
{
	const struct item *i = p->listing ? listing_find(p->listing, p->name) : NULL;

	return (p->node && S_ISDIR(p->node->attr.mode)) || (i && S_ISDIR(i->mode)) ||
	       shelf_find(p->thread, p->path);
}

/*
 * Most of these are echoes of our own changes: what they say is known already, and of the
 * directory nothing has to be asked again because of them. But a name can also be known by a
 * listing that was asked for between the change and its event; then what is known of
 * the directory itself may be older.
 */
static void void_spot(const struct spot *p, const struct watch_event *ev, bool comes)
{
	struct node *n = p->node;
	bool names = ev->type != WATCH_WRITE && ev->type != WATCH_CHMOD;
	enum note what = ev->is_dir || was_dir(p) ? NOTE_TREE : NOTE_NAME;
	bool stays;

	if (n && n->kind != NODE_SANDBOX)
		return; /* ours hides it */
	if (comes && is_known(p, ev))
		what = NOTE_ATTR;
	if (what != NOTE_TREE && !ev->is_dir && note_peers(p, ev, comes, what == NOTE_ATTR) < 0) {
		void_all(p);
		return;
	}
	journal_note(p->thread->journal, p->path, what);
	if (names && !comes && is_known_absent(p)) {
		if (!is_guessed(p))
			void_dir(p);
		return;
	}
	/* One that came and went before anybody looked: a temporary name. */
	if (names && !comes && !n && is_doubted(p)) {
		listing_remove(p->listing, p->name);
		void_dir(p);
		return;
	}
	/* It may be another file, but the name is there, as it was. */
	stays = what == NOTE_NAME && comes && is_listed(p);
	shelf_doubt(p->thread, p->path, stays ? NOTE_ATTR : what); /* the listing may be gone */
	if (names && !((stays || what == NOTE_ATTR) && is_guessed(p)))
		void_dir(p);
	if (p->dir && what != NOTE_ATTR)
		notify_entry(p->dir->fs, p->dir->ino, p->name);
	if (!n)
		return;
	if (what == NOTE_TREE)
		void_below(n);
	else if (what == NOTE_ATTR && ev->type == WATCH_CREATE && ev->is_dir && is_guess(n))
		node_heard_of_making(n);
	else
		void_node(n);
	if (ev->type == WATCH_WRITE)
		void_content(n);
}

static void void_path(struct thread *t, const char *path, const struct watch_event *ev, bool comes)
{
	struct spot p;

	if (find_spot(t, path, &p))
		void_spot(&p, ev, comes);
	else
		thread_void_caches(t);
	free(p.above);
}

void cache_event(struct thread *t, const struct watch_event *ev)
{
	if (strcmp(ev->relative, ".") == 0) {
		if (ev->type != WATCH_CHMOD && ev->type != WATCH_WRITE)
			thread_void_caches(t); /* the root itself has come or gone */
		else if (t->root)
			void_node(t->root);
		return;
	}
	if (ev->old_path && ev->old_path[0])
		void_path(t, ev->old_path, ev, false);
	void_path(t, ev->relative, ev, ev->type != WATCH_REMOVE);
}

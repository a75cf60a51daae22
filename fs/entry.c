/* Names as the kernel gets them. Loop thread only. */
#include "entry.h"

#include <errno.h>
#include <string.h>

#include "absent.h"
#include "clock.h"
#include "notifier.h"
#include "shelf.h"
#include "stage.h"

/* The same place, but another file: what was open stays with the old one. */
static bool is_another(const struct node *n, const struct attr *attr)
{
	if (!n->has_attr)
		return false;
	if ((n->attr.mode & S_IFMT) != (attr->mode & S_IFMT))
		return true;
	if (n->attr.partial || attr->partial || n->attr.ino == 0)
		return false;
	return n->attr.ino != attr->ino || n->attr.dev != attr->dev;
}

/* The listings below are of the directory that was there. */
static void drop_listings(struct node *n)
{
	char *path CLEANUP_FREE = NULL;

	if (S_ISDIR(n->attr.mode) && node_rel_path(n, &path) == 0)
		shelf_drop(n->thread, path);
}

int entry_adopt(struct node *dir, const char *name, const struct attr *attr, int64_t asked_ms,
		bool current, struct node **ret)
{
	struct node *n = node_child(dir, name);
	int r;

	if (S_ISLNK(attr->mode) && dir->fs->opt->symlinks == SYMLINKS_DENY)
		return -ENOENT;
	/* What is written here has its own truth until it is in the sandbox. */
	if (n && n->stage) {
		*ret = node_ref(n);
		return 0;
	}
	if (n && current && is_another(n, attr)) {
		notify_entry(dir->fs, dir->ino, name); /* to whom it is not the answer */
		drop_listings(n);
		node_detach(n);
	}
	r = node_get_child(dir, name, &n);
	if (r < 0)
		return r;
	node_set_attr_at(n, attr, asked_ms);
	if (!current)
		node_doubt_attr(n);
	*ret = n;
	return 0;
}

/* ---- answers ---- */

double entry_attr_seconds(const struct node *n)
{
	double left = (double)MAX(node_left_ms(n), n->guess_ms - clock_ms()) / 1000;

	if (n->stage)
		return ATTR_SECONDS;
	if (node_holds_size(n))
		return 0;
	/* A thread's root is shown from memory, whatever is known, and is in no watch. */
	return n == n->thread->root ? ROOT_SECONDS : left;
}

void entry_fill(struct node *n, struct fuse_entry_param *ret)
{
	bool root = n == n->thread->root;

	*ret = (struct fuse_entry_param){
		.ino = n->ino,
		.attr_timeout = entry_attr_seconds(n),
		.entry_timeout = root       ? ROOT_SECONDS
				 : n->stage ? 0
					    : (double)node_left_ms(n) / 1000,
	};
	node_stat(n, &ret->attr);
}

void entry_reply(struct parked *p, struct node *n)
{
	struct fuse_entry_param e;

	entry_fill(n, &e);
	node_looked_up(n);
	if (!parked_entry(p, &e))
		node_forget(n, 1);
	else if (n->parent)
		absent_take(n->parent, n->name); /* it knows better now */
}

void entry_reply_absent(struct parked *p, struct node *dir, const char *name,
			const struct moment *asked)
{
	struct fuse_entry_param e = {
		.entry_timeout = (double)shelf_left_ms(dir->thread, asked->ms, asked->epoch) / 1000,
	};

	/* It has to be taken back when the name comes, also within the second: by a command. */
	if (e.entry_timeout > 0 && absent_add(dir, name))
		parked_entry(p, &e);
	else
		parked_err(p, -ENOENT);
}

int entry_known(struct node *dir, const char *name, struct node **ret)
{
	struct node *n = node_child(dir, name);
	const struct item *i;
	struct listing *l;
	struct attr attr;

	if (n && (n->stage || node_is_fresh(n))) {
		*ret = node_ref(n);
		return 0;
	}
	l = shelf_of(dir);
	if (!l || listing_left_ms(l, dir->thread) == 0)
		return -EAGAIN;
	i = listing_find(l, name);
	if (!i)
		return l->complete ? -ENOENT : -EAGAIN;
	if (!listing_knows(l, i, dir->thread))
		return -EAGAIN;
	item_attr(i, &attr);
	return entry_adopt(dir, name, &attr, l->asked_ms, true, ret);
}

/* ---- changes of ours ---- */

void entry_dir_changed(struct node *dir, int subdirs, bool tell)
{
	node_guess(dir, subdirs);
	if (tell)
		notify_attr_now(dir->fs, dir->ino);
}

static void drop_own(struct node *dir)
{
	struct listing *l = shelf_of(dir);

	if (l)
		shelf_drop(dir->thread, l->path);
}

void entry_made(struct node *dir, const char *name, const struct attr *attr)
{
	struct listing *l = shelf_of(dir);

	if (!l)
		return;
	if (listing_put(l, name, strlen(name), attr, NULL) < 0)
		drop_own(dir);
	else
		shelf_touch(l);
}

void entry_removed(struct node *dir, const char *name)
{
	struct listing *l = shelf_of(dir);

	if (l)
		listing_remove(l, name);
}

void entry_moved(struct node *dir, const char *name, struct node *to_dir, const char *to_name)
{
	struct listing *l = shelf_of(dir), *to;
	struct item *i = l ? listing_find(l, name) : NULL;
	struct attr attr;

	if (i)
		item_attr(i, &attr);
	if (i && i->mode)
		entry_made(to_dir, to_name, &attr);
	else
		entry_made(to_dir, to_name, NULL);
	/* The same file, but rename(2) is a change of its status. */
	to = shelf_of(to_dir);
	if (to)
		listing_void(to, to_name);
	entry_removed(dir, name);
}

void entry_doubted(struct node *dir, const char *name)
{
	struct listing *l = shelf_of(dir);

	if (l && listing_doubt(l, name) < 0)
		drop_own(dir);
}

void entry_is_empty_dir(struct node *n, const struct moment *asked)
{
	char *path CLEANUP_FREE = NULL;
	struct listing *l;

	if (asked->epoch != n->thread->epoch || node_rel_path(n, &path) < 0 ||
	    listing_new(path, 0, &l) < 0)
		return;
	l->asked_ms = asked->ms;
	l->epoch = asked->epoch;
	shelf_put(n->thread, l);
}

/* ---- looking ---- */

void entry_done(struct trip *t, int err)
{
	struct node *n;

	if ((err == 0 || err == -ENOENT) && trip_looks_again(t)) {
		trip_begin(t, trip_lstat, entry_done);
		return;
	}
	if (err == -ENOENT && trip_is_current(t)) {
		n = node_child(t->node, t->name);
		if (n && !n->stage) {
			drop_listings(n);
			node_detach(n);
		}
		entry_removed(t->node, t->name);
		entry_reply_absent(&t->parked, t->node, t->name, &t->asked);
		return;
	}
	if (err == 0)
		err = entry_adopt(t->node, t->name, &t->attr, t->asked.ms, trip_is_current(t), &n);
	if (err != 0) {
		parked_err(&t->parked, err);
		return;
	}
	if (trip_is_current(t) && !n->stage)
		entry_made(t->node, t->name, &t->attr);
	entry_reply(&t->parked, n);
	node_unref(n);
}

/* Names as the kernel gets them. Loop thread only. */
#include "entry.h"

#include <errno.h>
#include <string.h>

#include "listing.h"
#include "notifier.h"
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

int entry_adopt(struct node *dir, const char *name, const struct attr *attr, bool current,
		struct node **ret)
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
	if (n && current && is_another(n, attr))
		node_detach(n);
	r = node_get_child(dir, name, &n);
	if (r < 0)
		return r;
	node_set_attr(n, attr);
	if (!current)
		node_doubt_attr(n);
	*ret = n;
	return 0;
}

void entry_fill(struct node *n, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){
		.ino = n->ino,
		.attr_timeout = ATTR_SECONDS,
		.entry_timeout = ENTRY_SECONDS,
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
}

int entry_known(struct node *dir, const char *name, struct node **ret)
{
	struct node *n = node_child(dir, name);
	const struct entry *e;

	if (n && (n->stage || node_is_fresh(n))) {
		*ret = node_ref(n);
		return 0;
	}
	if (!dir->listing || !listing_is_fresh(dir->listing, dir->thread))
		return -EAGAIN;
	e = listing_find(dir->listing, name);
	if (!e)
		return dir->listing->entries.truncated ? -EAGAIN : -ENOENT;
	if (n && node_is_newer(n, dir->listing->made_ms))
		return -EAGAIN;
	return entry_adopt(dir, name, &e->attr, true, ret);
}

void entry_void_dir(struct node *dir)
{
	node_void_attr(dir);
	/* The kernel has its times and link count otherwise; what it has read of it it drops
	 * itself. */
	notify_attr_now(dir->fs, dir->ino);
}

void entry_done(struct trip *t, int err)
{
	struct node *n;

	if ((err == 0 || err == -ENOENT) && trip_looks_again(t)) {
		trip_begin(t, trip_lstat, entry_done);
		return;
	}
	if (err == -ENOENT && trip_is_current(t)) {
		n = node_child(t->node, t->name);
		if (n && !n->stage)
			node_detach(n);
	}
	if (err == 0)
		err = entry_adopt(t->node, t->name, &t->attr, trip_is_current(t), &n);
	if (err < 0) {
		parked_err(&t->parked, err);
		return;
	}
	entry_reply(&t->parked, n);
	node_unref(n);
}

void entry_changed(struct trip *t, int err)
{
	entry_void_dir(t->node);
	if (err < 0) {
		parked_err(&t->parked, err);
		return;
	}
	t->changes = false;
	t->remote.once = false;
	trip_begin(t, trip_lstat, entry_done);
}

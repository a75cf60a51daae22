/*
 * Making, removing and moving names in a sandbox. Loop thread only.
 */
#include "ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "entry.h"
#include "file.h"
#include "notifier.h"
#include "salvage.h"
#include "shelf.h"
#include "stage.h"
#include "symlink.h"

/* ---- new ones ---- */

static struct trip *change_new(fuse_req_t req, struct node *dir, const char *name)
{
	struct trip *t = trip_new(dir->fs, req, dir);

	if (!t || !trip_name(t, &t->name, name))
		return NULL;
	t->changes = true;
	t->remote.once = true;
	return t;
}

/* A new name, or perhaps not. */
static void name_made(struct trip *t, int err, void (*looked)(struct trip *t, int err))
{
	if (err < 0) {
		entry_doubted(t->node, t->name);
		parked_err(&t->parked, err);
		return;
	}
	entry_made(t->node, t->name, NULL);
	t->changes = t->remote.once = false;
	looked(t, 0);
}

/* Nobody can have put anything there of which we would not hear. */
static void dir_looked(struct trip *t, int err)
{
	struct node *n = NULL;

	if (S_ISDIR(t->attr.mode) && trip_is_current(t) &&
	    entry_adopt(t->node, t->name, &t->attr, t->asked.ms, true, &n) == 0) {
		entry_is_empty_dir(n, &t->asked);
		node_unref(n);
	}
	entry_done(t, err);
}

static void start_mkdir(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, t->name, sb);

	if (path)
		sandbox_mkdir(sb, &r->call, path, t->mode, &t->attr);
}

static void made_dir(struct trip *t, int err)
{
	if (err == 0)
		entry_dir_changed(t->node, 1, false);
	name_made(t, err, dir_looked);
}

void sandbox_op_mkdir(fuse_req_t req, struct node *dir, const char *name, mode_t mode)
{
	struct trip *t = change_new(req, dir, name);

	if (!t)
		return;
	t->mode = mode & 07777;
	trip_begin(t, start_mkdir, made_dir);
}

static void start_symlink(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, t->name, sb);
	char *host CLEANUP_FREE = NULL, *target CLEANUP_FREE = NULL;
	int err;

	if (!path)
		return;
	if (asprintf(&host, "%s/threads/%s", t->fs->opt->mountpoint, r->thread->id) < 0)
		host = NULL;
	err = symlink_export(sandbox_root(sb), host, t->target, &target);
	if (err < 0)
		remote_fail(r, err);
	else
		sandbox_symlink(sb, &r->call, target, path, &t->attr);
}

static void made_link(struct trip *t, int err)
{
	if (err == 0)
		entry_dir_changed(t->node, 0, false);
	name_made(t, err, entry_done);
}

void sandbox_op_symlink(fuse_req_t req, struct node *dir, const char *name, const char *target)
{
	struct trip *t = change_new(req, dir, name);

	if (t && trip_name(t, &t->target, target))
		trip_begin(t, start_symlink, made_link);
}

/* ---- hard links ---- */

static void start_link(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *from CLEANUP_FREE = trip_path(t, t->other, NULL, sb);
	char *to CLEANUP_FREE = from ? trip_path(t, t->node, t->name, sb) : NULL;

	if (to)
		sandbox_link(sb, &r->call, from, to, &t->attr);
}

static void link_looked(struct trip *t, int err)
{
	struct node *n;

	/* Of what was written here last the number is not known. */
	if (err == 0 && t->attr.ino &&
	    (t->other->attr.ino == t->attr.ino || t->other->attr.ino == 0)) {
		/* Both names show one number, also if the first had it from before. */
		node_learn(t->other, &t->attr, &t->asked);
		err = entry_adopt(t->node, t->name, &t->attr, t->asked.ms, trip_is_current(t), &n);
		if (err == 0) {
			if (trip_is_current(t))
				entry_made(t->node, t->name, &t->attr);
			n->shown = t->other->shown;
			entry_reply(&t->parked, n);
			node_unref(n);
			return;
		}
	}
	entry_done(t, err);
}

static void linked(struct trip *t, int err)
{
	entry_dir_changed(t->node, 0, false);
	node_void_peers(t->other);
	node_void_attr(t->other);
	/* For the kernel the new name is another file. */
	notify_attr_now(t->fs, t->other->ino);
	name_made(t, err, link_looked);
}

static void link_settled(struct trip *t, int err)
{
	if (!trip_goes_on(t))
		return;
	if (err < 0)
		trip_end(t, err);
	else
		trip_begin(t, start_link, linked);
}

void sandbox_op_link(fuse_req_t req, struct node *n, struct node *dir, const char *name)
{
	struct trip *t = change_new(req, dir, name);

	if (!t)
		return;
	if (n->kind != NODE_SANDBOX || n->thread != dir->thread) {
		trip_end(t, -EXDEV);
		return;
	}
	t->other = node_ref(n);
	file_settle(t, n, true, link_settled);
}

/* ---- unlink, rmdir ---- */

static void start_unlink(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, t->name, sb);

	if (path)
		sandbox_unlink(sb, &r->call, path);
}

static void name_removed(struct trip *t, int err, int subdirs)
{
	if (err == 0 || err == -ENOENT)
		entry_removed(t->node, t->name);
	else
		entry_doubted(t->node, t->name);
	if (err == 0)
		entry_dir_changed(t->node, subdirs, false);
	parked_err(&t->parked, err);
}

static void unlinked(struct trip *t, int err)
{
	/* It was on its way there, and was stopped. */
	if (err == -ENOENT && t->other && t->other->unborn)
		err = 0;
	if (t->other)
		node_void_peers(t->other);
	if (t->other && (err == 0 || err == -ENOENT))
		file_gone(t->other);
	if (err == 0)
		salvage_removed(t->node, t->name);
	name_removed(t, err, 0);
}

static void unlink_held(void *ctx)
{
	struct trip *t = ctx;

	if (trip_goes_on(t))
		trip_begin(t, start_unlink, unlinked);
}

static void begin_unlink(struct trip *t)
{
	t->hold = salvage_hold(t->node, t->name);
	salvage_settle(t->hold, unlink_held, t);
}

static void unlink_settled(struct trip *t, int err)
{
	(void)err; /* there is nothing to wait for, then */
	if (trip_goes_on(t))
		begin_unlink(t);
}

static void unlink_kept(void *ctx)
{
	struct trip *t = ctx;

	if (trip_goes_on(t))
		file_settle(t, t->other, false, unlink_settled);
}

void sandbox_op_unlink(fuse_req_t req, struct node *dir, const char *name)
{
	struct node *n = node_child(dir, name);
	struct trip *t = change_new(req, dir, name);

	if (!t)
		return;
	if (!n || n->kind != NODE_SANDBOX) {
		if (n)
			trip_end(t, -EPERM);
		else
			begin_unlink(t);
		return;
	}
	if (n->unborn && !stage_is_uploading(n->stage) && !salvage_is_at(n)) {
		file_gone(n);
		salvage_removed(dir, name);
		trip_end(t, 0);
		return;
	}
	t->other = node_ref(n);
	file_keep(n, unlink_kept, t);
}

static void start_rmdir(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, t->name, sb);

	if (path)
		sandbox_rmdir(sb, &r->call, path);
}

/* What was listed of it, or of what is below. */
static void drop_below(struct node *dir, const char *name)
{
	char *path CLEANUP_FREE = node_place(dir, name);

	if (path)
		shelf_drop(dir->thread, path);
}

static void rmdir_done(struct trip *t, int err)
{
	struct node *n = node_child(t->node, t->name);

	if (n && (err == 0 || err == -ENOENT)) {
		drop_below(t->node, t->name);
		node_detach(n);
	}
	name_removed(t, err, -1);
}

void sandbox_op_rmdir(fuse_req_t req, struct node *dir, const char *name)
{
	struct node *n = node_child(dir, name), *child, *next;
	struct trip *t = change_new(req, dir, name);

	if (!t)
		return;
	if (n && n->kind != NODE_SANDBOX) {
		trip_end(t, -EPERM);
		return;
	}
	/* The sandbox does not know of these yet. */
	if (n) {
		HASH_ITER (by_name, n->children, child, next) {
			if (child->unborn) {
				trip_end(t, -ENOTEMPTY);
				return;
			}
		}
	}
	trip_begin(t, start_rmdir, rmdir_done);
}

/* ---- rename ---- */

static void start_rename(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *from CLEANUP_FREE = trip_path(t, t->node, t->name, sb);
	char *to CLEANUP_FREE = from ? trip_path(t, t->other, t->name2, sb) : NULL;

	if (to)
		sandbox_rename(sb, &r->call, from, to, t->flags, &t->same);
}

static void exchange_nodes(struct node *a, struct node *b)
{
	struct node *dir_a = node_ref(a->parent), *dir_b = node_ref(b->parent);
	char *name_a CLEANUP_FREE = strdup(a->name), *name_b CLEANUP_FREE = strdup(b->name);

	node_ref(a);
	node_ref(b);
	node_detach(b);
	/* Without memory the names are looked up anew. */
	if (!name_a || !name_b || node_move(a, dir_b, name_b) < 0 ||
	    node_move(b, dir_a, name_a) < 0)
		node_detach(a);
	node_unref(a);
	node_unref(b);
	node_unref(dir_a);
	node_unref(dir_b);
}

/* What is known of the names; n has not been moved yet. */
static void names_moved(struct trip *t, bool moved)
{
	if (moved && !(t->flags & RENAME_EXCHANGE)) {
		entry_moved(t->node, t->name, t->other, t->name2);
	} else {
		entry_doubted(t->node, t->name);
		entry_doubted(t->other, t->name2);
	}
}

static bool is_dir(const struct node *n)
{
	return n && n->has_attr && S_ISDIR(n->attr.mode);
}

/* Directories count those in them. */
static void parents_changed(struct trip *t, const struct node *n, const struct node *there)
{
	int from = -is_dir(n), to = is_dir(n) - is_dir(there);

	if (t->flags & RENAME_EXCHANGE)
		from += is_dir(there);
	if (t->node == t->other) {
		entry_dir_changed(t->node, from + to, false);
		return;
	}
	entry_dir_changed(t->node, from, false);
	entry_dir_changed(t->other, to, false);
}

static void nodes_moved(struct trip *t, struct node *n, struct node *there)
{
	if (n && there && (t->flags & RENAME_EXCHANGE)) {
		exchange_nodes(n, there);
		node_void_attr(there);
	} else {
		if (there) {
			node_void_peers(there);
			file_gone(there);
		}
		if (n && node_move(n, t->other, t->name2) < 0)
			node_detach(n);
	}
	if (n)
		node_void_attr(n);
}

static void renamed(struct trip *t, int err)
{
	struct node *n = node_child(t->node, t->name), *there = node_child(t->other, t->name2);
	bool moved = err == 0 && !t->same && !(n && n == there);

	drop_below(t->node, t->name);
	drop_below(t->other, t->name2);
	names_moved(t, moved);
	if (moved) {
		parents_changed(t, n, there);
		if (!(t->flags & RENAME_EXCHANGE))
			salvage_moved(t->node, t->name, t->other, t->name2);
		nodes_moved(t, n, there);
		stage_note_moved(t->fs);
	} else {
		node_doubt_attr(t->node);
		node_doubt_attr(t->other);
	}
	/* The kernel believes that the name has moved. */
	if (err == 0 && !moved) {
		notify_entry(t->fs, t->node->ino, t->name);
		notify_entry(t->fs, t->other->ino, t->name2);
	}
	parked_err(&t->parked, err);
}

static void rename_held(void *ctx)
{
	struct trip *t = ctx;

	if (trip_goes_on(t))
		trip_begin(t, start_rename, renamed);
}

static void rename_from_held(void *ctx)
{
	struct trip *t = ctx;

	salvage_settle(t->hold2, rename_held, t);
}

/* What an earlier daemon left for the new name is not for the file that gets it, either. */
static void rename_settled(struct trip *t, int err)
{
	if (!trip_goes_on(t))
		return;
	if (err < 0) {
		trip_end(t, err);
		return;
	}
	t->hold = salvage_hold(t->node, t->name);
	t->hold2 = salvage_hold(t->other, t->name2);
	salvage_settle(t->hold, rename_from_held, t);
}

static void rename_there_settled(struct trip *t, int err)
{
	struct node *n = node_child(t->node, t->name);

	if (n && err == 0 && t->parked.req)
		file_settle(t, n, true, rename_settled);
	else
		rename_settled(t, err);
}

/* What is on its way to the new name would come over the file that gets it. */
static void rename_kept(void *ctx)
{
	struct trip *t = ctx;
	struct node *there;

	if (!trip_goes_on(t))
		return;
	there = node_child(t->other, t->name2);
	if (there && there != node_child(t->node, t->name))
		file_settle(t, there, t->flags & RENAME_EXCHANGE, rename_there_settled);
	else
		rename_there_settled(t, 0);
}

void sandbox_op_rename(fuse_req_t req, struct node *dir, const char *name, struct node *to_dir,
		       const char *to_name, unsigned flags)
{
	struct node *n = node_child(dir, name), *there;
	struct trip *t = change_new(req, dir, name);

	if (!t || !trip_name(t, &t->name2, to_name))
		return;
	t->other = node_ref(to_dir);
	t->flags = flags;
	there = node_child(to_dir, to_name);
	if (to_dir->thread != dir->thread) {
		trip_end(t, -EXDEV);
	} else if ((n && n->kind != NODE_SANDBOX) || (there && there->kind != NODE_SANDBOX)) {
		trip_end(t, -EPERM);
	} else if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
		trip_end(t, -EINVAL);
	} else if (there && there->unborn && (flags & RENAME_NOREPLACE)) {
		trip_end(t, -EEXIST);
	} else if (there && there != n && !(flags & RENAME_EXCHANGE)) {
		file_keep(there, rename_kept, t);
	} else {
		rename_kept(t);
	}
}

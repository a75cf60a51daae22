/*
 * Open directories of all kinds. What one shows is fixed when it is opened (or
 * rewound): one listing of the sandbox (less what goes meanwhile), the known threads,
 * or our own tables. Loop thread only.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "ctl.h"
#include "entry.h"
#include "jobs.h"
#include "lister.h"
#include "ops.h"
#include "shelf.h"
#include "stage.h"

enum {
	LOOKS_MAX = 4,
	UNSURE_FEW = 4,      /* names that are asked for one by one … */
	UNSURE_LARGE = 1000, /* … in a directory of so many */
	PLUS_IDLE_MS = 1000,
	PLUS_LARGE = 1000,
};

/* A directory of a sandbox has a listing; besides there may be names of our own. */
struct dir {
	struct node *node; /* counted */
	struct listing *listing;
	uint32_t places; /* of the listing: those that it had then */
	uint64_t serial; /* likewise */
	char **names;    /* of ours */
	size_t count, cap;
	bool light;              /* files without attributes */
	bool was_read;           /* from its start: the next time is a rewind */
	struct dir *prev, *next; /* fs->dirs */
};

static void free_names(struct dir *d)
{
	for (size_t i = 0; i < d->count; i++)
		free(d->names[i]);
	free(d->names);
	d->names = NULL;
	d->count = d->cap = 0;
}

static void dir_free(struct dir *d)
{
	if (!d)
		return;
	DL_DELETE(d->node->fs->dirs, d);
	free_names(d);
	listing_unref(d->listing);
	node_unref(d->node);
	free(d);
}

static int add_name(struct dir *d, const char *name)
{
	char *copy = strdup(name);

	if (copy && d->count == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 16;
		char **more = reallocarray(d->names, cap, sizeof(*more));

		if (more) {
			d->names = more;
			d->cap = cap;
		}
	}
	if (!copy || d->count == d->cap) {
		free(copy);
		return -ENOMEM;
	}
	d->names[d->count++] = copy;
	return 0;
}

/* ---- what there is ---- */

static bool is_thread_root(const struct node *n)
{
	return n->kind == NODE_SANDBOX && n->thread->root == n;
}

/* How many of our own there are always. */
static size_t own_names(const struct node *n)
{
	return is_thread_root(n) && n->fs->opt->ctl_visible ? 1 : 0;
}

/* Files that are open here and not yet in the sandbox, and .ctl if it is to be seen. */
static int fill_sandbox(struct dir *d, struct listing *l)
{
	struct node *child, *next;
	int r = 0;

	listing_ref(l);
	listing_unref(d->listing);
	d->listing = l;
	d->places = l->n;
	d->serial = l->serial;
	lister_was_read(d->node, l);
	shelf_touch(l);
	free_names(d);
	HASH_ITER (by_name, d->node->children, child, next) {
		if (r == 0 && child->unborn && !listing_find(l, child->name))
			r = add_name(d, child->name);
	}
	if (r == 0 && is_thread_root(d->node) && d->node->fs->opt->ctl_visible)
		r = add_name(d, ".ctl");
	return r;
}

static int fill_ctl(struct dir *d)
{
	const struct ctl_dir *c = d->node->ctl_dir;
	int r = 0;

	free_names(d);
	for (size_t i = 0; r == 0 && c->dirs && c->dirs[i]; i++) {
		if (strcmp(c->dirs[i]->name, ".ctl") != 0 || d->node->fs->opt->ctl_visible)
			r = add_name(d, c->dirs[i]->name);
	}
	for (size_t i = 0; r == 0 && c->files && c->files[i]; i++)
		r = add_name(d, c->files[i]->name);
	if (r == 0 && c->is_jobs) {
		unsigned *numbers = NULL;
		size_t count = 0;
		char text[16];

		r = jobs_numbers(d->node->thread, &numbers, &count);
		for (size_t i = 0; r == 0 && i < count; i++) {
			snprintf(text, sizeof(text), "%u", numbers[i]);
			r = add_name(d, text);
		}
		free(numbers);
	}
	return r;
}

/* ---- having it ---- */

/* Somebody waits until the directory is filled: for its opening, or its rewinding. */
struct filling {
	struct trip *trip;
	struct dir *dir;
	struct fuse_file_info fi;
	bool opens, plus;
	size_t size;
};

static void answer_readdir(struct parked *p, struct dir *d, size_t size, off_t offset, bool plus);

/*
 * The kernel may keep what it reads if it is told of changes, and use what it
 * has if it is of the same names. What is only here is not part of the listing.
 */
static void set_caching(struct dir *d, struct fuse_file_info *fi)
{
	struct node *n = d->node;
	struct listing *l = d->listing;
	bool lasts = n->kind == NODE_SANDBOX && l && l->thread && l->complete &&
		     d->count == own_names(n) && listing_left_ms(l, n->thread) == LASTING_MS;

	fi->cache_readdir = lasts;
	fi->keep_cache = lasts && n->shown_serial == l->serial;
	n->shown_serial = lasts ? l->serial : 0;
}

static void filled(struct filling *f, struct parked *p, int err)
{
	struct dir *d = f->dir;

	if (!p->req) {
		/* He did not wait, and may have closed it by now. */
		if (f->opens)
			dir_free(d);
	} else if (err < 0) {
		parked_err(p, err);
		if (f->opens)
			dir_free(d);
	} else if (f->opens) {
		set_caching(d, &f->fi);
		f->fi.fh = (uint64_t)(uintptr_t)d;
		if (!parked_open(p, &f->fi))
			dir_free(d);
	} else {
		answer_readdir(p, d, f->size, 0, f->plus);
	}
	free(f);
}

static void fill_from(struct filling *f, struct listing *l);

static void listed(struct trip *t, int err, struct listing *l)
{
	struct filling *f = t->priv;

	/* Something happened meanwhile. Not for ever. */
	if (err == 0 && l->unsure > 0 && ++t->looks < LOOKS_MAX)
		lister_ask(t, true, listed);
	else
		filled(f, &t->parked, err ?: fill_sandbox(f->dir, l));
}

/* Of a large directory only some names are not sure: these are asked for. */
static void resolved(struct trip *t, int err)
{
	struct node *n;

	if (err == 0 && trip_is_current(t)) {
		entry_made(t->node, t->name, &t->attr);
		if (entry_adopt(t->node, t->name, &t->attr, t->asked.ms, true, &n) == 0)
			node_unref(n);
	} else if (err == -ENOENT && trip_is_current(t)) {
		entry_removed(t->node, t->name);
	}
	free(STEAL(t->name));
	if (!t->parked.req || ++t->looks > 2 * UNSURE_FEW || (err < 0 && err != -ENOENT)) {
		filled(t->priv, &t->parked, err < 0 ? err : -EAGAIN);
		return;
	}
	fill_from(t->priv, shelf_of(t->node));
}

/* From what is known, or by asking. */
static void fill_from(struct filling *f, struct listing *l)
{
	struct trip *t = f->trip;
	const struct item *i;

	if (!l || listing_left_ms(l, t->node->thread) == 0) {
		lister_ask(t, true, listed);
		return;
	}
	if (l->unsure == 0) {
		filled(f, &t->parked, fill_sandbox(f->dir, l));
		return;
	}
	if (l->unsure > UNSURE_FEW || l->live < UNSURE_LARGE || t->looks > UNSURE_FEW) {
		lister_ask(t, true, listed);
		return;
	}
	for (i = l->v; i->state != ITEM_UNSURE; i++)
		;
	t->name = strdup(item_name(l, i));
	if (t->name)
		trip_begin(t, trip_lstat, resolved);
	else
		filled(f, &t->parked, -ENOMEM);
}

static void threads_listed(void *ctx, int err, char **names, size_t count)
{
	struct filling *f = ctx;
	struct trip *t = f->trip;

	if (t->parked.req) {
		free_names(f->dir);
		for (size_t i = 0; err == 0 && i < count; i++)
			err = add_name(f->dir, names[i]);
	}
	filled(f, &t->parked, err);
	trip_drop(t);
}

static void fill(struct filling *f, fuse_req_t req)
{
	struct node *n = f->dir->node;
	struct trip *t = trip_new(n->fs, req, n);

	if (!t) {
		if (f->opens)
			dir_free(f->dir);
		free(f);
		return;
	}
	f->trip = t;
	t->priv = f;
	if (n->kind == NODE_CTL_DIR && n->ctl_dir->is_threads) {
		threads_list(n->fs, threads_listed, f);
	} else if (n->kind == NODE_CTL_DIR) {
		filled(f, &t->parked, fill_ctl(f->dir));
		trip_drop(t);
	} else {
		fill_from(f, shelf_of(n));
		trip_settle(t);
	}
}

void op_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	struct filling *f = calloc(1, sizeof(*f));
	struct dir *d = calloc(1, sizeof(*d));

	if (!f || !d) {
		free(f);
		free(d);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	d->node = node_ref(n);
	DL_APPEND(n->fs->dirs, d);
	f->dir = d;
	f->fi = *fi;
	f->opens = true;
	fill(f, req);
}

void op_releasedir(fuse_req_t req, struct fs *fs, struct fuse_file_info *fi)
{
	struct parked p;

	parked_init(&p, fs, req, NULL);
	dir_free((struct dir *)(uintptr_t)fi->fh);
	parked_err(&p, 0);
}

void dirs_end(struct fs *fs)
{
	struct dir *d, *next;

	DL_FOREACH_SAFE (fs->dirs, d, next)
		dir_free(d);
}

/* ---- readdir ---- */

/* An answer under construction. Offsets: 1 and 2 for the dots, then listing, then names. */
struct page {
	fuse_req_t req;
	char *bytes;
	size_t len, size;
	bool plus;
	struct node **counted; /* what the kernel counts with this answer */
	size_t count, cap;
};

static bool add_counted(struct page *g, struct node *n)
{
	if (g->count == g->cap) {
		size_t cap = g->cap ? g->cap * 2 : 64;
		struct node **more = reallocarray(g->counted, cap, sizeof(struct node *));

		if (!more)
			return false;
		g->counted = more;
		g->cap = cap;
	}
	g->counted[g->count++] = n;
	return true;
}

static bool add_plain(struct page *g, const char *name, mode_t mode, uint64_t ino, off_t next)
{
	struct fuse_entry_param e = { .attr = { .st_ino = ino ?: 1, .st_mode = mode } };
	size_t room = g->size - g->len, need;

	need = g->plus ? fuse_add_direntry_plus(g->req, g->bytes + g->len, room, name, &e, next)
		       : fuse_add_direntry(g->req, g->bytes + g->len, room, name, &e.attr, next);
	if (need > room)
		return false;
	g->len += need;
	return true;
}

/* With a node that the kernel gets to know. */
static bool add_node(struct page *g, const char *name, struct node *n, off_t next)
{
	struct fuse_entry_param e;
	size_t room = g->size - g->len, need;

	if (n->kind == NODE_SANDBOX) {
		entry_fill(n, &e);
	} else {
		e = (struct fuse_entry_param){ .ino = n->ino };
		ctl_stat(n, &e.attr);
	}
	need = fuse_add_direntry_plus(g->req, g->bytes + g->len, room, name, &e, next);
	if (need > room || !add_counted(g, n))
		return false;
	node_looked_up(n);
	g->len += need;
	return true;
}

static int child_node(struct dir *d, const char *name, struct node **ret)
{
	struct node *n = node_child(d->node, name);

	if (d->node->kind == NODE_CTL_DIR && d->node->ctl_dir->is_threads) {
		struct thread *t;
		int r = thread_get(d->node->fs, name, &t);

		if (r < 0)
			return r;
		thread_set_known(t, true);
		r = threads_node(d->node, t, ret);
		thread_unref(t);
		return r;
	}
	if (d->node->kind == NODE_CTL_DIR || strcmp(name, ".ctl") == 0)
		return ctl_child(d->node, name, ret);
	if (!n)
		return -ENOENT;
	*ret = node_ref(n);
	return 0;
}

/* One name of ours. Returns false when the page is full; what is gone is left out. */
static bool add_own(struct page *g, struct dir *d, const char *name, off_t next)
{
	struct node *n;
	bool added;

	if (child_node(d, name, &n) < 0)
		return true;
	if (g->plus)
		added = add_node(g, name, n, next);
	else
		added = add_plain(g, name,
				  n->kind == NODE_CTL_FILE                 ? S_IFREG
				  : n->kind == NODE_SANDBOX && n->has_attr ? n->attr.mode
									   : S_IFDIR,
				  n->shown, next);
	node_unref(n);
	return added;
}

/*
 * ---- attributes with the names? ----
 *
 * They cost: the kernel makes an inode of each, and we a node. Who only reads
 * names (find) does not want them, who looks at each (ls -l) pays more for asking. The kernel
 * does not say which it is. So some directories are read without, and if names in
 * them are looked up then, the next ones are read with, more and more of them before the next try.
 * Directories always have them, as whoever walks enters them all.
 */

void dir_was_searched(struct node *dir)
{
	struct thread *t = dir->thread;

	if (t->plus.dir != dir->ino || t->plus.wanted || ++t->plus.searched < 2)
		return;
	t->plus.wanted = true;
	t->plus.spell = MIN(MAX(t->plus.spell * 2, 4u), 256u);
	t->plus.until = t->plus.spell;
}

static bool is_light(struct dir *d)
{
	struct thread *t = d->node->thread;
	int64_t now = clock_ms();
	bool first = now - t->plus.ms > PLUS_IDLE_MS;

	t->plus.ms = now;
	if (first) {
		/* Nobody walks, so far. */
		t->plus.wanted = false;
		t->plus.spell = t->plus.until = 0;
		t->plus.dir = 0;
		if (d->places <= PLUS_LARGE)
			return false;
	}
	if (t->plus.wanted && t->plus.until > 0) {
		t->plus.until--;
		return false;
	}
	t->plus.wanted = false;
	t->plus.dir = d->node->ino;
	t->plus.searched = 0;
	return true;
}

static bool wants_more(const struct dir *d)
{
	const struct thread *t = d->node->thread;

	return t->plus.wanted && t->plus.dir == d->node->ino;
}

/* Whether the kernel is to know the node, which is then returned, counted. */
static struct node *node_for(struct dir *d, const struct item *i, const char *name)
{
	struct node *n = node_child(d->node, name);
	struct attr attr;

	if (n && (n->stage || node_is_fresh(n)))
		return node_ref(n);
	/* Only what is known by now is news. */
	if (!d->listing->thread || !listing_knows(d->listing, i, d->node->thread))
		return NULL;
	if (d->light && !S_ISDIR(i->mode))
		return NULL;
	item_attr(i, &attr);
	return entry_adopt(d->node, name, &attr, d->listing->asked_ms, true, &n) < 0 ? NULL : n;
}

/* As stat(2) would show it. */
static uint64_t shown_ino(struct dir *d, const struct item *i, const char *name)
{
	struct node *n = node_child(d->node, name);

	if (n && n->shown)
		return n->shown;
	return i->ino ? node_shown(d->node->thread, i->dev, i->ino) : 0;
}

static bool add_listed(struct page *g, struct dir *d, const struct item *i, off_t next)
{
	const char *name = item_name(d->listing, i);
	struct node *n;
	bool added;

	if (i->state == ITEM_GONE || (i->state == ITEM_UNSURE && i->mode == 0))
		return true;
	if (S_ISLNK(i->mode) && d->node->fs->opt->symlinks == SYMLINKS_DENY)
		return true;
	if (is_thread_root(d->node) && strcmp(name, ".ctl") == 0)
		return true; /* ours hides it */
	n = g->plus ? node_for(d, i, name) : NULL;
	if (!n)
		return add_plain(g, name, i->mode, shown_ino(d, i, name), next);
	added = add_node(g, name, n, next);
	node_unref(n);
	return added;
}

static bool add_at(struct page *g, struct dir *d, size_t i)
{
	off_t next = (off_t)i + 1;

	if (i < 2)
		return add_plain(g, i == 0 ? "." : "..", S_IFDIR, d->node->ino, next);
	i -= 2;
	if (i < d->places) {
		assert(d->listing);
		return add_listed(g, d, &d->listing->v[i], next);
	}
	return add_own(g, d, d->names[i - d->places], next);
}

/* Whoever copies or removes a directory has to hear that he has not seen all of it. */
static int end_of(struct dir *d)
{
	if (!d->listing || d->listing->complete)
		return 0;
	thread_failed(d->node->thread, d->listing->path[0] ? d->listing->path : "/", -E2BIG,
		      "the sandbox lists no more names of this directory, or they are too many");
	return -E2BIG;
}

static void answer_readdir(struct parked *p, struct dir *d, size_t size, off_t offset, bool plus)
{
	struct page g = { .req = p->req, .size = size, .plus = plus };
	size_t total = 2 + d->places + d->count;

	g.bytes = malloc(size);
	if (!g.bytes) {
		parked_err(p, -ENOMEM);
		return;
	}
	if (offset == 0) {
		d->was_read = true;
		d->light = d->listing && is_light(d);
	} else if (d->light && wants_more(d)) {
		d->light = false; /* he looks at them while he reads on */
	}
	for (size_t i = (size_t)offset; i < total && add_at(&g, d, i); i++)
		;
	if (g.len == 0 && end_of(d) < 0)
		parked_err(p, -E2BIG);
	else if (!parked_buf(p, g.bytes, g.len)) {
		for (size_t i = 0; i < g.count; i++)
			node_forget(g.counted[i], 1);
	}
	free(g.counted);
	free(g.bytes);
}

void op_readdir(fuse_req_t req, struct node *n, size_t size, off_t offset,
		struct fuse_file_info *fi, bool plus)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;
	struct filling *f;
	struct parked p;

	/* A program may make files between opening a directory and reading it. */
	if (offset != 0 || (!d->was_read && !(d->listing && d->listing->serial != d->serial))) {
		parked_init(&p, n->fs, req, NULL);
		answer_readdir(&p, d, size, offset, plus);
		return;
	}
	/* rewinddir(3) shows what is there by now. */
	f = calloc(1, sizeof(*f));
	if (!f) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	*f = (struct filling){ .dir = d, .size = size, .plus = plus };
	fill(f, req);
}

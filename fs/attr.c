/*
 * Looking names up, attributes of what is in a sandbox and changing them,
 * links, and what there is of room. Loop thread only.
 */
#include "ops.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "entry.h"
#include "file.h"
#include "lister.h"
#include "shelf.h"
#include "stage.h"
#include "symlink.h"

/* ---- lookup ---- */

enum {
	WORTH = 256,     /* listing so many names costs about as much as asking for one */
	NAME_BYTES = 32, /* of a directory's size, more or less, on the usual file systems */
	STALE_FEW = 4,   /* names that are asked for one by one */
};

/*
 * Whether to list the directory rather than to ask for one name: at once if it
 * is small, or else when as many names were asked for as make a listing worth while.
 */
static bool wants_listing(struct node *dir, const char *name)
{
	struct listing *l = shelf_of(dir);
	const struct item *i = l ? listing_find(l, name) : NULL;
	uint64_t expected = 0;

	if (l && listing_left_ms(l, dir->thread) > 0 && !(i && i->state == ITEM_KNOWN)) {
		/* All but some names of it are known, or it is too large to be known. */
		if (l->stale <= STALE_FEW || !l->complete)
			return false;
		return l->misses++ >= STALE_FEW + l->live / WORTH;
	}
	if (l)
		expected = l->live;
	else if (dir->has_attr)
		expected = dir->attr.size / NAME_BYTES;
	return (uint64_t)++dir->misses * WORTH >= expected;
}

static void lookup_known(struct parked *p, struct node *dir, const char *name, int r,
			 struct node *n)
{
	if (r == -ENOENT) {
		struct listing *l = shelf_of(dir);
		struct moment asked = { .ms = l ? l->asked_ms : 0, .epoch = l ? l->epoch : 0 };

		entry_reply_absent(p, dir, name, &asked);
	} else if (r < 0) {
		parked_err(p, r);
	} else {
		entry_reply(p, n);
		node_unref(n);
	}
}

static void relisted(struct trip *t, int err, struct listing *l)
{
	struct node *n = NULL;

	(void)l;
	if (!t->parked.req)
		return;
	t->node->misses = 0;
	if (err == 0)
		err = entry_known(t->node, t->name, &n);
	if (err == -EAGAIN)
		trip_begin(t, trip_lstat, entry_done);
	else
		lookup_known(&t->parked, t->node, t->name, err, n);
}

/* Whoever reads names and then looks at each wants their attributes with the names: dir.c. */
static void count_lookup(struct node *dir, const struct node *n)
{
	if (!S_ISDIR(n->attr.mode))
		dir_was_searched(dir);
}

void sandbox_op_lookup(fuse_req_t req, struct node *dir, const char *name)
{
	struct fs *fs = dir->fs;
	struct node *n = NULL;
	struct trip *t;
	int r = entry_known(dir, name, &n);

	if (r != -EAGAIN) {
		struct parked p;

		parked_init(&p, fs, req, NULL);
		if (r == 0)
			count_lookup(dir, n);
		lookup_known(&p, dir, name, r, n);
		return;
	}
	t = trip_new(fs, req, dir);
	if (!t || !trip_name(t, &t->name, name))
		return;
	if (wants_listing(dir, name))
		lister_ask(t, false, relisted);
	else
		trip_begin(t, trip_lstat, entry_done);
}

/* ---- getattr ---- */

static void reply_attr(struct parked *p, struct node *n)
{
	double seconds = entry_attr_seconds(n); /* first: what it is about may be over after that */
	struct stat st;

	node_stat(n, &st);
	parked_attr(p, &st, seconds);
}

static void got_attr(struct trip *t, int err)
{
	struct node *n = t->node;
	bool other;

	if (err == 0 && trip_looks_again(t)) {
		trip_begin(t, trip_lstat, got_attr);
		return;
	}
	other = err == 0 && n->has_attr && !n->stage &&
		((n->attr.mode & S_IFMT) != (t->attr.mode & S_IFMT) ||
		 (n->attr.ino && t->attr.ino && n->attr.ino != t->attr.ino));

	if (err == -ENOENT || err == -ENOTDIR || other) {
		/* Whoever has it open still has the file that he opened. */
		err = n->handles && n->has_attr ? 0 : -ESTALE;
	} else if (err == 0 && !n->stage) {
		node_learn(n, &t->attr, &t->asked);
	}
	if (err < 0)
		parked_err(&t->parked, err);
	else
		reply_attr(&t->parked, n);
}

/*
 * A thread's own directory is answered from memory, so that looking at threads/
 * never waits for a sandbox; the truth is fetched for the next time.
 */
struct glance {
	struct remote remote;
	struct attr attr;
	struct moment asked;
	struct node *node;
};

static void glance_start(struct remote *r, struct sandbox *sb)
{
	struct glance *g = CONTAINER_OF(r, struct glance, remote);

	sandbox_lstat(sb, &r->call, sandbox_root(sb), &g->attr);
}

static void glance_done(struct remote *r, int err)
{
	struct glance *g = CONTAINER_OF(r, struct glance, remote);

	if (err == 0)
		node_learn(g->node, &g->attr, &g->asked);
	g->node->glancing = false;
	node_unref(g->node);
	free(g);
}

static void glance(struct node *n)
{
	struct glance *g;
	struct tenant *tenant = n->thread->tenant;

	if (n->glancing || node_is_fresh(n) || n->fs->ending || tenant_try_acquire(tenant) < 0)
		return;
	g = calloc(1, sizeof(*g));
	if (g) {
		g->node = node_ref(n);
		n->glancing = true;
		g->remote.quiet = true;
		g->asked = node_moment(n->thread);
		remote_begin(&g->remote, n->thread, glance_start, glance_done);
	}
	(void)tenant_release(tenant);
}

void sandbox_op_getattr(fuse_req_t req, struct node *n)
{
	struct parked p;
	struct trip *t;

	if (n == n->thread->root)
		glance(n);
	if (n == n->thread->root || n->stage || !n->parent || node_is_fresh(n) ||
	    n->guess_ms > clock_ms()) {
		parked_init(&p, n->fs, req, NULL);
		if (n->has_attr)
			reply_attr(&p, n);
		else
			parked_err(&p, -ESTALE);
		return;
	}
	t = trip_new(n->fs, req, n);
	if (t)
		trip_begin(t, trip_lstat, got_attr);
}

/* ---- setattr: one thing after the other ---- */

static void set_next(struct trip *t, int err);

static void start_chmod(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, NULL, sb);

	if (path)
		sandbox_chmod(sb, &r->call, path, t->mode, &t->attr);
}

static void start_truncate(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, NULL, sb);

	if (path)
		sandbox_truncate(sb, &r->call, path, t->length);
}

static void start_utimens(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, NULL, sb);

	if (path)
		sandbox_utimens(sb, &r->call, path, t->times, &t->attr);
}

/*
 * Whether the content is ours to change: it is being written here, or begins to
 * be (who empties a file is about to fill it, and nobody is to see it empty).
 */
static int set_size(struct trip *t, bool *ret_done)
{
	struct node *n = t->node;
	struct handle *h;
	int r = 0;

	if (!n->stage && t->priv && t->length == 0)
		r = file_stage(n, false);
	if (r < 0)
		return r;
	for (h = n->handles; h; h = h->next) {
		h->reader_old = true;
		h->wrote |= h->writes; /* perhaps by this one */
	}
	*ret_done = n->stage != NULL;
	return n->stage ? stage_truncate(n->stage, t->length) : 0;
}

/* A file that is open and has no name any more is nowhere but here. */
static void set_here(struct node *n, const struct trip *t, bool mode, bool mtime)
{
	if (n->stage || n->parent)
		return;
	if (mode)
		n->attr.mode = (n->attr.mode & S_IFMT) | (t->mode & 07777);
	if (mtime && t->times[1].tv_nsec == UTIME_NOW)
		clock_gettime(CLOCK_REALTIME, &n->attr.mtime);
	else if (mtime)
		n->attr.mtime = t->times[1];
}

static void set_next(struct trip *t, int err)
{
	struct node *n = t->node;
	bool done = false;

	if (err < 0) {
		node_void_attr(n);
		parked_err(&t->parked, err == -ENOENT ? -ESTALE : err);
		return;
	}
	t->changes = true;
	if (t->to_set & FUSE_SET_ATTR_SIZE) {
		t->to_set &= ~FUSE_SET_ATTR_SIZE;
		err = set_size(t, &done);
		if (err < 0) {
			parked_err(&t->parked, err);
			return;
		}
		if (!done) {
			trip_begin(t, start_truncate, set_next);
			return;
		}
	}
	if (t->to_set & FUSE_SET_ATTR_MODE) {
		t->to_set &= ~FUSE_SET_ATTR_MODE;
		if (n->stage)
			stage_set_attr(n->stage, (int)t->mode, NULL);
		set_here(n, t, true, false);
		if (!n->unborn && n->parent) {
			t->looked = true;
			trip_begin(t, start_chmod, set_next);
			return;
		}
	}
	if (t->to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
		bool mtime = t->to_set & FUSE_SET_ATTR_MTIME;

		t->to_set &= ~(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME);
		if (n->stage && mtime)
			stage_set_attr(n->stage, -1, &t->times[1]);
		set_here(n, t, false, mtime);
		if (!n->unborn && n->parent && (!n->stage || stage_is_clean(n->stage))) {
			t->looked = true;
			trip_begin(t, start_utimens, set_next);
			return;
		}
	}
	t->changes = false;
	node_void_peers(n);
	if (n->stage || !n->parent)
		reply_attr(&t->parked, n);
	else if (t->looked)
		got_attr(t, 0);
	else
		trip_begin(t, trip_lstat, got_attr);
}

static struct timespec time_to_set(const struct stat *st, int to_set, int set, int now,
				   const struct timespec *ts)
{
	(void)st;
	if (to_set & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (to_set & set)
		return *ts;
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

void sandbox_op_setattr(fuse_req_t req, struct node *n, const struct stat *st, int to_set,
			struct handle *h)
{
	const struct options *opt = n->fs->opt;
	struct trip *t = trip_new(n->fs, req, n);

	if (!t)
		return;
	if (((to_set & FUSE_SET_ATTR_UID) && st->st_uid != opt->uid) ||
	    ((to_set & FUSE_SET_ATTR_GID) && st->st_gid != opt->gid)) {
		trip_end(t, -EPERM);
		return;
	}
	t->to_set = to_set & (FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_ATIME |
			      FUSE_SET_ATTR_MTIME);
	t->mode = st->st_mode & 07777;
	t->length = (uint64_t)st->st_size;
	t->times[0] =
		time_to_set(st, to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, &st->st_atim);
	t->times[1] =
		time_to_set(st, to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, &st->st_mtim);
	/* That who wrote it has closed it we hear later: what is done to its name then must not
	 * wait for another close, which never comes. */
	if (!h)
		file_unstage(n);
	/* Only a hint that there is a writer; it lives as long as its open file. */
	t->priv = h && h->writes ? h : NULL;
	if (n->stage && (to_set & FUSE_SET_ATTR_MTIME_NOW))
		clock_gettime(CLOCK_REALTIME, &t->times[1]);
	if (!t->to_set && (n == n->thread->root || !n->parent || node_is_fresh(n))) {
		reply_attr(&t->parked, n);
		trip_drop(t);
		return;
	}
	set_next(t, 0);
	if (!t->parked.req)
		trip_drop(t);
}

/* ---- readlink ---- */

static void start_readlink(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, NULL, sb);

	if (!path)
		return;
	free(t->name2);
	t->name2 = strdup(sandbox_root(sb));
	if (t->name2)
		sandbox_readlink(sb, &r->call, path, &t->target);
	else
		remote_fail(r, -ENOMEM);
}

static void reply_target(struct parked *p, struct node *n, const char *root, const char *target)
{
	char *rel CLEANUP_FREE = NULL, *shown CLEANUP_FREE = NULL;
	int err = -ESTALE;

	if (n->fs->opt->symlinks == SYMLINKS_RAW) {
		parked_readlink(p, target);
		return;
	}
	if (n->parent)
		err = node_rel_path(n->parent, &rel);
	if (err == 0)
		err = symlink_contain(root, rel, target, &shown);
	if (err == -EPERM)
		n->fs->totals.links_refused++;
	if (err < 0)
		parked_err(p, err == -ENOENT ? -ESTALE : err);
	else
		parked_readlink(p, shown);
}

static void got_target(struct trip *t, int err)
{
	if (err < 0)
		parked_err(&t->parked, err == -ENOENT ? -ESTALE : err);
	else
		reply_target(&t->parked, t->node, t->name2, t->target);
}

/* As the directory was listed; NULL: ask. */
static const char *known_target(struct node *n)
{
	struct listing *l = n->parent ? shelf_of(n->parent) : NULL;
	const struct item *i;

	if (!l || listing_left_ms(l, n->thread) == 0)
		return NULL;
	i = listing_find(l, n->name);
	return i && i->state == ITEM_KNOWN ? item_target(l, i) : NULL;
}

void sandbox_op_readlink(fuse_req_t req, struct node *n)
{
	struct sandbox *sb = tenant_sandbox(n->thread->tenant);
	const char *target = sb ? known_target(n) : NULL;
	struct parked p;
	struct trip *t;

	if (target) {
		parked_init(&p, n->fs, req, NULL);
		reply_target(&p, n, sandbox_root(sb), target);
	}
	if (sb)
		sandbox_put(sb);
	if (target)
		return;
	t = trip_new(n->fs, req, n);
	if (t)
		trip_begin(t, start_readlink, got_target);
}

/* ---- statfs ---- */

static void reply_statfs(struct parked *p, const struct fs_stat *s)
{
	struct statvfs st = {
		.f_bsize = s->block_size,
		.f_frsize = s->block_size,
		.f_blocks = s->blocks,
		.f_bfree = s->free,
		.f_bavail = s->available,
		.f_files = s->files,
		.f_ffree = s->files_free,
		.f_favail = s->files_free,
		.f_namemax = MIN(s->name_max, (uint64_t)NAME_BYTES_MAX),
	};

	parked_statfs(p, &st);
}

static void start_statfs(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, NULL, sb);

	if (path)
		sandbox_statfs(sb, &r->call, path, &t->fs_stat);
}

static void got_statfs(struct trip *t, int err)
{
	if (err < 0)
		parked_err(&t->parked, err);
	else
		reply_statfs(&t->parked, &t->fs_stat);
}

void op_statfs(fuse_req_t req, struct fs *fs, struct node *n)
{
	struct fs_stat none = { .block_size = 4096, .name_max = NAME_BYTES_MAX };
	struct parked p;
	struct trip *t;
	struct tenant_status s;
	bool cold = true;

	/* df of the mount, or of a thread whose sandbox is not up, starts nothing. */
	if (n && n->thread && n->kind == NODE_SANDBOX &&
	    tenant_status(n->thread->tenant, &s) == 0) {
		cold = s.state != TENANT_ACTIVE && s.state != TENANT_WARM;
		tenant_status_release(&s);
	}
	if (cold) {
		parked_init(&p, fs, req, NULL);
		reply_statfs(&p, &none);
		return;
	}
	if (!n->parent && n->thread->root)
		n = n->thread->root; /* of a file without a name: of its thread */
	t = trip_new(fs, req, n);
	if (t)
		trip_begin(t, start_statfs, got_statfs);
}

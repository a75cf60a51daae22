/*
 * The inode table: nodes, their names, their counts. Knows nothing of requests
 * and of the sandbox, but for what its attributes mean. Loop thread only.
 */
#include "node.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "absent.h"
#include "clock.h"
#include "notifier.h"
#include "shelf.h"
#include "stage.h"
#include "thread.h"

/* ---- names ---- */

struct node *node_child(struct node *dir, const char *name)
{
	struct node *n = NULL;

	HASH_FIND(by_name, dir->children, name, strlen(name), n);
	return n;
}

static bool add_name(struct node *n, struct node *dir)
{
	HASH_ADD_KEYPTR(by_name, dir->children, n->name, strlen(n->name), n);
	return HASH_TOOK(by_name, n);
}

static bool enter_tables(struct node *n, struct node *dir)
{
	n->ino = ++n->fs->last_ino;
	if (!add_name(n, dir))
		return false;
	HASH_ADD(by_ino, n->fs->nodes, ino, sizeof(n->ino), n);
	if (HASH_TOOK(by_ino, n))
		return true;
	HASH_DELETE(by_name, dir->children, n);
	return false;
}

int node_new(struct node *dir, const char *name, enum node_kind kind, struct node **ret)
{
	struct node *n = calloc(1, sizeof(*n));

	assert(!dir || !node_child(dir, name));
	if (!n)
		return -ENOMEM;
	n->name = strdup(name);
	if (!n->name) {
		free(n);
		return -ENOMEM;
	}
	n->kind = kind;
	n->refs = 1;
	if (dir) {
		n->fs = dir->fs;
		if (!enter_tables(n, dir)) {
			free(n->name);
			free(n);
			return -ENOMEM;
		}
		n->parent = node_ref(dir);
		n->thread = dir->thread ? thread_ref(dir->thread) : NULL;
		n->job = dir->job;
	}
	*ret = n;
	return 0;
}

int node_get_child(struct node *dir, const char *name, struct node **ret)
{
	struct node *n = node_child(dir, name);

	if (!n)
		return node_new(dir, name, NODE_SANDBOX, ret);
	*ret = node_ref(n);
	return 0;
}

int nodes_init(struct fs *fs, const struct ctl_dir *root)
{
	int r = node_new(NULL, "", NODE_CTL_DIR, &fs->root);

	if (r < 0)
		return r;
	fs->root->fs = fs;
	fs->root->ctl_dir = root;
	fs->root->ino = fs->last_ino = FUSE_ROOT_ID;
	HASH_ADD(by_ino, fs->nodes, ino, sizeof(fs->root->ino), fs->root);
	if (HASH_TOOK(by_ino, fs->root))
		return 0;
	free(fs->root->name);
	free(STEAL(fs->root));
	return -ENOMEM;
}

struct node *node_by_ino(struct fs *fs, fuse_ino_t ino)
{
	struct node *n = NULL;

	HASH_FIND(by_ino, fs->nodes, &ino, sizeof(ino), n);
	return n;
}

/* ---- counts ---- */

static void free_node(struct node *n)
{
	struct node *dir = n->parent;

	assert(!n->children && !n->stage);
	HASH_DELETE(by_ino, n->fs->nodes, n);
	if (dir)
		HASH_DELETE(by_name, dir->children, n);
	if (n->thread && n->thread->root == n)
		n->thread->root = NULL;
	shelf_unbind(n);
	absent_free(n);
	thread_unref(n->thread);
	free(n->name);
	free(n);
	node_unref(dir);
}

static void free_if_unused(struct node *n)
{
	if (n->refs == 0 && n->nlookup == 0)
		free_node(n);
}

struct node *node_ref(struct node *n)
{
	n->refs++;
	return n;
}

void node_unref(struct node *n)
{
	if (!n)
		return;
	assert(n->refs > 0);
	n->refs--;
	free_if_unused(n);
}

void node_looked_up(struct node *n)
{
	n->nlookup++;
	n->told_ms = clock_ms();
	if (n->parent)
		n->parent->told_ms = n->told_ms;
}

void node_forget(struct node *n, uint64_t count)
{
	n->nlookup -= MIN(count, n->nlookup);
	free_if_unused(n);
}

/* The kernel is gone, and so are its counts. */
void nodes_release(struct fs *fs)
{
	struct node *n, *next;

	if (!fs->root)
		return;
	/* A node's end may be its parent's: hold all, then let go. */
	HASH_ITER (by_ino, fs->nodes, n, next)
		node_ref(n);
	HASH_ITER (by_ino, fs->nodes, n, next)
		n->nlookup = 0;
	HASH_ITER (by_ino, fs->nodes, n, next) {
		if (n->parent)
			node_detach(n);
	}
	HASH_ITER (by_ino, fs->nodes, n, next) {
		if (n != fs->root)
			node_unref(n);
	}
	assert(fs->root->refs > 1);
	node_unref(fs->root);        /* ours of above */
	node_unref(STEAL(fs->root)); /* the table's */
}

/* ---- the tree ---- */

void node_detach(struct node *n)
{
	struct node *dir = n->parent;

	if (!dir)
		return;
	n->fs->moves++;
	shelf_unbind(n);
	HASH_DELETE(by_name, dir->children, n);
	n->parent = NULL;
	if (n->thread && n->thread->root == n)
		n->thread->root = NULL;
	node_unref(dir);
}

int node_move(struct node *n, struct node *dir, const char *name)
{
	struct node *there = node_child(dir, name);
	struct node keeper = {
		0
	}; /* has the place meanwhile: behind the first step nothing may fail */
	unsigned noexpand;

	if (there == n)
		return 0;
	keeper.name = strdup(name);
	if (!keeper.name || !add_name(&keeper, dir)) {
		free(keeper.name);
		return -ENOMEM;
	}
	noexpand = keeper.by_name.tbl->noexpand;
	keeper.by_name.tbl->noexpand = 1;
	n->fs->moves++;
	if (there)
		node_detach(node_ref(there));
	node_ref(n);
	node_ref(dir);
	node_detach(n);
	free(n->name);
	n->name = keeper.name;
	n->parent = dir;
	(void)add_name(n, dir);
	keeper.by_name.tbl->noexpand = noexpand;
	HASH_DELETE(by_name, dir->children, &keeper);
	node_unref(n);
	node_unref(there);
	return 0;
}

bool node_is_below(const struct node *n, const struct node *dir)
{
	for (; n; n = n->parent) {
		if (n == dir)
			return true;
	}
	return false;
}

int node_rel_path(const struct node *n, char **ret)
{
	size_t len = 0;
	char *path, *p;

	for (const struct node *i = n; i != i->thread->root; i = i->parent) {
		if (!i->parent)
			return -ESTALE;
		len += strlen(i->name) + 1;
		if (!i->parent->thread)
			return -ESTALE; /* an old root of a thread that was made anew */
	}
	path = malloc(len + 1);
	if (!path)
		return -ENOMEM;
	p = path + (len ? len - 1 : 0);
	*p = '\0';
	for (; n != n->thread->root; n = n->parent) {
		size_t l = strlen(n->name);

		p -= l;
		memcpy(p, n->name, l);
		if (p > path)
			*--p = '/';
	}
	*ret = path;
	return 0;
}

struct node *node_find(const struct thread *t, const char *path)
{
	struct node *n = t->root;
	char name[NAME_BYTES_MAX + 1];

	while (n && *path) {
		size_t len = strcspn(path, "/");

		if (len >= sizeof(name))
			return NULL;
		memcpy(name, path, len);
		name[len] = '\0';
		n = node_child(n, name);
		path += len + (path[len] == '/');
	}
	return n;
}

int node_path(const struct node *n, const char *name, struct sandbox *sb, char **ret)
{
	const char *root = sandbox_root(sb);
	char *rel CLEANUP_FREE = NULL;
	struct buf b = BUF_INIT(0);
	int r = node_rel_path(n, &rel);

	if (r < 0)
		return r;
	buf_puts(&b, strcmp(root, "/") == 0 ? "" : root);
	if (rel[0]) {
		buf_putc(&b, '/');
		buf_puts(&b, rel);
	}
	if (name) {
		buf_putc(&b, '/');
		buf_puts(&b, name);
	}
	if (b.len == 0)
		buf_putc(&b, '/');
	if (b.error) {
		r = b.error;
		buf_release(&b);
		return r;
	}
	*ret = b.data;
	return 0;
}

/* ---- attributes ---- */

int64_t node_left_ms(const struct node *n)
{
	if (n->unborn)
		return FRESH_MS;
	if (!n->has_attr)
		return 0;
	return shelf_file_left_ms(n->thread, n->attr_ms, n->attr_epoch, n->attr.mode,
				  n->attr.nlink);
}

bool node_is_fresh(const struct node *n)
{
	return node_left_ms(n) > 0;
}

static struct listing *listing_above(const struct node *n)
{
	return n->parent && n->parent->kind == NODE_SANDBOX ? shelf_of(n->parent) : NULL;
}

void node_set_attr_at(struct node *n, const struct attr *attr, int64_t asked_ms)
{
	struct listing *l = listing_above(n);

	n->attr = *attr;
	if (l)
		listing_update(l, n->name, attr);
	n->has_attr = true;
	n->attr_ms = asked_ms;
	n->attr_epoch = n->thread->epoch;
	n->guess_ms = n->echo_ms = 0;
}

void node_set_attr(struct node *n, const struct attr *attr)
{
	node_set_attr_at(n, attr, clock_ms());
}

struct moment node_moment(const struct thread *t)
{
	return (struct moment){ clock_ms(), t->epoch, journal_now(t->journal) };
}

bool node_is_since(const struct node *n, const struct moment *asked)
{
	return asked->epoch == n->thread->epoch && !node_was_noted(n, NULL, asked->seq);
}

void node_learn(struct node *n, const struct attr *attr, const struct moment *asked)
{
	node_set_attr_at(n, attr, asked->ms);
	if (!node_is_since(n, asked))
		node_doubt_attr(n);
}

void node_void_attr(struct node *n)
{
	node_note(n, NULL, NOTE_ATTR);
	node_doubt_attr(n);
}

void node_doubt_attr(struct node *n)
{
	struct listing *l = listing_above(n);

	n->attr_ms = INT64_MIN / 2;
	n->guess_ms = 0;
	if (l)
		listing_void(l, n->name);
}

void node_guess(struct node *dir, int subdirs)
{
	bool known = dir->guess_ms > clock_ms() || node_is_fresh(dir);

	node_doubt_attr(dir);
	if (!known || !dir->has_attr)
		return;
	clock_gettime(CLOCK_REALTIME, &dir->attr.mtime);
	dir->attr.ctime = dir->attr.mtime;
	if (dir->attr.nlink > 1)
		dir->attr.nlink = (uint32_t)((int64_t)dir->attr.nlink + subdirs);
	dir->guess_ms = (dir->echo_ms ?: clock_ms()) + FRESH_MS;
}

void node_heard_of_making(struct node *dir)
{
	dir->echo_ms = dir->echo_ms ?: clock_ms();
	dir->guess_ms = MIN(dir->guess_ms, dir->echo_ms + FRESH_MS);
}

/* ---- places ---- */

char *path_below(const char *dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s%s%s", dir, dir[0] ? "/" : "", name) < 0 ? NULL : path;
}

char *node_place(const struct node *n, const char *name)
{
	char *rel CLEANUP_FREE = NULL;

	if (n->kind != NODE_SANDBOX || node_rel_path(n, &rel) < 0)
		return NULL;
	return name ? path_below(rel, name) : STEAL(rel);
}

/* ---- the journal ---- */

void node_note(const struct node *n, const char *name, enum note what)
{
	char *path CLEANUP_FREE = node_place(n, name);

	if (path)
		journal_note(n->thread->journal, path, what);
}

bool node_was_noted(const struct node *n, const char *name, uint64_t since)
{
	char *path CLEANUP_FREE = NULL;

	if (journal_now(n->thread->journal) == since)
		return false;
	path = node_place(n, name);
	return !path || journal_has(n->thread->journal, path, since);
}

void node_void_peers(struct node *n)
{
	struct node *other, *next;

	n->short_ms = 0;
	if (!n->has_attr || n->attr.nlink < 2 || n->attr.ino == 0 || S_ISDIR(n->attr.mode))
		return;
	HASH_ITER (by_ino, n->fs->nodes, other, next) {
		if (other == n || other->thread != n->thread || !other->has_attr ||
		    other->attr.ino != n->attr.ino || other->attr.dev != n->attr.dev)
			continue;
		other->short_ms = 0;
		node_void_attr(other);
		notify_attr_now(n->fs, other->ino);
	}
	shelf_void_file(n->thread, n->attr.ino, n->attr.dev);
}

bool attr_same_version(const struct attr *a, const struct attr *b)
{
	if (a->size != b->size || (a->mode & S_IFMT) != (b->mode & S_IFMT) ||
	    a->mtime.tv_sec != b->mtime.tv_sec)
		return false;
	if (a->partial || b->partial)
		return true;
	return a->mtime.tv_nsec == b->mtime.tv_nsec && a->ino == b->ino && a->dev == b->dev &&
	       a->ctime.tv_sec == b->ctime.tv_sec && a->ctime.tv_nsec == b->ctime.tv_nsec;
}

/*
 * Two threads may have the same numbers on what looks like one device to the
 * caller, so the thread is part of the number (splitmix64's finisher).
 */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t node_shown(const struct thread *t, uint64_t dev, uint64_t ino)
{
	uint64_t x = 0;

	for (const char *p = t->id; *p; p++)
		x = mix(x ^ (unsigned char)*p);
	return mix(mix(x ^ dev) ^ ino) | 1;
}

static uint64_t make_shown(const struct node *n)
{
	if (!n->thread || !n->has_attr || n->attr.ino == 0)
		return mix(n->ino) | 1;
	return node_shown(n->thread, n->attr.dev, n->attr.ino);
}

enum { HOLD_MS = 50 };

bool node_holds_size(const struct node *n)
{
	/* Who changes it here, or ran a command, wants to see at once what came of it. */
	return n->short_ms > 0 && !n->stage && n->writers == 0 && n->attr.size > n->short_end &&
	       n->told_size <= n->short_end && n->short_epoch == n->thread->epoch &&
	       clock_ms() < n->short_ms + HOLD_MS;
}

void node_stat(struct node *n, struct stat *ret)
{
	const struct options *o = n->fs->opt;
	uint64_t size = node_holds_size(n) ? n->told_size : n->attr.size;

	if (n->shown == 0)
		n->shown = make_shown(n);
	*ret = (struct stat){
		.st_ino = n->shown,
		.st_mode = n->attr.mode,
		.st_nlink = n->attr.nlink ?: (S_ISDIR(n->attr.mode) ? 2 : 1),
		.st_uid = o->uid,
		.st_gid = o->gid,
		.st_size = (off_t)size,
		.st_blocks = (blkcnt_t)(n->attr.blocks ?: (n->attr.size + 511) / 512),
		.st_blksize = 512 * 1024, /* what cp(1) writes at a time */
		.st_mtim = n->attr.mtime,
		.st_atim = n->attr.mtime,
		.st_ctim = n->attr.ctime.tv_sec ? n->attr.ctime : n->attr.mtime,
	};
	if (n->stage)
		stage_stat(n->stage, ret);
	if (!n->parent && n != n->fs->root)
		ret->st_nlink = 0;
	ret->st_mode &= ~(o->umask & 07777);
	n->told_size = (uint64_t)ret->st_size;
}

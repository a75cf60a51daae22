/* Asking for listings, one or a whole walk; see the header. Loop thread only. */
#include "lister.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "journal.h"
#include "shelf.h"

enum {
	WALK_MS = 300, /* what comes within is part of one walk */
	WALK_ROW = 2,  /* siblings that were asked for in a row; then the next one is part of one */
	TREES_MAX = 500, /* names in one request */
	TREES_BYTES = 20000,
};

/* One request. */
struct lister {
	struct remote remote;
	struct node *dir; /* counted: whose listing it is; of a walk: in which the names are */
	char **names;     /* of a walk; NULL: it is none */
	size_t count;
	struct entries entries;
	struct moment asked;
	struct trip *waiters;
	struct lister *prev, *next; /* thread->listers */
};

static void lister_free(struct lister *l)
{
	entries_release(&l->entries);
	for (size_t i = 0; i < l->count; i++)
		free(l->names[i]);
	free(l->names);
	node_unref(l->dir);
	free(l);
}

/* ---- what an answer says ---- */

static void replay(void *ctx, const char *path, enum note what)
{
	shelf_doubt(ctx, path, what);
}

/* What happened since it was asked for is not in it, or perhaps. Once all of it is on the shelf. */
static void apply_journal(struct lister *q, struct thread *t)
{
	if (!journal_each(t->journal, q->asked.seq, replay, t))
		shelf_clear(t); /* too much happened meanwhile to know */
}

/* Nobody needs what it has too much of. */
static void shrink(struct listing *l)
{
	struct item *v = l->n ? reallocarray(l->v, l->n, sizeof(*v)) : NULL;
	char *text = l->n ? realloc(l->text, l->text_len) : NULL;

	if (v) {
		l->v = v;
		l->cap = l->n;
	}
	if (text) {
		l->text = text;
		l->text_cap = l->text_len;
	}
}

static int put_entry(struct listing *l, const struct entry *e, const char *name)
{
	return listing_put(l, name, strlen(name), &e->attr, e->target);
}

/* An upload of ours is just being renamed, and no watch tells when it has been. */
static int doubt_temporary(const struct lister *q, struct listing *l)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->entries.n; i++) {
		const char *name = q->entries.v[i].name;

		if (strncmp(name, UPLOAD_TEMPORARY, strlen(UPLOAD_TEMPORARY)) == 0)
			r = listing_doubt(l, name);
	}
	return r;
}

/* Counted; on the shelf, if it can be kept. */
static int take_one(struct lister *q, struct listing **ret)
{
	struct thread *t = q->dir->thread;
	char *path CLEANUP_FREE = NULL;
	struct listing *l;
	int r = node_rel_path(q->dir, &path);

	if (r == 0)
		r = listing_new(path, q->entries.n, &l);
	if (r < 0)
		return r;
	l->asked_ms = q->asked.ms;
	l->epoch = q->asked.epoch;
	l->complete = !q->entries.truncated;
	for (size_t i = 0; r == 0 && i < q->entries.n; i++)
		r = put_entry(l, &q->entries.v[i], q->entries.v[i].name);
	if (r == 0 && !t->watched)
		r = doubt_temporary(q, l);
	if (r < 0) {
		listing_unref(l);
		return r;
	}
	shrink(l);
	if (q->asked.epoch == t->epoch) {
		shelf_put(t, listing_ref(l));
		apply_journal(q, t);
	}
	*ret = l;
	return 0;
}

/* ---- a walk's ---- */

/* Directories that are not complete yet, each in the one before. */
struct branch {
	struct listing *l;
	const char *rel; /* below q->dir */
	size_t len;
};

struct harvest {
	struct lister *q;
	struct thread *t;
	const char *base; /* of q->dir */
	struct branch *v;
	size_t n, cap;
};

static void finish_branch(struct harvest *h, bool complete)
{
	struct listing *l = h->v[--h->n].l;

	/* If find could not read some directory, one without names may be that. */
	if (!complete || (l->n == 0 && h->q->entries.incomplete)) {
		listing_unref(l);
		return;
	}
	shrink(l);
	shelf_put(h->t, l);
}

static int open_branch(struct harvest *h, const char *rel)
{
	char *path CLEANUP_FREE = NULL;
	struct listing *l;
	int r;

	if (h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 16;
		struct branch *more = reallocarray(h->v, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		h->v = more;
		h->cap = cap;
	}
	if (asprintf(&path, "%s%s%s", h->base, h->base[0] ? "/" : "", rel) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = listing_new(path, 0, &l);
	if (r < 0)
		return r;
	l->asked_ms = h->q->asked.ms;
	l->epoch = h->q->asked.epoch;
	h->v[h->n++] = (struct branch){ l, rel, strlen(rel) };
	return 0;
}

static bool is_in(const struct branch *b, const char *rel)
{
	return strncmp(rel, b->rel, b->len) == 0 && rel[b->len] == '/';
}

static int take_entry(struct harvest *h, const struct entry *e)
{
	const char *slash = strrchr(e->name, '/');
	int r = 0;

	while (h->n > 0 && !is_in(&h->v[h->n - 1], e->name))
		finish_branch(h, true);
	if (slash) {
		struct branch *b = h->n ? &h->v[h->n - 1] : NULL;

		/* Not in order: whoever sent that is not find. */
		if (!b || (size_t)(slash - e->name) != b->len)
			return -EBADMSG;
		r = put_entry(b->l, e, slash + 1);
	}
	if (r == 0 && S_ISDIR(e->attr.mode))
		r = open_branch(h, e->name);
	return r;
}

static int take_walk(struct lister *q)
{
	struct thread *t = q->dir->thread;
	char *base CLEANUP_FREE = NULL;
	struct harvest h = { .q = q, .t = t };
	int r = node_rel_path(q->dir, &base);

	if (r < 0)
		return r;
	if (q->asked.epoch != t->epoch)
		return -EAGAIN;
	h.base = base;
	for (size_t i = 0; r == 0 && i < q->entries.n; i++)
		r = take_entry(&h, &q->entries.v[i]);
	while (h.n > 0)
		finish_branch(&h, r == 0 && !q->entries.truncated);
	free(h.v);
	apply_journal(q, t);
	t->walk.told_ms = clock_ms();
	return r;
}

/* ---- the request ---- */

static void begin(struct trip *t, bool walks);

static void start(struct remote *r, struct sandbox *sb)
{
	struct lister *q = CONTAINER_OF(r, struct lister, remote);
	struct thread *t = q->dir->thread;
	char *path CLEANUP_FREE = NULL;
	int err = node_path(q->dir, NULL, sb, &path);

	entries_release(&q->entries);
	q->asked = node_moment(t);
	if (err < 0)
		remote_fail(r, err);
	else if (q->names)
		sandbox_list_trees(sb, &r->call, path, (const char *const *)q->names, q->count,
				   t->walk.spell++ ? WALK_MAX : WALK_FIRST, &q->entries);
	else
		sandbox_list(sb, &r->call, path, 1, &q->entries);
}

static void tell(struct trip *t, int err, struct listing *l)
{
	if (!t->parked.req)
		err = -EINTR;
	if (err == -ENOENT && t->node != t->node->thread->root)
		err = -ESTALE;
	t->listed(t, err, l);
	trip_settle(t);
}

/* Each has it now, or asks for himself. */
static void walked(struct lister *q, int err)
{
	struct trip *t, *next;

	if (err == 0)
		err = take_walk(q);
	if (err == -EOPNOTSUPP)
		q->dir->thread->walk.unable = true;
	DL_FOREACH_SAFE (q->waiters, t, next) {
		struct listing *l = shelf_of(t->node);

		DL_DELETE(q->waiters, t);
		if (l && listing_left_ms(l, t->node->thread) > 0) {
			listing_ref(l);
			tell(t, 0, l);
			listing_unref(l);
		} else if (t->parked.req) {
			begin(t, false);
		} else {
			tell(t, -EINTR, NULL);
		}
	}
}

static void done(struct remote *r, int err)
{
	struct lister *q = CONTAINER_OF(r, struct lister, remote);
	struct thread *thread = q->dir->thread;
	size_t count = q->entries.n;
	struct trip *t, *next;

	thread_ref(thread);
	DL_DELETE(thread->listers, q);
	thread->walk.ms = clock_ms();
	thread->fs->totals.names_dropped += q->entries.dropped;
	if (q->names) {
		walked(q, err);
	} else {
		struct listing *l = NULL;

		if (err == 0)
			err = take_one(q, &l);
		DL_FOREACH_SAFE (q->waiters, t, next) {
			DL_DELETE(q->waiters, t);
			tell(t, err, l);
		}
		listing_unref(l);
	}
	lister_free(q);
	if (count > 20000)
		malloc_trim(0);
	thread_unref(thread);
}

/* ---- which ---- */

struct check {
	const char *path;
	bool hit;
};

static void is_about(void *ctx, const char *path, enum note what)
{
	struct check *c = ctx;
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (what == NOTE_TREE && path_is_below(c->path, path))
		c->hit = true;
	if (what != NOTE_ATTR && *path && strlen(c->path) == len &&
	    strncmp(c->path, path, len) == 0)
		c->hit = true;
}

/* Whether what it will say of a directory is true for who asks now. */
static bool is_current(const struct lister *q, const struct node *dir)
{
	struct journal *j = dir->thread->journal;
	char *path CLEANUP_FREE = NULL;
	struct check c = { 0 };

	if (q->asked.epoch != dir->thread->epoch)
		return false;
	if (journal_now(j) == q->asked.seq)
		return true;
	if (node_rel_path(dir, &path) < 0)
		return false;
	c.path = path;
	return journal_each(j, q->asked.seq, is_about, &c) && !c.hit;
}

/* Whether its answer will have that directory, too. */
static bool will_bring(const struct lister *q, const struct node *dir)
{
	if (!q->names)
		return q->dir == dir;
	for (; dir->parent && dir->parent != q->dir; dir = dir->parent)
		;
	if (!dir->parent)
		return false;
	for (size_t i = 0; i < q->count; i++) {
		if (strcmp(q->names[i], dir->name) == 0)
			return true;
	}
	return false;
}

static bool is_walk(const struct trip *t)
{
	struct node *n = t->node, *above = n->parent;
	struct thread *th = n->thread;
	int64_t now = clock_ms();
	struct listing *l;

	if (n == th->root || !above || above->kind != NODE_SANDBOX || th->walk.unable)
		return false;
	l = shelf_of(above);
	if (!l || listing_left_ms(l, th) == 0 || !listing_find(l, n->name))
		return false;
	return (t->reads && now - l->read_ms < WALK_MS) ||
	       (th->walk.parent == above->ino && th->walk.row >= WALK_ROW &&
		now - th->walk.ms < WALK_MS) ||
	       (t->reads && now - th->walk.told_ms < WALK_MS);
}

static int add_name(struct lister *q, const char *name)
{
	q->names[q->count] = strdup(name);
	if (!q->names[q->count])
		return -ENOMEM;
	q->count++;
	return 0;
}

/* One that is not known yet. Returns 1 when there is no more room. */
static int choose_one(struct lister *q, const struct listing *l, const struct item *i,
		      size_t *bytes)
{
	struct thread *t = q->dir->thread;
	const char *name = item_name(l, i);
	char *path CLEANUP_FREE = NULL;
	struct listing *known;

	if (i->state != ITEM_KNOWN || !S_ISDIR(i->mode))
		return 0;
	*bytes += strlen(name);
	if (q->count == TREES_MAX || *bytes > TREES_BYTES)
		return 1;
	if (asprintf(&path, "%s%s%s", l->path, l->path[0] ? "/" : "", name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	known = shelf_find(t, path);
	if (known && listing_left_ms(known, t) > 0)
		return 0;
	return add_name(q, name);
}

/*
 * That directory, those after it, and those before it, which come next for
 * somebody who goes by name.
 */
static int choose(struct lister *q, struct node *n)
{
	struct listing *l = shelf_of(q->dir);
	const struct item *at = listing_find(l, n->name), *i;
	size_t bytes = strlen(n->name);
	int r;

	q->names = calloc(TREES_MAX, sizeof(*q->names));
	r = q->names ? add_name(q, n->name) : -ENOMEM;
	for (i = at + 1; r == 0 && i < l->v + l->n; i++)
		r = choose_one(q, l, i, &bytes);
	for (i = at; r == 0 && i > l->v; i--)
		r = choose_one(q, l, i - 1, &bytes);
	return r < 0 ? r : 0;
}

static void start_nothing(struct remote *r, struct sandbox *sb UNUSED)
{
	remote_fail(r, -ENOMEM);
}

static void no_memory(struct trip *t, int err)
{
	t->listed(t, err, NULL);
}

/* A directory is asked for. */
static void count_in_row(struct thread *t, fuse_ino_t parent)
{
	int64_t now = clock_ms();

	if (t->walk.parent != parent || now - t->walk.ms >= WALK_MS)
		t->walk.row = 0;
	t->walk.row++;
	t->walk.parent = parent;
	t->walk.ms = now;
}

static void begin(struct trip *t, bool walks)
{
	struct thread *th = t->node->thread;
	struct lister *q;

	DL_FOREACH (th->listers, q) {
		if ((walks || !q->names) && will_bring(q, t->node) && is_current(q, t->node)) {
			DL_APPEND(q->waiters, t);
			return;
		}
	}
	q = calloc(1, sizeof(*q));
	if (!q) {
		trip_begin(t, start_nothing, no_memory);
		return;
	}
	if (walks && is_walk(t)) {
		q->dir = node_ref(t->node->parent);
		if (choose(q, t->node) < 0) {
			lister_free(q);
			begin(t, false);
			return;
		}
		th->fs->totals.walks++;
	} else {
		q->dir = node_ref(t->node);
		th->fs->totals.listings++;
		if (clock_ms() - th->walk.told_ms > WALK_MS)
			th->walk.spell = 0;
	}
	count_in_row(th, t->node->parent ? t->node->parent->ino : 0);
	DL_APPEND(q->waiters, t);
	DL_APPEND(th->listers, q);
	q->asked = node_moment(th);
	remote_begin(&q->remote, th, start, done);
}

void lister_ask(struct trip *t, bool reads,
		void (*listed)(struct trip *t, int err, struct listing *l))
{
	t->listed = listed;
	t->reads = reads;
	t->asked = node_moment(t->node->thread);
	begin(t, true);
}

void lister_was_read(struct node *dir, struct listing *l)
{
	struct thread *t = dir->thread;
	int64_t now = clock_ms();

	l->read_ms = now;
	if (now - t->walk.told_ms < WALK_MS)
		t->walk.told_ms = now;
}

/* Asking for listings, one or a whole walk; see the header. Loop thread only. */
#include "lister.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "coherence.h"
#include "journal.h"
#include "litter.h"
#include "shelf.h"

enum {
	WALK_MS = 300, /* what comes within is part of one walk */
	WALK_ROW = 2,  /* siblings that were asked for in a row; then the next one is part of one */
	TREES_MAX = 500, /* names in one request */
	TREES_BYTES = 20000,
	NEAR_DEPTH = 2,     /* levels that come with a directory */
	PREFETCH_DEPTH = 8, /* a repository in the workspace, with its branches */
	PREFETCH_MAX = 4096,
	NAME_US = 50, /* to be shown one name, with its attributes */
	SHOWN_MAX_MS = 10 * 1000,
};

/* One request. */
struct lister {
	struct remote remote;
	struct node *dir; /* counted: whose listing it is; of a walk: in which the names are */
	char **names;     /* of a walk; NULL: it is none */
	size_t count;
	unsigned depth; /* of no walk: so many levels, as sandbox_list_near() has them */
	bool prefetch;  /* nobody asked for it */
	bool reads;     /* he who did shows directories */
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
static int put_believed(struct thread *t, struct listing *l, const struct entry *e,
			const char *name)
{
	int r = put_entry(l, e, name);

	if (strncmp(name, UPLOAD_TEMPORARY, strlen(UPLOAD_TEMPORARY)) != 0)
		return r;
	litter_seen(t, l->path, name, &e->attr);
	return r == 0 && !t->watched ? listing_doubt(l, name) : r;
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

/* What came along does not replace what the kernel has pages of. */
static bool is_better(struct thread *t, const struct listing *l)
{
	const struct listing *old = shelf_find(t, l->path);

	return !old || old->stale > 0 || old->unsure > 0 || listing_left_ms(old, t) < LASTING_MS;
}

static void finish_branch(struct harvest *h, bool complete)
{
	struct listing *l = h->v[--h->n].l;

	/* If find could not read some directory, one without names may be that. */
	if (!complete || (l->n == 0 && h->q->entries.incomplete) || !is_better(h->t, l)) {
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
	path = path_below(h->base, rel);
	if (!path)
		return -ENOMEM;
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

/* How many names a path has. */
static unsigned levels(const char *rel)
{
	unsigned n = 1;

	while ((rel = strchr(rel, '/'))) {
		rel++;
		n++;
	}
	return n;
}

/* Whether what is in it comes behind it. */
static bool was_entered(const struct lister *q, const struct entry *e)
{
	if (q->names)
		return S_ISDIR(e->attr.mode);
	return attr_is_near(&e->attr) && levels(e->name) < q->entries.depth;
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
		r = put_believed(h->t, b->l, e, slash + 1);
	}
	if (r == 0 && was_entered(h->q, e))
		r = open_branch(h, e->name);
	return r;
}

/* The directories below q->dir. */
static int take_below(struct lister *q, const char *base)
{
	struct harvest h = { .q = q, .t = q->dir->thread, .base = base };
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->entries.n; i++)
		r = take_entry(&h, &q->entries.v[i]);
	while (h.n > 0)
		finish_branch(&h, r == 0 && !q->entries.truncated);
	free(h.v);
	return r;
}

static int take_walk(struct lister *q)
{
	struct thread *t = q->dir->thread;
	char *base CLEANUP_FREE = NULL;
	int r = node_rel_path(q->dir, &base);

	if (r < 0)
		return r;
	if (q->asked.epoch != t->epoch)
		return -EAGAIN;
	r = take_below(q, base);
	apply_journal(q, t);
	t->walk.told_ms = clock_ms();
	return r;
}

/* ---- one directory's ---- */

static bool is_own(const struct lister *q, const struct entry *e)
{
	return q->entries.depth <= 1 || !strchr(e->name, '/');
}

/*
 * Of a huge directory a second would be over before who reads it has looked at every name, and the
 * rest would be asked for again: where there can be no watch it lasts as long as that takes.
 */
static int64_t lasts_longer_ms(const struct thread *t, size_t names)
{
	int64_t takes_ms = MIN((int64_t)names * NAME_US / 1000, SHOWN_MAX_MS);

	return coherence_is_impossible(t) ? MAX(takes_ms - FRESH_MS, 0) : 0;
}

static int make_listing(const struct lister *q, const char *path, struct listing **ret)
{
	struct listing *l;
	size_t own = 0;
	int r;

	for (size_t i = 0; i < q->entries.n; i++)
		own += is_own(q, &q->entries.v[i]);
	r = listing_new(path, own, &l);
	if (r < 0)
		return r;
	l->asked_ms = q->asked.ms + lasts_longer_ms(q->dir->thread, own);
	q->dir->thread->ahead_ms = MAX(q->dir->thread->ahead_ms, l->asked_ms);
	l->epoch = q->asked.epoch;
	l->complete = !q->entries.truncated;
	for (size_t i = 0; r == 0 && i < q->entries.n; i++) {
		const struct entry *e = &q->entries.v[i];

		if (is_own(q, e))
			r = put_believed(q->dir->thread, l, e, e->name);
	}
	if (r < 0) {
		listing_unref(l);
		return r;
	}
	shrink(l);
	*ret = l;
	return 0;
}

/* Counted; on the shelf, if it can be kept, with what came along. */
static int take_one(struct lister *q, struct listing **ret)
{
	struct thread *t = q->dir->thread;
	char *path CLEANUP_FREE = NULL;
	struct listing *l = NULL;
	int r = node_rel_path(q->dir, &path);

	if (r == 0)
		r = make_listing(q, path, &l);
	if (!l)
		return r;
	if (q->asked.epoch == t->epoch) {
		/* Of what nobody asked for only what is whole is worth it. */
		if (!q->prefetch || (l->complete && is_better(t, l)))
			shelf_put(t, listing_ref(l));
		if (q->entries.depth > 1)
			(void)take_below(q, path);
		apply_journal(q, t);
	}
	*ret = l;
	return 0;
}

/* ---- the request ---- */

static void begin(struct trip *t, bool walks);

/* Who looks names up here and there has less use for it than who reads directories. */
static unsigned walk_max(const struct lister *q)
{
	unsigned before = q->dir->thread->walk.spell++;

	if (before == 0)
		return q->reads ? WALK_FIRST : WALK_LEAST;
	return before == 1 && !q->reads ? WALK_FIRST : WALK_MAX;
}

static void start(struct remote *r, struct sandbox *sb)
{
	struct lister *q = CONTAINER_OF(r, struct lister, remote);
	struct thread *t = q->dir->thread;
	char *path CLEANUP_FREE = NULL;
	int err = node_path(q->dir, NULL, sb, &path);

	entries_release(&q->entries);
	q->asked = node_moment(t);
	if (q->prefetch) /* the watch is live, if only since this millisecond */
		q->asked.ms = MAX(q->asked.ms, t->live_ms + 1);
	if (q->dir == t->root && strcmp(sandbox_root(sb), "/") == 0)
		q->depth = MIN(q->depth, 1u); /* a whole machine, with its /proc */
	if (err < 0)
		remote_fail(r, err);
	else if (q->names)
		sandbox_list_trees(sb, &r->call, path, (const char *const *)q->names, q->count,
				   walk_max(q), &q->entries);
	else
		sandbox_list_near(sb, &r->call, path, q->depth, q->prefetch ? PREFETCH_MAX : 0,
				  &q->entries);
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
static void tell_or_ask(struct trip *t)
{
	struct listing *l = shelf_of(t->node);

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

/* Whether it is what a request was made for, and its errors are his. */
static bool is_answer(const struct lister *q, const struct node *dir)
{
	return !q->names && !q->prefetch && q->dir == dir;
}

static void go_on_ahead(struct lister *before);

static void done(struct remote *r, int err)
{
	struct lister *q = CONTAINER_OF(r, struct lister, remote);
	struct thread *thread = q->dir->thread;
	size_t count = q->entries.n;
	bool awaited = q->waiters;
	struct listing *l = NULL;
	struct trip *t, *next;

	thread_ref(thread);
	DL_DELETE(thread->listers, q);
	if (!q->prefetch)
		thread->walk.ms = clock_ms();
	thread->fs->totals.names_dropped += q->entries.dropped;
	if (q->names && err == -EOPNOTSUPP)
		thread->walk.unable = true;
	/* What lasts a second lasts it from when it came. */
	if (!thread->watched)
		q->asked.ms = clock_ms();
	if (err == 0)
		err = q->names ? take_walk(q) : take_one(q, &l);
	if (err == 0 && awaited)
		go_on_ahead(q);
	DL_FOREACH_SAFE (q->waiters, t, next) {
		DL_DELETE(q->waiters, t);
		if (is_answer(q, t->node))
			tell(t, err, l);
		else
			tell_or_ask(t);
	}
	listing_unref(l);
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
	if (!q->names) {
		for (unsigned i = 1; i < q->depth && dir != q->dir; i++) {
			if (!dir->parent || !dir->has_attr || !attr_is_near(&dir->attr))
				return false;
			dir = dir->parent;
		}
		return q->dir == dir;
	}
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
		now - th->walk.ms < WALK_MS && (t->reads || strcmp(n->name, th->walk.name) > 0)) ||
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

/* Unless what is in it is known already. */
static int add_unknown(struct lister *q, const struct listing *l, const char *name)
{
	struct thread *t = q->dir->thread;
	char *path CLEANUP_FREE = path_below(l->path, name);
	struct listing *known;

	if (!path)
		return -ENOMEM;
	known = shelf_find(t, path);
	return known && listing_left_ms(known, t) > 0 ? 0 : add_name(q, name);
}

/* One that is not known yet. Returns 1 when there is no more room. */
static int choose_one(struct lister *q, const struct listing *l, const struct item *i,
		      size_t *bytes)
{
	const char *name = item_name(l, i);

	if (i->state != ITEM_KNOWN || !S_ISDIR(i->mode))
		return 0;
	*bytes += strlen(name);
	if (q->count == TREES_MAX || *bytes > TREES_BYTES)
		return 1;
	return add_unknown(q, l, name);
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

/* In the background, if the sandbox is up: nobody hears of it if that fails. */
static void begin_quietly(struct lister *q)
{
	struct thread *t = q->dir->thread;

	q->remote.quiet = true;
	DL_APPEND(t->listers, q);
	q->asked = node_moment(t);
	remote_begin(&q->remote, t, start, done);
}

/* Somebody who reads directories waited for a walk that was cut off: while he goes through what
 * came the rest is asked for. */
static void go_on_ahead(struct lister *before)
{
	struct thread *t = before->dir->thread;
	const struct listing *l = shelf_of(before->dir);
	struct lister *q;
	int r = 0;

	if (!before->names || !before->reads || !before->entries.truncated || !l || t->fs->ending ||
	    tenant_try_acquire(t->tenant) < 0)
		return;
	q = calloc(1, sizeof(*q));
	if (q) {
		q->dir = node_ref(before->dir);
		q->reads = true;
		q->names = calloc(before->count, sizeof(*q->names));
		for (size_t i = 0; r == 0 && q->names && i < before->count; i++)
			r = add_unknown(q, l, before->names[i]);
		if (r == 0 && q->count > 0) {
			t->fs->totals.walks++;
			begin_quietly(q);
		} else {
			lister_free(q);
		}
	}
	(void)tenant_release(t->tenant);
}

static void start_nothing(struct remote *r, struct sandbox *sb UNUSED)
{
	remote_fail(r, -ENOMEM);
}

static void no_memory(struct trip *t, int err)
{
	t->listed(t, err, NULL);
}

/* A directory is asked for. Who only looks names up walks if he goes by name. */
static void count_in_row(const struct trip *trip)
{
	const struct node *n = trip->node;
	struct thread *t = n->thread;
	fuse_ino_t parent = n->parent ? n->parent->ino : 0;
	const char *name = n->parent ? n->name : "";
	int64_t now = clock_ms();

	if (t->walk.parent != parent || now - t->walk.ms >= WALK_MS ||
	    (!trip->reads && strcmp(name, t->walk.name) < 0))
		t->walk.row = 0;
	t->walk.row++;
	t->walk.parent = parent;
	t->walk.ms = now;
	snprintf(t->walk.name, sizeof(t->walk.name), "%s", name);
}

/* What is in a few directories costs little on the way. Unless it is known that there are a few it
 * is the directory alone. */
static unsigned near_depth(const struct node *n)
{
	if (n == n->thread->root) /* in a thread there are three */
		return NEAR_DEPTH;
	return n->has_attr && n->attr.nlink > 2 && n->attr.nlink <= NEAR_LINKS_MAX ? NEAR_DEPTH : 1;
}

static void begin(struct trip *t, bool walks)
{
	struct thread *th = t->node->thread;
	struct lister *q;

	DL_FOREACH (th->listers, q) {
		if ((walks || is_answer(q, t->node)) && will_bring(q, t->node) &&
		    is_current(q, t->node)) {
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
		q->depth = walks ? near_depth(t->node) : 1;
		th->fs->totals.listings++;
		if (clock_ms() - th->walk.told_ms > WALK_MS)
			th->walk.spell = 0;
	}
	q->reads = t->reads;
	count_in_row(t);
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

void lister_prefetch(struct thread *t)
{
	struct lister *q;

	DL_FOREACH (t->listers, q) {
		if (q->prefetch)
			return;
	}
	if (!t->root || t->fs->ending || tenant_try_acquire(t->tenant) < 0)
		return;
	q = calloc(1, sizeof(*q));
	if (q) {
		q->dir = node_ref(t->root);
		q->depth = PREFETCH_DEPTH;
		q->prefetch = true;
		t->fs->totals.prefetches++;
		begin_quietly(q);
	}
	(void)tenant_release(t->tenant);
}

void lister_was_read(struct node *dir, struct listing *l)
{
	struct thread *t = dir->thread;
	int64_t now = clock_ms();

	l->read_ms = now;
	if (now - t->walk.told_ms < WALK_MS)
		t->walk.told_ms = now;
}

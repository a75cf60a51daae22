/* See peers.h. Loop thread only. */
#include "peers.h"

#include <errno.h>

#include "cache.h"
#include "clock.h"
#include "node.h"
#include "shelf.h"

enum {
	FILES_MAX = 4096, /* then those that were looked for are forgotten */
	LATE_MS = 1000,   /* an answer is not under way for longer, as a rule */
	REST = 20,        /* so many times longer than it took it is not done again, */
	REST_MS = 20,     /* but at least so long */
};

struct changed {
	uint64_t file;
	int64_t ms; /* when we heard of it */
	fuse_ino_t own;
	bool fresh; /* not looked for yet */
	UT_hash_handle hh;
};

struct peers {
	struct thread *thread;
	struct changed *files;
	ev_timer timer;
	int64_t rest_until; /* in milliseconds, as clock_ms() */
};

/* What was asked for before we heard of the change. */
static const struct changed *find(const struct peers *p, uint64_t file, int64_t asked_ms)
{
	struct changed *c = NULL;

	HASH_FIND(hh, p->files, &file, sizeof(file), c);
	return c && asked_ms <= c->ms ? c : NULL;
}

static void void_nodes(const struct peers *p)
{
	struct node *n, *next;

	HASH_ITER (by_ino, p->thread->fs->nodes, n, next) {
		const struct changed *c;

		if (n->thread != p->thread || !n->has_attr || S_ISDIR(n->attr.mode))
			continue;
		c = find(p, n->attr.ino, n->attr_ms);
		if (c && c->own != n->ino)
			cache_void_file(n);
	}
}

static void void_items(const struct peers *p)
{
	struct listing *l, *next;

	HASH_ITER (hh, p->thread->shelf, l, next) {
		for (const struct item *i = l->v; i < l->v + l->n; i++) {
			if (i->state == ITEM_KNOWN && !S_ISDIR(i->mode) &&
			    find(p, i->ino, l->asked_ms))
				listing_void(l, item_name(l, i));
		}
	}
}

static void forget(struct peers *p, int64_t before_ms)
{
	struct changed *c, *next;

	HASH_ITER (hh, p->files, c, next) {
		c->fresh = false;
		if (c->ms > before_ms)
			continue;
		HASH_DEL(p->files, c);
		free(c);
	}
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED);

static void wait_until(struct peers *p, int64_t ms)
{
	struct ev_loop *ev = p->thread->fs->ev;

	ev_timer_stop(ev, &p->timer);
	ev_timer_init(&p->timer, on_timer, (double)MAX(ms - clock_ms(), 0) / 1000, 0.);
	p->timer.data = p;
	ev_timer_start(ev, &p->timer);
}

static void look(struct peers *p)
{
	int64_t began = clock_ms(), now;

	void_nodes(p);
	void_items(p);
	now = clock_ms();
	p->rest_until = now + MAX((now - began) * REST, REST_MS);
	forget(p, HASH_COUNT(p->files) < FILES_MAX ? began - LATE_MS : began);
	if (p->files)
		wait_until(p, MAX(p->rest_until, now + LATE_MS));
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	look(w->data);
}

/* NULL: no memory. */
static struct changed *get_changed(struct peers *p, uint64_t file, fuse_ino_t own)
{
	struct changed *c = NULL;

	HASH_FIND(hh, p->files, &file, sizeof(file), c);
	if (c)
		return c;
	if (HASH_COUNT(p->files) >= FILES_MAX)
		look(p);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->file = file;
	c->own = own;
	HASH_ADD(hh, p->files, file, sizeof(file), c);
	if (!HASH_TOOK(hh, c))
		free(STEAL(c));
	return c;
}

int peers_note(struct thread *t, uint64_t file, fuse_ino_t own)
{
	struct peers *p = t->peers;
	struct changed *c;

	if (t->fs->ending)
		return 0;
	if (!p) {
		p = t->peers = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->thread = t;
	}
	c = get_changed(p, file, own);
	if (!c)
		return -ENOMEM;
	if (c->own != own)
		c->own = 0;
	c->ms = clock_ms();
	if (!c->fresh)
		wait_until(p, p->rest_until);
	c->fresh = true;
	return 0;
}

void peers_free(struct thread *t)
{
	struct peers *p = STEAL(t->peers);

	if (!p)
		return;
	ev_timer_stop(t->fs->ev, &p->timer);
	forget(p, INT64_MAX);
	free(p);
}

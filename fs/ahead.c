/*
 * Fetching ahead of who goes through directories; see the header. Loop thread only.
 *
 * A *walk* is one reader's way. As long as it is a guess only the places of the files in one
 * directory's listing are remembered (course.h). Once it is believed it has a *front*, the place up
 * to which files were fetched, and each open moves that on: so far ahead of the reader as
 * he has proven to come. A walk that left its directory for the next one is believed to
 * leave that, too: from then on the front goes from directory to directory as far as listings
 * of them are known.
 */
#include "ahead.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "course.h"
#include "journal.h"
#include "remote.h"
#include "shelf.h"
#include "thread.h"

enum {
	WALKS = 8,
	ALIVE_MS = 3000,           /* a walk without an open so long has ended */
	NEXT_MS = 500,             /* so soon it is in the next directory */
	FIRST_FILES = 24,          /* then twice as many each time, until */
	FILES_MAX = 256,           /* in one go */
	AHEAD_MAX = 2 * FILES_MAX, /* not opened yet, of one walk */
	BYTES_MAX = 1024 * 1024,   /* in one go */
	AHEAD_BYTES_MAX = 4 * BYTES_MAX,
	TEXT_MAX = 32 * 1024,  /* of their names, as commands must not be too long */
	GOES_MAX = 2,          /* at a time, of one thread */
	LOOKS_MAX = 4096,      /* at entries, for one open */
	SORT_MAX = 100 * 1000, /* entries of a directory, for the order of names */
	SMALL_DIR = 64,        /* files; one that is fetched whole when its reader wanders */
	STRAYS_MAX = 8,        /* opens beside the way, then it was none */
	USELESS_MAX = 3,       /* goes of which nothing came, then it is left alone */
};

/* A place in a directory, in the order of the walk. */
struct front {
	struct listing *listing; /* counted; NULL: nowhere */
	uint32_t *order;         /* by name: places in the listing; NULL: those themselves */
	uint32_t count;
	uint32_t at;
};

struct walk {
	unsigned serial; /* 0: none */
	int64_t used_ms;
	fuse_ino_t dir; /* where the reader is */
	struct listing *listing;
	struct course course;
	bool believed, by_name, wanders, leaves, ended;
	struct front front;
	unsigned ramp, strays;
	unsigned files; /* fetched or coming, and not opened */
	uint64_t bytes;
};

struct ahead {
	struct walk walks[WALKS];
	unsigned last_serial;
	unsigned goes;
	unsigned useless; /* in a row */
};

/* ---- listings ---- */

static const char *name_at(const struct listing *l, uint32_t place)
{
	return item_name(l, &l->v[place]);
}

static bool place_of(const struct listing *l, const char *name, uint32_t *ret)
{
	const struct item *i = listing_find(l, name);

	if (i)
		*ret = (uint32_t)(i - l->v);
	return i;
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct listing *l = ctx;

	return strcmp(name_at(l, *(const uint32_t *)a), name_at(l, *(const uint32_t *)b));
}

static uint32_t *sorted(struct listing *l)
{
	uint32_t *order = l->n <= SORT_MAX ? calloc(l->n + 1, sizeof(*order)) : NULL;

	if (!order)
		return NULL;
	for (uint32_t i = 0; i < l->n; i++)
		order[i] = i;
	qsort_r(order, l->n, sizeof(*order), by_name, l);
	return order;
}

/* ---- the front ---- */

static void front_leave(struct front *f)
{
	listing_unref(STEAL(f->listing));
	free(STEAL(f->order));
}

/* At the beginning of a directory. False: its names are not known. */
static bool front_enter(struct front *f, struct listing *l, bool in_order_of_names)
{
	if (!l)
		return false;
	f->at = 0;
	if (f->listing == l)
		return true;
	listing_ref(l);
	front_leave(f);
	f->listing = l;
	f->count = l->n; /* those that come later are not on the way */
	if (in_order_of_names)
		f->order = sorted(l);
	return true;
}

static bool front_is_in(const struct front *f, const struct listing *l)
{
	return f->listing && strcmp(f->listing->path, l->path) == 0;
}

static uint32_t front_place(const struct front *f, uint32_t i)
{
	return f->order ? f->order[i] : i;
}

/* Where in the order a name is. */
static bool front_find(const struct front *f, const char *name, uint32_t *ret)
{
	uint32_t place, low = 0, high = f->count;

	if (!place_of(f->listing, name, &place) || place >= f->count)
		return false;
	if (!f->order) {
		*ret = place;
		return true;
	}
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (strcmp(name_at(f->listing, f->order[mid]), name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret = low;
	return low < f->count;
}

/* The directory is done: to the one above, behind this one. */
static bool front_rise(struct walk *w, struct thread *t)
{
	char *path CLEANUP_FREE = strdup(w->front.listing->path);
	char *slash = path ? strrchr(path, '/') : NULL;
	const char *name = slash ? slash + 1 : path;
	struct listing *up;
	uint32_t at;

	if (!w->leaves || !path || !path[0])
		return false;
	if (slash)
		*slash = '\0';
	up = shelf_find(t, slash ? path : "");
	if (!front_enter(&w->front, up, w->by_name) || !front_find(&w->front, name, &at))
		return false;
	w->front.at = at + 1;
	return true;
}

static void front_sink(struct walk *w, struct thread *t, const char *name)
{
	char *path CLEANUP_FREE = path_below(w->front.listing->path, name);

	/* What is not known yet is passed by: he will be heard of from there. */
	if (path)
		(void)front_enter(&w->front, shelf_find(t, path), w->by_name);
}

/* The next file that may be worth it, in the front's listing. NULL: there is none. */
static const struct item *front_next(struct walk *w, struct thread *t, unsigned *looks)
{
	struct front *f = &w->front;

	while (f->listing && (*looks)++ < LOOKS_MAX) {
		const struct item *i;

		if (f->at >= f->count) {
			if (!front_rise(w, t))
				return NULL;
			continue;
		}
		i = &f->listing->v[front_place(f, f->at++)];
		if (i->state != ITEM_KNOWN)
			continue;
		if (S_ISREG(i->mode))
			return i;
		if (w->leaves && S_ISDIR(i->mode))
			front_sink(w, t, item_name(f->listing, i));
	}
	return NULL;
}

/* ---- going ---- */

struct want {
	struct content *content; /* counted */
	char *path;              /* below the thread's root */
};

/* One command under way. */
struct go {
	struct remote remote;
	struct thread *thread;
	unsigned walk;
	char *base; /* the directory that all are in; "" if there are several */
	bool mixed;
	struct moment asked;
	struct want *v;
	size_t n;
	size_t text;
	uint64_t bytes;
	struct bundle bundle;
};

static struct walk *walk_by_serial(struct ahead *a, unsigned serial)
{
	for (unsigned i = 0; i < WALKS; i++) {
		if (a->walks[i].serial == serial)
			return &a->walks[i];
	}
	return NULL;
}

/* What it says of the version, and so of the file now, is news. */
static void tell_node(struct go *g, const struct want *want, const struct attr *attr)
{
	struct node *n = node_find(g->thread, want->path);

	if (n && !n->stage && n->has_attr && attr_same_version(&n->attr, attr))
		node_learn(n, attr, &g->asked);
}

/* Not to be used any more: whoever counts on it reads it himself. */
static void give_up(struct walk *w, struct want *want)
{
	if (w && !want->content->used) {
		w->files--;
		w->bytes -= want->content->version.size;
	}
	content_failed(want->content);
}

static void go_free(struct go *g)
{
	for (size_t i = 0; i < g->n; i++) {
		content_unref(g->v[i].content);
		free(g->v[i].path);
	}
	free(g->v);
	free(g->base);
	bundle_release(&g->bundle);
	free(g);
}

static void on_done(struct remote *r, int err)
{
	struct go *g = CONTAINER_OF(r, struct go, remote);
	struct ahead *a = g->thread->ahead;
	struct walk *w = walk_by_serial(a, g->walk);
	size_t good = 0;

	a->goes--;
	for (size_t i = 0; i < g->n; i++) {
		const struct bundle_file *f = err == 0 ? &g->bundle.v[i] : NULL;
		struct want *want = &g->v[i];

		if (!f || !f->was_read || !attr_same_version(&f->attr, &want->content->version) ||
		    journal_has(g->thread->journal, want->path, g->asked.seq)) {
			give_up(w, want);
			continue;
		}
		good++;
		g->thread->fs->totals.bytes_down += f->attr.size;
		tell_node(g, want, &f->attr);
		content_arrived(want->content, f->bytes);
	}
	a->useless = good ? 0 : a->useless + 1;
	go_free(g);
}

static void start(struct remote *r, struct sandbox *sb)
{
	struct go *g = CONTAINER_OF(r, struct go, remote);
	const char *root = sandbox_root(sb), *below = g->mixed ? "" : g->base;
	const char **names = calloc(g->n, sizeof(*names));
	char *dir CLEANUP_FREE = path_below(strcmp(root, "/") == 0 ? "" : root, below);
	size_t skip = below[0] ? strlen(below) + 1 : 0, longest = 1;

	for (size_t i = 0; names && i < g->n; i++) {
		names[i] = g->v[i].path + skip;
		longest = MAX(longest, g->v[i].content->version.size);
	}
	if (names && dir)
		sandbox_gather(sb, &r->call, below[0] ? dir : root, names, g->n, longest, g->bytes,
			       &g->bundle);
	else
		remote_fail(r, -ENOMEM);
	free(names);
}

static bool is_worth_it(struct thread *t, const char *path, const struct item *i,
			const struct attr *attr)
{
	struct node *n;

	if (attr->size == 0 || attr->size > CONTENT_MAX || attr->partial || !(attr->mode & 0444))
		return false;
	n = node_find(t, path);
	if (n && (n->stage || n->unborn))
		return false;
	/* The kernel has it. */
	if (n && n->kept.mode && attr_same_version(&n->kept, attr))
		return false;
	return !contents_have(t, path, attr);
}

/* False: not now. Takes the path over if it is. */
static bool go_add(struct go *g, struct walk *w, char **path, const struct attr *attr)
{
	struct want *want = &g->v[g->n];
	const char *dir = w->front.listing->path;

	if (!g->base && !(g->base = strdup(dir)))
		return false;
	want->content = contents_expect(g->thread, *path, attr);
	if (!want->content)
		return false;
	want->content->walk = w->serial;
	want->path = STEAL(*path);
	g->mixed = g->mixed || strcmp(g->base, dir) != 0;
	g->n++;
	g->text += strlen(want->path) + 4;
	g->bytes += attr->size;
	w->files++;
	w->bytes += attr->size;
	return true;
}

static void collect(struct walk *w, struct go *g, unsigned max)
{
	struct thread *t = g->thread;
	unsigned looks = 0;

	while (g->n < max && g->bytes < BYTES_MAX && w->bytes < AHEAD_BYTES_MAX &&
	       g->text < TEXT_MAX) {
		const struct item *i = front_next(w, t, &looks);
		char *path CLEANUP_FREE = NULL;
		struct attr attr;
		const char *name;

		if (!i) {
			w->ended = looks < LOOKS_MAX;
			return;
		}
		name = item_name(w->front.listing, i);
		path = path_below(w->front.listing->path, name);
		item_attr(i, &attr);
		if (!path || name[0] == '-' || path[0] == '-' || !is_worth_it(t, path, i, &attr))
			continue;
		if (!go_add(g, w, &path, &attr)) {
			w->front.at--; /* no room: next time */
			return;
		}
	}
}

static void go_on(struct thread *t, struct walk *w)
{
	struct ahead *a = t->ahead;
	struct go *g;

	if (w->ended || w->files >= w->ramp || a->goes >= GOES_MAX || a->useless >= USELESS_MAX ||
	    t->removing || t->removed || t->fs->ending || tenant_try_acquire(t->tenant) < 0)
		return;
	g = calloc(1, sizeof(*g));
	if (g)
		g->v = calloc(FILES_MAX, sizeof(*g->v));
	if (g && g->v) {
		g->thread = t;
		g->walk = w->serial;
		g->asked = node_moment(t);
		collect(w, g, MIN(w->ramp, (unsigned)FILES_MAX));
	}
	if (g && g->n > 0) {
		w->ramp = MIN(2 * w->ramp, (unsigned)AHEAD_MAX);
		a->goes++;
		g->remote.quiet = true;
		remote_begin(&g->remote, t, start, on_done);
	} else if (g) {
		go_free(g);
	}
	(void)tenant_release(t->tenant);
}

/* ---- walks ---- */

static void walk_end(struct walk *w)
{
	front_leave(&w->front);
	listing_unref(w->listing);
	*w = (struct walk){ 0 };
}

static struct walk *walk_new(struct ahead *a)
{
	struct walk *w = &a->walks[0];

	for (unsigned i = 0; i < WALKS; i++) {
		if (a->walks[i].used_ms < w->used_ms)
			w = &a->walks[i];
	}
	walk_end(w);
	w->serial = ++a->last_serial;
	w->ramp = FIRST_FILES;
	return w;
}

/* Whether who was there may have come here, as one who goes through a tree does. */
static bool is_next(struct fs *fs, const struct walk *w, const struct node *dir)
{
	const struct node *was = node_by_ino(fs, w->dir);

	return was && w->ended && w->files == 0 && dir->parent &&
	       (node_is_below(was, dir->parent) || node_is_below(dir, was));
}

/*
 * Whose open is it? That of who is in this directory; or of who was just done
 * with another one.
 */
static struct walk *walk_of(struct ahead *a, const struct node *dir, const struct content *c)
{
	int64_t now = clock_ms(), alive = now - ALIVE_MS, next = now - NEXT_MS;
	struct walk *best = c && c->walk ? walk_by_serial(a, c->walk) : NULL;

	if (best)
		return best;
	for (unsigned i = 0; i < WALKS; i++) {
		struct walk *w = &a->walks[i];

		if (w->serial && w->used_ms >= alive && w->dir == dir->ino)
			return w;
	}
	for (unsigned i = 0; i < WALKS; i++) {
		struct walk *w = &a->walks[i];

		if (w->serial && w->used_ms >= next && w->believed && is_next(dir->fs, w, dir) &&
		    (!best || w->used_ms > best->used_ms))
			best = w;
	}
	return best;
}

/* The reader is in another directory than before, or what is known of it is new. */
static void walk_enter(struct walk *w, struct node *dir, struct listing *l)
{
	if (w->dir != dir->ino && w->believed)
		w->leaves = true;
	w->dir = dir->ino;
	listing_ref(l);
	listing_unref(w->listing);
	w->listing = l;
	w->course = (struct course){ 0 };
}

/* How far it is to a name in the order of names, as far as that matters; 0: it does not come later.
 */
static uint32_t distance(const struct listing *l, uint32_t from, uint32_t to)
{
	const char *a = name_at(l, from), *b = name_at(l, to);
	uint32_t n = 0;

	if (strcmp(a, b) >= 0)
		return 0;
	for (uint32_t i = 0; i < l->n && n <= COURSE_REACH; i++) {
		const char *name = name_at(l, i);

		n += strcmp(name, a) > 0 && strcmp(name, b) <= 0;
	}
	return n;
}

/*
 * Whether the files were opened in the order of their names. Whoever opens them in none asks that
 * each time, and a large directory takes long to sort: for most of these a few names tell.
 */
static bool follows_names(const struct walk *w)
{
	const struct course *c = &w->course;
	uint32_t rank[COURSE_SEEN] = { 0 };

	if (w->listing->n > SORT_MAX)
		return false;
	/* No more than the last three matter. */
	for (unsigned i = c->n > 3 ? c->n - 2 : 1; i < c->n; i++)
		rank[i] = rank[i - 1] + distance(w->listing, c->places[i - 1], c->places[i]);
	return course_follows(c, rank);
}

static bool is_small_dir(const struct listing *l)
{
	return l->live <= SMALL_DIR;
}

/* Whether it is a walk by now. */
static void judge(struct walk *w)
{
	w->wanders = false;
	if (course_follows(&w->course, NULL))
		w->by_name = false;
	else if (follows_names(w))
		w->by_name = true;
	else if (is_small_dir(w->listing) && course_wanders(&w->course))
		w->wanders = true;
	else
		return;
	w->believed = front_enter(&w->front, w->listing, w->by_name);
	w->ended = false;
	w->ramp = w->wanders ? SMALL_DIR : FIRST_FILES;
}

/* He is at a file that was not fetched: large, or not where he was thought to be. */
static void steer(struct walk *w, const char *name, bool has_pages)
{
	struct front *f = &w->front;
	uint32_t at;

	if (!front_is_in(f, w->listing) && w->files == 0 && front_enter(f, w->listing, w->by_name))
		w->ended = false;
	if (front_is_in(f, w->listing) && front_find(f, name, &at) && at >= f->at)
		f->at = at + 1;
	else if (!has_pages && ++w->strays > STRAYS_MAX)
		walk_end(w);
}

void ahead_opened(struct node *n, const struct content *c, bool has_pages)
{
	struct thread *t = n->thread;
	struct node *dir = n->parent;
	struct listing *l = dir && dir->kind == NODE_SANDBOX ? shelf_of(dir) : NULL;
	struct walk *w;
	uint32_t place;

	if (!l)
		return;
	if (!t->ahead)
		t->ahead = calloc(1, sizeof(*t->ahead));
	if (!t->ahead)
		return;
	w = walk_of(t->ahead, dir, c) ?: walk_new(t->ahead);
	w->used_ms = clock_ms();
	if (c && !c->used && c->walk == w->serial) {
		w->files--;
		w->bytes -= c->version.size;
	}
	if (w->dir != dir->ino || w->listing != l)
		walk_enter(w, dir, l);
	if (!place_of(l, n->name, &place) || !course_add(&w->course, place))
		return;
	if (!w->believed)
		judge(w);
	if (!w->believed)
		return;
	if (c)
		w->strays = 0;
	else if (!w->wanders)
		steer(w, n->name, has_pages);
	if (w->believed)
		go_on(t, w);
}

void ahead_free(struct ahead *a)
{
	if (!a)
		return;
	for (unsigned i = 0; i < WALKS; i++)
		walk_end(&a->walks[i]);
	free(a);
}

/* The listings of threads; see the header. Loop thread only. */
#include "shelf.h"

#include <malloc.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "journal.h"
#include "thread.h"

enum { WORN_MIN = 4096 }; /* names; less are not worth a thought */

int64_t shelf_left_ms(const struct thread *t, int64_t asked_ms, uint64_t epoch)
{
	if (epoch != t->epoch)
		return 0;
	if (t->watched && asked_ms > t->live_ms)
		return LASTING_MS;
	return MAX(FRESH_MS - (clock_ms() - asked_ms), 0);
}

int64_t shelf_file_left_ms(const struct thread *t, int64_t asked_ms, uint64_t epoch, mode_t mode,
			   uint32_t nlink)
{
	int64_t left = shelf_left_ms(t, asked_ms, epoch);

	if (left == LASTING_MS && nlink > 1 && !S_ISDIR(mode))
		left = MAX(FRESH_MS - (clock_ms() - asked_ms), 0);
	return left;
}

/* ---- places ---- */

/*
 * A directory that has a listing, or is above one that has. So what is below a path is found
 * without looking at all the others: there may be tens of thousands, and a sandbox may make
 * and move directories as fast as it can.
 */
struct shelf_place {
	char *path;
	struct listing *listing;           /* its own; or NULL */
	struct shelf_place *above, *below; /* NULL: it is the root; there is none */
	struct shelf_place *prev, *next;   /* of those in the same directory */
	UT_hash_handle hh;                 /* thread->places */
};

static struct shelf_place *place_find(const struct thread *t, const char *path)
{
	struct shelf_place *p;

	HASH_FIND_STR(t->places, path, p);
	return p;
}

static void place_free(struct shelf_place *p)
{
	free(p->path);
	free(p);
}

/* That, and what is above it, as far as nothing needs it. */
static void prune(struct thread *t, struct shelf_place *p)
{
	while (p && !p->listing && !p->below) {
		struct shelf_place *above = p->above;

		if (above)
			DL_DELETE(above->below, p);
		HASH_DEL(t->places, p);
		place_free(p);
		p = above;
	}
}

static struct shelf_place *place_get(struct thread *t, const char *path);

static struct shelf_place *get_above(struct thread *t, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir CLEANUP_FREE = strndup(path, slash ? (size_t)(slash - path) : 0);

	return dir ? place_get(t, dir) : NULL;
}

/* Made if there is none; NULL: no memory. */
static struct shelf_place *place_get(struct thread *t, const char *path)
{
	struct shelf_place *p = place_find(t, path), *above;

	if (p)
		return p;
	above = *path ? get_above(t, path) : NULL;
	p = *path && !above ? NULL : calloc(1, sizeof(*p));
	if (!p)
		goto fail;
	p->path = strdup(path);
	if (p->path)
		HASH_ADD_KEYPTR(hh, t->places, p->path, strlen(p->path), p);
	if (!p->path || !HASH_TOOK(hh, p))
		goto fail;
	p->above = above;
	if (above)
		DL_APPEND(above->below, p);
	return p;
fail:
	if (p)
		place_free(p);
	prune(t, above);
	return NULL;
}

/* ---- the table ---- */

static void take_off(struct listing *l)
{
	struct thread *t = l->thread;

	l->place->listing = NULL;
	prune(t, STEAL(l->place));
	if (l->node)
		l->node->listing = NULL;
	l->node = NULL;
	l->thread = NULL;
	HASH_DEL(t->shelf, l);
	DL_DELETE(t->fs->shelf, l);
	t->fs->shelf_used -= l->bytes;
	t->fs->shelf_count--;
	listing_unref(l);
}

static void count(struct fs *fs, struct listing *l)
{
	fs->shelf_used -= l->bytes;
	l->bytes = listing_size(l) + sizeof(*l->place) + strlen(l->path);
	fs->shelf_used += l->bytes;
}

/* The most recent one stays whatever its size. */
static void make_room(struct fs *fs)
{
	size_t freed = 0;

	while (fs->shelf_used > SHELF_BYTES_MAX && fs->shelf && fs->shelf->next) {
		freed += fs->shelf->bytes;
		take_off(fs->shelf);
	}
	if (freed > 4 * MIB)
		malloc_trim(0);
}

/*
 * Names came and went, and nobody has looked: it has more of what is not known than of what is, or
 * holes that cannot be closed while somebody reads it (listing.c). To list the directory again
 * costs less than to remember that.
 */
static bool is_worn(const struct listing *l)
{
	return l->unsure > WORN_MIN + l->live / 2 || l->n - l->live > WORN_MIN + l->live;
}

void shelf_touch(struct listing *l)
{
	struct fs *fs;

	if (!l->thread)
		return;
	if (is_worn(l)) {
		take_off(l);
		return;
	}
	fs = l->thread->fs;
	count(fs, l);
	DL_DELETE(fs->shelf, l);
	DL_APPEND(fs->shelf, l);
	make_room(fs);
}

struct listing *shelf_find(struct thread *t, const char *path)
{
	struct listing *l;

	HASH_FIND_STR(t->shelf, path, l);
	return l;
}

struct listing *shelf_of(struct node *dir)
{
	char *path CLEANUP_FREE = NULL;
	struct listing *l;

	if (dir->listing)
		return dir->listing;
	if (!dir->thread->shelf || node_rel_path(dir, &path) < 0)
		return NULL;
	l = shelf_find(dir->thread, path);
	if (l && !l->node) {
		l->node = dir;
		dir->listing = l;
	}
	return l;
}

void shelf_unbind(struct node *dir)
{
	if (dir->listing)
		dir->listing->node = NULL;
	dir->listing = NULL;
}

void shelf_put(struct thread *t, struct listing *l)
{
	struct listing *old = shelf_find(t, l->path);
	struct shelf_place *place;
	struct fs *fs = t->fs;

	if (old) {
		l->read_ms = old->read_ms;
		take_off(old);
	}
	l->bytes = 0;
	place = place_get(t, l->path);
	if (place)
		HASH_ADD_KEYPTR(hh, t->shelf, l->path, strlen(l->path), l);
	if (!place || !HASH_TOOK(hh, l)) {
		prune(t, place);
		listing_unref(l);
		return;
	}
	l->thread = t;
	l->place = place;
	place->listing = l;
	DL_APPEND(fs->shelf, l);
	fs->shelf_count++;
	count(fs, l);
	make_room(fs);
}

/* ---- what happened ---- */

/* A place goes with its last listing: p only stays until the end if it has one itself. */
static void drop_place(struct shelf_place *p)
{
	struct listing *own = p->listing;
	struct shelf_place *below, *next;

	DL_FOREACH_SAFE (p->below, below, next)
		drop_place(below);
	if (own)
		take_off(own);
}

void shelf_drop(struct thread *t, const char *path)
{
	struct shelf_place *p = place_find(t, path);

	if (p)
		drop_place(p);
}

void shelf_doubt(struct thread *t, const char *path, enum note what)
{
	const char *slash = strrchr(path, '/');
	char *dir CLEANUP_FREE = slash ? strndup(path, (size_t)(slash - path)) : strdup("");
	struct listing *l = dir && *path ? shelf_find(t, dir) : NULL;

	if (what == NOTE_TREE)
		shelf_drop(t, path);
	if (!l)
		return;
	if (what == NOTE_ATTR) {
		listing_void(l, slash ? slash + 1 : path);
	} else if (listing_doubt(l, slash ? slash + 1 : path) < 0 || is_worn(l)) {
		take_off(l);
	} else { /* a name more, perhaps */
		count(t->fs, l);
		make_room(t->fs);
	}
}

void shelf_void_file(struct thread *t, uint64_t ino, uint64_t dev)
{
	struct listing *l, *next;

	HASH_ITER (hh, t->shelf, l, next)
		listing_void_file(l, ino, dev);
}

void shelf_clear(struct thread *t)
{
	struct listing *l, *next;

	HASH_ITER (hh, t->shelf, l, next)
		take_off(l);
}

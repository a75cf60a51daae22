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

/* ---- the table ---- */

static void take_off(struct listing *l)
{
	struct thread *t = l->thread;

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
	l->bytes = listing_size(l);
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
	struct fs *fs = t->fs;

	if (old) {
		l->read_ms = old->read_ms;
		take_off(old);
	}
	l->thread = t;
	l->bytes = 0;
	HASH_ADD_KEYPTR(hh, t->shelf, l->path, strlen(l->path), l);
	if (!HASH_TOOK(hh, l)) {
		l->thread = NULL;
		listing_unref(l);
		return;
	}
	DL_APPEND(fs->shelf, l);
	fs->shelf_count++;
	count(fs, l);
	make_room(fs);
}

/* ---- what happened ---- */

void shelf_drop(struct thread *t, const char *path)
{
	struct listing *l, *next;

	HASH_ITER (hh, t->shelf, l, next) {
		if (path_is_below(l->path, path))
			take_off(l);
	}
}

void shelf_doubt(struct thread *t, const char *path, enum note what)
{
	const char *slash = strrchr(path, '/');
	char *dir CLEANUP_FREE = slash ? strndup(path, (size_t)(slash - path)) : strdup("");
	struct listing *l = dir && *path ? shelf_find(t, dir) : NULL;

	if (what == NOTE_TREE)
		shelf_drop(t, path);
	if (l && what == NOTE_ATTR)
		listing_void(l, slash ? slash + 1 : path);
	else if (l && (listing_doubt(l, slash ? slash + 1 : path) < 0 || is_worn(l)))
		take_off(l);
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

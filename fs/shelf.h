/*
 * The listings of a thread, by path: what was read, and what a walk brought
 * along before anybody asked for it. No node is made for what nobody looked up. All threads
 * together keep SHELF_BYTES_MAX; what was not used for longest goes first.
 *
 * How long something that the sandbox said is believed: as long as the thread's epoch lasts
 * and, if it was asked for while the watch was live (thread->watched since
 * thread->live_ms), until an event or a change of ours says otherwise; else for a
 * second from when it was asked for, or as long as it takes to go through it (lister.c). Loop
 * thread only.
 */
#pragma once

#include "listing.h"
#include "node.h"

enum {
	FRESH_MS = 1000,
	SHELF_BYTES_MAX = 32 * 1024 * 1024,
};
/* "Until told otherwise", in milliseconds. */
#define LASTING_MS (24 * 3600 * 1000)

/* How long something that was asked for then may still be believed; 0: not at all. */
int64_t shelf_left_ms(const struct thread *t, int64_t asked_ms, uint64_t epoch);
/* The same for what was said of a file: one with several names is changed under one of them, and
 * nobody is told of the others; so it does not last. */
int64_t shelf_file_left_ms(const struct thread *t, int64_t asked_ms, uint64_t epoch, mode_t mode,
			   uint32_t nlink);
static inline int64_t listing_left_ms(const struct listing *l, const struct thread *t)
{
	return shelf_left_ms(t, l->asked_ms, l->epoch);
}

static inline bool listing_knows(const struct listing *l, const struct item *i,
				 const struct thread *t)
{
	return i->state == ITEM_KNOWN &&
	       shelf_file_left_ms(t, l->asked_ms, l->epoch, i->mode, i->nlink) > 0;
}

/* The listing of a directory, fresh or not; NULL: none. Not counted. */
struct listing *shelf_of(struct node *dir);
struct listing *shelf_find(struct thread *t, const char *path);
/* In the place of the one that was there. Takes the caller's count over. */
void shelf_put(struct thread *t, struct listing *l);
/* It was used, and may have grown: if too much it goes. */
void shelf_touch(struct listing *l);
/* Without a listing of its own from now on; the shelf keeps it. */
void shelf_unbind(struct node *dir);

/* Something happened to a path: that much is not known any more. The listing of the directory
 * that it is in may go. */
void shelf_doubt(struct thread *t, const char *path, enum note what);
/* The attributes of every name of a file: it was changed under one of them. */
void shelf_void_file(struct thread *t, uint64_t ino, uint64_t dev);
/* No listing of that path or of one below. */
void shelf_drop(struct thread *t, const char *path);
/* Nothing of a thread. */
void shelf_clear(struct thread *t);

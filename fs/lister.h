/*
 * Asking for listings. Those who want the same directory at the same time share
 * one request. When somebody goes through a tree, directory after directory, one
 * request brings what he will want next, too: the directory, the siblings after
 * it, and all that is below them, as far as WALK_MAX entries go. A walk is: a
 * directory is read right after the one that it is in was read, or is wanted
 * right after two of its siblings were (by who only looks names up: in the order of their names). A
 * single ls is none, nor are two. As a command costs more than many names, a directory with a few
 * others in it brings what is in these, unless they are large, and the first request to a sandbox
 * that is watched is for what is near its root. Loop thread only.
 */
#pragma once

#include "listing.h"
#include "trip.h"

enum {
	WALK_LEAST = 1024, /* entries of the first request for who only looks names up */
	WALK_FIRST = 8192, /* of the first for who reads directories; it may be a mistake */
	WALK_MAX = 32768,  /* of the others */
};

/*
 * Waits for the listing of t->node; reads: to show it (and not only to find a
 * name in it). listed() comes once, not from inside, as done() of a trip does, also if the caller
 * does not wait any more (t->parked.req is NULL then). l is valid during the call; it
 * is on the shelf unless the answer is too old to be kept.
 */
void lister_ask(struct trip *t, bool reads,
		void (*listed)(struct trip *t, int err, struct listing *l));
/*
 * The watch has become live: what is near the thread's root is asked for before anybody does, if
 * its sandbox is up. Nobody hears of it if that fails.
 */
void lister_prefetch(struct thread *t);
/* Somebody reads a directory whose listing was there already. */
void lister_was_read(struct node *dir, struct listing *l);

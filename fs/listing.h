/*
 * What one listing of a directory said: shared by open directories and by
 * lookups that come right after it. Loop thread only.
 */
#pragma once

#include <uthash.h>

#include "entries.h"
#include "node.h"
#include "remote.h"

struct trip;

struct listing {
	unsigned refs;
	struct entries entries; /* in the order of the answer */
	uint32_t *order;        /* of the entries, by name */
	int64_t made_ms;
	uint64_t epoch;
	unsigned misses; /* names that were asked for when it was too old */
};

/* Takes the entries over, also on failure. */
int listing_new(struct entries *e, uint64_t epoch, struct listing **ret) MUST_CHECK;
struct listing *listing_ref(struct listing *l);
void listing_unref(struct listing *l); /* NULL is fine */
/* NULL: the directory has no such name. */
const struct entry *listing_find(const struct listing *l, const char *name);
/* Something newer is known of a name, if it has it. */
void listing_update(struct listing *l, const char *name, const struct attr *attr);
bool listing_is_fresh(const struct listing *l, const struct thread *t);

/* start() of a trip that lists t->node, and for its done(): the listing, counted, which is the
 * node's from now on unless something changed meanwhile. */
void listing_start(struct remote *r, struct sandbox *sb);
int listing_take(struct trip *t, int err, struct listing **ret) MUST_CHECK;

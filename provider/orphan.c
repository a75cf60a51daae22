/*
 * Sandboxes that run and are not ours: whose are they? Each round asks the
 * ownership store about those that the backend listed. One that is nobody's may
 * be one whose owner is about to say so: a store that lost everything has to be
 * given the time of one lease, in which every owner that lives publishes
 * again. So it is claimed only after it was seen without an owner, in every
 * round, for that long. In memory nobody else can publish, and there is no wait.
 * Loop thread.
 */
#include <errno.h>
#include <string.h>

#include "hash.h"
#include "provider_i.h"

struct orphan {
	struct provider *provider;
	struct place place; /* only what names it */
	int64_t since_ms;   /* nobody's since then, by the provider's clock; -1: it is somebody's */
	unsigned round;     /* the last one that listed it */
	bool asking;        /* op is open */
	struct ownership_op op;
	UT_hash_handle hh;
};

static void orphan_free(struct orphan *o)
{
	HASH_DEL(o->provider->orphans, o);
	place_release(&o->place);
	free(o);
}

bool orphan_is_due(const struct provider *p, const char *id)
{
	const struct orphan *o;

	if (!p->ownership->sees_peers)
		return true;
	HASH_FIND_STR(p->orphans, id, o);
	return o && o->since_ms >= 0 && provider_now(p) - o->since_ms >= p->ownership->ttl_ms;
}

static void on_looked(struct ownership_op *op)
{
	struct orphan *o = CONTAINER_OF(op, struct orphan, op);
	struct provider *p = o->provider;
	char *owner CLEANUP_FREE = STEAL(op->owner);
	bool known = op->error == 0;
	struct tenant *t;

	ownership_op_clear(op);
	o->asking = false;
	if (!known || owner)
		o->since_ms = -1; /* what was not seen may have been published meanwhile */
	else if (o->since_ms < 0)
		o->since_ms = provider_now(p);
	if (known && !p->ending && tenant_get(p, o->place.user, o->place.thread, &t) == 0) {
		if (t->place.id[0] && !t->ours && strcmp(t->place.id, o->place.id) == 0)
			hold_note_owner(t, owner);
		if (!owner && orphan_is_due(p, o->place.id) && janitor_may_adopt(t, o->place.id))
			janitor_adopt(t);
		tenant_put(t);
	}
	janitor_landed(p);
}

static struct orphan *orphan_new(struct provider *p, const struct place *place)
{
	struct orphan *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->place.user = strdup(place->user);
	o->place.thread = strdup(place->thread);
	if (!o->place.user || !o->place.thread) {
		place_release(&o->place);
		free(o);
		return NULL;
	}
	memcpy(o->place.id, place->id, sizeof(o->place.id));
	o->provider = p;
	o->since_ms = -1;
	HASH_ADD(hh, p->orphans, place.id, strlen(o->place.id), o);
	if (!HASH_TOOK(hh, o)) {
		place_release(&o->place);
		free(o);
		return NULL;
	}
	return o;
}

void orphan_look(struct provider *p, const struct place *place)
{
	struct orphan *o;

	HASH_FIND_STR(p->orphans, place->id, o);
	if (!o)
		o = orphan_new(p, place);
	if (!o || o->asking)
		return;
	o->round = p->round;
	o->asking = true;
	o->op.done = on_looked;
	p->round_pending++;
	ownership_ask(p->ownership, &o->op, OWNERSHIP_LOOK, o->place.id);
}

void orphan_sweep(struct provider *p)
{
	struct orphan *o, *next;

	HASH_ITER (hh, p->orphans, o, next) {
		if (o->round != p->round && !o->asking)
			orphan_free(o);
	}
}

void orphan_free_all(struct provider *p)
{
	struct orphan *o, *next;

	HASH_ITER (hh, p->orphans, o, next)
		orphan_free(o);
}

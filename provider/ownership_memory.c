/*
 * Leases that nobody else sees: this process knows what it made. There is no
 * time to live, because there is nobody who could outlive us. Loop thread, but
 * for making and freeing it.
 */
#include <errno.h>
#include <string.h>

#include "hash.h"
#include "ownership.h"

struct lease {
	char *id;
	bool condemned;
	UT_hash_handle hh;
};

struct memory_store {
	struct ownership base;
	struct lease *leases;
};

/* What each verb does with a lease of ours (or none), and whether it is granted. */
static enum ownership_verdict apply(struct memory_store *m, struct lease **l,
				    enum ownership_verb verb, const char *id)
{
	struct lease *lease = *l;

	switch (verb) {
	case OWNERSHIP_TAKE:
	case OWNERSHIP_CLAIM:
		if (lease && lease->condemned)
			return OWNERSHIP_REFUSED;
		break;
	case OWNERSHIP_RENEW:
		if (!lease)
			return OWNERSHIP_LAPSED;
		return lease->condemned ? OWNERSHIP_REFUSED : OWNERSHIP_GRANTED;
	case OWNERSHIP_RELEASE:
		if (!lease)
			return OWNERSHIP_REFUSED;
		HASH_DEL(m->leases, lease);
		free(lease->id);
		free(lease);
		*l = NULL;
		return OWNERSHIP_GRANTED;
	case OWNERSHIP_CONDEMN:
		break;
	default:
		return OWNERSHIP_GRANTED;
	}
	if (!lease) {
		lease = calloc(1, sizeof(*lease));
		if (!lease || !(lease->id = strdup(id))) {
			free(lease);
			return OWNERSHIP_REFUSED;
		}
		HASH_ADD_KEYPTR(hh, m->leases, lease->id, strlen(lease->id), lease);
		if (!HASH_TOOK(hh, lease)) {
			free(lease->id);
			free(lease);
			return OWNERSHIP_REFUSED;
		}
		*l = lease;
	}
	lease->condemned = verb == OWNERSHIP_CONDEMN;
	return OWNERSHIP_GRANTED;
}

static void memory_ask(struct ownership *o, struct ownership_op *op, enum ownership_verb verb,
		       const char *id)
{
	struct memory_store *m = CONTAINER_OF(o, struct memory_store, base);
	struct lease *l;

	HASH_FIND_STR(m->leases, id, l);
	op->verdict = apply(m, &l, verb, id);
	if (verb == OWNERSHIP_LOOK && l) {
		op->owner = strdup(o->owner);
		op->condemned = l->condemned;
	}
	ownership_answer(o, op, 0, NULL);
}

static void memory_free(struct ownership *o)
{
	struct memory_store *m = CONTAINER_OF(o, struct memory_store, base);
	struct lease *l, *next;

	HASH_ITER (hh, m->leases, l, next) {
		HASH_DEL(m->leases, l);
		free(l->id);
		free(l);
	}
	free(m);
}

static const struct ownership_ops ops = { .ask = memory_ask, .free = memory_free };

int ownership_memory_new(struct loop *loop, const struct ownership_config *config,
			 struct ownership **ret, const char **ret_why)
{
	struct memory_store *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	r = ownership_init(&m->base, &ops, loop, config, ret_why);
	if (r < 0) {
		free(m);
		return r;
	}
	*ret = &m->base;
	return 0;
}

/*
 * The states of a tenant: which edges there are, and the one function that
 * takes them. Each tenant is in exactly one list, its state's, oldest first.
 * Knows nothing of leases, sandboxes or time but when a state began.
 */
#include <utlist.h>

#include "log.h"
#include "provider_i.h"

#define TO(s) (1u << TENANT_##s)

static const struct {
	const char *name;
	unsigned next; /* legal successors */
} states[TENANT_STATES] = {
	[TENANT_COLD] = { "cold", TO(STARTING) | TO(STOPPING) },
	/* cold: nobody waits any more, or it was not there to be adopted */
	[TENANT_STARTING] = { "starting",
			      TO(ACTIVE) | TO(WARM) | TO(STOPPING) | TO(FAILED) | TO(COLD) },
	[TENANT_ACTIVE] = { "active", TO(WARM) | TO(STOPPING) },
	[TENANT_WARM] = { "warm", TO(STARTING) | TO(STOPPING) },
	/* warm: somebody else uses it, so it could not be stopped */
	[TENANT_STOPPING] = { "stopping", TO(COLD) | TO(WARM) | TO(FAILED) },
	[TENANT_FAILED] = { "failed", TO(STARTING) | TO(STOPPING) },
};

const char *tenant_state_name(enum tenant_state s)
{
	return states[s].name;
}

bool tenant_edge_is_legal(enum tenant_state from, enum tenant_state to)
{
	return states[from].next & (1u << to);
}

void tenant_move(struct provider *p, struct tenant *t, enum tenant_state to)
{
	assert(tenant_edge_is_legal(t->state, to));
	assert(to != TENANT_ACTIVE || t->leases > 0);
	assert((to == TENANT_ACTIVE) == (t->sb != NULL));
	log_topic(LOG_LEASE, "%s: sandbox %s: %s, then %s, with %u lease(s)", t->key, t->id,
		  states[t->state].name, states[to].name, t->leases);
	DL_DELETE(p->lists[t->state], t);
	p->counts[t->state]--;
	t->state = to;
	t->since_ms = provider_now(p);
	DL_APPEND(p->lists[to], t);
	p->counts[to]++;
}

void tenant_enter(struct tenant *t, enum tenant_state to)
{
	struct provider *p = t->provider;

	lock(&p->lock);
	lock(&t->lock);
	tenant_move(p, t, to);
	unlock(&t->lock);
	unlock(&p->lock);
}

enum tenant_state tenant_state(struct tenant *t)
{
	enum tenant_state s;

	lock(&t->lock);
	s = t->state;
	unlock(&t->lock);
	return s;
}

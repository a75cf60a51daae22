/*
 * Our leases in the ownership store (ownership.h): one *hold* for each sandbox
 * that is ours, kept alive by a beat, whatever its tenant is doing meanwhile, and
 * released when it is given up. Whether a beat gets no answer says nothing: the
 * sandbox is kept, and the next beat tries again. A lease that lapsed (the store
 * lost it, or was gone for long) is claimed anew; one that another has by now is
 * lost: then the sandbox is not ours to stop any more, but it goes on, and so
 * does who uses it. While a sandbox is being stopped the beat keeps the mark that
 * says so, however long that takes.
 *
 * The flights ask the store, too, with hold_ask(). Loop thread.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "log.h"
#include "provider_i.h"

struct hold {
	struct provider *provider;
	struct tenant *t; /* NULL: given up, to be released and freed */
	char id[SANDBOX_ID_LEN + 1];
	bool published; /* the store has it, as far as we know */
	bool condemned; /* it is being stopped */
	bool asking;    /* op is open */
	enum ownership_verb verb;
	struct ownership_op op;
	struct hold *prev, *next;
};

/* ---- questions of a flight ---- */

void hold_ask(struct tenant *t, enum ownership_verb verb, const char *id,
	      void (*done)(struct ownership_op *op))
{
	assert(!t->consulting);
	t->consulting = true;
	t->own_op.done = done;
	ownership_ask(t->provider->ownership, &t->own_op, verb, id);
}

struct tenant *hold_answered(struct ownership_op *op)
{
	struct tenant *t = CONTAINER_OF(op, struct tenant, own_op);

	t->consulting = false;
	return t;
}

bool hold_is_anothers(const struct tenant *t, const struct ownership_op *op)
{
	return op->error == 0 && op->owner && strcmp(op->owner, t->provider->ownership->owner) != 0;
}

void hold_note_owner(struct tenant *t, const char *owner)
{
	char *copy = owner ? strdup(owner) : NULL, *old;

	lock(&t->provider->lock);
	old = t->owner;
	t->owner = copy;
	unlock(&t->provider->lock);
	free(old);
}

/* ---- the beat ---- */

static void hold_free(struct hold *h)
{
	DL_DELETE(h->provider->holds, h);
	free(h);
}

/* Somebody else has it. */
static void lose(struct hold *h)
{
	struct tenant *t = h->t;

	log_warn("%s: another program has taken sandbox %s over", t->key, h->id);
	t->hold = NULL;
	hold_free(h);
	held_set_ours(t, false);
	hold_note_owner(t, NULL);
	/* What is in use goes on as one that was found; what is not is not ours to keep. */
	if (t->flight == FLIGHT_NONE && tenant_state(t) == TENANT_WARM)
		stop_begin(t, STOP_LOST);
}

static void on_answer(struct ownership_op *op);

static void ask(struct hold *h, enum ownership_verb verb)
{
	h->asking = true;
	h->verb = verb;
	h->op.done = on_answer;
	provider_busy(h->provider);
	ownership_ask(h->provider->ownership, &h->op, verb, h->id);
}

/* May free it. */
static void go_on(struct hold *h, int error, enum ownership_verdict verdict)
{
	if (!h->t) {
		/* If that did not reach the store, it lapses. */
		if (h->verb == OWNERSHIP_RELEASE)
			hold_free(h);
		else
			ask(h, OWNERSHIP_RELEASE);
		return;
	}
	/* While it is being stopped only the mark counts, and that was asked for later. */
	if (error < 0 || h->condemned)
		return;
	switch (h->verb) {
	case OWNERSHIP_RENEW:
		/*
		 * Refused: another's; or it has a mark of our own, from a stop that
		 * was given up: only that can be released.
		 */
		if (verdict != OWNERSHIP_GRANTED)
			ask(h, verdict == OWNERSHIP_LAPSED ? OWNERSHIP_CLAIM : OWNERSHIP_RELEASE);
		break;
	case OWNERSHIP_RELEASE:
		if (verdict == OWNERSHIP_GRANTED)
			ask(h, OWNERSHIP_CLAIM);
		else
			lose(h);
		break;
	case OWNERSHIP_CLAIM:
		if (verdict != OWNERSHIP_GRANTED)
			lose(h);
		else
			log_info("%s: claimed sandbox %s again", h->t->key, h->id);
		break;
	default:
		break;
	}
}

static void on_answer(struct ownership_op *op)
{
	struct hold *h = CONTAINER_OF(op, struct hold, op);
	struct provider *p = h->provider;
	enum ownership_verdict verdict = op->verdict;
	int error = op->error;

	ownership_op_clear(op);
	h->asking = false;
	go_on(h, error, verdict);
	provider_calm(p);
}

static void beat(struct hold *h)
{
	if (!h->asking && h->t && h->published)
		ask(h, h->condemned ? OWNERSHIP_CONDEMN : OWNERSHIP_RENEW);
}

static void on_beat(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct provider *p = w->data;
	struct hold *h;

	DL_FOREACH (p->holds, h)
		beat(h);
}

void hold_start(struct provider *p)
{
	ev_tstamp every = (ev_tstamp)p->ownership->renewal_ms / 1e3;

	ev_timer_init(&p->beat, on_beat, every, every);
	p->beat.data = p;
	if (p->ownership->sees_peers)
		ev_timer_start(loop_ev(p->loop), &p->beat);
}

void hold_stop(struct provider *p)
{
	ev_timer_stop(loop_ev(p->loop), &p->beat);
}

/* ---- a tenant's ---- */

int hold_begin(struct tenant *t, const char *id, bool published)
{
	struct hold *h;

	if (t->hold)
		return 0;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->provider = t->provider;
	h->t = t;
	h->published = published;
	memcpy(h->id, id, strlen(id) + 1);
	DL_APPEND(t->provider->holds, h);
	t->hold = h;
	if (published)
		hold_note_owner(t, t->provider->ownership->owner);
	return 0;
}

void hold_set_published(struct tenant *t)
{
	t->hold->published = true;
	hold_note_owner(t, t->provider->ownership->owner);
}

bool hold_is_unpublished(const struct tenant *t)
{
	return t->hold && !t->hold->published;
}

void hold_condemn(struct tenant *t)
{
	if (t->hold)
		t->hold->condemned = true;
}

void hold_spare(struct tenant *t)
{
	if (!t->hold)
		return;
	t->hold->condemned = false;
	beat(t->hold);
}

void hold_end(struct tenant *t)
{
	struct hold *h = STEAL(t->hold);

	if (!h)
		return;
	h->t = NULL;
	hold_note_owner(t, NULL);
	if (!h->asking)
		ask(h, OWNERSHIP_RELEASE);
}

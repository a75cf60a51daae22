/*
 * The janitor: now and then, or when asked, one *round*: stops warm sandboxes
 * that nobody has used for long, lets the backend tidy up, and adopts what an
 * earlier life of this program left running. Never touches an active one, nor
 * what somebody else may own. Loop thread.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "log.h"
#include "provider_i.h"

enum { LIST_MS = 15000, ADOPT_MS = 10000, FAILED_KEPT_MS = 600000 };

static void begin_round(struct provider *p, bool whole);

/* ---- adopting ---- */

static void adopt_end(struct tenant *t, bool ours)
{
	struct provider *p = t->provider;
	bool had_one = tenant_state(t) != TENANT_STARTING;

	ours &= t->hold != NULL; /* the lease may have been lost meanwhile */
	lock(&p->lock);
	t->ours = ours;
	t->starts += ours && !had_one;
	unlock(&p->lock);
	if (ours)
		log_info("%s: adopted sandbox %s", t->key, t->id);
	else
		hold_end(t);
	if (!had_one && !ours)
		held_drop(t);
	if (!had_one)
		tenant_enter(t, ours ? TENANT_WARM : t->failures > 0 ? TENANT_FAILED : TENANT_COLD);
	flight_end(t);
}

static void on_adopted(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	bool ours = op->error == 0;

	if (ours && tenant_state(t) == TENANT_STARTING) {
		held_take_place(t, op, t->id);
		/* Its maker may have been killed in the middle of starting it. */
		t->unproven = true;
		chore_sweep(t);
	}
	if (!ours && op->error != -EBUSY && op->error != -ENOENT && !t->provider->ending)
		log_warn("%s: sandbox %s could not be adopted: %s", t->key, t->id,
			 op->why ?: strerrordesc_np(-op->error));
	backend_op_clear(op);
	adopt_end(t, ours);
}

static void on_claimed(struct ownership_op *op)
{
	struct tenant *t = hold_answered(op);
	struct backend *b = t->provider->backend;
	bool granted = op->error == 0 && op->verdict == OWNERSHIP_GRANTED;

	ownership_op_clear(op);
	if (!granted || t->aborted || hold_begin(t, t->id, true) < 0) {
		adopt_end(t, false);
		return;
	}
	flight_ask(t, on_adopted, ADOPT_MS);
	b->ops->adopt(b, &t->op, t->id);
}

/* Cold, or known but not ours. */
void janitor_adopt(struct tenant *t)
{
	enum tenant_state state = tenant_state(t);
	bool starts = state == TENANT_COLD || state == TENANT_FAILED;

	if (starts && held_take_id(t) < 0)
		return; /* there is another round */
	flight_begin(t, FLIGHT_ADOPT);
	t->in_round = true;
	t->provider->round_pending++;
	if (starts)
		tenant_enter(t, TENANT_STARTING);
	hold_ask(t, OWNERSHIP_CLAIM, t->id, on_claimed);
}

bool janitor_may_adopt(const struct tenant *t, const char *id)
{
	if (t->flight != FLIGHT_NONE || t->ours || t->acquirers || t->finders || t->enders)
		return false;
	/* A listing that lies, or a sandbox whose names do not make its id. */
	if (strcmp(t->id, id) != 0 || held_collides(t))
		return false;
	/* It may have another one, found under an older id: that is not the one listed. */
	return !t->place.id[0] || strcmp(t->place.id, id) == 0;
}

static void consider(struct provider *p, const struct place *place)
{
	struct tenant *t;

	if (!place->user || !place->thread || tenant_get(p, place->user, place->thread, &t) < 0) {
		log_topic(LOG_LEASE, "sandbox %s is nobody's that we know", place->id);
		return;
	}
	if (janitor_may_adopt(t, place->id))
		orphan_look(p, place);
	tenant_put(t);
}

/* ---- a round ---- */

static void end_round(struct provider *p)
{
	if (p->round_pending > 0 || p->listing)
		return;
	p->in_round = false;
	orphan_sweep(p);
	errand_finish_all(&p->rounds, 0, NULL);
	if (p->late_rounds && !p->ending) {
		p->rounds = STEAL(p->late_rounds);
		for (struct errand *e = p->rounds; e; e = e->next)
			e->list = &p->rounds;
		begin_round(p, true);
	}
	provider_calm(p);
}

void janitor_landed(struct provider *p)
{
	assert(p->round_pending > 0);
	p->round_pending--;
	end_round(p);
}

static void on_listed(struct backend_op *op)
{
	struct provider *p = CONTAINER_OF(op, struct provider, list_op);

	ev_timer_stop(loop_ev(p->loop), &p->list_timer);
	if (op->error < 0 && !p->ending)
		log_warn("cannot list running sandboxes: %s",
			 op->why ?: strerrordesc_np(-op->error));
	p->round_pending++; /* not before all have been considered */
	p->listing = false;
	for (size_t i = 0; op->error == 0 && i < op->nplaces && !p->ending; i++)
		consider(p, &op->places[i]);
	backend_op_clear(op);
	janitor_landed(p);
}

static void on_list_late(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct provider *p = w->data;

	p->backend->ops->cancel(p->backend, &p->list_op);
}

static void reconcile(struct provider *p)
{
	struct backend *b = p->backend;

	if (!b->ops->list_running || !b->ops->adopt)
		return;
	p->listing = true;
	p->list_op.done = on_listed;
	ev_timer_init(&p->list_timer, on_list_late, LIST_MS / 1e3, 0.);
	p->list_timer.data = p;
	ev_timer_start(loop_ev(p->loop), &p->list_timer);
	b->ops->list_running(b, &p->list_op);
}

/* One that was adopted under leases waits for their owners. */
static bool has_leases(struct tenant *t)
{
	bool has;

	lock(&t->lock);
	has = t->leases > 0;
	unlock(&t->lock);
	return has;
}

/* The oldest warm one that is in no flight and nobody's, or NULL. */
static struct tenant *oldest_warm(struct provider *p)
{
	struct tenant *t;

	lock(&p->lock);
	DL_FOREACH (p->lists[TENANT_WARM], t) {
		if (t->flight == FLIGHT_NONE && !t->enders && !t->acquirers && !has_leases(t))
			break;
	}
	unlock(&p->lock);
	return t;
}

static void stop_idle(struct provider *p)
{
	int64_t now = provider_now(p);
	struct tenant *t;

	if (p->idle_timeout_ms <= 0)
		return;
	/* In flight, a tenant is not the oldest warm one any more. */
	while ((t = oldest_warm(p)) && now - t->since_ms >= p->idle_timeout_ms) {
		log_info("%s: sandbox %s was idle for %lld s", t->key, t->place.id,
			 (long long)(now - t->since_ms) / 1000);
		t->in_round = true;
		p->round_pending++;
		stop_begin(t, STOP_IDLE);
	}
}

static void begin_round(struct provider *p, bool whole)
{
	provider_busy(p);
	p->in_round = true;
	p->round++;
	p->round_pending++;
	if (whole) {
		stop_idle(p);
		tenant_drop_failed(p, provider_now(p) - FAILED_KEPT_MS);
		if (p->backend->ops->tend)
			p->backend->ops->tend(p->backend);
	}
	reconcile(p);
	janitor_landed(p);
}

static void run_errand(struct errand *e, bool whole)
{
	struct provider *p = e->provider;

	if (p->ending) {
		errand_finish(e, -ESHUTDOWN, NULL);
	} else if (p->in_round) {
		/* That one may have looked already: the next one counts. */
		errand_wait(e, &p->late_rounds);
	} else {
		errand_wait(e, &p->rounds);
		begin_round(p, whole);
	}
}

static void begin_tick(struct errand *e)
{
	run_errand(e, true);
}

static void begin_reconcile(struct errand *e)
{
	run_errand(e, false);
}

void provider_tick(struct provider *p, struct errand *e)
{
	errand_submit(e, p, NULL, begin_tick);
}

void provider_reconcile(struct provider *p, struct errand *e)
{
	errand_submit(e, p, NULL, begin_reconcile);
}

/* ---- room for another ---- */

/* What runs or is about to; not those that are only looked for. */
static unsigned count_sandboxes(struct provider *p, const struct tenant *newcomer)
{
	const struct tenant *t;
	unsigned n;

	lock(&p->lock);
	n = p->counts[TENANT_ACTIVE] + p->counts[TENANT_WARM];
	DL_FOREACH (p->lists[TENANT_WARM], t)
		n -= t->flight == FLIGHT_STOP; /* about to go */
	DL_FOREACH (p->lists[TENANT_STARTING], t)
		n += t == newcomer || t->acquirers || t->place.id[0];
	unlock(&p->lock);
	return n;
}

void janitor_make_room(struct provider *p, const struct tenant *newcomer)
{
	struct tenant *t;
	unsigned n;

	if (p->replicas == 0)
		return;
	for (;;) {
		n = count_sandboxes(p, newcomer);
		if (n <= p->replicas)
			return;
		t = oldest_warm(p);
		if (!t)
			break;
		log_info("%s: sandbox %s makes room", t->key, t->place.id);
		stop_begin(t, STOP_ROOM);
	}
	log_info("%u sandboxes where %u are meant to be: none is unused", n, p->replicas);
}

/* ---- by the clock ---- */

static void on_janitor(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct provider *p = w->data;

	if (!p->in_round)
		begin_round(p, true);
}

void janitor_start(struct provider *p)
{
	ev_timer_init(&p->janitor, on_janitor, 0., (ev_tstamp)p->janitor_ms / 1e3);
	p->janitor.data = p;
	if (p->janitor_ms > 0)
		ev_timer_again(loop_ev(p->loop), &p->janitor);
	begin_round(p, false);
}

void janitor_stop(struct provider *p)
{
	ev_timer_stop(loop_ev(p->loop), &p->janitor);
	errand_finish_all(&p->rounds, -ESHUTDOWN, NULL);
	errand_finish_all(&p->late_rounds, -ESHUTDOWN, NULL);
	if (p->listing)
		p->backend->ops->cancel(p->backend, &p->list_op);
}

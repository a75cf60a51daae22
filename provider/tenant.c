/*
 * The table of tenants, and their flights: at most one per tenant, in which the
 * loop's thread takes it from one state to another. What a flight does is in
 * check.c, start.c and stop.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "ident.h"
#include "log.h"
#include "provider_i.h"

/* ---- the table ---- */

static void tenant_free(struct tenant *t)
{
	assert(!t->sb && !t->acquirers && !t->finders && !t->enders && !t->holds_id && !t->hold);
	assert(!ev_is_active(&t->watchdog.patience) && !ev_is_active(&t->watchdog.probe));
	free(t->user);
	free(t->thread);
	free(t->key);
	free(t->last_message);
	free(t->owner);
	place_release(&t->place);
	lock_destroy(&t->lock);
	free(t);
}

static struct tenant *tenant_new(struct provider *p, const char *user, const char *thread)
{
	struct tenant *t = aligned_alloc(64, (sizeof(*t) + 63) / 64 * 64);

	if (!t)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->provider = p;
	t->lock_fd = -1;
	lock_init(&t->lock);
	t->user = strdup(user);
	t->thread = strdup(thread);
	if (!t->user || !t->thread || asprintf(&t->key, "%s/%s", user, thread) < 0) {
		t->key = NULL;
		tenant_free(t);
		return NULL;
	}
	p->make_id(user, thread, t->id);
	t->used_ms = provider_now(p);
	return t;
}

static void remove_locked(struct provider *p, struct tenant *t) NEEDS(p->lock)
{
	HASH_DELETE(by_key, p->tenants, t);
	DL_DELETE(p->lists[t->state], t);
	p->counts[t->state]--;
}

void tenant_discard(struct tenant *t)
{
	struct provider *p = t->provider;

	lock(&p->lock);
	remove_locked(p, t);
	unlock(&p->lock);
	tenant_free(t);
}

/* Takes out of the table what nothing speaks for any more. Returns what is to be freed. */
static struct tenant *retire_locked(struct provider *p, struct tenant *t) NEEDS(p->lock)
{
	bool keep;

	if (t->refs > 0)
		return NULL;
	lock(&t->lock);
	keep = t->state != TENANT_COLD || t->leases > 0;
	unlock(&t->lock);
	if (keep)
		return NULL;
	remove_locked(p, t);
	return t;
}

int tenant_get(struct provider *p, const char *user, const char *thread, struct tenant **ret)
{
	char key[2 * 256 + 2];
	struct tenant *t;

	if (!ident_is_user(user) || !ident_is_thread(thread))
		return -EINVAL;
	snprintf(key, sizeof(key), "%s/%s", user, thread);
	lock(&p->lock);
	HASH_FIND(by_key, p->tenants, key, strlen(key), t);
	if (!t) {
		t = tenant_new(p, user, thread);
		if (t)
			HASH_ADD_KEYPTR(by_key, p->tenants, t->key, strlen(t->key), t);
		if (t && !HASH_TOOK(by_key, t)) {
			tenant_free(t);
			t = NULL;
		}
		if (t) {
			t->since_ms = provider_now(p);
			DL_APPEND(p->lists[TENANT_COLD], t);
			p->counts[TENANT_COLD]++;
		}
	}
	if (t)
		t->refs++;
	unlock(&p->lock);
	if (!t)
		return -ENOMEM;
	*ret = t;
	return 0;
}

void tenant_put(struct tenant *t)
{
	struct provider *p;

	if (!t)
		return;
	p = t->provider;
	lock(&p->lock);
	assert(t->refs > 0);
	t->refs--;
	t = retire_locked(p, t);
	unlock(&p->lock);
	if (t)
		tenant_free(t);
}

void tenant_drop_failed(struct provider *p, int64_t before_ms)
{
	struct tenant *t, *tmp;
	bool keep;

	lock(&p->lock);
	DL_FOREACH_SAFE (p->lists[TENANT_FAILED], t, tmp) {
		if (t->since_ms > before_ms)
			break; /* oldest first */
		lock(&t->lock);
		keep = t->refs > 0 || t->leases > 0;
		unlock(&t->lock);
		if (keep)
			continue;
		remove_locked(p, t);
		tenant_free(t);
	}
	unlock(&p->lock);
}

const char *tenant_user(const struct tenant *t)
{
	return t->user;
}

const char *tenant_thread(const struct tenant *t)
{
	return t->thread;
}

const char *tenant_id(const struct tenant *t)
{
	return t->id;
}

void tenant_note(struct tenant *t, int error, const char *why)
{
	char *copy = why ? strdup(why) : NULL, *old;
	double wall = clock_wall();

	lock(&t->provider->lock);
	old = t->last_message;
	t->last_error = error;
	t->last_message = copy;
	t->error_wall = wall;
	unlock(&t->provider->lock);
	free(old);
}

/* ---- what shutdown waits for ---- */

void provider_busy(struct provider *p)
{
	lock(&p->lock);
	p->busy++;
	unlock(&p->lock);
}

void provider_calm(struct provider *p)
{
	lock(&p->lock);
	assert(p->busy > 0);
	if (--p->busy == 0)
		pthread_cond_broadcast(&p->quiet);
	unlock(&p->lock);
}

static void on_closed(void *ctx)
{
	provider_calm(ctx);
}

void provider_dismiss(struct provider *p, struct sandbox *sb)
{
	if (!sb)
		return;
	provider_busy(p);
	sandbox_dismiss(sb, on_closed, p);
}

/* ---- flights ---- */

void flight_begin(struct tenant *t, enum flight kind)
{
	assert(t->flight == FLIGHT_NONE);
	t->flight = kind;
	t->aborted = false;
	lock(&t->provider->lock);
	t->refs++;
	t->provider->busy++;
	unlock(&t->provider->lock);
}

static void dispatch(struct tenant *t);

void flight_end(struct tenant *t)
{
	struct provider *p = t->provider;
	bool in_round = t->in_round;

	assert(t->flight != FLIGHT_NONE && !t->asking && !t->consulting && !t->fresh &&
	       t->lock_fd < 0);
	t->flight = FLIGHT_NONE;
	t->in_round = false;
	dispatch(t); /* the flight's reference is still there */
	tenant_put(t);
	if (in_round)
		janitor_landed(p);
	provider_calm(p);
}

static void on_time_up(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct tenant *t = w->data;

	t->provider->backend->ops->cancel(t->provider->backend, &t->op);
}

void flight_ask(struct tenant *t, void (*done)(struct backend_op *op), int64_t timeout_ms)
{
	assert(!t->asking);
	t->asking = true;
	t->op.done = done;
	if (timeout_ms > 0) {
		ev_timer_init(&t->timer, on_time_up, (ev_tstamp)timeout_ms / 1e3, 0.);
		t->timer.data = t;
		ev_timer_start(loop_ev(t->provider->loop), &t->timer);
	}
}

struct tenant *flight_answered(struct backend_op *op)
{
	struct tenant *t = CONTAINER_OF(op, struct tenant, op);

	t->asking = false;
	ev_timer_stop(loop_ev(t->provider->loop), &t->timer);
	return t;
}

/* Failed, and not yet to be tried again. */
static void refuse(struct tenant *t)
{
	char *why CLEANUP_FREE = NULL;
	int error;

	lock(&t->provider->lock);
	error = t->last_error;
	why = t->last_message ? strdup(t->last_message) : NULL;
	unlock(&t->provider->lock);
	errand_finish_all(&t->finders, error, why);
	errand_finish_all(&t->acquirers, error, why);
}

static void dispatch(struct tenant *t)
{
	struct provider *p = t->provider;
	enum tenant_state state = tenant_state(t);
	bool suspect;

	if (t->flight == FLIGHT_CHECK)
		breaker_holds(t); /* nobody waits for a probe but in doubt */
	if (t->flight != FLIGHT_NONE)
		return;
	if (p->ending) {
		errand_finish_all(&t->finders, -ESHUTDOWN, NULL);
		errand_finish_all(&t->acquirers, -ESHUTDOWN, NULL);
		if (state == TENANT_ACTIVE || state == TENANT_WARM) {
			stop_begin(t, STOP_SHUTDOWN);
			return;
		}
	}
	if (t->enders) {
		stop_begin(t, STOP_ASKED);
		return;
	}
	if (state == TENANT_ACTIVE || state == TENANT_WARM)
		errand_finish_all(&t->finders, 0, NULL);
	if (!t->acquirers && !t->finders)
		return;
	if (breaker_holds(t))
		return;
	switch (state) {
	case TENANT_ACTIVE:
		lock(&t->lock);
		suspect = t->suspect && p->auto_restart;
		unlock(&t->lock);
		if (suspect)
			breaker_doubt(t);
		else if (!tenant_grant(t))
			reclaim_begin(t); /* parked in this moment */
		break;
	case TENANT_WARM:
		reclaim_begin(t);
		break;
	case TENANT_FAILED:
		if (provider_now(p) < t->retry_ms) {
			refuse(t);
			break;
		}
		start_begin(t);
		break;
	case TENANT_COLD:
		start_begin(t);
		break;
	default:
		assert(false); /* these are always in flight */
	}
}

/* Whoever is told here that his errand is done may give up the last reference. */
void tenant_dispatch(struct tenant *t)
{
	lock(&t->provider->lock);
	t->refs++;
	unlock(&t->provider->lock);
	dispatch(t);
	tenant_put(t);
}

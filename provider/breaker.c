/*
 * Does the sandbox answer? One that failed somebody is doubted: it is asked (check.c) again and
 * again, and who wants it waits. One that is dead for certain is replaced, as ever; one that
 * is not, and has not answered when the patience is over, is known not to: from then on
 * acquires fail at once with -EHOSTDOWN, and it is asked in the background, with pauses, until it
 * answers. Told in the log and the status when that changes, not each time.
 *
 *	closed ──failed somebody──▶ doubt ──no answer──▶ open ──answers──▶ closed
 *	                              └──answers──▶ closed
 *
 * Between two probes there is no flight, so what else is wanted of the tenant goes on; no
 * sandbox, no breaker: stopping closes it. Loop thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "provider_i.h"

enum {
	/* A sandbox that is about to be dead counts as alive for a moment, and one that its owner
	 * restarts is back soon. */
	PATIENCE_MS = 2000,
	SILENT_PATIENCE_MS = 1000, /* after a whole timeout without an answer */
	PAUSE_DOUBT_MS = 25,       /* then twice as long each time */
	PAUSE_OPEN_MS = 100,       /* likewise */
	PAUSE_LAST_MS = 2000,
};

const char *breaker_state_name(enum breaker_state s)
{
	static const char *const names[BREAKER_STATES] = { "closed", "doubt", "open" };

	return names[s];
}

static void set_state(struct tenant *t, enum breaker_state s)
{
	double wall = s == BREAKER_OPEN ? clock_wall() : 0;

	lock(&t->lock);
	t->breaker.state = s;
	t->breaker.since_wall = wall;
	t->breaker.opened += s == BREAKER_OPEN;
	if (s == BREAKER_CLOSED)
		t->suspect = false;
	unlock(&t->lock);
}

static void stop_timers(struct tenant *t)
{
	struct ev_loop *ev = loop_ev(t->provider->loop);

	ev_timer_stop(ev, &t->watchdog.patience);
	ev_timer_stop(ev, &t->watchdog.probe);
}

/* ---- who wants it ---- */

static void refuse(struct tenant *t)
{
	char *why CLEANUP_FREE = NULL;

	lock(&t->provider->lock);
	why = t->last_message ? strdup(t->last_message) : NULL;
	unlock(&t->provider->lock);
	while (t->acquirers) {
		lock(&t->lock);
		t->breaker.refused++;
		unlock(&t->lock);
		errand_finish(t->acquirers, -EHOSTDOWN, why);
	}
}

bool breaker_holds(struct tenant *t)
{
	if (t->breaker.state == BREAKER_OPEN)
		refuse(t);
	return t->breaker.state != BREAKER_CLOSED;
}

/* ---- asking ---- */

static void probe(struct tenant *t)
{
	lock(&t->lock);
	t->breaker.probes++;
	unlock(&t->lock);
	check_begin(t);
}

static void on_probe(struct ev_loop *ev, ev_timer *w, int revents UNUSED)
{
	struct tenant *t = w->data;

	/* What else is under way has its answer soon, or ends all this. */
	if (t->flight != FLIGHT_NONE)
		return;
	ev_timer_stop(ev, w);
	probe(t);
}

static void probe_later(struct tenant *t)
{
	ev_timer *w = &t->watchdog.probe;
	int64_t pause_ms = t->watchdog.pause_ms;

	if (t->breaker.state == BREAKER_DOUBT)
		pause_ms = MAX(MIN(pause_ms, t->watchdog.until_ms - clock_ms()), 1);
	ev_timer_init(w, on_probe, 0., (ev_tstamp)pause_ms / 1e3);
	w->data = t;
	ev_timer_again(loop_ev(t->provider->loop), w);
	t->watchdog.pause_ms = MIN(t->watchdog.pause_ms * 2, PAUSE_LAST_MS);
}

void breaker_hurry(struct tenant *t)
{
	if (!ev_is_active(&t->watchdog.probe))
		return;
	ev_timer_stop(loop_ev(t->provider->loop), &t->watchdog.probe);
	t->watchdog.pause_ms = PAUSE_DOUBT_MS;
	probe_later(t);
}

static void on_patience_over(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	breaker_open(w->data, -ETIMEDOUT, NULL);
}

static void doubt(struct tenant *t, int64_t patience_ms)
{
	set_state(t, BREAKER_DOUBT);
	t->watchdog.until_ms = clock_ms() + patience_ms;
	t->watchdog.pause_ms = PAUSE_DOUBT_MS;
	probe(t);
}

void breaker_doubt(struct tenant *t)
{
	if (t->breaker.state == BREAKER_CLOSED)
		doubt(t, PATIENCE_MS);
}

void tenant_silent(struct tenant *t, struct sandbox *sb)
{
	bool same;

	lock(&t->lock);
	same = t->sb == sb;
	unlock(&t->lock);
	if (!same || t->flight != FLIGHT_NONE || t->breaker.state != BREAKER_CLOSED ||
	    t->provider->ending)
		return;
	/* A probe may hang as that operation did. */
	ev_timer_init(&t->watchdog.patience, on_patience_over, SILENT_PATIENCE_MS / 1e3, 0.);
	t->watchdog.patience.data = t;
	ev_timer_start(loop_ev(t->provider->loop), &t->watchdog.patience);
	doubt(t, SILENT_PATIENCE_MS);
}

bool breaker_is_new(const struct tenant *t)
{
	return t->breaker.state == BREAKER_CLOSED ||
	       (t->breaker.state == BREAKER_DOUBT && t->watchdog.pause_ms == PAUSE_DOUBT_MS);
}

/* ---- what came of it ---- */

void breaker_open(struct tenant *t, int error, const char *why)
{
	char *words CLEANUP_FREE = NULL;

	why = why ?: strerrordesc_np(-error);
	ev_timer_stop(loop_ev(t->provider->loop), &t->watchdog.patience);
	set_state(t, BREAKER_OPEN);
	t->watchdog.since_ms = clock_ms();
	t->watchdog.pause_ms = PAUSE_OPEN_MS;
	t->watchdog.refused = t->breaker.refused;
	log_warn("%s: sandbox %s does not answer: %s; operations fail at once until it does",
		 t->key, t->place.id, why);
	if (asprintf(&words, "the sandbox does not answer: %s", why) < 0)
		words = NULL;
	tenant_note(t, -ENOTCONN, words);
	refuse(t);
}

void breaker_missed(struct tenant *t, int error, const char *why)
{
	if (!t->aborted) {
		if (t->breaker.state == BREAKER_DOUBT && clock_ms() >= t->watchdog.until_ms)
			breaker_open(t, error, why);
		probe_later(t);
	}
	flight_end(t);
}

void breaker_answered(struct tenant *t)
{
	struct provider *p = t->provider;
	bool was_open = t->breaker.state == BREAKER_OPEN;

	stop_timers(t);
	set_state(t, BREAKER_CLOSED);
	if (was_open) {
		log_warn("%s: sandbox %s answers again after %.1f s, in which %llu operation(s) "
			 "were "
			 "refused",
			 t->key, t->place.id, (double)(clock_ms() - t->watchdog.since_ms) / 1e3,
			 (unsigned long long)(t->breaker.refused - t->watchdog.refused));
		if (p->returned && !t->aborted)
			p->returned(p->returned_ctx, t);
	}
	flight_end(t);
}

void breaker_reset(struct tenant *t)
{
	if (t->breaker.state == BREAKER_CLOSED)
		return;
	stop_timers(t);
	set_state(t, BREAKER_CLOSED);
}

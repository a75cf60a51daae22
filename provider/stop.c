/*
 * Stopping a sandbox, for whatever reason: a flight that says so in the ownership
 * store, closes the client, has the backend destroy what is ours, and leaves the
 * tenant without a sandbox whatever the backend says. What the store refuses, or
 * says nothing about, is not stopped. Leases stay counted: they are the
 * thread's, and protect the next one. Loop thread, but for the work on disk.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "log.h"
#include "paths.h"
#include "provider_i.h"
#include "registry.h"

enum { DESTROY_MS = 15000 };

/* ---- forgetting the thread ---- */

struct forgetting {
	struct work work;
	struct tenant *t; /* its flight waits */
	bool only_look;
	int error;
};

static bool wants_forgetting(const struct tenant *t)
{
	const struct errand *e;

	DL_FOREACH (t->enders, e) {
		if (e->forget)
			return true;
	}
	return false;
}

static void finish_forgetters(struct tenant *t, int error, const char *why)
{
	struct errand *e, *tmp;

	DL_FOREACH_SAFE (t->enders, e, tmp) {
		if (e->forget)
			errand_finish(e, error, why);
	}
}

static void finish_others(struct tenant *t, int error, const char *why)
{
	struct errand *e, *tmp;

	DL_FOREACH_SAFE (t->enders, e, tmp) {
		if (!e->forget)
			errand_finish(e, error, why);
	}
}

static void run_forget(struct work *w)
{
	struct forgetting *f = CONTAINER_OF(w, struct forgetting, work);
	struct tenant *t = f->t;
	const char *data = t->provider->data;

	/* What a killed start left is no file of the thread's. */
	chore_sweep_now(t);
	if (f->only_look) {
		f->error = paths_is_empty(data, t->user, t->thread);
	} else {
		f->error = paths_remove_thread(data, t->user, t->thread);
		if (f->error == 0 || f->error == -ENOENT)
			f->error = registry_remove(data, t->user, t->thread);
	}
	if (f->error == -ENOENT)
		f->error = 0;
}

static void go_on(struct tenant *t);

static void done_forget(struct work *w)
{
	struct forgetting *f = CONTAINER_OF(w, struct forgetting, work);
	struct tenant *t = f->t;
	bool only_look = f->only_look;
	int error = f->error;

	free(f);
	if (only_look && error < 0)
		finish_forgetters(t, error, error == -ENOTEMPTY ? "the thread holds files" : NULL);
	if (only_look && t->enders) {
		go_on(t);
		return;
	}
	if (!only_look) {
		t->registered &= error < 0;
		finish_forgetters(t, error, NULL);
	}
	flight_end(t);
}

/* Returns whether there was something to do: then done_forget() goes on. */
static bool forget(struct tenant *t, bool only_look)
{
	struct forgetting *f;

	if (!wants_forgetting(t))
		return false;
	if (!t->provider->data) {
		if (!only_look)
			finish_forgetters(t, 0, NULL);
		return false;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		finish_forgetters(t, -ENOMEM, NULL);
		return false;
	}
	*f = (struct forgetting){
		.work = { .run = run_forget, .done = done_forget },
		.t = t,
		.only_look = only_look,
	};
	/* A lock file that is about to go is no reason to stay; nor may the registry learn late. */
	if (t->chores > 0)
		t->put_off = f;
	else
		workers_submit(t->provider->workers, &f->work);
	return true;
}

void stop_chores_done(struct tenant *t)
{
	struct forgetting *f = STEAL(t->put_off);

	if (f)
		workers_submit(t->provider->workers, &f->work);
}

/* ---- stopping ---- */

static bool stays_warm(const struct tenant *t, int error)
{
	return error == -EBUSY && (t->reason == STOP_IDLE || t->reason == STOP_ROOM);
}

static void stopped(struct tenant *t, int error, const char *why)
{
	if (stays_warm(t, error)) {
		log_info("%s: sandbox %s goes on: somebody else uses it", t->key, t->place.id);
		hold_spare(t);
		tenant_enter(t, TENANT_WARM);
		flight_end(t);
		return;
	}
	if (error < 0 && error != -EBUSY && error != -EOPNOTSUPP)
		log_warn("%s: sandbox %s could not be stopped: %s", t->key,
			 t->place.id[0] ? t->place.id : t->id, why ?: strerrordesc_np(-error));
	chore_unlock(t);
	held_drop(t);
	tenant_enter(t, t->reason == STOP_UNREADY ? TENANT_FAILED : TENANT_COLD);
	if (t->reason == STOP_ASKED) {
		t->failures = 0;
		finish_others(t, error, why);
		if (error < 0)
			finish_forgetters(t, error, why);
		else if (forget(t, false))
			return;
	}
	flight_end(t);
}

static void on_destroyed(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	int error = op->error == -ECANCELED ? -ETIMEDOUT : op->error;
	char *why CLEANUP_FREE = STEAL(op->why);

	backend_op_clear(op);
	stopped(t, error, why);
}

/* Nobody gets it any more; its client is closed. */
static void untrack(struct tenant *t)
{
	struct provider *p = t->provider;
	struct sandbox *sb;

	lock(&p->lock);
	lock(&t->lock);
	sb = STEAL(t->sb);
	t->suspect = false;
	tenant_move(p, t, TENANT_STOPPING);
	unlock(&t->lock);
	unlock(&p->lock);
	breaker_reset(t);
	provider_dismiss(p, sb);
}

static const char *sandbox_id(const struct tenant *t)
{
	return t->place.id[0] ? t->place.id : t->id;
}

static void destroy(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	hold_condemn(t);
	untrack(t);
	flight_ask(t, on_destroyed, DESTROY_MS);
	b->ops->destroy(b, &t->op, sandbox_id(t));
}

/* It is another's, or that cannot be told: it goes on. */
static void refused(struct tenant *t, int error, const char *why)
{
	/* A mark that reaches the store later than its answer is due is not to stay there. */
	if (!t->hold && hold_begin(t, sandbox_id(t), false) == 0)
		hold_end(t);
	hold_spare(t);
	log_info("%s: sandbox %s is not stopped: %s", t->key, sandbox_id(t), why);
	switch (t->reason) {
	case STOP_IDLE:
	case STOP_ROOM:
		flight_end(t); /* warm, as it was */
		return;
	case STOP_ASKED:
		errand_finish_all(&t->enders, error, why);
		flight_end(t);
		return;
	default:
		untrack(t);
		stopped(t, 0, NULL);
	}
}

static void on_condemned(struct ownership_op *op)
{
	struct tenant *t = hold_answered(op);
	bool granted = op->error == 0 && op->verdict == OWNERSHIP_GRANTED;
	char *why CLEANUP_FREE = STEAL(op->why);
	int error = op->error;

	ownership_op_clear(op);
	if (granted && hold_begin(t, sandbox_id(t), true) == 0)
		destroy(t);
	else if (error < 0)
		refused(t, error, why ?: strerrordesc_np(-error));
	else
		refused(t, -EBUSY, "another program owns it");
}

/* Has what is ours, or what somebody wants gone, destroyed. */
static void go_on(struct tenant *t)
{
	/* Without a sandbox of our own the id may be another's. */
	if (t->reason == STOP_ASKED ? held_collides(t) : !t->ours) {
		untrack(t);
		stopped(t, 0, NULL);
	} else if (hold_is_unpublished(t)) {
		destroy(t); /* made a moment ago, and nobody was told */
	} else {
		hold_condemn(t);
		hold_ask(t, OWNERSHIP_CONDEMN, sandbox_id(t), on_condemned);
	}
}

void stop_instead(struct tenant *t, enum stop_reason reason)
{
	t->flight = FLIGHT_STOP;
	t->reason = reason;
	/* What follows a dead one is a restart, also at the second try; a stopped one's is not. */
	if (reason != STOP_UNREADY)
		t->bereaved = reason == STOP_DEAD;
	if (reason != STOP_ASKED || !forget(t, true))
		go_on(t);
}

void stop_begin(struct tenant *t, enum stop_reason reason)
{
	flight_begin(t, FLIGHT_STOP);
	stop_instead(t, reason);
}

/* ---- asked for ---- */

static void begin_end(struct errand *e)
{
	errand_wait(e, &e->tenant->enders);
	tenant_dispatch(e->tenant);
}

void tenant_destroy(struct tenant *t, struct errand *e)
{
	e->forget = false;
	errand_submit(e, t->provider, t, begin_end);
}

void tenant_forget(struct tenant *t, struct errand *e)
{
	e->forget = true;
	errand_submit(e, t->provider, t, begin_end);
}

/*
 * A provider's life: made from its configuration, shut down once, freed. What
 * it does in between is in the other files.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "ident.h"
#include "log.h"
#include "provider_i.h"

enum { START_TIMEOUT_MS = 60000, WORKERS = 2 };

static int64_t real_now_ms(void *ctx UNUSED)
{
	return clock_ms();
}

static int copy(char **to, const char *from)
{
	if (from && !(*to = strdup(from)))
		return -ENOMEM;
	return 0;
}

static int configure(struct provider *p, const struct provider_config *c)
{
	p->start_timeout_ms = c->start_timeout_ms > 0 ? c->start_timeout_ms : START_TIMEOUT_MS;
	p->idle_timeout_ms = c->idle_timeout_ms;
	p->janitor_ms = c->janitor_ms;
	p->replicas = c->replicas;
	p->auto_restart = !c->no_auto_restart;
	p->insecure = c->insecure;
	p->returned = c->returned;
	p->returned_ctx = c->returned_ctx;
	p->now_ms = c->now_ms ?: real_now_ms;
	p->now_ctx = c->now_ctx;
	p->make_id = c->make_id ?: ident_make;
	return copy(&p->data, c->data) ?: copy(&p->bearer, c->bearer) ?:
	       copy(&p->api_key, c->api_key) ?: copy(&p->cacert, c->cacert);
}

static void wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

static void free_memory(struct provider *p)
{
	backend_free(p->backend);
	ownership_free(p->ownership);
	free(p->data);
	wipe(p->bearer);
	wipe(p->api_key);
	free(p->cacert);
	pthread_cond_destroy(&p->quiet);
	lock_destroy(&p->lock);
	free(p);
}

struct beginning {
	struct provider *p;
	int error;
};

static void begin(void *ctx)
{
	struct beginning *b = ctx;

	b->error = workers_new(loop_ev(b->p->loop), WORKERS, &b->p->workers);
	if (b->error < 0)
		return;
	b->p->backend->ended = check_on_ended;
	b->p->backend->ended_ctx = b->p;
	hold_start(b->p);
	janitor_start(b->p);
}

int provider_new(const struct provider_config *config, struct provider **ret, const char **ret_why)
{
	struct provider *p = calloc(1, sizeof(*p));
	struct beginning b = { .p = p };
	pthread_condattr_t attr;
	int r;

	if (!p) {
		backend_free(config->backend);
		return -ENOMEM;
	}
	p->loop = config->loop;
	p->backend = config->backend;
	lock_init(&p->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->quiet, &attr);
	pthread_condattr_destroy(&attr);
	r = configure(p, config);
	if (r == 0 && p->data && p->data[0] != '/') {
		if (ret_why)
			*ret_why = "the data root must be an absolute path";
		r = -EINVAL;
	}
	if (r == 0)
		r = ownership_new(p->loop, config->ownership, &p->ownership, ret_why);
	if (r == 0) {
		loop_run(p->loop, begin, &b);
		r = b.error;
	}
	if (r < 0) {
		free_memory(p);
		return r;
	}
	*ret = p;
	return 0;
}

/* ---- the end ---- */

static struct tenant *next_of(struct provider *p, struct tenant *t)
{
	struct tenant *next;

	lock(&p->lock);
	next = t ? t->by_key.next : p->tenants;
	if (next)
		next->refs++;
	unlock(&p->lock);
	tenant_put(t);
	return next;
}

static void begin_end(void *ctx)
{
	struct provider *p = ctx;

	if (p->ending)
		return;
	p->ending = true;
	janitor_stop(p);
	for (struct tenant *t = next_of(p, NULL); t; t = next_of(p, t)) {
		errand_finish_all(&t->finders, -ESHUTDOWN, NULL);
		errand_finish_all(&t->acquirers, -ESHUTDOWN, NULL);
		if (t->flight == FLIGHT_NONE)
			tenant_dispatch(t);
		else if (t->flight != FLIGHT_STOP)
			start_abort(t);
	}
}

static void log_left(struct provider *p) NEEDS(p->lock)
{
	struct tenant *t;

	for (enum tenant_state s = TENANT_STARTING; s <= TENANT_STOPPING; s++) {
		DL_FOREACH (p->lists[s], t)
			log_error("%s: sandbox %s is left behind, %s", t->key, t->id,
				  tenant_state_name(s));
	}
}

int provider_shutdown(struct provider *p)
{
	int64_t until = clock_ms() + PROVIDER_SHUTDOWN_MS;
	struct timespec ts = { until / 1000, until % 1000 * 1000000 };
	int r = 0;

	assert(!loop_is_current(p->loop)); /* it would wait for itself */
	loop_run(p->loop, begin_end, p);
	lock(&p->lock);
	while (p->busy > 0 && r == 0)
		r = pthread_cond_timedwait(&p->quiet, &p->lock.mutex, &ts);
	if (p->busy == 0)
		r = 0; /* just in time */
	else
		log_left(p);
	unlock(&p->lock);
	return -r;
}

static void end_workers(void *ctx)
{
	struct provider *p = ctx;

	hold_stop(p);
	assert(!p->holds);
	orphan_free_all(p);
	workers_free(STEAL(p->workers));
}

void provider_free(struct provider *p)
{
	struct tenant *t, *tmp;

	if (!p)
		return;
	/* What is still at work may come back to its memory at any time. */
	if (provider_shutdown(p) < 0)
		return;
	loop_run(p->loop, end_workers, p);
	HASH_ITER (by_key, p->tenants, t, tmp)
		tenant_discard(t);
	free_memory(p);
}

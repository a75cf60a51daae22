/*
 * Errands: somebody waits for the provider, with a deadline and a way out. Built
 * on the client's calls. Loop thread, but for errand_submit().
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "provider_i.h"

static struct errand *of_call(struct call *c)
{
	return CONTAINER_OF(c, struct errand, call);
}

static void run_begin(struct job *job)
{
	struct errand *e = of_call(CONTAINER_OF(job, struct call, job));

	if (call_is_cancelled(&e->call))
		errand_finish(e, -ECANCELED, NULL);
	else
		e->begin(e);
}

static void run_cancel(struct job *job)
{
	struct errand *e = of_call(CONTAINER_OF(job, struct call, cancel_job));

	/* One that does not wait yet finds out when it begins. */
	if (e->list)
		errand_finish(e, -ECANCELED, NULL);
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	errand_finish(w->data, -ETIMEDOUT, NULL);
}

void errand_submit(struct errand *e, struct provider *p, struct tenant *t,
		   void (*begin)(struct errand *e))
{
	e->provider = p;
	e->tenant = t;
	e->begin = begin;
	e->list = NULL;
	ev_timer_init(&e->timer, on_timer, 0., 0.);
	e->timer.data = e;
	e->call.job.run = run_begin;
	e->call.cancel_job.run = run_cancel;
	call_begin(&e->call, p->loop);
}

void errand_wait(struct errand *e, struct errand **list)
{
	assert(!e->list);
	e->list = list;
	DL_APPEND(*list, e);
	if (e->call.timeout_ms > 0) {
		ev_timer_set(&e->timer, (ev_tstamp)e->call.timeout_ms / 1e3, 0.);
		ev_timer_start(loop_ev(e->provider->loop), &e->timer);
	}
}

void errand_finish(struct errand *e, int error, const char *why)
{
	ev_timer_stop(loop_ev(e->provider->loop), &e->timer);
	if (e->list)
		DL_DELETE(*e->list, e);
	e->list = NULL;
	call_finish(&e->call, error, why ? strdup(why) : NULL);
}

void errand_finish_all(struct errand **list, int error, const char *why)
{
	while (*list)
		errand_finish(*list, error, why);
}

/*
 * Leases: counting them, handing them out, and the client that goes with them.
 * The fast paths take one lock and do no I/O; everything that takes time is a
 * flight. Every lease is counted under the tenant's lock, in the same moment in
 * which the sandbox is known to be active.
 */
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#include "buf.h"
#include "log.h"
#include "provider_i.h"

/* ---- the fast paths; any thread ---- */

static bool is_sound(const struct tenant *t)
{
	return t->state == TENANT_ACTIVE && t->breaker.state == BREAKER_CLOSED &&
	       (!t->suspect || !t->provider->auto_restart);
}

static void tell_log(const struct tenant *t, const char *what) NEEDS(t->lock)
{
	log_topic(LOG_LEASE, "%s: sandbox %s: %s, %u lease(s)", t->key, t->id, what, t->leases);
}

int tenant_try_acquire(struct tenant *t)
{
	int64_t now = provider_now(t->provider);
	int r = -EAGAIN;

	lock(&t->lock);
	if (is_sound(t)) {
		t->leases++;
		tell_log(t, "leased");
		t->used_ms = now;
		r = 0;
	}
	unlock(&t->lock);
	return r;
}

/* The last lease of an active sandbox: parking needs the provider's lock, too. */
static int release_last(struct tenant *t)
{
	struct provider *p = t->provider;
	struct sandbox *sb = NULL;
	int r = 0;

	lock(&p->lock);
	lock(&t->lock);
	if (t->leases == 0) {
		r = -EINVAL;
	} else if (--t->leases == 0 && t->state == TENANT_ACTIVE) {
		sb = STEAL(t->sb);
		tenant_move(p, t, TENANT_WARM);
	}
	unlock(&t->lock);
	unlock(&p->lock);
	provider_dismiss(p, sb);
	return r;
}

int tenant_release(struct tenant *t)
{
	bool last = false;
	int r = 0;

	lock(&t->lock);
	if (t->leases == 0)
		r = -EINVAL;
	else if (t->leases == 1 && t->state == TENANT_ACTIVE)
		last = true;
	else
		t->leases--;
	if (r == 0 && !last)
		tell_log(t, "released");
	unlock(&t->lock);
	if (last)
		r = release_last(t);
	if (r < 0)
		log_error("%s: sandbox %s: released without a lease", t->key, t->id);
	return r;
}

struct sandbox *tenant_sandbox(struct tenant *t)
{
	int64_t now = provider_now(t->provider);
	struct sandbox *sb = NULL;

	lock(&t->lock);
	if (t->sb) {
		sb = sandbox_ref(t->sb);
		t->used_ms = now;
	}
	unlock(&t->lock);
	return sb;
}

bool tenant_speaks_of_death(int error)
{
	switch (error) {
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ECONNABORTED:
	case -EPIPE:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -EHOSTDOWN:
	case -ENOTCONN:
	case -ETIMEDOUT:
	case -EAGAIN: /* a server that is shutting down says that it is not available */
		return true;
	default:
		return false;
	}
}

bool tenant_report(struct tenant *t, struct sandbox *sb, int error)
{
	if (!tenant_speaks_of_death(error) || !t->provider->auto_restart)
		return false;
	lock(&t->lock);
	/* It may have been replaced since: then its successor is not to blame. */
	if (t->sb == sb)
		t->suspect = true;
	unlock(&t->lock);
	return true;
}

/* ---- on the loop's thread ---- */

int tenant_open_client(struct tenant *t, struct sandbox **ret, const char **ret_why)
{
	struct provider *p = t->provider;
	struct buf label CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&label, "%s: sandbox %s", t->key, t->place.id ?: t->id);
	return sandbox_new(p->loop,
			   &(struct sandbox_config){
				   .url = t->place.url,
				   .socket = t->place.socket,
				   .root = t->place.root,
				   .label = label.data,
				   .bearer = p->bearer,
				   .api_key = p->api_key,
				   .cacert = p->cacert,
				   .insecure = p->insecure,
				   .no_link_local = p->backend->ops->is_hearsay,
			   },
			   ret, ret_why);
}

/* Counts a lease for each who waits; they are told by tell_acquirers(). */
static void count_acquirers(struct tenant *t) NEEDS(t->lock)
{
	struct errand *e;
	unsigned n = 0;

	DL_COUNT(t->acquirers, e, n);
	t->leases += n;
	if (n > 0)
		t->used_ms = provider_now(t->provider);
}

/*
 * All of them have their lease: nobody may leave the list by another door now,
 * and nobody can: timers and cancellations run on this thread.
 */
static void tell_acquirers(struct tenant *t)
{
	errand_finish_all(&t->acquirers, 0, NULL);
}

bool tenant_grant(struct tenant *t)
{
	bool active;

	lock(&t->lock);
	active = t->state == TENANT_ACTIVE;
	if (active)
		count_acquirers(t);
	unlock(&t->lock);
	if (active)
		tell_acquirers(t);
	return active;
}

void tenant_install(struct tenant *t, struct sandbox *sb)
{
	struct provider *p = t->provider;
	/* Somebody wants it gone: that comes first, and those who wait get the next one. */
	bool hand_out = !t->enders;

	lock(&p->lock);
	lock(&t->lock);
	if (hand_out)
		count_acquirers(t);
	t->suspect = false;
	if (t->leases > 0)
		t->sb = STEAL(sb);
	tenant_move(p, t, t->sb ? TENANT_ACTIVE : TENANT_WARM);
	unlock(&t->lock);
	unlock(&p->lock);
	provider_dismiss(p, sb);
	t->failures = 0;
	errand_finish_all(&t->finders, 0, NULL);
	if (hand_out)
		tell_acquirers(t);
}

static void begin_acquire(struct errand *e)
{
	errand_wait(e, &e->tenant->acquirers);
	e->tenant->wanted = true;
	tenant_dispatch(e->tenant);
}

void tenant_acquire(struct tenant *t, struct errand *e)
{
	errand_submit(e, t->provider, t, begin_acquire);
}

static void begin_find(struct errand *e)
{
	errand_wait(e, &e->tenant->finders);
	tenant_dispatch(e->tenant);
}

void tenant_find(struct tenant *t, struct errand *e)
{
	errand_submit(e, t->provider, t, begin_find);
}

/*
 * provider/ under torture, with real embedded sandboxes, which are not: a rig (rig.h) per run.
 * Whatever fails, afterwards the thread can have a sandbox again, and no
 * process, lock, socket or directory of one is left.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "backend_embedded.h"
#include "clock.h"
#include "inject.h"
#include "provider_i.h"
#include "rig.h"
#include "torture.h"

enum { WAIT_MS = 30000, LATER_MS = 3600000 };

static struct rig *rig;

/* ---- a run ---- */

static int make_one(struct provider **ret)
{
	struct embedded_config config = { .data = rig->data,
					  .runtime = rig->runtime,
					  .program = getenv("SANDBOXD"),
					  .no_isolation = true };
	struct backend *b = NULL;
	char *why = NULL;
	int r = LOUD(backend_embedded_new(rig->loop, &config, &b, &why));

	free(why);
	if (r < 0)
		return r;
	return LOUD(provider_new(
		&(struct provider_config){
			.loop = rig->loop,
			.backend = b,
			.data = rig->data,
			.start_timeout_ms = WAIT_MS,
			.idle_timeout_ms = LATER_MS / 2,
			.replicas = 2,
			.now_ms = fake_clock_now,
			.now_ctx = &rig->clock,
		},
		ret, NULL));
}

static void must(const char *what, int r)
{
	DEMAND_THAT(r == 0, "%s, once everything works: %s", what, strerrorname_np(-r));
}

static void begin(void)
{
	void *state;

	DEMAND(rig_setup(&state) == 0);
	rig = state;
	DEMAND(make_one(&rig->provider) == 0);
	DEMAND(rig_reconcile(rig->provider) == 0);
}

/* Failures are not tried again at once. */
static void later(void)
{
	fake_clock_add(&rig->clock, LATER_MS / 4);
}

/* Also looks for what is left, but for a lock's file that the next start takes along. */
static void end(void)
{
	struct tenant *t = rig_tenant(rig, "a");
	void *state = rig;

	later();
	must("destroy", rig_destroy(t));
	DEMAND(rig_acquire_ms(t, WAIT_MS) == 0 && tenant_release(t) == 0);
	tenant_put(t);
	DEMAND(rig_teardown(&state) == 0);
}

static int acquire(struct tenant *t)
{
	int r = LOUD(tenant_try_acquire(t));

	if (r == -EAGAIN)
		r = LOUD(rig_acquire_ms(t, WAIT_MS));
	return r;
}

/* With failures: what was acquired can be used, or says that it cannot be. */
static void use(struct tenant *t)
{
	if (!ENDED(acquire(t)))
		return;
	(void)ENDED(LOUD(rig_ping(t)));
	DEMAND(LOUD(tenant_release(t)) == 0);
}

/* Without: everything works. */
static void use_again(const char *thread)
{
	struct tenant *t = rig_tenant(rig, thread);

	later();
	must("acquire", rig_acquire_ms(t, WAIT_MS));
	/* One that nobody has found dead yet. */
	if (rig_ping(t) < 0) {
		DEMAND(tenant_release(t) == 0);
		DEMAND(rig_acquire_ms(t, WAIT_MS) == 0);
		DEMAND(rig_ping(t) == 0);
	}
	DEMAND_THAT(rig_leases(t) == 1, "%u leases", rig_leases(t));
	DEMAND(tenant_release(t) == 0);
	DEMAND(rig_state(t) == TENANT_WARM);
	tenant_put(t);
}

static struct tenant *get(struct provider *p, const char *thread)
{
	struct tenant *t = NULL;

	return ENDED(LOUD(tenant_get(p, "u", thread, &t))) ? t : NULL;
}

/* ---- scenarios ---- */

static void life(void)
{
	void *state;

	DEMAND(rig_setup(&state) == 0);
	rig = state;
	inject_arm();
	if (ENDED(make_one(&rig->provider))) {
		(void)ENDED(LOUD(rig_reconcile(rig->provider)));
		DEMAND(LOUD(provider_shutdown(rig->provider)) == 0);
		LOUDLY(provider_free(STEAL(rig->provider)));
	}
	inject_disarm();
	DEMAND(make_one(&rig->provider) == 0);
	use_again("a");
	end();
}

static void start(void)
{
	struct tenant *t;

	begin();
	inject_arm();
	t = get(rig->provider, "a");
	if (t) {
		use(t);
		(void)ENDED(LOUD(rig_find(t)));
		LOUDLY(tenant_put(t));
	}
	inject_disarm();
	use_again("a");
	end();
}

static void destroy(void)
{
	struct tenant *t;

	begin();
	t = rig_tenant(rig, "a");
	DEMAND(rig_acquire(t) == 0 && tenant_release(t) == 0);
	inject_arm();
	if (ENDED(LOUD(rig_destroy(t))))
		DEMAND_THAT(rig_processes(rig) == 0, "destroyed, but it runs");
	inject_disarm();
	use_again("a");
	inject_arm();
	(void)ENDED(LOUD(rig_forget(t)));
	inject_disarm();
	use_again("a");
	DEMAND(rig_destroy(t) == 0 && rig_processes(rig) == 0);
	tenant_put(t);
	end();
}

static void reclaim(void)
{
	struct tenant *t;

	begin();
	t = rig_tenant(rig, "a");
	DEMAND(rig_acquire(t) == 0);
	inject_arm();
	DEMAND(LOUD(tenant_release(t)) == 0);
	use(t); /* the same one */
	inject_disarm();
	use_again("a");
	tenant_put(t);
	end();
}

static void restart(void)
{
	struct tenant *t;

	begin();
	t = rig_tenant(rig, "a");
	DEMAND(rig_acquire(t) == 0 && rig_ping(t) == 0);
	rig_kill(rig, t);
	inject_arm();
	(void)ENDED(LOUD(rig_ping(t)));
	use(t); /* another one */
	DEMAND(LOUD(tenant_release(t)) == 0);
	inject_disarm();
	use_again("a");
	tenant_put(t);
	end();
}

/* Two others want room; then nobody has wanted anything for long. */
static void janitor(void)
{
	static const char *const threads[] = { "a", "b" };

	begin();
	for (size_t i = 0; i < 2; i++)
		use_again(threads[i]);
	inject_arm();
	later();
	(void)ENDED(LOUD(rig_tick(rig->provider)));
	fake_clock_add(&rig->clock, LATER_MS);
	(void)ENDED(LOUD(rig_tick(rig->provider)));
	inject_disarm();
	/* One that could not be stopped is found again, and is idle from then on. */
	for (unsigned i = 0; i < 2; i++) {
		fake_clock_add(&rig->clock, LATER_MS);
		must("a round", rig_tick(rig->provider));
	}
	DEMAND_THAT(rig_processes(rig) == 0, "idle ones still run");
	use_again("a");
	end();
}

/* Another program on the same directories uses what the first one made. */
static void peer(void)
{
	struct provider *p = NULL;
	struct tenant *mine, *t;

	begin();
	mine = rig_tenant(rig, "a");
	DEMAND(rig_acquire(mine) == 0);
	inject_arm();
	if (ENDED(make_one(&p))) {
		t = get(p, "a");
		if (t) {
			(void)ENDED(LOUD(rig_find(t)));
			use(t);
			LOUDLY(tenant_put(t));
		}
		DEMAND(LOUD(provider_shutdown(p)) == 0);
		LOUDLY(provider_free(p));
	}
	inject_disarm();
	DEMAND_THAT(rig_ping(mine) == 0, "somebody else's leaving stopped it");
	DEMAND(tenant_release(mine) == 0);
	tenant_put(mine);
	use_again("a");
	end();
}

/* What there is, for status and listings. */
static void status(void)
{
	struct tenant_list all;
	char **names;
	size_t n;

	begin();
	use_again("a");
	inject_arm();
	if (ENDED(LOUD(provider_threads(rig->provider, "u", &names, &n)))) {
		DEMAND_THAT(n == 1 && strcmp(names[0], "a") == 0, "%zu threads", n);
		free(names[0]);
		free(names);
	}
	if (ENDED(LOUD(provider_status(rig->provider, &all)))) {
		DEMAND(all.count == 1);
		tenant_list_release(&all);
	}
	inject_disarm();
	DEMAND(provider_status(rig->provider, &all) == 0);
	tenant_list_release(&all);
	end();
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "life", life },       { "start", start },     { "destroy", destroy },
		{ "reclaim", reclaim }, { "restart", restart }, { "janitor", janitor },
		{ "peer", peer },       { "status", status },
	};

	return torture_main(argc, argv,
			    &(struct torture_area){ "provider", scenarios, ARRAY_SIZE(scenarios) });
}

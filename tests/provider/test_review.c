/*
 * Corners of the provider that no other file's subject covers: what callers may
 * do inside done(), and what a thread's record costs or protects when its
 * sandbox is gone.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ident.h"
#include "lock.h"
#include "rig.h"

enum { LONG_MS = 60000, IDLE_MS = 10000, FAILED_KEPT_MS = 600000 };

/* ---- inside done() ---- */

/* One errand, used again and again by its own done(). */
struct chain {
	struct errand e;
	struct tenant *t;
	unsigned step;
	int errors[8]; /* loop thread until over */
	struct lock lock;
	pthread_cond_t cond;
	bool over; /* guarded by lock */
};

static void on_step(struct call *call);

static void next_step(struct chain *c, void (*fn)(struct tenant *t, struct errand *e))
{
	call_init(&c->e.call, LONG_MS);
	c->e.call.done = on_step;
	c->e.call.ctx = c;
	fn(c->t, &c->e);
}

static void on_step(struct call *call)
{
	struct chain *c = call->ctx;

	c->errors[c->step++] = call->error;
	call_release(call);
	switch (c->step) {
	case 1: /* acquired: give it back at once and want it again */
		c->errors[c->step++] = tenant_release(c->t);
		next_step(c, tenant_acquire);
		return;
	case 3: /* stopped under the lease */
		next_step(c, tenant_destroy);
		return;
	case 4:
		next_step(c, tenant_find);
		return;
	case 5:
		next_step(c, tenant_acquire);
		return;
	case 6:
		c->errors[c->step++] = tenant_release(c->t);
		c->errors[c->step++] = tenant_release(c->t);
		tenant_put(c->t);
		break;
	default:
		break;
	}
	lock(&c->lock);
	c->over = true;
	pthread_cond_signal(&c->cond);
	unlock(&c->lock);
}

/* Everything may be asked for, and everything given up, where an errand ends. */
static void test_done_may_do_anything(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct chain c = { .t = rig_tenant(r, "a") };
	static const int expected[8] = { 0, 0, 0, 0, -ENOENT, 0, 0, 0 };

	lock_init(&c.lock);
	pthread_cond_init(&c.cond, NULL);
	next_step(&c, tenant_acquire);
	lock(&c.lock);
	while (!c.over)
		pthread_cond_wait(&c.cond, &c.lock.mutex);
	unlock(&c.lock);
	assert_int_equal(c.step, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(c.errors[i], expected[i]);
	pthread_cond_destroy(&c.cond);
	lock_destroy(&c.lock);
}

struct last_ref {
	struct errand e;
	struct tenant *t;
};

static void put_and_free(struct call *call)
{
	struct last_ref *l = call->ctx;

	call_release(call);
	tenant_put(l->t);
	free(l);
}

/* Begins it with an owner that gives up errand and tenant in its done(). */
static void let_go(struct tenant *t, void (*fn)(struct tenant *t, struct errand *e))
{
	struct last_ref *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	l->t = t;
	call_init(&l->e.call, LONG_MS);
	l->e.call.done = put_and_free;
	l->e.call.ctx = l;
	fn(t, &l->e);
}

/* The last reference goes in done(), on every way on which a record can go with it. */
static void test_last_reference_goes_in_done(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant_list list;
	struct errand round;

	let_go(rig_tenant(r, "find"), tenant_find);
	let_go(rig_tenant(r, "destroy"), tenant_destroy);
	let_go(rig_tenant(r, "forget"), tenant_forget);
	/* and while the program ends */
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_NONE);
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_HANG, .times = FAULTY_FOREVER);
	let_go(rig_tenant(r, "hangs"), tenant_find);
	let_go(rig_tenant(r, "hangs"), tenant_acquire);
	let_go(rig_tenant(r, "hangs"), tenant_forget);
	assert_true(faulty_wait(r->faults, ASK_DISCOVER, 2, LONG_MS));
	rig_begin_round(&round, provider_tick, r->provider);
	assert_int_equal(provider_shutdown(r->provider), 0);
	(void)rig_end(&round); /* it may have been over before the end */
	assert_int_equal(provider_status(r->provider, &list), 0);
	assert_int_equal(list.count, 0);
	tenant_list_release(&list);
}

/* ---- words for a bad configuration ---- */

static void test_new_needs_no_room_for_words(void **state)
{
	struct rig *r = *state;
	struct provider_config config = { .loop = r->loop, .data = "not/absolute" };
	struct provider *p = NULL;
	const char *why = NULL;

	assert_int_equal(provider_new(&config, &p, NULL), -EINVAL);
	assert_int_equal(provider_new(&config, &p, &why), -EINVAL);
	assert_non_null(why);
	assert_null(p);
}

/* ---- records ---- */

static size_t count_records(struct rig *r)
{
	struct tenant_list list;
	size_t n;

	assert_int_equal(provider_status(r->provider, &list), 0);
	n = list.count;
	tenant_list_release(&list);
	return n;
}

/* The reason of a failure is kept for a while, not for ever: names come from anybody. */
static void test_failed_records_do_not_pile_up(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct tenant *held = rig_tenant(r, "held");
	char name[16];

	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_FAIL, .error = -EIO,
		     .times = FAULTY_FOREVER);
	assert_int_equal(rig_acquire(held), -EIO);
	for (unsigned i = 0; i < 10; i++) {
		struct tenant *t;

		snprintf(name, sizeof(name), "t%u", i);
		t = rig_tenant(r, name);
		assert_int_equal(rig_acquire(t), -EIO);
		assert_true(rig_wait_state(t, TENANT_FAILED));
		tenant_put(t);
	}
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(count_records(r), 11);
	fake_clock_add(&r->clock, FAILED_KEPT_MS);
	/* Who has just been told may still be held for a moment: the next round takes it. */
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(rig_tick(r->provider), 0);
		if (count_records(r) == 1)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	assert_int_equal(count_records(r), 1);
	assert_int_equal(rig_state(held), TENANT_FAILED);
	tenant_put(held);
}

/* A lease protects the thread's next sandbox, also one that was adopted meanwhile. */
static void test_idle_spares_an_adopted_one_under_a_lease(void **state)
{
	struct rig *r = rig_start(
		state, &(struct rig_options){ .idle_timeout_ms = IDLE_MS, .replicas = 1 });
	struct tenant *t = rig_tenant(r, "a"), *other = rig_tenant(r, "b");

	assert_int_equal(rig_acquire(t), 0);
	FAULTY_ORDER(r->faults, ASK_DESTROY, .fault = FAULT_FAIL, .error = -EIO);
	assert_int_equal(rig_destroy(t), -EIO);
	assert_int_equal(rig_leases(t), 1);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_leases(t), 1);

	fake_clock_add(&r->clock, 2 * IDLE_MS);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);
	assert_int_equal(rig_acquire(other), 0); /* nor to make room */
	assert_int_equal(tenant_release(other), 0);
	assert_int_equal(rig_state(t), TENANT_WARM);

	assert_int_equal(tenant_release(t), 0);
	assert_int_equal(rig_tick(r->provider), 0);
	assert_int_equal(rig_state(t), TENANT_COLD);
	tenant_put(t);
	tenant_put(other);
}

/* ---- replicas ---- */

/* Who only looks will make none: no room is needed for him. */
static void test_finds_evict_nobody(void **state)
{
	struct rig *r = rig_start(state, &(struct rig_options){ .replicas = 2 });
	static const char *const names[4] = { "c", "d", "e", "f" };
	struct tenant *a = rig_tenant(r, "a"), *b = rig_tenant(r, "b"), *g = rig_tenant(r, "g");
	struct tenant *looked[4];
	struct errand finds[4];

	assert_int_equal(rig_acquire(a), 0);
	assert_int_equal(tenant_release(a), 0);
	assert_int_equal(rig_acquire(b), 0);
	assert_int_equal(tenant_release(b), 0);
	FAULTY_ORDER(r->faults, ASK_DISCOVER, .fault = FAULT_HANG, .times = 4);
	for (unsigned i = 0; i < 4; i++) {
		looked[i] = rig_tenant(r, names[i]);
		rig_begin(&finds[i], tenant_find, looked[i]);
	}
	assert_true(faulty_wait(r->faults, ASK_DISCOVER, 6, LONG_MS));
	assert_int_equal(rig_acquire(g), 0);
	assert_true(rig_wait_state(a, TENANT_COLD));
	assert_int_equal(rig_state(b), TENANT_WARM);
	faulty_resume(r->faults, ASK_DISCOVER);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(rig_end(&finds[i]), -ENOENT);
		tenant_put(looked[i]);
	}
	assert_int_equal(tenant_release(g), 0);
	tenant_put(a);
	tenant_put(b);
	tenant_put(g);
}

/* ---- sandboxes under older ids ---- */

/* A backend with one sandbox of somebody else's under an older id, and perhaps one of ours. */
struct old_world {
	struct backend b;
	char old_id[SANDBOX_ID_LEN + 1];
	char socket[256]; /* something that answers */
	bool list;        /* one with the right id, too, which may be adopted */
	unsigned destroyed;
};

static void fill(struct old_world *w, struct place *p, const char *id)
{
	snprintf(p->id, sizeof(p->id), "%s", id);
	p->socket = strdup(w->socket);
	assert(p->socket);
}

static void old_create(struct backend *b, struct backend_op *op, const struct whom *whom)
{
	backend_answer(b, op, -EPERM, "none is made here");
}

static void old_destroy(struct backend *b, struct backend_op *op, const char *id)
{
	((struct old_world *)b)->destroyed++;
	backend_answer(b, op, 0, NULL);
}

static void old_is_alive(struct backend *b, struct backend_op *op, const char *id)
{
	op->alive = true;
	backend_answer(b, op, 0, NULL);
}

static void old_discover(struct backend *b, struct backend_op *op, const char *id)
{
	struct old_world *w = (struct old_world *)b;
	bool is = strcmp(id, w->old_id) == 0;

	if (is)
		fill(w, &op->place, id);
	backend_answer(b, op, is ? 0 : -ENOENT, NULL);
}

static void old_adopt(struct backend *b, struct backend_op *op, const char *id)
{
	struct old_world *w = (struct old_world *)b;
	bool is = strcmp(id, w->old_id) != 0;

	if (is)
		fill(w, &op->place, id);
	backend_answer(b, op, is ? 0 : -EBUSY, NULL);
}

static void old_list(struct backend *b, struct backend_op *op)
{
	struct old_world *w = (struct old_world *)b;

	if (w->list) {
		char id[SANDBOX_ID_LEN + 1];

		op->places = calloc(1, sizeof(*op->places));
		assert(op->places);
		op->nplaces = 1;
		ident_make("u", "x", id);
		fill(w, &op->places[0], id);
		op->places[0].user = strdup("u");
		op->places[0].thread = strdup("x");
	}
	backend_answer(b, op, 0, NULL);
}

static void old_cancel(struct backend *b, struct backend_op *op)
{
	/* All is answered at once. */
}

static void old_free(struct backend *b)
{
}

static const struct backend_ops old_ops = {
	.name = "old",
	.has_old_ids = true,
	.create = old_create,
	.destroy = old_destroy,
	.is_alive = old_is_alive,
	.discover = old_discover,
	.adopt = old_adopt,
	.list_running = old_list,
	.cancel = old_cancel,
	.free = old_free,
};

/* A provider on such a backend; what answers is a sandbox of the rig's, of the thread "x". */
static struct provider *start_old_world(struct rig *r, struct old_world *w)
{
	struct tenant *t = rig_tenant(r, "x");
	struct provider *p = NULL;

	assert_int_equal(rig_acquire(t), 0);
	snprintf(w->socket, sizeof(w->socket), "%s", rig_run_path(r, t, "sock"));
	tenant_put(t);
	w->b = (struct backend){ .ops = &old_ops, .loop = r->loop };
	ident_form("u", "x", 2, w->old_id);
	assert_int_equal(
		provider_new(&(struct provider_config){ .loop = r->loop, .backend = &w->b }, &p,
			     NULL),
		0);
	assert_int_equal(rig_reconcile(p), 0);
	return p;
}

/* What was found under an older id does not become ours because there is one with the right id. */
static void test_adopting_takes_the_one_that_was_listed(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct old_world w = { 0 };
	struct provider *p = start_old_world(r, &w);
	struct tenant *t = rig_tenant_of(p, "u", "x");

	assert_int_equal(rig_acquire(t), 0);
	assert_false(rig_is_ours(t));
	w.list = true;
	assert_int_equal(rig_tick(p), 0);
	assert_false(rig_is_ours(t));
	tenant_put(t);
	assert_int_equal(provider_shutdown(p), 0);
	assert_int_equal(w.destroyed, 0);
	provider_free(p);
}

/* The oldest ids know no user: two users' threads of one name must not share a sandbox. */
static void test_an_older_id_serves_one_thread_only(void **state)
{
	struct rig *r = rig_start(state, NULL);
	struct old_world w = { 0 };
	struct provider *p = start_old_world(r, &w);
	struct tenant *t = rig_tenant_of(p, "u", "x"), *other = rig_tenant_of(p, "v", "x");

	assert_int_equal(rig_acquire(t), 0);
	assert_int_equal(rig_acquire(other), -EPERM);
	assert_null(tenant_sandbox(other));
	assert_int_equal(rig_ping(t), 0);
	tenant_put(t);
	tenant_put(other);
	provider_free(p);
	assert_int_equal(w.destroyed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_done_may_do_anything),
		RIG_TEST(test_last_reference_goes_in_done),
		RIG_TEST(test_new_needs_no_room_for_words),
		RIG_TEST(test_failed_records_do_not_pile_up),
		RIG_TEST(test_idle_spares_an_adopted_one_under_a_lease),
		RIG_TEST(test_finds_evict_nobody),
		RIG_TEST(test_adopting_takes_the_one_that_was_listed),
		RIG_TEST(test_an_older_id_serves_one_thread_only),
	};

	return RIG_RUN(tests);
}

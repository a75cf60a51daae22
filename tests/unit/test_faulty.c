/* tests/lib/faulty.c: every fault is what it says, and without orders nothing is changed. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend_url.h"
#include "clock.h"
#include "daemon.h"
#include "fake_clock.h"
#include "faulty.h"

#define ID "aaaaaaaaaaaaaaaa"

/* A backend that says yes to everything, or what it is told; loop thread but for `error`. */
struct yes {
	struct backend base;
	_Atomic int error;
	_Atomic unsigned asked[ASK_KINDS], cancelled, forgotten, tended;
	_Atomic bool silent; /* until cancelled */
};

static void reply(struct backend *b, struct backend_op *op, enum ask_kind kind, const char *id)
{
	struct yes *y = (struct yes *)b;

	y->asked[kind]++;
	op->priv = y;
	if (y->silent)
		return;
	if (y->error == 0 && (kind == ASK_CREATE || kind == ASK_DISCOVER || kind == ASK_ADOPT)) {
		snprintf(op->place.id, sizeof(op->place.id), "%s", id);
		op->place.socket = strdup("/real");
		op->place.user = strdup("u");
	}
	op->alive = kind == ASK_IS_ALIVE && y->error == 0;
	backend_answer(b, op, y->error, y->error ? "the inner one" : NULL);
}

static void yes_create(struct backend *b, struct backend_op *op, const struct whom *whom)
{
	/* what a wrapper passes on is what it got */
	if (strcmp(whom->user, "u") != 0 || strcmp(whom->thread, "t") != 0)
		abort();
	reply(b, op, ASK_CREATE, whom->id);
}

static void yes_destroy(struct backend *b, struct backend_op *op, const char *id)
{
	reply(b, op, ASK_DESTROY, id);
}

static void yes_is_alive(struct backend *b, struct backend_op *op, const char *id)
{
	reply(b, op, ASK_IS_ALIVE, id);
}

static void yes_discover(struct backend *b, struct backend_op *op, const char *id)
{
	reply(b, op, ASK_DISCOVER, id);
}

static void yes_adopt(struct backend *b, struct backend_op *op, const char *id)
{
	reply(b, op, ASK_ADOPT, id);
}

static void yes_list_running(struct backend *b, struct backend_op *op)
{
	op->places = calloc(1, sizeof(*op->places));
	op->nplaces = 1;
	snprintf(op->places[0].id, sizeof(op->places[0].id), ID);
	op->places[0].socket = strdup("/real");
	reply(b, op, ASK_LIST_RUNNING, "");
}

static void yes_forget(struct backend *b, const char *id UNUSED)
{
	((struct yes *)b)->forgotten++;
}

static void yes_tend(struct backend *b)
{
	((struct yes *)b)->tended++;
}

static void yes_cancel(struct backend *b, struct backend_op *op)
{
	((struct yes *)b)->cancelled++;
	if (op->priv)
		backend_answer(b, op, -ECANCELED, NULL);
}

static void yes_free(struct backend *b)
{
	free(b);
}

static const struct backend_ops yes_ops = {
	.name = "yes",
	.has_old_ids = true,
	.is_shared = true,
	.create = yes_create,
	.destroy = yes_destroy,
	.is_alive = yes_is_alive,
	.discover = yes_discover,
	.adopt = yes_adopt,
	.list_running = yes_list_running,
	.forget = yes_forget,
	.tend = yes_tend,
	.cancel = yes_cancel,
	.free = yes_free,
};

struct room {
	struct loop *loop;
	struct yes *yes;
	struct backend *b;
	struct faulty *f;
};

static int setup(void **state)
{
	struct room *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	assert_int_equal(loop_new(&r->loop), 0);
	r->yes = calloc(1, sizeof(*r->yes));
	assert_non_null(r->yes);
	r->yes->base = (struct backend){ .ops = &yes_ops, .loop = r->loop };
	r->b = faulty_new(&r->yes->base, &r->f);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct room *r = *state;

	backend_free(r->b);
	loop_free(r->loop);
	free(r);
	return 0;
}

/* Asks and forgets all but the error and whether it lives. */
static int quick(struct room *r, enum ask_kind kind, bool *ret_alive)
{
	struct ask a;
	int error = ask(&a, r->b, kind, ID);

	if (ret_alive)
		*ret_alive = a.op.alive;
	ask_release(&a);
	return error;
}

static void test_without_orders_nothing_is_changed(void **state)
{
	struct room *r = *state;
	struct faulty_event e;
	struct ask a;

	for (unsigned kind = 0; kind < ASK_KINDS; kind++) {
		assert_int_equal(ask(&a, r->b, kind, ID), 0);
		assert_null(a.op.why);
		assert_int_equal(a.op.alive, kind == ASK_IS_ALIVE);
		if (kind == ASK_CREATE || kind == ASK_DISCOVER || kind == ASK_ADOPT) {
			assert_string_equal(a.op.place.id, ID);
			assert_string_equal(a.op.place.socket, "/real");
			assert_string_equal(a.op.place.user, "u");
		}
		assert_int_equal(a.op.nplaces, kind == ASK_LIST_RUNNING);
		ask_release(&a);
		r->yes->error = -EIO;
		assert_int_equal(ask(&a, r->b, kind, ID), -EIO);
		assert_string_equal(a.op.why, "the inner one");
		assert_int_equal(a.op.nplaces, 0);
		ask_release(&a);
		r->yes->error = 0;
		assert_int_equal(faulty_count(r->f, kind), 2);
		assert_int_equal(faulty_answered(r->f, kind), 2);
		assert_int_equal(r->yes->asked[kind], 2);
		assert_true(faulty_event(r->f, 2 * kind, &e));
		assert_int_equal(e.kind, kind);
		assert_string_equal(e.id, kind == ASK_LIST_RUNNING ? "" : ID);
	}
	assert_false(faulty_event(r->f, 2 * ASK_KINDS, &e));
	r->b->ops->forget(r->b, ID);
	r->b->ops->tend(r->b);
	assert_int_equal(r->yes->forgotten, 1);
	assert_int_equal(r->yes->tended, 1);
	assert_string_equal(r->b->ops->name, "yes");
	assert_true(r->b->ops->has_old_ids && r->b->ops->is_shared);
}

static void test_fail_and_after(void **state)
{
	struct room *r = *state;
	struct ask a;

	for (unsigned kind = 0; kind < ASK_KINDS; kind++) {
		FAULTY_ORDER(r->f, kind, .fault = FAULT_FAIL, .error = -ENOSPC, .why = "full");
		FAULTY_ORDER(r->f, kind, .fault = FAULT_AFTER, .error = -EIO);
		assert_int_equal(ask(&a, r->b, kind, ID), -ENOSPC);
		assert_string_equal(a.op.why, "full");
		ask_release(&a);
		assert_int_equal(r->yes->asked[kind], 0);
		assert_int_equal(ask(&a, r->b, kind, ID), -EIO);
		assert_null(a.op.why);
		assert_null(a.op.place.socket);
		assert_null(a.op.places);
		ask_release(&a);
		assert_int_equal(r->yes->asked[kind], 1);
		assert_int_equal(quick(r, kind, NULL), 0);
	}
}

static void test_how_often(void **state)
{
	struct room *r = *state;

	FAULTY_ORDER(r->f, ASK_CREATE, .fault = FAULT_NONE, .times = 2);
	FAULTY_ORDER(r->f, ASK_CREATE, .fault = FAULT_FAIL, .error = -EIO, .times = 3);
	FAULTY_ORDER(r->f, ASK_DISCOVER, .fault = FAULT_FAIL, .error = -EBUSY,
		     .times = FAULTY_FOREVER);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(quick(r, ASK_CREATE, NULL), i >= 2 && i < 5 ? -EIO : 0);
		assert_int_equal(quick(r, ASK_DISCOVER, NULL), -EBUSY);
	}
	faulty_clear(r->f);
	assert_int_equal(quick(r, ASK_DISCOVER, NULL), 0);
}

static void test_hang(void **state)
{
	const struct whom whom = { .id = ID, .user = "u", .thread = "t" };
	struct room *r = *state;
	struct ask a, other;

	assert_false(faulty_wait(r->f, ASK_CREATE, 1, 10));
	for (unsigned kind = 0; kind < ASK_KINDS; kind++) {
		enum ask_kind another = (kind + 1) % ASK_KINDS;
		unsigned before = faulty_count(r->f, kind);

		FAULTY_ORDER(r->f, kind, .fault = FAULT_HANG, .times = 3);
		ask_start(&a, r->b, kind, &whom);
		ask_start(&other, r->b, kind, &whom);
		assert_true(faulty_wait(r->f, kind, before + 2, 20000));
		faulty_resume(r->f, another);
		/* jobs run in order: that one has done what it can */
		FAULTY_ORDER(r->f, another, .fault = FAULT_FAIL, .error = -EIO);
		assert_int_equal(quick(r, another, NULL), -EIO);
		assert_false(ask_has_ended(&a));
		assert_false(ask_has_ended(&other));
		faulty_resume(r->f, kind);
		assert_true(ask_wait(&a, 20000));
		assert_true(ask_wait(&other, 20000));
		assert_int_equal(a.op.error, 0);
		assert_int_equal(other.op.error, 0);
		ask_release(&a);
		ask_release(&other);
		assert_int_equal(r->yes->asked[kind], 2);
		ask_start(&a, r->b, kind, &whom);
		ask_cancel(&a);
		assert_true(ask_wait(&a, 20000));
		assert_int_equal(a.op.error, -ECANCELED);
		ask_release(&a);
		assert_int_equal(r->yes->asked[kind], 2);
	}
	assert_int_equal(r->yes->cancelled, 0);
}

static void test_slow(void **state)
{
	const struct whom whom = { .id = ID };
	struct room *r = *state;
	int64_t begin = clock_ms();
	struct ask a;

	FAULTY_ORDER(r->f, ASK_IS_ALIVE, .fault = FAULT_SLOW, .ms = 80);
	FAULTY_ORDER(r->f, ASK_IS_ALIVE, .fault = FAULT_SLOW, .ms = 1000000);
	assert_int_equal(quick(r, ASK_IS_ALIVE, NULL), 0);
	assert_true(clock_ms() - begin >= 75);
	ask_start(&a, r->b, ASK_IS_ALIVE, &whom);
	assert_true(faulty_wait(r->f, ASK_IS_ALIVE, 2, 20000));
	ask_cancel(&a);
	assert_true(ask_wait(&a, 20000));
	assert_int_equal(a.op.error, -ECANCELED);
	ask_release(&a);
	assert_int_equal(r->yes->asked[ASK_IS_ALIVE], 1);
}

static void test_cancel_reaches_the_inner_one(void **state)
{
	const struct whom whom = { .id = ID };
	struct room *r = *state;
	struct ask a;

	r->yes->silent = true;
	ask_start(&a, r->b, ASK_DESTROY, &whom);
	assert_true(faulty_wait(r->f, ASK_DESTROY, 1, 20000));
	ask_cancel(&a);
	assert_true(ask_wait(&a, 20000));
	assert_int_equal(a.op.error, -ECANCELED);
	ask_release(&a);
	assert_int_equal(r->yes->cancelled, 1);
}

static void test_lies(void **state)
{
	static const enum ask_kind places[] = { ASK_CREATE, ASK_DISCOVER, ASK_ADOPT };
	struct room *r = *state;
	bool alive = true;
	struct ask a;

	FAULTY_ORDER(r->f, ASK_IS_ALIVE, .fault = FAULT_WRONG);
	assert_int_equal(quick(r, ASK_IS_ALIVE, &alive), 0);
	assert_false(alive);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		FAULTY_ORDER(r->f, places[i], .fault = FAULT_WRONG, .times = 2);
		assert_int_equal(ask(&a, r->b, places[i], ID), 0);
		assert_string_equal(a.op.place.id, ID);
		assert_string_not_equal(a.op.place.socket, "/real");
		assert_int_equal(access(a.op.place.socket, F_OK), -1);
		ask_release(&a);
		/* only discover finds what is not there; other errors are told */
		r->yes->error = -ENOENT;
		assert_int_equal(quick(r, places[i], NULL),
				 places[i] == ASK_DISCOVER ? 0 : -ENOENT);
		r->yes->error = 0;
	}
	FAULTY_ORDER(r->f, ASK_LIST_RUNNING, .fault = FAULT_WRONG);
	assert_int_equal(ask(&a, r->b, ASK_LIST_RUNNING, ID), 0);
	assert_int_equal(a.op.nplaces, 2);
	assert_string_equal(a.op.places[0].id, ID);
	assert_string_equal(a.op.places[1].id, FAULTY_MADE_UP);
	ask_release(&a);
}

static pid_t pid_of(void *ctx, const char *id)
{
	return strcmp(id, ID) == 0 ? *(pid_t *)ctx : 0;
}

/* Around a real sandbox: it answers, and is dead when that is told. */
static void test_die(void **state UNUSED)
{
	struct daemon *d = daemon_start(NULL);
	struct url_config config = {
		.sandbox.socket = d ? daemon_socket(d) : NULL, .user = "u", .thread = "t", .id = ID
	};
	struct backend *inner = NULL, *b;
	struct faulty *f;
	struct loop *loop;
	struct ask a;
	pid_t pid;

	assert_non_null(d);
	pid = daemon_pid(d);
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(backend_url_new(loop, &config, &inner, NULL), 0);
	b = faulty_new(inner, &f);
	assert_null(b->ops->adopt);
	assert_null(b->ops->list_running);
	FAULTY_ORDER(f, ASK_DISCOVER, .fault = FAULT_DIE);
	assert_int_equal(ask(&a, b, ASK_DISCOVER, ID), 0); /* nobody knows the process */
	ask_release(&a);
	faulty_set_pid_of(f, pid_of, &pid);
	FAULTY_ORDER(f, ASK_DISCOVER, .fault = FAULT_DIE, .times = 2);
	assert_int_equal(ask(&a, b, ASK_DISCOVER, "bbbbbbbbbbbbbbbb"), -ENOENT);
	ask_release(&a);
	assert_int_equal(kill(pid, 0), 0);
	assert_int_equal(ask(&a, b, ASK_DISCOVER, ID), 0);
	assert_string_equal(a.op.place.socket, daemon_socket(d));
	ask_release(&a);
	daemon_kill(d, SIGKILL);
	assert_true(ask(&a, b, ASK_IS_ALIVE, ID) < 0);
	ask_release(&a);
	backend_free(b);
	loop_free(loop);
	assert_int_equal(daemon_stop(d), 0);
}

static void test_the_clock_moves_when_told(void **state UNUSED)
{
	struct fake_clock clock = FAKE_CLOCK_INIT;
	int64_t before = fake_clock_now(&clock);

	assert_true(before > 0);
	assert_true(fake_clock_now(&clock) == before);
	fake_clock_add(&clock, 500);
	assert_true(fake_clock_now(&clock) == before + 500);
}

#define FAULTY_TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULTY_TEST(test_without_orders_nothing_is_changed),
		FAULTY_TEST(test_fail_and_after),
		FAULTY_TEST(test_how_often),
		FAULTY_TEST(test_hang),
		FAULTY_TEST(test_slow),
		FAULTY_TEST(test_cancel_reaches_the_inner_one),
		FAULTY_TEST(test_lies),
		cmocka_unit_test(test_die),
		cmocka_unit_test(test_the_clock_moves_when_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

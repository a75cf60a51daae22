/*
 * From nothing to a sandbox that answers: a flight of these steps.
 *
 *	file lock → discover → whose is it? → [claim → adopt] → ready
 *	                └ none → create → publish → ready
 *
 * For who only asks whether there is one nothing is made, and no lock is taken.
 * Nothing waits on a thread: the lock is tried again and again, the rest are
 * questions with a deadline. Loop thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "ident.h"
#include "log.h"
#include "provider_i.h"

enum {
	READY_TRY_MS = 5000,
	READY_PAUSE_MS = 1000,
	LOCK_PAUSE_MIN_MS = 5,
	LOCK_PAUSE_MAX_MS = 250,
	RETRY_MIN_MS = 1000,
	RETRY_MAX_MS = 30000,
	CONDEMNED_PAUSE_MS = 500,
	TRIES = 3, /* of finding what somebody else has just made or removed */
};

static void discover(struct tenant *t);
static void look(struct tenant *t);

/* ---- the ends ---- */

/* Without a sandbox, and without having failed. */
static void leave(struct tenant *t, int error, const char *why)
{
	chore_unlock(t);
	held_drop(t);
	tenant_enter(t, TENANT_COLD);
	errand_finish_all(&t->finders, error, why);
	flight_end(t);
}

/* Whoever waits is told at once; what was made is stopped first, then the state is `failed`. */
static void fail(struct tenant *t, int error, const char *why)
{
	struct provider *p = t->provider;
	int64_t pause = RETRY_MAX_MS;

	why = why ?: strerrordesc_np(-error);
	tenant_note(t, error, why);
	if (!t->wanted && !t->ours) {
		/* Only looked for: that is no reason to keep a start waiting. */
		provider_dismiss(p, STEAL(t->fresh));
		leave(t, error, why);
		return;
	}
	log_error("%s: cannot start sandbox %s: %s", t->key, t->id, why);
	if (t->failures < 5)
		pause = MIN((int64_t)RETRY_MIN_MS << t->failures, RETRY_MAX_MS);
	t->failures++;
	t->retry_ms = provider_now(p) + pause;
	provider_dismiss(p, STEAL(t->fresh));
	if (!t->ours) {
		chore_unlock(t);
		held_drop(t);
		tenant_enter(t, TENANT_FAILED);
	}
	errand_finish_all(&t->finders, error, why);
	errand_finish_all(&t->acquirers, error, why);
	if (t->ours)
		stop_instead(t, STOP_UNREADY);
	else
		flight_end(t);
}

/* The program ends: leaves at the next step. Returns whether that was so. */
static bool gives_up(struct tenant *t)
{
	if (!t->aborted)
		return false;
	provider_dismiss(t->provider, STEAL(t->fresh));
	if (t->place.id[0])
		stop_instead(t, STOP_SHUTDOWN);
	else
		leave(t, -ESHUTDOWN, NULL);
	return true;
}

static int64_t left_ms(const struct tenant *t)
{
	return MAX(t->deadline_ms - clock_ms(), 1);
}

/* ---- ready? ---- */

/* Both the client's asking and the backend's have ended. */
static void ready_over(struct tenant *t)
{
	int error = t->ready.error;
	char *why CLEANUP_FREE = STEAL(t->ready.message);

	call_release(&t->ready);
	ev_timer_stop(loop_ev(t->provider->loop), &t->watch);
	if (error == 0) {
		lock(&t->provider->lock);
		t->starts += !t->unproven; /* then it has been counted */
		t->restarts += t->bereaved;
		unlock(&t->provider->lock);
		t->unproven = t->bereaved = false;
		chore_unlock(t);
		chore_register(t);
		tenant_install(t, STEAL(t->fresh));
		flight_end(t);
		return;
	}
	if (gives_up(t))
		return;
	if (t->died)
		fail(t, -EIO, "the sandbox died while it started");
	else if (why)
		fail(t, error, why);
	else
		fail(t, error, error == -ETIMEDOUT ? "the sandbox did not answer in time" : NULL);
}

static void on_ready(struct call *call)
{
	struct tenant *t = call->ctx;
	struct backend *b = t->provider->backend;

	t->pinging = false;
	if (t->asking)
		b->ops->cancel(b, &t->op);
	else
		ready_over(t);
}

static void on_watched(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);

	t->died |= op->error == 0 && !op->alive;
	backend_op_clear(op);
	if (!t->pinging)
		ready_over(t);
	else if (t->died)
		call_cancel(&t->ready);
	else
		ev_timer_again(loop_ev(t->provider->loop), &t->watch);
}

/* A sandbox that is dead for certain need not be waited for. */
static void on_watch(struct ev_loop *ev, ev_timer *w, int revents UNUSED)
{
	struct tenant *t = w->data;
	struct backend *b = t->provider->backend;

	ev_timer_stop(ev, w);
	if (!t->pinging)
		return;
	flight_ask(t, on_watched, READY_TRY_MS);
	b->ops->is_alive(b, &t->op, t->place.id);
}

static void await_ready(struct tenant *t)
{
	const char *why = NULL;
	int r;

	if (gives_up(t))
		return;
	if (!t->place.url && !t->place.socket) {
		fail(t, -EBADMSG, "the backend does not say where the sandbox is");
		return;
	}
	r = tenant_open_client(t, &t->fresh, &why);
	if (r < 0) {
		fail(t, r, why);
		return;
	}
	t->died = false;
	t->pinging = true;
	call_init(&t->ready, left_ms(t));
	t->ready.done = on_ready;
	t->ready.ctx = t;
	ev_timer_init(&t->watch, on_watch, 0., READY_PAUSE_MS / 1e3);
	t->watch.data = t;
	ev_timer_again(loop_ev(t->provider->loop), &t->watch);
	sandbox_wait_ready(t->fresh, &t->ready, READY_TRY_MS, READY_PAUSE_MS);
}

/* ---- create ---- */

/* What is not published is not handed out: nobody else would know whose it is. */
static void on_published(struct ownership_op *op)
{
	struct tenant *t = hold_answered(op);
	char *why CLEANUP_FREE = STEAL(op->why);
	enum ownership_verdict verdict = op->verdict;
	int error = op->error;

	ownership_op_clear(op);
	if (error == 0 && verdict == OWNERSHIP_GRANTED) {
		hold_set_published(t);
		await_ready(t);
	} else if (gives_up(t)) {
		return;
	} else if (error < 0) {
		fail(t, error, why);
	} else {
		fail(t, -EBUSY, "another program is stopping a sandbox of the same id");
	}
}

static void publish(struct tenant *t)
{
	if (hold_begin(t, t->id, false) < 0)
		fail(t, -ENOMEM, NULL);
	else
		hold_ask(t, OWNERSHIP_TAKE, t->id, on_published);
}

/* For the status: who waits wants to know what for. */
static void on_progress(struct backend_op *op, const char *words)
{
	tenant_note(CONTAINER_OF(op, struct tenant, op), -EINPROGRESS, words);
}

static void on_created(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	int error = op->error;
	char *why CLEANUP_FREE = STEAL(op->why);

	op->progress = NULL;
	if (t->last_error == -EINPROGRESS)
		tenant_note(t, 0, NULL);
	if (error == 0) {
		held_take_place(t, op, t->id);
		held_set_ours(t, true);
	}
	backend_op_clear(op);
	if (error == 0) {
		publish(t);
	} else if (gives_up(t)) {
		return;
	} else if (error == -EEXIST && ++t->tries < TRIES) {
		look(t);
	} else {
		if (error == -ECANCELED && !why)
			why = strdup("the sandbox could not be started in time");
		fail(t, error == -ECANCELED ? -ETIMEDOUT : error, why);
	}
}

static void create(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	janitor_make_room(t->provider, t);
	flight_ask(t, on_created, left_ms(t));
	t->op.progress = on_progress;
	b->ops->create(b, &t->op,
		       &(struct whom){ .id = t->id, .user = t->user, .thread = t->thread });
}

/* ---- the file lock ---- */

static bool wants_lock(const struct tenant *t)
{
	return t->provider->data && t->provider->backend->ops->is_shared && t->lock_fd < 0;
}

static void try_lock(struct tenant *t);

static void on_lock_pause(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	try_lock(w->data);
}

static void on_locked(struct tenant *t, int error)
{
	t->locking = false;
	if (gives_up(t))
		return;
	if (error == 0) {
		look(t);
	} else if (error != -EAGAIN) {
		fail(t, error, NULL);
	} else if (!t->acquirers) {
		look(t); /* nobody wants one made any more, and looking needs no lock */
	} else if (clock_ms() >= t->deadline_ms) {
		fail(t, -ETIMEDOUT, "another program holds the lock of this thread");
	} else {
		ev_timer_init(&t->timer, on_lock_pause, (ev_tstamp)t->lock_pause_ms / 1e3, 0.);
		t->timer.data = t;
		ev_timer_start(loop_ev(t->provider->loop), &t->timer);
		t->lock_pause_ms = MIN(t->lock_pause_ms * 2, LOCK_PAUSE_MAX_MS);
	}
}

static void try_lock(struct tenant *t)
{
	int r = chore_lock(t, on_locked);

	t->locking = r == 0;
	if (r < 0)
		fail(t, r, NULL);
}

/* ---- discover ---- */

/* There is none. */
static void on_nothing(struct tenant *t, const char *why)
{
	if (!t->acquirers) {
		leave(t, -ENOENT, why);
	} else if (wants_lock(t)) {
		try_lock(t);
	} else {
		create(t);
	}
}

static void on_adopted(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	int error = op->error;

	backend_op_clear(op);
	if (error == -ENOENT && !t->aborted && ++t->tries < TRIES) {
		/* Gone since. */
		held_forget_place(t);
		on_nothing(t, NULL);
		return;
	}
	if (error < 0)
		hold_end(t);
	held_set_ours(t, error == 0 && t->hold);
	await_ready(t);
}

/* ---- whose is it? ---- */

static void on_claimed(struct ownership_op *op)
{
	struct tenant *t = hold_answered(op);
	struct backend *b = t->provider->backend;
	bool granted = op->error == 0 && op->verdict == OWNERSHIP_GRANTED;

	ownership_op_clear(op);
	if (granted && !t->aborted && hold_begin(t, t->place.id, true) == 0) {
		flight_ask(t, on_adopted, left_ms(t));
		b->ops->adopt(b, &t->op, t->place.id);
	} else {
		await_ready(t);
	}
}

static void on_condemned_pause(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	look(w->data);
}

/* Its owner is stopping it: it is gone in a moment, or spared. */
static void outwait(struct tenant *t)
{
	held_forget_place(t);
	if (!t->acquirers) {
		leave(t, -ENOENT, "its owner is stopping it");
	} else if (clock_ms() >= t->deadline_ms) {
		fail(t, -EBUSY, "another program is stopping this sandbox");
	} else {
		ev_timer_init(&t->timer, on_condemned_pause, CONDEMNED_PAUSE_MS / 1e3, 0.);
		t->timer.data = t;
		ev_timer_start(loop_ev(t->provider->loop), &t->timer);
	}
}

/*
 * What was found is used as it is, and left to its owner. Only what is nobody's
 * for certain may become ours. A store that does not answer is no reason not to
 * use it: it was not made by us, and will not be stopped by us.
 */
static void on_looked(struct ownership_op *op)
{
	struct tenant *t = hold_answered(op);
	bool anothers = hold_is_anothers(t, op), condemned = anothers && op->condemned;
	bool claims = op->error == 0 && !anothers && t->provider->backend->ops->adopt &&
		      (op->owner || orphan_is_due(t->provider, t->place.id));

	hold_note_owner(t, op->owner);
	ownership_op_clear(op);
	if (gives_up(t))
		return;
	if (condemned)
		outwait(t);
	else if (claims)
		hold_ask(t, OWNERSHIP_CLAIM, t->place.id, on_claimed);
	else
		await_ready(t);
}

/* Ids are short, older ones shorter: what was found may be another thread's. */
static bool is_anothers(const struct tenant *t)
{
	const struct place *p = &t->place;

	return (p->user && strcmp(p->user, t->user) != 0) ||
	       (p->thread && strcmp(p->thread, t->thread) != 0);
}

/* The oldest ids know no user: another tenant may have the same one already. */
static bool is_in_use(const struct tenant *t)
{
	const struct tenant *holder, *tmp;

	HASH_ITER (by_id, t->provider->holders, holder, tmp) {
		if (holder != t && strcmp(holder->place.id, t->place.id) == 0)
			return true;
	}
	return false;
}

/* Leaves it to its owner; true if nothing was found, after all. */
static bool leave_to_owner(struct tenant *t)
{
	struct backend *b = t->provider->backend;
	bool in_use;

	if (t->form == 0)
		return false;
	in_use = is_in_use(t);
	if (!in_use && !is_anothers(t))
		return false;
	if (!in_use && b->ops->forget)
		b->ops->forget(b, t->place.id);
	held_drop_place(t);
	return true;
}

static void on_discovered(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	int error = op->error;
	char *why CLEANUP_FREE = STEAL(op->why);
	char id[SANDBOX_ID_LEN + 1];

	if (error == 0) {
		ident_form(t->user, t->thread, t->form, id);
		held_take_place(t, op, t->form == 0 ? t->id : id);
		if (leave_to_owner(t))
			error = -ENOENT;
	}
	backend_op_clear(op);
	if (gives_up(t)) {
		return;
	} else if (error == 0 && is_anothers(t)) {
		fail(t, -EADDRINUSE, "another thread has a sandbox of the same id");
	} else if (error == 0) {
		hold_ask(t, OWNERSHIP_LOOK, t->place.id, on_looked);
	} else if (error != -ENOENT) {
		fail(t, error == -ECANCELED ? -ETIMEDOUT : error, why);
	} else if (t->provider->backend->ops->has_old_ids && ++t->form < IDENT_FORMS) {
		discover(t);
	} else {
		on_nothing(t, why);
	}
}

static void discover(struct tenant *t)
{
	struct backend *b = t->provider->backend;
	char old[SANDBOX_ID_LEN + 1];

	ident_form(t->user, t->thread, t->form, old);
	flight_ask(t, on_discovered, left_ms(t));
	b->ops->discover(b, &t->op, t->form == 0 ? t->id : old);
}

static void look(struct tenant *t)
{
	t->form = 0;
	discover(t);
}

/* ---- begin and abort ---- */

void start_begin(struct tenant *t)
{
	struct provider *p = t->provider;

	flight_begin(t, FLIGHT_START);
	tenant_enter(t, TENANT_STARTING);
	t->deadline_ms = clock_ms() + p->start_timeout_ms;
	t->wanted = t->acquirers;
	t->tries = 0;
	t->lock_pause_ms = LOCK_PAUSE_MIN_MS;
	if (held_collides(t)) {
		/* Rather nothing than another's files. */
		fail(t, -EADDRINUSE, "another thread has a sandbox of the same id");
		return;
	}
	if (held_take_id(t) < 0) {
		fail(t, -ENOMEM, NULL);
		return;
	}
	if (t->acquirers && wants_lock(t))
		try_lock(t);
	else
		look(t);
}

void start_prove(struct tenant *t)
{
	t->wanted = true;
	t->deadline_ms = clock_ms() + t->provider->start_timeout_ms;
	await_ready(t);
}

void start_abort(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	t->aborted = true;
	if (t->pinging) {
		call_cancel(&t->ready);
	} else if (t->asking) {
		b->ops->cancel(b, &t->op);
	} else if (!t->locking && !t->consulting) {
		/* Between two tries of the lock, or two looks. */
		ev_timer_stop(loop_ev(t->provider->loop), &t->timer);
		gives_up(t);
	}
}

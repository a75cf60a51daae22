/*
 * From nothing to a sandbox that answers: a flight of these steps.
 *
 *	file lock → discover → [adopt] → ready
 *	                └ none → create → ready
 *
 * Who only asks whether there is one gets as far as discover, without the lock.
 * Nothing waits on a thread: the lock is tried again and again, the rest are
 * questions with a deadline. Loop thread, but for the work on disk.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "filelock.h"
#include "ident.h"
#include "log.h"
#include "paths.h"
#include "provider_i.h"
#include "registry.h"

enum {
	READY_TRY_MS = 5000,
	READY_PAUSE_MS = 1000,
	LOCK_PAUSE_MIN_MS = 5,
	LOCK_PAUSE_MAX_MS = 250,
	RETRY_MIN_MS = 1000,
	RETRY_MAX_MS = 30000,
	TRIES = 3, /* of finding what somebody else has just made or removed */
};

static void discover(struct tenant *t);
static void look(struct tenant *t);

/* ---- work on disk ---- */

struct chore {
	struct work work;
	struct provider *p;
	struct tenant *t;
	char *user, *thread, *path;
	int fd, error;
};

static void chore_free(struct chore *c)
{
	provider_calm(c->p);
	free(c->user);
	free(c->thread);
	free(c->path);
	free(c);
}

static struct chore *chore_new(struct tenant *t)
{
	struct chore *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->p = t->provider;
	c->t = t;
	c->fd = -1;
	provider_busy(c->p);
	c->user = strdup(t->user);
	c->thread = strdup(t->thread);
	if (c->user && c->thread)
		return c;
	chore_free(c);
	return NULL;
}

static void chore_submit(struct chore *c, void (*run)(struct work *), void (*done)(struct work *))
{
	c->work.run = run;
	c->work.done = done;
	workers_submit(c->p->workers, &c->work);
}

/* For what no flight waits for; but nothing may forget the thread meanwhile. */
static void chore_detach(struct chore *c, void (*run)(struct work *), void (*done)(struct work *))
{
	lock(&c->p->lock);
	c->t->refs++;
	unlock(&c->p->lock);
	c->t->chores++;
	chore_submit(c, run, done);
}

static void done_chore(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);

	if (--c->t->chores == 0)
		stop_chores_done(c->t);
	tenant_put(c->t);
	chore_free(c);
}

/* ---- the ends ---- */

char *start_lock_path(const struct tenant *t)
{
	char *dir CLEANUP_FREE = paths_thread_dir(t->provider->data, t->user, t->thread);
	char *path;

	if (!dir || asprintf(&path, "%s/%s.lock", dir, t->id) < 0)
		return NULL;
	return path;
}

static void run_unlock(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);

	filelock_remove(c->path, c->fd);
}

void start_unlock(struct tenant *t)
{
	struct chore *c;

	if (t->lock_fd < 0)
		return;
	c = chore_new(t);
	if (c && (c->path = start_lock_path(t))) {
		c->fd = steal_fd(&t->lock_fd);
		chore_detach(c, run_unlock, done_chore);
		return;
	}
	if (c)
		chore_free(c);
	close(steal_fd(&t->lock_fd)); /* the file stays: better than the lock */
}

static void run_sweep(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);
	int fd = filelock_try_existing(c->path, true);

	if (fd >= 0)
		filelock_remove(c->path, fd);
}

void start_sweep(struct tenant *t)
{
	struct chore *c = t->provider->data ? chore_new(t) : NULL;

	if (c && (c->path = start_lock_path(t)))
		chore_detach(c, run_sweep, done_chore);
	else if (c)
		chore_free(c);
}

static void run_register(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);
	int r = registry_add(c->p->data, c->user, c->thread, c->p->backend->ops->name);

	if (r < 0)
		log_warn("%s/%s: cannot be kept in the registry: %s", c->user, c->thread,
			 strerrordesc_np(-r));
}

/* Not waited for: the thread has a directory, too. */
static void register_thread(struct tenant *t)
{
	struct chore *c;

	if (t->registered || !t->provider->data)
		return;
	c = chore_new(t);
	if (!c)
		return;
	t->registered = true;
	chore_detach(c, run_register, done_chore);
}

bool start_collides(const struct tenant *t)
{
	struct tenant *holder;

	HASH_FIND(by_id, t->provider->holders, t->id, strlen(t->id), holder);
	return holder && holder != t;
}

void start_hold_id(struct tenant *t)
{
	HASH_ADD(by_id, t->provider->holders, id, strlen(t->id), t);
	t->holds_id = true;
}

static void set_ours(struct tenant *t, bool ours)
{
	lock(&t->provider->lock);
	t->ours = ours;
	unlock(&t->provider->lock);
}

static void forget_place(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	if (t->place.id[0] && b->ops->forget)
		b->ops->forget(b, t->place.id);
	place_release(&t->place);
	set_ours(t, false);
}

void start_drop_place(struct tenant *t)
{
	struct provider *p = t->provider;

	forget_place(t);
	if (t->holds_id)
		HASH_DELETE(by_id, p->holders, t);
	t->holds_id = false;
	t->unproven = false;
}

/* Without a sandbox, and without having failed. */
static void leave(struct tenant *t, int error, const char *why)
{
	start_unlock(t);
	start_drop_place(t);
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
	log_error("%s: cannot start sandbox %s: %s", t->key, t->id, why);
	tenant_note(t, error, why);
	if (t->failures < 5)
		pause = MIN((int64_t)RETRY_MIN_MS << t->failures, RETRY_MAX_MS);
	t->failures++;
	t->retry_ms = provider_now(p) + pause;
	provider_dismiss(p, STEAL(t->fresh));
	if (!t->ours) {
		start_unlock(t);
		start_drop_place(t);
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
		unlock(&t->provider->lock);
		t->unproven = false;
		start_unlock(t);
		register_thread(t);
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

/* The id is what we asked for, whatever the backend says. */
static void take_place(struct tenant *t, const char *id)
{
	place_release(&t->place);
	t->place = t->op.place;
	t->op.place = (struct place){ 0 };
	snprintf(t->place.id, sizeof(t->place.id), "%s", id);
}

static void on_created(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	int error = op->error;
	char *why CLEANUP_FREE = STEAL(op->why);

	if (error == 0) {
		take_place(t, t->id);
		set_ours(t, true);
	}
	backend_op_clear(op);
	if (error == 0) {
		await_ready(t);
	} else if (gives_up(t)) {
		return;
	} else if (error == -EEXIST && ++t->tries < TRIES) {
		look(t);
	} else {
		fail(t, error == -ECANCELED ? -ETIMEDOUT : error,
		     error == -ECANCELED ? "the sandbox could not be started in time" : why);
	}
}

static void create(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	janitor_make_room(t->provider, t);
	flight_ask(t, on_created, left_ms(t));
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

static void run_lock(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);

	c->error = paths_make_thread(c->p->data, c->user, c->thread);
	if (c->error < 0)
		return;
	c->fd = filelock_try(c->path, true);
	c->error = MIN(c->fd, 0);
}

static void done_lock(struct work *w)
{
	struct chore *c = CONTAINER_OF(w, struct chore, work);
	struct tenant *t = c->t;
	int error = c->error;

	if (error == 0)
		t->lock_fd = c->fd;
	t->locking = false;
	chore_free(c);
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
	struct chore *c = chore_new(t);

	if (c && (c->path = start_lock_path(t))) {
		t->locking = true;
		chore_submit(c, run_lock, done_lock);
		return;
	}
	if (c)
		chore_free(c);
	fail(t, -ENOMEM, NULL);
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
	set_ours(t, error == 0);
	if (error == -ENOENT && !t->aborted && ++t->tries < TRIES) {
		/* Gone since. */
		forget_place(t);
		on_nothing(t, NULL);
		return;
	}
	await_ready(t);
}

/* Ids are short, older ones shorter: what was found may be another thread's. */
static bool is_anothers(const struct tenant *t)
{
	const struct place *p = &t->place;

	return (p->user && strcmp(p->user, t->user) != 0) ||
	       (p->thread && strcmp(p->thread, t->thread) != 0);
}

/* Leaves it to its owner; true if nothing was found, after all. */
static bool leave_to_owner(struct tenant *t)
{
	struct backend *b = t->provider->backend;

	if (!is_anothers(t) || t->form == 0)
		return false;
	if (b->ops->forget)
		b->ops->forget(b, t->place.id);
	place_release(&t->place);
	return true;
}

static void on_discovered(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	struct backend *b = t->provider->backend;
	int error = op->error;
	char *why CLEANUP_FREE = STEAL(op->why);
	char id[SANDBOX_ID_LEN + 1];

	if (error == 0) {
		ident_form(t->user, t->thread, t->form, id);
		take_place(t, t->form == 0 ? t->id : id);
		if (leave_to_owner(t))
			error = -ENOENT;
	}
	backend_op_clear(op);
	if (gives_up(t)) {
		return;
	} else if (error == 0 && is_anothers(t)) {
		fail(t, -EADDRINUSE, "another thread has a sandbox of the same id");
	} else if (error == 0 && b->ops->adopt) {
		flight_ask(t, on_adopted, left_ms(t));
		b->ops->adopt(b, &t->op, t->place.id);
	} else if (error == 0) {
		await_ready(t);
	} else if (error != -ENOENT) {
		fail(t, error == -ECANCELED ? -ETIMEDOUT : error, why);
	} else if (b->ops->has_old_ids && ++t->form < IDENT_FORMS) {
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
	t->tries = 0;
	t->lock_pause_ms = LOCK_PAUSE_MIN_MS;
	if (start_collides(t)) {
		/* Rather nothing than another's files. */
		fail(t, -EADDRINUSE, "another thread has a sandbox of the same id");
		return;
	}
	start_hold_id(t);
	if (t->acquirers && wants_lock(t))
		try_lock(t);
	else
		look(t);
}

void start_prove(struct tenant *t)
{
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
	} else if (!t->locking) {
		/* Between two tries of the lock. */
		ev_timer_stop(loop_ev(t->provider->loop), &t->timer);
		gives_up(t);
	}
}

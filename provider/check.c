/*
 * Is it still alive, and does it answer? The flights that ask before a sandbox is
 * handed out: one that somebody calls dead (a probe of breaker.c), and a warm one that
 * is wanted again. Only a definite no evicts it; no answer means that nothing is known
 * but that it does not answer. Loop thread.
 */
#include <errno.h>
#include <string.h>

#include "log.h"
#include "provider_i.h"

enum {
	CHECK_MS = 5000,
	PING_MS = 5000, /* one that is slow is not silent */
};

static void ask_alive(struct tenant *t, void (*done)(struct backend_op *op))
{
	struct backend *b = t->provider->backend;

	flight_ask(t, done, CHECK_MS);
	b->ops->is_alive(b, &t->op, t->place.id);
}

/* Takes the answer; true only if it is certain. */
static bool is_dead(struct tenant *t)
{
	bool dead = t->op.error == 0 && !t->op.alive;

	if (t->op.error < 0 && breaker_is_new(t))
		log_warn("%s: cannot tell whether sandbox %s lives: %s", t->key, t->place.id,
			 t->op.why ?: strerrordesc_np(-t->op.error));
	backend_op_clear(&t->op);
	if (dead) {
		log_warn("%s: sandbox %s is dead", t->key, t->place.id);
		tenant_note(t, -ENOTCONN, "the sandbox died");
	}
	return dead;
}

/* ---- a probe ---- */

/* Any answer is one, also that the key is wrong; a proxy's that nobody is there is not. */
static void judge(struct tenant *t, int error, const char *why)
{
	if (t->aborted || tenant_speaks_of_death(error))
		breaker_missed(t, error, why);
	else
		breaker_answered(t);
}

static void on_pinged(struct call *call)
{
	struct tenant *t = call->ctx;
	char *why CLEANUP_FREE = STEAL(call->message);
	int error = call->error;

	t->pinging = false;
	call_release(call);
	provider_dismiss(t->provider, STEAL(t->fresh));
	judge(t, error, why);
}

/* With a client of its own: connections of before may be what is broken. */
static void ping(struct tenant *t)
{
	const char *why = NULL;
	int r = t->aborted ? -ECANCELED : tenant_open_client(t, &t->fresh, &why);

	if (r < 0) {
		judge(t, r, why);
		return;
	}
	t->pinging = true;
	call_init(&t->ready, PING_MS);
	t->ready.done = on_pinged;
	t->ready.ctx = t;
	sandbox_ping(t->fresh, &t->ready);
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Its owner may have stopped it and started another one of the same id elsewhere. */
static void on_found(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	bool moved = op->error == 0 && (!same(op->place.url, t->place.url) ||
					!same(op->place.socket, t->place.socket));

	backend_op_clear(op);
	if (!moved) {
		ping(t);
		return;
	}
	log_warn("%s: sandbox %s is somewhere else now", t->key, t->place.id);
	tenant_note(t, -ENOTCONN, "its owner replaced the sandbox");
	stop_instead(t, STOP_DEAD);
}

static void on_checked(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	struct backend *b = t->provider->backend;
	/* It was cancelled because its time was over, or the program's. */
	int error = op->error == -ECANCELED ? -ETIMEDOUT : op->error;
	char *why CLEANUP_FREE = op->why ? strdup(op->why) : NULL;
	bool dead = is_dead(t);

	/*
	 * It is the same sandbox: replacing it would have been a flight. Its last
	 * lease may be gone, though, and it warm.
	 */
	if (dead) {
		stop_instead(t, STOP_DEAD);
	} else if (b->ops->alive_by_ping) {
		judge(t, error, why);
	} else if (t->ours || t->aborted) {
		ping(t);
	} else {
		flight_ask(t, on_found, CHECK_MS);
		b->ops->discover(b, &t->op, t->place.id);
	}
}

void check_begin(struct tenant *t)
{
	flight_begin(t, FLIGHT_CHECK);
	/* Whether it is dead is of no use to who would not have another one. */
	if (t->provider->auto_restart)
		ask_alive(t, on_checked);
	else
		ping(t);
}

/*
 * Before anybody finds out by trying: at its address there may be somebody else's
 * by then. Its client is of no use to anybody; the next acquire sees what is to be done.
 */
void check_on_ended(void *ctx, const char *id)
{
	struct provider *p = ctx;
	struct tenant *t, *tmp;
	struct sandbox *sb;

	HASH_ITER (by_id, p->holders, t, tmp) {
		if (strcmp(t->place.id, id) != 0)
			continue;
		lock(&t->lock);
		sb = t->sb ? sandbox_ref(t->sb) : NULL;
		t->suspect |= sb && p->auto_restart;
		unlock(&t->lock);
		if (!sb)
			continue;
		log_warn("%s: sandbox %s has ended", t->key, id);
		sandbox_close(sb);
		sandbox_put(sb);
		breaker_hurry(t);
	}
}

/* ---- a warm one ---- */

static void hand_out(struct tenant *t)
{
	struct sandbox *sb;
	const char *why = NULL;
	int r;

	if (t->aborted) {
		stop_instead(t, STOP_SHUTDOWN);
		return;
	}
	if (t->unproven) {
		start_prove(t);
		return;
	}
	r = tenant_open_client(t, &sb, &why);
	if (r < 0) {
		tenant_note(t, r, why);
		errand_finish_all(&t->acquirers, r, why);
		tenant_enter(t, TENANT_WARM);
	} else {
		tenant_install(t, sb);
	}
	flight_end(t);
}

static void on_looked(struct ownership_op *op)
{
	struct tenant *t = hold_answered(op);
	bool anothers = hold_is_anothers(t, op), condemned = anothers && op->condemned;
	bool known = op->error == 0;

	if (known && !t->hold)
		hold_note_owner(t, op->owner);
	ownership_op_clear(op);
	if (condemned) {
		/* It is about to go: whoever wants it gets the next one. */
		held_set_ours(t, false);
		stop_instead(t, STOP_LOST);
		return;
	}
	/* What we held may have lapsed, or be another's by now: the next beat finds out, at once.
	 */
	hold_spare(t);
	hand_out(t);
}

static void on_reclaim_checked(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);

	if (is_dead(t))
		stop_instead(t, STOP_DEAD);
	else if (t->provider->ownership->sees_peers && !t->aborted)
		hold_ask(t, OWNERSHIP_LOOK, t->place.id, on_looked);
	else
		hand_out(t);
}

void reclaim_begin(struct tenant *t)
{
	flight_begin(t, FLIGHT_START);
	tenant_enter(t, TENANT_STARTING);
	ask_alive(t, on_reclaim_checked);
}

/*
 * Is it still alive? The flights that ask before a sandbox is handed out: an
 * active one that somebody calls dead, and a warm one that is wanted again. Only
 * a definite no counts; no answer means that nothing is known, and nothing is
 * done. Loop thread.
 */
#include <errno.h>
#include <string.h>

#include "log.h"
#include "provider_i.h"

enum { CHECK_MS = 5000 };

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

	if (t->op.error < 0)
		log_warn("%s: cannot tell whether sandbox %s lives: %s", t->key, t->place.id,
			 t->op.why ?: strerrordesc_np(-t->op.error));
	backend_op_clear(&t->op);
	if (dead) {
		log_warn("%s: sandbox %s is dead", t->key, t->place.id);
		tenant_note(t, -ENOTCONN, "the sandbox died");
	}
	return dead;
}

/* ---- an active one ---- */

static void on_checked(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	bool dead = is_dead(t);

	/*
	 * It is the same sandbox: replacing it would have been a flight. Its last
	 * lease may be gone, though, and it warm.
	 */
	if (dead) {
		stop_instead(t, STOP_DEAD);
		return;
	}
	lock(&t->lock);
	t->suspect = false;
	unlock(&t->lock);
	flight_end(t);
}

void check_begin(struct tenant *t)
{
	flight_begin(t, FLIGHT_CHECK);
	ask_alive(t, on_checked);
}

/* ---- a warm one ---- */

static void on_reclaim_checked(struct backend_op *op)
{
	struct tenant *t = flight_answered(op);
	struct sandbox *sb;
	const char *why = NULL;
	int r;

	if (is_dead(t)) {
		stop_instead(t, STOP_DEAD);
		return;
	}
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

void reclaim_begin(struct tenant *t)
{
	flight_begin(t, FLIGHT_START);
	tenant_enter(t, TENANT_STARTING);
	ask_alive(t, on_reclaim_checked);
}

/*
 * When a stage's changes go up, who waits for that, and what becomes of those
 * that nobody waits for. Loop thread only.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "file.h"
#include "log.h"
#include "notifier.h"
#include "salvage.h"
#include "stage_i.h"
#include "staging.h"

enum { RETRY_FIRST_S = 30, RETRY_LAST_S = 600 };

/* ---- what is due ---- */

static bool is_resting(const struct stage *s)
{
	return ev_is_active(&s->retry) && !s->waiters;
}

static bool is_wanted(const struct stage *s)
{
	return (s->waiters || s->asked > s->confirmed || s->abandoned) && !is_resting(s);
}

static void pump_appends(struct stage *s)
{
	uint64_t waiting = s->queue_end - s->queue_at;

	if (waiting > 0) {
		if (is_wanted(s) || s->reads || (waiting >= PIECE_MAX && !s->no_stream))
			stage_send_appends(s);
	} else if (s->reads) {
		stage_end_appends(s);
		stage_fill(s);
	} else if (stage_is_dirty(s) && is_wanted(s)) {
		if (s->sent < s->content) /* what was not sent is lost: see stage_upload.c */
			s->sent = s->content;
		stage_send_attrs(s);
	}
}

static void pump_content(struct stage *s)
{
	if (s->reads || s->keepers)
		stage_fill(s);
	if (s->freed || s->delivery || !stage_is_dirty(s) || !is_wanted(s))
		return;
	if (s->sent >= s->content) {
		if (!s->fill) /* which would see another version of our own making */
			stage_send_attrs(s);
	} else if (stage_is_complete(s)) {
		stage_absorb(s);
		stage_send(s);
	} else {
		stage_fill(s);
	}
}

void stage_pump(struct stage *s)
{
	if (s->freed || s->delivery || s->orphan || s->held || salvage_is_at(s->n))
		return;
	stage_enter(s);
	if (s->appending)
		pump_appends(s);
	else
		pump_content(s);
	stage_leave(s);
}

/* ---- who waits ---- */

static void tell_confirmed(struct stage *s)
{
	struct flush_op *op, *next;

again:
	DL_FOREACH_SAFE (s->waiters, op, next) {
		if (op->until > s->confirmed && !s->orphan)
			continue;
		DL_DELETE(s->waiters, op);
		op->done(op, s->orphan ? 0 : s->append_error);
		goto again; /* the list may be another one */
	}
}

/* Those who wait now; not those who come while these are told. */
static void tell_failed(struct stage *s, int err)
{
	struct flush_op *op;
	unsigned n;

	DL_COUNT(s->waiters, op, n);
	while (n-- > 0 && (op = s->waiters)) {
		DL_DELETE(s->waiters, op);
		op->done(op, err);
	}
}

void stage_tell_settlers(struct stage *s)
{
	struct stage_waiter *w, *list = STEAL(s->settlers);

	while ((w = list)) {
		DL_DELETE(list, w);
		w->settled(w->ctx);
		free(w);
	}
}

void stage_flush(struct stage *s, struct flush_op *op)
{
	if (s->orphan || !stage_is_dirty(s)) {
		op->done(op, s->orphan ? 0 : s->append_error);
		return;
	}
	op->until = s->asked = s->changes;
	s->no_stream = false;
	DL_APPEND(s->waiters, op);
	stage_end_stream(s);
	stage_pump(s);
}

void stage_flush_cancel(struct stage *s, struct flush_op *op)
{
	DL_DELETE(s->waiters, op);
}

/* ---- what nobody waits for ---- */

static void unlease(struct stage *s)
{
	if (s->leased)
		thread_unlease(s->n->thread);
	s->leased = false;
}

static void rest(struct stage *s);

/* Nobody has it open, and there is nothing more to be done here. */
static void give_up(struct stage *s)
{
	struct node *n = s->n;
	bool shown = stage_is_dirty(s) && !s->orphan;

	/* A file that could never be made was never there. */
	if (n->unborn && !s->orphan && n->parent) {
		notify_entry(n->fs, n->parent->ino, n->name);
		node_detach(n);
	}
	stage_free(s);
	if (!shown)
		return;
	/* From now on that is what the sandbox has. */
	node_void_attr(n);
	notify_inode(n->fs, n->ino, true);
}

/*
 * An upload failed, nobody waits for it any more, and time has passed: the sandbox may have
 * written to the file since. So it is salvage's now, which looks first and never writes over
 * what it does not know. If it cannot be just now it rests on.
 */
static void hand_over(struct stage *s)
{
	struct node *n = s->n;

	if (!s->abandoned || !s->last_error || s->waiters || s->delivery || s->sent >= s->content ||
	    s->append_error || !s->fs->staging || s->fs->ending)
		return;
	/* Whoever has it open may write: then it goes up with that, whatever is there. */
	if (n->writers > 0) {
		rest(s);
		return;
	}
	if (stage_note_now(s) < 0 || s->partly)
		return;
	/*
	 * Otherwise it would take what we confirmed ourselves for others' work: see end_look(). At
	 * the end there is no time for that.
	 */
	if (s->look && !s->sought && !s->fs->staging->last_try_ms) {
		s->sought = true;
		rest(s);
		return;
	}
	if (s->held || s->reads || s->keepers || !file_let_stage_go(n)) {
		rest(s);
		return;
	}
	(void)staging_shelve(s); /* all that it could say against that has just been asked */
	s->abandoned = false;
	give_up(s);
	node_unref(n);
}

static void on_retry(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct stage *s = w->data;

	stage_enter(s);
	ev_timer_stop(s->fs->ev, w);
	s->n->thread->resting--;
	hand_over(s);
	stage_pump(s);
	stage_leave(s);
}

static void stop_resting(struct stage *s)
{
	if (!s->retry.data || !ev_is_active(&s->retry))
		return;
	ev_timer_stop(s->fs->ev, &s->retry);
	s->n->thread->resting--;
}

void stage_wake(struct stage *s)
{
	if (!s->retry.data || !ev_is_active(&s->retry))
		return;
	stage_enter(s);
	stop_resting(s);
	hand_over(s);
	stage_pump(s);
	stage_leave(s);
}

/* Later: longer each time. */
static void rest(struct stage *s)
{
	unlease(s);
	if (ev_is_active(&s->retry))
		return;
	if (!s->retry.data)
		ev_init(&s->retry, on_retry);
	s->retry.data = s;
	s->retry.repeat =
		s->retry.repeat > 0 ? MIN(s->retry.repeat * 2, RETRY_LAST_S) : RETRY_FIRST_S;
	ev_timer_again(s->fs->ev, &s->retry);
	s->n->thread->resting++;
}

/* Answers of the sandbox that will be the same next time, or when they are not, be a surprise. */
bool stage_error_is_final(int err)
{
	switch (-err) {
	case EEXIST:
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case EACCES:
	case EPERM:
	case EROFS:
	case ESTALE:
	case ENAMETOOLONG:
	case ELOOP:
	case EINVAL:
		return true;
	default:
		return false;
	}
}

/* What nobody was told of is not thrown away. */
static void shelve(struct stage *s)
{
	int r = s->told ? 0 : staging_shelve(s);

	if (r < 0)
		thread_warn(s->n->thread, "what was written to %s cannot be kept, and is lost: %s",
			    s->n->name, strerrordesc_np(-r));
}

/* Nothing is left to do, or nothing can be done: unless somebody has opened it again. */
static void end_abandoned(struct stage *s)
{
	struct node *n = s->n;

	unlease(s);
	s->abandoned = false;
	if (!n->handles) {
		shelve(s);
		give_up(s);
	}
	node_unref(n);
}

void stage_abandon(struct stage *s)
{
	if (s->abandoned || s->freed)
		return;
	if (stage_is_clean(s)) {
		stage_free(s);
		return;
	}
	stage_enter(s);
	node_ref(s->n);
	s->abandoned = true;
	s->no_stream = false;
	if (s->last_error && stage_error_is_final(s->last_error) && !s->delivery) {
		end_abandoned(s); /* who closed it has been told */
	} else if (s->last_error && !s->delivery) {
		rest(s);
	} else {
		s->leased = thread_lease(s->n->thread) == 0;
		stage_end_stream(s);
		stage_pump(s);
	}
	stage_leave(s);
}

void stage_flush_release(struct stage *s)
{
	unlease(s);
	stop_resting(s);
}

/* ---- how it went ---- */

static void failed(struct stage *s, int err, const char *message)
{
	/* At the end of the mount it waits itself, for everybody, and tells nobody. */
	bool told = s->waiters && !s->fs->ending;

	s->no_stream = true;
	if (err != -ESHUTDOWN || !s->last_error) /* that we end is no news */
		s->last_error = err;
	s->told = told;
	s->sought = false;
	s->failed_ms = clock_ms();
	s->asked = 0;
	(void)stage_note_now(s); /* which says so itself if it cannot */
	tell_failed(s, err);
	if (s->freed)
		return;
	if (s->abandoned && !told)
		thread_failed(s->n->thread, s->n->name, err, message);
	if (s->abandoned && stage_error_is_final(err))
		end_abandoned(s);
	else if (s->abandoned)
		rest(s);
}

void stage_delivered(struct stage *s, int err, const char *message)
{
	stage_enter(s);
	if (err == 0) {
		s->last_error = 0;
		stop_resting(s);
		s->retry.repeat = 0;
		if (!stage_is_dirty(s))
			stage_note_clean(s);
		tell_confirmed(s);
	} else if (err != -ECANCELED) {
		if (s->appending)
			stage_fail_reads(s, err);
		failed(s, err, message);
	}
	stage_tell_settlers(s);
	stage_pump(s);
	if (!s->freed && s->abandoned && stage_is_clean(s))
		end_abandoned(s);
	stage_leave(s);
}

void stage_fill_failed(struct stage *s, int err, const char *message)
{
	stage_enter(s);
	s->no_stream = true;
	if (err == -ETIMEDOUT)
		s->late_ms = clock_ms();
	stage_fail_reads(s, err);
	stage_tell_keepers(s, err);
	if (!s->freed && stage_is_dirty(s) && !s->delivery && !s->orphan && is_wanted(s))
		failed(s, err, message);
	stage_leave(s);
}

/* ---- other names ---- */

void stage_settle(struct stage *s, void (*done)(void *ctx), void *ctx)
{
	struct stage_waiter *w = s->delivery ? calloc(1, sizeof(*w)) : NULL;

	s->held++;
	stage_stop_fill(s);
	if (stage_is_streaming(s))
		stage_cancel_delivery(s);
	/* Without memory the wait cannot be had, and the rename is the lesser evil. */
	if (!w) {
		done(ctx);
		return;
	}
	w->settled = done;
	w->ctx = ctx;
	DL_APPEND(s->settlers, w);
}

void stage_resume(struct stage *s)
{
	if (s->held > 0)
		s->held--;
	stage_pump(s);
}

bool stage_is_uploading(const struct stage *s)
{
	return s->delivery || (stage_is_dirty(s) && !s->orphan && is_wanted(s));
}

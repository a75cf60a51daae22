/*
 * A backend that misbehaves on order; see the header. Questions are on the
 * loop's thread; what test threads see is guarded by `lock`, a leaf.
 */
#include "faulty.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <utlist.h>

struct order {
	struct fault_order what; /* why is ours */
	struct order *next;
};

enum phase { HANGING, WAITING, ASKED, DYING };

/* A question between its asker and the inner backend. Loop thread only. */
struct held {
	struct faulty *f;
	struct backend_op inner, *outer;
	enum ask_kind kind;
	enum phase phase;
	struct fault_order what; /* why is ours */
	char id[SANDBOX_ID_LEN + 1];
	char *user, *thread; /* of create */
	ev_timer timer;
	ev_io death;
	struct held *prev, *next;
};

struct resume {
	struct job job;
	struct faulty *f;
	enum ask_kind kind;
};

struct faulty {
	struct backend base;
	struct backend_ops ops;
	struct backend *inner;
	struct held *held; /* loop thread only */
	struct resume resume[ASK_KINDS];

	struct lock lock;
	pthread_cond_t cond;
	/* guarded by lock */
	struct order *orders[ASK_KINDS];
	unsigned counts[ASK_KINDS], answered[ASK_KINDS];
	struct faulty_event *log;
	size_t log_len, log_cap;
	pid_t (*pid_of)(void *ctx, const char *id);
	void *pid_ctx;
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static char *copy(const char *s)
{
	return s ? must(strdup(s)) : NULL;
}

/* ---- the answer ---- */

/* Takes the answer's strings from the inner question, if there is one. */
static void answer(struct held *h, int error, const char *why)
{
	struct faulty *f = h->f;
	struct backend_op *op = h->outer;

	DL_DELETE(f->held, h);
	if (error == 0) {
		op->alive = h->inner.alive;
		op->place = h->inner.place;
		op->places = h->inner.places;
		op->nplaces = h->inner.nplaces;
		h->inner.place = (struct place){ 0 };
		h->inner.places = NULL;
		h->inner.nplaces = 0;
	}
	backend_answer(&f->base, op, error, why);
	lock(&f->lock);
	f->answered[h->kind]++;
	unlock(&f->lock);
	backend_op_clear(&h->inner);
	free((void *)h->what.why);
	free(h->user);
	free(h->thread);
	free(h);
}

static void tell_inner(struct held *h)
{
	answer(h, h->inner.error, h->inner.why);
}

/* ---- lies and deaths ---- */

static void set_nowhere(struct held *h)
{
	struct place *p = &h->inner.place;

	snprintf(p->id, sizeof(p->id), "%s", h->id);
	free(STEAL(p->url));
	free(STEAL(p->socket));
	p->socket = copy("/nonexistent/threadfs/sock");
}

static void add_made_up(struct backend_op *op)
{
	struct place *p = must(reallocarray(op->places, op->nplaces + 1, sizeof(*op->places)));

	op->places = p;
	p += op->nplaces++;
	*p = (struct place){ .id = FAULTY_MADE_UP, .socket = copy("/nonexistent/threadfs/sock") };
}

static void lie(struct held *h)
{
	struct backend_op *op = &h->inner;

	switch (h->kind) {
	case ASK_IS_ALIVE:
		op->alive = !op->alive;
		break;
	case ASK_DISCOVER:
		if (op->error == -ENOENT)
			op->error = 0;
		set_nowhere(h);
		break;
	case ASK_CREATE:
	case ASK_ADOPT:
		set_nowhere(h);
		break;
	case ASK_LIST_RUNNING:
		add_made_up(op);
		break;
	default:
		abort(); /* refused by faulty_order() */
	}
	tell_inner(h);
}

static void on_death(struct ev_loop *ev, ev_io *w, int revents UNUSED)
{
	ev_io_stop(ev, w);
	close(w->fd);
	tell_inner(w->data);
}

/* The answer comes when it is dead, so that nobody finds it alive by chance. */
static void die(struct held *h)
{
	struct faulty *f = h->f;
	pid_t (*pid_of)(void *, const char *);
	void *ctx;
	pid_t pid;
	int fd;

	lock(&f->lock);
	pid_of = f->pid_of;
	ctx = f->pid_ctx;
	unlock(&f->lock);
	pid = pid_of ? pid_of(ctx, h->id) : 0;
	fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (fd < 0) {
		tell_inner(h);
		return;
	}
	h->phase = DYING;
	syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	ev_io_init(&h->death, on_death, fd, EV_READ);
	h->death.data = h;
	ev_io_start(loop_ev(f->base.loop), &h->death);
}

static void on_inner(struct backend_op *op)
{
	struct held *h = CONTAINER_OF(op, struct held, inner);
	bool there_is_none = h->kind == ASK_DISCOVER && op->error == -ENOENT;

	if (h->what.fault == FAULT_AFTER)
		answer(h, h->what.error, h->what.why);
	else if (h->what.fault == FAULT_WRONG && (op->error == 0 || there_is_none))
		lie(h);
	else if (h->what.fault == FAULT_DIE && op->error == 0)
		die(h);
	else
		tell_inner(h);
}

/* ---- the question ---- */

static void pass_on(struct held *h)
{
	const struct whom whom = { .id = h->id, .user = h->user, .thread = h->thread };

	h->phase = ASKED;
	h->inner.done = on_inner;
	ask_backend(h->f->inner, &h->inner, h->kind, &whom);
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	pass_on(w->data);
}

static void note_locked(struct faulty *f, enum ask_kind kind, const char *id) NEEDS(&f->lock)
{
	f->counts[kind]++;
	if (f->log_len == f->log_cap && f->log_cap < FAULTY_LOG_MAX) {
		f->log_cap = MIN(MAX(64, 2 * f->log_cap), (size_t)FAULTY_LOG_MAX);
		f->log = must(reallocarray(f->log, f->log_cap, sizeof(*f->log)));
	}
	if (f->log_len < f->log_cap) {
		struct faulty_event *e = &f->log[f->log_len++];

		e->kind = kind;
		snprintf(e->id, sizeof(e->id), "%s", id);
	}
	pthread_cond_broadcast(&f->cond);
}

static void take_order_locked(struct faulty *f, enum ask_kind kind, struct fault_order *ret)
	NEEDS(&f->lock)
{
	struct order *o = f->orders[kind];

	if (!o)
		return;
	*ret = o->what;
	ret->why = copy(o->what.why);
	if (o->what.times == FAULTY_FOREVER || --o->what.times > 0)
		return;
	LL_DELETE(f->orders[kind], o);
	free((void *)o->what.why);
	free(o);
}

static void question(struct backend *b, struct backend_op *op, enum ask_kind kind,
		     const struct whom *whom)
{
	struct faulty *f = (struct faulty *)b;
	struct held *h = must(calloc(1, sizeof(*h)));

	h->f = f;
	h->outer = op;
	h->kind = kind;
	snprintf(h->id, sizeof(h->id), "%s", whom->id);
	h->user = copy(whom->user);
	h->thread = copy(whom->thread);
	op->priv = h;
	DL_APPEND(f->held, h);
	lock(&f->lock);
	take_order_locked(f, kind, &h->what);
	/* Whoever waits for it and then resumes it must find it hanging: jobs come after us. */
	note_locked(f, kind, h->id);
	unlock(&f->lock);
	switch (h->what.fault) {
	case FAULT_FAIL:
		answer(h, h->what.error, h->what.why);
		break;
	case FAULT_HANG:
		h->phase = HANGING;
		break;
	case FAULT_SLOW:
		h->phase = WAITING;
		ev_timer_init(&h->timer, on_timer, (ev_tstamp)h->what.ms / 1e3, 0.);
		h->timer.data = h;
		ev_timer_start(loop_ev(b->loop), &h->timer);
		break;
	default:
		pass_on(h);
	}
}

static void faulty_cancel(struct backend *b, struct backend_op *op)
{
	struct held *h = op->priv;

	if (!h || h->phase == DYING)
		return;
	if (h->phase == ASKED) {
		h->f->inner->ops->cancel(h->f->inner, &h->inner);
		return;
	}
	if (h->phase == WAITING)
		ev_timer_stop(loop_ev(b->loop), &h->timer);
	answer(h, -ECANCELED, NULL);
}

static void faulty_create(struct backend *b, struct backend_op *op, const struct whom *whom)
{
	question(b, op, ASK_CREATE, whom);
}

static void faulty_destroy(struct backend *b, struct backend_op *op, const char *id)
{
	question(b, op, ASK_DESTROY, &(struct whom){ .id = id });
}

static void faulty_is_alive(struct backend *b, struct backend_op *op, const char *id)
{
	question(b, op, ASK_IS_ALIVE, &(struct whom){ .id = id });
}

static void faulty_discover(struct backend *b, struct backend_op *op, const char *id)
{
	question(b, op, ASK_DISCOVER, &(struct whom){ .id = id });
}

static void faulty_adopt(struct backend *b, struct backend_op *op, const char *id)
{
	question(b, op, ASK_ADOPT, &(struct whom){ .id = id });
}

static void faulty_list_running(struct backend *b, struct backend_op *op)
{
	question(b, op, ASK_LIST_RUNNING, &(struct whom){ .id = "" });
}

static void faulty_forget(struct backend *b, const char *id)
{
	struct backend *inner = ((struct faulty *)b)->inner;

	inner->ops->forget(inner, id);
}

static void faulty_tend(struct backend *b)
{
	struct backend *inner = ((struct faulty *)b)->inner;

	inner->ops->tend(inner);
}

/* ---- orders ---- */

void faulty_order(struct faulty *f, enum ask_kind kind, const struct fault_order *order)
{
	struct order *o = must(calloc(1, sizeof(*o)));

	assert(kind != ASK_DESTROY || order->fault != FAULT_WRONG);
	assert(order->error <= 0);
	o->what = *order;
	o->what.why = copy(order->why);
	o->what.times = MAX(order->times, 1);
	lock(&f->lock);
	LL_APPEND(f->orders[kind], o);
	unlock(&f->lock);
}

void faulty_clear(struct faulty *f)
{
	struct order *o;

	lock(&f->lock);
	for (unsigned kind = 0; kind < ASK_KINDS; kind++) {
		while ((o = f->orders[kind])) {
			LL_DELETE(f->orders[kind], o);
			free((void *)o->what.why);
			free(o);
		}
	}
	unlock(&f->lock);
}

static void run_resume(struct job *job)
{
	struct resume *r = CONTAINER_OF(job, struct resume, job);
	struct held *h, *next;

	DL_FOREACH_SAFE (r->f->held, h, next) {
		if (h->phase == HANGING && h->kind == r->kind)
			pass_on(h);
	}
}

void faulty_resume(struct faulty *f, enum ask_kind kind)
{
	loop_post(f->base.loop, &f->resume[kind].job);
}

void faulty_set_pid_of(struct faulty *f, pid_t (*pid_of)(void *ctx, const char *id), void *ctx)
{
	lock(&f->lock);
	f->pid_of = pid_of;
	f->pid_ctx = ctx;
	unlock(&f->lock);
}

/* ---- what happened ---- */

unsigned faulty_count(struct faulty *f, enum ask_kind kind)
{
	unsigned n;

	lock(&f->lock);
	n = f->counts[kind];
	unlock(&f->lock);
	return n;
}

unsigned faulty_answered(struct faulty *f, enum ask_kind kind)
{
	unsigned n;

	lock(&f->lock);
	n = f->answered[kind];
	unlock(&f->lock);
	return n;
}

bool faulty_wait(struct faulty *f, enum ask_kind kind, unsigned n, int timeout_ms)
{
	struct timespec end;
	bool came;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += timeout_ms / 1000;
	end.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (end.tv_nsec >= 1000000000L) {
		end.tv_nsec -= 1000000000L;
		end.tv_sec++;
	}
	lock(&f->lock);
	while (f->counts[kind] < n &&
	       pthread_cond_timedwait(&f->cond, &f->lock.mutex, &end) != ETIMEDOUT)
		;
	came = f->counts[kind] >= n;
	unlock(&f->lock);
	return came;
}

bool faulty_event(struct faulty *f, size_t i, struct faulty_event *ret)
{
	bool is;

	lock(&f->lock);
	is = i < f->log_len;
	if (is)
		*ret = f->log[i];
	unlock(&f->lock);
	return is;
}

/* ---- life ---- */

static void faulty_free(struct backend *b)
{
	struct faulty *f = (struct faulty *)b;

	for (unsigned kind = 0; kind < ASK_KINDS; kind++)
		loop_withdraw(b->loop, &f->resume[kind].job);
	assert(!f->held);
	backend_free(f->inner);
	faulty_clear(f);
	free(f->log);
	pthread_cond_destroy(&f->cond);
	lock_destroy(&f->lock);
	free(f);
}

/* What the inner one cannot do this one cannot either, and its name is the same. */
static void set_ops(struct faulty *f)
{
	const struct backend_ops *inner = f->inner->ops;

	f->ops = (struct backend_ops){
		.name = inner->name,
		.has_old_ids = inner->has_old_ids,
		.is_shared = inner->is_shared,
		.create = faulty_create,
		.destroy = faulty_destroy,
		.is_alive = faulty_is_alive,
		.discover = faulty_discover,
		.adopt = inner->adopt ? faulty_adopt : NULL,
		.list_running = inner->list_running ? faulty_list_running : NULL,
		.forget = inner->forget ? faulty_forget : NULL,
		.tend = inner->tend ? faulty_tend : NULL,
		.cancel = faulty_cancel,
		.free = faulty_free,
	};
}

struct backend *faulty_new(struct backend *inner, struct faulty **ret_handle)
{
	struct faulty *f = must(calloc(1, sizeof(*f)));
	pthread_condattr_t attr;

	f->inner = inner;
	set_ops(f);
	f->base = (struct backend){ .ops = &f->ops, .loop = inner->loop };
	for (unsigned kind = 0; kind < ASK_KINDS; kind++)
		f->resume[kind] = (struct resume){ .job.run = run_resume, .f = f, .kind = kind };
	lock_init(&f->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->cond, &attr);
	pthread_condattr_destroy(&attr);
	*ret_handle = f;
	return &f->base;
}

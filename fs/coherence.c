/* See coherence.h. Loop thread only. */
#include "coherence.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "cache.h"
#include "clock.h"
#include "lister.h"
#include "log.h"
#include "share.h"

enum {
	BURST_US = 100000,  /* of its share at once */
	SAY_MS = 60000,     /* for the log */
	PREFETCH_MS = 5000, /* a sandbox may say over and over that it has lost something */
};

struct coherence {
	struct thread *thread;
	struct call call;   /* the watch, while it is busy */
	bool busy;          /* the thread is counted meanwhile */
	bool live;          /* events come */
	bool was_live;      /* in this watch */
	struct sandbox *sb; /* counted: the one that is watched, or that cannot be (refused) */
	int refused;        /* why; 0: it is not known that it cannot */
	struct watcher *watchers;
	/*
	 * Of the loop's time, for what its events mean. A sandbox that knows what costs most would
	 * hold up all others; when it is used up nothing is kept for longer than without a
	 * watch, and events are only handed on, until that is made up for.
	 */
	struct share share;
	ev_timer flood;        /* runs until then */
	int64_t said_ms;       /* when the log was told of one; 0: never */
	int64_t prefetched_ms; /* from this sandbox; 0: never */
};

/* ---- what it says ---- */

static bool is_flooded(const struct coherence *c)
{
	return ev_is_active(&c->flood);
}

static void on_flood_over(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct coherence *c = w->data;

	c->share = (struct share){ 0 };
	if (c->live)
		cache_live(c->thread);
}

static void say_flooded(struct coherence *c)
{
	int64_t now = clock_ms();

	if (c->said_ms && now - c->said_ms < SAY_MS)
		return;
	c->said_ms = now;
	thread_info(c->thread, "more changes than can be looked at one by one: "
			       "for a while what is known of its files lasts a second");
}

/* Behind whatever they made us do, which began then. */
static void charge(struct coherence *c, int64_t began_us)
{
	struct thread *t = c->thread;

	share_pay(&c->share, began_us);
	if (!share_is_used_up(&c->share, BURST_US) || is_flooded(c))
		return;
	t->fs->totals.floods++;
	say_flooded(c);
	began_us = clock_us();
	cache_lost(t);
	share_pay(&c->share, began_us);
	ev_timer_set(&c->flood, share_pause_s(&c->share), 0.);
	ev_timer_start(t->fs->ev, &c->flood);
}

static void on_live(void *ctx)
{
	struct coherence *c = ctx;
	struct watcher *w;

	c->live = c->was_live = true;
	DL_FOREACH (c->watchers, w)
		w->live = true;
	if (is_flooded(c))
		return;
	cache_live(c->thread);
	if (c->prefetched_ms && clock_ms() - c->prefetched_ms < PREFETCH_MS)
		return;
	c->prefetched_ms = clock_ms();
	lister_prefetch(c->thread);
}

static void lose(struct coherence *c)
{
	int64_t began_us = clock_us();

	c->live = false;
	c->thread->fs->totals.watches_lost++;
	if (is_flooded(c))
		return;
	cache_lost(c->thread);
	charge(c, began_us);
}

static void on_lost(void *ctx, int err UNUSED)
{
	struct coherence *c = ctx;
	struct watcher *w, *next;

	lose(c);
	DL_FOREACH_SAFE (c->watchers, w, next) {
		if (w->live)
			w->lost(w);
	}
}

/* A path of the sandbox as it is below the root; NULL: it is elsewhere. */
static const char *below(const char *root, const char *path)
{
	size_t n = strlen(root);

	if (n == 1) /* "/" */
		return path + 1;
	return strncmp(path, root, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static void on_event(void *ctx, const struct watch_event *ev)
{
	struct coherence *c = ctx;
	struct watch_event e = *ev;
	struct watcher *w, *next;

	if (e.old_path)
		e.old_path = below(sandbox_root(c->sb), e.old_path);
	c->thread->fs->totals.events++;
	if (!is_flooded(c)) {
		int64_t began_us = clock_us();

		cache_event(c->thread, &e);
		charge(c, began_us);
	}
	DL_FOREACH_SAFE (c->watchers, w, next)
		w->event(w, &e);
}

/* ---- its life ---- */

static void forget_sandbox(struct coherence *c)
{
	c->refused = 0;
	c->prefetched_ms = 0;
	if (c->sb)
		sandbox_put(STEAL(c->sb));
}

static void tell_ended(struct coherence *c, int err)
{
	while (c->watchers) {
		struct watcher *w = c->watchers;

		DL_DELETE(c->watchers, w);
		w->prev = w->next = NULL;
		w->ended(w, w->live ? 0 : err);
	}
}

/* Not a word about the watch as such: the sandbox is gone, or we are. */
static bool is_the_end(int err)
{
	return err == -ENOTCONN || err == -ECANCELED || err == -ESHUTDOWN;
}

static void on_ended(struct call *call)
{
	struct coherence *c = call->ctx;
	struct thread *t = c->thread;
	int err = call->error;

	c->busy = false;
	if (c->live)
		lose(c);
	if (is_the_end(err)) {
		forget_sandbox(c);
	} else {
		c->refused = err ?: -EPROTO;
		thread_info(t, "its files are not watched: %s",
			    call->message ?: strerrordesc_np(-c->refused) ?: "error");
	}
	call_release(call);
	tell_ended(c, err);
	thread_unref(t);
}

/* With a sandbox that is not known to refuse. */
static void watch(struct coherence *c)
{
	c->busy = true;
	c->was_live = false;
	thread_ref(c->thread);
	call_init(&c->call, 0);
	c->call.done = on_ended;
	c->call.ctx = c;
	sandbox_watch(
		c->sb, &c->call, sandbox_root(c->sb),
		&(struct watch){ .live = on_live, .lost = on_lost, .event = on_event, .ctx = c });
}

/* Returns 0 if there is a watch now, live or not yet. */
static int begin(struct thread *t, bool insist)
{
	struct coherence *c = t->coherence;
	struct sandbox *sb;

	if (c && c->busy)
		return 0;
	if (t->fs->ending || t->removing || t->removed)
		return -ESHUTDOWN;
	if (!c) {
		c = t->coherence = calloc(1, sizeof(*c));
		if (!c)
			return -ENOMEM;
		c->thread = t;
		ev_init(&c->flood, on_flood_over);
		c->flood.data = c;
	}
	sb = tenant_sandbox(t->tenant);
	if (!sb)
		return -ENOTCONN;
	if (sb == c->sb && (!insist || c->refused == -EOPNOTSUPP)) {
		sandbox_put(sb);
		return c->refused;
	}
	forget_sandbox(c);
	c->sb = sb;
	watch(c);
	return 0;
}

void coherence_begin(struct thread *t)
{
	(void)begin(t, false); /* without one caches live for a second */
}

void coherence_end(struct thread *t)
{
	if (t->coherence && t->coherence->busy)
		call_cancel(&t->coherence->call);
}

void coherence_free(struct thread *t)
{
	struct coherence *c = STEAL(t->coherence);

	if (!c)
		return;
	ev_timer_stop(t->fs->ev, &c->flood);
	forget_sandbox(c);
	free(c);
}

const char *coherence_state(const struct thread *t)
{
	const struct coherence *c = t->coherence;

	if (c && c->busy)
		return c->live       ? (is_flooded(c) ? "flooded" : "live")
		       : c->was_live ? "lost"
				     : "starting";
	return c && c->refused ? "unsupported" : "off";
}

bool coherence_is_impossible(const struct thread *t)
{
	const struct coherence *c = t->coherence;

	return c && !c->busy && c->refused == -EOPNOTSUPP;
}

/* ---- who wants to know ---- */

int coherence_subscribe(struct thread *t, struct watcher *w)
{
	int r = begin(t, true);

	if (r < 0)
		return r;
	w->live = t->coherence->live;
	DL_APPEND(t->coherence->watchers, w);
	return 0;
}

void coherence_unsubscribe(struct thread *t, struct watcher *w)
{
	if (!w->prev)
		return;
	DL_DELETE(t->coherence->watchers, w);
	w->prev = w->next = NULL;
}

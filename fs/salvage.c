/* Which records there are, and when each is tried: see salvage.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "salvage_i.h"
#include "stage_i.h"
#include "status_text.h"

enum {
	AT_ONCE = 4, /* run at the same time */
	PAUSE_FIRST_MS = 5000,
	PAUSE_LAST_MS = 600000,
	BUSY_MS = 1000, /* somebody writes the file */
};

static void schedule(struct fs *fs);
static bool wake(struct salvage *v);

/* ---- what there is ---- */

static void free_salvage(struct salvage *v)
{
	ledger_record_release(&v->rec);
	spool_close(&v->spool);
	free(v->path);
	free(v->piece);
	free(v);
}

/* Its record stays. */
static void keep_salvage(struct salvage *v)
{
	ledger_entry_keep(STEAL(v->spool.entry));
	free_salvage(v);
}

static void unrest(struct salvage *v)
{
	if (!v->resting)
		return;
	v->resting = false;
	v->thread->resting--;
	thread_unref(STEAL(v->thread));
}

static int add(struct fs *fs, struct ledger_found *f, struct salvage **ret)
{
	struct salvage *v = calloc(1, sizeof(*v));
	struct ledger_entry *e;
	int r = v ? ledger_take(fs->staging->dir, f, &e) : -ENOMEM;

	if (r < 0) {
		free(v);
		return r;
	}
	v->fs = fs;
	v->rec = f->rec;
	f->rec = (struct ledger_record){ 0 };
	memcpy(v->name, f->name, LEDGER_NAME);
	spool_adopt(&v->spool, fs, e, f->size);
	DL_APPEND(fs->staging->salvage, v);
	if (ret)
		*ret = v;
	return 0;
}

static int gather(void *ctx, struct ledger_found *f, int err, const char *why)
{
	struct fs *fs = ctx;
	struct salvage *v;

	if (err < 0) {
		struct buf name CLEANUP_BUF = BUF_INIT(0);

		text_escape(&name, f->name, 64);
		log_warn("%s/" LEDGER_DIR "/%s is left alone: %s", fs->opt->cache, name.data ?: "",
			 why);
		fs->staging->refused++;
		return 0;
	}
	if (f->busy || strcmp(f->rec.source, fs->staging->source) != 0 ||
	    strcmp(f->rec.user, fs->opt->user) != 0)
		return 0;
	if (!spool_has_room(fs)) {
		if (!fs->staging->left++)
			log_warn("there is more in %s/" LEDGER_DIR
				 " than files may be open: the rest "
				 "is for the next mount, or threadfs recover",
				 fs->opt->cache);
		return 0;
	}
	err = add(fs, f, &v);
	if (err == 0 && v->rec.settled) {
		DL_DELETE(fs->staging->salvage, v);
		free_salvage(v); /* its owner did not get to that */
	}
	return err;
}

/* Sandboxes are not made for threads that are no more. */
static int find_threads(struct fs *fs)
{
	char **names = NULL;
	size_t count = 0;
	struct salvage *v;
	int r = provider_threads(fs->provider, fs->opt->user, &names, &count);

	if (r < 0)
		return r;
	DL_FOREACH (fs->staging->salvage, v) {
		v->listed = fs->opt->source == SOURCE_URL &&
			    strcmp(v->rec.thread, fs->opt->thread) == 0;
		for (size_t i = 0; i < count && !v->listed; i++)
			v->listed = strcmp(names[i], v->rec.thread) == 0;
	}
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
	return 0;
}

int salvage_gather(struct fs *fs)
{
	int r = ledger_scan(fs->staging->dir, gather, fs);

	if (r == 0 && fs->staging->salvage)
		r = find_threads(fs);
	return r;
}

void salvage_add(struct fs *fs, const char *name)
{
	struct ledger_found f = { .fd = -1 };
	struct salvage *v;

	if (ledger_find(fs->staging->dir, name, &f) < 0)
		return;
	if (!f.busy && add(fs, &f, &v) == 0) {
		v->listed = v->ours = true;
		v->state = stage_error_is_final(v->rec.error) ? SALVAGE_STUCK : SALVAGE_WAITS;
		v->next_ms = clock_ms() + 1; /* the stage is still there */
		schedule(fs);
	}
	ledger_found_release(&f);
}

void salvage_release(struct staging *g)
{
	struct salvage *v, *next;

	if (g->salvage_timer.data)
		ev_timer_stop(g->fs->ev, &g->salvage_timer);
	DL_FOREACH_SAFE (g->salvage, v, next) {
		unrest(v);
		thread_unref(STEAL(v->thread));
		keep_salvage(v);
	}
	g->salvage = NULL;
}

/* ---- when ---- */

static bool has_thread(const struct salvage *v)
{
	const struct thread *t = thread_find(v->fs, v->rec.thread);

	return t ? !t->removed && (t->known || v->listed) : v->listed;
}

/* Somebody writes to it: what he does comes first, and is what is compared with then. */
static bool is_being_written(const struct salvage *v)
{
	const struct thread *t = thread_find(v->fs, v->rec.thread);
	const struct node *n = t ? node_find(t, v->rec.path) : NULL;

	return n && n->stage && !stage_is_clean(n->stage);
}

/* Whether it is that name or, with below, one in it. */
static bool is_of(const struct salvage *v, const struct thread *t, const char *path, bool below)
{
	size_t len = strlen(path);

	return strcmp(v->rec.thread, t->id) == 0 && strncmp(v->rec.path, path, len) == 0 &&
	       (v->rec.path[len] == '\0' || (below && v->rec.path[len] == '/'));
}

struct salvage_hold {
	struct thread *thread; /* counted */
	char *path;
	void (*then)(void *ctx); /* NULL: nobody waits */
	void *ctx;
	struct salvage_hold *prev, *next;
};

static bool is_held(const struct salvage *v)
{
	const struct salvage_hold *h;

	DL_FOREACH (v->fs->staging->holds, h) {
		if (is_of(v, h->thread, h->path, true))
			return true;
	}
	return false;
}

static void try(struct salvage *v)
{
	unrest(v);
	if (!has_thread(v)) {
		v->state = SALVAGE_NO_THREAD;
		return;
	}
	if (is_being_written(v) || is_held(v)) {
		v->next_ms = clock_ms() + BUSY_MS;
		return;
	}
	if (thread_get(v->fs, v->rec.thread, &v->thread) < 0) {
		v->state = SALVAGE_NO_THREAD;
		return;
	}
	v->state = SALVAGE_RUNS;
	v->fs->staging->running++;
	salvage_run(v);
}

static void on_timer(struct ev_loop *ev, ev_timer *w, int revents UNUSED)
{
	struct staging *g = w->data;

	ev_timer_stop(ev, w);
	schedule(g->fs);
}

static void schedule(struct fs *fs)
{
	struct staging *g = fs->staging;
	struct salvage *v;
	int64_t now = clock_ms(), first = INT64_MAX;

	if (!g || (fs->ending && now >= g->last_try_ms))
		return;
	DL_FOREACH (g->salvage, v) {
		if (fs->ending && !v->ours)
			continue;
		if (v->state == SALVAGE_WAITS && v->next_ms <= now && g->running < AT_ONCE)
			try(v);
		if (v->state == SALVAGE_WAITS)
			first = MIN(first, v->next_ms);
	}
	if (first == INT64_MAX || g->running >= AT_ONCE)
		return;
	if (!g->salvage_timer.data)
		ev_init(&g->salvage_timer, on_timer);
	g->salvage_timer.data = g;
	g->salvage_timer.repeat = (double)MAX(first - now, 10) / 1e3;
	ev_timer_again(fs->ev, &g->salvage_timer);
}

void salvage_last_try(struct fs *fs)
{
	struct salvage *v;

	DL_FOREACH (fs->staging->salvage, v) {
		if (v->ours && v->state == SALVAGE_WAITS) {
			unrest(v);
			v->next_ms = 0;
		}
	}
	schedule(fs);
}

unsigned salvage_unfinished(const struct fs *fs)
{
	const struct salvage *v;
	unsigned n = 0;

	if (!fs->staging)
		return 0;
	DL_FOREACH (fs->staging->salvage, v)
		n += v->ours && (v->state == SALVAGE_WAITS || v->state == SALVAGE_RUNS);
	return n;
}

void salvage_begin(struct fs *fs)
{
	schedule(fs);
}

static bool is_settled(const struct salvage_hold *h)
{
	const struct salvage *v;

	DL_FOREACH (h->thread->fs->staging->salvage, v) {
		if (v->state == SALVAGE_RUNS && is_of(v, h->thread, h->path, true))
			return false;
	}
	return true;
}

static void tell_holders(struct fs *fs)
{
	struct salvage_hold *h;
	void (*then)(void *ctx);

again:
	DL_FOREACH (fs->staging->holds, h) {
		if (!h->then || !is_settled(h))
			continue;
		then = STEAL(h->then);
		then(h->ctx);
		goto again; /* the list may be another one */
	}
}

static void pump_stages(struct fs *fs)
{
	struct stage *s, *next;

	DL_FOREACH_SAFE2(fs->staging->dirty, s, next, book_next)
	stage_pump(s);
}

static void note_failure(struct salvage *v, int err, const char *message)
{
	bool changed;

	v->pause_ms = v->pause_ms ? MIN(v->pause_ms * 2, PAUSE_LAST_MS) : PAUSE_FIRST_MS;
	v->next_ms = clock_ms() + v->pause_ms;
	v->state = stage_error_is_final(err) ? SALVAGE_STUCK : SALVAGE_WAITS;
	v->resting = v->state == SALVAGE_WAITS;
	if (v->resting)
		thread_ref(v->thread)->resting++;
	if (err != -ESHUTDOWN || !v->rec.error) /* that we end is no news */
		v->rec.error = err;
	(void)!ledger_entry_write(v->spool.entry, &v->rec, &changed);
	if (!v->fs->ending && err != -ECANCELED)
		thread_failed(v->thread, v->rec.path, err, message);
}

void salvage_ended(struct salvage *v, int err, const char *message)
{
	struct fs *fs = v->fs;
	struct thread *t = v->thread;
	struct node *n = node_find(t, v->rec.path); /* v->path may be that of what is beside it */

	if (n)
		node_ref(n);
	fs->staging->running--;
	if (err < 0 && !v->unwanted) {
		note_failure(v, err, message);
		if (!v->resting)
			v->thread = NULL;
	} else {
		if (!v->unwanted)
			thread_info(t, "what was written before is in the sandbox now");
		DL_DELETE(fs->staging->salvage, v);
		v->thread = NULL;
		free_salvage(v);
	}
	if (n && n->stage)
		stage_pump(n->stage); /* readers, too, and who keeps it wait for the base */
	if (n)
		node_unref(n);
	thread_unref(t);
	tell_holders(fs);
	pump_stages(fs); /* at the end, too: those that waited for this one have their time still */
	schedule(fs);
}

/* ---- others ask ---- */

static bool wake(struct salvage *v)
{
	if (v->state == SALVAGE_RUNS)
		return false;
	unrest(v);
	v->rec.error = 0;
	v->state = SALVAGE_WAITS;
	v->next_ms = 0;
	return true;
}

void salvage_wake(struct thread *t)
{
	struct salvage *v;
	bool any = false;

	DL_FOREACH (t->fs->staging->salvage, v) {
		if (strcmp(v->rec.thread, t->id) == 0 && v->state == SALVAGE_WAITS &&
		    remote_is_unreachable(v->rec.error))
			any |= wake(v);
	}
	if (any)
		schedule(t->fs);
}

void salvage_retry(struct fs *fs)
{
	struct salvage *v;

	DL_FOREACH (fs->staging->salvage, v) {
		v->listed = true; /* who asks for it wants it, with a new sandbox if need be */
		v->pause_ms = 0;
		(void)wake(v);
	}
	schedule(fs);
}

/* One that does not run, with its record. */
static void drop(struct salvage *v)
{
	(void)wake(v); /* for the account */
	DL_DELETE(v->fs->staging->salvage, v);
	free_salvage(v);
}

/* ---- names go and move ---- */

/* The place of a name, if anything waits at all: mostly nothing does. */
static char *place_to_look(const struct node *dir, const char *name)
{
	const struct staging *g = dir->fs->staging;

	return g && g->salvage ? node_place(dir, name) : NULL;
}

/*
 * What is under way ends soon, and no further step is begun. What is being appended goes by name,
 * and could come late, into whatever has that then: its answer is awaited.
 */
static void stop(struct salvage *v)
{
	if (v->state != SALVAGE_RUNS)
		return;
	v->stopped = true;
	if (!v->piece || !v->asked)
		remote_cancel(&v->r);
}

static void give_up(struct salvage *v)
{
	v->unwanted = true;
	if (v->state == SALVAGE_RUNS)
		stop(v);
	else
		drop(v);
}

int salvage_discard(struct fs *fs, const char *name)
{
	struct salvage *v;

	DL_FOREACH (fs->staging->salvage, v) {
		if (strcmp(v->name, name) == 0) {
			give_up(v);
			return 0;
		}
	}
	return -EBUSY; /* it is a stage's */
}

struct salvage_hold *salvage_hold(const struct node *dir, const char *name)
{
	char *path CLEANUP_FREE = place_to_look(dir, name);
	struct salvage_hold *h = path ? calloc(1, sizeof(*h)) : NULL;
	struct salvage *v;

	if (!h)
		return NULL;
	h->path = STEAL(path);
	h->thread = thread_ref(dir->thread);
	DL_APPEND(dir->fs->staging->holds, h);
	DL_FOREACH (dir->fs->staging->salvage, v) {
		if (is_of(v, h->thread, h->path, true))
			stop(v);
	}
	return h;
}

void salvage_settle(struct salvage_hold *h, void (*then)(void *ctx), void *ctx)
{
	if (!h || is_settled(h)) {
		then(ctx);
		return;
	}
	h->then = then;
	h->ctx = ctx;
}

void salvage_let_go(struct salvage_hold *h)
{
	if (!h)
		return;
	if (h->thread->fs->staging)
		DL_DELETE(h->thread->fs->staging->holds, h);
	thread_unref(h->thread);
	free(h->path);
	free(h);
}

void salvage_removed(const struct node *dir, const char *name)
{
	char *path CLEANUP_FREE = place_to_look(dir, name);
	struct salvage *v, *next;

	if (!path)
		return;
	DL_FOREACH_SAFE (dir->fs->staging->salvage, v, next) {
		if (!is_of(v, dir->thread, path, false))
			continue;
		thread_info(dir->thread,
			    "what was to be uploaded to a file is dropped, as that was removed");
		give_up(v);
	}
}

void salvage_moved(const struct node *dir, const char *name, const struct node *to_dir,
		   const char *to_name)
{
	char *from CLEANUP_FREE = place_to_look(dir, name);
	char *to CLEANUP_FREE = from ? node_place(to_dir, to_name) : NULL;
	struct salvage *v;
	bool changed;

	if (!to)
		return;
	DL_FOREACH (dir->fs->staging->salvage, v) {
		char *path;

		if (!is_of(v, dir->thread, from, true) ||
		    asprintf(&path, "%s%s", to, v->rec.path + strlen(from)) < 0)
			continue;
		stop(v);
		free(v->rec.path);
		v->rec.path = path;
		(void)!ledger_entry_write(v->spool.entry, &v->rec, &changed);
	}
}

bool salvage_is_at(const struct node *n)
{
	const struct staging *g = n->fs->staging;
	const struct salvage *v;
	char *path CLEANUP_FREE = NULL;

	if (!g || g->running == 0 || node_rel_path(n, &path) < 0)
		return false;
	DL_FOREACH (g->salvage, v) {
		if (v->state == SALVAGE_RUNS && v->thread == n->thread && v->path &&
		    strcmp(v->path, path) == 0)
			return true;
	}
	return false;
}

const struct salvage *salvage_next(const struct fs *fs, const struct salvage *last,
				   struct salvage_view *ret)
{
	const struct salvage *v = last ? last->next : fs->staging ? fs->staging->salvage : NULL;

	if (!v)
		return NULL;
	*ret = (struct salvage_view){ .name = v->name,
				      .thread = v->rec.thread,
				      .path = v->rec.path,
				      .bytes = v->spool.bytes - MIN(v->rec.from, v->spool.bytes),
				      .state = v->state,
				      .error = v->rec.error };
	return v;
}

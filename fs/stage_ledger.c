/*
 * A stage in the ledger: when what it has is written down, and as what. Knows
 * nothing of requests but the one look at a file that we made ourselves.
 * Loop thread only; fdatasync(2) is a worker's.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "stage_i.h"
#include "staging.h"
#include "workers.h"

enum {
	AGE_MS = 100,         /* what is younger may be confirmed any moment */
	SWEEP_MS = 100,       /* while something is not written down */
	IDLE_MS = 1000,       /* while everything is */
	SYNC_FIRST_MS = 2000, /* it may be confirmed by then */
	SYNC_EVERY_MS = 3000,
	PARTS_MAX = LEDGER_SLOT / sizeof(struct extent), /* more than there is room for */
	PARTS_LESS = 32,                                 /* each time there is not */
};

static struct spool *content_of(struct stage *s)
{
	return s->appending ? &s->queue : &s->spool;
}

static enum ledger_kind kind_of(const struct stage *s)
{
	if (s->appending)
		return LEDGER_APPEND;
	return stage_is_complete(s) ? LEDGER_WHOLE : LEDGER_PATCH;
}

/* ---- on the disk ---- */

/*
 * The disk may take what one sync covers in any order, and a record without its content is worse
 * than none. So there are two: of the content, and then of the record that says that this has
 * happened.
 */
struct sync {
	struct work work;
	struct stage *s; /* NULL: it is gone */
	uint64_t covers;
	enum ledger_kind kind;
	bool sealing; /* the second one */
	int fd, dir;
	int err; /* -ECANCELED: the workers have ended before it was its turn */
};

static int write_down(struct stage *s);

static void run_sync(struct work *w)
{
	struct sync *y = CONTAINER_OF(w, struct sync, work);

	y->err = fdatasync(y->fd) < 0 || fsync(y->dir) < 0 ? -errno : 0;
}

/*
 * The kernel tells of pages that it could not write once, and of them no more: the next sync
 * ends well. So nothing that is in this file now counts as being on the disk later.
 */
static void note_sync_failed(struct stage *s, int err)
{
	struct staging *g = s->fs->staging;

	s->unsyncable = true;
	if (!g || g->told_sync)
		return;
	log_warn("the disk does not take what is written to %s: %s: after a failure of the power "
		 "it counts as incomplete",
		 s->fs->opt->cache, strerrordesc_np(-err));
	g->told_sync = true;
}

/* Nobody has written since; nor was the rest of the base put into the same file. */
static bool covers_all(const struct sync *y)
{
	return y->err == 0 && y->covers == y->s->changes && y->kind == kind_of(y->s);
}

/* True: it goes on. At the end there are no workers any more; staging_shelve() does the rest. */
static bool seal(struct sync *y)
{
	struct stage *s = y->s;

	if (y->err < 0 && y->err != -ECANCELED)
		note_sync_failed(s, y->err);
	if (y->sealing || !covers_all(y) || !s->fs->staging)
		return false;
	s->synced = y->covers;
	if (s->unsyncable || write_down(s) < 0 || !s->fs->syncers)
		return false;
	y->sealing = true;
	y->err = -ECANCELED;
	workers_submit(s->fs->syncers, &y->work);
	return true;
}

static void end_sync(struct work *w)
{
	struct sync *y = CONTAINER_OF(w, struct sync, work);

	if (y->s && seal(y))
		return;
	if (y->s) {
		y->s->sync = NULL;
		y->s->sync_ms = clock_ms() + SYNC_EVERY_MS;
	}
	close(y->fd);
	close(y->dir);
	free(y);
}

static void begin_sync(struct stage *s, const struct spool *c)
{
	struct sync *y;

	if (s->sync || s->synced >= s->changes || !s->fs->syncers)
		return;
	y = calloc(1, sizeof(*y));
	if (!y)
		return;
	*y = (struct sync){ .s = s, .covers = s->changes, .kind = kind_of(s), .err = -ECANCELED };
	y->fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
	y->dir = y->fd < 0 ? -1 : fcntl(s->fs->staging->dir, F_DUPFD_CLOEXEC, 0);
	if (y->dir < 0) {
		if (y->fd >= 0)
			close(y->fd);
		free(y);
		return;
	}
	y->work.run = run_sync;
	y->work.done = end_sync;
	s->sync = y;
	workers_submit(s->fs->syncers, &y->work);
}

/* ---- the version that it replaces ---- */

static void set_version(struct ledger_version *v, const struct attr *a)
{
	*v = (struct ledger_version){
		.there = true, .size = a->size, .ino = a->ino, .mtime = a->mtime
	};
}

void stage_note_origin(struct stage *s, const struct attr *seen, bool looked)
{
	if (looked)
		set_version(&s->origin, seen);
	else
		s->origin = (struct ledger_version){ .there = true, .size = seen->size };
}

/* What we made ourselves was not looked at: of it only the size is known. */
struct look {
	struct remote r;
	struct stage *s; /* NULL: it is gone */
	uint64_t confirmed;
	struct attr seen;
};

static void start_look(struct remote *r, struct sandbox *sb)
{
	struct look *l = CONTAINER_OF(r, struct look, r);
	char *path CLEANUP_FREE = stage_path(l->s, r, sb);

	if (path)
		sandbox_lstat(sb, &r->call, path, &l->seen);
}

static void end_look(struct remote *r, int err)
{
	struct look *l = CONTAINER_OF(r, struct look, r);
	struct stage *s = l->s;
	bool learned = s && err == 0 && s->confirmed == l->confirmed && !s->origin.ino &&
		       l->seen.size == s->origin.size;

	if (s)
		s->look = NULL;
	if (learned) {
		set_version(&s->origin, &l->seen);
		s->noted = 0; /* to be written down anew */
	}
	free(l);
	if (s && remote_is_unreachable(err))
		s->sought = false; /* to be asked once it can be */
	if (learned && s->sought)
		stage_wake(s);
}

static void learn_origin(struct stage *s)
{
	const struct attr *a = &s->n->attr;

	if (!s->origin.there || s->origin.ino || s->appending || stage_has_base(s))
		return;
	if (s->n->has_attr && a->ino && a->size == s->origin.size) {
		set_version(&s->origin, a);
		return;
	}
	if (s->look || s->delivery)
		return;
	s->look = calloc(1, sizeof(*s->look));
	if (!s->look)
		return;
	s->look->s = s;
	s->look->confirmed = s->confirmed;
	s->look->r.quiet = true;
	remote_begin(&s->look->r, s->n->thread, start_look, end_look);
}

/* ---- writing it down ---- */

static void describe(struct stage *s, const struct spool *c, char *path, struct ledger_record *rec)
{
	*rec = (struct ledger_record){
		.source = s->fs->staging->source,
		.user = s->fs->opt->user,
		.thread = s->n->thread->id,
		.path = path,
		.settled = !stage_is_dirty(s) || s->sent >= s->content,
		.base = s->origin,
		.mode = s->mode,
		.times = s->times,
		.mtime = s->mtime,
		.error = s->last_error,
		.kind = kind_of(s),
		.boot = s->fs->staging->boot,
		.size = c->bytes,
		.durable = s->synced == s->changes && !s->unsyncable,
	};
	if (rec->kind == LEDGER_APPEND) {
		rec->from = s->queue_at;
		set_version(&rec->base, &s->base);
	} else if (rec->kind == LEDGER_PATCH) {
		rec->base_len = s->base_len;
		rec->written = s->written;
		set_version(&rec->base, &s->base);
	}
}

/*
 * It was written to in more places than a record can name. One that names some of them is better
 * than an older one, or none; but with no boot it never is certain, so what is left after a kill
 * goes beside the file.
 */
static int write_parts(struct stage *s, struct ledger_entry *e, struct ledger_record *rec)
{
	static char none[] = "";
	size_t n = MIN(rec->written.n, PARTS_MAX);
	bool changed;
	int r = -E2BIG;

	rec->boot = none;
	rec->durable = false;
	while (r == -E2BIG && n > PARTS_LESS) {
		n -= PARTS_LESS;
		rec->written.n = n;
		r = ledger_entry_write(e, rec, &changed);
	}
	if (r == 0 && !s->partly)
		thread_warn(s->n->thread,
			    "%s is being written to in too many places: if that cannot be "
			    "uploaded, only some of it is kept",
			    rec->path);
	s->partly = r == 0;
	return r;
}

static int write_down(struct stage *s)
{
	struct spool *c = content_of(s);
	struct ledger_record rec;
	char *path CLEANUP_FREE = NULL;
	bool changed;
	int r;

	/* Attributes alone are not kept. */
	if (s->orphan || ((!c->entry || !c->entry->name[0]) && s->sent >= s->content))
		return 0;
	r = node_rel_path(s->n, &path);
	if (r < 0)
		return r;
	learn_origin(s);
	if (!spool_is_open(c))
		r = s->appending ? spool_open(c, s->fs) : stage_open_spool(s);
	if (r == 0)
		r = spool_to_file(c, s->fs->staging->dir);
	if (r < 0)
		return r;
	describe(s, c, path, &rec);
	r = ledger_entry_write(c->entry, &rec, &changed);
	if (r == -E2BIG)
		r = write_parts(s, c->entry, &rec);
	else if (r == 0)
		s->partly = false;
	if (r < 0)
		return r;
	s->noted = s->changes;
	s->noted_moves = s->fs->moves;
	return 0;
}

int stage_note_now(struct stage *s)
{
	struct staging *g = s->fs->staging;
	int r = g ? write_down(s) : 0;

	if (r < 0 && r != -ESTALE && !g->told) {
		log_warn("what is written cannot be kept in %s, and is lost if the daemon is "
			 "killed before the sandbox has it: %s",
			 s->fs->opt->cache, strerrordesc_np(-r));
		g->told = true;
	}
	if (g && r == 0 && s->last_error && content_of(s)->entry)
		begin_sync(s, content_of(s));
	return r;
}

void stage_note_durable(struct stage *s)
{
	int fd = content_of(s)->fd;

	if (fdatasync(fd) < 0)
		note_sync_failed(s, -errno);
	if (s->unsyncable)
		return;
	s->synced = s->changes;
	if (write_down(s) == 0)
		(void)!fdatasync(fd);
}

int stage_tell(const struct stage *s, const char **ret_state, char *ret_record)
{
	const struct spool *c = s->appending ? &s->queue : &s->spool;

	*ret_state = stage_is_uploading(s) ? "uploading" : s->last_error ? "waits" : "written";
	strcpy(ret_record, c->entry ? c->entry->name : "");
	return s->last_error;
}

/* ---- when ---- */

static void unlist(struct stage *s)
{
	if (!s->listed)
		return;
	s->listed = false;
	DL_DELETE2(s->fs->staging->dirty, s, book_prev, book_next);
}

static bool is_noted(const struct stage *s)
{
	return s->noted == s->changes && s->noted_moves == s->fs->moves;
}

/* True: all of it is written down. */
static bool visit(struct stage *s, int64_t now)
{
	const struct spool *c = content_of(s);

	if (s->orphan || !stage_is_dirty(s)) {
		unlist(s);
		return true;
	}
	if (now - s->dirty_ms < AGE_MS)
		return false;
	if (!is_noted(s))
		(void)stage_note_now(s);
	if (c->entry && c->entry->name[0] && now - s->dirty_ms >= SYNC_FIRST_MS &&
	    now >= s->sync_ms)
		begin_sync(s, c);
	return is_noted(s);
}

static void on_sweep(struct ev_loop *ev, ev_timer *w, int revents UNUSED)
{
	struct staging *g = w->data;
	struct stage *s, *next;
	int64_t now = clock_ms();
	bool all = true;

	DL_FOREACH_SAFE2(g->dirty, s, next, book_next)
	all &= visit(s, now);
	w->repeat = (all ? IDLE_MS : SWEEP_MS) / 1e3;
	if (g->dirty)
		ev_timer_again(ev, w);
	else
		ev_timer_stop(ev, w);
}

void stage_note_dirty(struct stage *s)
{
	struct staging *g = s->fs->staging;

	if (!g || s->orphan || s->freed)
		return;
	if (!s->listed) {
		s->listed = true;
		s->dirty_ms = clock_ms();
		DL_APPEND2(g->dirty, s, book_prev, book_next);
	}
	if (ev_is_active(&g->sweep) && g->sweep.repeat <= SWEEP_MS / 1e3)
		return;
	if (!g->sweep.data)
		ev_init(&g->sweep, on_sweep);
	g->sweep.data = g;
	g->sweep.repeat = SWEEP_MS / 1e3;
	ev_timer_again(s->fs->ev, &g->sweep);
}

void stage_note_moved(struct fs *fs)
{
	struct stage *s, *next;

	if (!fs->staging)
		return;
	DL_FOREACH_SAFE2(fs->staging->dirty, s, next, book_next)
	if (content_of(s)->entry && content_of(s)->entry->name[0] && !is_noted(s))
		(void)stage_note_now(s);
}

void stage_note_clean(struct stage *s)
{
	if (!s->fs->staging)
		return;
	if (content_of(s)->entry && content_of(s)->entry->name[0])
		(void)write_down(s);
	unlist(s);
}

void stage_note_dropped(struct stage *s)
{
	if (s->sync)
		s->sync->s = NULL;
	s->sync = NULL;
	if (s->look) {
		s->look->s = NULL;
		remote_cancel(&s->look->r);
		s->look = NULL;
	}
	if (!s->fs->staging)
		return;
	unlist(s);
	if (s->orphan) {
		ledger_entry_drop(STEAL(s->spool.entry));
		ledger_entry_drop(STEAL(s->queue.entry));
	}
}

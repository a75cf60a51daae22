/*
 * See watcher.h. Follows what inotify says, and knows what to do when it
 * loses track. Watching directories and reading them is watcher_dirs.c's,
 * coalescing and keeping events watch_event.c's.
 *
 * A watch descriptor stands for a directory, whatever its name is by now;
 * events tell about names as they were. By the time an event is read the tree
 * may look different, so every directory that is (re)placed by an event is
 * looked up again, and the descriptor the kernel answers with decides.
 */
#include "watcher_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "log.h"

enum {
	FLUSH_STEP = 500,    /* events settled per turn of the loop */
	PAIR_LOOKAHEAD = 64, /* events in which the other half of a rename is looked for */
	EVENT_MAX = sizeof(struct inotify_event) + NAME_MAX + 1,
};

#define PAIR_WAIT_S 0.005 /* for the other half of a rename to be queued */
#define RETURN_S    1.0   /* between two looks for a root that is gone */

static void lose_root(struct watcher *w);

/* ---- names ---- */

bool watcher_descends(const struct watcher *w, const char *name)
{
	return w->recursive && !w->filter.only[0] && !watch_excludes(&w->filter, name);
}

/* The path that is reported; name NULL means the directory itself. */
static int report_path(const struct watcher *w, const struct wdir *d, const char *name, char *out)
{
	if (w->filter.only[0] && name) {
		out[0] = '\0';
		return 0;
	}
	return wtree_path(d, name, out);
}

static const char *root_path(const struct watcher *w)
{
	return w->dir[0] ? w->dir : "/";
}

int watcher_real_dir(const struct watcher *w, const char *rel, char *out)
{
	int n = snprintf(out, PATH_MAX, "%s%s%s", w->dir, rel[0] || !w->dir[0] ? "/" : "", rel);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Of a path that is reported. */
static int real_path(const struct watcher *w, const char *rel, char *out)
{
	return watcher_real_dir(w, w->filter.only[0] ? w->filter.only : rel, out);
}

/* ---- gathering ---- */

bool watcher_choked(const struct watcher *w)
{
	return pending_full(&w->pending);
}

void watcher_timer(struct watcher *w, ev_timer *t, double seconds)
{
	if (ev_is_active(t))
		return;
	/* The loop's idea of now may be as old as the work of this turn. */
	ev_now_update(w->loop);
	ev_timer_set(t, seconds, 0.);
	ev_timer_start(w->loop, t);
}

/* Goes on with what waits while too much is pending. */
void watcher_resume(struct watcher *w)
{
	if (w->fd < 0 || watcher_choked(w))
		return;
	ev_io_start(w->loop, &w->io);
	if (w->buf_len > 0)
		ev_feed_event(w->loop, &w->io, EV_READ);
	if (w->reading || w->queue)
		watcher_timer(w, &w->step, 0.);
}

/* Something is pending: sees to it that it gets flushed in time. */
static void gathered(struct watcher *w, int r)
{
	if (r < 0) {
		watcher_overflow(w);
		return;
	}
	if (watcher_choked(w)) {
		ev_timer_stop(w->loop, &w->flush);
		ev_io_stop(w->loop, &w->io);
		watcher_timer(w, &w->flush, 0.);
	} else {
		watcher_timer(w, &w->flush, w->debounce_s);
	}
}

void watcher_note(struct watcher *w, enum watch_kind kind, const struct wdir *d, const char *name,
		  bool is_dir)
{
	char rel[PATH_MAX];

	/* No client could name a path that is too long. */
	if (report_path(w, d, name, rel) < 0)
		return;
	gathered(w, pending_add(&w->pending, kind, rel, is_dir, clock_wall()));
}

static void note_if_wanted(struct watcher *w, enum watch_kind kind, const struct wdir *d,
			   const char *name, bool is_dir)
{
	if (watch_wants(&w->filter, name))
		watcher_note(w, kind, d, name, is_dir);
}

/* ---- arming and losing ---- */

static void disarm(struct watcher *w)
{
	ev_io_stop(w->loop, &w->io);
	ev_timer_stop(w->loop, &w->step);
	ev_timer_stop(w->loop, &w->pair);
	while (w->tree.root)
		watcher_forget(w, wtree_leaf(w->tree.root));
	if (w->fd >= 0)
		close(steal_fd(&w->fd));
	w->buf_len = 0;
	w->settled = 0;
}

/*
 * A root whose ancestor is moved hears nothing of it, so the ancestors are
 * watched as well, for that only. Those that may not be are left out.
 */
static void watch_ancestors(struct watcher *w)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", w->dir);
	for (char *slash = strrchr(path, '/'); slash && slash != path; slash = strrchr(path, '/')) {
		*slash = '\0';
		inotify_add_watch(w->fd, path, IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR);
	}
}

/* Starts watching: the root at once, the rest in steps. */
static int arm(struct watcher *w, bool report)
{
	struct stat st;
	int wd;

	if (access("/proc/self/fd", X_OK) < 0)
		return -ENOSYS; /* place() needs it */
	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->fd < 0)
		return -errno;
	wd = inotify_add_watch(w->fd, root_path(w), WATCH_MASK);
	if (wd < 0 || stat(root_path(w), &st) < 0) {
		int r = -errno;

		close(steal_fd(&w->fd));
		return r;
	}
	w->dev = st.st_dev;
	w->ino = st.st_ino;
	watch_ancestors(w);
	if (!wtree_add(&w->tree, wd, NULL, NULL)) {
		close(steal_fd(&w->fd));
		return -ENOMEM;
	}
	ev_io_set(&w->io, w->fd, EV_READ);
	ev_io_start(w->loop, &w->io);
	if (report && !w->filter.only[0])
		watcher_note(w, WATCH_CREATE, w->tree.root, NULL, true);
	if (report || (w->recursive && !w->filter.only[0]))
		watcher_enqueue(w, w->tree.root, report);
	watcher_timer(w, &w->step, 0.);
	return 0;
}

static void on_retry(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct watcher *w = t->data;
	bool lost = w->state == STATE_LOST;
	int r = arm(w, lost);

	if (r == 0) {
		if (lost)
			w->state = STATE_RUNNING;
	} else if (!lost && (r == -ENOENT || r == -ENOTDIR)) {
		lose_root(w);
	} else {
		watcher_timer(w, &w->retry, RETURN_S);
	}
}

/* Events were lost: whoever has not read on from here has to look at everything. */
void watcher_overflow(struct watcher *w)
{
	pending_clear(&w->pending);
	ev_timer_stop(w->loop, &w->flush);
	w->flush_left = 0;
	evlog_overflow(&w->log, ++w->shared->seq);
	watcher_resume(w);
	w->ops->news(w->ctx);
}

/*
 * The kernel's queue was full. Directories may have come, gone and moved
 * unseen, so the table is worthless: start over, after a pause, lest a busy
 * tree keeps us walking all the time.
 */
static void resync(struct watcher *w)
{
	disarm(w);
	if (w->state != STATE_STARTING)
		w->state = STATE_RESYNC;
	watcher_timer(w, &w->retry, w->debounce_s);
	watcher_overflow(w);
}

static void lose_root(struct watcher *w)
{
	enum state before = w->state;

	if (w->tree.root)
		watcher_note(w, WATCH_REMOVE, w->tree.root,
			     w->filter.only[0] ? w->filter.only : NULL, !w->filter.only[0]);
	disarm(w);
	w->state = STATE_LOST;
	watcher_timer(w, &w->retry, RETURN_S);
	/* It was there a moment ago: the client gets its watcher. */
	if (before == STATE_STARTING)
		w->ops->armed(w->ctx, 0);
}

/* Something happened above the root: is it still where it was? */
static void check_root(struct watcher *w)
{
	struct stat st;

	if (stat(root_path(w), &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
		lose_root(w);
}

/* ---- following the kernel ---- */

/*
 * Both ends of a directory's rename are in the tree. The event is believed
 * first: the directory may have moved on since, and what happens in it has to
 * go by the right name until we hear of that. Then both places are looked at,
 * also the old one, where an exchange puts another directory.
 */
static void moved_dir(struct watcher *w, int from_wd, const char *old, int to_wd, const char *name)
{
	struct wdir *from = wtree_find(&w->tree, from_wd), *to = wtree_find(&w->tree, to_wd);
	struct wdir *d = wtree_child(&w->tree, from, old);

	if (!watcher_descends(w, name)) {
		if (d)
			watcher_drop(w, d);
		return;
	}
	/* If it was found at its new place before, it was too early: what was
	 * reported of it there would be lost on a client that moves things. */
	if (!d)
		watcher_drop_child(w, to, name);
	else if (watcher_move_dir(w, d, to, name) < 0)
		watcher_drop(w, d);
	watcher_retry_postponed(w);
	/* Any of these may drop what turns out to be in the way. */
	to = wtree_find(&w->tree, to_wd);
	if (to)
		watcher_follow(w, to, name);
	from = wtree_find(&w->tree, from_wd);
	if (from && watcher_descends(w, old))
		watcher_follow(w, from, old);
}

static void renamed(struct watcher *w, struct wdir *from, const char *old, struct wdir *to,
		    const char *name, bool is_dir)
{
	char old_rel[PATH_MAX], rel[PATH_MAX];
	bool was = !watch_excludes(&w->filter, old), is = !watch_excludes(&w->filter, name);

	/* A directory takes along what does match the patterns. */
	if (!is_dir) {
		was = watch_wants(&w->filter, old);
		is = watch_wants(&w->filter, name);
	}
	if (was && is && report_path(w, from, old, old_rel) == 0 &&
	    report_path(w, to, name, rel) == 0)
		gathered(w, pending_rename(&w->pending, old_rel, rel, is_dir, clock_wall()));
	else if (was)
		watcher_note(w, WATCH_REMOVE, from, old, is_dir);
	else if (is)
		note_if_wanted(w, WATCH_CREATE, to, name, is_dir);
	if (is_dir)
		moved_dir(w, from->wd, old, to->wd, name);
}

static void moved_out(struct watcher *w, struct wdir *d, const char *name, bool is_dir)
{
	/* Nobody tells of what was in a directory, patterns or not. */
	if (is_dir && !watch_excludes(&w->filter, name))
		watcher_note(w, WATCH_REMOVE, d, name, true);
	else
		note_if_wanted(w, WATCH_REMOVE, d, name, is_dir);
	watcher_drop_child(w, d, name);
	watcher_retry_postponed(w);
}

static void named_event(struct watcher *w, struct wdir *d, const struct inotify_event *ev)
{
	bool is_dir = ev->mask & IN_ISDIR;
	bool appears = ev->mask & (IN_CREATE | IN_MOVED_TO);

	if (appears)
		note_if_wanted(w, WATCH_CREATE, d, ev->name, is_dir);
	else if (ev->mask & IN_DELETE)
		note_if_wanted(w, WATCH_REMOVE, d, ev->name, is_dir);
	else if (ev->mask & (IN_MODIFY | IN_CLOSE_WRITE))
		note_if_wanted(w, WATCH_WRITE, d, ev->name, is_dir);
	else if (ev->mask & IN_ATTRIB)
		note_if_wanted(w, WATCH_CHMOD, d, ev->name, is_dir);

	/* If there is a new one under the name already we will hear of it, and
	 * then have to report what is in it again. */
	if (is_dir && (ev->mask & IN_DELETE))
		watcher_drop_child(w, d, ev->name);
	if (is_dir && (ev->mask & IN_MOVED_TO))
		watcher_retry_postponed(w);
	/* With a change of mode we may now be allowed to look inside. */
	if (is_dir && watcher_descends(w, ev->name) &&
	    (appears || ((ev->mask & IN_ATTRIB) && !wtree_child(&w->tree, d, ev->name))))
		watcher_follow(w, d, ev->name);
}

/* About the watched directory itself. */
static void self_event(struct watcher *w, struct wdir *d, uint32_t mask)
{
	if (!d) {
		/* An ancestor's descriptor, or one that we have dropped. */
		if (mask & (IN_MOVE_SELF | IN_DELETE_SELF))
			check_root(w);
	} else if (d->parent) {
		if (mask & IN_IGNORED)
			watcher_drop(w, d);
	} else if (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) {
		lose_root(w);
	} else if ((mask & IN_ATTRIB) && !w->filter.only[0]) {
		watcher_note(w, WATCH_CHMOD, d, NULL, true);
	}
}

/*
 * The other half of a rename follows closely, but not always next. NULL if it
 * does not; *ret_wait says that it may still come.
 */
static struct inotify_event *other_half(struct watcher *w, size_t off, uint32_t cookie,
					bool *ret_wait)
{
	size_t at = off;

	*ret_wait = false;
	for (unsigned n = 0; n <= PAIR_LOOKAHEAD; n++) {
		struct inotify_event *ev = (void *)(w->buf + at);

		if (at >= w->buf_len) {
			*ret_wait =
				off >= w->settled && WATCHER_READ_SIZE - w->buf_len >= EVENT_MAX;
			return NULL;
		}
		if ((ev->mask & IN_MOVED_TO) && ev->cookie == cookie)
			return ev;
		at += sizeof(*ev) + ev->len;
	}
	return NULL;
}

/* Returns false if the event has to wait for more. */
static bool moved_from(struct watcher *w, size_t off, struct wdir *d, struct inotify_event *ev)
{
	bool is_dir = ev->mask & IN_ISDIR, wait;
	struct inotify_event *other = other_half(w, off, ev->cookie, &wait);
	struct wdir *to = other ? wtree_find(&w->tree, other->wd) : NULL;

	if (wait)
		return false;
	if (!to) {
		moved_out(w, d, ev->name, is_dir);
		return true;
	}
	other->mask = 0; /* done */
	renamed(w, d, ev->name, to, other->name, is_dir);
	return true;
}

static bool handle(struct watcher *w, size_t off, struct inotify_event *ev)
{
	struct wdir *d = wtree_find(&w->tree, ev->wd);

	if (ev->mask & IN_Q_OVERFLOW)
		resync(w);
	else if (ev->len == 0)
		self_event(w, d, ev->mask);
	else if (d && (ev->mask & IN_MOVED_FROM))
		return moved_from(w, off, d, ev);
	else if (d)
		named_event(w, d, ev);
	return true;
}

/* Stops early when too much is pending; watcher_resume() goes on. */
static void process(struct watcher *w)
{
	size_t off = 0;

	while (off < w->buf_len && !watcher_choked(w)) {
		struct inotify_event *ev = (void *)(w->buf + off);

		if (!handle(w, off, ev)) {
			watcher_timer(w, &w->pair, PAIR_WAIT_S);
			break;
		}
		if (w->fd < 0)
			return; /* lost track; disarm() emptied the buffer */
		off += sizeof(*ev) + ev->len;
	}
	w->buf_len -= off;
	w->settled -= MIN(w->settled, off);
	memmove(w->buf, w->buf + off, w->buf_len);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int revents)
{
	struct watcher *w = io->data;
	ssize_t n = read(w->fd, w->buf + w->buf_len, WATCHER_READ_SIZE - w->buf_len);

	if (n > 0)
		w->buf_len += (size_t)n;
	process(w);
}

static void on_pair(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct watcher *w = t->data;

	w->settled = w->buf_len;
	process(w);
}

/* ---- flushing ---- */

static void settle(struct watcher *w, const struct pending_event *p)
{
	struct watch_event *e = watch_event_new(p->path, p->old);
	char path[PATH_MAX];
	struct stat st;

	if (!e) {
		evlog_overflow(&w->log, ++w->shared->seq);
		return;
	}
	e->seq = ++w->shared->seq;
	e->kind = p->kind;
	e->is_dir = p->is_dir;
	e->timestamp = p->timestamp;
	/* Better nothing than what belongs to another file. If it is gone by
	 * now that is told by events still to come. */
	if (p->kind != WATCH_REMOVE && !p->overtaken && real_path(w, p->path, path) == 0 &&
	    lstat(path, &st) == 0 && S_ISDIR(st.st_mode) == p->is_dir)
		watch_event_set_stat(e, &st);
	evlog_push(&w->log, e);
}

static void on_flush(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct watcher *w = t->data;

	if (w->flush_left == 0)
		w->flush_left = w->pending.count;
	for (unsigned n = 0; n < FLUSH_STEP && w->flush_left > 0; n++, w->flush_left--) {
		struct pending_event *p = pending_pop(&w->pending);

		settle(w, p);
		free(p);
	}
	if (w->pending.count > 0)
		watcher_timer(w, t, w->flush_left > 0 ? 0. : w->debounce_s);
	watcher_resume(w);
	w->ops->news(w->ctx);
}

/* ---- life ---- */

const struct evlog *watcher_log(const struct watcher *w)
{
	return &w->log;
}

/* Sets dir and only. A file is watched through its directory, so that its
 * replacement by another is seen. */
static int find_root(struct watcher *w, const char *path)
{
	struct stat st;
	char *slash;

	if (!realpath(path, w->dir) || stat(w->dir, &st) < 0)
		return -errno;
	slash = strrchr(w->dir, '/');
	if (!S_ISDIR(st.st_mode)) {
		snprintf(w->filter.only, sizeof(w->filter.only), "%s", slash + 1);
		*slash = '\0';
	} else if (slash[1] == '\0') {
		*slash = '\0'; /* "/" is kept as "", so that "/name" can follow */
	}
	return 0;
}

static void init_events(struct watcher *w)
{
	ev_init(&w->io, on_readable);
	ev_init(&w->flush, on_flush);
	ev_init(&w->pair, on_pair);
	ev_init(&w->retry, on_retry);
	ev_init(&w->step, watcher_on_step);
	/* Whatever happens in the tree, clients that are being served come
	 * first, as do the loop's idle watchers, which keep them going. */
	ev_set_priority(&w->io, EV_MINPRI);
	ev_set_priority(&w->flush, EV_MINPRI);
	ev_set_priority(&w->pair, EV_MINPRI);
	ev_set_priority(&w->retry, EV_MINPRI);
	ev_set_priority(&w->step, EV_MINPRI);
	w->io.data = w->flush.data = w->pair.data = w->retry.data = w->step.data = w;
}

int watcher_new(struct ev_loop *loop, const struct watcher_config *cfg,
		struct watcher_shared *shared, const struct watcher_ops *ops, void *ctx,
		struct watcher **ret)
{
	struct watcher *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->loop = loop;
	w->ops = ops;
	w->ctx = ctx;
	w->shared = shared;
	w->log.pool = &shared->log_pool;
	w->fd = -1;
	w->recursive = cfg->recursive;
	w->debounce_s = cfg->debounce_ms / 1000.;
	init_events(w);
	r = watch_filter_init(&w->filter, cfg->exclude, cfg->n_exclude, cfg->include,
			      cfg->n_include);
	if (r == 0)
		r = find_root(w, cfg->path);
	if (r == 0)
		r = arm(w, false);
	if (r < 0) {
		watcher_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void watcher_free(struct watcher *w)
{
	if (!w)
		return;
	disarm(w);
	ev_timer_stop(w->loop, &w->flush);
	ev_timer_stop(w->loop, &w->retry);
	pending_clear(&w->pending);
	evlog_release(&w->log);
	watch_filter_release(&w->filter);
	free(w);
}

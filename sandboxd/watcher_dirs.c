/*
 * The directories of a watcher: puts them under watch, keeps the table of
 * them (watch_tree.c) in step with the tree, and reads new ones, a few
 * milliseconds at a time. Knows nothing of how events are read or kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "watcher_i.h"

enum {
	SCAN_STEP_MS = 4, /* reading directories per turn of the loop */
	SCAN_CLOCK_EVERY = 32,
};

static void stop_reading(struct watcher *w)
{
	if (w->stream)
		closedir(STEAL(w->stream));
	w->reading = NULL;
}

static void unqueue(struct watcher *w, struct wdir *d)
{
	if (d->queued)
		DL_DELETE2(w->queue, d, scan_prev, scan_next);
	if (d->postponed)
		DL_DELETE2(w->postponed, d, scan_prev, scan_next);
	d->queued = false;
	d->postponed = false;
}

void watcher_forget(struct watcher *w, struct wdir *d)
{
	if (d == w->reading)
		stop_reading(w);
	unqueue(w, d);
	wtree_remove(&w->tree, d);
}

/* Stops watching d and all below it. */
void watcher_drop(struct watcher *w, struct wdir *d)
{
	struct wdir *leaf;

	do {
		leaf = wtree_leaf(d);
		inotify_rm_watch(w->fd, leaf->wd); /* it may be gone already */
		watcher_forget(w, leaf);
	} while (leaf != d);
}

void watcher_drop_child(struct watcher *w, struct wdir *parent, const char *name)
{
	struct wdir *d = wtree_child(&w->tree, parent, name);

	if (d)
		watcher_drop(w, d);
}

void watcher_enqueue(struct watcher *w, struct wdir *d, bool report)
{
	unqueue(w, d);
	d->report = report;
	d->queued = true;
	DL_PREPEND2(w->queue, d, scan_prev, scan_next);
	watcher_timer(w, &w->step, 0.);
}

/* It has been moved, but we have not heard of that yet. */
static void postpone(struct watcher *w, struct wdir *d, bool report)
{
	if (d->queued)
		return;
	unqueue(w, d);
	d->report = report;
	d->postponed = true;
	DL_PREPEND2(w->postponed, d, scan_prev, scan_next);
}

/* Something was moved: what could not be read may be found by now. */
void watcher_retry_postponed(struct watcher *w)
{
	while (w->postponed)
		watcher_enqueue(w, w->postponed, w->postponed->report);
}

/*
 * Records that d is now at parent/name, in the place of what the table has
 * there. Returns -ELOOP if that is impossible, because the table is stale.
 */
int watcher_move_dir(struct watcher *w, struct wdir *d, struct wdir *parent, const char *name)
{
	struct wdir *there = wtree_child(&w->tree, parent, name);

	if (there == d)
		return 0;
	if (!d->parent)
		return -ELOOP;
	if (there) {
		for (struct wdir *up = d; up; up = up->parent)
			if (up == there)
				return -ELOOP;
		watcher_drop(w, there);
	}
	return wtree_move(&w->tree, d, parent, name);
}

/*
 * The tree may be ahead of the events we have read, and then the path of d
 * leads nowhere or to another directory. Opens d only if it is d; else leaves
 * it to be read again after the next move, and returns -ESTALE.
 */
static int open_dir(struct watcher *w, struct wdir *d)
{
	char rel[PATH_MAX], path[PATH_MAX];
	int fd = -1, wd = -1;

	if (wtree_path(d, NULL, rel) == 0 && watcher_real_dir(w, rel, path) == 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		wd = inotify_add_watch(w->fd, path, WATCH_MASK & ~(uint32_t)IN_DONT_FOLLOW);
	}
	if (wd >= 0 && wd == d->wd)
		return fd;
	if (wd >= 0 && !wtree_find(&w->tree, wd))
		inotify_rm_watch(w->fd, wd);
	if (fd >= 0)
		close(fd);
	return -ESTALE;
}

/*
 * Sees to it that the directory which is now at name in parent (open as fd)
 * is watched and in the table at its place; if it is new, what is inside will
 * be read. Returns 0 also when there is none or we may not look into it (a
 * change of its mode will be seen); -ENOSPC when the kernel allows no more
 * watches.
 */
static int place(struct watcher *w, struct wdir *parent, int fd, const char *name, bool report)
{
	char path[NAME_MAX + 64];
	struct wdir *d, *there;
	int wd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", fd, name);
	wd = inotify_add_watch(w->fd, path, WATCH_MASK);
	if (wd < 0)
		return errno == ENOSPC || errno == ENOMEM ? -errno : 0;
	d = wtree_find(&w->tree, wd);
	if (d)
		return watcher_move_dir(w, d, parent, name) == -ENOMEM ? -ENOMEM : 0;
	there = wtree_child(&w->tree, parent, name);
	if (there)
		watcher_drop(w, there);
	d = wtree_add(&w->tree, wd, parent, name);
	if (!d) {
		inotify_rm_watch(w->fd, wd);
		return -ENOMEM;
	}
	watcher_enqueue(w, d, report);
	return 0;
}

/* A directory could not be watched: from now on changes go unseen. */
static void incomplete(struct watcher *w, int r)
{
	if (!w->warned)
		log_warn("watch: %s is not watched in full: %s", w->dir, strerrordesc_np(-r));
	w->warned = true;
	watcher_overflow(w);
}

/* Places a directory that an event told of. */
void watcher_follow(struct watcher *w, struct wdir *parent, const char *name)
{
	int fd CLEANUP_FD = open_dir(w, parent);
	int r;

	if (fd < 0) {
		postpone(w, parent, true);
		return;
	}
	r = place(w, parent, fd, name, true);
	if (r < 0)
		incomplete(w, r);
}

/* ---- reading directories ---- */

static int scan_entry(struct watcher *w, const struct dirent *de)
{
	bool is_dir = de->d_type == DT_DIR;
	struct wdir *d = w->reading;
	struct stat st;

	if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0 ||
	    watch_excludes(&w->filter, de->d_name))
		return 0;
	if (de->d_type == DT_UNKNOWN &&
	    fstatat(dirfd(w->stream), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		is_dir = S_ISDIR(st.st_mode);
	if (d->report && watch_wants(&w->filter, de->d_name))
		watcher_note(w, WATCH_CREATE, d, de->d_name, is_dir);
	if (is_dir && watcher_descends(w, de->d_name))
		return place(w, d, dirfd(w->stream), de->d_name, d->report);
	return 0;
}

/* /proc and /sys are endless, and inotify sees nothing there. */
static bool silent_fs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC);
}

static void open_next(struct watcher *w)
{
	struct wdir *d = w->queue;
	int fd = open_dir(w, d);

	unqueue(w, d);
	if (fd < 0) {
		postpone(w, d, d->report);
		return;
	}
	w->stream = silent_fs(fd) ? NULL : fdopendir(fd);
	if (w->stream)
		w->reading = d;
	else
		close(fd);
}

/* Returns 0 when there is nothing left to read, 1 when there is, or an errno. */
static int scan(struct watcher *w)
{
	int64_t deadline = clock_ms() + SCAN_STEP_MS;

	for (unsigned n = 1; w->reading || w->queue; n++) {
		const struct dirent *de;
		int r;

		if (watcher_choked(w) || (n % SCAN_CLOCK_EVERY == 0 && clock_ms() >= deadline))
			return 1;
		if (!w->reading) {
			open_next(w);
			continue;
		}
		de = readdir(w->stream);
		if (!de) {
			stop_reading(w);
			continue;
		}
		r = scan_entry(w, de);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Everything is watched. */
static void scanned(struct watcher *w)
{
	enum state before = w->state;

	w->state = STATE_RUNNING;
	if (before == STATE_STARTING)
		w->ops->armed(w->ctx, 0);
	else if (before == STATE_RESYNC)
		/* Whoever read the tree while we walked may have missed something. */
		watcher_overflow(w);
}

static void stop_scan(struct watcher *w)
{
	stop_reading(w);
	while (w->queue)
		unqueue(w, w->queue);
}

void watcher_on_step(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct watcher *w = t->data;
	int r = scan(w);

	if (r < 0 && w->state == STATE_STARTING) {
		w->ops->armed(w->ctx, r);
		return;
	}
	if (r < 0) {
		stop_scan(w);
		incomplete(w, r);
	}
	if (r > 0)
		watcher_resume(w);
	else
		scanned(w);
}

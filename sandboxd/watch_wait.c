/*
 * POST /v1/file/watch/wait: answers when something happens to one path. All
 * waits share one inotify instance, which watches the directories of their
 * paths; the kernel grants a user few instances, so a wait must not cost one.
 * Nothing is debounced or kept. Loop thread only.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <utlist.h>

#include "clock.h"
#include "watch_i.h"

#define WAIT_MASK                                                                                  \
	(IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |          \
	 IN_MOVED_TO | IN_ONLYDIR)

struct wait {
	struct request *r;
	struct wait_dir *dir; /* NULL: answered, or the directory is gone */
	struct wait *prev, *next;
	unsigned kinds; /* bits of enum watch_kind */
	bool existed;   /* when the wait began */
	struct stat before;
	char *path; /* as the client named it, without slashes at the end */
	char *base; /* the directory of that */
	char name[NAME_MAX + 1];
	char real[PATH_MAX];
};

/* A directory in which somebody waits for something. */
struct wait_dir {
	int wd;
	struct wait *waits;
	uint32_t cookie; /* of the last name that was moved away */
	char from[NAME_MAX + 1];
	UT_hash_handle hh;
};

struct waits {
	struct server *srv;
	int fd; /* -1 until the first wait */
	ev_io io;
	struct wait_dir *dirs;
};

/* ---- answers ---- */

/* old is the name before a rename, or NULL. */
static void reply_event(struct wait *wt, uint64_t seq, enum watch_kind kind, const char *old,
			bool is_dir)
{
	struct watch_event *e CLEANUP_FREE = watch_event_new(wt->name, old);
	struct request *r = wt->r;
	struct stat st;
	struct jw *w;

	if (!e) {
		reply_error(r, 500, "Out of memory");
		return;
	}
	e->seq = seq;
	e->kind = kind;
	e->is_dir = is_dir;
	e->timestamp = clock_wall();
	if (kind != WATCH_REMOVE && lstat(wt->real, &st) == 0)
		watch_event_set_stat(e, &st);
	w = watch_reply_begin(r, true);
	jw_obj(w);
	jw_key(w, "event");
	watch_write_event(w, r->srv->cfg->dialect, "", wt->base, e);
	jw_obj_end(w);
	watch_reply_end(r, true);
}

static void wait_leave(struct wait *wt)
{
	struct wait_dir *d = wt->dir;
	struct waits *ws = wt->r->srv->watch->waits;

	if (!d)
		return;
	DL_DELETE(d->waits, wt);
	wt->dir = NULL;
	if (d->waits)
		return;
	inotify_rm_watch(ws->fd, d->wd); /* fails if the directory is gone */
	HASH_DEL(ws->dirs, d);
	free(d);
}

static void wait_free(struct wait *wt)
{
	if (!wt)
		return;
	free(wt->path);
	free(wt->base);
	free(wt);
}

static void wait_cleanup(struct request *r)
{
	wait_leave(r->op);
	wait_free(r->op);
}

static void on_timeout(struct request *r)
{
	struct wait *wt = r->op;
	bool aiod = r->srv->cfg->dialect == DIALECT_AIOD;

	wait_leave(wt);
	watch_reply_error(r, aiod ? 503 : 408, "WATCH_TIMEOUT",
			  "Timed out waiting for file event: %s", wt->path);
	request_resume(r);
}

/* ---- events ---- */

/*
 * What an event means to somebody who asks for kinds; false if nothing. A
 * file that is moved to its place has been created for those who do not care
 * how it came, and the other way round.
 */
static bool meaning(uint32_t mask, unsigned kinds, bool paired, enum watch_kind *ret)
{
	enum watch_kind kind, other;

	if (mask & IN_MOVED_TO) {
		kind = paired ? WATCH_RENAME : WATCH_CREATE;
		other = paired ? WATCH_CREATE : WATCH_RENAME;
		if (!(kinds & 1u << kind))
			kind = other;
	} else if (mask & IN_CREATE) {
		kind = WATCH_CREATE;
	} else if (mask & (IN_DELETE | IN_MOVED_FROM)) {
		kind = WATCH_REMOVE;
	} else if (mask & (IN_MODIFY | IN_CLOSE_WRITE)) {
		kind = WATCH_WRITE;
	} else if (mask & IN_ATTRIB) {
		kind = WATCH_CHMOD;
	} else {
		return false;
	}
	*ret = kind;
	return kinds & 1u << kind;
}

static void wake(struct waits *ws, struct wait *wt, enum watch_kind kind, const char *old,
		 bool is_dir)
{
	reply_event(wt, ++ws->srv->watch->shared.seq, kind, old, is_dir);
	wait_leave(wt);
	request_resume(wt->r);
}

static void dispatch(struct waits *ws, struct wait_dir *d, const struct inotify_event *ev)
{
	bool paired = (ev->mask & IN_MOVED_TO) && ev->cookie == d->cookie;
	char from[NAME_MAX + 1];
	struct wait *wt, *tmp;
	enum watch_kind kind;

	if (ev->mask & IN_MOVED_FROM) {
		d->cookie = ev->cookie;
		snprintf(d->from, sizeof(d->from), "%s", ev->name);
	}
	/* The directory is freed when the last one leaves. */
	memcpy(from, d->from, sizeof(from));
	DL_FOREACH_SAFE (d->waits, wt, tmp) {
		if (strcmp(wt->name, ev->name) != 0 || !meaning(ev->mask, wt->kinds, paired, &kind))
			continue;
		wake(ws, wt, kind, kind == WATCH_RENAME && paired ? from : NULL,
		     ev->mask & IN_ISDIR);
	}
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/*
 * Bits of what must have happened between two looks at a path that is there
 * in both. What happens in a directory changes its times and its size, but
 * is not about the directory.
 */
static unsigned differences(const struct stat *a, const struct stat *b)
{
	bool replaced = a->st_dev != b->st_dev || a->st_ino != b->st_ino;
	bool file = !S_ISDIR(a->st_mode) || !S_ISDIR(b->st_mode);
	bool written = file &&
		       (replaced || a->st_size != b->st_size || !same_time(a->st_mtim, b->st_mtim));
	unsigned kinds = 0;

	if (replaced)
		return 1u << WATCH_REMOVE | (written ? 1u << WATCH_WRITE : 0);
	if (written)
		kinds |= 1u << WATCH_WRITE;
	if (a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid ||
	    (file && !written && !same_time(a->st_ctim, b->st_ctim)))
		kinds |= 1u << WATCH_CHMOD;
	return kinds;
}

/*
 * Events of this wait may have been lost: answers if the path shows that
 * something happened which was asked for. Nobody can tell how it came to its
 * place, so those who wait for nothing but a rename go on waiting.
 */
static void look_again(struct waits *ws, struct wait *wt)
{
	static const enum watch_kind order[] = { WATCH_CREATE, WATCH_WRITE, WATCH_CHMOD,
						 WATCH_REMOVE };
	struct stat st;
	bool exists = lstat(wt->real, &st) == 0;
	unsigned kinds = 0;

	if (!exists && errno != ENOENT && errno != ENOTDIR)
		return; /* it may well be there */
	if (exists && wt->existed)
		kinds = differences(&wt->before, &st);
	else if (exists)
		kinds = 1u << WATCH_CREATE |
			(S_ISREG(st.st_mode) && st.st_size > 0 ? 1u << WATCH_WRITE : 0);
	else if (wt->existed)
		kinds = 1u << WATCH_REMOVE;
	kinds &= wt->kinds;
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		if (kinds & 1u << order[i]) {
			wake(ws, wt, order[i], NULL,
			     S_ISDIR(order[i] == WATCH_REMOVE ? wt->before.st_mode : st.st_mode));
			return;
		}
	}
}

/* The kernel's queue was full. */
static void overflow(struct waits *ws)
{
	struct wait_dir *d, *next_dir;
	struct wait *wt, *tmp;

	HASH_ITER (hh, ws->dirs, d, next_dir)
		DL_FOREACH_SAFE (d->waits, wt, tmp)
			look_again(ws, wt);
}

/* The directory is gone: nothing will happen there until the time is over. */
static void abandon(struct waits *ws, struct wait_dir *d)
{
	while (d->waits) {
		d->waits->dir = NULL;
		DL_DELETE(d->waits, d->waits);
	}
	HASH_DEL(ws->dirs, d);
	free(d);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int revents)
{
	char buf[16 * 1024] __attribute__((aligned(__alignof__(struct inotify_event))));
	struct waits *ws = io->data;
	const struct inotify_event *ev;
	ssize_t n = read(ws->fd, buf, sizeof(buf));

	for (ssize_t off = 0; off < n; off += (ssize_t)(sizeof(*ev) + ev->len)) {
		struct wait_dir *d;

		ev = (const void *)(buf + off);
		if (ev->mask & IN_Q_OVERFLOW)
			overflow(ws);
		HASH_FIND_INT(ws->dirs, &ev->wd, d);
		if (d && ev->len > 0)
			dispatch(ws, d, ev);
		else if (d && (ev->mask & IN_IGNORED))
			abandon(ws, d);
	}
}

/* ---- starting to wait ---- */

static int open_inotify(struct waits *ws)
{
	if (ws->fd >= 0)
		return 0;
	ws->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (ws->fd < 0)
		return -errno;
	ev_io_init(&ws->io, on_readable, ws->fd, EV_READ);
	ev_set_priority(&ws->io, EV_MINPRI);
	ws->io.data = ws;
	ev_io_start(ws->srv->loop, &ws->io);
	return 0;
}

static int wait_enter(struct waits *ws, struct wait *wt, const char *parent)
{
	struct wait_dir *d;
	int wd, r = open_inotify(ws);

	if (r < 0)
		return r;
	wd = inotify_add_watch(ws->fd, parent, WAIT_MASK);
	if (wd < 0)
		return -errno;
	HASH_FIND_INT(ws->dirs, &wd, d);
	if (!d) {
		d = calloc(1, sizeof(*d));
		if (!d) {
			inotify_rm_watch(ws->fd, wd);
			return -ENOMEM;
		}
		d->wd = wd;
		HASH_ADD_INT(ws->dirs, wd, d);
	}
	DL_APPEND(d->waits, wt);
	wt->dir = d;
	return 0;
}

/* Splits the path into the directory, which must exist, and the name in it. */
static int find_parent(struct wait *wt, char *parent)
{
	char *slash = strrchr(wt->real, '/'), *name = slash ? slash + 1 : wt->real;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	snprintf(wt->name, sizeof(wt->name), "%s", name);
	if (slash)
		snprintf(parent, PATH_MAX, "%.*s", (int)(name - wt->real), wt->real);
	else
		snprintf(parent, PATH_MAX, ".");
	slash = strrchr(wt->path, '/');
	if (!slash)
		wt->base = strdup(".");
	else
		wt->base = strndup(wt->path, (size_t)MAX(slash - wt->path, 1));
	return wt->base ? 0 : -ENOMEM;
}

static int parse_kinds(const struct strv *names, unsigned *ret)
{
	unsigned kinds = 0;
	enum watch_kind kind;

	for (size_t i = 0; i < names->n; i++) {
		if (watch_kind_parse(names->v[i], &kind) < 0)
			return -EINVAL;
		kinds |= 1u << kind;
	}
	*ret = names->set ? kinds : (1u << WATCH_KINDS) - 1;
	return 0;
}

static int wait_new(struct request *r, const struct wait_args *a, unsigned kinds, struct wait **ret)
{
	struct wait *wt = calloc(1, sizeof(*wt));
	size_t len = strlen(a->path);
	int e;

	while (len > 1 && a->path[len - 1] == '/')
		len--;
	if (wt)
		wt->path = strndup(a->path, len);
	if (!wt || !wt->path) {
		free(wt);
		return -ENOMEM;
	}
	e = sandbox_path(r->srv, wt->path, wt->real);
	if (e < 0) {
		wait_free(wt);
		return e;
	}
	wt->r = r;
	wt->kinds = kinds;
	*ret = wt;
	return 0;
}

void watch_wait(struct request *r)
{
	const struct wait_args *a = r->args;
	char parent[PATH_MAX];
	unsigned kinds;
	struct wait *wt;
	int e;

	if (parse_kinds(&a->event_types, &kinds) < 0) {
		reply_plain_begin(r);
		args_write_error(&r->out, r->srv->cfg->dialect, "body", "event_types",
				 "Input should be 'create', 'write', 'remove', 'rename' or 'chmod'",
				 "literal_error");
		reply_plain_end(r, 422);
		return;
	}
	e = wait_new(r, a, kinds, &wt);
	if (e == 0) {
		r->op = wt;
		r->cleanup = wait_cleanup;
		e = find_parent(wt, parent);
	}
	/* Watched before it is looked for, so that it cannot appear between. */
	if (e == 0)
		e = wait_enter(r->srv->watch->waits, wt, parent);
	if (e < 0) {
		watch_reply_path_error(r, a->path, -e);
		return;
	}
	wt->existed = lstat(wt->real, &wt->before) == 0;
	if (wt->existed && (kinds & 1u << WATCH_CREATE)) {
		wait_leave(wt);
		reply_event(wt, 0, WATCH_CREATE, NULL, S_ISDIR(wt->before.st_mode));
		return;
	}
	request_timer(r, (double)a->timeout, on_timeout);
}

/* ---- life ---- */

int waits_new(struct server *srv, struct waits **ret)
{
	struct waits *ws = calloc(1, sizeof(*ws));

	if (!ws)
		return -ENOMEM;
	ws->srv = srv;
	ws->fd = -1;
	*ret = ws;
	return 0;
}

void waits_free(struct waits *ws)
{
	if (!ws)
		return;
	while (ws->dirs)
		abandon(ws, ws->dirs);
	if (ws->fd >= 0) {
		ev_io_stop(ws->srv->loop, &ws->io);
		close(ws->fd);
	}
	free(ws);
}

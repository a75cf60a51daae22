/*
 * /v1/file/watch: makes watchers, shares them between clients that ask for
 * the same, and hands out their events by polls and streams. How a tree is
 * watched is watcher.c's matter. Loop thread only.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <utlist.h>

#include "clock.h"
#include "route.h"
#include "subsystems.h"
#include "watch_i.h"

enum {
	HEARTBEAT_S = 30,
	REPLY_SOFT_MAX = 1 << 20, /* bytes after which a poll's answer is cut */
	STREAM_PIECE = 64 * 1024,
};

/* One request that waits for a watcher. It is in one of the watcher's lists
 * from when it starts to wait until it is answered. */
struct sub {
	struct request *r;
	struct watched *target; /* NULL: answered, or the watcher is gone */
	struct sub **list;
	struct sub *prev, *next;
	uint64_t cursor;
	unsigned limit;
	bool reused;    /* of a request to create */
	bool greeted;   /* of a stream: watch_started was sent */
	bool heartbeat; /* of a stream: one is due */
};

/* A watcher as clients see it. */
struct watched {
	struct watch *watch;
	struct watcher *watcher;
	char id[13];
	char *path; /* as the client named it, without slashes at the end */
	char *key;  /* the whole configuration, and what the path led to */
	unsigned leases;
	bool armed;
	double created_at;
	struct sub *creates, *polls, *streams;
	struct watched *prev, *next;
};

/* What a path leads to now. */
struct root {
	char path[PATH_MAX];
	bool is_dir;
};

struct create_args {
	const char *path;
	bool recursive;
	struct strv exclude;
	int64_t debounce;
	struct strv include_patterns;
};

struct poll_args {
	int64_t cursor;
	int64_t limit;
	int64_t timeout;
};

/* ---- answers ---- */

static void write_code(struct jw *w, const char *key, const char *code, const char *message)
{
	jw_key(w, key);
	jw_obj(w);
	jw_kstr(w, "code", code);
	jw_kstr(w, "message", message);
	jw_obj_end(w);
}

void watch_reply_error(struct request *r, unsigned status, const char *code, const char *fmt, ...)
{
	char message[PATH_MAX + 256];
	struct jw *w = reply_plain_begin(r);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	jw_obj(w);
	if (r->srv->cfg->dialect == DIALECT_AIOD) {
		jw_kbool(w, "success", false);
		jw_kstr(w, "message", message);
		write_code(w, "data", code, message);
		jw_knull(w, "hint");
	}
	write_code(w, "detail", code, message);
	jw_obj_end(w);
	reply_plain_end(r, status);
}

void watch_reply_path_error(struct request *r, const char *path, int err)
{
	switch (err) {
	case EMFILE:
	case ENFILE:
		watch_reply_error(
			r, 500, "WATCH_FAILED",
			"No inotify instance is left: raise fs.inotify.max_user_instances");
		break;
	case ENOSPC:
		watch_reply_error(r, 500, "WATCH_FAILED",
				  "Too many directories: raise fs.inotify.max_user_watches");
		break;
	case ENOMEM:
		watch_reply_error(r, 500, "WATCH_FAILED", "Out of memory");
		break;
	case ENOENT:
	case ENOTDIR:
		watch_reply_error(r, 400, "PATH_NOT_FOUND", "Path does not exist: %s", path);
		break;
	default:
		watch_reply_error(r, 400, "INVALID_PATH", "Cannot watch %s: %s", path,
				  strerrordesc_np(err));
	}
}

struct jw *watch_reply_begin(struct request *r, bool bare)
{
	struct jw *w;

	if (r->srv->cfg->dialect == DIALECT_AIOD)
		return reply_begin(r, NULL);
	w = reply_plain_begin(r);
	if (!bare) {
		jw_obj(w);
		jw_key(w, "data");
	}
	return w;
}

void watch_reply_end(struct request *r, bool bare)
{
	/* A name that is not UTF-8 must not keep a client from reading on: it
	 * would ask for the same events again, and fail again. */
	r->jw.invalid_utf8 = false;
	if (r->srv->cfg->dialect == DIALECT_AIOD) {
		reply_end(r);
		return;
	}
	if (!bare)
		jw_obj_end(&r->jw);
	reply_plain_end(r, 200);
}

static void write_path(struct jw *w, const char *key, const char *base, const char *rel)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s%s%s", base, rel[0] && strcmp(base, "/") != 0 ? "/" : "",
		 rel);
	jw_kstr(w, key, path);
}

void watch_write_event(struct jw *w, enum dialect dialect, const char *id, const char *base,
		       const struct watch_event *e)
{
	jw_obj(w);
	jw_kint(w, "seq", (int64_t)e->seq);
	jw_kstr(w, "watcher_id", id);
	jw_kstr(w, "type", watch_kind_name(e->kind));
	write_path(w, "path", base, e->path);
	jw_kstr(w, "relative_path", e->path[0] ? e->path : ".");
	if (e->old)
		write_path(w, "old_path", base, e->old);
	else
		jw_knull(w, "old_path");
	if (dialect == DIALECT_AIOD)
		jw_kbool(w, "is_dir", e->is_dir);
	else
		jw_kint(w, "is_dir", e->is_dir); /* rows of a database there */
	jw_knum(w, "timestamp", e->timestamp);
	if (e->has_stat) {
		jw_knum(w, "mtime", e->mtime);
		jw_kint(w, "size", e->size);
		jw_kint(w, "inode", (int64_t)e->inode);
	} else {
		jw_knull(w, "mtime");
		jw_knull(w, "size");
		jw_knull(w, "inode");
	}
	jw_obj_end(w);
}

static void reply_created(struct request *r, const struct watched *wd, bool reused)
{
	struct jw *w = watch_reply_begin(r, false);

	jw_obj(w);
	jw_kstr(w, "watcher_id", wd->id);
	jw_kstr(w, "path", wd->path);
	jw_kstr(w, "status", "running");
	jw_knum(w, "created_at", wd->created_at);
	jw_kbool(w, "reused", reused);
	if (r->srv->cfg->dialect == DIALECT_AIOD)
		jw_kint(w, "initial_cursor", (int64_t)wd->watch->shared.seq);
	jw_obj_end(w);
	watch_reply_end(r, false);
}

/* Nothing new between the cursor and now, and nothing lost either. */
static bool up_to_date(const struct watched *wd, uint64_t cursor)
{
	const struct evlog *log = watcher_log(wd->watcher);

	return cursor >= log->gap && cursor <= wd->watch->shared.seq && !evlog_after(log, cursor);
}

static void reply_events(struct request *r, const struct watched *wd, uint64_t cursor,
			 unsigned limit)
{
	const struct evlog *log = watcher_log(wd->watcher);
	struct jw *w = watch_reply_begin(r, true);
	const struct watch_event *e;
	/* A cursor from the future is not one of ours: nothing is known of
	 * what its owner has seen. */
	bool future = cursor > wd->watch->shared.seq, overflow = future || cursor < log->gap;

	if (overflow)
		cursor = future ? wd->watch->shared.seq : log->gap;
	jw_obj(w);
	jw_key(w, "events");
	jw_arr(w);
	while (limit-- > 0 && r->out.len < REPLY_SOFT_MAX && (e = evlog_after(log, cursor))) {
		watch_write_event(w, r->srv->cfg->dialect, wd->id, wd->path, e);
		cursor = e->seq;
	}
	jw_arr_end(w);
	jw_kint(w, "cursor", (int64_t)cursor);
	jw_kbool(w, "overflow", overflow);
	jw_obj_end(w);
	watch_reply_end(r, true);
}

static void reply_unknown(struct request *r, const char *id)
{
	watch_reply_error(r, 404, "WATCHER_NOT_FOUND", "Watcher not found: %s", id);
}

/* ---- requests that wait ---- */

static void watched_free(struct watched *wd);

static void sub_leave(struct sub *s)
{
	if (!s->target)
		return;
	DL_DELETE(*s->list, s);
	s->target = NULL;
}

static void sub_cleanup(struct request *r)
{
	sub_leave(r->op);
	free(r->op);
}

/* Makes r wait for wd in one of its lists; NULL after replying with an error. */
static struct sub *sub_new(struct request *r, struct watched *wd, struct sub **list)
{
	struct sub *s = calloc(1, sizeof(*s));

	if (!s) {
		reply_error(r, 500, "Out of memory");
		return NULL;
	}
	s->r = r;
	s->target = wd;
	s->list = list;
	DL_APPEND(*list, s);
	r->op = s;
	r->cleanup = sub_cleanup;
	return s;
}

static void drop_lease(struct watched *wd)
{
	if (--wd->leases == 0)
		watched_free(wd);
}

/* Nobody will ever know of a lease whose answer had no taker. */
static void create_cleanup(struct request *r)
{
	struct sub *s = r->op;
	struct watched *wd = s->target;

	sub_cleanup(r);
	if (wd)
		drop_lease(wd);
}

static void on_armed(void *ctx, int error)
{
	struct watched *wd = ctx;
	struct sub *s;

	wd->armed = true;
	while ((s = wd->creates)) {
		sub_leave(s);
		if (error)
			watch_reply_path_error(s->r, wd->path, -error);
		else
			reply_created(s->r, wd, s->reused);
		request_resume(s->r);
	}
	if (error)
		watched_free(wd);
}

static void on_news(void *ctx)
{
	struct watched *wd = ctx;
	struct sub *s, *tmp;

	DL_FOREACH_SAFE (wd->polls, s, tmp) {
		if (up_to_date(wd, s->cursor))
			continue;
		sub_leave(s);
		reply_events(s->r, wd, s->cursor, s->limit);
		request_resume(s->r);
	}
	DL_FOREACH_SAFE (wd->streams, s, tmp)
		request_wake(s->r);
}

static const struct watcher_ops watcher_ops = { .armed = on_armed, .news = on_news };

/* ---- watchers ---- */

static struct watched *watched_find(struct request *r)
{
	struct watched *wd;

	DL_FOREACH (r->srv->watch->list, wd)
		if (strcmp(wd->id, r->path_arg) == 0 && wd->armed)
			return wd;
	reply_unknown(r, r->path_arg);
	return NULL;
}

/* Ends it for everybody: polls are told that it is gone, streams end. */
static void watched_free(struct watched *wd)
{
	struct sub *s;

	while ((s = wd->polls)) {
		sub_leave(s);
		reply_unknown(s->r, wd->id);
		request_resume(s->r);
	}
	while ((s = wd->streams)) {
		sub_leave(s);
		request_wake(s->r);
	}
	DL_DELETE(wd->watch->list, wd);
	wd->watch->count--;
	watcher_free(wd->watcher);
	free(wd->path);
	free(wd->key);
	free(wd);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The patterns as a sorted set, so that their order makes no other watcher. */
static void append_set(struct buf *key, const struct strv *patterns)
{
	if (patterns->n > 1)
		qsort(patterns->v, patterns->n, sizeof(*patterns->v), compare);
	for (size_t i = 0; i < patterns->n; i++)
		if (i == 0 || strcmp(patterns->v[i - 1], patterns->v[i]) != 0)
			buf_printf(key, " %zu:%s", strlen(patterns->v[i]), patterns->v[i]);
	buf_puts(key, "\n");
}

/* A link that leads elsewhere by now, or a file where a directory was, makes
 * another watcher; a root that went away and came back does not. */
static char *make_key(const struct create_args *a, const char *path, const struct root *root)
{
	struct buf key = BUF_INIT(0);

	buf_printf(&key, "%d %d %" PRId64 "\n", root->is_dir, a->recursive, a->debounce);
	append_set(&key, &a->exclude);
	append_set(&key, &a->include_patterns);
	buf_printf(&key, "%zu:%s %s", strlen(path), path, root->path);
	if (key.error)
		buf_release(&key);
	return key.data;
}

static int random_id(char id[13])
{
	unsigned char raw[6];

	if (getrandom(raw, sizeof(raw), GRND_NONBLOCK) != sizeof(raw))
		return -EIO;
	for (size_t i = 0; i < sizeof(raw); i++)
		snprintf(id + 2 * i, 3, "%02x", raw[i]);
	return 0;
}

/* Takes path and key, also on failure. */
static int watched_new(struct server *srv, const struct create_args *a, const struct root *root,
		       char *path, char *key, struct watched **ret)
{
	struct watched *wd = calloc(1, sizeof(*wd));
	struct watcher_config cfg = {
		.path = root->path,
		.recursive = a->recursive,
		.debounce_ms = (unsigned)a->debounce,
		.exclude = a->exclude.v,
		.n_exclude = a->exclude.n,
		.include = a->include_patterns.v,
		.n_include = a->include_patterns.n,
	};
	int r = wd ? random_id(wd->id) : -ENOMEM;

	if (r == 0)
		r = watcher_new(srv->loop, &cfg, &srv->watch->shared, &watcher_ops, wd,
				&wd->watcher);
	if (r < 0) {
		free(path);
		free(key);
		free(wd);
		return r;
	}
	wd->watch = srv->watch;
	wd->path = path;
	wd->key = key;
	wd->created_at = clock_wall();
	DL_APPEND(srv->watch->list, wd);
	srv->watch->count++;
	*ret = wd;
	return 0;
}

/* ---- create ---- */

static const char *const default_exclude[] = {
	".git",  "node_modules", "__pycache__", ".venv", "*.pyc",
	"*.pyo", ".DS_Store",    "*.swp",       "*.swo",
};

/* Freed with the other arguments: args_clear() frees the vector only. */
static int exclude_default(struct strv *exclude)
{
	if (exclude->set)
		return 0;
	exclude->v = malloc(sizeof(default_exclude));
	if (!exclude->v)
		return -ENOMEM;
	memcpy(exclude->v, default_exclude, sizeof(default_exclude));
	exclude->n = ARRAY_SIZE(default_exclude);
	exclude->set = true;
	return 0;
}

static bool patterns_ok(const struct strv *patterns)
{
	if (patterns->n > WATCH_MAX_PATTERNS)
		return false;
	for (size_t i = 0; i < patterns->n; i++)
		if (strlen(patterns->v[i]) > WATCH_MAX_PATTERN)
			return false;
	return true;
}

static int resolve(struct server *srv, const char *path, struct root *ret)
{
	char real[PATH_MAX];
	struct stat st;
	int r = sandbox_path(srv, path, real);

	if (r < 0)
		return r;
	if (!realpath(real, ret->path) || stat(ret->path, &st) < 0)
		return -errno;
	ret->is_dir = S_ISDIR(st.st_mode);
	return 0;
}

/* Finds one with the same configuration, or makes it. */
static int lease(struct request *r, const struct create_args *a, struct watched **ret, bool *reused)
{
	struct watch *watch = r->srv->watch;
	size_t len = strlen(a->path);
	char *path, *key;
	struct watched *wd;
	struct root root;
	int e = resolve(r->srv, a->path, &root);

	if (e < 0)
		return e;
	while (len > 1 && a->path[len - 1] == '/')
		len--;
	path = strndup(a->path, len);
	key = path ? make_key(a, path, &root) : NULL;
	if (!key) {
		free(path);
		return -ENOMEM;
	}
	DL_FOREACH (watch->list, wd) {
		if (strcmp(wd->key, key) == 0) {
			free(path);
			free(key);
			*reused = true;
			*ret = wd;
			return 0;
		}
	}
	if (watch->count >= r->srv->cfg->max_watchers) {
		free(path);
		free(key);
		return -EUSERS;
	}
	*reused = false;
	return watched_new(r->srv, a, &root, path, key, ret);
}

static void create(struct request *r)
{
	struct create_args *a = r->args;
	struct watched *wd = NULL;
	bool reused = false;
	struct sub *s;
	int e;

	if (!patterns_ok(&a->exclude) || !patterns_ok(&a->include_patterns)) {
		watch_reply_error(r, 400, "INVALID_PATTERN",
				  "At most %d patterns of at most %d bytes are allowed",
				  WATCH_MAX_PATTERNS, WATCH_MAX_PATTERN);
		return;
	}
	e = exclude_default(&a->exclude);
	if (e == 0)
		e = lease(r, a, &wd, &reused);
	if (e == -EUSERS) {
		watch_reply_error(r, 429, "WATCH_LIMIT_EXCEEDED",
				  "Maximum number of watchers (%u) reached",
				  r->srv->cfg->max_watchers);
		return;
	}
	if (e < 0) {
		watch_reply_path_error(r, a->path, -e);
		return;
	}
	if (wd->armed) {
		wd->leases++;
		reply_created(r, wd, reused);
		return;
	}
	s = sub_new(r, wd, &wd->creates);
	if (!s) {
		if (!reused)
			watched_free(wd);
		return;
	}
	s->reused = reused;
	wd->leases++;
	r->cleanup = create_cleanup;
}

/* ---- the others ---- */

static unsigned length(const struct sub *list)
{
	const struct sub *s;
	unsigned n = 0;

	DL_COUNT(list, s, n);
	return n;
}

static void list(struct request *r)
{
	struct jw *w = watch_reply_begin(r, false);
	const struct watched *wd;

	jw_arr(w);
	DL_FOREACH (r->srv->watch->list, wd) {
		if (!wd->armed)
			continue;
		jw_obj(w);
		jw_kstr(w, "watcher_id", wd->id);
		jw_kstr(w, "path", wd->path);
		jw_kstr(w, "status", "running");
		jw_kint(w, "subscriber_count", length(wd->polls) + length(wd->streams));
		jw_knum(w, "created_at", wd->created_at);
		jw_obj_end(w);
	}
	jw_arr_end(w);
	watch_reply_end(r, false);
}

static void delete (struct request *r)
{
	struct watched *wd = watched_find(r);
	struct jw *w;

	if (!wd)
		return;
	w = watch_reply_begin(r, false);
	jw_obj(w);
	jw_kstr(w, "watcher_id", wd->id);
	jw_kstr(w, "status", wd->leases > 1 ? "running" : "stopped");
	jw_obj_end(w);
	watch_reply_end(r, false);
	drop_lease(wd);
}

static void poll_timeout(struct request *r)
{
	struct sub *s = r->op;
	struct watched *wd = s->target;

	if (!wd)
		return;
	sub_leave(s);
	reply_events(r, wd, s->cursor, s->limit);
	request_resume(r);
}

static void poll(struct request *r)
{
	const struct poll_args *a = r->args;
	struct watched *wd = watched_find(r);
	uint64_t cursor = (uint64_t)a->cursor;
	struct sub *s;

	if (!wd)
		return;
	if (a->timeout == 0 || !up_to_date(wd, cursor)) {
		reply_events(r, wd, cursor, (unsigned)a->limit);
		return;
	}
	s = sub_new(r, wd, &wd->polls);
	if (!s)
		return;
	s->cursor = cursor;
	s->limit = (unsigned)a->limit;
	request_timer(r, (double)a->timeout, poll_timeout);
}

/* ---- the stream ---- */

/* The number of "<id>:<seq>"; false if there is none for this watcher. */
static bool last_event_id(struct request *r, const struct watched *wd, uint64_t *ret)
{
	const char *s = request_header(r, "Last-Event-ID");
	size_t len = strlen(wd->id);
	char *end;

	if (!s || strncmp(s, wd->id, len) != 0 || s[len] != ':')
		return false;
	s += len + 1;
	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	return errno == 0 && *end == '\0';
}

static void frame_end(struct buf *out)
{
	buf_puts(out, "\n\n");
}

static void greet(struct sub *s, struct buf *out)
{
	struct jw w;

	buf_puts(out, "event: watch_started\ndata: ");
	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "watcher_id", s->target->id);
	jw_kstr(&w, "path", s->target->path);
	jw_obj_end(&w);
	frame_end(out);
	s->greeted = true;
}

static int end_overflowed(const struct watched *wd, struct buf *out)
{
	struct jw w;

	buf_puts(out, "event: overflow\ndata: ");
	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "message", "Events were lost; read the tree again");
	jw_kstr(&w, "watcher_id", wd->id);
	jw_obj_end(&w);
	frame_end(out);
	return -ENODATA;
}

static int fill(struct request *r, struct buf *out)
{
	struct sub *s = r->op;
	struct watched *wd = s->target;
	const struct watch_event *e;
	const struct evlog *log;
	struct jw w;

	if (!wd)
		return -ENODATA;
	if (!s->greeted)
		greet(s, out);
	log = watcher_log(wd->watcher);
	if (s->cursor < log->gap || s->cursor > wd->watch->shared.seq)
		return end_overflowed(wd, out);
	while (out->len < STREAM_PIECE && (e = evlog_after(log, s->cursor))) {
		buf_printf(out, "id: %s:%" PRIu64 "\nevent: file_change\ndata: ", wd->id, e->seq);
		jw_init(&w, out);
		watch_write_event(&w, r->srv->cfg->dialect, wd->id, wd->path, e);
		frame_end(out);
		s->cursor = e->seq;
	}
	if (s->heartbeat)
		buf_puts(out, ": heartbeat\n\n");
	s->heartbeat = false;
	return 0;
}

static void heartbeat(struct request *r)
{
	struct sub *s = r->op;

	s->heartbeat = true;
	request_timer(r, HEARTBEAT_S, heartbeat);
	request_wake(r);
}

static void events(struct request *r)
{
	struct watched *wd = watched_find(r);
	struct sub *s;

	if (!wd)
		return;
	s = sub_new(r, wd, &wd->streams);
	if (!s)
		return;
	if (!last_event_id(r, wd, &s->cursor))
		s->cursor = wd->watch->shared.seq;
	request_stream(r, fill);
	request_timer(r, HEARTBEAT_S, heartbeat);
}

/* ---- tables, life ---- */

static const struct arg create_arg[] = {
	ARG_STR(struct create_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_BOOL(struct create_args, recursive, true),
	ARG_STRV(struct create_args, exclude),
	ARG_INT(struct create_args, debounce, 300, 50, 5000),
	ARG_STRV(struct create_args, include_patterns),
	ARG_END,
};

static const struct arg poll_arg[] = {
	ARG_INT(struct poll_args, cursor, 0, 0, INT64_MAX),
	ARG_INT(struct poll_args, limit, 100, 1, 1000),
	ARG_INT(struct poll_args, timeout, 0, 0, 60),
	ARG_END,
};

static const struct arg wait_arg[] = {
	ARG_STR(struct wait_args, path, ARG_REQUIRED | ARG_PATH),
	ARG_INT(struct wait_args, timeout, 30, 1, 300),
	ARG_STRV(struct wait_args, event_types),
	ARG_END,
};

const struct route watch_routes[] = {
	{ "POST", "/v1/file/watch", D_FROM_1_9, create, create_arg, sizeof(struct create_args) },
	{ "GET", "/v1/file/watch", D_FROM_1_9, list },
	{ "POST", "/v1/file/watch/wait", D_FROM_1_9, watch_wait, wait_arg,
	  sizeof(struct wait_args) },
	{ "POST", "/v1/file/watch/{id}/poll", D_FROM_1_9, poll, poll_arg,
	  sizeof(struct poll_args) },
	{ "GET", "/v1/file/watch/{id}/events", D_FROM_1_9, events },
	{ "DELETE", "/v1/file/watch/{id}", D_FROM_1_9, delete },
	{ NULL },
};

int watch_start(struct server *srv)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch)
		return -ENOMEM;
	r = waits_new(srv, &watch->waits);
	if (r < 0) {
		free(watch);
		return r;
	}
	srv->watch = watch;
	return 0;
}

void watch_stop(struct server *srv)
{
	struct watch *watch = srv->watch;
	struct watched *wd, *next;

	if (!watch)
		return;
	DL_FOREACH_SAFE (watch->list, wd, next)
		watched_free(wd);
	waits_free(watch->waits);
	free(STEAL(srv->watch));
}

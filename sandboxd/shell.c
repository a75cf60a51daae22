/*
 * The routes of /v1/shell but exec: they read the request, ask a session, and
 * wait without a thread. Must not know how bash is run. Loop thread only.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <utlist.h>

#include "clock.h"
#include "route.h"
#include "shell_i.h"

enum {
	WAIT_S = 30,
	MAX_WAIT_S = 120,
	ACTIVE_S = 300, /* used within: an active session */
};

/* ---- what every route needs ---- */

/* The session, or NULL after replying. */
struct shell_session *shell_find_or_404(struct request *r, const char *id)
{
	struct shell_session *s = shell_find(r->srv->shell, id);

	if (!s)
		reply_error(r, 404, "Session not found");
	return s;
}

/* Finds the directory of a request: 0 and its path for us, or a negative errno. */
int shell_find_dir(struct request *r, const char *dir, bool symlinks, char *out)
{
	char path[PATH_MAX];
	struct stat st;
	int ret;

	if (*dir != '/')
		return -EINVAL;
	ret = sandbox_path(r->srv, dir, path);
	if (ret < 0)
		return ret;
	if (symlinks)
		memcpy(out, path, sizeof(path));
	else if (!realpath(path, out))
		return -errno;
	if (stat(out, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return access(out, X_OK) < 0 ? -errno : 0;
}

/* Replies on failure. */
struct shell_session *shell_make_session(struct request *r, const char *id, const char *dir,
					 bool symlinks)
{
	struct shell_session *s;
	int ret = shell_session_new(r->srv->shell, id, dir, symlinks, &s);

	if (ret == 0)
		return s;
	reply_session_error(r, "shell", r->srv->cfg->max_shell_sessions, ret);
	return NULL;
}

/* Replies on failure. */
bool shell_submit(struct request *r, struct shell_session *s, const char *text, const char *dir,
		  bool symlinks, double hard_timeout, struct shell_command **ret)
{
	int e = shell_session_submit(s, text, dir, symlinks, hard_timeout, ret);

	if (e == -EAGAIN)
		reply_error(r, r->srv->cfg->dialect == DIALECT_AIOD ? 429 : 400,
			    "Too many commands are waiting in session %s", s->id);
	else if (e < 0)
		reply_error(r, 500, "%s", strerrordesc_np(-e));
	return e == 0;
}

void shell_write_exit_code(struct jw *w, const char *key, const struct shell_command *c)
{
	if (c && c->exited)
		jw_kint(w, key, c->exit_code);
	else
		jw_knull(w, key);
}

void shell_write_output(struct jw *w, const struct shell_command *c, bool shorten)
{
	size_t len = shell_text_trim(c->out.data, c->out.len);
	CLEANUP_BUF struct buf shorter = BUF_INIT(0);

	jw_key(w, "output");
	if (shorten && shell_text_shorten(c->out.data, len, SHELL_MAX_CHARS, &shorter) > 0)
		jw_strn(w, shorter.data, shorter.len);
	else
		jw_strn(w, c->out.data ? c->out.data : "", len);
}

void shell_write_record(struct jw *w, const struct shell_command *c)
{
	jw_obj(w);
	jw_kstr(w, "ps1", c->ps1 ? c->ps1 : "");
	jw_kstr(w, "command", c->text);
	shell_write_output(w, c, true);
	jw_obj_end(w);
}

/* ---- view, wait, write, kill ---- */

struct id_args {
	const char *id;
};

static const struct arg id_args[] = {
	ARG_STR(struct id_args, id, ARG_REQUIRED),
	ARG_END,
};

static enum shell_status session_status(const struct shell_session *s)
{
	const struct shell_command *c = shell_session_latest(s);

	if (shell_session_busy(s))
		return SHELL_RUNNING;
	return c ? c->status : SHELL_COMPLETED;
}

static void shell_view(struct request *r)
{
	const struct id_args *a = r->args;
	struct shell_session *s = shell_find_or_404(r, a->id);
	const struct shell_command *latest, *c;
	struct jw *w;

	if (!s)
		return;
	if (r->wants_sse) {
		shell_view_stream(r, s);
		return;
	}
	latest = shell_session_latest(s);
	w = reply_begin(r, "Session output");
	jw_obj(w);
	if (latest)
		shell_write_output(w, latest, false);
	else
		jw_kstr(w, "output", "");
	jw_kstr(w, "session_id", s->id);
	jw_key(w, "console");
	jw_arr(w);
	DL_FOREACH (s->commands, c)
		if (c->ps1)
			shell_write_record(w, c);
	jw_arr_end(w);
	jw_kstr(w, "status", shell_status_name(session_status(s)));
	jw_kstr(w, "command", latest ? latest->text : NULL);
	shell_write_exit_code(w, "exit_code", latest);
	jw_obj_end(w);
	reply_end(r);
}

struct wait_args {
	const char *id;
	struct opt_int seconds, max_wait_seconds;
};

static const struct arg wait_args[] = {
	ARG_STR(struct wait_args, id, ARG_REQUIRED),
	ARG_OPT_INT(struct wait_args, seconds, INT64_MIN, INT64_MAX),
	ARG_OPT_INT(struct wait_args, max_wait_seconds, INT64_MIN, INT64_MAX),
	ARG_END,
};

static void write_status(struct jw *w, enum shell_status status)
{
	jw_obj(w);
	jw_kstr(w, "status", shell_status_name(status));
	jw_obj_end(w);
}

static void wait_answer(struct shell_op *op)
{
	static const char *const messages[] = {
		[SHELL_RUNNING] = "Process is still running",
		[SHELL_COMPLETED] = "Process completed successfully",
		[SHELL_NO_CHANGE] = "Process is still running (no new output yet)",
		[SHELL_HARD_TIMEOUT] = "Process reached hard timeout",
		[SHELL_TERMINATED] = "Process terminated",
	};
	struct shell_session *s = op->waiter.session;
	enum shell_status status = s ? session_status(s) : SHELL_TERMINATED;

	write_status(s ? reply_begin(op->r, messages[status])
		       : reply_begin_failed(op->r, "Session unavailable"),
		     status);
	reply_end(op->r);
	shell_wait_end(&op->waiter);
}

static void wait_event(struct shell_waiter *w)
{
	struct shell_op *op = CONTAINER_OF(w, struct shell_op, waiter);

	if (w->session && shell_session_busy(w->session))
		return;
	wait_answer(op);
	request_resume(op->r);
}

static void wait_timer(struct request *r)
{
	wait_answer(r->op);
	request_resume(r);
}

/* Not given and 0 both mean the default. */
static double wait_seconds(struct opt_int v, int64_t dflt)
{
	int64_t s = v.set && v.v ? v.v : dflt;

	return (double)MAX(s, 0);
}

static void shell_wait(struct request *r)
{
	const struct wait_args *a = r->args;
	struct shell_session *s = shell_find_or_404(r, a->id);
	double limit = MIN(wait_seconds(a->seconds, WAIT_S),
			   wait_seconds(a->max_wait_seconds, MAX_WAIT_S));
	struct shell_op *op = s ? shell_op_new(r, s) : NULL;

	if (!op)
		return;
	op->waiter.fn = wait_event;
	shell_wait_begin(s, &op->waiter);
	if (!shell_session_busy(s)) {
		wait_answer(op);
		return;
	}
	request_timer(r, MIN(limit, SHELL_MAX_SECONDS), wait_timer);
}

struct write_args {
	const char *id, *input;
	bool press_enter;
};

static const struct arg write_args[] = {
	ARG_STR(struct write_args, id, ARG_REQUIRED),
	ARG_STR(struct write_args, input, ARG_REQUIRED),
	ARG_BOOL_REQ(struct write_args, press_enter),
	ARG_END,
};

/* Despite its name it runs the input as the next command, as it always has. */
static void shell_write(struct request *r)
{
	const struct write_args *a = r->args;
	struct shell_session *s = shell_find_or_404(r, a->id);

	if (!s || !shell_submit(r, s, a->input, NULL, false, 0, NULL))
		return;
	write_status(reply_begin(r, "Input executed successfully"), SHELL_RUNNING);
	reply_end(r);
}

static void shell_kill(struct request *r)
{
	const struct id_args *a = r->args;
	struct shell_session *s = shell_find_or_404(r, a->id);
	const struct shell_command *c;
	struct jw *w;

	if (!s)
		return;
	c = shell_session_latest(s);
	w = reply_begin(r, "Process terminated");
	jw_obj(w);
	jw_kstr(w, "status", shell_status_name(SHELL_TERMINATED));
	shell_write_exit_code(w, "exit_code", c);
	shell_write_exit_code(w, "returncode", c);
	jw_obj_end(w);
	reply_end(r);
	shell_session_free(s);
}

/* ---- sessions ---- */

/* A directory as clients know it. */
static void write_dir(struct jw *w, const struct server *srv, const char *key, const char *dir)
{
	const char *map = srv->cfg->map_data;
	size_t len = map ? strlen(map) : 0;
	char path[PATH_MAX];

	if (map && !strncmp(dir, map, len) && (dir[len] == '/' || !dir[len])) {
		snprintf(path, sizeof(path), "%s%s", SANDBOX_DATA, dir + len);
		dir = path;
	}
	jw_kstr(w, key, dir);
}

static bool id_ok(const char *id)
{
	size_t len = strlen(id);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)id[i] < 0x20 || id[i] == 0x7f)
			return false;
	return len > 0 && len <= SHELL_ID_MAX;
}

struct create_args {
	const char *id, *exec_dir;
	struct opt_int no_change_timeout;
	bool preserve_symlinks;
};

static const struct arg create_args[] = {
	ARG_STR(struct create_args, id, 0),
	ARG_STR(struct create_args, exec_dir, 0),
	ARG_OPT_INT(struct create_args, no_change_timeout, INT64_MIN, INT64_MAX),
	ARG_BOOL(struct create_args, preserve_symlinks, false),
	ARG_END,
};

static void set_no_change(struct shell_session *s, struct opt_int v)
{
	if (v.set && v.v > 0)
		s->no_change_s = (unsigned)MIN(v.v, (int64_t)SHELL_MAX_SECONDS);
}

static void reply_session(struct request *r, const struct shell_session *s, const char *message)
{
	struct jw *w = reply_begin(r, message);

	jw_obj(w);
	jw_kstr(w, "session_id", s->id);
	write_dir(w, r->srv, "working_dir", s->dir);
	jw_obj_end(w);
	reply_end(r);
}

static void shell_create(struct request *r)
{
	const struct create_args *a = r->args;
	const char *id = a->id && *a->id ? a->id : NULL;
	struct shell_session *s = id ? shell_find(r->srv->shell, id) : NULL;
	char dir[PATH_MAX];
	bool has_dir;

	if (s) {
		reply_session(r, s, "Session had created successfully");
		return;
	}
	if (id && !id_ok(id)) {
		reply_error(r, 400, "Invalid session id");
		return;
	}
	has_dir = a->exec_dir && shell_find_dir(r, a->exec_dir, a->preserve_symlinks, dir) == 0;
	s = shell_make_session(r, id, has_dir ? dir : NULL, a->preserve_symlinks);
	if (!s)
		return;
	set_no_change(s, a->no_change_timeout);
	reply_session(r, s, "Session created successfully");
}

struct update_args {
	const char *id;
	struct opt_int no_change_timeout;
};

static const struct arg update_args[] = {
	ARG_STR(struct update_args, id, ARG_REQUIRED),
	ARG_OPT_INT(struct update_args, no_change_timeout, INT64_MIN, INT64_MAX),
	ARG_END,
};

static void shell_update(struct request *r)
{
	const struct update_args *a = r->args;
	struct shell_session *s = shell_find_or_404(r, a->id);
	struct jw *w;

	if (!s)
		return;
	set_no_change(s, a->no_change_timeout);
	w = reply_begin(r, "Session updated successfully");
	jw_obj(w);
	jw_kstr(w, "session_id", s->id);
	jw_kint(w, "no_change_timeout", s->no_change_s);
	jw_obj_end(w);
	reply_end(r);
}

static void shell_list(struct request *r)
{
	struct shell_session *s, *tmp;
	char message[64];
	struct jw *w;

	snprintf(message, sizeof(message), "Found %u active sessions",
		 HASH_COUNT(r->srv->shell->sessions));
	w = reply_begin(r, message);
	jw_obj(w);
	jw_key(w, "sessions");
	jw_obj(w);
	HASH_ITER (hh, r->srv->shell->sessions, s, tmp) {
		jw_key_any(w, s->id);
		jw_obj(w);
		write_dir(w, r->srv, "working_dir", s->dir);
		jw_ktime(w, "created_at", s->created);
		jw_ktime(w, "last_used_at", s->used);
		jw_kint(w, "age_seconds", (int64_t)MAX(clock_wall() - s->created, 0));
		jw_kstr(w, "status", shell_status_name(session_status(s)));
		jw_kstr(w, "current_command", s->current ? s->current->text : NULL);
		jw_obj_end(w);
	}
	jw_obj_end(w);
	jw_obj_end(w);
	reply_end(r);
}

static void shell_stats(struct request *r)
{
	const struct config *cfg = r->srv->cfg;
	unsigned total = HASH_COUNT(r->srv->shell->sessions), active = 0;
	int64_t now = clock_ms();
	struct shell_session *s, *tmp;
	struct jw *w;

	HASH_ITER (hh, r->srv->shell->sessions, s, tmp)
		if (shell_session_busy(s) || now - s->used_ms < ACTIVE_S * 1000)
			active++;
	w = reply_begin(r, "Shell session stats retrieved successfully");
	jw_obj(w);
	jw_kint(w, "total_sessions", total);
	jw_kint(w, "active_sessions", active);
	jw_kint(w, "idle_sessions", total - active);
	jw_kint(w, "max_sessions", cfg->max_shell_sessions);
	jw_kint(w, "session_timeout", cfg->session_timeout_s);
	jw_knum(w, "usage_ratio",
		cfg->max_shell_sessions ? (double)total / cfg->max_shell_sessions : 0);
	jw_obj_end(w);
	reply_end(r);
}

static void shell_delete(struct request *r)
{
	struct shell_session *s = shell_find(r->srv->shell, r->path_arg);
	char message[SHELL_ID_MAX + 64];
	struct jw *w;

	snprintf(message, sizeof(message), "Session %s %s", r->path_arg,
		 s ? "cleaned up successfully" : "not found");
	w = s ? reply_begin(r, message) : reply_begin_failed(r, message);
	jw_obj(w);
	jw_kstr(w, "session_id", r->path_arg);
	jw_obj_end(w);
	reply_end(r);
	if (s)
		shell_session_free(s);
}

static void shell_delete_all(struct request *r)
{
	unsigned n = HASH_COUNT(r->srv->shell->sessions);
	struct shell_session *s, *tmp;
	char message[64];
	struct jw *w;

	HASH_ITER (hh, r->srv->shell->sessions, s, tmp)
		shell_session_free(s);
	snprintf(message, sizeof(message), "Cleaned up %u sessions", n);
	w = reply_begin(r, message);
	jw_obj(w);
	jw_kint(w, "cleaned_sessions", n);
	jw_obj_end(w);
	reply_end(r);
}

#define BODY(name) name##_args, sizeof(struct name##_args)

const struct route shell_routes[] = {
	{ "POST", "/v1/shell/exec", D_ALL, shell_exec, BODY(shell_exec), 0, NULL },
	{ "POST", "/v1/shell/view", D_ALL, shell_view, BODY(id), 0, NULL },
	{ "POST", "/v1/shell/wait", D_ALL, shell_wait, BODY(wait), 0, NULL },
	{ "POST", "/v1/shell/write", D_ALL, shell_write, BODY(write), 0, NULL },
	{ "POST", "/v1/shell/kill", D_ALL, shell_kill, BODY(id), 0, NULL },
	{ "POST", "/v1/shell/sessions/create", D_ALL, shell_create, BODY(create), 0, NULL },
	{ "POST", "/v1/shell/sessions/update", D_ALL, shell_update, BODY(update), 0, NULL },
	{ "GET", "/v1/shell/sessions", D_ALL, shell_list, NULL, 0, 0, NULL },
	{ "GET", "/v1/shell/sessions/stats", D_FROM_1_9, shell_stats, NULL, 0, 0, NULL },
	{ "DELETE", "/v1/shell/sessions/{id}", D_ALL, shell_delete, NULL, 0, 0, NULL },
	{ "DELETE", "/v1/shell/sessions", D_ALL, shell_delete_all, NULL, 0, 0, NULL },
	{ 0 },
};

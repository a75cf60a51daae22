/*
 * The routes of /v1/bash: decodes requests, answers them, and parks those
 * that wait. Must not know how commands run (bash_command.c) or queue
 * (bash_session.c). Loop thread only.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <utlist.h>

#include "bash_session.h"
#include "route.h"
#include "spawn.h"
#include "utf8.h"

enum {
	COMMAND_MAX = 8 * 1024 * 1024,
	ENV_MAX = 1000,              /* variables of one request */
	ENV_MAX_BYTES = 1024 * 1024, /* the kernel takes 2 MiB with the rest */
	WAIT_TIMEOUT = 30,           /* seconds of a long poll, unless asked otherwise */
	TIMEOUT_MAX = 10000000,
	UTF8_CUT_MAX = 3, /* bytes of a character that is not complete */
};

/* A request that waits for a command. */
struct bash_op {
	struct bash_waiter waiter;
	struct request *r;
};

/* ---- common ---- */

/* The session of that id, or NULL after a 404. */
static struct bash_session *find_session(struct request *r, const char *id)
{
	struct bash_session *s = bash_session_find(r->srv->bash, id);

	if (!s)
		reply_error(r, 404, "Session not found");
	return s;
}

/* A client that read "pending" would stop polling: the queue stays hidden. */
static const char *status_name(enum bash_status status)
{
	static const char *const names[] = {
		[BASH_PENDING] = "running",     [BASH_RUNNING] = "running",
		[BASH_COMPLETED] = "completed", [BASH_TIMED_OUT] = "timed_out",
		[BASH_KILLED] = "killed",
	};

	return names[status];
}

static void write_exit_code(struct jw *w, const struct bash_command *c)
{
	jw_key(w, "exit_code");
	if (c->has_exit_code)
		jw_int(w, c->exit_code);
	else
		jw_null(w);
}

static void write_session(struct jw *w, const struct bash_session *s)
{
	jw_obj(w);
	jw_kstr(w, "session_id", s->id);
	jw_kstr(w, "status", "ready");
	jw_kstr(w, "working_dir", s->working_dir);
	jw_ktime(w, "created_at", s->created_at);
	jw_ktime(w, "last_used_at", s->last_used_at);
	jw_kstr(w, "current_command", s->running ? s->running->text : NULL);
	jw_kint(w, "command_count", (int64_t)s->total_commands);
	jw_obj_end(w);
}

/* 0, or -1 after a 400: the directory has to be there. */
static int check_dir(struct request *r, const char *dir)
{
	char path[PATH_MAX];
	struct stat st;
	int err = 0;

	if (dir[0] != '/')
		err = ENOENT;
	else if (sandbox_path(r->srv, dir, path) < 0)
		err = ENAMETOOLONG;
	else if (stat(path, &st) < 0)
		err = errno;
	else if (!S_ISDIR(st.st_mode))
		err = ENOTDIR;
	if (!err)
		return 0;
	reply_error(r, 400, "Invalid exec_dir: [Errno %d] %s: '%s'", err, strerrordesc_np(err),
		    dir);
	return -1;
}

/* Makes a session; NULL after an error was replied. */
static struct bash_session *make_session(struct request *r, const char *id, const char *dir)
{
	const struct config *cfg = r->srv->cfg;
	struct bash_session *s = NULL;
	int e;

	e = bash_session_new(r->srv->bash, id, dir ? dir : cfg->home, &s);
	if (e < 0)
		reply_session_error(r, "bash", cfg->max_bash_sessions, e);
	return s;
}

/* What exec and create have in common: an id that may be new, a directory. */
static struct bash_session *open_session(struct request *r, const char *id, const char *dir)
{
	struct bash_session *s;

	if (id && strlen(id) > BASH_ID_MAX) {
		reply_error(r, 400, "Invalid session_id: longer than %d bytes", BASH_ID_MAX);
		return NULL;
	}
	if (dir && !*dir)
		dir = NULL;
	if (dir && check_dir(r, dir) < 0)
		return NULL;
	s = id && *id ? bash_session_find(r->srv->bash, id) : NULL;
	return s ?: make_session(r, id, dir);
}

/*
 * The output from *offset on, as ring_read() gives it, but without the start
 * of a character whose rest the running command has yet to write: in two
 * answers both halves would be invalid.
 */
static const char *read_output(const struct bash_session *s, enum bash_stream stream,
			       uint64_t *offset, size_t *ret_len)
{
	const char *data = ring_read(&s->out[stream], offset, ret_len);
	size_t len = *ret_len, own;

	if (!s->running)
		return data;
	/* What an earlier command left unfinished stays so. */
	own = (size_t)MIN(ring_end(&s->out[stream]) - s->running->offset[stream], len);
	for (size_t n = 1; n <= MIN(own, (size_t)UTF8_CUT_MAX); n++)
		if (utf8_is_cut(data + len - n, n))
			*ret_len = len - n;
	return data;
}

/* Where the next read has to start. */
static uint64_t output_end(const struct bash_session *s, enum bash_stream stream)
{
	uint64_t end = ring_end(&s->out[stream]);
	uint64_t offset = end - MIN(end, (uint64_t)UTF8_CUT_MAX);
	size_t len;

	read_output(s, stream, &offset, &len);
	return offset + len;
}

/* ---- waiting ---- */

static void op_cleanup(struct request *r)
{
	struct bash_op *op = r->op;

	bash_waiter_remove(&op->waiter);
	free(op);
}

/* The reply was made: forget the wait and send it. */
static void op_finish(struct bash_op *op)
{
	bash_waiter_remove(&op->waiter);
	request_timer_stop(op->r);
	request_resume(op->r);
}

/* Parks the request until the command says something; negative timeout = for ever. */
static void op_wait(struct request *r, struct bash_op *op, double timeout,
		    void (*woken)(struct bash_waiter *w), void (*expired)(struct request *r))
{
	op->r = r;
	op->waiter.fn = woken;
	bash_waiter_add(&op->waiter);
	r->op = op;
	r->cleanup = op_cleanup;
	if (timeout >= 0)
		request_timer(r, timeout, expired);
}

static double seconds(const struct opt_num *n, double otherwise)
{
	return n->set ? MIN(MAX(n->v, 0), TIMEOUT_MAX) : otherwise;
}

/* ---- exec ---- */

struct exec_args {
	const char *command;
	const char *session_id;
	const char *exec_dir;
	struct strmap env;
	bool async_mode;
	struct opt_num timeout;
	struct opt_num hard_timeout;
	int64_t max_output_length;
};

static const struct arg exec_args[] = {
	ARG_STR(struct exec_args, command, ARG_REQUIRED),
	ARG_STR(struct exec_args, session_id, 0),
	ARG_STR(struct exec_args, exec_dir, 0),
	ARG_MAP(struct exec_args, env),
	ARG_BOOL(struct exec_args, async_mode, false),
	ARG_OPT_NUM(struct exec_args, timeout),
	ARG_OPT_NUM(struct exec_args, hard_timeout),
	ARG_INT(struct exec_args, max_output_length, 50000, INT_MIN, INT_MAX),
	ARG_END,
};

/* Head and tail with a marker between them, if it is longer than max characters. */
static void write_middle_cut(struct jw *w, const char *key, const char *s, size_t len, size_t max)
{
	struct buf cut CLEANUP_BUF = BUF_INIT(0);
	size_t chars, head, tail;

	if (!len) {
		jw_knull(w, key);
		return;
	}
	/* There are never more characters than bytes. */
	chars = max && len > max ? utf8_length(s, len) : 0;
	if (chars <= max) {
		jw_kstrn(w, key, s, len);
		return;
	}
	head = utf8_offset(s, len, max / 2);
	tail = utf8_offset(s, len, chars - (max - max / 2));
	buf_append(&cut, s, head);
	buf_printf(&cut, "\n\n... [%zu characters truncated] ...\n\n", chars - max);
	buf_append(&cut, s + tail, len - tail);
	jw_kstrn(w, key, cut.data, cut.len);
}

static void write_exec_output(struct jw *w, const struct bash_command *c,
			      const struct exec_args *args)
{
	static const char *const keys[] = { "stdout", "stderr" };
	size_t max = args->max_output_length > 0 ? (size_t)args->max_output_length : 0;

	for (int i = 0; i < BASH_STREAMS; i++) {
		uint64_t offset = c->offset[i];
		size_t len = 0;
		const char *data = "";

		/* One that still waits has no output; what is there is others'. */
		if (c->status != BASH_PENDING && !args->async_mode)
			data = read_output(c->session, i, &offset, &len);
		write_middle_cut(w, keys[i], data, len, max);
	}
}

static void reply_exec(struct request *r, const struct bash_command *c)
{
	const struct bash_session *s = c->session;
	struct jw *w;

	if (c->start_error) {
		int err = -c->start_error;
		bool clients = err == E2BIG || err == ENOENT || err == ENOTDIR || err == EACCES;

		reply_error(r, clients ? 400 : 500, "Failed to start command: [Errno %d] %s", err,
			    strerrordesc_np(err));
		return;
	}
	w = reply_begin(r, NULL);
	jw_obj(w);
	jw_kstr(w, "session_id", s->id);
	jw_kstr(w, "command_id", c->id);
	jw_kstr(w, "command", c->text);
	jw_kstr(w, "status", status_name(c->status));
	write_exec_output(w, c, r->args);
	write_exit_code(w, c);
	jw_kint(w, "offset", (int64_t)output_end(s, BASH_STDOUT));
	jw_kint(w, "stderr_offset", (int64_t)output_end(s, BASH_STDERR));
	jw_obj_end(w);
	reply_end(r);
}

static void exec_woken(struct bash_waiter *waiter)
{
	struct bash_op *op = CONTAINER_OF(waiter, struct bash_op, waiter);

	reply_exec(op->r, waiter->command);
	op_finish(op);
}

static void exec_expired(struct request *r)
{
	struct bash_op *op = r->op;

	reply_exec(r, op->waiter.command);
	op_finish(op);
}

static bool env_name_valid(const char *name)
{
	if (!isalpha((unsigned char)*name) && *name != '_')
		return false;
	while (isalnum((unsigned char)*name) || *name == '_')
		name++;
	return !*name;
}

/* 0, or -1 after a 400. */
static int check_env(struct request *r, const struct strmap *env)
{
	size_t bytes = 0;

	for (size_t i = 0; i < env->n; i++) {
		if (!env_name_valid(env->keys[i])) {
			reply_error(r, 400, "Invalid environment variable name: '%.100s'",
				    env->keys[i]);
			return -1;
		}
		bytes += strlen(env->keys[i]) + strlen(env->values[i]) + 2;
	}
	if (env->n > ENV_MAX || bytes > ENV_MAX_BYTES) {
		reply_error(r, 400, "Environment too large");
		return -1;
	}
	return 0;
}

static struct bash_command *make_command(struct request *r, const struct exec_args *args,
					 const char *session_dir)
{
	const char *dir = args->exec_dir && *args->exec_dir ? args->exec_dir : session_dir;
	char **env = NULL;

	if (args->env.n) {
		env = spawn_env(r->srv, args->env.keys, args->env.values, args->env.n);
		if (!env)
			return NULL;
	}
	return bash_command_new(args->command, dir, env, seconds(&args->hard_timeout, -1));
}

/* Queues the command; NULL after an error was replied. */
static struct bash_command *submit(struct request *r, const struct exec_args *args)
{
	struct bash_command *c;
	struct bash_session *s;
	int e;

	s = open_session(r, args->session_id, args->exec_dir);
	if (!s)
		return NULL;
	c = make_command(r, args, s->working_dir);
	e = c ? bash_session_submit(s, c) : -ENOMEM;
	if (!e)
		return c;
	bash_command_free(c);
	if (e == -EAGAIN)
		reply_error(r, 429, "Too many commands wait in session '%s'", s->id);
	else
		reply_error(r, 500, "Out of memory");
	return NULL;
}

static void handle_exec(struct request *r)
{
	const struct exec_args *args = r->args;
	struct bash_op *op CLEANUP_FREE = NULL;
	struct bash_command *c;

	if (strlen(args->command) > COMMAND_MAX) {
		reply_error(r, 400, "Command longer than %d bytes", COMMAND_MAX);
		return;
	}
	if (check_env(r, &args->env) < 0)
		return;
	op = calloc(1, sizeof(*op));
	if (!op) {
		reply_error(r, 500, "Out of memory");
		return;
	}
	c = submit(r, args);
	if (!c)
		return;
	if (args->async_mode || bash_command_ended(c)) {
		reply_exec(r, c);
		return;
	}
	op->waiter.command = c;
	op_wait(r, STEAL(op), seconds(&args->timeout, -1), exec_woken, exec_expired);
}

/* ---- output ---- */

struct output_args {
	const char *session_id;
	const char *command_id;
	int64_t offset;
	int64_t stderr_offset;
	bool wait;
	struct opt_num wait_timeout;
};

static const struct arg output_args[] = {
	ARG_STR(struct output_args, session_id, ARG_REQUIRED),
	ARG_STR(struct output_args, command_id, 0),
	ARG_INT(struct output_args, offset, 0, INT64_MIN, INT64_MAX),
	ARG_INT(struct output_args, stderr_offset, 0, INT64_MIN, INT64_MAX),
	ARG_BOOL(struct output_args, wait, false),
	ARG_OPT_NUM(struct output_args, wait_timeout),
	ARG_END,
};

static uint64_t asked_offset(const struct output_args *args, enum bash_stream stream)
{
	return (uint64_t)MAX(stream == BASH_STDOUT ? args->offset : args->stderr_offset, 0);
}

static void reply_output(struct request *r, const struct bash_session *s,
			 const struct bash_command *c)
{
	static const char *const keys[][2] = {
		{ "stdout", "offset" },
		{ "stderr", "stderr_offset" },
	};
	struct jw *w = reply_begin(r, NULL);

	jw_obj(w);
	jw_kstr(w, "session_id", s->id);
	for (int i = 0; i < BASH_STREAMS; i++) {
		uint64_t offset = asked_offset(r->args, i);
		size_t len;
		const char *data = read_output(s, i, &offset, &len);

		jw_kstrn(w, keys[i][0], data, len);
		jw_kint(w, keys[i][1], (int64_t)(offset + len));
	}
	jw_key(w, "command");
	if (c) {
		jw_obj(w);
		jw_kstr(w, "command_id", c->id);
		jw_kstr(w, "command", c->text);
		jw_kstr(w, "status", status_name(c->status));
		write_exit_code(w, c);
		jw_obj_end(w);
	} else {
		jw_null(w);
	}
	jw_obj_end(w);
	reply_end(r);
}

static bool has_news(const struct bash_session *s, const struct output_args *args)
{
	for (int i = 0; i < BASH_STREAMS; i++) {
		uint64_t asked = asked_offset(args, i), offset = asked;
		size_t len;

		read_output(s, i, &offset, &len);
		if (offset + len > asked)
			return true;
	}
	return false;
}

static bool output_has_news(const struct bash_waiter *waiter)
{
	const struct bash_op *op = CONTAINER_OF(waiter, const struct bash_op, waiter);

	return has_news(waiter->command->session, op->r->args);
}

static void output_woken(struct bash_waiter *waiter)
{
	struct bash_op *op = CONTAINER_OF(waiter, struct bash_op, waiter);

	reply_output(op->r, waiter->command->session, waiter->command);
	op_finish(op);
}

static void output_expired(struct request *r)
{
	struct bash_op *op = r->op;

	output_woken(&op->waiter);
}

static void handle_output(struct request *r)
{
	struct output_args *args = r->args;
	struct bash_session *s = find_session(r, args->session_id);
	struct bash_command *c;
	struct bash_op *op;

	if (!s)
		return;
	/* Past the end means the end as it is now: what comes next is news. */
	args->offset = MIN(args->offset, (int64_t)ring_end(&s->out[BASH_STDOUT]));
	args->stderr_offset = MIN(args->stderr_offset, (int64_t)ring_end(&s->out[BASH_STDERR]));
	if (args->command_id && *args->command_id)
		c = bash_session_command(s, args->command_id);
	else
		c = bash_session_current(s);
	if (!args->wait || !c || bash_command_ended(c) || has_news(s, args)) {
		reply_output(r, s, c);
		return;
	}
	op = calloc(1, sizeof(*op));
	if (!op) {
		reply_error(r, 500, "Out of memory");
		return;
	}
	op->waiter.command = c;
	op->waiter.has_news = output_has_news;
	op_wait(r, op, seconds(&args->wait_timeout, WAIT_TIMEOUT), output_woken, output_expired);
}

/* ---- write, kill ---- */

struct write_args {
	const char *session_id;
	const char *command_id;
	struct text input;
};

static const struct arg write_args[] = {
	ARG_STR(struct write_args, session_id, ARG_REQUIRED),
	ARG_STR(struct write_args, command_id, 0),
	ARG_TEXT(struct write_args, input, ARG_REQUIRED),
	ARG_END,
};

static void handle_write(struct request *r)
{
	const struct write_args *args = r->args;
	struct bash_session *s = find_session(r, args->session_id);
	const char *id = args->command_id;
	int e = -EINVAL;

	if (!s)
		return;
	if (s->running && (!id || !*id || !strcmp(id, s->running->id)))
		e = bash_command_input(s->running, args->input.p, args->input.n);
	switch (e) {
	case 0:
		reply_ok(r, NULL);
		return;
	case -EINVAL:
		reply_error(r, 400, "No running command in session '%s'", s->id);
		return;
	case -EPIPE:
		reply_error(r, 400, "The command has closed its standard input");
		return;
	case -ENOBUFS:
		reply_error(r, 400, "Too much input that the command has not read yet");
		return;
	default:
		reply_error(r, 500, "Failed to write input: %s", strerrordesc_np(-e));
	}
}

struct kill_args {
	const char *session_id;
	const char *signal;
};

static const struct arg kill_args[] = {
	ARG_STR(struct kill_args, session_id, ARG_REQUIRED),
	ARG_STR_DEF(struct kill_args, signal, "SIGTERM"),
	ARG_END,
};

static int signal_number(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} known[] = { { "SIGTERM", SIGTERM }, { "SIGKILL", SIGKILL }, { "SIGINT", SIGINT } };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(known[i].name, name))
			return known[i].number;
	return -EINVAL;
}

static void handle_kill(struct request *r)
{
	const struct kill_args *args = r->args;
	struct bash_session *s;
	int sig = signal_number(args->signal);

	if (sig < 0) {
		reply_error(r, 400, "Unsupported signal: '%.64s'", args->signal);
		return;
	}
	s = find_session(r, args->session_id);
	if (!s)
		return;
	if (s->running)
		bash_command_signal(s->running, sig);
	reply_ok(r, NULL);
}

/* ---- sessions ---- */

struct create_args {
	const char *session_id;
	const char *exec_dir;
	const char *snapshot_path; /* accepted, without effect */
};

static const struct arg create_args[] = {
	ARG_STR(struct create_args, session_id, 0),
	ARG_STR(struct create_args, exec_dir, 0),
	ARG_STR(struct create_args, snapshot_path, 0),
	ARG_END,
};

static void handle_create(struct request *r)
{
	const struct create_args *args = r->args;
	struct bash_session *s = open_session(r, args->session_id, args->exec_dir);

	if (!s)
		return;
	write_session(reply_begin(r, NULL), s);
	reply_end(r);
}

static void handle_sessions(struct request *r)
{
	struct jw *w = reply_begin(r, NULL);
	struct bash_session *s;

	jw_arr(w);
	DL_FOREACH (r->srv->bash->sessions, s)
		write_session(w, s);
	jw_arr_end(w);
	reply_end(r);
}

static void handle_close(struct request *r)
{
	struct bash_session *s = find_session(r, r->path_arg);

	if (!s)
		return;
	bash_session_close(s);
	reply_ok(r, NULL);
}

#define WITH_ARGS(name) .args = name, .args_size = sizeof(struct name)

const struct route bash_routes[] = {
	{ "POST", "/v1/bash/exec", D_FROM_1_9, handle_exec, WITH_ARGS(exec_args) },
	{ "POST", "/v1/bash/output", D_FROM_1_9, handle_output, WITH_ARGS(output_args) },
	{ "POST", "/v1/bash/write", D_FROM_1_9, handle_write, WITH_ARGS(write_args) },
	{ "POST", "/v1/bash/kill", D_FROM_1_9, handle_kill, WITH_ARGS(kill_args) },
	{ "GET", "/v1/bash/sessions", D_FROM_1_9, handle_sessions },
	{ "POST", "/v1/bash/sessions/create", D_FROM_1_9, handle_create, WITH_ARGS(create_args) },
	{ "POST", "/v1/bash/sessions/{id}/close", D_FROM_1_9, handle_close },
	{ 0 },
};

/*
 * POST /v1/shell/exec, and the output of commands as server-sent events. Must
 * not know how bash is run. Loop thread only.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "shell_i.h"

enum {
	STREAM_PIECE = 64 * KIB,
	VIEW_SILENCE = 3, /* seconds until a view's stream gives up */
};

/* ---- waiting requests ---- */

/* The answer may take long to be read, and does not need it any more. */
static void drop_command(struct shell_op *op)
{
	shell_command_unref(op->cmd);
	op->cmd = NULL;
}

static void op_cleanup(struct request *r)
{
	struct shell_op *op = r->op;

	shell_wait_end(&op->waiter);
	drop_command(op);
	free(op);
}

/* NULL after replying. */
struct shell_op *shell_op_new(struct request *r, const struct shell_session *s)
{
	struct shell_op *op = calloc(1, sizeof(*op));

	if (!op) {
		reply_error(r, 500, "Out of memory");
		return NULL;
	}
	op->r = r;
	op->end = UINT64_MAX;
	snprintf(op->id, sizeof(op->id), "%s", s->id);
	r->op = op;
	r->cleanup = op_cleanup;
	return op;
}

/* Why the wait for a command is over. */
enum verdict {
	WAIT_ON,
	WAIT_DONE,
	WAIT_SILENT,
	WAIT_TIMEOUT,
};

static int64_t silent_at(const struct shell_op *op)
{
	return shell_command_changed_ms(op->waiter.session, op->cmd) +
	       (int64_t)op->no_change_s * 1000;
}

static enum verdict judge(const struct shell_op *op)
{
	int64_t now = clock_ms();

	if (op->cmd->status != SHELL_RUNNING || !op->waiter.session)
		return WAIT_DONE;
	if (op->until_ms && now >= op->until_ms)
		return WAIT_TIMEOUT;
	if (op->no_change_s && now >= silent_at(op))
		return WAIT_SILENT;
	return WAIT_ON;
}

/* Has fn called when the next deadline may have come. */
static void arm(struct shell_op *op, void (*fn)(struct request *r))
{
	int64_t at = op->until_ms ? op->until_ms : INT64_MAX;

	if (op->no_change_s)
		at = MIN(at, silent_at(op));
	if (at != INT64_MAX)
		request_timer(op->r, (double)(at - clock_ms()) / 1000 + 0.001, fn);
}

/* ---- streams ---- */

static void put_event(struct buf *out, const char *key, const char *value, size_t len)
{
	struct jw w;

	buf_puts(out, "data: ");
	jw_init(&w, out);
	jw_obj(&w);
	jw_kstrn(&w, key, value, len);
	jw_obj_end(&w);
	buf_puts(out, "\n\n");
}

static int put_end(struct buf *out)
{
	buf_puts(out, "data: {\"end\":true,\"message\":\"No more output\"}\n\n");
	return -ENODATA;
}

/* The next piece of the output; false if there is none. */
static bool put_piece(struct shell_op *op, struct buf *out)
{
	const struct shell_command *c = op->cmd;
	uint64_t end = c ? MIN(c->out_start + c->out.len, op->end) : 0;
	const char *data;
	size_t n;

	/* Older parts may have been dropped, or backspaces erased the end. */
	op->at = c ? MIN(MAX(op->at, c->out_start), end) : 0;
	while (op->at < end && (c->out.data[op->at - c->out_start] & 0xc0) == 0x80)
		op->at++;
	if (op->at == end)
		return false;
	data = c->out.data + (op->at - c->out_start);
	n = (size_t)(end - op->at);
	if (n > STREAM_PIECE) {
		n = STREAM_PIECE;
		while (n > 0 && (data[n] & 0xc0) == 0x80)
			n--;
	}
	put_event(out, "output", data, n);
	op->at += n;
	return true;
}

static void put_connected(struct shell_op *op, struct buf *out)
{
	if (!op->connected)
		buf_puts(out, ": connected\n\n");
	op->connected = true;
}

static bool command_runs(const struct shell_op *op)
{
	return op->cmd && op->cmd->status == SHELL_RUNNING && op->waiter.session;
}

/* As it comes. */
static int fill_live(struct request *r, struct buf *out)
{
	struct shell_op *op = r->op;

	put_connected(op, out);
	if (put_piece(op, out))
		return 0;
	if (op->over || !command_runs(op))
		return put_end(out);
	if (op->ping)
		buf_puts(out, "data: {\"keepalive\":true}\n\n");
	op->ping = false;
	return 0;
}

/* From now on nothing is waited for; true if the output was sent, shortened. */
static bool begin_whole(struct shell_op *op, struct buf *out)
{
	CLEANUP_BUF struct buf shorter = BUF_INIT(0);
	const struct shell_command *c = op->cmd;
	size_t len = shell_text_trim(c->out.data, c->out.len);

	shell_wait_end(&op->waiter);
	op->end = c->out_start + len;
	if (!op->truncate || shell_text_shorten(c->out.data, len, SHELL_MAX_CHARS, &shorter) <= 0)
		return false;
	put_event(out, "output", shorter.data, shorter.len);
	drop_command(op);
	return true;
}

/* All of it when the command has ended, in pieces: a client may be slow to read. */
static int fill_whole(struct request *r, struct buf *out)
{
	struct shell_op *op = r->op;

	put_connected(op, out);
	if (op->end == UINT64_MAX) {
		if (!op->over && judge(op) == WAIT_ON)
			return 0;
		if (begin_whole(op, out))
			return put_end(out);
	}
	return put_piece(op, out) ? 0 : put_end(out);
}

static void stream_event(struct shell_waiter *w)
{
	struct shell_op *op = CONTAINER_OF(w, struct shell_op, waiter);

	op->silent_s = 0;
	request_wake(op->r);
}

static void whole_event(struct shell_waiter *w)
{
	struct shell_op *op = CONTAINER_OF(w, struct shell_op, waiter);

	if (judge(op) != WAIT_ON)
		request_wake(op->r);
}

static void whole_timer(struct request *r)
{
	struct shell_op *op = r->op;

	if (!op->waiter.session)
		return;
	if (judge(op) == WAIT_ON) {
		arm(op, whole_timer);
		return;
	}
	op->over = true;
	request_wake(r);
}

static void exec_stream(struct shell_op *op, bool live)
{
	op->waiter.fn = live ? stream_event : whole_event;
	if (!live)
		arm(op, whole_timer);
	request_stream(op->r, live ? fill_live : fill_whole);
}

/* Once a second: a sign of life, but not for ever. */
static void view_timer(struct request *r)
{
	struct shell_op *op = r->op;

	if (++op->silent_s > VIEW_SILENCE || !command_runs(op))
		op->over = true;
	else
		op->ping = op->silent_s > 1;
	request_wake(r);
	if (!op->over)
		request_timer(r, 1, view_timer);
}

void shell_view_stream(struct request *r, struct shell_session *s)
{
	struct shell_op *op = shell_op_new(r, s);

	if (!op)
		return;
	op->cmd = shell_session_latest(s);
	if (op->cmd)
		op->cmd->refs++;
	op->waiter.fn = stream_event;
	shell_wait_begin(s, &op->waiter);
	request_timer(r, 1, view_timer);
	request_stream(r, fill_live);
}

/* ---- exec ---- */

/* Not positive counts as not given, so any number is welcome. */
#define ARG_SECONDS(s, f)                                                                          \
	{                                                                                          \
		.name = #f, .type = ARG_T_OPT_NUM, .offset = offsetof(s, f), .min = INT64_MIN,     \
	}

const struct arg shell_exec_args[] = {
	ARG_STR(struct shell_exec_args, id, 0),
	ARG_STR(struct shell_exec_args, exec_dir, 0),
	ARG_STR(struct shell_exec_args, command, ARG_REQUIRED),
	ARG_BOOL(struct shell_exec_args, async_mode, false),
	ARG_SECONDS(struct shell_exec_args, timeout),
	ARG_BOOL(struct shell_exec_args, strict, false),
	ARG_OPT_INT(struct shell_exec_args, no_change_timeout, INT64_MIN, INT64_MAX),
	ARG_SECONDS(struct shell_exec_args, hard_timeout),
	ARG_BOOL(struct shell_exec_args, preserve_symlinks, false),
	ARG_BOOL(struct shell_exec_args, truncate, true),
	ARG_END,
};

static double seconds(struct opt_num v)
{
	return v.set && v.v > 0 ? MIN(v.v, SHELL_MAX_SECONDS) : 0;
}

static void begin_result(struct jw *w, const char *id, const char *command, enum shell_status st)
{
	jw_obj(w);
	jw_kstr(w, "session_id", id);
	jw_kstr(w, "command", command);
	jw_kstr(w, "status", shell_status_name(st));
}

static void reply_running(struct request *r, const char *id, const char *command,
			  const char *message)
{
	struct jw *w = reply_begin(r, message);

	begin_result(w, id, command, SHELL_RUNNING);
	jw_knull(w, "output");
	jw_knull(w, "console");
	jw_knull(w, "exit_code");
	jw_obj_end(w);
	reply_end(r);
}

static void reply_result(struct shell_op *op, bool silent)
{
	struct jw *w = reply_begin(op->r, "Command executed");
	struct shell_command *c = op->cmd;

	begin_result(w, op->id, c->text, silent ? SHELL_NO_CHANGE : c->status);
	shell_write_output(w, c, op->truncate);
	jw_key(w, "console");
	jw_arr(w);
	shell_write_record(w, c);
	jw_arr_end(w);
	if (silent)
		jw_kint(w, "exit_code", -1);
	else
		shell_write_exit_code(w, "exit_code", c);
	jw_obj_end(w);
	reply_end(op->r);
}

static int fill_no_dir(struct request *r, struct buf *out)
{
	const struct shell_exec_args *a = r->args;
	CLEANUP_BUF struct buf why = BUF_INIT(0);

	buf_printf(&why, "%s No such file or directory", a->exec_dir);
	buf_puts(out, ": connected\n\n");
	put_event(out, "error", why.data, why.len);
	return -ENODATA;
}

static void reply_no_dir(struct request *r, const struct shell_session *s,
			 const struct shell_exec_args *a)
{
	CLEANUP_BUF struct buf output = BUF_INIT(0);
	struct jw *w;

	if (r->wants_sse) {
		request_stream(r, fill_no_dir);
		return;
	}
	buf_printf(&output, "%s No such file or directory", a->exec_dir);
	w = reply_begin(r, "Command executed");
	begin_result(w, s->id, a->command, SHELL_TERMINATED);
	jw_kstr(w, "output", output.data);
	jw_key(w, "console");
	jw_arr(w);
	jw_arr_end(w);
	jw_kint(w, "exit_code", 1);
	jw_obj_end(w);
	reply_end(r);
}

/* Replies if the wait is over. */
static bool answer(struct shell_op *op)
{
	char message[96];

	switch (judge(op)) {
	case WAIT_ON:
		return false;
	case WAIT_TIMEOUT:
		snprintf(message, sizeof(message), "Command still running (timeout %gs reached)",
			 op->timeout_s);
		reply_running(op->r, op->id, op->cmd->text, message);
		break;
	case WAIT_SILENT:
	case WAIT_DONE:
		reply_result(op, op->cmd->status == SHELL_RUNNING);
	}
	shell_wait_end(&op->waiter);
	drop_command(op);
	return true;
}

static void exec_timer(struct request *r)
{
	if (answer(r->op))
		request_resume(r);
	else
		arm(r->op, exec_timer);
}

static void exec_event(struct shell_waiter *w)
{
	struct shell_op *op = CONTAINER_OF(w, struct shell_op, waiter);

	/* Output alone moves the deadline only, which the timer finds out. */
	if ((op->cmd->status != SHELL_RUNNING || !w->session) && answer(op))
		request_resume(op->r);
}

static void exec_in(struct request *r, struct shell_session *s, const char *dir)
{
	const struct shell_exec_args *a = r->args;
	bool old = r->srv->cfg->dialect == DIALECT_1_0;
	struct shell_op *op = shell_op_new(r, s);

	if (!op || !shell_submit(r, s, a->command, dir, a->preserve_symlinks,
				 old ? 0 : seconds(a->hard_timeout), &op->cmd))
		return;
	op->truncate = a->truncate || old;
	op->timeout_s = seconds(a->timeout);
	op->no_change_s = s->no_change_s;
	if (a->no_change_timeout.set && a->no_change_timeout.v > 0)
		op->no_change_s = (unsigned)MIN(a->no_change_timeout.v, (int64_t)SHELL_MAX_SECONDS);
	if (op->timeout_s > 0)
		op->until_ms = clock_ms() + (int64_t)ceil(op->timeout_s * 1000);
	if (a->async_mode && !r->wants_sse) {
		reply_running(r, s->id, a->command, "Command sent for execution");
		drop_command(op);
		return;
	}
	op->waiter.fn = exec_event;
	shell_wait_begin(s, &op->waiter);
	if (r->wants_sse)
		exec_stream(op, a->async_mode);
	else if (!answer(op))
		arm(op, exec_timer);
}

void shell_exec(struct request *r)
{
	const struct shell_exec_args *a = r->args;
	struct shell_session *s = NULL;
	char dir[PATH_MAX];
	bool has_id = a->id && *a->id;
	bool has_dir;

	if (has_id && !(s = shell_find_or_404(r, a->id)))
		return;
	has_dir = a->exec_dir && shell_find_dir(r, a->exec_dir, a->preserve_symlinks, dir) == 0;
	if (!s)
		s = shell_make_session(r, NULL, has_dir ? dir : NULL, a->preserve_symlinks);
	if (!s)
		return;
	if (a->exec_dir && *a->exec_dir && !has_dir && a->strict)
		reply_no_dir(r, s, a);
	else
		exec_in(r, s, has_dir && has_id ? dir : NULL);
}

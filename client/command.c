/*
 * Commands in the sandbox's one shell session: who runs when, the session's
 * life, and what to do when it is lost or confused. What a command does is its
 * caller's business. Loop thread, except the public functions.
 *
 * A session that may still be busy gets no other command: two at once is what
 * confuses old servers. It is left alone then, as deleting it would end the
 * command, and the next command gets a session of its own.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "jsonw.h"
#include "outcome.h"
#include "posix_run.h"
#include "reply.h"
#include "sandbox_i.h"
#include "session.h"
#include "utf8.h"

struct command_op {
	struct op op;
	struct step step;
	struct exchange x;
	char *command;
	struct command_result *ret;
	struct session *session;        /* the channel's, or: */
	struct session fresh;           /* for one more try after a confused one */
	bool sent;                      /* the command may have started, its answer has not come */
	bool no_dir;                    /* the view's root was no good for a session */
	bool renewed;                   /* a lost session was made again once */
	struct command_op *prev, *next; /* the line */
};

struct command_channel {
	struct command_op *line; /* waiting, in order */
	struct command_op *running;
	struct session session;
	bool no_sessions; /* the server cannot make them */
};

static void go(struct command_op *o);

int command_channel_new(struct command_channel **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void command_channel_free(struct command_channel *ch)
{
	free(ch);
}

void command_result_release(struct command_result *r)
{
	free(r->output);
	*r = (struct command_result){ 0 };
}

static struct command_channel *channel(const struct command_op *o)
{
	return o->op.sb->commands;
}

/* ---- the line ---- */

static void line_next(struct sandbox *sb)
{
	struct command_channel *ch = sb->commands;

	if (ch->running || !ch->line || sb->closing)
		return;
	ch->running = ch->line;
	DL_DELETE(ch->line, ch->running);
	go(ch->running);
}

static void leave(struct command_op *o)
{
	struct command_channel *ch = channel(o);

	if (ch->running != o) {
		DL_DELETE(ch->line, o);
		return;
	}
	session_end(o->op.sb, &o->fresh);
	ch->running = NULL;
	line_next(o->op.sb);
}

static void stop_step(struct step *s)
{
	struct command_op *o = CONTAINER_OF(s, struct command_op, step);

	exchange_stop(&o->x);
	if (o->sent)
		session_forget(o->op.sb, o->session);
	leave(o);
}

static void finish(struct command_op *o, int err, char *message)
{
	leave(o);
	op_go_on(&o->op);
	op_finish_with(&o->op, err, message);
}

/* ---- the exchanges ---- */

/* Whether the server's answer proves that the command was not begun. */
static bool refused(const struct exchange *x)
{
	return x->status >= 400 && x->status < 500 && x->status != 408;
}

static bool is_confused(const struct command_result *r)
{
	return memmem(r->output, r->output_len, SHELL_ERROR_OBSERVATION,
		      strlen(SHELL_ERROR_OBSERVATION));
}

static int take_result(const cJSON *data, struct command_result *ret)
{
	struct command_result r = { 0 };
	int err = outcome_status(data, &r.status);

	if (err == 0)
		err = outcome_exit_code(data, &r.exit_code);
	if (err == 0)
		err = outcome_text(data, "output", &r.output, &r.output_len);
	if (err == 0)
		*ret = r;
	return err;
}

/* The command was answered with a result. */
static void on_result(struct command_op *o, struct command_result *r)
{
	struct command_channel *ch = channel(o);

	if (is_confused(r) && o->session == &ch->session && !ch->no_sessions) {
		command_result_release(r);
		session_end(o->op.sb, &ch->session);
		o->session = &o->fresh;
		go(o);
		return;
	}
	if (r->status == COMMAND_RUNNING || r->status == COMMAND_NO_CHANGE)
		session_forget(o->op.sb, o->session);
	*o->ret = *r;
	finish(o, 0, NULL);
}

static void on_executed(struct exchange *x, int err)
{
	struct command_op *o = CONTAINER_OF(x, struct command_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	struct command_result r;
	bool lost;

	o->sent = false;
	err = reply_decode(&a, x, err);
	if (err == 0)
		err = take_result(a.data, &r);
	if (err == 0) {
		on_result(o, &r);
		return;
	}
	lost = err == -ESRCH && x->status == 404; /* the session: nothing ran */
	if (lost || !refused(x))
		session_forget(o->op.sb, o->session);
	if (lost && !o->renewed) {
		o->renewed = true;
		go(o);
		return;
	}
	finish(o, err, STEAL(a.message));
}

static void send_command(struct command_op *o)
{
	struct jw w;

	exchange_release(&o->x);
	exchange_init(&o->x, &o->op, "POST", "/v1/shell/exec", on_executed);
	o->x.lane = LANE_WAIT;
	o->x.fresh = true; /* libcurl sends again what it lost on a reused one */
	o->x.answer_max = OUTCOME_MAX;
	jw_init(&w, &o->x.body);
	jw_obj(&w);
	if (o->session->made)
		jw_kstr(&w, "id", o->session->id);
	else
		jw_kstr(&w, "exec_dir", o->op.sb->root);
	jw_kstr(&w, "command", o->command);
	jw_kint(&w, "no_change_timeout", SESSION_SILENCE_S);
	jw_kbool(&w, "truncate", false);
	jw_obj_end(&w);
	o->sent = true;
	exchange_start(&o->x);
}

static void make_session(struct command_op *o);

static void on_session_made(struct exchange *x, int err)
{
	struct command_op *o = CONTAINER_OF(x, struct command_op, x);
	struct command_channel *ch = channel(o);
	struct answer a CLEANUP_ANSWER = { 0 };
	bool answered = err == 0;

	err = reply_decode(&a, x, err);
	if (a.no_route && o->session == &ch->session) {
		ch->no_sessions = true;
		session_forget(o->op.sb, o->session);
		go(o);
	} else if (err && answered && !o->no_dir) {
		o->no_dir = true;
		make_session(o);
	} else {
		err = err ?: session_adopt(o->op.sb, o->session, a.data);
		if (err)
			finish(o, err, STEAL(a.message));
		else
			go(o);
	}
}

static void make_session(struct command_op *o)
{
	struct session *s = o->session;

	if (!s->id[0]) {
		session_name(s, SESSION_SHELL, s == &o->fresh ? "" : SESSION_PREFIX);
		session_begin(o->op.sb, s);
	}
	session_ask(s, &o->x, &o->op, o->no_dir ? NULL : o->op.sb->root, on_session_made);
	exchange_start(&o->x);
}

/* Its turn, and nothing of it is under way: sends the command, or first makes its session. */
static void go(struct command_op *o)
{
	if (o->session->made || channel(o)->no_sessions)
		send_command(o);
	else
		make_session(o);
}

/* ---- its life ---- */

static void start(struct op *op)
{
	struct command_op *o = (struct command_op *)op;

	o->session = &channel(o)->session;
	op_wait(op, &o->step);
	DL_APPEND(channel(o)->line, o);
	line_next(op->sb);
}

static void release(struct op *op)
{
	struct command_op *o = (struct command_op *)op;

	exchange_release(&o->x);
	free(o->command);
	free(o);
}

void sandbox_execute_command(struct sandbox *sb, struct call *call, const char *command,
			     struct command_result *ret)
{
	struct command_op *o;

	if (!utf8_valid(command, strlen(command))) {
		op_reject(sb, call, -EILSEQ, "the command is not UTF-8");
		return;
	}
	o = calloc(1, sizeof(*o));
	if (o && !(o->command = strdup(command)))
		free(STEAL(o));
	if (o) {
		o->step.stop = stop_step;
		o->ret = ret;
	}
	op_submit((struct op *)o, sb, call, start, release);
}

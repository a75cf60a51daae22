/*
 * The exec channel: who runs when, in which session, and what becomes of a
 * session that is lost or may still be busy. How a script is wrapped is
 * posix_wrap.c's business, what it does that of its owner. Loop thread only.
 *
 * Servers cut long output (10 MiB in /v1/bash, 30,000 characters in a shell):
 * then, or where that is likely, the output goes into a file in the sandbox,
 * which is downloaded and removed.
 */
#include "posix_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "jsonw.h"
#include "outcome.h"
#include "posix_wrap.h"
#include "reply.h"
#include "sandbox_i.h"
#include "session.h"
#include "status.h"
#include "sweep.h"
#include "uuid.h"

enum {
	BASH_SLOTS = 4,
	SLOW_SLOTS = 2, /* of these, for what may take long */
	LONGEST_S = 3600,
	PLAIN_FAILURES = 4, /* then it is not tried any more */
};

/* A place for one command at a time, with a session of ours on the server. */
struct slot {
	struct posix_run *run; /* NULL: free */
	struct session session;
	int64_t printed; /* bytes of stdout in that session, by the server's count; -1: unknown */
};

struct posix_channel {
	struct posix_run *line; /* waiting, in order */
	struct slot slots[BASH_SLOTS];
	bool no_sessions; /* the server cannot make named ones: every command gets a new one */
	unsigned plain_failures;
};

static void go(struct posix_run *run);

int posix_channel_new(struct posix_channel **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void posix_channel_free(struct posix_channel *ch)
{
	free(ch);
}

static struct posix_channel *channel(const struct posix_run *run)
{
	return run->op->sb->posix;
}

/* ---- the line ---- */

/*
 * A shell runs one command at a time, and until it is known whether there is
 * /v1/bash one finds out: another place is there only beside a slow one.
 */
static unsigned slots(const struct sandbox *sb)
{
	const struct posix_run *first = sb->posix->slots[0].run;

	if (sb->features.bash == YES)
		return BASH_SLOTS;
	return first && first->slow ? 2 : 1;
}

static struct posix_run *next_for(const struct sandbox *sb, unsigned slot)
{
	unsigned slow_slots = sb->features.bash == YES ? SLOW_SLOTS : 1;
	struct posix_run *run;

	DL_FOREACH (sb->posix->line, run) {
		if (!run->slow || slot < slow_slots)
			break;
	}
	return run;
}

static void line_next(struct sandbox *sb)
{
	struct posix_channel *ch = sb->posix;

	for (unsigned i = 0; i < slots(sb) && !sb->closing; i++) {
		struct posix_run *run = ch->slots[i].run ? NULL : next_for(sb, i);

		if (!run)
			continue;
		DL_DELETE(ch->line, run);
		run->slot = &ch->slots[i];
		run->slot->run = run;
		go(run);
	}
}

static void put_removal(const struct posix_run *run, struct buf *script)
{
	buf_printf(script, "command rm -f %s.*", run->file);
}

/* Nobody waits any more, and the file may come yet. */
static void sweep_file(const struct posix_run *run)
{
	struct buf script CLEANUP_BUF = BUF_INIT(0);

	put_removal(run, &script);
	if (!script.error)
		sweep(run->op->sb, script.data, NULL);
}

static void leave(struct posix_run *run)
{
	if (run->litters)
		sweep_file(run);
	run->slot->run = NULL;
	run->slot = NULL;
	line_next(run->op->sb);
}

static void finish(struct posix_run *run, int err)
{
	leave(run);
	op_go_on(run->op);
	run->done(run, err);
}

/* ---- asking ---- */

static void ask(struct posix_run *run, const char *method, const char *target, bool idempotent,
		void (*then)(struct exchange *, int))
{
	exchange_release(&run->x);
	exchange_init(&run->x, run->op, method, target, then);
	run->x.idempotent = idempotent;
	run->x.direct = true;
}

/*
 * What an answer says that is no result of a command is not about the file
 * that the command was for: a session that cannot be made must not look like a
 * file that is not there.
 */
static int own_error(int err, const struct exchange *x)
{
	switch (err) {
	case -EAGAIN:
	case -EBADMSG:
	case -EBUSY:
	case -EMSGSIZE:
	case -ENOMEM:
	case -EOPNOTSUPP:
	case -ETIMEDOUT:
		return err;
	default:
		return x->status == 401 || x->status == 403 ? -EACCES : -EIO;
	}
}

/* As reply_decode(); the words of an error stay with the run. */
static int decode(struct posix_run *run, int err, struct answer *a)
{
	int r = reply_decode(a, &run->x, err);

	if (r) {
		free(run->message);
		run->message = STEAL(a->message);
	}
	return r;
}

/* With an error of what was to be sent nothing is sent. */
static void start_exchange(struct posix_run *run, int err)
{
	run->x.body.error = run->x.body.error ?: err;
	exchange_start(&run->x);
}

static int64_t seconds_left(const struct posix_run *run)
{
	int64_t left = op_left_ms(run->op);

	return left > LONGEST_S * 1000 ? LONGEST_S : left / 1000 + 1;
}

static void put_command(struct jw *w, const struct buf *script)
{
	jw_obj(w);
	jw_kstrn(w, "command", script->data, script->len);
}

static void put_bash_env(struct jw *w)
{
	jw_kstr(w, "exec_dir", "/");
	jw_key(w, "env");
	jw_obj(w);
	jw_kstr(w, "LC_ALL", "C");
	jw_obj_end(w);
	jw_kint(w, "max_output_length", 0);
}

static void send_bash(struct posix_run *run, const struct buf *script,
		      void (*then)(struct exchange *, int))
{
	struct session *s = &run->slot->session;
	struct jw w;

	if (!s->id[0]) { /* the server makes it on the way */
		session_name(s, SESSION_BASH, SESSION_PREFIX);
		session_begin(run->op->sb, s);
		run->slot->printed = 0;
	}
	ask(run, "POST", "/v1/bash/exec", run->idempotent, then);
	jw_init(&w, &run->x.body);
	put_command(&w, script);
	jw_kstr(&w, "session_id", s->id);
	put_bash_env(&w);
	jw_kint(&w, "hard_timeout", seconds_left(run));
	jw_obj_end(&w);
	start_exchange(run, run->script.error ?: script->error);
}

static void send_shell(struct posix_run *run, const struct buf *script,
		       void (*then)(struct exchange *, int))
{
	struct buf wrapped CLEANUP_BUF = BUF_INIT(0);
	char id[UUID_LEN + 1];
	struct jw w;

	uuid_make(id);
	snprintf(run->mark, sizeof(run->mark), "tf%.8s", id);
	wrap_shell(&wrapped, script, run->mark, run->large ? SHELL_ERR_MAX : SHELL_ERR_ALONE_MAX);
	ask(run, "POST", "/v1/shell/exec", run->idempotent, then);
	jw_init(&w, &run->x.body);
	put_command(&w, &wrapped);
	if (run->slot->session.made)
		jw_kstr(&w, "id", run->slot->session.id);
	jw_kint(&w, "no_change_timeout", SESSION_SILENCE_S);
	jw_obj_end(&w);
	start_exchange(run, run->script.error ?: script->error ?: wrapped.error);
}

static void send_script(struct posix_run *run, const struct buf *script,
			void (*then)(struct exchange *, int))
{
	if (run->in_shell)
		send_shell(run, script, then);
	else
		send_bash(run, script, then);
}

/* ---- output in a file ---- */

static void on_removed(struct exchange *x, int err)
{
	struct posix_run *run = CONTAINER_OF(x, struct posix_run, x);

	if (err)
		session_abandon(run->op->sb, &run->slot->session);
	else if (x->status != 200)
		session_end(run->op->sb, &run->slot->session);
	else
		run->litters = false;
	finish(run, run->fetch_error);
}

static void on_downloaded(struct exchange *x, int err)
{
	struct posix_run *run = CONTAINER_OF(x, struct posix_run, x);
	struct buf script CLEANUP_BUF = BUF_INIT(0);
	struct answer a CLEANUP_ANSWER = { 0 };

	if (err == 0 && x->status == 200) {
		buf_release(&run->out);
		run->out = x->answer;
		x->answer = BUF_INIT(0);
	} else {
		/* What is missing is our file, not the caller's. */
		decode(run, err, &a);
		run->fetch_error = err ?: -EIO;
	}
	put_removal(run, &script);
	send_script(run, &script, on_removed);
}

/* Fetches what lies in the file of that name: ours, with what mktemp added. */
static bool fetch(struct posix_run *run, const char *name)
{
	size_t len = strlen(run->file);

	if (strncmp(name, run->file, len) != 0 || strchr(name + len, '/'))
		return false;
	ask(run, "GET", "/v1/file/download", true, on_downloaded);
	run->x.lane = LANE_STREAM;
	run->x.answer_max = POSIX_OUTPUT_MAX;
	start_exchange(run, exchange_query(&run->x, "path", name));
	return true;
}

/* The output is I and what follows, or S and the name of the file that it lies in. */
static void take_spilled(struct posix_run *run)
{
	char where = run->out.len ? run->out.data[0] : 0;

	if (where == 'I') {
		run->litters = false;
		buf_consume(&run->out, 1);
		finish(run, 0);
	} else if (where != 'S' || !fetch(run, run->out.data + 1)) {
		/* No file could be made. That is not an error of the caller's. */
		free(run->message);
		run->message = answer_printable(run->err.data ?: "", run->err.len);
		finish(run, -EIO);
	}
}

/* ---- the command's end ---- */

static int keep(struct buf *to, const char *s)
{
	return s ? buf_puts(to, s) : 0;
}

/* What the command printed, by the server's count; -1: it does not say. */
static int64_t count_printed(struct slot *slot, const cJSON *data)
{
	int64_t before = slot->printed, now = answer_int(data, "offset", -1);

	slot->printed = now;
	return before >= 0 && now >= before ? now - before : -1;
}

static bool is_whole(const char *lines, int64_t len)
{
	size_t n = strlen(lines);

	if (len < 0 || n != (size_t)len || (n > 0 && lines[n - 1] != '\n'))
		return false;
	for (; *lines; lines++) {
		if (*lines != '\n' && (*lines < ' ' || *lines > '~'))
			return false;
	}
	return true;
}

/* Lines, or -EAGAIN: it has to run in its other form. */
static int take_plain(struct posix_run *run, const char *lines, int64_t len)
{
	int r;

	if (!is_whole(lines, len)) {
		channel(run)->plain_failures++;
		run->no_plain = true;
		return -EAGAIN;
	}
	r = buf_puts(&run->out, lines);
	for (char *c = run->out.data; r == 0 && c && (c = strchr(c, '\n')); c++)
		*c = '\0';
	return r;
}

/* Whether the session is free again, and what the command printed. */
static int take_result(struct posix_run *run, const cJSON *data, bool *ret_cut)
{
	enum command_status status;
	const char *out = answer_str(data, run->in_shell ? "output" : "stdout");
	int64_t printed = run->in_shell ? -1 : count_printed(run->slot, data);
	int r = outcome_status(data, &status);

	if (r < 0)
		return r;
	if (status == COMMAND_TERMINATED)
		return -EIO;
	if (status != COMMAND_COMPLETED)
		return -ETIMEDOUT;
	if (run->in_shell)
		return unwrap_shell(out ?: "", run->mark, &run->out, &run->err, &run->exit_code,
				    ret_cut);
	r = outcome_exit_code(data, &run->exit_code);
	if (r == 0)
		r = keep(&run->err, answer_str(data, "stderr"));
	if (r == 0 && run->is_plain)
		return take_plain(run, out ?: "", printed);
	if (r == 0 && run->output == POSIX_BYTES)
		return unwrap_bash_bytes(&run->out, out, ret_cut);
	return r ?: keep(&run->out, out);
}

static void command_ended(struct posix_run *run, bool cut)
{
	if (cut && run->output == POSIX_BYTES && run->idempotent && !run->spills) {
		run->was_cut = true;
		go(run);
	} else if (cut) {
		finish(run, -EMSGSIZE);
	} else if (run->spills) {
		take_spilled(run);
	} else {
		finish(run, 0);
	}
}

static bool is_confused(const struct posix_run *run, const cJSON *data)
{
	const char *output = run->in_shell ? answer_str(data, "output") : NULL;

	return output && strstr(output, SHELL_ERROR_OBSERVATION);
}

/* Whether the command is to be sent once more, in another session. */
static bool renew(struct posix_run *run, bool nothing_ran)
{
	if (run->renewed || !(nothing_ran || run->idempotent))
		return false;
	run->renewed = true;
	go(run);
	return true;
}

static void on_ran(struct exchange *x, int err)
{
	struct posix_run *run = CONTAINER_OF(x, struct posix_run, x);
	struct sandbox *sb = run->op->sb;
	struct answer a CLEANUP_ANSWER = { 0 };
	bool answered = err == 0, cut = false;

	err = decode(run, err, &a);
	if (a.no_route && !run->in_shell && sb->features.bash != YES) {
		/* An old server: it has the shell only, and nothing has run yet. */
		sb->features.bash = NO;
		session_forget(sb, &run->slot->session);
		go(run);
		return;
	}
	if (err == 0 && !run->in_shell)
		sb->features.bash = YES;
	if (err == -ESRCH && run->in_shell) { /* somebody deleted it: nothing ran */
		session_forget(sb, &run->slot->session);
		if (renew(run, true))
			return;
	}
	if (err && answered)
		err = own_error(err, x);
	if (err == 0 && is_confused(run, a.data)) {
		session_end(sb, &run->slot->session);
		if (renew(run, false))
			return;
		err = -EIO;
	}
	if (err == 0)
		err = take_result(run, a.data, &cut);
	if (err == -EAGAIN && run->is_plain) { /* it has ended, and the session is free */
		go(run);
		return;
	}
	/* Unless it is known that the command has ended nothing else may run there. */
	if (err && !answered)
		session_abandon(sb, &run->slot->session);
	else if (err)
		session_end(sb, &run->slot->session);
	run->adrift = err && exchange_was_sent(x);
	if (err == -EMSGSIZE) /* the server cut nothing off, but it is more than we take */
		command_ended(run, true);
	else if (err)
		finish(run, err);
	else
		command_ended(run, cut);
}

/* ---- the shell's session ---- */

static void on_session_made(struct exchange *x, int err)
{
	struct posix_run *run = CONTAINER_OF(x, struct posix_run, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	bool answered = err == 0;

	err = decode(run, err, &a);
	if (a.no_route) {
		channel(run)->no_sessions = true;
		session_forget(run->op->sb, &run->slot->session);
		go(run);
		return;
	}
	err = err && answered ? own_error(err, x) : err ?: session_adopt(run->op->sb, &run->slot->session, a.data);
	if (err && !answered)
		session_abandon(run->op->sb, &run->slot->session);
	else if (err)
		session_end(run->op->sb, &run->slot->session);
	if (err) {
		finish(run, err);
	} else {
		go(run);
	}
}

static void make_session(struct posix_run *run)
{
	struct session *s = &run->slot->session;

	session_name(s, SESSION_SHELL, SESSION_PREFIX);
	session_begin(run->op->sb, s);
	session_ask(s, &run->x, run->op, "/", on_session_made);
	exchange_start(&run->x);
}

/* ---- its life ---- */

static bool goes_plain(const struct posix_run *run)
{
	return run->plain.len > 0 && !run->in_shell && !run->was_cut && !run->no_plain &&
	       run->op->sb->features.bash == YES && channel(run)->plain_failures < PLAIN_FAILURES;
}

/* Its turn, and nothing of it is under way: sends the script, or first makes its session. */
static void go(struct posix_run *run)
{
	struct buf spilling CLEANUP_BUF = BUF_INIT(0), armoured CLEANUP_BUF = BUF_INIT(0);
	const struct buf *script = &run->script;

	buf_reset(&run->out);
	buf_reset(&run->err);
	run->in_shell = run->op->sb->features.bash == NO;
	if (run->in_shell && !run->slot->session.made && !channel(run)->no_sessions) {
		make_session(run);
		return;
	}
	run->is_plain = goes_plain(run);
	if (run->is_plain) {
		send_script(run, &run->plain, on_ran);
		return;
	}
	run->spills = run->was_cut || (run->large && run->in_shell);
	if (run->spills) {
		run->litters = true;
		wrap_spill(&spilling, script, run->file,
			   run->in_shell ? SHELL_OUT_MAX : BASH_OUT_MAX);
		script = &spilling;
	}
	if (run->output == POSIX_BYTES && !run->in_shell) {
		wrap_bash_bytes(&armoured, script);
		script = &armoured;
	}
	send_script(run, script, on_ran);
}

static void stop_step(struct step *s)
{
	struct posix_run *run = CONTAINER_OF(s, struct posix_run, step);

	if (!run->slot) {
		DL_DELETE(channel(run)->line, run);
		return;
	}
	run->adrift = run->x.done == on_ran && exchange_was_sent(&run->x);
	exchange_stop(&run->x);
	session_abandon(run->op->sb, &run->slot->session);
	leave(run);
}

void posix_run_init(struct posix_run *run, struct op *op, void (*done)(struct posix_run *, int err))
{
	char id[UUID_LEN + 1];

	uuid_make(id);
	*run = (struct posix_run){
		.step.stop = stop_step,
		.op = op,
		.done = done,
		.script = BUF_INIT(MIB),
		.plain = BUF_INIT(MIB),
	};
	snprintf(run->file, sizeof(run->file), "/tmp/.threadfs-%s", id);
}

void posix_run_start(struct posix_run *run)
{
	op_wait(run->op, &run->step);
	DL_APPEND(channel(run)->line, run);
	line_next(run->op->sb);
}

void posix_run_release(struct posix_run *run)
{
	exchange_release(&run->x);
	buf_release(&run->script);
	buf_release(&run->plain);
	buf_release(&run->out);
	buf_release(&run->err);
	free(run->message);
	*run = (struct posix_run){ 0 };
}

int posix_run_errno(const struct posix_run *run)
{
	return status_from_command(run->err.data ?: "", run->err.len, run->exit_code);
}

void posix_run_finish_op(struct posix_run *run, int err)
{
	char *message = err ? STEAL(run->message) : NULL;

	if (!err && run->exit_code != 0) {
		err = posix_run_errno(run);
		message = answer_printable(run->err.data ?: "", run->err.len);
	}
	op_finish_with(run->op, err, message);
}

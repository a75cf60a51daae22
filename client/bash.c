/*
 * Commands through /v1/bash: each is a process in a session of its own, so
 * that none queues behind another. Loop thread, except the public functions.
 *
 * Every operation here is one POST. Those that make a session have a farewell
 * that closes it, which ends what runs there: it is said when the result has
 * come or the caller has given up, and dropped when the job is his.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "jsonw.h"
#include "outcome.h"
#include "reply.h"
#include "sandbox_i.h"
#include "session.h"
#include "url.h"
#include "utf8.h"

#define NO_BASH                                                                                    \
	"this sandbox has no /v1/bash (its image is older than 1.9.3): upgrade the sandbox image " \
	"to run commands with an environment"

struct bash_op {
	struct op op;
	struct exchange x;
	struct buf target, body;
	enum lane lane;
	bool idempotent;
	struct session session; /* the one that it makes */
	bool keep;              /* that stays when all went well */
	/* Reads a good answer. Returns 0 or an errno. NULL: there is nothing to read. */
	int (*take)(struct bash_op *o, const cJSON *data);
	void *ret; /* of its public function */
};

void bash_result_release(struct bash_result *r)
{
	free(r->out);
	free(r->err);
	*r = (struct bash_result){ 0 };
}

/* ---- one request ---- */

static void finish_without_bash(struct bash_op *o)
{
	op_finish_with(&o->op, -EOPNOTSUPP, strdup(NO_BASH));
}

static void on_answer(struct exchange *x, int err)
{
	struct bash_op *o = CONTAINER_OF(x, struct bash_op, x);
	struct sandbox *sb = o->op.sb;
	struct answer a CLEANUP_ANSWER = { 0 };

	err = reply_decode(&a, x, err);
	if (a.no_route) {
		/* From the others it could be a stranger's words for an unknown job. */
		if (o->session.id[0] && sb->features.bash == UNKNOWN)
			sb->features.bash = NO;
		session_forget(sb, &o->session);
		finish_without_bash(o);
		return;
	}
	if (err == 0) {
		sb->features.bash = YES;
		err = o->take ? o->take(o, a.data) : 0;
	}
	if (err == 0 && o->keep)
		session_forget(sb, &o->session);
	else
		session_end(sb, &o->session);
	op_finish_with(&o->op, err, STEAL(a.message));
}

static void start(struct op *op)
{
	struct bash_op *o = (struct bash_op *)op;

	if (op->sb->features.bash == NO) {
		finish_without_bash(o);
		return;
	}
	if (o->session.id[0])
		session_begin(op->sb, &o->session);
	exchange_init(&o->x, op, "POST", o->target.data ?: "", on_answer);
	o->x.body = o->body;
	o->x.body.error = o->body.error ?: o->target.error;
	o->body = BUF_INIT(0);
	o->x.lane = o->lane;
	o->x.idempotent = o->idempotent;
	o->x.fresh = !o->idempotent; /* libcurl sends again what it lost on a reused one */
	o->x.answer_max = OUTCOME_MAX;
	exchange_start(&o->x);
}

/* Nobody will hear of the command any more: it is to end, too. */
static void interrupted(struct op *op, int err UNUSED)
{
	session_end(op->sb, &((struct bash_op *)op)->session);
}

static void release(struct op *op)
{
	struct bash_op *o = (struct bash_op *)op;

	exchange_release(&o->x);
	buf_release(&o->target);
	buf_release(&o->body);
	free(o);
}

static struct bash_op *bash_op_new(const char *target, void *ret)
{
	struct bash_op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	buf_puts(&o->target, target);
	o->ret = ret;
	o->op.interrupted = interrupted;
	return o;
}

static void submit(struct bash_op *o, struct sandbox *sb, struct call *call)
{
	op_submit((struct op *)o, sb, call, start, release);
}

/* ---- starting a command ---- */

/* What a shell and the server take for the name of a variable. */
static bool is_env_name(const char *s)
{
	size_t len = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return len > 0 && !s[len] && !(*s >= '0' && *s <= '9');
}

/*
 * Whether all that goes into the request can; ends the call if not. Nothing of
 * the environment is repeated in words: it holds secrets, maybe in the wrong place.
 */
static bool is_fit(struct sandbox *sb, struct call *call, const struct bash_command *cmd)
{
	const char *const *e = cmd->env;

	if (!utf8_valid(cmd->command, strlen(cmd->command))) {
		op_reject(sb, call, -EILSEQ, "the command is not UTF-8");
		return false;
	}
	if (cmd->hard_timeout_s < 0) {
		op_reject(sb, call, -EINVAL, "the timeout is negative");
		return false;
	}
	for (; e && e[0]; e += 2) {
		if (!is_env_name(e[0]) || !e[1]) {
			op_reject(sb, call, -EINVAL, "invalid environment");
			return false;
		}
		if (!utf8_valid(e[1], strlen(e[1]))) {
			op_reject(sb, call, -EILSEQ, "the environment is not UTF-8");
			return false;
		}
	}
	if (!cmd->dir)
		return true;
	if (!utf8_valid(cmd->dir, strlen(cmd->dir))) {
		op_reject(sb, call, -EILSEQ, "the directory is not UTF-8");
		return false;
	}
	return sandbox_allows(sb, call, cmd->dir);
}

static void write_command(struct bash_op *o, const struct sandbox *sb,
			  const struct bash_command *cmd, bool async)
{
	const char *const *e = cmd->env;
	struct jw w;

	jw_init(&w, &o->body);
	jw_obj(&w);
	jw_kstr(&w, "session_id", o->session.id);
	jw_kstr(&w, "command", cmd->command);
	jw_kstr(&w, "exec_dir", cmd->dir ?: sb->root);
	jw_kbool(&w, "async_mode", async);
	jw_kint(&w, "max_output_length", 0);
	if (cmd->hard_timeout_s > 0)
		jw_kint(&w, "hard_timeout", cmd->hard_timeout_s);
	if (e && e[0]) {
		jw_key(&w, "env");
		jw_obj(&w);
		for (; e[0]; e += 2)
			jw_kstr(&w, e[0], e[1]);
		jw_obj_end(&w);
	}
	jw_obj_end(&w);
}

static void execute(struct sandbox *sb, struct call *call, const struct bash_command *cmd,
		    bool async, int (*take)(struct bash_op *, const cJSON *), void *ret)
{
	struct bash_op *o;

	if (!is_fit(sb, call, cmd))
		return;
	o = bash_op_new("/v1/bash/exec", ret);
	if (o) {
		session_name(&o->session, SESSION_BASH, SESSION_PREFIX);
		o->lane = async ? LANE_QUICK : LANE_WAIT;
		o->keep = async;
		o->take = take;
		write_command(o, sb, cmd, async);
	}
	submit(o, sb, call);
}

/* ---- what it printed ---- */

/* command: the object with status and exit code; data: the one with the output. */
static int take_result(const cJSON *command, const cJSON *data, struct bash_result *ret)
{
	struct bash_result r CLEANUP(bash_result_release) = { 0 };
	int err = outcome_status(command, &r.status);

	if (err == 0)
		err = outcome_exit_code(command, &r.exit_code);
	if (err == 0)
		err = outcome_text(data, "stdout", &r.out, &r.out_len);
	if (err == 0)
		err = outcome_text(data, "stderr", &r.err, &r.err_len);
	if (err)
		return err;
	*ret = r;
	r.out = r.err = NULL;
	return 0;
}

static int take_end(struct bash_op *o, const cJSON *data)
{
	enum command_status status;
	int err = outcome_status(data, &status);

	if (err)
		return err;
	if (status == COMMAND_RUNNING) /* a server that would not wait any longer */
		return -ETIMEDOUT;
	return take_result(data, data, o->ret);
}

void sandbox_bash(struct sandbox *sb, struct call *call, const struct bash_command *cmd,
		  struct bash_result *ret)
{
	execute(sb, call, cmd, false, take_end, ret);
}

static int take_start(struct bash_op *o, const cJSON *data)
{
	enum command_status status;
	int err = outcome_status(data, &status);
	char *job;

	if (err)
		return err;
	job = strdup(o->session.id);
	if (!job)
		return -ENOMEM;
	*(char **)o->ret = job;
	return 0;
}

void sandbox_bash_start(struct sandbox *sb, struct call *call, const struct bash_command *cmd,
			char **ret_job)
{
	execute(sb, call, cmd, true, take_start, ret_job);
}

/* ---- jobs ---- */

/* Ends the call if that cannot be a job's id: it becomes part of a path. */
static bool is_job(struct sandbox *sb, struct call *call, const char *job)
{
	size_t len = strlen(job);

	if (name_is_component(job, len) && utf8_valid(job, len))
		return true;
	op_reject(sb, call, -EINVAL, "not the id of a job");
	return false;
}

static int take_output(struct bash_op *o, const cJSON *data)
{
	struct bash_output out = {
		.out_offset = answer_int(data, "offset", -1),
		.err_offset = answer_int(data, "stderr_offset", -1),
	};
	const cJSON *command = cJSON_GetObjectItemCaseSensitive(data, "command");
	int err;

	if (out.out_offset < 0 || out.err_offset < 0)
		return -EBADMSG;
	err = take_result(command, data, &out.result);
	if (err == 0)
		*(struct bash_output *)o->ret = out;
	return err;
}

void sandbox_bash_output(struct sandbox *sb, struct call *call, const char *job, int64_t out_offset,
			 int64_t err_offset, int64_t wait_ms, struct bash_output *ret)
{
	struct bash_op *o;
	struct jw w;

	if (!is_job(sb, call, job))
		return;
	if (out_offset < 0 || err_offset < 0) {
		op_reject(sb, call, -EINVAL, "negative offset");
		return;
	}
	o = bash_op_new("/v1/bash/output", ret);
	if (o) {
		o->take = take_output;
		o->idempotent = true;
		o->lane = wait_ms > 0 ? LANE_WAIT : LANE_QUICK;
		jw_init(&w, &o->body);
		jw_obj(&w);
		jw_kstr(&w, "session_id", job);
		jw_kint(&w, "offset", out_offset);
		jw_kint(&w, "stderr_offset", err_offset);
		jw_kbool(&w, "wait", wait_ms > 0);
		if (wait_ms > 0)
			jw_knum(&w, "wait_timeout", (double)wait_ms / 1e3);
		jw_obj_end(&w);
	}
	submit(o, sb, call);
}

/* The requests that are a job and one more string, and have no result. */
static void tell(struct sandbox *sb, struct call *call, const char *target, const char *job,
		 const char *key, const char *value, size_t len)
{
	struct bash_op *o;
	struct jw w;

	if (!is_job(sb, call, job))
		return;
	o = bash_op_new(target, NULL);
	if (o) {
		jw_init(&w, &o->body);
		jw_obj(&w);
		jw_kstr(&w, "session_id", job);
		jw_kstrn(&w, key, value, len);
		jw_obj_end(&w);
	}
	submit(o, sb, call);
}

void sandbox_bash_write(struct sandbox *sb, struct call *call, const char *job, const void *bytes,
			size_t len)
{
	if (!utf8_valid(bytes, len))
		op_reject(sb, call, -EILSEQ, "the input is not UTF-8");
	else
		tell(sb, call, "/v1/bash/write", job, "input", bytes, len);
}

void sandbox_bash_kill(struct sandbox *sb, struct call *call, const char *job, int signal)
{
	const char *name = signal == SIGTERM   ? "SIGTERM"
			   : signal == SIGKILL ? "SIGKILL"
			   : signal == SIGINT  ? "SIGINT"
					       : NULL;

	if (!name)
		op_reject(sb, call, -EINVAL, "unknown signal %d", signal);
	else
		tell(sb, call, "/v1/bash/kill", job, "signal", name, strlen(name));
}

void sandbox_bash_close(struct sandbox *sb, struct call *call, const char *job)
{
	struct bash_op *o;

	if (!is_job(sb, call, job))
		return;
	o = bash_op_new("/v1/bash/sessions/", NULL);
	if (o && url_escape(&o->target, job, strlen(job)) == 0)
		buf_puts(&o->target, "/close");
	submit(o, sb, call);
}

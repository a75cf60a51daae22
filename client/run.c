/*
 * Runs (sandbox.h): what is asked of the sandbox when, through the exec
 * channel. The scripts are run_script.c's business, what they print run_news.c's.
 * Public functions from any thread, the rest on the loop's.
 *
 * What there is to know of a run is in the sandbox. Here are only the names of
 * the shells, which end with us, and the line of the runs that are to be
 * started in one: two requests at once would arrive in any order.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "posix_run.h"
#include "run_news.h"
#include "run_script.h"
#include "sandbox_i.h"
#include "shellquote.h"
#include "sweep.h"
#include "uuid.h"

enum {
	SCRIPT_MAX = 128 * 1024,
	LOOK_MAX = 1024 * 1024,
	LOOK_WAIT_MAX_MS = 1000, /* others wait for the place meanwhile */
};

struct run_shell {
	char *word;
	char id[UUID_LEN + 1];
	bool begun; /* it may be there */
	struct run_shell *next;
};

struct run_op {
	struct op op;
	struct posix_run run;
	char id[UUID_LEN + 1];
	void *ret; /* of its public function */

	/* starting and feeding */
	struct buf bytes; /* of the script or of stdin */
	size_t sent;      /* of these */
	uint64_t offset;  /* of the first in stdin */
	bool end;         /* no more of them follow */
	struct buf words; /* the environment, quoted */
	char *dir;        /* or NULL */
	char *word;       /* the shell's, or NULL */
	bool fed;         /* stdin comes later */
	bool starts;      /* it is a start, */
	bool litters;     /* of which something is there, and its caller will not know */
	struct step turn; /* waiting for that in the line of starts */
	bool in_line;
	struct run_op *prev, *next;

	/* looking */
	uint64_t out_offset, err_offset;
	size_t max;
	int64_t wait_ms;
	int signal; /* killing */
};

struct run_channel {
	struct run_shell *shells;
	struct run_op *line; /* starts in shells, the first one under way */
};

int run_channel_new(struct run_channel **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void run_channel_free(struct run_channel *ch)
{
	struct run_shell *s, *tmp;

	if (!ch)
		return;
	LL_FOREACH_SAFE (ch->shells, s, tmp) {
		free(s->word);
		free(s);
	}
	free(ch);
}

void run_channel_close(struct sandbox *sb)
{
	struct run_shell *s;

	LL_FOREACH (sb->runs->shells, s) {
		struct buf script CLEANUP_BUF = BUF_INIT(0);

		run_script_bye(&script, s->id);
		if (s->begun && !script.error)
			sweep(sb, script.data, NULL);
		s->begun = false;
	}
}

/* ---- one operation ---- */

static struct run_op *op_of(struct posix_run *run)
{
	return CONTAINER_OF(run, struct run_op, run);
}

static void leave_line(struct run_op *o);

static struct run_shell *find_shell(struct sandbox *sb, const char *word);

/* What was started, or will yet be, is ended: a shell, too, that comes only after its farewell. */
static void undo(struct run_op *o)
{
	struct buf script CLEANUP_BUF = BUF_INIT(0), bye CLEANUP_BUF = BUF_INIT(0);
	struct sandbox *sb = o->op.sb;
	struct run_shell *shell = o->word ? find_shell(sb, o->word) : NULL;

	run_script_undo(&script, o->id, o->run.adrift);
	if (shell)
		run_script_bye(&bye, shell->id);
	if (!script.error && !bye.error)
		sweep(sb, script.data, bye.data);
}

static void release(struct op *op)
{
	struct run_op *o = (struct run_op *)op;

	if (o->litters || (o->starts && o->run.adrift))
		undo(o);
	posix_run_release(&o->run);
	if (o->in_line)
		leave_line(o);
	buf_release(&o->bytes);
	buf_release(&o->words);
	free(o->dir);
	free(o->word);
	free(o);
}

/* The next command of the operation; the one before has ended. */
static struct buf *command(struct run_op *o, void (*done)(struct posix_run *, int))
{
	posix_run_release(&o->run);
	posix_run_init(&o->run, &o->op, done);
	return &o->run.script;
}

/* As posix_run_finish_op(), with our own exit codes. */
static void finish(struct posix_run *run, int err)
{
	if (!err && run->exit_code == RUN_UNKNOWN)
		op_finish_with(run->op, -ESRCH, strdup("there is no such run"));
	else if (!err && run->exit_code == RUN_DEAF)
		op_finish_with(run->op, -EPIPE, strdup("the run does not read its input"));
	else if (!err && run->exit_code == RUN_FULL)
		op_finish_with(run->op, -EAGAIN, strdup("the run has much input to read yet"));
	else
		posix_run_finish_op(run, err);
}

static bool succeeded(const struct posix_run *run, int err)
{
	return err == 0 && run->exit_code == 0;
}

/* Ends the call if that cannot be the name of a run: it becomes part of a path. */
static bool is_run(struct sandbox *sb, struct call *call, const char *run)
{
	if (uuid_is(run))
		return true;
	op_reject(sb, call, -EINVAL, "not the name of a run");
	return false;
}

static struct run_op *run_op_new(const char *id, void *ret)
{
	struct run_op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	snprintf(o->id, sizeof(o->id), "%s", id);
	o->ret = ret;
	return o;
}

/* What is to be sent next of the bytes. */
static struct run_piece next_piece(const struct run_op *o, size_t max)
{
	return (struct run_piece){
		.offset = o->offset + o->sent,
		.bytes = o->bytes.data ? o->bytes.data + o->sent : "",
		.len = MIN(o->bytes.len - o->sent, max),
	};
}

/* ---- starting ---- */

static void send_start(struct run_op *o);

static struct run_shell *find_shell(struct sandbox *sb, const char *word)
{
	struct run_shell *s;

	LL_FOREACH (sb->runs->shells, s)
		if (!strcmp(s->word, word))
			return s;
	s = calloc(1, sizeof(*s));
	if (!s || !(s->word = strdup(word))) {
		free(s);
		return NULL;
	}
	uuid_make(s->id);
	LL_PREPEND(sb->runs->shells, s);
	return s;
}

static void on_started(struct posix_run *run, int err)
{
	struct run_op *o = op_of(run);
	char *id = NULL;

	o->litters |= err == 0;
	if (succeeded(run, err) && !(id = strdup(o->id)))
		err = -ENOMEM;
	if (id) {
		*(char **)o->ret = id;
		o->litters = false;
	}
	finish(run, err);
}

static void on_piece(struct posix_run *run, int err)
{
	struct run_op *o = op_of(run);

	o->litters |= err == 0;
	if (!succeeded(run, err)) {
		finish(run, err);
		return;
	}
	o->sent += MIN(o->bytes.len - o->sent, RUN_PIECE);
	send_start(o);
}

/* The last piece goes with the start itself if there is room for it. */
static void send_start(struct run_op *o)
{
	size_t left = o->bytes.len - o->sent;
	bool last = left <= (o->words.len > RUN_WORDS_MAX ? 0 : RUN_PIECE);
	struct buf *script = command(o, last ? on_started : on_piece);
	struct run_piece piece = next_piece(o, RUN_PIECE);
	struct sandbox *sb = o->op.sb;
	struct run_shell *shell;

	o->starts = true;
	if (!last) {
		o->run.idempotent = true;
		run_script_piece(script, o->id, &piece);
	} else if (!o->word) {
		run_script_start(script, o->id, &piece, o->dir ?: sb->root, o->words.data ?: "",
				 o->fed);
	} else if ((shell = find_shell(sb, o->word))) {
		shell->begun = true;
		run_script_enqueue(script, o->id, &piece, shell->id, sb->root);
	} else {
		script->error = -ENOMEM;
	}
	posix_run_start(&o->run);
}

static void leave_line(struct run_op *o)
{
	struct run_channel *ch = o->op.sb->runs;
	bool first = ch->line == o;

	DL_DELETE(ch->line, o);
	if (first && ch->line && !o->op.sb->closing) {
		op_go_on(&ch->line->op);
		send_start(ch->line);
	}
}

/* release() takes it out of the line, whatever ended it. */
static void stop_waiting(struct step *s UNUSED)
{
}

static void begin_start(struct op *op)
{
	struct run_op *o = (struct run_op *)op;
	struct run_channel *ch = op->sb->runs;

	if (!o->word) {
		send_start(o);
		return;
	}
	o->in_line = true;
	DL_APPEND(ch->line, o);
	o->turn.stop = stop_waiting;
	if (ch->line == o)
		send_start(o);
	else
		op_wait(op, &o->turn);
}

static bool is_env_name(const char *s)
{
	size_t len = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return len > 0 && !s[len] && !(*s >= '0' && *s <= '9');
}

/* Nothing of it is repeated in words: it holds secrets. */
static int put_env(struct buf *to, const char *const *env)
{
	for (; env && env[0]; env += 2) {
		struct buf word CLEANUP_BUF = BUF_INIT(0);

		if (!is_env_name(env[0]) || !env[1])
			return -EINVAL;
		if (buf_printf(&word, "%s=", env[0]) < 0 || buf_puts(&word, env[1]) < 0)
			return word.error;
		buf_putc(to, ' ');
		shellquote(to, word.data, word.len);
	}
	return to->error == -EFBIG ? -E2BIG : to->error;
}

static bool is_fit(struct sandbox *sb, struct call *call, const struct run_spec *spec)
{
	if (spec->len > SCRIPT_MAX) {
		op_reject(sb, call, -E2BIG, "the script is longer than %d bytes", SCRIPT_MAX);
		return false;
	}
	if (spec->len && memchr(spec->script, 0, spec->len)) {
		op_reject(sb, call, -EINVAL, "the script holds NUL");
		return false;
	}
	if (spec->shell && (spec->dir || spec->env || spec->fed)) {
		op_reject(sb, call, -EINVAL, "a run in a shell takes what that has");
		return false;
	}
	return !spec->dir || sandbox_allows(sb, call, spec->dir);
}

void sandbox_run_start(struct sandbox *sb, struct call *call, const struct run_spec *spec,
		       char **ret_run)
{
	struct buf words CLEANUP_BUF = BUF_INIT(RUN_WORDS_ALONE_MAX);
	char id[UUID_LEN + 1];
	struct run_op *o;
	int r;

	if (!is_fit(sb, call, spec))
		return;
	r = put_env(&words, spec->env);
	if (r < 0) {
		op_reject(sb, call, r, "the environment is %s",
			  r == -E2BIG ? "too large" : "invalid");
		return;
	}
	uuid_make(id);
	o = run_op_new(id, ret_run);
	if (o) {
		o->words = words;
		words = BUF_INIT(0);
		o->fed = spec->fed;
		if (buf_append(&o->bytes, spec->script, spec->len) < 0 ||
		    (spec->dir && !(o->dir = strdup(spec->dir))) ||
		    (spec->shell && !(o->word = strdup(spec->shell)))) {
			buf_release(&o->bytes);
			buf_release(&o->words);
			free(o->dir);
			free(STEAL(o));
		}
	}
	op_submit((struct op *)o, sb, call, begin_start, release);
}

/* ---- looking ---- */

static void on_looked(struct posix_run *run, int err)
{
	struct run_op *o = op_of(run);

	if (succeeded(run, err))
		err = run_news_parse(&run->out, o->max, o->ret);
	finish(run, err);
}

static void begin_look(struct op *op)
{
	struct run_op *o = (struct run_op *)op;
	struct buf *script = command(o, on_looked);
	int64_t wait_ms = MIN(MIN(o->wait_ms, LOOK_WAIT_MAX_MS), op_left_ms(op) / 2);

	/* A shell has no place for one that only waits. */
	if (op->sb->features.bash != YES)
		wait_ms = 0;
	run_script_look(script, o->id, o->out_offset, o->err_offset, o->max, wait_ms);
	o->run.output = POSIX_BYTES;
	o->run.large = true;
	o->run.idempotent = true;
	o->run.slow = wait_ms > 0;
	posix_run_start(&o->run);
}

void sandbox_run_look(struct sandbox *sb, struct call *call, const char *run, uint64_t out_offset,
		      uint64_t err_offset, size_t max, int64_t wait_ms, struct run_news *ret)
{
	struct run_op *o;

	if (!is_run(sb, call, run))
		return;
	if (out_offset > INT64_MAX || err_offset > INT64_MAX || max > LOOK_MAX) {
		op_reject(sb, call, -EINVAL, "no output has so many bytes");
		return;
	}
	o = run_op_new(run, ret);
	if (o) {
		o->out_offset = out_offset;
		o->err_offset = err_offset;
		o->max = max;
		o->wait_ms = wait_ms;
	}
	op_submit((struct op *)o, sb, call, begin_look, release);
}

/* ---- feeding ---- */

static void send_feed(struct run_op *o);

static void on_fed(struct posix_run *run, int err)
{
	struct run_op *o = op_of(run);

	o->sent += MIN(o->bytes.len - o->sent, RUN_PIECE);
	if (succeeded(run, err) && o->sent < o->bytes.len)
		send_feed(o);
	else
		finish(run, err);
}

static void send_feed(struct run_op *o)
{
	struct buf *script = command(o, on_fed);
	struct run_piece piece = next_piece(o, RUN_PIECE);

	run_script_feed(script, o->id, &piece, o->end && o->sent + piece.len == o->bytes.len);
	o->run.idempotent = true;
	posix_run_start(&o->run);
}

static void begin_feed(struct op *op)
{
	send_feed((struct run_op *)op);
}

void sandbox_run_feed(struct sandbox *sb, struct call *call, const char *run, uint64_t offset,
		      const void *bytes, size_t len, bool end)
{
	struct run_op *o;

	if (!is_run(sb, call, run))
		return;
	if (offset > INT64_MAX || len > INT64_MAX - offset) {
		op_reject(sb, call, -EFBIG, "no input can be so large");
		return;
	}
	o = run_op_new(run, NULL);
	if (o) {
		o->offset = offset;
		o->end = end;
		if (buf_append(&o->bytes, bytes, len) < 0) {
			buf_release(&o->bytes);
			free(STEAL(o));
		}
	}
	op_submit((struct op *)o, sb, call, begin_feed, release);
}

/* ---- ending ---- */

static void begin_kill(struct op *op)
{
	struct run_op *o = (struct run_op *)op;

	run_script_kill(command(o, finish), o->id, o->signal);
	o->run.slow = true; /* it may wait for what it did */
	posix_run_start(&o->run);
}

void sandbox_run_kill(struct sandbox *sb, struct call *call, const char *run, int signal)
{
	struct run_op *o;

	if (!is_run(sb, call, run))
		return;
	if (signal != SIGTERM && signal != SIGKILL && signal != SIGINT && signal != SIGHUP) {
		op_reject(sb, call, -EINVAL, "unknown signal %d", signal);
		return;
	}
	o = run_op_new(run, NULL);
	if (o)
		o->signal = signal;
	op_submit((struct op *)o, sb, call, begin_kill, release);
}

static void begin_drop(struct op *op)
{
	struct run_op *o = (struct run_op *)op;

	run_script_drop(command(o, finish), o->id);
	o->run.idempotent = true;
	posix_run_start(&o->run);
}

void sandbox_run_drop(struct sandbox *sb, struct call *call, const char *run)
{
	if (is_run(sb, call, run))
		op_submit((struct op *)run_op_new(run, NULL), sb, call, begin_drop, release);
}

/*
 * Several small files in one go: one command reads them one after the other,
 * then looks at each. What it prints comes with its answer if it is little, else it
 * lies in a file in the sandbox's /tmp, which is downloaded and removed. Must not
 * know what the files are for. Loop thread, except the public function.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "posix_run.h"
#include "reply.h"
#include "sandbox_i.h"
#include "shellquote.h"
#include "sweep.h"
#include "uuid.h"

enum {
	INLINE_MAX = 96 * 1024, /* more is cheaper as a file: no armour, no JSON */
	SHELL_INLINE_MAX = 8 * 1024,
	LINE_BYTES = 160, /* of stat, about */
	EXIT_NO_DIR = 3,
};

struct gather_op {
	struct op op;
	struct posix_run run;
	struct exchange x;
	char *dir;
	char **names;
	size_t n, each_max;
	uint64_t about; /* bytes */
	char file[64];  /* "": the output comes with the answer */
	struct bundle *ret;
};

static void finish(struct gather_op *o, struct buf *out)
{
	struct bundle b = { 0 };
	char *block = STEAL(out->data);
	int r = block ? bundle_parse(&b, &block, out->len, o->names, o->n) : -EBADMSG;

	out->len = out->cap = 0;
	free(block);
	if (r == 0)
		*o->ret = b;
	op_finish(&o->op, r);
}

static void remove_file(struct gather_op *o)
{
	char script[96];

	if (!o->file[0])
		return;
	snprintf(script, sizeof(script), "command rm -f %s", o->file);
	o->file[0] = '\0';
	sweep(o->op.sb, script, NULL);
}

static void on_downloaded(struct exchange *x, int err)
{
	struct gather_op *o = CONTAINER_OF(x, struct gather_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };

	remove_file(o);
	if (err == 0 && x->status == 200) {
		finish(o, &x->answer);
		return;
	}
	/* What is missing is our file, not the caller's. */
	reply_decode(&a, x, err);
	op_finish_with(&o->op, err ?: -EIO, STEAL(a.message));
}

static void download(struct gather_op *o)
{
	struct exchange *x = &o->x;
	int r;

	exchange_init(x, &o->op, "GET", "/v1/file/download", on_downloaded);
	x->lane = LANE_STREAM;
	x->idempotent = true;
	/* A file may have grown meanwhile, but not beyond what head takes. */
	x->answer_max = o->n * (o->each_max + PATH_BYTES_MAX + LINE_BYTES);
	r = exchange_query(x, "path", o->file);
	if (r < 0) {
		remove_file(o);
		op_finish(&o->op, r);
	} else {
		exchange_start(x);
	}
}

static void on_ran(struct posix_run *run, int err)
{
	struct gather_op *o = CONTAINER_OF(run, struct gather_op, run);

	if (err || run->exit_code != 0) {
		remove_file(o);
		posix_run_finish_op(run, err);
	} else if (o->file[0]) {
		download(o);
	} else {
		finish(o, &run->out);
	}
}

static void start(struct op *op)
{
	struct gather_op *o = (struct gather_op *)op;
	struct posix_run *run = &o->run;
	bool in_shell = op->sb->features.bash == NO;
	uint64_t about = o->about + o->n * LINE_BYTES;
	char id[UUID_LEN + 1];

	if (about > (in_shell ? SHELL_INLINE_MAX : INLINE_MAX)) {
		uuid_make(id);
		snprintf(o->file, sizeof(o->file), "/tmp/.threadfs-%s", id);
	}
	posix_run_init(run, op, on_ran);
	run->output = o->file[0] ? POSIX_ASCII : POSIX_BYTES;
	run->large = !o->file[0]; /* if sizes have changed it may be more than the shell takes */
	run->slow = true;
	run->idempotent = !o->file[0]; /* two must not write to one file */
	shell_printf(&run->script, "command cd -P -- %s || exit %d; set --", o->dir,
		     (int64_t)EXIT_NO_DIR);
	for (size_t i = 0; i < o->n; i++)
		shell_printf(&run->script, " %s", o->names[i]);
	buf_puts(&run->script, ";");
	if (o->file[0])
		buf_printf(&run->script, " umask 077; set -C; exec >%s || exit;", o->file);
	buf_printf(&run->script,
		   " command head -v -c %zu -- \"$@\"; echo; exec stat -c '%s' -- \"$@\"",
		   o->each_max, ATTR_STAT_FORMAT);
	posix_run_start(run);
}

static void interrupted(struct op *op, int err UNUSED)
{
	remove_file((struct gather_op *)op);
}

static void release(struct op *op)
{
	struct gather_op *o = (struct gather_op *)op;

	posix_run_release(&o->run);
	exchange_release(&o->x);
	for (size_t i = 0; o->names && i < o->n; i++)
		free(o->names[i]);
	free(o->names);
	free(o->dir);
	free(o);
}

static struct gather_op *new_op(const char *dir, const char *const *names, size_t n)
{
	struct gather_op *o = calloc(1, sizeof(*o));
	bool ok;

	if (!o)
		return NULL;
	o->n = n;
	o->dir = strdup(dir);
	o->names = calloc(n + 1, sizeof(*o->names));
	ok = o->dir && o->names;
	for (size_t i = 0; ok && i < n; i++) {
		o->names[i] = strdup(names[i]);
		ok = o->names[i] != NULL;
	}
	if (ok)
		return o;
	release(&o->op);
	return NULL;
}

void sandbox_gather(struct sandbox *sb, struct call *call, const char *dir,
		    const char *const *names, size_t n, size_t each_max, uint64_t about,
		    struct bundle *ret)
{
	struct gather_op *o;

	if (!sandbox_allows(sb, call, dir))
		return;
	for (size_t i = 0; i < n; i++) {
		/* head takes "-" for its input. */
		if (!name_is_chain(names[i], strlen(names[i])) || names[i][0] == '-') {
			op_reject(sb, call, -EINVAL, "not a name that can be gathered");
			return;
		}
	}
	o = new_op(dir, names, n);
	if (o) {
		o->each_max = each_max;
		o->about = about;
		o->ret = ret;
		o->op.interrupted = interrupted;
	}
	op_submit(o ? &o->op : NULL, sb, call, start, release);
}

/*
 * Listing a directory, or a tree: one find in the sandbox, byte-exact and with
 * all attributes; where there is none that can do it, the server's own listing,
 * which knows less. sandbox_list() from any thread, the rest on the loop's.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "jsonw.h"
#include "posix_run.h"
#include "reply.h"
#include "sandbox_i.h"
#include "shellquote.h"
#include "status.h"

enum {
	EXIT_NO_DIR = 3,       /* of our script; find itself ends with 0 or 1 */
	EXIT_CUT = 128 + 13,   /* by head, which had enough: SIGPIPE */
	TREES_MAX = 64 * 1024, /* of the names, as they are quoted */
};

struct list_op {
	struct op op;
	struct posix_run run;
	struct exchange x; /* for the server's own listing */
	char *dir;
	unsigned depth;
	/* of several trees: their names, quoted, and how many entries they may have in all */
	struct buf trees;
	unsigned max;
	bool near; /* depth levels, not into large directories; max may be 0 */
	struct entries *ret;
};

/* e is the caller's from now on. */
static void finish(struct list_op *o, struct entries *e)
{
	*o->ret = *e;
	o->ret->depth = o->near ? o->depth : 0;
	*e = (struct entries){ 0 };
	op_finish(&o->op, 0);
}

/* More than we keep is as if the server had left it out. */
static int forgive_excess(struct entries *e, int r)
{
	if (r != -E2BIG)
		return r;
	e->truncated = true;
	return 0;
}

/* ---- the server's listing ---- */

static void on_listed(struct exchange *x, int err)
{
	struct list_op *o = CONTAINER_OF(x, struct list_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	struct entries e CLEANUP_ENTRIES = { 0 };

	err = reply_decode(&a, x, err);
	if (err == 0)
		err = forgive_excess(&e, entries_parse_json(&e, a.data, o->dir, o->depth != 1));
	if (err)
		op_finish_with(&o->op, err, STEAL(a.message));
	else
		finish(o, &e);
}

static void ask_server(struct list_op *o)
{
	struct jw w;

	exchange_init(&o->x, &o->op, "POST", "/v1/file/list", on_listed);
	o->x.idempotent = true;
	jw_init(&w, &o->x.body);
	jw_obj(&w);
	jw_kstr(&w, "path", o->dir);
	jw_kbool(&w, "recursive", o->depth != 1);
	if (o->depth > 1)
		jw_kint(&w, "max_depth", o->depth - 1); /* levels below the directory's own */
	jw_kbool(&w, "include_size", true);
	jw_kbool(&w, "include_permissions", true);
	jw_kbool(&w, "show_hidden", true);
	jw_obj_end(&w);
	if (w.invalid_utf8) /* JSON cannot name it */
		op_finish(&o->op, -EOPNOTSUPP);
	else
		exchange_start(&o->x);
}

/* What is near is more than it can tell apart. */
static void ask_server_alone(struct list_op *o)
{
	if (o->near)
		o->depth = 1;
	ask_server(o);
}

/* ---- find ---- */

static bool begins(const char *line, const char *with)
{
	return strncmp(line, with, strlen(with)) == 0;
}

/* None at all, or one that knows no -printf. Complaints about files are not meant. */
static bool is_missing(const struct posix_run *run)
{
	int err = run->exit_code ? posix_run_errno(run) : 0;

	return err == -EOPNOTSUPP && run->out.len == 0 && !begins(run->err.data ?: "", "find: '");
}

static void take_found(struct list_op *o)
{
	struct posix_run *run = &o->run;
	struct entries e CLEANUP_ENTRIES = { 0 };
	size_t len = run->out.len;
	int r;

	if (o->max) /* however much was sent */
		len = entries_find_len(run->out.data, len, o->max);
	r = forgive_excess(&e, entries_parse_find(&e, run->out.data, len, o->depth != 1));
	/* What find says when its reader has enough is of no interest. */
	if (o->max && e.n + e.dropped >= o->max)
		e.truncated = true;
	else if (r == 0 && run->exit_code)
		r = status_from_find(run->err.data ?: "", run->err.len, run->exit_code,
				     &e.incomplete);
	if (r)
		op_finish_with(&o->op, r, answer_printable(run->err.data ?: "", run->err.len));
	else
		finish(o, &e);
}

static void on_found(struct posix_run *run, int err)
{
	struct list_op *o = CONTAINER_OF(run, struct list_op, run);

	if (err == 0 && is_missing(run)) {
		if (o->max) {
			op_finish(&o->op, -EOPNOTSUPP);
			return;
		}
		o->op.sb->features.find = NO;
		ask_server_alone(o);
	} else if (err || (run->exit_code != 0 && run->exit_code != 1 &&
			   !(o->max && run->exit_code == EXIT_CUT))) {
		posix_run_finish_op(run, err);
	} else {
		take_found(o);
	}
}

/*
 * From inside the directory: it may be a link, its own path may be as long as paths can
 * be, and what is not a directory says so. plain: see posix_run.h.
 */
static void put_script(const struct list_op *o, struct buf *to, bool plain)
{
	const char *format = plain              ? ENTRIES_LINES_FORMAT
			     : o->trees.len > 0 ? ENTRIES_TREES_FORMAT
						: ENTRIES_FIND_FORMAT;

	shell_printf(to, "command cd -P -- %s || exit %d; ", o->dir, (int64_t)EXIT_NO_DIR);
	buf_puts(to, o->max ? "set -o pipefail; find" : "exec find");
	if (o->trees.len > 0)
		buf_append(to, o->trees.data, o->trees.len);
	else
		buf_puts(to, " . -mindepth 1");
	if (o->depth > 0)
		shell_printf(to, " -maxdepth %d", (int64_t)o->depth);
	if (plain)
		buf_puts(to,
			 " \\( -name '*[! -~]*' -o -lname '*[! -~]*' \\) -printf '\\001' -quit -o");
	shell_printf(to, " -printf %s", format);
	if (o->near && o->depth != 1)
		shell_printf(to, " -type d \\( -size +%dc -o -links +%d \\) -prune",
			     (int64_t)NEAR_BYTES_MAX, (int64_t)NEAR_LINKS_MAX);
	if (o->max) /* two of these to an entry */
		shell_printf(to, plain ? " | head -n %d" : " | head -z -n %d", 2 * (int64_t)o->max);
}

static void start(struct op *op)
{
	struct list_op *o = (struct list_op *)op;
	struct posix_run *run = &o->run;

	if (op->sb->features.find == NO) {
		if (o->max)
			op_finish(op, -EOPNOTSUPP);
		else
			ask_server_alone(o);
		return;
	}
	posix_run_init(run, op, on_found);
	run->output = POSIX_BYTES;
	run->idempotent = true;
	run->large = true;
	run->slow = o->depth != 1 && !(o->near && !o->max);
	put_script(o, &run->script, false);
	if (o->trees.len == 0)
		put_script(o, &run->plain, true);
	posix_run_start(run);
}

static void release(struct op *op)
{
	struct list_op *o = (struct list_op *)op;

	posix_run_release(&o->run);
	exchange_release(&o->x);
	buf_release(&o->trees);
	free(o->dir);
	free(o);
}

static struct list_op *op_new(const char *dir, unsigned depth, unsigned max, struct entries *ret)
{
	struct list_op *o = calloc(1, sizeof(*o));

	if (o && !(o->dir = strdup(dir)))
		free(STEAL(o));
	if (o) {
		o->depth = depth > INT_MAX ? 0 : depth; /* find counts no further */
		o->max = max;
		o->ret = ret;
	}
	return o;
}

void sandbox_list(struct sandbox *sb, struct call *call, const char *dir, unsigned depth,
		  struct entries *ret)
{
	if (sandbox_allows(sb, call, dir))
		op_submit((struct op *)op_new(dir, depth, 0, ret), sb, call, start, release);
}

void sandbox_list_near(struct sandbox *sb, struct call *call, const char *dir, unsigned depth,
		       unsigned max, struct entries *ret)
{
	struct list_op *o;

	if (!sandbox_allows(sb, call, dir))
		return;
	o = op_new(dir, depth, max, ret);
	if (o)
		o->near = true;
	op_submit((struct op *)o, sb, call, start, release);
}

void sandbox_list_trees(struct sandbox *sb, struct call *call, const char *dir,
			const char *const *names, size_t count, unsigned max, struct entries *ret)
{
	struct buf trees CLEANUP_BUF = BUF_INIT(TREES_MAX);
	struct list_op *o;

	if (!sandbox_allows(sb, call, dir))
		return;
	for (size_t i = 0; i < count; i++) {
		char *path CLEANUP_FREE = NULL;

		if (!name_is_component(names[i], strlen(names[i]))) {
			op_reject(sb, call, -EINVAL, "not a name");
			return;
		}
		if (asprintf(&path, "./%s", names[i]) < 0) {
			op_reject(sb, call, -ENOMEM, NULL);
			return;
		}
		shell_printf(&trees, " %s", path);
	}
	if (trees.error || count == 0 || max == 0) {
		op_reject(sb, call, trees.error ?: -EINVAL, NULL);
		return;
	}
	o = op_new(dir, 0, max, ret);
	if (o) {
		o->trees = trees;
		trees = BUF_INIT(0);
	}
	op_submit((struct op *)o, sb, call, start, release);
}

/*
 * Uploads: a file's new content, put in its place as a whole. Must not know
 * where the bytes come from. Loop thread, except the public function.
 *
 * The server's route writes straight onto its target (only aiod's stages) and
 * makes the directories above it. A filesystem may do neither, so
 *
 *  - the directory is looked at first, unless the caller knows of it. That is no command but
 *    a question to the find route, which is quick on every server: the path "." below it;
 *  - the bytes go to a temporary name beside the file, and one command gives it
 *    its mode and its name.
 *
 * They go straight to the name, and that is all, if the file gets its mode by itself and
 * either the server stages, or nobody has that name and the file is small: servers
 * take all of a body before they write, so that a connection that breaks leaves nothing, and
 * what readers could see half of is written in a moment.
 *
 * Whoever cleans up late removes nothing but a temporary name: he cannot know whose
 * file bears the final one by then. A new one that the server says it could not write is removed
 * at once if at all, and only if it can be ours; one of which nobody heard stays.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "alias.h"
#include "clock.h"
#include "jsonw.h"
#include "reply.h"
#include "sandbox_i.h"
#include "shellquote.h"
#include "sweep.h"

enum way {
	STAGED,   /* to a temporary name, then renamed */
	ATOMIC,   /* to the name itself: the server stages */
	STRAIGHT, /* to the name itself, which nobody has */
};

enum { STRAIGHT_MAX = 1024 * 1024 };

struct upload_op {
	struct op op;
	struct alias alias; /* of dir */
	struct exchange x;
	struct posix_run run;

	char *path, *dir;
	struct upload how;

	enum way way;
	char *place;     /* where the bytes go */
	char *target;    /* the same as the request names it */
	bool made;       /* what has to go if this fails may be at place */
	bool unsized;    /* the server did not say how much it has */
	int64_t sent_ms; /* when that was begun */
	int error;       /* how it ends, once that is gone */
	char *message;
};

/* ---- the end ---- */

static void undo_script(const struct upload_op *o, struct buf *to)
{
	shell_printf(to, "command rm -f -- %s", o->place);
}

/*
 * The same for the final name. Only what our request can have made: a file that is no longer
 * than ours and no older than the request. Only after an answer: if none came this could be late,
 * and take away what was put there since.
 */
static void undo_straight_script(const struct upload_op *o, struct buf *to)
{
	int64_t age_s = (clock_ms() - o->sent_ms) / 1000 + 2;

	shell_printf(to,
		     "set -- %s; if [ -f \"$1\" ] && [ ! -L \"$1\" ] && "
		     "[ $(command stat -c %%s -- \"$1\") -le %d ] && "
		     "[ $(( $(command date +%%s) - $(command stat -c %%Z -- \"$1\") )) -le %d ]; "
		     "then command rm -f -- \"$1\"; fi",
		     o->place, (int64_t)o->x.form_sent, age_s);
}

static void on_undone(struct posix_run *run, int err)
{
	struct upload_op *o = CONTAINER_OF(run, struct upload_op, run);

	o->made = err != 0;
	op_finish_with(&o->op, o->error, STEAL(o->message));
}

/* The next command, to be filled and started. */
static struct buf *new_run(struct upload_op *o, void (*then)(struct posix_run *, int))
{
	posix_run_release(&o->run);
	posix_run_init(&o->run, &o->op, then);
	op_progress(&o->op);
	return &o->run.script;
}

/* Whether it is certain that the server did not even begin to write. */
static bool was_refused(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
	case EROFS:
	case EISDIR:
	case ENOTDIR:
	case ENOENT:
	case EEXIST:
	case ELOOP:
	case ENAMETOOLONG:
	case ETXTBSY:
	case EOPNOTSUPP:
	case ECONNREFUSED:
	case EHOSTUNREACH:
		return true;
	default:
		return false;
	}
}

/* Takes the message. */
static void fail(struct upload_op *o, int err, char *message)
{
	if (!o->made || (o->way != STAGED && (was_refused(err) || o->x.status == 0))) {
		op_finish_with(&o->op, err, message);
		return;
	}
	o->error = err;
	o->message = message;
	if (o->way != STAGED)
		undo_straight_script(o, new_run(o, on_undone));
	else
		undo_script(o, new_run(o, on_undone));
	o->run.idempotent = true;
	posix_run_start(&o->run);
}

/* ---- into its place ---- */

/* The first line is the mode that the server gave it. */
static void learn_mode(struct upload_op *o)
{
	const struct buf *out = &o->run.out;
	mode_t mode;

	if (!o->op.sb->features.mode && mode_parse(out->data, out->len, &mode) == 0)
		o->op.sb->features.mode = S_IFREG | mode;
}

static void on_placed(struct posix_run *run, int err)
{
	struct upload_op *o = CONTAINER_OF(run, struct upload_op, run);

	if (!err)
		learn_mode(o);
	/* If it ran it has tidied up. */
	o->made = err != 0;
	if (err)
		fail(o, err, STEAL(run->message));
	else
		posix_run_finish_op(run, 0);
}

/* As mv would say -EEXIST and -EIO. */
#define SAY_TAKEN "echo 'mv: cannot move: File exists' >&2; false"
#define SAY_WRONG "echo 'mv: cannot move: Input/output error' >&2; false"

/* Of what was sent, where it is now. */
static void size_script(const struct upload_op *o, struct buf *s)
{
	shell_printf(s, "if [ \"$(command stat -Lc %%s -- %s)\" != %d ]; then " SAY_WRONG "; fi",
		     o->place, (int64_t)o->x.form_sent);
}

/* mv -n leaves the file where it is, and old ones say nothing. */
static void rename_script(const struct upload_op *o, struct buf *s)
{
	if (o->how.flags & UPLOAD_NEW)
		shell_printf(s,
			     " && command mv -nT -- %s %s && if [ -e %s ]; then " SAY_TAKEN "; fi",
			     o->place, o->path, o->place);
	else
		shell_printf(s, " && command mv -fT -- %s %s", o->place, o->path);
}

static void expect_script(const struct upload_op *o, struct buf *s)
{
	const struct attr *a = o->how.over;
	long long sec = a->mtime.tv_sec;
	long ns = a->mtime.tv_nsec;
	bool fraction_before_1970 = sec < 0 && ns > 0;
	char version[96];

	/* stat prints a number, so that a fraction counts away from zero, like its seconds. */
	if (fraction_before_1970) {
		sec = -(sec + 1);
		ns = 1000000000 - ns;
	}
	snprintf(version, sizeof(version), "%llu %llu %s%lld.%09ld", (unsigned long long)a->ino,
		 (unsigned long long)a->size, fraction_before_1970 ? "-" : "", sec, ns);
	shell_printf(
		s,
		" && if [ \"$(command stat -c '%%i %%s %%.9Y' -- %s)\" != %s ]; then " SAY_TAKEN
		"; fi",
		o->path, version);
}

/* The owner comes before the mode, which it may change. */
static void place(struct upload_op *o)
{
	struct buf *s = new_run(o, on_placed);

	buf_puts(s, "{ ");
	if (!o->op.sb->features.mode)
		shell_printf(s, "command stat -c %%a -- %s; ", o->place);
	if (o->unsized) {
		size_script(o, s);
		buf_puts(s, " && ");
	}
	if (o->how.mode >= 0)
		shell_printf(s, "command chmod %o -- %s", (unsigned)o->how.mode, o->place);
	else if (o->how.flags & UPLOAD_NEW)
		buf_puts(s, "true");
	else
		shell_printf(s,
			     "if [ -e %s ]; then command chown --reference=%s -- %s 2>/dev/null; "
			     "command chmod --reference=%s -- %s; fi",
			     o->path, o->path, o->place, o->path, o->place);
	if (o->how.over)
		expect_script(o, s);
	rename_script(o, s);
	buf_puts(s, "; } || { r=$?; ");
	undo_script(o, s);
	buf_puts(s, "; exit $r; }");
	posix_run_start(&o->run);
}

/* ---- the bytes ---- */

static void on_sized(struct posix_run *run, int err)
{
	struct upload_op *o = CONTAINER_OF(run, struct upload_op, run);

	if (!err && run->exit_code != 0) {
		fail(o, posix_run_errno(run), strdup("the server stored another number of bytes"));
		return;
	}
	o->made = false; /* it stays, also if nobody could look */
	posix_run_finish_op(run, err);
}

/* It has its name already. */
static void look_at_size(struct upload_op *o)
{
	size_script(o, new_run(o, on_sized));
	o->run.idempotent = true;
	posix_run_start(&o->run);
}

static void on_sent(struct exchange *x, int err)
{
	struct upload_op *o = CONTAINER_OF(x, struct upload_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	int64_t stored;

	err = reply_decode(&a, x, err);
	if (err) {
		fail(o, err, STEAL(a.message));
		return;
	}
	stored = answer_int(a.data, "file_size", -1);
	o->unsized = stored < 0;
	if (stored >= 0 && (uint64_t)stored != x->form_sent) {
		fail(o, -EIO, strdup("the server stored another number of bytes"));
	} else if (o->way == STAGED) {
		place(o);
	} else if (o->unsized) {
		look_at_size(o);
	} else {
		o->made = false; /* it stays */
		op_finish(&o->op, 0);
	}
}

/* A staging file lies in the page cache: reading it on the loop costs no more than memory. */
static ssize_t read_fd(const struct upload_op *o, char *to, size_t len)
{
	ssize_t n = pread(o->how.fd, to, len, (off_t)o->x.form_sent);

	return n < 0 ? -errno : n;
}

/* Before bytes of the file are taken. */
static void before_read(struct upload_op *o)
{
	o->made = o->way == STAGED || (o->how.flags & UPLOAD_NAME_FREE);
	if (o->how.rewind && o->x.form_sent == 0)
		o->how.rewind(o->how.ctx);
}

static ssize_t on_read(struct exchange *x, char *to, size_t len)
{
	struct upload_op *o = CONTAINER_OF(x, struct upload_op, x);

	before_read(o);
	return o->how.read ? o->how.read(o->how.ctx, to, len) : read_fd(o, to, len);
}

static size_t on_lend(struct exchange *x, size_t max)
{
	struct upload_op *o = CONTAINER_OF(x, struct upload_op, x);

	before_read(o);
	return o->how.lend(o->how.ctx, max);
}

static int on_lent_file(struct exchange *x, uint64_t at, off_t *ret_offset)
{
	const struct upload_op *o = CONTAINER_OF(x, struct upload_op, x);

	return o->how.lent_file(o->how.ctx, at, ret_offset);
}

static void send_file(struct upload_op *o)
{
	struct exchange *x = &o->x;

	exchange_release(x);
	exchange_init(x, &o->op, "POST", "/v1/file/upload", on_sent);
	x->lane = LANE_STREAM;
	x->form_path = o->target;
	x->form_size = o->how.size;
	x->read = on_read;
	if (o->how.lend) {
		x->lend = on_lend;
		x->lent_file = on_lent_file;
	}
	x->direct = true;
	o->sent_ms = clock_ms();
	op_progress(&o->op); /* its own time begins */
	/* Nobody else writes to a temporary name, nor to one that nobody knows of. */
	x->idempotent = (o->way == STAGED || (o->how.flags & UPLOAD_NAME_FREE)) &&
			(!o->how.read || o->how.rewind);
	exchange_start(x);
}

/* ---- the directory ---- */

static int set_place(struct upload_op *o, enum way way)
{
	char id[UUID_LEN + 1];

	o->way = way;
	free(STEAL(o->place));
	free(STEAL(o->target));
	if (way != STAGED) {
		o->place = strdup(o->path);
		o->target = strdup(o->path);
		return o->place && o->target ? 0 : -ENOMEM;
	}
	uuid_make(id);
	if (asprintf(&o->place, "%s/" UPLOAD_TEMPORARY "%s", o->dir, id) < 0)
		o->place = NULL;
	if (asprintf(&o->target, "%s/" UPLOAD_TEMPORARY "%s",
		     o->alias.path[0] ? o->alias.path : o->dir, id) < 0)
		o->target = NULL;
	return o->place && o->target ? 0 : -ENOMEM;
}

static void begin(struct upload_op *o, enum way way)
{
	int r = set_place(o, way);

	if (r < 0)
		op_finish(&o->op, r);
	else
		send_file(o);
}

static void on_dir_entered(struct posix_run *run, int err)
{
	struct upload_op *o = CONTAINER_OF(run, struct upload_op, run);

	if (err || run->exit_code != 0)
		posix_run_finish_op(run, err);
	else
		begin(o, o->way);
}

/* Asks the sandbox itself: slower, but there is no doubt. */
static void enter_dir(struct upload_op *o)
{
	shell_printf(new_run(o, on_dir_entered), "command cd -- %s", o->dir);
	o->run.idempotent = true;
	posix_run_start(&o->run);
}

static bool says_there_is_none(int err)
{
	return err == -ENOENT || err == -ENOTDIR || err == -ELOOP || err == -ENAMETOOLONG;
}

static void on_found(struct exchange *x, int err)
{
	struct upload_op *o = CONTAINER_OF(x, struct upload_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	const cJSON *files;

	err = reply_decode(&a, x, err);
	if (says_there_is_none(err)) {
		op_finish_with(&o->op, err, STEAL(a.message));
		return;
	}
	files = err ? NULL : cJSON_GetObjectItemCaseSensitive(a.data, "files");
	if (cJSON_GetArraySize(files) > 0)
		begin(o, o->way);
	else
		enter_dir(o);
}

static void find_dir(struct upload_op *o)
{
	struct exchange *x = &o->x;
	struct jw w;

	exchange_init(x, &o->op, "POST", "/v1/file/find", on_found);
	x->idempotent = true;
	x->direct = true;
	jw_init(&w, &x->body);
	jw_obj(&w);
	jw_kstr(&w, "path", o->dir);
	jw_kstr(&w, "glob", ".");
	jw_obj_end(&w);
	exchange_start(x);
}

static void on_alias(struct alias *a, int err)
{
	struct upload_op *o = CONTAINER_OF(a, struct upload_op, alias);

	if (err)
		op_finish_with(&o->op, err, STEAL(a->message));
	else
		begin(o, STAGED);
}

static enum way choose_way(const struct upload_op *o)
{
	const struct features *f = &o->op.sb->features;
	const struct upload *how = &o->how;

	if (alias_needed(o->path) || how->over)
		return STAGED;
	if (!(how->flags & UPLOAD_NAME_FREE))
		return f->aiod == YES && how->mode < 0 && !(how->flags & UPLOAD_NEW) ? ATOMIC
										     : STAGED;
	if (how->mode >= 0 && f->mode != (S_IFREG | (mode_t)how->mode))
		return STAGED;
	if (f->aiod == YES)
		return ATOMIC;
	return how->size >= 0 && how->size <= STRAIGHT_MAX ? STRAIGHT : STAGED;
}

static void start_upload(struct op *op)
{
	struct upload_op *o = (struct upload_op *)op;

	o->way = choose_way(o);
	if (alias_needed(o->dir))
		alias_start(&o->alias, op, o->dir, ALIAS_DIR, on_alias);
	else if (o->how.flags & UPLOAD_DIR_THERE)
		begin(o, o->way);
	else if (strpbrk(o->dir, "*?[")) /* servers take the directory for a part of the pattern */
		enter_dir(o);
	else
		find_dir(o);
}

static void go_on(struct op *op)
{
	exchange_go_on(&((struct upload_op *)op)->x);
}

static void release_upload(struct op *op)
{
	struct upload_op *o = (struct upload_op *)op;
	struct buf script CLEANUP_BUF = BUF_INIT(0);

	exchange_release(&o->x);
	posix_run_release(&o->run);
	if (o->made && o->way == STAGED) {
		undo_script(o, &script);
		if (!script.error)
			sweep(op->sb, script.data, NULL);
	}
	alias_release(&o->alias);
	free(o->message);
	free(o->place);
	free(o->target);
	free(o->dir);
	free(o->path);
	free(o);
}

static struct upload_op *new_upload(const char *path, const struct upload *how)
{
	struct upload_op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->path = strdup(path);
	o->dir = o->path ? strndup(path, MAX((size_t)(strrchr(path, '/') - path), 1)) : NULL;
	if (!o->dir) {
		free(o->path);
		free(o);
		return NULL;
	}
	o->how = *how;
	o->op.on_silence = true;
	o->op.slowest = SLOWEST_TRANSFER;
	o->op.go_on = go_on;
	return o;
}

void sandbox_upload(struct sandbox *sb, struct call *call, const char *path,
		    const struct upload *how)
{
	const char *name;

	if (!sandbox_allows(sb, call, path))
		return;
	name = strrchr(path, '/') + 1;
	if (strcmp(path, sb->root) == 0 || !name[0] || strcmp(name, ".") == 0)
		op_reject(sb, call, -EISDIR, "the path names a directory");
	else if (how->size < -1 || how->size > INT64_MAX / 2 || how->mode < -1 || how->mode > 07777)
		op_reject(sb, call, -EINVAL, "size or mode out of range");
	else
		op_submit((struct op *)new_upload(path, how), sb, call, start_upload,
			  release_upload);
}

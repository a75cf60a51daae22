/*
 * What the API has no route for, with the tools of the sandbox: one small
 * command per operation, the errno from what it says. How a command gets there
 * is posix_run.c's business. Public functions from any thread, the rest on the
 * loop's.
 *
 * The tools are those of coreutils that come closest to one system call. Where
 * a tool is more helpful than the call (it would copy across file systems,
 * create what is not there, or find that two names are one file) the script
 * says no first.
 */
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

#include "posix_run.h"
#include "sandbox_i.h"
#include "shellquote.h"
#include "status.h"

enum {
	SCRIPT_MAX = 120 * 1024, /* what execve(2) takes as one argument, wrapping included */
	NS_PER_S = 1000000000,
};

struct posix_op {
	struct op op;
	struct posix_run run;
	void *ret; /* of its public function */
};

/* What the operations differ in, besides the script. */
struct kind {
	void (*done)(struct posix_run *run, int err);
	enum posix_output output;
	bool idempotent, slow;
};

static struct posix_op *op_of(struct posix_run *run)
{
	return CONTAINER_OF(run, struct posix_op, run);
}

static void start(struct op *op)
{
	posix_run_start(&((struct posix_op *)op)->run);
}

static void release(struct op *op)
{
	struct posix_op *o = (struct posix_op *)op;

	posix_run_release(&o->run);
	free(o);
}

/* Takes the script over. */
static void submit(struct sandbox *sb, struct call *call, struct buf *script,
		   const struct kind *kind, void *ret)
{
	struct posix_op *o;

	if (script->error) {
		op_reject(sb, call, script->error == -EFBIG ? -ENAMETOOLONG : script->error, NULL);
		return;
	}
	o = calloc(1, sizeof(*o));
	if (o) {
		posix_run_init(&o->run, &o->op, kind->done);
		o->run.script = *script;
		*script = BUF_INIT(0);
		o->run.output = kind->output;
		o->run.idempotent = kind->idempotent;
		o->run.slow = kind->slow;
		o->ret = ret;
	}
	op_submit((struct op *)o, sb, call, start, release);
}

/* Running twice could undo what somebody did in between: none of these is idempotent. */
static const struct kind a_change = { .done = posix_run_finish_op };

static bool succeeded(const struct posix_run *run, int err)
{
	return err == 0 && run->exit_code == 0;
}

/* ---- looking ---- */

static void on_lstat(struct posix_run *run, int err)
{
	if (succeeded(run, err))
		err = attr_parse_stat(run->out.data ?: "", run->out.len, op_of(run)->ret);
	posix_run_finish_op(run, err);
}

void sandbox_lstat(struct sandbox *sb, struct call *call, const char *path, struct attr *ret)
{
	static const struct kind kind = { .done = on_lstat, .idempotent = true };
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	shell_printf(&script, "exec stat -c %s -- %s", ATTR_STAT_FORMAT, path);
	submit(sb, call, &script, &kind, ret);
}

static void on_readlink(struct posix_run *run, int err)
{
	const struct buf *out = &run->out;
	char *target = NULL;

	if (succeeded(run, err)) {
		/* What no symlink(2) takes no readlink(2) can give. */
		if (out->len == 0 || out->len > PATH_BYTES_MAX || memchr(out->data, 0, out->len))
			err = -EBADMSG;
		else if (!(target = strdup(out->data)))
			err = -ENOMEM;
	}
	if (target)
		*(char **)op_of(run)->ret = target;
	posix_run_finish_op(run, err);
}

void sandbox_readlink(struct sandbox *sb, struct call *call, const char *path, char **ret_target)
{
	static const struct kind kind = {
		.done = on_readlink,
		.output = POSIX_BYTES,
		.idempotent = true,
	};
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	/* Without -v it fails in silence. */
	shell_printf(&script, "exec readlink -n -v -- %s", path);
	submit(sb, call, &script, &kind, ret_target);
}

static void on_statfs(struct posix_run *run, int err)
{
	if (succeeded(run, err))
		err = fs_stat_parse(run->out.data ?: "", run->out.len, op_of(run)->ret);
	posix_run_finish_op(run, err);
}

void sandbox_statfs(struct sandbox *sb, struct call *call, const char *path, struct fs_stat *ret)
{
	static const struct kind kind = { .done = on_statfs, .idempotent = true };
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	shell_printf(&script, "exec stat -f -c %s -- %s", FS_STAT_FORMAT, path);
	submit(sb, call, &script, &kind, ret);
}

/* ---- names ---- */

/* A command that is the last one needs no process of its own. */
static const char *first(const struct attr *ret)
{
	return ret ? "command " : "exec ";
}

/* With a look at path afterwards, if ret is given. */
static void submit_change(struct sandbox *sb, struct call *call, struct buf *script,
			  const char *path, struct attr *ret)
{
	static const struct kind looked = { .done = on_lstat };

	if (ret)
		shell_printf(script, " && exec stat -c %s -- %s", ATTR_STAT_FORMAT, path);
	submit(sb, call, script, ret ? &looked : &a_change, ret);
}

void sandbox_mkdir(struct sandbox *sb, struct call *call, const char *path, mode_t mode,
		   struct attr *ret)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	/* With -m the sandbox's umask does not count: the caller's has been applied. */
	buf_puts(&script, first(ret));
	shell_printf(&script, "mkdir -m %o -- %s", (unsigned)mode & 07777, path);
	submit_change(sb, call, &script, path, ret);
}

void sandbox_rmdir(struct sandbox *sb, struct call *call, const char *path)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	shell_printf(&script, "exec rmdir -- %s", path);
	submit(sb, call, &script, &a_change, NULL);
}

void sandbox_unlink(struct sandbox *sb, struct call *call, const char *path)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	shell_printf(&script, "exec unlink -- %s", path);
	submit(sb, call, &script, &a_change, NULL);
}

void sandbox_link(struct sandbox *sb, struct call *call, const char *from, const char *to,
		  struct attr *ret)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, from) || !sandbox_allows(sb, call, to))
		return;
	buf_puts(&script, first(ret));
	shell_printf(&script, "link -- %s %s", from, to);
	submit_change(sb, call, &script, to, ret);
}

void sandbox_symlink(struct sandbox *sb, struct call *call, const char *target, const char *path,
		     struct attr *ret)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	if (strlen(target) > PATH_BYTES_MAX) {
		op_reject(sb, call, -ENAMETOOLONG, "the link's target is too long");
		return;
	}
	buf_puts(&script, first(ret));
	shell_printf(&script, "ln -s -T -- %s %s", target, path);
	submit_change(sb, call, &script, path, ret);
}

/* ---- rename ---- */

static bool ends_with(const struct buf *b, const char *end)
{
	size_t len = b->len, n = strlen(end);

	while (len > 0 && b->data[len - 1] == '\n')
		len--;
	return len >= n && memcmp(b->data + len - n, end, n) == 0;
}

/* mv refuses what is nothing to do for rename(2): two names of one file. */
static bool is_same_file(const struct posix_run *run)
{
	return ends_with(&run->err, " are the same file");
}

static void on_moved(struct posix_run *run, int err)
{
	bool *same = op_of(run)->ret;

	if (!err && run->exit_code != 0 && is_same_file(run)) {
		run->exit_code = 0;
		if (same)
			*same = true;
	}
	posix_run_finish_op(run, err);
}

/* mv -n skips a target that exists; before coreutils 9.2 with success and only less to say. */
static void on_moved_to_new(struct posix_run *run, int err)
{
	if (succeeded(run, err) && run->out.len == 0)
		err = -EEXIST;
	posix_run_finish_op(run, err);
}

static bool same_parent(const char *a, const char *b)
{
	size_t len = (size_t)(strrchr(a, '/') - a);

	return len == (size_t)(strrchr(b, '/') - b) && memcmp(a, b, len) == 0;
}

/*
 * Between mounts rename(2) is EXDEV, even between two of the same file system,
 * where mv would copy: not atomic, and not what was asked for. The kernel tells
 * the mount of an open file; no process is needed to read it. Where it does not
 * (no /proc, a parent that may not be read) the devices have to do. A parent
 * that is not there is left to mv to complain about.
 *
 * Inside a mount EXDEV is left: overlayfs says so of directories of its lower
 * layer. There mv copies, which is all that anybody could do.
 */
static const char mount_check[] =
	"m() { r=; { while read -r k v; do [ \"$k\" != mnt_id: ] || r=$v; done"
	" </proc/self/fdinfo/9; } 2>/dev/null 9<\"$1/\"; };"
	" m \"${a%/*}\"; p=$r; m \"${b%/*}\";"
	" [ -n \"$p\" ] && [ -n \"$r\" ] ||"
	" { p=$(command stat -L -c %d -- \"${a%/*}/\" 2>&1) && r=$(command stat -L -c %d -- "
	"\"${b%/*}/\" 2>&1)"
	" || r=$p; };"
	" [ \"$p\" = \"$r\" ] || { echo 'mv: Invalid cross-device link' >&2; exit 1; };";

/*
 * A link onto the very file that it leads to: mv takes them for the same file,
 * rename(2) would replace the file. That is a link to itself then, and so of no
 * use to anybody, but it must not look done.
 */
static const char link_check[] =
	" if [ -L \"$a\" ] && [ ! -L \"$b\" ] && [ \"$a\" -ef \"$b\" ];"
	" then e='Operation not supported'; [ ! -d \"$b\" ] || e='Is a directory';"
	" echo \"mv: $e\" >&2; exit 1; fi;";

void sandbox_rename(struct sandbox *sb, struct call *call, const char *from, const char *to,
		    unsigned flags, bool *ret_same)
{
	static const struct kind plain = { .done = on_moved };
	static const struct kind noreplace = { .done = on_moved_to_new };
	const struct kind *kind = flags == RENAME_NOREPLACE ? &noreplace : &plain;
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);
	/* From coreutils 9.5 on; an older one says that it does not know the option. */
	const char *mv = "exec mv --exchange -T";

	if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) {
		op_reject(sb, call, -EINVAL, "unknown flags for a rename");
		return;
	}
	if (!sandbox_allows(sb, call, from) || !sandbox_allows(sb, call, to))
		return;
	shell_printf(&script, "a=%s; b=%s;", from, to);
	if (!same_parent(from, to))
		buf_puts(&script, mount_check);
	if (flags == 0) {
		buf_puts(&script, link_check);
		mv = "exec mv -f -T";
	} else if (flags == RENAME_NOREPLACE) {
		mv = "exec mv -n -T -v";
	}
	buf_printf(&script, " %s -- \"$a\" \"$b\"", mv);
	submit(sb, call, &script, kind, ret_same);
}

/* ---- attributes ---- */

void sandbox_chmod(struct sandbox *sb, struct call *call, const char *path, mode_t mode,
		   struct attr *ret)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	/* With less than five digits chmod keeps the set-id bits of directories. */
	buf_puts(&script, first(ret));
	shell_printf(&script, "chmod 0000%o -- %s", (unsigned)mode & 07777, path);
	submit_change(sb, call, &script, path, ret);
}

/* As date strings have it: half a second before the epoch, { -1, 500000000 }, is -0.5. */
static void format_time(char *to, size_t size, const struct timespec *t)
{
	int64_t s = t->tv_sec;
	long ns = t->tv_nsec;
	bool negative = s < 0;

	if (negative && ns > 0) {
		s++;
		ns = NS_PER_S - ns;
	}
	snprintf(to, size, "@%s%llu.%09ld", negative ? "-" : "",
		 negative ? 0 - (unsigned long long)s : (unsigned long long)s, ns);
}

static bool is_time(const struct timespec *t)
{
	return (t->tv_nsec >= 0 && t->tv_nsec < NS_PER_S) || t->tv_nsec == UTIME_NOW ||
	       t->tv_nsec == UTIME_OMIT;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_nsec == b->tv_nsec && (a->tv_sec == b->tv_sec || a->tv_nsec == UTIME_NOW);
}

/* which: -a, -m or nothing for both. With -h touch neither follows links nor creates files. */
static void append_touch(struct buf *to, const char *which, const struct timespec *t,
			 const char *path)
{
	char date[48];

	buf_printf(to, "%scommand touch -h %s", to->len ? " && " : "", which);
	if (t->tv_nsec != UTIME_NOW) {
		format_time(date, sizeof(date), t);
		buf_printf(to, " -d %s", date);
	}
	shell_printf(to, " -- %s", path);
}

void sandbox_utimens(struct sandbox *sb, struct call *call, const char *path,
		     const struct timespec times[2], struct attr *ret)
{
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	if (!is_time(&times[0]) || !is_time(&times[1])) {
		op_reject(sb, call, -EINVAL, "not a time");
		return;
	}
	if (is_same_time(&times[0], &times[1])) {
		if (times[0].tv_nsec != UTIME_OMIT)
			append_touch(&script, "", &times[0], path);
	} else {
		if (times[0].tv_nsec != UTIME_OMIT)
			append_touch(&script, "-a", &times[0], path);
		if (times[1].tv_nsec != UTIME_OMIT)
			append_touch(&script, "-m", &times[1], path);
	}
	if (script.len == 0 && !script.error)
		op_reject(sb, call, 0, NULL); /* nothing to do, which utimensat(2) does, too */
	else
		submit_change(sb, call, &script, path, ret);
}

/* ---- content ---- */

/* A limit on the size of files is an errno then, not the end of the tool. */
#define NO_SIGXFSZ "trap '' XFSZ;"

/*
 * After a truncation that failed dd tries to seek: if that works it forgets the
 * failure but for the message, otherwise it has more to say, of another kind.
 */
static void on_truncated(struct posix_run *run, int err)
{
	char *newline = run->err.len ? memchr(run->err.data, '\n', run->err.len) : NULL;

	if (newline)
		run->err.len = (size_t)(newline - run->err.data);
	if (run->err.len && run->exit_code == 0)
		run->exit_code = 1;
	posix_run_finish_op(run, err);
}

void sandbox_truncate(struct sandbox *sb, struct call *call, const char *path, uint64_t size)
{
	static const struct kind kind = { .done = on_truncated };
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, path))
		return;
	if (size > INT64_MAX) {
		op_reject(sb, call, -EFBIG, "no file can be so large");
		return;
	}
	/* truncate(1) either creates a missing file or says nothing about it. nonblock: no
	 * waiting for a reader of a pipe. */
	shell_printf(&script,
		     NO_SIGXFSZ
		     " exec dd if=/dev/null of=%s bs=1 count=0 seek=%d conv=nocreat oflag=nonblock"
		     " status=none",
		     path, (int64_t)size);
	submit(sb, call, &script, &kind, NULL);
}

void sandbox_copy(struct sandbox *sb, struct call *call, const char *from, const char *to)
{
	/* A file copied onto itself is what it was. */
	static const struct kind kind = { .done = on_moved, .slow = true };
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, from) || !sandbox_allows(sb, call, to))
		return;
	shell_printf(&script, NO_SIGXFSZ " exec cp -T --reflink=auto --sparse=auto -- %s %s", from,
		     to);
	submit(sb, call, &script, &kind, NULL);
}

static void on_range_copied(struct posix_run *run, int err)
{
	uint64_t copied;

	if (succeeded(run, err)) {
		err = copied_parse(run->err.data, run->err.len, &copied);
		if (err == 0)
			*(uint64_t *)op_of(run)->ret = copied;
	}
	posix_run_finish_op(run, err);
}

void sandbox_copy_range(struct sandbox *sb, struct call *call, const char *from,
			uint64_t from_offset, const char *to, uint64_t to_offset, uint64_t len,
			uint64_t *ret_copied)
{
	static const struct kind kind = { .done = on_range_copied, .slow = true };
	struct buf script CLEANUP_BUF = BUF_INIT(SCRIPT_MAX);

	if (!sandbox_allows(sb, call, from) || !sandbox_allows(sb, call, to))
		return;
	if (from_offset > INT64_MAX || to_offset > INT64_MAX) {
		op_reject(sb, call, -EINVAL, "no file can be so large");
		return;
	}
	len = MIN(len, INT64_MAX - MAX(from_offset, to_offset));
	shell_printf(&script, NO_SIGXFSZ " a=%s; b=%s;", from, to);
	if (from_offset < to_offset + len && to_offset < from_offset + len)
		buf_puts(&script, " if [ \"$a\" -ef \"$b\" ];"
				  " then echo 'dd: Invalid argument' >&2; exit 1; fi;");
	shell_printf(&script,
		     " exec dd if=\"$a\" of=\"$b\" bs=1M iflag=skip_bytes,count_bytes,fullblock"
		     " oflag=seek_bytes conv=notrunc,nocreat skip=%d seek=%d count=%d",
		     (int64_t)from_offset, (int64_t)to_offset, (int64_t)len);
	submit(sb, call, &script, &kind, ret_copied);
}

/*
 * Downloads: one request that streams a file to its reader, and the proof that
 * what came is of one version. Must not know what the reader does with it.
 * Loop thread, except the public functions.
 *
 * A whole file is asked for with change_policy=abort, which newer servers keep
 * (they cut the stream when the file changes) and older ones ignore. Their
 * ranges exclude that, except for aiod's. Where the server did not watch, a
 * look at the file at the end does. Where that look is due anyhow, because the
 * version is known exactly, the server need not watch: without that it sends
 * the file without reading it, at half the cost.
 *
 * A caller who hears of changes (how.watched) spares the look, which is a
 * command: milliseconds, where the bytes may take a tenth of one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "alias.h"
#include "reply.h"
#include "sandbox_i.h"
#include "shellquote.h"

enum {
	GUARD_MAX = 256 * 1024, /* so much the server may as well read: that costs less than asking
				   again */
	ONE_READ = 64 * 1024,   /* so much servers read at once */
};

struct download_op {
	struct op op;
	struct alias alias;
	struct exchange x;
	struct posix_run look;

	/* what was asked for */
	char *path;
	struct download how;
	struct attr expect; /* what how.expect points to */
	uint64_t wanted;    /* bytes; UINT64_MAX: all */

	/* the answer */
	bool ranged;     /* a range was asked for */
	bool guarded;    /* the server cuts the stream when the file changes */
	bool unframed;   /* the end of the connection is that of the bytes: none, if it broke */
	bool enough;     /* stopped by us: all that was wanted has come */
	bool refused;    /* stopped by us: something is wrong, or the reader says so */
	int64_t size;    /* of the file; -1: unknown */
	time_t modified; /* by the header; -1: unknown */
	time_t begun;    /* the server's clock at the start, if nothing else is known; or -1 */
	char *etag;      /* how.watched: if it can be asked for again; or NULL */
	bool confirmed;  /* it was, and is the same */
	bool denied;     /* it is another */
	uint64_t at;     /* where in the file the next bytes belong */
	uint64_t given;  /* to the reader */
	int error;       /* how it ended if the file is still the same */
	char *message;
};

static const char not_the_same[] = "the file is not the same any more";

/* ---- the end ---- */

static void end(struct download_op *o, int err, char *message)
{
	op_finish_with(&o->op, err, message);
}

static void end_stale(struct download_op *o)
{
	end(o, -ESTALE, strdup(not_the_same));
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * A header gives whole seconds, cut off; Python first rounds to microseconds,
 * which can carry into the next one.
 */
static bool header_means(time_t header, const struct timespec *t)
{
	return header == t->tv_sec || (header - 1 == t->tv_sec && t->tv_nsec >= 999999500);
}

/* Whether the file looks now as it did at the start. */
static bool is_same(const struct download_op *o, const struct attr *now)
{
	const struct attr *e = o->how.expect;

	if (o->x.status == 416 && now->size > o->how.offset)
		return false;
	if (e && !e->partial)
		return now->ino == e->ino && now->size == e->size &&
		       same_time(&now->mtime, &e->mtime) && same_time(&now->ctime, &e->ctime);
	if (e)
		return now->size == e->size && now->mtime.tv_sec == e->mtime.tv_sec;
	if (o->size >= 0 && now->size != (uint64_t)o->size)
		return false;
	if (o->modified != -1)
		return header_means(o->modified, &now->mtime);
	/* Nothing is known of before, but after a failure there is reason to suspect a change. */
	return !o->error || o->begun == -1 || now->mtime.tv_sec < o->begun;
}

static void on_looked(struct posix_run *run, int err)
{
	struct download_op *o = CONTAINER_OF(run, struct download_op, look);
	struct attr now = { 0 };

	if (err == 0 && run->exit_code != 0)
		err = posix_run_errno(run);
	else if (err == 0)
		err = attr_parse_stat(run->out.data ?: "", run->out.len, &now);
	if (err == -ENOENT || err == -ENOTDIR || (err == 0 && !is_same(o, &now)))
		end_stale(o);
	else if (o->error || err == 0 || !(o->how.expect || o->unframed))
		end(o, o->error, STEAL(o->message));
	else
		end(o, err,
		    STEAL(run->message)); /* nobody knows which version that was, or if all */
}

/* Ends with err unless the file has changed. */
static void look(struct download_op *o, int err, char *message)
{
	o->error = err;
	o->message = message;
	posix_run_init(&o->look, &o->op, on_looked);
	o->look.idempotent = true;
	/* What was expected came from lstat(), what is there from open(). */
	shell_printf(&o->look.script,
		     o->how.expect ? "exec stat -c %s -- %s" : "exec stat -L -c %s -- %s",
		     ATTR_STAT_FORMAT, o->path);
	op_progress(&o->op);
	posix_run_start(&o->look);
}

/*
 * Whether the server's word is enough. It has seen to it that all bytes are of
 * one version; whether of the expected one the header tells only to the second,
 * which is all that a partial one knows, and enough for who hears of changes.
 */
static bool is_proven(const struct download_op *o)
{
	const struct attr *e = o->how.expect;

	if (e && o->how.watched)
		return !o->unframed && (o->guarded || o->given <= ONE_READ);
	return o->guarded &&
	       (!e || (e->partial && o->modified != -1 && header_means(o->modified, &e->mtime)));
}

/* The answer to a range that begins behind the end. */
static void end_behind(struct download_op *o)
{
	struct download_head head = { .size = o->x.range_total, .ranged = true };
	int r = 0;

	if (head.size > 0 && o->how.offset < (uint64_t)head.size) {
		end(o, -EBADMSG, strdup("the server refuses a range that the file has"));
		return;
	}
	o->size = head.size;
	if (o->how.head)
		r = o->how.head(o->how.ctx, &head);
	if (r)
		end(o, r, NULL);
	else if (o->how.expect && head.size >= 0 && (uint64_t)head.size != o->how.expect->size)
		end_stale(o);
	else
		look(o, 0, NULL);
}

static int on_confirm_head(struct exchange *x)
{
	struct download_op *o = CONTAINER_OF(x, struct download_op, x);
	const char *etag = exchange_said(x, "ETag");

	o->confirmed = etag && strcmp(etag, o->etag) == 0;
	o->denied = etag && !o->confirmed;
	return x->status == 206 ? 0 : -ECANCELED;
}

static int on_confirm_data(struct exchange *x UNUSED, const char *bytes UNUSED, size_t len UNUSED)
{
	return 0;
}

static void on_confirmed(struct exchange *x, int err UNUSED)
{
	struct download_op *o = CONTAINER_OF(x, struct download_op, x);

	if (o->denied)
		end_stale(o);
	else if (o->confirmed)
		end(o, 0, NULL);
	else
		look(o, 0, NULL);
}

/* All has come: is it still the same? One byte tells, and needs no command. */
static void confirm(struct download_op *o)
{
	struct exchange *x = &o->x;
	const char *path = o->alias.path[0] ? o->alias.path : o->path;
	int r;

	exchange_release(x);
	exchange_init(x, &o->op, "GET", "/v1/file/download", on_confirmed);
	x->lane = LANE_QUICK;
	x->idempotent = true;
	x->head = on_confirm_head;
	x->data = on_confirm_data;
	r = exchange_query(x, "path", path);
	if (r == 0)
		r = exchange_query(x, "change_policy", "ignore");
	if (r == 0)
		r = exchange_header(x, "Range: bytes=0-0");
	op_progress(&o->op);
	if (r < 0)
		end(o, r, NULL);
	else
		exchange_start(x);
}

static void on_streamed(struct exchange *x, int err)
{
	struct download_op *o = CONTAINER_OF(x, struct download_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };
	bool streamed = x->status == 200 || x->status == 206;

	if (o->enough)
		err = 0;
	else if (err == 0 && x->status == 416 && o->ranged)
		return end_behind(o);
	else if (!err && !streamed)
		err = reply_decode(&a, x, 0) ?: -EBADMSG;
	else if (err)
		reply_decode(&a, x, err);
	if (o->refused || !streamed || (err && err != -EIO && err != -ECONNRESET)) {
		end(o, err, STEAL(*(o->message ? &o->message : &a.message)));
		return;
	}
	if (!err && o->given < o->wanted && !o->enough) {
		if (o->size < 0)
			o->size = (int64_t)o->at; /* as it claims */
		else if (o->at < (uint64_t)o->size)
			err = -EIO;
		if (err)
			a.message = strdup("the server sent less than it was asked for");
	}
	/* It was to be cut if the file changes; who hears of changes finds out if that is why. */
	if (err && o->guarded && o->how.expect && o->how.watched)
		end_stale(o);
	else if (!err && is_proven(o))
		end(o, 0, NULL);
	else if (!err && o->etag)
		confirm(o);
	else
		look(o, err, STEAL(a.message));
}

/* ---- the answer ---- */

static time_t date_said(const struct exchange *x, const char *header)
{
	const char *said = exchange_said(x, header);

	return said ? curl_getdate(said, NULL) : -1;
}

/* The pieces of one file say the same again and again. */
static time_t modified_said(struct download_op *o)
{
	struct sandbox *sb = o->op.sb;
	const char *said = exchange_said(&o->x, "Last-Modified");

	if (!said)
		return -1;
	if (strcmp(said, sb->modified_said) != 0) {
		time_t t = curl_getdate(said, NULL);

		if (strlen(said) >= sizeof(sb->modified_said))
			return t;
		strcpy(sb->modified_said, said);
		sb->modified = t;
	}
	return sb->modified;
}

static void take_head(struct download_op *o)
{
	struct exchange *x = &o->x;
	const char *ranges = exchange_said(x, "Accept-Ranges");
	struct features *f = &o->op.sb->features;

	o->size = x->status == 206 ? x->range_total : x->content_length;
	o->at = x->status == 206 ? o->how.offset : 0;
	o->modified = modified_said(o);
	if (o->modified == -1)
		o->begun = date_said(x, "Date");
	if (o->ranged && x->status == 206)
		f->range = YES;
	else if (o->ranged && f->range == UNKNOWN)
		f->range = NO;
	o->unframed = x->content_length < 0 && !exchange_said(x, "Transfer-Encoding");
	/* Servers that know change_policy have no ranges with it, but for aiod. */
	if (f->aiod != YES && (o->ranged || !ranges || strcasecmp(ranges, "none") != 0))
		o->guarded = false;
	if (o->unframed)
		o->guarded = false;
	if (o->how.watched && o->how.expect && !o->guarded &&
	    (x->status == 206 || (ranges && strcasecmp(ranges, "bytes") == 0))) {
		const char *etag = exchange_said(x, "ETag");

		free(o->etag);
		o->etag = etag ? strdup(etag) : NULL;
	}
}

static int refuse(struct download_op *o, int err, const char *words)
{
	o->refused = true;
	o->message = strdup(words);
	return err;
}

static int on_head(struct exchange *x)
{
	struct download_op *o = CONTAINER_OF(x, struct download_op, x);
	struct download_head head = { 0 };
	int r = 0;

	take_head(o);
	if (x->status == 206 &&
	    (!o->ranged || x->range_start < 0 || (uint64_t)x->range_start != o->how.offset))
		return refuse(o, -EBADMSG, "the server sent another part than was asked for");
	if (o->how.expect && o->size >= 0 && (uint64_t)o->size != o->how.expect->size)
		return refuse(o, -ESTALE, not_the_same);
	if (o->how.expect && o->how.watched && o->modified != -1 &&
	    !header_means(o->modified, &o->how.expect->mtime))
		return refuse(o, -ESTALE, not_the_same);
	head.size = o->size;
	head.etag = exchange_said(x, "ETag");
	head.ranged = x->status == 206;
	if (o->how.head)
		r = o->how.head(o->how.ctx, &head);
	o->refused = r != 0;
	/* Nothing of what comes is wanted. */
	o->enough = !r && x->status == 200 && o->size > 0 && o->how.offset >= (uint64_t)o->size;
	return o->enough ? -ECANCELED : r;
}

/* Whether the server goes on sending what nobody wants. */
static bool more_comes(const struct download_op *o)
{
	uint64_t first = o->x.status == 206 ? o->how.offset : 0;

	return o->x.content_length < 0 || o->at - first < (uint64_t)o->x.content_length;
}

static int on_data(struct exchange *x, const char *bytes, size_t len)
{
	struct download_op *o = CONTAINER_OF(x, struct download_op, x);
	size_t skip = 0, n;
	int r = 0;

	if (o->size >= 0 && len > (uint64_t)o->size - o->at)
		return refuse(o, -EBADMSG, "the server sent more than the file has");
	if (o->at < o->how.offset)
		skip = MIN(len, o->how.offset - o->at);
	n = MIN(len - skip, o->wanted - o->given);
	if (n > 0)
		r = o->how.data(o->how.ctx, bytes + skip, n);
	o->refused = r && r != -EAGAIN;
	if (r)
		return r;
	o->at += len;
	o->given += n;
	o->enough = o->given == o->wanted && more_comes(o);
	return o->enough ? -ECANCELED : 0;
}

static char *on_space(struct exchange *x, size_t *ret_len)
{
	struct download_op *o = CONTAINER_OF(x, struct download_op, x);
	char *to;

	*ret_len = 1;
	if (o->at < o->how.offset || o->given >= o->wanted)
		return NULL;
	to = o->how.space(o->how.ctx, ret_len);
	if (to)
		*ret_len = MIN(*ret_len, o->wanted - o->given);
	return to;
}

/* ---- the question ---- */

/* "Range: bytes=5-" or "Range: bytes=5-9" */
static int add_range(struct download_op *o)
{
	char line[80];
	uint64_t last = o->how.offset + o->how.length - 1;

	if (o->how.length > 0 && last >= o->how.offset)
		snprintf(line, sizeof(line), "Range: bytes=%" PRIu64 "-%" PRIu64, o->how.offset,
			 last);
	else
		snprintf(line, sizeof(line), "Range: bytes=%" PRIu64 "-", o->how.offset);
	return exchange_header(&o->x, line);
}

/* Whether change_policy=abort is of use. See is_proven(): for an exact version it would not do. */
static bool wants_guard(const struct download_op *o)
{
	const struct attr *e = o->how.expect;
	uint64_t all;

	if (o->how.unguarded)
		return false;
	if (!e || e->partial)
		return true;
	all = e->size > o->how.offset ? e->size - o->how.offset : 0;
	return o->how.watched && MIN(all, o->wanted) <= GUARD_MAX;
}

static void ask(struct download_op *o, const char *path)
{
	const struct features *f = &o->op.sb->features;
	struct exchange *x = &o->x;
	int r;

	o->ranged = (o->how.offset > 0 || o->how.length > 0) && f->range != NO;
	o->guarded = wants_guard(o) && (!o->ranged || f->aiod == YES);
	exchange_init(x, &o->op, "GET", "/v1/file/download", on_streamed);
	x->lane = LANE_STREAM;
	x->idempotent = true;
	x->direct = true;
	x->head = on_head;
	x->data = on_data;
	x->space = o->how.space ? on_space : NULL;
	r = exchange_query(x, "path", path);
	if (r == 0)
		r = exchange_query(x, "change_policy", o->guarded ? "abort" : "ignore");
	if (r == 0 && o->ranged)
		r = add_range(o);
	if (r < 0)
		end(o, r, NULL);
	else
		exchange_start(x);
}

static void on_alias(struct alias *a, int err)
{
	struct download_op *o = CONTAINER_OF(a, struct download_op, alias);

	if (err)
		end(o, err, STEAL(a->message));
	else
		ask(o, a->path);
}

static void start_download(struct op *op)
{
	struct download_op *o = (struct download_op *)op;

	if (alias_needed(o->path))
		alias_start(&o->alias, op, o->path, ALIAS_FILE, on_alias);
	else
		ask(o, o->path);
}

static void go_on(struct op *op)
{
	exchange_go_on(&((struct download_op *)op)->x);
}

static void release_download(struct op *op)
{
	struct download_op *o = (struct download_op *)op;

	exchange_release(&o->x);
	posix_run_release(&o->look);
	alias_release(&o->alias);
	free(o->etag);
	free(o->message);
	free(o->path);
	free(o);
}

void sandbox_download(struct sandbox *sb, struct call *call, const char *path,
		      const struct download *how)
{
	struct download_op *o;

	if (!sandbox_allows(sb, call, path))
		return;
	if (how->offset > INT64_MAX) {
		op_reject(sb, call, -EINVAL, "the offset is out of range");
		return;
	}
	o = calloc(1, sizeof(*o));
	if (o && !(o->path = strdup(path)))
		free(STEAL(o));
	if (o) {
		o->how = *how;
		if (how->expect) {
			o->expect = *how->expect;
			o->how.expect = &o->expect;
		}
		o->wanted = how->length ?: UINT64_MAX;
		o->size = o->modified = o->begun = -1;
		o->op.on_silence = true;
		o->op.slowest = SLOWEST_TRANSFER;
		o->op.go_on = go_on;
	}
	op_submit(&o->op, sb, call, start_download, release_download);
}

void sandbox_go_on(struct sandbox *sb UNUSED, struct call *call)
{
	call_go_on(call);
}

/*
 * Whole files in one request each: text as the server's read route gives it,
 * bytes written in place or added to the end, and a file replaced as a whole
 * (by an upload from memory). Loop thread, except the public functions.
 */
#include <errno.h>
#include <string.h>

#include "alias.h"
#include "base64.h"
#include "jsonw.h"
#include "reply.h"
#include "sandbox_i.h"

enum {
	TEXT_ANSWER_MAX = 64 * 1024 * 1024, /* of the JSON; control characters grow sixfold */
	WRITE_MAX = 32 * 1024 * 1024,       /* a third more in base64: servers take 64 MiB */
};

/* ---- reading ---- */

struct read_op {
	struct op op;
	struct alias alias;
	struct exchange x;
	char *path;
	int64_t first, last;
	struct buf *ret;
};

/* The text may hold NUL, which the parser has disguised. */
static int take_text(const struct answer *a, struct buf *ret)
{
	cJSON *content = cJSON_GetObjectItemCaseSensitive(a->data, "content");
	size_t len;

	if (!cJSON_IsString(content))
		return -EBADMSG;
	len = json_restore_nul(content->valuestring);
	if (ret->error)
		return ret->error;
	if (ret->max && len > ret->max - ret->len)
		return -EFBIG;
	return buf_append(ret, content->valuestring, len);
}

static void on_read(struct exchange *x, int err)
{
	struct read_op *o = CONTAINER_OF(x, struct read_op, x);
	struct answer a CLEANUP_ANSWER = { 0 };

	err = reply_decode(&a, x, err) ?: take_text(&a, o->ret);
	op_finish_with(&o->op, err, STEAL(a.message));
}

static void send_read(struct read_op *o, const char *path)
{
	struct jw w;

	exchange_init(&o->x, &o->op, "POST", "/v1/file/read", on_read);
	o->x.idempotent = true;
	o->x.answer_max = TEXT_ANSWER_MAX;
	jw_init(&w, &o->x.body);
	jw_obj(&w);
	jw_kstr(&w, "file", path);
	/* The server counts from 0 and leaves out the end. */
	if (o->first > 0)
		jw_kint(&w, "start_line", o->first - 1);
	if (o->last > 0)
		jw_kint(&w, "end_line", o->last);
	jw_obj_end(&w);
	exchange_start(&o->x);
}

static void on_read_alias(struct alias *alias, int err)
{
	struct read_op *o = CONTAINER_OF(alias, struct read_op, alias);

	if (err)
		op_finish_with(&o->op, err, STEAL(alias->message));
	else
		send_read(o, alias->path);
}

static void start_read(struct op *op)
{
	struct read_op *o = (struct read_op *)op;

	if (alias_needed(o->path))
		alias_start(&o->alias, op, o->path, ALIAS_FILE, on_read_alias);
	else
		send_read(o, o->path);
}

static void release_read(struct op *op)
{
	struct read_op *o = (struct read_op *)op;

	exchange_release(&o->x);
	alias_release(&o->alias);
	free(o->path);
	free(o);
}

void sandbox_read_file(struct sandbox *sb, struct call *call, const char *path, int64_t first,
		       int64_t last, struct buf *ret)
{
	struct read_op *o;

	if (!sandbox_allows(sb, call, path))
		return;
	if (first < 0 || last < 0 || (last > 0 && last < first)) {
		op_reject(sb, call, -EINVAL, "there are no such lines");
		return;
	}
	o = calloc(1, sizeof(*o));
	if (o) {
		o->path = strdup(path);
		o->first = first;
		o->last = last;
		o->ret = ret;
	}
	if (o && !o->path)
		free(STEAL(o));
	op_submit(&o->op, sb, call, start_read, release_read);
}

/* ---- writing ---- */

struct write_op {
	struct op op;
	struct alias alias;
	struct exchange x;
	char *path;
	struct buf body; /* all but its end; made by the caller's thread, as it may be large */
};

static void on_written(struct exchange *x, int err)
{
	struct answer a CLEANUP_ANSWER = { 0 };

	err = reply_decode(&a, x, err);
	op_finish_with(x->op, err, STEAL(a.message));
}

/*
 * Never sent twice, not even without append: the first one may be carried out
 * late, over what was written after the second.
 */
static void send_write(struct write_op *o, const char *path)
{
	struct jw w;

	exchange_init(&o->x, &o->op, "POST", "/v1/file/write", on_written);
	o->x.body = o->body;
	o->body = BUF_INIT(0);
	jw_init(&w, &o->x.body);
	jw_str(&w, path);
	jw_obj_end(&w);
	exchange_start(&o->x);
}

static void on_write_alias(struct alias *alias, int err)
{
	struct write_op *o = CONTAINER_OF(alias, struct write_op, alias);

	if (err)
		op_finish_with(&o->op, err, STEAL(alias->message));
	else
		send_write(o, alias->path);
}

static void start_write(struct op *op)
{
	struct write_op *o = (struct write_op *)op;

	if (alias_needed(o->path))
		alias_start(&o->alias, op, o->path, ALIAS_FILE, on_write_alias);
	else
		send_write(o, o->path);
}

static void release_write(struct op *op)
{
	struct write_op *o = (struct write_op *)op;

	exchange_release(&o->x);
	alias_release(&o->alias);
	buf_release(&o->body);
	free(o->path);
	free(o);
}

/* Everything up to the path, which comes last because it may yet change. */
static int make_body(struct buf *to, const void *bytes, size_t len, bool append)
{
	struct jw w;

	jw_init(&w, to);
	jw_obj(&w);
	jw_kstr(&w, "encoding", "base64");
	jw_kbool(&w, "append", append);
	jw_key(&w, "content");
	/* Not through jw: nothing in it needs an escape. */
	buf_putc(to, '"');
	base64_encode(to, bytes, len);
	buf_puts(to, "\",\"file\":");
	return to->error;
}

static struct write_op *new_write(const char *path, const void *bytes, size_t len, bool append)
{
	struct write_op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->path = strdup(path);
	if (!o->path || make_body(&o->body, bytes, len, append) < 0) {
		buf_release(&o->body);
		free(o->path);
		free(STEAL(o));
	}
	return o;
}

static void start_writing(struct sandbox *sb, struct call *call, const char *path,
			  const void *bytes, size_t len, bool append)
{
	struct write_op *o;

	if (!sandbox_allows(sb, call, path))
		return;
	if (len > WRITE_MAX) {
		op_reject(sb, call, -EFBIG, "more than %d bytes at once: use an upload", WRITE_MAX);
		return;
	}
	o = new_write(path, bytes, len, append);
	op_submit(&o->op, sb, call, start_write, release_write);
}

void sandbox_write_file(struct sandbox *sb, struct call *call, const char *path, const void *bytes,
			size_t len)
{
	start_writing(sb, call, path, bytes, len, false);
}

void sandbox_append(struct sandbox *sb, struct call *call, const char *path, const void *bytes,
		    size_t len)
{
	start_writing(sb, call, path, bytes, len, true);
}

/* ---- replacing ---- */

/* The upload under way. Outlives the operation if that is interrupted. */
struct payload {
	struct call call;
	struct update_op *owner; /* NULL: nobody waits any more */
	char *path;
	size_t len, sent;
	char bytes[];
};

struct update_op {
	struct op op;
	struct step step;
	struct payload *payload;
};

static void free_payload(struct payload *p)
{
	if (p)
		free(p->path);
	free(p);
}

static ssize_t read_payload(void *ctx, char *to, size_t len)
{
	struct payload *p = ctx;

	len = MIN(len, p->len - p->sent);
	memcpy(to, p->bytes + p->sent, len);
	p->sent += len;
	return (ssize_t)len;
}

static void on_uploaded(struct call *call)
{
	struct payload *p = CONTAINER_OF(call, struct payload, call);
	struct update_op *o = p->owner;

	if (o) {
		o->payload = NULL;
		op_go_on(&o->op);
		op_finish_with(&o->op, call->error, STEAL(call->message));
	}
	call_release(call);
	free_payload(p);
}

static void stop_update(struct step *s)
{
	struct update_op *o = CONTAINER_OF(s, struct update_op, step);
	struct payload *p = STEAL(o->payload);

	p->owner = NULL;
	call_cancel(&p->call);
}

static void start_update(struct op *op)
{
	struct update_op *o = (struct update_op *)op;
	struct payload *p = o->payload;
	struct upload how = {
		.size = (int64_t)p->len,
		.mode = -1,
		.read = read_payload,
		.ctx = p,
		.fd = -1,
	};

	op_wait(op, &o->step);
	p->owner = o;
	call_init(&p->call, op->call->timeout_ms);
	p->call.done = on_uploaded;
	sandbox_upload(op->sb, &p->call, p->path, &how);
}

/* The payload is still here only if nothing was started. */
static void release_update(struct op *op)
{
	struct update_op *o = (struct update_op *)op;

	free_payload(o->payload);
	free(o);
}

static struct update_op *new_update(const char *path, const void *bytes, size_t len)
{
	struct update_op *o = calloc(1, sizeof(*o));
	struct payload *p = calloc(1, sizeof(*p) + len);

	if (!o || !p || !(p->path = strdup(path))) {
		free_payload(p);
		free(o);
		return NULL;
	}
	p->len = len;
	if (len > 0)
		memcpy(p->bytes, bytes, len);
	o->payload = p;
	o->step.stop = stop_update;
	return o;
}

void sandbox_update_file(struct sandbox *sb, struct call *call, const char *path, const void *bytes,
			 size_t len)
{
	struct update_op *o;

	if (!sandbox_allows(sb, call, path))
		return;
	o = new_update(path, bytes, len);
	op_submit(&o->op, sb, call, start_update, release_update);
}

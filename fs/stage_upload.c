/*
 * A stage's changes go up: one delivery at a time, a chain of requests. First the
 * content, as a whole (perhaps while it is still being written: a stream) or as
 * appends; then the mode and the times, if they were set; then, where the stage goes on
 * from what is in the sandbox, a look at the file. For a new file of the usual mode,
 * in a directory that is known while it is watched, all of that is one request.
 * Must not know who waits for it. Loop thread only.
 */
#include <errno.h>
#include <string.h>

#include "entry.h"
#include "salvage.h"
#include "shelf.h"
#include "stage_i.h"

struct delivery {
	struct stage *s; /* NULL: nobody wants to hear of it any more */
	struct remote r;
	struct transfer x;
	struct sandbox *sb; /* while an upload runs: it may have to be woken */
	enum { WHOLE, APPENDS, ATTRS } kind;
	bool cancelled;
	bool asked;      /* the request has gone out, perhaps */
	uint64_t covers; /* changes up to this one; streams: once the end is known */
	uint64_t end;    /* of WHOLE; UINT64_MAX: not known yet. Of APPENDS: with all of them, */
	uint64_t before; /* and without */
	uint64_t sent;
	bool given;   /* of WHOLE: all of it; the sandbox may have it soon, whatever we do */
	bool spoiled; /* likewise: it is not in the spool any more, and not given once more */
	int mode;     /* that went with the content; -1: none */
	unsigned looks;
	struct attr seen;
	struct moment looked; /* when that was asked */
	bool looking;         /* it is, now */
	char *piece;          /* of APPENDS */
	size_t piece_len;
};

static void send_piece(struct delivery *d);
static void go_on(struct delivery *d);

/* ---- life ---- */

static struct delivery *begin(struct stage *s, int kind)
{
	struct delivery *d = calloc(1, sizeof(*d));

	if (!d) {
		stage_delivered(s, -ENOMEM, NULL);
		return NULL;
	}
	d->s = s;
	d->kind = kind;
	d->covers = s->changes;
	d->end = UINT64_MAX;
	d->mode = -1;
	s->delivery = d;
	return d;
}

static void release(struct delivery *d)
{
	free(d->piece);
	free(d);
}

static void finish(struct delivery *d, int err)
{
	struct stage *s = d->s;

	s->delivery = NULL;
	stage_delivered(s, d->cancelled ? -ECANCELED : err, d->r.call.message);
	release(d);
}

static void start_look(struct remote *r, struct sandbox *sb);

/* What is asked about the file meanwhile may be of before or after. */
static void note(struct stage *s)
{
	s->n->thread->writes++;
	node_note(s->n, NULL, NOTE_NAME);
}

/* A request of d has ended. True: so has the delivery, d is gone. */
static bool is_over(struct delivery *d)
{
	transfer_end(&d->x);
	d->sb = NULL;
	if (!d->s) {
		release(d);
		return true;
	}
	if (!d->looking)
		note(d->s);
	if (!d->cancelled)
		return false;
	finish(d, -ECANCELED);
	return true;
}

static void request(struct delivery *d, void (*start)(struct remote *r, struct sandbox *sb),
		    void (*done)(struct remote *r, int err))
{
	struct stage *s = d->s;

	d->r = (struct remote){ .once = d->kind == APPENDS && d->piece_len > 0 };
	d->asked = false;
	d->looking = start == start_look;
	if (!d->looking)
		note(s);
	remote_begin(&d->r, s->n->thread, start, done);
}

void stage_drop_delivery(struct stage *s)
{
	struct delivery *d = STEAL(s->delivery);

	if (!d)
		return;
	d->s = NULL;
	d->sb = NULL;
	note(s);
	transfer_end(&d->x);
	remote_cancel(&d->r);
}

void stage_cancel_delivery(struct stage *s)
{
	struct delivery *d = s->delivery;

	if (!d || d->cancelled)
		return;
	d->cancelled = true;
	remote_cancel(&d->r);
}

/* ---- the last steps: attributes, and a look ---- */

static struct delivery *of(struct remote *r)
{
	return CONTAINER_OF(r, struct delivery, r);
}

/* The directory has the file now, or has it as it is now. */
static void add_to_listing(struct delivery *d)
{
	struct node *n = d->s->n;

	if (!n->parent)
		return;
	if (node_is_since(n, &d->looked))
		entry_made(n->parent, n->name, &d->seen);
	else
		entry_doubted(n->parent, n->name);
	entry_dir_changed(n->parent, 0, true);
}

/* What the sandbox has now, as far as that is known without asking. */
static void guess(struct delivery *d)
{
	struct stage *s = d->s;

	d->seen = s->n->attr;
	d->seen.size = d->kind == WHOLE ? d->end : stage_size(s);
	d->seen.blocks = d->seen.ino = d->seen.dev = 0;
	d->seen.nlink = 1;
	d->seen.mtime = d->seen.ctime = s->mtime;
	if (s->mode >= 0)
		d->seen.mode = S_IFREG | (mode_t)s->mode;
}

static void confirm(struct delivery *d, bool looked)
{
	struct stage *s = d->s;

	if (!looked)
		guess(d);
	s->confirmed = d->covers;
	if (s->mode_change <= d->covers)
		s->mode = -1;
	if (s->times_change <= d->covers)
		s->times = false;
	stage_note_origin(s, &d->seen, looked);
	if (!s->tail) /* which has its place behind the base as it was */
		s->base = d->seen;
	if (!s->tail && s->base_len > 0) {
		s->base_len = MIN(s->base.size, s->cut);
		s->filled = 0;
	}
	node_void_peers(
		s->n); /* of the file that was there: it has a name less, or was appended to */
	if (looked) {
		node_learn(s->n, &d->seen, &d->looked);
		add_to_listing(d);
	} else {
		node_set_attr(s->n, &d->seen);
		node_void_attr(s->n); /* whoever wants to know asks */
	}
	finish(d, 0);
}

static void start_look(struct remote *r, struct sandbox *sb)
{
	char *path CLEANUP_FREE = stage_path(of(r)->s, r, sb);

	of(r)->looked = node_moment(r->thread);
	if (path)
		sandbox_lstat(sb, &r->call, path, &of(r)->seen);
}

/* That it was sent, and the server says so, is not all. What we append to others may append to as
 * well, or empty: only what lacks a part of ours is wrong. */
static bool has_another_size(const struct delivery *d)
{
	const struct attr *base = &d->s->base;

	if (d->kind == WHOLE)
		return d->seen.size != d->end;
	return d->kind == APPENDS && (!base->ino || base->ino == d->seen.ino) &&
	       d->seen.size >= d->before && d->seen.size < d->end;
}

static void on_looked(struct remote *r, int err)
{
	struct delivery *d = of(r);

	if (is_over(d))
		return;
	if (err == 0 && has_another_size(d)) {
		/* Somebody may be at it this very moment. */
		if (d->looks++ == 0) {
			request(d, start_look, on_looked);
			return;
		}
		if (d->kind == WHOLE)
			d->s->sent = 0;
		else
			d->s->append_error = -EIO; /* as one without an answer */
		err = -EIO;
	}
	if (err < 0)
		finish(d, err);
	else
		confirm(d, true);
}

/* All that was to be done is done. Only what is not whole here needs to know what is there. */
static void conclude(struct delivery *d)
{
	const struct stage *s = d->s;

	if (s->appending || s->base_len > 0)
		request(d, start_look, on_looked);
	else
		confirm(d, false);
}

static void start_utimens(struct remote *r, struct sandbox *sb)
{
	char *path CLEANUP_FREE = stage_path(of(r)->s, r, sb);

	if (path)
		sandbox_utimens(
			sb, &r->call, path,
			(const struct timespec[2]){ { .tv_nsec = UTIME_OMIT }, of(r)->s->mtime },
			NULL);
}

static void start_chmod(struct remote *r, struct sandbox *sb)
{
	char *path CLEANUP_FREE = stage_path(of(r)->s, r, sb);

	if (path)
		sandbox_chmod(sb, &r->call, path, (mode_t)of(r)->s->mode, NULL);
}

static void on_utimens(struct remote *r, int err)
{
	struct delivery *d = of(r);

	if (is_over(d))
		return;
	if (err < 0)
		finish(d, err);
	else
		conclude(d);
}

static void set_times(struct delivery *d)
{
	if (d->s->times && d->s->times_change <= d->covers)
		request(d, start_utimens, on_utimens);
	else
		conclude(d);
}

static void on_chmod(struct remote *r, int err)
{
	struct delivery *d = of(r);

	if (is_over(d))
		return;
	if (err < 0)
		finish(d, err);
	else
		set_times(d);
}

/* The content is there. */
static void go_on(struct delivery *d)
{
	struct stage *s = d->s;

	if (s->mode >= 0 && s->mode_change <= d->covers && s->mode != d->mode)
		request(d, start_chmod, on_chmod);
	else
		set_times(d);
}

void stage_send_attrs(struct stage *s)
{
	struct delivery *d = begin(s, ATTRS);

	if (d)
		go_on(d);
}

/* ---- the whole content ---- */

/* As far as it is known; for who is wanted. */
static uint64_t content_end(const struct delivery *d)
{
	return d->end == UINT64_MAX ? stage_size(d->s) : d->end;
}

static void took(struct delivery *d, size_t len)
{
	d->sent += len;
	transfer_moved(&d->x, len);
}

static ssize_t read_content(void *ctx, char *to, size_t len)
{
	struct delivery *d = ctx;
	uint64_t end;
	int r;

	if (!d->s || d->cancelled || d->spoiled)
		return -ECANCELED;
	end = content_end(d);
	if (d->sent >= end) {
		/* What was lent before is in the socket. */
		d->given = d->end != UINT64_MAX;
		return d->given ? 0 : -EAGAIN;
	}
	len = MIN(len, end - d->sent);
	r = stage_get(d->s, to, len, d->sent);
	if (r < 0)
		return r;
	took(d, len);
	return (ssize_t)len;
}

/*
 * What is in the spool's file goes from there. It is not written over meanwhile, or what is
 * written over does not count: see stage_upload_changed().
 */
static size_t lend_content(void *ctx, size_t max)
{
	struct delivery *d = ctx;
	uint64_t end = d->s && !d->cancelled && !d->spoiled ? content_end(d) : 0;
	size_t len;

	if (d->sent >= end)
		return 0;
	len = MIN(max, MIN(end - d->sent, spool_filed(&d->s->spool, d->sent)));
	took(d, len);
	return len;
}

static int lent_file(void *ctx, uint64_t at, off_t *ret_offset)
{
	const struct delivery *d = ctx;

	return d->s && !d->cancelled ? spool_file(&d->s->spool, at, ret_offset) : -1;
}

static void rewind_content(void *ctx)
{
	struct delivery *d = ctx;

	d->sent = 0;
	d->given = false;
}

/*
 * What is known of the name, so that the sandbox need not be asked. Only while it tells of
 * changes: what is a second old may be wrong by now.
 */
static unsigned hints(const struct node *n)
{
	const struct thread *t = n->thread;
	struct listing *l = n->parent ? shelf_of(n->parent) : NULL;

	if (!t->watched || !n->parent)
		return 0;
	if (!l || listing_left_ms(l, t) <= 0)
		return node_left_ms(n->parent) > 0 ? UPLOAD_DIR_THERE : 0;
	if (!n->unborn || !l->complete || listing_find(l, n->name))
		return UPLOAD_DIR_THERE;
	return UPLOAD_DIR_THERE | UPLOAD_NAME_FREE;
}

static void start_upload(struct remote *r, struct sandbox *sb)
{
	struct delivery *d = of(r);
	struct stage *s = d->s;
	char *path CLEANUP_FREE = stage_path(s, r, sb);
	struct upload how = {
		.size = -1,
		.read = read_content,
		.rewind = rewind_content,
		.lend = lend_content,
		.lent_file = lent_file,
		.ctx = d,
		.fd = -1,
	};

	if (!path)
		return;
	if (d->end != UINT64_MAX)
		how.size = (int64_t)d->end;
	how.mode = d->mode = s->mode;
	how.flags = hints(s->n) | (s->excl ? UPLOAD_NEW : 0);
	rewind_content(d);
	d->sb = sb;
	transfer_end(&d->x);
	transfer_begin(&d->x, s->n->thread, s->n, true, how.size);
	sandbox_upload(sb, &r->call, path, &how);
}

static void on_uploaded(struct remote *r, int err)
{
	struct delivery *d = of(r);
	struct stage *s;
	struct node *n;

	if (is_over(d))
		return;
	s = d->s;
	n = s->n;
	if (err < 0) {
		/* A stream is only ahead of what has to be done anyhow; and what was refused is not
		 * wanted any more. Without an answer it is perhaps carried out still. */
		d->cancelled = d->end == UINT64_MAX || (d->spoiled && !remote_is_unreachable(err));
		s->no_stream = true;
		if (n->parent)
			entry_doubted(n->parent, n->name);
		finish(d, err);
		return;
	}
	s->sent = d->covers;
	s->excl = false;
	if (n->parent) {
		entry_made(n->parent, n->name, NULL);
		/* Of a new one the kernel knew before us; of the times events will tell. */
		entry_dir_changed(n->parent, 0, !n->unborn || !n->thread->watched);
	}
	n->unborn = false;
	go_on(d);
}

void stage_send(struct stage *s)
{
	struct delivery *d = begin(s, WHOLE);

	if (!d)
		return;
	/* The base will be another one soon. */
	if (s->spool.entry && s->noted == 0)
		(void)stage_note_now(s);
	d->end = stage_size(s);
	request(d, start_upload, on_uploaded);
}

/* ---- streams ---- */

bool stage_is_streaming(const struct stage *s)
{
	const struct delivery *d = s->delivery;

	return d && d->kind == WHOLE && d->end == UINT64_MAX && !d->cancelled;
}

static void wake(struct delivery *d)
{
	/* Not while it waits for another sandbox to try again: that one is gone, and so is the
	 * call. */
	if (d->sb && d->r.phase == REMOTE_RUNS)
		sandbox_go_on(d->sb, &d->r.call);
}

void stage_stream(struct stage *s)
{
	struct delivery *d;

	if (s->delivery || s->no_stream || s->orphan || s->held || s->settlers || s->freed ||
	    stage_has_base(s) || stage_size(s) < STREAM_MIN || salvage_is_at(s->n))
		return;
	d = begin(s, WHOLE);
	if (d)
		request(d, start_upload, on_uploaded);
}

void stage_end_stream(struct stage *s)
{
	struct delivery *d = s->delivery;

	if (!stage_is_streaming(s))
		return;
	d->end = stage_size(s);
	d->covers = s->changes;
	d->x.total = (int64_t)d->end;
	wake(d);
}

void stage_upload_changed(struct stage *s, uint64_t offset, bool truncated)
{
	struct delivery *d = s->delivery;

	if (!d || d->kind != WHOLE || d->cancelled)
		return;
	/*
	 * Of what was sent already something is wrong. With its end known it
	 * is let go on when somebody writes: he wants another delivery anyhow.
	 */
	if (d->end == UINT64_MAX ? offset >= d->sent : !truncated || offset >= d->end) {
		wake(d);
		return;
	}
	s->no_stream = true;
	d->spoiled = true;
	/*
	 * What the sandbox has all of may be put in its place late, over what is sent after it: the
	 * answer to that is awaited. As long as it needs more of us it never gets all.
	 */
	if (!d->given)
		stage_cancel_delivery(s);
}

/* ---- appends ---- */

size_t stage_sending_appends(const struct stage *s)
{
	return s->delivery && s->delivery->kind == APPENDS ? s->delivery->piece_len : 0;
}

static void start_append(struct remote *r, struct sandbox *sb)
{
	struct delivery *d = of(r);
	char *path CLEANUP_FREE = stage_path(d->s, r, sb);

	if (!path)
		return;
	d->asked = true;
	transfer_end(&d->x);
	transfer_begin(&d->x, d->s->n->thread, d->s->n, true, (int64_t)d->piece_len);
	sandbox_append(sb, &r->call, path, d->piece, d->piece_len);
}

/* A disk that is full may have taken a part. */
bool stage_append_was_refused(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case EROFS:
	case ENAMETOOLONG:
	case EINVAL:
	case EOPNOTSUPP:
	case ECONNREFUSED:
	case EHOSTUNREACH:
		return true;
	default:
		return false;
	}
}

/* It is not to be sent again. */
static void pop_piece(struct delivery *d, bool appended)
{
	struct stage *s = d->s;

	/* If somebody converted the stage meanwhile, the queue has gone into the content. */
	if (s->appending) {
		s->queue_at += d->piece_len;
		if (appended)
			s->base.size += d->piece_len;
		s->noted = 0;
		if (s->queue_at == s->queue_end) {
			spool_close(&s->queue);
			s->queue_at = s->queue_end = 0;
		}
	}
	free(STEAL(d->piece));
	d->piece_len = 0;
}

static void on_appended(struct remote *r, int err)
{
	struct delivery *d = of(r);

	if (d->s && err == 0)
		transfer_moved(&d->x, d->piece_len);
	if (is_over(d))
		return;
	if (err == 0 || (d->asked && !stage_append_was_refused(err))) {
		pop_piece(d, err == 0);
		/* It may be there or not, and is not sent again: nobody is to be told that all is
		 * well. */
		if (err < 0)
			d->s->append_error = err;
	} else {
		d->piece_len = 0;
	}
	if (!d->s->appending) {
		d->cancelled = true; /* another delivery has it all */
		finish(d, 0);
	} else if (err < 0) {
		finish(d, err);
	} else {
		send_piece(d);
	}
}

/* The next one; or they all have been sent. */
static void send_piece(struct delivery *d)
{
	struct stage *s = d->s;
	size_t len = MIN(PIECE_MAX, s->queue_end - s->queue_at);
	ssize_t n;

	if (len == 0) {
		s->sent = s->content;
		d->covers = s->changes;
		d->end = s->base.size;
		go_on(d);
		return;
	}
	d->piece = malloc(len);
	n = d->piece ? spool_read(&s->queue, d->piece, len, s->queue_at) : -ENOMEM;
	if (n != (ssize_t)len) {
		finish(d, n < 0 ? (int)n : -EIO);
		return;
	}
	d->piece_len = len;
	request(d, start_append, on_appended);
}

void stage_send_appends(struct stage *s)
{
	struct delivery *d = begin(s, APPENDS);

	if (!d)
		return;
	d->before = s->base.size;
	send_piece(d);
}

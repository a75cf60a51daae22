/*
 * Open files of sandboxes. Reading and writing themselves are done elsewhere;
 * this decides by whom, and answers. Loop thread only.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "absent.h"
#include "ahead.h"
#include "clock.h"
#include "contents.h"
#include "entry.h"
#include "log.h"
#include "notifier.h"
#include "ops.h"
#include "reader.h"
#include "stage.h"
#include "staging.h"

/* ---- handles ---- */

/* With a lease for it, which becomes the handle's. */
static struct handle *handle_new(struct node *n, int flags)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->node = node_ref(n);
	h->flags = flags;
	h->writes = (flags & O_ACCMODE) != O_RDONLY;
	DL_APPEND(n->handles, h);
	if (h->writes)
		n->writers++;
	n->thread->open_files++;
	n->fs->totals.open_files++;
	return h;
}

void file_unstage(struct node *n)
{
	struct handle *h;

	/* An unlinked one is all that its readers have. */
	if (!n->stage || !stage_is_clean(n->stage) || !n->parent || n->unborn ||
	    (n->writers > 0 && stage_is_needed(n->stage)))
		return;
	DL_FOREACH (n->handles, h) {
		if (h->reading > 0)
			return;
	}
	stage_free(n->stage);
	DL_FOREACH (n->handles, h)
		h->reader_old = true;
}

/* The stage has done its work when nobody writes any more and all is in the sandbox. */
static void drop_stage(struct node *n)
{
	if (!n->stage || n->writers > 0)
		return;
	if (n->handles)
		file_unstage(n);
	else if (stage_is_clean(n->stage))
		stage_free(n->stage);
	else
		stage_abandon(n->stage);
}

static void handle_free(struct handle *h)
{
	struct node *n = h->node;
	struct thread *t = n->thread;

	reader_free(h->reader);
	content_unref(h->content);
	DL_DELETE(n->handles, h);
	if (h->writes)
		n->writers--;
	t->open_files--;
	t->fs->totals.open_files--;
	drop_stage(n);
	thread_touch(t);
	thread_unlease(t);
	node_unref(n);
	free(h);
}

int file_stage(struct node *n, bool appends)
{
	struct handle *h;
	int r;

	if (n->stage)
		return 0;
	r = stage_new(n, appends ? STAGE_APPEND : 0, -1, &n->stage);
	if (r < 0)
		return r;
	DL_FOREACH (n->handles, h)
		h->reader_old = true;
	return 0;
}

/* ---- what serves a handle ---- */

/* The node's content, if it is here or coming, else a reader; who may have pages needs none yet. */
static int begin_reading(struct handle *h, bool has_pages)
{
	struct node *n = h->node;
	struct content *c = contents_of(n);

	/* Counted first: fetching others may make room at the cost of what nobody has. */
	if (c)
		h->content = content_ref(c);
	ahead_opened(n, c, has_pages);
	if (c) {
		content_use(c);
		h->content_end = 0;
		return 0;
	}
	if (!has_pages)
		return reader_new(n, &n->attr, &h->reader);
	h->pages = n->attr;
	h->pages_ms = clock_ms();
	return 0;
}

/* Has a reader afterwards, which knows what the content has served so far. */
static int turn_to_reader(struct handle *h)
{
	struct content *c = STEAL(h->content);
	struct node *n = h->node;
	int r = 0;

	if (h->reader_old)
		h->pages.mode = 0;
	if (!h->reader)
		h->reader_old = false;
	if (h->reader)
		;
	else if (c && c->state == CONTENT_HERE)
		r = reader_new_with(n, &c->version, c->bytes, h->content_end, h->content_ms,
				    &h->reader);
	else if (h->pages.mode)
		r = reader_new_after_pages(n, &h->pages, h->pages_ms, &h->reader);
	else
		r = reader_new(n, &n->attr, &h->reader);
	h->pages.mode = 0;
	content_unref(c);
	return r;
}

/* What the file was before it was written here goes, once nobody waits for it. */
static void drop_old_reader(struct handle *h)
{
	if (h->node->stage || !h->reader_old || h->reading > 0)
		return;
	reader_free(STEAL(h->reader));
	content_unref(STEAL(h->content));
	h->pages.mode = 0;
	h->reader_old = false;
}

/* Whether the content may still answer: the file is that version, as far as anybody knows. */
static bool content_serves(const struct handle *h, uint64_t offset)
{
	const struct node *n = h->node;
	const struct content *c = h->content;

	if (!c || c->state == CONTENT_FAILED)
		return false;
	if (!n->parent)
		return true; /* it does not change any more, for whoever has it */
	return attr_same_version(&n->attr, &c->version) &&
	       (offset < c->version.size || node_is_fresh(n));
}

/* ---- open ---- */

static int begin_writing(struct node *n, int flags)
{
	int r;

	if (!(flags & O_TRUNC) || (flags & O_ACCMODE) == O_RDONLY)
		return 0;
	n->told_size = 0;
	if (n->stage)
		return stage_truncate(n->stage, 0);
	r = stage_new(n, STAGE_EMPTY, -1, &n->stage);
	return r;
}

/*
 * Whoever makes a file and can only write it has no use for the kernel's pages: what he writes
 * comes here without being copied there first. Older kernels do not drop pages over which
 * such a one writes, so others have none meanwhile, either.
 */
static bool has_direct_writer(const struct node *n)
{
	const struct handle *h;

	DL_FOREACH (n->handles, h) {
		if (h->direct)
			return true;
	}
	return false;
}

/* The sandbox is up, the attributes are fresh. Returns 0 or an errno; the answer is given then. */
static int finish_open(struct parked *p, struct node *n, int flags)
{
	struct fuse_file_info fi = { .flags = flags };
	struct handle *h;
	int r;

	if (S_ISDIR(n->attr.mode))
		return -EISDIR;
	if (!S_ISREG(n->attr.mode))
		return -ENXIO; /* no devices, sockets or pipes through here */
	r = thread_lease(n->thread);
	if (r < 0)
		return r == -EAGAIN ? -ENOTCONN : r;
	r = begin_writing(n, flags);
	if (r < 0) {
		thread_unlease(n->thread);
		return r;
	}
	h = handle_new(n, flags);
	if (!h) {
		thread_unlease(n->thread);
		return -ENOMEM;
	}
	fi.fh = (uint64_t)(uintptr_t)h;
	fi.noflush = !h->writes;
	fi.direct_io = h->direct_reads = has_direct_writer(n);
	if (!n->stage && n->told_size != n->attr.size)
		notify_attr_now(n->fs, n->ino);
	fi.keep_cache = !n->stage && n->kept.mode && attr_same_version(&n->kept, &n->attr);
	if (!n->stage && !h->writes && n->attr.size > 0)
		r = begin_reading(h, fi.keep_cache);
	if (n->stage)
		n->kept.mode = 0;
	else
		n->kept = n->attr;
	if (r < 0) {
		handle_free(h);
		return r;
	}
	if (!parked_open(p, &fi))
		handle_free(h);
	return 0;
}

static void opened(struct trip *t, int err)
{
	struct node *n = t->node;

	if (err == -ENOENT || err == -ENOTDIR)
		err = -ESTALE; /* look the name up again */
	if (err == 0 && n->has_attr && n->attr.ino && t->attr.ino && n->attr.ino != t->attr.ino &&
	    !n->stage)
		err = -ESTALE;
	if (err == 0) {
		if (!n->stage)
			node_learn(n, &t->attr, &t->asked);
		err = finish_open(&t->parked, n, (int)t->flags);
	}
	if (err < 0)
		parked_err(&t->parked, err);
}

/* Is it up? Whoever is not in the sandbox yet asks for the thread's root. */
static void start_open(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);

	if (t->node->unborn || !t->node->parent)
		sandbox_lstat(sb, &r->call, sandbox_root(sb), &t->attr);
	else
		trip_lstat(r, sb);
}

static void reopened(struct trip *t, int err)
{
	if (err == 0)
		err = finish_open(&t->parked, t->node, (int)t->flags);
	if (err < 0)
		parked_err(&t->parked, err);
}

void sandbox_op_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	struct parked p;
	struct trip *t;
	bool local = n->stage || !n->parent;

	if (local || node_is_fresh(n)) {
		int r = tenant_try_acquire(n->thread->tenant);

		if (r == 0) {
			parked_init(&p, n->fs, req, NULL);
			r = finish_open(&p, n, fi->flags);
			if (r < 0)
				parked_err(&p, r);
			thread_touch(n->thread);
			(void)tenant_release(n->thread->tenant);
			return;
		}
	}
	t = trip_new(n->fs, req, n);
	if (!t)
		return;
	t->flags = (unsigned)fi->flags;
	trip_begin(t, start_open, local ? reopened : opened);
}

/* ---- create ---- */

static int finish_create(struct parked *p, struct node *dir, const char *name, mode_t mode,
			 int flags)
{
	struct fuse_file_info fi = { .flags = flags };
	struct fuse_entry_param e;
	struct node *n = node_child(dir, name);
	struct handle *h = NULL;
	struct attr attr = { .mode = S_IFREG | (mode & 07777), .nlink = 1 };
	bool made = false;
	int r;

	/* The kernel found no such name; what we remember is older, unless it is being written. */
	if (n && !n->stage) {
		node_detach(n);
		n = NULL;
	}
	if (n && (flags & O_EXCL))
		return -EEXIST;
	r = thread_lease(dir->thread);
	if (r < 0)
		return r == -EAGAIN ? -ENOTCONN : r;
	r = node_get_child(dir, name, &n);
	if (r < 0) {
		thread_unlease(dir->thread);
		return r;
	}
	if (!n->stage) {
		clock_gettime(CLOCK_REALTIME, &attr.mtime);
		attr.ctime = attr.mtime;
		node_set_attr(n, &attr);
		r = stage_new(n, STAGE_EMPTY | (flags & O_EXCL ? STAGE_EXCL : 0),
			      (int)(mode & 07777), &n->stage);
		made = n->unborn = r == 0;
	} else if (flags & O_TRUNC) {
		r = stage_truncate(n->stage, 0);
	}
	if (r == 0) {
		h = handle_new(n, flags);
		r = h ? 0 : -ENOMEM;
	}
	if (!h) {
		if (made) {
			stage_orphan(n->stage);
			stage_free(n->stage);
		}
		thread_unlease(dir->thread);
		node_unref(n);
		return r;
	}
	h->made = made;
	h->direct = made && (flags & O_ACCMODE) == O_WRONLY;
	fi.fh = (uint64_t)(uintptr_t)h;
	fi.direct_io = h->direct_reads = has_direct_writer(n);
	entry_fill(n, &e);
	node_looked_up(n);
	if (!parked_create(p, &e, &fi)) {
		handle_free(h);
		node_forget(n, 1);
	} else {
		absent_take(dir, name); /* it knows better now */
	}
	node_unref(n);
	return 0;
}

static void created(struct trip *t, int err)
{
	if (err == 0)
		err = finish_create(&t->parked, t->node, t->name2, t->mode, (int)t->flags);
	if (err < 0)
		parked_err(&t->parked, err);
}

/*
 * The kernel's lookup may have been answered by a listing that is a second old. Who
 * neither empties the file nor wants it to be new (>>) must not replace one that has come
 * since: -ESTALE makes the kernel look again, and open it.
 */
static void create_looked(struct trip *t, int err)
{
	if (err == 0) {
		bool hidden = S_ISLNK(t->attr.mode) && t->fs->opt->symlinks == SYMLINKS_DENY;

		entry_doubted(t->node, t->name);
		err = hidden ? -EEXIST : -ESTALE;
	} else if (err == -ENOENT) {
		err = 0;
	}
	created(t, err);
}

void sandbox_op_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode,
		       struct fuse_file_info *fi)
{
	struct node *n = node_child(dir, name);
	bool looks = !(fi->flags & (O_TRUNC | O_EXCL)) && !(n && n->stage);
	struct parked p;
	struct trip *t;

	if (!looks && tenant_try_acquire(dir->thread->tenant) == 0) {
		int r;

		parked_init(&p, dir->fs, req, NULL);
		r = finish_create(&p, dir, name, mode, fi->flags);
		if (r < 0)
			parked_err(&p, r);
		thread_touch(dir->thread);
		(void)tenant_release(dir->thread->tenant);
		return;
	}
	t = trip_new(dir->fs, req, dir);
	if (!t || !trip_name(t, &t->name2, name))
		return;
	t->mode = mode;
	t->flags = (unsigned)fi->flags;
	/* Otherwise the directory itself, to have the sandbox up. */
	if (looks && !trip_name(t, &t->name, name))
		return;
	trip_begin(t, trip_lstat, looks ? create_looked : created);
}

/* ---- read ---- */

enum { NOTICE_MS = 5 /* so long a notification may be on its way */ };

struct reading {
	struct parked parked;
	struct read_op op;
	struct handle *handle;
	bool direct; /* past the kernel's pages */
	int64_t asked_ms;
	enum { OF_STAGE, OF_CONTENT, OF_READER } asked;
	struct content *content; /* counted, if asked */
};

static void ask_reader(struct reading *rd)
{
	struct handle *h = rd->handle;
	int r = turn_to_reader(h);

	rd->asked = OF_READER;
	if (r == 0) {
		reader_read(h->reader, &rd->op);
		return;
	}
	h->reading--;
	parked_err(&rd->parked, r);
	free(rd);
}

static uint64_t answer_end(const struct reading *rd, const struct iovec *iov, int count)
{
	uint64_t end = rd->op.offset;

	for (int i = 0; i < count; i++)
		end += iov[i].iov_len;
	return end;
}

/*
 * It must not be sure of an end that the file has grown beyond. But of an answer that ends before
 * that, as it is of the version before, it must believe the end.
 */
static void tell_if_longer(const struct reading *rd, uint64_t end)
{
	struct node *n = rd->handle->node;

	if (n->has_attr && n->attr.size > n->told_size &&
	    (end >= n->attr.size || end == rd->op.offset + rd->op.size))
		notify_attr_now(n->fs, n->ino);
}

/* What was refused is asked for again, perhaps in smaller pieces: that is not to be read ahead. */
static bool is_second(struct node *n, const struct read_op *op)
{
	bool second = op->offset >= n->refused_from && op->offset < n->refused_to;

	n->refused_from = second ? 0 : op->offset;
	n->refused_to = second ? 0 : op->offset + op->size;
	return second;
}

/*
 * The kernel takes a short answer for the file's end, and zeros for what it thought there was
 * behind; but if it was told of a change since it asked it does not believe the end, only the
 * zeros. So if it asked in the belief that the file is longer it is refused: what it asked for
 * was to be read ahead, and it asks again page by page. If it was told something since then, or
 * just before, even that is refused, and whoever reads gets the error.
 */
static bool is_misled(struct reading *rd, uint64_t end)
{
	struct node *n = rd->handle->node;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t asked = rd->op.offset + rd->op.size, believed;

	if (rd->asked == OF_STAGE || rd->direct || end >= asked)
		return false;
	/* It asks for whole pages, and not for those behind the one with the end. */
	believed = MAX(MIN(asked, n->told_size), asked - MIN(asked, page - 1));
	if (end >= believed)
		return false;
	if ((rd->op.size > page && !is_second(n, &rd->op)) ||
	    n->noticed_ms + NOTICE_MS > rd->asked_ms)
		return true;
	n->told_size = end;
	return false;
}

static void read_done(struct read_op *op, int err, const struct iovec *iov, int count)
{
	struct reading *rd = CONTAINER_OF(op, struct reading, op);
	struct fs *fs = rd->parked.fs;
	uint64_t end = answer_end(rd, iov, count);

	content_unref(STEAL(rd->content));
	if (rd->asked == OF_CONTENT && err == -EAGAIN) {
		ask_reader(rd);
		return;
	}
	if (rd->asked == OF_CONTENT && count > 0) {
		rd->handle->content_end = MAX(rd->handle->content_end, end);
		rd->handle->content_ms = clock_ms();
	}
	rd->handle->reading--;
	if (err == -ESTALE) {
		/* Pages of the old version are not for the next one who opens it. */
		rd->handle->node->kept.mode = 0;
		node_void_attr(rd->handle->node);
	}
	if (err == 0 && is_misled(rd, end))
		err = -ESTALE;
	else if (err == 0 && rd->asked != OF_STAGE)
		tell_if_longer(rd, end);
	if (err < 0) {
		parked_err(&rd->parked, err);
	} else {
		fs->totals.bytes_read += end - rd->op.offset;
		parked_iov(&rd->parked, iov, count);
	}
	free(rd);
}

static void read_interrupted(struct parked *p)
{
	struct reading *rd = CONTAINER_OF(p, struct reading, parked);
	struct handle *h = rd->handle;

	if (rd->asked == OF_STAGE)
		stage_cancel(h->node->stage, &rd->op);
	else if (rd->asked == OF_CONTENT)
		content_cancel(rd->content, &rd->op);
	else
		reader_cancel(h->reader, &rd->op);
	content_unref(rd->content);
	h->reading--;
	parked_err(p, -EINTR);
	free(rd);
}

void sandbox_op_read(fuse_req_t req, struct handle *h, size_t size, uint64_t offset, bool direct)
{
	struct node *n = h->node;
	struct reading *rd = calloc(1, sizeof(*rd));

	if (!rd) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	rd->handle = h;
	rd->direct = direct || h->direct_reads;
	rd->asked_ms = clock_ms();
	rd->op = (struct read_op){ .offset = offset, .size = size, .done = read_done };
	parked_init(&rd->parked, n->fs, req, read_interrupted);
	drop_old_reader(h);
	h->reading++;
	if (n->stage) {
		rd->asked = OF_STAGE;
		stage_read(n->stage, &rd->op);
	} else if (content_serves(h, offset)) {
		rd->asked = OF_CONTENT;
		rd->content = content_ref(h->content);
		content_read(rd->content, &rd->op);
	} else {
		ask_reader(rd);
	}
}

/* ---- write ---- */

void sandbox_op_write(fuse_req_t req, struct handle *h, const char *bytes, size_t len,
		      uint64_t offset, bool append)
{
	struct node *n = h->node;
	struct parked p;
	int r;

	parked_init(&p, n->fs, req, NULL);
	r = h->writes ? file_stage(n, append) : -EBADF;
	if (r == 0)
		r = stage_write(n->stage, offset, bytes, len, append);
	if (r < 0) {
		parked_err(&p, r);
		return;
	}
	n->told_size = MAX(n->told_size, stage_size(n->stage));
	n->fs->totals.bytes_written += len;
	parked_write(&p, len);
}

void sandbox_op_fallocate(fuse_req_t req, struct handle *h, int mode, uint64_t offset, uint64_t len)
{
	struct node *n = h->node;
	struct parked p;
	int r;

	parked_init(&p, n->fs, req, NULL);
	if (mode & ~FALLOC_FL_KEEP_SIZE)
		r = -EOPNOTSUPP;
	else
		r = h->writes ? file_stage(n, false) : -EBADF;
	/* Whether there is room is known when it is uploaded. */
	if (r == 0 && !(mode & FALLOC_FL_KEEP_SIZE) && offset + len > stage_size(n->stage))
		r = stage_truncate(n->stage, offset + len);
	parked_err(&p, r);
}

/* ---- flush: close(2) and fsync(2) ---- */

struct flushing {
	struct parked parked;
	struct flush_op op;
	struct node *node; /* counted */
};

static void flush_end(struct flushing *f, int err)
{
	struct node *n = f->node;

	parked_err(&f->parked, err);
	free(f);
	drop_stage(n);
	node_unref(n);
}

static void flush_done(struct flush_op *op, int err)
{
	flush_end(CONTAINER_OF(op, struct flushing, op), err);
}

static void flush_interrupted(struct parked *p)
{
	struct flushing *f = CONTAINER_OF(p, struct flushing, parked);

	if (f->node->stage)
		stage_flush_cancel(f->node->stage, &f->op);
	flush_end(f, -EINTR);
}

void sandbox_op_flush(fuse_req_t req, struct handle *h)
{
	struct node *n = h->node;
	struct flushing *f;

	if ((!h->writes && !h->made) || !n->stage) {
		struct parked p;

		parked_init(&p, n->fs, req, NULL);
		parked_err(&p, 0);
		return;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	f->node = node_ref(n);
	f->op.done = flush_done;
	parked_init(&f->parked, n->fs, req, flush_interrupted);
	stage_flush(n->stage, &f->op);
}

void sandbox_op_release(fuse_req_t req, struct handle *h)
{
	struct parked p;

	/* The kernel has answered or given up all of its reads. */
	parked_init(&p, h->node->fs, req, NULL);
	handle_free(h);
	parked_err(&p, 0);
}

/* ---- before a name goes or changes ---- */

struct keeping {
	unsigned waits;
	struct node *node; /* counted */
	void (*done)(void *ctx);
	void *ctx;
};

static void kept(void *ctx, int err)
{
	struct keeping *k = ctx;

	if (err < 0)
		thread_warn(k->node->thread,
			    "a file that is open was removed and cannot be read on: %s",
			    strerrordesc_np(-err) ?: "error");
	if (--k->waits > 0)
		return;
	k->done(k->ctx);
	node_unref(k->node);
	free(k);
}

void file_keep(struct node *n, void (*done)(void *ctx), void *ctx)
{
	struct keeping *k;
	struct handle *h;
	bool staged = n->stage;

	if (!n->handles) {
		done(ctx);
		return;
	}
	k = calloc(1, sizeof(*k));
	if (!k) {
		done(ctx);
		return;
	}
	*k = (struct keeping){ .waits = 1, .node = node_ref(n), .done = done, .ctx = ctx };
	/* Who may still write needs all of it in a stage: there is no base to be had later. */
	if (n->stage || (n->writers > 0 && file_stage(n, false) == 0)) {
		k->waits++;
		stage_keep(n->stage, kept, k);
	}
	DL_FOREACH (n->handles, h) {
		if (staged || (n->stage && (!h->reader || h->reading == 0)))
			continue;
		drop_old_reader(h);
		if (!n->stage && turn_to_reader(h) < 0)
			continue;
		k->waits++;
		reader_keep(h->reader, kept, k);
	}
	kept(k, 0);
}

void file_suspect(struct handle *h)
{
	if (h->content && h->content->state == CONTENT_COMING)
		content_unref(STEAL(h->content));
	/* The reader knows what to do about it. */
	if (h->content && turn_to_reader(h) < 0)
		h->reader_old = true;
	if (h->reader && !h->reader_old)
		reader_suspect(h->reader);
}

void file_gone(struct node *n)
{
	node_ref(n);
	if (n->stage)
		stage_orphan(n->stage);
	n->unborn = false;
	node_detach(n);
	drop_stage(n);
	node_unref(n);
}

struct settling {
	unsigned waits;
	int err;
	struct flush_op flush;
	struct node *node; /* counted */
	struct trip *trip;
	void (*done)(struct trip *t, int err);
};

static void settle_one(struct settling *s, int err)
{
	if (err < 0)
		s->err = err;
	if (--s->waits > 0)
		return;
	s->done(s->trip, s->err);
	node_unref(s->node);
	free(s);
}

static void settled(void *ctx)
{
	settle_one(ctx, 0);
}

/* Its stage is held until the trip is over, wherever the node is by then. */
static void hold(struct settling *s, struct node *n)
{
	struct trip *t = s->trip;
	struct node **more;

	if (!n->stage)
		return;
	more = reallocarray(t->held, t->held_count + 1, sizeof(struct node *));
	if (!more) {
		s->err = -ENOMEM;
		return;
	}
	t->held = more;
	t->held[t->held_count++] = node_ref(n);
	s->waits++;
	stage_settle(n->stage, settled, s);
}

static void born(struct flush_op *op, int err)
{
	struct settling *s = CONTAINER_OF(op, struct settling, flush);

	hold(s, s->node); /* what is written from now on has to wait, too */
	settle_one(s, err);
}

static void hold_below(struct settling *s, struct node *n)
{
	struct node *child, *next;

	hold(s, n);
	HASH_ITER (by_name, n->children, child, next)
		hold_below(s, child);
}

void file_settle(struct trip *t, struct node *n, bool be_born,
		 void (*done)(struct trip *t, int err))
{
	struct settling *s = calloc(1, sizeof(*s));

	if (!s) {
		done(t, -ENOMEM);
		return;
	}
	*s = (struct settling){
		.waits = 1, .flush.done = born, .node = node_ref(n), .trip = t, .done = done
	};
	if (be_born && n->stage && n->unborn) {
		s->waits++;
		stage_flush(n->stage, &s->flush);
	} else {
		hold_below(s, n);
	}
	settle_one(s, 0);
}

unsigned file_unfinished(struct fs *fs)
{
	struct node *n, *next;
	unsigned count = 0;

	HASH_ITER (by_ino, fs->nodes, n, next) {
		if (n->stage && !stage_is_clean(n->stage))
			count++;
	}
	return count;
}

int file_end(struct node *n)
{
	int r = n->stage ? staging_shelve(n->stage) : 0;
	struct handle *h, *next;

	if (n->stage)
		stage_orphan(n->stage);
	DL_FOREACH_SAFE (n->handles, h, next)
		handle_free(h);
	if (n->stage)
		stage_free(n->stage);
	return r;
}

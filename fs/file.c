/*
 * Open files of sandboxes: opening, writing, closing. The bytes are kept elsewhere;
 * this decides by whom, and answers. Loop thread only.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <utlist.h>

#include "absent.h"
#include "clock.h"
#include "contents.h"
#include "entry.h"
#include "log.h"
#include "notifier.h"
#include "ops.h"
#include "reader.h"
#include "salvage.h"
#include "stage.h"
#include "staging.h"

enum { LEASE_TRIES = 5 };

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
	h->wrote = h->writes && (flags & O_TRUNC);
	h->opened_ms = clock_ms();
	DL_APPEND(n->handles, h);
	if (h->writes)
		n->writers++;
	n->thread->open_files++;
	n->fs->totals.open_files++;
	return h;
}

static bool is_being_read(const struct node *n)
{
	const struct handle *h;

	DL_FOREACH (n->handles, h) {
		if (h->reading > 0)
			return true;
	}
	return false;
}

static void turn_readers(struct node *n)
{
	struct handle *h;

	DL_FOREACH (n->handles, h)
		h->reader_old = true;
}

bool file_let_stage_go(struct node *n)
{
	/* One that is nowhere else is all that its readers have. */
	if (n->writers > 0 || is_being_read(n) || (n->handles && (n->unborn || !n->parent)))
		return false;
	turn_readers(n);
	return true;
}

void file_unstage(struct node *n)
{
	/* An unlinked one is all that its readers have. */
	if (!n->stage || !stage_is_clean(n->stage) || !n->parent || n->unborn ||
	    (n->writers > 0 && stage_is_needed(n->stage)) || is_being_read(n))
		return;
	stage_free(n->stage);
	turn_readers(n);
}

/* The stage has done its work when nobody writes any more and all is in the sandbox; what failed is
 * not for its readers to keep. */
static void drop_stage(struct node *n)
{
	if (!n->stage || n->writers > 0)
		return;
	if (n->handles)
		file_unstage(n);
	if (!n->stage || (n->handles && (stage_is_clean(n->stage) || !stage_failure(n->stage))))
		return;
	if (stage_is_clean(n->stage))
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
	int r;

	if (n->stage)
		return 0;
	r = stage_new(n, appends ? STAGE_APPEND : 0, -1, &n->stage);
	if (r < 0)
		return r;
	turn_readers(n);
	return 0;
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

/*
 * The sandbox is up and leased (which this takes over), the attributes are fresh. Returns 0, and
 * the answer is given, or an errno.
 */
static int finish_open(struct parked *p, struct node *n, int flags)
{
	struct fuse_file_info fi = { .flags = flags };
	struct handle *h = NULL;
	int r = 0;

	if (S_ISDIR(n->attr.mode))
		r = -EISDIR;
	else if (!S_ISREG(n->attr.mode))
		r = -ENXIO; /* no devices, sockets or pipes through here */
	else
		r = begin_writing(n, flags);
	if (r == 0 && !(h = handle_new(n, flags)))
		r = -ENOMEM;
	if (!h) {
		thread_unlease(n->thread);
		return r;
	}
	fi.fh = (uint64_t)(uintptr_t)h;
	fi.noflush = !h->writes;
	fi.direct_io = h->direct_reads = has_direct_writer(n);
	if (!n->stage && n->told_size != n->attr.size)
		notify_attr_now(n->fs, n->ino);
	fi.keep_cache = !n->stage && n->kept.mode && attr_same_version(&n->kept, &n->attr);
	if (!n->stage && !h->writes && n->attr.size > 0)
		r = file_begin_reading(h, fi.keep_cache);
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

/*
 * Leases what an operation has found to be up. -EAGAIN: the sandbox has died since, and the
 * operation is to be done once more.
 */
static int lease_after(struct trip *t)
{
	int r = thread_lease(t->node->thread);

	return r == -EAGAIN && (t->interrupted || ++t->looks == LEASE_TRIES) ? -ENOTCONN : r;
}

static void start_open(struct remote *r, struct sandbox *sb);

static void finish_opening(struct trip *t, void (*again)(struct trip *t, int err))
{
	int r = lease_after(t);

	if (r == -EAGAIN) {
		trip_begin(t, start_open, again);
		return;
	}
	if (r == 0)
		r = finish_open(&t->parked, t->node, (int)t->flags);
	if (r < 0)
		parked_err(&t->parked, r);
}

static void opened(struct trip *t, int err)
{
	struct node *n = t->node;

	if (err == -ENOENT || err == -ENOTDIR)
		err = -ESTALE; /* look the name up again */
	if (err == 0 && n->has_attr && n->attr.ino && t->attr.ino && n->attr.ino != t->attr.ino &&
	    !n->stage)
		err = -ESTALE;
	if (err < 0) {
		parked_err(&t->parked, err);
		return;
	}
	if (!n->stage)
		node_learn(n, &t->attr, &t->asked);
	finish_opening(t, opened);
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

/* It had a stage, or no name. */
static void reopened(struct trip *t, int err)
{
	const struct node *n = t->node;

	if (err == 0 && !n->stage && n->unborn)
		err = -ESTALE; /* that was given up meanwhile: look the name up again */
	if (err < 0)
		parked_err(&t->parked, err);
	else if (!n->stage && n->parent)
		opened(t, 0);
	else
		finish_opening(t, reopened);
}

void sandbox_op_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	struct parked p;
	struct trip *t;
	bool local = n->stage || !n->parent;

	if ((local || node_is_fresh(n)) && thread_lease(n->thread) == 0) {
		int r;

		thread_touch(n->thread);
		parked_init(&p, n->fs, req, NULL);
		r = finish_open(&p, n, fi->flags);
		if (r < 0)
			parked_err(&p, r);
		return;
	}
	t = trip_new(n->fs, req, n);
	if (!t)
		return;
	t->flags = (unsigned)fi->flags;
	trip_begin(t, start_open, local ? reopened : opened);
}

/* ---- create ---- */

/* As finish_open(). */
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
	r = n && (flags & O_EXCL) ? -EEXIST : node_get_child(dir, name, &n);
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

static void create_looked(struct trip *t, int err);

static void created(struct trip *t, int err)
{
	int r = err ?: lease_after(t);

	if (err == 0 && r == -EAGAIN) {
		trip_begin(t, trip_lstat, t->name ? create_looked : created);
		return;
	}
	if (r == 0)
		r = finish_create(&t->parked, t->node, t->name2, t->mode, (int)t->flags);
	if (r < 0)
		parked_err(&t->parked, r);
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

	if (!looks && thread_lease(dir->thread) == 0) {
		int r;

		thread_touch(dir->thread);
		parked_init(&p, dir->fs, req, NULL);
		r = finish_create(&p, dir, name, mode, fi->flags);
		if (r < 0)
			parked_err(&p, r);
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
	h->wrote = true;
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
	h->wrote |= r == 0;
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

void sandbox_op_flush(fuse_req_t req, struct handle *h, bool others)
{
	struct node *n = h->node;
	struct flushing *f;
	bool waits = n->stage && (h->writes || h->made || others);
	int err = 0;

	/* What failed is not tried again for somebody who has written nothing: others may have
	 * written since, see hand_over() in stage_flush.c. Who had it open then is told. */
	if (waits && !h->wrote && !h->made && !others && stage_failure(n->stage)) {
		waits = false;
		if (stage_failed_since(n->stage, h->opened_ms))
			err = stage_failure(n->stage);
	}
	if (!waits) {
		struct parked p;

		parked_init(&p, n->fs, req, NULL);
		parked_err(&p, err);
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
		if (!n->stage && file_turn_to_reader(h) < 0)
			continue;
		k->waits++;
		reader_keep(h->reader, kept, k);
	}
	kept(k, 0);
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
	return count + salvage_unfinished(fs);
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

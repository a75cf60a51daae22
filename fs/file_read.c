/*
 * Reading open files of sandboxes: who answers (what is being written here, the content that is
 * here or coming, or a reader), and what the kernel makes of the answer. Loop thread only.
 */
#include "file.h"

#include <errno.h>
#include <unistd.h>

#include "ahead.h"
#include "clock.h"
#include "contents.h"
#include "notifier.h"
#include "ops.h"
#include "parked.h"
#include "reader.h"
#include "stage.h"
#include "thread.h"

/* ---- what serves a handle ---- */

int file_begin_reading(struct handle *h, bool has_pages)
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

int file_turn_to_reader(struct handle *h)
{
	drop_old_reader(h);
	return turn_to_reader(h);
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
 * that, as it is of the version before, it must believe the end. False: it cannot be told now, and
 * would show as much of this version as the one before had.
 */
static bool tell_if_longer(const struct reading *rd, uint64_t end)
{
	struct node *n = rd->handle->node;

	if (n->untold || (n->has_attr && n->attr.size > n->told_size &&
			  (end >= n->attr.size || end == rd->op.offset + rd->op.size)))
		n->untold = !notify_attr_now(n->fs, n->ino);
	return !n->untold;
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

static void note_short(struct reading *rd, uint64_t end)
{
	struct node *n = rd->handle->node;

	if (rd->asked == OF_STAGE || rd->direct || n->stage || end >= rd->op.offset + rd->op.size)
		return;
	n->short_end = end;
	n->short_ms = clock_ms();
	n->short_epoch = n->thread->epoch;
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
	else if (err == 0 && rd->asked != OF_STAGE && !tell_if_longer(rd, end))
		err = -ESTALE;
	if (err < 0) {
		parked_err(&rd->parked, err);
	} else {
		note_short(rd, end);
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

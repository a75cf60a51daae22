/*
 * .ctl/events of a thread: one JSON line per change in its sandbox, as the thread's
 * watch tells it (coherence.h). Each reader has a bounded queue of his own, and a lease: he wants
 * the sandbox to be there. Loop thread only.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <utlist.h>

#include "answer.h"
#include "clock.h"
#include "coherence.h"
#include "ctl.h"
#include "jsonw.h"
#include "remote.h"

enum {
	QUEUE_LINES = 10000,
	QUEUE_BYTES = 4 * 1024 * 1024,
	READ_MAX = 1024 * 1024,
};

struct event_read {
	struct parked parked;
	struct event_reader *reader;
	size_t size;
	struct event_read *prev, *next;
};

struct event_reader {
	struct thread *thread; /* the open file's, or counted by remote */
	struct remote remote;  /* has a sandbox started for it */
	struct sandbox_info info;
	struct watcher watcher; /* then */
	bool leased;            /* meanwhile */
	bool closed;            /* nobody reads: it goes when remote is done */
	bool ended;             /* nothing more will come */
	int end;                /* then: 0 or why */
	struct buf queue;
	unsigned lines;
	bool overflowed; /* and nothing was added since */
	struct event_read *reads;
	struct fuse_pollhandle *ph;
};

/* ---- readers ---- */

static bool is_readable(const struct event_reader *r)
{
	return r->queue.len > 0 || r->ended;
}

static void read_done(struct event_reader *r, struct event_read *op, const void *bytes, ssize_t n)
{
	DL_DELETE(r->reads, op);
	if (n < 0)
		parked_err(&op->parked, (int)n);
	else
		parked_buf(&op->parked, bytes, (size_t)n);
	free(op);
}

/* Whole lines if one fits. */
static size_t piece(const struct event_reader *r, size_t size)
{
	const char *end;

	if (size >= r->queue.len)
		return r->queue.len;
	end = memrchr(r->queue.data, '\n', size);
	return end ? (size_t)(end - r->queue.data) + 1 : size;
}

static void serve(struct event_reader *r)
{
	while (r->reads && is_readable(r)) {
		size_t n = piece(r, r->reads->size);
		char *bytes CLEANUP_FREE = n > 0 ? malloc(n) : NULL;

		if (n == 0 || !bytes) {
			read_done(r, r->reads, "", n > 0 ? -ENOMEM : r->end);
			continue;
		}
		memcpy(bytes, r->queue.data, n);
		for (size_t i = 0; i < n; i++)
			r->lines -= bytes[i] == '\n';
		buf_consume(&r->queue, n);
		if (r->lines == 0)
			r->overflowed = false;
		read_done(r, r->reads, bytes, (ssize_t)n);
	}
	if (r->ph && is_readable(r)) {
		fuse_lowlevel_notify_poll(r->ph);
		fuse_pollhandle_destroy(STEAL(r->ph));
	}
}

/* Line by line, so that one is there as a whole or not at all. */
static void put_line(struct event_reader *r, const char *line, size_t len)
{
	static const char overflow[] = "{\"type\":\"overflow\"}\n";

	if (r->overflowed)
		return;
	if (!line || r->lines >= QUEUE_LINES || r->queue.len + len > QUEUE_BYTES) {
		buf_puts(&r->queue, overflow);
		r->overflowed = true;
	} else {
		buf_append(&r->queue, line, len);
	}
	r->lines++;
}

/* NULL: some were missed. */
static void tell(struct event_reader *r, const char *line, size_t len)
{
	put_line(r, line, len);
	/* What was missed was missed before what comes now: go on with that. */
	if (!line && r->lines < QUEUE_LINES)
		r->overflowed = false;
	serve(r);
}

/* ---- the watch ---- */

static struct event_reader *of(struct watcher *w)
{
	return CONTAINER_OF(w, struct event_reader, watcher);
}

static const char *type_name(enum watch_type type)
{
	static const char *const names[] = {
		[WATCH_CREATE] = "create", [WATCH_WRITE] = "write", [WATCH_REMOVE] = "remove",
		[WATCH_RENAME] = "rename", [WATCH_CHMOD] = "chmod",
	};

	return names[type];
}

static void on_event(struct watcher *watcher, const struct watch_event *ev)
{
	struct buf line CLEANUP_BUF = BUF_INIT(64 * KIB);
	struct jw w;

	jw_init(&w, &line);
	jw_obj(&w);
	jw_kstr(&w, "type", type_name(ev->type));
	jw_kstr(&w, "path", ev->relative);
	if (ev->old_path)
		jw_kstr(&w, "old_path", ev->old_path);
	jw_kbool(&w, "is_dir", ev->is_dir);
	if (ev->size >= 0)
		jw_kint(&w, "size", ev->size);
	jw_knum(&w, "time", clock_wall());
	jw_obj_end(&w);
	buf_putc(&line, '\n');
	tell(of(watcher), line.error ? NULL : line.data, line.len);
}

static void on_lost(struct watcher *w)
{
	tell(of(w), NULL, 0);
}

/* The sandbox went away (the end of the file), or there was never a watch (why). */
static void on_ended(struct watcher *w, int err)
{
	struct event_reader *r = of(w);

	r->ended = true;
	r->end = err;
	if (r->leased)
		thread_unlease(r->thread);
	r->leased = false;
	serve(r);
}

/* ---- having one ---- */

static void start(struct remote *remote, struct sandbox *sb)
{
	struct event_reader *r = CONTAINER_OF(remote, struct event_reader, remote);

	sandbox_context(sb, &remote->call, &r->info);
}

static void free_reader(struct event_reader *r)
{
	if (r->ph)
		fuse_pollhandle_destroy(r->ph);
	buf_release(&r->queue);
	free(r);
}

static void on_started(struct remote *remote, int err)
{
	struct event_reader *r = CONTAINER_OF(remote, struct event_reader, remote);

	if (err == 0)
		sandbox_info_release(&r->info);
	if (r->closed) {
		free_reader(r);
		return;
	}
	if (err == 0)
		err = thread_lease(r->thread);
	r->leased = err == 0;
	if (err == 0)
		err = coherence_subscribe(r->thread, &r->watcher);
	if (err < 0)
		on_ended(&r->watcher, err);
}

/* ---- the file ---- */

static int open_events(struct ctl_open *o)
{
	struct event_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->thread = o->thread;
	r->queue = BUF_INIT(QUEUE_BYTES + KIB);
	r->watcher = (struct watcher){ .event = on_event, .lost = on_lost, .ended = on_ended };
	o->priv = r;
	remote_begin(&r->remote, o->thread, start, on_started);
	return 0;
}

static void on_interrupted(struct parked *p)
{
	struct event_read *op = CONTAINER_OF(p, struct event_read, parked);

	read_done(op->reader, op, NULL, -EINTR);
}

static void read_events(struct ctl_open *o, fuse_req_t req, size_t size, uint64_t offset UNUSED)
{
	struct event_reader *r = o->priv;
	struct event_read *op;

	if (!is_readable(r) && (o->flags & O_NONBLOCK)) {
		answer_err(o->fs, req, -EAGAIN);
		return;
	}
	op = calloc(1, sizeof(*op));
	if (!op) {
		answer_err(o->fs, req, -ENOMEM);
		return;
	}
	op->reader = r;
	op->size = MIN(size, READ_MAX);
	parked_init(&op->parked, o->fs, req, on_interrupted);
	op->parked.as_pipe = true;
	DL_APPEND(r->reads, op);
	serve(r);
}

static void poll_events(struct ctl_open *o, fuse_req_t req, struct fuse_pollhandle *ph)
{
	struct event_reader *r = o->priv;

	if (ph) {
		if (r->ph)
			fuse_pollhandle_destroy(r->ph);
		r->ph = ph;
	}
	answer_poll(o->fs, req, is_readable(r) ? POLLIN | POLLRDNORM : 0);
}

static void release_events(struct ctl_open *o)
{
	struct event_reader *r = STEAL(o->priv);

	if (remote_is_busy(&r->remote)) {
		r->closed = true;
		remote_cancel(&r->remote);
		return;
	}
	coherence_unsubscribe(r->thread, &r->watcher);
	if (r->leased)
		thread_unlease(r->thread);
	free_reader(r);
}

const struct ctl_file ctl_events = {
	.name = "events",
	.mode = 0400,
	.open = open_events,
	.read = read_events,
	.poll = poll_events,
	.release = release_events,
};

/*
 * .ctl/events of a thread: one JSON line per change in its sandbox. One watch
 * per thread serves all readers, as long as there is one; each has a bounded queue
 * of his own. Loop thread only.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <utlist.h>

#include "answer.h"
#include "clock.h"
#include "ctl.h"
#include "jobs.h"
#include "jsonw.h"
#include "remote.h"

enum {
	QUEUE_LINES = 10000,
	READ_MAX = 1024 * 1024,
};

struct event_read {
	struct parked parked;
	struct event_reader *reader;
	size_t size;
	struct event_read *prev, *next;
};

struct event_reader {
	struct ctl_open *open;
	struct events *events; /* NULL: it has ended */
	int end;               /* then: 0 or why */
	struct buf queue;
	unsigned lines;
	bool overflowed; /* and nothing was added since */
	struct event_read *reads;
	struct fuse_pollhandle *ph;
	struct event_reader *prev, *next;
};

struct events {
	struct remote remote;
	const char *root; /* of the sandbox that is watched */
	struct event_reader *readers;
	bool live; /* once */
};

/* ---- readers ---- */

static bool is_readable(const struct event_reader *r)
{
	return r->queue.len > 0 || !r->events;
}

static void read_done(struct event_read *op, const void *bytes, ssize_t n)
{
	DL_DELETE(op->reader->reads, op);
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
			read_done(r->reads, "", n > 0 ? -ENOMEM : r->end);
			continue;
		}
		memcpy(bytes, r->queue.data, n);
		for (size_t i = 0; i < n; i++)
			r->lines -= bytes[i] == '\n';
		buf_consume(&r->queue, n);
		if (r->lines == 0)
			r->overflowed = false;
		read_done(r->reads, bytes, (ssize_t)n);
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
	if (!line || r->lines >= QUEUE_LINES || buf_reserve(&r->queue, len) < 0) {
		buf_puts(&r->queue, overflow);
		r->overflowed = true;
	} else {
		buf_append(&r->queue, line, len);
	}
	r->lines++;
}

/* NULL: some were missed. */
static void tell(struct events *e, const char *line, size_t len)
{
	struct event_reader *r, *next;

	DL_FOREACH_SAFE (e->readers, r, next) {
		put_line(r, line, len);
		/* What was missed was missed before what comes now: go on with that. */
		if (!line && r->lines < QUEUE_LINES)
			r->overflowed = false;
		serve(r);
	}
}

/* ---- the watch ---- */

static const char *type_name(enum watch_type type)
{
	static const char *const names[] = {
		[WATCH_CREATE] = "create", [WATCH_WRITE] = "write", [WATCH_REMOVE] = "remove",
		[WATCH_RENAME] = "rename", [WATCH_CHMOD] = "chmod",
	};

	return names[type];
}

/* A path of the sandbox as it is below the root; NULL: it is elsewhere. */
static const char *below(const char *root, const char *path)
{
	size_t n = strlen(root);

	if (n == 1) /* "/" */
		return path + 1;
	return strncmp(path, root, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static void on_event(void *ctx, const struct watch_event *ev)
{
	struct events *e = ctx;
	struct buf line CLEANUP_BUF = BUF_INIT(64 * KIB);
	const char *old = NULL;
	struct jw w;

	if (ev->old_path)
		old = below(e->root, ev->old_path);
	jw_init(&w, &line);
	jw_obj(&w);
	jw_kstr(&w, "type", type_name(ev->type));
	jw_kstr(&w, "path", ev->relative);
	if (old)
		jw_kstr(&w, "old_path", old);
	jw_kbool(&w, "is_dir", ev->is_dir);
	if (ev->size >= 0)
		jw_kint(&w, "size", ev->size);
	jw_knum(&w, "time", clock_wall());
	jw_obj_end(&w);
	buf_putc(&line, '\n');
	tell(e, line.error ? NULL : line.data, line.len);
}

static void on_live(void *ctx)
{
	((struct events *)ctx)->live = true;
}

static void on_lost(void *ctx, int err UNUSED)
{
	struct events *e = ctx;

	if (e->live)
		tell(e, NULL, 0);
}

static void start(struct remote *r, struct sandbox *sb)
{
	struct events *e = CONTAINER_OF(r, struct events, remote);

	e->root = sandbox_root(sb);
	sandbox_watch(
		sb, &r->call, e->root,
		&(struct watch){ .live = on_live, .lost = on_lost, .event = on_event, .ctx = e });
}

/* The sandbox went away (the end of the file), or there was never a watch (why). */
static void on_ended(struct remote *r, int err)
{
	struct events *e = CONTAINER_OF(r, struct events, remote);
	struct events **place = jobs_events(r->thread);
	struct event_reader *reader, *next;

	if (place && *place == e)
		*place = NULL;
	DL_FOREACH_SAFE (e->readers, reader, next) {
		DL_DELETE(e->readers, reader);
		reader->events = NULL;
		reader->end = e->live ? 0 : err;
		serve(reader);
	}
	free(e);
}

/* ---- the file ---- */

static int open_events(struct ctl_open *o)
{
	struct event_reader *r = calloc(1, sizeof(*r));
	struct events **place = jobs_events(o->thread);

	if (!r || !place) {
		free(r);
		return -ENOMEM;
	}
	if (!*place) {
		*place = calloc(1, sizeof(**place));
		if (!*place) {
			free(r);
			return -ENOMEM;
		}
		(*place)->remote = (struct remote){ .timeout_ms = -1, .once = true };
		remote_begin(&(*place)->remote, o->thread, start, on_ended);
	}
	r->open = o;
	r->queue = BUF_INIT(QUEUE_LINES * 16 * KIB);
	r->events = *place;
	DL_APPEND(r->events->readers, r);
	o->priv = r;
	return 0;
}

static void on_interrupted(struct parked *p)
{
	read_done(CONTAINER_OF(p, struct event_read, parked), NULL, -EINTR);
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
	struct events *e = r->events;
	struct events **place = jobs_events(o->thread);

	if (e) {
		DL_DELETE(e->readers, r);
		/* The last one turns it off; the next one begins anew. */
		if (!e->readers) {
			if (place && *place == e)
				*place = NULL;
			remote_cancel(&e->remote);
		}
	}
	if (r->ph)
		fuse_pollhandle_destroy(r->ph);
	buf_release(&r->queue);
	free(r);
}

const struct ctl_file ctl_events = {
	.name = "events",
	.mode = 0400,
	.open = open_events,
	.read = read_events,
	.poll = poll_events,
	.release = release_events,
};

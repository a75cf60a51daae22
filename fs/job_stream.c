/*
 * Reading the output of a command through the mount. Between jobs.h and FUSE;
 * knows nothing of sandboxes. Loop thread only.
 */
#include "job_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "answer.h"

enum { READ_MAX = 1024 * 1024 };

/* ---- poll ---- */

static void stop_polling(struct job_stream_file *s)
{
	command_wait_end(&s->wait);
	if (s->ph)
		fuse_pollhandle_destroy(STEAL(s->ph));
}

static bool is_readable(const struct job_stream_file *s)
{
	return s->failed || !s->command || command_is_readable(s->command, s->which, s->at);
}

static void on_pollable(struct job_wait *w, int err)
{
	struct job_stream_file *s = CONTAINER_OF(w, struct job_stream_file, wait);

	/* An error is for a read to tell, which has to get it at once. */
	s->failed = err;
	if (!is_readable(s))
		return;
	fuse_lowlevel_notify_poll(s->ph);
	stop_polling(s);
}

void job_stream_poll(struct job_stream_file *s, fuse_req_t req, struct fuse_pollhandle *ph,
		     unsigned more)
{
	if (ph) {
		stop_polling(s);
		s->ph = ph;
	}
	if (is_readable(s)) {
		more |= POLLIN | POLLRDNORM;
	} else if (s->ph && !s->wait.command) {
		s->wait.wake = on_pollable;
		command_wait(s->command, &s->wait);
	}
	answer_poll(s->open->fs, req, more);
}

/* ---- reading ---- */

struct stream_read {
	struct parked parked;
	struct job_stream_file *file;
	struct job_wait wait;
	size_t size;
};

static void answer(struct stream_read *r, const void *bytes, ssize_t n)
{
	command_wait_end(&r->wait);
	if (n < 0) {
		parked_err(&r->parked, (int)n);
	} else {
		r->parked.fs->totals.bytes_read += (uint64_t)n;
		parked_buf(&r->parked, bytes, (size_t)n);
	}
	free(r);
}

/* False: there is nothing yet. */
static bool try_read(struct stream_read *r)
{
	struct job_stream_file *s = r->file;
	char *bytes CLEANUP_FREE = malloc(MAX(r->size, 1));
	ssize_t n;

	if (!bytes)
		n = -ENOMEM;
	else
		n = s->command ? command_read(s->command, s->which, &s->at, bytes, r->size) : 0;
	if (n == -EAGAIN && s->failed)
		n = s->failed;
	else if (n == -EAGAIN && !(s->open->flags & O_NONBLOCK))
		return false;
	s->failed = 0;
	answer(r, bytes, n);
	return true;
}

static void on_news(struct job_wait *w, int err)
{
	struct stream_read *r = CONTAINER_OF(w, struct stream_read, wait);

	if (try_read(r))
		return;
	if (err < 0) {
		answer(r, NULL, err);
	} else if (r->file->command != w->command) {
		/* Another one was started through this file meanwhile. */
		command_wait_end(w);
		command_wait(r->file->command, w);
	}
}

static void on_interrupted(struct parked *p)
{
	answer(CONTAINER_OF(p, struct stream_read, parked), NULL, -EINTR);
}

void job_stream_read(struct job_stream_file *s, fuse_req_t req, size_t size)
{
	struct stream_read *r = calloc(1, sizeof(*r));

	if (!r) {
		answer_err(s->open->fs, req, -ENOMEM);
		return;
	}
	parked_init(&r->parked, s->open->fs, req, on_interrupted);
	r->parked.as_pipe = true;
	r->file = s;
	r->size = MIN(size, READ_MAX);
	r->wait.wake = on_news;
	if (!try_read(r))
		command_wait(s->command, &r->wait);
}

/* ---- life ---- */

void job_stream_set(struct job_stream_file *s, struct command *c)
{
	bool polled = s->wait.command != NULL;

	command_wait_end(&s->wait);
	if (c)
		command_ref(c);
	command_unref(s->command);
	s->command = c;
	s->at = (struct job_cursor){ 0 };
	s->failed = 0;
	/* Whoever polls waits for this one now. */
	if (polled && c && !is_readable(s))
		command_wait(c, &s->wait);
	else if (polled)
		on_pollable(&s->wait, 0);
}

void job_stream_release(struct job_stream_file *s)
{
	stop_polling(s);
	command_unref(STEAL(s->command));
}

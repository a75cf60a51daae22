/*
 * The output of a command as it is kept: the bytes of both streams in one file,
 * in order of arrival, and extents that say which is which. Loop thread only.
 */
#include <errno.h>

#include "jobs_i.h"

static int add_extent(struct command *c, enum job_stream stream, size_t len)
{
	size_t n = c->extent_count;

	if (n > 0 && c->extents[n - 1].stream == stream) {
		c->extents[n - 1].end += len;
		return 0;
	}
	if (n == c->extent_cap) {
		size_t cap = c->extent_cap ? c->extent_cap * 2 : 4;
		struct extent *bigger = realloc(c->extents, cap * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		c->extents = bigger;
		c->extent_cap = cap;
	}
	c->extents[c->extent_count++] = (struct extent){ .end = c->size + len, .stream = stream };
	return 0;
}

static int keep(struct command *c, enum job_stream stream, const char *bytes, size_t len)
{
	int r = 0;

	if (!spool_is_open(&c->spool))
		r = spool_open(&c->spool, c->fs);
	if (r == 0)
		r = spool_write(&c->spool, bytes, len, c->size);
	if (r == 0)
		r = add_extent(c, stream, len);
	if (r < 0)
		return r;
	c->size += len;
	*(stream == JOB_OUT ? &c->out_size : &c->err_size) += len;
	return 0;
}

void command_take(struct command *c, enum job_stream stream, const char *bytes, size_t len)
{
	/* One command must not leave files without room on their way. */
	uint64_t most = MIN(JOB_OUTPUT_MAX, c->fs->opt->cache_size / 4);
	size_t room = (size_t)(most - c->size);
	int r = 0;

	if (c->cut || len == 0)
		return;
	if (room > 0)
		r = keep(c, stream, bytes, MIN(len, room));
	if (r == 0 && len > room)
		r = -EFBIG;
	if (r < 0) {
		c->cut = true;
		thread_failed(c->thread, "only the beginning of a command's output is kept", r,
			      NULL);
	}
}

void command_output_release(struct command *c)
{
	spool_close(&c->spool);
	free(c->extents);
}

/* The bytes from the cursor on that are of the stream wanted and in one piece. */
static size_t next_piece(const struct command *c, enum job_stream which, struct job_cursor *at)
{
	while (at->extent < c->extent_count) {
		const struct extent *e = &c->extents[at->extent];

		if (!(e->stream & which))
			at->at = e->end;
		if (at->at < e->end)
			return (size_t)(e->end - at->at);
		/* The last one may still grow. */
		if (at->extent + 1 == c->extent_count)
			return 0;
		at->extent++;
	}
	return 0;
}

ssize_t command_read(struct command *c, enum job_stream which, struct job_cursor *at, void *to,
		     size_t size)
{
	size_t got = 0, piece;

	while (got < size && (piece = next_piece(c, which, at)) > 0) {
		ssize_t n = spool_read(&c->spool, (char *)to + got, MIN(piece, size - got), at->at);

		if (n <= 0)
			return got > 0 ? (ssize_t)got : (n < 0 ? n : -EIO);
		at->at += (uint64_t)n;
		got += (size_t)n;
	}
	if (got > 0)
		return (ssize_t)got;
	if (c->state == JOB_LOST)
		return c->error;
	return c->state == JOB_DONE ? 0 : -EAGAIN;
}

bool command_is_readable(const struct command *c, enum job_stream which, struct job_cursor at)
{
	return next_piece(c, which, &at) > 0 || command_is_over(c);
}

/*
 * What the tests of stages share: a file that is being written, its operations
 * done on the loop, and flushes that somebody waits for. Main thread.
 */
#pragma once

#include "../client/transfer.h"
#include "fsrig.h"
#include "stage.h"

struct staged {
	struct fsrig *r;
	struct node *n;
	struct stage *s;
	/* arguments and result of what is being done on the loop */
	unsigned flags;
	int mode, result;
	uint64_t offset;
	const void *bytes;
	size_t len;
	bool append;
	struct stat st;
};

static inline void do_open(void *ctx)
{
	struct staged *f = ctx;
	const struct attr attr = { .mode = S_IFREG | 0600, .nlink = 1 };

	if (!f->n->has_attr) {
		node_set_attr(f->n, &attr);
		f->n->unborn = true;
	}
	f->result = stage_new(f->n, f->flags, f->mode, &f->s);
}

/* A new one if there is no such file. */
static inline struct staged open_staged(struct fsrig *r, const char *name, unsigned flags, int mode)
{
	struct staged f = { .r = r, .n = fsrig_node(r, name), .flags = flags, .mode = mode };

	fsrig_run(r, do_open, &f);
	assert_int_equal(f.result, 0);
	return f;
}

static inline struct staged open_new(struct fsrig *r, const char *name)
{
	return open_staged(r, name, STAGE_EMPTY, 0644);
}

static inline void do_free(void *ctx)
{
	stage_free(ctx);
}

static inline void close_staged(struct staged *f)
{
	fsrig_run(f->r, do_free, f->s);
	fsrig_put(f->r, f->n);
}

static inline void do_write(void *ctx)
{
	struct staged *f = ctx;

	f->result = stage_write(f->s, f->offset, f->bytes, f->len, f->append);
}

static inline int write_at(struct staged *f, uint64_t offset, const void *bytes, size_t len)
{
	f->offset = offset;
	f->bytes = bytes;
	f->len = len;
	f->append = false;
	fsrig_run(f->r, do_write, f);
	return f->result;
}

static inline int append(struct staged *f, const void *bytes, size_t len)
{
	f->bytes = bytes;
	f->len = len;
	f->append = true;
	fsrig_run(f->r, do_write, f);
	return f->result;
}

/* In pieces, as the kernel does. */
static inline void write_all_at(struct staged *f, uint64_t offset, const char *bytes, size_t len)
{
	for (size_t at = 0; at < len; at += 128 * KIB)
		assert_int_equal(write_at(f, offset + at, bytes + at, MIN(128 * KIB, len - at)), 0);
}

static inline void do_truncate(void *ctx)
{
	struct staged *f = ctx;

	f->result = stage_truncate(f->s, f->offset);
}

static inline int truncate_to(struct staged *f, uint64_t size)
{
	f->offset = size;
	fsrig_run(f->r, do_truncate, f);
	return f->result;
}

static inline void ask_stage(void *what, struct read_op *op)
{
	stage_read(what, op);
}

static inline ssize_t read_at(struct staged *f, uint64_t offset, void *to, size_t len)
{
	return fsrig_read(f->r, ask_stage, f->s, to, len, offset);
}

/* Whether all of the content is this, as the stage shows it. */
static inline bool shows(struct staged *f, const void *bytes, size_t len)
{
	char *have CLEANUP_FREE = malloc(len + 1);
	ssize_t n = read_at(f, 0, have, len + 1);

	return n == (ssize_t)len && memcmp(have, bytes, len) == 0;
}

static inline void do_stat(void *ctx)
{
	struct staged *f = ctx;

	node_stat(f->n, &f->st);
}

static inline const struct stat *stat_of(struct staged *f)
{
	fsrig_run(f->r, do_stat, f);
	return &f->st;
}

static inline bool is_clean(void *ctx)
{
	return stage_is_clean(((struct staged *)ctx)->s);
}

/* ---- flushes ---- */

struct flushed {
	struct flush_op op;
	struct stage *s;
	int err;
	bool done; /* loop thread */
};

static inline void on_flushed(struct flush_op *op, int err)
{
	struct flushed *w = CONTAINER_OF(op, struct flushed, op);

	w->err = err;
	w->done = true;
}

static inline void do_flush(void *ctx)
{
	struct flushed *w = ctx;

	stage_flush(w->s, &w->op);
}

static inline void begin_flush(struct staged *f, struct flushed *w)
{
	*w = (struct flushed){ .op.done = on_flushed, .s = f->s };
	fsrig_run(f->r, do_flush, w);
}

static inline bool is_flushed(void *ctx)
{
	return ((struct flushed *)ctx)->done;
}

static inline int end_flush(struct staged *f, struct flushed *w)
{
	assert_true(fsrig_wait(f->r, is_flushed, w));
	return w->err;
}

static inline int flush(struct staged *f)
{
	struct flushed w;

	begin_flush(f, &w);
	return end_flush(f, &w);
}

/* ---- files of the sandbox, seen from this side ---- */

#define UP_ROUTE    "/v1/file/upload"
#define DOWN_ROUTE  "/v1/file/download"
#define WRITE_ROUTE "/v1/file/write"

/* A file of 20 MiB that the sandbox has. */
enum { BIG = 20 * 1024 * 1024 };

static inline char *make_big(struct fsrig *r, const char *name, unsigned seed)
{
	char *bytes = make_content(BIG, seed);

	put_file(fsrig_host_path(r, name), bytes, BIG);
	return bytes;
}

static inline bool is_there(struct fsrig *r, const char *name, const void *bytes, size_t len)
{
	return file_is(fsrig_host_path(r, name), bytes, len);
}

/* No temporary name is left once everything has ended. */
static inline void expect_names(struct fsrig *r, unsigned n)
{
	WAIT_UNTIL(count_names(r->f->host_dir) == n);
}

static inline mode_t mode_of(struct fsrig *r, const char *name)
{
	struct stat st;

	assert_int_equal(stat(fsrig_host_path(r, name), &st), 0);
	return st.st_mode & 07777;
}

static inline bool has_upload(void *ctx)
{
	const struct staged *f = ctx;
	const struct transfer *x = f->r->thread->transfers;

	return x && x->up && x->moved >= MIB;
}

/* Answering a FUSE request at once, without a place to park it. Loop thread only. */
#pragma once

#include "parked.h"

/* 0 is success. */
static inline void answer_err(struct fs *fs, fuse_req_t req, int err)
{
	struct parked p;

	parked_init(&p, fs, req, NULL);
	parked_err(&p, err);
}

static inline void answer_buf(struct fs *fs, fuse_req_t req, const void *bytes, size_t len)
{
	struct parked p;

	parked_init(&p, fs, req, NULL);
	parked_buf(&p, bytes, len);
}

static inline void answer_write(struct fs *fs, fuse_req_t req, size_t len)
{
	struct parked p;

	parked_init(&p, fs, req, NULL);
	parked_write(&p, len);
}

static inline void answer_poll(struct fs *fs, fuse_req_t req, unsigned revents)
{
	struct parked p;

	parked_init(&p, fs, req, NULL);
	parked_poll(&p, revents);
}

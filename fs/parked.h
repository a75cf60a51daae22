/*
 * A FUSE request that is not answered at once. Embedded in whatever serves it;
 * interrupts (Ctrl-C, kill of the caller) arrive by its callback. Loop thread only.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs.h"

struct parked {
	fuse_req_t req; /* NULL: answered */
	struct fs *fs;
	/* The caller does not want to wait any more: end it soon, with -EINTR. */
	void (*interrupted)(struct parked *p);
};

/* Must be called for every request, also those answered at once (then interrupted is NULL). */
void parked_init(struct parked *p, struct fs *fs, fuse_req_t req,
		 void (*interrupted)(struct parked *p));

/* Each answers, once. Errors are negative, of any layer (remote_errno). 0 is success. */
void parked_err(struct parked *p, int err);
void parked_entry(struct parked *p, const struct fuse_entry_param *e);
void parked_attr(struct parked *p, const struct stat *st, double timeout_s);
void parked_open(struct parked *p, const struct fuse_file_info *fi);
void parked_create(struct parked *p, const struct fuse_entry_param *e,
		   const struct fuse_file_info *fi);
void parked_buf(struct parked *p, const void *bytes, size_t len);
void parked_iov(struct parked *p, const struct iovec *iov, int count);
void parked_write(struct parked *p, size_t len);

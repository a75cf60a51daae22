/*
 * A FUSE request, answered at once or later. Embedded in whatever serves it;
 * interrupts (Ctrl-C, kill of the caller: caller.h) arrive by its callback. Loop thread only.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs.h"

struct parked {
	fuse_req_t req; /* NULL: answered */
	struct fs *fs;
	/* The caller does not want to wait any more: end it soon, with -EINTR. Never
	 * called from inside parked_init(), nor once it is answered. */
	void (*interrupted)(struct parked *p);
	/* By any signal, as with a pipe: it may have to wait for ever. To be set after
	 * parked_init(). */
	bool as_pipe;
	/* private */
	struct job job;
	ev_timer again;
	int64_t since_us;
	uint64_t serial; /* of fs->asked, and what was in it */
	enum asked_kind kind;
	enum asked_class class;
	fuse_ino_t ino;
};

/* For every request, also those answered at once (then interrupted may be NULL). */
void parked_init(struct parked *p, struct fs *fs, fuse_req_t req,
		 void (*interrupted)(struct parked *p));

/* Each answers, once. Errors are negative, of any layer (remote_errno). 0 is success. */
void parked_err(struct parked *p, int err);
void parked_none(struct parked *p);
void parked_attr(struct parked *p, const struct stat *st, double timeout_s);
void parked_iov(struct parked *p, const struct iovec *iov, int count);
void parked_write(struct parked *p, size_t len);
void parked_readlink(struct parked *p, const char *target);
void parked_statfs(struct parked *p, const struct statvfs *st);
void parked_poll(struct parked *p, unsigned revents);
/* These return false if the caller was gone: the kernel knows nothing of the lookup or open. */
bool parked_buf(struct parked *p, const void *bytes, size_t len);
bool parked_entry(struct parked *p, const struct fuse_entry_param *e);
bool parked_open(struct parked *p, const struct fuse_file_info *fi);
bool parked_create(struct parked *p, const struct fuse_entry_param *e,
		   const struct fuse_file_info *fi);

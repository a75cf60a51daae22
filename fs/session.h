/*
 * The FUSE connection: mounted by the caller's thread, read on the loop.
 */
#pragma once

#include "fs.h"

/*
 * Mounts at opt->mountpoint. Not on the loop's thread. Returns 0, or a negative
 * errno with one line in why. ended(ctx) is called on the loop when the kernel
 * is done with us: somebody unmounted it.
 */
int session_open(struct fs *fs, void (*ended)(void *ctx), void *ctx, struct buf *why) MUST_CHECK;
/*
 * Stops reading and unmounts (lazily if it is busy). The connection ends with
 * it: whoever still waits for an answer gets -ECONNABORTED from the kernel, so
 * answer first. Loop thread, which it blocks for a moment.
 */
void session_stop(struct fs *fs);
/* Whether it is still mounted anywhere that we see. Any thread. */
bool session_is_seen(const struct fs *fs);
/* The kernel gives up all that waits for us, if it lets us. Any thread but the loop's. */
void session_abort(struct fs *fs);
/* Frees it, when no request is left to answer. */
void session_close(struct fs *fs);

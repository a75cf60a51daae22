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
/* Unmounts (lazily if it is busy); requests that came before are still answered. Not on the loop.
 */
void session_unmount(struct fs *fs);
/* Stops reading. Loop thread. */
void session_stop(struct fs *fs);
/* Frees it, when no request is left to answer. */
void session_close(struct fs *fs);

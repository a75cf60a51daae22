/*
 * Taking mounts away, those whose daemon is dead too. Blocks: not on the loop's
 * thread.
 */
#pragma once

#include "buf.h"
#include "mounts.h"

enum { UNMOUNT_WORDS = 4096 }; /* of fusermount3 */

/*
 * lazy: out of sight now, gone when nobody uses it any more. Returns when it is off the
 * kernel's list: 0, -EBUSY, -ESTALE (something else is at its place by now), -ETIMEDOUT, or another
 * errno with words where there are any.
 */
int unmount(const struct mount_entry *mount, bool lazy, struct buf *words) MUST_CHECK;
/* Lazily, also if a directory above it is renamed meanwhile. */
int unmount_wherever(const struct mount_entry *mount, struct buf *words) MUST_CHECK;
/* The kernel gives up all that waits for its daemon, if it lets us. */
void unmount_abort(const struct mount_entry *mount);
/* Whether it is there and nobody answers for it any more. Waits for one who is slow. */
bool unmount_is_dead(const struct mount_entry *mount);
/*
 * Takes away what is mounted there if it is ours and its daemon is dead, all of
 * several over one another. 0: there is no such mount (any more).
 */
int unmount_stale(const char *path, struct buf *words) MUST_CHECK;

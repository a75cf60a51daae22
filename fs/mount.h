/*
 * A whole mount, from its options to its end: loop, provider, filesystem and
 * session, made and ended in the right order. Not on the loop's thread.
 */
#pragma once

#include "options.h"

struct mount;

/*
 * Makes everything and mounts; when this returns, the mount answers. On failure
 * a negative errno with one line in why, and nothing is left. The options must
 * outlive it.
 */
int mount_start(const struct options *o, struct mount **ret, struct buf *why) MUST_CHECK;
/* Why nothing can be mounted where a mount of ours is. */
void mount_say_busy(const char *mountpoint, struct buf *why);
/* Readable once the mount has ended by itself: somebody unmounted it. */
int mount_fd(const struct mount *m);
/*
 * Whether somebody has unmounted it and the kernel cannot end it, as a notification waits for an
 * answer that a sandbox does not give: then all who wait in the kernel are let go, and it is to be
 * stopped. To be asked when mounts change; *ret_again: and once more after a second.
 */
bool mount_is_stuck(struct mount *m, bool *ret_again);
/*
 * Uploads what is not confirmed yet (as long as that takes, at most about the
 * operation's timeout), unmounts, shuts the provider down, frees. Returns 0 or why something was
 * left undone (logged).
 */
int mount_stop(struct mount *m);

/*
 * Where a symbolic link of a hostile sandbox may lead: nowhere but inside its
 * thread. Pure.
 */
#pragma once

#include "options.h"

/*
 * The target to show for a link. root: the view's root in the sandbox, e.g.
 * "/mnt/user-data" or "/". dir: the link's directory below it, "" for the root
 * itself, no slashes at the ends. The result is always relative: some "..", not more than
 * dir is deep, then names, never ".." behind a name (that one could be a link
 * itself). A target that is so already stays as it was written, "./" and all.
 * Returns 0, -EPERM if it would leave the root or names a ".ctl", -EINVAL for an empty or over-long
 * one (over 4095 bytes, or that it would become so), -ENOMEM.
 */
int symlink_contain(const char *root, const char *dir, const char *target, char **ret) MUST_CHECK;

/*
 * The target to store in the sandbox for a link that the user makes: an absolute
 * one below mount_thread (the thread's directory on the host) becomes the same below root;
 * anything else stays. mount_thread may be NULL. Returns 0, -ENAMETOOLONG, -ENOMEM.
 */
int symlink_export(const char *root, const char *mount_thread, const char *target,
		   char **ret) MUST_CHECK;

/*
 * threadfs unmount: takes the mount away, then waits until its daemon has ended.
 * One thread.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "cmd.h"
#include "presence.h"
#include "unmount.h"

enum { END_MS = 90000, BUSY_TRIES = 10, BUSY_PAUSE_MS = 100 };

/* Somebody may just pass through: an indexer, a search, who looks what is mounted. */
static int try_unmount(const struct mount_entry *mount, bool lazy, struct buf *words)
{
	int r = unmount(mount, lazy, words);

	for (int i = 1; r == -EBUSY && i < BUSY_TRIES; i++) {
		poll(NULL, 0, BUSY_PAUSE_MS);
		buf_reset(words);
		r = unmount(mount, lazy, words);
	}
	return r;
}

static int unmount_and_wait(const struct mount_entry *mount, bool lazy, struct buf *words)
{
	int daemon CLEANUP_FD = presence_open(mount->dev);
	int r = try_unmount(mount, lazy, words);

	/* It uploads what is left and stops its sandboxes; in use or lazily, that may be a while.
	 */
	if (r == 0 && daemon >= 0 && !lazy)
		r = presence_wait(daemon, END_MS);
	return r;
}

int cmd_unmount(const char *mountpoint, bool lazy)
{
	struct buf words CLEANUP_BUF = BUF_INIT(UNMOUNT_WORDS);
	struct mounts m CLEANUP_MOUNTS = { 0 };
	char *point CLEANUP_FREE = NULL;
	const struct mount_entry *mount;
	int r = mounts_read(&m);

	if (r == 0)
		r = mounts_resolve(&m, mountpoint, &point);
	if (r < 0)
		return cmd_fail("'%s': %s", mountpoint, strerrordesc_np(-r));
	mount = mounts_at(&m, point);
	if (!mount)
		return cmd_fail("'%s': nothing is mounted there", mountpoint);
	if (!mount_entry_is_ours(mount))
		return cmd_fail("'%s' is a mount of type %s, not of threadfs", mountpoint,
				mount->type);
	r = unmount_and_wait(mount, lazy, &words);
	if (r == -EBUSY)
		return cmd_fail("'%s' is busy: fuser -vm '%s' shows who uses it; with -l it goes "
				"when they are done",
				mountpoint, mount->point);
	if (r == -ETIMEDOUT)
		return cmd_fail("'%s' is unmounted, but its daemon has not ended yet", mountpoint);
	if (r < 0)
		return cmd_fail("'%s' cannot be unmounted: %s", mountpoint,
				words.len > 0 ? words.data : strerrordesc_np(-r));
	return 0;
}

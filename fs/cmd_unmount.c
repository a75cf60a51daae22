/*
 * threadfs unmount: takes the mount away, then waits until its daemon has ended,
 * and tells what that left in the ledger. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "in_force.h"
#include "ledger.h"
#include "presence.h"
#include "staging.h"
#include "unmount.h"

enum { SILENT_MS = 3000, END_MS = 90000, BUSY_TRIES = 10, BUSY_PAUSE_MS = 100 };

/* ---- what stays ---- */

/* Where a mount keeps what is not confirmed, and what of that is its own. */
struct kept {
	char *cache, *source, *user;
	unsigned count;
};

static void kept_release(struct kept *k)
{
	free(k->cache);
	free(k->source);
	free(k->user);
}

static char *source_of(const struct buf *config)
{
	char *text CLEANUP_FREE = in_force_value(config, "source");
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	struct options o CLEANUP_OPTIONS = { 0 };

	if (!text || options_init(&o) < 0 || options_source(&o, text, &why) < 0)
		return NULL;
	free(o.data);
	o.data = in_force_value(config, "data");
	return staging_source(&o);
}

/* While it is mounted: it says so itself. */
static void ask_mount(struct kept *k, const char *point)
{
	struct buf config CLEANUP_BUF = BUF_INIT(0);

	if (in_force_read(point, &config) < 0)
		return;
	k->cache = in_force_value(&config, "cache");
	k->user = in_force_value(&config, "user");
	k->source = source_of(&config);
}

static int count_one(void *ctx, struct ledger_found *f, int err, const char *why UNUSED)
{
	struct kept *k = ctx;

	if (err == 0 && !f->busy && !f->rec.settled && strcmp(f->rec.source, k->source) == 0 &&
	    strcmp(f->rec.user, k->user) == 0)
		k->count++;
	return 0;
}

/* When the daemon has ended. What cannot be looked at is not told of: it is unmounted anyway. */
static void tell_kept(struct kept *k)
{
	int cache CLEANUP_FD = -1, dir CLEANUP_FD = -1;

	if (!k->cache || !k->source || !k->user)
		return;
	cache = open(k->cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = cache < 0 ? -1 : ledger_open(cache, false);
	if (dir < 0 || ledger_scan(dir, count_one, k) < 0 || k->count == 0)
		return;
	cmd_note("%u file%s not confirmed by the sandbox: kept for the next mount; "
		 "threadfs recover --cache '%s' lists %s",
		 k->count, k->count == 1 ? "" : "s", k->cache, k->count == 1 ? "it" : "them");
}

/* ---- unmounting ---- */

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

/* Whoever waits for long is told what for. */
static int wait_for_end(const char *mountpoint, int daemon)
{
	int r = presence_wait(daemon, SILENT_MS);

	if (r != -ETIMEDOUT)
		return r;
	cmd_note("'%s' is unmounted; waiting for its daemon to end (uploads may be under way)…",
		 mountpoint);
	return presence_wait(daemon, END_MS - SILENT_MS);
}

static int unmount_and_wait(const char *mountpoint, const struct mount_entry *mount, bool lazy,
			    struct buf *words)
{
	int daemon CLEANUP_FD = presence_open(mount->dev);
	int r = try_unmount(mount, lazy, words);

	/* It uploads what is left and stops its sandboxes; in use or lazily, that may be a while.
	 */
	if (r == 0 && daemon >= 0 && !lazy)
		r = wait_for_end(mountpoint, daemon);
	return r;
}

/* fuser(1) shows nobody where another mount is what keeps it. */
static int fail_busy(const char *mountpoint, const struct mount_entry *mount)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	const struct mount_entry *inside = NULL;

	if (mounts_read(&m) == 0)
		inside = mounts_below(&m, mount->point);
	if (inside)
		return cmd_fail("'%s' is busy: something is mounted in it, at '%s', which has to "
				"be unmounted first",
				mountpoint, inside->point);
	return cmd_fail("'%s' is busy: fuser -vm '%s' shows who uses it; with -l it goes "
			"when they are done",
			mountpoint, mount->point);
}

int cmd_unmount(const char *mountpoint, bool lazy)
{
	struct buf words CLEANUP_BUF = BUF_INIT(UNMOUNT_WORDS);
	struct kept kept CLEANUP(kept_release) = { 0 };
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
	if (!lazy) /* lazily nobody waits for what is to be told */
		ask_mount(&kept, mount->point);
	r = unmount_and_wait(mountpoint, mount, lazy, &words);
	if (r == -EBUSY)
		return fail_busy(mountpoint, mount);
	if (r == -ETIMEDOUT)
		return cmd_fail("'%s' is unmounted, but its daemon has not ended yet", mountpoint);
	if (r < 0)
		return cmd_fail("'%s' cannot be unmounted: %s", mountpoint,
				words.len > 0 ? words.data : strerrordesc_np(-r));
	tell_kept(&kept);
	return 0;
}

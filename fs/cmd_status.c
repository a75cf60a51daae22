/*
 * threadfs status: shows what a mount says of itself, as it says it. Whatever
 * must not reach a terminal was removed by who wrote it. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "io.h"
#include "mounts.h"

static int copy(int from, int to)
{
	char piece[64 * 1024];

	for (;;) {
		ssize_t n = read(from, piece, sizeof(piece));
		int r;

		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		r = write_all(to, piece, (size_t)n);
		if (r < 0)
			return r;
	}
}

static int show(const char *point, bool json)
{
	char *path CLEANUP_FREE = NULL;
	int fd CLEANUP_FD = -1;
	int r;

	if (asprintf(&path, "%s/.ctl/status%s", point, json ? ".json" : "") < 0)
		return cmd_fail("%s", strerrordesc_np(ENOMEM));
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	r = fd < 0 ? -errno : copy(fd, STDOUT_FILENO);
	if (r == -ENOTCONN)
		return cmd_fail("the daemon of the mount at '%s' is dead: threadfs unmount '%s' "
				"removes what is left",
				point, point);
	if (r < 0)
		return cmd_fail("'%s': %s", point, strerrordesc_np(-r));
	return 0;
}

/* Several are told apart by a line with their place; JSON does so by itself. */
static int show_all(const struct mounts *m, bool json)
{
	unsigned ours = 0, shown = 0;
	int status = 0;

	for (size_t i = 0; i < m->count; i++)
		ours += mount_entry_is_ours(&m->list[i]) && m->list[i].owner == getuid();
	if (ours == 0)
		return cmd_fail("nothing is mounted");
	for (size_t i = 0; i < m->count; i++) {
		const struct mount_entry *mount = &m->list[i];

		if (!mount_entry_is_ours(mount) || mount->owner != getuid())
			continue;
		if (ours > 1 && !json) {
			printf("%s%s:\n", shown > 0 ? "\n" : "", mount->point);
			fflush(stdout); /* the rest goes past stdio */
		}
		status |= show(mount->point, json);
		shown++;
	}
	return status;
}

int cmd_status(const char *path, bool json)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	char *whole CLEANUP_FREE = NULL;
	const struct mount_entry *mount;
	int r = mounts_read(&m);

	if (r < 0)
		return cmd_fail("the list of mounts cannot be read: %s", strerrordesc_np(-r));
	if (!path)
		return show_all(&m, json);
	r = mounts_resolve(&m, path, &whole);
	if (r < 0)
		return cmd_fail("'%s': %s", path, strerrordesc_np(-r));
	mount = mounts_around(&m, whole);
	if (!mount_entry_is_ours(mount))
		return cmd_fail("'%s' is not in a mount of threadfs", path);
	return show(mount->point, json);
}

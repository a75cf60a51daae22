/*
 * threadfs status: shows what a mount says of itself, as it says it. Whatever
 * must not reach a terminal was removed by who wrote it. And which mount the
 * commands mean that look at one. One thread; a mount that does not answer is
 * not waited for.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aside.h"
#include "cmd.h"
#include "io.h"
#include "mounts.h"

enum { PATIENCE_MS = 10000 };

int cmd_explain(const char *point, int err)
{
	if (err == -ENOTCONN)
		return cmd_fail("the daemon of the mount at '%s' is dead: threadfs unmount '%s' "
				"removes what is left",
				point, point);
	if (err == -ETIMEDOUT)
		return cmd_fail("the mount at '%s' is not answering", point);
	return cmd_fail("'%s': %s", point, strerrordesc_np(-err));
}

static int show(const char *point, bool json)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	char *path CLEANUP_FREE = NULL;
	int r;

	if (asprintf(&path, "%s/.ctl/status%s", point, json ? ".json" : "") < 0)
		return cmd_fail("%s", strerrordesc_np(ENOMEM));
	r = aside_read_within(path, PATIENCE_MS, &text);
	if (r < 0)
		return cmd_explain(point, r);
	r = write_all(STDOUT_FILENO, text.data, text.len);
	return r < 0 ? cmd_fail("'%s': %s", point, strerrordesc_np(-r)) : 0;
}

static bool is_mine(const struct mount_entry *mount)
{
	return mount_entry_is_ours(mount) && mount->owner == getuid();
}

static unsigned count_mine(const struct mounts *m)
{
	unsigned n = 0;

	for (size_t i = 0; i < m->count; i++)
		n += is_mine(&m->list[i]);
	return n;
}

/* Several are told apart by a line with their place; JSON does so by itself. */
static int show_all(const struct mounts *m, bool json)
{
	unsigned mine = count_mine(m), shown = 0;
	int status = 0;

	if (mine == 0)
		return cmd_fail("nothing is mounted");
	for (size_t i = 0; i < m->count; i++) {
		const struct mount_entry *mount = &m->list[i];

		if (!is_mine(mount))
			continue;
		if (mine > 1 && !json) {
			printf("%s%s:\n", shown > 0 ? "\n" : "", mount->point);
			fflush(stdout); /* the rest goes past stdio */
		}
		status |= show(mount->point, json);
		shown++;
	}
	return status;
}

/* The mount that a path lies in; NULL, after a line that says why. */
static char *find_around(const struct mounts *m, const char *path)
{
	char *whole CLEANUP_FREE = NULL;
	const struct mount_entry *mount;
	int r = mounts_resolve(m, path, &whole);

	if (r < 0) {
		cmd_fail("'%s': %s", path, strerrordesc_np(-r));
		return NULL;
	}
	mount = mounts_around(m, whole);
	if (!mount_entry_is_ours(mount)) {
		cmd_fail("'%s' is not in a mount of threadfs", path);
		return NULL;
	}
	return strdup(mount->point);
}

char *cmd_find_mount(const char *path, const char *command)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	int r = mounts_read(&m);
	unsigned mine;

	if (r < 0) {
		cmd_fail("the list of mounts cannot be read: %s", strerrordesc_np(-r));
		return NULL;
	}
	if (path)
		return find_around(&m, path);
	mine = count_mine(&m);
	if (mine == 0)
		cmd_fail("nothing is mounted");
	else if (mine > 1)
		cmd_fail("there are %u mounts: say which one, threadfs %s MOUNTPOINT", mine,
			 command);
	for (size_t i = 0; i < m.count; i++) {
		if (!is_mine(&m.list[i]))
			continue;
		if (mine == 1)
			return strdup(m.list[i].point);
		fprintf(stderr, "  %s\n", m.list[i].point);
	}
	return NULL;
}

int cmd_status(const char *path, bool json)
{
	struct mounts m CLEANUP_MOUNTS = { 0 };
	char *point CLEANUP_FREE = NULL;
	int r = mounts_read(&m);

	if (r < 0)
		return cmd_fail("the list of mounts cannot be read: %s", strerrordesc_np(-r));
	if (!path)
		return show_all(&m, json);
	point = find_around(&m, path);
	return point ? show(point, json) : EXIT_FAILURE;
}

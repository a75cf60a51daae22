/*
 * Links of a hostile sandbox, and the addresses that others name: three strings with NULs
 * between them, the root of the view, the link's directory below it, and the target. What is
 * shown never climbs further than the directory is deep.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "entries.h"
#include "symlink.h"
#include "url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t depth_of(const char *path)
{
	size_t depth = 0;

	while (*path) {
		size_t len = strcspn(path, "/");

		depth += len > 0 && !(len == 1 && *path == '.');
		path += len;
		path += *path == '/';
	}
	return depth;
}

/* Up, and then only down. */
static void check_inside(const char *shown, size_t depth)
{
	size_t up = 0;
	bool down = false;

	assert(shown[0] && shown[0] != '/');
	while (*shown) {
		size_t len = strcspn(shown, "/");

		if (len == 2 && memcmp(shown, "..", 2) == 0) {
			assert(!down);
			assert(++up <= depth);
		} else if (len > 0 && !(len == 1 && *shown == '.')) {
			assert(len != 4 || memcmp(shown, ".ctl", 4) != 0);
			down = true;
		}
		shown += len;
		shown += *shown == '/';
	}
}

static void contain(const char *root, const char *dir, const char *target)
{
	char *shown CLEANUP_FREE = NULL, *again CLEANUP_FREE = NULL;
	int r;

	if (!name_is_chain(dir, strlen(dir)) && dir[0])
		return; /* nodes have no other paths */
	if (strstr(dir, ".."))
		return;
	r = symlink_contain(root, dir, target, &shown);
	assert(r == 0 || r == -EPERM || r == -EINVAL);
	if (r < 0)
		return;
	assert(strlen(shown) <= PATH_BYTES_MAX);
	check_inside(shown, depth_of(dir));
	/* What is safe stays as it is. */
	assert(symlink_contain(root, dir, shown, &again) == 0 && strcmp(shown, again) == 0);
}

static void export(const char *root, const char *place, const char *target)
{
	char *stored CLEANUP_FREE = NULL;
	int r = symlink_export(root, place[0] == '/' ? place : NULL, target, &stored);

	assert(r == 0 || r == -ENAMETOOLONG);
	assert(r < 0 || strlen(stored) <= PATH_BYTES_MAX || strcmp(stored, target) == 0);
}

static void read_url(const char *text)
{
	char *url CLEANUP_FREE = NULL, *again CLEANUP_FREE = NULL;
	const char *host, *why;

	if (url_tidy(text, &url, &why) < 0)
		return;
	assert(strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
	assert(!strpbrk(url, " \t\r\n?#") && url[strlen(url) - 1] != '/');
	host = strstr(url, "//") + 2;
	assert(!memchr(host, '@', strcspn(host, "/")));
	assert(url_tidy(url, &again, &why) == 0 && strcmp(url, again) == 0);
	assert(!url_is_link_local(url) || url_is_local(url));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text CLEANUP_FREE = calloc(1, size + 3);
	const char *root, *dir, *target;

	assert(text);
	if (size > 0)
		memcpy(text, data, size);
	root = text;
	dir = root + strlen(root) + 1;
	target = dir <= text + size ? dir + strlen(dir) + 1 : "";
	if (dir > text + size)
		dir = "";
	if (target > text + size + 1)
		target = "";
	read_url(root);
	contain("/mnt/user-data", dir, target);
	contain("/", dir, target);
	if (root[0] == '/')
		export(root, dir, target);
	return 0;
}

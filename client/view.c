/* See view.h. Any thread. */
#include "view.h"

#include <errno.h>
#include <string.h>

#include "entries.h"

/* Whether a segment is "..", with backslashes also taken for separators. */
static bool climbs(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/\\");

		if (len == 2 && memcmp(path, "..", 2) == 0)
			return true;
		path += len;
		path += *path != '\0';
	}
	return false;
}

static bool is_too_long(const char *path)
{
	if (strlen(path) > PATH_BYTES_MAX)
		return true;
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len > NAME_BYTES_MAX)
			return true;
		path += len;
		path += *path != '\0';
	}
	return false;
}

int view_root(const char *root, char **ret)
{
	char *normal, *out;

	if (root[0] != '/' || climbs(root) || is_too_long(root))
		return -EINVAL;
	out = normal = malloc(strlen(root) + 1);
	if (!normal)
		return -ENOMEM;
	while (*root) {
		size_t len = strcspn(++root, "/");

		if (len > 0 && !(len == 1 && root[0] == '.')) {
			*out++ = '/';
			memcpy(out, root, len);
			out += len;
		}
		root += len;
	}
	if (out == normal)
		*out++ = '/';
	*out = '\0';
	*ret = normal;
	return 0;
}

static bool is_inside(const char *root, const char *path)
{
	size_t len = strlen(root);

	if (strcmp(root, "/") == 0)
		return true;
	return strncmp(path, root, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static int refuse(int err, const char *why, const char **ret_why)
{
	*ret_why = why;
	return err;
}

int view_check(const char *root, const char *path, const char **ret_why)
{
	if (path[0] == '\0')
		return refuse(-EINVAL, "the path is empty", ret_why);
	if (path[0] != '/')
		return refuse(-EINVAL, "the path is not absolute", ret_why);
	if (climbs(path))
		return refuse(-EACCES, "the path has a '..' segment", ret_why);
	if (!is_inside(root, path))
		return refuse(-EACCES, "the path is outside the view's root", ret_why);
	if (is_too_long(path))
		return refuse(-ENAMETOOLONG, "the path or a name in it is too long", ret_why);
	return 0;
}

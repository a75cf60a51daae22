/* See home.h. */
#include "home.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

int home_dir(char **ret)
{
	const char *home = getenv("HOME");
	const struct passwd *pw;
	char *copy;

	if (!home || home[0] != '/') {
		pw = getpwuid(getuid());
		home = pw ? pw->pw_dir : NULL;
	}
	if (!home || home[0] != '/')
		return -ENOENT;
	copy = strdup(home);
	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

int home_xdg(const char *variable, const char *below, char **ret)
{
	const char *base = getenv(variable);
	char *home CLEANUP_FREE = NULL;
	char *path;
	int r;

	if (base && base[0] == '/') {
		r = asprintf(&path, "%s/threadfs", base);
	} else {
		r = home_dir(&home);
		if (r < 0)
			return r;
		r = asprintf(&path, "%s/%s/threadfs", home, below);
	}
	if (r < 0)
		return -ENOMEM;
	*ret = path;
	return 0;
}

int home_absolute(const char *path, char **ret)
{
	char *base CLEANUP_FREE = NULL;
	char *whole;
	int r = 0;

	if (path[0] == '/') {
		whole = strdup(path);
		r = whole ? 0 : -ENOMEM;
	} else if (path[0] == '~' && path[1] == '/') {
		r = home_dir(&base);
		if (r == 0 && asprintf(&whole, "%s%s", base, path + 1) < 0)
			r = -ENOMEM;
	} else {
		base = getcwd(NULL, 0);
		/* A directory outside of our root has a name that is not absolute. */
		if (!base || base[0] != '/')
			r = base || errno != ENOMEM ? -ENOENT : -ENOMEM;
		else if (asprintf(&whole, "%s/%s", strcmp(base, "/") == 0 ? "" : base, path) < 0)
			r = -ENOMEM;
	}
	if (r == 0)
		*ret = whole;
	return r;
}

/* See route.h. Pure apart from the tables it reads. */
#include "route.h"

#include <string.h>

enum { MAX_ARG = 128 };

/* Whether path is of the form pattern; copies what stands for {id}. */
static bool matches(const char *pattern, const char *path, char *arg)
{
	const char *hole = strchr(pattern, '{');
	size_t head, n;

	if (!hole)
		return strcmp(pattern, path) == 0;
	head = (size_t)(hole - pattern);
	if (strncmp(pattern, path, head) != 0)
		return false;
	n = strcspn(path + head, "/");
	if (n == 0 || n > MAX_ARG || strcmp(strchr(hole, '}') + 1, path + head + n) != 0)
		return false;
	memcpy(arg, path + head, n);
	arg[n] = '\0';
	return true;
}

const struct route *route_find(enum dialect dialect, const char *method, const char *path,
			       char *arg, unsigned *ret_status)
{
	static const struct route *const tables[] = {
		transfer_routes, file_routes,   bash_routes, shell_routes,
		watch_routes,    search_routes, info_routes,
	};
	const struct route *templated = NULL;
	char found[MAX_ARG + 1];

	*ret_status = 404;
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		for (const struct route *rt = tables[t]; rt->method; rt++) {
			if (!(rt->dialects & (1u << dialect)) || !matches(rt->path, path, found))
				continue;
			if (strcmp(rt->method, method) != 0) {
				*ret_status = 405;
			} else if (!strchr(rt->path, '{')) {
				arg[0] = '\0';
				return rt;
			} else if (!templated) {
				templated = rt; /* a fixed path still goes first */
				strcpy(arg, found);
			}
		}
	}
	return templated;
}

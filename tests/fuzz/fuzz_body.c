/* JSON bodies: the first byte picks a route, the rest is its body. */
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "route.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct route *routes[128];
static size_t nroutes;

static void add(const struct route *table)
{
	for (; table->method; table++)
		if (table->args && nroutes < ARRAY_SIZE(routes))
			routes[nroutes++] = table;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	add(file_routes);
	add(search_routes);
	add(watch_routes);
	add(bash_routes);
	add(shell_routes);
	harness_start();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct route *rt;
	char path[256], head[512];
	const char *hole;
	bool may_wait;
	int n;

	if (size < 2)
		return 0;
	rt = routes[data[0] % nroutes];
	hole = strchr(rt->path, '{');
	if (hole)
		snprintf(path, sizeof(path), "%.*sabcdef%s", (int)(hole - rt->path), rt->path,
			 strchr(hole, '}') + 1);
	else
		snprintf(path, sizeof(path), "%s", rt->path);
	may_wait = !(rt->flags & ROUTE_BLOCKING);
	n = snprintf(
		head, sizeof(head),
		"%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
		rt->method, path, size - 1);
	harness_request(head, (size_t)n, data + 1, size - 1, size, may_wait);
	return 0;
}

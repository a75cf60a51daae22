/* See traffic.h. Which route is of which kind. Pure. */
#include "traffic.h"

#include <string.h>

const char *traffic_name(enum traffic_kind kind)
{
	static const char *const names[TRAFFIC_KINDS] = {
		[TRAFFIC_CONTEXT] = "context", [TRAFFIC_LIST] = "list",
		[TRAFFIC_FILE] = "file",       [TRAFFIC_DOWNLOAD] = "download",
		[TRAFFIC_UPLOAD] = "upload",   [TRAFFIC_COMMAND] = "command",
		[TRAFFIC_SESSION] = "session", [TRAFFIC_WATCH] = "watch",
		[TRAFFIC_BACKEND] = "backend",
	};

	return names[kind];
}

static bool begins_with(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

enum traffic_kind traffic_kind_of(const char *target)
{
	static const struct {
		const char *begins;
		enum traffic_kind kind;
	} routes[] = {
		{ "/v1/file/download", TRAFFIC_DOWNLOAD },
		{ "/v1/file/upload", TRAFFIC_UPLOAD },
		{ "/v1/file/list", TRAFFIC_LIST },
		{ "/v1/file/watch/", TRAFFIC_WATCH },
		{ "/v1/file/watch", TRAFFIC_SESSION },
		{ "/v1/file/", TRAFFIC_FILE },
		{ "/v1/bash/sessions", TRAFFIC_SESSION },
		{ "/v1/shell/sessions", TRAFFIC_SESSION },
		{ "/v1/bash/", TRAFFIC_COMMAND },
		{ "/v1/shell/", TRAFFIC_COMMAND },
		{ "/v1/sandbox", TRAFFIC_CONTEXT },
		{ "/v1/capabilities", TRAFFIC_CONTEXT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		if (begins_with(target, routes[i].begins))
			return routes[i].kind;
	return TRAFFIC_BACKEND;
}

/* See in_force.h. */
#include "in_force.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aside.h"

enum { ANSWER_MS = 5000 };

int in_force_read(const char *point, struct buf *to)
{
	char *path CLEANUP_FREE = NULL;

	if (asprintf(&path, "%s/.ctl/config", point) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return aside_read_within(path, ANSWER_MS, to);
}

char *in_force_value(const struct buf *config, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = config->data ?: ""; *line; line += strspn(line, "\n")) {
		size_t end = strcspn(line, "\n");

		if (strncmp(line, name, len) == 0 && line[len] == '=')
			return strndup(line + len + 1, end - len - 1);
		line += end;
	}
	return NULL;
}

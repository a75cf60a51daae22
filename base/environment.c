/* See environment.h. */
#include "environment.h"

#include <string.h>

#include "util.h"

static bool is_harmless(const char *entry)
{
	static const char *const names[] = { "PATH", "HOME", "USER",   "LOGNAME",
					     "LANG", "TZ",   "TMPDIR", "LD_LIBRARY_PATH" };
	size_t len = strcspn(entry, "=");
	static const char san[] = "SAN_OPTIONS";

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && strncmp(names[i], entry, len) == 0)
			return true;
	if (strncmp(entry, "LC_", 3) == 0)
		return true;
	return len >= sizeof(san) - 1 &&
	       strncmp(entry + len - (sizeof(san) - 1), san, sizeof(san) - 1) == 0;
}

void environment_choose(char *env[ENVIRONMENT_MAX])
{
	size_t n = 0;

	for (char **e = environ; e && *e && n < ENVIRONMENT_MAX - 1; e++)
		if (is_harmless(*e))
			env[n++] = *e;
	env[n] = NULL;
}

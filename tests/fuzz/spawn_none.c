/* Stands in for sandboxd/spawn.c under the fuzzers: no command is ever run. */
#include "spawn.h"

#include <errno.h>

pid_t spawn(const struct server *srv, const struct spawn *s)
{
	return -EAGAIN;
}

char **spawn_env(const struct server *srv, const char *const *names, const char *const *values,
		 size_t n)
{
	return calloc(1, sizeof(char *));
}

void spawn_env_free(char **env)
{
	free(env);
}

void spawn_kill(pid_t group, int sig)
{
}

/* See proc.h. */
#include "proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

bool proc_stat(int dir, const char *name, struct proc_stat *ret)
{
	char path[64], stat[512], state;
	int fd CLEANUP_FD = -1;
	const char *name_end;
	int parent, session;
	ssize_t n;

	if (snprintf(path, sizeof(path), "%s/stat", name) >= (int)sizeof(path))
		return false;
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, stat, sizeof(stat) - 1);
	if (n <= 0)
		return false;
	stat[n] = '\0';
	/* The command's name before it may hold any byte. */
	name_end = strrchr(stat, ')');
	if (!name_end || sscanf(name_end, ") %c %d %*d %d", &state, &parent, &session) != 3)
		return false;
	*ret = (struct proc_stat){ .state = state, .parent = parent, .session = session };
	return true;
}

/*
 * threadfs-sandboxd: what users start, signal, and find in the pid file. It
 * stays outside of the walls as supervisor of threadfs-sandboxd-server, or, with
 * isolation none, becomes it. Nothing here may start a thread: it forks.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "beside.h"
#include "confine.h"
#include "log.h"
#include "outer.h"

#define SERVER "threadfs-sandboxd-server"

/* Beside this program, as in a build directory, or where it is installed. */
static char *find_server(void)
{
	char *path;
	int r = beside_find(SERVER, &path);

	if (r == 0)
		return path;
	if (r == -EPERM)
		log_warn(SERVER " beside this program is a stranger's: it is not run");
	path = realpath(LIBEXECDIR "/" SERVER, NULL);
	if (!path)
		log_error(SERVER " was found neither beside this program nor in " LIBEXECDIR);
	return path;
}

static int supervise(struct outer *out, int data_fd)
{
	char *server CLEANUP_FREE = find_server();

	if (!server)
		return -ENOENT;
	return confine_run(out->o, server, data_fd, out->listener.fd, outer_announce, out);
}

/* With everything that was inherited. */
static int become_server(char **argv)
{
	char *server CLEANUP_FREE = find_server();

	if (!server)
		return -ENOENT;
	execv(server, argv);
	log_error("cannot run %s: %m", server);
	return -EIO;
}

int main(int argc, char **argv)
{
	struct options o;
	int r = outer_begin(argc, argv, &o);

	if (r >= 0)
		return r;
	if (o.inherit_listen >= 0) {
		log_error("--inherit-listen is for " SERVER " only");
		return OPTIONS_EXIT_USAGE;
	}
	if (o.cfg.isolation == ISOLATION_NONE)
		r = become_server(argv);
	else
		r = outer_settle() ?: outer_run(&o, supervise);
	return r < 0 ? OPTIONS_EXIT_FAILURE : 0;
}

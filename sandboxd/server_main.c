/*
 * threadfs-sandboxd-server: the sandbox itself, started by threadfs-sandboxd:
 * inside the walls as the inner server, or, with isolation none, in its place.
 * The two are programs of their own because the supervisor, which lives as long,
 * needs none of the server's libraries, and loading them takes longer than
 * everything that it does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "confine.h"
#include "log.h"
#include "outer.h"
#include "server.h"

/* What every sandbox has. A command may have put something else there: that stays. */
static int create_data_dirs(int data_fd)
{
	static const char *const names[] = { "workspace", "uploads", "outputs" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (mkdirat(data_fd, names[i], 0755) == 0)
			continue;
		if (errno != EEXIST) {
			int r = -errno;

			log_error("cannot create %s in the data directory: %m", names[i]);
			return r;
		}
		if (fstatat(data_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    !S_ISDIR(st.st_mode))
			log_warn("%s in the data directory is not a directory", names[i]);
	}
	return 0;
}

static bool usable_dir(const char *path)
{
	struct stat st;

	return path && path[0] == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
	       access(path, W_OK | X_OK) == 0;
}

/* Isolation none: this process is the server, perhaps as PID 1 of a container. */
static int run_direct(struct outer *out, int data_fd)
{
	struct config *cfg = &out->o->cfg;
	char *mapped CLEANUP_FREE = NULL;
	struct stat here, there;
	int r;

	r = create_data_dirs(data_fd);
	if (r < 0)
		return r;
	if (fstat(data_fd, &here) < 0)
		return -errno;
	if (stat(SANDBOX_DATA, &there) < 0 || here.st_dev != there.st_dev ||
	    here.st_ino != there.st_ino) {
		mapped = realpath(cfg->data_dir, NULL);
		if (!mapped)
			return -errno;
		cfg->map_data = mapped;
		log_warn("%s is %s in file routes only; commands see it under its own name", mapped,
			 SANDBOX_DATA);
	}
	cfg->home = usable_dir(SANDBOX_HOME)     ? SANDBOX_HOME
		    : usable_dir(getenv("HOME")) ? getenv("HOME")
						 : "/tmp";
	cfg->own_pidns = getpid() == 1;
	r = server_run(cfg, steal_fd(&out->listener.fd), outer_announce, out);
	if (r < 0)
		log_error("the server failed: %s", strerrordesc_np(-r));
	cfg->map_data = NULL;
	return r;
}

static void report_ready(void *ctx)
{
	int *status_fd = ctx;

	if (*status_fd < 0)
		return;
	if (write(*status_fd, "R", 1) != 1)
		log_warn("the supervisor is gone");
	close(*status_fd);
	*status_fd = -1;
}

/* Inside the walls. */
static int run_inner(struct options *o)
{
	struct config *cfg = &o->cfg;
	int data_fd CLEANUP_FD = -1;
	char *key CLEANUP_FREE = NULL;
	int r;

	/* Commands run as the same user: they must not trace us or see our memory and files. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return -errno;
	if (o->inherit_key >= 0) {
		r = options_read_key(o->inherit_key, &key);
		close(o->inherit_key);
		if (r < 0)
			return r;
		cfg->api_key = key;
	}
	data_fd = open(cfg->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (data_fd < 0)
		return -errno;
	r = create_data_dirs(data_fd);
	if (r < 0)
		return r;
	cfg->home = SANDBOX_HOME;
	cfg->own_pidns = getpid() == 1;
	r = server_run(cfg, o->inherit_listen, report_ready, &o->inherit_status);
	cfg->api_key = NULL;
#ifdef SANITIZED
	/* The leak checker traces us; by now no command is left that could. */
	prctl(PR_SET_DUMPABLE, 1);
#endif
	return r;
}

int main(int argc, char **argv)
{
	struct options o;
	int r = outer_begin(argc, argv, &o);

	if (r >= 0)
		return r;
	r = outer_settle();
	if (r < 0)
		return OPTIONS_EXIT_FAILURE;
	umask(022); /* as in the images, whoever started it: uploads and commands have it */
	if (o.inherit_listen >= 0) {
		r = run_inner(&o);
		if (r < 0)
			log_error("the server failed: %s", strerrordesc_np(-r));
	} else if (o.cfg.isolation == ISOLATION_NONE) {
		r = outer_run(&o, run_direct);
	} else {
		log_error("the walls are built by threadfs-sandboxd: run that");
		return OPTIONS_EXIT_USAGE;
	}
	return r < 0 ? OPTIONS_EXIT_FAILURE : 0;
}

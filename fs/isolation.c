/* Asks bubblewrap itself whether it works, before anything is mounted. */
#include "isolation.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#define WAY_OUT "; or mount with -o isolation=none, where commands run without walls"

static int spawn(int err_fd, pid_t *ret)
{
	/* The same walls as threadfs-sandboxd puts up, around nothing. Not around all of /: that
	 * goes to every mount there is, also to those that are only made when somebody comes. */
	static const char *const args[] = { "bwrap",         "--ro-bind",
					    "/usr",          "/usr",
					    "--ro-bind-try", "/bin",
					    "/bin",          "--ro-bind-try",
					    "/lib",          "/lib",
					    "--ro-bind-try", "/lib64",
					    "/lib64",        "--unshare-pid",
					    "--unshare-ipc", "--unshare-uts",
					    "--unshare-net", "--proc",
					    "/proc",         "--dev",
					    "/dev",          "--die-with-parent",
					    "true",          NULL };
	posix_spawn_file_actions_t actions;
	int r;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, err_fd, 2);
	r = posix_spawnp(ret, args[0], &actions, NULL, (char **)(uintptr_t)args, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

int isolation_check(struct buf *why)
{
	char line[256] = "";
	int fds[2], status = 0, r;
	ssize_t n;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	r = spawn(fds[1], &pid);
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		buf_printf(why,
			   "bubblewrap (bwrap) cannot be started: %s; install it (apt install "
			   "bubblewrap)" WAY_OUT,
			   strerrordesc_np(-r));
		return r;
	}
	n = read(fds[0], line, sizeof(line) - 1);
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	line[n > 0 ? strcspn(line, "\n") : 0] = '\0';
	buf_printf(
		why,
		"bubblewrap cannot isolate sandboxes here (%s): allow unprivileged user namespaces "
		"(sysctl kernel.unprivileged_userns_clone=1)" WAY_OUT,
		line[0] ? line : "it failed");
	return -EPERM;
}

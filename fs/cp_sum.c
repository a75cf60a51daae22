/*
 * See cp.h. What runs in the sandbox is run by this program's own `exec`: a process of its own
 * with its exit status, on every server.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "buf.h"
#include "cp.h"
#include "mounts.h"

/* ---- where ---- */

/* The directory of a path, and its name in it; false: no memory. */
static bool split(const char *path, char **ret_dir, char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_dir = slash ? strndup(path, (size_t)MAX(slash - path, 1)) : strdup(".");
	*ret_name = strdup(slash ? slash + 1 : path);
	return *ret_dir && *ret_name;
}

bool cp_is_remote(const char *path)
{
	char *dir CLEANUP_FREE = NULL, *name CLEANUP_FREE = NULL, *real CLEANUP_FREE = NULL;
	struct mounts m CLEANUP_MOUNTS = { 0 };
	const struct mount_entry *mount;

	if (!split(path, &dir, &name))
		return false;
	real = realpath(dir, NULL);
	if (!real || mounts_read(&m) < 0)
		return false;
	mount = mounts_around(&m, real);
	return mount_entry_is_ours(mount) &&
	       strncmp(real + strlen(mount->point), "/threads/", 9) == 0;
}

/* ---- in the sandbox ---- */

static int start(const char *const argv[], int out, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	int r = -posix_spawn_file_actions_init(&actions);

	if (r < 0)
		return r;
	r = -posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = -posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0)
		r = -posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
						      O_WRONLY, 0);
	if (r == 0)
		r = -posix_spawn(ret, "/proc/self/exe", &actions, NULL, (char *const *)argv,
				 environ);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

static void read_output(int fd, char *to, size_t size)
{
	size_t len = 0;
	char piece[512];
	ssize_t n;

	while ((n = read(fd, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR)) {
		size_t take = n > 0 ? MIN((size_t)n, size - 1 - len) : 0;

		memcpy(to + len, piece, take);
		len += take;
	}
	to[len] = '\0';
}

int cp_run(const char *dir, const char *const argv[], char *to, size_t size)
{
	const char *all[16] = { "threadfs", "exec", dir, "--" };
	int fds[2], status, r;
	size_t n = 4;
	pid_t pid;

	while (*argv && n < ARRAY_SIZE(all) - 1)
		all[n++] = *argv++;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	r = start(all, fds[1], &pid);
	close(fds[1]);
	if (r == 0)
		read_output(fds[0], to, size);
	close(fds[0]);
	if (r < 0)
		return r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

/* Names may hold anything; sha256sum would escape them in its output. */
static int sum_there(const char *path, char to[CP_SUM])
{
	char *dir CLEANUP_FREE = NULL, *name CLEANUP_FREE = NULL;
	char output[256];
	int r;

	if (!split(path, &dir, &name))
		return -ENOMEM;
	r = cp_run(dir,
		   (const char *const[]){ "sh", "-c", "LC_ALL=C exec sha256sum <\"./$1\"", "sh",
					  name, NULL },
		   output, sizeof(output));
	if (r != 0 || strspn(output, "0123456789abcdef") != CP_SUM - 1)
		return -EOPNOTSUPP;
	memcpy(to, output, CP_SUM - 1);
	to[CP_SUM - 1] = '\0';
	return 0;
}

/* ---- here ---- */

static int digest(int fd, EVP_MD_CTX *md)
{
	enum { SIZE = 1024 * 1024 };
	char *bytes CLEANUP_FREE = malloc(SIZE);
	ssize_t n;

	if (!bytes || !EVP_DigestInit_ex(md, EVP_sha256(), NULL))
		return -ENOMEM;
	while ((n = read(fd, bytes, SIZE)) != 0) {
		if (cp_is_interrupted())
			return -EINTR;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && !EVP_DigestUpdate(md, bytes, (size_t)n))
			return -EIO;
	}
	return 0;
}

static int sum_here(const char *path, char to[CP_SUM])
{
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	unsigned char sum[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *md;
	unsigned len = 0;
	int r;

	if (fd < 0)
		return -errno;
	md = EVP_MD_CTX_new();
	r = md ? digest(fd, md) : -ENOMEM;
	if (r == 0 && !EVP_DigestFinal_ex(md, sum, &len))
		r = -EIO;
	EVP_MD_CTX_free(md);
	for (unsigned i = 0; r == 0 && i < len && i < CP_SUM / 2; i++)
		snprintf(to + i * 2, 3, "%02x", sum[i]);
	return r;
}

int cp_sum(const char *path, char to[CP_SUM])
{
	int r = cp_is_remote(path) ? sum_there(path, to) : -EOPNOTSUPP;

	if (cp_is_interrupted())
		return -EINTR;
	return r == -EOPNOTSUPP ? sum_here(path, to) : r;
}

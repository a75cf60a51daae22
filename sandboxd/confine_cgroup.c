/*
 * A cgroup around one sandbox: <our place>/threadfs/sb-<pid>. It is what holds
 * a fork bomb when the sandbox's user is the host's root, whom RLIMIT_NPROC
 * does not bind, and what limits the memory of all processes together.
 *
 * Having one is a bonus: why there is none is said at debug level only.
 * Main thread of the supervisor.
 *
 * Where: never outside limits that hold for us. With version 1, directly below
 * our own cgroup, and as root only if that is the hierarchy's root or was
 * delegated: what a manager made for us is not ours to divide. With version 2,
 * below the nearest ancestor that hands the controllers down (a cgroup with
 * processes of its own cannot), with our own cgroup's limits where those are
 * tighter.
 */
#include "confine_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "clock.h"
#include "confine.h"
#include "log.h"

enum {
	MAX_GROUPS = 2,      /* v1: pids and memory are hierarchies of their own */
	SERVER_THREADS = 32, /* the server's threads count as processes */
};

struct group {
	char *parent; /* …/threadfs */
	char name[48];
	bool v2;
	int lock_fd; /* of parent; held from creation until something has joined */
	int dir_fd;  /* of the cgroup itself; open as long as lock_fd */
};

struct cgroup {
	struct group groups[MAX_GROUPS];
	size_t n;
	bool holds_memory;
};

static int write_file(int dir_fd, const char *name, const char *text)
{
	int fd CLEANUP_FD = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int write_number(int dir_fd, const char *name, uint64_t v)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	return write_file(dir_fd, name, text);
}

static int read_small(const char *dir, const char *name, char *out, size_t size)
{
	char path[PATH_MAX];
	int fd CLEANUP_FD = -1;
	ssize_t n;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, out, size - 1);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* Whether word is one of the words in text, which are separated by sep or a newline. */
static bool has_word(const char *text, const char *word, char sep)
{
	size_t len = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += len)
		if ((p == text || p[-1] == sep) && (!p[len] || p[len] == sep || p[len] == '\n'))
			return true;
	return false;
}

/* Our cgroup's path in the hierarchy with this controller; NULL = version 2. */
static int own_path(const char *controller, char *out, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX];
	int r = -ENOENT;

	if (!f)
		return -errno;
	while (r == -ENOENT && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		names++;
		path[strcspn(path, "\n")] = '\0';
		if (controller ? !has_word(names, controller, ',') : *names != '\0')
			continue;
		r = (size_t)snprintf(out, size, "%s", path) < size ? 0 : -ENAMETOOLONG;
	}
	fclose(f);
	return r;
}

/*
 * Where that hierarchy is mounted, and which part of it. In a container the
 * mount shows only the container's part, so its root is cut off our path.
 */
static int find_mount(const char *controller, char *mount, char *root)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	int r = -ENOENT;
	char *line = NULL;
	size_t cap = 0;

	if (!f)
		return -errno;
	while (r == -ENOENT && getline(&line, &cap, f) > 0) {
		char type[32], super[1024];
		const char *dash = strstr(line, " - ");

		if (!dash || sscanf(dash, " - %31s %*s %1023s", type, super) != 2)
			continue;
		if (strcmp(type, controller ? "cgroup" : "cgroup2") != 0)
			continue;
		if (controller && !has_word(super, controller, ','))
			continue;
		if (sscanf(line, "%*s %*s %*s %1023s %1023s", root, mount) == 2)
			r = 0;
	}
	free(line);
	fclose(f);
	return r;
}

/* The directory of our own cgroup; *ret_mount_len is the length of the mount point. */
static int own_directory(const char *controller, char *dir, size_t size, size_t *ret_mount_len)
{
	char path[PATH_MAX], mount[1024], root[1024];
	const char *below = path;
	int r;

	r = own_path(controller, path, sizeof(path));
	if (r < 0)
		return r;
	r = find_mount(controller, mount, root);
	if (r < 0)
		return r;
	if (strcmp(root, "/") != 0) {
		size_t len = strlen(root);

		if (strncmp(path, root, len) == 0 && (!path[len] || path[len] == '/'))
			below = path + len;
	}
	if (strcmp(below, "/") == 0)
		below = "";
	if (strncmp(below, "/..", 3) == 0)
		return -ENOENT; /* outside our cgroup namespace */
	if ((size_t)snprintf(dir, size, "%s%s", mount, below) >= size)
		return -ENAMETOOLONG;
	*ret_mount_len = strlen(mount);
	return 0;
}

static bool is_delegated(const char *dir)
{
	char value[4] = "";

	return (getxattr(dir, "trusted.delegate", value, sizeof(value)) == 1 && value[0] == '1') ||
	       (getxattr(dir, "user.delegate", value, sizeof(value)) == 1 && value[0] == '1');
}

/* Removes what killed supervisors left: an empty cgroup whose maker is done joining is stale. */
static void sweep(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (strncmp(e->d_name, "sb-", 3) == 0)
			unlinkat(dir_fd, e->d_name, AT_REMOVEDIR);
	closedir(d);
}

/* Anybody who can see the directory can lock it: never waits for long. */
static int lock_wait(int fd, int operation)
{
	int64_t deadline = clock_ms() + 1000;

	while (flock(fd, operation | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK || clock_ms() > deadline)
			return -errno;
		usleep(1000);
	}
	return 0;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/*
 * Makers share the lock, so that sandboxes that start together do not wait for
 * each other; whoever is alone at the moment sweeps first.
 */
static int lock_to_make(const char *parent, int *ret_fd)
{
	int fd CLEANUP_FD = open_dir(parent);
	int r;

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		sweep(fd);
	r = lock_wait(fd, LOCK_SH);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

/* The last one takes the parent along; makers hold its lock. */
static void remove_parent(const char *parent)
{
	int fd CLEANUP_FD = open_dir(parent);

	if (fd >= 0 && lock_wait(fd, LOCK_EX) == 0)
		rmdir(parent);
}

/* Makes base/threadfs/sb-<pid>, locked, and opens it. */
static int group_create(const char *base, bool v2, struct group *ret)
{
	struct group g = { .v2 = v2, .lock_fd = -1, .dir_fd = -1 };
	char *parent CLEANUP_FREE = NULL;
	int r = -EAGAIN;

	if (asprintf(&parent, "%s/threadfs", base) < 0) {
		parent = NULL;
		return -ENOMEM;
	}
	/* Another supervisor may remove the parent between our mkdir and our lock. */
	for (int i = 0; i < 5 && r == -EAGAIN; i++) {
		if (mkdir(parent, 0755) < 0 && errno != EEXIST)
			return -errno;
		r = lock_to_make(parent, &g.lock_fd);
		if (r == -ENOENT)
			r = -EAGAIN;
		if (r < 0)
			continue;
		if (v2) {
			/* One by one: a missing controller must not cost the other. */
			write_file(g.lock_fd, "cgroup.subtree_control", "+pids");
			write_file(g.lock_fd, "cgroup.subtree_control", "+memory");
		}
		snprintf(g.name, sizeof(g.name), "sb-%d-%" PRIx64, (int)getpid(), clock_ms());
		if (mkdirat(g.lock_fd, g.name, 0755) < 0)
			r = errno == ENOENT || errno == ENODEV ? -EAGAIN : -errno;
		else
			g.dir_fd = openat(g.lock_fd, g.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (r < 0 || g.dir_fd < 0)
			close(steal_fd(&g.lock_fd));
	}
	if (r < 0)
		return r;
	if (g.dir_fd < 0)
		return -EIO;
	g.parent = STEAL(parent);
	*ret = g;
	return 0;
}

static void limit_pids(int dir, uint64_t max)
{
	int r = write_number(dir, "pids.max", max);

	if (r < 0)
		log_debug("cgroup: no limit on processes: %s", strerrordesc_np(-r));
}

/* Returns whether there is one now. */
static bool limit_memory(int dir, bool v2, uint64_t max)
{
	int r = write_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", max);

	if (r < 0)
		log_debug("cgroup: no limit on memory: %s", strerrordesc_np(-r));
	/* Without swap accounting there is no such file, and nothing to limit. */
	if (v2)
		write_number(dir, "memory.swap.max", 0);
	else
		write_number(dir, "memory.memsw.limit_in_bytes", max);
	return r == 0;
}

static int add_v1(struct cgroup *cg, const char *controller, uint64_t max)
{
	struct group *g = &cg->groups[cg->n];
	char base[PATH_MAX];
	size_t mount_len;
	int r;

	r = own_directory(controller, base, sizeof(base), &mount_len);
	if (r < 0)
		return r;
	if (geteuid() == 0 && strlen(base) > mount_len && !is_delegated(base))
		return -EPERM;
	r = group_create(base, false, g);
	if (r < 0)
		return r;
	cg->n++;
	if (strcmp(controller, "pids") == 0)
		limit_pids(g->dir_fd, max);
	else
		cg->holds_memory = limit_memory(g->dir_fd, false, max);
	return 0;
}

/* The tighter of max and what the file says ("max" or a number). */
static uint64_t tighter(const char *dir, const char *name, uint64_t max)
{
	unsigned long long v;
	char text[64];

	if (read_small(dir, name, text, sizeof(text)) < 0 || sscanf(text, "%llu", &v) != 1)
		return max;
	return MIN(max, v);
}

static int add_v2(struct cgroup *cg, uint64_t max_processes, uint64_t max_memory)
{
	char own[PATH_MAX], base[PATH_MAX], controllers[512] = "";
	struct group *g = &cg->groups[cg->n];
	size_t mount_len;
	int r;

	r = own_directory(NULL, own, sizeof(own), &mount_len);
	if (r < 0)
		return r;
	strcpy(base, own);
	for (;;) {
		r = read_small(base, "cgroup.subtree_control", controllers, sizeof(controllers));
		if (r < 0)
			return r;
		if (has_word(controllers, "pids", ' ') || has_word(controllers, "memory", ' '))
			break;
		if (strlen(base) <= mount_len)
			return -ENODEV;
		*strrchr(base, '/') = '\0';
	}
	if (access(base, W_OK) < 0)
		return -errno;
	r = group_create(base, true, g);
	if (r < 0)
		return r;
	cg->n++;
	if (has_word(controllers, "pids", ' '))
		limit_pids(g->dir_fd, tighter(own, "pids.max", max_processes));
	if (has_word(controllers, "memory", ' '))
		cg->holds_memory =
			limit_memory(g->dir_fd, true, tighter(own, "memory.max", max_memory));
	return 0;
}

struct cgroup *cgroup_new(uint64_t max_processes, uint64_t max_memory)
{
	struct cgroup *cg = calloc(1, sizeof(*cg));
	int r;

	if (!cg)
		return NULL;
	max_processes += SERVER_THREADS;
	r = add_v2(cg, max_processes, max_memory);
	if (r == 0)
		return cg;
	log_debug("cgroup: no version 2: %s", strerrordesc_np(-r));
	r = add_v1(cg, "pids", max_processes);
	if (r < 0)
		log_debug("cgroup: no limit on processes: %s", strerrordesc_np(-r));
	r = add_v1(cg, "memory", max_memory);
	if (r < 0)
		log_debug("cgroup: no limit on memory: %s", strerrordesc_np(-r));
	if (cg->n == 0) {
		free(cg);
		return NULL;
	}
	return cg;
}

/*
 * Moves the calling process, which has one thread. Version 1 can move a thread
 * alone, and does that at once when it is the caller; before it moves a process
 * the kernel waits for milliseconds until nothing on the machine forks or ends.
 */
static void group_join(const struct group *g)
{
	int r = g->v2 ? -EOPNOTSUPP : write_file(g->dir_fd, "tasks", "0");

	if (r < 0)
		r = write_file(g->dir_fd, "cgroup.procs", "0");
	if (r < 0)
		log_warn("cgroup: cannot join %s/%s, whose limits do not hold: %s", g->parent,
			 g->name, strerrordesc_np(-r));
}

/* Lets go of the lock, too, when parent and child have both called it. */
static void group_close(struct group *g)
{
	if (g->dir_fd >= 0)
		close(steal_fd(&g->dir_fd));
	if (g->lock_fd >= 0)
		close(steal_fd(&g->lock_fd));
}

/* A fork whose child is born in the cgroup: nothing has to be moved. */
static pid_t fork_into(const struct group *g)
{
#ifdef SANITIZED
	errno = ENOSYS; /* sanitizers want to know of forks */
	return -1;
#else
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)g->dir_fd,
	};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
#endif
}

pid_t cgroup_fork(struct cgroup *cg)
{
	size_t n = cg ? cg->n : 0;
	pid_t pid = -1;
	int saved;

	/* Version 2 has but one. Where the call is not available, the child moves itself. */
	if (n == 1 && cg->groups[0].v2)
		pid = fork_into(&cg->groups[0]);
	if (pid < 0) {
		pid = fork();
		for (size_t i = 0; pid == 0 && i < n; i++)
			group_join(&cg->groups[i]);
	}
	saved = errno;
	for (size_t i = 0; i < n; i++)
		group_close(&cg->groups[i]);
	errno = saved;
	return pid;
}

bool cgroup_holds_memory(const struct cgroup *cg)
{
	return cg && cg->holds_memory;
}

static void group_remove(struct group *g)
{
	int64_t deadline = clock_ms() + 500;
	char *path CLEANUP_FREE = NULL;

	group_close(g);
	if (asprintf(&path, "%s/%s", g->parent, g->name) < 0) {
		path = NULL;
		return;
	}
	/* The kernel says EBUSY until the last process is entirely gone. */
	while (rmdir(path) < 0 && errno == EBUSY && clock_ms() < deadline)
		usleep(1000);
	remove_parent(g->parent);
	free(g->parent);
}

void cgroup_free(struct cgroup *cg)
{
	if (!cg)
		return;
	for (size_t i = 0; i < cg->n; i++)
		group_remove(&cg->groups[i]);
	free(cg);
}

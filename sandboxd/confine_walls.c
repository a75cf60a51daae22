/*
 * What the sandbox consists of, as arguments for bubblewrap: namespaces,
 * environment, what is mounted where, and the inner server's own command line.
 * Knows nothing of processes. Main thread of the supervisor.
 */
#include "confine_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "confine.h"
#include "log.h"

/* On the read-only root, where commands cannot replace it. */
#define SERVER_INSIDE "/opt/threadfs/threadfs-sandboxd"

/*
 * What of /etc is copied in instead of bound: bwrap reads the whole mount table
 * for every bind, so that many binds are most of the time that a start takes.
 */
enum {
	COPY_MAX_BYTES = 128 * 1024, /* of one file */
	COPY_MAX_ENTRIES = 8,        /* of one directory, with all below it */
	FD_RESERVE = 32,             /* descriptors left for everything else */
};

static void argvec_add(struct argvec *a, const char *s)
{
	char *copy;

	if (a->error)
		return;
	if (a->n + 2 > a->cap) {
		size_t cap = a->cap ? a->cap * 2 : 128;
		char **v = reallocarray(a->v, cap, sizeof(*v));

		if (!v) {
			a->error = -ENOMEM;
			return;
		}
		a->v = v;
		a->cap = cap;
	}
	copy = strdup(s);
	if (!copy) {
		a->error = -ENOMEM;
		return;
	}
	a->v[a->n++] = copy;
	a->v[a->n] = NULL;
}

static void argvec_add_all(struct argvec *a, const char *const *list)
{
	for (; *list; list++)
		argvec_add(a, *list);
}

#define argvec_addl(a, ...) argvec_add_all(a, (const char *const[]){ __VA_ARGS__, NULL })

static void argvec_number(struct argvec *a, const char *option, uint64_t v)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	argvec_addl(a, option, text);
}

/* Forgets all but the first n. */
static void argvec_cut(struct argvec *a, size_t n)
{
	while (a->n > n) {
		a->n--;
		free(STEAL(a->v[a->n]));
	}
}

void argvec_release(struct argvec *a)
{
	argvec_cut(a, 0);
	free(a->v);
	*a = (struct argvec){ 0 };
}

static int handover_lend(struct handover *h, int fd)
{
	if (h->n == WALLS_MAX_FDS)
		return -EMFILE;
	h->fds[h->n++] = fd;
	return 0;
}

/* The same, with an fd that is ours to close from now on. */
static int handover_give(struct handover *h, int fd)
{
	int r = handover_lend(h, fd);

	if (r < 0)
		close(fd);
	else
		h->owned++;
	return r;
}

/* Forgets all but the first n; only owned ones are cut. */
static void handover_cut(struct handover *h, size_t n)
{
	while (h->n > n && h->owned) {
		close(h->fds[--h->n]);
		h->owned--;
	}
}

void handover_release(struct handover *h)
{
	handover_cut(h, 0);
	*h = (struct handover){ 0 };
}

static void add_namespaces(struct argvec *a, const struct walls *w)
{
	argvec_addl(a, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
		    "--unshare-cgroup-try");
	if (!w->cfg->net_host)
		argvec_add(a, "--unshare-net");
	/* Commands could otherwise become root in a namespace of their own: more kernel to attack.
	 */
	if (w->disable_userns)
		argvec_add(a, "--disable-userns");
	argvec_addl(a, "--hostname", "sandbox", "--uid", "1000", "--gid", "1000", "--cap-drop",
		    "ALL", "--new-session", "--die-with-parent", "--as-pid-1");
}

static void add_environment(struct argvec *a)
{
	static const char *const env[][2] = {
		{ "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
		{ "HOME", SANDBOX_HOME },
		{ "USER", SANDBOX_USER },
		{ "LOGNAME", SANDBOX_USER },
		{ "LANG", "C.UTF-8" },
		{ "TERM", "xterm-256color" },
		{ "SHELL", "/bin/bash" },
	};

	argvec_add(a, "--clearenv");
	for (size_t i = 0; i < ARRAY_SIZE(env); i++)
		argvec_addl(a, "--setenv", env[i][0], env[i][1]);
#ifdef SANITIZED
	static const char *const names[] = { "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS",
					     "UBSAN_OPTIONS" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (getenv(names[i]))
			argvec_addl(a, "--setenv", names[i], getenv(names[i]));
#endif
}

/* /usr, and the old top-level directories as the host has them. */
static int add_system(struct argvec *a)
{
	static const char *const dirs[] = {
		"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"
	};
	char target[256];
	struct stat st;

	argvec_addl(a, "--ro-bind", "/usr", "/usr");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		ssize_t n;

		if (lstat(dirs[i], &st) < 0)
			continue;
		if (!S_ISLNK(st.st_mode)) {
			argvec_addl(a, "--ro-bind", dirs[i], dirs[i]);
			continue;
		}
		n = readlink(dirs[i], target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = '\0';
		argvec_addl(a, "--symlink", target, dirs[i]);
	}
	return 0;
}

/* Neither the handover nor the process may run out of descriptors because of copies. */
static bool fds_scarce(const struct handover *h, int fd)
{
	struct rlimit lim;

	return h->n + 8 > WALLS_MAX_FDS || getrlimit(RLIMIT_NOFILE, &lim) < 0 ||
	       (rlim_t)fd + FD_RESERVE > lim.rlim_cur;
}

/* path is what the open file fd is to be called. Takes fd. */
static int copy_file(struct argvec *a, struct handover *h, int fd, const struct stat *st,
		     const char *path)
{
	int owned CLEANUP_FD = fd;
	char number[16], mode[8];

	if (st->st_size > COPY_MAX_BYTES)
		return -EFBIG;
	/* The sandbox's user, who is not always ours, must not get to read more than before. */
	if (!(st->st_mode & S_IROTH))
		return -EACCES;
	if (fds_scarce(h, fd))
		return -EMFILE;
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(mode, sizeof(mode), "%04o", (unsigned)st->st_mode & 0555);
	argvec_addl(a, "--perms", mode, "--file", number, path);
	return handover_give(h, steal_fd(&owned));
}

static int copy_symlink(struct argvec *a, const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	argvec_addl(a, "--symlink", target, path);
	return 0;
}

static int copy_open(struct argvec *a, struct handover *h, int fd, const char *path,
		     unsigned *budget);

static int open_to_copy(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);

	return fd < 0 ? -errno : fd;
}

/* One of a directory's entries. */
static int copy_below(struct argvec *a, struct handover *h, const char *dir, const char *name,
		      unsigned *budget)
{
	char *path CLEANUP_FREE = NULL;
	int fd;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if ((*budget)-- == 0)
		return -E2BIG;
	if (asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open_to_copy(path, O_NOFOLLOW);
	if (fd == -ELOOP)
		return copy_symlink(a, path);
	return fd < 0 ? fd : copy_open(a, h, fd, path, budget);
}

/* Takes fd. */
static int copy_directory(struct argvec *a, struct handover *h, int fd, const struct stat *st,
			  const char *path, unsigned *budget)
{
	const mode_t open_to_all = S_IROTH | S_IXOTH;
	const struct dirent *e;
	DIR *d = fdopendir(fd);
	int r = (st->st_mode & open_to_all) == open_to_all ? 0 : -EACCES;

	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	argvec_addl(a, "--perms", "0755", "--dir", path);
	while (r == 0 && (e = readdir(d)))
		r = copy_below(a, h, path, e->d_name, budget);
	closedir(d);
	return r;
}

/* Takes fd. */
static int copy_open(struct argvec *a, struct handover *h, int fd, const char *path,
		     unsigned *budget)
{
	int owned CLEANUP_FD = fd;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode))
		return copy_file(a, h, steal_fd(&owned), &st, path);
	if (S_ISDIR(st.st_mode))
		return copy_directory(a, h, steal_fd(&owned), &st, path, budget);
	return -EOPNOTSUPP;
}

/* Where links lead; -EACCES if not every user can get there. */
static int find_public(const char *path, char **ret)
{
	char *real CLEANUP_FREE = realpath(path, NULL);
	struct stat st;

	if (!real)
		return -errno;
	for (char *slash = strchr(real + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (stat(real, &st) < 0)
			return -errno;
		if (!(st.st_mode & S_IXOTH))
			return -EACCES;
		*slash = '/';
	}
	*ret = STEAL(real);
	return 0;
}

/* Makes a copy of something small, all of it or nothing. */
static int copy_small(struct argvec *a, struct handover *h, const char *path)
{
	char *real CLEANUP_FREE = NULL;
	unsigned budget = COPY_MAX_ENTRIES;
	size_t args = a->n, fds = h->n;
	int fd, r;

	/* Root can open more than the sandbox's user, who is to get no more than before. */
	r = find_public(path, &real);
	if (r < 0)
		return r;
	fd = open_to_copy(real, O_NOFOLLOW);
	if (fd < 0)
		return fd;
	r = copy_open(a, h, fd, path, &budget);
	if (r < 0) {
		argvec_cut(a, args);
		handover_cut(h, fds);
	}
	return r;
}

/* bwrap forgives what is missing, but not what it may not see. */
static bool can_bind(const struct walls *w, const char *path)
{
	char *real CLEANUP_FREE = NULL;

	return access(path, R_OK) == 0 && (!w->other_user || find_public(path, &real) == 0);
}

/* Copies it if it is small and h is not NULL, binds it otherwise. */
static void add_etc_path(struct argvec *a, const struct walls *w, struct handover *h,
			 const char *path)
{
	int r = h ? copy_small(a, h, path) : -EFBIG;

	if (r < 0 && r != -ENOENT && can_bind(w, path))
		argvec_addl(a, "--ro-bind-try", path, path);
}

static void add_etc_pattern(struct argvec *a, const struct walls *w, struct handover *h,
			    const char *name)
{
	char pattern[64];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "/etc/%s", name);
	if (!strpbrk(name, "*[")) {
		add_etc_path(a, w, h, pattern);
		return;
	}
	if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		add_etc_path(a, w, h, found.gl_pathv[i]);
	globfree(&found);
}

/*
 * /etc holds secrets and the list of those is open-ended, so only what
 * programs are known to need, and what is the same on every machine, goes in.
 */
static void add_etc(struct argvec *a, const struct walls *w, struct handover *h)
{
	static const char *const small[] = {
		"ld.so.cache",
		"ld.so.conf",
		"ld.so.conf.d",
		"ssl/openssl.cnf",
		"ca-certificates",
		"ca-certificates.conf",
		"localtime",
		"timezone",
		"nsswitch.conf",
		"host.conf",
		"gai.conf",
		"protocols",
		"services",
		"rpc",
		"ethertypes",
		"mime.types",
		"magic",
		"magic.mime",
		"bash.bashrc",
		"profile",
		"inputrc",
		"terminfo",
		"shells",
		"os-release",
		"debian_version",
		"lsb-release",
		"xattr.conf",
		"python3*",
		"perl",
		"R",
		"vim",
		"nanorc",
		"manpath.config",
		"locale.alias",
		"lynx",
		"ImageMagick-*",
	};
	static const char *const large[] = {
		"alternatives", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted",
		"fonts",        "java",      "java-[0-9]*",
	};

	for (size_t i = 0; i < ARRAY_SIZE(small); i++)
		add_etc_pattern(a, w, h, small[i]);
	/* Not worth a look: too much to copy. */
	for (size_t i = 0; i < ARRAY_SIZE(large); i++)
		add_etc_pattern(a, w, NULL, large[i]);
	/* The host may change it in place while the sandbox runs. */
	if (w->cfg->net_host)
		add_etc_pattern(a, w, NULL, "resolv.conf");
}

/* Puts text into a file that only exists inside. */
static int add_text(struct argvec *a, struct handover *h, const char *path, const char *text)
{
	char number[16];
	int fd = memfd_create("etc", MFD_CLOEXEC);
	size_t len = strlen(text);

	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) < 0) {
		close(fd);
		return -EIO;
	}
	snprintf(number, sizeof(number), "%d", fd);
	argvec_addl(a, "--perms", "0444", "--file", number, path);
	return handover_give(h, fd);
}

static int add_generated_etc(struct argvec *a, struct handover *h)
{
	int r;

	r = add_text(a, h, "/etc/passwd",
		     "root:x:0:0:root:/root:/usr/sbin/nologin\n" SANDBOX_USER
		     ":x:1000:1000::" SANDBOX_HOME ":/bin/bash\n"
		     "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
	if (r == 0)
		r = add_text(a, h, "/etc/group",
			     "root:x:0:\ntty:x:5:\n" SANDBOX_USER ":x:1000:\nnogroup:x:65534:\n");
	if (r == 0)
		r = add_text(a, h, "/etc/hosts",
			     "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost\n");
	return r;
}

static void add_tmpfs(struct argvec *a, const char *mode, uint64_t size, const char *path)
{
	argvec_addl(a, "--perms", mode);
	argvec_number(a, "--size", size);
	argvec_addl(a, "--tmpfs", path);
}

static void add_private(struct argvec *a, const struct walls *w)
{
	/*
	 * Readable or writable for the host's root even without a capability;
	 * bwrap itself leaves them alone.
	 */
	static const char *const masked[] = {
		"/proc/kcore",         "/proc/kmsg",       "/proc/kpagecount",  "/proc/kpageflags",
		"/proc/kpagecgroup",   "/proc/timer_list", "/proc/vmallocinfo", "/proc/slabinfo",
		"/proc/sysrq-trigger", "/proc/mtrr",       "/proc/sched_debug"
	};
	/* Together they must leave room for commands in the sandbox's memory. */
	uint64_t size = MIN(w->cfg->tmp_size, w->cfg->max_memory / 8);

	argvec_addl(a, "--proc", "/proc", "--dev", "/dev");
	add_tmpfs(a, "1777", size, "/dev/shm");
	argvec_addl(a, "--remount-ro", "/dev");
	if (w->kernel_root) {
		for (size_t i = 0; i < ARRAY_SIZE(masked); i++)
			if (access(masked[i], F_OK) == 0)
				argvec_addl(a, "--ro-bind", "/dev/null", masked[i]);
		/*
		 * The kernel lets uid 0 of the host write /proc/sys (core_pattern
		 * is a program that the host runs) without any capability.
		 */
		argvec_addl(a, "--remount-ro", "/proc");
	}
	argvec_addl(a, "--dir", "/home", "--dir", "/var");
	add_tmpfs(a, "1777", size, "/tmp");
	add_tmpfs(a, "1777", size, "/var/tmp");
	add_tmpfs(a, "0755", size, SANDBOX_HOME);
	add_tmpfs(a, "0755", MIN(size, 64 * MIB), "/run");
	argvec_addl(a, "--symlink", "/run", "/var/run");
}

/* For a user who may not be able to reach its path. */
static int copy_server(const char *path, int *ret_fd)
{
	int in CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC);
	int out CLEANUP_FD = memfd_create("server", MFD_CLOEXEC);
	ssize_t n;

	if (in < 0 || out < 0)
		return -errno;
	do
		n = sendfile(out, in, NULL, 1 << 30);
	while (n > 0);
	if (n < 0 || lseek(out, 0, SEEK_SET) < 0)
		return -errno;
	*ret_fd = steal_fd(&out);
	return 0;
}

static int add_server(struct argvec *a, const struct walls *w, struct handover *h)
{
	char number[16];
	int fd = -1, r;

	if (!w->other_user) {
		argvec_addl(a, "--ro-bind", w->server, SERVER_INSIDE);
		return 0;
	}
	r = copy_server(w->server, &fd);
	if (r < 0)
		return r;
	snprintf(number, sizeof(number), "%d", fd);
	argvec_addl(a, "--perms", "0555", "--ro-bind-data", number, SERVER_INSIDE);
	return handover_give(h, fd);
}

static int add_filter(struct argvec *a, struct handover *h)
{
	int fd = filter_open();

	if (fd == -EOPNOTSUPP) {
		log_warn("commands can make every system call: no filter for this processor");
		return 0;
	}
	if (fd < 0)
		return fd;
	argvec_number(a, "--seccomp", (uint64_t)fd);
	return handover_give(h, fd);
}

/* Explicit, so that nothing of the host's command line gets in by accident. */
static void add_inner(struct argvec *a, const struct walls *w)
{
	const struct config *cfg = w->cfg;

	argvec_addl(a, "--", SERVER_INSIDE, "--data", SANDBOX_DATA, "--dialect",
		    dialect_name(cfg->dialect), "--net", cfg->net_host ? "host" : "none");
	argvec_number(a, "--idle-exit", cfg->idle_exit_s);
	argvec_number(a, "--max-sessions", cfg->max_shell_sessions);
	argvec_number(a, "--max-bash-sessions", cfg->max_bash_sessions);
	argvec_number(a, "--session-timeout", cfg->session_timeout_s);
	argvec_number(a, "--max-watchers", cfg->max_watchers);
	argvec_number(a, "--max-connections", cfg->max_connections);
	argvec_number(a, "--max-body", cfg->max_body);
	argvec_number(a, "--max-processes", cfg->max_processes);
	argvec_number(a, "--max-open-files", cfg->max_open_files);
	argvec_number(a, "--max-file-size", cfg->max_file_size);
	argvec_number(a, "--max-memory", cfg->max_memory);
	argvec_number(a, "--tmp-size", cfg->tmp_size);
	if (cfg->verbose)
		argvec_add(a, "--verbose");
	argvec_number(a, "--inherit-listen", (uint64_t)w->listen_fd);
	argvec_number(a, "--inherit-lifeline", (uint64_t)w->lifeline_fd);
	argvec_number(a, "--inherit-status", (uint64_t)w->status_fd);
	if (w->key_fd >= 0)
		argvec_number(a, "--inherit-key", (uint64_t)w->key_fd);
}

int walls_args(const struct walls *w, struct argvec *ret_args, struct handover *ret_fds)
{
	struct handover h CLEANUP(handover_release) = { 0 };
	struct argvec a CLEANUP(argvec_release) = { 0 };
	int r;

	/* Lent ones first: struct handover closes from the end. */
	r = handover_lend(&h, w->listen_fd);
	if (r == 0)
		r = handover_lend(&h, w->lifeline_fd);
	if (r == 0)
		r = handover_lend(&h, w->status_fd);
	if (r == 0 && w->key_fd >= 0)
		r = handover_lend(&h, w->key_fd);
	if (r < 0)
		return r;

	argvec_add(&a, "bwrap");
	add_namespaces(&a, w);
	add_environment(&a);
	r = add_system(&a);
	if (r < 0)
		return r;
	add_etc(&a, w, &h);
	r = add_generated_etc(&a, &h);
	if (r < 0)
		return r;
	add_private(&a, w);
	/* bwrap makes missing parents with mode 0700. */
	argvec_addl(&a, "--dir", "/mnt", "--dir", "/opt", "--dir", "/opt/threadfs");
	argvec_addl(&a, "--bind", w->data_path, SANDBOX_DATA);
	r = add_server(&a, w, &h);
	if (r < 0)
		return r;
	r = add_filter(&a, &h);
	if (r < 0)
		return r;
	argvec_addl(&a, "--remount-ro", "/", "--chdir", "/");
	add_inner(&a, w);
	if (a.error)
		return a.error;
	*ret_args = a;
	*ret_fds = h;
	a = (struct argvec){ 0 };
	h = (struct handover){ 0 };
	return 0;
}

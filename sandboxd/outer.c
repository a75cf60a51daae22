/*
 * What both programs do outside of the walls, around the time when the server
 * serves: descriptors, limits, the data directory, the key, the pid file, the
 * socket. Nothing here may start a thread: the supervisor forks.
 */
#include "outer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "log.h"

/* Files opened later must never become fd 0, 1 or 2; inherited ones must not be passed on. */
static int sanitize_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		if (fd <= STDERR_FILENO && fcntl(fd, F_SETFD, 0) < 0)
			return -errno;
	} while (fd <= STDERR_FILENO);
	close(fd);
	return close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}

/*
 * The server needs more descriptors than the usual soft limit; commands get
 * their own. Where it cannot have them there are fewer connections, so that
 * those do not take what sessions, files and watches need.
 */
static void raise_open_files(struct config *cfg)
{
	const rlim_t reserve =
		128 + 3 * (cfg->max_bash_sessions + cfg->max_shell_sessions) + cfg->max_watchers;
	rlim_t want = (rlim_t)cfg->max_connections * 2 + reserve;
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur >= want)
		return;
	want = MAX(want, (rlim_t)cfg->max_open_files);
	if (lim.rlim_max < want) {
		struct rlimit more = { want, want };

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			return;
	}
	lim.rlim_cur = MIN(want, lim.rlim_max);
	if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
		log_warn("cannot raise the limit on open files: %m");
	else if (lim.rlim_cur >= want)
		return;
	cfg->max_connections =
		lim.rlim_cur > reserve + 32 ? (unsigned)((lim.rlim_cur - reserve) / 2) : 16;
	log_warn("at most %u connections: the limit on open files is %llu", cfg->max_connections,
		 (unsigned long long)lim.rlim_cur);
}

/* Opens --data, made if only its last component is missing. */
static int open_data(const char *path, int *ret)
{
	int fd CLEANUP_FD = -1;
	struct stat st, root;
	int r;

	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		r = -errno;
		log_error("cannot create the data directory %s: %m", path);
		return r;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || stat("/", &root) < 0) {
		r = -errno;
		log_error("cannot open the data directory %s: %m", path);
		return r;
	}
	if (st.st_dev == root.st_dev && st.st_ino == root.st_ino) {
		log_error("the data directory must not be /");
		return -EINVAL;
	}
	if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
		r = -errno;
		log_error("cannot write to the data directory %s: %m", path);
		return r;
	}
	*ret = steal_fd(&fd);
	return 0;
}

/* Secrets and files that we replace do not belong where commands can get at them. */
static int refuse_in_data(const char *option, const char *path, int data_fd)
{
	struct stat st;
	int r;

	if (fstat(data_fd, &st) < 0)
		return -errno;
	r = path_is_below(path, &st);
	if (r > 0)
		log_error("%s %s must not be inside the data directory", option, path);
	else if (r < 0)
		log_error("%s %s: %s", option, path, strerrordesc_np(-r));
	return r > 0 ? -EINVAL : r;
}

static int load_key(struct options *o, int data_fd)
{
	int fd CLEANUP_FD = -1;
	char *key = NULL;
	struct stat st;
	int r;

	if (!o->api_key_file)
		return 0;
	r = refuse_in_data("--api-key-file", o->api_key_file, data_fd);
	if (r < 0)
		return r;
	fd = open(o->api_key_file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		r = -errno;
		log_error("cannot read the API key file %s: %m", o->api_key_file);
		return r;
	}
	if (S_ISREG(st.st_mode) && (st.st_mode & 077))
		log_warn("the API key file %s can be read by others (mode %04o)", o->api_key_file,
			 (unsigned)(st.st_mode & 07777));
	r = options_read_key(fd, &key);
	if (r == -EMSGSIZE)
		log_error("the key in %s is too long", o->api_key_file);
	else if (r == -ENODATA)
		log_error("the first line of the API key file %s is empty", o->api_key_file);
	else if (r < 0)
		log_error("cannot read the API key file %s: %s", o->api_key_file,
			  strerrordesc_np(-r));
	else
		o->cfg.api_key = key;
	return r;
}

/* Written beside its place, so that publishing is one rename that can hardly fail. */
static int prepare_pid_file(struct outer *st, int data_fd)
{
	const char *path = st->o->cfg.pid_file;
	char *absolute CLEANUP_FREE = NULL, *tmp CLEANUP_FREE = NULL;
	int fd CLEANUP_FD = -1;
	struct stat old;
	int r;

	if (!path)
		return 0;
	absolute = path_absolute(path);
	if (!absolute) {
		r = -errno;
		log_error("cannot resolve the pid file's path %s: %m", path);
		return r;
	}
	r = refuse_in_data("--pid-file", path, data_fd);
	if (r < 0)
		return r;
	if (lstat(path, &old) == 0 && !S_ISREG(old.st_mode)) {
		log_error("the pid file %s exists and is not a file", path);
		return -EEXIST;
	}
	if (asprintf(&tmp, "%s.%d", absolute, (int)getpid()) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	unlink(tmp);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0 || fchmod(fd, 0644) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
		r = -errno;
		log_error("cannot write the pid file %s: %m", path);
		if (fd >= 0)
			unlink(tmp);
		return r;
	}
	st->pid_path = STEAL(absolute);
	st->pid_tmp = STEAL(tmp);
	return 0;
}

static void remove_pid_file(struct outer *st)
{
	char *path CLEANUP_FREE = STEAL(st->pid_path);
	char text[32] = "";
	FILE *f;

	if (st->pid_tmp && !st->pid_done)
		unlink(st->pid_tmp);
	free(STEAL(st->pid_tmp));
	if (!st->pid_done)
		return;
	/* Only if it is still about us. */
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(text, sizeof(text), f) && strtol(text, NULL, 10) == (long)getpid())
		unlink(path);
	fclose(f);
}

void outer_announce(void *ctx)
{
	struct outer *st = ctx;
	struct config *cfg = &st->o->cfg;

	if (st->pid_tmp) {
		if (rename(st->pid_tmp, st->pid_path) == 0)
			st->pid_done = true;
		else
			log_error("cannot write the pid file %s: %m", cfg->pid_file);
	}
	printf("threadfs-sandboxd: ready on %s (dialect %s, isolation %s, pid %d)\n",
	       st->listener.name, dialect_name(cfg->dialect),
	       cfg->isolation == ISOLATION_BWRAP ? "bwrap" : "none", (int)getpid());
	fflush(stdout);
	if (cfg->ready_fd >= 0) {
		if (write(cfg->ready_fd, "READY=1\n", 8) != 8)
			log_warn("cannot write to --ready-fd %d", cfg->ready_fd);
		if (cfg->ready_fd > STDERR_FILENO)
			close(cfg->ready_fd);
		cfg->ready_fd = -1;
	}
}

int outer_run(struct options *o, int (*serve)(struct outer *out, int data_fd))
{
	struct outer out = { .o = o, .listener = LISTENER_INIT };
	int data_fd CLEANUP_FD = -1;
	int r;

	r = open_data(o->cfg.data_dir, &data_fd);
	if (r == 0)
		r = load_key(o, data_fd);
	if (r == 0)
		r = prepare_pid_file(&out, data_fd);
	if (r == 0)
		r = listener_open(&o->cfg, data_fd, &out.listener);
	if (r == 0) {
		raise_open_files(&o->cfg);
		r = serve(&out, data_fd);
	}
	listener_release(&out.listener);
	remove_pid_file(&out);
	free((char *)STEAL(o->cfg.api_key));
	return r;
}

int outer_begin(int argc, char **argv, struct options *ret)
{
	int r;

	log_set_name("threadfs-sandboxd");
	r = options_parse(argc, argv, ret);
	if (r < 0 && ret->cfg.verbose)
		log_set_level(LOG_DEBUG);
	return r;
}

int outer_settle(void)
{
	sigset_t none;
	int r;

	/* Whoever started us may have blocked or ignored what we wait for. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	r = sanitize_fds();
	if (r < 0)
		log_error("cannot set up file descriptors: %s", strerrordesc_np(-r));
	return r;
}

/*
 * See listen.h. Knows sockets and paths; nothing of HTTP or of the walls.
 * Main thread, before others exist.
 */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "clock.h"
#include "log.h"

enum { BACKLOG = 1024 };

/* The directory part of path: "." when there is none. */
static char *parent_dir(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return strdup(".");
	if (slash == path)
		return strdup("/");
	return strndup(path, (size_t)(slash - path));
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

char *path_absolute(const char *path)
{
	char *cwd CLEANUP_FREE = path[0] == '/' ? NULL : getcwd(NULL, 0);
	char *absolute;

	if (path[0] == '/')
		return strdup(path);
	return cwd && asprintf(&absolute, "%s/%s", cwd, path) >= 0 ? absolute : NULL;
}

int path_is_below(const char *path, const struct stat *st)
{
	char *dir CLEANUP_FREE = parent_dir(path);
	int fd CLEANUP_FD = -1;
	struct stat here, above;

	if (!dir)
		return -ENOMEM;
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &here) < 0)
		return -errno;
	/* Up to the root, by inode: names may lie, also through bind mounts. */
	for (;;) {
		int up;

		if (same_inode(&here, st))
			return 1;
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0)
			return -errno;
		close(fd);
		fd = up;
		if (fstat(fd, &above) < 0)
			return -errno;
		if (same_inode(&here, &above))
			return 0;
		here = above;
	}
}

/*
 * Two programs that start at the same time must not both take the other's
 * fresh socket for a stale one. A lock on the directory leaves no file behind;
 * it is a courtesy among us, so whoever holds it for long is ignored.
 */
static void lock_directory(int dir_fd)
{
	int64_t deadline = clock_ms() + 2000;

	while (flock(dir_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK &&
	       clock_ms() < deadline)
		usleep(1000);
}

/* 0 when the file may be replaced. */
static int check_stale(const char *path, const struct sockaddr_un *addr)
{
	int fd CLEANUP_FD = -1;
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode)) {
		log_error("%s exists and is not a socket", path);
		return -EEXIST;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN) {
		log_error("socket %s is already in use by another process", path);
		return -EADDRINUSE;
	}
	if (errno == ECONNREFUSED || errno == ENOENT)
		return 0;
	r = -errno;
	log_error("socket %s exists and cannot be replaced: %m", path);
	return r;
}

static int bind_unix(int fd, const char *path, const struct sockaddr_un *addr)
{
	mode_t old;
	int r;

	r = check_stale(path, addr);
	if (r < 0)
		return r;
	if (unlink(path) < 0 && errno != ENOENT) {
		r = -errno;
		log_error("cannot remove the stale socket %s: %m", path);
		return r;
	}
	/* Never open to others, not even between bind and chmod. */
	old = umask(0177);
	r = bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ? -errno : 0;
	umask(old);
	if (r == 0 && listen(fd, BACKLOG) < 0) {
		r = -errno;
		unlink(path);
	}
	if (r < 0)
		log_error("cannot listen on %s: %s", path, strerrordesc_np(-r));
	return r;
}

static int open_unix(const char *path, const struct stat *data, struct listener *ret)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char *dir CLEANUP_FREE = parent_dir(path);
	/* Isolation none changes the working directory before the file is removed. */
	char *copy CLEANUP_FREE = path_absolute(path);
	int dir_fd CLEANUP_FD = -1, fd CLEANUP_FD = -1;
	int r;

	if (!dir || !copy) {
		r = -errno;
		log_error("cannot resolve the socket's path %s: %m", path);
		return r;
	}
	if (strlen(path) >= sizeof(addr.sun_path)) {
		log_error("socket path is too long (%zu bytes, at most %zu): %s", strlen(path),
			  sizeof(addr.sun_path) - 1, path);
		return -ENAMETOOLONG;
	}
	strcpy(addr.sun_path, path);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
		r = -errno;
		log_error("cannot create the socket's directory %s: %m", dir);
		return r;
	}
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0) {
		r = -errno;
		log_error("cannot open the socket's directory %s: %m", dir);
		return r;
	}
	r = path_is_below(path, data);
	if (r != 0) {
		log_error("socket %s must not be inside the data directory", path);
		return r < 0 ? r : -EINVAL;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	lock_directory(dir_fd);
	r = bind_unix(fd, path, &addr);
	if (r < 0)
		return r;
	if (lstat(path, &ret->st) < 0)
		return -errno;
	snprintf(ret->name, sizeof(ret->name), "unix:%s", path);
	ret->path = STEAL(copy);
	ret->fd = steal_fd(&fd);
	return 0;
}

/* "host:port" or "[v6]:port"; host may be empty (all addresses). */
static int split_address(const char *address, char host[256], const char **ret_port)
{
	const char *colon = strrchr(address, ':'), *start = address;
	size_t len;

	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return -EINVAL;
	if (strlen(colon + 1) > 5 || strtoul(colon + 1, NULL, 10) > 65535)
		return -EINVAL;
	len = (size_t)(colon - address);
	if (len >= 2 && start[0] == '[' && start[len - 1] == ']') {
		start++;
		len -= 2;
	} else if (memchr(start, ':', len)) {
		return -EINVAL; /* an IPv6 address without brackets is ambiguous */
	}
	if (len >= 256)
		return -EINVAL;
	memcpy(host, start, len);
	host[len] = '\0';
	*ret_port = colon + 1;
	return 0;
}

static int name_tcp(int fd, char *name, size_t size, bool *ret_loopback)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char text[INET6_ADDRSTRLEN] = "";

	memset(&addr, 0, sizeof(addr));
	if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		return -errno;
	if (addr.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr;

		inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
		snprintf(name, size, "http://[%s]:%u", text, ntohs(in6->sin6_port));
		*ret_loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	} else {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&addr;

		inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
		snprintf(name, size, "http://%s:%u", text, ntohs(in->sin_port));
		*ret_loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
	}
	return 0;
}

static int try_address(const struct addrinfo *ai)
{
	int fd CLEANUP_FD = -1;
	int on = 1;

	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return steal_fd(&fd);
}

static int open_tcp(const struct config *cfg, struct listener *ret)
{
	const struct addrinfo hints = {
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *list = NULL;
	bool loopback = false;
	const char *port;
	char host[256];
	int fd = -EADDRNOTAVAIL, r;

	if (split_address(cfg->listen_addr, host, &port) < 0) {
		log_error("--listen: '%s' is not HOST:PORT or [IPV6]:PORT", cfg->listen_addr);
		return -EINVAL;
	}
	r = getaddrinfo(*host ? host : NULL, port, &hints, &list);
	if (r != 0) {
		log_error("--listen: cannot find the address %s: %s", host, gai_strerror(r));
		return -EADDRNOTAVAIL;
	}
	for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
		fd = try_address(ai);
	freeaddrinfo(list);
	if (fd < 0) {
		log_error("cannot listen on %s: %s", cfg->listen_addr, strerrordesc_np(-fd));
		return fd;
	}
	r = name_tcp(fd, ret->name, sizeof(ret->name), &loopback);
	if (r < 0) {
		close(fd);
		return r;
	}
	if (!loopback && !cfg->api_key)
		log_warn("%s is open to the network without an API key", ret->name);
	ret->fd = fd;
	return 0;
}

int listener_open(const struct config *cfg, int data_dir, struct listener *ret)
{
	struct listener l = LISTENER_INIT;
	struct stat data;
	int r;

	if (fstat(data_dir, &data) < 0)
		return -errno;
	r = cfg->socket_path ? open_unix(cfg->socket_path, &data, &l) : open_tcp(cfg, &l);
	if (r < 0)
		return r;
	*ret = l;
	return 0;
}

void listener_release(struct listener *l)
{
	struct stat st;

	/* Another program may have replaced the file after ours had gone stale. */
	if (l->path && lstat(l->path, &st) == 0 && same_inode(&st, &l->st))
		unlink(l->path);
	free(l->path);
	if (l->fd >= 0)
		close(l->fd);
	*l = LISTENER_INIT;
}

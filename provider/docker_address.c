/* See docker_address.h. Only docker_find_engine() touches the system. */
#include "docker_address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "paths.h"
#include "url.h"

enum { ENGINE_PORT = 2375 };

void docker_address_release(struct docker_address *a)
{
	free(a->socket);
	free(a->url);
	free(a->host);
	*a = (struct docker_address){ 0 };
}

/* ---- where the engine is ---- */

static int set_socket(const char *path, struct docker_address *ret, struct buf *why)
{
	if (path[0] != '/') {
		buf_puts(why, "expected unix:///PATH, an absolute one");
		return -EINVAL;
	}
	ret->socket = strdup(path);
	return ret->socket ? 0 : -ENOMEM;
}

/* HOST[:PORT][/]: brackets around an IPv6 address. */
static int set_host(const char *text, struct docker_address *ret, struct buf *why)
{
	struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
	size_t len = strcspn(text, "/?#"), host = strcspn(text, ":/?#");
	char *url CLEANUP_FREE = NULL;
	const char *problem = NULL;
	bool has_port;
	int r;

	if (text[0] == '[')
		host = strcspn(text, "]/?#") + 1;
	if (host > len || host == 0 || strchr(text, '@')) {
		buf_puts(why, "expected tcp://HOST:PORT");
		return -EINVAL;
	}
	has_port = text[host] == ':';
	if (has_port)
		r = asprintf(&url, "http://%.*s", (int)len, text);
	else
		r = asprintf(&url, "http://%.*s:%d", (int)len, text, ENGINE_PORT);
	if (r < 0) {
		url = NULL;
		return -ENOMEM;
	}
	r = url_tidy(url, &a.url, &problem);
	if (r < 0) {
		buf_puts(why, problem ?: "expected tcp://HOST:PORT");
		return r;
	}
	a.host = text[0] == '[' ? strndup(text + 1, host - 2) : strndup(text, host);
	if (!a.host)
		return -ENOMEM;
	*ret = a;
	a = (struct docker_address){ 0 };
	return 0;
}

int docker_parse_address(const char *text, struct docker_address *ret, struct buf *why)
{
	if (text[0] == '/')
		return set_socket(text, ret, why);
	if (strncasecmp(text, "unix://", 7) == 0)
		return set_socket(text + 7, ret, why);
	if (strncasecmp(text, "tcp://", 6) == 0)
		return set_host(text + 6, ret, why);
	if (strncasecmp(text, "http://", 7) == 0)
		return set_host(text + 7, ret, why);
	if (strncasecmp(text, "ssh://", 6) == 0) {
		buf_puts(why, "ssh:// is not supported: forward the engine's socket with "
			      "'ssh -L SOCKET:/var/run/docker.sock HOST' and name that");
		return -EOPNOTSUPP;
	}
	if (strncasecmp(text, "https://", 8) == 0) {
		buf_puts(why, "engines behind TLS are not supported");
		return -EOPNOTSUPP;
	}
	buf_puts(why, "expected unix:///PATH or tcp://HOST:PORT");
	return -EINVAL;
}

/* Whether somebody listens there: 0 or a negative errno. */
static int try_socket(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd CLEANUP_FD = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(to.sun_path))
		return -ENAMETOOLONG;
	memcpy(to.sun_path, path, strlen(path));
	/* EAGAIN: its queue is full, so there is one. */
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EAGAIN)
		return -errno;
	return 0;
}

static void say_socket(const char *path, int error, struct buf *why)
{
	if (error == -EACCES || error == -EPERM)
		buf_printf(why,
			   "no permission for the engine's socket %s (is the user in its group?)",
			   path);
	else if (error == -ENOENT)
		buf_printf(why, "there is no engine: %s does not exist", path);
	else
		buf_printf(why, "the engine does not listen at %s: %s", path,
			   strerrordesc_np(-error));
}

/* Who is at a socket gets what containers are to know, keys too: no stranger's is tried. */
static int find_usual(struct docker_address *ret, struct buf *why)
{
	static const char *const below[] = { "/docker.sock", "/podman/podman.sock" };
	const char *runtime = paths_own_runtime(true);
	char *candidates[4] = { NULL };
	size_t n = 0;
	int error = -ENOENT, r = -ENOENT;

	candidates[n++] = strdup("/var/run/docker.sock");
	candidates[n++] = strdup("/run/podman/podman.sock");
	for (size_t i = 0; runtime && i < ARRAY_SIZE(below); i++)
		if (asprintf(&candidates[n], "%s%s", runtime, below[i]) >= 0)
			n++;
	for (size_t i = 0; i < n && r < 0; i++) {
		r = candidates[i] ? try_socket(candidates[i]) : -ENOMEM;
		if (r == 0) {
			ret->socket = STEAL(candidates[i]);
		} else if (error == -ENOENT && r != -ENOENT) {
			/* One that is there says more than those that are not. */
			error = r;
			buf_reset(why);
			say_socket(candidates[i] ?: "", r, why);
		}
	}
	if (r < 0 && error == -ENOENT)
		buf_printf(why,
			   "there is no engine: neither Docker's nor Podman's socket is there%s "
			   "(start one, or say where it is with DOCKER_HOST)",
			   getenv("XDG_RUNTIME_DIR") && !runtime
				   ? ", and XDG_RUNTIME_DIR is not yours alone"
				   : "");
	for (size_t i = 0; i < n; i++)
		free(candidates[i]);
	return r < 0 ? error : 0;
}

int docker_find_engine(const char *given, struct docker_address *ret, struct buf *why)
{
	struct docker_address a CLEANUP_DOCKER_ADDRESS = { 0 };
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	const char *variable = getenv("DOCKER_HOST"), *tls = getenv("DOCKER_TLS_VERIFY");
	int r;

	if (!given && variable && *variable)
		given = variable;
	if (!given)
		return find_usual(ret, why);
	r = docker_parse_address(given, &a, &reason);
	if (r < 0) {
		buf_printf(why, "the engine '%s': %s", given, reason.data ?: strerrordesc_np(-r));
		return r;
	}
	if (a.url && tls && *tls) {
		buf_puts(why, "engines behind TLS are not supported (DOCKER_TLS_VERIFY is set)");
		return -EOPNOTSUPP;
	}
	r = a.socket ? try_socket(a.socket) : 0;
	if (r < 0) {
		say_socket(a.socket, r, why);
		return r;
	}
	*ret = a;
	a = (struct docker_address){ 0 };
	return 0;
}

/* ---- where its ports are ---- */

static bool is_any(const char *s, const char *const *of)
{
	for (; *of; of++)
		if (strcasecmp(s, *of) == 0)
			return true;
	return false;
}

static bool is_loopback4(const char *host)
{
	static const char *const names[] = { "", "localhost", "127.0.0.1", NULL };

	return is_any(host, names);
}

static bool is_loopback6(const char *host)
{
	static const char *const names[] = { "::1", "[::1]", NULL };

	return is_any(host, names);
}

const char *docker_bind_host(const char *host, const char *given, const char **reason)
{
	if (given && *given) {
		*reason = "as it was told";
		return is_loopback6(given) ? "::1" : strcmp(given, "[::]") == 0 ? "::" : given;
	}
	if (is_loopback6(host)) {
		*reason = "sandboxes are reached by IPv6 loopback";
		return "::1";
	}
	if (is_loopback4(host)) {
		*reason = "sandboxes are reached by loopback";
		return "127.0.0.1";
	}
	*reason = "sandboxes are reached from elsewhere: their ports are open to whoever "
		  "reaches this machine";
	return "0.0.0.0";
}

void docker_put_url(struct buf *to, const char *host, const char *bind_host, unsigned port)
{
	/* By its number it does not depend on which family the name stands for. */
	if (is_loopback4(host))
		host = is_loopback6(bind_host) ? "::1" : "127.0.0.1";
	if (strchr(host, ':') && host[0] != '[')
		buf_printf(to, "http://[%s]:%u", host, port);
	else
		buf_printf(to, "http://%s:%u", host, port);
}

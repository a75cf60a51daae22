/* See harness.h. */
#include "harness.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>

#include "log.h"
#include "server.h"

enum {
	ANSWER_MS = 20000,
	WAIT_MS = 3,
};

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static pthread_mutex_t ready_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready_cond = PTHREAD_COND_INITIALIZER;
static bool is_ready;

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz harness: %s (errno %d)\n", what, errno);
	abort();
}

static void on_ready(void *ctx)
{
	pthread_mutex_lock(&ready_lock);
	is_ready = true;
	pthread_cond_signal(&ready_cond);
	pthread_mutex_unlock(&ready_lock);
}

static enum dialect chosen_dialect(void)
{
	const char *name = getenv("FUZZ_DIALECT");

	for (enum dialect d = DIALECT_1_0; name && d <= DIALECT_AIOD; d++)
		if (strcmp(name, dialect_name(d)) == 0)
			return d;
	return DIALECT_AIOD;
}

static void *server_thread(void *arg)
{
	static struct config cfg;
	int *fd = arg;

	cfg = (struct config){
		.data_dir = SANDBOX_DATA,
		.home = "/tmp",
		.dialect = chosen_dialect(),
		.isolation = ISOLATION_NONE,
		.ready_fd = -1,
		.lifeline_fd = -1,
		.max_shell_sessions = 10,
		.max_bash_sessions = 10,
		.session_timeout_s = 3600,
		.max_watchers = 32,
		.max_connections = 256,
		.max_body = 8 * MIB,
	};
	need(server_run(&cfg, *fd, on_ready, NULL) == 0, "server_run");
	return NULL;
}

void harness_start(void)
{
	static int fd;
	struct statvfs vfs;
	pthread_t thread;

	need(statvfs("/usr", &vfs) == 0 && (vfs.f_flag & ST_RDONLY),
	     "the system must be read-only: use scripts/fuzz");
	mkdir(SANDBOX_DATA, 0755);
	mkdir(SANDBOX_DATA "/workspace", 0755);
	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/fuzz.sock");
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	need(fd >= 0, "socket");
	need(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	need(listen(fd, 64) == 0, "listen");
	log_set_level(LOG_ERROR);
	need(pthread_create(&thread, NULL, server_thread, &fd) == 0, "thread");
	pthread_mutex_lock(&ready_lock);
	while (!is_ready)
		pthread_cond_wait(&ready_cond, &ready_lock);
	pthread_mutex_unlock(&ready_lock);
}

static bool send_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false; /* the server may close early */
		p += n;
		len -= (size_t)n;
	}
	return true;
}

void harness_request(const char *head, size_t head_len, const uint8_t *body, size_t body_len,
		     size_t split, bool may_wait)
{
	int fd CLEANUP_FD = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char answer[65536];
	ssize_t n;

	need(fd >= 0, "socket");
	need(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
	split = MIN(split, body_len);
	if (send_all(fd, head, head_len) && body_len > 0 && send_all(fd, body, split))
		send_all(fd, body + split, body_len - split);
	do {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int r = poll(&p, 1, may_wait ? WAIT_MS : ANSWER_MS);

		if (r == 0 && may_wait)
			return;
		if (r < 0 && errno == EINTR) { /* libFuzzer's clock */
			n = 1;
			continue;
		}
		need(r > 0, "no answer");
		n = recv(fd, answer, sizeof(answer), 0);
	} while (n > 0);
}

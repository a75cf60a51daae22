/*
 * A real Redis server for a test, on a unix socket and, if wanted, a port of its
 * own, in the test's directory; and a connection to look at what is in it.
 * Debian's redis-tools has the server's program under another name. It ends with
 * the test. Main thread.
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "rig.h"

struct redis {
	pid_t pid;
	int port; /* 0: none */
	char socket[SCRATCH_MAX + 16], dir[SCRATCH_MAX + 8], log[SCRATCH_MAX + 16];
	char url[SCRATCH_MAX + 32]; /* by the socket */
	redisContext *c;
};

static inline const char *redis_program(void)
{
	static const char *const paths[] = { "/usr/bin/redis-server", "/usr/local/bin/redis-server",
					     "/usr/bin/redis-check-rdb" };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		if (access(paths[i], X_OK) == 0)
			return paths[i];
	}
	return NULL;
}

static inline int redis_free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	return ntohs(a.sin_port);
}

/* Returns whether it is there; not, if it has ended. */
static inline bool redis_connect(struct redis *r)
{
	for (int64_t until = clock_ms() + 20000;;) {
		r->c = redisConnectUnix(r->socket);
		assert_non_null(r->c);
		if (!r->c->err)
			break;
		redisFree(STEAL(r->c));
		if (waitpid(r->pid, NULL, WNOHANG) == r->pid) {
			r->pid = 0;
			return false;
		}
		assert_true(clock_ms() < until);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	fcntl(r->c->fd, F_SETFD, FD_CLOEXEC);
	return true;
}

/* Returns whether it runs. */
static inline bool redis_launch(struct redis *r)
{
	char port[8];
	const char *argv[] = { "redis-server",
			       "--port",
			       port,
			       "--bind",
			       "127.0.0.1",
			       "--unixsocket",
			       r->socket,
			       "--save",
			       "",
			       "--appendonly",
			       "no",
			       "--dir",
			       r->dir,
			       "--logfile",
			       r->log,
			       NULL };
	const char *program = redis_program();
	pid_t parent = getpid();

	snprintf(port, sizeof(port), "%d", r->port);
	r->pid = fork();
	assert_true(r->pid >= 0);
	if (r->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			execv(program, (char *const *)argv);
		_exit(127);
	}
	return redis_connect(r);
}

/* Again, empty, where it was. */
static inline void redis_restart(struct redis *r)
{
	assert_true(redis_launch(r));
}

/* dir: where its files are, of the test. */
static inline struct redis redis_start(const char *dir, bool tcp)
{
	struct redis r = { 0 };
	int tries = 0;

	snprintf(r.dir, sizeof(r.dir), "%s", dir);
	snprintf(r.socket, sizeof(r.socket), "%s/redis", dir);
	snprintf(r.log, sizeof(r.log), "%s/redis.log", dir);
	snprintf(r.url, sizeof(r.url), "unix://%s", r.socket);
	/* Somebody else may have taken a port that was free a moment ago. */
	do {
		assert_true(tries++ < 10);
		r.port = tcp ? redis_free_port() : 0;
	} while (!redis_launch(&r));
	return r;
}

static inline void redis_end(struct redis *r)
{
	if (r->c)
		redisFree(r->c);
	r->c = NULL;
	if (r->pid > 0) {
		kill(r->pid, SIGKILL);
		waitpid(r->pid, NULL, 0);
		unlink(r->socket);
	}
	r->pid = 0;
}

/* The answer as text, valid until the next call; "" for nil. */
PRINTF_LIKE(2, 3)
static inline const char *redis_do(struct redis *r, const char *fmt, ...)
{
	static char text[4096];
	redisReply *reply;
	va_list ap;

	va_start(ap, fmt);
	reply = redisvCommand(r->c, fmt, ap);
	va_end(ap);
	assert_non_null(reply);
	text[0] = '\0';
	if (reply->type == REDIS_REPLY_INTEGER)
		snprintf(text, sizeof(text), "%lld", reply->integer);
	else if (reply->str)
		snprintf(text, sizeof(text), "%s", reply->str);
	freeReplyObject(reply);
	return text;
}

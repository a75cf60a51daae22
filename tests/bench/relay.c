/*
 * A network that is so many milliseconds away: passes connections on, and every
 * byte waits half of a round trip. Delays, but does not limit: what is on its way
 * is kept with the time at which it is due, up to a bound that is far more than
 * one connection can move in that time. Connecting costs a round trip, as a
 * handshake does. One thread.
 *
 *	bench_relay ROUND-TRIP-MS LISTEN=TARGET…
 *
 * Each a port of 127.0.0.1, or (TARGET) the path of a unix socket. Prints "ready".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "util.h"

enum {
	CHUNK = 256 * 1024,
	QUEUED_MOST = 16 * 1024 * 1024, /* per direction */
	TURN = 4,                       /* chunks of one lane before the others' turn */
	SPARE_MOST = 256,               /* chunks kept for reuse */
	EVENTS = 64,
};

struct chunk {
	struct chunk *next;
	int64_t due_ns;
	size_t len, sent;
	char bytes[CHUNK];
};

/* One direction of a connection. */
struct lane {
	int from, to;
	int64_t open_ns; /* nothing of before this time arrives earlier */
	struct chunk *first, **end;
	size_t queued;
	bool readable;
	bool read_ended; /* by the end of the stream */
	bool ended;      /* and passed on */
	bool full;       /* the receiver takes no more now */
};

struct pair {
	struct pair *next;
	struct lane lanes[2];
	bool broken;
};

struct listener {
	int fd;
	const char *target;
};

static int64_t half_ns;
static int epoll_fd;
static struct pair *pairs;
static struct chunk *spare;
static unsigned spares;

__attribute__((noreturn)) PRINTF_LIKE(1, 2) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("bench_relay: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- chunks ---- */

static struct chunk *chunk_get(void)
{
	struct chunk *c = spare;

	if (c) {
		spare = c->next;
		spares--;
	} else if (!(c = malloc(sizeof(*c)))) {
		die("no memory");
	}
	c->next = NULL;
	c->len = c->sent = 0;
	return c;
}

static void chunk_put(struct chunk *c)
{
	if (spares == SPARE_MOST) {
		free(c);
		return;
	}
	c->next = spare;
	spare = c;
	spares++;
}

/* ---- connections ---- */

static void watch(int fd, uint32_t events, void *ptr)
{
	struct epoll_event ev = { .events = events | EPOLLET, .data.ptr = ptr };

	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		die("epoll: %m");
}

static int connect_to(const char *target)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_in in = { .sin_family = AF_INET };
	bool local = target[0] == '/';
	int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -1;
	if (local) {
		snprintf(un.sun_path, sizeof(un.sun_path), "%s", target);
		if (connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
			return fd;
	} else {
		in.sin_port = htons((uint16_t)strtoul(target, NULL, 10));
		in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		if (connect(fd, (struct sockaddr *)&in, sizeof(in)) == 0)
			return fd;
	}
	fprintf(stderr, "bench_relay: %s: %m\n", target);
	close(fd);
	return -1;
}

static void lane_init(struct lane *l, int from, int to, int64_t open_ns)
{
	*l = (struct lane){ .from = from, .to = to, .open_ns = open_ns };
	l->end = &l->first;
}

/* Says whether there was one. */
static bool accept_one(const struct listener *l)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), to, on = 1;
	int64_t now = now_ns();
	struct pair *p;

	if (fd < 0)
		return false;
	to = connect_to(l->target);
	p = calloc(1, sizeof(*p));
	if (to < 0 || !p) {
		close(fd);
		if (to >= 0)
			close(to);
		free(p);
		return true;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	fcntl(to, F_SETFL, O_NONBLOCK);
	lane_init(&p->lanes[0], fd, to, now + 2 * half_ns);
	lane_init(&p->lanes[1], to, fd, now + 3 * half_ns);
	p->next = pairs;
	pairs = p;
	watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, p);
	watch(to, EPOLLIN | EPOLLOUT | EPOLLRDHUP, p);
	return true;
}

static void pair_free(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		while (p->lanes[i].first) {
			struct chunk *c = p->lanes[i].first;

			p->lanes[i].first = c->next;
			chunk_put(c);
		}
		close(p->lanes[i].from);
	}
	free(p);
}

/* ---- moving ---- */

/* Takes what has come. */
static void lane_read(struct pair *p, struct lane *l)
{
	for (int i = 0; i < TURN && l->readable && l->queued < QUEUED_MOST; i++) {
		struct chunk *c = chunk_get();
		ssize_t n = read(l->from, c->bytes, CHUNK);

		if (n > 0) {
			c->len = (size_t)n;
			c->due_ns = MAX(now_ns(), l->open_ns) + half_ns;
			*l->end = c;
			l->end = &c->next;
			l->queued += c->len;
			continue;
		}
		chunk_put(c);
		l->readable = false;
		if (n == 0)
			l->read_ended = true;
		else if (errno != EAGAIN)
			p->broken = true;
	}
}

/* Passes on what is due. */
static void lane_write(struct pair *p, struct lane *l)
{
	int64_t now = now_ns();

	while (l->first && l->first->due_ns <= now) {
		struct chunk *c = l->first;
		ssize_t n = send(l->to, c->bytes + c->sent, c->len - c->sent, MSG_NOSIGNAL);

		if (n < 0) {
			if (errno != EAGAIN)
				p->broken = true;
			l->full = true;
			return;
		}
		c->sent += (size_t)n;
		l->queued -= (size_t)n;
		if (c->sent < c->len)
			continue;
		l->first = c->next;
		if (!l->first)
			l->end = &l->first;
		chunk_put(c);
	}
	if (!l->first && l->read_ended && !l->ended) {
		shutdown(l->to, SHUT_WR);
		l->ended = true;
	}
}

/* Moves what can be moved; returns when there is more to do: 0 for now, -1 for nothing. */
static int64_t move_all(void)
{
	int64_t next = -1;

	for (struct pair **at = &pairs; *at;) {
		struct pair *p = *at;

		for (int i = 0; i < 2; i++) {
			struct lane *l = &p->lanes[i];

			lane_read(p, l);
			if (!l->full)
				lane_write(p, l);
			if (l->readable && l->queued < QUEUED_MOST)
				next = 0;
			else if (l->first && !l->full && (next < 0 || l->first->due_ns < next))
				next = l->first->due_ns;
		}
		if (p->broken || (p->lanes[0].ended && p->lanes[1].ended)) {
			*at = p->next;
			pair_free(p);
		} else {
			at = &p->next;
		}
	}
	return next;
}

/* ---- the loop ---- */

static struct listener *listeners;
static int listener_count;

static void listen_at(char *arg)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	char *target = strchr(arg, '=');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

	if (!target || fd < 0)
		die("'%s' is not LISTEN=TARGET", arg);
	*target++ = '\0';
	in.sin_port = htons((uint16_t)strtoul(arg, NULL, 10));
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(fd, 128) < 0)
		die("port %s: %m", arg);
	listeners[listener_count++] = (struct listener){ .fd = fd, .target = target };
	watch(fd, EPOLLIN, NULL);
}

/* Anything may be readable or writable again: the two of a pair share their events. */
static void on_event(const struct epoll_event *ev)
{
	struct pair *p = ev->data.ptr;

	if (!p) {
		for (int i = 0; i < listener_count; i++)
			while (accept_one(&listeners[i]))
				;
		return;
	}
	for (int i = 0; i < 2; i++) {
		p->lanes[i].readable = !p->lanes[i].read_ended;
		p->lanes[i].full = false;
	}
}

static void wait_until(int64_t at_ns)
{
	struct epoll_event events[EVENTS];
	struct timespec timeout = { 0 };
	int64_t left = at_ns > 0 ? at_ns - now_ns() : 0;
	int n;

	if (left > 0) {
		timeout.tv_sec = left / 1000000000;
		timeout.tv_nsec = left % 1000000000;
	}
	n = epoll_pwait2(epoll_fd, events, EVENTS, at_ns < 0 ? NULL : &timeout, NULL);
	for (int i = 0; i < n; i++)
		on_event(&events[i]);
}

int main(int argc, char **argv)
{
	double ms = argc < 3 ? -1 : strtod(argv[1], NULL);

	if (argc < 3 || ms < 0 || ms > 10000)
		die("usage: bench_relay ROUND-TRIP-MS LISTEN=TARGET…");
	half_ns = (int64_t)(ms * 500000);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	listeners = calloc((size_t)argc, sizeof(*listeners));
	if (epoll_fd < 0 || !listeners)
		die("no memory");
	for (int i = 2; i < argc; i++)
		listen_at(argv[i]);
	prctl(PR_SET_TIMERSLACK, 1000ul);
	puts("ready");
	fflush(stdout);
	for (;;)
		wait_until(move_all());
}

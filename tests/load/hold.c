/*
 * Many connections that do nothing useful (idle, dripping, not reading), and
 * next to them a fresh request every 100 ms that must be answered within 1 s:
 * whoever holds connections must not hold up the others. One thread; the
 * check blocks the dripping for as long as it takes, at most 1 s.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "mixload.h"

enum {
	CHECK_EVERY_MS = 100,
	CHECK_LIMIT_MS = 1000,
	DRIP_EVERY_MS = 500,
	OPEN_LIMIT_MS = 30000,
	STALLED_RCVBUF = 4096,
};

struct hold {
	const struct options *o;
	const char *name;
	int *fds; /* -1 = refused, or closed by the server since */
	unsigned opened;
	unsigned checks;
	unsigned failed;
	int64_t slowest_ms;
};

static void hold_release(struct hold *h)
{
	for (unsigned i = 0; h->fds && i < h->o->connections; i++)
		if (h->fds[i] >= 0)
			close(h->fds[i]);
	free(h->fds);
}

static void check(struct hold *h)
{
	static const char request[] = "GET /v1/sandbox HTTP/1.1\r\nHost: localhost\r\n"
				      "Connection: close\r\n\r\n";
	int64_t start = clock_ms();
	struct response r;
	int ret;

	response_init(&r);
	ret = http_exchange(&h->o->address, request, sizeof(request) - 1, CHECK_LIMIT_MS, &r);
	h->checks++;
	h->slowest_ms = MAX(h->slowest_ms, clock_ms() - start);
	if (ret < 0 || r.status != 200) {
		h->failed++;
		errno = -ret;
		if (h->failed <= 10 && ret < 0)
			fprintf(stderr, "mixload: %s: check %u: %m\n", h->name, h->checks);
		else if (h->failed <= 10)
			fprintf(stderr, "mixload: %s: check %u: status %d\n", h->name, h->checks,
				r.status);
	}
	http_response_release(&r);
}

/* Opens the connections and sends `first` on each; the checks go on meanwhile. */
static int open_all(struct hold *h, const char *first, int rcvbuf)
{
	int64_t deadline = clock_ms() + OPEN_LIMIT_MS;
	int64_t next_check = clock_ms();

	h->fds = calloc(h->o->connections, sizeof(*h->fds));
	if (!h->fds)
		return -ENOMEM;
	for (unsigned i = 0; i < h->o->connections; i++)
		h->fds[i] = -1;
	for (unsigned i = 0; i < h->o->connections && !interrupted; i++) {
		struct pollfd p = { .events = POLLOUT };
		int fd = address_connect(&h->o->address);

		while (fd == -EAGAIN && clock_ms() < deadline && !interrupted) {
			poll(NULL, 0, 1);
			fd = address_connect(&h->o->address);
		}
		if (fd == -EMFILE || fd == -ENFILE)
			return fd;
		if (fd < 0)
			continue; /* a server may refuse what is too much */
		if (rcvbuf)
			setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
		p.fd = fd;
		poll(&p, 1, 1000);
		if (*first)
			(void)!send(fd, first, strlen(first), MSG_NOSIGNAL);
		h->fds[i] = fd;
		h->opened++;
		if (clock_ms() >= next_check) {
			check(h);
			next_check = clock_ms() + CHECK_EVERY_MS;
		}
	}
	return 0;
}

/* One byte on every connection; those the server gave up are closed. */
static void drip(struct hold *h, char byte)
{
	for (unsigned i = 0; i < h->o->connections; i++) {
		if (h->fds[i] < 0)
			continue;
		if (send(h->fds[i], &byte, 1, MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
			close(h->fds[i]);
			h->fds[i] = -1;
		}
	}
}

/* How many connections the server still holds open. */
static unsigned count_open(struct hold *h)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->o->connections; i++) {
		char c;
		ssize_t got;

		if (h->fds[i] < 0)
			continue;
		got = recv(h->fds[i], &c, 1, MSG_PEEK | MSG_DONTWAIT);
		if (got > 0 || (got < 0 && errno == EAGAIN))
			n++;
	}
	return n;
}

static int hold_on(struct hold *h, bool dripping)
{
	int64_t end = clock_ms() + (int64_t)h->o->seconds * 1000;
	int64_t next_check = clock_ms();
	int64_t next_drip = clock_ms();

	while (clock_ms() < end && !interrupted) {
		int64_t now = clock_ms();

		if (dripping && now >= next_drip) {
			drip(h, h->o->body ? ' ' : 'a');
			next_drip = now + DRIP_EVERY_MS;
		}
		if (now >= next_check) {
			check(h);
			next_check = now + CHECK_EVERY_MS;
		}
		poll(NULL, 0, 5);
	}
	return 0;
}

static int report(struct hold *h)
{
	printf("%s: %u of %u connections opened, %u still open after %u s, %u checks, "
	       "slowest %lld ms, %u failed\n",
	       h->name, h->opened, h->o->connections, count_open(h), h->o->seconds, h->checks,
	       (long long)h->slowest_ms, h->failed);
	return h->failed || !h->checks || !h->opened;
}

static int hold_run(const struct options *o, const char *name, const char *first, bool dripping,
		    int rcvbuf)
{
	struct hold h CLEANUP(hold_release) = { .o = o, .name = name };
	int ret;

	ret = open_all(&h, first, rcvbuf);
	if (ret < 0)
		return ret;
	hold_on(&h, dripping);
	return report(&h);
}

int hold_idle(const struct options *o)
{
	return hold_run(o, "idle", "", false, 0);
}

int hold_loris(const struct options *o)
{
	if (o->body)
		return hold_run(o, "loris --body",
				"POST /v1/file/list HTTP/1.1\r\nHost: localhost\r\n"
				"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
				true, 0);
	return hold_run(o, "loris", "GET /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", true,
			0);
}

int hold_stall(const struct options *o)
{
	struct buf command CLEANUP_BUF = BUF_INIT(0);
	struct buf request CLEANUP_BUF = BUF_INIT(0);
	struct buf path CLEANUP_BUF = BUF_INIT(0);
	int ret;

	buf_printf(&path, WORKSPACE "/mix-%llu-stall", (unsigned long long)o->seed);
	buf_printf(&command, "truncate -s %llu %s", (unsigned long long)o->size, path.data);
	buf_printf(&request, "GET /v1/file/download?path=%s HTTP/1.1\r\nHost: localhost\r\n\r\n",
		   path.data);
	if (path.error || command.error || request.error)
		return -ENOMEM;
	ret = run_command(&o->address, command.data);
	if (ret < 0)
		return ret;
	ret = hold_run(o, "stall", request.data, false, STALLED_RCVBUF);
	buf_reset(&command);
	buf_printf(&command, "rm -f %s", path.data);
	if (command.error || run_command(&o->address, command.data) < 0)
		fprintf(stderr, "mixload: stall: %s was not removed\n", path.data);
	return ret;
}

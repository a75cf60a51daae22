/*
 * The mixed load's connections: one thread, one epoll, a number of clients.
 * Each client goes through episodes: connect, send one or more requests (one
 * by one or pipelined), read the answers; or hang up somewhere on the way.
 * Knows nothing of what the requests mean; see ops.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "clock.h"
#include "mix_i.h"

enum {
	ANSWER_LIMIT_MS = 30000,
	TICK_MS = 10,
	READ_SIZE = 65536,
	BATCH_BYTES = 6 * 1024 * 1024,
	MAX_REPORTS = 20,
};

enum cut {
	CUT_NONE,
	CUT_SENT,     /* after cut_bytes were sent */
	CUT_RECEIVED, /* after cut_bytes came in */
};

struct slot {
	struct client c;
	struct response r;
	int fd; /* -1 = between episodes */
	int64_t start_at_ms;
	int64_t asked_at_ms;    /* when the request being answered was the next in line */
	int64_t progress_at_ms; /* last byte in either direction */
	unsigned left;          /* requests not yet built in this episode */
	bool pipelines;
	size_t piece; /* at most so many bytes at a time */
	struct expect expects[MAX_PIPELINE];
	unsigned count;
	unsigned index; /* of the answer awaited */
	size_t sent;
	uint64_t sent_total;
	uint64_t received_total;
	bool gone; /* sending failed: read what there is */
	enum cut cut;
	uint64_t cut_bytes;
	int64_t cut_at_ms; /* hang up then at the latest; INT64_MAX = never */
};

struct op_stats {
	uint64_t answers;
	int64_t slowest_ms;
};

struct mix {
	const struct options *o;
	int epoll_fd;
	struct slot *slots;
	bool stopping;
	bool lost;     /* connecting failed: nothing more to do */
	unsigned busy; /* slots with a connection */
	char *buffer;  /* READ_SIZE */
	struct op_stats *stats;
	uint64_t requests, by_class[6], hangups, sent, received, errors;
};

static void report(struct mix *m, struct slot *s, const char *what)
{
	const struct expect *e = s->index < s->count ? &s->expects[s->index] : NULL;

	if (++m->errors > MAX_REPORTS)
		return;
	fprintf(stderr, "mixload: client %u, %s (%u of %u%s): %s; status %d, %llu body bytes",
		s->c.number, e ? e->op->name : "no request", s->index + 1, s->count,
		s->pipelines ? ", pipelined" : "", what, s->r.status,
		(unsigned long long)s->r.received);
	if (s->r.body.len)
		fprintf(stderr, ": %.*s", (int)MIN(s->r.body.len, 300), s->r.body.data);
	fputc('\n', stderr);
}

static void begin_response(struct slot *s)
{
	struct expect *e = &s->expects[s->index];

	response_reset(&s->r);
	s->asked_at_ms = clock_ms();
	if (s->index >= s->count)
		return;
	e->response = &s->r;
	s->r.to_head = e->flags & EXPECT_TO_HEAD;
	if (op_wants_body(e)) {
		s->r.on_body = op_body;
		s->r.on_body_arg = e;
	}
}

/* Builds the next request, or as many as fit when pipelining. */
static void build_batch(struct mix *m, struct slot *s)
{
	unsigned most = s->pipelines ? MAX_PIPELINE : 1;

	buf_reset(&s->c.out);
	s->sent = 0;
	s->count = 0;
	s->index = 0;
	while (s->left && s->count < most && s->c.out.len < BATCH_BYTES) {
		struct expect *e = &s->expects[s->count++];

		s->left--;
		s->c.last = s->left == 0 && pick(&s->c, 2);
		op_build(&s->c, e);
		m->requests++;
		/* what comes after these would not be answered in order */
		if (e->flags & (EXPECT_ANY | EXPECT_STREAM)) {
			s->left = 0;
			if (e->flags & EXPECT_STREAM)
				s->cut_at_ms = clock_ms() + 50 + pick(&s->c, 1500);
		}
	}
	if (s->c.out.error)
		abort();
	s->progress_at_ms = clock_ms();
	begin_response(s);
}

static void plan_cut(struct slot *s)
{
	struct client *c = &s->c;

	s->cut = CUT_NONE;
	s->cut_at_ms = INT64_MAX;
	if (pick(c, 8))
		return;
	switch (pick(c, 4)) {
	case 0: /* most likely in a header */
		s->cut = CUT_SENT;
		s->cut_bytes = pick(c, 200);
		break;
	case 1: /* most likely in a body, if there is one */
		s->cut = CUT_SENT;
		s->cut_bytes = pick(c, 500000);
		break;
	case 2:
		s->cut = CUT_RECEIVED;
		s->cut_bytes = 1 + pick(c, pick(c, 2) ? 200 : 2000000);
		break;
	default:
		s->cut_at_ms = clock_ms() + pick(c, 800);
	}
}

static void start_episode(struct mix *m, struct slot *s)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT, .data.ptr = s };
	struct client *c = &s->c;
	int fd = address_connect(&m->o->address);

	if (fd < 0) {
		if (fd == -EAGAIN && clock_ms() - s->start_at_ms < ANSWER_LIMIT_MS)
			return; /* the backlog is full: at the next tick */
		errno = -fd;
		fprintf(stderr, "mixload: client %u: connect: %m; is the server gone?\n",
			c->number);
		m->errors++;
		m->lost = true;
		return;
	}
	s->fd = fd;
	m->busy++;
	s->gone = false;
	s->sent_total = 0;
	s->received_total = 0;
	s->left = pick(c, 5) < 3 ? 1 : 2 + pick(c, 7);
	s->pipelines = s->left > 1 && pick(c, 3) == 0;
	s->piece = pick(c, 16) ? READ_SIZE : 1 + pick(c, 4096);
	plan_cut(s);
	build_batch(m, s);
	if (epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		abort();
}

static void end_episode(struct mix *m, struct slot *s)
{
	for (unsigned i = s->index; i < s->count; i++)
		op_forget(&s->c, &s->expects[i]);
	close(s->fd);
	s->fd = -1;
	m->busy--;
	s->start_at_ms = clock_ms() + (pick(&s->c, 4) ? 0 : pick(&s->c, 50));
}

static void fail(struct mix *m, struct slot *s, const char *what)
{
	report(m, s, what);
	end_episode(m, s);
}

static void hang_up(struct mix *m, struct slot *s)
{
	struct linger reset = { .l_onoff = 1 };

	m->hangups++;
	if (pick(&s->c, 2))
		setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	end_episode(m, s);
}

/* The server ended the connection before a whole answer came. */
static void on_cut_off(struct mix *m, struct slot *s, const char *what)
{
	unsigned flags = s->index < s->count ? s->expects[s->index].flags : 0;
	bool begun = s->r.state > RESPONSE_HEADERS;

	if ((flags & EXPECT_ANY) || ((flags & EXPECT_MAY_CUT) && begun))
		end_episode(m, s);
	else
		fail(m, s, begun ? "the body was cut" : what);
}

/* Returns false if the episode is over. */
static bool on_answer(struct mix *m, struct slot *s)
{
	struct expect *e = &s->expects[s->index];
	struct op_stats *st = &m->stats[e->op - ops];
	int64_t took = clock_ms() - s->asked_at_ms;
	const char *wrong;
	bool closes = s->r.closes;

	m->by_class[s->r.status / 100]++;
	st->answers++;
	st->slowest_ms = MAX(st->slowest_ms, took);
	wrong = op_check(&s->c, e, &s->r);
	if (wrong) {
		report(m, s, wrong);
		op_forget(&s->c, e);
	}
	s->index++;
	if (closes || (s->index == s->count && !s->left)) {
		end_episode(m, s);
		return false;
	}
	if (s->index == s->count)
		build_batch(m, s);
	else
		begin_response(s);
	return true;
}

/* Returns false if the episode is over. */
static bool take(struct mix *m, struct slot *s, const char *data, size_t len)
{
	while (len) {
		ssize_t n = response_feed(&s->r, data, len);

		if (n < 0) {
			on_cut_off(m, s, "not HTTP");
			return false;
		}
		data += n;
		len -= (size_t)n;
		if (s->r.state != RESPONSE_DONE)
			continue;
		/* libmicrohttpd 0.9.75 sends the header of its own error
		 * answers twice; it closes the connection after them. */
		if (len && s->index + 1 == s->count && !(s->expects[s->index].flags & EXPECT_ANY)) {
			fail(m, s, "more bytes than the answer has");
			return false;
		}
		if (!on_answer(m, s))
			return false;
	}
	return true;
}

static void on_readable(struct mix *m, struct slot *s)
{
	size_t most = s->piece;
	ssize_t n;

	if (s->cut == CUT_RECEIVED)
		most = MIN(most, (size_t)(s->cut_bytes - s->received_total));
	n = recv(s->fd, m->buffer, most, 0);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			on_cut_off(m, s, "reset without an answer");
		return;
	}
	if (n == 0) {
		if (response_eof(&s->r) == 0)
			on_answer(m, s);
		else
			on_cut_off(m, s, "closed without an answer");
		return;
	}
	m->received += (uint64_t)n;
	s->received_total += (uint64_t)n;
	s->progress_at_ms = clock_ms();
	if (s->cut == CUT_RECEIVED && s->received_total >= s->cut_bytes)
		hang_up(m, s);
	else
		take(m, s, m->buffer, (size_t)n);
}

/* Returns false if the episode is over. */
static bool on_writable(struct mix *m, struct slot *s)
{
	size_t most = MIN(s->c.out.len - s->sent, s->piece);
	ssize_t n;

	if (s->cut == CUT_SENT) {
		most = MIN(most, (size_t)(s->cut_bytes - s->sent_total));
		if (most == 0 && s->sent < s->c.out.len) {
			hang_up(m, s);
			return false;
		}
	}
	if (most == 0)
		return true;
	n = send(s->fd, s->c.out.data + s->sent, most, MSG_NOSIGNAL);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			s->gone = true; /* there may be an early answer */
		return true;
	}
	m->sent += (uint64_t)n;
	s->sent += (size_t)n;
	s->sent_total += (uint64_t)n;
	s->progress_at_ms = clock_ms();
	return true;
}

static void on_event(struct mix *m, struct slot *s, unsigned events)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };

	if ((events & EPOLLOUT) && !s->gone && !on_writable(m, s))
		return;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		on_readable(m, s);
	if (s->fd < 0)
		return;
	if (!s->gone && s->sent < s->c.out.len)
		ev.events |= EPOLLOUT;
	epoll_ctl(m->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev);
}

static void on_tick(struct mix *m, struct slot *s)
{
	int64_t now = clock_ms();

	if (s->fd < 0) {
		if (!m->stopping && !m->lost && now >= s->start_at_ms)
			start_episode(m, s);
	} else if (now >= s->cut_at_ms) {
		hang_up(m, s);
	} else if (now - s->progress_at_ms > ANSWER_LIMIT_MS) {
		fail(m, s, "no answer within 30 s");
	}
}

static void loop(struct mix *m)
{
	int64_t end = clock_ms() + (int64_t)m->o->seconds * 1000;
	int64_t next_tick = 0;

	while (!m->stopping || m->busy) {
		struct epoll_event events[64];
		int n = epoll_wait(m->epoll_fd, events, ARRAY_SIZE(events), m->busy ? TICK_MS : 1);

		for (int i = 0; i < n; i++) {
			struct slot *s = events[i].data.ptr;

			if (s->fd >= 0)
				on_event(m, s, events[i].events);
		}
		m->stopping = interrupted || m->lost || clock_ms() >= end;
		if (n == (int)ARRAY_SIZE(events) && clock_ms() < next_tick)
			continue;
		for (unsigned i = 0; i < m->o->clients; i++)
			on_tick(m, &m->slots[i]);
		next_tick = clock_ms() + TICK_MS;
	}
}

static int summary(struct mix *m, double took_s)
{
	size_t slowest = 0;
	uint64_t answers = 0;

	for (size_t i = 0; i < ops_count; i++) {
		answers += m->stats[i].answers;
		if (m->stats[i].slowest_ms > m->stats[slowest].slowest_ms)
			slowest = i;
		if (m->o->verbose)
			printf("%-18s %8llu answers, slowest %lld ms\n", ops[i].name,
			       (unsigned long long)m->stats[i].answers,
			       (long long)m->stats[i].slowest_ms);
	}
	printf("mix: seed %llu, %u clients, %.0f s: %llu requests, %llu answers (2xx %llu, 3xx "
	       "%llu, "
	       "4xx %llu, 5xx %llu), %llu disconnects, %llu MiB sent, %llu MiB received, "
	       "slowest %lld ms (%s), %llu unexpected\n",
	       (unsigned long long)m->o->seed, m->o->clients, took_s,
	       (unsigned long long)m->requests, (unsigned long long)answers,
	       (unsigned long long)m->by_class[2], (unsigned long long)m->by_class[3],
	       (unsigned long long)m->by_class[4], (unsigned long long)m->by_class[5],
	       (unsigned long long)m->hangups, (unsigned long long)(m->sent / MIB),
	       (unsigned long long)(m->received / MIB), (long long)m->stats[slowest].slowest_ms,
	       ops[slowest].name, (unsigned long long)m->errors);
	return m->errors || !answers;
}

static void mix_release(struct mix *m)
{
	for (unsigned i = 0; m->slots && i < m->o->clients; i++) {
		http_response_release(&m->slots[i].r);
		buf_release(&m->slots[i].c.out);
	}
	free(m->slots);
	free(m->stats);
	free(m->buffer);
	if (m->epoll_fd >= 0)
		close(m->epoll_fd);
}

static int mix_init(struct mix *m, unsigned features)
{
	m->slots = calloc(m->o->clients, sizeof(*m->slots));
	m->stats = calloc(ops_count, sizeof(*m->stats));
	m->buffer = malloc(READ_SIZE);
	if (!m->slots || !m->stats || !m->buffer)
		return -ENOMEM;
	m->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (m->epoll_fd < 0)
		return -errno;
	for (unsigned i = 0; i < m->o->clients; i++) {
		struct slot *s = &m->slots[i];

		s->fd = -1;
		s->start_at_ms = clock_ms();
		s->c.number = i;
		s->c.random = m->o->seed * 1000003 + i;
		s->c.o = m->o;
		s->c.features = features;
		for (unsigned f = 0; f < FILES_PER_CLIENT; f++)
			s->c.files[f].number = s->c.next_name++;
		response_init(&s->r);
	}
	return 0;
}

int mix_run(const struct options *o)
{
	struct mix m CLEANUP(mix_release) = { .o = o, .epoll_fd = -1 };
	int64_t start = clock_ms();
	unsigned features;
	int ret;

	ret = ops_setup(o, &features);
	if (ret < 0)
		return ret;
	ret = mix_init(&m, features);
	if (ret < 0)
		return ret;
	loop(&m);
	ret = summary(&m, (double)(clock_ms() - start) / 1000);
	ops_cleanup(o, features);
	return ret;
}

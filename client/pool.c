/*
 * libcurl's multi interface on libev: libcurl says which sockets and which
 * time it waits for, libev says when they are due. Knows nothing of requests.
 * Loop thread only.
 */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
	SPARE_MAX = 8,         /* easy handles kept for the next request */
	IDLE_CONNECTIONS = 16, /* kept open for the next request */
	UPLOAD_BUFFER = 64 * 1024,
};

struct pool {
	struct loop *loop;
	CURLM *multi;
	void (*done)(CURL *easy, CURLcode code);
	ev_timer timer;
	struct job kick;          /* the timer, when it is due at once */
	unsigned kicked;          /* in which turn of the loop that was last */
	struct sock *socks;       /* those that transfers wait for, and those that are idle */
	struct transfer *running; /* what was added */
	size_t count, cap;
	unsigned serial; /* of the next one */
	CURL *spare[SPARE_MAX];
	CURL *set[SPARE_MAX]; /* the same, still set up for a plain GET */
	unsigned spares, sets;
};

struct transfer {
	CURL *easy;
	unsigned serial;
};

/* A socket of libcurl's. One that is idle is not watched: it may be closed at any time. */
struct sock {
	ev_io io;
	struct pool *pool;
	bool idle;  /* libcurl does not ask for it */
	bool plain; /* idle, kept for the next request, and nothing may come meanwhile */
	struct sock *prev, *next;
};

/* ---- connections that nobody uses ---- */

static struct sock *find_sock(struct pool *p, int fd)
{
	struct sock *s;

	DL_FOREACH (p->socks, s) {
		if (s->io.fd == fd)
			return s;
	}
	return NULL;
}

static void free_sock(struct pool *p, struct sock *s)
{
	ev_io_stop(loop_ev(p->loop), &s->io);
	DL_DELETE(p->socks, s);
	free(s);
}

/* The transfer is over: its connection is kept, if it is. TLS may send records of its own. */
static void note_idle(struct pool *p, CURL *easy)
{
	curl_socket_t fd = CURL_SOCKET_BAD;
	char *scheme = NULL;
	struct sock *s;

	curl_easy_getinfo(easy, CURLINFO_SCHEME, &scheme);
	curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
	if (fd == CURL_SOCKET_BAD || !scheme || strcasecmp(scheme, "http") != 0)
		return;
	s = find_sock(p, fd);
	if (s && s->idle) /* else the next one has it already */
		s->plain = true;
}

/* Puts a socket that was closed by its peer in the place of this one. */
static void kill_socket(int fd)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	close(ends[1]);
	dup3(ends[0], fd, O_CLOEXEC);
	close(ends[0]);
}

/*
 * A server that says more than it was asked for: libcurl (until 8.0) would take
 * that for the beginning of its next answer. Such a connection is not used again.
 */
static void refuse_surplus(struct pool *p)
{
	struct sock *s;
	char byte;

	DL_FOREACH (p->socks, s) {
		if (s->plain && recv(s->io.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
			s->plain = false;
			kill_socket(s->io.fd);
		}
	}
}

static int close_socket(void *ctx, curl_socket_t fd)
{
	struct pool *p = ctx;
	struct sock *s = find_sock(p, fd);

	if (s)
		free_sock(p, s);
	return close(fd);
}

/* Those that libcurl has done with and may have closed without saying so. */
static void forget_rest(struct pool *p)
{
	struct sock *s, *next;

	DL_FOREACH_SAFE (p->socks, s, next) {
		if (s->idle && !s->plain)
			free_sock(p, s);
	}
}

/* ---- transfers ---- */

static int note_running(struct pool *p, CURL *easy)
{
	if (p->count == p->cap) {
		size_t cap = p->cap * 2 ?: 8;
		struct transfer *v = reallocarray(p->running, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->running = v;
		p->cap = cap;
	}
	p->running[p->count++] = (struct transfer){ easy, p->serial++ };
	return 0;
}

static void take_out(struct pool *p, CURL *easy)
{
	for (size_t i = 0; i < p->count; i++) {
		if (p->running[i].easy == easy) {
			p->running[i] = p->running[--p->count];
			return;
		}
	}
}

/* Tells the owners of what has ended. They may begin and remove others from there. */
static void reap(struct pool *p)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(p->multi, &left))) {
		CURL *easy = msg->easy_handle;
		CURLcode code = msg->data.result;

		if (msg->msg != CURLMSG_DONE)
			continue;
		note_idle(p, easy);
		pool_remove(p, easy);
		p->done(easy, code);
	}
	forget_rest(p);
}

/* One that was there before; NULL: none. */
static CURL *older_than(const struct pool *p, unsigned serial)
{
	for (size_t i = 0; i < p->count; i++) {
		if ((int)(p->running[i].serial - serial) < 0)
			return p->running[i].easy;
	}
	return NULL;
}

/*
 * libcurl could not go on, for want of memory: it does not say with what, and what it
 * did not get to watch would never be heard of again. So all end here.
 */
static void fail_all(struct pool *p)
{
	unsigned until = p->serial;
	CURL *easy;

	while ((easy = older_than(p, until))) {
		pool_remove(p, easy);
		p->done(easy, CURLE_OUT_OF_MEMORY);
	}
}

static void act(struct pool *p, curl_socket_t fd, int events)
{
	int running;
	CURLMcode r = curl_multi_socket_action(p->multi, fd, events, &running);

	reap(p);
	if (r != CURLM_OK)
		fail_all(p);
}

static void on_socket_ready(struct ev_loop *ev UNUSED, ev_io *w, int revents)
{
	struct sock *s = CONTAINER_OF(w, struct sock, io);
	struct pool *p = s->pool;
	int events = 0;

	if (revents & EV_READ)
		events |= CURL_CSELECT_IN;
	if (revents & EV_WRITE)
		events |= CURL_CSELECT_OUT;
	act(p, w->fd, events); /* may free s */
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	act(w->data, CURL_SOCKET_TIMEOUT, 0);
}

static void on_kick(struct job *job)
{
	struct pool *p = CONTAINER_OF(job, struct pool, kick);

	p->kicked = ev_iteration(loop_ev(p->loop));
	on_timer(NULL, &p->timer, 0);
}

/* libcurl: this socket is to be watched for that. */
static int set_socket(CURL *easy UNUSED, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
	struct pool *p = ctx;
	struct sock *s = socket_ctx;
	struct ev_loop *ev = loop_ev(p->loop);
	int events = 0;

	if (what == CURL_POLL_REMOVE) {
		/* It may be closed next, without a word: a watcher of a closed one ends the
		 * program. */
		if (s) {
			ev_io_stop(ev, &s->io);
			s->idle = true;
		}
		curl_multi_assign(p->multi, fd, NULL);
		return 0;
	}
	if (!s)
		s = find_sock(p, fd);
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -1;
		s->pool = p;
		s->idle = true;
		ev_io_init(&s->io, on_socket_ready, fd, 0);
		DL_APPEND(p->socks, s);
	}
	if (s->idle)
		curl_multi_assign(p->multi, fd, s);
	s->idle = s->plain = false;
	if (what & CURL_POLL_IN)
		events |= EV_READ;
	if (what & CURL_POLL_OUT)
		events |= EV_WRITE;
	if (ev_is_active(&s->io) && (s->io.events & (EV_READ | EV_WRITE)) == events)
		return 0;
	ev_io_stop(ev, &s->io);
	ev_io_set(&s->io, fd, events);
	if (events)
		ev_io_start(ev, &s->io);
	return 0;
}

/* libcurl: wake me then. Never acts from here, as libcurl is in the middle of something. */
static int set_timer(CURLM *multi UNUSED, long timeout_ms, void *ctx)
{
	struct pool *p = ctx;
	struct ev_loop *ev = loop_ev(p->loop);

	ev_timer_stop(ev, &p->timer);
	/* Once per turn: others are to have theirs. */
	if (timeout_ms == 0 && p->kicked != ev_iteration(ev)) {
		loop_post(p->loop, &p->kick);
	} else if (timeout_ms >= 0) {
		ev_timer_set(&p->timer, (ev_tstamp)timeout_ms / 1e3, 0.);
		ev_timer_start(ev, &p->timer);
	}
	return 0;
}

int pool_new(struct loop *loop, void (*done)(CURL *easy, CURLcode code), struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->multi = curl_multi_init();
	if (!p->multi) {
		free(p);
		return -ENOMEM;
	}
	p->loop = loop;
	p->done = done;
	ev_timer_init(&p->timer, on_timer, 0., 0.);
	p->timer.data = p;
	p->kick.run = on_kick;
	curl_multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
	curl_multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p);
	curl_multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl_multi_setopt(p->multi, CURLMOPT_TIMERDATA, p);
	curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS);
	*ret = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	while (p->spares > 0)
		curl_easy_cleanup(p->spare[--p->spares]);
	while (p->sets > 0)
		curl_easy_cleanup(p->set[--p->sets]);
	curl_multi_cleanup(p->multi);
	while (p->socks)
		free_sock(p, p->socks);
	ev_timer_stop(loop_ev(p->loop), &p->timer);
	loop_withdraw(p->loop, &p->kick);
	free(p->running);
	free(p);
}

CURL *pool_get_set(struct pool *p)
{
	return p->sets > 0 ? p->set[--p->sets] : NULL;
}

void pool_put_set(struct pool *p, CURL *easy)
{
	if (p->sets == SPARE_MAX)
		curl_easy_cleanup(easy);
	else
		p->set[p->sets++] = easy;
}

CURL *pool_get(struct pool *p)
{
	CURL *easy = p->spares > 0 ? p->spare[--p->spares] : curl_easy_init();

	if (easy) {
		/* A reset that finds no memory says nothing, and leaves this at 0, with which
		 * nothing is ever sent. */
		curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)UPLOAD_BUFFER);
		curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
		curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, p);
	}
	return easy;
}

void pool_put(struct pool *p, CURL *easy)
{
	if (p->spares == SPARE_MAX) {
		curl_easy_cleanup(easy);
		return;
	}
	curl_easy_reset(easy);
	p->spare[p->spares++] = easy;
}

int pool_add(struct pool *p, CURL *easy)
{
	int r = note_running(p, easy);

	if (r < 0)
		return r;
	refuse_surplus(p);
	if (curl_multi_add_handle(p->multi, easy) == CURLM_OK)
		return 0;
	take_out(p, easy);
	return -ENOMEM;
}

void pool_remove(struct pool *p, CURL *easy)
{
	take_out(p, easy);
	curl_multi_remove_handle(p->multi, easy);
}

/*
 * libmicrohttpd driven by our event loop: its epoll fd is one of our watchers.
 * Reads bodies (capped), checks the API key, finds the route, runs or queues
 * the handler, suspends connections that wait, and notices when a waiting
 * client goes away. Must not know what any route does. Loop thread only.
 *
 * libmicrohttpd times out silent connections but not dripping ones, and it
 * does not look at suspended ones at all; both are done here: a connection
 * without a request for IDLE_S is closed however often it sends a byte, and
 * the socket of a suspended one is watched for its end.
 */
#include "http.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <utlist.h>

#include "clock.h"
#include "json.h"
#include "log.h"
#include "request_i.h"
#include "route.h"

enum {
	RUNS = 8,
	IDLE_S = 75,                  /* without a (complete) request header */
	IDLE_CROWDED_S = 5,           /* the same when connections run short */
	STALL_S = 600,                /* a request that moves no byte */
	CONNECTION_MEMORY = 64 * KIB, /* cleared for every request, so more is slower */
	SEND_BUFFER = 512 * KIB,      /* of a unix socket */
	DRAIN_AT_ONCE = 1 * MIB,      /* of a refused body; a longer one is cut off */
	DIRECT_FROM = 1 * MIB,        /* bodies that are worth reading ourselves */
	DIRECT_PIECE = 1 * MIB,
	MAX_HELD = 512 * MIB, /* bodies and answers of all requests together */
};

/* A connection. In the idle list exactly while it has no request. */
struct peer {
	struct http *http;
	int fd;
	bool tcp;
	bool busy;
	int64_t idle_since_ms;
	struct peer *prev, *next;
};

struct http {
	struct server *srv;
	struct MHD_Daemon *daemon;
	struct ev_loop *loop;
	ev_io epoll_io;
	ev_timer due;      /* when libmicrohttpd wants to run again */
	ev_timer janitor;  /* looks for idle connections */
	ev_idle again;     /* run once more before sleeping */
	struct peer *idle; /* oldest first */
	unsigned peers;
	struct request *requests;
	unsigned active;
	size_t held;
	bool stopping;
	char *piece; /* DIRECT_PIECE bytes, while one is being handed on */
};

static void run_soon(struct http *h)
{
	ev_idle_start(h->loop, &h->again);
}

static void pump(struct http *h)
{
	MHD_UNSIGNED_LONG_LONG ms = 0;
	enum MHD_Result waits = MHD_YES;
	sigset_t all, old;

	ev_idle_stop(h->loop, &h->again);
	ev_timer_stop(h->loop, &h->due);
	/*
	 * A signal (a child that ended) cuts a sendfile short, and libmicrohttpd
	 * takes that for a full socket: it would wait for room that was never
	 * missing. So signals come in between.
	 */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/* A few times in a row: each run sends a connection only 128 KiB of a file. */
	for (int i = 0; i < RUNS && waits == MHD_YES && ms == 0; i++) {
		MHD_run(h->daemon);
		waits = MHD_get_timeout(h->daemon, &ms);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (waits != MHD_YES)
		return;
	if (ms == 0) {
		run_soon(h);
		return;
	}
	ev_timer_set(&h->due, (double)ms / 1000.0, 0);
	ev_timer_start(h->loop, &h->due);
}

static void on_epoll(struct ev_loop *loop, ev_io *io, int revents)
{
	pump(io->data);
}

static void on_due(struct ev_loop *loop, ev_timer *t, int revents)
{
	pump(t->data);
}

static void on_again(struct ev_loop *loop, ev_idle *i, int revents)
{
	pump(i->data);
}

/* ---- connections ---- */

static void peer_idle(struct peer *p)
{
	p->busy = false;
	p->idle_since_ms = clock_ms();
	DL_APPEND(p->http->idle, p);
}

static void peer_busy(struct peer *p)
{
	if (!p->busy)
		DL_DELETE(p->http->idle, p);
	p->busy = true;
}

static struct peer *peer_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void close_idle(struct http *h, int older_than_s)
{
	int64_t before = clock_ms() - (int64_t)older_than_s * 1000;

	/* libmicrohttpd sees the end of file and does the rest. */
	for (struct peer *p = h->idle; p && p->idle_since_ms <= before; p = p->next)
		shutdown(p->fd, SHUT_RDWR);
}

/*
 * Bodies may come as slowly as they like (somebody may be typing them) as long
 * as something comes, but when connections run short those that drip less
 * than a kilobyte a second make room.
 */
static void close_dripping(struct http *h, bool is_crowded)
{
	int64_t now = clock_ms();
	struct request *r;

	DL_FOREACH2(h->requests, r, i->next)
	{
		const struct request_i *i = r->i;
		int64_t until = is_crowded
					? i->started_ms + IDLE_CROWDED_S * 1000 + (int64_t)i->taken
					: i->moved_ms + STALL_S * 1000;

		if (!i->dispatched && now > until)
			shutdown(peer_of(r->conn)->fd, SHUT_RDWR);
	}
}

/* Waiting clients that sent something more are not watched; see on_hangup(). */
static void find_gone(struct http *h)
{
	struct request *r, *next;

	DL_FOREACH_SAFE2(h->requests, r, next, i->next)
	{
		struct pollfd p = { .events = POLLRDHUP };

		if (!r->i->suspended || r->i->direct || ev_is_active(&r->i->hangup))
			continue;
		p.fd = peer_of(r->conn)->fd;
		if (poll(&p, 1, 0) <= 0)
			continue;
		atomic_store(&r->i->gone, true);
		if (!r->i->working)
			http_resume(r);
	}
}

static bool crowded(const struct http *h)
{
	return h->peers > h->srv->cfg->max_connections / 10 * 9;
}

static void on_janitor(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct http *h = t->data;
	bool is_crowded = crowded(h);

	close_idle(h, is_crowded ? IDLE_CROWDED_S : IDLE_S);
	close_dripping(h, is_crowded);
	find_gone(h);
}

/*
 * A unix socket holds 208 KiB by default, so that a download and its reader take
 * turns. TCP finds its own size, and stops if told one.
 */
static void widen(struct peer *p)
{
	int domain, size = SEND_BUFFER;
	socklen_t len = sizeof(domain);

	p->tcp = getsockopt(p->fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX;
	if (!p->tcp)
		setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **ctx,
			  enum MHD_ConnectionNotificationCode code)
{
	struct http *h = cls;
	struct peer *p = *ctx;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info =
			MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

		p = calloc(1, sizeof(*p));
		if (!p || !info) {
			free(p);
			return; /* requests on it are refused */
		}
		p->http = h;
		p->fd = info->connect_fd;
		widen(p);
		peer_idle(p);
		*ctx = p;
		h->peers++;
		if (crowded(h))
			close_idle(h, IDLE_CROWDED_S);
	} else if (p) {
		if (!p->busy)
			DL_DELETE(h->idle, p);
		h->peers--;
		free(p);
		*ctx = NULL;
		/* Only its next run frees the place and, at the limit, listens again. */
		run_soon(h);
	}
}

/* ---- waiting ---- */

static void on_hangup(struct ev_loop *loop, ev_io *io, int revents)
{
	struct request *r = io->data;
	char c;
	ssize_t n = recv(io->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* A byte is the next, pipelined request: it has to wait its turn. */
	ev_io_stop(loop, io);
	if (n > 0)
		return;
	atomic_store(&r->i->gone, true);
	if (!r->i->working)
		http_resume(r);
}

static void suspend(struct request *r, void (*readable)(struct ev_loop *, ev_io *, int))
{
	struct request_i *i = r->i;
	struct peer *p = peer_of(r->conn);

	MHD_suspend_connection(r->conn);
	i->suspended = true;
	ev_io_init(&i->hangup, readable, p->fd, EV_READ);
	i->hangup.data = r;
	ev_io_start(r->srv->loop, &i->hangup);
}

void http_suspend(struct request *r)
{
	suspend(r, on_hangup);
}

void http_resume(struct request *r)
{
	struct request_i *i = r->i;

	ev_io_stop(r->srv->loop, &i->hangup);
	i->suspended = false;
	MHD_resume_connection(r->conn);
	run_soon(r->srv->http);
}

static void direct_answer(struct request *r);

static struct request *request_of_work(struct work *w)
{
	return CONTAINER_OF(w, struct request_i, work)->owner;
}

/*
 * Not so who has only ended his half of the connection. Of TCP nothing more is to be seen than
 * that: `half` says whether it counts there.
 */
static bool has_left(const struct peer *p, bool half)
{
	struct pollfd f = { .fd = p->fd, .events = p->tcp && half ? POLLRDHUP : 0 };

	return poll(&f, 1, 0) > 0 && (f.revents & (POLLHUP | POLLERR | POLLRDHUP));
}

/*
 * While a worker has it its connection is suspended: nobody closes that until work_done(). Half of
 * it counts, as who has ended that would hardly get an answer any more, see on_hangup().
 */
bool request_left(const struct request *r)
{
	return r->i->working && has_left(r->i->peer, true);
}

/* The client has left: files are not touched for nobody. */
static void refuse_gone(struct request *r)
{
	reply_error(r, 499, "The client has left");
}

/* It may have waited long for the worker. */
static void work_run(struct work *w)
{
	struct request *r = request_of_work(w);

	if (request_left(r))
		refuse_gone(r);
	else
		r->route->handle(r);
}

static void work_done(struct work *w)
{
	struct request *r = request_of_work(w);

	r->i->working = false;
	if (r->i->direct)
		direct_answer(r);
	else if (r->i->suspended)
		http_resume(r);
}

/* ---- a request ---- */

static bool same_secret(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	unsigned char diff = la != lb;

	for (size_t i = 0; i < la; i++)
		diff |= (unsigned char)(a[i] ^ (lb ? b[i % lb] : 0));
	return diff == 0;
}

static bool authorized(struct request *r)
{
	const char *key = r->srv->cfg->api_key, *given;

	if (!key)
		return true;
	given = request_header(r, "Authorization");
	if (given && strncasecmp(given, "Bearer ", 7) == 0 && same_secret(given + 7, key))
		return true;
	given = request_header(r, "X-AIO-API-Key");
	if (given && same_secret(given, key))
		return true;
	given = request_header(r, "X-API-Key");
	if (given && r->srv->cfg->dialect == DIALECT_AIOD && same_secret(given, key))
		return true;
	return request_query(r, "api_key", &given) > 0 && same_secret(given, key);
}

/* An error that needs no look at the body. */
static void refuse(struct request *r, unsigned status, const char *what)
{
	if (r->srv->cfg->dialect != DIALECT_AIOD && (status == 404 || status == 405)) {
		struct jw *w = reply_plain_begin(r);

		jw_obj(w);
		jw_kstr(w, "detail", what);
		jw_obj_end(w);
		reply_plain_end(r, status);
	} else {
		reply_error(r, status, "%s", what);
	}
	r->i->refuse = true;
}

static uint64_t content_length(struct request *r)
{
	const char *s = request_header(r, "Content-Length");

	/* It means nothing beside chunks. */
	return s && !request_header(r, "Transfer-Encoding") ? strtoull(s, NULL, 10) : 0;
}

static void open_request(struct request *r, const char *method, const char *url)
{
	const struct config *cfg = r->srv->cfg;
	const char *accept = request_header(r, "Accept");
	unsigned status = 0;

	r->head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
	r->wants_sse = accept && strstr(accept, "text/event-stream");
	r->route = route_find(cfg->dialect, method, url, r->path_arg, &status);
	r->i->body = BUF_INIT(cfg->max_body);
	if (r->srv->http->stopping)
		refuse(r, 503, "Shutting down");
	else if (!(r->route && (r->route->flags & ROUTE_PUBLIC)) && !authorized(r))
		refuse(r, 401, "Unauthorized");
	else if (!r->route)
		refuse(r, status, status == 405 ? "Method Not Allowed" : "Not Found");
	else if (!r->route->sink && content_length(r) > cfg->max_body)
		refuse(r, 413, "Request body too large");
	else if (r->route->sink && r->route->sink->begin(r) < 0)
		r->i->refuse = true;
}

/* Counts bytes that a request makes us keep. */
static bool hold(struct http *h, struct request *r, size_t len)
{
	if (h->held + len > MAX_HELD)
		return false;
	h->held += len;
	r->i->held += len;
	return true;
}

static enum MHD_Result take_body(struct request *r, const char *data, size_t len)
{
	struct request_i *i = r->i;

	i->taken += len;
	i->moved_ms = clock_ms();
	if (i->refuse) {
		i->dropped += len;
		return i->dropped > r->srv->cfg->max_body ? MHD_NO : MHD_YES;
	}
	if (r->route->sink) {
		if (r->route->sink->data(r, data, len) == -ECONNABORTED)
			return MHD_NO;
		return MHD_YES;
	}
	if (!hold(r->srv->http, r, len))
		refuse(r, 503, "Too many large requests at once");
	else if (buf_append(&i->body, data, len) == -EFBIG)
		refuse(r, 413, "Request body too large");
	else if (i->body.error)
		refuse(r, 503, "Out of memory");
	if (i->refuse)
		buf_release(&i->body);
	return MHD_YES;
}

/* Parses the body into r->args. Returns false after replying with an error. */
static bool decode(struct request *r)
{
	struct request_i *i = r->i;
	const char *why = "JSON decode error";
	enum dialect dialect = r->srv->cfg->dialect;
	int n;

	if (!r->route->args)
		return true;
	r->args = calloc(1, r->route->args_size);
	n = r->args ? 0 : -ENOMEM;
	if (n == 0 && i->body.len == 0) {
		args_write_error(&r->out, dialect, "body", NULL, "Field required", "missing");
		i->status = 422;
		return false;
	}
	if (n == 0)
		n = json_parse(i->body.data, i->body.len, &i->json, &why);
	buf_release(&i->body);
	if (n == -EINVAL || n == -E2BIG) {
		args_write_error(&r->out, dialect, "body", NULL, why, "json_invalid");
		i->status = 422;
		return false;
	}
	if (n == 0)
		n = args_decode(r->route->args, i->json, dialect, r->args, &r->out);
	if (n == -EINVAL)
		i->status = 422;
	else if (n < 0)
		reply_error(r, 503, "Out of memory");
	return n == 0;
}

static bool needs_worker(const struct request *r)
{
	const struct body_sink *sink = r->route->sink;

	return (r->route->flags & ROUTE_BLOCKING) && !(sink && sink->quick && sink->quick(r));
}

static void dispatch(struct request *r)
{
	struct request_i *i = r->i;

	i->dispatched = true;
	if (i->status)
		return;
	/*
	 * It may have lain in its socket while we stood still, and whoever sent it has given up and
	 * done something else since: a late upload must not come over that. Commands go on without
	 * their client.
	 */
	if ((r->route->flags & ROUTE_BLOCKING) && has_left(r->i->peer, false)) {
		refuse_gone(r);
		return;
	}
	if (!decode(r))
		return;
	if (needs_worker(r)) {
		i->working = true;
		i->work.run = work_run;
		i->work.done = work_done;
		workers_submit(r->srv->workers, &i->work);
	} else {
		r->route->handle(r);
	}
}

static enum MHD_Result answer(struct request *r)
{
	struct MHD_Response *response;

	if (!hold(r->srv->http, r, r->out.len)) {
		buf_release(&r->out);
		reply_error(r, 503, "Too many large answers at once");
	}
	response = request_response(r);
	return response ? MHD_queue_response(r->conn, r->i->status, response) : MHD_NO;
}

/*
 * libmicrohttpd reads at most half of CONNECTION_MEMORY at a time, and what
 * suits small requests is slow for large uploads. So when the first bytes of a
 * long body have come by, the connection is suspended and the rest is read
 * here. libmicrohttpd goes on waiting for those bytes: it cannot send the
 * answer any more, nor can another request follow. We send the answer, and
 * the connection ends with it.
 */
static void direct_end(struct request *r)
{
	atomic_store(&r->i->gone, true);
	shutdown(peer_of(r->conn)->fd, SHUT_RDWR); /* libmicrohttpd sees the end and frees it */
	http_resume(r);
}

static void direct_answer(struct request *r)
{
	struct buf head CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&head,
		   "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		   "Connection: close\r\n\r\n",
		   r->i->status, MHD_get_reason_phrase_for(r->i->status), r->out.len);
	buf_append(&head, r->out.data, r->out.len);
	/* A few hundred bytes into an empty socket buffer: they fit, or nobody is there. */
	if (!head.error && r->i->status)
		send(peer_of(r->conn)->fd, head.data, head.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	direct_end(r);
}

static void on_body(struct ev_loop *loop, ev_io *io, int revents)
{
	struct request *r = io->data;
	struct request_i *i = r->i;
	char *piece = r->srv->http->piece;
	uint64_t want = r->route->sink->want(r, DIRECT_PIECE);
	ssize_t n = recv(io->fd, piece, MIN(i->direct_left, want), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || take_body(r, piece, (size_t)n) != MHD_YES) {
		direct_end(r);
		return;
	}
	i->direct_left -= (uint64_t)n;
	if (i->direct_left > 0)
		return;
	ev_io_stop(loop, io);
	dispatch(r);
	if (!i->working)
		direct_answer(r);
}

/* Does nothing where libmicrohttpd is to read the body. */
static void direct_begin(struct request *r)
{
	struct http *h = r->srv->http;
	struct request_i *i = r->i;

	if (i->refuse || !r->route->sink || content_length(r) < i->taken + DIRECT_FROM)
		return;
	if (!h->piece)
		h->piece = aligned_alloc(4096, DIRECT_PIECE);
	if (!h->piece)
		return;
	i->direct = true;
	i->direct_left = content_length(r) - i->taken;
	suspend(r, on_body);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *len, void **ctx)
{
	struct http *h = cls;
	struct request *r = *ctx;

	if (!r) {
		struct peer *p = peer_of(conn);

		r = p ? request_new(h->srv, conn) : NULL;
		if (!r)
			return MHD_NO;
		*ctx = r;
		r->i->peer = p;
		DL_APPEND2(h->requests, r, i->prev, i->next);
		h->active++;
		r->i->started_ms = r->i->moved_ms = clock_ms();
		peer_busy(p);
		server_touch(h->srv);
		open_request(r, method, url);
		/* Answering now makes libmicrohttpd close the connection without
		 * reading the body, which may cost the client the answer: do it
		 * only where the body is too long to be read for nothing. */
		if (r->i->refuse && content_length(r) > DRAIN_AT_ONCE)
			return answer(r);
		return MHD_YES;
	}
	if (atomic_load(&r->i->gone))
		return MHD_NO;
	if (*len > 0) {
		enum MHD_Result ok = take_body(r, data, *len);

		*len = 0;
		if (ok == MHD_YES)
			direct_begin(r);
		return ok;
	}
	if (!r->i->dispatched)
		dispatch(r);
	if (!r->i->working && r->i->status)
		return answer(r);
	http_suspend(r);
	return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **ctx,
			 enum MHD_RequestTerminationCode code)
{
	struct http *h = cls;
	struct request *r = *ctx;
	struct peer *p = peer_of(conn);

	if (p && p->busy)
		peer_idle(p);
	if (!r)
		return;
	*ctx = NULL;
	DL_DELETE2(h->requests, r, i->prev, i->next);
	h->active--;
	h->held -= r->i->held;
	server_touch(h->srv);
	request_free(r);
	run_soon(h);
}

PRINTF_LIKE(2, 0) static void on_log(void *cls, const char *fmt, va_list ap)
{
	struct buf line CLEANUP_BUF = BUF_INIT(1024);

	if (buf_vprintf(&line, fmt, ap) == 0)
		log_debug("libmicrohttpd: %.*s", (int)strcspn(line.data, "\n"), line.data);
}

/* ---- life ---- */

int http_start(struct server *srv, int listen_fd)
{
	struct http *h = calloc(1, sizeof(*h));
	const union MHD_DaemonInfo *info;

	if (!h)
		return -ENOMEM;
	h->srv = srv;
	h->loop = srv->loop;
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
		on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
		listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_CONNECTION_LIMIT,
		srv->cfg->max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STALL_S,
		/* without it libmicrohttpd uses neither sendfile nor writev */
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
	if (!h->daemon) {
		free(h);
		return -EIO;
	}
	info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	ev_io_init(&h->epoll_io, on_epoll, info->epoll_fd, EV_READ);
	ev_timer_init(&h->due, on_due, 0, 0);
	ev_timer_init(&h->janitor, on_janitor, 5, 5);
	ev_idle_init(&h->again, on_again);
	ev_set_priority(&h->again, EV_MAXPRI); /* run even while others are busy */
	h->epoll_io.data = h->due.data = h->janitor.data = h->again.data = h;
	ev_io_start(h->loop, &h->epoll_io);
	ev_timer_start(h->loop, &h->janitor);
	srv->http = h;
	run_soon(h);
	return 0;
}

void http_quiesce(struct server *srv)
{
	MHD_socket fd = MHD_quiesce_daemon(srv->http->daemon);

	if (fd != MHD_INVALID_SOCKET)
		close(fd);
	srv->http->stopping = true;
}

void http_abandon(struct server *srv)
{
	struct request *r;

	if (!srv->http)
		return;
	DL_FOREACH2(srv->http->requests, r, i->next)
	{
		if (r->i->working)
			atomic_store(&r->i->gone, true);
	}
}

unsigned http_active(const struct server *srv)
{
	return srv->http->active;
}

void http_stop(struct server *srv)
{
	struct http *h = srv->http;
	struct request *r, *next;

	if (!h)
		return;
	/* libmicrohttpd must not be stopped with suspended connections. */
	DL_FOREACH_SAFE2(h->requests, r, next, i->next)
	{
		if (!r->i->suspended)
			continue;
		if (r->i->direct) {
			direct_end(r);
			continue;
		}
		if (!r->i->status)
			reply_error(r, 503, "Shutting down");
		r->i->stream_ended = true;
		request_resume(r);
	}
	for (int i = 0; i < 4; i++)
		MHD_run(h->daemon);
	ev_io_stop(h->loop, &h->epoll_io);
	ev_timer_stop(h->loop, &h->due);
	ev_timer_stop(h->loop, &h->janitor);
	ev_idle_stop(h->loop, &h->again);
	MHD_stop_daemon(h->daemon);
	free(h->piece);
	free(h);
	srv->http = NULL;
}

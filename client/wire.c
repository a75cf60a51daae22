/*
 * Requests without libcurl; see the header. Knows nothing of what is asked. Loop
 * thread only.
 */
#include "wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <utlist.h>

#include "clock.h"

enum {
	IDLE_MAX = 16,
	IDLE_MS = 3000, /* some servers close after five seconds */
	HEAD_MAX = 8 * 1024,
	FIELDS_MAX = 32,
	SCRATCH = 64 * 1024 - 1984, /* see exchange_curl.c on buffers */
	RECEIVES_PER_TURN = 8,
	SENDS_PER_TURN = 8,
	/* A socket takes that at once; one of TCP less, as long as it does not know the way. */
	REQUEST_MAX = 64 * 1024,
	TCP_REQUEST_MAX = 32 * 1024,
	SEND_BUFFER = 512 * 1024, /* of a unix socket that is fed; see exchange_curl.c */
	CONNECT_MS = 1000,        /* then it is libcurl's, which may know other addresses */
};

struct field {
	const char *name, *value;
};

struct wire {
	struct wires *owner;
	int fd;
	ev_io io;
	int64_t idle_ms; /* since when */
	struct wire *prev, *next;

	const struct wire_user *user;
	void *ctx;
	bool connecting; /* the request is not sent yet */
	ev_timer late;   /* while it is */
	bool reused;     /* it may have been closed meanwhile: then it is asked anew */
	struct buf request;

	char head[HEAD_MAX + 1];
	size_t have; /* bytes of the head, and perhaps of the body behind it */
	bool has_head, keeps, paused;
	struct field fields[FIELDS_MAX];
	unsigned count;
	int status;
	uint64_t length, left;
	const char *held; /* bytes of the body that were received but not taken */
	size_t held_len;
	char *kept; /* where they are while it pauses; or NULL */

	bool feeding;          /* there is more of the body */
	bool starved;          /* but not yet */
	bool cut;              /* the peer takes no more of it */
	struct wire_piece out; /* what is left of the piece that is being sent */
};

struct wires {
	struct loop *loop;
	const struct wire_address *at;
	struct wire *idle; /* last used first */
	unsigned idles;
	char scratch[SCRATCH];
};

static void on_ready(struct ev_loop *ev, ev_io *io, int revents);
static void on_late(struct ev_loop *ev, ev_timer *timer, int revents);

/* ---- connections ---- */

static void close_wire(struct wire *w)
{
	ev_io_stop(loop_ev(w->owner->loop), &w->io);
	ev_timer_stop(loop_ev(w->owner->loop), &w->late);
	if (w->fd >= 0)
		close(w->fd);
	buf_release(&w->request);
	free(w->kept);
	free(w);
}

static bool is_tcp(const struct wires *ws)
{
	return ws->at->addr.ss_family != AF_UNIX;
}

static bool connect_wire(struct wire *w)
{
	const struct wire_address *at = w->owner->at;
	int on = 1;

	if (at->len == 0)
		return false;
	w->fd = socket(at->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->fd < 0)
		return false;
	if (is_tcp(w->owner))
		setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	w->connecting = false;
	if (connect(w->fd, (const struct sockaddr *)&at->addr, at->len) < 0) {
		w->connecting = errno == EINPROGRESS;
		if (!w->connecting) {
			close(w->fd);
			w->fd = -1;
			return false;
		}
	}
	w->reused = false;
	ev_io_init(&w->io, on_ready, w->fd, EV_NONE);
	ev_timer_init(&w->late, on_late, CONNECT_MS / 1e3, 0.);
	w->io.data = w->late.data = w;
	return true;
}

/* The most recent one on which nothing has come. */
static struct wire *take_idle(struct wires *ws)
{
	struct wire *w;
	char byte;

	while ((w = ws->idle)) {
		DL_DELETE(ws->idle, w);
		ws->idles--;
		if (clock_ms() - w->idle_ms < IDLE_MS &&
		    recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {
			w->reused = true;
			return w;
		}
		close_wire(w);
	}
	return NULL;
}

/* One that is fed is new: if it were closed while it was idle it would have to begin anew. */
static struct wire *get_wire(struct wires *ws, bool fed)
{
	struct wire *w = fed ? NULL : take_idle(ws);
	int size = SEND_BUFFER;

	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->owner = ws;
	w->fd = -1;
	if (!connect_wire(w)) {
		free(w);
		return NULL;
	}
	if (fed && !is_tcp(ws))
		setsockopt(w->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return w;
}

static void listen_for(struct wire *w, int events)
{
	struct ev_loop *ev = loop_ev(w->owner->loop);

	if (ev_is_active(&w->io) && (w->io.events & (EV_READ | EV_WRITE)) == events)
		return;
	ev_io_stop(ev, &w->io);
	ev_io_set(&w->io, w->fd, events);
	ev_io_start(ev, &w->io);
}

/* Now, or as soon as it is connected. False: the connection is of no use. */
static bool send_request(struct wire *w)
{
	if (w->connecting) {
		listen_for(w, EV_WRITE);
		ev_timer_start(loop_ev(w->owner->loop), &w->late);
		return true;
	}
	if (send(w->fd, w->request.data, w->request.len, MSG_NOSIGNAL) != (ssize_t)w->request.len)
		return false;
	/* One that ended while it paused, or said something while it was idle, does not listen. */
	listen_for(w, w->feeding ? EV_READ | EV_WRITE : EV_READ);
	return true;
}

int wires_new(struct loop *loop, const struct wire_address *at, struct wires **ret)
{
	struct wires *ws = calloc(1, sizeof(*ws));

	if (!ws)
		return -ENOMEM;
	ws->loop = loop;
	ws->at = at;
	*ret = ws;
	return 0;
}

void wires_free(struct wires *ws)
{
	struct wire *w;

	if (!ws)
		return;
	while ((w = ws->idle)) {
		DL_DELETE(ws->idle, w);
		close_wire(w);
	}
	free(ws);
}

struct wire *wire_ask(struct wires *ws, struct buf *request, const struct wire_user *user,
		      void *ctx)
{
	size_t max = is_tcp(ws) ? TCP_REQUEST_MAX : REQUEST_MAX;
	struct wire *w = request->len <= max ? get_wire(ws, user->feed) : NULL;

	if (!w)
		return NULL;
	buf_release(&w->request);
	w->request = *request;
	*request = BUF_INIT(0);
	w->user = user;
	w->ctx = ctx;
	w->have = 0;
	w->has_head = w->paused = w->keeps = w->starved = w->cut = false;
	w->feeding = user->feed;
	w->out = (struct wire_piece){ 0 };
	w->count = 0;
	w->held_len = 0;
	if (!send_request(w)) {
		close_wire(w);
		return NULL;
	}
	return w;
}

void wire_drop(struct wire *w)
{
	struct wires *ws = w->owner;

	/* What came behind the end belongs to nobody. */
	if (!w->has_head || w->left > 0 || w->held_len > 0 || !w->keeps || w->feeding || w->cut ||
	    ws->idles == IDLE_MAX) {
		close_wire(w);
		return;
	}
	w->idle_ms = clock_ms();
	w->user = NULL;
	DL_PREPEND(ws->idle, w);
	ws->idles++;
}

/* ---- the head ---- */

int wire_status(const struct wire *w)
{
	return w->status;
}

int64_t wire_length(const struct wire *w)
{
	return (int64_t)w->length;
}

const char *wire_said(const struct wire *w, const char *header)
{
	for (unsigned i = 0; i < w->count; i++)
		if (strcasecmp(w->fields[i].name, header) == 0)
			return w->fields[i].value;
	return NULL;
}

/* One line without its end; false: unfit. */
static bool take_field(struct wire *w, char *line)
{
	char *colon = strchr(line, ':'), *end;

	/* A line's end without its other half: others might see two lines where we see one. */
	if (!colon || colon == line || strcspn(line, " \t") < (size_t)(colon - line) ||
	    strpbrk(line, "\r\n") || w->count == FIELDS_MAX)
		return false;
	*colon++ = '\0';
	colon += strspn(colon, " \t");
	end = colon + strlen(colon);
	while (end > colon && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	if (wire_said(w, line) && strcasecmp(line, "Content-Length") == 0)
		return false;
	w->fields[w->count++] = (struct field){ line, colon };
	return true;
}

static bool take_length(struct wire *w)
{
	const char *said = wire_said(w, "Content-Length");
	uint64_t n = 0;

	if (!said || !*said || strlen(said) > 18)
		return false;
	for (; *said; said++) {
		if (*said < '0' || *said > '9')
			return false;
		n = n * 10 + (uint64_t)(*said - '0');
	}
	w->length = w->left = n;
	return true;
}

/* The head's lines, up to the empty one. False: unfit. */
static bool parse_head(struct wire *w, char *end)
{
	char *line = w->head, *next;
	const char *connection;

	if (strncmp(line, "HTTP/1.1 ", 9) != 0 || line[9] < '2' || line[9] > '5' ||
	    line[10] < '0' || line[10] > '9' || line[11] < '0' || line[11] > '9' ||
	    (line[12] != ' ' && line[12] != '\r'))
		return false;
	w->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
	if (w->status == 204 || w->status == 205 || w->status / 100 == 3)
		return false;
	for (line = strstr(line, "\r\n") + 2; line < end; line = next + 2) {
		next = strstr(line, "\r\n");
		*next = '\0';
		if (!take_field(w, line))
			return false;
	}
	if (wire_said(w, "Transfer-Encoding") || wire_said(w, "Content-Encoding") ||
	    wire_said(w, "Trailer") || wire_said(w, "Upgrade"))
		return false;
	connection = wire_said(w, "Connection");
	w->keeps = !connection || strcasecmp(connection, "keep-alive") == 0;
	return take_length(w);
}

/* More of the head has come. 0, -EAGAIN: it is not whole; or WIRE_UNFIT. */
static int take_head(struct wire *w)
{
	char *end;

	w->head[w->have] = '\0';
	end = memmem(w->head, w->have, "\r\n\r\n", 4);
	if (!end)
		return w->have == HEAD_MAX ? WIRE_UNFIT : -EAGAIN;
	if (memchr(w->head, '\0', (size_t)(end - w->head)) || !parse_head(w, end + 2))
		return WIRE_UNFIT;
	/* It answers before it has all: that can only be a refusal. */
	if (w->feeding && w->status < 400)
		return WIRE_UNFIT;
	w->has_head = true;
	w->held = end + 4;
	w->held_len = w->have - (size_t)(end + 4 - w->head);
	return 0;
}

/* ---- receiving ---- */

/* Tells the user, who drops it. */
static void end(struct wire *w, int err, const char *why)
{
	w->user->over(w->ctx, err, why);
}

static void pause_wire(struct wire *w)
{
	w->paused = true;
	ev_io_stop(loop_ev(w->owner->loop), &w->io);
}

/* What it holds may lie in memory that is another's in a moment. */
static int keep_held(struct wire *w)
{
	char *copy;

	if (w->held == w->kept || (w->held >= w->head && w->held < w->head + sizeof(w->head)))
		return 0;
	copy = malloc(w->held_len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, w->held, w->held_len);
	free(w->kept);
	w->held = w->kept = copy;
	return 0;
}

/* Hands out what is held. 0: go on; anything else: not now, or it has ended. */
static int hand_out(struct wire *w)
{
	size_t n = MIN(w->held_len, w->left);
	int r = n > 0 ? w->user->data(w->ctx, w->held, n) : 0;

	if (r == -EAGAIN && keep_held(w) == 0) {
		pause_wire(w);
		return r;
	}
	if (r == -EAGAIN)
		r = -ENOMEM;
	if (r < 0) {
		end(w, r, NULL);
		return r;
	}
	w->left -= n;
	w->held += n;
	w->held_len -= n;
	if (w->left > 0)
		return 0;
	end(w, 0, NULL);
	return 1;
}

/* How many bytes came, 0 at the end, -EAGAIN: none, or there is no place for them. */
static ssize_t receive(struct wire *w)
{
	size_t len = HEAD_MAX - w->have;
	char *to = w->head + w->have;
	ssize_t n;

	if (w->has_head) {
		to = w->user->space(w->ctx, &len);
		if (!to && len == 0) {
			pause_wire(w);
			return -EAGAIN;
		}
		if (!to) {
			to = w->owner->scratch;
			len = SCRATCH;
		}
		len = MIN(len, w->left);
	}
	do
		n = recv(w->fd, to, len, 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	if (w->has_head) {
		w->held = to;
		w->held_len = (size_t)n;
	} else {
		w->have += (size_t)n;
	}
	return n;
}

/* Before the first byte of an answer. */
static void broke_off(struct wire *w)
{
	ev_io_stop(loop_ev(w->owner->loop), &w->io);
	ev_timer_stop(loop_ev(w->owner->loop), &w->late);
	close(w->fd);
	w->fd = -1;
	/* It was closed while it was idle: a new one has not been. */
	if (w->reused && w->have == 0 && connect_wire(w) && send_request(w))
		return;
	end(w, WIRE_UNFIT, NULL);
}

static void take_answer(struct wire *w)
{
	ssize_t n;
	int r;

	for (int i = 0; i < RECEIVES_PER_TURN; i++) {
		n = receive(w);
		if (n == -EAGAIN)
			return;
		if (n <= 0 && !w->has_head) {
			broke_off(w);
			return;
		}
		if (n <= 0) {
			/* That the network does not know the way any more is no word on the
			 * request. */
			end(w, n < 0 ? -ECONNRESET : -EIO, "the connection broke in the middle");
			return;
		}
		r = w->has_head ? 0 : take_head(w);
		if (r == -EAGAIN)
			continue;
		if (r == WIRE_UNFIT) {
			end(w, r, "it answers in another way");
			return;
		}
		if (hand_out(w) != 0)
			return;
	}
}

/* ---- feeding ---- */

/* Of what is left of the piece: how many bytes went, or an errno. */
static ssize_t send_some(struct wire *w)
{
	struct wire_piece *p = &w->out;
	ssize_t n;
	off_t offset;
	int fd;

	if (p->len > 0) {
		n = send(w->fd, p->bytes, p->len, MSG_NOSIGNAL | (p->lent > 0 ? MSG_MORE : 0));
		if (n < 0)
			return -errno;
		p->bytes += n;
		p->len -= (size_t)n;
		return n;
	}
	fd = w->user->file(w->ctx, p->lent_at, &offset);
	if (fd < 0)
		return -ECANCELED;
	n = sendfile(w->fd, fd, &offset, p->lent);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -EIO; /* the file is shorter than it was */
	p->lent -= (size_t)n;
	p->lent_at += (uint64_t)n;
	return n;
}

/* Has a piece to send, or not yet, or no more: 0; or an errno. */
static int get_piece(struct wire *w)
{
	int r;

	if (w->out.len > 0 || w->out.lent > 0)
		return 0;
	w->out = (struct wire_piece){ 0 };
	r = w->user->feed(w->ctx, &w->out);
	w->starved = r == -EAGAIN;
	w->feeding = r != 0;
	return r < 0 && !w->starved ? r : 0;
}

/* After an error. False: it has ended. */
static bool could_not_send(struct wire *w, int err)
{
	switch (-err) {
	case EAGAIN:
	case EINTR:
		return true;
	case EPIPE:
	case ECONNRESET:
	case ECONNABORTED:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
		w->cut = true; /* it may have said why */
		return true;
	case EINVAL:
	case ENOSYS:
	case EOPNOTSUPP:
		end(w, WIRE_UNFIT, NULL); /* not from such a file */
		return false;
	default:
		end(w, err, NULL);
		return false;
	}
}

/* False: it has ended. */
static bool feed(struct wire *w)
{
	ssize_t n = 0;
	int r;

	for (int i = 0; i < SENDS_PER_TURN && n >= 0; i++) {
		r = get_piece(w);
		if (r < 0) {
			end(w, r, NULL);
			return false;
		}
		if (!w->feeding || w->starved)
			break;
		n = send_some(w);
		if (n > 0)
			w->user->sent(w->ctx, (size_t)n);
	}
	if (n < 0 && !could_not_send(w, (int)n))
		return false;
	listen_for(w, w->feeding && !w->starved && !w->cut ? EV_READ | EV_WRITE : EV_READ);
	return true;
}

/* Or it could not be. */
static void connected(struct wire *w)
{
	int err = 0;
	socklen_t len = sizeof(err);

	w->connecting = false;
	ev_timer_stop(loop_ev(w->owner->loop), &w->late);
	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err || !send_request(w))
		broke_off(w);
}

static void on_late(struct ev_loop *ev UNUSED, ev_timer *timer, int revents UNUSED)
{
	broke_off(timer->data);
}

static void on_ready(struct ev_loop *ev, ev_io *io, int revents)
{
	struct wire *w = io->data;

	if (!w->user) {
		/* Closed by its peer, or it says what nobody asked for: see take_idle(). */
		ev_io_stop(ev, io);
		return;
	}
	if (w->connecting) {
		connected(w);
		return;
	}
	/* Who has begun to refuse wants no more. */
	if (w->has_head && w->feeding)
		w->cut = true;
	if ((revents & EV_WRITE) && w->feeding && !w->starved && !w->cut && !feed(w))
		return;
	if (w->cut)
		listen_for(w, EV_READ);
	if (revents & EV_READ)
		take_answer(w);
}

void wire_go_on(struct wire *w)
{
	if (w->starved) {
		w->starved = false;
		if (!w->cut)
			(void)feed(w);
		return;
	}
	if (!w->paused)
		return;
	w->paused = false;
	if (w->held_len > 0 && hand_out(w) != 0)
		return;
	ev_io_start(loop_ev(w->owner->loop), &w->io);
	take_answer(w);
}

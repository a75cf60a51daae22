/*
 * One connection of the rogue server: reads requests, and answers them or
 * passes them on. Runs on the connection's own thread. It blocks in poll(),
 * recv() and send() on the client's socket only, all of which end when another
 * thread shuts that down; the upstream is never waited for without the client.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "clock.h"
#include "rogue_i.h"

enum {
	REPLACED_MAX = 16 * 1024 * 1024, /* of an upstream's answer that a handler gets */
	LINGER_MS = 2000,
	GONE = POLLRDHUP | POLLHUP | POLLERR,
};

/* ---- the way out ---- */

static bool begin_pause(struct conn *c)
{
	struct rogue *r = c->rogue;

	lock(&r->lock);
	c->pausing = !c->rec || c->rec->began > r->released;
	unlock(&r->lock);
	return c->pausing;
}

static void end_pause(struct conn *c)
{
	eventfd_t n;

	lock(&c->rogue->lock);
	c->pausing = false;
	(void)eventfd_read(c->wake_fd, &n); /* it does not block */
	unlock(&c->rogue->lock);
}

/* Returns 0 when the time is over or by rogue_release(), -EPIPE if the client has left. */
static int pause_for(struct conn *c, int ms)
{
	struct pollfd fds[] = { { .fd = c->fd, .events = POLLRDHUP },
				{ .fd = c->wake_fd, .events = POLLIN } };
	int64_t deadline = clock_ms() + ms, left = ms;

	if (!ms || (ms < 0 && !begin_pause(c)))
		return 0;
	while (poll(fds, ARRAY_SIZE(fds), (int)left) < 0 && errno == EINTR)
		if (ms > 0)
			left = MAX(deadline - clock_ms(), 0);
	if (ms < 0)
		end_pause(c);
	return fds[0].revents ? -EPIPE : 0;
}

static int reset(struct conn *c)
{
	struct linger abort_it = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &abort_it, sizeof(abort_it));
	return -ECONNRESET;
}

/* How many bytes may go before the rule's fault is due. */
static uint64_t room(const struct conn *c, bool body)
{
	if (c->rule->fault == ROGUE_WHOLE || c->fault_over || (!c->rule->in_head && !body))
		return UINT64_MAX;
	return c->rule->after - MIN(c->rule->after, c->rule->in_head ? c->sent : c->body_sent);
}

static int fault(struct conn *c)
{
	c->fault_over = true;
	if (c->rule->fault == ROGUE_STALL)
		return pause_for(c, ROGUE_UNTIL_RELEASED);
	return c->rule->fault == ROGUE_CUT_RESET ? reset(c) : -ECONNABORTED;
}

/*
 * Bytes of the answer. Before the last ones the request counts as over: the
 * client may send its next one the moment it has them.
 */
static int put(struct conn *c, const char *data, size_t len, bool body, bool last)
{
	unsigned drip_ms = !body && c->rule->quick_head ? 0 : c->rule->drip_ms;

	while (len > 0) {
		size_t n = (size_t)MIN((uint64_t)len, room(c, body));
		int r;

		r = n ? pause_for(c, (int)drip_ms) : fault(c);
		if (r < 0)
			return r;
		if (n && drip_ms)
			n = 1;
		if (n == len && last)
			rogue_record_end(c);
		r = wire_send(c->fd, data, n);
		if (r < 0)
			return r;
		c->sent += n;
		c->body_sent += body ? n : 0;
		data += n;
		len -= n;
	}
	return 0;
}

/* ---- answers of our own ---- */

struct content {
	uint64_t left; /* ROGUE_FOREVER: no end */
	bool chunked;
	struct buf chunk; /* the present one */
};

static uint64_t content_size(const struct rogue_reply *reply, size_t body_len)
{
	size_t unit = reply->unit ? strlen(reply->unit) : 0;

	if (unit && reply->units > INT64_MAX / unit)
		return ROGUE_FOREVER;
	return body_len + unit * reply->units + (reply->tail ? strlen(reply->tail) : 0);
}

static int put_piece(struct conn *c, struct content *content, const char *data, size_t len)
{
	struct buf *chunk = &content->chunk;
	bool last;

	if (!len)
		return 0;
	content->left -= content->left == ROGUE_FOREVER ? 0 : len;
	last = content->left == 0;
	if (!content->chunked)
		return put(c, data, len, true, last);
	buf_reset(chunk);
	buf_printf(chunk, "%zx\r\n", len);
	buf_append(chunk, data, len);
	buf_puts(chunk, last ? "\r\n0\r\n\r\n" : "\r\n");
	return put(c, chunk->data, chunk->len, true, last);
}

/* count times unit, in larger pieces. content NULL: in the head. */
static int put_units(struct conn *c, struct content *content, const char *unit, uint64_t count)
{
	size_t len = unit ? strlen(unit) : 0;
	size_t per_block = len ? MAX(WIRE_SIZE / len, (size_t)1) : 1;
	struct buf block CLEANUP_BUF = BUF_INIT(0);
	int r = 0;

	for (uint64_t i = 0; len && i < MIN(count, per_block); i++)
		buf_append(&block, unit, len);
	while (len && count && r == 0) {
		uint64_t n = MIN(count, per_block);

		r = content ? put_piece(c, content, block.data, n * len)
			    : put(c, block.data, n * len, false, false);
		count -= count == ROGUE_FOREVER ? 0 : n;
	}
	return r;
}

static void build_head(struct conn *c, const struct rogue_reply *reply, size_t raw_len,
		       const struct content *content, struct buf *head)
{
	if (reply->raw) {
		buf_append(head, reply->raw, raw_len);
		return;
	}
	buf_printf(head, "HTTP/1.1 %d %s\r\n", c->status, c->status < 300 ? "OK" : "No");
	if (reply->endless_head)
		return;
	buf_puts(head, reply->headers ? reply->headers : "Content-Type: application/json\r\n");
	if (content->chunked)
		buf_puts(head, "Transfer-Encoding: chunked\r\n");
	else if (!reply->until_close)
		buf_printf(head, "Content-Length: %" PRId64 "\r\n",
			   (int64_t)content->left + c->rule->length_lie);
	buf_puts(head, c->keep_alive ? "\r\n" : "Connection: close\r\n\r\n");
}

static int put_body(struct conn *c, struct content *content, const struct rogue_reply *reply,
		    size_t body_len)
{
	int r;

	if (!content->left && content->chunked)
		return put(c, "0\r\n\r\n", 5, true, true);
	r = put_piece(c, content, reply->body, body_len);
	if (r == 0)
		r = put_units(c, content, reply->unit, reply->units);
	if (r == 0)
		r = put_piece(c, content, reply->tail, reply->tail ? strlen(reply->tail) : 0);
	return r == 0 && c->rule->length_lie > 0 ? -ECONNABORTED : r;
}

static int answer(struct conn *c, const struct rogue_reply *reply)
{
	size_t raw_len = reply->raw_len || !reply->raw ? reply->raw_len : strlen(reply->raw);
	size_t body_len = reply->body_len || !reply->body ? reply->body_len : strlen(reply->body);
	struct content content = { .left = content_size(reply, body_len) };
	struct buf head CLEANUP_BUF = BUF_INIT(0);
	bool bodyless;
	int r;

	c->status = reply->status ? reply->status : 200;
	c->linger = !c->body.done;
	c->keep_alive &= !c->linger && !reply->raw && !reply->until_close;
	content.chunked = !reply->until_close && !reply->raw &&
			  (reply->chunked || content.left == ROGUE_FOREVER);
	bodyless = !strcmp(c->head.method, "HEAD") || c->status == 204 || c->status == 304;
	build_head(c, reply, raw_len, &content, &head);
	r = pause_for(c, c->rule->delay_ms);
	if (r == 0)
		r = put(c, head.data, head.len, false,
			bodyless || (!content.left && !content.chunked && !reply->endless_head));
	if (r == 0 && reply->endless_head)
		r = put_units(c, NULL, reply->endless_head, ROGUE_FOREVER);
	if (r == 0 && !bodyless)
		r = put_body(c, &content, reply, body_len);
	buf_release(&content.chunk);
	return r;
}

/* upstream: what that answered, NULL if it was not asked. */
static int answer_by_rule(struct conn *c, const struct rogue_reply *upstream)
{
	const struct rogue_rule *rule = c->rule;
	struct rogue_reply reply = rule->reply;
	struct rogue_request request;
	int r;

	if (!rule->handler)
		return answer(c, &reply);
	if (upstream)
		reply = *upstream;
	rogue_copy_request(c, &request);
	r = rule->handler(rule->ctx, &request, &reply);
	rogue_request_release(&request);
	r = r ? -ECONNABORTED : answer(c, &reply);
	free(reply.owned);
	return r;
}

/* ---- the way in ---- */

static void note_content(void *ctx, const char *data, size_t len)
{
	rogue_record_body(ctx, data, len);
}

/* Takes what is buffered of the request's body; at most `most` bytes as they are on the wire. */
static ssize_t take_body(struct conn *c, uint64_t most, struct buf *to)
{
	size_t have = (size_t)MIN((uint64_t)(c->in.end - c->in.start), most);
	const char *from = c->in.data + c->in.start;
	ssize_t n = wire_body_scan(&c->body, from, have, note_content, c);

	if (n < 0)
		return n;
	if (c->body.done)
		rogue_record_body_done(c);
	if (to)
		buf_append(to, from, (size_t)n);
	c->in.start += (size_t)n;
	return n;
}

/* Reads that many bytes of the request's body, or all of it. */
static int read_body(struct conn *c, uint64_t most, bool keep)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	int r;

	if (!c->body.done && c->head.expects_continue && !c->continued) {
		r = wire_send(c->fd, go_on, strlen(go_on));
		if (r < 0)
			return r;
		c->continued = true;
	}
	while (!c->body.done && most > 0) {
		ssize_t n = take_body(c, most, keep ? &c->taken : NULL);

		if (n < 0)
			return (int)n;
		most -= (uint64_t)n;
		if (c->body.done || !most)
			break;
		n = wire_fill(&c->in);
		if (n <= 0)
			return n < 0 ? (int)n : -EPIPE;
	}
	return 0;
}

static int read_head(struct conn *c)
{
	bool ended;
	int r;

	lock(&c->rogue->lock);
	c->reading = true;
	ended = c->ended;
	unlock(&c->rogue->lock);
	if (ended)
		return -ESHUTDOWN;
	while ((r = wire_take_head(&c->in, &c->head)) == 0) {
		ssize_t n = wire_fill(&c->in);

		if (n <= 0)
			return n < 0 ? (int)n : -EPIPE;
	}
	return r < 0 ? r : c->head.method ? 0 : -EBADMSG;
}

/* ---- to the upstream and back ---- */

struct relay {
	struct conn *c;
	bool replace;          /* the answer is kept for us, not passed on */
	struct buf out;        /* of the request, what the upstream has not taken yet */
	bool answering;        /* the head of its answer has come */
	struct wire_head head; /* of that */
	struct wire_body body;
	struct buf kept;
};

static void relay_release(struct relay *y)
{
	buf_release(&y->out);
	buf_release(&y->kept);
	wire_head_release(&y->head);
}

static void drop_upstream(struct conn *c)
{
	if (c->up.fd >= 0)
		close(c->up.fd);
	wire_reset(&c->up, -1);
}

static int connect_upstream(struct conn *c)
{
	struct pollfd p = { .fd = c->up.fd, .events = POLLIN | POLLRDHUP };
	int64_t deadline = clock_ms() + 5000;
	int fd;

	/* Between requests it has nothing to say: it has left, or is about to. */
	if (c->up.fd >= 0 && poll(&p, 1, 0) > 0)
		drop_upstream(c);
	if (c->up.fd >= 0)
		return 0;
	while ((fd = address_connect(&c->rogue->upstream)) == -EAGAIN && clock_ms() < deadline)
		if (pause_for(c, 5) < 0) /* there is no event for "its backlog has room" */
			return -EPIPE;
	if (fd < 0)
		return fd;
	wire_reset(&c->up, fd);
	return 0;
}

static void keep_content(void *ctx, const char *data, size_t len)
{
	struct relay *y = ctx;

	if (y->replace)
		buf_append(&y->kept, data, MIN(len, REPLACED_MAX - y->kept.len));
}

static int begin_answer(struct relay *y)
{
	struct conn *c = y->c;
	struct buf head CLEANUP_BUF = BUF_INIT(0);
	int r;

	y->answering = true;
	c->status = y->head.status;
	wire_body_of_answer(&y->body, &y->head, !strcmp(c->head.method, "HEAD"));
	if (y->replace)
		return 0;
	if (y->head.length >= 0 && c->rule->length_lie)
		wire_head_with_length(&y->head, y->head.length + c->rule->length_lie, &head);
	else
		buf_append(&head, y->head.text, y->head.len);
	r = pause_for(c, c->rule->delay_ms);
	return r < 0 ? r : put(c, head.data, head.len, false, y->body.done);
}

/* Passes on what is buffered of the answer. */
static int pass_answer(struct relay *y)
{
	struct wire *up = &y->c->up;
	ssize_t n;
	int r;

	while (!y->answering) {
		r = wire_take_head(up, &y->head);
		if (r <= 0)
			return r;
		if (y->head.method)
			return -EBADMSG;
		if (y->head.status >= 200)
			r = begin_answer(y);
		else if (!y->replace && !y->c->continued)
			r = wire_send(y->c->fd, y->head.text, y->head.len);
		if (r < 0)
			return r;
		if (!y->answering)
			wire_head_release(&y->head);
	}
	n = wire_body_scan(&y->body, up->data + up->start, up->end - up->start, keep_content, y);
	if (n < 0)
		return (int)n;
	r = y->replace ? 0 : put(y->c, up->data + up->start, (size_t)n, true, y->body.done);
	up->start += (size_t)n;
	return r;
}

static int from_upstream(struct relay *y)
{
	ssize_t n = wire_fill(&y->c->up);

	if (n == -EAGAIN)
		return 0;
	if (n > 0)
		return pass_answer(y);
	if (n == 0 && y->answering && y->body.framing == WIRE_UNTIL_CLOSE) {
		y->body.done = true;
		return 0;
	}
	return n < 0 ? (int)n : -ECONNRESET;
}

static int to_upstream(struct relay *y)
{
	ssize_t n = send(y->c->up.fd, y->out.data, y->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_consume(&y->out, (size_t)n);
	return 0;
}

/* Bytes of the client's body, or its end. */
static int from_client(struct relay *y)
{
	ssize_t n = wire_fill(&y->c->in);

	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	n = take_body(y->c, UINT64_MAX, &y->out);
	return n < 0 ? (int)n : 0;
}

/*
 * One turn in both directions: the upstream may answer before it has taken all
 * of the request, and may stop taking it. The client is read only when the
 * upstream has taken what came before, and the other way round in put().
 */
static int relay_step(struct relay *y)
{
	struct conn *c = y->c;
	bool reading = !c->body.done && !y->out.len;
	struct pollfd fds[] = {
		{ .fd = c->fd, .events = (short)(POLLRDHUP | (reading ? POLLIN : 0)) },
		{ .fd = c->up.fd, .events = (short)(POLLIN | (y->out.len ? POLLOUT : 0)) },
	};
	int r = 0;

	if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[1].revents & POLLOUT)
		r = to_upstream(y);
	/* An upstream that refuses the rest may have answered: that comes first. */
	if (fds[1].revents & (POLLIN | POLLHUP | POLLERR))
		return from_upstream(y);
	if (r < 0)
		return r;
	if (reading && fds[0].revents & POLLIN)
		return from_client(y);
	return fds[0].revents & GONE ? -EPIPE : 0;
}

static int relay_run(struct relay *y)
{
	struct conn *c = y->c;
	int r = connect_upstream(c);

	if (r < 0)
		return r;
	buf_append(&y->out, c->head.text, c->head.len);
	buf_append(&y->out, c->taken.data, c->taken.len);
	if (take_body(c, UINT64_MAX, &y->out) < 0)
		return -EBADMSG;
	while (r == 0 && !(y->answering && y->body.done))
		r = relay_step(y);
	if (r == 0 && (y->body.framing == WIRE_UNTIL_CLOSE || y->head.close || !c->body.done)) {
		drop_upstream(c);
		c->linger = !c->body.done;
		c->keep_alive = false;
	}
	return r;
}

static int forward(struct conn *c)
{
	static const struct rogue_reply nowhere = { .status = 404,
						    .body = "{\"detail\":\"Not Found\"}" };
	struct relay y = { .c = c, .replace = c->rule->action == ROGUE_REPLACE };
	struct rogue_reply answered;
	int r;

	if (!c->rogue->upstream.len) {
		r = read_body(c, UINT64_MAX, false);
		return r < 0 ? r : answer(c, &nowhere);
	}
	y.kept = BUF_INIT(REPLACED_MAX);
	r = relay_run(&y);
	if (r < 0) {
		drop_upstream(c);
	} else if (y.replace) {
		answered = (struct rogue_reply){ .status = c->status,
						 .body = y.kept.data,
						 .body_len = y.kept.len };
		r = answer_by_rule(c, &answered);
	} else if (c->rule->length_lie > 0) {
		r = -ECONNABORTED;
	}
	relay_release(&y);
	return r;
}

/* ---- a request ---- */

static int act(struct conn *c)
{
	const struct rogue_rule *rule = c->rule;
	bool forwards = rule->action == ROGUE_FORWARD || rule->action == ROGUE_REPLACE;
	int r = 0;

	/* The upstream's share is read when it takes it. */
	if (rule->take_bytes > 0)
		r = read_body(c, (uint64_t)rule->take_bytes, forwards);
	else if (rule->take_bytes == 0 && !forwards)
		r = read_body(c, UINT64_MAX, false);
	if (r == 0)
		r = pause_for(c, rule->hold_ms);
	if (r < 0)
		return r;
	switch (rule->action) {
	case ROGUE_ANSWER:
		return answer_by_rule(c, NULL);
	case ROGUE_CLOSE:
		return -ECONNABORTED;
	case ROGUE_RESET:
		return reset(c);
	default:
		return forward(c);
	}
}

static int serve_request(struct conn *c)
{
	int r = read_head(c);

	if (r < 0)
		return r;
	c->requests++;
	c->continued = c->fault_over = false;
	c->status = 0;
	c->sent = c->body_sent = 0;
	c->keep_alive = !c->head.close;
	wire_body_of_request(&c->body, &c->head);
	rogue_record_begin(c);
	if (rogue_wants_body(c))
		r = read_body(c, ROGUE_BODY_KEPT, true);
	if (r < 0)
		return r;
	c->rule = rogue_match(c);
	r = act(c);
	return r < 0 ? r : c->keep_alive ? 0 : -ESHUTDOWN;
}

/* With bytes unread, close() would be a reset, and that could overtake the answer. */
static void linger(struct conn *c)
{
	int64_t deadline = clock_ms() + LINGER_MS, left;
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	shutdown(c->fd, SHUT_WR);
	while ((left = deadline - clock_ms()) > 0 && poll(&p, 1, (int)left) > 0) {
		c->in.start = c->in.end = 0;
		if (wire_fill(&c->in) <= 0)
			return;
	}
}

void rogue_conn_run(struct conn *c)
{
	int fd = c->fd, r = 0;

	wire_init(&c->in, fd);
	wire_init(&c->up, -1);
	while (r == 0) {
		r = serve_request(c);
		rogue_record_end(c);
		wire_head_release(&c->head);
		buf_reset(&c->taken);
	}
	if (c->linger && r == -ESHUTDOWN)
		linger(c);
	drop_upstream(c);
	wire_release(&c->in);
	wire_release(&c->up);
	buf_release(&c->taken);
	lock(&c->rogue->lock);
	c->fd = -1;
	close(fd);
	unlock(&c->rogue->lock);
}

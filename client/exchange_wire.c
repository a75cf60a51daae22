/*
 * An exchange without libcurl: what is asked becomes a request on a wire, a form piece by
 * piece. Knows nothing of lanes and of other tries. Loop thread only.
 */
#include <errno.h>
#include <stdio.h>

#include "clock.h"
#include "exchange_i.h"

enum {
	FRAME = 24,                       /* room for what is in front of a chunk */
	PIECE = 64 * 1024 - 1984 - FRAME, /* see exchange_curl.c on buffers */
	LENT_MAX = 1024 * 1024,
	ADDRESS_MS = 60 * 1000,
};

/* ---- the answer ---- */

static void wire_sent(void *ctx, size_t n)
{
	struct exchange *x = ctx;

	if (exchange_is_file(x))
		op_moved(x->op, n);
}

static int wire_data(void *ctx, const char *bytes, size_t len)
{
	return exchange_take(ctx, bytes, len);
}

static char *wire_space(void *ctx, size_t *ret_len)
{
	struct exchange *x = ctx;
	char *to = NULL;

	*ret_len = 1;
	if (x->space && x->told_head)
		to = x->space(x, ret_len);
	if (!to && *ret_len == 0)
		exchange_pause(x);
	return to;
}

static void wire_over(void *ctx, int err, const char *why)
{
	struct exchange *x = ctx;
	struct sandbox *sb = x->op->sb;

	if (err != WIRE_UNFIT) {
		exchange_over(x, err, why);
		return;
	}
	sb->unfit = sb->unfit || why; /* it will not do otherwise next time */
	if (!why && !sb->socket)
		sb->at.len = 0; /* until libcurl has found it again */
	exchange_unfit(x);
}

/* ---- a form, as it is sent ---- */

/* What stands before n bytes of the form, put in front of `to`: nothing if its length is known. */
static char *put_frame(struct exchange *x, char *to, size_t n)
{
	char frame[FRAME];
	int len = 0;

	if (x->form_size < 0)
		len = snprintf(frame, sizeof(frame), "%s%zx\r\n", x->framed ? "\r\n" : "", n);
	x->framed = true;
	return memcpy(to - len, frame, (size_t)len);
}

/* The next bytes of the file, which stay where they are. 0: they have to be read. */
static size_t lend(struct exchange *x)
{
	uint64_t left = LENT_MAX;
	size_t n;

	if (!x->lend || x->sent < x->form_head.len || x->form_ended)
		return 0;
	if (x->form_size >= 0)
		left = MIN(left, (uint64_t)x->form_size - x->form_sent);
	n = left > 0 ? x->lend(x, (size_t)left) : 0;
	x->form_sent += n;
	return n;
}

static int wire_feed(void *ctx, struct wire_piece *p)
{
	struct exchange *x = ctx;
	char *data = x->piece + FRAME;
	ssize_t n;

	if (x->fed)
		return 0;
	p->lent = lend(x);
	if (p->lent > 0) {
		p->lent_at = x->form_sent - p->lent;
		p->bytes = put_frame(x, data, p->lent);
		p->len = (size_t)(data - p->bytes);
		return 1;
	}
	n = exchange_form_next(x, data, PIECE);
	if (n == -EAGAIN)
		exchange_pause(x);
	if (n < 0)
		return (int)n;
	if (n == 0) {
		x->fed = true;
		if (x->form_size >= 0)
			return 0;
		p->bytes = "\r\n0\r\n\r\n"; /* the last chunk is empty */
		p->len = strlen(p->bytes);
		return 1;
	}
	p->bytes = put_frame(x, data, (size_t)n);
	p->len = (size_t)(data - p->bytes) + (size_t)n;
	return 1;
}

static int wire_file(void *ctx, uint64_t at, off_t *ret_offset)
{
	struct exchange *x = ctx;

	return x->lent_file(x, at, ret_offset);
}

/* ---- its beginning ---- */

/* A name may lead elsewhere by now: as long as libcurl believes it. */
static bool knows_address(const struct sandbox *sb)
{
	return sb->at.len > 0 && (sb->socket || clock_ms() - sb->at_ms < ADDRESS_MS);
}

/* A reading, or a POST. It may be asked twice: see WIRE_UNFIT. */
static bool is_for_wire(const struct exchange *x)
{
	const struct sandbox *sb = x->op->sb;

	if (!x->direct || !x->idempotent || x->fresh || x->unfit || sb->unfit || !knows_address(sb))
		return false;
	return x->form_path || x->body.len > 0 || exchange_is_plain_get(x);
}

/* All of it is in memory. */
static const struct buf *whole_body(const struct exchange *x)
{
	return x->form_path ? &x->form : &x->body;
}

static void print_length(const struct exchange *x, struct buf *to)
{
	const struct buf *body = whole_body(x);

	if (body->len == 0 && !x->form_path)
		return;
	buf_printf(to, "%s\r\n", x->form_path ? x->form_type : EXCHANGE_JSON_TYPE);
	if (body->len > 0)
		buf_printf(to, "Content-Length: %zu\r\n", body->len);
	else if (x->form_size < 0)
		buf_puts(to, "Transfer-Encoding: chunked\r\n");
	else
		buf_printf(to, "Content-Length: %llu\r\n",
			   (unsigned long long)x->form_size + x->form_head.len + x->form_tail.len);
}

static void print_request(const struct exchange *x, struct buf *to)
{
	const struct buf *body = whole_body(x);
	const struct curl_slist *h;
	const char *host = strstr(x->op->sb->base_url, "://") + 3;
	int len = (int)strcspn(host, "/");

	buf_printf(to,
		   "%s %s%s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: threadfs/" THREADFS_VERSION
		   "\r\nAccept: */*\r\n",
		   x->method, host + len, x->target, len, host);
	for (h = x->op->sb->credentials; h; h = h->next)
		buf_printf(to, "%s\r\n", h->data);
	for (h = x->headers; h; h = h->next)
		buf_printf(to, "%s\r\n", h->data);
	print_length(x, to);
	buf_puts(to, "\r\n");
	buf_append(to, body->data, body->len);
}

bool exchange_wire_begin(struct exchange *x)
{
	static const struct wire_user whole = { wire_sent, wire_data, wire_space,
						wire_over, NULL,      NULL };
	static const struct wire_user fed = { wire_sent, wire_data, wire_space,
					      wire_over, wire_feed, wire_file };
	struct sandbox *sb = x->op->sb;
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	bool feeds = x->form_path && x->form.len == 0;

	if (!is_for_wire(x) || (!sb->wires && wires_new(sb->loop, &sb->at, &sb->wires) < 0))
		return false;
	if (feeds && !x->piece && !(x->piece = malloc(FRAME + PIECE)))
		return false;
	x->framed = x->fed = false;
	print_request(x, &b);
	if (!b.error)
		x->wire = wire_ask(sb->wires, &b, feeds ? &fed : &whole, x);
	if (x->wire && !x->form_path)
		x->sent = x->body.len;
	return x->wire;
}

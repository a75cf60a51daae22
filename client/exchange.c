/*
 * One HTTP exchange: turning it into a libcurl transfer, its turn in the lane,
 * its callbacks, another try where that is safe. Knows nothing of JSON or of
 * what an answer means. Loop thread only.
 */
#include "exchange.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <utlist.h>

#include "pool.h"
#include "sandbox_i.h"
#include "status.h"
#include "url.h"
#include "uuid.h"
#include "wire.h"

enum {
	TRIES = 3,
	BACKOFF_MS = 100,
	CONNECT_MS = 10000,
	IDLE_S = 3,      /* reuse a connection idle for at most so long: some servers close at 5 */
	IDLE_ONCE_S = 1, /* the same for what must not be sent again if it is closing */
	HEADERS_MAX = 64 * 1024, /* of an answer, all together */
	/*
	 * libcurl's buffers. Some processors copy three times slower to an
	 * address that lies a few bytes after that of the source, modulo the
	 * page; the pages of a file come at the start of one, and blocks of 128
	 * KiB and more begin 16 bytes after it. So no buffer is a multiple of a
	 * page: an unlucky offset does not stay. Sockets do not fill a large
	 * one, so that of a download is small besides.
	 */
	QUICK_BUFFER = 16 * 1024,
	STREAM_BUFFER = 64 * 1024 - 1984,
	UPLOAD_BUFFER = 512 * 1024 - 1984,
	FORM_AT_ONCE = 32 * 1024, /* a file so small goes in one packet with the header */
	/*
	 * What a unix socket holds until the server takes it. The default, 208
	 * KiB, is less than one buffer: client and server would take turns,
	 * waking each other, where they could work at the same time.
	 */
	UNIX_SEND_BUFFER = 512 * 1024,
};

static void lane_next(struct sandbox *sb, enum lane lane);
static void begin_try(struct exchange *x);

static struct ev_loop *ev_of(struct exchange *x)
{
	return loop_ev(x->op->sb->loop);
}

static struct lane_state *lane_of(struct exchange *x)
{
	return &x->op->sb->lanes[x->lane];
}

/* Such a request differs from others of its kind in few settings: its handle keeps the others. */
static bool is_plain_get(const struct exchange *x)
{
	return !x->fresh && !x->form_path && x->body.len == 0 && strcmp(x->method, "GET") == 0;
}

/* ---- its end ---- */

/* Takes the transfer off libcurl, if there is one; the exchange keeps its turn. */
static void drop_transfer(struct exchange *x)
{
	struct pool *pool = x->op->sb->pool;

	if (x->wire)
		wire_drop(STEAL(x->wire));
	if (!x->easy)
		return;
	pool_remove(pool, x->easy);
	if (x->is_set && is_plain_get(x)) {
		curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, NULL);
		curl_easy_setopt(x->easy, CURLOPT_ERRORBUFFER, NULL);
		pool_put_set(pool, STEAL(x->easy));
	} else {
		pool_put(pool, STEAL(x->easy));
	}
	curl_slist_free_all(STEAL(x->all_headers));
}

/* Gives up its place in the lane; who waits there is to be told by lane_next(). */
static void leave_lane(struct exchange *x)
{
	if (x->queued)
		DL_DELETE(lane_of(x)->queue, x);
	if (x->running)
		lane_of(x)->running--;
	x->queued = x->running = false;
}

void exchange_stop(struct exchange *x)
{
	bool was_running = x->running;

	if (!x->op) /* not even initialised */
		return;
	ev_timer_stop(ev_of(x), &x->pause);
	drop_transfer(x);
	leave_lane(x);
	x->paused = false;
	/* A job that is still to make room does so now. */
	if (loop_withdraw(x->op->sb->loop, &x->room) || was_running)
		lane_next(x->op->sb, x->lane);
}

static void stop_step(struct step *s)
{
	exchange_stop(CONTAINER_OF(s, struct exchange, step));
}

static void finish(struct exchange *x, int err)
{
	exchange_stop(x);
	x->op->held = false;
	if (x->op->current == &x->step)
		op_go_on(x->op);
	x->done(x, err);
}

/* Whether what failed may be sent once more, and there is time for it. */
static bool may_retry(struct exchange *x, int err)
{
	bool passing = err ? err == -ECONNREFUSED || err == -ECONNRESET
			   : x->status == 502 || x->status == 503 || x->status == 504;

	return x->idempotent && passing && !x->told_head && x->tries < TRIES &&
	       op_left_ms(x->op) > 2 * BACKOFF_MS << x->tries;
}

static void on_pause_over(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct exchange *x = w->data;

	if (!x->error) {
		begin_try(x);
		return;
	}
	snprintf(x->why, sizeof(x->why), "%s", x->words ?: "");
	finish(x, x->error);
}

static void wait_for(struct exchange *x, void (*then)(struct ev_loop *, ev_timer *, int),
		     int64_t ms)
{
	ev_timer_stop(ev_of(x), &x->pause);
	ev_timer_init(&x->pause, then, (ev_tstamp)ms / 1e3, 0.);
	x->pause.data = x;
	ev_timer_start(ev_of(x), &x->pause);
}

static void end_try(struct exchange *x, int err)
{
	drop_transfer(x);
	ev_timer_stop(ev_of(x), &x->pause);
	if (!may_retry(x, err)) {
		finish(x, err);
		return;
	}
	x->error = 0;
	wait_for(x, on_pause_over, (int64_t)BACKOFF_MS << (x->tries - 1));
}

static void on_try_timeout(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct exchange *x = w->data;

	snprintf(x->why, sizeof(x->why), "no answer after %lld ms", (long long)x->timeout_ms);
	finish(x, -ETIMEDOUT);
}

/* ---- libcurl's callbacks ---- */

const char *exchange_said(const struct exchange *x, const char *header)
{
	struct curl_header *h;

	if (x->wire)
		return wire_said(x->wire, header);
	if (curl_easy_header(x->easy, header, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
		return NULL;
	return h->value;
}

/* Digits at *at, and the character behind them; -1 if it is not that. */
static int64_t take_number(const char **at, char end)
{
	const char *p = *at;
	int64_t n = 0;

	if (*p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (n > (INT64_MAX - 9) / 10)
			return -1;
		n = n * 10 + (*p - '0');
	}
	if (*p != end)
		return -1;
	*at = p + (end != '\0');
	return n;
}

/* "bytes 5-9/20"; a star stands for what is not known. By hand: every jump has one. */
static void parse_content_range(struct exchange *x)
{
	const char *p = exchange_said(x, "Content-Range");
	int64_t first, last, total;

	x->range_start = x->range_total = -1;
	if (!p || strncmp(p, "bytes ", 6) != 0)
		return;
	p += 6;
	p += strspn(p, " ");
	if (strncmp(p, "*/", 2) == 0) {
		p += 2;
		x->range_total = take_number(&p, '\0');
		return;
	}
	first = take_number(&p, '-');
	last = first >= 0 ? take_number(&p, '/') : -1;
	if (last < first || last < 0)
		return;
	total = take_number(&p, '\0');
	if (total > last)
		x->range_total = total;
	if (total > last || strcmp(p, "*") == 0)
		x->range_start = first;
}

static int decide(struct exchange *x, int err, const char *words)
{
	x->error = err;
	x->words = words;
	return err;
}

static void read_header(struct exchange *x)
{
	const char *coding = exchange_said(x, "Transfer-Encoding");
	const char *packed = exchange_said(x, "Content-Encoding");
	curl_off_t length = -1;
	long status = 0;

	if (x->wire) {
		status = wire_status(x->wire);
		length = wire_length(x->wire);
	} else {
		curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
		curl_easy_getinfo(x->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	}
	x->status = (int)status;
	x->content_length = length;
	parse_content_range(x);
	/* libcurl would unpack others, which nobody asked for: a few bytes can become gigabytes. */
	if (coding && strcasecmp(coding, "chunked") != 0)
		decide(x, -EBADMSG, "unknown transfer encoding");
	/* These it would leave packed, and somebody would take that for a file. */
	if (packed && strcasecmp(packed, "identity") != 0)
		decide(x, -EBADMSG, "unknown content encoding");
}

/* Whether the owner gets the bytes as they come; tells him about the header first. */
static bool streaming(struct exchange *x)
{
	if (!x->knows_head) {
		x->knows_head = true;
		read_header(x);
	}
	if (x->error || !x->data || (x->status != 200 && x->status != 206))
		return false;
	if (!x->told_head) {
		x->told_head = true;
		if (x->head)
			x->error = x->head(x);
	}
	return true;
}

static void run_room(struct job *job)
{
	struct exchange *x = CONTAINER_OF(job, struct exchange, room);

	lane_next(x->op->sb, x->lane);
}

/*
 * Whoever pauses may do so for long: its place in the lane is another's. That
 * one cannot begin from inside a callback of libcurl.
 */
static void pause_transfer(struct exchange *x)
{
	x->paused = true;
	x->op->held = true;
	leave_lane(x);
	x->room.run = run_room;
	loop_post(x->op->sb->loop, &x->room);
}

static int keep_answer(struct exchange *x, const char *bytes, size_t n)
{
	if (!x->error && buf_append(&x->answer, bytes, n) == -EFBIG)
		return decide(x, -EMSGSIZE, "the answer is too large");
	return x->error ?: x->answer.error;
}

/* Bytes of the answer: as data(). */
static int take(struct exchange *x, const char *bytes, size_t n)
{
	int r;

	op_progress(x->op);
	if (!streaming(x))
		r = keep_answer(x, bytes, n);
	else
		r = x->error ?: x->data(x, bytes, n);
	if (r == -EAGAIN)
		pause_transfer(x);
	else
		x->error = r;
	return r;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *ctx)
{
	int r = take(ctx, bytes, n * size);

	if (r == -EAGAIN)
		return CURL_WRITEFUNC_PAUSE;
	return r ? 0 : n * size;
}

/* libcurl is content with a head that breaks off: for it that is an answer without a body. */
static void watch_for_end(struct exchange *x, const char *line, size_t len)
{
	if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
		x->whole_head = false;
	else if ((len == 2 && memcmp(line, "\r\n", 2) == 0) || (len == 1 && *line == '\n'))
		x->whole_head = true;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *ctx)
{
	struct exchange *x = ctx;

	n *= size;
	op_progress(x->op);
	watch_for_end(x, bytes, n);
	x->header_bytes += n;
	if (x->header_bytes > HEADERS_MAX) {
		decide(x, -EMSGSIZE, "the answer's header is too large");
		return 0;
	}
	return n;
}

static size_t on_read_body(char *to, size_t size, size_t n, void *ctx)
{
	struct exchange *x = ctx;

	n = MIN(size * n, x->body.len - x->sent);
	memcpy(to, x->body.data + x->sent, n);
	x->sent += n;
	return n;
}

/* The next bytes of the form: its head, the file, its tail. 0 at the end, or as read(). */
static ssize_t next_of_form(struct exchange *x, char *to, size_t len)
{
	size_t head = x->form_head.len, all = head + x->form_tail.len, n;
	uint64_t left = UINT64_MAX;
	ssize_t got;
	char more;

	if (x->sent < head || x->form_ended) {
		bool in_head = x->sent < head;
		const char *from = in_head ? x->form_head.data + x->sent
					   : x->form_tail.data + (x->sent - head);

		n = MIN(len, (in_head ? head : all) - x->sent);
		memcpy(to, from, n);
		x->sent += n;
		return (ssize_t)n;
	}
	if (x->form_size >= 0)
		left = (uint64_t)x->form_size - x->form_sent;
	got = left ? x->read(x, to, MIN(len, left)) : x->read(x, &more, 1);
	if (got > 0 && left == 0)
		return decide(x, -EIO, "the file goes on behind its size");
	if (got == 0 && left > 0 && x->form_size >= 0)
		return decide(x, -EIO, "the file ends before its size");
	if (got > 0)
		x->form_sent += (uint64_t)got;
	if (got != 0)
		return got;
	x->form_ended = true;
	return next_of_form(x, to, len);
}

static size_t on_read_form(char *to, size_t size, size_t n, void *ctx)
{
	struct exchange *x = ctx;
	size_t have = 0;
	ssize_t got = 0;

	n *= size;
	op_progress(x->op);
	do {
		got = next_of_form(x, to + have, n - have);
		have += got > 0 ? (size_t)got : 0;
	} while (got > 0 && have < n);
	if (got == -EAGAIN && have == 0) {
		pause_transfer(x);
		return CURL_READFUNC_PAUSE;
	}
	if (got < 0 && got != -EAGAIN) {
		x->error = (int)got;
		return CURL_READFUNC_ABORT;
	}
	return have;
}

static void rewind_body(struct exchange *x)
{
	x->sent = 0;
	x->form_sent = 0;
	x->form_ended = false;
}

/*
 * libcurl sends a request again when a reused connection broke before the first
 * byte of the answer came. The server may have acted on it, so only what is
 * idempotent can be rewound.
 */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	struct exchange *x = ctx;

	if (!x->idempotent || origin != SEEK_SET || offset != 0)
		return CURL_SEEKFUNC_FAIL;
	rewind_body(x);
	return CURL_SEEKFUNC_OK;
}

/* Uploading is progress too, when the bytes come from memory or libcurl's buffer. */
static int on_progress(void *ctx, curl_off_t dl_total UNUSED, curl_off_t dl_now UNUSED,
		       curl_off_t ul_total UNUSED, curl_off_t ul_now)
{
	struct exchange *x = ctx;

	if (ul_now != x->uploaded) {
		x->uploaded = ul_now;
		op_progress(x->op);
	}
	return 0;
}

static curl_socket_t open_socket(void *ctx UNUSED, curlsocktype purpose UNUSED,
				 struct curl_sockaddr *a)
{
	int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
	int size = UNIX_SEND_BUFFER;

	/* If that fails it is only slower. TCP finds its own size, and stops if told one. */
	if (fd >= 0 && a->family == AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return fd;
}

static void on_over(CURL *easy, CURLcode code)
{
	struct exchange *x = NULL;
	long os_errno = 0;
	int err = 0;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&x);
	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
	if (code == CURLE_OK && !x->error && !x->whole_head)
		decide(x, -ECONNRESET, "the answer breaks off in its head");
	if (code == CURLE_OK && !x->error)
		streaming(x); /* a file without bytes has a header, too */
	else if (!x->knows_head)
		read_header(x);
	if (x->error)
		err = x->error;
	else if (code != CURLE_OK)
		err = status_from_curl(code, os_errno);
	if (x->error)
		snprintf(x->why, sizeof(x->why), "%s", x->words ?: "");
	else if (err && !x->why[0])
		snprintf(x->why, sizeof(x->why), "%s", curl_easy_strerror(code));
	end_try(x, err);
}

/* ---- without libcurl ---- */

static void wire_moved(void *ctx)
{
	struct exchange *x = ctx;

	op_progress(x->op);
}

static int wire_data(void *ctx, const char *bytes, size_t len)
{
	return take(ctx, bytes, len);
}

static char *wire_space(void *ctx, size_t *ret_len)
{
	struct exchange *x = ctx;
	char *to = NULL;

	*ret_len = 1;
	if (x->space && x->told_head)
		to = x->space(x, ret_len);
	if (!to && *ret_len == 0)
		pause_transfer(x);
	return to;
}

static void wire_over(void *ctx, int err, const char *why)
{
	struct exchange *x = ctx;

	if (err == WIRE_UNFIT) {
		drop_transfer(x);
		x->unfit = true;
		x->op->sb->unfit = x->op->sb->unfit || why; /* it will not do otherwise next time */
		x->tries--;
		begin_try(x);
		return;
	}
	if (err == 0 && !x->error)
		streaming(x); /* a file without bytes has a header, too */
	else if (!x->knows_head)
		read_header(x);
	if (x->error)
		err = x->error;
	snprintf(x->why, sizeof(x->why), "%s", (x->error ? x->words : why) ?: "");
	end_try(x, err);
}

/* False: libcurl has to do it. */
static bool ask_directly(struct exchange *x)
{
	static const struct wire_user user = { wire_moved, wire_data, wire_space, wire_over };
	struct sandbox *sb = x->op->sb;
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	const struct curl_slist *h;

	if (!x->direct || x->unfit || sb->unfit || !sb->socket || !is_plain_get(x))
		return false;
	if (!sb->wires && wires_new(sb->loop, sb->socket, &sb->wires) < 0)
		return false;
	buf_printf(&b,
		   "GET %s HTTP/1.1\r\nHost: sandbox\r\nUser-Agent: threadfs/" THREADFS_VERSION
		   "\r\nAccept: */*\r\n",
		   x->target);
	for (h = sb->credentials; h; h = h->next)
		buf_printf(&b, "%s\r\n", h->data);
	for (h = x->headers; h; h = h->next)
		buf_printf(&b, "%s\r\n", h->data);
	buf_puts(&b, "\r\n");
	if (!b.error)
		x->wire = wire_ask(sb->wires, b.data, b.len, &user, x);
	return x->wire;
}

/* ---- its beginning ---- */

static int add_header(struct curl_slist **to, const char *line)
{
	struct curl_slist *more = curl_slist_append(*to, line);

	if (!more)
		return -ENOMEM;
	*to = more;
	return 0;
}

static int set_headers(struct exchange *x)
{
	const struct curl_slist *h;
	int r = 0;

	if (!is_plain_get(x))
		r = add_header(&x->all_headers, "Expect:"); /* no waiting for 100 Continue */
	for (h = x->op->sb->credentials; r == 0 && h; h = h->next)
		r = add_header(&x->all_headers, h->data);
	for (h = x->headers; r == 0 && h; h = h->next)
		r = add_header(&x->all_headers, h->data);
	if (r == 0 && x->body.len > 0)
		r = add_header(&x->all_headers, "Content-Type: application/json");
	if (r == 0 && x->form_path && x->form_size < 0)
		r = add_header(&x->all_headers, "Transfer-Encoding: chunked");
	if (r == 0)
		curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->all_headers);
	return r;
}

/*
 * The form is made by hand: libcurl's own reads through one more layer, cannot
 * tell that a file goes on behind its size, and waits for one that ends early.
 */
static int make_form(struct exchange *x)
{
	char boundary[UUID_LEN + 1], type[UUID_LEN + 64];

	uuid_make(boundary);
	buf_reset(&x->form_head);
	buf_reset(&x->form_tail);
	buf_printf(&x->form_head,
		   "--%s\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n"
		   "%s\r\n--%s\r\nContent-Disposition: form-data; name=\"file\"; "
		   "filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n",
		   boundary, x->form_path, boundary);
	buf_printf(&x->form_tail, "\r\n--%s--\r\n", boundary);
	if (x->form_head.error || x->form_tail.error)
		return -ENOMEM;
	snprintf(type, sizeof(type), "Content-Type: multipart/form-data; boundary=%s", boundary);
	return add_header(&x->all_headers, type);
}

/*
 * All of a small form in memory, which libcurl sends together with the header: the server wakes
 * up once. libcurl asks nobody before it sends such a body again, so it is only for what
 * may be. Leaves it to be read piece by piece where its bytes are not there yet.
 */
static int gather_form(struct exchange *x)
{
	char piece[4096];
	ssize_t n;

	buf_reset(&x->form);
	if (!x->idempotent || x->form_size < 0 || x->form_size > FORM_AT_ONCE)
		return 0;
	while ((n = next_of_form(x, piece, sizeof(piece))) > 0)
		if (buf_append(&x->form, piece, (size_t)n) < 0)
			return -ENOMEM;
	if (n < 0) {
		buf_reset(&x->form);
		rewind_body(x);
	}
	return n == -EAGAIN ? 0 : (int)n;
}

static int set_post(struct exchange *x)
{
	curl_off_t size = (curl_off_t)x->body.len;
	CURL *e = x->easy;
	int r = 0;

	if (x->form_path) {
		r = make_form(x);
		if (r == 0)
			r = gather_form(x);
		size = x->form_size;
		if (size >= 0)
			size += (curl_off_t)(x->form_head.len + x->form_tail.len);
	}
	curl_easy_setopt(e, CURLOPT_POST, 1L);
	curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, size);
	if (x->form.len > 0)
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, x->form.data);
	curl_easy_setopt(e, CURLOPT_READFUNCTION, x->form_path ? on_read_form : on_read_body);
	curl_easy_setopt(e, CURLOPT_READDATA, x);
	curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
	curl_easy_setopt(e, CURLOPT_SEEKDATA, x);
	return r;
}

static int set_body(struct exchange *x)
{
	CURL *e = x->easy;

	if (strcmp(x->method, "POST") == 0)
		return set_post(x);
	if (strcmp(x->method, "HEAD") == 0)
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	else if (strcmp(x->method, "GET") != 0)
		curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, x->method);
	return 0;
}

static void set_connection(struct exchange *x)
{
	const struct sandbox *sb = x->op->sb;
	CURL *e = x->easy;

	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	/* A resolver thread that hangs is left behind: removing a transfer must not wait for it. */
	curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	/* One request per connection at a time: a paused one must not hold up others. */
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_HTTP09_ALLOWED, 0L);
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(e, CURLOPT_MAXAGE_CONN,
			 x->form_path && !x->idempotent ? (long)IDLE_ONCE_S : (long)IDLE_S);
	curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "threadfs/" THREADFS_VERSION);
	if (sb->socket)
		curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, sb->socket);
	if (sb->bypass_proxy)
		curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
	if (sb->cacert)
		curl_easy_setopt(e, CURLOPT_CAINFO, sb->cacert);
	if (sb->insecure) {
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	/* What has no body is not rewound when libcurl sends it again (on_seek); reading may be. */
	if (x->fresh ||
	    (!x->idempotent && !x->form_path && x->body.len == 0 && strcmp(x->method, "GET") != 0))
		curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
}

static void set_buffers(struct exchange *x)
{
	long size = x->lane == LANE_STREAM ? STREAM_BUFFER : QUICK_BUFFER;

	curl_easy_setopt(x->easy, CURLOPT_BUFFERSIZE, size);
	if (x->form_path && (x->form_size < 0 || x->form_size > UPLOAD_BUFFER))
		curl_easy_setopt(x->easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)UPLOAD_BUFFER);
}

static void set_owner(struct exchange *x)
{
	CURL *e = x->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, x);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, x->why);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, x);
}

static void set_callbacks(struct exchange *x)
{
	CURL *e = x->easy;

	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	if (x->form_path || x->body.len > UPLOAD_BUFFER) {
		curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
		curl_easy_setopt(e, CURLOPT_XFERINFODATA, x);
		curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
	}
}

static int set_up(struct exchange *x)
{
	struct sandbox *sb = x->op->sb;
	char *url CLEANUP_FREE = NULL;
	int r;

	if (ask_directly(x))
		return 0;
	if (!sb->pool) {
		r = pool_new(sb->loop, on_over, &sb->pool);
		if (r < 0)
			return r;
	}
	if (is_plain_get(x))
		x->easy = pool_get_set(sb->pool);
	x->is_set = x->easy;
	if (!x->is_set)
		x->easy = pool_get(sb->pool);
	if (!x->easy || asprintf(&url, "%s%s", sb->base_url, x->target) < 0)
		return -ENOMEM;
	if (curl_easy_setopt(x->easy, CURLOPT_URL, url) != CURLE_OK)
		return -ENOMEM;
	set_owner(x);
	set_buffers(x);
	if (!x->is_set) {
		set_connection(x);
		set_callbacks(x);
		x->is_set = true;
	}
	r = set_body(x);
	if (r == 0)
		r = set_headers(x);
	if (r == 0)
		r = pool_add(sb->pool, x->easy);
	return r;
}

static void begin_try(struct exchange *x)
{
	int r;

	x->tries++;
	decide(x, 0, NULL);
	rewind_body(x);
	x->uploaded = 0;
	x->header_bytes = 0;
	x->whole_head = false;
	x->status = 0;
	x->knows_head = false;
	x->why[0] = 0;
	buf_reset(&x->answer);
	r = set_up(x);
	if (r < 0 && !x->error)
		decide(x, r, "the request could not be made");
	if (r < 0)
		wait_for(x, on_pause_over, 0); /* done() comes from the loop, never from start */
	else if (x->timeout_ms > 0 && !ev_is_active(&x->pause))
		wait_for(x, on_try_timeout, x->timeout_ms);
}

static void lane_next(struct sandbox *sb, enum lane lane)
{
	struct lane_state *l = &sb->lanes[lane];

	while (l->queue && l->running < l->max) {
		struct exchange *x = l->queue;

		DL_DELETE(l->queue, x);
		x->queued = false;
		x->running = true;
		l->running++;
		begin_try(x);
	}
}

void exchange_init(struct exchange *x, struct op *op, const char *method, const char *target,
		   void (*done)(struct exchange *, int err))
{
	*x = (struct exchange){
		.step.stop = stop_step,
		.op = op,
		.done = done,
		.method = method,
		.target = strdup(target),
		.body = BUF_INIT(0),
		.form_size = -1,
		.answer_max = ANSWER_MAX,
		.content_length = -1,
		.range_start = -1,
		.range_total = -1,
	};
}

int exchange_query(struct exchange *x, const char *name, const char *value)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	if (!x->target)
		return -ENOMEM;
	buf_printf(&b, "%s%c%s=", x->target, strchr(x->target, '?') ? '&' : '?', name);
	if (b.error || url_escape(&b, value, strlen(value)) < 0)
		return -ENOMEM;
	free(x->target);
	x->target = STEAL(b.data);
	return 0;
}

int exchange_header(struct exchange *x, const char *line)
{
	return add_header(&x->headers, line);
}

void exchange_start(struct exchange *x)
{
	struct lane_state *lane = lane_of(x);

	if (!x->op->current)
		op_wait(x->op, &x->step);
	x->answer = BUF_INIT(x->answer_max);
	if (!x->target || x->body.error) {
		decide(x, -ENOMEM, "out of memory");
		wait_for(x, on_pause_over, 0);
		return;
	}
	if (x->timeout_ms > 0)
		wait_for(x, on_try_timeout, x->timeout_ms);
	x->queued = true;
	DL_APPEND(lane->queue, x);
	lane_next(x->op->sb, x->lane);
}

bool exchange_was_sent(const struct exchange *x)
{
	return x->tries > 1 || (x->tries == 1 && x->sent == x->body.len);
}

void exchange_go_on(struct exchange *x)
{
	CURLcode r;

	if (!x->paused || (!x->easy && !x->wire))
		return;
	loop_withdraw(x->op->sb->loop, &x->room);
	x->paused = false;
	x->running = true;
	lane_of(x)->running++; /* past the lane's limit if need be: it has its connection */
	x->op->held = false;
	op_progress(x->op);
	if (x->wire) {
		wire_go_on(x->wire);
		return;
	}
	/* Calls data() with what it holds; if that fails libcurl forgets it. */
	r = curl_easy_pause(x->easy, CURLPAUSE_CONT);
	if (r != CURLE_OK && !x->error)
		decide(x, status_from_curl(r, 0), curl_easy_strerror(r));
	if (x->error)
		wait_for(x, on_pause_over, 0);
}

void exchange_release(struct exchange *x)
{
	if (!x->op)
		return;
	exchange_stop(x);
	free(x->target);
	buf_release(&x->body);
	buf_release(&x->answer);
	buf_release(&x->form_head);
	buf_release(&x->form_tail);
	buf_release(&x->form);
	curl_slist_free_all(x->headers);
	*x = (struct exchange){ 0 };
}

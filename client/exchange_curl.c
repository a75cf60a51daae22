/*
 * An exchange by libcurl: from what is asked to a transfer with all its options, and the
 * callbacks, back. Knows nothing of lanes and of other tries. Loop thread only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "exchange_i.h"
#include "pool.h"
#include "status.h"
#include "url.h"

enum {
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
	/*
	 * What a unix socket holds until the server takes it. The default, 208
	 * KiB, is less than one buffer: client and server would take turns,
	 * waking each other, where they could work at the same time.
	 */
	UNIX_SEND_BUFFER = 512 * 1024,
};

/* ---- libcurl's callbacks ---- */

static size_t on_data(char *bytes, size_t size, size_t n, void *ctx)
{
	int r = exchange_take(ctx, bytes, n * size);

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
	watch_for_end(x, bytes, n);
	x->header_bytes += n;
	if (x->header_bytes > HEADERS_MAX) {
		exchange_decide(x, -EMSGSIZE, "the answer's header is too large");
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

static size_t on_read_form(char *to, size_t size, size_t n, void *ctx)
{
	struct exchange *x = ctx;
	size_t have = 0;
	ssize_t got = 0;

	n *= size;
	do {
		got = exchange_form_next(x, to + have, n - have);
		have += got > 0 ? (size_t)got : 0;
	} while (got > 0 && have < n);
	if (got == -EAGAIN && have == 0) {
		exchange_pause(x);
		return CURL_READFUNC_PAUSE;
	}
	if (got < 0 && got != -EAGAIN) {
		x->error = (int)got;
		return CURL_READFUNC_ABORT;
	}
	return have;
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
	exchange_rewind(x);
	return CURL_SEEKFUNC_OK;
}

/* What was sent, wherever libcurl had it from. */
static int on_progress(void *ctx, curl_off_t dl_total UNUSED, curl_off_t dl_now UNUSED,
		       curl_off_t ul_total UNUSED, curl_off_t ul_now)
{
	struct exchange *x = ctx;

	if (ul_now > x->uploaded)
		op_moved(x->op, (uint64_t)(ul_now - x->uploaded));
	x->uploaded = ul_now;
	return 0;
}

/* By now a name is an address. libcurl tries the next one of those that it has. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose UNUSED, struct curl_sockaddr *a)
{
	const struct sandbox *sb = ctx;
	int fd, size = UNIX_SEND_BUFFER;

	if (sb->no_link_local && url_address_is_link_local(&a->addr))
		return CURL_SOCKET_BAD;
	fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
	/* If that fails it is only slower. TCP finds its own size, and stops if told one. */
	if (fd >= 0 && a->family == AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return fd;
}

/* Whether wires may go to where libcurl went: no TLS, nor a proxy that may be in between, nor a
 * name that would have to be written otherwise. */
static bool suits_wires(const struct sandbox *sb)
{
	if (sb->socket || !sb->bypass_proxy || strncmp(sb->base_url, "http://", 7) != 0)
		return false;
	for (const char *c = sb->base_url; *c; c++)
		if (*c & 0x80)
			return false;
	return true;
}

/* Unless it is none, or there is more to it than the text says (the interface). */
static void set_address(const char *ip, uint16_t port, struct wire_address *to)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = port };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = port };

	if (inet_pton(AF_INET, ip, &in.sin_addr) == 1) {
		memcpy(&to->addr, &in, sizeof(in));
		to->len = sizeof(in);
	} else if (inet_pton(AF_INET6, ip, &in6.sin6_addr) == 1 &&
		   !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) {
		memcpy(&to->addr, &in6, sizeof(in6));
		to->len = sizeof(in6);
	}
}

static void learn_address(struct sandbox *sb, CURL *easy, CURLcode code)
{
	const char *ip = NULL;
	long port = 0;

	if (!suits_wires(sb))
		return;
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		sb->at.len = 0;
	if (code != CURLE_OK)
		return;
	sb->at.len = 0;
	sb->at_ms = clock_ms();
	curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &ip);
	curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &port);
	if (ip && port > 0 && port <= UINT16_MAX)
		set_address(ip, htons((uint16_t)port), &sb->at);
}

static void on_over(CURL *easy, CURLcode code)
{
	struct exchange *x = NULL;
	const char *why = NULL;
	long os_errno = 0;
	int err = 0;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&x);
	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
	if (code == CURLE_OK && !x->error && !x->whole_head)
		exchange_decide(x, -ECONNRESET, "the answer breaks off in its head");
	if (code != CURLE_OK)
		err = status_from_curl(code, os_errno);
	learn_address(x->op->sb, easy, code);
	if (err && !x->why[0])
		why = curl_easy_strerror(code);
	exchange_over(x, err, why);
}

/* ---- its beginning ---- */

static int set_headers(struct exchange *x)
{
	const struct curl_slist *h;
	int r = 0;

	if (!exchange_is_plain_get(x))
		r = exchange_add_header(&x->all_headers,
					"Expect:"); /* no waiting for 100 Continue */
	for (h = x->op->sb->credentials; r == 0 && h; h = h->next)
		r = exchange_add_header(&x->all_headers, h->data);
	for (h = x->headers; r == 0 && h; h = h->next)
		r = exchange_add_header(&x->all_headers, h->data);
	if (r == 0 && x->body.len > 0)
		r = exchange_add_header(&x->all_headers, EXCHANGE_JSON_TYPE);
	if (r == 0 && x->form_path)
		r = exchange_add_header(&x->all_headers, x->form_type);
	if (r == 0 && x->form_path && x->form_size < 0)
		r = exchange_add_header(&x->all_headers, "Transfer-Encoding: chunked");
	if (r == 0)
		curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->all_headers);
	return r;
}

static void set_post(struct exchange *x)
{
	curl_off_t size = (curl_off_t)x->body.len;
	CURL *e = x->easy;

	if (x->form_path) {
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
}

static int set_body(struct exchange *x)
{
	CURL *e = x->easy;

	if (strcmp(x->method, "POST") == 0)
		set_post(x);
	else if (strcmp(x->method, "HEAD") == 0)
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	else if (strcmp(x->method, "GET") != 0 &&
		 curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, x->method) != CURLE_OK)
		return -ENOMEM; /* it would be a GET */
	return 0;
}

/*
 * -ENOMEM if one of those could not be set that say where the request goes and who may hear of it:
 * by default that is a port of this machine, or a proxy.
 */
static int set_connection(struct exchange *x)
{
	const struct sandbox *sb = x->op->sb;
	CURL *e = x->easy;
	CURLcode r;

	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	/* A resolver thread that hangs is left behind: removing a transfer must not wait for it. */
	curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
	r = curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
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
	curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, sb);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "threadfs/" THREADFS_VERSION);
	if (r == CURLE_OK && sb->socket)
		r = curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, sb->socket);
	if (r == CURLE_OK && sb->bypass_proxy)
		r = curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
	if (r == CURLE_OK && sb->cacert)
		r = curl_easy_setopt(e, CURLOPT_CAINFO, sb->cacert);
	if (sb->insecure) {
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
	}
	/* What has no body is not rewound when libcurl sends it again (on_seek); reading may be. */
	if (x->fresh ||
	    (!x->idempotent && !x->form_path && x->body.len == 0 && strcmp(x->method, "GET") != 0))
		curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
	return r == CURLE_OK ? 0 : -ENOMEM;
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

int exchange_curl_begin(struct exchange *x)
{
	struct sandbox *sb = x->op->sb;
	char *url CLEANUP_FREE = NULL;
	int r;

	x->uploaded = 0;
	x->header_bytes = 0;
	x->whole_head = false;
	if (!sb->pool) {
		r = pool_new(sb->loop, on_over, &sb->pool);
		if (r < 0)
			return r;
	}
	if (exchange_is_plain_get(x))
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
		r = set_connection(x);
		if (r < 0)
			return r;
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

void exchange_curl_drop(struct exchange *x)
{
	struct pool *pool = x->op->sb->pool;

	pool_remove(pool, x->easy);
	if (x->is_set && exchange_is_plain_get(x)) {
		curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, NULL);
		curl_easy_setopt(x->easy, CURLOPT_ERRORBUFFER, NULL);
		pool_put_set(pool, STEAL(x->easy));
	} else {
		pool_put(pool, STEAL(x->easy));
	}
	curl_slist_free_all(STEAL(x->all_headers));
}

void exchange_curl_go_on(struct exchange *x)
{
	/* Calls data() with what it holds; if that fails libcurl forgets it. */
	CURLcode r = curl_easy_pause(x->easy, CURLPAUSE_CONT);

	if (r != CURLE_OK && !x->error)
		exchange_decide(x, status_from_curl(r, 0), curl_easy_strerror(r));
}

/* ---- the answer's head ---- */

const char *exchange_curl_said(const struct exchange *x, const char *header)
{
	struct curl_header *h;

	if (curl_easy_header(x->easy, header, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
		return NULL;
	return h->value;
}

int exchange_curl_status(const struct exchange *x)
{
	long status = 0;

	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
	return (int)status;
}

int64_t exchange_curl_length(const struct exchange *x)
{
	curl_off_t length = -1;

	curl_easy_getinfo(x->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	return length;
}

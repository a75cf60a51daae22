/* See http.h. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "clock.h"

enum {
	MAX_LINE = 64 * 1024,
	MAX_KEPT_BODY = 16 * 1024 * 1024,
};

int address_set_unix(struct address *a, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&a->sa;
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(un->sun_path))
		return -ENAMETOOLONG;
	memset(a, 0, sizeof(*a));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, len + 1);
	a->len = sizeof(*un);
	return 0;
}

static int parse_port(const char *s, uint16_t *ret)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);

	if (end == s || *end || v == 0 || v > UINT16_MAX)
		return -EINVAL;
	*ret = htons((uint16_t)v);
	return 0;
}

int address_set_loopback(struct address *a, const char *host_port)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)&a->sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->sa;
	const char *colon = strrchr(host_port, ':');
	char host[64];
	uint16_t port;
	size_t len;

	if (!colon || parse_port(colon + 1, &port) < 0)
		return -EINVAL;
	len = (size_t)(colon - host_port);
	if (len == 0 || len >= sizeof(host))
		return -EINVAL;
	memcpy(host, host_port, len);
	host[len] = '\0';
	memset(a, 0, sizeof(*a));
	if (!strcmp(host, "[::1]")) {
		in6->sin6_family = AF_INET6;
		in6->sin6_addr = in6addr_loopback;
		in6->sin6_port = port;
		a->len = sizeof(*in6);
		return 0;
	}
	if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &in4->sin_addr) != 1)
		return -EINVAL;
	if (ntohl(in4->sin_addr.s_addr) >> 24 != 127)
		return -EINVAL;
	in4->sin_family = AF_INET;
	in4->sin_port = port;
	a->len = sizeof(*in4);
	return 0;
}

int address_connect(const struct address *a)
{
	int fd CLEANUP_FD = -1;
	int one = 1;

	fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (a->sa.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (const struct sockaddr *)&a->sa, a->len) < 0 && errno != EINPROGRESS)
		return -errno;
	return steal_fd(&fd);
}

void response_init(struct response *r)
{
	memset(r, 0, sizeof(*r));
	r->line = BUF_INIT(MAX_LINE);
	r->body = BUF_INIT(MAX_KEPT_BODY);
	response_reset(r);
}

void http_response_release(struct response *r)
{
	buf_release(&r->line);
	buf_release(&r->body);
}

void response_reset(struct response *r)
{
	r->state = RESPONSE_STATUS_LINE;
	r->to_head = false;
	r->status = 0;
	r->content_length = -1;
	r->range_from = -1;
	r->chunked = false;
	r->closes = false;
	r->received = 0;
	r->left = 0;
	r->on_body = NULL;
	r->on_body_arg = NULL;
	buf_reset(&r->line);
	buf_reset(&r->body);
}

static int read_status_line(struct response *r)
{
	const char *s = r->line.data;

	if (r->line.len < 12 || strncmp(s, "HTTP/1.", 7) || s[8] != ' ')
		return -EPROTO;
	r->status = (int)strtol(s + 9, NULL, 10);
	if (r->status < 100 || r->status > 599)
		return -EPROTO;
	r->closes = s[7] == '0';
	r->state = RESPONSE_HEADERS;
	return 0;
}

static int read_header(struct response *r)
{
	char *s = r->line.data;
	char *value = strchr(s, ':');

	if (!value)
		return -EPROTO;
	*value++ = '\0';
	value += strspn(value, " \t");
	if (!strcasecmp(s, "content-length")) {
		char *end;

		r->content_length = strtoll(value, &end, 10);
		if (end == value || r->content_length < 0)
			return -EPROTO;
	} else if (!strcasecmp(s, "transfer-encoding")) {
		r->chunked = strcasestr(value, "chunked") != NULL;
	} else if (!strcasecmp(s, "connection")) {
		r->closes = strcasestr(value, "close") != NULL;
	} else if (!strcasecmp(s, "content-range")) {
		if (!strncasecmp(value, "bytes ", 6) && value[6] != '*')
			r->range_from = strtoll(value + 6, NULL, 10);
	}
	return 0;
}

static void end_of_headers(struct response *r)
{
	if (r->status < 200) { /* 100 Continue: the answer proper follows */
		r->state = RESPONSE_STATUS_LINE;
		r->content_length = -1;
		r->chunked = false;
	} else if (r->to_head || r->status == 204 || r->status == 304) {
		r->state = RESPONSE_DONE;
	} else if (r->chunked) {
		r->state = RESPONSE_CHUNK_SIZE;
	} else if (r->content_length >= 0) {
		r->left = (uint64_t)r->content_length;
		r->state = r->left ? RESPONSE_BODY : RESPONSE_DONE;
	} else {
		r->closes = true;
		r->state = RESPONSE_UNTIL_CLOSE;
	}
}

static int read_chunk_size(struct response *r)
{
	char *end;

	r->left = strtoull(r->line.data, &end, 16);
	if (end == r->line.data || (*end && *end != ';' && *end != ' '))
		return -EPROTO;
	r->state = r->left ? RESPONSE_CHUNK_DATA : RESPONSE_TRAILER;
	return 0;
}

static int end_of_line(struct response *r)
{
	bool empty;
	int ret = 0;

	if (r->line.len && r->line.data[r->line.len - 1] == '\r')
		r->line.data[--r->line.len] = '\0';
	empty = r->line.len == 0;
	switch (r->state) {
	case RESPONSE_STATUS_LINE:
		ret = empty ? -EPROTO : read_status_line(r);
		break;
	case RESPONSE_HEADERS:
		if (empty)
			end_of_headers(r);
		else
			ret = read_header(r);
		break;
	case RESPONSE_CHUNK_SIZE:
		ret = empty ? -EPROTO : read_chunk_size(r);
		break;
	case RESPONSE_CHUNK_END:
		ret = empty ? 0 : -EPROTO;
		r->state = RESPONSE_CHUNK_SIZE;
		break;
	case RESPONSE_TRAILER:
		if (empty)
			r->state = RESPONSE_DONE;
		break;
	default:
		ret = -EPROTO;
	}
	buf_reset(&r->line);
	return ret;
}

static size_t take_body(struct response *r, const char *data, size_t len)
{
	bool counted = r->state != RESPONSE_UNTIL_CLOSE;
	size_t n = counted ? (size_t)MIN((uint64_t)len, r->left) : len;

	if (r->on_body)
		r->on_body(r->on_body_arg, r->received, data, n);
	else
		(void)buf_append(&r->body, data, n); /* its error is sticky */
	r->received += n;
	if (!counted)
		return n;
	r->left -= n;
	if (r->left == 0)
		r->state = r->state == RESPONSE_BODY ? RESPONSE_DONE : RESPONSE_CHUNK_END;
	return n;
}

ssize_t response_feed(struct response *r, const char *data, size_t len)
{
	size_t pos = 0;

	while (pos < len && r->state != RESPONSE_DONE) {
		const char *nl;
		size_t n;
		int ret;

		if (r->state == RESPONSE_BODY || r->state == RESPONSE_UNTIL_CLOSE ||
		    r->state == RESPONSE_CHUNK_DATA) {
			pos += take_body(r, data + pos, len - pos);
			continue;
		}
		nl = memchr(data + pos, '\n', len - pos);
		n = nl ? (size_t)(nl - (data + pos)) : len - pos;
		if (buf_append(&r->line, data + pos, n) < 0)
			return -EPROTO;
		pos += n;
		if (!nl)
			break;
		pos++;
		ret = end_of_line(r);
		if (ret < 0)
			return ret;
	}
	return (ssize_t)pos;
}

int response_eof(struct response *r)
{
	if (r->state == RESPONSE_UNTIL_CLOSE)
		r->state = RESPONSE_DONE;
	return r->state == RESPONSE_DONE ? 0 : -EPIPE;
}

static int wait_for(int fd, short events, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };
	int64_t left = deadline - clock_ms();
	int n;

	if (left <= 0)
		return -ETIMEDOUT;
	n = poll(&p, 1, (int)left);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n ? 0 : -ETIMEDOUT;
}

static int connect_until(const struct address *a, int64_t deadline)
{
	for (;;) {
		int fd = address_connect(a);

		if (fd != -EAGAIN)
			return fd;
		if (clock_ms() >= deadline)
			return -ETIMEDOUT;
		poll(NULL, 0, 5); /* there is no event for "backlog has room" */
	}
}

/* Returns 1 when the response is complete. */
static int receive_some(int fd, struct response *r)
{
	char data[65536];
	ssize_t n = recv(fd, data, sizeof(data), 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {
		int ret = response_eof(r);

		return ret < 0 ? ret : 1;
	}
	n = response_feed(r, data, (size_t)n);
	if (n < 0)
		return (int)n;
	return r->state == RESPONSE_DONE;
}

int http_exchange(const struct address *a, const char *request, size_t len, int timeout_ms,
		  struct response *r)
{
	int64_t deadline = clock_ms() + timeout_ms;
	int fd CLEANUP_FD = connect_until(a, deadline);
	size_t sent = 0;
	int ret;

	if (fd < 0)
		return fd;
	for (;;) {
		ret = wait_for(fd, sent < len ? POLLIN | POLLOUT : POLLIN, deadline);
		if (ret < 0)
			return ret;
		if (sent < len) {
			ssize_t n = send(fd, request + sent, len - sent, MSG_NOSIGNAL);

			if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE)
				return -errno;
			if (n < 0 && errno == EPIPE) /* an early answer may be waiting */
				len = sent;
			else if (n > 0)
				sent += (size_t)n;
		}
		ret = receive_some(fd, r);
		if (ret)
			return ret < 0 ? ret : 0;
	}
}

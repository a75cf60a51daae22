/* See visit.h. */
#include "visit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "../load/http.h"

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct visit *v = arg;

	v->total += size * n;
	buf_append(&v->body, data, MIN(size * n, MIB - v->body.len));
	return v->give_up_after && v->total >= v->give_up_after ? 0 : size * n;
}

static size_t on_head(char *data, size_t size, size_t n, void *arg)
{
	struct visit *v = arg;

	buf_append(&v->head, data, MIN(size * n, MIB - v->head.len));
	return size * n;
}

void visit_release(struct visit *v)
{
	buf_release(&v->body);
	buf_release(&v->head);
}

CURL *visit_client(void)
{
	CURL *h = curl_easy_init();

	if (!h)
		abort();
	return h;
}

void visit_point(CURL *h, const char *socket, const char *url, const char *target)
{
	char full[512];

	snprintf(full, sizeof(full), "%s%s", url, target);
	curl_easy_setopt(h, CURLOPT_URL, full);
	curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, socket);
	curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
}

struct visit visit_perform(CURL *h, uint64_t give_up_after, long timeout_ms)
{
	struct visit v = { .give_up_after = give_up_after };

	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, &v);
	curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
	curl_easy_setopt(h, CURLOPT_HEADERDATA, &v);
	curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, timeout_ms);
	v.code = curl_easy_perform(h);
	curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &v.status);
	return v;
}

struct visit visit(struct rogue *r, const char *target, const char *body)
{
	CURL *h = visit_client();
	struct visit v;

	visit_point(h, rogue_socket(r), rogue_url(r), target);
	if (body)
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
	v = visit_perform(h, 0, 3 * LONG_MS);
	curl_easy_cleanup(h);
	return v;
}

void visit_expect(struct rogue *r, const char *target, const char *body, long status,
		  const char *text)
{
	struct visit v CLEANUP_VISIT = visit(r, target, body);

	assert_int_equal(v.code, CURLE_OK);
	assert_int_equal(v.status, status);
	assert_string_equal(v.body.data ? v.body.data : "", text);
}

void visit_fails(struct rogue *r, const char *target, const char *body, CURLcode code)
{
	struct visit v CLEANUP_VISIT = visit(r, target, body);

	assert_int_equal(v.code, code);
}

int visit_dial(struct rogue *r)
{
	struct timeval limit = { .tv_sec = LONG_MS / 1000 };
	struct address a;
	int fd;

	if (rogue_socket(r))
		assert_int_equal(address_set_unix(&a, rogue_socket(r)), 0);
	else
		assert_int_equal(address_set_loopback(&a, rogue_url(r) + strlen("http://")), 0);
	fd = address_connect(&a);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* blocking */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return fd;
}

void visit_say(int fd, const char *text)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	assert_int_equal(poll(&p, 1, LONG_MS), 1); /* TCP may still be connecting */
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

void visit_silence(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLRDHUP };

	assert_int_equal(poll(&p, 1, 50), 0);
}

size_t visit_hear(int fd, const char *until, char *to, size_t size)
{
	size_t len = 0;

	to[0] = '\0';
	while (len < size - 1 && !(until && strstr(to, until))) {
		/* byte by byte: what comes after the text is for the next call */
		ssize_t n = recv(fd, to + len, until ? 1 : size - 1 - len, 0);

		if (n <= 0)
			break;
		len += (size_t)n;
		to[len] = '\0';
	}
	return len;
}

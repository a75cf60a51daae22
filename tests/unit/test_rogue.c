/*
 * The rogue server: its faults as libcurl and plain sockets see them, its rules
 * and its records. test_daemon.c has it before a real server.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "daemon.h"
#include "visit.h"

static struct rogue *start(bool tcp)
{
	struct rogue *r = rogue_new(NULL, tcp);

	assert_non_null(r);
	return r;
}

/* ---- records ---- */

static void check_records(bool tcp)
{
	struct rogue *r = start(tcp);
	CURL *h = visit_client();
	struct curl_slist *headers = curl_slist_append(NULL, "X-Colour: blue green");
	struct rogue_request q;
	char *value;

	for (int i = 0; i < 2; i++) {
		struct visit v CLEANUP_VISIT = { 0 };

		visit_point(h, rogue_socket(r), rogue_url(r), "/v1/a?b=c");
		curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, "{\"x\":1}");
		v = visit_perform(h, 0, LONG_MS);
		assert_int_equal(v.code, CURLE_OK);
		assert_int_equal(v.status, 404);
	}
	curl_easy_cleanup(h);
	curl_slist_free_all(headers);
	visit_expect(r, "/v1/ab", NULL, 404, "{\"detail\":\"Not Found\"}");
	assert_true(rogue_request(r, 1, &q));
	assert_string_equal(q.method, "POST");
	assert_string_equal(q.target, "/v1/a?b=c");
	assert_string_equal(q.body, "{\"x\":1}");
	assert_int_equal(q.body_total, 7);
	assert_true(q.body_done);
	assert_int_equal(q.status, 404);
	assert_int_equal(q.connection, 1);
	assert_int_equal(q.on_connection, 2);
	assert_int_equal(q.in_flight, 1);
	assert_true(q.end_ms >= q.start_ms);
	value = rogue_header(&q, "x-colour");
	assert_string_equal(value, "blue green");
	free(value);
	assert_null(rogue_header(&q, "X-Col"));
	rogue_request_release(&q);
	assert_false(rogue_request(r, 3, &q));
	assert_int_equal(rogue_count(r, NULL, NULL), 3);
	assert_int_equal(rogue_count(r, "POST", "/v1/a"), 2);
	assert_int_equal(rogue_count(r, NULL, "/v1/a"), 3);
	assert_int_equal(rogue_count(r, NULL, "/v1/a$"), 2);
	assert_int_equal(rogue_count_body(r, NULL, NULL, "\"x\""), 2);
	assert_int_equal(rogue_connections_total(r), 2);
	assert_true(rogue_wait_connections(r, 0, LONG_MS));
	assert_true(rogue_wait_for(r, "GET", "/v1/ab", 1, 0));
	assert_false(rogue_wait_for(r, "GET", "/v1/ab", 2, 10));
	rogue_forget(r);
	assert_int_equal(rogue_count(r, NULL, NULL), 0);
	rogue_free(r);
}

static void test_records(void **state UNUSED)
{
	check_records(false);
	check_records(true);
}

static void test_chunked_request(void **state UNUSED)
{
	struct rogue *r = start(false);
	struct rogue_request q;
	char text[1024];
	int fd = visit_dial(r);

	rogue_answer(r, "POST", "/c", 200, "[]");
	visit_say(
		fd,
		"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhel");
	assert_true(rogue_wait_for(r, "POST", "/c", 1, LONG_MS));
	visit_say(fd,
		  "lo\r\n00A\r\n, chunky a\r\n0\r\nTrailer: x\r\n\r\nGET /next HTTP/1.1\r\n\r\n");
	visit_hear(fd, "Not Found\"}", text, sizeof(text));
	assert_non_null(strstr(text, "HTTP/1.1 200 OK\r\n"));
	assert_non_null(strstr(text, "HTTP/1.1 404 No\r\n"));
	assert_true(rogue_request(r, 0, &q));
	assert_string_equal(q.body, "hello, chunky a");
	assert_true(q.body_done);
	rogue_request_release(&q);
	assert_true(rogue_request(r, 1, &q));
	assert_string_equal(q.target, "/next");
	assert_int_equal(q.on_connection, 2);
	rogue_request_release(&q);
	close(fd);
	rogue_free(r);
}

/* More than is kept; curl asks for "100 Continue" here. */
static void test_large_request(void **state UNUSED)
{
	static char big[3 * MIB + 1];
	struct rogue *r = start(false);
	struct rogue_request q;
	char *value;

	memset(big, 'b', sizeof(big) - 1);
	rogue_answer(r, "POST", "/big", 201, "done");
	visit_expect(r, "/big", big, 201, "done");
	assert_true(rogue_request(r, 0, &q));
	assert_int_equal(q.body_total, 3 * MIB);
	assert_int_equal(q.body_len, ROGUE_BODY_KEPT);
	value = rogue_header(&q, "Expect");
	assert_string_equal(value, "100-continue");
	free(value);
	rogue_request_release(&q);
	rogue_free(r);
}

static void test_not_http_from_client(void **state UNUSED)
{
	struct rogue *r = start(false);
	char text[64];
	int fd = visit_dial(r);

	visit_say(fd, "nonsense\r\n\r\n");
	assert_int_equal(visit_hear(fd, NULL, text, sizeof(text)), 0);
	close(fd);
	assert_int_equal(rogue_count(r, NULL, NULL), 0);
	rogue_free(r);
}

/* ---- rules ---- */

static void test_rules(void **state UNUSED)
{
	struct rogue *r = start(false);

	ROGUE_ADD(r, .method = "POST", .path = "/x", .body_contains = "two", .action = ROGUE_ANSWER,
		  .reply = { .body = "body" });
	ROGUE_ADD(r, .path = "/x", .skip = 1, .times = 2, .action = ROGUE_ANSWER,
		  .reply = { .status = 500, .body = "second" });
	rogue_answer(r, NULL, "/x$", 200, "exact");
	rogue_answer(r, NULL, "/", 200, "rest");
	visit_expect(r, "/x", "one", 200, "exact"); /* skipped */
	visit_expect(r, "/x?q", "one", 500, "second");
	visit_expect(r, "/xy", "two", 200, "body");
	visit_expect(r, "/xy", NULL, 500, "second");
	visit_expect(r, "/x?q", NULL, 200, "exact");
	visit_expect(r, "/xy", NULL, 200, "rest");
	rogue_clear(r);
	visit_expect(r, "/xy", NULL, 404, "{\"detail\":\"Not Found\"}");
	rogue_free(r);
}

/* A server that closes a connection just when it is used again. */
static void test_reused_connection_closed(void **state UNUSED)
{
	struct rogue *r = start(true);
	CURL *h = visit_client();

	ROGUE_ADD(r, .reused = true, .action = ROGUE_CLOSE);
	rogue_answer(r, NULL, "/", 200, "ok");
	for (int i = 0; i < 2; i++) {
		struct visit v CLEANUP_VISIT = { 0 };

		visit_point(h, NULL, rogue_url(r), "/p");
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, "once");
		v = visit_perform(h, 0, LONG_MS);
		if (i == 0)
			assert_int_equal(v.code, CURLE_OK);
	}
	curl_easy_cleanup(h);
	/* curl itself does send it again: what we want to be able to see. */
	assert_int_equal(rogue_count(r, "POST", "/p"), 3);
	assert_int_equal(rogue_connections_total(r), 2);
	rogue_free(r);
}

static int shout(void *ctx, const struct rogue_request *q, struct rogue_reply *reply)
{
	char *text;

	if (q->body_len == 0)
		return 1;
	if (asprintf(&text, "%s %s %s: %s", (const char *)ctx, q->method, q->target, q->body) < 0)
		return 1;
	reply->status = 202;
	reply->body = reply->owned = text;
	reply->body_len = 0;
	return 0;
}

static void test_handler(void **state UNUSED)
{
	struct rogue *r = start(false);
	char name[] = "me";

	ROGUE_ADD(r, .action = ROGUE_ANSWER, .handler = shout, .ctx = name);
	visit_expect(r, "/h", "hi", 202, "me POST /h: hi");
	visit_fails(r, "/h", NULL, CURLE_GOT_NOTHING);
	rogue_free(r);
}

/* ---- answers ---- */

static void test_framings(void **state UNUSED)
{
	static const struct rogue_reply replies[] = {
		{ .body = "ab", .unit = "cd", .units = 3, .tail = "e" },
		{ .body = "ab", .unit = "cd", .units = 3, .tail = "e", .chunked = true },
		{ .body = "ab", .unit = "cd", .units = 3, .tail = "e", .until_close = true },
		{ .raw = "HTTP/1.0 200 Fine\r\n\r\nab", .unit = "cd", .units = 3, .tail = "e" },
	};
	struct rogue *r = start(false);

	for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
		char target[16];

		snprintf(target, sizeof(target), "/%zu", i);
		ROGUE_ADD(r, .path = target, .action = ROGUE_ANSWER, .reply = replies[i]);
		visit_expect(r, target, NULL, 200, "abcdcdcde");
		ROGUE_ADD(r, .path = "/drip", .times = 1, .drip_ms = 1, .action = ROGUE_ANSWER,
			  .reply = replies[i]);
		visit_expect(r, "/drip", NULL, 200, "abcdcdcde");
	}
	ROGUE_ADD(r, .path = "/empty", .action = ROGUE_ANSWER, .reply = { .chunked = true });
	visit_expect(r, "/empty", NULL, 200, "");
	rogue_answer(r, NULL, "/none", 204, NULL);
	visit_expect(r, "/none", NULL, 204, "");
	rogue_free(r);
}

static void test_head(void **state UNUSED)
{
	struct rogue *r = start(false);
	struct visit v CLEANUP_VISIT = { 0 };
	CURL *h = visit_client();

	rogue_answer(r, "HEAD", NULL, 200, "seven b");
	visit_point(h, rogue_socket(r), rogue_url(r), "/");
	curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
	v = visit_perform(h, 0, LONG_MS);
	curl_easy_cleanup(h);
	assert_int_equal(v.code, CURLE_OK);
	assert_int_equal(v.total, 0);
	assert_non_null(strstr(v.head.data, "Content-Length: 7\r\n"));
	rogue_free(r);
}

static void test_redirect(void **state UNUSED)
{
	struct rogue *r = start(true);
	struct visit v CLEANUP_VISIT = { 0 };
	char location[128];
	CURL *h = visit_client();

	snprintf(location, sizeof(location), "Location: %s/there\r\n", rogue_url(r));
	ROGUE_ADD(r, .path = "/here", .action = ROGUE_ANSWER,
		  .reply = { .status = 302, .headers = location });
	rogue_answer(r, NULL, "/there", 200, "arrived");
	visit_point(h, NULL, rogue_url(r), "/here");
	curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
	v = visit_perform(h, 0, LONG_MS);
	curl_easy_cleanup(h);
	assert_int_equal(v.code, CURLE_OK);
	assert_string_equal(v.body.data, "arrived");
	assert_int_equal(rogue_count(r, NULL, "/there"), 1);
	rogue_free(r);
}

static void test_garbage(void **state UNUSED)
{
	struct rogue *r = start(false);

	ROGUE_ADD(r, .action = ROGUE_ANSWER,
		  .reply = { .raw = "\0\1SSH-2.0-nonsense\r\n", .raw_len = 20 });
	visit_fails(r, "/", NULL, CURLE_UNSUPPORTED_PROTOCOL);
	rogue_free(r);
}

/* Takes of an endless answer until it is enough. */
static struct visit sip(struct rogue *r, const char *target, uint64_t enough, long timeout_ms)
{
	CURL *h = visit_client();
	struct visit v;

	visit_point(h, rogue_socket(r), rogue_url(r), target);
	v = visit_perform(h, enough, timeout_ms);
	curl_easy_cleanup(h);
	return v;
}

static void test_endless(void **state UNUSED)
{
	struct rogue *r = start(false);
	struct visit a CLEANUP_VISIT = { 0 }, b CLEANUP_VISIT = { 0 }, c CLEANUP_VISIT = { 0 };

	ROGUE_ADD(r, .path = "/chunks", .action = ROGUE_ANSWER,
		  .reply = { .unit = "abc", .units = ROGUE_FOREVER });
	ROGUE_ADD(r, .path = "/close", .action = ROGUE_ANSWER,
		  .reply = { .unit = "abc", .units = ROGUE_FOREVER, .until_close = true });
	ROGUE_ADD(r, .path = "/head", .action = ROGUE_ANSWER,
		  .reply = { .endless_head = "X-More: 1\r\n" });
	ROGUE_ADD(r, .path = "/line", .action = ROGUE_ANSWER, .reply = { .endless_head = "a" });
	a = sip(r, "/chunks", 5 * MIB, 3 * LONG_MS);
	assert_int_equal(a.code, CURLE_WRITE_ERROR);
	b = sip(r, "/close", 5 * MIB, 3 * LONG_MS);
	assert_int_equal(b.code, CURLE_WRITE_ERROR);
	c = sip(r, "/line", 0, 3 * LONG_MS);
	assert_int_not_equal(c.code, CURLE_OK);
	assert_int_not_equal(c.code, CURLE_OPERATION_TIMEDOUT);
	visit_release(&c);
	c = sip(r, "/head", 0, 300);
	assert_int_not_equal(c.code, CURLE_OK);
	assert_true(rogue_wait_connections(r, 0, LONG_MS));
	rogue_free(r);
}

static void test_json(void **state UNUSED)
{
	struct rogue *r = start(false);
	struct visit v CLEANUP_VISIT = { 0 };
	cJSON *tree;
	size_t before;

	ROGUE_ADD(r, .path = "/small/string", .action = ROGUE_ANSWER,
		  .reply = rogue_json_string(1000));
	ROGUE_ADD(r, .path = "/small/numbers", .action = ROGUE_ANSWER,
		  .reply = rogue_json_numbers(1000));
	v = visit(r, "/small/string", NULL);
	tree = cJSON_Parse(v.body.data);
	assert_int_equal(strlen(cJSON_GetObjectItem(tree, "data")->valuestring), 1000);
	cJSON_Delete(tree);
	visit_release(&v);
	v = visit(r, "/small/numbers", NULL);
	tree = cJSON_Parse(v.body.data);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(tree, "data")), 126);
	cJSON_Delete(tree);
	visit_release(&v);

	for (int chunked = 0; chunked < 2; chunked++) {
		struct rogue_reply big =
			chunked ? rogue_json_numbers(100 * MIB) : rogue_json_string(100 * MIB);

		big.chunked = chunked;
		rogue_clear(r);
		ROGUE_ADD(r, .action = ROGUE_ANSWER, .reply = big);
		before = rss_kib();
		v = visit(r, "/", NULL);
		assert_int_equal(v.code, CURLE_OK);
		assert_in_range(v.total, 100 * MIB, 100 * MIB + 100);
		assert_true(rss_kib() < before + 32 * 1024);
		assert_int_equal(strstr(v.head.data, "Content-Length") == NULL, chunked);
		visit_release(&v);
	}
	rogue_clear(r);
	ROGUE_ADD(r, .action = ROGUE_ANSWER, .reply = rogue_json_deep(100000));
	v = visit(r, "/", NULL);
	assert_int_equal(v.total, 100000);
	assert_int_equal(strspn(v.body.data, "["), 100000);
	rogue_free(r);
}

/* ---- faults ---- */

static void test_close_and_reset(void **state UNUSED)
{
	struct rogue *tcp = start(true), *local = start(false);
	char c;

	for (int i = 0; i < 2; i++) {
		struct rogue *r = i ? local : tcp;
		int fd;

		ROGUE_ADD(r, .path = "/close", .action = ROGUE_CLOSE);
		ROGUE_ADD(r, .path = "/reset", .action = ROGUE_RESET);
		visit_fails(r, "/close", NULL, CURLE_GOT_NOTHING);
		visit_fails(r, "/close", "p", CURLE_GOT_NOTHING);
		fd = visit_dial(r);
		visit_say(fd, "GET /reset HTTP/1.1\r\n\r\n");
		assert_int_equal(recv(fd, &c, 1, 0), i ? 0 : -1);
		if (!i)
			assert_int_equal(errno, ECONNRESET);
		close(fd);
	}
	rogue_free(tcp);
	rogue_free(local);
}

static void test_refuse(void **state UNUSED)
{
	struct rogue *r = start(true);
	struct visit v CLEANUP_VISIT = { 0 };

	rogue_answer(r, NULL, NULL, 200, "ok");
	rogue_refuse(r, 1);
	v = visit(r, "/", NULL);
	assert_true(v.code == CURLE_GOT_NOTHING || v.code == CURLE_RECV_ERROR ||
		    v.code == CURLE_SEND_ERROR);
	visit_expect(r, "/", NULL, 200, "ok");
	assert_int_equal(rogue_count(r, NULL, NULL), 1);
	rogue_free(r);
}

static void test_stop_listening(void **state UNUSED)
{
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rogue *r = start(tcp);
		char *url = strdup(rogue_url(r)), text[256];
		int fd = visit_dial(r);

		rogue_answer(r, NULL, NULL, 200, "ok");
		visit_say(fd, "GET / HTTP/1.1\r\n\r\n");
		assert_true(visit_hear(fd, "ok", text, sizeof(text)) > 0);
		rogue_stop_listening(r);
		rogue_stop_listening(r);
		visit_fails(r, "/", NULL, CURLE_COULDNT_CONNECT);
		visit_say(fd, "GET / HTTP/1.1\r\n\r\n"); /* this one is open */
		assert_true(visit_hear(fd, "ok", text, sizeof(text)) > 0);
		rogue_listen(r);
		rogue_listen(r);
		visit_expect(r, "/", NULL, 200, "ok");
		assert_string_equal(rogue_url(r), url);
		close(fd);
		free(url);
		rogue_free(r);
	}
}

static void test_close_connections(void **state UNUSED)
{
	struct rogue *r = start(false);
	int idle = visit_dial(r), busy = visit_dial(r);
	char text[256];

	rogue_answer(r, NULL, "/ok", 200, "ok");
	ROGUE_ADD(r, .hold_ms = ROGUE_UNTIL_RELEASED);
	visit_say(idle, "GET /ok HTTP/1.1\r\n\r\n");
	assert_true(visit_hear(idle, "ok", text, sizeof(text)) > 0);
	visit_say(busy, "GET /held HTTP/1.1\r\n\r\n");
	assert_true(rogue_wait_for(r, NULL, "/held", 1, LONG_MS));
	assert_int_equal(rogue_connections_open(r), 2);
	rogue_close_connections(r, true);
	assert_int_equal(visit_hear(idle, NULL, text, sizeof(text)), 0);
	assert_int_equal(rogue_connections_open(r), 1);
	rogue_close_connections(r, false);
	assert_int_equal(visit_hear(busy, NULL, text, sizeof(text)), 0);
	assert_int_equal(rogue_connections_open(r), 0);
	close(idle);
	close(busy);
	rogue_free(r);
}

static void test_stall(void **state UNUSED)
{
	struct rogue *r = start(false);
	char text[256];
	int fd = visit_dial(r);

	ROGUE_ADD(r, .path = "/body", .action = ROGUE_ANSWER, .reply = { .body = "0123456789" },
		  .fault = ROGUE_STALL, .after = 4);
	ROGUE_ADD(r, .path = "/head", .action = ROGUE_ANSWER, .fault = ROGUE_STALL, .after = 12,
		  .in_head = true);
	visit_say(fd, "GET /body HTTP/1.1\r\n\r\n");
	visit_hear(fd, "\r\n\r\n0123", text, sizeof(text));
	assert_non_null(strstr(text, "Content-Length: 10\r\n\r\n0123"));
	visit_silence(fd);
	close(fd);
	assert_true(rogue_wait_connections(r, 0, LONG_MS)); /* it noticed that the client left */
	fd = visit_dial(r);
	visit_say(fd, "GET /head HTTP/1.1\r\n\r\n");
	assert_int_equal(visit_hear(fd, "200", text, sizeof(text)), 12);
	visit_silence(fd);
	rogue_release(r); /* it goes on where it was */
	visit_hear(fd, "\r\n\r\n", text, sizeof(text));
	assert_string_equal(text,
			    " OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n");
	close(fd);
	rogue_free(r);
}

static void test_cut(void **state UNUSED)
{
	struct rogue *r = start(true);
	struct visit v CLEANUP_VISIT = { 0 };
	char text[256];
	int fd;

	ROGUE_ADD(r, .path = "/cut", .action = ROGUE_ANSWER, .reply = rogue_json_string(1000000),
		  .fault = ROGUE_CUT, .after = 300000);
	v = visit(r, "/cut", NULL);
	assert_int_equal(v.code, CURLE_PARTIAL_FILE);
	assert_int_equal(v.total, 300000);
	visit_release(&v);
	ROGUE_ADD(r, .path = "/chunk", .action = ROGUE_ANSWER,
		  .reply = { .body = "0123456789", .chunked = true }, .fault = ROGUE_CUT,
		  .after = 7);
	v = visit(r, "/chunk", NULL);
	assert_int_equal(v.code, CURLE_PARTIAL_FILE);
	assert_string_equal(v.body.data, "0123"); /* after "a\r\n" */
	ROGUE_ADD(r, .path = "/reset", .action = ROGUE_ANSWER, .reply = { .body = "0123456789" },
		  .fault = ROGUE_CUT_RESET, .in_head = true, .after = 12);
	fd = visit_dial(r);
	visit_say(fd, "GET /reset HTTP/1.1\r\n\r\n");
	assert_in_range(visit_hear(fd, NULL, text, sizeof(text)), 0, 12);
	assert_int_equal(errno, ECONNRESET);
	close(fd);
	rogue_free(r);
}

static void test_length_lies(void **state UNUSED)
{
	struct rogue *r = start(false);
	char text[512];
	int fd = visit_dial(r);

	ROGUE_ADD(r, .path = "/more", .action = ROGUE_ANSWER, .reply = { .body = "0123456789" },
		  .length_lie = 5);
	ROGUE_ADD(r, .path = "/less", .action = ROGUE_ANSWER, .reply = { .body = "0123456789" },
		  .length_lie = -5);
	visit_fails(r, "/more", NULL, CURLE_PARTIAL_FILE);
	visit_say(fd, "GET /less HTTP/1.1\r\n\r\n");
	visit_hear(fd, "56789", text, sizeof(text));
	assert_non_null(strstr(text, "Content-Length: 5\r\n"));
	assert_non_null(strstr(text, "0123456789"));
	visit_say(fd, "GET /x HTTP/1.1\r\n\r\n"); /* the connection is kept */
	visit_hear(fd, "Not Found", text, sizeof(text));
	assert_non_null(strstr(text, "404"));
	close(fd);
	rogue_free(r);
}

static void test_delay_and_drip(void **state UNUSED)
{
	struct rogue *r = start(false);
	int64_t began = clock_ms();

	ROGUE_ADD(r, .path = "/slow", .action = ROGUE_ANSWER, .reply = { .body = "0123456789" },
		  .hold_ms = 100, .delay_ms = 100, .drip_ms = 2);
	visit_expect(r, "/slow", NULL, 200, "0123456789");
	assert_true(clock_ms() - began >= 200 + 2 * 70); /* bytes with the head */
	rogue_free(r);
}

/* A server that does not wait for the request's body. */
static void test_part_of_body(void **state UNUSED)
{
	static char big[8 * MIB + 1];
	struct rogue *r = start(true);
	struct visit v CLEANUP_VISIT = { 0 };
	struct rogue_request q;
	int fd = visit_dial(r);

	memset(big, 'b', sizeof(big) - 1);
	ROGUE_ADD(r, .path = "/early", .take_bytes = ROGUE_NOTHING, .action = ROGUE_ANSWER,
		  .reply = { .status = 413, .body = "too much" });
	ROGUE_ADD(r, .path = "/broken", .take_bytes = 100000, .action = ROGUE_CLOSE);
	ROGUE_ADD(r, .path = "/stuck", .take_bytes = 5, .hold_ms = ROGUE_UNTIL_RELEASED);
	visit_expect(r, "/early", big, 413, "too much");
	v = visit(r, "/broken", big);
	assert_true(v.code == CURLE_SEND_ERROR || v.code == CURLE_GOT_NOTHING ||
		    v.code == CURLE_RECV_ERROR);
	assert_true(rogue_request(r, 1, &q));
	assert_int_equal(q.body_total, 100000);
	assert_false(q.body_done);
	rogue_request_release(&q);
	visit_say(fd, "POST /stuck HTTP/1.1\r\nContent-Length: 8\r\n\r\n12345678");
	assert_true(rogue_wait_body(r, "POST", "/stuck", 5, LONG_MS));
	visit_silence(fd);
	assert_false(rogue_wait_body(r, "POST", "/stuck", 6, 0));
	rogue_release(r);
	assert_true(rogue_wait_body(r, "POST", "/stuck", 8, LONG_MS));
	close(fd);
	rogue_free(r);
}

/* ---- many at once ---- */

struct worker {
	pthread_t thread;
	struct rogue *rogue;
	const char *target;
	struct visit got;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->got = visit(w->rogue, w->target, NULL);
	return NULL;
}

static void begin(struct worker *w, struct rogue *r, const char *target)
{
	*w = (struct worker){ .rogue = r, .target = target };
	assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
}

static void test_in_flight(void **state UNUSED)
{
	struct rogue *r = start(true);
	struct worker workers[8];

	ROGUE_ADD(r, .path = "/held", .action = ROGUE_ANSWER, .reply = { .body = "free" },
		  .delay_ms = ROGUE_UNTIL_RELEASED);
	rogue_answer(r, NULL, "/quick", 200, "q");
	for (size_t i = 0; i < ARRAY_SIZE(workers); i++)
		begin(&workers[i], r, i % 2 ? "/held/a" : "/held/b");
	assert_true(rogue_wait_for(r, "GET", "/held", ARRAY_SIZE(workers), LONG_MS));
	for (int i = 0; i < 20; i++)
		visit_expect(r, "/quick", NULL, 200, "q");
	assert_int_equal(rogue_connections_open(r) >= ARRAY_SIZE(workers), true);
	rogue_release(r);
	for (size_t i = 0; i < ARRAY_SIZE(workers); i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].got.code, CURLE_OK);
		assert_string_equal(workers[i].got.body.data, "free");
		visit_release(&workers[i].got);
	}
	assert_int_equal(rogue_max_in_flight(r, "/held"), ARRAY_SIZE(workers));
	assert_int_equal(rogue_max_in_flight(r, "/held/a"), ARRAY_SIZE(workers) / 2);
	assert_int_equal(rogue_max_in_flight(r, "/quick"), 1);
	assert_int_equal(rogue_max_in_flight(r, "/other"), 0);
	assert_int_equal(rogue_max_in_flight(r, NULL), ARRAY_SIZE(workers) + 1);
	rogue_free(r);
}

/* Whatever its connections are doing, the server can be freed. */
static void test_free_while_busy(void **state UNUSED)
{
	static const char *const requests[] = {
		"",
		"GET /hal",
		"POST /half HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc",
		"GET /hold HTTP/1.1\r\n\r\n",
		"GET /delay HTTP/1.1\r\n\r\n",
		"GET /stall HTTP/1.1\r\n\r\n",
		"GET /endless HTTP/1.1\r\n\r\n",
		"GET /drip HTTP/1.1\r\n\r\n",
	};
	unsigned before = count_fds();

	for (int tcp = 0; tcp < 2; tcp++) {
		struct rogue *r = start(tcp);
		int fds[ARRAY_SIZE(requests)];
		int64_t began;

		ROGUE_ADD(r, .path = "/hold", .hold_ms = 3600000);
		ROGUE_ADD(r, .path = "/delay", .delay_ms = 3600000);
		ROGUE_ADD(r, .path = "/stall", .in_head = true, .fault = ROGUE_STALL);
		ROGUE_ADD(r, .path = "/endless", .action = ROGUE_ANSWER,
			  .reply = { .unit = "a", .units = ROGUE_FOREVER });
		ROGUE_ADD(r, .path = "/drip", .drip_ms = 3600000);
		for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
			fds[i] = visit_dial(r);
			visit_say(fds[i], requests[i]);
		}
		assert_true(rogue_wait_for(r, NULL, NULL, ARRAY_SIZE(requests) - 2, LONG_MS));
		began = clock_ms();
		rogue_free(r);
		assert_true(clock_ms() - began < LONG_MS);
		for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
			close(fds[i]);
	}
	assert_int_equal(count_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_chunked_request),
		cmocka_unit_test(test_large_request),
		cmocka_unit_test(test_not_http_from_client),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_reused_connection_closed),
		cmocka_unit_test(test_handler),
		cmocka_unit_test(test_framings),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_redirect),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_endless),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_close_and_reset),
		cmocka_unit_test(test_refuse),
		cmocka_unit_test(test_stop_listening),
		cmocka_unit_test(test_close_connections),
		cmocka_unit_test(test_stall),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_length_lies),
		cmocka_unit_test(test_delay_and_drip),
		cmocka_unit_test(test_part_of_body),
		cmocka_unit_test(test_in_flight),
		cmocka_unit_test(test_free_while_busy),
	};
	int failed;

	curl_global_init(CURL_GLOBAL_ALL);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	curl_global_cleanup();
	return failed;
}

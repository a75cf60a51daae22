/* Server-sent events: the rules of the format, and that no cut changes what is heard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sse.h"

/* What was heard, one line per event: [type|data|id], NUL as \0 and line ends as \n. */
struct ear {
	struct sse sse;
	struct buf heard;
	int fail;
};

static int hear(void *ctx, const struct sse_event *ev)
{
	struct ear *e = ctx;

	buf_printf(&e->heard, "[%s|", ev->type);
	for (size_t i = 0; i < ev->data_len; i++) {
		if (ev->data[i] == '\0')
			buf_puts(&e->heard, "\\0");
		else if (ev->data[i] == '\n')
			buf_puts(&e->heard, "\\n");
		else
			buf_putc(&e->heard, ev->data[i]);
	}
	assert_int_equal(ev->data[ev->data_len], '\0');
	buf_printf(&e->heard, "|%s]", ev->id);
	return e->fail;
}

static void ear_init(struct ear *e)
{
	*e = (struct ear){ .heard = BUF_INIT(0) };
	buf_puts(&e->heard, "");
	sse_init(&e->sse, hear, e);
}

static void ear_release(struct ear *e)
{
	sse_release(&e->sse);
	buf_release(&e->heard);
}

/* Feeds a copy of its own size, so that a sanitizer sees the first byte too many. */
static int feed(struct ear *e, const char *bytes, size_t len)
{
	char *copy = malloc(len ? len : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, bytes, len);
	r = sse_feed(&e->sse, copy, len);
	free(copy);
	return r;
}

static void expect(const char *stream, size_t len, const char *want)
{
	struct ear e CLEANUP(ear_release);

	ear_init(&e);
	assert_int_equal(feed(&e, stream, len), 0);
	assert_string_equal(e.heard.data, want);
}
/* Literals may hold NULs. */
#define EXPECT(stream, want) expect(stream, sizeof(stream) - 1, want)

static void rules(void **state)
{
	EXPECT("", "");
	EXPECT("data: a\n\n", "[message|a|]");
	EXPECT("data:a\n\n", "[message|a|]");
	EXPECT("data:  a\n\n", "[message| a|]"); /* one blank only */
	EXPECT("data: a\r\n\r\n", "[message|a|]");
	EXPECT("data: a\r\r", "[message|a|]");
	EXPECT("data: a\n\r", "[message|a|]");
	EXPECT("data: a\r\n\r", "[message|a|]");
	EXPECT("data: a\ndata: b\n\n", "[message|a\\nb|]");
	EXPECT("data: a:b: c\n\n", "[message|a:b: c|]");
	EXPECT("data\n\n", "[message||]");
	EXPECT("data:\n\n", "[message||]");
	EXPECT("data\ndata\n\n", "[message|\\n|]");
	EXPECT("event: x\ndata: a\n\ndata: b\n\n", "[x|a|][message|b|]");
	EXPECT("event: x\nevent:\ndata: a\n\n", "[message|a|]");
	EXPECT("event: x\nevent: y\ndata: a\n\n", "[y|a|]");
	EXPECT("event: x\n\ndata: a\n\n", "[message|a|]"); /* no data: no event */
	EXPECT("id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
	       "[message|a|1][message|b|1][message|c|]");
	EXPECT("id: 7\n\ndata: a\n\n", "[message|a|7]");
	EXPECT("id: 1\nid: 2\ndata: a\n\n", "[message|a|2]");
	EXPECT(": comment\ndata: a\n:data: b\n\n", "[message|a|]");
	EXPECT(": heartbeat\n\n", "");
	EXPECT(":\n\n\n\n", "");
	EXPECT("retry: 10\nother: x\n data: x\nDATA: x\nda: x\ndata2: x\ndata: a\n\n",
	       "[message|a|]");
	EXPECT("data: a", "");   /* unfinished */
	EXPECT("data: a\n", ""); /* unfinished */
	EXPECT("data: a\n\ndata: b\n", "[message|a|]");
}

static void byte_order_mark(void **state)
{
	EXPECT("\xef\xbb\xbf"
	       "data: a\n\n",
	       "[message|a|]");
	EXPECT("\xef\xbb\xbf\n\n", "");
	EXPECT("\xef\xbb\xbf\xef\xbb\xbf"
	       "data: a\n\n",
	       "");
	EXPECT("\n\xef\xbb\xbf"
	       "data: a\n\n",
	       "");
	EXPECT("\xef\xbb"
	       "data: a\n\n",
	       "");
}

static void nul_bytes(void **state)
{
	EXPECT("data: a\0b\n\n", "[message|a\\0b|]");
	EXPECT("id: 1\0\ndata: a\n\n", "[message|a|]");
	EXPECT("id: 1\nid: 2\0x\ndata: a\n\n", "[message|a|1]");
	EXPECT("event: x\0y\ndata: a\n\n", "[message|a|]");
	EXPECT("data\0: a\n\n", "");
}

static const char sample[] =
	"\xef\xbb\xbf: connected\r\n\r\n"
	"event: watch_started\ndata: {\"watcher_id\":\"abc\",\"path\":\"/d\"}\n\n"
	"id: abc:1\r\nevent: file_change\r\ndata: {\"seq\":1}\r\n\r\n"
	": heartbeat\n\n"
	"id:abc:2\revent:file_change\rdata:one\rdata\rdata: three\0\xff\r\r"
	"data: x\n\r\ndata: y\r\n\r\r\n\n\rretry: 5\nevent: overflow\ndata:\n\n"
	"id: half\nevent: a\ndata: half";
static const char sample_heard[] = "[watch_started|{\"watcher_id\":\"abc\",\"path\":\"/d\"}|]"
				   "[file_change|{\"seq\":1}|abc:1]"
				   "[file_change|one\\n\\nthree\\0\xff|abc:2]"
				   "[message|x|abc:2][message|y|abc:2][overflow||abc:2]";

static void whole_sample(void **state)
{
	expect(sample, sizeof(sample) - 1, sample_heard);
}

/* Every cut into two and every cut into three. */
static void splits(void **state)
{
	size_t len = sizeof(sample) - 1;

	for (size_t i = 0; i <= len; i++) {
		for (size_t k = i; k <= len; k++) {
			struct ear e CLEANUP(ear_release);

			ear_init(&e);
			assert_int_equal(sse_feed(&e.sse, sample, i), 0);
			assert_int_equal(sse_feed(&e.sse, sample + i, k - i), 0);
			assert_int_equal(sse_feed(&e.sse, sample + k, len - k), 0);
			assert_string_equal(e.heard.data, sample_heard);
		}
	}
}

static void pieces(void **state)
{
	for (size_t size = 1; size < sizeof(sample); size++) {
		struct ear e CLEANUP(ear_release);

		ear_init(&e);
		for (size_t at = 0; at < sizeof(sample) - 1; at += size)
			assert_int_equal(feed(&e, sample + at, MIN(size, sizeof(sample) - 1 - at)),
					 0);
		assert_string_equal(e.heard.data, sample_heard);
	}
}

static void reset_keeps_the_last_id_only(void **state)
{
	struct ear e CLEANUP(ear_release);

	ear_init(&e);
	assert_int_equal(sse_feed(&e.sse, "id: 1\ndata: a\n\n", 15), 0);
	/* an event whose id came and whose end did not: it has to come again */
	assert_int_equal(sse_feed(&e.sse, "id: 2\nevent: x\ndata: b\nda\r", 26), 0);
	sse_reset(&e.sse);
	/* this line feed is not the rest of the old stream's line end, so the mark comes late */
	assert_int_equal(sse_feed(&e.sse,
				  "\n\xef\xbb\xbf"
				  "data: late\n\n",
				  16),
			 0);
	sse_reset(&e.sse);
	assert_int_equal(sse_feed(&e.sse,
				  "\xef\xbb\xbf"
				  "data: c\n\n",
				  12),
			 0);
	assert_string_equal(e.heard.data, "[message|a|1][message|c|1]");
}

static void errors_of_the_callback(void **state)
{
	static const int errors[] = { -EFBIG, -ECANCELED };

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		struct ear e CLEANUP(ear_release);

		ear_init(&e);
		e.fail = errors[i];
		assert_int_equal(sse_feed(&e.sse, "data: a\n\ndata: b\n\n", 18), errors[i]);
		assert_string_equal(e.heard.data, "[message|a|]");
		e.fail = 0;
		sse_reset(&e.sse);
		assert_int_equal(sse_feed(&e.sse, "data: c\n\n", 9), 0);
		assert_string_equal(e.heard.data, "[message|a|][message|c|]");
	}
}

static int hear_and_vanish(void *ctx, const struct sse_event *ev)
{
	struct sse *s = ctx;

	sse_release(s);
	memset(s, 0xaa, sizeof(*s));
	free(s);
	return -ECANCELED;
}

static void the_callback_may_end_it(void **state)
{
	struct sse *s = malloc(sizeof(*s));

	assert_non_null(s);
	sse_init(s, hear_and_vanish, s);
	assert_int_equal(sse_feed(s, "id: 1\ndata: a\n\ndata: b\n\n", 24), -ECANCELED);
}

static int count(void *ctx, const struct sse_event *ev)
{
	size_t *len = ctx;

	*len = ev->data_len;
	return 0;
}

/* Feeds n times c in pieces. */
static int feed_many(struct sse *s, char c, size_t n)
{
	char piece[4096];
	int r = 0;

	memset(piece, c, sizeof(piece));
	for (; n > 0 && r == 0; n -= MIN(n, sizeof(piece)))
		r = sse_feed(s, piece, MIN(n, sizeof(piece)));
	return r;
}

static void lines_have_a_cap(void **state)
{
	static const char *const starts[] = { "data:", "event:", "id:", ":", "x", "" };

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		size_t len = 0, start = strlen(starts[i]);
		struct sse s CLEANUP(sse_release);

		sse_init(&s, count, &len);
		assert_int_equal(sse_feed(&s, starts[i], start), 0);
		assert_int_equal(feed_many(&s, 'x', SSE_MAX - start), 0);
		assert_int_equal(sse_feed(&s, "\n\n", 2), 0);
		assert_int_equal(len, i == 0 ? SSE_MAX - start : 0);
		assert_int_equal(sse_feed(&s, starts[i], start), 0);
		assert_int_equal(feed_many(&s, 'x', SSE_MAX - start + 1), -EMSGSIZE);
		assert_int_equal(sse_feed(&s, "\n\n", 2), -EMSGSIZE);
		sse_reset(&s);
		assert_int_equal(sse_feed(&s, "data: ok\n\n", 10), 0);
		assert_int_equal(len, 2);
	}
}

static void events_have_a_cap(void **state)
{
	struct sse s CLEANUP(sse_release);
	size_t len = 0;

	sse_init(&s, count, &len);
	/* 1023 bytes and a line end, 1024 times: the last end does not count */
	for (int i = 0; i < 1024; i++) {
		assert_int_equal(sse_feed(&s, "data:", 5), 0);
		assert_int_equal(feed_many(&s, 'x', 1023), 0);
		assert_int_equal(sse_feed(&s, "\n", 1), 0);
	}
	assert_int_equal(sse_feed(&s, "\n", 1), 0);
	assert_int_equal(len, SSE_MAX - 1);
	assert_int_equal(sse_feed(&s, "data:", 5), 0);
	assert_int_equal(feed_many(&s, 'x', SSE_MAX - 5), 0);
	assert_int_equal(sse_feed(&s, "\ndata: 12345\n", 13), -EMSGSIZE);
	sse_reset(&s);
	assert_int_equal(sse_feed(&s, "data:", 5), 0);
	assert_int_equal(feed_many(&s, 'x', SSE_MAX - 5), 0);
	assert_int_equal(sse_feed(&s, "\ndata: 1234\n\n", 13), 0);
	assert_int_equal(len, SSE_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules),
		cmocka_unit_test(byte_order_mark),
		cmocka_unit_test(nul_bytes),
		cmocka_unit_test(whole_sample),
		cmocka_unit_test(splits),
		cmocka_unit_test(pieces),
		cmocka_unit_test(reset_keeps_the_last_id_only),
		cmocka_unit_test(errors_of_the_callback),
		cmocka_unit_test(the_callback_may_end_it),
		cmocka_unit_test(lines_have_a_cap),
		cmocka_unit_test(events_have_a_cap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sandbox_read_file, _write_file, _append, _update_file: whole files in one request. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "io.h"

enum { WRITE_MAX = 32 * 1024 * 1024 };

/* ---- this side of the files ---- */

static void put(const struct fixture *f, const char *name, const char *text)
{
	int fd CLEANUP_FD = open(fixture_host_path(f, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
}

static bool exists(const struct fixture *f, const char *name)
{
	return access(fixture_host_path(f, name), F_OK) == 0;
}

/* Reads the whole file; to be freed. */
static char *get(const struct fixture *f, const char *name, size_t *ret_len)
{
	int fd CLEANUP_FD = open(fixture_host_path(f, name), O_RDONLY);
	struct buf b = BUF_INIT(0);
	ssize_t n;

	assert_true(fd >= 0);
	do {
		assert_int_equal(buf_reserve(&b, 65536), 0);
		n = read(fd, b.data + b.len, 65536);
		assert_true(n >= 0);
		b.len += (size_t)n;
	} while (n > 0);
	b.data[b.len] = '\0';
	*ret_len = b.len;
	return b.data;
}

static void assert_content(const struct fixture *f, const char *name, const void *bytes, size_t len)
{
	size_t got_len;
	char *got CLEANUP_FREE = get(f, name, &got_len);

	assert_int_equal(got_len, len);
	if (len > 0)
		assert_memory_equal(got, bytes, len);
}

/* ---- read ---- */

static void test_read_file_forwards_requested_line_range(void **state)
{
	struct fixture *f = *state;
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	struct rogue_request q;

	put(f, "lines", "one\ntwo\nthree\nfour\n");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "lines"), 2, 3, &text), 0);
	assert_string_equal(text.data, "two\nthree");
	assert_true(rogue_request(f->rogue, 0, &q));
	assert_string_equal(q.target, "/v1/file/read");
	assert_non_null(strstr(q.body, "\"start_line\":1,"));
	assert_non_null(strstr(q.body, "\"end_line\":3}"));
	rogue_request_release(&q);
}

static void test_read_file_without_a_range_is_the_whole(void **state)
{
	struct fixture *f = *state;
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	struct rogue_request q;

	put(f, "gr\xc3\xbc\xc3\x9f", "h\xc3\xa4llo\n\x01 \"\\\n");
	assert_int_equal(
		SYNC(f->sb, sandbox_read_file, fixture_path(f, "gr\xc3\xbc\xc3\x9f"), 0, 0, &text),
		0);
	assert_string_equal(text.data, "h\xc3\xa4llo\n\x01 \"\\\n");
	assert_true(rogue_request(f->rogue, 0, &q));
	assert_null(strstr(q.body, "_line"));
	rogue_request_release(&q);
}

static void test_read_file_of_half_a_range(void **state)
{
	struct fixture *f = *state;
	const char *path;
	struct buf from CLEANUP_BUF = BUF_INIT(0), to CLEANUP_BUF = BUF_INIT(0);
	struct buf none CLEANUP_BUF = BUF_INIT(0);

	put(f, "lines", "one\ntwo\nthree\n");
	path = fixture_path(f, "lines");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, path, 3, 0, &from), 0);
	assert_string_equal(from.data, "three");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, path, 0, 1, &to), 0);
	assert_string_equal(to.data, "one");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, path, 3, 2, &none), -EINVAL);
	assert_int_equal(SYNC(f->sb, sandbox_read_file, path, -1, 2, &none), -EINVAL);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 2);
	assert_null(none.data);
}

/* Appends to what is there, as far as the buffer's cap allows. */
static void test_read_file_keeps_to_the_buffer(void **state)
{
	struct fixture *f = *state;
	struct buf text CLEANUP_BUF = BUF_INIT(12);

	put(f, "ten", "0123456789");
	assert_int_equal(buf_puts(&text, "a:"), 0);
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "ten"), 0, 0, &text), 0);
	assert_string_equal(text.data, "a:0123456789");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "ten"), 0, 0, &text),
			 -EFBIG);
	assert_string_equal(text.data, "a:0123456789");
	assert_int_equal(text.error, 0);
}

static void test_read_file_with_nul_in_it(void **state)
{
	struct fixture *f = *state;
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	rogue_answer(f->rogue, "POST", "/v1/file/read", 200,
		     "{\"success\":true,\"data\":{\"content\":\"a\\u0000b\",\"file\":\"x\"}}");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "x"), 0, 0, &text), 0);
	assert_int_equal(text.len, 3);
	assert_memory_equal(text.data, "a\0b", 3);
}

static void test_read_file_errors(void **state)
{
	struct fixture *f = *state;
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "gone"), 0, 0, &text),
			 -ENOENT);
	assert_int_equal(SYNC(f->sb, sandbox_read_file, f->dir, 0, 0, &text), -EISDIR);
	put(f, "latin1", "\xe4\xf6\xfc\n");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "latin1"), 0, 0, &text),
			 -EILSEQ);
	rogue_answer(f->rogue, "POST", "/v1/file/read", 200, "{\"success\":true,\"data\":{}}");
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, "x"), 0, 0, &text),
			 -EBADMSG);
	assert_null(text.data);
}

/* ---- write, append, update ---- */

typedef void (*write_fn)(struct sandbox *, struct call *, const char *, const void *, size_t);

static const write_fn writers[] = { sandbox_write_file, sandbox_append, sandbox_update_file };

static void test_every_byte_is_written(void **state)
{
	struct fixture *f = *state;
	char bytes[70000];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 31 + i / 256);
	for (size_t w = 0; w < ARRAY_SIZE(writers); w++) {
		static const size_t lengths[] = { 0, 1, 2, 3, 256, sizeof(bytes) };

		for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
			char name[32];

			snprintf(name, sizeof(name), "f%zu-%zu", w, i);
			assert_int_equal(
				SYNC(f->sb, writers[w], fixture_path(f, name), bytes, lengths[i]),
				0);
			assert_content(f, name, bytes, lengths[i]);
		}
	}
}

static void test_write_file_replaces_and_append_adds(void **state)
{
	struct fixture *f = *state;
	const char *path = fixture_path(f, "x");

	assert_int_equal(SYNC(f->sb, sandbox_write_file, path, "long one", 8), 0);
	assert_int_equal(SYNC(f->sb, sandbox_write_file, path, "short", 5), 0);
	assert_content(f, "x", "short", 5);
	assert_int_equal(SYNC(f->sb, sandbox_append, path, "er", 2), 0);
	assert_content(f, "x", "shorter", 7);
	assert_int_equal(SYNC(f->sb, sandbox_update_file, path, "new", 3), 0);
	assert_content(f, "x", "new", 3);
	assert_int_equal(SYNC(f->sb, sandbox_write_file, fixture_path(f, "a/b/c"), "deep", 4), 0);
	assert_content(f, "a/b/c", "deep", 4);
}

/* A reader that has the old file open keeps it; the mode stays. */
static void test_update_file_is_whole_or_not_at_all(void **state)
{
	struct fixture *f = *state;
	int fd CLEANUP_FD = -1;
	char old[8] = "";
	struct stat st;

	put(f, "x", "old");
	assert_int_equal(chmod(fixture_host_path(f, "x"), 0751), 0);
	fd = open(fixture_host_path(f, "x"), O_RDONLY);
	assert_int_equal(SYNC(f->sb, sandbox_update_file, fixture_path(f, "x"), "newer", 5), 0);
	assert_int_equal(pread(fd, old, sizeof(old), 0), 3);
	assert_string_equal(old, "old");
	assert_content(f, "x", "newer", 5);
	assert_int_equal(stat(fixture_host_path(f, "x"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);

	rogue_add(f->rogue, &(struct rogue_rule){ .method = "POST",
						  .path = "/v1/file/upload",
						  .take_bytes = 1,
						  .action = ROGUE_CLOSE });
	assert_true(SYNC(f->sb, sandbox_update_file, fixture_path(f, "x"), "worse", 5) < 0);
	assert_content(f, "x", "newer", 5);
}

static void test_odd_names_are_written(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = { " ",   "a b", "'\"\\$`", "new\nline", "\xe2\x82\xac",
					     "*?[", "-rf" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		for (size_t w = 0; w < ARRAY_SIZE(writers); w++) {
			assert_int_equal(SYNC(f->sb, writers[w], fixture_path(f, names[i]), "x", 1),
					 0);
			assert_true(exists(f, names[i]));
		}
	}
}

static void test_names_that_are_not_utf8_are_exact(void **state)
{
	struct fixture *f = *state;
	static const char name[] = "caf\xe9 \xff";
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	assert_int_equal(SYNC(f->sb, sandbox_write_file, fixture_path(f, name), "one\n", 4), 0);
	assert_content(f, name, "one\n", 4);
	assert_int_equal(SYNC(f->sb, sandbox_append, fixture_path(f, name), "two\n", 4), 0);
	assert_content(f, name, "one\ntwo\n", 8);
	assert_int_equal(SYNC(f->sb, sandbox_read_file, fixture_path(f, name), 2, 2, &text), 0);
	assert_string_equal(text.data, "two");
	assert_int_equal(SYNC(f->sb, sandbox_update_file, fixture_path(f, name), "new", 3), 0);
	assert_content(f, name, "new", 3);
}

static void test_contents_over_the_cap_are_refused(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = calloc(1, WRITE_MAX + 1);
	struct call call;

	assert_non_null(bytes);
	for (size_t w = 0; w < 2; w++) {
		call_init(&call, 30000);
		writers[w](f->sb, &call, fixture_path(f, "x"), bytes, WRITE_MAX + 1);
		assert_int_equal(call_wait(&call), -EFBIG);
		assert_non_null(strstr(call.message, "use an upload"));
		call_release(&call);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
	memset(bytes, 'x', WRITE_MAX);
	/* With sanitizers, on a busy machine, that much JSON takes a while. */
	assert_int_equal(
		SYNC_MS(120000, f->sb, sandbox_write_file, fixture_path(f, "x"), bytes, WRITE_MAX),
		0);
	assert_content(f, "x", bytes, WRITE_MAX);
}

static void test_paths_outside_the_view_are_refused(void **state)
{
	struct fixture *f = *state;
	static const char *const paths[] = { "/etc/passwd", "/mnt/user-data/../x", "x",
					     "/mnt/user-data/a\\..\\b", "/mnt/user-data2/x" };
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		int err = paths[i][0] == '/' ? -EACCES : -EINVAL;

		assert_int_equal(SYNC(f->sb, sandbox_read_file, paths[i], 0, 0, &text), err);
		for (size_t w = 0; w < ARRAY_SIZE(writers); w++)
			assert_int_equal(SYNC(f->sb, writers[w], paths[i], "x", 1), err);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 0);
}

/* ---- parallel appends ---- */

enum { APPENDERS = 4, APPENDS = 25 };

struct appender {
	struct sandbox *sb;
	const char *path;
	int number;
	int error;
};

static void *append_lines(void *arg)
{
	struct appender *a = arg;

	for (int i = 0; i < APPENDS && a->error == 0; i++) {
		char line[32];
		struct call call;

		snprintf(line, sizeof(line), "writer %d line %d\n", a->number, i);
		call_init(&call, 30000);
		sandbox_append(a->sb, &call, a->path, line, strlen(line));
		a->error = call_wait(&call);
		call_release(&call);
	}
	return NULL;
}

/* Two clients, two threads each. */
static void test_append_should_preserve_both_parallel_writes(void **state)
{
	struct fixture *f = *state;
	struct sandbox *other = fixture_open(f, NULL);
	struct appender a[APPENDERS];
	pthread_t threads[APPENDERS];
	char *text CLEANUP_FREE = NULL;
	size_t len, newlines = 0;

	put(f, "log", "begin\n");
	for (int i = 0; i < APPENDERS; i++) {
		a[i] = (struct appender){ i % 2 ? other : f->sb, fixture_path(f, "log"), i, 0 };
		a[i].path = strdup(a[i].path);
		assert_int_equal(pthread_create(&threads[i], NULL, append_lines, &a[i]), 0);
	}
	for (int i = 0; i < APPENDERS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(a[i].error, 0);
		free((char *)a[i].path);
	}
	text = get(f, "log", &len);
	for (size_t i = 0; i < len; i++)
		newlines += text[i] == '\n';
	assert_int_equal(newlines, 1 + APPENDERS * APPENDS);
	for (int i = 0; i < APPENDERS; i++) {
		for (int k = 0; k < APPENDS; k++) {
			char line[32];

			snprintf(line, sizeof(line), "\nwriter %d line %d\n", i, k);
			assert_non_null(strstr(text, line));
		}
	}
	sandbox_unref(other);
}

/* The connection breaks after the server has done it: it must not be done again. */
static void test_append_and_write_are_never_sent_twice(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(SYNC(f->sb, sandbox_ping), 0); /* a connection to reuse */
	for (size_t w = 0; w < 2; w++) {
		char name[16];

		snprintf(name, sizeof(name), "f%zu", w);
		rogue_clear(f->rogue);
		rogue_add(f->rogue, &(struct rogue_rule){ .path = "/v1/file/write",
							  .times = 1,
							  .action = ROGUE_REPLACE,
							  .fault = ROGUE_CUT,
							  .in_head = true });
		assert_int_equal(SYNC(f->sb, writers[w], fixture_path(f, name), "x", 1),
				 -ECONNRESET);
		assert_content(f, name, "x", 1);
		assert_int_equal(rogue_count(f->rogue, "POST", "/v1/file/write"), w + 1);
	}
}

/* The same when the server has gone: "refused" would say that it was never sent. */
static void test_what_was_sent_is_not_refused(void **state)
{
	struct fixture *f = *state;
	const char *path = fixture_path(f, "x");

	assert_int_equal(SYNC(f->sb, sandbox_ping), 0); /* a connection to reuse */
	rogue_stop_listening(f->rogue);
	ROGUE_ADD(f->rogue, .path = "/v1/file/write", .action = ROGUE_REPLACE, .fault = ROGUE_CUT,
		  .in_head = true);
	assert_int_equal(SYNC(f->sb, sandbox_write_file, path, "x", 1), -ECONNRESET);
	assert_content(f, "x", "x", 1);
	assert_int_equal(SYNC(f->sb, sandbox_write_file, path, "y", 1), -ECONNREFUSED);
	rogue_listen(f->rogue);
}

/* ---- failures of all ---- */

static void begin_read(struct fixture *f, struct call *call)
{
	static struct buf never;

	sandbox_read_file(f->sb, call, fixture_path(f, "x"), 0, 0, &never);
}

static void begin_write(struct fixture *f, struct call *call)
{
	sandbox_write_file(f->sb, call, fixture_path(f, "x"), "new", 3);
}

static void begin_append(struct fixture *f, struct call *call)
{
	sandbox_append(f->sb, call, fixture_path(f, "x"), "new", 3);
}

static void begin_update(struct fixture *f, struct call *call)
{
	sandbox_update_file(f->sb, call, fixture_path(f, "x"), "new", 3);
}

static const struct {
	void (*begin)(struct fixture *, struct call *);
	const char *route;
} operations[] = {
	{ begin_read, "/v1/file/read" },
	{ begin_write, "/v1/file/write" },
	{ begin_append, "/v1/file/write" },
	{ begin_update, "/v1/file/upload" },
};

static const struct failure {
	struct rogue_rule rule;
	int err;
} failures[] = {
	{ { .action = ROGUE_ANSWER, .reply = { .status = 500, .body = "{}" } }, -EIO },
	{ { .action = ROGUE_ANSWER,
	    .reply = { .status = 500,
		       .body = "{\"success\":false,\"message\":\"Failed to do it: [Errno 122] Disk "
			       "quota exceeded\",\"data\":null}" } },
	  -EDQUOT },
	{ { .action = ROGUE_ANSWER,
	    .reply = { .body = "{\"success\":false,\"message\":\"no\",\"data\":{\"errno\":28}}" } },
	  -ENOSPC },
	{ { .action = ROGUE_ANSWER, .reply = { .body = "<html>" } }, -EBADMSG },
	{ { .action = ROGUE_ANSWER, .reply = { .body = "{}" }, .length_lie = 10 }, -EIO },
	{ { .action = ROGUE_ANSWER, .reply = { .raw = "garbage\r\n\r\n" } }, -EBADMSG },
	{ { .action = ROGUE_CLOSE }, -ECONNRESET },
	{ { .action = ROGUE_ANSWER, .fault = ROGUE_STALL, .in_head = true }, -ETIMEDOUT },
};

static void test_failures_are_errnos(void **state)
{
	struct fixture *f = *state;

	put(f, "x", "old");
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(operations); k++) {
			struct rogue_rule rule = failures[i].rule;
			struct call call;

			rule.path = operations[k].route;
			rogue_clear(f->rogue);
			rogue_add(f->rogue, &rule);
			call_init(&call, failures[i].err == -ETIMEDOUT ? 1000 : 30000);
			operations[k].begin(f, &call);
			assert_int_equal(call_wait(&call), failures[i].err);
			call_release(&call);
		}
	}
	assert_content(f, "x", "old", 3);
}

static void stop(struct fixture *f, size_t i, bool by_close)
{
	struct call call;
	int64_t start;

	rogue_forget(f->rogue);
	rogue_clear(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){ .hold_ms = ROGUE_UNTIL_RELEASED });
	call_init(&call, 0);
	operations[i].begin(f, &call);
	assert_true(rogue_wait_for(f->rogue, NULL, NULL, 1, 10000));
	start = clock_ms();
	if (by_close)
		sandbox_close(f->sb);
	else
		call_cancel(&call);
	assert_int_equal(call_wait(&call), by_close ? -ENOTCONN : -ECANCELED);
	assert_true(clock_ms() - start < 8000); /* as in test_life.c */
	call_release(&call);
}

static void test_cancelled_from_another_thread(void **state)
{
	struct fixture *f = *state;

	put(f, "x", "old");
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
		stop(f, i, false);
	rogue_clear(f->rogue);
	assert_content(f, "x", "old", 3);
	assert_int_equal(SYNC(f->sb, sandbox_write_file, fixture_path(f, "x"), "new", 3), 0);
}

static void test_closed_meanwhile(void **state)
{
	struct fixture *f = *state;

	put(f, "x", "old");
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		stop(f, i, true);
		assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
		sandbox_unref(f->sb);
		f->sb = fixture_open(f, NULL);
	}
	assert_content(f, "x", "old", 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_read_file_forwards_requested_line_range),
		FIXTURE_TEST(test_read_file_without_a_range_is_the_whole),
		FIXTURE_TEST(test_read_file_of_half_a_range),
		FIXTURE_TEST(test_read_file_keeps_to_the_buffer),
		FIXTURE_TEST(test_read_file_with_nul_in_it),
		FIXTURE_TEST(test_read_file_errors),
		FIXTURE_TEST(test_every_byte_is_written),
		FIXTURE_TEST(test_write_file_replaces_and_append_adds),
		FIXTURE_TEST(test_update_file_is_whole_or_not_at_all),
		FIXTURE_TEST(test_odd_names_are_written),
		FIXTURE_TEST(test_names_that_are_not_utf8_are_exact),
		FIXTURE_TEST(test_contents_over_the_cap_are_refused),
		FIXTURE_TEST(test_paths_outside_the_view_are_refused),
		FIXTURE_TEST(test_append_should_preserve_both_parallel_writes),
		FIXTURE_TEST(test_append_and_write_are_never_sent_twice),
		FIXTURE_TEST(test_what_was_sent_is_not_refused),
		FIXTURE_TEST(test_failures_are_errnos),
		FIXTURE_TEST(test_cancelled_from_another_thread),
		FIXTURE_TEST(test_closed_meanwhile),
	};

	return FIXTURE_RUN(tests);
}

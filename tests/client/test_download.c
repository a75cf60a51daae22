/* sandbox_download: bytes, parts, versions, pauses, and servers that get it wrong. */
#include "transfer.h"

#include <sys/mman.h>

static const char route[] = "/v1/file/download";

static int download(struct fixture *f, const char *path, const struct download *how)
{
	return SYNC(f->sb, sandbox_download, path, how);
}

/* A whole file, compared. */
static void expect_file(struct fixture *f, const char *name, const char *bytes, size_t len)
{
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	assert_int_equal(download(f, fixture_path(f, name), &how), 0);
	assert_true(reader_has(&r, bytes, len));
	assert_int_equal(r.heads, 1);
	assert_int_equal(r.head.size, len);
}

/* ---- plain ---- */

static void test_returns_concatenated_bytes(void **state)
{
	struct fixture *f = *state;
	size_t len = 3 * MIB + 17;
	char *bytes CLEANUP_FREE = make_content(len, 1);

	put_file(fixture_host_path(f, "x"), bytes, len);
	expect_file(f, "x", bytes, len);
}

static void test_returns_empty_bytes_for_empty_file(void **state)
{
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "x"), "", 0);
	expect_file(f, "x", "", 0);
}

static void test_single_chunk(void **state)
{
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "x"), "hello", 5);
	expect_file(f, "x", "hello", 5);
}

static void test_names_with_blanks_and_signs(void **state)
{
	static const char *const names[] = { "a b",         "50%",
					     "a?b#c&d=e+f", "\xc3\xa9\xe2\x82\xac",
					     "'\"$`\\",     "line\nbreak",
					     "*[a]?" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		put_file(fixture_host_path(f, names[i]), names[i], strlen(names[i]));
		expect_file(f, names[i], names[i], strlen(names[i]));
	}
}

/* Names that no request can carry: by way of a link, which goes away again. */
static void test_names_that_are_not_utf8(void **state)
{
	static const char *const names[] = { "\xff", "a\x80z", "\xc0\x80", "\xed\xa0\x80", "\xc3" };
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		put_file(fixture_host_path(f, names[i]), names[i], strlen(names[i]));
		expect_file(f, names[i], names[i], strlen(names[i]));
	}
	assert_int_equal(download(f, fixture_path(f, "\xfe"), &how), -ENOENT);
	WAIT_UNTIL(count_aliases(f) == 0);
}

/* ---- what is refused ---- */

/* Runs it with stderr in a file. Returns what was said there, to be freed. */
static char *refuse_quietly(struct fixture *f, const char *path, int expected)
{
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	int saved = dup(STDERR_FILENO), fd = memfd_create("stderr", MFD_CLOEXEC), result;
	char *said = calloc(1, 4096);

	assert_true(saved >= 0 && fd >= 0 && said);
	fflush(stderr);
	dup2(fd, STDERR_FILENO);
	result = download(f, path, &how);
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_true(pread(fd, said, 4095, 0) >= 0);
	close(fd);
	if (result != expected)
		fail_msg("%s: %d", path, result);
	assert_int_equal(r.heads, 0);
	return said;
}

static void test_rejects_path_outside_virtual_prefix_and_logs_error(void **state)
{
	static const char *const paths[] = { "/etc/passwd", "/mnt/user-database", "/mnt", "/",
					     "/home/../etc/passwd" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		char *said CLEANUP_FREE = refuse_quietly(f, paths[i], -EACCES);

		assert_non_null(strstr(said, "error"));
		assert_non_null(strstr(said, paths[i]));
	}
	assert_int_equal(rogue_connections_total(f->rogue), 0);
}

static void test_rejects_path_traversal(void **state)
{
	static const char *const paths[] = {
		"/mnt/user-data/../../etc/passwd", "/mnt/user-data/..",
		"/mnt/user-data/a/../b",           "/mnt/user-data/workspace/../../../etc/shadow",
		"/mnt/user-data/..\\etc",          "/mnt/user-data\\..\\..\\etc\\passwd",
		"/mnt/user-data/a\\..\\b",         "/mnt/user-data/a/..\\",
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		char *said CLEANUP_FREE = refuse_quietly(f, paths[i], -EACCES);

		assert_non_null(strstr(said, "error"));
	}
	assert_int_equal(rogue_connections_total(f->rogue), 0);
}

/* ---- errors of the server ---- */

static void test_raises_oserror_on_client_error(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call call;

	call_init(&call, 30000);
	sandbox_download(f->sb, &call, fixture_path(f, "none"), &how);
	assert_int_equal(call_wait(&call), -ENOENT);
	assert_non_null(strstr(call.message, "File does not exist"));
	call_release(&call);
	assert_int_equal(download(f, f->dir, &how), -EISDIR);
	assert_int_equal(mkfifo(fixture_host_path(f, "pipe"), 0644), 0);
	assert_int_equal(download(f, fixture_path(f, "pipe"), &how), -EISDIR);
	assert_int_equal(r.heads, 0);
	assert_int_equal(r.total, 0);
}

static void test_preserves_oserror_from_client(void **state)
{
	static const struct {
		int status;
		const char *body;
		int err;
	} answers[] = {
		{ 500,
		  "{\"success\":false,\"message\":\"Failed to open file for download: [Errno 13] "
		  "Permission denied: 'x'\",\"data\":null}",
		  -EACCES },
		{ 500, "{\"success\":false,\"message\":\"boom\",\"data\":{\"errno\":5}}", -EIO },
		{ 500, "{\"success\":false,\"message\":\"x\",\"data\":{\"errno\":36}}",
		  -ENAMETOOLONG },
		{ 409,
		  "{\"success\":false,\"message\":\"File changed before download "
		  "started\",\"data\":"
		  "{\"path\":\"x\",\"change_policy\":\"abort\",\"phase\":\"before_start\"}}",
		  -ESTALE },
		{ 401, "{}", -EACCES },
		{ 404, "<html>nginx</html>", -EOPNOTSUPP },
		{ 500, "\xff\xfe garbage {[", -EIO },
		{ 204, "", -EBADMSG },
		{ 302, "", -EPROTO },
		{ 416, "", -EINVAL }, /* no range was asked for */
	};
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		int result;

		rogue_clear(f->rogue);
		rogue_add(f->rogue,
			  &(struct rogue_rule){ .path = route,
						.action = ROGUE_ANSWER,
						.reply = {
							.status = answers[i].status,
							.headers = "Location: /elsewhere\r\n",
							.body = answers[i].body,
						} });
		result = download(f, fixture_path(f, "x"), &how);
		if (result != answers[i].err)
			fail_msg("%d %s: %d", answers[i].status, answers[i].body, result);
	}
	assert_int_equal(r.heads, 0);
	assert_int_equal(rogue_count(f->rogue, NULL, "/elsewhere"), 0);
}

/* ---- parts ---- */

static uint64_t min64(uint64_t a, uint64_t b)
{
	return MIN(a, b);
}

static void expect_part(struct fixture *f, const char *bytes, size_t size, uint64_t offset,
			uint64_t length)
{
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	uint64_t first = min64(offset, size), want = length ?: UINT64_MAX;
	int result;

	how.offset = offset;
	how.length = length;
	result = download(f, fixture_path(f, "x"), &how);
	if (result || !reader_has(&r, bytes + first, min64(want, size - first)) || r.heads != 1)
		fail_msg("%llu+%llu: %d, %zu bytes, %u heads", (unsigned long long)offset,
			 (unsigned long long)length, result, r.bytes.len, r.heads);
	assert_int_equal(r.head.size, size);
}

static void expect_parts(struct fixture *f, size_t size)
{
	char *bytes CLEANUP_FREE = make_content(size, 2);
	uint64_t offsets[] = { 0,        1,    4096,     16384,      size / 2,
			       size - 1, size, size + 1, UINT32_MAX, INT64_MAX };
	uint64_t lengths[] = { 0, 1, 4096, 16385, size - 1, size, size + 1, UINT64_MAX };

	put_file(fixture_host_path(f, "x"), bytes, size);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		for (size_t k = 0; k < ARRAY_SIZE(lengths); k++)
			expect_part(f, bytes, size, offsets[i], lengths[k]);
}

static void test_parts_of_a_file(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	expect_parts(f, 20000);
	expect_parts(f, 1 * MIB + 5);
	put_file(fixture_host_path(f, "x"), "", 0);
	expect_part(f, "", 0, 0, 0);
	expect_part(f, "", 0, 0, 10);
	expect_part(f, "", 0, 5, 0);
	how.offset = (uint64_t)INT64_MAX + 1;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EINVAL);
	how.offset = 5;
	assert_int_equal(download(f, fixture_path(f, "none"), &how), -ENOENT);
}

/* The header of the i-th request, to be freed; NULL if it has none. */
static char *header_of(struct fixture *f, size_t i, const char *name)
{
	struct rogue_request q;
	char *value;

	assert_true(rogue_request(f->rogue, i, &q));
	value = rogue_header(&q, name);
	rogue_request_release(&q);
	return value;
}

/* Asked for where it may work, and not again where it does not. */
static void test_range_is_used_but_not_assumed(void **state)
{
	struct fixture *f = *state;
	bool has_ranges = f->has_bash;
	char *bytes CLEANUP_FREE = make_content(100000, 3), *first CLEANUP_FREE = NULL,
		    *second CLEANUP_FREE = NULL;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	put_file(fixture_host_path(f, "x"), bytes, 100000);
	how.offset = 50000;
	how.length = 1000;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
	assert_true(reader_has(&r, bytes + 50000, 1000));
	assert_int_equal(r.head.ranged, has_ranges);
	first = header_of(f, 0, "Range");
	assert_string_equal(first, "bytes=50000-50999");
	rogue_forget(f->rogue);
	buf_reset(&r.bytes);
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
	assert_true(reader_has(&r, bytes + 50000, 1000));
	second = header_of(f, 0, "Range");
	if (has_ranges)
		assert_string_equal(second, "bytes=50000-50999");
	else
		assert_null(second);
}

/* Answers that do not fit the question. */
static void expect_bad_part(struct fixture *f, int status, const char *headers, int err)
{
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	int result;

	rogue_clear(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){ .path = route,
						  .action = ROGUE_ANSWER,
						  .reply = { .status = status,
							     .headers = headers,
							     .body = "0123456789" } });
	how.offset = 5;
	how.length = 10;
	result = download(f, fixture_path(f, "x"), &how);
	if (result != err)
		fail_msg("%s: %d", headers, result);
	assert_int_equal(r.total, 0);
}

static void test_lying_ranges(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	expect_bad_part(f, 206, "Content-Range: bytes 4-13/20\r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Range: bytes 6-15/20\r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Range: bytes 5-4/20\r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Range: bytes 5-25/20\r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Range: bytes -5-14/20\r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Range: lines 5-14/20\r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Range: \r\n", -EBADMSG);
	expect_bad_part(f, 206, "Content-Type: multipart/byteranges; boundary=x\r\n", -EBADMSG);
	expect_bad_part(f, 416, "Content-Range: bytes */20\r\n", -EBADMSG);
	put_file(fixture_host_path(f, "x"), "0123456789abcdefghij", 20);
	expect_bad_part(f, 416, "Content-Type: text/plain\r\n", -ESTALE);
	expect_bad_part(f, 206, "Content-Range: bytes 5-9/10\r\n", -EBADMSG); /* and five more */
	/* unasked */
	rogue_clear(f->rogue);
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = route,
					.action = ROGUE_ANSWER,
					.reply = { .status = 206,
						   .headers = "Content-Range: bytes 0-9/20\r\n",
						   .body = "0123456789" } });
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EBADMSG);
	assert_int_equal(r.total, 0);
}

/* A part that is shorter than what was asked for, though the file goes on. */
static void test_part_that_ends_early(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	put_file(fixture_host_path(f, "x"), "0123456789abcdefghij", 20);
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = route,
					.action = ROGUE_ANSWER,
					.reply = { .status = 206,
						   .headers = "Content-Range: bytes 5-7/20\r\n",
						   .body = "567" } });
	how.offset = 5;
	how.length = 10;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EIO);
}

/* With what a probe finds out, more is left to the server. */
static void probe(struct fixture *f)
{
	struct sandbox_info info;

	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	sandbox_info_release(&info);
}

/* A body that ends with the connection, which may have broken: only a look tells. */
static void test_part_without_an_end(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	for (unsigned i = 0; i < 4; i++) {
		rogue_clear(f->rogue);
		ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_ANSWER,
			  .reply = { .headers = "Accept-Ranges: none\r\n",
				     .body = i & 1 ? "0123456789" : "0123",
				     .until_close = true });
		if (i == 2)
			probe(f);
		assert_int_equal(download(f, fixture_path(f, "x"), &how), i & 1 ? 0 : -ESTALE);
	}
	rogue_answer(f->rogue, "POST", "/v1/bash/exec", 500, "boom");
	rogue_answer(f->rogue, "POST", "/v1/shell", 500, "boom");
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EIO);
}

/* Nobody asked for that: it would be taken for the file. */
static void test_packed_answer(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_ANSWER,
		  .reply = { .headers = "Accept-Ranges: none\r\nContent-Encoding: gzip\r\n",
			     .body = "0123456789" });
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EBADMSG);
	assert_int_equal(r.total, 0);
}

/* The rest of a body that nobody wants is not waited for. */
static void test_length_ends_an_endless_body(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	put_file(fixture_host_path(f, "x"), "abcdefghij", 10);
	rogue_add(f->rogue, &(struct rogue_rule){
				    .path = route,
				    .action = ROGUE_ANSWER,
				    .reply = { .unit = "abcdefghij", .units = ROGUE_FOREVER } });
	how.length = 100005;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
	assert_int_equal(r.bytes.len, 100005);
	assert_memory_equal(r.bytes.data + 100000, "abcde", 5);
	assert_int_equal(r.head.size, -1);
}

/* ---- versions ---- */

static struct attr attr_of(struct fixture *f, const char *name)
{
	struct attr a;

	assert_int_equal(SYNC(f->sb, sandbox_lstat, fixture_path(f, name), &a), 0);
	return a;
}

static void test_expected_version(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct attr a, other;

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	a = attr_of(f, "x");
	how.expect = &a;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
	assert_true(reader_has(&r, "0123456789", 10));
	buf_reset(&r.bytes);
	how.offset = 4;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
	assert_true(reader_has(&r, "456789", 6));
	how.offset = 10;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);

	/* only what a listing tells */
	other = (struct attr){ .size = a.size, .mtime.tv_sec = a.mtime.tv_sec, .partial = true };
	how.expect = &other;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
	other.mtime.tv_sec--;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
}

static size_t commands(struct fixture *f)
{
	return rogue_count(f->rogue, "POST", "/v1/bash/exec") +
	       rogue_count(f->rogue, "POST", "/v1/shell/exec");
}

/* The caller hears of changes: no command looks at the file. */
static void test_watched(void **state)
{
	static const size_t sizes[] = { 0, 10, 100000, 300000, 2 * MIB };
	struct fixture *f = *state;

	probe(f);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		size_t size = sizes[i / 2], before;
		char *bytes CLEANUP_FREE = make_content(size, 7);
		struct reader r CLEANUP_READER = READER;
		struct download how = reading(&r);
		struct attr a;

		put_file(fixture_host_path(f, "x"), bytes, size);
		a = attr_of(f, "x");
		how.expect = &a;
		how.watched = true;
		how.offset = i % 2 * size / 2;
		before = commands(f);
		assert_int_equal(download(f, fixture_path(f, "x"), &how), 0);
		assert_true(reader_has(&r, bytes + how.offset, size - how.offset));
		/* 1.0 has no word for long ones; all must give one for what is behind the end */
		if (size > 0 && (size - how.offset <= 64 * 1024 || strcmp(f->dialect, "1.0") != 0))
			assert_int_equal(commands(f), before);
	}
}

/* What the header tells is looked at all the same, and what the server calls it at the end. */
static void test_watched_is_not_blind(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 7);
	struct attr a;

	probe(f);
	for (size_t size = 10; size <= 2 * MIB; size += 2 * MIB - 10) {
		struct reader r CLEANUP_READER = READER;
		struct download how = reading(&r);

		put_file(fixture_host_path(f, "x"), bytes, size);
		make_old(fixture_host_path(f, "x"));
		a = attr_of(f, "x");
		how.expect = &a;
		how.watched = true;
		put_file(fixture_host_path(f, "x"), bytes, size + 1);
		assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
		put_file(fixture_host_path(f, "x"), bytes, size);
		/* 1.9 tells no time of what it guards */
		if (size > 256 * 1024 || strcmp(f->dialect, "1.9") != 0)
			assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
	}
}

/* Before any byte is given out: the size tells. */
static void test_another_size_is_stale_at_once(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct attr a;

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	a = attr_of(f, "x");
	put_file(fixture_host_path(f, "x"), "0123456789a", 11);
	how.expect = &a;
	for (how.offset = 0; how.offset < 15; how.offset += 7) {
		assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
		assert_int_equal(r.total, 0);
	}
}

/* Rewritten between the look and the download, with the same size. */
static void test_another_content_of_the_same_size_is_stale(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct attr a;

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	make_old(fixture_host_path(f, "x"));
	a = attr_of(f, "x");
	how.expect = &a;
	put_file(fixture_host_path(f, "x"), "abcdefghij", 10);
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
	how.offset = 3;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);

	/* as a file of another name that took its place, its time set back */
	put_file(fixture_host_path(f, "y"), "ABCDEFGHIJ", 10);
	make_old(fixture_host_path(f, "y"));
	assert_int_equal(rename(fixture_host_path(f, "y"), fixture_host_path(f, "x")), 0);
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
	probe(f);
	for (how.offset = 0; how.offset < 15; how.offset += 7)
		assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
	assert_int_equal(unlink(fixture_host_path(f, "x")), 0);
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -ENOENT);
}

enum { LARGE = 8 * 1024 * 1024 };

typedef void (*change_fn)(const char *host_path, const char *other);

static void change_byte(const char *host_path, const char *other UNUSED)
{
	int fd = open(host_path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "!", 1, LARGE - 1), 1);
	assert_int_equal(close(fd), 0);
}

static void change_length(const char *host_path, const char *other UNUSED)
{
	assert_int_equal(truncate(host_path, 2 * MIB), 0);
}

static void change_by_growing(const char *host_path, const char *other UNUSED)
{
	assert_int_equal(truncate(host_path, LARGE + 1), 0);
}

static void change_by_rename(const char *host_path, const char *other)
{
	assert_int_equal(rename(other, host_path), 0);
}

/* Changes the file while its reader pauses. Returns how the download ended. */
static int download_while(struct fixture *f, bool expect, bool watched, uint64_t offset,
			  change_fn change)
{
	char *bytes CLEANUP_FREE = make_content(LARGE, 4),
		    *other CLEANUP_FREE = make_content(LARGE, 5);
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct attr a;
	struct call *call = new_call(30000);
	int result;

	put_file(fixture_host_path(f, "x"), bytes, LARGE);
	put_file(fixture_host_path(f, "y"), other, LARGE);
	make_old(fixture_host_path(f, "x"));
	a = attr_of(f, "x");
	how.offset = offset;
	if (expect)
		how.expect = &a;
	how.watched = watched;
	r.pause_at = MIB / 2;
	sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	change(fixture_host_path(f, "x"), fixture_host_path(f, "y"));
	atomic_store(&r.open, true);
	sandbox_go_on(f->sb, call);
	result = finish_call(call);
	if (result == 0) /* then of one version */
		assert_true(reader_has(&r, bytes + offset, LARGE - offset));
	return result;
}

static void test_change_during_a_download_is_stale(void **state)
{
	static const change_fn changes[] = { change_byte, change_length, change_by_growing,
					     change_by_rename };
	struct fixture *f = *state;

	for (size_t i = 0; i < 3 * ARRAY_SIZE(changes); i++) {
		if (i == ARRAY_SIZE(changes))
			probe(f);
		for (uint64_t offset = 0; offset <= MIB; offset += MIB) {
			bool watched = i >= 2 * ARRAY_SIZE(changes);
			int r = download_while(f, true, watched, offset, changes[i % 4]);

			/* a server that watches the open file may well give all of the old one */
			if (r == 0 && changes[i % 4] == change_by_rename)
				continue;
			assert_int_equal(r, -ESTALE);
		}
	}
}

/* Nothing was expected: the server notices, or the header and a look at the end tell. */
static void test_change_during_a_download_is_noticed_without_a_version(void **state)
{
	static const change_fn changes[] = { change_byte, change_length, change_by_growing };
	struct fixture *f = *state;
	int r;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(changes); i++) {
		if (i == ARRAY_SIZE(changes))
			probe(f);
		assert_int_equal(download_while(f, false, false, 0, changes[i % 3]), -ESTALE);
		assert_int_equal(download_while(f, false, false, MIB, changes[i % 3]), -ESTALE);
	}
	/* the old file is still read to its end by a server that watches the open one */
	r = download_while(f, false, false, 0, change_by_rename);
	assert_true(r == -ESTALE || r == 0);
}

/* In place, and never shorter. */
static void overwrite(const char *host_path, const char *bytes, size_t len)
{
	int fd = open(host_path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, bytes, len), 0);
	assert_int_equal(close(fd), 0);
}

static void replace(const char *host_path, const char *bytes, size_t len)
{
	char beside[512];

	assert_true(snprintf(beside, sizeof(beside), "%s.new", host_path) < (int)sizeof(beside));
	put_file(beside, bytes, len);
	assert_int_equal(rename(beside, host_path), 0);
}

/*
 * A changing file: whatever ends well is of one version. Who names the version
 * may have it overwritten in place. Who does not gets what is there, and the
 * kernel stamps a write before it copies its bytes: a download that begins
 * within that write sees no change, so there the change is a rename.
 */
static void test_never_a_mix_of_two_versions(void **state)
{
	struct fixture *f = *state;
	size_t len = 300000;
	char *versions[2] = { make_content(len, 6), make_content(len, 7) };
	unsigned good = 0;

	for (unsigned i = 0; i < 40; i++) {
		struct reader r CLEANUP_READER = READER;
		struct download how = reading(&r);
		struct call *call = new_call(30000);
		struct attr a;
		int result;

		put_file(fixture_host_path(f, "x"), versions[i % 2], len);
		make_old(fixture_host_path(f, "x")); /* a clock that ticks seldom shows nothing */
		a = attr_of(f, "x");
		how.expect = i % 4 < 2 ? &a : NULL;
		sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
		if (i % 3 == 0)
			(how.expect ? overwrite : replace)(fixture_host_path(f, "x"),
							   versions[(i + 1) % 2], len);
		result = finish_call(call);
		assert_true(result == 0 || result == -ESTALE);
		good += result == 0;
		if (result == 0)
			assert_true(reader_has(&r, versions[0], len) ||
				    reader_has(&r, versions[1], len));
	}
	assert_true(good >= 20);
	free(versions[0]);
	free(versions[1]);
}

/* ---- servers that get it wrong ---- */

static int download_with(struct fixture *f, int64_t timeout_ms, const struct rogue_rule *rule,
			 struct reader *r)
{
	struct download how = reading(r);

	rogue_clear(f->rogue);
	rogue_add(f->rogue, rule);
	return SYNC_MS(timeout_ms, f->sb, sandbox_download, fixture_path(f, "x"), &how);
}

static void test_cut_streams(void **state)
{
	static const uint64_t after[] = { 0, 1, 1000, 65536, 999999 };
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 8);

	put_file(fixture_host_path(f, "x"), bytes, MIB);
	make_old(fixture_host_path(f, "x"));
	for (size_t i = 0; i < ARRAY_SIZE(after); i++) {
		struct reader r CLEANUP_READER = READER;

		assert_int_equal(download_with(f, 30000,
					       &(struct rogue_rule){ .path = route,
								     .fault = ROGUE_CUT,
								     .after = after[i] },
					       &r),
				 -EIO);
		assert_int_equal(r.total, after[i]);
		assert_memory_equal(r.bytes.data ?: "", bytes, after[i]);
	}
}

/* The file has changed, too: that is the reason then. */
static void test_cut_stream_of_a_changed_file_is_stale(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct attr a;

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	a = attr_of(f, "x");
	make_old(fixture_host_path(f, "x"));
	how.expect = &a;
	/* also before its first byte, where nobody has been told of the header yet */
	for (unsigned after = 0; after <= 5; after += 5) {
		rogue_clear(f->rogue);
		ROGUE_ADD(f->rogue, .path = route, .fault = ROGUE_CUT, .after = after);
		assert_int_equal(download(f, fixture_path(f, "x"), &how), -ESTALE);
	}
}

static void test_wrong_content_length(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;

	put_file(fixture_host_path(f, "x"), "0123456789", 10);
	make_old(fixture_host_path(f, "x"));
	/* more than comes: cut; less: that is not the size of the file */
	assert_int_equal(
		download_with(f, 30000, &(struct rogue_rule){ .path = route, .length_lie = 5 }, &r),
		-ESTALE);
	assert_int_equal(download_with(f, 30000,
				       &(struct rogue_rule){ .path = route, .length_lie = -5 }, &r),
			 strcmp(f->dialect, "1.9") == 0 ? 0 : -ESTALE);
}

static void test_silence_is_the_deadline(void **state)
{
	static const uint64_t after[] = { 0, 1, 100000 };
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 9);

	put_file(fixture_host_path(f, "x"), bytes, MIB);
	for (size_t i = 0; i < ARRAY_SIZE(after); i++) {
		struct reader r CLEANUP_READER = READER;
		int64_t start = clock_ms();

		assert_int_equal(download_with(f, 1500,
					       &(struct rogue_rule){ .path = route,
								     .fault = ROGUE_STALL,
								     .after = after[i] },
					       &r),
				 -ETIMEDOUT);
		assert_true(clock_ms() - start < 10000);
		assert_int_equal(r.total, after[i]);
	}
	rogue_release(f->rogue);
}

/* Slow but never silent: takes several times its timeout. */
static void test_slow_is_not_silent(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	int64_t start = clock_ms();
	char body[1500];

	memset(body, 'x', sizeof(body));
	put_file(fixture_host_path(f, "x"), body, sizeof(body));
	make_old(fixture_host_path(f, "x"));
	assert_int_equal(download_with(f, 4000,
				       &(struct rogue_rule){
					       .path = route, .drip_ms = 5, .quick_head = true },
				       &r),
			 0);
	assert_true(reader_has(&r, body, sizeof(body)));
	assert_true(clock_ms() - start > 4000);
}

/* So slow that nobody would wait for it: as if it were silent. */
static void test_drips_are_silence(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	int64_t start = clock_ms();
	char body[1000];

	memset(body, 'x', sizeof(body));
	put_file(fixture_host_path(f, "x"), body, sizeof(body));
	make_old(fixture_host_path(f, "x"));
	assert_int_equal(download_with(f, 3000,
				       &(struct rogue_rule){
					       .path = route, .drip_ms = 100, .quick_head = true },
				       &r),
			 -ETIMEDOUT);
	assert_true(clock_ms() - start < 30000);
	assert_in_range(r.total, 1, sizeof(body) - 1);
}

/* A head is no transfer: however it comes, it has to be there in time. */
static void test_head_that_drips(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct rogue_rule drips = { .path = route,
				    .drip_ms = 20,
				    .action = ROGUE_ANSWER,
				    .reply = { .raw = "HTTP/1.1 200 OK\r\n",
					       .unit = "X: aaaaaaaaaaaaaaaaaaaa\r\n",
					       .units = ROGUE_FOREVER } };
	int64_t start = clock_ms();

	put_file(fixture_host_path(f, "x"), "abc", 3);
	assert_int_equal(download_with(f, 1500, &drips, &r), -ETIMEDOUT);
	assert_true(clock_ms() - start < 10000);
}

static void test_nonsense_instead_of_an_answer(void **state)
{
	static const struct {
		struct rogue_reply reply;
		int err;
	} cases[] = {
		{ { .raw = "\x16\x03\x01 this is not HTTP\r\n\r\n" }, -EBADMSG },
		{ { .raw = "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc" }, -EBADMSG },
		{ { .raw = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc" },
		  -ECONNRESET },
		{ { .raw = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
			   "3\r\nabc\r\n0\r\n\r\n" },
		  -EBADMSG },
		{ { .endless_head = "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" },
		  -EMSGSIZE },
		{ { .status = 500, .unit = "xxxxxxxxxxxxxxxx", .units = ROGUE_FOREVER },
		  -EMSGSIZE },
	};
	struct fixture *f = *state;
	size_t rss = rss_kib();

	put_file(fixture_host_path(f, "x"), "hello", 5);
	make_old(fixture_host_path(f, "x"));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct reader r CLEANUP_READER = READER;
		int result = download_with(f, 10000,
					   &(struct rogue_rule){ .path = route,
								 .action = ROGUE_ANSWER,
								 .reply = cases[i].reply },
					   &r);

		if (result != cases[i].err)
			fail_msg("case %zu: %d", i, result);
	}
	assert_true(rss_kib() < rss + 128 * 1024);
}

static void test_server_that_dies(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call *call = new_call(5000);
	int result;

	fixture_own_daemon(f);
	put_file(fixture_host_path(f, "x"), "", 0);
	assert_int_equal(truncate(fixture_host_path(f, "x"), 64 * MIB), 0);
	r.pause_at = MIB;
	sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	daemon_kill(f->daemon, SIGKILL);
	atomic_store(&r.open, true);
	sandbox_go_on(f->sb, call);
	result = finish_call(call);
	assert_true(result == -EIO || result == -ECONNRESET || result == -ECONNREFUSED);
	assert_true(daemon_restart(f->daemon));
}

/* A server that restarts is asked again while nothing has come. */
static void test_broken_connections_are_asked_again(void **state)
{
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "x"), "hello", 5);
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = route, .times = 1, .action = ROGUE_CLOSE });
	expect_file(f, "x", "hello", 5);
	rogue_clear(f->rogue);
	rogue_add(f->rogue, &(struct rogue_rule){ .path = route,
						  .times = 2,
						  .action = ROGUE_ANSWER,
						  .reply = { .status = 503 } });
	expect_file(f, "x", "hello", 5);
}

/* ---- readers ---- */

static void test_reader_that_refuses(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 10);
	uint64_t at[] = { 0, 5, 500000 };

	put_file(fixture_host_path(f, "x"), bytes, MIB);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		struct reader r CLEANUP_READER = READER;
		struct download how = reading(&r);

		r.refuse_at = at[i];
		r.refusal = -ENOSPC;
		assert_int_equal(download(f, fixture_path(f, "x"), &how), -ENOSPC);
	}
}

static int refuse_head(void *ctx UNUSED, const struct download_head *head UNUSED)
{
	return -EFBIG;
}

static void test_reader_that_refuses_the_head(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);

	put_file(fixture_host_path(f, "x"), "hello", 5);
	put_file(fixture_host_path(f, "empty"), "", 0);
	how.head = refuse_head;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EFBIG);
	assert_int_equal(download(f, fixture_path(f, "empty"), &how), -EFBIG);
	how.offset = 10;
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -EFBIG);
	assert_int_equal(r.total, 0);
}

/* It is the reader who refuses after a pause, too, in the call that wakes it. */
static void test_reader_that_refuses_after_a_pause(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call *call = new_call(30000);
	char *bytes CLEANUP_FREE = make_content(MIB, 11);

	put_file(fixture_host_path(f, "x"), bytes, MIB);
	/* the server then has nothing more to say */
	rogue_add(f->rogue,
		  &(struct rogue_rule){ .path = route, .fault = ROGUE_STALL, .after = 30000 });
	r.pause_at = 0;
	r.refusal = -EDQUOT;
	sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	r.refuse_at = 0; /* nobody looks at it while it pauses */
	sandbox_go_on(f->sb, call);
	assert_int_equal(finish_call(call), -EDQUOT);
	rogue_release(f->rogue);
}

/* The reader pauses at every piece, and another thread wakes it. */
struct waker {
	struct fixture *f;
	struct call *call;
	struct reader *reader;
	atomic_bool stop;
};

static void *keep_waking(void *arg)
{
	struct waker *w = arg;

	while (!atomic_load(&w->stop))
		sandbox_go_on(w->f->sb, w->call);
	return NULL;
}

static int pause_often(void *ctx, const void *bytes, size_t len)
{
	struct reader *r = ctx;
	bool was = atomic_exchange(&r->paused, !atomic_load(&r->paused));

	return was ? reader_data(ctx, bytes, len) : -EAGAIN;
}

static void test_pauses_at_every_piece(void **state)
{
	struct fixture *f = *state;
	size_t len = 2 * MIB;
	char *bytes CLEANUP_FREE = make_content(len, 12);
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call call;
	struct waker w = { .f = f, .call = &call, .reader = &r };
	pthread_t thread;

	put_file(fixture_host_path(f, "x"), bytes, len);
	how.data = pause_often;
	call_init(&call, 30000);
	sandbox_go_on(f->sb, &call); /* harmless before it begins */
	sandbox_download(f->sb, &call, fixture_path(f, "x"), &how);
	assert_int_equal(pthread_create(&thread, NULL, keep_waking, &w), 0);
	assert_int_equal(call_wait(&call), 0);
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	sandbox_go_on(f->sb, &call); /* and after its end */
	call_release(&call);
	assert_true(reader_has(&r, bytes, len));
}

/* The time that a reader takes is not the server's silence. */
static void test_pause_does_not_count_as_silence(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 13);
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call *call = new_call(1500);
	int64_t until;

	put_file(fixture_host_path(f, "x"), bytes, MIB);
	r.pause_at = 1000;
	sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	until = clock_ms() + 4000;
	WAIT_UNTIL(clock_ms() > until);
	atomic_store(&r.open, true);
	sandbox_go_on(f->sb, call);
	assert_int_equal(finish_call(call), 0);
	assert_true(reader_has(&r, bytes, MIB));
}

static void test_memory_is_bounded_while_a_reader_pauses(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call *call = new_call(30000);
	size_t before, most = 0;

	put_file(fixture_host_path(f, "x"), "", 0);
	assert_int_equal(truncate(fixture_host_path(f, "x"), GIB), 0);
	assert_int_equal(SYNC(f->sb, sandbox_ping), 0);
	before = rss_kib();
	r.drop = true;
	r.pause_at = MIB;
	sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	for (int i = 0; i < 200; i++) { /* others are served meanwhile */
		assert_int_equal(SYNC(f->sb, sandbox_ping), 0);
		most = MAX(most, rss_kib());
	}
	assert_true(most < before + 8 * 1024);
	assert_true(r.total < 2 * MIB);
	call_cancel(call);
	assert_int_equal(finish_call(call), -ECANCELED);
}

static void test_cancel_while_paused(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call *call = new_call(0);

	put_file(fixture_host_path(f, "x"), "hello", 5);
	r.pause_at = 0;
	sandbox_download(f->sb, call, fixture_path(f, "x"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	call_cancel(call);
	sandbox_go_on(f->sb, call);
	assert_int_equal(finish_call(call), -ECANCELED);
	expect_file(f, "x", "hello", 5);
}

static void test_close_while_paused(void **state)
{
	struct fixture *f = *state;
	struct reader r CLEANUP_READER = READER;
	struct download how = reading(&r);
	struct call *call = new_call(0);

	put_file(fixture_host_path(f, "x"), "hello", 5);
	put_file(fixture_host_path(f, "\xff"), "hello", 5);
	r.pause_at = 0;
	sandbox_download(f->sb, call, fixture_path(f, "\xff"), &how);
	WAIT_UNTIL(atomic_load(&r.paused));
	sandbox_close(f->sb);
	assert_true(rogue_wait_connections(f->rogue, 0, PATIENCE_MS));
	sandbox_go_on(f->sb, call);
	assert_int_equal(finish_call(call), -ENOTCONN);
	assert_int_equal(download(f, fixture_path(f, "x"), &how), -ENOTCONN);
	WAIT_UNTIL(count_aliases(f) == 0);
}

/* ---- several at once ---- */

enum { AT_ONCE = 100 }; /* more than a sandbox has lanes for */

struct many {
	struct reader readers[AT_ONCE];
	struct call calls[AT_ONCE];
};

/* Of a file that does not fit into the buffers on its way. */
static struct many *start_many(struct fixture *f, uint64_t pause_at)
{
	struct many *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	put_file(fixture_host_path(f, "x"), "", 0);
	assert_int_equal(truncate(fixture_host_path(f, "x"), 2 * MIB), 0);
	make_old(fixture_host_path(f, "x"));
	for (size_t i = 0; i < AT_ONCE; i++) {
		struct download how = reading(&m->readers[i]);

		m->readers[i] = READER;
		m->readers[i].drop = true;
		m->readers[i].pause_at = pause_at;
		call_init(&m->calls[i], 30000);
		sandbox_download(f->sb, &m->calls[i], fixture_path(f, "x"), &how);
	}
	return m;
}

static void finish_many(struct many *m, int expected)
{
	for (size_t i = 0; i < AT_ONCE; i++) {
		assert_int_equal(call_wait(&m->calls[i]), expected);
		call_release(&m->calls[i]);
		if (expected == 0)
			assert_int_equal(m->readers[i].total, 2 * MIB);
	}
	free(m);
}

static void test_parallel_downloads(void **state)
{
	struct fixture *f = *state;
	struct many *m = start_many(f, 1000);

	for (size_t i = 0; i < AT_ONCE; i++)
		WAIT_UNTIL(atomic_load(&m->readers[i].paused));
	/* All of them are under way, and one more is not held up. What TCP's buffers take is
	 * over for the server. */
	if (rogue_socket(f->rogue))
		assert_int_equal(rogue_max_in_flight(f->rogue, route), AT_ONCE);
	put_file(fixture_host_path(f, "y"), "hello", 5);
	expect_file(f, "y", "hello", 5);
	for (size_t i = 0; i < AT_ONCE; i++) {
		atomic_store(&m->readers[i].open, true);
		sandbox_go_on(f->sb, &m->calls[i]);
	}
	finish_many(m, 0);
}

static void test_close_during_downloads(void **state)
{
	struct fixture *f = *state;
	struct many *m = start_many(f, 500000);

	WAIT_UNTIL(atomic_load(&m->readers[AT_ONCE / 2].paused));
	sandbox_close(f->sb);
	assert_true(rogue_wait_connections(f->rogue, 0, PATIENCE_MS));
	finish_many(m, -ENOTCONN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_returns_concatenated_bytes),
		FIXTURE_TEST(test_returns_empty_bytes_for_empty_file),
		FIXTURE_TEST(test_single_chunk),
		FIXTURE_TEST(test_names_with_blanks_and_signs),
		FIXTURE_TEST(test_names_that_are_not_utf8),
		FIXTURE_TEST(test_rejects_path_outside_virtual_prefix_and_logs_error),
		FIXTURE_TEST(test_rejects_path_traversal),
		FIXTURE_TEST(test_raises_oserror_on_client_error),
		FIXTURE_TEST(test_preserves_oserror_from_client),
		FIXTURE_TEST(test_parts_of_a_file),
		FIXTURE_TEST(test_range_is_used_but_not_assumed),
		FIXTURE_TEST(test_lying_ranges),
		FIXTURE_TEST(test_part_that_ends_early),
		FIXTURE_TEST(test_part_without_an_end),
		FIXTURE_TEST(test_packed_answer),
		FIXTURE_TEST(test_length_ends_an_endless_body),
		FIXTURE_TEST(test_expected_version),
		FIXTURE_TEST(test_watched),
		FIXTURE_TEST(test_watched_is_not_blind),
		FIXTURE_TEST(test_another_size_is_stale_at_once),
		FIXTURE_TEST(test_another_content_of_the_same_size_is_stale),
		FIXTURE_TEST(test_change_during_a_download_is_stale),
		FIXTURE_TEST(test_change_during_a_download_is_noticed_without_a_version),
		FIXTURE_TEST(test_never_a_mix_of_two_versions),
		FIXTURE_TEST(test_cut_streams),
		FIXTURE_TEST(test_cut_stream_of_a_changed_file_is_stale),
		FIXTURE_TEST(test_wrong_content_length),
		FIXTURE_TEST(test_silence_is_the_deadline),
		FIXTURE_TEST(test_slow_is_not_silent),
		FIXTURE_TEST(test_drips_are_silence),
		FIXTURE_TEST(test_head_that_drips),
		FIXTURE_TEST(test_nonsense_instead_of_an_answer),
		FIXTURE_TEST(test_server_that_dies),
		FIXTURE_TEST(test_broken_connections_are_asked_again),
		FIXTURE_TEST(test_reader_that_refuses),
		FIXTURE_TEST(test_reader_that_refuses_the_head),
		FIXTURE_TEST(test_reader_that_refuses_after_a_pause),
		FIXTURE_TEST(test_pauses_at_every_piece),
		FIXTURE_TEST(test_pause_does_not_count_as_silence),
		FIXTURE_TEST(test_memory_is_bounded_while_a_reader_pauses),
		FIXTURE_TEST(test_cancel_while_paused),
		FIXTURE_TEST(test_close_while_paused),
		FIXTURE_TEST(test_parallel_downloads),
		FIXTURE_TEST(test_close_during_downloads),
	};

	return FIXTURE_RUN(tests);
}

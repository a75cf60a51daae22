/* sandbox_upload of bytes that stay in the file they are in: whole or not at all, as all others. */
#include "transfer.h"

#include <sys/mman.h>

static const char route[] = "/v1/file/upload";

enum { LARGE = 5 * 1024 * 1024 + 3 };

/* Content that lies in a file, behind something else. */
struct lender {
	struct writer w; /* what is there, and what was taken */
	int fd;
	off_t shift;
	unsigned lent;         /* how often something was */
	uint64_t gone_at;      /* from here on the file cannot be had any more */
	atomic_bool asked_for; /* what is gone */
};

static struct lender new_lender(const char *bytes, size_t len)
{
	struct lender l = { .w = WRITER(bytes, len), .shift = 4099, .gone_at = UINT64_MAX };

	l.fd = memfd_create("lent", MFD_CLOEXEC);
	assert_true(l.fd >= 0);
	assert_int_equal(lseek(l.fd, l.shift, SEEK_SET), l.shift);
	assert_int_equal(write_all(l.fd, bytes, len), 0);
	return l;
}

static ssize_t lender_read(void *ctx, char *to, size_t len)
{
	struct lender *l = ctx;

	return writer_read(&l->w, to, len);
}

static void lender_rewind(void *ctx)
{
	struct lender *l = ctx;

	l->w.sent = 0;
}

/* As far as the writer has come, but for a few bytes now and then, which are read. */
static size_t lend(void *ctx, size_t max)
{
	struct lender *l = ctx;
	uint64_t end = atomic_load(&l->w.open) ? l->w.len : MIN(l->w.pause_at, l->w.len);
	size_t n = l->w.sent < end ? (size_t)MIN(max, end - l->w.sent) : 0;

	if (n < 10)
		return 0;
	l->lent++;
	l->w.sent += n - 7;
	return n - 7;
}

static int lent_file(void *ctx, uint64_t at, off_t *ret_offset)
{
	struct lender *l = ctx;

	if (at >= l->gone_at) {
		atomic_store(&l->asked_for, true);
		return -1;
	}
	*ret_offset = l->shift + (off_t)at;
	return l->fd;
}

static struct upload lending(struct lender *l, int64_t size)
{
	return (struct upload){ .size = size,
				.mode = -1,
				.read = lender_read,
				.rewind = lender_rewind,
				.lend = lend,
				.lent_file = lent_file,
				.ctx = l,
				.fd = -1 };
}

/* It arrives whole; known: its size is told before. Returns how often some were lent. */
static unsigned put_lent(struct fixture *f, const char *bytes, size_t len, bool known)
{
	struct lender l = new_lender(bytes, len);
	struct upload how = lending(&l, known ? (int64_t)len : -1);

	assert_int_equal(SYNC(f->sb, sandbox_upload, fixture_path(f, "x"), &how), 0);
	assert_true(file_is(fixture_host_path(f, "x"), bytes, len));
	close(l.fd);
	return l.lent;
}

static void test_lent_bytes_arrive(void **state)
{
	static const size_t sizes[] = { 0, 1, 40000, LARGE };
	struct fixture *f = *state;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		size_t len = sizes[i / 2];
		char *bytes CLEANUP_FREE = make_content(len, (unsigned)i);
		unsigned lent = put_lent(f, bytes, len, !(i & 1));

		if (len == LARGE)
			assert_true(lent > 0);
	}
	assert_int_equal(count_names(f->host_dir), 1);
}

/* Its end is not known while it pauses; nothing is in its place before that. */
static void test_writer_that_pauses(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(LARGE, 1);
	struct lender l = new_lender(bytes, LARGE);
	struct upload how = lending(&l, -1);
	struct call *c = new_call(60000);

	l.w.pause_at = LARGE / 2;
	sandbox_upload(f->sb, c, fixture_path(f, "x"), &how);
	while (!atomic_load(&l.w.paused))
		usleep(1000);
	assert_false(file_exists(fixture_host_path(f, "x")));
	atomic_store(&l.w.open, true);
	sandbox_go_on(f->sb, c);
	assert_int_equal(finish_call(c), 0);
	assert_true(file_is(fixture_host_path(f, "x"), bytes, LARGE));
	assert_int_equal(rogue_count(f->rogue, NULL, route), 1);
	close(l.fd);
}

/* What was promised cannot be had: an error, and nothing of it stays. */
static void test_file_that_goes(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(LARGE, 2);

	for (unsigned i = 0; i < 4; i++) {
		struct lender l = new_lender(bytes, LARGE);
		struct upload how = lending(&l, i & 1 ? -1 : LARGE);
		int r;

		if (i & 2)
			l.gone_at = LARGE / 3;
		else
			assert_int_equal(ftruncate(l.fd, LARGE / 3), 0);
		r = SYNC(f->sb, sandbox_upload, fixture_path(f, "x"), &how);
		assert_int_equal(r, i & 2 ? -ECANCELED : -EIO);
		assert_int_equal(atomic_load(&l.asked_for), (i & 2) != 0);
		close(l.fd);
	}
	assert_int_equal(count_names(f->host_dir), 0);
}

/* A server that hangs up in the middle gets all of it once more. */
static void test_sent_again(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(LARGE, 3);

	for (unsigned i = 0; i < 2; i++) {
		ROGUE_ADD(f->rogue, .path = route, .times = 1, .action = ROGUE_CLOSE);
		(void)put_lent(f, bytes, LARGE, !(i & 1));
		assert_int_equal(rogue_count(f->rogue, NULL, route), 2);
		rogue_clear(f->rogue);
		rogue_forget(f->rogue);
	}
	assert_int_equal(count_names(f->host_dir), 1);
}

/* One that answers before it has all means no, or is not to be believed. */
static void test_early_answer(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(LARGE, 4);
	struct lender l = new_lender(bytes, LARGE);
	struct upload how = lending(&l, LARGE);

	ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_ANSWER, .take_bytes = 1000,
		  .reply = { .status = 507,
			     .body = "{\"success\":false,\"message\":\"[Errno 28] No space left on "
				     "device\",\"data\":{\"errno\":28}}" });
	assert_int_equal(SYNC(f->sb, sandbox_upload, fixture_path(f, "x"), &how), -ENOSPC);
	rogue_clear(f->rogue);
	assert_int_equal(count_names(f->host_dir), 0);
	close(l.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_lent_bytes_arrive), FIXTURE_TEST(test_writer_that_pauses),
		FIXTURE_TEST(test_file_that_goes),    FIXTURE_TEST(test_sent_again),
		FIXTURE_TEST(test_early_answer),
	};

	return FIXTURE_RUN(tests);
}

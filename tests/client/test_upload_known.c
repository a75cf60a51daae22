/* sandbox_upload with what the caller knows: fewer requests, and nothing worse for it. */
#include "transfer.h"

static const char route[] = "/v1/file/upload";

enum { KNOWN = UPLOAD_DIR_THERE | UPLOAD_NAME_FREE };

static const char full[] = "{\"success\":false,\"message\":\"Failed to upload file: [Errno 28] No "
			   "space left on device\",\"data\":{\"errno\":28}}";

static void probe(struct fixture *f)
{
	struct sandbox_info info;

	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	sandbox_info_release(&info);
	rogue_forget(f->rogue);
}

static void rewind_writer(void *ctx)
{
	struct writer *w = ctx;

	w->sent = 0;
}

static int put(struct fixture *f, const char *name, const char *bytes, size_t len, unsigned flags,
	       int mode)
{
	struct writer w = WRITER(bytes, len);
	struct upload how = writing(&w, (int64_t)len);

	how.rewind = rewind_writer;
	how.flags = flags;
	how.mode = mode;
	return SYNC(f->sb, sandbox_upload, fixture_path(f, name), &how);
}

static mode_t mode_of(struct fixture *f, const char *name)
{
	struct stat st;

	assert_int_equal(stat(fixture_host_path(f, name), &st), 0);
	return st.st_mode & 07777;
}

static size_t commands(struct fixture *f)
{
	return rogue_count(f->rogue, NULL, "/v1/bash/exec") +
	       rogue_count(f->rogue, NULL, "/v1/shell/exec");
}

static bool exists(struct fixture *f, const char *name)
{
	struct stat st;

	return lstat(fixture_host_path(f, name), &st) == 0;
}

static bool is_aiod(const struct fixture *f)
{
	return strcmp(f->dialect, "aiod") == 0;
}

/* ---- how many requests ---- */

static void test_new_file_is_one_request(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 32768, 32769, 600000 };
	struct fixture *f = *state;
	char name[16];

	probe(f);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *bytes CLEANUP_FREE = make_content(sizes[i], (unsigned)i);

		for (unsigned flags = 0; flags <= UPLOAD_NEW; flags++) {
			snprintf(name, sizeof(name), "x%zu%u", i, flags);
			rogue_forget(f->rogue);
			assert_int_equal(put(f, name, bytes, sizes[i], KNOWN | flags, -1), 0);
			assert_true(file_is(fixture_host_path(f, name), bytes, sizes[i]));
			assert_int_equal(rogue_count(f->rogue, NULL, NULL), 1);
		}
	}
	assert_int_equal(count_names(f->host_dir), 2 * ARRAY_SIZE(sizes));
}

/* Half of a large one could be seen, unless the server stages. */
static void test_large_new_file(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 1);

	probe(f);
	assert_int_equal(put(f, "x", bytes, 2 * MIB, KNOWN, -1), 0);
	assert_true(file_is(fixture_host_path(f, "x"), bytes, 2 * MIB));
	assert_int_equal(rogue_count_body(f->rogue, "POST", route, ".threadfs-upload-"),
			 !is_aiod(f));
	assert_int_equal(commands(f), !is_aiod(f));
	assert_int_equal(count_names(f->host_dir), 1);
}

static void test_directory_that_is_known(void **state)
{
	struct fixture *f = *state;

	probe(f);
	put_file(fixture_host_path(f, "x"), "old", 3);
	assert_int_equal(put(f, "x", "new", 3, UPLOAD_DIR_THERE, -1), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	assert_int_equal(rogue_count(f->rogue, NULL, "/v1/file/find"), 0);
	assert_int_equal(rogue_count(f->rogue, NULL, route), 1);
	assert_int_equal(commands(f), !is_aiod(f));
	/* strict as ever */
	assert_int_equal(put(f, "x", "more", 4, UPLOAD_DIR_THERE | UPLOAD_NEW, -1), -EEXIST);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	assert_int_equal(count_names(f->host_dir), 1);
}

/* What mode an upload gives is learned with the first; from then on it need not be set. */
static void test_usual_mode_is_learned(void **state)
{
	struct fixture *f = *state;
	mode_t usual;

	probe(f);
	assert_int_equal(put(f, "a", "a", 1, KNOWN, -1), 0);
	usual = mode_of(f, "a");
	for (unsigned i = 0; i < 3; i++) {
		char name[] = { (char)('b' + (char)i), 0 };

		rogue_forget(f->rogue);
		assert_int_equal(put(f, name, "b", 1, KNOWN | UPLOAD_NEW, (int)usual), 0);
		assert_int_equal(mode_of(f, name), usual);
		assert_int_equal(commands(f), i == 0);
	}
	rogue_forget(f->rogue);
	assert_int_equal(put(f, "other", "c", 1, KNOWN | UPLOAD_NEW, 0751), 0);
	assert_int_equal(mode_of(f, "other"), 0751);
	assert_int_equal(commands(f), 1);
	assert_int_equal(rogue_count(f->rogue, NULL, route), 1);
	assert_int_equal(count_names(f->host_dir), 5);
}

static void test_connection_is_used_again(void **state)
{
	struct fixture *f = *state;
	struct rogue_request first, last;
	char name[16];

	probe(f);
	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "x%u", i);
		assert_int_equal(put(f, name, "new", 3, KNOWN, -1), 0);
	}
	assert_true(rogue_request(f->rogue, 0, &first));
	assert_true(rogue_request(f->rogue, 49, &last));
	assert_int_equal(first.connection, last.connection);
	rogue_request_release(&first);
	rogue_request_release(&last);
}

/* ---- what is known need not be true ---- */

static void test_directory_that_is_gone(void **state)
{
	struct fixture *f = *state;

	probe(f);
	assert_int_equal(put(f, "dir/x", "new", 3, KNOWN, -1), 0);
	assert_true(file_is(fixture_host_path(f, "dir/x"), "new", 3));
	assert_int_equal(count_names(fixture_host_path(f, "dir")), 1);
}

static void test_name_that_is_taken(void **state)
{
	struct fixture *f = *state;

	probe(f);
	put_file(fixture_host_path(f, "x"), "somebody's", 10);
	assert_int_equal(mkdir(fixture_host_path(f, "dir"), 0755), 0);
	assert_int_equal(put(f, "x", "new", 3, KNOWN | UPLOAD_NEW, -1), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	assert_int_equal(put(f, "dir", "new", 3, KNOWN | UPLOAD_NEW, -1), -EISDIR);
	assert_int_equal(count_names(f->host_dir), 2);
}

/* ---- failures ---- */

/* A server that did it, or a part, and says otherwise. */
static void test_failure_leaves_no_name(void **state)
{
	static const char *const bodies[] = {
		full,
		"garbage",
		"{\"success\":true,\"data\":{\"file_size\":5}}",
	};
	struct fixture *f = *state;

	probe(f);
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_REPLACE,
			  .reply = { .status = 200, .body = bodies[i] });
		assert_true(put(f, "x", "new file", 8, KNOWN | UPLOAD_NEW, -1) < 0);
		assert_false(exists(f, "x"));
		rogue_clear(f->rogue);
	}
	assert_int_equal(put(f, "x", "new file", 8, KNOWN | UPLOAD_NEW, -1), 0);
	assert_int_equal(count_names(f->host_dir), 1);
}

/* Straight to the name, and nobody says how much: it is looked at, and goes if it is not all. */
static void test_server_that_says_no_size(void **state)
{
	struct fixture *f = *state;
	struct shortener s = { .host_dir = f->host_dir, .prefix = "" };

	probe(f);
	ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_REPLACE, .handler = shorten, .ctx = &s);
	assert_int_equal(put(f, "x", "new file", 8, KNOWN, -1), -EIO);
	assert_false(exists(f, "x"));
	rogue_clear(f->rogue);
	ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_REPLACE,
		  .reply = { .body = "{\"success\":true,\"data\":{}}" });
	assert_int_equal(put(f, "x", "new file", 8, KNOWN, -1), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new file", 8));
	assert_int_equal(count_names(f->host_dir), 1);
}

/* The connection ends after the server has it all: whatever removed that could be late. */
static void test_answer_that_is_lost(void **state)
{
	struct fixture *f = *state;
	struct writer w = WRITER("new file", 8);
	struct upload how = writing(&w, 8);

	probe(f);
	how.flags = KNOWN;
	ROGUE_ADD(f->rogue, .path = route, .fault = ROGUE_CUT, .in_head = true, .after = 10);
	assert_true(SYNC(f->sb, sandbox_upload, fixture_path(f, "x"), &how) < 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new file", 8));
}

/* What is not ours stays: it is longer, or no file. */
static void test_failure_spares_what_somebody_made(void **state)
{
	struct fixture *f = *state;

	probe(f);
	put_file(fixture_host_path(f, "x"), "somebody's", 10);
	assert_int_equal(symlink("x", fixture_host_path(f, "link")), 0);
	assert_int_equal(mkdir(fixture_host_path(f, "dir"), 0755), 0);
	rogue_answer(f->rogue, "POST", route, 500, full);
	assert_int_equal(put(f, "x", "new", 3, KNOWN, -1), -ENOSPC);
	assert_int_equal(put(f, "link", "new file, long enough", 21, KNOWN, -1), -ENOSPC);
	assert_int_equal(put(f, "dir", "new", 3, KNOWN, -1), -ENOSPC);
	assert_true(file_is(fixture_host_path(f, "x"), "somebody's", 10));
	assert_int_equal(count_names(f->host_dir), 3);
}

/* If the server says that it did not even begin there is nothing to clean up. */
static void test_refusal_needs_no_command(void **state)
{
	struct fixture *f = *state;

	probe(f);
	put_file(fixture_host_path(f, "x"), "s", 1);
	rogue_answer(f->rogue, "POST", route, 500,
		     "{\"success\":false,\"message\":\"[Errno 13] Permission denied\"}");
	assert_int_equal(put(f, "x", "new", 3, KNOWN, -1), -EACCES);
	assert_int_equal(commands(f), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "s", 1));
}

/* A new name is sent again where that is safe: a connection that was closed, 503. */
static void test_sent_again(void **state)
{
	struct fixture *f = *state;
	struct rogue_rule rule = { .path = route, .times = 1, .action = ROGUE_CLOSE };

	probe(f);
	rogue_add(f->rogue, &rule);
	assert_int_equal(put(f, "a", "new", 3, KNOWN, -1), 0);
	rogue_clear(f->rogue);
	rule.action = ROGUE_ANSWER;
	rule.reply = (struct rogue_reply){ .status = 503, .body = "busy" };
	rogue_add(f->rogue, &rule);
	assert_int_equal(put(f, "b", "new", 3, KNOWN, -1), 0);
	assert_true(file_is(fixture_host_path(f, "a"), "new", 3));
	assert_true(file_is(fixture_host_path(f, "b"), "new", 3));
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 4);
}

/* A connection that the server closed while it was idle is no failure, and no second upload. */
static void test_connection_that_was_closed_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct writer w = WRITER("new", 3);
	struct upload how = writing(&w, 3);

	probe(f);
	for (unsigned i = 0; i < 5; i++) {
		w.sent = 0;
		how.flags = UPLOAD_DIR_THERE;
		assert_int_equal(SYNC(f->sb, sandbox_upload, fixture_path(f, "x"), &how), 0);
		rogue_close_connections(f->rogue, true);
	}
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	assert_int_equal(rogue_count(f->rogue, NULL, route), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_new_file_is_one_request),
		FIXTURE_TEST(test_large_new_file),
		FIXTURE_TEST(test_directory_that_is_known),
		FIXTURE_TEST(test_usual_mode_is_learned),
		FIXTURE_TEST(test_connection_is_used_again),
		FIXTURE_TEST(test_directory_that_is_gone),
		FIXTURE_TEST(test_name_that_is_taken),
		FIXTURE_TEST(test_failure_leaves_no_name),
		FIXTURE_TEST(test_server_that_says_no_size),
		FIXTURE_TEST(test_answer_that_is_lost),
		FIXTURE_TEST(test_failure_spares_what_somebody_made),
		FIXTURE_TEST(test_refusal_needs_no_command),
		FIXTURE_TEST(test_sent_again),
		FIXTURE_TEST(test_connection_that_was_closed_meanwhile),
	};

	return FIXTURE_RUN(tests);
}

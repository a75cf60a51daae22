/* sandbox_upload: whole or not at all, whatever happens on the way. */
#include "transfer.h"

#include <pthread.h>
#include <signal.h>

static const char route[] = "/v1/file/upload";

static void probe(struct fixture *f)
{
	struct sandbox_info info;

	assert_int_equal(SYNC(f->sb, sandbox_context, &info), 0);
	sandbox_info_release(&info);
}

static int upload(struct fixture *f, const char *name, const struct upload *how)
{
	return SYNC(f->sb, sandbox_upload, fixture_path(f, name), how);
}

/* From memory through a writer, with the size given. */
static int upload_bytes(struct fixture *f, const char *name, const char *bytes, size_t len)
{
	struct writer w = WRITER(bytes, len);
	struct upload how = writing(&w, (int64_t)len);

	return upload(f, name, &how);
}

/* A nameless file with this content. */
static int open_content(const char *bytes, size_t len)
{
	char name[] = "/tmp/test-upload-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(write_all(fd, bytes, len), 0);
	return fd;
}

static mode_t mode_of(const char *host_path)
{
	struct stat st;

	assert_int_equal(stat(host_path, &st), 0);
	return st.st_mode & 07777;
}

/* ---- plain ---- */

static void expect_uploads(struct fixture *f)
{
	static const size_t sizes[] = { 0, 1, 100, 65536, 5 * 1024 * 1024 + 3 };

	for (size_t i = 0; i < 4 * ARRAY_SIZE(sizes); i++) {
		size_t len = sizes[i / 4];
		char *bytes CLEANUP_FREE = make_content(len, (unsigned)i);
		int fd CLEANUP_FD = open_content(bytes, len);
		struct writer w = WRITER(bytes, len);
		struct upload from_fd = { .size = i & 1 ? -1 : (int64_t)len, .mode = -1, .fd = fd };
		struct upload from_writer = writing(&w, from_fd.size);

		assert_int_equal(upload(f, "x", i & 2 ? &from_fd : &from_writer), 0);
		assert_true(file_is(fixture_host_path(f, "x"), bytes, len));
	}
	assert_int_equal(count_names(f->host_dir), 1);
}

static void test_upload_from_a_file_or_a_writer(void **state)
{
	struct fixture *f = *state;

	expect_uploads(f);
	probe(f);
	expect_uploads(f);
}

static void test_mode(void **state)
{
	struct fixture *f = *state;
	struct writer w = WRITER("a", 1);
	struct upload how = writing(&w, 1);

	for (unsigned i = 0; i < 4; i++) {
		if (i == 2)
			probe(f);
		how.flags = i & 1 ? UPLOAD_NEW : 0;
		how.mode = 0751;
		w.sent = 0;
		unlink(fixture_host_path(f, "x"));
		assert_int_equal(upload(f, "x", &how), 0);
		assert_int_equal(mode_of(fixture_host_path(f, "x")), 0751);
		/* kept */
		how.flags = 0;
		how.mode = -1;
		w.sent = 0;
		assert_int_equal(chmod(fixture_host_path(f, "x"), 0604), 0);
		assert_int_equal(upload(f, "x", &how), 0);
		assert_int_equal(mode_of(fixture_host_path(f, "x")), 0604);
		assert_true(file_is(fixture_host_path(f, "x"), "a", 1));
	}
	assert_int_equal(count_names(f->host_dir), 1);
}

static void test_odd_directories(void **state)
{
	static const char *const dirs[] = { "a b",      "*",    "[x]", "?", "\xff",
					    "\xc3\xa9", "a\nb", "'",   "\\" };
	struct fixture *f = *state;
	char name[64];

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		assert_int_equal(mkdir(fixture_host_path(f, dirs[i]), 0777), 0);
		snprintf(name, sizeof(name), "%s/[a]", dirs[i]);
		assert_int_equal(upload_bytes(f, name, dirs[i], strlen(dirs[i])), 0);
		assert_true(file_is(fixture_host_path(f, name), dirs[i], strlen(dirs[i])));
		assert_int_equal(count_names(fixture_host_path(f, dirs[i])), 1);
		snprintf(name, sizeof(name), "%s/none/x", dirs[i]);
		assert_int_equal(upload_bytes(f, name, "x", 1), -ENOENT);
		assert_int_equal(count_names(fixture_host_path(f, dirs[i])), 1);
	}
	WAIT_UNTIL(count_aliases(f) == 0);
}

/* Every byte that a name can hold, there and back. */
static void test_round_trip_of_odd_names(void **state)
{
	struct fixture *f = *state;
	char names[60][8];
	unsigned byte = 1;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = 0;

		names[i][n++] = (char)('0' + i); /* up to 'k': none is "." or ".." */
		while (n < 6) {
			if (byte != '/')
				names[i][n++] = (char)byte;
			byte = byte == 255 ? 1 : byte + 1;
		}
		names[i][n] = 0;
		if (strchr(names[i], '/')) /* '0' + i passes it by */
			fail();
		assert_int_equal(upload_bytes(f, names[i], names[i], n), 0);
	}
	assert_int_equal(count_names(f->host_dir), ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct reader r CLEANUP_READER = READER;
		struct download how = reading(&r);

		assert_int_equal(SYNC(f->sb, sandbox_download, fixture_path(f, names[i]), &how), 0);
		assert_true(reader_has(&r, names[i], 6));
		assert_true(file_is(fixture_host_path(f, names[i]), names[i], 6));
	}
	WAIT_UNTIL(count_aliases(f) == 0);
}

/* ---- how many requests, and where to ---- */

static size_t forms_to(struct fixture *f, const char *path)
{
	char text[300];

	snprintf(text, sizeof(text), "name=\"path\"\r\n\r\n%s\r\n", path);
	return rogue_count_body(f->rogue, "POST", route, text);
}

static size_t commands(struct fixture *f)
{
	return rogue_count(f->rogue, NULL, "/v1/bash/exec") +
	       rogue_count(f->rogue, NULL, "/v1/shell/exec");
}

static void test_replacing_goes_through_a_temporary_name(void **state)
{
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "x"), "old", 3);
	assert_int_equal(upload_bytes(f, "x", "new", 3), 0);
	assert_int_equal(forms_to(f, fixture_path(f, "x")), 0);
	assert_int_equal(rogue_count_body(f->rogue, "POST", route, ".threadfs-upload-"), 1);
	assert_int_equal(rogue_count(f->rogue, NULL, "/v1/file/find"), 1);
	/* one command; an old server first says that it has no /v1/bash */
	assert_int_equal(commands(f), f->has_bash ? 1 : 2);
}

static void test_server_that_stages_itself_needs_no_temporary_name(void **state)
{
	struct fixture *f = *state;
	size_t aiod = strcmp(f->dialect, "aiod") == 0;

	probe(f);
	put_file(fixture_host_path(f, "x"), "old", 3);
	assert_int_equal(upload_bytes(f, "x", "new", 3), 0);
	assert_int_equal(forms_to(f, fixture_path(f, "x")), aiod);
	assert_int_equal(commands(f), !aiod);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
}

static void test_new_name(void **state)
{
	struct fixture *f = *state;
	struct writer w = WRITER("new", 3);
	struct upload how = writing(&w, 3);

	how.flags = UPLOAD_NEW;
	assert_int_equal(upload(f, "x", &how), 0);
	assert_int_equal(forms_to(f, fixture_path(f, "x")), 0);
	assert_true(commands(f) >= 1);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	assert_int_equal(count_names(f->host_dir), 1);
}

static void test_new_name_that_is_taken(void **state)
{
	struct fixture *f = *state;
	struct writer w = WRITER("new", 3);
	struct upload how = writing(&w, 3);

	put_file(fixture_host_path(f, "x"), "old", 3);
	assert_int_equal(chmod(fixture_host_path(f, "x"), 0640), 0);
	assert_int_equal(symlink("nowhere", fixture_host_path(f, "link")), 0);
	how.flags = UPLOAD_NEW;
	assert_int_equal(upload(f, "x", &how), -EEXIST);
	w.sent = 0;
	assert_int_equal(upload(f, "link", &how), -EEXIST);
	assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
	assert_int_equal(mode_of(fixture_host_path(f, "x")), 0640);
	assert_int_equal(count_names(f->host_dir), 2);
}

static void test_only_over_the_version_that_was_seen(void **state)
{
	struct fixture *f = *state;
	const char *host = fixture_host_path(f, "x");
	struct writer w = WRITER("new", 3);
	struct upload how = writing(&w, 3);
	struct stat st;
	struct attr seen;

	probe(f);
	put_file(host, "old", 3);
	assert_int_equal(stat(host, &st), 0);
	seen = (struct attr){ .mode = st.st_mode,
			      .ino = st.st_ino,
			      .size = (uint64_t)st.st_size,
			      .mtime = st.st_mtim };
	how.over = &seen;
	/* as long, and of another time */
	seen.mtime.tv_nsec ^= 1;
	assert_int_equal(upload(f, "x", &how), -EEXIST);
	assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
	assert_int_equal(count_names(f->host_dir), 1);
	seen.mtime.tv_nsec ^= 1;
	w.sent = 0;
	assert_int_equal(upload(f, "x", &how), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	/* it is another one by now; and none is another one, too */
	w.sent = 0;
	assert_int_equal(upload(f, "x", &how), -EEXIST);
	assert_int_equal(unlink(fixture_host_path(f, "x")), 0);
	w.sent = 0;
	assert_int_equal(upload(f, "x", &how), -EEXIST);
	assert_int_equal(count_names(f->host_dir), 0);
}

/* Also if it is very old. */
static void test_only_over_a_version_before_1970(void **state)
{
	static const struct timespec times[] = { { -2, 500000000 }, { -1, 999999999 }, { -1, 1 },
						 { -2, 0 },         { -1, 0 },         { 0, 0 },
						 { 0, 1 } };
	struct fixture *f = *state;
	struct writer w = WRITER("new", 3);
	struct upload how = writing(&w, 3);
	struct attr seen;

	how.over = &seen;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		const char *host = fixture_host_path(f, "x");

		put_file(host, "old", 3);
		assert_int_equal(utimensat(AT_FDCWD, host,
					   (const struct timespec[2]){ times[i], times[i] }, 0),
				 0);
		assert_int_equal(SYNC(f->sb, sandbox_lstat, fixture_path(f, "x"), &seen), 0);
		assert_int_equal(seen.mtime.tv_sec, times[i].tv_sec);
		assert_int_equal(seen.mtime.tv_nsec, times[i].tv_nsec);
		w.sent = 0;
		assert_int_equal(upload(f, "x", &how), 0);
		assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	}
}

/* What cleans up after a failure must never meet a file of the final name. */
static void test_failed_new_name_spares_its_successor(void **state)
{
	struct fixture *f = *state;
	struct writer w = WRITER("new", 3);
	struct upload how = writing(&w, 3);

	how.flags = UPLOAD_NEW;
	rogue_answer(f->rogue, "POST", "/v1/file/find", 500, "boom");
	ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_ANSWER, .times = 1,
		  .reply = { .status = 500, .body = "boom" });
	assert_int_equal(upload(f, "x", &how), -EIO);
	w.sent = 0;
	assert_int_equal(upload(f, "x", &how), 0);
	w.sent = 0;
	assert_int_equal(upload(f, "x", &how), -EEXIST);
	assert_int_equal(forms_to(f, fixture_path(f, "x")), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
	assert_int_equal(count_names(f->host_dir), 1);
}

/* ---- what cannot be ---- */

static void expect_refusals(struct fixture *f)
{
	for (unsigned flags = 0; flags <= UPLOAD_NEW; flags++) {
		for (int mode = -1; mode < 0700; mode += 0601) {
			struct writer w = WRITER("a", 1);
			struct upload how = writing(&w, 1);

			how.flags = flags;
			how.mode = mode;
			assert_int_equal(upload(f, "no/such/x", &how), -ENOENT);
			assert_int_equal(upload(f, "file/x", &how), -ENOTDIR);
			assert_int_equal(upload(f, "file/a/x", &how), -ENOTDIR);
			w.sent = 0;
			assert_int_equal(upload(f, "dir", &how), flags ? -EEXIST : -EISDIR);
			assert_true(file_is(fixture_host_path(f, "file"), "f", 1));
			assert_int_equal(count_names(f->host_dir), 2);
		}
	}
}

static void test_no_directory_is_made_and_none_replaced(void **state)
{
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "file"), "f", 1);
	assert_int_equal(mkdir(fixture_host_path(f, "dir"), 0777), 0);
	assert_int_equal(upload_bytes(f, "no/x", "a", 1), -ENOENT);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 1);
	expect_refusals(f);
	probe(f);
	expect_refusals(f);
}

static void test_bad_arguments_need_no_request(void **state)
{
	static const struct {
		const char *path;
		int64_t size;
		int mode, err;
	} cases[] = {
		{ "/mnt/user-data", 1, -1, -EISDIR },
		{ "/mnt/user-data/", 1, -1, -EISDIR },
		{ "/mnt/user-data/.", 1, -1, -EISDIR },
		{ "/mnt/user-data/x/", 1, -1, -EISDIR },
		{ "/mnt/user-data/x", -2, -1, -EINVAL },
		{ "/mnt/user-data/x", INT64_MAX, -1, -EINVAL },
		{ "/mnt/user-data/x", 1, -2, -EINVAL },
		{ "/mnt/user-data/x", 1, 010000, -EINVAL },
		{ "/etc/passwd", 1, -1, -EACCES },
		{ "/mnt/user-data/../x", 1, -1, -EACCES },
		{ "x", 1, -1, -EINVAL },
		{ "/mnt/user-data\\..\\x", 1, -1, -EACCES },
	};
	struct fixture *f = *state;
	struct writer w = WRITER("a", 1);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct upload how = writing(&w, cases[i].size);

		how.mode = cases[i].mode;
		assert_int_equal(SYNC(f->sb, sandbox_upload, cases[i].path, &how), cases[i].err);
	}
	assert_int_equal(rogue_connections_total(f->rogue), 0);
}

/* The find route of some server says something else: a command tells then. */
static void test_directory_is_looked_at_by_a_command_if_need_be(void **state)
{
	static const struct rogue_reply answers[] = {
		{ .status = 404, .body = "<html>" },
		{ .status = 500, .body = "{\"success\":false,\"message\":\"boom\",\"data\":null}" },
		{ .body = "{\"success\":true,\"data\":{\"path\":\"x\",\"files\":[]}}" },
		{ .body = "{\"success\":true,\"data\":{\"path\":\"x\"}}" },
		{ .body = "{\"success\":true,\"data\":[]}" },
		{ .body = "garbage" },
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		rogue_clear(f->rogue);
		rogue_add(f->rogue, &(struct rogue_rule){ .path = "/v1/file/find",
							  .action = ROGUE_ANSWER,
							  .reply = answers[i] });
		assert_int_equal(upload_bytes(f, "x", "abc", 3), 0);
		assert_true(file_is(fixture_host_path(f, "x"), "abc", 3));
		assert_int_equal(upload_bytes(f, "no/x", "abc", 3), -ENOENT);
		assert_int_equal(count_names(f->host_dir), 1);
	}
}

/* ---- sources ---- */

static void test_sources_of_another_size(void **state)
{
	static const int64_t sizes[] = { 0, 1, 99, 101, 5000000 };
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(100, 1);
	int fd CLEANUP_FD = open_content(bytes, 100);

	put_file(fixture_host_path(f, "x"), "old", 3);
	for (size_t i = 0; i < 4 * ARRAY_SIZE(sizes); i++) {
		struct writer w = WRITER(bytes, 100);
		struct upload how = writing(&w, sizes[i / 4]);
		bool is_new = i & 1;

		if (i & 2) {
			how.read = NULL;
			how.fd = fd;
		}
		how.flags = is_new ? UPLOAD_NEW : 0;
		assert_int_equal(upload(f, is_new ? "new" : "x", &how), -EIO);
		assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
		assert_int_equal(count_names(f->host_dir), 1);
	}
}

static void test_sources_that_fail(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 2);

	put_file(fixture_host_path(f, "x"), "old", 3);
	for (unsigned i = 0; i < 4; i++) {
		struct writer w = WRITER(bytes, i & 1 ? MIB : 0);
		struct upload how = writing(&w, i & 2 ? -1 : (int64_t)MIB + 1);

		w.refusal = -EDQUOT;
		assert_int_equal(upload(f, "x", &how), -EDQUOT);
		how.flags = UPLOAD_NEW;
		w.sent = 0;
		assert_int_equal(upload(f, "new", &how), -EDQUOT);
		how = (struct upload){ .size = 5, .mode = -1, .fd = -1 };
		assert_int_equal(upload(f, "x", &how), -EBADF);
		assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
		assert_int_equal(count_names(f->host_dir), 1);
	}
}

/* ---- pauses ---- */

struct paused_upload {
	struct writer w;
	struct upload how;
	struct call *call;
};

static void start_paused(struct fixture *f, struct paused_upload *p, const char *name,
			 const char *bytes, size_t len, uint64_t pause_at, int64_t timeout_ms)
{
	p->w = WRITER(bytes, len);
	p->w.pause_at = pause_at;
	p->how = writing(&p->w, (int64_t)len);
	p->call = new_call(timeout_ms);
	sandbox_upload(f->sb, p->call, fixture_path(f, name), &p->how);
	WAIT_UNTIL(atomic_load(&p->w.paused));
}

static int resume(struct fixture *f, struct paused_upload *p)
{
	atomic_store(&p->w.open, true);
	sandbox_go_on(f->sb, p->call);
	return finish_call(p->call);
}

static void test_old_file_is_there_until_the_new_one_is(void **state)
{
	struct fixture *f = *state;
	size_t len = 2 * MIB;
	char *bytes CLEANUP_FREE = make_content(len, 3);
	uint64_t at[] = { 0, 1, MIB, 2 * MIB };
	struct paused_upload p;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(at); i++) {
		if (i == ARRAY_SIZE(at))
			probe(f);
		put_file(fixture_host_path(f, "x"), "old", 3);
		start_paused(f, &p, "x", bytes, len, at[i % 4], 30000);
		assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
		assert_int_equal(resume(f, &p), 0);
		assert_true(file_is(fixture_host_path(f, "x"), bytes, len));
		assert_int_equal(count_names(f->host_dir), 1);
	}
}

static void test_pause_does_not_count_as_silence(void **state)
{
	struct fixture *f = *state;
	struct paused_upload p;
	int64_t until;

	start_paused(f, &p, "x", "0123456789", 10, 5, 1500);
	until = clock_ms() + 4000;
	WAIT_UNTIL(clock_ms() > until);
	assert_int_equal(resume(f, &p), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "0123456789", 10));
}

struct waker {
	struct fixture *f;
	struct call *call;
	atomic_bool stop;
};

static void *keep_waking(void *arg)
{
	struct waker *w = arg;

	while (!atomic_load(&w->stop))
		sandbox_go_on(w->f->sb, w->call);
	return NULL;
}

/* Gives a little, pauses, and is woken by another thread. */
static ssize_t read_haltingly(void *ctx, char *to, size_t len)
{
	struct writer *w = ctx;
	bool was = atomic_exchange(&w->paused, !atomic_load(&w->paused));

	return was ? writer_read(ctx, to, len) : -EAGAIN;
}

static void test_pauses_at_every_piece(void **state)
{
	struct fixture *f = *state;
	size_t len = MIB;
	char *bytes CLEANUP_FREE = make_content(len, 4);

	for (unsigned i = 0; i < 2; i++) {
		struct writer w = WRITER(bytes, len);
		struct upload how = writing(&w, i ? -1 : (int64_t)len);
		struct call call;
		struct waker waker = { .f = f, .call = &call };
		pthread_t thread;

		w.most = 10000;
		how.read = read_haltingly;
		call_init(&call, 30000);
		sandbox_upload(f->sb, &call, fixture_path(f, "x"), &how);
		assert_int_equal(pthread_create(&thread, NULL, keep_waking, &waker), 0);
		assert_int_equal(call_wait(&call), 0);
		atomic_store(&waker.stop, true);
		pthread_join(thread, NULL);
		call_release(&call);
		assert_true(file_is(fixture_host_path(f, "x"), bytes, len));
	}
}

/* ---- interruptions: nothing of the new file stays ---- */

static void expect_old(struct fixture *f)
{
	WAIT_UNTIL(count_names(f->host_dir) == 1);
	assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
}

static void test_cancel_in_the_middle(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 5);
	struct paused_upload p;

	put_file(fixture_host_path(f, "x"), "old", 3);
	for (unsigned i = 0; i < 4; i++) {
		if (i == 2)
			probe(f);
		start_paused(f, &p, "x", bytes, 2 * MIB, i & 1 ? MIB : 0, 0);
		call_cancel(p.call);
		assert_int_equal(finish_call(p.call), -ECANCELED);
		expect_old(f);
	}
	/* a new name is removed as well */
	p.w = WRITER(bytes, 2 * MIB);
	p.w.pause_at = MIB;
	p.how = writing(&p.w, 2 * MIB);
	p.how.flags = UPLOAD_NEW;
	p.call = new_call(0);
	sandbox_upload(f->sb, p.call, fixture_path(f, "new"), &p.how);
	WAIT_UNTIL(atomic_load(&p.w.paused));
	call_cancel(p.call);
	assert_int_equal(finish_call(p.call), -ECANCELED);
	expect_old(f);
}

static void test_close_in_the_middle(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 6);
	struct paused_upload p, q;

	put_file(fixture_host_path(f, "x"), "old", 3);
	start_paused(f, &p, "x", bytes, 2 * MIB, MIB, 0);
	start_paused(f, &q, "\xff", bytes, 2 * MIB, MIB, 0);
	sandbox_close(f->sb);
	assert_true(rogue_wait_connections(f->rogue, 0, PATIENCE_MS));
	assert_int_equal(finish_call(p.call), -ENOTCONN);
	assert_int_equal(finish_call(q.call), -ENOTCONN);
	expect_old(f);
}

static void test_cancel_at_any_moment(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 7);
	unsigned done = 0;

	put_file(fixture_host_path(f, "x"), "old", 3);
	for (unsigned i = 0; i < 30; i++) {
		struct writer w = WRITER(bytes, MIB);
		struct upload how = writing(&w, MIB);
		struct call *call = new_call(0);
		int r;

		sandbox_upload(f->sb, call, fixture_path(f, "x"), &how);
		nanosleep(&(struct timespec){ .tv_nsec = 500000 * i }, NULL);
		call_cancel(call);
		r = finish_call(call);
		assert_true(r == 0 || r == -ECANCELED);
		done += r == 0;
	}
	WAIT_UNTIL(count_names(f->host_dir) == 1);
	assert_true(file_is(fixture_host_path(f, "x"), bytes, MIB) ||
		    (done == 0 && file_is(fixture_host_path(f, "x"), "old", 3)));
}

/* ---- servers that get it wrong ---- */

static void expect_failure(struct fixture *f, const struct rogue_rule *rule, int64_t timeout_ms,
			   int err)
{
	char *bytes CLEANUP_FREE = make_content(MIB, 8);

	for (unsigned flags = 0; flags <= UPLOAD_NEW; flags++) {
		struct writer w = WRITER(bytes, MIB);
		struct upload how = writing(&w, MIB);
		int r;

		how.flags = flags;
		rogue_clear(f->rogue);
		rogue_add(f->rogue, rule);
		r = SYNC_MS(timeout_ms, f->sb, sandbox_upload, fixture_path(f, flags ? "new" : "x"),
			    &how);
		if (r != err)
			fail_msg("%d instead of %d", r, err);
		expect_old(f);
	}
	rogue_release(f->rogue);
}

static void test_servers_that_refuse(void **state)
{
	static const struct {
		int status;
		const char *body;
		int err;
	} answers[] = {
		{ 500,
		  "{\"success\":false,\"message\":\"Failed to upload file: [Errno 28] No space "
		  "left on "
		  "device\",\"data\":null}",
		  -ENOSPC },
		{ 200,
		  "{\"success\":false,\"message\":\"x\",\"data\":{\"error_type\":\"no_space_left\","
		  "\"errno\":28}}",
		  -ENOSPC },
		{ 200, "{\"success\":false,\"message\":\"x\",\"data\":{\"errno\":122}}", -EDQUOT },
		{ 413, "<html>nginx</html>", -EFBIG },
		{ 307, "", -EPROTO },
		{ 404, "", -EOPNOTSUPP },
		{ 200, "garbage", -EBADMSG },
		{ 200, "{\"success\":true,\"data\":{\"file_size\":5}}", -EIO },
		{ 500, "", -EIO },
	};
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "x"), "old", 3);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(answers); i++) {
		size_t k = i / 2;
		struct rogue_rule rule = {
			.path = route,
			.take_bytes = i & 1 ? 1000 : 0,
			/* also one that did it, but says otherwise */
			.action = i & 1 ? ROGUE_ANSWER : ROGUE_REPLACE,
			.reply = { .status = answers[k].status,
				   .headers = "Location: /elsewhere\r\n",
				   .body = answers[k].body },
		};

		expect_failure(f, &rule, 30000, answers[k].err);
	}
	assert_int_equal(rogue_count(f->rogue, NULL, "/elsewhere"), 0);
}

/* A server need not say how much it stored: then it is looked at. */
static void test_servers_that_say_no_size(void **state)
{
	struct fixture *f = *state;
	struct shortener s = { .host_dir = f->host_dir, .prefix = "" };

	for (unsigned i = 0; i < 4; i++) {
		struct writer w = WRITER("new", 3);
		struct upload how = writing(&w, 3);

		if (i == 2)
			probe(f);
		how.flags = i & 1 ? UPLOAD_NEW : 0;
		rogue_clear(f->rogue);
		ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_REPLACE, .handler = shorten,
			  .ctx = &s);
		assert_int_equal(upload(f, "x", &how), -EIO);
		/* a server that stages has put it there */
		unlink(fixture_host_path(f, "x"));
		WAIT_UNTIL(count_names(f->host_dir) == 0);
		rogue_clear(f->rogue);
		ROGUE_ADD(f->rogue, .path = route, .action = ROGUE_REPLACE,
			  .reply = { .body = "{\"success\":true,\"data\":{}}" });
		w.sent = 0;
		assert_int_equal(upload(f, "x", &how), 0);
		assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
		assert_int_equal(unlink(fixture_host_path(f, "x")), 0);
	}
}

static void test_connections_that_break(void **state)
{
	struct fixture *f = *state;

	put_file(fixture_host_path(f, "x"), "old", 3);
	expect_failure(
		f,
		&(struct rogue_rule){ .path = route, .take_bytes = 300000, .action = ROGUE_CLOSE },
		30000, -ECONNRESET);
	expect_failure(
		f,
		&(struct rogue_rule){ .path = route, .take_bytes = 300000, .action = ROGUE_RESET },
		30000, -ECONNRESET);
	expect_failure(f, &(struct rogue_rule){ .path = route, .action = ROGUE_CLOSE }, 30000,
		       -ECONNRESET);
	expect_failure(f, &(struct rogue_rule){ .path = route, .fault = ROGUE_CUT, .after = 10 },
		       30000, -EIO);
}

static void test_silence_is_the_deadline(void **state)
{
	struct fixture *f = *state;
	char blanks[4096];

	memset(blanks, ' ', sizeof(blanks) - 1);
	blanks[sizeof(blanks) - 1] = '\0';
	put_file(fixture_host_path(f, "x"), "old", 3);
	/* does not read, does not answer, answers half */
	expect_failure(f,
		       &(struct rogue_rule){ .path = route,
					     .take_bytes = 100000,
					     .hold_ms = ROGUE_UNTIL_RELEASED },
		       1500, -ETIMEDOUT);
	expect_failure(f,
		       &(struct rogue_rule){ .path = route,
					     .action = ROGUE_ANSWER,
					     .delay_ms = ROGUE_UNTIL_RELEASED },
		       1500, -ETIMEDOUT);
	expect_failure(f, &(struct rogue_rule){ .path = route, .fault = ROGUE_STALL, .after = 10 },
		       1500, -ETIMEDOUT);
	/* never silent, and never at its end: blanks are JSON, too */
	expect_failure(f,
		       &(struct rogue_rule){ .path = route,
					     .drip_ms = 5,
					     .action = ROGUE_ANSWER,
					     .reply = { .status = 200, .body = blanks } },
		       1500, -ETIMEDOUT);
}

/* What can be read again is sent again; what cannot is not. */
static void test_only_a_file_is_sent_again(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(MIB, 9);
	int fd CLEANUP_FD = open_content(bytes, MIB);
	struct upload how = { .size = MIB, .mode = -1, .fd = fd };
	struct rogue_rule rule = {
		.path = route, .times = 1, .take_bytes = 100000, .action = ROGUE_CLOSE
	};

	put_file(fixture_host_path(f, "x"), "old", 3);
	rogue_add(f->rogue, &rule);
	assert_int_equal(upload(f, "x", &how), 0);
	assert_true(file_is(fixture_host_path(f, "x"), bytes, MIB));
	assert_int_equal(rogue_count(f->rogue, "POST", route), 2);

	rogue_clear(f->rogue);
	rogue_forget(f->rogue);
	rogue_add(f->rogue, &rule);
	assert_int_equal(upload_bytes(f, "x", bytes, MIB), -ECONNRESET);
	assert_int_equal(rogue_count(f->rogue, "POST", route), 1);
	assert_true(file_is(fixture_host_path(f, "x"), bytes, MIB));
	assert_int_equal(count_names(f->host_dir), 1);
}

/* The command that puts it in its place fails, or cannot be sent. */
static void test_rename_that_fails(void **state)
{
	struct fixture *f = *state;
	struct rogue_rule rule = { .path = f->has_bash ? "/v1/bash/exec" : "/v1/shell/exec",
				   .body_contains = "mv -fT",
				   .action = ROGUE_CLOSE };

	put_file(fixture_host_path(f, "x"), "old", 3);
	rogue_add(f->rogue, &rule);
	assert_int_equal(upload_bytes(f, "x", "new", 3), -ECONNRESET);
	expect_old(f);
	rogue_clear(f->rogue);
	assert_int_equal(upload_bytes(f, "x", "new", 3), 0);
	assert_true(file_is(fixture_host_path(f, "x"), "new", 3));
}

static void test_server_that_dies(void **state)
{
	struct fixture *f = *state;
	char *bytes CLEANUP_FREE = make_content(2 * MIB, 10);
	struct paused_upload p;
	int r;

	fixture_own_daemon(f);
	put_file(fixture_host_path(f, "x"), "old", 3);
	start_paused(f, &p, "x", bytes, 2 * MIB, MIB, 5000);
	daemon_kill(f->daemon, SIGKILL);
	r = resume(f, &p);
	assert_true(r == -ECONNRESET || r == -ECONNREFUSED || r == -EIO || r == -EAGAIN);
	assert_true(file_is(fixture_host_path(f, "x"), "old", 3));
	assert_true(daemon_restart(f->daemon));
}

/* ---- several at once ---- */

enum { AT_ONCE = 16 };

static void test_uploads_to_one_name_at_once(void **state)
{
	struct fixture *f = *state;
	size_t len = 300000, winners = 0;
	struct {
		char *bytes;
		struct writer w;
		struct call call;
	} *u = calloc(AT_ONCE, sizeof(*u));

	assert_non_null(u);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct upload how = writing(&u[i].w, (int64_t)len);

		u[i].bytes = make_content(len, i);
		u[i].w = WRITER(u[i].bytes, len);
		call_init(&u[i].call, 30000);
		sandbox_upload(f->sb, &u[i].call, fixture_path(f, "x"), &how);
	}
	for (unsigned i = 0; i < AT_ONCE; i++) {
		assert_int_equal(call_wait(&u[i].call), 0);
		call_release(&u[i].call);
	}
	for (unsigned i = 0; i < AT_ONCE; i++) {
		winners += file_is(fixture_host_path(f, "x"), u[i].bytes, len);
		free(u[i].bytes);
	}
	free(u);
	assert_int_equal(winners, 1);
	assert_int_equal(count_names(f->host_dir), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_upload_from_a_file_or_a_writer),
		FIXTURE_TEST(test_mode),
		FIXTURE_TEST(test_odd_directories),
		FIXTURE_TEST(test_round_trip_of_odd_names),
		FIXTURE_TEST(test_replacing_goes_through_a_temporary_name),
		FIXTURE_TEST(test_server_that_stages_itself_needs_no_temporary_name),
		FIXTURE_TEST(test_new_name),
		FIXTURE_TEST(test_new_name_that_is_taken),
		FIXTURE_TEST(test_only_over_the_version_that_was_seen),
		FIXTURE_TEST(test_only_over_a_version_before_1970),
		FIXTURE_TEST(test_failed_new_name_spares_its_successor),
		FIXTURE_TEST(test_no_directory_is_made_and_none_replaced),
		FIXTURE_TEST(test_bad_arguments_need_no_request),
		FIXTURE_TEST(test_directory_is_looked_at_by_a_command_if_need_be),
		FIXTURE_TEST(test_sources_of_another_size),
		FIXTURE_TEST(test_sources_that_fail),
		FIXTURE_TEST(test_old_file_is_there_until_the_new_one_is),
		FIXTURE_TEST(test_pause_does_not_count_as_silence),
		FIXTURE_TEST(test_pauses_at_every_piece),
		FIXTURE_TEST(test_cancel_in_the_middle),
		FIXTURE_TEST(test_close_in_the_middle),
		FIXTURE_TEST(test_cancel_at_any_moment),
		FIXTURE_TEST(test_servers_that_refuse),
		FIXTURE_TEST(test_servers_that_say_no_size),
		FIXTURE_TEST(test_connections_that_break),
		FIXTURE_TEST(test_silence_is_the_deadline),
		FIXTURE_TEST(test_only_a_file_is_sent_again),
		FIXTURE_TEST(test_rename_that_fails),
		FIXTURE_TEST(test_server_that_dies),
		FIXTURE_TEST(test_uploads_to_one_name_at_once),
	};

	return FIXTURE_RUN(tests);
}

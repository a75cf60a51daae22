/* fs/reader*.c and fetch.c over real servers of each dialect, and over bad ones. */
#include "fsrig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "entry.h"
#include "every.h"
#include "io.h"
#include "reader_i.h"

static void read_it(void *what, struct read_op *op)
{
	reader_read(what, op);
}

/* ---- content ---- */

/* Any byte of a file of that seed, without having the file. */
static void fill(char *to, size_t len, uint64_t offset, unsigned seed)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t at = offset + i;
		uint64_t x = (at / 8 + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)seed << 40;

		x ^= x >> 29;
		to[i] = (char)(x >> at % 8 * 8);
	}
}

static bool is_content(const char *bytes, size_t len, uint64_t offset, unsigned seed)
{
	char want[4096];

	for (size_t n; len > 0; bytes += n, len -= n, offset += n) {
		n = MIN(len, sizeof(want));
		fill(want, n, offset, seed);
		if (memcmp(bytes, want, n) != 0)
			return false;
	}
	return true;
}

static void write_content(int fd, uint64_t from, uint64_t to, unsigned seed)
{
	static char piece[256 * 1024];

	assert_int_equal(lseek(fd, (off_t)from, SEEK_SET), from);
	while (from < to) {
		size_t n = MIN(to - from, sizeof(piece));

		fill(piece, n, from, seed);
		assert_int_equal(write_all(fd, piece, n), 0);
		from += n;
	}
}

static void make_file(struct fsrig *r, const char *name, uint64_t size, unsigned seed)
{
	int fd = open(fsrig_host_path(r, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	write_content(fd, 0, size, seed);
	close(fd);
}

static void append_content(struct fsrig *r, const char *name, uint64_t from, uint64_t to,
			   unsigned seed)
{
	int fd = open(fsrig_host_path(r, name), O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	write_content(fd, from, to, seed);
	close(fd);
}

/* ---- an open file ---- */

struct file {
	struct fsrig *rig;
	struct node *node;
	struct reader *reader;
	int error;
};

static void do_open(void *ctx)
{
	struct file *f = ctx;

	f->error = reader_new(f->node, &f->node->attr, &f->reader);
}

static void look_at_file(struct fsrig *r, struct file *f, const char *name)
{
	*f = (struct file){ .rig = r, .node = fsrig_node(r, name) };
	assert_true(f->node->has_attr);
}

/* As it was when it was looked at. What is small is asked for at once. */
static void open_looked_at(struct file *f)
{
	fsrig_run(f->rig, do_open, f);
	assert_int_equal(f->error, 0);
}

static void open_file(struct fsrig *r, struct file *f, const char *name)
{
	look_at_file(r, f, name);
	open_looked_at(f);
}

static void do_close(void *ctx)
{
	struct file *f = ctx;

	reader_free(STEAL(f->reader));
	node_unref(STEAL(f->node));
}

static void close_file(struct file *f)
{
	fsrig_run(f->rig, do_close, f);
}

static ssize_t read_at(struct file *f, void *to, size_t len, uint64_t offset)
{
	return fsrig_read(f->rig, read_it, f->reader, to, len, offset);
}

/* The whole from an offset on in pieces; the first error or how many bytes. */
static ssize_t read_through(struct file *f, uint64_t from, unsigned seed, bool *ret_good)
{
	static char piece[128 * 1024];
	uint64_t at = from;
	ssize_t n;

	*ret_good = true;
	while ((n = read_at(f, piece, sizeof(piece), at)) > 0) {
		*ret_good = *ret_good && is_content(piece, (size_t)n, at, seed);
		at += (uint64_t)n;
	}
	return n < 0 ? n : (ssize_t)(at - from);
}

/* Of content: where a watch is live the version is asked for once more at the end, by one byte. */
static size_t downloads(struct fsrig *r)
{
	struct rogue_request q;
	size_t count = 0;

	for (size_t i = 0; rogue_request(r->f->rogue, i, &q); i++) {
		if (strcmp(q.method, "GET") == 0 &&
		    strncmp(q.target, "/v1/file/download?", strlen("/v1/file/download?")) == 0 &&
		    !strstr(q.headers, "Range: bytes=0-0\r\n"))
			count++;
		rogue_request_release(&q);
	}
	return count;
}

static bool has_ranges(struct fsrig *r)
{
	return strcmp(r->f->dialect, "1.0") != 0;
}

static const char *exec_route(struct fsrig *r)
{
	return has_ranges(r) ? "/v1/bash/exec" : "/v1/shell/exec";
}

/* ---- plain reading ---- */

static void test_a_small_file_is_one_download(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[5000];
	bool good;

	make_file(r, "a", 4321, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_through(&f, 0, 1, &good), 4321);
	assert_true(good);
	assert_int_equal(read_at(&f, to, 100, 4000), 100);
	assert_true(is_content(to, 100, 4000, 1));
	assert_int_equal(read_at(&f, to, 5000, 4000), 321);
	assert_int_equal(downloads(r), 1);
	close_file(&f);
}

static void test_an_empty_file(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[10];

	make_file(r, "a", 0, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 10, 0), 0);
	assert_int_equal(read_at(&f, to, 10, 5), 0);
	assert_int_equal(downloads(r), 0);
	close_file(&f);
}

static void test_sequential(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	bool good;

	r->opt.memory = 4 * MIB;
	make_file(r, "a", 200 * MIB + 12345, 2);
	open_file(r, &f, "a");
	assert_int_equal(read_through(&f, 0, 2, &good), 200 * MIB + 12345);
	assert_true(good);
	assert_int_equal(downloads(r), 1);
	close_file(&f);
}

static void test_out_of_order(void **state)
{
	enum { N = 8, LEN = 128 * 1024 };
	static const unsigned order[N] = { 1, 0, 3, 2, 5, 7, 4, 6 };
	static char to[N][LEN];
	struct fsrig *r = *state;
	struct fsrig_read reads[N];
	struct file f;

	make_file(r, "a", 8 * MIB, 3);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to[0], LEN, 0), LEN);
	for (uint64_t base = LEN; base + N * LEN <= 8 * MIB; base += N * LEN) {
		for (unsigned i = 0; i < N; i++)
			fsrig_read_begin(r, &reads[i], read_it, f.reader, to[i], LEN,
					 base + order[i] * (uint64_t)LEN);
		for (unsigned i = 0; i < N; i++) {
			assert_int_equal(fsrig_read_end(&reads[i]), LEN);
			assert_true(is_content(to[i], LEN, base + order[i] * (uint64_t)LEN, 3));
		}
	}
	assert_int_equal(downloads(r), 1);
	close_file(&f);
}

static void test_random(void **state)
{
	enum { N = 1000, AT_ONCE = 20, LEN = 4096 };
	static char to[AT_ONCE][LEN];
	struct fsrig *r = *state;
	struct fsrig_read reads[AT_ONCE];
	struct file f;
	char byte;
	uint64_t x = 1;
	size_t before;

	make_file(r, "a", 16 * MIB, 4);
	make_file(r, "b", MIB, 5);
	/* another file shows whether there are ranges */
	open_file(r, &f, "b");
	assert_int_equal(read_at(&f, &byte, 1, MIB / 2), 1);
	close_file(&f);
	assert_int_equal(r->thread->no_range, !has_ranges(r));
	before = downloads(r);
	open_file(r, &f, "a");
	for (unsigned i = 0; i < N; i += AT_ONCE) {
		for (unsigned k = 0; k < AT_ONCE; k++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			fsrig_read_begin(r, &reads[k], read_it, f.reader, to[k], LEN,
					 (x >> 33) % (16 * MIB / LEN) * LEN);
		}
		for (unsigned k = 0; k < AT_ONCE; k++) {
			assert_int_equal(fsrig_read_end(&reads[k]), LEN);
			assert_true(is_content(to[k], LEN, reads[k].op.offset, 4));
		}
	}
	if (!has_ranges(r))
		assert_int_equal(downloads(r) - before, 1);
	else
		assert_true(rogue_max_in_flight(r->f->rogue, "/v1/file/download") <= JUMPS_MAX + 1);
	close_file(&f);
}

static void test_a_jump_fetches_what_was_asked_for(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	make_file(r, "a", 32 * MIB, 6);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 10 * MIB), 4096);
	assert_true(is_content(to, 4096, 10 * MIB, 6));
	if (has_ranges(r))
		assert_int_equal(r->fs.totals.bytes_down, 4096);
	/* and whoever goes on from there gets a stream */
	assert_int_equal(read_through(&f, 10 * MIB + 4096, 6, &good), 22 * MIB - 4096);
	assert_true(good);
	if (has_ranges(r))
		assert_int_equal(downloads(r), 2);
	close_file(&f);
}

static void test_backwards_and_again(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[64 * 1024];
	bool good;

	make_file(r, "a", 2 * MIB, 7);
	open_file(r, &f, "a");
	for (uint64_t at = 2 * MIB; at > 0;) {
		at -= sizeof(to);
		assert_int_equal(read_at(&f, to, sizeof(to), at), sizeof(to));
		assert_true(is_content(to, sizeof(to), at, 7));
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(read_through(&f, 0, 7, &good), 2 * MIB);
		assert_true(good);
	}
	close_file(&f);
}

/* head -c1 */
static void test_one_byte_costs_little(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char byte;

	make_file(r, "a", 64 * MIB, 8);
	open_file(r, &f, "a");
	assert_int_equal(downloads(r), 0);
	assert_int_equal(read_at(&f, &byte, 1, 0), 1);
	assert_int_equal(downloads(r), 1);
	close_file(&f);
	assert_true(r->fs.totals.bytes_down <= MIB);
}

/* ---- changes ---- */

static void replace(struct fsrig *r, const char *name, uint64_t size, unsigned seed)
{
	char old[600], new[600];

	make_file(r, "new", size, seed);
	snprintf(old, sizeof(old), "%s", fsrig_host_path(r, name));
	snprintf(new, sizeof(new), "%s", fsrig_host_path(r, "new"));
	assert_int_equal(rename(new, old), 0);
}

/* Before anything was read the new one is as good. */
static void test_replaced_before_reading(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	ssize_t n;
	bool good;

	make_file(r, "a", 5 * MIB, 1);
	open_file(r, &f, "a");
	replace(r, "a", 5 * MIB, 2);
	n = read_through(&f, 0, 2, &good);
	/* one of the same size shows only at the end */
	if (n != -ESTALE)
		assert_int_equal(n, 5 * MIB);
	assert_true(good);
	close_file(&f);
	open_file(r, &f, "a");
	replace(r, "a", 4 * MIB, 3);
	assert_int_equal(read_through(&f, 0, 3, &good), 4 * MIB);
	assert_true(good);
	close_file(&f);
}

static void test_replaced_while_reading(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	ssize_t n;
	bool good;

	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	replace(r, "a", 20 * MIB, 2);
	n = read_through(&f, 4096, 1, &good);
	assert_true(good);
	if (n != -ESTALE)
		assert_int_equal(n, 20 * MIB - 4096);
	if (n == -ESTALE)
		assert_int_equal(read_at(&f, to, 4096, 0), -ESTALE);
	close_file(&f);
	/* a small file that is held as a whole stays as it was */
	make_file(r, "b", 100, 1);
	open_file(r, &f, "b");
	assert_int_equal(read_at(&f, to, 50, 0), 50);
	replace(r, "b", 100, 2);
	n = read_at(&f, to, 50, 50);
	if (n != -ESTALE) {
		assert_int_equal(n, 50);
		assert_true(is_content(to, 50, 50, 1));
	}
	close_file(&f);
}

static void test_overwritten_in_place(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	append_content(r, "a", 0, 20 * MIB, 2);
	/* It may have had bytes of either, but never an end. */
	assert_int_equal(read_through(&f, 4096, 1, &good), -ESTALE);
	close_file(&f);

	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 10 * MIB), 4096);
	append_content(r, "a", 0, 20 * MIB, 2);
	for (unsigned i = 0; i < 2; i++) {
		ssize_t n = read_at(&f, to, 4096, 5 * MIB);

		if (n == 4096 && !has_ranges(r)) /* of the spool */
			assert_true(is_content(to, 4096, 5 * MIB, 1));
		else
			assert_int_equal(n, -ESTALE);
	}
	close_file(&f);
}

static void test_grown(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	make_file(r, "a", 3 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	append_content(r, "a", 3 * MIB, 4 * MIB, 1);
	assert_int_equal(read_through(&f, 4096, 1, &good), 4 * MIB - 4096);
	assert_true(good);
	/* tail -f */
	for (uint64_t size = 4 * MIB; size < 4 * MIB + 5000; size += 1000) {
		append_content(r, "a", size, size + 1000, 1);
		assert_int_equal(fsrig_lstat(r, f.node), 0);
		assert_int_equal(read_at(&f, to, 4096, size), 1000);
		assert_true(is_content(to, 1000, size, 1));
		assert_int_equal(read_at(&f, to, 4096, size + 1000), 0);
	}
	/* and jumps in what it is now */
	assert_int_equal(read_at(&f, to, 4096, 1 * MIB), 4096);
	assert_true(is_content(to, 4096, 1 * MIB, 1));
	close_file(&f);
}

/* On a thread of the proxy's. */
static int without_length(void *ctx UNUSED, const struct rogue_request *request UNUSED,
			  struct rogue_reply *reply)
{
	reply->headers = "Content-Type: application/octet-stream\r\n";
	reply->chunked = true;
	return 0;
}

/* A server that does not say how long it is: more than was expected is no broken answer. */
static void test_grown_without_length(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	bool good;

	make_file(r, "a", 1000, 1);
	look_at_file(r, &f, "a");
	append_content(r, "a", 1000, 1500, 1);
	ROGUE_ADD(r->f->rogue, .path = "/v1/file/download", .action = ROGUE_REPLACE,
		  .handler = without_length);
	open_looked_at(&f);
	assert_int_equal(read_through(&f, 0, 1, &good), 1500);
	assert_true(good);
	assert_int_equal(r->fs.totals.retried, 0);
	close_file(&f);
	rogue_clear(r->f->rogue);
}

static void note_short_answer(void *ctx)
{
	struct node *n = ctx;
	struct stat st;

	node_stat(n, &st);
	n->short_end = 1000;
	n->short_ms = clock_ms() + 60000; /* the moment lasts until it is said to be over */
	n->short_epoch = n->thread->epoch;
}

static void note_moment_over(void *ctx)
{
	((struct node *)ctx)->short_ms = 1;
}

static void note_a_command(void *ctx)
{
	thread_void_caches(((struct node *)ctx)->thread);
}

static void note_our_change(void *ctx)
{
	node_void_peers(ctx);
}

/* Whoever waits for an answer that ended there would be given zeros by the kernel. */
static void test_growth_is_told_a_moment_later(void **state)
{
	void (*const ends[])(void *) = { note_moment_over, note_a_command, note_our_change };
	struct fsrig *r = *state;

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		struct node *n;
		struct stat st;

		make_file(r, "a", 1000, 1);
		n = fsrig_node(r, "a");
		fsrig_run(r, note_short_answer, n);
		append_content(r, "a", 1000, 1500, 1);
		assert_int_equal(fsrig_lstat(r, n), 0);
		node_stat(n, &st);
		assert_int_equal(st.st_size, 1000);
		assert_true(entry_attr_seconds(n) == 0.);
		fsrig_run(r, ends[i], n);
		node_stat(n, &st);
		assert_int_equal(st.st_size, 1500);
		fsrig_put(r, n);
	}
}

/* It is longer, but not the same. */
static void test_grown_and_different(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	make_file(r, "a", 30 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	append_content(r, "a", 0, 31 * MIB, 2);
	assert_int_equal(read_through(&f, 4096, 1, &good), -ESTALE);
	close_file(&f);
}

static void test_emptied(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	make_file(r, "a", 0, 1);
	assert_int_equal(read_at(&f, to, 4096, 0), 0);
	close_file(&f);
	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	make_file(r, "a", 0, 1);
	assert_int_equal(read_through(&f, 4096, 1, &good), -ESTALE);
	close_file(&f);
}

static void test_removed(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];

	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(unlink(fsrig_host_path(r, "a")), 0);
	assert_int_equal(read_at(&f, to, 4096, 0), -ESTALE);
	close_file(&f);
}

/* Another name or mode is no other content. */
static void test_renamed(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	make_file(r, "a", 20 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	assert_int_equal(chmod(fsrig_host_path(r, "a"), 0600), 0);
	assert_int_equal(read_through(&f, 4096, 1, &good), 20 * MIB - 4096);
	assert_true(good);
	close_file(&f);
}

/* All of it is held, and is to be compared before it is handed out again. */
static void test_renamed_when_all_is_here(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	bool good;

	make_file(r, "a", 170 * KIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_through(&f, 0, 1, &good), 170 * KIB);
	for (mode_t mode = 0600; mode <= 0640; mode += 040) {
		assert_int_equal(chmod(fsrig_host_path(r, "a"), mode), 0);
		assert_int_equal(fsrig_lstat(r, f.node), 0);
		assert_int_equal(read_through(&f, 4096, 1, &good), 170 * KIB - 4096);
		assert_true(good);
	}
	close_file(&f);
}

static void do_open_after_pages(void *ctx)
{
	struct file *f = ctx;

	f->error = reader_new_after_pages(f->node, &f->node->attr, 0, &f->reader);
}

/* The kernel had pages of it: what is compared is what was handed out here. */
static void test_renamed_after_pages(void **state)
{
	struct fsrig *r = *state;
	struct file f = { .rig = r };
	char to[4096];
	bool good;

	make_file(r, "a", 250 * KIB, 1);
	f.node = fsrig_node(r, "a");
	fsrig_run(r, do_open_after_pages, &f);
	assert_int_equal(f.error, 0);
	for (mode_t mode = 0600; mode <= 0640; mode += 040) {
		assert_int_equal(read_at(&f, to, 4096, 80 * KIB), 4096);
		assert_true(is_content(to, 4096, 80 * KIB, 1));
		assert_int_equal(chmod(fsrig_host_path(r, "a"), mode), 0);
		assert_int_equal(fsrig_lstat(r, f.node), 0);
		assert_int_equal(read_through(&f, 200 * KIB, 1, &good), 50 * KIB);
		assert_true(good);
	}
	close_file(&f);
}

struct appender {
	struct fsrig *rig;
	char path[600];
	atomic_bool stop;
	_Atomic uint64_t size;
};

static void *append_on_and_on(void *arg)
{
	struct appender *a = arg;
	int fd = open(a->path, O_WRONLY | O_APPEND | O_CLOEXEC);
	char line[64];

	while (fd >= 0 && !atomic_load(&a->stop)) {
		uint64_t size = atomic_load(&a->size);

		fill(line, sizeof(line), size, 1);
		if (write_all(fd, line, sizeof(line)) < 0)
			break;
		atomic_store(&a->size, size + sizeof(line));
		nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	}
	close(fd);
	return NULL;
}

/* Faster than anybody can ask for its size. */
static void test_appended_all_the_time(void **state)
{
	struct fsrig *r = *state;
	static const uint64_t sizes[] = { 64, 100 * 1024, 10 * MIB };

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct appender a = { .rig = r, .size = sizes[i] };
		static char to[128 * 1024];
		uint64_t at = 0, until;
		pthread_t thread;
		struct file f;

		make_file(r, "log", sizes[i], 1);
		snprintf(a.path, sizeof(a.path), "%s", fsrig_host_path(r, "log"));
		assert_int_equal(pthread_create(&thread, NULL, append_on_and_on, &a), 0);
		open_file(r, &f, "log");
		/* past what was there, and some more */
		until = sizes[i] + 64 * 200;
		while (at < until) {
			ssize_t n = read_at(&f, to, sizeof(to), at);

			if (n < 0 || !is_content(to, (size_t)n, at, 1)) {
				atomic_store(&a.stop, true);
				pthread_join(thread, NULL);
				fail_msg("%zd at %llu of %llu", n, (unsigned long long)at,
					 (unsigned long long)sizes[i]);
			}
			at += (uint64_t)n;
		}
		atomic_store(&a.stop, true);
		pthread_join(thread, NULL);
		close_file(&f);
	}
}

/* ---- failures ---- */

static void test_cut_answers(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	ssize_t n;
	bool good;
	size_t before;

	make_file(r, "a", 20 * MIB, 1);
	ROGUE_ADD(r->f->rogue, .path = "/v1/file/download", .fault = ROGUE_CUT, .after = 1000);
	open_file(r, &f, "a");
	n = read_through(&f, 0, 1, &good);
	assert_true(n == -EIO || n == -ECONNRESET);
	/* again: at once, without asking */
	before = downloads(r);
	assert_int_equal(read_at(&f, to, 4096, 19 * MIB), n);
	assert_int_equal(downloads(r), before);
	/* and later it works */
	rogue_clear(r->f->rogue);
	while ((n = read_at(&f, to, 4096, 19 * MIB)) < 0)
		nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	assert_int_equal(n, 4096);
	assert_true(is_content(to, 4096, 19 * MIB, 1));
	close_file(&f);
	/* where there are ranges, one that broke in the middle is gone on with */
	ROGUE_ADD(r->f->rogue, .path = "/v1/file/download", .fault = ROGUE_CUT, .after = 5 * MIB,
		  .times = 2);
	open_file(r, &f, "a");
	n = read_through(&f, 0, 1, &good);
	assert_true(good);
	if (has_ranges(r))
		assert_int_equal(n, 20 * MIB);
	else /* all of it, when it was begun anew before anything was handed out */
		assert_true(n == -EIO || n == 20 * MIB);
	close_file(&f);
}

/* A server that goes down may end its answer about a file anywhere: that is no word on the file. */
static void test_cut_look(void **state)
{
	struct fsrig *r = *state;
	const char *route = exec_route(r);
	struct file f;

	make_file(r, "a", 1000, 1);
	open_file(r, &f, "a");
	ROGUE_ADD(r->f->rogue, .path = route, .action = ROGUE_REPLACE, .times = 1,
		  .reply = { .body = "{\"success\":true,\"da", .until_close = true });
	assert_int_equal(fsrig_lstat(r, f.node), 0);
	/* but who never says anything else is not asked for ever */
	ROGUE_ADD(r->f->rogue, .path = route, .action = ROGUE_REPLACE,
		  .reply = { .body = "{\"success\":true,\"da", .until_close = true });
	assert_int_equal(fsrig_lstat(r, f.node), -EBADMSG);
	rogue_clear(r->f->rogue);
	assert_int_equal(fsrig_lstat(r, f.node), 0);
	close_file(&f);
}

static void test_lies_about_sizes(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	ssize_t n;
	bool good;

	make_file(r, "a", 1000, 1);
	for (int i = 0; i < 3; i++) {
		struct rogue_rule rule = {
			.path = "/v1/file/download",
			.action = ROGUE_ANSWER,
			.reply = { .headers = "Content-Type: application/octet-stream\r\n",
				   .unit = "x",
				   .units = i == 0   ? 10
					    : i == 1 ? 100000
						     : ROGUE_FOREVER,
				   .chunked = true },
		};

		rogue_clear(r->f->rogue);
		rogue_add(r->f->rogue, &rule);
		open_file(r, &f, "a");
		n = read_through(&f, 0, 1, &good);
		assert_true(n < 0);
		close_file(&f);
	}
	rogue_clear(r->f->rogue);
}

static void test_killed_in_the_middle(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char *to CLEANUP_FREE = malloc(MIB);
	ssize_t n;
	bool good;
	struct node *n0 = fsrig_node(r, "nothing"); /* starts it */

	fsrig_put(r, n0);
	make_file(r, "a", 100 * MIB, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 128 * 1024, 0), 128 * 1024);
	rig_kill(r->rig, r->thread->tenant);
	n = read_through(&f, 128 * 1024, 1, &good);
	assert_true(good);
	assert_int_equal(n, 100 * MIB - 128 * 1024);
	close_file(&f);
}

/* ---- many ---- */

static bool is_modest(void *ctx)
{
	struct fsrig *r = ctx;
	struct transfer *x;
	unsigned streams = 0;

	for (x = r->thread->transfers; x; x = x->next)
		streams++;
	return streams == 0 && r->fs.memory_used <= r->opt.memory;
}

static void do_open_again(void *ctx)
{
	struct file *f = ctx;

	node_ref(f->node);
	do_open(f);
}

static void test_many_open_files(void **state)
{
	enum { N = 1000 };
	struct fsrig *r = *state;
	struct file *files = calloc(N, sizeof(*files));
	struct node *small, *large;
	size_t rss = rss_kib();
	char to[4096];

	assert_non_null(files);
	r->opt.memory = 16 * MIB;
	make_file(r, "large", 4 * MIB, 1);
	make_file(r, "small", 100 * 1024, 2);
	small = fsrig_node(r, "small");
	large = fsrig_node(r, "large");
	for (unsigned i = 0; i < N; i++) {
		files[i] = (struct file){ .rig = r, .node = i % 4 == 0 ? small : large };
		fsrig_run(r, do_open_again, &files[i]);
		assert_int_equal(files[i].error, 0);
		assert_int_equal(read_at(&files[i], to, sizeof(to), 0), sizeof(to));
	}
	if (has_ranges(r)) {
		assert_true(fsrig_wait(r, is_modest, r));
		assert_true(measuring_is_vain() || rss_kib() - rss < 128 * 1024);
	}
	/* each goes on where it was */
	for (unsigned i = 0; i < N; i += 50) {
		assert_int_equal(read_at(&files[i], to, sizeof(to), 4096), sizeof(to));
		assert_true(is_content(to, sizeof(to), 4096, i % 4 == 0 ? 2 : 1));
	}
	for (unsigned i = 0; i < N; i++)
		close_file(&files[i]);
	fsrig_put(r, small);
	fsrig_put(r, large);
	free(files);
}

static void do_look(void *ctx)
{
	struct file *f = ctx;

	f->error = f->rig->fs.memory_used <= f->rig->opt.memory + 2 * 128 * 1024 ? 0 : -ENOMEM;
}

/* Who opens all before the first bytes come, and reads faster than any timer, takes no more. */
static void test_memory_is_kept_to(void **state)
{
	enum { N = 400 };
	static char to[100 * 1024];
	struct fsrig *r = *state;
	struct file *files = calloc(N, sizeof(*files));
	struct node *small;

	assert_non_null(files);
	r->opt.memory = 4 * MIB;
	make_file(r, "small", sizeof(to), 2);
	small = fsrig_node(r, "small");
	for (unsigned i = 0; i < N; i++) {
		files[i] = (struct file){ .rig = r, .node = small };
		fsrig_run(r, do_open_again, &files[i]);
		assert_int_equal(files[i].error, 0);
	}
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(read_at(&files[i], to, sizeof(to), 0), sizeof(to));
		fsrig_run(r, do_look, &files[i]);
		assert_int_equal(files[i].error, 0);
	}
	assert_true(is_content(to, sizeof(to), 0, 2));
	for (unsigned i = 0; i < N; i++)
		close_file(&files[i]);
	fsrig_put(r, small);
	free(files);
}

/* ---- giving up ---- */

static void do_cancel(void *ctx)
{
	struct fsrig_read *rd = ctx;

	if (!fsrig_read_is_done(rd))
		reader_cancel(rd->what, &rd->op);
}

static void test_cancel(void **state)
{
	struct fsrig *r = *state;
	static char to[4][4096];
	struct fsrig_read reads[4];
	struct file f;
	bool good;

	make_file(r, "a", 8 * MIB, 1);
	ROGUE_ADD(r->f->rogue, .path = "/v1/file/download", .hold_ms = ROGUE_UNTIL_RELEASED);
	open_file(r, &f, "a");
	for (unsigned i = 0; i < 4; i++)
		fsrig_read_begin(r, &reads[i], read_it, f.reader, to[i], 4096, i * 2 * MIB);
	assert_true(rogue_wait_for(r->f->rogue, "GET", "/v1/file/download", 2, 20000));
	for (unsigned i = 0; i < 4; i++) {
		fsrig_run(r, do_cancel, &reads[i]);
		assert_false(fsrig_read_is_done(&reads[i]));
	}
	rogue_clear(r->f->rogue);
	rogue_release(r->f->rogue);
	assert_int_equal(read_through(&f, 0, 1, &good), 8 * MIB);
	assert_true(good);
	for (unsigned i = 0; i < 4; i++)
		assert_false(fsrig_read_is_done(&reads[i]));
	close_file(&f);
}

/* Freed after each number of steps of the loop that there may be. */
static void test_free_in_every_phase(void **state)
{
	struct fsrig *r = *state;
	static char to[3][4096];
	struct fsrig_read reads[3];
	struct file f;

	make_file(r, "a", 2 * MIB, 1);
	for (unsigned steps = 0; steps < 120; steps++) {
		open_file(r, &f, "a");
		if (steps % 3 == 1) /* the file changes, too */
			append_content(r, "a", 2 * MIB, 2 * MIB + steps, 1);
		if (steps % 3 == 2)
			replace(r, "a", 2 * MIB, 1);
		for (unsigned i = 0; i < 3; i++)
			fsrig_read_begin(r, &reads[i], read_it, f.reader, to[i], 4096,
					 i == 2 ? 2 * MIB - 100 : i * MIB);
		for (unsigned i = 0; i < steps; i++)
			nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		for (unsigned i = 0; i < 3; i++)
			fsrig_run(r, do_cancel, &reads[i]);
		close_file(&f);
	}
}

/* ---- keeping ---- */

struct keeping {
	struct file *f;
	int error;
	bool done;
};

static void on_kept(void *ctx, int err)
{
	struct keeping *k = ctx;

	k->error = err;
	k->done = true;
}

static void do_keep(void *ctx)
{
	struct keeping *k = ctx;

	reader_keep(k->f->reader, on_kept, k);
}

static bool is_kept(void *ctx)
{
	return ((struct keeping *)ctx)->done;
}

static void do_detach(void *ctx)
{
	node_detach(ctx);
}

static void test_keep(void **state)
{
	static const uint64_t sizes[] = { 0, 5000, 5 * MIB };
	struct fsrig *r = *state;
	char to[4096];

	for (unsigned i = 0; i < 3 * ARRAY_SIZE(sizes); i++) {
		uint64_t size = sizes[i / 3];
		struct keeping k = { 0 };
		struct file f;
		bool good;

		make_file(r, "a", size, 1);
		open_file(r, &f, "a");
		if (i % 3 > 0 && size > 0)
			assert_int_equal(read_at(&f, to, 4096, i % 3 == 1 ? 0 : size / 8),
					 MIN(size - size / 8 * (i % 3 / 2), 4096));
		k.f = &f;
		fsrig_run(r, do_keep, &k);
		assert_true(fsrig_wait(r, is_kept, &k));
		assert_int_equal(k.error, 0);
		assert_int_equal(unlink(fsrig_host_path(r, "a")), 0);
		fsrig_run(r, do_detach, f.node);
		assert_int_equal(read_through(&f, 0, 1, &good), size);
		assert_true(good);
		if (size > 0)
			assert_int_equal(read_at(&f, to, 4096, size - 10), 10);
		close_file(&f);
	}
}

/* ---- while changes are told ---- */

static void do_watch(void *ctx)
{
	struct file *f = ctx;

	f->node->thread->watched = true;
	f->node->attr_ms = clock_ms() + 600 * 1000; /* what is known does not age */
}

static void do_tell(void *ctx)
{
	node_void_attr(ctx);
}

static size_t commands(struct fsrig *r)
{
	return rogue_count(r->f->rogue, "POST", "/v1/bash/exec") +
	       rogue_count(r->f->rogue, "POST", "/v1/shell/exec");
}

static void open_watched(struct fsrig *r, struct file *f, const char *name)
{
	*f = (struct file){ .rig = r, .node = fsrig_node(r, name) };
	assert_true(f->node->has_attr);
	fsrig_run(r, do_watch, f);
	fsrig_run(r, do_open, f);
	assert_int_equal(f->error, 0);
}

/* A watched file, of which one page in the middle has been read. */
static void open_watched_and_jump(struct fsrig *r, struct file *f)
{
	char to[4096];

	make_file(r, "a", 3 * MIB, 1);
	open_watched(r, f, "a");
	assert_int_equal(read_at(f, to, 4096, MIB), 4096);
}

/* How many commands it took to read all of a file that is watched. */
static size_t commands_to_read(struct fsrig *r, uint64_t size, unsigned seed)
{
	struct file f;
	char to[4096];
	size_t before;
	bool good;

	make_file(r, "a", size, seed);
	open_watched(r, &f, "a");
	before = commands(r);
	assert_int_equal(read_through(&f, 0, seed, &good), size);
	assert_true(good);
	if (size > 10000) {
		assert_int_equal(read_at(&f, to, 4096, size / 3), 4096);
		assert_true(is_content(to, 4096, size / 3, seed));
	}
	close_file(&f);
	return commands(r) - before;
}

/* What is proven by a command otherwise follows from having heard of nothing. */
static void test_watched(void **state)
{
	static const uint64_t sizes[] = { 1, 5000, 60000, 300000, 3 * MIB };
	struct fsrig *r = *state;

	/* The real watch tells of the file's making, at times only when it is being read. */
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		unsigned tries = 0;

		while (commands_to_read(r, sizes[i], i) > 0 &&
		       (has_ranges(r) || sizes[i] <= 64 * 1024))
			assert_true(++tries < 100);
	}
}

/* Something was heard: the end is handed out when it is known what it is. */
static void test_watched_and_told(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	bool good;

	/* nothing that concerns the content */
	make_file(r, "a", 3 * MIB, 1);
	open_watched(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	fsrig_run(r, do_tell, f.node);
	assert_int_equal(read_through(&f, 4096, 1, &good), 3 * MIB - 4096);
	assert_true(good);
	close_file(&f);

	/* another content of the same size and second: only the event tells */
	make_file(r, "b", 3 * MIB, 2);
	open_watched(r, &f, "b");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	make_file(r, "b", 3 * MIB, 3);
	fsrig_run(r, do_tell, f.node);
	assert_int_equal(read_through(&f, 4096, 2, &good), -ESTALE);
	close_file(&f);

	if (!has_ranges(r)) /* what is there already is good */
		return;
	make_file(r, "c", 3 * MIB, 4);
	open_watched(r, &f, "c");
	assert_int_equal(read_at(&f, to, 4096, MIB), 4096);
	make_file(r, "c", 3 * MIB, 5);
	fsrig_run(r, do_tell, f.node);
	assert_int_equal(read_at(&f, to, 4096, 2 * MIB), -ESTALE);
	close_file(&f);
}

/* What the server calls the version outlives a look that found it unchanged. */
static void test_watched_and_told_late(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];

	if (!has_ranges(r))
		return;
	open_watched_and_jump(r, &f);
	fsrig_run(r, do_tell, f.node); /* of its making */
	assert_int_equal(read_at(&f, to, 4096, 3 * MIB), 0);
	fsrig_run(r, do_watch, &f);
	make_file(r, "a", 3 * MIB, 2);
	assert_int_equal(read_at(&f, to, 4096, 2 * MIB), -ESTALE);
	close_file(&f);
}

static void do_suspect(void *ctx)
{
	reader_suspect(ctx);
}

/* It was changed, and nobody can be asked as what: what is held is not handed out meanwhile. */
static void test_suspect_and_no_answer(void **state)
{
	static const char *const routes[] = { "/v1/bash/exec", "/v1/shell/exec" };
	struct fsrig *r = *state;
	struct file f;
	char to[4096];
	ssize_t n;
	bool good;

	make_file(r, "a", 50000, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_through(&f, 0, 1, &good), 50000);
	make_file(r, "a", 50000, 2);
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		rogue_answer(r->f->rogue, "POST", routes[i], 500, "broken");
	fsrig_run(r, do_suspect, f.reader);
	for (size_t i = 0; i < 3; i++)
		assert_true(read_at(&f, to, 4096, 4096 * i) < 0);
	rogue_clear(r->f->rogue);
	while ((n = read_at(&f, to, 4096, 0)) < 0)
		nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	assert_int_equal(n, 4096);
	assert_true(is_content(to, 4096, 0, 2));
	close_file(&f);
}

struct nag {
	struct reader *reader;
	ev_timer timer;
};

static void on_nag(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct nag *n = w->data;

	reader_suspect(n->reader);
}

static void do_nag(void *ctx)
{
	struct nag *n = ctx;

	ev_timer_init(&n->timer, on_nag, 0.02, 0.02);
	n->timer.data = n;
	ev_timer_start(n->reader->node->fs->ev, &n->timer);
	reader_suspect(n->reader);
}

static void do_end_nag(void *ctx)
{
	struct nag *n = ctx;

	ev_timer_stop(n->reader->node->fs->ev, &n->timer);
}

/* It is written to all the time, and looking takes longer than from one time to the next. */
static void test_suspect_more_often_than_answers_come(void **state)
{
	struct fsrig *r = *state;
	struct nag nag;
	struct file f;
	char to[4096];
	int64_t begun;

	r->opt.timeout_ms = 2000;
	make_file(r, "a", 20 * 1024 * 1024, 1);
	open_file(r, &f, "a");
	assert_int_equal(read_at(&f, to, 4096, 0), 4096);
	ROGUE_ADD(r->f->rogue, .path = "/v1/bash/exec", .delay_ms = 200);
	ROGUE_ADD(r->f->rogue, .path = "/v1/shell/exec", .delay_ms = 200);
	nag.reader = f.reader;
	fsrig_run(r, do_nag, &nag);
	begun = clock_ms();
	assert_int_equal(read_at(&f, to, 4096, 4096), -ESTALE);
	/* likewise elsewhere, with a request of its own */
	assert_int_equal(read_at(&f, to, 4096, 12 * 1024 * 1024), -ESTALE);
	assert_true(clock_ms() - begun < 40000);
	/* Once it rests it can be read. */
	fsrig_run(r, do_end_nag, &nag);
	rogue_clear(r->f->rogue);
	assert_int_equal(read_at(&f, to, 4096, 4096), 4096);
	assert_true(is_content(to, 4096, 4096, 1));
	close_file(&f);
}

static void do_move(void *ctx)
{
	struct file *f = ctx;

	f->node->thread->writes++;
	node_note(f->node, NULL, NOTE_TREE);
	f->error = node_move(f->node, f->node->parent, "b");
	node_note(f->node, NULL, NOTE_TREE);
}

static bool is_asked(void *ctx)
{
	struct fsrig *r = ctx;

	return rogue_count(r->f->rogue, NULL, exec_route(r)) >= 1;
}

/* A file "a" that was read; what was asked until then is forgotten. */
static void open_and_read(struct fsrig *r, struct file *f)
{
	bool good;

	make_file(r, "a", 50000, 1);
	open_file(r, f, "a");
	assert_int_equal(read_through(f, 0, 1, &good), 50000);
	rogue_forget(r->f->rogue);
}

/* It was looked for by its old name: that it is not there says nothing. */
static void test_renamed_here_while_looked_at(void **state)
{
	struct fsrig *r = *state;
	const char *route = exec_route(r);
	struct fsrig_read read;
	struct file f;
	char to[4096];

	open_and_read(r, &f);
	ROGUE_ADD(r->f->rogue, .path = route, .hold_ms = ROGUE_UNTIL_RELEASED, .times = 1);
	fsrig_run(r, do_suspect, f.reader);
	fsrig_read_begin(r, &read, read_it, f.reader, to, 4096, 4096);
	assert_true(fsrig_wait(r, is_asked, r));
	assert_int_equal(rename(fsrig_host_path(r, "a"), fsrig_host_path(r, "b")), 0);
	fsrig_run(r, do_move, &f);
	assert_int_equal(f.error, 0);
	rogue_clear(r->f->rogue); /* what comes only now is not held */
	rogue_release(r->f->rogue);
	assert_int_equal(fsrig_read_end(&read), 4096);
	assert_true(is_content(to, 4096, 4096, 1));
	close_file(&f);
}

static void do_begin_move(void *ctx)
{
	struct file *f = ctx;

	f->node->thread->writes++;
	f->node->thread->changing++;
	node_note(f->node, NULL, NOTE_TREE);
}

static void do_end_move(void *ctx)
{
	struct file *f = ctx;

	f->node->thread->changing--;
	do_move(f);
}

static bool is_asked_again(void *ctx)
{
	struct fsrig *r = ctx;

	return rogue_count(r->f->rogue, NULL, exec_route(r)) >= 3;
}

/* It is looked for while it moves, and the answer comes before that of the rename. */
static void test_looked_at_while_renamed_here(void **state)
{
	struct fsrig *r = *state;
	struct fsrig_read read;
	struct file f;
	char to[4096];

	open_and_read(r, &f);
	fsrig_run(r, do_begin_move, &f);
	assert_int_equal(rename(fsrig_host_path(r, "a"), fsrig_host_path(r, "b")), 0);
	fsrig_run(r, do_suspect, f.reader);
	fsrig_read_begin(r, &read, read_it, f.reader, to, 4096, 4096);
	assert_true(fsrig_wait(r, is_asked_again, r));
	fsrig_run(r, do_end_move, &f);
	assert_int_equal(f.error, 0);
	assert_int_equal(fsrig_read_end(&read), 4096);
	assert_true(is_content(to, 4096, 4096, 1));
	close_file(&f);
}

/* The server calls it another version before anything is heard of that. */
static void test_watched_and_replaced(void **state)
{
	struct fsrig *r = *state;
	struct file f;
	char to[4096];

	if (!has_ranges(r))
		return;
	open_watched_and_jump(r, &f);
	make_file(r, "b", 3 * MIB, 2);
	assert_int_equal(rename(fsrig_host_path(r, "b"), fsrig_host_path(r, "a")), 0);
	assert_int_equal(read_at(&f, to, 4096, 2 * MIB), -ESTALE);
	close_file(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FSRIG_TEST(test_a_small_file_is_one_download),
		FSRIG_TEST(test_an_empty_file),
		FSRIG_TEST(test_sequential),
		FSRIG_TEST(test_out_of_order),
		FSRIG_TEST(test_random),
		FSRIG_TEST(test_a_jump_fetches_what_was_asked_for),
		FSRIG_TEST(test_backwards_and_again),
		FSRIG_TEST(test_one_byte_costs_little),
		FSRIG_TEST(test_replaced_before_reading),
		FSRIG_TEST(test_replaced_while_reading),
		FSRIG_TEST(test_overwritten_in_place),
		FSRIG_TEST(test_grown),
		FSRIG_TEST(test_grown_without_length),
		FSRIG_TEST(test_growth_is_told_a_moment_later),
		FSRIG_TEST(test_grown_and_different),
		FSRIG_TEST(test_emptied),
		FSRIG_TEST(test_removed),
		FSRIG_TEST(test_renamed),
		FSRIG_TEST(test_renamed_when_all_is_here),
		FSRIG_TEST(test_renamed_after_pages),
		FSRIG_TEST(test_appended_all_the_time),
		FSRIG_TEST(test_cut_answers),
		FSRIG_TEST(test_cut_look),
		FSRIG_TEST(test_lies_about_sizes),
		FSRIG_TEST(test_many_open_files),
		FSRIG_TEST(test_memory_is_kept_to),
		FSRIG_TEST(test_cancel),
		FSRIG_TEST(test_free_in_every_phase),
		FSRIG_TEST(test_keep),
		FSRIG_TEST(test_watched),
		FSRIG_TEST(test_watched_and_told),
		FSRIG_TEST(test_watched_and_told_late),
		FSRIG_TEST(test_watched_and_replaced),
		FSRIG_TEST(test_suspect_and_no_answer),
		FSRIG_TEST(test_suspect_more_often_than_answers_come),
		FSRIG_TEST(test_renamed_here_while_looked_at),
		FSRIG_TEST(test_looked_at_while_renamed_here),
		FSRIG_EMBEDDED_TEST(test_killed_in_the_middle),
	};

	return FSRIG_RUN(tests);
}

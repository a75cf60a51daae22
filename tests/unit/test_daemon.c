/*
 * A real threadfs-sandboxd in a test: starting, killing and judging it, the
 * rogue server before it in all dialects, and the counters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "clock.h"
#include "daemon.h"
#include "visit.h"

/* ---- forwarding ---- */

static const char *const dialects[] = { "1.0", "1.9", "aiod" };

static struct daemon *start_daemon(const struct daemon_options *o)
{
	struct daemon *d = daemon_start(o);

	assert_non_null(d);
	return d;
}

static void fill_file(const struct daemon *d, const char *name, size_t size)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", daemon_data(d), name);
	f = fopen(path, "we");
	assert_non_null(f);
	for (size_t i = 0; i < size / sizeof(uint32_t); i++) {
		uint32_t x = (uint32_t)i * 2654435761u;

		assert_int_equal(fwrite(&x, sizeof(x), 1, f), 1);
	}
	fclose(f);
}

static bool is_filled(const char *data, size_t size)
{
	for (size_t i = 0; i < size / sizeof(uint32_t); i++) {
		uint32_t x = (uint32_t)i * 2654435761u, y;

		memcpy(&y, data + i * sizeof(y), sizeof(y));
		if (x != y)
			return false;
	}
	return true;
}

#define DOWNLOAD "/v1/file/download?path=/mnt/user-data/"

static void upload(struct rogue *r, const char *path, const char *data, size_t size)
{
	struct visit v CLEANUP_VISIT = { 0 };
	CURL *h = visit_client();
	curl_mime *form = curl_mime_init(h);
	curl_mimepart *part = curl_mime_addpart(form);

	curl_mime_name(part, "path");
	curl_mime_data(part, path, CURL_ZERO_TERMINATED);
	part = curl_mime_addpart(form);
	curl_mime_name(part, "file");
	curl_mime_filename(part, "f");
	curl_mime_data(part, data, size);
	visit_point(h, rogue_socket(r), rogue_url(r), "/v1/file/upload");
	curl_easy_setopt(h, CURLOPT_MIMEPOST, form);
	v = visit_perform(h, 0, 60000);
	curl_easy_cleanup(h);
	curl_mime_free(form);
	assert_int_equal(v.code, CURLE_OK);
	assert_int_equal(v.status, 200);
}

static void forward_in(const char *dialect, bool tcp)
{
	struct daemon *d = start_daemon(&(struct daemon_options){ .dialect = dialect, .tcp = tcp });
	struct rogue *r = rogue_new(tcp ? daemon_url(d) : daemon_socket(d), tcp);
	struct visit v CLEANUP_VISIT = { 0 };
	struct rogue_request q;

	assert_non_null(r);
	v = visit(r, "/v1/sandbox", NULL);
	assert_int_equal(v.status, 200);
	assert_non_null(strstr(v.body.data, "home_dir"));
	visit_release(&v);
	fill_file(d, "down", 600000);
	v = visit(r, DOWNLOAD "down", NULL);
	assert_int_equal(v.code, CURLE_OK);
	assert_int_equal(v.total, 600000);
	assert_true(is_filled(v.body.data, 600000));
	/* Back again, in more than the client sends without asking first. */
	upload(r, "/mnt/user-data/up", v.body.data, 600000);
	visit_release(&v);
	v = visit(r, DOWNLOAD "up", NULL);
	assert_true(v.total == 600000 && is_filled(v.body.data, 600000));
	visit_release(&v);
	v = visit(r, DOWNLOAD "missing", NULL);
	assert_int_equal(v.status, 404);
	assert_true(rogue_request(r, 2, &q));
	assert_in_range(q.body_total, 600000, 602000);
	assert_int_equal(q.status, 200);
	rogue_request_release(&q);
	rogue_free(r);
	assert_int_equal(daemon_stop(d), 0);
}

static void test_forward(void **state UNUSED)
{
	for (size_t i = 0; i < ARRAY_SIZE(dialects); i++)
		forward_in(dialects[i], i == 1);
}

static int rename_home(void *ctx UNUSED, const struct rogue_request *q UNUSED,
		       struct rogue_reply *reply)
{
	char *text = strndup(reply->body, reply->body_len), *at = strstr(text, "home_dir");

	if (reply->status != 200 || !at)
		return 1;
	memcpy(at, "HOME_DIR", 8);
	reply->owned = text;
	reply->body = text;
	return 0;
}

static void faults_while_forwarding(struct daemon *d, struct rogue *r)
{
	struct visit v CLEANUP_VISIT = { 0 };
	char path[256], text[1024];
	int fd = visit_dial(r);

	ROGUE_ADD(r, .path = DOWNLOAD "cut", .fault = ROGUE_CUT, .after = 100000);
	ROGUE_ADD(r, .path = DOWNLOAD "stall", .fault = ROGUE_STALL, .after = 9);
	ROGUE_ADD(r, .path = DOWNLOAD "more", .length_lie = 7);
	ROGUE_ADD(r, .path = DOWNLOAD "less", .length_lie = -7);
	ROGUE_ADD(r, .path = "/v1/sandbox", .action = ROGUE_REPLACE, .handler = rename_home);
	ROGUE_ADD(r, .path = "/v1/file/write", .action = ROGUE_REPLACE, .reply = { .status = 503 });
	fill_file(d, "cut", 200000);
	fill_file(d, "stall", 200000);
	fill_file(d, "more", 200000);
	fill_file(d, "less", 200000);
	v = visit(r, DOWNLOAD "cut", NULL);
	assert_int_equal(v.code, CURLE_PARTIAL_FILE);
	assert_int_equal(v.total, 100000);
	visit_release(&v);
	visit_say(fd, "GET " DOWNLOAD "stall HTTP/1.1\r\nHost: x\r\n\r\n");
	visit_hear(fd, "\r\n\r\n", text, sizeof(text));
	assert_non_null(strstr(text, "Content-Length: 200000\r\n"));
	assert_int_equal(recv(fd, text, 9, MSG_WAITALL), 9);
	visit_silence(fd);
	close(fd);
	v = visit(r, DOWNLOAD "more", NULL);
	assert_int_equal(v.code, CURLE_PARTIAL_FILE);
	assert_int_equal(v.total, 200000);
	visit_release(&v);
	v = visit(r, DOWNLOAD "less", NULL);
	assert_int_equal(v.code, CURLE_OK);
	assert_int_equal(v.total, 199993);
	visit_release(&v);
	v = visit(r, "/v1/sandbox", NULL);
	assert_int_equal(v.status, 200);
	assert_non_null(strstr(v.body.data, "HOME_DIR"));
	/* The client hears of a failure, but it was done. */
	visit_expect(r, "/v1/file/write", "{\"file\":\"/mnt/user-data/w\",\"content\":\"x\"}", 503,
		     "");
	snprintf(path, sizeof(path), "%s/w", daemon_data(d));
	assert_int_equal(access(path, F_OK), 0);
}

static void test_forward_faults(void **state UNUSED)
{
	static char big[24 * MIB];
	struct daemon *d = start_daemon(NULL);
	struct rogue *r = rogue_new(daemon_socket(d), false);
	char path[256], piece[64 * KIB];
	struct stat st;
	size_t before;
	int fd;

	assert_non_null(r);
	faults_while_forwarding(d, r);
	/* An upload that the rule looked into goes on as it was. */
	ROGUE_ADD(r, .path = "/v1/file/upload", .body_contains = "/big", .delay_ms = 10);
	upload(r, "/mnt/user-data/big", big, sizeof(big));
	snprintf(path, sizeof(path), "%s/big", daemon_data(d));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 24 * MIB);
	/* What the client does not take holds up the server; nothing piles up here. */
	assert_int_equal(truncate(path, 1024 * MIB), 0);
	before = rss_kib();
	fd = visit_dial(r);
	visit_say(fd, "GET " DOWNLOAD "big HTTP/1.1\r\nHost: x\r\n\r\n");
	for (size_t n = 0; n < 64 * MIB; n += sizeof(piece))
		assert_int_equal(recv(fd, piece, sizeof(piece), MSG_WAITALL), sizeof(piece));
	assert_true(rss_kib() < before + 16 * 1024);
	assert_int_equal(count_sockets_to(daemon_socket(d)), 1);
	/* When it leaves, so does the connection to the upstream. */
	close(fd);
	assert_true(rogue_wait_connections(r, 0, LONG_MS));
	assert_int_equal(count_sockets_to(daemon_socket(d)), 0);
	rogue_free(r);
	assert_int_equal(daemon_stop(d), 0);
}

/* Events pass while the stream goes on. */
static void test_forward_stream(void **state UNUSED)
{
	struct daemon *d = start_daemon(&(struct daemon_options){ .dialect = "1.9" });
	struct rogue *r = rogue_new(daemon_socket(d), false);
	struct visit v CLEANUP_VISIT = { 0 };
	char request[128], text[4096], *id;
	int fd;

	assert_non_null(r);
	v = visit(r, "/v1/file/watch", "{\"path\":\"/mnt/user-data\",\"debounce\":50}");
	assert_int_equal(v.status, 200);
	id = strstr(v.body.data, "\"watcher_id\":\"");
	assert_non_null(id);
	snprintf(request, sizeof(request),
		 "GET /v1/file/watch/%.12s/events HTTP/1.1\r\nHost: x\r\n\r\n",
		 id + strlen("\"watcher_id\":\""));
	fd = visit_dial(r);
	visit_say(fd, request);
	visit_hear(fd, "watch_started", text, sizeof(text));
	assert_non_null(strstr(text, "watch_started"));
	fill_file(d, "news", 4);
	visit_hear(fd, "/news", text, sizeof(text));
	assert_non_null(strstr(text, "/news"));
	close(fd);
	rogue_free(r);
	assert_int_equal(daemon_stop(d), 0);
}

static void *run_long(void *arg)
{
	static struct visit v;

	v = visit(arg, "/v1/bash/exec", "{\"command\":\"touch /mnt/user-data/on; sleep 100\"}");
	return &v;
}

static void test_upstream_dies(void **state UNUSED)
{
	struct daemon *d = start_daemon(&(struct daemon_options){ .tcp = true });
	struct rogue *r = rogue_new(daemon_url(d), false);
	char *url = strdup(daemon_url(d));
	pthread_t thread;
	void *ended;
	char path[256];
	CURL *h = visit_client();
	struct visit v CLEANUP_VISIT = { 0 };

	assert_non_null(r);
	visit_point(h, rogue_socket(r), rogue_url(r), "/v1/sandbox");
	v = visit_perform(h, 0, LONG_MS);
	assert_int_equal(v.status, 200);
	visit_release(&v);
	assert_int_equal(pthread_create(&thread, NULL, run_long, r), 0);
	snprintf(path, sizeof(path), "%s/on", daemon_data(d));
	for (int64_t until = clock_ms() + LONG_MS; access(path, F_OK) && clock_ms() < until;)
		poll(NULL, 0, 5);
	daemon_kill(d, SIGKILL);
	pthread_join(thread, &ended);
	assert_int_equal(((struct visit *)ended)->code, CURLE_GOT_NOTHING);
	visit_release(ended);
	assert_int_equal(daemon_pid(d), 0);
	v = visit(r, "/v1/sandbox", NULL);
	assert_int_equal(v.code, CURLE_GOT_NOTHING);
	visit_release(&v);
	assert_true(daemon_restart(d));
	assert_string_equal(daemon_url(d), url);
	/* On the old connection: the rogue knows that its upstream's is dead. */
	v = visit_perform(h, 0, LONG_MS);
	assert_int_equal(v.code, CURLE_OK);
	assert_int_equal(v.status, 200);
	curl_easy_cleanup(h);
	free(url);
	rogue_free(r);
	assert_int_equal(daemon_stop(d), 0);
}

/* ---- the daemon and ourselves ---- */

static void test_daemon_options(void **state UNUSED)
{
	static const char *const args[] = { "--verbose", NULL };
	struct daemon *d = start_daemon(&(struct daemon_options){ .dialect = "1.9",
								  .isolation = "none",
								  .tcp = true,
								  .api_key = "s3cret",
								  .args = args });
	struct visit v CLEANUP_VISIT = { 0 };
	struct curl_slist *headers = NULL;
	char *dir = strdup(daemon_data(d)), *log;
	CURL *h = visit_client();

	assert_null(daemon_socket(d));
	assert_true(daemon_pid(d) > 0);
	log = daemon_log(d);
	assert_non_null(strstr(log, "in file routes only"));
	free(log);
	visit_point(h, NULL, daemon_url(d), "/v1/sandbox");
	v = visit_perform(h, 0, LONG_MS);
	assert_int_equal(v.status, 401);
	visit_release(&v);
	headers = curl_slist_append(NULL, "Authorization: Bearer s3cret");
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
	v = visit_perform(h, 0, LONG_MS);
	assert_int_equal(v.status, 200);
	curl_slist_free_all(headers);
	curl_easy_cleanup(h);
	assert_int_equal(daemon_stop(d), 0);
	assert_int_not_equal(access(dir, F_OK), 0);
	free(dir);
}

static void test_daemon_that_fails(void **state UNUSED)
{
	struct daemon *d;

	print_message("(it will now complain about a dialect)\n");
	assert_null(daemon_start(&(struct daemon_options){ .dialect = "7" }));
	/* What is killed by somebody else did not end cleanly. */
	d = start_daemon(&(struct daemon_options){ .isolation = "none" });
	kill(daemon_pid(d), SIGKILL);
	assert_int_equal(daemon_stop(d), 128 + SIGKILL);
	assert_int_equal(daemon_stop(NULL), 0);
}

static bool is_gone(pid_t pid)
{
	char path[64], state[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	(void)!fread(state, 1, sizeof(state) - 1, f);
	fclose(f);
	return strstr(state, ") Z ") != NULL;
}

/* A test program that dies takes its daemon along. */
static void test_daemon_dies_with_us(void **state UNUSED)
{
	struct {
		pid_t pid;
		char data[128];
	} told = { 0 };
	char command[256];
	int ends[2], status;
	pid_t child;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		static struct daemon *d; /* valgrind looks for lost memory before it dies */

		d = daemon_start(NULL);
		if (!d)
			_exit(1);
		told.pid = daemon_pid(d);
		snprintf(told.data, sizeof(told.data), "%s", daemon_data(d));
		(void)!write(ends[1], &told, sizeof(told));
		kill(getpid(), SIGKILL);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &told, sizeof(told)), sizeof(told));
	close(ends[0]);
	waitpid(child, &status, 0);
	for (int64_t until = clock_ms() + LONG_MS; !is_gone(told.pid) && clock_ms() < until;)
		poll(NULL, 0, 10);
	assert_true(is_gone(told.pid));
	/* Nobody is left to remove its directory. */
	*strrchr(told.data, '/') = '\0';
	assert_non_null(strstr(told.data, "/tfc."));
	snprintf(command, sizeof(command), "rm -r '%s'", told.data);
	assert_int_equal(system(command), 0);
}

/* How many lines a command prints. */
static unsigned lines_of(const char *command)
{
	FILE *f = popen(command, "re");
	unsigned n = 0;
	int c;

	assert_non_null(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	pclose(f);
	return n;
}

static void test_counts(void **state UNUSED)
{
	struct rogue *tcp = rogue_new(NULL, true), *local = rogue_new(NULL, false);
	char of_tcp[256], of_local[256];
	unsigned before = count_fds();
	int fds[6];

	snprintf(of_tcp, sizeof(of_tcp), "ss -Htn state established dst %s", rogue_url(tcp) + 7);
	snprintf(of_local, sizeof(of_local), "ss -Hx state established | grep -F '%s '",
		 rogue_socket(local));
	assert_int_equal(count_sockets_to(rogue_url(tcp)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = visit_dial(i < 2 ? tcp : local);
	assert_true(rogue_wait_connections(tcp, 2, LONG_MS));
	assert_true(rogue_wait_connections(local, 4, LONG_MS));
	assert_int_equal(count_sockets_to(rogue_url(tcp)), 2);
	assert_int_equal(count_sockets_to(rogue_url(tcp)), lines_of(of_tcp));
	assert_int_equal(count_sockets_to(rogue_socket(local)), 4);
	assert_int_equal(count_sockets_to(rogue_socket(local)), lines_of(of_local));
	/* Both ends are ours, and each connection of the server has an eventfd. */
	assert_int_equal(count_fds(), before + 3 * ARRAY_SIZE(fds));
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	assert_int_equal(count_sockets_to(rogue_url(tcp)), 0);
	assert_int_equal(count_sockets_to(rogue_socket(local)), 0);
	rogue_free(tcp);
	rogue_free(local);
}

static void test_rss(void **state UNUSED)
{
	size_t before = rss_kib(), size = 64 * MIB;
	char *p = malloc(size);

	assert_non_null(p);
	memset(p, 1, size);
	assert_true(rss_kib() >= before + 60 * 1024); /* sanitizers add to it */
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forward),
		cmocka_unit_test(test_forward_faults),
		cmocka_unit_test(test_forward_stream),
		cmocka_unit_test(test_upstream_dies),
		cmocka_unit_test(test_daemon_options),
		cmocka_unit_test(test_daemon_that_fails),
		cmocka_unit_test(test_daemon_dies_with_us),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_rss),
	};
	int failed;

	curl_global_init(CURL_GLOBAL_ALL);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	curl_global_cleanup();
	return failed;
}

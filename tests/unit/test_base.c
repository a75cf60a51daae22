/* base/: buffers, files, UTF-8, checked JSON in and out. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>

#include <cmocka.h>

#include "buf.h"
#include "hash.h"
#include "histogram.h"
#include "io.h"
#include "json.h"
#include "jsonw.h"
#include "log.h"
#include "utf8.h"

static void buf_keeps_its_cap_and_its_error(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(8);

	assert_int_equal(buf_puts(&b, "12345678"), 0);
	assert_int_equal(buf_putc(&b, '9'), -EFBIG);
	assert_int_equal(buf_puts(&b, ""), -EFBIG);
	assert_string_equal(b.data, "12345678");
	buf_reset(&b);
	assert_int_equal(buf_printf(&b, "%d-%s", 42, "x"), 0);
	assert_string_equal(b.data, "42-x");
	assert_int_equal(buf_printf(&b, "%s", "too long"), -EFBIG);
	buf_reset(&b);
	buf_puts(&b, "abcdef");
	buf_consume(&b, 4);
	assert_string_equal(b.data, "ef");
	buf_consume(&b, 100);
	assert_int_equal(b.len, 0);
}

static void files_are_read_to_their_end(void **state UNUSED)
{
	int fd CLEANUP_FD = memfd_create("test", MFD_CLOEXEC);
	char to[8] = "";

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, "12345678", 8), 0);
	assert_int_equal(pread_all(fd, to, 4, 2), 4);
	assert_memory_equal(to, "3456", 4);
	assert_int_equal(pread_all(fd, to, sizeof(to), 5), 3);
	assert_memory_equal(to, "678", 3);
	assert_int_equal(pread_all(fd, to, sizeof(to), 8), 0);
	assert_int_equal(pread_all(-1, to, sizeof(to), 0), -EBADF);
}

static void utf8_knows_good_from_bad(void **state)
{
	static const struct {
		const char *s;
		size_t want;
	} rows[] = {
		{ "a", 1 },
		{ "\xc3\xa9", 2 },
		{ "\xe2\x82\xac", 3 },
		{ "\xf0\x9f\xa6\x8c", 4 },
		{ "\xc0\x80", 0 },         /* overlong */
		{ "\xe0\x80\x80", 0 },     /* overlong */
		{ "\xed\xa0\x80", 0 },     /* surrogate */
		{ "\xf4\x90\x80\x80", 0 }, /* past U+10FFFF */
		{ "\xff", 0 },
		{ "\xe2\x82", 0 }, /* cut */
		{ "\x80", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(utf8_sequence(rows[i].s, strlen(rows[i].s)), rows[i].want);
	assert_true(utf8_is_cut("\xe2\x82", 2));
	assert_false(utf8_is_cut("\xff", 1));
	assert_false(utf8_is_cut("a", 1));
	assert_int_equal(utf8_length("a\xc3\xa9\xff", 4), 3);
	assert_int_equal(utf8_offset("a\xc3\xa9z", 4, 2), 3);
	assert_int_equal(utf8_offset("ab", 2, 9), 2);
}

static int parse(const char *text, cJSON **ret)
{
	char copy[4096];
	size_t len = strlen(text);

	memcpy(copy, text, len + 1);
	return json_parse(copy, len, ret, NULL);
}

static void what_a_terminal_obeys_is_disarmed(void **state)
{
	static const char *const rows[][2] = {
		{ "plain \xc3\xbc", "plain \xc3\xbc" },
		{ "\x1b[2J\x07\n\x7f", "?[2J???" },
		{ "\xc2\x9b\x33\x31m", "??31m" },
		{ "\x9b\xff", "??" },
		{ "a\xe2\x80\xae"
		  "b",
		  "a???b" },
		{ "", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[32];

		strcpy(text, rows[i][0]);
		utf8_disarm(text);
		assert_string_equal(text, rows[i][1]);
	}
}

static void writer_escapes_what_a_terminal_obeys(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct jw w;

	(void)state;
	jw_init(&w, &b);
	jw_str(&w, "a\x1b\x7f\xc2\x9b"
		   "b\xc2\x80\xc2\xa0\xc2\x9f");
	assert_string_equal(b.data, "\"a\\u001b\\u007f\\u009bb\\u0080\xc2\xa0\\u009f\"");
}

static void json_takes_good_input(void **state)
{
	cJSON *j CLEANUP_JSON = NULL;

	assert_int_equal(parse(" {\"a\": [1, \"x\\\"y\"], \"b\":\"\\u00e9\"} ", &j), 0);
	assert_string_equal(cJSON_GetObjectItem(j, "b")->valuestring, "\xc3\xa9");
}

static void json_refuses_bad_input(void **state)
{
	static const char *const bad[] = {
		"",    "{",         "{\"a\":1} x", "\"\xff\"",    "\"\xc0\x80\"",
		"nul", "{\"a\":\"", "[1,2",        "\"\\ud800\"", "{]}",
	};
	char deep[400];
	cJSON *j = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(parse(bad[i], &j), -EINVAL);
		assert_null(j);
	}
	memset(deep, '[', 200);
	memset(deep + 200, ']', 199);
	deep[399] = '\0';
	assert_int_equal(parse(deep, &j), -E2BIG);
}

static void json_refuses_too_many_values(void **state)
{
	size_t n = (size_t)JSON_MAX_NODES * 2 + 8;
	char *text CLEANUP_FREE = malloc(n + 1);
	cJSON *j = NULL;

	memset(text, ',', n);
	text[0] = '[';
	for (size_t i = 1; i < n - 1; i += 2)
		text[i] = '1';
	text[n - 1] = ']';
	text[n] = '\0';
	assert_int_equal(json_parse(text, n, &j, NULL), -E2BIG);
}

static void json_keeps_nul_in_strings(void **state)
{
	cJSON *j CLEANUP_JSON = NULL;
	char *s;

	assert_int_equal(parse("\"a\\u0000b\\\\u0000\"", &j), 0);
	s = j->valuestring;
	assert_true(json_has_nul(s));
	assert_int_equal(json_restore_nul(s), 9);
	assert_memory_equal(s, "a\0b\\u0000", 9);
}

static void writer_escapes_everything(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	struct jw w;

	jw_init(&w, &b);
	jw_obj(&w);
	jw_kstrn(&w, "s", "q\"\\\n\0\x1b\xc3\xa9\xff", 9);
	jw_key(&w, "a");
	jw_arr(&w);
	jw_int(&w, -5);
	jw_num(&w, 2);
	jw_num(&w, 0.5);
	jw_bool(&w, true);
	jw_null(&w);
	jw_obj(&w);
	jw_obj_end(&w);
	jw_arr_end(&w);
	jw_kstr(&w, "n", NULL);
	jw_obj_end(&w);
	assert_string_equal(b.data, "{\"s\":\"q\\\"\\\\\\n\\u0000\\u001b\xc3\xa9\xef\xbf\xbd\","
				    "\"a\":[-5,2.0,0.5,true,null,{}],\"n\":null}");
	assert_true(w.invalid_utf8);
}

static void histogram_counts_and_tells_quantiles(void **state)
{
	struct histogram h = { 0 }, sum = { 0 };
	double half;

	(void)state;
	assert_true(histogram_quantile(&h, 0.5) < 0);
	for (int i = 0; i < 99; i++)
		histogram_add(&h, 2000); /* between 1 and 3 ms */
	histogram_add(&h, 500 * 1000000LL);
	assert_int_equal(h.count, 100);
	assert_int_equal(h.counts[3], 99);
	assert_int_equal(h.counts[HISTOGRAM_BOUNDS], 1);
	assert_int_equal(h.sum_us, 99 * 2000 + 500000000LL);
	half = histogram_quantile(&h, 0.5);
	assert_true(half > 0.001 && half < 0.003);
	assert_true(histogram_quantile(&h, 1) == histogram_bounds[HISTOGRAM_BOUNDS - 1]);
	histogram_add(&h, 100); /* a bound belongs to what is below */
	assert_int_equal(h.counts[0], 1);
	histogram_merge(&sum, &h);
	histogram_merge(&sum, &h);
	assert_int_equal(sum.count, 202);
	assert_int_equal(sum.counts[3], 198);
}

/* Adds what there is to be read. */
static void drain(int fd, char *to, size_t size)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t len = strlen(to);
	ssize_t n;

	while (poll(&p, 1, 1) > 0 && (n = read(fd, to + len, size - 1 - len)) > 0)
		len += (size_t)n;
	to[len] = '\0';
}

static unsigned long count(const char *text, const char *what)
{
	unsigned long n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

static unsigned long told_lost(const char *text)
{
	unsigned long n, sum = 0;

	for (; (text = strstr(text, "\nthreadfs: warning: ")); text++)
		if (sscanf(text, " threadfs: warning: %lu line(s) of this log", &n) == 1)
			sum += n;
	return sum;
}

/* Logs to fd, which nobody reads; then it is read from the other end. */
static void log_to_who_does_not_read(int fd, int other)
{
	static char text[1 << 20], x[1500];
	int saved = dup(STDERR_FILENO);
	unsigned long logged = 400;

	memset(x, 'x', sizeof(x) - 1);
	x[sizeof(x) - 2] = '\n';
	text[0] = '\0';
	alarm(20); /* it is the end of a test that hangs */
	dup2(fd, STDERR_FILENO);
	log_look_at_stream();
	for (unsigned long i = 0; i < logged; i++)
		log_warn("%.*s", (int)sizeof(x) - 2, x);
	while (!strstr(text, "\nthreadfs: warning: again\n")) {
		drain(other, text, sizeof(text));
		errno = ESTALE;
		log_warn("again");
		assert_int_equal(errno, ESTALE);
		logged++;
	}
	while (count(text, x) + count(text, "again\n") + told_lost(text) < logged)
		drain(other, text, sizeof(text));
	assert_in_range(count(text, x), 1, 399);
	assert_int_equal(count(text, x) + count(text, "again\n") + told_lost(text), logged);
	assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK); /* which is for all who have it */
	alarm(0);
	dup2(saved, STDERR_FILENO);
	log_look_at_stream();
	close(saved);
}

static void log_does_not_wait_for_who_does_not_read(void **state UNUSED)
{
	struct termios raw = { 0 };
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	log_to_who_does_not_read(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	log_to_who_does_not_read(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
	cfmakeraw(&raw);
	/* Not openpty(3): valgrind does not know how that asks for the other side. */
	fds[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(fds[0] >= 0 && grantpt(fds[0]) == 0 && unlockpt(fds[0]) == 0);
	fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_int_equal(tcsetattr(fds[1], TCSANOW, &raw), 0);
	log_to_who_does_not_read(fds[1], fds[0]);
	close(fds[0]);
	close(fds[1]);
}

static void hash_is_siphash_with_a_key(void **state UNUSED)
{
	static const struct {
		uint64_t key[2];
		const char *text;
		uint64_t want;
	} rows[] = {
		{ { 0x0706050403020100, 0x0f0e0d0c0b0a0908 }, "", 0xabac0158050fc4dc },
		{ { 0 }, "a", 0x407448d2b89b1813 },
		{ { 0 }, "threadfs", 0xbdd47890ab718c26 },
		{ { 0 }, "a name of more than eight bytes", 0xcb8e427d5f688b4c },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_true(hash_with(rows[i].key, rows[i].text, strlen(rows[i].text)) ==
			    rows[i].want);
	assert_true(hash_of("a", 1) == hash_of("a", 1));
	assert_true(hash_of("a", 1) != hash_of("b", 1) || hash_of("a", 1) != hash_of("c", 1));
}

/* In a process of its own: the key is made once in each. */
static uint64_t hashes_elsewhere(void)
{
	int fds[2], status = -1;
	uint32_t got[2] = { 0 };
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		const uint32_t made[2] = { hash_of("a", 1), hash_of("b", 1) };

		_exit(write_all(fds[1], made, sizeof(made)) < 0);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], got, sizeof(got)), sizeof(got));
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return (uint64_t)got[0] << 32 | got[1];
}

/* The first of all: who has hashed anything has a key, and so have his children. */
static void hashes_of_one_process_say_nothing_of_another(void **state UNUSED)
{
	uint64_t one = hashes_elsewhere(), other = hashes_elsewhere();

	assert_true(one != other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_of_one_process_say_nothing_of_another),
		cmocka_unit_test(buf_keeps_its_cap_and_its_error),
		cmocka_unit_test(files_are_read_to_their_end),
		cmocka_unit_test(utf8_knows_good_from_bad),
		cmocka_unit_test(what_a_terminal_obeys_is_disarmed),
		cmocka_unit_test(writer_escapes_what_a_terminal_obeys),
		cmocka_unit_test(json_takes_good_input),
		cmocka_unit_test(json_refuses_bad_input),
		cmocka_unit_test(json_refuses_too_many_values),
		cmocka_unit_test(json_keeps_nul_in_strings),
		cmocka_unit_test(writer_escapes_everything),
		cmocka_unit_test(log_does_not_wait_for_who_does_not_read),
		cmocka_unit_test(histogram_counts_and_tells_quantiles),
		cmocka_unit_test(hash_is_siphash_with_a_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

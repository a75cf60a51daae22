/* What answers mean: every shape of envelope and error, and hostile ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "utf8.h"

/* Decodes a copy that has exactly its size, so that a sanitizer sees the edges. */
static int decode_bytes(struct answer *a, int status, const char *text, size_t len)
{
	char *copy CLEANUP_FREE = malloc(len + 1);

	assert_non_null(copy);
	memcpy(copy, text, len);
	copy[len] = '\0';
	return answer_decode(a, status, copy, len);
}

static int decode(struct answer *a, int status, const char *text)
{
	return decode_bytes(a, status, text, strlen(text));
}

static void successes(void **state)
{
	static const struct {
		int status;
		const char *text;
		const char *member; /* a number 7 in data; NULL: data is NULL */
	} rows[] = {
		{ 200, "{\"success\":true,\"message\":\"ok\",\"data\":{\"n\":7},\"hint\":null}",
		  "n" },
		{ 200, " {\"data\":{\"n\":7}} \n", "n" },
		{ 201, "{\"success\":true,\"data\":{\"n\":7}}", "n" },
		{ 206, "{\"success\":null,\"data\":{\"n\":7}}", "n" },
		{ 200, "{\"events\":[],\"cursor\":7,\"overflow\":false}", "cursor" },
		{ 200, "{\"success\":true,\"n\":7}", "n" },
		{ 200, "{\"success\":true,\"message\":\"[Errno 2]\",\"data\":null}", NULL },
		{ 200, "{\"data\":null}", NULL },
		{ 200, "null", NULL },
		{ 204, "", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct answer a CLEANUP_ANSWER = { 0 };

		assert_int_equal(decode(&a, rows[i].status, rows[i].text), 0);
		assert_int_equal(a.error, 0);
		assert_false(a.no_route);
		assert_null(a.message);
		if (rows[i].member)
			assert_int_equal(answer_int(a.data, rows[i].member, 0), 7);
		else
			assert_null(a.data);
	}
}

static void data_of_other_types(void **state)
{
	struct answer a CLEANUP_ANSWER = { 0 };

	assert_int_equal(decode(&a, 200, "[1,2]"), 0);
	assert_ptr_equal(a.data, a.root);
	assert_true(cJSON_IsArray(a.data));
	answer_release(&a);
	/* GET /v1/sandbox: a text as data, the fields beside it */
	assert_int_equal(decode(&a, 200, "{\"success\":true,\"data\":\"x\",\"version\":\"1\"}"), 0);
	assert_true(cJSON_IsString(a.data));
	assert_string_equal(answer_str(a.root, "version"), "1");
	answer_release(&a);
	assert_null(a.root);
	answer_release(&a);
}

struct failure {
	int status;
	const char *text;
	int want;
	const char *message;
};

static void assert_failures(const struct failure *rows, size_t n, bool no_route)
{
	for (size_t i = 0; i < n; i++) {
		struct answer a CLEANUP_ANSWER = { 0 };
		int r = decode(&a, rows[i].status, rows[i].text);

		if (r != rows[i].want || a.error != r || a.no_route != no_route)
			fail_msg("%d %s: %d", rows[i].status, rows[i].text, r);
		if (rows[i].message)
			assert_string_equal(a.message, rows[i].message);
		else
			assert_null(a.message);
	}
}

static void failures_in_the_order_of_evidence(void **state)
{
	static const struct failure rows[] = {
		{ 200,
		  "{\"success\":false,\"message\":\"[Errno 5] m\",\"data\":{\"errno\":13,"
		  "\"errno_name\":\"ENOENT\",\"error_type\":\"already_exists\",\"message\":\"d\"}}",
		  -EACCES, "[Errno 5] m" },
		{ 200,
		  "{\"success\":false,\"message\":\"[Errno 5] m\",\"data\":{\"errno\":null,"
		  "\"errno_name\":\"EROFS\",\"error_type\":\"already_exists\"}}",
		  -EROFS, "[Errno 5] m" },
		{ 200,
		  "{\"success\":false,\"message\":\"[Errno 5] m\",\"data\":{\"errno\":0,"
		  "\"errno_name\":null,\"error_type\":\"already_exists\"}}",
		  -EEXIST, "[Errno 5] m" },
		{ 200,
		  "{\"success\":false,\"message\":\"[Errno 5] m\",\"data\":{\"errno\":\"13\","
		  "\"errno_name\":7,\"error_type\":\"new_one\"}}",
		  -EIO, "[Errno 5] m" },
		/* a vague type gives way to clear words, but not to nothing */
		{ 200,
		  "{\"success\":false,\"message\":\"[Errno 21] m\",\"data\":{"
		  "\"error_type\":\"invalid_target\"}}",
		  -EISDIR, "[Errno 21] m" },
		{ 200,
		  "{\"success\":false,\"message\":\"m\",\"data\":{\"error_type\":"
		  "\"invalid_target\"}}",
		  -EINVAL, "m" },
		{ 200,
		  "{\"success\":false,\"message\":\"[Errno 122] m\",\"data\":{"
		  "\"error_type\":\"io_error\"}}",
		  -EDQUOT, "[Errno 122] m" },
		/* absurd numbers are no evidence */
		{ 200,
		  "{\"success\":false,\"message\":\"m\",\"data\":{\"errno\":-2,"
		  "\"error_type\":\"no_space_left\"}}",
		  -ENOSPC, "m" },
		{ 200, "{\"success\":false,\"message\":\"m\",\"data\":{\"errno\":1e300}}", -EIO,
		  "m" },
		{ 507, "{\"success\":false,\"message\":\"m\",\"data\":{\"errno\":2.5}}", -ENOSPC,
		  "m" },
		{ 200, "{\"success\":false,\"message\":\"m\",\"data\":{\"errno\":38}}", -EOPNOTSUPP,
		  "m" },
		{ 200, "{\"success\":false,\"data\":{\"message\":\"d\",\"errno\":1}}", -EPERM,
		  "d" },
		/* the first generation */
		{ 500,
		  "{\"success\":false,\"message\":\"Failed to read file: [Errno 13] Permission "
		  "denied: '/x'\",\"data\":null}",
		  -EACCES, "Failed to read file: [Errno 13] Permission denied: '/x'" },
		{ 500, "{\"success\":false,\"message\":\"Boom\",\"data\":null}", -EIO, "Boom" },
		{ 400, "{\"success\":false,\"message\":\"Path is not a file: /d\"}", -EISDIR,
		  "Path is not a file: /d" },
		{ 400, "{\"success\":false,\"message\":\"Invalid base64 content\"}", -EINVAL,
		  "Invalid base64 content" },
		{ 409,
		  "{\"success\":false,\"message\":\"File changed before download "
		  "started\",\"data\":{"
		  "\"path\":\"/x\",\"change_policy\":\"abort\",\"phase\":\"before_start\"}}",
		  -ESTALE, "File changed before download started" },
		{ 400,
		  "{\"success\":false,\"message\":\"Cannot create shell session: session limit "
		  "reached and all 10 existing sessions have active commands\"}",
		  -EBUSY,
		  "Cannot create shell session: session limit reached and all 10 existing sessions "
		  "have active commands" },
		/* nothing but the status, or not even that */
		{ 200, "{\"success\":false}", -EIO, NULL },
		{ 429, "{}", -EBUSY, NULL },
		{ 500, "{\"success\":true,\"data\":{}}", -EIO, NULL },
		{ 500, "[]", -EIO, NULL },
		{ 422, "null", -EINVAL, NULL },
		{ 300, "{}", -EPROTO, NULL },
		{ 199, "{}", -EPROTO, NULL },
	};

	assert_failures(rows, ARRAY_SIZE(rows), false);
}

static void details_and_lists_of_errors(void **state)
{
	static const struct failure rows[] = {
		{ 401, "{\"detail\":\"Not authenticated\"}", -EACCES, "Not authenticated" },
		{ 422,
		  "{\"detail\":[{\"loc\":[\"body\",\"env\",3],\"msg\":\"Field required\",\"type\":"
		  "\"missing\"},{\"msg\":\"second\"}]}",
		  -EINVAL, "body.env.3: Field required" },
		{ 422, "{\"detail\":[{\"msg\":\"Field required\"}]}", -EINVAL, "Field required" },
		{ 422, "{\"detail\":[]}", -EINVAL, NULL },
		{ 422, "{\"detail\":[7,null]}", -EINVAL, NULL },
		{ 422, "{\"detail\":7}", -EINVAL, NULL },
		{ 422,
		  "{\"success\":false,\"message\":\"Request validation failed\",\"data\":null,"
		  "\"errors\":[{\"location\":\"body.path\",\"message\":\"Field required\",\"type\":"
		  "\"missing\"}]}",
		  -EINVAL, "Request validation failed: body.path: Field required" },
		{ 408, "{\"detail\":{\"code\":\"WATCH_TIMEOUT\",\"message\":\"late\"}}", -ETIMEDOUT,
		  "late" },
		{ 503,
		  "{\"success\":false,\"message\":\"late\",\"data\":{\"code\":\"WATCH_TIMEOUT\"}}",
		  -ETIMEDOUT, "late" },
		{ 429, "{\"detail\":{\"code\":\"WATCH_LIMIT_EXCEEDED\",\"message\":\"full\"}}",
		  -EBUSY, "full" },
		{ 429, "{\"code\":\"WATCH_LIMIT_EXCEEDED\",\"message\":\"full\"}", -EBUSY, "full" },
		{ 400, "{\"detail\":{\"code\":\"PATH_NOT_FOUND\",\"message\":\"x\"}}", -ENOENT,
		  "x" },
		{ 400,
		  "{\"detail\":{\"code\":\"INVALID_PATH\",\"message\":\"Cannot watch /x: "
		  "Permission "
		  "denied\"}}",
		  -EACCES, "Cannot watch /x: Permission denied" },
		{ 500, "{\"error\":\"oops\"}", -EIO, "oops" },
	};

	assert_failures(rows, ARRAY_SIZE(rows), false);
}

static void a_404_that_a_handler_wrote(void **state)
{
	static const struct failure rows[] = {
		{ 404, "{\"success\":false,\"message\":\"File does not exist: /x\",\"data\":null}",
		  -ENOENT, "File does not exist: /x" },
		{ 404, "{\"success\":false,\"message\":\"Session not found\",\"data\":null}",
		  -ESRCH, "Session not found" },
		{ 404, "{\"detail\":\"Session not found\"}", -ESRCH, "Session not found" },
		{ 404, "{\"detail\":{\"code\":\"WATCHER_NOT_FOUND\",\"message\":\"w\"}}", -ESRCH,
		  "w" },
		{ 404, "{\"success\":false,\"data\":{\"errno\":2,\"error_type\":\"not_found\"}}",
		  -ENOENT, NULL },
	};

	assert_failures(rows, ARRAY_SIZE(rows), false);
}

static void a_404_that_nobody_wrote(void **state)
{
	static const struct failure rows[] = {
		{ 404, "{\"detail\":\"Not Found\"}", -EOPNOTSUPP, "Not Found" },
		{ 405, "{\"detail\":\"Method Not Allowed\"}", -EOPNOTSUPP, "Method Not Allowed" },
		{ 404, "{\"success\":false,\"message\":\"Not Found\",\"data\":null}", -EOPNOTSUPP,
		  "Not Found" },
		{ 404, "{\"message\":\"no Route matched with those values\"}", -EOPNOTSUPP,
		  "no Route matched with those values" },
		{ 404, "{}", -EOPNOTSUPP, NULL },
		{ 404, "", -EOPNOTSUPP, NULL },
		{ 405, "", -EOPNOTSUPP, NULL },
		{ 404, "404 page not found\n", -EOPNOTSUPP, "404 page not found" },
		{ 404, "File does not exist: /x", -EOPNOTSUPP, "File does not exist: /x" },
		{ 404,
		  "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n</body>\r\n",
		  -EOPNOTSUPP, "<html> <head><title>404 Not Found</title></head> <body> </body>" },
	};

	assert_failures(rows, ARRAY_SIZE(rows), true);
}

static void answers_that_are_not_json(void **state)
{
	static const struct failure rows[] = {
		{ 502, "<html>\r\n<h1>502 Bad Gateway</h1>", -EAGAIN,
		  "<html> <h1>502 Bad Gateway</h1>" },
		{ 500, "Internal Server Error", -EIO, "Internal Server Error" },
		{ 500, "[Errno 2] No such file or directory", -EIO,
		  "[Errno 2] No such file or directory" },
		{ 302, "", -EPROTO, NULL },
		{ 200, "", -EBADMSG, NULL },
		{ 204, "x", -EBADMSG, "x" },
		{ 200, "OK", -EBADMSG, "OK" },
		{ 200, "{\"success\":true", -EBADMSG, "{\"success\":true" },
		{ 200, "{\"success\":true} {}", -EBADMSG, "{\"success\":true} {}" },
		{ 200, "\"\xff\"", -EBADMSG, "\"?\"" },
	};

	assert_failures(rows, ARRAY_SIZE(rows), false);
}

static void answers_that_are_too_much(void **state)
{
	size_t len = 500000;
	char *text CLEANUP_FREE = malloc(len);
	struct answer a CLEANUP_ANSWER = { 0 };

	memset(text, '[', len);
	assert_int_equal(decode_bytes(&a, 200, text, len), -EMSGSIZE);
	assert_int_equal(strlen(a.message), 500);
	answer_release(&a);
	assert_int_equal(decode_bytes(&a, 500, text, len), -EIO);
	answer_release(&a);
	for (size_t i = 0; i < len; i++)
		text[i] = i % 2 ? '1' : ',';
	text[0] = '[';
	assert_int_equal(decode_bytes(&a, 200, text, len), -EMSGSIZE);
	answer_release(&a);
	memset(text, '\0', len);
	assert_int_equal(decode_bytes(&a, 200, text, len), -EBADMSG);
}

static void messages_are_fit_for_a_log(void **state)
{
	static const struct failure rows[] = {
		{ 500, "{\"message\":\" a\\nb\\r\\n\\t c\\u0000\\u001b[2J\\u007f \"}", -EIO,
		  "a b c???[2J?" },
		{ 500, "{\"message\":\"\\u009b1m \\u2028\\u202e\\u2069 \\u00e9\\u20ac\"}", -EIO,
		  "?1m ??? \xc3\xa9\xe2\x82\xac" },
		{ 500, "{\"message\":\" \\n \"}", -EIO, NULL },
		{ 500, "{\"message\":\"\"}", -EIO, NULL },
		{ 500, "a\xff\xc3z", -EIO, "a??z" },
	};

	assert_failures(rows, ARRAY_SIZE(rows), false);
}

/* Every character of one to three bytes, alone. */
static void characters_that_can_be_shown(void **state)
{
	for (unsigned c = 0; c <= 0xffff; c++) {
		bool blank = c == ' ' || (c >= '\t' && c <= '\r');
		bool bad = c < ' ' || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
			   (c >= 0x2066 && c <= 0x2069) || c == 0x200e || c == 0x200f ||
			   c == 0x061c || c == 0xfeff;
		char *got CLEANUP_FREE = NULL, s[4] = { 0 };
		size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : 3;

		if (c >= 0xd800 && c <= 0xdfff) /* surrogates are no characters */
			continue;
		s[0] = (char)(len == 1 ? c : len == 2 ? 0xc0 | c >> 6 : 0xe0 | c >> 12);
		if (len > 2)
			s[1] = (char)(0x80 | (c >> 6 & 0x3f));
		if (len > 1)
			s[len - 1] = (char)(0x80 | (c & 0x3f));
		got = answer_printable(s, len);
		if (blank)
			assert_null(got);
		else
			assert_string_equal(got, bad ? "?" : s);
	}
}

static void long_messages_are_cut_between_characters(void **state)
{
	for (size_t shift = 0; shift < 4; shift++) {
		struct answer a CLEANUP_ANSWER = { 0 };
		char text[3000] = "{\"message\":\"xxx";
		size_t len = strlen(text) - shift;

		for (int i = 0; i < 600; i++, len += 4)
			memcpy(text + len, "\xf0\x9f\xa6\x8c", 4);
		strcpy(text + len, ": [Errno 28]\"}");
		/* what decides may lie behind what is kept */
		assert_int_equal(decode(&a, 500, text), -ENOSPC);
		assert_in_range(strlen(a.message), 497, 500);
		assert_true(utf8_valid(a.message, strlen(a.message)));
	}
}

static void fields(void **state)
{
	static const struct {
		const char *key;
		int64_t want;
	} ints[] = {
		{ "i", 42 },          { "neg", -7 },  { "big", 9007199254740992 },
		{ "min", INT64_MIN }, { "frac", 99 }, { "max", 99 },
		{ "huge", 99 },       { "str", 99 },  { "null", 99 },
		{ "bool", 99 },       { "none", 99 }, { "I", 99 },
	};
	struct answer a CLEANUP_ANSWER = { 0 };

	assert_int_equal(decode(&a, 200,
				"{\"i\":42,\"neg\":-7,\"big\":9007199254740992,\"min\":"
				"-9223372036854775808,\"frac\":1.5,\"max\":9223372036854775808,"
				"\"huge\":1e999,\"str\":\"5\",\"null\":null,\"bool\":true,"
				"\"nul\":\"a\\u0000b\",\"empty\":\"\"}"),
			 0);
	for (size_t i = 0; i < ARRAY_SIZE(ints); i++)
		assert_int_equal(answer_int(a.data, ints[i].key, 99), ints[i].want);
	assert_string_equal(answer_str(a.data, "str"), "5");
	assert_string_equal(answer_str(a.data, "empty"), "");
	assert_null(answer_str(a.data, "nul"));
	assert_null(answer_str(a.data, "i"));
	assert_null(answer_str(a.data, "null"));
	assert_null(answer_str(a.data, "none"));
	assert_null(answer_str(NULL, "str"));
	assert_null(answer_str(cJSON_GetObjectItemCaseSensitive(a.data, "str"), "str"));
	assert_int_equal(answer_int(NULL, "i", 99), 99);
}

/* Any cut and any changed byte of a good answer: an errno or 0, never a crash. */
static void damaged_answers(void **state)
{
	static const char good[] =
		"{\"success\":false,\"message\":\"[Errno 13] "
		"\\u00e9\\u0000\",\"data\":{\"errno\":13,"
		"\"error_type\":\"io_error\"},\"detail\":[{\"loc\":[1,\"x\"],\"msg\":\"m\"}]}";

	for (int status = 200; status <= 500; status += 100) {
		for (size_t i = 0; i < sizeof(good) - 1; i++) {
			char bad[sizeof(good)];
			struct answer a CLEANUP_ANSWER = { 0 };

			assert_true(decode_bytes(&a, status, good, i) < 0);
			answer_release(&a);
			memcpy(bad, good, sizeof(good));
			for (int c = 0; c < 256; c += 5) {
				bad[i] = (char)c;
				assert_true(decode_bytes(&a, status, bad, sizeof(bad) - 1) <= 0);
				assert_int_not_equal(a.error, -ENOENT);
				assert_true(!a.message || utf8_valid(a.message, strlen(a.message)));
				answer_release(&a);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(successes),
		cmocka_unit_test(data_of_other_types),
		cmocka_unit_test(failures_in_the_order_of_evidence),
		cmocka_unit_test(details_and_lists_of_errors),
		cmocka_unit_test(a_404_that_a_handler_wrote),
		cmocka_unit_test(a_404_that_nobody_wrote),
		cmocka_unit_test(answers_that_are_not_json),
		cmocka_unit_test(answers_that_are_too_much),
		cmocka_unit_test(messages_are_fit_for_a_log),
		cmocka_unit_test(characters_that_can_be_shown),
		cmocka_unit_test(long_messages_are_cut_between_characters),
		cmocka_unit_test(fields),
		cmocka_unit_test(damaged_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

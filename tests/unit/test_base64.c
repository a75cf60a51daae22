/* base64 both ways, against the examples of RFC 4648 and random bytes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base64.h"

static void examples_of_the_rfc(void **state)
{
	static const char *const rows[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
		{ "\xfb\xef\xff", "++//" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf text CLEANUP_BUF = BUF_INIT(0), bytes CLEANUP_BUF = BUF_INIT(0);

		assert_int_equal(base64_encode(&text, rows[i][0], strlen(rows[i][0])), 0);
		assert_string_equal(text.data, rows[i][1]);
		assert_int_equal(base64_decode(&bytes, text.data, text.len), 0);
		assert_string_equal(bytes.data, rows[i][0]);
	}
}

static void random_bytes_come_back(void **state)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0), bytes CLEANUP_BUF = BUF_INIT(0),
			lines CLEANUP_BUF = BUF_INIT(0);
	unsigned char in[300];

	srandom(1);
	for (int round = 0; round < 2000; round++) {
		size_t len = (size_t)random() % sizeof(in);

		for (size_t i = 0; i < len; i++)
			in[i] = (unsigned char)random();
		buf_reset(&text);
		buf_reset(&bytes);
		assert_int_equal(base64_encode(&text, in, len), 0);
		assert_int_equal(text.len, (len + 2) / 3 * 4);
		assert_int_equal(strlen(text.data), text.len);
		assert_int_equal(base64_decode(&bytes, text.data, text.len), 0);
		assert_int_equal(bytes.len, len);
		assert_memory_equal(bytes.data, in, len);
		/* in lines, however long they are */
		buf_reset(&lines);
		buf_reset(&bytes);
		for (size_t i = 0; i < text.len; i++) {
			if (random() % 16 == 0)
				buf_putc(&lines, '\n');
			buf_putc(&lines, text.data[i]);
		}
		assert_int_equal(base64_decode(&bytes, lines.data, lines.len), 0);
		assert_int_equal(bytes.len, len);
		assert_memory_equal(bytes.data, in, len);
	}
}

static void blanks_are_skipped_and_the_buffer_is_added_to(void **state)
{
	static const char text[] = " Zm9v\r\nYm\tE =\n";
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&b, "<");
	assert_int_equal(base64_decode(&b, text, strlen(text)), 0);
	assert_int_equal(base64_encode(&b, "foo", 3), 0);
	assert_string_equal(b.data, "<foobaZm9v");
}

static void nonsense_is_refused(void **state)
{
	static const char *const rows[] = {
		"Z",      "Zg",       "Zg=",      "Zm9",  "=",      "==",    "====", "Z===",
		"Zm9vZg", "Zg==Zg==", "Zg==Zm9v", "Z=g=", "Zm9-",   "Zm9_",  "Zm9.", "Zm9\x80",
		"Zh==",   "Zm9=",     "Zm9v=",    "=Zm9", "Zm\v9v", "Zm*9v",
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);

		buf_puts(&b, "old");
		assert_int_equal(base64_decode(&b, rows[i], strlen(rows[i])), -EBADMSG);
		assert_int_equal(b.len, 3);
		assert_string_equal(b.data, "old");
		assert_int_equal(b.error, 0);
	}
	for (int c = 0; c < 256; c++) {
		struct buf b CLEANUP_BUF = BUF_INIT(0);
		char four[4] = { 'A', (char)c, 'A', 'A' };
		bool digit = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			     (c >= '0' && c <= '9') || c == '+' || c == '/';

		assert_int_equal(base64_decode(&b, four, 4), digit ? 0 : -EBADMSG);
		assert_true((base64_digit((char)c) >= 0) == digit);
	}
}

static void caps_hold_exactly(void **state)
{
	struct buf b CLEANUP_BUF = BUF_INIT(4);

	assert_int_equal(base64_decode(&b, " Zm9v Yg== ", 11), 0);
	assert_string_equal(b.data, "foob");
	assert_int_equal(base64_decode(&b, "Zg==", 4), -EFBIG);
	assert_int_equal(b.len, 4);
	buf_reset(&b);
	assert_int_equal(base64_encode(&b, "foo", 3), 0);
	assert_string_equal(b.data, "Zm9v");
	assert_int_equal(base64_encode(&b, "f", 1), -EFBIG);
	assert_int_equal(b.len, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples_of_the_rfc),
		cmocka_unit_test(random_bytes_come_back),
		cmocka_unit_test(blanks_are_skipped_and_the_buffer_is_added_to),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(caps_hold_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

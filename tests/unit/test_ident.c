/* provider/ident.c: valid ids, and what sandboxes are called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ident.h"

static const char *repeat(char c, size_t n)
{
	static char s[300];

	memset(s, c, n);
	s[n] = '\0';
	return s;
}

static void test_host_thread_dir_rejects_invalid_thread_id(void **state UNUSED)
{
	static const char *const bad[] = {
		"",      ".",   "..",     "../escape",   "a/b", "/abs", "a b",
		"a\nb",  "a\n", "a.json", "thr\xc3\xa9", "a:b", "a\\b", "~",
		"$HOME", "a;b", "a\x7f",  "@",           "[",   "`",    "{",
	};
	static const char *const good[] = { "a", "-", "_", "0", "Thread_1-b", "AZaz09" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(ident_is_thread(bad[i]));
		assert_false(ident_is_user(bad[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(ident_is_thread(good[i]));
		assert_true(ident_is_user(good[i]));
	}
	assert_true(ident_is_thread(repeat('x', 64)));
	assert_false(ident_is_thread(repeat('x', 65)));
	assert_true(ident_is_user(repeat('x', 200)));
	assert_false(ident_is_user(repeat('x', 201)));
}

static void test_every_byte_is_judged(void **state UNUSED)
{
	for (int c = 1; c < 256; c++) {
		char s[] = { 'a', (char)c, '\0' };
		bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			    (c >= '0' && c <= '9') || c == '_' || c == '-';

		assert_int_equal(ident_is_thread(s), good);
		assert_int_equal(ident_is_user(s), good);
	}
}

static void test_digest_is_sha256(void **state UNUSED)
{
	char hex[65];

	ident_digest("abc", hex, 64);
	assert_string_equal(hex,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ident_digest("abc", hex, 7);
	assert_string_equal(hex, "ba7816b");
	ident_digest("abc", hex, 0);
	assert_string_equal(hex, "");
}

/* The programs before us: their sandboxes are found by these names. */
static void test_forms_are_those_of_older_programs(void **state UNUSED)
{
	char id[IDENT_ID_LEN + 1];

	ident_make("default", "t1", id);
	assert_string_equal(id, "eeb6544e5ffa968d");
	ident_form("default", "t1", 0, id);
	assert_string_equal(id, "eeb6544e5ffa968d");
	ident_form("default", "t1", 1, id);
	assert_string_equal(id, "eeb6544e");
	ident_form("default", "t1", 2, id);
	assert_string_equal(id, "628b49d9");
}

/* A pair found by trying 121,940 of them. */
static void test_aio_wider_id_separates_known_legacy_collision(void **state UNUSED)
{
	char a[IDENT_ID_LEN + 1], b[IDENT_ID_LEN + 1];

	ident_form("user-5", "thread-50188", 1, a);
	ident_form("user-0", "thread-121940", 1, b);
	assert_string_equal(a, "d517bc12");
	assert_string_equal(b, a);
	ident_make("user-5", "thread-50188", a);
	ident_make("user-0", "thread-121940", b);
	assert_string_equal(a, "d517bc1203cd9e2d");
	assert_string_equal(b, "d517bc120b0e705d");
}

static void test_longest_ids_have_a_name(void **state UNUSED)
{
	char user[201], id[IDENT_ID_LEN + 1];

	strcpy(user, repeat('u', 200));
	ident_make(user, repeat('t', 64), id);
	assert_int_equal(strlen(id), IDENT_ID_LEN);
	assert_int_equal(strspn(id, "0123456789abcdef"), IDENT_ID_LEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_thread_dir_rejects_invalid_thread_id),
		cmocka_unit_test(test_every_byte_is_judged),
		cmocka_unit_test(test_digest_is_sha256),
		cmocka_unit_test(test_forms_are_those_of_older_programs),
		cmocka_unit_test(test_aio_wider_id_separates_known_legacy_collision),
		cmocka_unit_test(test_longest_ids_have_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

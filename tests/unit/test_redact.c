/* Keys in what servers say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "redact.h"

static void test_keys_are_overwritten(void **state)
{
	static const struct {
		const char *text, *header, *want;
	} rows[] = {
		{ "bad key s3cret!", " s3cret", "bad key ******!" },
		{ "s3cret", "s3cret", "******" },
		{ "s3crets3cret s3cre", " Bearer s3cret", "************ *****" },
		{ "Authorization: Bearer s3cret", " bearer s3cret",
		  "Authorization: Bearer ******" },
		{ "nothing of it", "s3cret", "nothing of it" },
		{ "", "s3cret", "" },
		/* one that was cut off with the text, but not any three letters */
		{ "it said s3cr", "s3cret", "it said ****" },
		{ "it said s3c", "s3cret", "it said s3c" },
		/* too short to be told from other words */
		{ "abc abc", "abc", "abc abc" },
		{ "x", "", "x" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[128];

		strcpy(text, rows[i].text);
		redact(text, rows[i].header);
		assert_string_equal(text, rows[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_are_overwritten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

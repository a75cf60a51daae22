/* Content-Range, as a server has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "content_range.h"

static void headers(void **state)
{
	static const struct {
		const char *header;
		int64_t start, total;
	} rows[] = {
		{ "bytes 5-9/20", 5, 20 },
		{ "bytes   0-0/1", 0, 1 },
		{ "bytes 5-9/*", 5, -1 },
		{ "bytes */20", -1, 20 },
		{ "bytes */0", -1, 0 },
		{ "bytes */*", -1, -1 },
		{ NULL, -1, -1 },
		{ "", -1, -1 },
		{ "5-9/20", -1, -1 },
		{ "bytes 9-5/20", -1, -1 },
		{ "bytes 5-9/9", -1, -1 },
		{ "bytes -5-9/20", -1, -1 },
		{ "bytes 5-9/20x", -1, -1 },
		{ "bytes 5-9/-1", -1, -1 },
		{ "bytes 5 -9/20", -1, -1 },
		{ "bytes 5-9", -1, -1 },
		{ "bytes 99999999999999999999-99999999999999999999/*", -1, -1 },
		{ "bytes 0-9/99999999999999999999", -1, -1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct content_range r = content_range_parse(rows[i].header);

		assert_int_equal(r.start, rows[i].start);
		assert_int_equal(r.total, rows[i].total);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

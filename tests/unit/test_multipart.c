/* The multipart reader: forms, odd forms and wrong forms, cut at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "multipart.h"

#define FORM       "multipart/form-data; boundary=XyZ"
#define PART(name) "--XyZ\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n"

/* Everything the callbacks get, as text: <name|filename>data. */
struct seen {
	struct buf text;
	unsigned fail_data; /* this call of data fails, counted from 1; 0 = none */
	unsigned data_calls;
};

static int on_part(void *ctx, const char *name, const char *filename)
{
	struct seen *s = ctx;

	return buf_printf(&s->text, "<%s|%s>", name, filename ? filename : "-");
}

static int on_data(void *ctx, const char *data, size_t len)
{
	struct seen *s = ctx;

	assert_true(len > 0);
	if (++s->data_calls == s->fail_data)
		return -ENOSPC;
	return buf_append(&s->text, data, len);
}

static int on_part_end(void *ctx)
{
	struct seen *s = ctx;

	return buf_puts(&s->text, "</>");
}

static const struct multipart_ops ops = { on_part, on_data, on_part_end };

/* Feeds body in pieces of step bytes, each in memory of its own size. */
static int run(const char *type, const char *body, size_t len, size_t step, struct seen *s)
{
	struct multipart m;
	int r = multipart_init(&m, type, &ops, s);

	for (size_t at = 0; r == 0 && at < len; at += step) {
		size_t n = MIN(step, len - at);
		char *piece = malloc(n);

		assert_non_null(piece);
		memcpy(piece, body + at, n);
		r = multipart_feed(&m, piece, n);
		free(piece);
	}
	if (r == 0)
		r = multipart_finish(&m);
	else if (m.error)
		assert_int_equal(multipart_finish(&m), r);
	multipart_release(&m);
	return r;
}

static void check_n(const char *type, const char *body, size_t len, int want, const char *text,
		    size_t text_len)
{
	for (size_t step = 1; step <= len + 1; step++) {
		struct seen s = { 0 };

		assert_int_equal(run(type, body, len, step, &s), want);
		if (text) {
			assert_int_equal(s.text.len, text_len);
			assert_memory_equal(s.text.data, text, text_len);
		}
		buf_release(&s.text);
	}
}

static void check(const char *body, const char *text)
{
	check_n(FORM, body, strlen(body), 0, text, strlen(text));
}

static void check_bad(const char *body, int want)
{
	check_n(FORM, body, strlen(body), want, NULL, 0);
}

static void plain_forms(void **state)
{
	check(PART("a") "1\r\n--XyZ--\r\n", "<a|->1</>");
	check(PART("a") "1\r\n" PART("b") "22\r\n--XyZ--", "<a|->1</><b|->22</>");
	check(PART("a") "\r\n--XyZ--", "<a|-></>");
	check(PART("") "x\r\n--XyZ--", "<|->x</>");
	check_n(FORM, "--XyZ--", 7, 0, NULL, 0);
}

static void preamble_and_epilogue(void **state)
{
	check("hello\r\nworld\r\n" PART("a") "1\r\n--XyZ--\r\nbye\r\n--XyZ\r\nmore", "<a|->1</>");
	check("--XyZZ\r\n" PART("a") "1\r\n--XyZ--", "<a|->1</>");
	check("--XyZ \t \r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--XyZ--",
	      "<a|->1</>");
}

static void data_like_a_boundary(void **state)
{
	static const char *const data[] = {
		"\r",         "\n",          "\r\n",           "\r\n\r\n",       "\r\n-",
		"\r\n--",     "\r\n--Xy",    "\r\n--XyY",      "\r\n--XyZZ",     "\r\n--XyZ-x",
		"--XyZ--",    "\r\r\n--Xy",  "\r\n--XyZ\rx",   "\n--XyZ--\n",    "\r\n--XyZ \tx",
		"\r\n\r\n--", "\r\n--\r\n-", "\r\n--XyZ-\r\n", "\r\n--XyZ \r\r", "x\r\n--XyZ:\r",
	};

	for (size_t i = 0; i < ARRAY_SIZE(data); i++) {
		char body[256], text[256];

		snprintf(body, sizeof(body), "%s%s\r\n--XyZ--", PART("f"), data[i]);
		snprintf(text, sizeof(text), "<f|->%s</>", data[i]);
		check(body, text);
	}
}

static void binary_data(void **state)
{
	static const char body[] = PART("f") "a\0b\xff\r\0\n\r\n--XyZ--\r\n";
	static const char text[] = "<f|->a\0b\xff\r\0\n</>";

	check_n(FORM, body, sizeof(body) - 1, 0, text, sizeof(text) - 1);
}

static void too_many_blanks_are_data(void **state)
{
	char body[512], text[512], blanks[101];

	memset(blanks, ' ', sizeof(blanks) - 1);
	blanks[sizeof(blanks) - 1] = '\0';
	snprintf(body, sizeof(body), "%s\r\n--XyZ%s\r\n--XyZ--", PART("f"), blanks);
	snprintf(text, sizeof(text), "<f|->\r\n--XyZ%s</>", blanks);
	check(body, text);
}

static void check_disposition(const char *params, const char *text)
{
	char body[512], want[256];

	snprintf(body, sizeof(body),
		 "--XyZ\r\nContent-Type: a/b\r\ncontent-DISPOSITION:%s\r\nX: y\r\n\r\n\r\n--XyZ--",
		 params);
	snprintf(want, sizeof(want), "%s</>", text);
	if (text[0] == '<')
		check(body, want);
	else
		check_bad(body, -EINVAL);
}

static void dispositions(void **state)
{
	check_disposition(" form-data; name=\"file\"; filename=\"a b.txt\"", "<file|a b.txt>");
	check_disposition("form-data;name=file;filename=a.txt", "<file|a.txt>");
	check_disposition(" Form-Data ; NAME = file ; FileName = \"x;y=z\" ", "<file|x;y=z>");
	check_disposition(" form-data; name=\"f\"; filename=\"a\\\"b\\\\c\\d\"", "<f|a\"b\\c\\d>");
	check_disposition(" form-data; name=\"f\"; filename=\"\"", "<f|>");
	check_disposition(" form-data; name=f; filename=x; filename*=utf-8''%C3%A9%20.t",
			  "<f|é .t>");
	check_disposition(" form-data; name=f; filename*=UTF-8'en'%41; filename=x", "<f|A>");
	check_disposition(" form-data;\r\n name=f;\r\n\tfilename=x", "<f|x>");
	check_disposition(" form-data; size=3; name=f", "<f|->");
	check_disposition(" form-data", "bad");
	check_disposition(" attachment; name=f", "bad");
	check_disposition(" form-data; name", "bad");
	check_disposition(" form-data; =x; name=f", "bad");
	check_disposition(" form-data; name=\"f", "bad");
	check_disposition(" form-data; name=f; filename*=x", "bad");
	check_disposition(" form-data; name=f; filename*=utf-8''%0", "bad");
	check_disposition(" form-data; name=f; filename*=utf-8''%00", "bad");
	check_disposition(" form-data; name=f; filename*=utf-8''%zz", "bad");
	check_disposition(" form-data; name=f\r\nContent-Disposition: form-data; name=g", "bad");
}

static void malformed(void **state)
{
	static const char nul[] = "--XyZ\r\nContent-Disposition: form-data; name=\"a\0b\"\r\n\r\n";

	check_bad("", -EINVAL);
	check_bad("no boundary at all", -EINVAL);
	check_bad("--XyZ", -EINVAL);
	check_bad("--XyZ-", -EINVAL);
	check_bad("--XyZ\r\n", -EINVAL);
	check_bad("--XyZ\r\n\r\n", -EINVAL);
	check_bad("--XyZ\r\nno colon\r\n\r\n", -EINVAL);
	check_bad("--XyZ\r\nContent-Type: text/plain\r\n\r\nx\r\n--XyZ--", -EINVAL);
	check_bad(PART("a") "cut", -EINVAL);
	check_bad(PART("a") "cut\r\n--XyZ", -EINVAL);
	check_bad(PART("a") "cut\r\n--XyZ\r\n", -EINVAL);
	check_n(FORM, nul, sizeof(nul) - 1, -EINVAL, NULL, 0);
}

static void limits(void **state)
{
	struct buf body CLEANUP_BUF = BUF_INIT(0);
	struct seen s = { 0 };

	for (int i = 0; i < MULTIPART_MAX_PARTS; i++)
		assert_int_equal(buf_puts(&body, PART("a") "1\r\n"), 0);
	buf_puts(&body, "--XyZ--");
	assert_int_equal(run(FORM, body.data, body.len, 1000, &s), 0);
	buf_reset(&s.text);
	body.len -= strlen("--XyZ--");
	buf_puts(&body, PART("a") "1\r\n--XyZ--");
	assert_int_equal(run(FORM, body.data, body.len, 1000, &s), -E2BIG);

	buf_reset(&body);
	buf_puts(&body, "--XyZ\r\nX: ");
	for (int i = 0; i < MULTIPART_MAX_HEADERS; i++)
		buf_putc(&body, 'x');
	assert_int_equal(run(FORM, body.data, body.len, body.len, &s), -E2BIG);
	assert_int_equal(run(FORM, body.data, body.len, 7, &s), -E2BIG);
	buf_release(&s.text);
}

static void callback_errors_stick(void **state)
{
	static const char body[] = PART("a") "1\r\n" PART("b") "2\r\n" PART("c") "3\r\n--XyZ--";
	struct seen s = { .fail_data = 2 };

	assert_int_equal(run(FORM, body, sizeof(body) - 1, 5, &s), -ENOSPC);
	assert_string_equal(s.text.data, "<a|->1</><b|->");
	assert_int_equal(s.data_calls, 2);
	buf_release(&s.text);
}

static void content_types(void **state)
{
	static const struct {
		const char *type;
		const char *delim; /* NULL = refused */
	} types[] = {
		{ "multipart/form-data; boundary=abc", "\r\n--abc" },
		{ "Multipart/Form-Data;charset=utf-8 ;BOUNDARY=\"a b:c\" ", "\r\n--a b:c" },
		{ "multipart/form-data; boundary=\"a\\\"b\"", "\r\n--a\"b" },
		{ NULL, NULL },
		{ "", NULL },
		{ "multipart/form-data", NULL },
		{ "multipart/form-data; boundary=", NULL },
		{ "multipart/form-data; boundary=\"\"", NULL },
		{ "multipart/form-data; boundary=\"abc", NULL },
		{ "multipart/form-datax; boundary=abc", NULL },
		{ "multipart/mixed; boundary=abc", NULL },
		{ "application/json", NULL },
	};
	char longest[300];
	struct multipart m;

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		int r = multipart_init(&m, types[i].type, &ops, NULL);

		assert_int_equal(r, types[i].delim ? 0 : -EINVAL);
		if (r == 0) {
			assert_int_equal(m.delim_len, strlen(types[i].delim));
			assert_memory_equal(m.delim, types[i].delim, m.delim_len);
		}
		multipart_release(&m);
	}
	snprintf(longest, sizeof(longest), "multipart/form-data; boundary=%0*d",
		 MULTIPART_MAX_BOUNDARY, 7);
	assert_int_equal(multipart_init(&m, longest, &ops, NULL), 0);
	snprintf(longest, sizeof(longest), "multipart/form-data; boundary=%0*d",
		 MULTIPART_MAX_BOUNDARY + 1, 7);
	assert_int_equal(multipart_init(&m, longest, &ops, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_forms),
		cmocka_unit_test(preamble_and_epilogue),
		cmocka_unit_test(data_like_a_boundary),
		cmocka_unit_test(binary_data),
		cmocka_unit_test(too_many_blanks_are_data),
		cmocka_unit_test(dispositions),
		cmocka_unit_test(malformed),
		cmocka_unit_test(limits),
		cmocka_unit_test(callback_errors_stick),
		cmocka_unit_test(content_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* sandboxd/args.c: JSON bodies into structs, and the 422 answers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "args.h"
#include "json.h"

struct sample {
	const char *path;
	struct text content;
	const char *mode;
	bool flag;
	int64_t count;
	struct opt_int depth;
	struct opt_num timeout;
	struct strv names;
	struct strmap env;
};

static const struct arg spec[] = {
	ARG_STR(struct sample, path, ARG_REQUIRED | ARG_PATH),
	ARG_TEXT(struct sample, content, 0),
	ARG_ENUM(struct sample, mode, "fast", "fast|slow"),
	ARG_BOOL(struct sample, flag, true),
	ARG_INT(struct sample, count, 7, 1, 10),
	ARG_OPT_INT(struct sample, depth, 0, 100),
	ARG_OPT_NUM(struct sample, timeout),
	ARG_STRV(struct sample, names),
	ARG_MAP(struct sample, env),
	ARG_END,
};

struct fixture {
	struct sample s;
	struct buf errors;
	cJSON *json;
};

static int decode(struct fixture *f, const char *body, enum dialect dialect)
{
	char text[1024];

	memset(f, 0, sizeof(*f));
	strcpy(text, body);
	assert_int_equal(json_parse(text, strlen(text), &f->json, NULL), 0);
	return args_decode(spec, f->json, dialect, &f->s, &f->errors);
}

static void done(struct fixture *f)
{
	args_clear(spec, &f->s);
	buf_release(&f->errors);
	cJSON_Delete(f->json);
}

static void defaults_fill_what_is_absent_or_null(void **state)
{
	struct fixture f;

	assert_int_equal(decode(&f, "{\"path\":\"/x\",\"count\":null,\"other\":1}", DIALECT_1_9),
			 0);
	assert_string_equal(f.s.path, "/x");
	assert_string_equal(f.s.mode, "fast");
	assert_true(f.s.flag);
	assert_int_equal(f.s.count, 7);
	assert_false(f.s.depth.set || f.s.timeout.set || f.s.names.set || f.s.env.set);
	done(&f);
}

static void every_type_is_decoded(void **state)
{
	struct fixture f;

	assert_int_equal(decode(&f,
				"{\"path\":\"/x\",\"content\":\"a\\u0000b\",\"mode\":\"slow\","
				"\"flag\":false,\"count\":10,\"depth\":0,\"timeout\":1.5,"
				"\"names\":[\"a\",\"b\"],\"env\":{\"K\":\"v\"}}",
				DIALECT_AIOD),
			 0);
	assert_int_equal(f.s.content.n, 3);
	assert_memory_equal(f.s.content.p, "a\0b", 4);
	assert_string_equal(f.s.mode, "slow");
	assert_false(f.s.flag);
	assert_int_equal(f.s.count, 10);
	assert_true(f.s.depth.set && f.s.depth.v == 0);
	assert_true(f.s.timeout.set && f.s.timeout.v == 1.5);
	assert_int_equal(f.s.names.n, 2);
	assert_string_equal(f.s.names.v[1], "b");
	assert_string_equal(f.s.env.keys[0], "K");
	assert_string_equal(f.s.env.values[0], "v");
	done(&f);
}

static void each_fault_is_named(void **state)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "{}", "\"missing\"" },
		{ "[]", "dictionary" },
		{ "{\"path\":null}", "path" },
		{ "{\"path\":\"\"}", "string_too_short" },
		{ "{\"path\":5}", "string_type" },
		{ "{\"path\":\"a\\u0000b\"}", "null character" },
		{ "{\"path\":\"/\",\"mode\":\"x\"}", "enum" },
		{ "{\"path\":\"/\",\"flag\":1}", "bool_type" },
		{ "{\"path\":\"/\",\"count\":0}", "greater than or equal to 1" },
		{ "{\"path\":\"/\",\"count\":11}", "less than or equal to 10" },
		{ "{\"path\":\"/\",\"count\":1.5}", "int_from_float" },
		{ "{\"path\":\"/\",\"count\":1e300}", "int_from_float" },
		{ "{\"path\":\"/\",\"timeout\":-1}", "greater_than_equal" },
		{ "{\"path\":\"/\",\"names\":{}}", "list_type" },
		{ "{\"path\":\"/\",\"names\":[1]}", "string_type" },
		{ "{\"path\":\"/\",\"env\":[]}", "dict_type" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fixture f;

		assert_int_equal(decode(&f, rows[i].body, DIALECT_1_9), -EINVAL);
		assert_non_null(strstr(f.errors.data, rows[i].want));
		assert_non_null(strstr(f.errors.data, "{\"detail\":[{"));
		done(&f);
		assert_int_equal(decode(&f, rows[i].body, DIALECT_AIOD), -EINVAL);
		assert_non_null(strstr(f.errors.data, "\"errors\":[{"));
		done(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_fill_what_is_absent_or_null),
		cmocka_unit_test(every_type_is_decoded),
		cmocka_unit_test(each_fault_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

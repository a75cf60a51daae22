/* See json.h. */
#include "json.h"

#include <errno.h>
#include <string.h>

#include "utf8.h"

#define NUL_LEAD '\xc0'
#define NUL_TAIL '\x80'

static int fail(const char **ret_why, const char *why, int error)
{
	if (ret_why)
		*ret_why = why;
	return error;
}

/* How many characters from here on mean nothing but themselves, in a string. */
static size_t plain_run(const char *s, const char *end)
{
	const char *p = s;

	while (p < end && (signed char)*p > 0 && *p != '"' && *p != '\\')
		p++;
	return (size_t)(p - s);
}

/*
 * One pass over the text: UTF-8, depth, number of values; compacts every
 * \u0000 into C0 80. Grammar is left to cJSON. Updates *len.
 */
static int scan(char *text, size_t *len, const char **ret_why)
{
	size_t depth = 0, nodes = 1, out = 0;
	bool in_string = false;

	for (size_t i = 0; i < *len;) {
		char c = text[i];
		size_t n = 1;

		if ((unsigned char)c >= 0x80) {
			n = utf8_sequence(text + i, *len - i);
			if (n == 0)
				return fail(ret_why, "body is not valid UTF-8", -EINVAL);
		} else if (c == '\0') {
			return fail(ret_why, "NUL byte outside a string escape", -EINVAL);
		} else if (in_string) {
			if (c == '\\' && *len - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) {
				text[out++] = NUL_LEAD;
				text[out++] = NUL_TAIL;
				i += 6;
				continue;
			}
			n = MAX(plain_run(text + i, text + *len), 1);
			if (c == '\\' && i + 1 < *len && (unsigned char)text[i + 1] < 0x80)
				n = 2;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '[' || c == '{') {
			nodes++;
			if (++depth > JSON_MAX_DEPTH)
				return fail(ret_why, "JSON is nested too deeply", -E2BIG);
		} else if (c == ']' || c == '}') {
			depth -= depth > 0;
		} else if (c == ',') {
			nodes++;
		}
		if (nodes > JSON_MAX_NODES)
			return fail(ret_why, "JSON has too many values", -E2BIG);
		if (out < i)
			memmove(text + out, text + i, n);
		out += n;
		i += n;
	}
	*len = out;
	return 0;
}

int json_parse(char *text, size_t len, cJSON **ret, const char **ret_why)
{
	const char *end = NULL;
	cJSON *json;
	int r;

	r = scan(text, &len, ret_why);
	if (r < 0)
		return r;
	json = cJSON_ParseWithLengthOpts(text, len, &end, false);
	if (!json)
		return fail(ret_why, "JSON decode error", -EINVAL);
	while (end < text + len && strchr(" \t\r\n", *end))
		end++;
	if (end < text + len) {
		cJSON_Delete(json);
		return fail(ret_why, "extra data after the JSON value", -EINVAL);
	}
	*ret = json;
	return 0;
}

static char *find_nul(char *s)
{
	static const char nul[] = { NUL_LEAD, NUL_TAIL, '\0' };

	return strstr(s, nul);
}

bool json_has_nul(const char *s)
{
	return find_nul((char *)s) != NULL;
}

size_t json_restore_nul(char *s)
{
	char *in = find_nul(s), *out = in;

	if (!in)
		return strlen(s);
	while (*in) {
		if (in[0] == NUL_LEAD && in[1] == NUL_TAIL) {
			*out++ = '\0';
			in += 2;
		} else {
			*out++ = *in++;
		}
	}
	*out = '\0';
	return (size_t)(out - s);
}

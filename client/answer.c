/* See answer.h. Which words mean which errno is status.c's business. Any thread. */
#include "answer.h"

#include <errno.h>
#include <string.h>

#include "buf.h"
#include "status.h"
#include "utf8.h"

enum {
	MESSAGE_BYTES_MAX = 500,
	WORDS_BYTES_MAX = 16 * 1024, /* of what is looked at: a message with two long paths */
};

void answer_release(struct answer *a)
{
	cJSON_Delete(a->root);
	free(a->message);
	*a = (struct answer){ 0 };
}

static const cJSON *member(const cJSON *obj, const char *key)
{
	return cJSON_IsObject(obj) ? cJSON_GetObjectItemCaseSensitive(obj, key) : NULL;
}

/* A string as it is parsed, U+0000 being C0 80. */
static const char *raw_str(const cJSON *obj, const char *key)
{
	return cJSON_GetStringValue(member(obj, key));
}

const char *answer_str(const cJSON *obj, const char *key)
{
	const char *s = raw_str(obj, key);

	return s && !json_has_nul(s) ? s : NULL;
}

int64_t answer_int(const cJSON *obj, const char *key, int64_t fallback)
{
	const cJSON *j = member(obj, key);
	double v;

	if (!cJSON_IsNumber(j))
		return fallback;
	v = j->valuedouble;
	/* 2^63 is a double, INT64_MAX is not. */
	if (!(v >= -0x1p63 && v < 0x1p63) || v != (double)(int64_t)v)
		return fallback;
	return (int64_t)v;
}

/* A copy fit for a log: blanks in a row become one, what cannot be shown a '?'. */
char *answer_printable(const char *s, size_t len)
{
	struct buf out CLEANUP_BUF = BUF_INIT(MESSAGE_BYTES_MAX);

	while (len > 0 && !out.error) {
		bool blank = *s == ' ' || (*s >= '\t' && *s <= '\r');
		size_t n = utf8_sequence(s, len);

		if (blank && (out.len == 0 || out.data[out.len - 1] == ' '))
			;
		else if (blank)
			buf_putc(&out, ' ');
		else if (n > 0 && !utf8_is_control(s, n))
			buf_append(&out, s, n);
		else
			buf_putc(&out, '?');
		n = MAX(n, (size_t)1);
		s += n;
		len -= n;
	}
	while (out.len > 0 && out.data[out.len - 1] == ' ')
		out.data[--out.len] = '\0';
	return out.len > 0 ? STEAL(out.data) : NULL;
}

/* The server's sentence, wherever this generation puts it; or NULL. */
static const char *find_message(const cJSON *root)
{
	const cJSON *detail = member(root, "detail");
	const char *s = raw_str(root, "message");

	if (!s)
		s = raw_str(member(root, "data"), "message");
	if (!s)
		s = cJSON_GetStringValue(detail);
	if (!s)
		s = raw_str(detail, "message");
	return s ? s : raw_str(root, "error");
}

/* Where the first field is that a server found invalid: "body.path: ". */
static void append_place(struct buf *to, const cJSON *fault)
{
	const char *where = raw_str(fault, "location");
	const cJSON *part;

	if (where) {
		buf_printf(to, "%s: ", where);
		return;
	}
	cJSON_ArrayForEach (part, member(fault, "loc")) {
		if (cJSON_IsString(part))
			buf_puts(to, part->valuestring);
		else if (cJSON_IsNumber(part))
			buf_printf(to, "%g", part->valuedouble);
		buf_puts(to, part->next ? "." : ": ");
	}
}

/* All there is to say about a failure, on one line; NULL if that is nothing. */
static char *describe(const cJSON *root, const char *message)
{
	struct buf words CLEANUP_BUF = BUF_INIT(0);
	const cJSON *faults = member(root, "errors"), *fault;
	const char *what;

	if (!cJSON_IsArray(faults))
		faults = member(root, "detail");
	fault = cJSON_IsArray(faults) ? faults->child : NULL;
	if (message)
		buf_append(&words, message, strnlen(message, WORDS_BYTES_MAX));
	what = raw_str(fault, "msg");
	if (!what)
		what = raw_str(fault, "message");
	if (what) {
		buf_puts(&words, message ? ": " : "");
		append_place(&words, fault);
		buf_append(&words, what, strnlen(what, WORDS_BYTES_MAX));
	}
	return words.len > 0 ? answer_printable(words.data, words.len) : NULL;
}

/* What the body itself says that went wrong, best evidence first; 0 if nothing. */
static int body_error(const cJSON *root, const char *message)
{
	const cJSON *const places[] = { member(root, "data"), member(root, "detail"), root };
	int err = 0, said;

	for (size_t i = 0; i < ARRAY_SIZE(places) && !err; i++) {
		const cJSON *number = member(places[i], "errno");

		if (cJSON_IsNumber(number))
			err = status_from_errno(number->valuedouble);
		if (!err)
			err = status_from_errno_name(raw_str(places[i], "errno_name"));
	}
	if (err)
		return err;
	for (size_t i = 0; i < ARRAY_SIZE(places) && !err; i++) {
		err = status_from_error_type(raw_str(places[i], "error_type"));
		if (!err)
			err = status_from_error_type(raw_str(places[i], "code"));
	}
	/* io_error and invalid_… name a kind; the sentence may name the errno. */
	if (err && err != -EIO && err != -EINVAL)
		return err;
	said = status_from_message(message);
	return said ? said : err;
}

static int fail(struct answer *a, int status)
{
	const char *message = find_message(a->root);

	a->error = body_error(a->root, message);
	if (!a->error) {
		a->error = status_from_http(status);
		a->no_route = status == 404 || status == 405;
	}
	a->message = describe(a->root, message);
	return a->error;
}

/* Not JSON, or more of it than we take: a proxy, a stranger, a joker. */
static int fail_unread(struct answer *a, int status, bool ok, int r, const char *text, size_t len)
{
	if (!ok)
		fail(a, status);
	else
		a->error = r == -E2BIG ? -EMSGSIZE : r == -ENOMEM ? -ENOMEM : -EBADMSG;
	a->message = answer_printable(text, MIN(len, (size_t)WORDS_BYTES_MAX));
	return a->error;
}

int answer_decode(struct answer *a, int status, char *text, size_t len)
{
	bool ok = status >= 200 && status < 300;
	const cJSON *data;
	int r;

	*a = (struct answer){ 0 };
	if (status == 204 && len == 0)
		return 0;
	r = json_parse(text, len, &a->root, NULL);
	if (r < 0)
		return fail_unread(a, status, ok, r, text, len);
	data = member(a->root, "data");
	a->data = data ? data : a->root;
	if (cJSON_IsNull(a->data))
		a->data = NULL;
	if (!ok || cJSON_IsFalse(member(a->root, "success")))
		return fail(a, status);
	return 0;
}

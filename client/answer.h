/*
 * What an answer means: the envelope {"success","message","data","hint"} and
 * its three generations of errors, down to an errno and the server's words.
 * Pure; works on the bytes of an answer.
 */
#pragma once

#include "json.h"

struct answer {
	cJSON *root;       /* the whole document; owned */
	const cJSON *data; /* its "data", or the root where it has none; NULL if that is null */
	int error;         /* 0 or a negative errno */
	bool no_route;     /* 404 or 405 that no handler of the server wrote */
	char *message;     /* the server's words on an error, for a log (see below); or NULL */
};

void answer_release(struct answer *a);
#define CLEANUP_ANSWER CLEANUP(answer_release)

/*
 * Decodes a whole answer. text is modified; text[len] must be NUL. Returns
 * a->error: 0 for a 2xx with success not false; otherwise, in this order:
 * data.errno, data.errno_name, data.error_type or code, what the message says,
 * the HTTP status, -EIO. The same fields are looked for in "detail" and in the
 * root. A 2xx that is not JSON is -EBADMSG (an empty 204 is fine), too deep or
 * too many values -EMSGSIZE. 404: -ENOENT only if an envelope says that a file
 * is missing; "Session not found" is -ESRCH; else no_route and -EOPNOTSUPP.
 *
 * a->message is one line of at most 500 bytes of UTF-8 without controls.
 */
int answer_decode(struct answer *a, int status, char *text, size_t len);

/*
 * Fields of an object: NULL or the fallback where missing, of another type, or
 * (strings) with U+0000 or (numbers) not whole.
 */
const char *answer_str(const cJSON *obj, const char *key);
int64_t answer_int(const cJSON *obj, const char *key, int64_t fallback);

/* A stranger's words as such a line, to be freed; NULL if nothing is left of them. */
char *answer_printable(const char *s, size_t len);

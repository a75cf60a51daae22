/*
 * The table of errors. 13 bytes are numbers: eight a double, one an exit code,
 * two an HTTP status, one a CURLcode, one the errno beside it; the rest is what
 * a server or a command said. Whatever that is: an error is negative, and only
 * what says so is ENOENT.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	ERRNO_LAST = 133,
	HEAD_BYTES = 13,
};

/* An errno, or 0 where the words may mean nothing. */
static void check(int r, bool may_be_zero, bool missing)
{
	assert(r < 0 || (r == 0 && may_be_zero));
	assert(r >= -ERRNO_LAST);
	assert(r != -ENOENT || missing);
}

static void check_numbers(const uint8_t *head)
{
	double number;

	memcpy(&number, head, sizeof(number));
	check(status_from_errno(number), true, number == ENOENT);
	check(status_from_errno(head[0]), true, head[0] == ENOENT);
	check(status_from_http(head[9] | head[10] << 8), false, false);
	check(status_from_curl((CURLcode)(1 + head[11] % 120), head[12]), false, false);
}

static void check_words(const char *s, size_t len)
{
	bool missing = says_missing(s, len);

	check(status_from_message(s), true, missing);
	check(status_from_error_type(s), true, missing);
	check(status_from_errno_name(s), true, strcmp(s, "ENOENT") == 0);
}

/* Whether a line begins as find does, but not with a name below the directory. */
static bool has_own_line(const char *bytes, size_t len)
{
	for (size_t i = 0; i + 6 <= len; i++)
		if ((i == 0 || bytes[i - 1] == '\n') && memcmp(bytes + i, "find: ", 6) == 0 &&
		    (i + 9 > len || memcmp(bytes + i + 6, "'./", 3) != 0))
			return true;
	return false;
}

/* Nothing that find says of what is below the directory is taken for the directory's own end. */
static void check_find(const char *bytes, size_t len, int exit_code)
{
	bool incomplete = false;
	int r = status_from_find(bytes, len, exit_code, &incomplete);

	check(r, true, says_missing(bytes, len));
	assert(r == 0 || !incomplete);
	assert((r < 0) == has_own_line(bytes, len));
	assert(len == 0 || r < 0 || incomplete || says_missing(bytes, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *words CLEANUP_FREE = NULL, *bytes CLEANUP_FREE = NULL;
	int exit_code;

	if (size < HEAD_BYTES)
		return 0;
	check_numbers(data);
	exit_code = (int8_t)data[8];
	data += HEAD_BYTES;
	size -= HEAD_BYTES;
	words = malloc(size + 1);
	bytes = malloc(size ? size : 1); /* without an end: a byte too many is seen */
	assert(words && bytes);
	memcpy(words, data, size);
	words[size] = '\0';
	check_words(words, strlen(words));
	memcpy(bytes, data, size);
	check(status_from_command(bytes, size, exit_code), false, says_missing(bytes, size));
	check_find(bytes, size, exit_code);
	return 0;
}

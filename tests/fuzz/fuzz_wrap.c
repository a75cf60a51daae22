/*
 * What a server says that a script of ours printed, forged or not. Two bytes cut the text
 * into a mark and the rest.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "posix_wrap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_bash(const char *text)
{
	struct buf out CLEANUP_BUF = BUF_INIT(0);
	bool cut = false;
	int r = unwrap_bash_bytes(&out, text, &cut);

	assert(r == 0 || r == -EBADMSG);
	if (r < 0 || cut)
		assert(out.len == 0);
	assert(out.len <= strlen(text));
}

static void read_shell(const char *text, const char *mark)
{
	struct buf out CLEANUP_BUF = BUF_INIT(0), err CLEANUP_BUF = BUF_INIT(0);
	int code = -1, r;
	bool cut = false;

	r = unwrap_shell(text, mark, &out, &err, &code, &cut);
	assert(r == 0 || r == -EBADMSG);
	assert(out.len + err.len <= strlen(text));
	if (r == 0 && !cut)
		assert(code >= 0 && code <= 255);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	assert(text);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	read_bash(text);
	read_shell(text, "tf0123");
	free(text);
	return 0;
}

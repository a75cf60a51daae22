/*
 * See posix_wrap.h. The session of a shell may be anybody's idea of one: its
 * aliases are kept off by `command`, its history by a leading blank (where that
 * is set, as usual), noclobber by >|.
 */
#include "posix_wrap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base64.h"

/* mktemp's own name: a request that was sent twice must not write to one file twice. */
void wrap_spill(struct buf *to, const struct buf *script, const char *prefix, size_t inline_max)
{
	buf_printf(to, "t=$(command mktemp %s.XXXXXX) || exit; ( ", prefix);
	buf_append(to, script->data, script->len);
	buf_printf(
		to,
		" ) >|\"$t\"; r=$?; if [ $(command wc -c <\"$t\") -le %zu ]; then printf I;"
		" command cat \"$t\"; command rm -f \"$t\"; else printf S%%s \"$t\"; fi; exit $r",
		inline_max);
}

/* ---- bash ---- */

/* A server that has too much drops the beginning: the letters tell. */
void wrap_bash_bytes(struct buf *to, const struct buf *script)
{
	buf_puts(to, "set -o pipefail; printf B; ( ");
	buf_append(to, script->data, script->len);
	buf_puts(to, " ) | base64 -w0; r=$?; printf E; exit $r");
}

int unwrap_bash_bytes(struct buf *to, const char *text, bool *ret_cut)
{
	size_t len = text ? strlen(text) : 0;
	int r;

	*ret_cut = len < 2 || text[0] != 'B' || text[len - 1] != 'E';
	if (*ret_cut)
		return 0;
	r = base64_decode(to, text + 1, len - 2);
	if (r != -EBADMSG)
		return r;
	*ret_cut = true; /* in the middle: a remark stands where bytes were */
	return 0;
}

/* ---- shell ---- */

/*
 * mark, base64(stdout NUL stderr newline exit-code), mark, each on lines of its
 * own. The marks are put together by printf so that an echo of the command is
 * not taken for them.
 */
void wrap_shell(struct buf *to, const struct buf *script, const char *mark, size_t err_max)
{
	buf_printf(to, " printf '\\n<%%s>\\n' %s; { e=$( { ( export LC_ALL=C; ", mark);
	buf_append(to, script->data, script->len);
	buf_printf(
		to,
		" ); printf '\\n%%d' $? >&2; } 2>&1 >&4 ); [ ${#e} -le %zu ] || e=${e: -%zu};"
		" printf '\\0%%s' \"$e\"; } 4>&1 </dev/null | base64 -w0; printf '\\n<%%s>\\n' %s",
		err_max, err_max, mark);
}

/* Splits what the wrapper printed. */
static int split(const struct buf *bytes, struct buf *out, struct buf *err, int *ret_exit_code)
{
	/* stderr has no NUL: bash would have dropped it. */
	const char *nul = bytes->len ? memrchr(bytes->data, '\0', bytes->len) : NULL;
	const char *end = bytes->data + bytes->len, *newline;
	char *rest;
	long code;

	newline = nul ? memrchr(nul + 1, '\n', (size_t)(end - nul - 1)) : NULL;
	if (!newline)
		return -EBADMSG;
	errno = 0;
	code = strtol(newline + 1, &rest, 10);
	if (errno || rest == newline + 1 || *rest || code < 0 || code > 255)
		return -EBADMSG;
	buf_append(out, bytes->data, (size_t)(nul - bytes->data));
	buf_append(err, nul + 1, (size_t)(newline - nul - 1));
	if (out->error || err->error)
		return out->error ?: err->error;
	*ret_exit_code = (int)code;
	return 0;
}

int unwrap_shell(const char *text, const char *mark, struct buf *out, struct buf *err,
		 int *ret_exit_code, bool *ret_cut)
{
	struct buf bytes CLEANUP_BUF = BUF_INIT(0);
	const char *begin, *end;
	char line[64];
	int r;

	snprintf(line, sizeof(line), "<%s>", mark);
	begin = strstr(text, line);
	if (!begin)
		return -EBADMSG;
	begin += strlen(line);
	end = strstr(begin, line);
	*ret_cut = !end; /* one of the two is missing */
	if (!end)
		return 0;
	r = base64_decode(&bytes, begin, (size_t)(end - begin));
	if (r == -EBADMSG) {
		*ret_cut = true; /* cut in the middle */
		return 0;
	}
	return r ?: split(&bytes, out, err, ret_exit_code);
}

/* See the header. */
#include "bundle.h"

#include <errno.h>
#include <string.h>

void bundle_release(struct bundle *b)
{
	free(b->block);
	free(b->v);
	*b = (struct bundle){ 0 };
}

/* The last n lines, before which a line ends; returns where they begin, or NULL. */
static const char *last_lines(const char *bytes, size_t len, size_t n)
{
	const char *at = bytes + len;

	if (len == 0 || at[-1] != '\n')
		return NULL;
	at--;
	for (; n > 0; n--) {
		const char *before = memrchr(bytes, '\n', (size_t)(at - bytes));

		if (!before)
			return NULL;
		at = before;
	}
	return at + 1;
}

static int parse_lines(struct bundle_file *v, size_t n, const char *at, const char *end)
{
	for (size_t i = 0; i < n; i++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		int r = stop ? attr_parse_stat(at, (size_t)(stop - at), &v[i].attr) : -EBADMSG;

		if (r < 0)
			return r;
		at = stop + 1;
	}
	return 0;
}

/* Whether the header of that file stands here; then moves behind it. */
static bool skip_header(const char **at, const char *end, const char *name, bool first)
{
	static const char begin[] = "\n==> ", stop[] = " <==\n";
	size_t skip = first ? 1 : 0, head = sizeof(begin) - 1 - skip, len = strlen(name);
	const char *p = *at;

	if ((size_t)(end - p) < head + len + sizeof(stop) - 1 ||
	    memcmp(p, begin + skip, head) != 0 || memcmp(p + head, name, len) != 0 ||
	    memcmp(p + head + len, stop, sizeof(stop) - 1) != 0)
		return false;
	*at = p + head + len + sizeof(stop) - 1;
	return true;
}

/* What cannot be opened has no header: the next one stands in its place. */
static void find_files(struct bundle_file *v, char *const *names, size_t n, const char *at,
		       const char *end)
{
	struct bundle_file *last = NULL;

	for (size_t i = 0; i < n; i++) {
		struct bundle_file *f = &v[i];

		if (!skip_header(&at, end, names[i], !last))
			continue;
		if ((uint64_t)(end - at) < f->attr.size)
			return; /* it was shorter when it was read */
		f->bytes = at;
		f->was_read = true;
		at += f->attr.size;
		last = f;
	}
	/* The last one had more than it should. */
	if (last && at != end)
		last->was_read = false;
}

int bundle_parse(struct bundle *ret, char **block, size_t len, char *const *names, size_t n)
{
	struct bundle_file *v = calloc(n + 1, sizeof(*v));
	const char *lines = last_lines(*block, len, n);
	int r = v ? 0 : -ENOMEM;

	if (r == 0 && !lines)
		r = -EBADMSG;
	if (r == 0)
		r = parse_lines(v, n, lines, *block + len);
	if (r < 0) {
		free(v);
		return r;
	}
	find_files(v, names, n, *block, lines - 1);
	*ret = (struct bundle){ .block = STEAL(*block), .v = v, .n = n };
	return 0;
}

/* See glob_match.h. */
#include "glob_match.h"

#include <errno.h>
#include <string.h>

#include "buf.h"
#include "utf8.h"

bool glob_has_magic(const char *pattern, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (pattern[i] == '*' || pattern[i] == '?' || pattern[i] == '[')
			return true;
	return false;
}

/* The character at s, which is advanced; a stray byte stands for itself. */
static uint32_t next_char(const char **s, const char *end)
{
	size_t n = utf8_sequence(*s, (size_t)(end - *s));
	unsigned char c = (unsigned char)**s;
	uint32_t v;

	if (n <= 1) {
		(*s)++;
		/* out of Unicode's range, so that it never equals U+0080..U+00FF */
		return n == 0 ? 0x110000u + c : c;
	}
	v = c & (0x7fu >> n);
	for (size_t i = 1; i < n; i++)
		v = v << 6 | ((unsigned char)(*s)[i] & 0x3f);
	*s += n;
	return v;
}

/*
 * Tries the set after a '[' on c. Returns the end of the set, or NULL if it
 * is not closed (the '[' is then an ordinary character).
 */
static const char *match_set(const char *p, const char *end, uint32_t c, bool *ret_match)
{
	bool negate = p < end && (*p == '!' || *p == '^');
	bool match = false, first = true;

	p += negate;
	while (p < end && (*p != ']' || first)) {
		uint32_t lo = next_char(&p, end), hi = lo;

		first = false;
		if (end - p >= 2 && p[0] == '-' && p[1] != ']') {
			p++;
			hi = next_char(&p, end);
		}
		match |= lo <= c && c <= hi;
	}
	if (p >= end)
		return NULL;
	*ret_match = match != negate;
	return p + 1;
}

/* Matches one character; advances both on success. */
static bool match_one(const char **p, const char *p_end, const char **s, const char *s_end)
{
	const char *after, *pattern = *p, *text = *s;
	uint32_t c = next_char(&text, s_end);
	bool match;

	if (*pattern == '?') {
		pattern++;
		match = true;
	} else if (*pattern == '[' && (after = match_set(pattern + 1, p_end, c, &match))) {
		pattern = after;
	} else {
		match = next_char(&pattern, p_end) == c;
	}
	if (!match)
		return false;
	*p = pattern;
	*s = text;
	return true;
}

/*
 * Only the latest "*" is ever retried: whatever an earlier one could take, the
 * latest can take as well. The same holds for "**" below.
 */
bool glob_match_name(const char *pattern, size_t pattern_len, const char *name, size_t name_len)
{
	const char *p = pattern, *p_end = pattern + pattern_len;
	const char *s = name, *s_end = name + name_len;
	const char *star = NULL, *star_s = NULL;

	while (s < s_end) {
		if (p < p_end && *p == '*') {
			star = ++p;
			star_s = s;
		} else if (p < p_end && match_one(&p, p_end, &s, s_end)) {
			continue;
		} else if (star) {
			next_char(&star_s, s_end);
			p = star;
			s = star_s;
		} else {
			return false;
		}
	}
	while (p < p_end && *p == '*')
		p++;
	return p == p_end;
}

/* The name at p and what follows its slash (NULL after the last). */
static size_t name_at(const char *p, const char **ret_next)
{
	const char *slash = strchrnul(p, '/');

	*ret_next = *slash ? slash + 1 : NULL;
	return (size_t)(slash - p);
}

bool glob_match_path(const char *pattern, const char *path)
{
	const char *p = pattern, *s = path, *star = NULL, *star_s = NULL, *p_next, *s_next;
	bool starred = false;

	while (s) {
		size_t p_len = p ? name_at(p, &p_next) : 0, s_len = name_at(s, &s_next);

		if (p && p_len == 2 && memcmp(p, "**", 2) == 0) {
			starred = true;
			star = p = p_next;
			star_s = s;
		} else if (p && glob_match_name(p, p_len, s, s_len)) {
			p = p_next;
			s = s_next;
		} else if (starred) {
			name_at(star_s, &s);
			star_s = s;
			p = star;
		} else {
			return false;
		}
	}
	while (p && name_at(p, &p_next) == 2 && memcmp(p, "**", 2) == 0)
		p = p_next;
	return !p;
}

static int add_literal(struct glob_set *set, const char *pattern, size_t len)
{
	char *copy, **v;

	if (set->n >= GLOB_SET_MAX)
		return -E2BIG;
	copy = strndup(pattern, len);
	v = copy ? reallocarray(set->v, set->n + 1, sizeof(*v)) : NULL;
	if (!v) {
		free(copy);
		return -ENOMEM;
	}
	set->v = v;
	set->v[set->n++] = copy;
	return 0;
}

/* The '}' of the '{' at p, or NULL if it has none. */
static const char *closing_brace(const char *p)
{
	unsigned depth = 0;

	for (; *p; p++) {
		if (*p == '{')
			depth++;
		else if (*p == '}' && --depth == 0)
			return p;
	}
	return NULL;
}

/* Adds pattern once per alternative of its first braces; the rest recurses. */
static int add_expanded(struct glob_set *set, const char *pattern, unsigned depth)
{
	const char *open = strchr(pattern, '{'), *close = open ? closing_brace(open) : NULL;
	struct buf one CLEANUP_BUF = BUF_INIT(0);
	const char *from;
	unsigned nested = 0;
	int r;

	if (!close)
		return add_literal(set, pattern, strlen(pattern));
	if (depth > 16)
		return -E2BIG;
	from = open + 1;
	for (const char *p = from; p <= close; p++) {
		nested += *p == '{';
		if (p < close && (nested > 0 || *p != ',')) {
			nested -= *p == '}';
			continue;
		}
		buf_reset(&one);
		buf_append(&one, pattern, (size_t)(open - pattern));
		buf_append(&one, from, (size_t)(p - from));
		r = buf_puts(&one, close + 1);
		if (r == 0)
			r = add_expanded(set, one.data, depth + 1);
		if (r < 0)
			return r;
		from = p + 1;
	}
	return 0;
}

int glob_set_init(struct glob_set *set, const char *const *patterns, size_t n)
{
	*set = (struct glob_set){ 0 };
	for (size_t i = 0; i < n; i++) {
		int r = add_expanded(set, patterns[i], 0);

		if (r < 0)
			return r;
	}
	return 0;
}

void glob_set_release(struct glob_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		free(set->v[i]);
	free(set->v);
	*set = (struct glob_set){ 0 };
}

bool glob_set_match(const struct glob_set *set, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < set->n; i++) {
		const char *p = set->v[i];

		if (strchr(p, '/') ? glob_match_path(*p == '/' ? p + 1 : p, path)
				   : glob_match_name(p, strlen(p), name, strlen(name)))
			return true;
	}
	return false;
}

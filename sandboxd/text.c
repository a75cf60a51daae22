/* See text.h. */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base64.h"
#include "utf8.h"

size_t text_translate_newlines(char *s, size_t n)
{
	char *cr = n ? memchr(s, '\r', n) : NULL;
	size_t in, out;

	if (!cr)
		return n;
	in = out = (size_t)(cr - s);
	while (in < n) {
		char c = s[in++];

		if (c == '\r') {
			c = '\n';
			if (in < n && s[in] == '\n')
				in++;
		}
		s[out++] = c;
	}
	return out;
}

/* Length of the line boundary at the start of s, 0 if there is none. */
static size_t boundary(const char *s, size_t n)
{
	switch ((unsigned char)s[0]) {
	case '\r':
		return n > 1 && s[1] == '\n' ? 2 : 1;
	case '\n':
	case '\v':
	case '\f':
	case 0x1c:
	case 0x1d:
	case 0x1e:
		return 1;
	case 0xc2: /* U+0085 */
		return n > 1 && (unsigned char)s[1] == 0x85 ? 2 : 0;
	case 0xe2: /* U+2028, U+2029 */
		if (n > 2 && (unsigned char)s[1] == 0x80 &&
		    ((unsigned char)s[2] == 0xa8 || (unsigned char)s[2] == 0xa9))
			return 3;
		return 0;
	default:
		return 0;
	}
}

size_t text_line(const char *s, size_t n, size_t *ret_next)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = boundary(s + i, n - i);

		if (len > 0) {
			*ret_next = i + len;
			return i;
		}
	}
	*ret_next = n;
	return n;
}

int text_decode_base64(const char *s, size_t n, struct buf *out, const char **ret_why)
{
	unsigned bits = 0, quad = 0, pads = 0;
	int r = buf_reserve(out, n / 4 * 3 + 3);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		int v = base64_digit(s[i]);

		if ((unsigned char)s[i] >= 0x80) {
			*ret_why = "string argument should contain only ASCII characters";
			return -EINVAL;
		}
		/* A complete pad sequence ends the input; stray pads are skipped. */
		if (s[i] == '=' && quad >= 2 && quad + ++pads >= 4) {
			quad = 0;
			break;
		}
		if (v < 0)
			continue;
		pads = 0;
		bits = bits << 6 | (unsigned)v;
		if (quad > 0)
			out->data[out->len++] = (char)(bits >> (6 - 2 * quad));
		quad = (quad + 1) % 4;
	}
	out->data[out->len] = '\0';
	if (quad != 0) {
		*ret_why = "Incorrect padding";
		return -EINVAL;
	}
	return 0;
}

int text_decode_latin1(const char *s, size_t n, struct buf *out)
{
	int r = buf_reserve(out, n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c >= 0x80) {
			if ((c != 0xc2 && c != 0xc3) || i + 1 >= n)
				return -EINVAL;
			c = (unsigned char)(c << 6 | ((unsigned char)s[++i] & 0x3f));
		}
		out->data[out->len++] = (char)c;
	}
	out->data[out->len] = '\0';
	return 0;
}

int text_append_valid(struct buf *out, const char *s, size_t n)
{
	size_t plain = 0, i = 0; /* s[plain..i) is valid */

	while (i < n) {
		size_t len = (unsigned char)s[i] < 0x80 ? 1 : utf8_sequence(s + i, n - i);

		if (len > 0) {
			i += len;
			continue;
		}
		buf_append(out, s + plain, i - plain);
		buf_append(out, "\xef\xbf\xbd", 3);
		plain = ++i;
	}
	return buf_append(out, s + plain, i - plain);
}

int text_replace_all(struct buf *out, const char *s, size_t n, const char *old, size_t old_len,
		     const char *new, size_t new_len, size_t *ret_count)
{
	size_t count = 0;
	const char *hit;
	int r;

	while (n > 0 && (hit = memmem(s, n, old, old_len))) {
		buf_append(out, s, (size_t)(hit - s));
		r = buf_append(out, new, new_len);
		if (r < 0)
			return r;
		n -= (size_t)(hit - s) + old_len;
		s = hit + old_len;
		count++;
	}
	r = buf_append(out, s, n);
	if (r < 0)
		return r;
	*ret_count = count;
	return 0;
}

int text_parse_size(const char *s, uint64_t *ret)
{
	static const char units[] = "KMGT";
	const char *unit;
	unsigned shift = 0;
	uint64_t v = 0;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++) {
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	if (*s && (unit = strchr(units, toupper((unsigned char)*s)))) {
		shift = 10 * (unsigned)(unit - units + 1);
		s++;
	}
	if (*s == 'B' || *s == 'b')
		s++;
	if (*s)
		return -EINVAL;
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = v << shift;
	return 0;
}

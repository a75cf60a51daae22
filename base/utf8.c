/* See utf8.h. */
#include "utf8.h"

#include <string.h>

/* Bytes announced by a lead byte and the range its second byte must be in. */
static size_t lead(unsigned char c, unsigned char *ret_lo, unsigned char *ret_hi)
{
	*ret_lo = 0x80;
	*ret_hi = 0xbf;
	if (c < 0x80)
		return 1;
	if (c < 0xc2 || c > 0xf4)
		return 0;
	if (c < 0xe0)
		return 2;
	if (c < 0xf0) {
		if (c == 0xe0)
			*ret_lo = 0xa0;
		else if (c == 0xed)
			*ret_hi = 0x9f;
		return 3;
	}
	if (c == 0xf0)
		*ret_lo = 0x90;
	else if (c == 0xf4)
		*ret_hi = 0x8f;
	return 4;
}

/* How many bytes of s follow the rules, up to the length its lead announces. */
static size_t good_prefix(const char *s, size_t len, size_t *ret_need)
{
	const unsigned char *u = (const unsigned char *)s;
	unsigned char lo, hi;
	size_t i;

	*ret_need = lead(u[0], &lo, &hi);
	if (*ret_need == 0)
		return 0;
	for (i = 1; i < *ret_need && i < len; i++) {
		if (u[i] < lo || u[i] > hi)
			break;
		lo = 0x80;
		hi = 0xbf;
	}
	return i;
}

size_t utf8_sequence(const char *s, size_t len)
{
	size_t need, have = good_prefix(s, len, &need);

	return need && have == need ? need : 0;
}

bool utf8_is_cut(const char *s, size_t len)
{
	size_t need;

	return good_prefix(s, len, &need) == len && need > len;
}

bool utf8_is_control(const char *s, size_t len)
{
	const unsigned char *c = (const unsigned char *)s;

	if (len == 1)
		return c[0] < 0x20 || c[0] == 0x7f;
	if (len == 2) /* C1; the Arabic letter mark */
		return (c[0] == 0xc2 && c[1] < 0xa0) || (c[0] == 0xd8 && c[1] == 0x9c);
	if (len != 3)
		return false;
	if (c[0] == 0xe2 && c[1] == 0x80) /* marks of direction; line ends, embeddings, overrides */
		return (c[2] >= 0x8e && c[2] <= 0x8f) || (c[2] >= 0xa8 && c[2] <= 0xae);
	if (c[0] == 0xe2 && c[1] == 0x81) /* isolates */
		return c[2] >= 0xa6 && c[2] <= 0xa9;
	return c[0] == 0xef && c[1] == 0xbb && c[2] == 0xbf; /* the byte order mark */
}

void utf8_disarm(char *s)
{
	size_t left = strlen(s);

	while (left > 0) {
		size_t len = utf8_sequence(s, left);

		if (len == 0 || utf8_is_control(s, len))
			memset(s, '?', MAX(len, (size_t)1));
		len = MAX(len, (size_t)1);
		s += len;
		left -= len;
	}
}

bool utf8_valid(const char *s, size_t len)
{
	while (len > 0) {
		size_t n = utf8_sequence(s, len);

		if (n == 0)
			return false;
		s += n;
		len -= n;
	}
	return true;
}

size_t utf8_length(const char *s, size_t len)
{
	size_t chars = 0;

	for (; len > 0; chars++) {
		size_t n = MAX(utf8_sequence(s, len), (size_t)1);

		s += n;
		len -= n;
	}
	return chars;
}

size_t utf8_offset(const char *s, size_t len, size_t n)
{
	size_t at = 0;

	while (n-- > 0 && at < len)
		at += MAX(utf8_sequence(s + at, len - at), (size_t)1);
	return at;
}

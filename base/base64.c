/* See base64.h. Any thread. */
#include "base64.h"

#include <errno.h>

static const char digits[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(struct buf *to, const void *bytes, size_t len)
{
	const unsigned char *in = bytes;
	int r = buf_reserve(to, len / 3 * 4 + (len % 3 ? 4 : 0));
	char *out;

	if (r < 0)
		return r;
	out = to->data + to->len;
	for (; len >= 3; len -= 3, in += 3) {
		*out++ = digits[in[0] >> 2];
		*out++ = digits[(in[0] & 3) << 4 | in[1] >> 4];
		*out++ = digits[(in[1] & 15) << 2 | in[2] >> 6];
		*out++ = digits[in[2] & 63];
	}
	if (len > 0) {
		unsigned second = len > 1 ? in[1] : 0;

		*out++ = digits[in[0] >> 2];
		*out++ = digits[(in[0] & 3) << 4 | second >> 4];
		*out++ = len > 1 ? digits[(second & 15) << 2] : '=';
		*out++ = '=';
	}
	*out = '\0';
	to->len = (size_t)(out - to->data);
	return 0;
}

/* The other way round, of ASCII. */
enum { NO = 0xff };
/* clang-format off */
static const unsigned char values[128] = {
	NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
	NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
	NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, 62, NO, NO, NO, 63,
	52, 53, 54, 55, 56, 57, 58, 59, 60, 61, NO, NO, NO, NO, NO, NO,
	NO, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, NO, NO, NO, NO, NO,
	NO, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
	41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, NO, NO, NO, NO, NO,
};
/* clang-format on */

static unsigned value_of(char c)
{
	unsigned char u = (unsigned char)c;

	return u < sizeof(values) ? values[u] : NO;
}

int base64_digit(char c)
{
	unsigned v = value_of(c);

	return v == NO ? -1 : (int)v;
}

/* Four digits as 24 bits; -1: one of them is none. */
static int32_t take_four(const char *text)
{
	unsigned a = value_of(text[0]), b = value_of(text[1]), c = value_of(text[2]),
		 d = value_of(text[3]);

	return (a | b | c | d) == NO ? -1 : (int32_t)(a << 18 | b << 12 | c << 6 | d);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* How many bytes the text encodes, so that no more is reserved; or -EBADMSG. */
static ssize_t decoded_size(const char *text, size_t len)
{
	size_t count = 0, pads = 0;

	for (size_t i = 0; i < len; i++) {
		if (pads == 0 && len - i >= 4 && take_four(text + i) >= 0) {
			count += 4;
			i += 3;
			continue;
		}
		if (is_blank(text[i]))
			continue;
		if (text[i] == '=')
			pads++;
		else if (pads > 0 || base64_digit(text[i]) < 0)
			return -EBADMSG;
		count++;
	}
	if (count % 4 != 0 || pads > 2)
		return -EBADMSG;
	return (ssize_t)(count / 4 * 3 - pads);
}

int base64_decode(struct buf *to, const char *text, size_t len)
{
	ssize_t size = decoded_size(text, len);
	uint32_t bits = 0;
	unsigned have = 0;
	char *out;
	int r;

	if (size < 0)
		return (int)size;
	r = buf_reserve(to, (size_t)size);
	if (r < 0)
		return r;
	out = to->data + to->len;
	for (size_t i = 0; i < len; i++) {
		int32_t four = have == 0 && len - i >= 4 ? take_four(text + i) : -1;
		int digit = base64_digit(text[i]);

		if (four >= 0) {
			*out++ = (char)(four >> 16);
			*out++ = (char)(four >> 8);
			*out++ = (char)four;
			i += 3;
			continue;
		}
		if (digit < 0)
			continue;
		bits = bits << 6 | (unsigned)digit;
		have += 6;
		if (have >= 8) {
			have -= 8;
			*out++ = (char)(bits >> have);
		}
	}
	/* Bits before the padding that no byte takes: an encoder writes zeros. */
	if (bits & ((1u << have) - 1)) {
		to->data[to->len] = '\0';
		return -EBADMSG;
	}
	*out = '\0';
	to->len = (size_t)(out - to->data);
	return 0;
}

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

int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -1;
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
		int digit = base64_digit(text[i]);

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

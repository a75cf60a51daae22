/* See shell_text.h. */
#include "shell_text.h"

#include <string.h>

#include "utf8.h"

enum {
	MARKER_CHARS = 100, /* more than the line in the middle ever needs */
	/* A control string that never ends must not swallow the output. */
	MAX_CONTROL_STRING = 4096,
};

enum state {
	PLAIN,
	ESCAPE,     /* after ESC */
	DESIGNATE,  /* after ESC and an intermediate byte, as in ESC ( B */
	CSI,        /* after ESC [ */
	STRING,     /* after ESC ] and the like, until BEL or ESC \ */
	STRING_ESC, /* an ESC inside of it */
};

static const char replacement[] = "\xef\xbf\xbd";

static bool is_plain(unsigned char c)
{
	return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t';
}

static size_t plain_run(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && is_plain((unsigned char)s[n]))
		n++;
	return n;
}

static void erase_char(struct buf *out)
{
	size_t n = out->len;

	if (n == 0 || out->data[n - 1] == '\n')
		return;
	do
		n--;
	while (n > 0 && (out->data[n] & 0xc0) == 0x80);
	out->len = n;
	out->data[n] = '\0';
}

/* Writes what is complete of the kept bytes, and what can never be. */
static void put_kept(struct shell_text *t, struct buf *out)
{
	while (t->ncut) {
		size_t n = utf8_sequence(t->cut, t->ncut);

		if (n == 0 && utf8_is_cut(t->cut, t->ncut))
			return;
		if (n)
			buf_append(out, t->cut, n);
		else
			buf_puts(out, replacement);
		n = n ? n : 1;
		t->ncut -= (unsigned)n;
		memmove(t->cut, t->cut + n, t->ncut);
	}
}

static void plain_byte(struct shell_text *t, char c, struct buf *out)
{
	if ((unsigned char)c >= 0x80) {
		t->cut[t->ncut++] = c;
		put_kept(t, out);
		return;
	}
	if (t->ncut) {
		buf_puts(out, replacement);
		t->ncut = 0;
	}
	switch (c) {
	case '\033':
		t->state = ESCAPE;
		break;
	case '\b':
		erase_char(out);
		break;
	case '\r':
		break;
	default:
		buf_putc(out, c);
	}
}

static enum state after_escape(unsigned char c)
{
	if (c == '[')
		return CSI;
	if (strchr("]PX^_", c) && c)
		return STRING;
	return c >= 0x20 && c < 0x30 ? DESIGNATE : PLAIN;
}

/* Takes a byte of a sequence; false if it does not belong to it. */
static bool control_byte(struct shell_text *t, unsigned char c)
{
	switch (t->state) {
	case ESCAPE:
		t->state = after_escape(c);
		t->swallowed = 0;
		return c >= 0x20 && c < 0x7f;
	case DESIGNATE:
	case CSI:
		if (c >= 0x20 && c < (t->state == CSI ? 0x40 : 0x30))
			return true;
		t->state = PLAIN;
		return c >= 0x20 && c < 0x7f;
	case STRING_ESC:
		t->state = c == '\\' ? PLAIN : STRING;
		return true;
	default:
		if (c == '\n' || ++t->swallowed > MAX_CONTROL_STRING) {
			t->state = PLAIN;
			return false;
		}
		if (c == '\033')
			t->state = STRING_ESC;
		else if (c == '\a')
			t->state = PLAIN;
		return true;
	}
}

int shell_text_feed(struct shell_text *t, const char *data, size_t len, struct buf *out)
{
	while (len) {
		size_t n = 1;

		if (t->state != PLAIN) {
			if (!control_byte(t, (unsigned char)*data))
				continue;
		} else if (!t->ncut && (n = plain_run(data, len)) > 0) {
			buf_append(out, data, n);
		} else {
			n = 1;
			plain_byte(t, *data, out);
		}
		data += n;
		len -= n;
	}
	return out->error;
}

size_t shell_text_trim(const char *s, size_t len)
{
	while (len && s[len - 1] == '\n')
		len--;
	return len;
}

int shell_text_shorten(const char *s, size_t len, size_t max_chars, struct buf *out)
{
	size_t chars, part = (max_chars - MARKER_CHARS) / 2;
	size_t tail;

	if (len <= max_chars)
		return 0;
	chars = utf8_length(s, len);
	if (chars <= max_chars)
		return 0;
	tail = utf8_offset(s, len, chars - part);
	buf_append(out, s, utf8_offset(s, len, part));
	buf_printf(out, "\n[... %zu characters truncated ...]\n", chars - 2 * part);
	buf_append(out, s + tail, len - tail);
	return out->error ? out->error : 1;
}

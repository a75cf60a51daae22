/* See shellquote.h. Pure; any thread. */
#include "shellquote.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static bool is_printable(char c)
{
	return c >= ' ' && c <= '~';
}

static bool is_plain(const char *word, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!is_printable(word[i]) || word[i] == '\'')
			return false;
	return true;
}

/*
 * Inside $'…'. The quote, the backslash and the exclamation mark are octal
 * too: an interactive bash looks for history events before it knows of escapes.
 */
static void append_escaped(struct buf *to, char c)
{
	unsigned char u = (unsigned char)c;
	char octal[4] = { '\\', (char)('0' + (u >> 6)), (char)('0' + (u >> 3 & 7)),
			  (char)('0' + (u & 7)) };

	if (is_printable(c) && !strchr("'\\!", c))
		buf_putc(to, c);
	else
		buf_append(to, octal, sizeof(octal));
}

int shellquote(struct buf *to, const char *word, size_t len)
{
	bool plain = is_plain(word, len);

	/* No word can hold NUL: bash would cut it there without a sound. */
	if (!to->error && memchr(word, '\0', len))
		to->error = -EINVAL;
	buf_puts(to, plain ? "'" : "$'");
	if (plain)
		buf_append(to, word, len);
	else
		for (size_t i = 0; i < len && !to->error; i++)
			append_escaped(to, word[i]);
	return buf_putc(to, '\'');
}

/* One conversion; returns how many characters of the template it took. */
static size_t convert(struct buf *to, const char *directive, va_list *ap)
{
	const char *word;

	switch (directive[1]) {
	case 's':
		word = va_arg(*ap, const char *);
		shellquote(to, word, strlen(word));
		return 2;
	case 'd':
		buf_printf(to, "%lld", (long long)va_arg(*ap, int64_t));
		return 2;
	case 'o':
		buf_printf(to, "%o", va_arg(*ap, unsigned));
		return 2;
	case '%':
		buf_putc(to, '%');
		return 2;
	default:
		buf_putc(to, '%');
		return 1;
	}
}

int shell_printf(struct buf *to, const char *template, ...)
{
	va_list ap;

	va_start(ap, template);
	while (*template) {
		size_t plain = strcspn(template, "%");

		buf_append(to, template, plain);
		template += plain;
		if (*template)
			template += convert(to, template, &ap);
	}
	va_end(ap);
	return to->error;
}

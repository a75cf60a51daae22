/* See jsonw.h. */
#include "jsonw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "utf8.h"

void jw_init(struct jw *w, struct buf *out)
{
	*w = (struct jw){ .out = out };
}

/* Called before every value: writes the comma it needs. */
static void before(struct jw *w)
{
	if (w->comma)
		buf_putc(w->out, ',');
	w->comma = true;
}

static void open_container(struct jw *w, char c)
{
	before(w);
	buf_putc(w->out, c);
	w->comma = false;
}

static void close_container(struct jw *w, char c)
{
	buf_putc(w->out, c);
	w->comma = true;
}

void jw_obj(struct jw *w)
{
	open_container(w, '{');
}

void jw_obj_end(struct jw *w)
{
	close_container(w, '}');
}

void jw_arr(struct jw *w)
{
	open_container(w, '[');
}

void jw_arr_end(struct jw *w)
{
	close_container(w, ']');
}

void jw_key(struct jw *w, const char *key)
{
	before(w);
	buf_putc(w->out, '"');
	buf_puts(w->out, key);
	buf_append(w->out, "\":", 2);
	w->comma = false;
}

static void escape(struct buf *out, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	const char code[] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };

	switch (c) {
	case '"':
		buf_append(out, "\\\"", 2);
		break;
	case '\\':
		buf_append(out, "\\\\", 2);
		break;
	case '\n':
		buf_append(out, "\\n", 2);
		break;
	case '\r':
		buf_append(out, "\\r", 2);
		break;
	case '\t':
		buf_append(out, "\\t", 2);
		break;
	default:
		buf_append(out, code, sizeof(code));
	}
}

void jw_strn(struct jw *w, const char *s, size_t len)
{
	size_t plain = 0, i = 0; /* s[plain..i) needs no change */

	before(w);
	buf_putc(w->out, '"');
	while (i < len) {
		unsigned char c = (unsigned char)s[i];
		size_t n = 1;

		if (c >= 0x80)
			n = utf8_sequence(s + i, len - i);
		/* C1 controls, too: a terminal that shows this obeys them. */
		if (n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0) {
			buf_append(w->out, s + plain, i - plain);
			c = (unsigned char)s[++i];
			plain = i;
		} else if (n > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
			i += n;
			continue;
		}
		buf_append(w->out, s + plain, i - plain);
		if (n == 0) {
			w->invalid_utf8 = true;
			buf_append(w->out, "\xef\xbf\xbd", 3);
		} else {
			escape(w->out, c);
		}
		plain = ++i;
	}
	buf_append(w->out, s + plain, i - plain);
	buf_putc(w->out, '"');
}

void jw_key_any(struct jw *w, const char *key)
{
	jw_strn(w, key, strlen(key));
	buf_putc(w->out, ':');
	w->comma = false;
}

void jw_str(struct jw *w, const char *s)
{
	if (s)
		jw_strn(w, s, strlen(s));
	else
		jw_null(w);
}

void jw_int(struct jw *w, int64_t v)
{
	before(w);
	buf_printf(w->out, "%lld", (long long)v);
}

void jw_num(struct jw *w, double v)
{
	before(w);
	if (!isfinite(v))
		buf_puts(w->out, "null");
	else if (v == floor(v) && fabs(v) < 1e15)
		buf_printf(w->out, "%.1f", v);
	else
		buf_printf(w->out, "%.17g", v);
}

void jw_bool(struct jw *w, bool v)
{
	before(w);
	buf_puts(w->out, v ? "true" : "false");
}

void jw_null(struct jw *w)
{
	before(w);
	buf_puts(w->out, "null");
}

void jw_kstr(struct jw *w, const char *key, const char *s)
{
	jw_key(w, key);
	jw_str(w, s);
}

void jw_kstrn(struct jw *w, const char *key, const char *s, size_t len)
{
	jw_key(w, key);
	jw_strn(w, s, len);
}

void jw_kint(struct jw *w, const char *key, int64_t v)
{
	jw_key(w, key);
	jw_int(w, v);
}

void jw_knum(struct jw *w, const char *key, double v)
{
	jw_key(w, key);
	jw_num(w, v);
}

void jw_kbool(struct jw *w, const char *key, bool v)
{
	jw_key(w, key);
	jw_bool(w, v);
}

void jw_knull(struct jw *w, const char *key)
{
	jw_key(w, key);
	jw_null(w);
}

void jw_ktime(struct jw *w, const char *key, double wall)
{
	time_t seconds = (time_t)wall;
	char day[32], full[48];
	struct tm tm;

	localtime_r(&seconds, &tm);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(full, sizeof(full), "%s.%06d", day, (int)((wall - (double)seconds) * 1e6));
	jw_kstr(w, key, full);
}

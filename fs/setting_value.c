/* The values of settings: reading them from text and writing them. See settings.h. */
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "home.h"
#include "ident.h"
#include "settings.h"
#include "view.h"

enum { SHOWN_MAX = 100 };

static void *field(const struct options *o, const struct setting *s)
{
	return (char *)(uintptr_t)o + s->offset;
}

char **setting_string(struct options *o, const struct setting *s)
{
	return field(o, s);
}

/* Says what was expected; on one line whatever the value holds. */
PRINTF_LIKE(3, 4)
static int refuse(struct buf *why, const char *value, const char *fmt, ...)
{
	va_list ap;

	buf_puts(why, "'");
	for (size_t i = 0; value[i] && i < SHOWN_MAX; i++)
		buf_putc(why, iscntrl((unsigned char)value[i]) ? '?' : value[i]);
	buf_puts(why, strlen(value) > SHOWN_MAX ? "…'" : "'");
	buf_puts(why, ": expected ");
	va_start(ap, fmt);
	buf_vprintf(why, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- reading, one function per kind; the value is neither NULL nor empty ---- */

static int set_bool(const struct setting *s, void *to, const char *value, struct buf *why)
{
	static const char *const words[] = { "false", "true", "no", "yes", "off", "on", "0", "1" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcasecmp(value, words[i]) == 0) {
			*(bool *)to = i % 2;
			return 0;
		}
	}
	return refuse(why, value, "true or false");
}

/* Digits only, nothing before or behind; false also beyond UINT64_MAX. */
static bool whole_number(const char *s, size_t len, int base, uint64_t *ret)
{
	uint64_t n = 0;

	if (len == 0)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] >= '0' + base ||
		    __builtin_mul_overflow(n, (uint64_t)base, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(s[i] - '0'), &n))
			return false;
	}
	*ret = n;
	return true;
}

/* By hand: strtod() knows more spellings than anybody expects here. */
static bool seconds(const char *value, uint64_t *ret_ms)
{
	size_t whole = strcspn(value, "."), digits = 0;
	uint64_t s = 0, ms = 0;

	if (value[whole]) {
		const char *fraction = value + whole + 1;
		uint64_t unit = 100;

		digits = strlen(fraction);
		if (strspn(fraction, "0123456789") != digits)
			return false;
		for (size_t i = 0; i < digits; i++, unit /= 10)
			ms += (uint64_t)(fraction[i] - '0') * unit;
	}
	if (whole ? !whole_number(value, whole, 10, &s) : digits == 0)
		return false;
	return !__builtin_mul_overflow(s, (uint64_t)1000, &s) &&
	       !__builtin_add_overflow(s, ms, ret_ms);
}

static int set_seconds(const struct setting *s, void *to, const char *value, struct buf *why)
{
	uint64_t ms;

	if (!seconds(value, &ms))
		return refuse(why, value, "seconds, such as 30 or 0.5");
	if (ms < s->min)
		return refuse(why, value, "at least 0.001 seconds");
	if (ms > s->max)
		return refuse(why, value, "at most %" PRIu64 " seconds", s->max / 1000);
	*(int64_t *)to = (int64_t)ms;
	return 0;
}

static int set_count(const struct setting *s, void *to, const char *value, struct buf *why)
{
	uint64_t n;

	if (!whole_number(value, strlen(value), 10, &n) || n < s->min || n > s->max)
		return refuse(why, value, "a number from %" PRIu64 " to %" PRIu64, s->min, s->max);
	*(unsigned *)to = (unsigned)n;
	return 0;
}

static int set_bytes(const struct setting *s, void *to, const char *value, struct buf *why)
{
	static const char units[] = "KMGT";
	size_t len = strlen(value);
	const char *unit = strchr(units, toupper((unsigned char)value[len - 1]));
	uint64_t n, factor = unit ? 1ull << 10 * (unit - units + 1) : 1;

	if (!whole_number(value, len - (unit != NULL), 10, &n) ||
	    __builtin_mul_overflow(n, factor, &n) || n > INT64_MAX)
		return refuse(why, value, "bytes, such as 500M or 4G");
	if (n < s->min)
		return refuse(why, value, "at least %" PRIu64 "K", s->min / 1024);
	*(uint64_t *)to = n;
	return 0;
}

static int set_umask(const struct setting *s, void *to, const char *value, struct buf *why)
{
	uint64_t n;

	if (!whole_number(value, strlen(value), 8, &n) || n > 0777)
		return refuse(why, value, "octal permissions from 0 to 777, such as 022");
	*(mode_t *)to = (mode_t)n;
	return 0;
}

/* The largest id means "none" to the kernel. */
static bool id_number(const char *value, unsigned *ret)
{
	uint64_t n;

	if (!whole_number(value, strlen(value), 10, &n) || n >= UINT32_MAX)
		return false;
	*ret = (unsigned)n;
	return true;
}

static int set_uid(const struct setting *s, void *to, const char *value, struct buf *why)
{
	bool is_number = isdigit((unsigned char)value[0]);
	const struct passwd *pw;
	unsigned id;

	if (id_number(value, &id)) {
		*(uid_t *)to = id;
		return 0;
	}
	pw = is_number ? NULL : getpwnam(value);
	if (!pw)
		return refuse(why, value, "a user's number or name");
	*(uid_t *)to = pw->pw_uid;
	return 0;
}

static int set_gid(const struct setting *s, void *to, const char *value, struct buf *why)
{
	bool is_number = isdigit((unsigned char)value[0]);
	const struct group *gr;
	unsigned id;

	if (id_number(value, &id)) {
		*(gid_t *)to = id;
		return 0;
	}
	gr = is_number ? NULL : getgrnam(value);
	if (!gr)
		return refuse(why, value, "a group's number or name");
	*(gid_t *)to = gr->gr_gid;
	return 0;
}

static int take(char **to, char *text)
{
	if (!text)
		return -ENOMEM;
	free(*to);
	*to = text;
	return 0;
}

static int set_path(const struct setting *s, void *to, const char *value, struct buf *why)
{
	char *path;
	int r;

	for (const char *c = value; *c; c++)
		if (iscntrl((unsigned char)*c))
			return refuse(why, value, "a path without control characters");
	if (strlen(value) >= PATH_MAX)
		return refuse(why, value, "a path of less than %d bytes", PATH_MAX);
	r = home_absolute(value, &path);
	if (r == -ENOENT)
		return refuse(why, value, "an absolute path (there is no %s)",
			      value[0] == '~' ? "home directory" : "working directory");
	return r < 0 ? r : take(to, path);
}

static int set_root(const struct setting *s, void *to, const char *value, struct buf *why)
{
	char *root;
	int r;

	for (const char *c = value; *c; c++)
		if (iscntrl((unsigned char)*c))
			return refuse(why, value, "a path without control characters");
	r = view_root(value, &root);
	if (r == -EINVAL)
		return refuse(why, value, "an absolute path without '..'");
	return r < 0 ? r : take(to, root);
}

static int set_user(const struct setting *s, void *to, const char *value, struct buf *why)
{
	if (!ident_is_user(value))
		return refuse(why, value, "up to 200 letters, digits, '-' and '_'");
	return take(to, strdup(value));
}

static int set_thread(const struct setting *s, void *to, const char *value, struct buf *why)
{
	if (!ident_is_thread(value))
		return refuse(why, value, "up to 64 letters, digits, '-' and '_'");
	return take(to, strdup(value));
}

static int set_name(const struct setting *s, void *to, const char *value, struct buf *why)
{
	for (const char *c = value; *c; c++)
		if (!isgraph((unsigned char)*c))
			return refuse(why, value, "a name without blanks");
	if (!isalnum((unsigned char)value[0]))
		return refuse(why, value, "a name that begins with a letter or digit");
	return take(to, strdup(value));
}

static int find_word(const struct setting *s, const char *value, size_t len)
{
	for (int i = 0; s->words[i]; i++)
		if (strlen(s->words[i]) == len && memcmp(s->words[i], value, len) == 0)
			return i;
	return -1;
}

static int refuse_word(const struct setting *s, const char *value, struct buf *why)
{
	struct buf words CLEANUP_BUF = BUF_INIT(0);

	for (size_t i = 0; s->words[i]; i++) {
		if (i > 0)
			buf_puts(&words, s->words[i + 1] ? ", " : " or ");
		buf_puts(&words, s->words[i]);
	}
	return words.error ?: refuse(why, value, "%s", words.data);
}

static int set_word(const struct setting *s, void *to, const char *value, struct buf *why)
{
	int i = find_word(s, value, strlen(value));

	if (i < 0)
		return refuse_word(s, value, why);
	if (s->kind == SETTING_TEXT)
		return take(to, strdup(value));
	if (s->size == sizeof(bool))
		*(bool *)to = i;
	else
		*(unsigned *)to = (unsigned)i;
	return 0;
}

static int set_topics(const struct setting *s, void *to, const char *value, struct buf *why)
{
	unsigned topics = 0;

	for (const char *v = value;; v++) {
		size_t len = strcspn(v, ":,");
		int i = find_word(s, v, len);

		if (i >= 0)
			topics |= 1u << i;
		else if (len == 3 && memcmp(v, "all", 3) == 0)
			topics = UINT_MAX;
		else
			return refuse(why, value,
				      "topics (fuse, http, lease, file, ctl or all) with ':' "
				      "between them");
		v += len;
		if (!*v)
			break;
	}
	if (topics == UINT_MAX)
		for (unsigned i = topics = 0; s->words[i]; i++)
			topics |= 1u << i;
	*(unsigned *)to = topics;
	return 0;
}

int setting_set(struct options *o, const struct setting *s, const char *value, struct buf *why)
{
	static int (*const set[])(const struct setting *, void *, const char *, struct buf *) = {
		[SETTING_BOOL] = set_bool,     [SETTING_SECONDS] = set_seconds,
		[SETTING_COUNT] = set_count,   [SETTING_BYTES] = set_bytes,
		[SETTING_UMASK] = set_umask,   [SETTING_UID] = set_uid,
		[SETTING_GID] = set_gid,       [SETTING_PATH] = set_path,
		[SETTING_ROOT] = set_root,     [SETTING_USER] = set_user,
		[SETTING_THREAD] = set_thread, [SETTING_WORD] = set_word,
		[SETTING_TEXT] = set_word,     [SETTING_NAME] = set_name,
		[SETTING_TOPICS] = set_topics,
	};

	if (!value && s->kind == SETTING_BOOL)
		value = "true";
	if (!value || !*value) {
		buf_printf(why, "a value is missing, as in %s=%s", s->name,
			   s->value ? s->value : "BOOL");
		return -EINVAL;
	}
	return set[s->kind](s, field(o, s), value, why);
}

/* ---- writing ---- */

static void show_seconds(int64_t ms, struct buf *to)
{
	buf_printf(to, "%" PRId64, ms / 1000);
	if (ms % 1000)
		buf_printf(to, ".%03d", (int)(ms % 1000));
}

static void show_bytes(uint64_t n, struct buf *to)
{
	static const char units[] = "KMGT";
	size_t i = 0;

	while (n && n % 1024 == 0 && units[i]) {
		n /= 1024;
		i++;
	}
	buf_printf(to, "%" PRIu64, n);
	if (i > 0)
		buf_putc(to, units[i - 1]);
}

static bool show_topics(const struct setting *s, unsigned topics, struct buf *to)
{
	const char *between = "";

	for (unsigned i = 0; s->words[i]; i++) {
		if (topics & 1u << i) {
			buf_printf(to, "%s%s", between, s->words[i]);
			between = ":";
		}
	}
	return topics != 0;
}

bool setting_show(const struct options *o, const struct setting *s, struct buf *to)
{
	const void *f = field(o, s);
	const char *text;

	switch (s->kind) {
	case SETTING_BOOL:
		buf_puts(to, *(const bool *)f ? "true" : "false");
		return true;
	case SETTING_SECONDS:
		show_seconds(*(const int64_t *)f, to);
		return true;
	case SETTING_COUNT:
	case SETTING_UID:
	case SETTING_GID:
		buf_printf(to, "%u", *(const unsigned *)f);
		return true;
	case SETTING_BYTES:
		show_bytes(*(const uint64_t *)f, to);
		return true;
	case SETTING_UMASK:
		buf_printf(to, "%03o", *(const mode_t *)f);
		return true;
	case SETTING_WORD:
		buf_puts(to, s->words[s->size == sizeof(bool) ? *(const bool *)f
							      : *(const unsigned *)f]);
		return true;
	case SETTING_TOPICS:
		return show_topics(s, *(const unsigned *)f, to);
	case SETTING_PATH:
	case SETTING_ROOT:
	case SETTING_USER:
	case SETTING_THREAD:
	case SETTING_TEXT:
	case SETTING_NAME:
		break;
	}
	text = *(char *const *)f;
	if (text)
		buf_puts(to, text);
	return text != NULL;
}

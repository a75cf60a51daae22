/* See entries.h. */
#include "entries.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum {
	LIST_CAP = 10000, /* /v1/file/list stops here without a word */
	NS_PER_S = 1000000000,
};

void entries_release(struct entries *e)
{
	for (size_t i = 0; i < e->n; i++)
		free(e->v[i].name);
	free(e->v);
	*e = (struct entries){ 0 };
}

static int grow(struct entries *e)
{
	size_t cap = MAX(e->cap + e->cap / 2, (size_t)64);
	struct entry *v = reallocarray(e->v, cap, sizeof(*v));

	if (!v)
		return -ENOMEM;
	e->v = v;
	e->cap = cap;
	return 0;
}

/* Name and target share one block: half the allocations of a large listing. */
static int add(struct entries *e, const char *name, size_t len, const char *target,
	       size_t target_len, const struct attr *attr)
{
	char *block;

	if (e->n == ENTRIES_MAX)
		return -E2BIG;
	if (e->n == e->cap && grow(e) < 0)
		return -ENOMEM;
	block = malloc(len + 1 + (target_len ? target_len + 1 : 0));
	if (!block)
		return -ENOMEM;
	memcpy(block, name, len);
	block[len] = '\0';
	e->v[e->n] = (struct entry){ .name = block, .attr = *attr };
	if (target_len) {
		e->v[e->n].target = block + len + 1;
		memcpy(block + len + 1, target, target_len);
		block[len + 1 + target_len] = '\0';
	}
	e->n++;
	return 0;
}

bool name_is_component(const char *name, size_t len)
{
	if (len == 0 || len > NAME_BYTES_MAX || memchr(name, '/', len) || memchr(name, '\0', len))
		return false;
	return name[0] != '.' || (len > 1 && (len > 2 || name[1] != '.'));
}

bool name_is_chain(const char *path, size_t len)
{
	const char *end = path + len, *slash;

	if (len > PATH_BYTES_MAX)
		return false;
	while ((slash = memchr(path, '/', (size_t)(end - path)))) {
		if (!name_is_component(path, (size_t)(slash - path)))
			return false;
		path = slash + 1;
	}
	return name_is_component(path, (size_t)(end - path));
}

static bool name_is_listed(const char *name, size_t len, bool recursive)
{
	return recursive ? name_is_chain(name, len) : name_is_component(name, len);
}

/* ---- reading text ---- */

struct cursor {
	const char *p, *end;
	bool bad; /* sticky: something was not what it has to be */
};

/* The bytes of an empty buffer are NULL, to which not even 0 may be added. */
static struct cursor cursor_of(const char *bytes, size_t len)
{
	return (struct cursor){ bytes, len ? bytes + len : bytes };
}

static bool at_end(const struct cursor *c)
{
	return !c->bad && c->p == c->end;
}

static bool skip(struct cursor *c, char want)
{
	if (c->p == c->end || *c->p != want)
		return false;
	c->p++;
	return true;
}

static void need(struct cursor *c, char want)
{
	if (!skip(c, want))
		c->bad = true;
}

static unsigned digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 99;
}

/* Digits only, at least one; max must be at least base - 1. */
static uint64_t take_number(struct cursor *c, unsigned base, uint64_t max)
{
	const char *start = c->p;
	uint64_t v = 0;

	for (; c->p < c->end; c->p++) {
		unsigned digit = digit_value(*c->p);

		if (digit >= base)
			break;
		if (v > (max - digit) / base) {
			c->bad = true;
			return 0;
		}
		v = v * base + digit;
	}
	if (c->p == start)
		c->bad = true;
	return v;
}

static uint64_t take_field(struct cursor *c, uint64_t max)
{
	need(c, ' ');
	return take_number(c, 10, max);
}

/* Up to the next NUL. */
static const char *take_string(struct cursor *c, size_t *ret_len)
{
	const char *start = c->p, *nul = memchr(c->p, '\0', (size_t)(c->end - c->p));

	if (!nul) {
		c->bad = true;
		nul = c->p;
	} else {
		c->p = nul + 1;
	}
	*ret_len = (size_t)(nul - start);
	return start;
}

/* A fraction as nanoseconds; digits past the ninth do not count. */
static uint32_t take_fraction(struct cursor *c)
{
	uint32_t ns = 0, weight = NS_PER_S / 10;
	const char *start = c->p;

	for (; c->p < c->end && digit_value(*c->p) < 10; c->p++) {
		ns += digit_value(*c->p) * weight;
		weight /= 10;
	}
	if (c->p == start)
		c->bad = true;
	return ns;
}

/*
 * Half a second before the epoch is tv_sec -1, tv_nsec 500000000. find prints
 * these two as they are, -1.5; stat prints the number that they stand for, -0.5.
 */
enum time_style { TIME_PARTS, TIME_NUMBER };

static struct timespec take_time(struct cursor *c, enum time_style style)
{
	bool negative = skip(c, '-');
	uint64_t sec = take_number(c, 10, (uint64_t)INT64_MAX + negative);
	uint32_t ns = skip(c, '.') ? take_fraction(c) : 0;

	if (!negative)
		return (struct timespec){ (time_t)sec, ns };
	if (style == TIME_NUMBER && ns > 0) {
		if (sec > INT64_MAX)
			c->bad = true;
		else
			sec++;
		ns = NS_PER_S - ns;
	}
	/* The negative of 2^63 fits while 2^63 itself does not. */
	return (struct timespec){ (time_t)(0 - sec), ns };
}

/* What find and stat print alike: all but type, permissions and names. */
static void take_attr(struct cursor *c, enum time_style style, struct attr *a)
{
	a->size = take_field(c, INT64_MAX);
	a->blocks = take_field(c, INT64_MAX);
	a->ino = take_field(c, UINT64_MAX);
	a->dev = take_field(c, UINT64_MAX);
	a->nlink = (uint32_t)take_field(c, UINT32_MAX);
	a->uid = (uint32_t)take_field(c, UINT32_MAX);
	a->gid = (uint32_t)take_field(c, UINT32_MAX);
	need(c, ' ');
	a->mtime = take_time(c, style);
	need(c, ' ');
	a->ctime = take_time(c, style);
}

static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR };
#define FIND_LETTERS "fdlpsbc"
#define LS_LETTERS   "-dlpsbc"

/* The type behind a letter, or 0. */
static mode_t type_of(char letter, const char *letters)
{
	const char *at = letter ? strchr(letters, letter) : NULL;

	return at ? types[at - letters] : 0;
}

/* ---- find and stat ---- */

static int take_record(struct entries *e, struct cursor *c, bool recursive)
{
	char letter = *c->p++;
	mode_t type = type_of(letter, FIND_LETTERS);
	size_t name_len, target_len;
	const char *name, *target;
	struct attr a = { 0 };

	if (!letter) /* each has two NULs: see entries_find_len() */
		return -EBADMSG;
	need(c, ' ');
	a.mode = type | (mode_t)take_number(c, 8, 07777);
	take_attr(c, TIME_PARTS, &a);
	need(c, ' ');
	name = take_string(c, &name_len);
	target = take_string(c, &target_len);
	if (c->bad || (target_len > 0 && !S_ISLNK(type)))
		return -EBADMSG;
	if (recursive && name_len > 2 && name[0] == '.' && name[1] == '/') {
		name += 2;
		name_len -= 2;
	}
	if (name_len == 0) /* the directory itself */
		return 0;
	if (!type || target_len > PATH_BYTES_MAX || !name_is_listed(name, name_len, recursive)) {
		e->dropped++;
		return 0;
	}
	return add(e, name, name_len, target, target_len, &a);
}

int entries_parse_find(struct entries *e, const char *bytes, size_t len, bool recursive)
{
	struct cursor c = cursor_of(bytes, len);
	int r = 0;

	while (c.p < c.end && r == 0)
		r = take_record(e, &c, recursive);
	return r;
}

static bool at_end_of_line(struct cursor *c)
{
	skip(c, '\n');
	return at_end(c);
}

int attr_parse_stat(const char *text, size_t len, struct attr *ret)
{
	struct cursor c = cursor_of(text, len);
	struct attr a = { .mode = (mode_t)take_number(&c, 16, S_IFMT | 07777) };

	take_attr(&c, TIME_NUMBER, &a);
	if (!at_end_of_line(&c))
		return -EBADMSG;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if ((a.mode & S_IFMT) == types[i]) {
			*ret = a;
			return 0;
		}
	}
	return -EBADMSG;
}

/* stat prints some of these as signed numbers: "no limit" (all bits set) is -1. */
static uint64_t take_count(struct cursor *c)
{
	need(c, ' ');
	if (skip(c, '-'))
		return 0 - take_number(c, 10, (uint64_t)INT64_MAX + 1);
	return take_number(c, 10, UINT64_MAX);
}

int fs_stat_parse(const char *text, size_t len, struct fs_stat *ret)
{
	struct cursor c = cursor_of(text, len);
	struct fs_stat f = { .block_size = take_number(&c, 10, UINT64_MAX) };

	f.blocks = take_count(&c);
	f.free = take_count(&c);
	f.available = take_count(&c);
	f.files = take_count(&c);
	f.files_free = take_count(&c);
	f.name_max = take_count(&c);
	if (!at_end_of_line(&c))
		return -EBADMSG;
	*ret = f;
	return 0;
}

size_t entries_find_len(const char *bytes, size_t len, size_t max)
{
	size_t at = 0;

	for (uint64_t n = 2 * (uint64_t)max; n > 0 && at < len;
	     n--) { /* each ends with its second NUL */
		const char *nul = memchr(bytes + at, '\0', len - at);

		at = nul ? (size_t)(nul - bytes) + 1 : len;
	}
	return at;
}

int mode_parse(const char *text, size_t len, mode_t *ret)
{
	const char *newline = len ? memchr(text, '\n', len) : NULL;
	struct cursor c = cursor_of(text, newline ? (size_t)(newline - text) : 0);
	mode_t mode = (mode_t)take_number(&c, 8, 07777);

	if (!at_end(&c))
		return -EBADMSG;
	*ret = mode;
	return 0;
}

int copied_parse(const char *text, size_t len, uint64_t *ret)
{
	static const char unit[] = " byte";
	const char *newline;
	struct cursor c;
	uint64_t n;

	while (len > 0 && text[len - 1] == '\n')
		len--;
	newline = len ? memrchr(text, '\n', len) : NULL;
	if (newline) {
		len -= (size_t)(newline + 1 - text);
		text = newline + 1;
	}
	c = cursor_of(text, len);
	n = take_number(&c, 10, UINT64_MAX);
	if (c.bad || (size_t)(c.end - c.p) < strlen(unit) || memcmp(c.p, unit, strlen(unit)) != 0)
		return -EBADMSG;
	*ret = n;
	return 0;
}

/* ---- JSON ---- */

static int take_digits(struct cursor *c, size_t n)
{
	struct cursor part = { c->p, c->p + MIN(n, (size_t)(c->end - c->p)) };
	uint64_t v = take_number(&part, 10, INT32_MAX);

	if (part.bad || (size_t)(part.p - c->p) != n)
		c->bad = true;
	c->p = part.p;
	return (int)v;
}

/* Seconds east of Greenwich: Z, +hh, +hhmm or +hh:mm; nothing is UTC. */
static int take_zone(struct cursor *c)
{
	int sign = 0, hours, minutes = 0;

	if (c->p == c->end || skip(c, 'Z'))
		return 0;
	if (skip(c, '+'))
		sign = 1;
	else if (skip(c, '-'))
		sign = -1;
	hours = take_digits(c, 2);
	if (skip(c, ':') || c->p < c->end)
		minutes = take_digits(c, 2);
	if (!sign || hours > 23 || minutes > 59)
		c->bad = true;
	return sign * (hours * 3600 + minutes * 60);
}

/* ISO 8601: a date, T or a blank, hh:mm with or without :ss and a fraction, a zone. */
static time_t take_iso(struct cursor *c)
{
	struct tm day = { 0 }, normal;
	int hour, minute, second = 0;
	time_t t;

	day.tm_year = take_digits(c, 4) - 1900;
	need(c, '-');
	day.tm_mon = take_digits(c, 2) - 1;
	need(c, '-');
	day.tm_mday = take_digits(c, 2);
	if (!skip(c, ' '))
		need(c, 'T');
	hour = take_digits(c, 2);
	need(c, ':');
	minute = take_digits(c, 2);
	if (skip(c, ':')) {
		second = take_digits(c, 2);
		if (skip(c, '.'))
			take_fraction(c);
	}
	normal = day;
	t = timegm(&normal) + hour * 3600 + minute * 60 + second - take_zone(c);
	/* The 31st of June would have become the 1st of July. */
	if (normal.tm_mon != day.tm_mon || hour > 23 || minute > 59 || second > 60)
		c->bad = true;
	return t;
}

/* "1776823501", the same as a number, or a date: whole seconds, rounded down. */
static int read_mtime(const cJSON *json, time_t *ret)
{
	struct cursor c;
	time_t t;

	if (!json || cJSON_IsNull(json))
		return 0;
	if (cJSON_IsNumber(json)) {
		double v = floor(json->valuedouble);

		if (!(v >= -0x1p53 && v <= 0x1p53))
			return -EBADMSG;
		*ret = (time_t)v;
		return 0;
	}
	if (!cJSON_IsString(json))
		return -EBADMSG;
	c = cursor_of(json->valuestring, strlen(json->valuestring));
	t = take_time(&c, TIME_NUMBER).tv_sec;
	if (!at_end(&c)) {
		c = cursor_of(json->valuestring, strlen(json->valuestring));
		t = take_iso(&c);
	}
	if (!at_end(&c))
		return -EBADMSG;
	*ret = t;
	return 0;
}

static int read_size(const cJSON *json, uint64_t *ret)
{
	double v;

	if (!json || cJSON_IsNull(json))
		return 0;
	v = json->valuedouble;
	if (!cJSON_IsNumber(json) || !(v >= 0 && v <= 0x1p63) || floor(v) != v)
		return -EBADMSG;
	/* The largest file has 2^63 - 1 bytes, which no double can say. */
	*ret = v == 0x1p63 ? INT64_MAX : (uint64_t)v;
	return 0;
}

/* Nine letters of ls: rwx, with s or S, t or T where x belongs. */
static int read_ls_mode(const char *s, mode_t *ret)
{
	static const char plain[] = "rwxrwxrwx";
	mode_t mode = 0;

	for (int i = 0; i < 9; i++) {
		mode_t bit = (mode_t)0400 >> i;
		bool last = i % 3 == 2;
		char special = i == 8 ? 't' : 's';

		if (s[i] == plain[i])
			mode |= bit;
		else if (last && s[i] == special)
			mode |= bit | (mode_t)04000 >> (i / 3);
		else if (last && s[i] == special - 'a' + 'A')
			mode |= (mode_t)04000 >> (i / 3);
		else if (s[i] != '-')
			return -EBADMSG;
	}
	*ret = mode;
	return 0;
}

/* "-rw-r--r--" or "644". Also the type, where the former knows more than is_directory. */
static int read_mode(const cJSON *json, bool is_dir, mode_t *ret)
{
	mode_t type = is_dir ? S_IFDIR : S_IFREG, mode = is_dir ? 0755 : 0644, listed;
	struct cursor c;
	const char *s;

	if (json && cJSON_IsString(json)) {
		s = json->valuestring;
		c = cursor_of(s, strlen(s));
		if (c.end - c.p == 10) {
			listed = type_of(*s, LS_LETTERS);
			if (!is_dir && listed && listed != S_IFDIR)
				type = listed;
			if (read_ls_mode(s + 1, &mode) < 0)
				return -EBADMSG;
		} else {
			mode = (mode_t)take_number(&c, 8, 07777);
			if (!at_end(&c))
				return -EBADMSG;
		}
	} else if (json && !cJSON_IsNull(json)) {
		return -EBADMSG;
	}
	*ret = type | mode;
	return 0;
}

/* The name in a listing of dir; NULL if it is not one. */
static const char *name_below(const char *path, const char *dir, bool recursive)
{
	size_t len = strlen(dir);

	if (json_has_nul(path))
		return NULL;
	if (recursive) {
		while (len > 0 && dir[len - 1] == '/')
			len--;
		if (strncmp(path, dir, len) != 0 || path[len] != '/')
			return NULL;
		path += len + 1;
	}
	return name_is_listed(path, strlen(path), recursive) ? path : NULL;
}

static const cJSON *get(const cJSON *obj, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(obj, key);
}

static int add_file(struct entries *e, const cJSON *file, const char *dir, bool recursive)
{
	const cJSON *path = get(file, recursive ? "path" : "name");
	const cJSON *is_dir = get(file, "is_directory");
	struct attr a = { .partial = true };
	const char *name;

	if (!cJSON_IsString(path) || !cJSON_IsBool(is_dir) ||
	    read_mode(get(file, "permissions"), cJSON_IsTrue(is_dir), &a.mode) < 0 ||
	    read_size(get(file, "size"), &a.size) < 0 ||
	    read_mtime(get(file, "modified_time"), &a.mtime.tv_sec) < 0)
		return -EBADMSG;
	name = name_below(path->valuestring, dir, recursive);
	if (!name) {
		e->dropped++;
		return 0;
	}
	return add(e, name, strlen(name), NULL, 0, &a);
}

int entries_parse_json(struct entries *e, const cJSON *data, const char *dir, bool recursive)
{
	const cJSON *files = get(data, "files"), *file;
	size_t n = 0;
	int r;

	if (!cJSON_IsArray(files))
		return -EBADMSG;
	cJSON_ArrayForEach (file, files) {
		r = add_file(e, file, dir, recursive);
		if (r < 0)
			return r;
		n++;
	}
	if (n == LIST_CAP || cJSON_IsTrue(get(data, "truncated")))
		e->truncated = true;
	return 0;
}

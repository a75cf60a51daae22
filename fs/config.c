/*
 * Settings from a config file: deer-flow's config.yaml, of which three sections
 * concern us: `sandbox:` and `stream_bridge:`, deer-flow's own, where we take what we know, and
 * `threadfs:`, where everything must be known. Others are skipped whatever they
 * hold. The events of libyaml are followed as they come; no tree is built, so
 * the size and depth of the file cost nothing. No threads.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "home.h"
#include "options.h"
#include "secret.h"
#include "settings.h"

enum {
	CONFIG_BYTES_MAX = MIB,
	CONFIG_DEPTH_MAX = 100,
	/* Sections, their keys, what these hold, and what the members of a list hold. */
	LEVELS = 4,
};

/* A mapping or sequence that is open. */
struct level {
	bool is_mapping;
	bool expects_value; /* a key was read */
	char *key;          /* the last one */
	size_t members;     /* mappings in a sequence so far */
};

struct config {
	struct options *o;
	const char *path;
	const char *section; /* the one that is looked for */
	bool is_ours;        /* it is `threadfs:`; otherwise deer-flow's */
	struct buf *why;
	yaml_parser_t parser;

	unsigned documents;
	unsigned depth;                  /* of open mappings and sequences */
	unsigned followed;               /* so many of them, from the outermost, concern us */
	bool in_section;                 /* at depth 2 and more: below that section's key */
	struct level levels[LEVELS + 1]; /* by depth; 0 is not used */
};

static void cleanup_event(yaml_event_t *e)
{
	yaml_event_delete(e);
}

/* Says where and what; the line counts from 0. */
PRINTF_LIKE(3, 4)
static int fail(struct config *c, size_t line, const char *fmt, ...)
{
	va_list ap;

	buf_printf(c->why, "%s:%zu: ", c->path, line + 1);
	va_start(ap, fmt);
	buf_vprintf(c->why, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* ---- values ---- */

static bool is_null(const yaml_event_t *e)
{
	static const char *const words[] = { "", "~", "null", "Null", "NULL" };

	if (!e->data.scalar.plain_implicit)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp((const char *)e->data.scalar.value, words[i]) == 0)
			return true;
	return false;
}

/* As in deer-flow a value that begins with '$' names an environment variable. */
static const char *resolve(const char *text)
{
	return text[0] == '$' ? getenv(text + 1) : text;
}

/* Of the table. */
static int take_setting(struct config *c, const struct setting *s, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	const char *value = resolve(text);
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	size_t line = e->start_mark.line;
	int r;

	if (!value)
		return fail(c, line, "%s: the environment variable '%s' is not set",
			    c->levels[2].key, text + 1);
	r = setting_set(c->o, s, value, &reason);
	if (r == -EINVAL)
		return fail(c, line, "%s: %s", c->levels[2].key, reason.data);
	return r;
}

static const struct setting *setting_here(const struct config *c)
{
	const char *key = c->levels[2].key;

	if (c->is_ours)
		return setting_find(key);
	return strcmp(c->section, "sandbox") == 0 ? setting_find_sandbox_key(key) : NULL;
}

static const char *expected(enum deerflow_kind kind)
{
	return kind == DEERFLOW_LIST      ? "a list"
	       : kind == DEERFLOW_MAPPING ? "keys with values"
					  : "one plain value";
}

static int take_value(struct config *c, const yaml_event_t *e)
{
	const struct setting *s = setting_here(c);
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	size_t line = e->start_mark.line;
	enum deerflow_kind kind;
	struct deerflow_place at = {
		.section = c->section,
		.key = c->levels[2].key,
		.below = c->depth > 2 ? c->levels[c->depth].key : NULL,
		.item = c->depth == 4 ? c->levels[3].members - 1 : 0,
	};
	int r;

	if (is_null(e))
		return 0;
	if (s)
		return take_setting(c, s, e);
	if (c->is_ours)
		return 0;
	kind = deerflow_kind(c->section, at.key);
	if (c->depth == 2 && kind != DEERFLOW_UNKNOWN && kind != DEERFLOW_PLAIN)
		return fail(c, line, "%s: expected %s", at.key, expected(kind));
	r = deerflow_take(&c->o->deerflow, &at, (const char *)e->data.scalar.value, &reason);
	if (r == -EINVAL)
		return fail(c, line, "%s%s%s: %s", at.key, at.below ? "." : "", at.below ?: "",
			    reason.data);
	return r;
}

/* In our own section an unknown key is a mistake. */
static int check_key(struct config *c, size_t line)
{
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	const char *key = c->levels[2].key;
	int r;

	if (!c->is_ours || setting_find(key))
		return 0;
	if (setting_is_secret(key))
		r = secret_refuse("a secret in a config file", &reason);
	else
		r = setting_unknown("key", key, &reason);
	fail(c, line, "%s", reason.data);
	return r;
}

static int take_key(struct config *c, const yaml_event_t *e)
{
	struct level *l = &c->levels[c->depth];

	free(l->key);
	l->key = strdup((const char *)e->data.scalar.value);
	if (!l->key)
		return -ENOMEM;
	if (c->depth == 1)
		c->in_section = strcmp(l->key, c->section) == 0;
	return c->depth == 2 ? check_key(c, e->start_mark.line) : 0;
}

/* ---- events ---- */

static int on_scalar(struct config *c, const yaml_event_t *e)
{
	struct level *l = &c->levels[c->followed];
	size_t line = e->start_mark.line;
	int r = 0;

	if (c->depth == 0)
		return is_null(e) ? 0 : fail(c, line, "expected sections with keys");
	if (c->depth > c->followed)
		return 0;
	if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
		return fail(c, line, "a NUL stands here");
	if (!l->is_mapping)
		return fail(c, line, "%s: expected keys with values", c->levels[2].key);
	if (!l->expects_value)
		r = take_key(c, e);
	else if (c->depth > 1)
		r = take_value(c, e);
	else if (c->in_section && !is_null(e))
		return fail(c, line, "%s: expected a section with keys", c->section);
	l->expects_value = !l->expects_value;
	return r;
}

/* What begins below a key of a section: does it concern us? */
static int check_nested(struct config *c, bool is_mapping, size_t line, bool *ret_follow)
{
	const char *key = c->levels[2].key;
	enum deerflow_kind kind;

	if (c->is_ours || setting_here(c))
		return fail(c, line, "%s: expected one plain value", key);
	kind = deerflow_kind(c->section, key);
	*ret_follow = kind == (is_mapping ? DEERFLOW_MAPPING : DEERFLOW_LIST);
	if (kind != DEERFLOW_UNKNOWN && !*ret_follow)
		return fail(c, line, "%s: expected %s", key, expected(kind));
	return 0;
}

/* A mapping or sequence begins, inside of one that concerns us. */
static int check_begin(struct config *c, bool is_mapping, size_t line, bool *ret_follow)
{
	struct level *l = &c->levels[c->depth];

	*ret_follow = true;
	if (c->depth == 0)
		return is_mapping ? 0 : fail(c, line, "expected sections with keys");
	if (l->is_mapping && !l->expects_value)
		return fail(c, line,
			    c->depth == 1 ? "expected the name of a section" : "expected a key");
	if (c->depth == 1) {
		*ret_follow = c->in_section;
		if (c->in_section && !is_mapping)
			return fail(c, line, "%s: expected a section with keys", c->section);
	} else if (c->depth == 2) {
		return check_nested(c, is_mapping, line, ret_follow);
	} else if (l->is_mapping || !is_mapping) {
		return fail(c, line, "%s: nothing is expected this deep", c->levels[2].key);
	} else {
		l->members++;
	}
	return 0;
}

static int on_begin(struct config *c, const yaml_event_t *e)
{
	bool is_mapping = e->type == YAML_MAPPING_START_EVENT, follow = false;
	int r = 0;

	if (c->depth == c->followed)
		r = check_begin(c, is_mapping, e->start_mark.line, &follow);
	if (r < 0)
		return r;
	if (c->depth >= CONFIG_DEPTH_MAX)
		return fail(c, e->start_mark.line, "nested too deep");
	c->depth++;
	if (follow) {
		struct level *l = &c->levels[c->depth];

		assert(c->depth <= LEVELS);
		c->followed = c->depth;
		l->is_mapping = is_mapping;
		l->expects_value = false;
		l->members = 0;
	}
	return 0;
}

/* It ended: it was the value of something above. */
static void on_end(struct config *c)
{
	c->depth--;
	if (c->followed > c->depth)
		c->followed = c->depth;
	if (c->depth > 0 && c->followed == c->depth)
		c->levels[c->depth].expects_value = false;
}

/*
 * Elsewhere in the file nobody follows them, so they do no harm. In our sections
 * they would have to be; and a "<<: *base" that is skipped would be a surprise.
 */
static int on_alias(struct config *c, const yaml_event_t *e)
{
	if (c->depth == 1 && !c->levels[1].expects_value)
		return fail(c, e->start_mark.line, "expected the name of a section");
	if (c->depth >= 1 && c->in_section)
		return fail(c, e->start_mark.line, "%s: aliases are not supported here",
			    c->section);
	if (c->depth == 1)
		c->levels[1].expects_value = false;
	return 0;
}

static int on_event(struct config *c, const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (c->documents++ > 0)
			return fail(c, e->start_mark.line, "a second document begins here");
		return 0;
	case YAML_SCALAR_EVENT:
		return on_scalar(c, e);
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		return on_begin(c, e);
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
		on_end(c);
		return 0;
	case YAML_ALIAS_EVENT:
		return on_alias(c, e);
	default:
		return 0;
	}
}

static int follow_events(struct config *c)
{
	for (;;) {
		yaml_event_t e CLEANUP(cleanup_event) = { 0 };
		int r;

		if (!yaml_parser_parse(&c->parser, &e)) {
			if (c->parser.error == YAML_MEMORY_ERROR)
				return -ENOMEM;
			return fail(c, c->parser.problem_mark.line, "%s",
				    c->parser.problem ? c->parser.problem : "not YAML");
		}
		if (e.type == YAML_STREAM_END_EVENT)
			return 0;
		r = on_event(c, &e);
		if (r < 0)
			return r;
	}
}

static int read_section(struct options *o, const char *path, const struct buf *text,
			const char *section, struct buf *why)
{
	struct config c = {
		.o = o,
		.path = path,
		.section = section,
		.is_ours = strcmp(section, "threadfs") == 0,
		.why = why,
	};
	int r;

	if (!yaml_parser_initialize(&c.parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&c.parser, (const unsigned char *)text->data, text->len);
	r = follow_events(&c);
	yaml_parser_delete(&c.parser);
	for (size_t i = 0; i <= LEVELS; i++)
		free(c.levels[i].key);
	return r;
}

static int read_file(const char *path, struct buf *to, struct stat *ret, struct buf *why)
{
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int r = fd < 0 || fstat(fd, ret) < 0 ? -errno : 0;

	while (r == 0 && to->len <= CONFIG_BYTES_MAX) {
		ssize_t n;

		r = buf_reserve(to, 64 * KIB);
		if (r < 0)
			break;
		n = read(fd, to->data + to->len, 64 * KIB);
		if (n == 0)
			break;
		if (n > 0)
			to->len += (size_t)n;
		else if (errno != EINTR)
			r = -errno;
	}
	if (r < 0) {
		buf_printf(why, "config file '%s' cannot be read: %s", path, strerrordesc_np(-r));
	} else if (to->len > CONFIG_BYTES_MAX) {
		buf_printf(why, "config file '%s' is larger than 1 MiB", path);
		r = -EFBIG;
	}
	return r;
}

/* Where the file is, for what is looked for beside it, and whose. */
static int note_place(struct options *o, const char *path, const struct stat *st)
{
	char *whole CLEANUP_FREE = NULL;
	int r = home_absolute(path, &whole);
	char *slash;

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	slash = strrchr(whole, '/');
	slash[slash == whole] = '\0';
	free(o->deerflow.config_dir);
	o->deerflow.config_dir = STEAL(whole);
	o->deerflow.config_uid = st->st_uid;
	o->deerflow.config_gid = st->st_gid;
	return 0;
}

int options_config_file(struct options *o, const char *path, struct buf *why)
{
	/* In this order: our own section wins, wherever it stands. */
	static const char *const sections[] = { "sandbox", "stream_bridge", "threadfs" };
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	struct stat st = { 0 };
	int r = read_file(path, &text, &st, why);

	if (r == 0)
		r = note_place(o, path, &st);
	for (size_t i = 0; i < ARRAY_SIZE(sections) && r == 0; i++)
		r = read_section(o, path, &text, sections[i], why);
	return r;
}

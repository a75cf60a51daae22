/*
 * Settings from a config file: deer-flow's config.yaml, of which two sections
 * concern us: `sandbox:`, deer-flow's own, where we take what we know, and
 * `threadfs:`, where everything must be known. Others are skipped whatever they
 * hold. The events of libyaml are followed as they come; no tree is built, so
 * the size and depth of the file cost nothing. No threads.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <yaml.h>

#include "options.h"
#include "secret.h"
#include "settings.h"

enum {
	CONFIG_BYTES_MAX = MIB,
	CONFIG_DEPTH_MAX = 100,
};

struct config {
	struct options *o;
	const char *path;
	const char *section; /* the one that is looked for */
	bool is_ours;        /* it is `threadfs:`; otherwise deer-flow's */
	struct buf *why;
	yaml_parser_t parser;

	unsigned documents;
	unsigned depth;        /* of open mappings and sequences */
	bool in_section;       /* at depth 2 and more: below that section's key */
	bool expects_value[3]; /* in the mappings of depth 1 and 2: a key was read */
	char *key;             /* of depth 2 */
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

static int take_value(struct config *c, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	const char *value = resolve(text);
	const struct setting *s =
		c->is_ours ? setting_find(c->key) : setting_find_sandbox_key(c->key);
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	size_t line = e->start_mark.line;
	int r;

	if (!s || is_null(e))
		return 0;
	if (!value)
		return fail(c, line, "%s: the environment variable '%s' is not set", c->key,
			    text + 1);
	r = setting_set(c->o, s, value, &reason);
	if (r == -EINVAL)
		return fail(c, line, "%s: %s", c->key, reason.data);
	return r;
}

/* In our own section an unknown key is a mistake. */
static int check_key(struct config *c, size_t line)
{
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	int r;

	if (!c->is_ours || setting_find(c->key))
		return 0;
	if (setting_is_secret(c->key))
		r = secret_refuse("a secret in a config file", &reason);
	else
		r = setting_unknown("key", c->key, &reason);
	fail(c, line, "%s", reason.data);
	return r;
}

static int take_key(struct config *c, const yaml_event_t *e)
{
	free(c->key);
	c->key = strdup((const char *)e->data.scalar.value);
	if (!c->key)
		return -ENOMEM;
	return check_key(c, e->start_mark.line);
}

/* ---- events ---- */

static int on_scalar(struct config *c, const yaml_event_t *e)
{
	bool is_value;
	int r = 0;

	if (c->depth == 0)
		return is_null(e) ? 0 : fail(c, e->start_mark.line, "expected sections with keys");
	if (c->depth > 2 || (c->depth == 2 && !c->in_section))
		return 0;
	if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
		return fail(c, e->start_mark.line, "a NUL stands here");
	is_value = c->expects_value[c->depth];
	if (c->depth == 1 && !is_value)
		c->in_section = strcmp((const char *)e->data.scalar.value, c->section) == 0;
	else if (c->depth == 1 && c->in_section && !is_null(e))
		return fail(c, e->start_mark.line, "%s: expected a section with keys", c->section);
	else if (c->depth == 2)
		r = is_value ? take_value(c, e) : take_key(c, e);
	c->expects_value[c->depth] = !is_value;
	return r;
}

/* A mapping or sequence begins. */
static int on_begin(struct config *c, const yaml_event_t *e)
{
	bool is_mapping = e->type == YAML_MAPPING_START_EVENT;
	size_t line = e->start_mark.line;

	if (c->depth == 0 && !is_mapping)
		return fail(c, line, "expected sections with keys");
	if (c->depth == 1 && !c->expects_value[1])
		return fail(c, line, "expected the name of a section");
	if (c->depth == 1 && c->in_section && !is_mapping)
		return fail(c, line, "%s: expected a section with keys", c->section);
	if (c->depth == 2 && c->in_section && !c->expects_value[2])
		return fail(c, line, "expected a key");
	if (c->depth == 2 && c->in_section && (c->is_ours || setting_find_sandbox_key(c->key)))
		return fail(c, line, "%s: expected one plain value", c->key);
	if (c->depth >= CONFIG_DEPTH_MAX)
		return fail(c, line, "nested too deep");
	c->depth++;
	if (c->depth <= 2)
		c->expects_value[c->depth] = false;
	return 0;
}

/* It ended: it was the value of something above. */
static void on_end(struct config *c)
{
	c->depth--;
	if (c->depth == 1 || c->depth == 2)
		c->expects_value[c->depth] = false;
}

/*
 * Elsewhere in the file nobody follows them, so they do no harm. In our sections
 * they would have to be; and a "<<: *base" that is skipped would be a surprise.
 */
static int on_alias(struct config *c, const yaml_event_t *e)
{
	if (c->depth == 1 && !c->expects_value[1])
		return fail(c, e->start_mark.line, "expected the name of a section");
	if (c->depth >= 1 && c->in_section)
		return fail(c, e->start_mark.line, "%s: aliases are not supported here",
			    c->section);
	if (c->depth == 1)
		c->expects_value[1] = false;
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
	free(c.key);
	return r;
}

static int read_file(const char *path, struct buf *to, struct buf *why)
{
	int fd CLEANUP_FD = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int r = fd < 0 ? -errno : 0;

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

int options_config_file(struct options *o, const char *path, struct buf *why)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	int r = read_file(path, &text, why);

	if (r < 0)
		return r;
	/* In this order: our own section wins, wherever it stands. */
	r = read_section(o, path, &text, "sandbox", why);
	return r < 0 ? r : read_section(o, path, &text, "threadfs", why);
}

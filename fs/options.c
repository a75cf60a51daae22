/*
 * The settings of one mount, from where they may come: the table's defaults, the
 * environment, -o. See options.h; config files are read in config.c. Each
 * message is one line, for a terminal. No threads.
 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "home.h"
#include "log.h"
#include "secret.h"
#include "settings.h"
#include "url.h"

enum { HELP_COLUMN = 26, HELP_WIDTH = 80 };

/* Until options_finish(): nobody has this number. */
static const unsigned nobody = (unsigned)-1;

static int replace(char **to, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

int options_init(struct options *o)
{
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	int r;

	*o = (struct options){ .source = SOURCE_EMBEDDED, .uid = nobody, .gid = nobody };
	r = replace(&o->source_text, "embedded:") ?: deerflow_init(&o->deerflow);
	for (size_t i = 0; i < settings_count && r == 0; i++)
		if (settings[i].initial)
			r = setting_set(o, &settings[i], settings[i].initial, &why);
	if (r < 0)
		options_release(o);
	return r;
}

void options_release(struct options *o)
{
	free(o->source_text);
	free(o->url);
	free(o->data);
	free(o->user);
	free(o->thread);
	free(o->root);
	secret_free(o->api_key);
	secret_free(o->bearer);
	free(o->api_key_file);
	free(o->provisioner_key_file);
	free(o->engine);
	free(o->image);
	free(o->prefix);
	free(o->network);
	deerflow_release(&o->deerflow);
	free(o->cacert);
	free(o->cache);
	free(o->dialect);
	free(o->log);
	free(o->mountpoint);
	*o = (struct options){ .uid = nobody, .gid = nobody };
}

/* ---- the source ---- */

static int refuse_source(const char *source, struct buf *why)
{
	buf_puts(why, "unknown source '");
	for (const char *c = source; *c; c++)
		buf_putc(why, iscntrl((unsigned char)*c) ? '?' : *c);
	buf_puts(why, "': expected embedded:, docker:[IMAGE], provisioner:http://HOST:PORT, "
		      "http://HOST:PORT or https://HOST:PORT");
	return -EINVAL;
}

/* url_tidy() would find it, too, but not say what to do. */
static bool names_user(const char *url)
{
	const char *host = strstr(url, "//") + 2;

	return memchr(host, '@', strcspn(host, "/?#"));
}

/* Replaces what the source was before; url (taken over) and image may be NULL. */
static int set_source(struct options *o, enum source_kind kind, const char *text, char *url)
{
	free(o->url);
	o->url = url;
	o->source = kind;
	o->source_given = true;
	return replace(&o->source_text, text);
}

static int set_url(struct options *o, enum source_kind kind, const char *source, const char *text,
		   struct buf *why)
{
	const char *problem = "";
	char *url = NULL;
	int r;

	if (strstr(text, "//") && names_user(text))
		return secret_refuse("a user or password in the URL", why);
	r = url_tidy(text, &url, &problem);
	if (r == -EINVAL)
		buf_printf(why, "source: %s",
			   problem); /* not quoted: there may be a secret in it */
	return r < 0 ? r : set_source(o, kind, source, url);
}

static int set_docker(struct options *o, const char *source, const char *image, struct buf *why)
{
	const struct setting *s = setting_find("image");
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	int r = *image ? setting_set(o, s, image, &reason) : 0;

	if (r == -EINVAL)
		buf_printf(why, "source: %s", reason.data);
	return r < 0 ? r : set_source(o, SOURCE_DOCKER, source, NULL);
}

int options_source(struct options *o, const char *source, struct buf *why)
{
	static const char provisioner[] = "provisioner:", docker[] = "docker:";
	const char *rest;

	if (strncasecmp(source, "http://", 7) == 0 || strncasecmp(source, "https://", 8) == 0)
		return set_url(o, SOURCE_URL, source, source, why);
	if (strcmp(source, "embedded:") == 0)
		return set_source(o, SOURCE_EMBEDDED, source, NULL);
	if (strncmp(source, docker, strlen(docker)) == 0)
		return set_docker(o, source, source + strlen(docker), why);
	if (strncmp(source, provisioner, strlen(provisioner)) != 0)
		return refuse_source(source, why);
	rest = source + strlen(provisioner);
	if (!*rest) /* a config file may say where it is */
		return set_source(o, SOURCE_PROVISIONER, source, NULL);
	return set_url(o, SOURCE_PROVISIONER, source, rest, why);
}

/* ---- the environment ---- */

/* An empty variable is one that is not set: so it can be switched off for one command. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int set_from_variable(struct options *o, const struct setting *s, struct buf *why)
{
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	char *name CLEANUP_FREE = setting_variable(s);
	const char *value;
	int r;

	if (!name)
		return -ENOMEM;
	value = variable(name);
	if (!value)
		return 0;
	r = setting_set(o, s, value, &reason);
	if (r < 0)
		buf_printf(why, "%s: %s", name, reason.data ? reason.data : strerrordesc_np(-r));
	return r;
}

int options_environment(struct options *o, struct buf *why)
{
	const char *key = variable(SECRET_API_KEY_VARIABLE);
	const char *token = variable(SECRET_TOKEN_VARIABLE);
	const char *provisioner = variable(DEERFLOW_KEY_VARIABLE);
	int r = 0;

	for (size_t i = 0; i < settings_count && r == 0; i++)
		r = set_from_variable(o, &settings[i], why);
	if (r == 0 && key)
		r = secret_set(&o->api_key, SECRET_API_KEY_VARIABLE, key, why);
	if (r == 0 && key) { /* later wins; what -o says comes after this */
		free(o->api_key_file);
		o->api_key_file = NULL;
	}
	if (r == 0 && token)
		r = secret_set(&o->bearer, SECRET_TOKEN_VARIABLE, token, why);
	if (r == 0 && provisioner)
		r = secret_set(&o->deerflow.provisioner_key, DEERFLOW_KEY_VARIABLE, provisioner,
			       why);
	if (r == 0 && provisioner) { /* as above */
		free(o->provisioner_key_file);
		o->provisioner_key_file = NULL;
	}
	return r;
}

/* ---- -o ---- */

/* What mount(8) passes to every filesystem, or fstab holds for others to read. */
static bool is_for_others(const char *name)
{
	static const char *const names[] = {
		"defaults",  "suid",       "nosuid",   "dev",        "nodev",       "sync",
		"async",     "dirsync",    "atime",    "noatime",    "diratime",    "nodiratime",
		"relatime",  "norelatime", "lazytime", "nolazytime", "strictatime", "nostrictatime",
		"silent",    "loud",       "auto",     "noauto",     "nouser",      "users",
		"nousers",   "owner",      "noowner",  "group",      "nogroup",     "_netdev",
		"nofail",    "mand",       "nomand",   "iversion",   "noiversion",  "comment",
		"symfollow",
	};

	if (strncasecmp(name, "x-", 2) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* value is NULL for a bare word. */
static int set_option(struct options *o, const char *name, const char *value, struct buf *why)
{
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	const struct setting *s = setting_find(name);
	int r;

	if (!value && strcmp(name, "rw") == 0) {
		o->ro = false;
		return 0;
	}
	if (!value && strcmp(name, "noexec") == 0) {
		o->exec = false;
		return 0;
	}
	if (!value && strcmp(name, "user") == 0) /* fstab's: who may mount it */
		return 0;
	if (!s && is_for_others(name))
		return 0;
	if (!s && setting_is_secret(name))
		return secret_refuse("a secret on the command line", why);
	if (!s)
		return setting_unknown("option", name, why);
	r = setting_set(o, s, value, &reason);
	if (r < 0)
		buf_printf(why, "option %s: %s", name,
			   reason.data ? reason.data : strerrordesc_np(-r));
	return r;
}

/*
 * "debug=http,lease": what follows is no option, it is another topic. None of our options
 * is called like one.
 */
static bool is_more_topics(const struct setting *before, const char *name)
{
	if (!before || before->kind != SETTING_TOPICS)
		return false;
	for (size_t i = 0; before->words[i]; i++)
		if (strcmp(before->words[i], name) == 0)
			return true;
	return strcmp(name, "all") == 0;
}

static int add_topics(struct options *o, const struct setting *s, const char *name)
{
	struct buf both CLEANUP_BUF = BUF_INIT(0);
	struct buf why CLEANUP_BUF = BUF_INIT(0);

	if (setting_show(o, s, &both))
		buf_putc(&both, ':');
	buf_puts(&both, name);
	return both.error ?: setting_set(o, s, both.data, &why);
}

/* Cuts the next option off *text, in place: up to a comma without a backslash. */
static char *next_option(char **text)
{
	char *begin = *text, *to = begin, *from = begin;

	for (; *from && *from != ','; from++) {
		if (*from == '\\' && (from[1] == ',' || from[1] == '\\'))
			from++;
		*to++ = *from;
	}
	*text = *from ? from + 1 : from;
	*to = '\0';
	return begin;
}

int options_parse(struct options *o, const char *text, struct buf *why)
{
	char *copy CLEANUP_FREE = strdup(text);
	const struct setting *before = NULL;
	char *rest = copy;
	int r = 0;

	if (!copy)
		return -ENOMEM;
	while (*rest && r == 0) {
		char *name = next_option(&rest);
		char *equals = strchr(name, '=');

		if (equals)
			*equals = '\0';
		if (!equals && is_more_topics(before, name)) {
			r = add_topics(o, before, name);
			continue;
		}
		if (*name || equals)
			r = set_option(o, name, equals ? equals + 1 : NULL, why);
		before = setting_find(name);
	}
	return r;
}

/* ---- the rest ---- */

static int default_dir(char **to, const char *option, const char *xdg, const char *below,
		       struct buf *why)
{
	int r = *to ? 0 : home_xdg(xdg, below, to);

	if (r == -ENOENT)
		buf_printf(why, "there is no home directory: say where with %s=DIR", option);
	return r;
}

/*
 * Not refused: deer-flow itself may run as another user, in a container for one, and share
 * its directory with ours by a group. Root's sandboxes run as the owner of a thread's files.
 */
static void look_at_owner(const struct options *o)
{
	struct stat st;

	if (o->source != SOURCE_URL && geteuid() != 0 && stat(o->data, &st) == 0 &&
	    st.st_uid != geteuid() && st.st_uid != 0)
		log_warn("the data root %s is another user's, who can read and change all that "
			 "is in it",
			 o->data);
}

int options_finish(struct options *o, struct buf *why)
{
	int r = deerflow_finish(o, why);

	if (r == 0)
		r = default_dir(&o->data, "data", "XDG_STATE_HOME", ".local/state", why);
	if (r == 0)
		r = default_dir(&o->cache, "cache", "XDG_CACHE_HOME", ".cache", why);
	if (r < 0)
		return r;
	look_at_owner(o);
	if (o->uid == nobody)
		o->uid = getuid();
	if (o->gid == nobody)
		o->gid = getgid();
	if (o->source != SOURCE_EMBEDDED && o->dialect) {
		buf_puts(why, "option dialect: only embedded sandboxes can be told theirs");
		return -EINVAL;
	}
	if (o->source != SOURCE_EMBEDDED && o->cacert && access(o->cacert, R_OK) < 0) {
		r = -errno;
		buf_printf(why, "option cacert: '%s' cannot be read: %s", o->cacert,
			   strerrordesc_np(-r));
		return r;
	}
	if (o->api_key_file) {
		struct buf reason CLEANUP_BUF = BUF_INIT(0);

		r = secret_read(&o->api_key, o->api_key_file, &reason);
		if (r < 0)
			buf_printf(why, "option api_key_file: %s",
				   reason.data ? reason.data : strerrordesc_np(-r));
	}
	return r;
}

/* ---- showing them ---- */

void options_print(const struct options *o, struct buf *to)
{
	static const char hidden[] = "********";

	buf_printf(to, "source=%s\n", o->source_text);
	for (size_t i = 0; i < settings_count; i++) {
		struct buf value CLEANUP_BUF = BUF_INIT(0);

		if (setting_show(o, &settings[i], &value) && !value.error)
			buf_printf(to, "%s=%s\n", settings[i].name, value.data);
	}
	if (o->api_key)
		buf_printf(to, "api_key=%s\n", hidden);
	if (o->bearer)
		buf_printf(to, "token=%s\n", hidden);
	if (o->deerflow.provisioner_key)
		buf_printf(to, "provisioner_api_key=%s\n", hidden);
	if (o->source == SOURCE_DOCKER || o->source == SOURCE_PROVISIONER)
		buf_printf(to, "ownership=%s\n",
			   o->deerflow.ownership.type == OWNERSHIP_REDIS ? "redis" : "memory");
}

/* Appends words, broken into lines that begin at HELP_COLUMN; the first one stands at `column`. */
static void put_wrapped(struct buf *to, size_t column, const char *words)
{
	while (*words) {
		size_t len = strcspn(words, " ");

		if (column > HELP_COLUMN && column + 1 + len > HELP_WIDTH) {
			buf_printf(to, "\n%*s", HELP_COLUMN, "");
			column = HELP_COLUMN;
		} else if (column > HELP_COLUMN) {
			buf_putc(to, ' ');
			column++;
		}
		buf_append(to, words, len);
		column += len;
		words += len;
		words += strspn(words, " ");
	}
}

static void help_one(const struct setting *s, struct buf *to)
{
	const char *standard = s->otherwise ? s->otherwise : s->initial;
	struct buf text CLEANUP_BUF = BUF_INIT(0);
	struct buf left CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&left, "  %s%s%s", s->name, s->value ? "=" : "", s->value ? s->value : "");
	buf_puts(&text, s->meaning);
	if (s->value && standard)
		buf_printf(&text, " [%s]", standard);
	if (left.error || text.error)
		return;
	buf_printf(to, "%-*s", HELP_COLUMN, left.data);
	if (left.len >= HELP_COLUMN)
		buf_printf(to, "\n%*s", HELP_COLUMN, "");
	put_wrapped(to, HELP_COLUMN, text.data);
	buf_putc(to, '\n');
}

void options_help(struct buf *to)
{
	for (size_t i = 0; i < settings_count; i++)
		if (!settings[i].hidden)
			help_one(&settings[i], to);
}

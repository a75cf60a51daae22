/* See deerflow.h. The rules are deer-flow's own; where it is read from is config.c's business. */
#include "deerflow.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "home.h"
#include "log.h"
#include "options.h"
#include "secret.h"

enum { LIST_MAX = 1000 }; /* mounts, variables */

#define OWNERSHIP_VARIABLE "DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL"
#define BRIDGE_VARIABLE    "DEER_FLOW_STREAM_BRIDGE_REDIS_URL"

int deerflow_init(struct deerflow *d)
{
	*d = (struct deerflow){
		.ownership = { .renewal_interval_s = OWNERSHIP_RENEWAL_S,
			       .ttl_multiplier = OWNERSHIP_TTL_MULTIPLIER },
	};
	d->ownership.key_prefix = strdup(OWNERSHIP_KEY_PREFIX);
	return d->ownership.key_prefix ? 0 : -ENOMEM;
}

void deerflow_release(struct deerflow *d)
{
	free(d->config_dir);
	free(d->use);
	free(d->provisioner_url);
	secret_free(d->provisioner_key);
	free(d->key_problem);
	for (size_t i = 0; i < d->nmounts; i++) {
		free(d->mounts[i].host_path);
		free(d->mounts[i].container_path);
	}
	free(d->mounts);
	for (size_t i = 0; i < d->nenvironment; i++) {
		free(d->environment[i].name);
		secret_free(d->environment[i].value);
	}
	free(d->environment);
	secret_free(d->ownership.redis_url);
	free(d->ownership.key_prefix);
	free(d->bridge_type);
	secret_free(d->bridge_url);
	*d = (struct deerflow){ 0 };
}

/* ---- values ---- */

static int replace(char **to, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* A value that begins with '$' names a variable, which has to be set. */
static int resolve(const char **value, struct buf *why)
{
	const char *text = *value;

	if (text[0] != '$')
		return 0;
	*value = getenv(text + 1);
	if (*value)
		return 0;
	buf_printf(why, "the environment variable '%s' is not set", text + 1);
	return -EINVAL;
}

static int set_resolved(char **to, const char *value, struct buf *why)
{
	int r = resolve(&value, why);

	return r < 0 ? r : replace(to, value);
}

static int set_bool(bool *to, const char *value, struct buf *why)
{
	static const char *const words[] = { "false", "true", "no", "yes", "off", "on" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcasecmp(value, words[i]) == 0) {
			*to = i % 2;
			return 0;
		}
	}
	buf_puts(why, "expected true or false");
	return -EINVAL;
}

static int set_number(double *to, const char *value, double least, bool more, struct buf *why)
{
	char *end;
	double v;
	int r = resolve(&value, why);

	if (r < 0)
		return r;
	v = strtod(value, &end);
	if (end == value || *end || !isfinite(v) || v < least || (more && v == least) || v > 1e6) {
		buf_printf(why, "expected a number %s %g", more ? "above" : "of at least", least);
		return -EINVAL;
	}
	*to = v;
	return 0;
}

/*
 * The variable may be missing here though deer-flow has it: whether the key is needed
 * shows later. A key that stands in the file itself is deer-flow's way.
 */
static int take_key(struct deerflow *d, const char *value, struct buf *why)
{
	struct buf problem CLEANUP_BUF = BUF_INIT(0);
	int r = resolve(&value, &problem);

	free(d->key_problem);
	d->key_problem = NULL;
	secret_free(STEAL(d->provisioner_key));
	if (r < 0) {
		d->key_problem = STEAL(problem.data);
		return problem.error;
	}
	/* Empty means none. */
	return *value ? secret_set(&d->provisioner_key, "the key", value, why) : 0;
}

/* ---- lists ---- */

static void *grow(void *items, size_t item, size_t *count, size_t size)
{
	char *more;

	if (item < *count)
		return items;
	more = item < LIST_MAX ? reallocarray(items, item + 1, size) : NULL;
	if (more) {
		memset(more + *count * size, 0, (item + 1 - *count) * size);
		*count = item + 1;
	}
	return more;
}

static int take_mount(struct deerflow *d, const struct deerflow_place *at, const char *value,
		      struct buf *why)
{
	struct deerflow_mount *mounts = grow(d->mounts, at->item, &d->nmounts, sizeof(*d->mounts));
	struct deerflow_mount *m;
	char **path;
	int r;

	if (!mounts)
		return -ENOMEM;
	d->mounts = mounts;
	m = &mounts[at->item];
	if (strcmp(at->below, "read_only") == 0)
		return set_bool(&m->read_only, value, why);
	if (strcmp(at->below, "host_path") == 0)
		path = &m->host_path;
	else if (strcmp(at->below, "container_path") == 0)
		path = &m->container_path;
	else
		return 0;
	r = set_resolved(path, value, why);
	if (r == 0 && (*path)[0] != '/') {
		buf_puts(why, "expected an absolute path");
		r = -EINVAL;
	}
	return r;
}

static int take_variable(struct deerflow *d, const struct deerflow_place *at, const char *value)
{
	size_t n = d->nenvironment;
	struct deerflow_variable *more = grow(d->environment, n, &d->nenvironment, sizeof(*more));

	if (!more)
		return -ENOMEM;
	d->environment = more;
	return replace(&more[n].name, at->below) ?: replace(&more[n].value, value);
}

/* ---- ownership ---- */

static int take_type(struct deerflow *d, const char *value, struct buf *why)
{
	if (strcmp(value, "redis") == 0) {
		d->ownership.type = OWNERSHIP_REDIS;
	} else if (strcmp(value, "memory") == 0) {
		d->ownership.type = OWNERSHIP_MEMORY;
	} else {
		buf_puts(why, "expected memory or redis");
		return -EINVAL;
	}
	return 0;
}

static int take_ownership(struct deerflow *d, const char *key, const char *value, struct buf *why)
{
	struct ownership_config *c = &d->ownership;

	if (strcmp(key, "type") == 0)
		return take_type(d, value, why);
	if (strcmp(key, "redis_url") == 0)
		return set_resolved(&c->redis_url, value, why);
	if (strcmp(key, "renewal_interval_seconds") == 0)
		return set_number(&c->renewal_interval_s, value, 0, true, why);
	if (strcmp(key, "ttl_multiplier") == 0)
		return set_number(&c->ttl_multiplier, value, OWNERSHIP_TTL_MULTIPLIER_MIN, false,
				  why);
	if (strcmp(key, "key_prefix") == 0) {
		int r = set_resolved(&c->key_prefix, value, why);
		size_t len = r == 0 ? strlen(c->key_prefix) : 0;

		while (len > 0 && c->key_prefix[len - 1] == ':')
			c->key_prefix[--len] = '\0';
		return r;
	}
	return 0;
}

/* ---- the file ---- */

enum deerflow_kind deerflow_kind(const char *section, const char *key)
{
	static const struct {
		const char *section, *key;
		enum deerflow_kind kind;
	} rows[] = {
		{ "sandbox", "use", DEERFLOW_PLAIN },
		{ "sandbox", "provisioner_url", DEERFLOW_PLAIN },
		{ "sandbox", "provisioner_api_key", DEERFLOW_PLAIN },
		{ "sandbox", "thread_data_mounts", DEERFLOW_PLAIN },
		{ "sandbox", "mounts", DEERFLOW_LIST },
		{ "sandbox", "environment", DEERFLOW_MAPPING },
		{ "sandbox", "ownership", DEERFLOW_MAPPING },
		{ "stream_bridge", "type", DEERFLOW_PLAIN },
		{ "stream_bridge", "redis_url", DEERFLOW_PLAIN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].section, section) == 0 && strcmp(rows[i].key, key) == 0)
			return rows[i].kind;
	return DEERFLOW_UNKNOWN;
}

static int take_plain(struct deerflow *d, const char *key, const char *value, struct buf *why)
{
	bool is = false;
	int r;

	if (strcmp(key, "use") == 0)
		return set_resolved(&d->use, value, why);
	if (strcmp(key, "provisioner_url") == 0)
		return set_resolved(&d->provisioner_url, value, why);
	if (strcmp(key, "provisioner_api_key") == 0)
		return take_key(d, value, why);
	if (strcmp(key, "thread_data_mounts") == 0) {
		r = resolve(&value, why) ?: set_bool(&is, value, why);
		if (r == 0)
			d->thread_data_mounts = is ? THREAD_MOUNTS_YES : THREAD_MOUNTS_NO;
		return r;
	}
	return 0;
}

int deerflow_take(struct deerflow *d, const struct deerflow_place *at, const char *value,
		  struct buf *why)
{
	if (strcmp(at->section, "stream_bridge") == 0) {
		if (at->below)
			return 0;
		if (strcmp(at->key, "type") == 0)
			return set_resolved(&d->bridge_type, value, why);
		if (strcmp(at->key, "redis_url") == 0)
			return set_resolved(&d->bridge_url, value, why);
		return 0;
	}
	if (!at->below)
		return take_plain(d, at->key, value, why);
	if (strcmp(at->key, "mounts") == 0)
		return take_mount(d, at, value, why);
	if (strcmp(at->key, "environment") == 0)
		return take_variable(d, at, value);
	if (strcmp(at->key, "ownership") == 0) {
		d->has_ownership = true;
		return take_ownership(d, at->below, value, why);
	}
	return 0;
}

/* ---- which sandboxes ---- */

static int choose_source(struct options *o, struct buf *why)
{
	const struct deerflow *d = &o->deerflow;
	struct buf source CLEANUP_BUF = BUF_INIT(0);

	if (d->provisioner_url && *d->provisioner_url) {
		buf_printf(&source, "provisioner:%s", d->provisioner_url);
		return source.error ?: options_source(o, source.data, why);
	}
	if (!d->use || strstr(d->use, "LocalSandboxProvider"))
		return 0; /* its threads' files, in sandboxes of our own */
	if (strstr(d->use, "AioSandboxProvider"))
		return options_source(o, "docker:", why);
	buf_printf(why,
		   "sandbox.use is %s, whose sandboxes cannot be mounted (those of "
		   "AioSandboxProvider can): name a source",
		   d->use);
	return -EOPNOTSUPP;
}

/* "provisioner:" leaves the rest to the file. */
static int check_provisioner(struct options *o, struct buf *why)
{
	struct deerflow *d = &o->deerflow;
	struct buf reason CLEANUP_BUF = BUF_INIT(0);
	int r;

	if (!o->url && d->provisioner_url && *d->provisioner_url) {
		r = choose_source(o, why);
		if (r < 0)
			return r;
	}
	if (!o->url) {
		buf_puts(why, "source: expected provisioner:http://HOST:8002");
		return -EINVAL;
	}
	if (o->provisioner_key_file) {
		r = secret_read(&d->provisioner_key, o->provisioner_key_file, &reason);
		if (r < 0) {
			buf_printf(why, "option provisioner_key_file: %s",
				   reason.data ?: strerrordesc_np(-r));
			return r;
		}
	}
	if (!d->provisioner_key && d->key_problem) {
		buf_printf(why,
			   "provisioner_api_key: %s (" DEERFLOW_KEY_VARIABLE
			   " or provisioner_key_file=FILE will do, too)",
			   d->key_problem);
		return -EINVAL;
	}
	return 0;
}

static int check_mounts(const struct deerflow *d, struct buf *why)
{
	for (size_t i = 0; i < d->nmounts; i++) {
		if (d->mounts[i].host_path && d->mounts[i].container_path)
			continue;
		buf_printf(why, "sandbox.mounts: number %zu has no %s", i + 1,
			   d->mounts[i].host_path ? "container_path" : "host_path");
		return -EINVAL;
	}
	return 0;
}

/* ---- where its threads are ---- */

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int home_in(const char *dir, char **ret)
{
	char *path CLEANUP_FREE = NULL;

	if (asprintf(&path, "%s%s.deer-flow", dir, *dir ? "/" : "") < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return home_absolute(path, ret);
}

/* Who owns the file has said what is mounted: he is no stranger. */
static bool is_friend(const struct deerflow *d, uid_t uid)
{
	return uid == geteuid() || uid == 0 || uid == d->config_uid;
}

static bool is_friends_group(const struct deerflow *d, gid_t gid)
{
	return gid == getegid() || group_member(gid) || gid == d->config_gid;
}

/*
 * We look where others may have laid one for us, in /tmp for instance, and they would read
 * and change all that is written to it. With a umask of 002 its owner's group can write, too.
 */
static bool is_trusted(const struct deerflow *d, const char *path)
{
	struct stat link, dir;

	return lstat(path, &link) == 0 && stat(path, &dir) == 0 && is_friend(d, link.st_uid) &&
	       is_friend(d, dir.st_uid) && !(dir.st_mode & S_IWOTH) &&
	       (!(dir.st_mode & S_IWGRP) || is_friends_group(d, dir.st_gid));
}

/* DIR/.deer-flow, if it is there and nobody found one before. */
static int try_home(struct options *o, const char *dir)
{
	char *path CLEANUP_FREE = NULL;
	int r = o->data ? 0 : home_in(dir, &path);

	if (!path || !is_dir(path))
		return r == -ENOENT ? 0 : r;
	if (is_trusted(&o->deerflow, path))
		o->data = STEAL(path);
	else
		log_warn("%s is passed over: it is another user's, or others can write to it "
			 "(data=DIR takes it all the same)",
			 path);
	return 0;
}

/*
 * deer-flow's own rule is its home, else that of the project, which is the directory
 * where it was started. Who mounts stands elsewhere: the file lies in the project.
 */
static int find_home(struct options *o)
{
	const char *home = variable("DEER_FLOW_HOME"),
		   *project = variable("DEER_FLOW_PROJECT_ROOT");
	const char *dir = o->deerflow.config_dir;
	char *backend CLEANUP_FREE = NULL;

	if (home)
		return home_absolute(home, &o->data);
	if (project)
		return home_in(project, &o->data);
	if (!dir)
		return 0;
	if (asprintf(&backend, "%s/backend", dir) < 0) {
		backend = NULL;
		return -ENOMEM;
	}
	return try_home(o, "") ?: try_home(o, dir) ?: try_home(o, backend);
}

/* ---- whose they are ---- */

static int infer_ownership(struct deerflow *d)
{
	struct ownership_config *c = &d->ownership;
	const char *url = variable(OWNERSHIP_VARIABLE) ?: variable(BRIDGE_VARIABLE);

	if (!d->has_ownership) {
		bool bridged = d->bridge_type && strcmp(d->bridge_type, "redis") == 0;

		if (!bridged && !url)
			return 0;
		c->type = OWNERSHIP_REDIS;
		if (bridged && d->bridge_url && *d->bridge_url)
			url = d->bridge_url;
	}
	if (c->type != OWNERSHIP_REDIS || (c->redis_url && *c->redis_url))
		return 0;
	return replace(&c->redis_url, url ?: variable("REDIS_URL") ?: "redis://localhost:6379/0");
}

int deerflow_finish(struct options *o, struct buf *why)
{
	struct deerflow *d = &o->deerflow;
	bool is_theirs = d->use != NULL;
	int r = o->source_given ? 0 : choose_source(o, why);

	if (r < 0 || o->source == SOURCE_URL)
		return r;
	is_theirs |= o->source == SOURCE_PROVISIONER || o->source == SOURCE_DOCKER;
	if (!is_theirs)
		return 0;
	if (!o->data)
		r = find_home(o);
	if (r == 0 && o->source == SOURCE_PROVISIONER)
		r = check_provisioner(o, why);
	if (r == 0 && o->source != SOURCE_EMBEDDED)
		r = check_mounts(d, why) ?: infer_ownership(d);
	return r;
}

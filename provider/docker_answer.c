/* See docker_answer.h. Everything comes from the engine, which is trusted as much as its words
 * make sense. */
#include "docker_answer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "answer.h"
#include "backend.h"
#include "ident.h"
#include "url.h"

#define INNER_PORT_NAME "8080/tcp"

void container_release(struct container *c)
{
	free(c->key);
	free(c->name);
	free(c->user);
	free(c->thread);
	free(c->maker);
	*c = (struct container){ 0 };
}

/* ---- a container ---- */

static const cJSON *member(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

static unsigned as_port(int64_t n)
{
	return n > 0 && n <= 65535 ? (unsigned)n : 0;
}

static unsigned parse_port(const char *text)
{
	char *end;
	long n = text ? strtol(text, &end, 10) : 0;

	return text && end != text && !*end ? as_port(n) : 0;
}

/* {"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"8080"}]}; null where it is not published. */
static unsigned inspected_port(const cJSON *root)
{
	const cJSON *ports = member(member(root, "NetworkSettings"), "Ports"), *binding;

	cJSON_ArrayForEach (binding, member(ports, INNER_PORT_NAME)) {
		unsigned port = parse_port(answer_str(binding, "HostPort"));

		if (port > 0)
			return port;
	}
	return 0;
}

static unsigned listed_port(const cJSON *item)
{
	const cJSON *port;

	cJSON_ArrayForEach (port, member(item, "Ports")) {
		const char *type = answer_str(port, "Type");

		if (answer_int(port, "PrivatePort", 0) == DOCKER_INNER_PORT && type &&
		    strcmp(type, "tcp") == 0 && as_port(answer_int(port, "PublicPort", 0)))
			return as_port(answer_int(port, "PublicPort", 0));
	}
	return 0;
}

static int copy(char **to, const char *text)
{
	*to = text ? strdup(text) : NULL;
	return text && !*to ? -ENOMEM : 0;
}

/* Whose it is counts only as a whole. */
static int take_labels(const cJSON *labels, struct container *c)
{
	const char *user = answer_str(labels, DOCKER_LABEL_USER);
	const char *thread = answer_str(labels, DOCKER_LABEL_THREAD);
	const char *maker = answer_str(labels, DOCKER_LABEL_MAKER);

	if (!user || !thread || !maker || !ident_is_user(user) || !ident_is_thread(thread))
		return 0;
	return copy(&c->user, user) ?: copy(&c->thread, thread) ?: copy(&c->maker, maker);
}

static int take_names(struct container *c, const char *key, const char *name)
{
	if (!key || !*key || strspn(key, "0123456789abcdefABCDEF") != strlen(key) || !name)
		return -EBADMSG;
	return copy(&c->key, key) ?: copy(&c->name, name + (name[0] == '/'));
}

static void give(struct container *c, struct container *ret)
{
	*ret = *c;
	*c = (struct container){ 0 };
}

int container_from_inspect(const cJSON *root, struct container *ret)
{
	struct container c CLEANUP_CONTAINER = { 0 };
	const cJSON *state = member(root, "State"), *running = member(state, "Running");
	const char *status = answer_str(state, "Status");
	int r = take_names(&c, answer_str(root, "Id"), answer_str(root, "Name"));

	if (r == 0 && !cJSON_IsBool(running))
		r = -EBADMSG;
	if (r == 0)
		r = take_labels(member(member(root, "Config"), "Labels"), &c);
	if (r < 0)
		return r;
	c.running = cJSON_IsTrue(running);
	c.unborn = !c.running && status &&
		   (strcmp(status, "created") == 0 || strcmp(status, "configured") == 0 ||
		    strcmp(status, "initialized") == 0);
	c.port = inspected_port(root);
	c.created = docker_time(answer_str(root, "Created"));
	give(&c, ret);
	return 0;
}

int container_from_list(const cJSON *item, struct container *ret)
{
	struct container c CLEANUP_CONTAINER = { 0 };
	const cJSON *name = cJSON_GetArrayItem(member(item, "Names"), 0);
	const char *state = answer_str(item, "State");
	int r = take_names(&c, answer_str(item, "Id"),
			   cJSON_IsString(name) ? name->valuestring : NULL);

	if (r == 0)
		r = take_labels(member(item, "Labels"), &c);
	if (r < 0)
		return r;
	c.running = state && strcmp(state, "running") == 0;
	c.port = listed_port(item);
	c.created = (double)answer_int(item, "Created", 0);
	give(&c, ret);
	return 0;
}

const char *container_id(const char *name, const char *prefix)
{
	size_t len = strlen(prefix), rest;
	const char *id = name + len + 1;

	if (strncmp(name, prefix, len) != 0 || name[len] != '-')
		return NULL;
	rest = strlen(id);
	return rest >= 1 && rest <= SANDBOX_ID_LEN && strspn(id, "0123456789abcdef") == rest ? id
											     : NULL;
}

void docker_mark_ports(const cJSON *list, unsigned first, bool *taken, size_t n)
{
	const cJSON *item, *port;

	cJSON_ArrayForEach (item, list) {
		cJSON_ArrayForEach (port, member(item, "Ports")) {
			int64_t at = answer_int(port, "PublicPort", 0);

			if (at >= (int64_t)first && at < (int64_t)(first + n))
				taken[at - first] = true;
		}
	}
}

double docker_time(const char *text)
{
	struct tm tm = { 0 };
	double fraction = 0;
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	char *end;
	int hours = 0, minutes = 0;
	char sign;
	time_t t;

	if (!rest)
		return 0;
	if (*rest == '.') {
		fraction = strtod(rest, &end);
		rest = end;
	}
	if (sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) == 3) {
		if (sign != '+' && sign != '-')
			return 0;
		minutes = (sign == '-' ? -1 : 1) * (hours * 60 + minutes);
	} else if (strcmp(rest, "Z") != 0) {
		return 0;
	}
	t = timegm(&tm) - minutes * 60;
	return t > 0 ? (double)t + fraction : 0;
}

static int minor(const char *version)
{
	int n, end = 0;

	return version && sscanf(version, "1.%5d%n", &n, &end) == 1 && !version[end] ? n : -1;
}

int docker_api(const char *newest, const char *oldest, int max)
{
	int n = minor(newest);

	return n < 0 ? -1 : MAX(MIN(n, max), minor(oldest));
}

/* ---- refusals ---- */

enum docker_refusal docker_refusal(int status, const char *words)
{
	static const struct {
		const char *words;
		enum docker_refusal why;
	} rows[] = {
		{ "no such container", DOCKER_GONE },
		{ "no such image", DOCKER_NO_IMAGE },
		{ "image not known", DOCKER_NO_IMAGE },
		{ "port is already allocated", DOCKER_PORT_TAKEN },
		{ "address already in use", DOCKER_PORT_TAKEN },
		{ "ports are not available", DOCKER_PORT_TAKEN },
		{ "name is already in use", DOCKER_NAME_TAKEN },
		{ "already in progress", DOCKER_BUSY },
	};

	/* What Podman says with 500 of one that goes while it is asked about. */
	if (status == 500 && words &&
	    strstr(words, " does not exist in database: no such container"))
		return DOCKER_GONE;
	for (size_t i = 0; words && i < ARRAY_SIZE(rows); i++) {
		if (!strcasestr(words, rows[i].words))
			continue;
		/* A 404 that is about something else proves nothing; nor do words without one. */
		if ((rows[i].why == DOCKER_GONE || rows[i].why == DOCKER_NO_IMAGE) && status != 404)
			return DOCKER_REFUSED;
		return rows[i].why;
	}
	/* 'The container name "/x" is already in use by container …' */
	if (words && strcasestr(words, "container name") && strcasestr(words, "already in use"))
		return DOCKER_NAME_TAKEN;
	return DOCKER_REFUSED;
}

/* ---- images ---- */

int docker_put_pull(struct buf *to, const char *image)
{
	const char *digest = strchr(image, '@'), *slash = strrchr(image, '/');
	const char *colon = strrchr(slash ?: image, ':'), *tag = "latest";
	size_t len = strlen(image);
	int r;

	if (digest) {
		len = (size_t)(digest - image);
		tag = digest + 1;
	} else if (colon) {
		len = (size_t)(colon - image);
		tag = colon + 1;
	}
	buf_puts(to, "fromImage=");
	r = url_escape(to, image, len);
	buf_puts(to, "&tag=");
	return r ?: url_escape(to, tag, strlen(tag)) ?: to->error;
}

void docker_progress_release(struct docker_progress *p)
{
	free(p->error);
	*p = (struct docker_progress){ 0 };
}

static void take_layer(struct docker_progress *p, const char *id, double current, double total)
{
	size_t i = 0;

	while (i < p->nlayers && strncmp(p->layers[i].id, id, sizeof(p->layers[i].id) - 1) != 0)
		i++;
	if (i == DOCKER_LAYERS_MAX)
		return;
	if (i == p->nlayers) {
		snprintf(p->layers[i].id, sizeof(p->layers[i].id), "%s", id);
		p->nlayers++;
	}
	p->layers[i].current = current;
	p->layers[i].total = total;
}

static double amount(const cJSON *detail, const char *key)
{
	const cJSON *n = member(detail, key);

	return cJSON_IsNumber(n) && isfinite(n->valuedouble) && n->valuedouble > 0 ? n->valuedouble
										   : 0;
}

void docker_progress_line(struct docker_progress *p, char *line, size_t len)
{
	cJSON *root CLEANUP_JSON = NULL;
	const char *id, *status, *error;
	const cJSON *detail;

	if (json_parse(line, len, &root, NULL) < 0)
		return;
	error = answer_str(root, "error") ?: answer_str(member(root, "errorDetail"), "message");
	if (error && !p->error)
		p->error = answer_printable(error, strlen(error));
	id = answer_str(root, "id");
	status = answer_str(root, "status");
	detail = member(root, "progressDetail");
	/* Unpacking counts anew from 0: what has been fetched stays so. */
	if (id && amount(detail, "total") > 0 && !(status && strncmp(status, "Extract", 7) == 0))
		take_layer(p, id, amount(detail, "current"), amount(detail, "total"));
	if (status) {
		char *clean CLEANUP_FREE = answer_printable(status, strlen(status));

		snprintf(p->status, sizeof(p->status), "%s", clean ?: "");
	}
}

void docker_progress_put(const struct docker_progress *p, struct buf *to)
{
	double current = 0, total = 0;

	for (size_t i = 0; i < p->nlayers; i++) {
		current += MIN(p->layers[i].current, p->layers[i].total);
		total += p->layers[i].total;
	}
	if (total > 0)
		buf_printf(to, "%.0f of %.0f MB", ceil(current / 1e6), ceil(total / 1e6));
	else
		buf_puts(to, p->status[0] ? p->status : "begun");
}

/* See provisioner_answer.h. Any thread. */
#include "provisioner_answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "url.h"

/* FastAPI's own 404 is the word of a server without such a route, and not of a provisioner. */
bool provisioner_says_gone(const struct response *r)
{
	char *words CLEANUP_FREE = NULL;

	if (r->status != 404 || r->body.len == 0 || r->body.data[0] != '{')
		return false;
	words = response_words(r);
	return words && strcasecmp(words, "Not Found") != 0;
}

/* Of one sandbox in an answer: where it is. NULL if that cannot be used. */
static char *url_of(const cJSON *item)
{
	const char *said = answer_str(item, "sandbox_url"), *why;
	char *url = NULL;

	if (!said || url_tidy(said, &url, &why) < 0)
		return NULL;
	/* No pod is there, but what a cloud tells its machines in confidence. */
	if (url_is_link_local(url)) {
		free(url);
		return NULL;
	}
	return url;
}

/*
 * Pods are made to be restarted for ever, so one that ended was evicted. NotFound is
 * also said when the pod's state could not be read.
 */
static enum provisioner_health health_of(const char *phase)
{
	static const struct {
		const char *phase;
		enum provisioner_health health;
	} rows[] = {
		{ "Running", PROVISIONER_RUNNING }, { "Pending", PROVISIONER_COMING },
		{ "Failed", PROVISIONER_DEAD },     { "Succeeded", PROVISIONER_DEAD },
		{ "NotFound", PROVISIONER_UNSURE },
	};

	if (!phase)
		return PROVISIONER_UNSURE;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(phase, rows[i].phase) == 0)
			return rows[i].health;
	return PROVISIONER_STRANGE;
}

static int nonsense(const char *what, const char **ret_why)
{
	*ret_why = what;
	return -EBADMSG;
}

static int decode(struct answer *a, struct response *r, const char **ret_why)
{
	if (r->body.len == 0 || answer_decode(a, r->status, r->body.data, r->body.len) < 0)
		return nonsense("it is not JSON", ret_why);
	return 0;
}

int provisioner_read_one(struct response *r, const char *id, char **ret_url,
			 enum provisioner_health *ret_health, const char **ret_why)
{
	struct answer a CLEANUP_ANSWER = { 0 };
	const char *said;
	char *url;

	if (decode(&a, r, ret_why) < 0)
		return -EBADMSG;
	said = answer_str(a.root, "sandbox_id");
	if (!said || strcmp(said, id) != 0)
		return nonsense("it is about another sandbox", ret_why);
	url = url_of(a.root);
	if (!url)
		return nonsense("it has no usable sandbox_url", ret_why);
	*ret_url = url;
	*ret_health = health_of(answer_str(a.root, "status"));
	return 0;
}

static bool read_item(const cJSON *item, struct place *to)
{
	const char *id = answer_str(item, "sandbox_id");
	struct place p = { 0 };

	if (!id || !*id || strlen(id) > SANDBOX_ID_LEN)
		return false;
	p.url = url_of(item);
	if (!p.url)
		return false;
	snprintf(p.id, sizeof(p.id), "%s", id);
	*to = p;
	return true;
}

int provisioner_read_list(struct response *r, struct place **ret, size_t *ret_n,
			  const char **ret_why)
{
	struct answer a CLEANUP_ANSWER = { 0 };
	const cJSON *items, *item;
	struct place *places;
	size_t n = 0;

	if (decode(&a, r, ret_why) < 0)
		return -EBADMSG;
	items = cJSON_GetObjectItemCaseSensitive(a.root, "sandboxes");
	if (!cJSON_IsArray(items))
		return nonsense("it has no list of sandboxes", ret_why);
	places = calloc((size_t)MAX(cJSON_GetArraySize(items), 1), sizeof(*places));
	if (!places)
		return -ENOMEM;
	cJSON_ArrayForEach (item, items)
		n += read_item(item, &places[n]);
	*ret = places;
	*ret_n = n;
	return 0;
}

/* See watch_event.h. */
#include "watch_event.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "entries.h"

/* Numbers up to here are exact in JSON as it is read here. */
#define EXACT_MAX 0x1p53

static const char *const type_names[] = {
	[WATCH_CREATE] = "create", [WATCH_WRITE] = "write", [WATCH_REMOVE] = "remove",
	[WATCH_RENAME] = "rename", [WATCH_CHMOD] = "chmod",
};

static const cJSON *get(const cJSON *obj, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(obj, key);
}

static bool is_missing(const cJSON *json)
{
	return !json || cJSON_IsNull(json);
}

static int read_type(const cJSON *json, enum watch_type *ret)
{
	const char *name = cJSON_GetStringValue(json);

	for (size_t i = 0; name && i < ARRAY_SIZE(type_names); i++) {
		if (strcmp(name, type_names[i]) == 0) {
			*ret = (enum watch_type)i;
			return 0;
		}
	}
	return -EBADMSG;
}

/* A whole number; one that is too large to be exact is as good as missing. */
static int read_whole(const cJSON *json, int64_t missing, int64_t *ret)
{
	double v;

	if (!is_missing(json)) {
		v = json->valuedouble;
		if (!cJSON_IsNumber(json) || !(v >= 0) || floor(v) != v)
			return -EBADMSG;
		if (v <= EXACT_MAX)
			missing = (int64_t)v;
	}
	*ret = missing;
	return 0;
}

/* Some servers send rows of a database: 0 and 1. */
static int read_flag(const cJSON *json, bool *ret)
{
	if (cJSON_IsBool(json))
		*ret = cJSON_IsTrue(json);
	else if (cJSON_IsNumber(json) && (json->valuedouble == 0 || json->valuedouble == 1))
		*ret = json->valuedouble == 1;
	else
		return -EBADMSG;
	return 0;
}

static int read_relative(const cJSON *json, const char **ret)
{
	const char *s = cJSON_GetStringValue(json);

	if (!s || json_has_nul(s) || (strcmp(s, ".") != 0 && !name_is_chain(s, strlen(s))))
		return -EBADMSG;
	*ret = s;
	return 0;
}

static int read_path(const cJSON *json, const char **ret)
{
	const char *s = cJSON_GetStringValue(json);

	if (!s || json_has_nul(s) || s[0] != '/' || strlen(s) > PATH_BYTES_MAX)
		return -EBADMSG;
	if (s[1] && !name_is_chain(s + 1, strlen(s + 1)))
		return -EBADMSG;
	*ret = s;
	return 0;
}

int watch_event_decode(const cJSON *json, struct watch_event *ret)
{
	const cJSON *old = get(json, "old_path");
	struct watch_event ev = { 0 };
	int64_t ino;

	if (read_type(get(json, "type"), &ev.type) < 0 ||
	    read_whole(get(json, "seq"), -1, &ev.seq) < 0 || ev.seq < 0 ||
	    read_path(get(json, "path"), &ev.path) < 0 ||
	    read_relative(get(json, "relative_path"), &ev.relative) < 0 ||
	    read_flag(get(json, "is_dir"), &ev.is_dir) < 0 ||
	    read_whole(get(json, "size"), -1, &ev.size) < 0 ||
	    read_whole(get(json, "inode"), 0, &ino) < 0)
		return -EBADMSG;
	if (ev.type == WATCH_RENAME && !is_missing(old) && read_path(old, &ev.old_path) < 0)
		return -EBADMSG;
	ev.ino = (uint64_t)ino;
	*ret = ev;
	return 0;
}

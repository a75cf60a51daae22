/*
 * Answers of a server: two bytes are the HTTP status, the rest is the body.
 * Its data is then read as a listing, as an event, as a list of events, and as how a command ended.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "answer.h"
#include "check.h"
#include "outcome.h"
#include "watch_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether anything in the document speaks of a missing file. */
static bool tree_says_missing(const cJSON *json)
{
	const cJSON *item;

	if (cJSON_IsString(json))
		return says_missing(json->valuestring, strlen(json->valuestring));
	if (cJSON_IsNumber(json))
		return json->valuedouble == ENOENT;
	cJSON_ArrayForEach (item, json)
		if (tree_says_missing(item))
			return true;
	return false;
}

static void check_answer(const struct answer *a, int status, int r)
{
	assert(r <= 0 && r == a->error);
	assert(a->root || !a->data);
	if (status < 200 || status > 299)
		assert(r < 0);
	if (r == -ENOENT)
		assert(a->root && tree_says_missing(a->root));
	if (a->no_route)
		assert(r == -EOPNOTSUPP && (status == 404 || status == 405));
	if (!a->message)
		return;
	assert(a->message[0] && strlen(a->message) <= 500);
	for (const char *p = a->message; *p; p++)
		assert((unsigned char)*p >= ' ' && *p != 0x7f);
}

static void read_listing(const cJSON *data, bool recursive)
{
	struct entries e CLEANUP_ENTRIES = { 0 };
	int r = entries_parse_json(&e, data, "/d", recursive);

	assert(r == 0 || r == -EBADMSG);
	check_entries(&e, recursive);
	for (size_t i = 0; i < e.n; i++)
		assert(e.v[i].attr.partial);
}

static bool has_dots(const char *path)
{
	return strstr(path, "/../") || strncmp(path, "../", 3) == 0 || strcmp(path, "..") == 0 ||
	       (strlen(path) > 2 && strcmp(path + strlen(path) - 3, "/..") == 0);
}

static void read_event(const cJSON *json)
{
	struct watch_event ev;
	int r = watch_event_decode(json, &ev);

	assert(r == 0 || r == -EBADMSG);
	if (r < 0)
		return;
	assert(ev.type >= WATCH_CREATE && ev.type <= WATCH_CHMOD);
	assert(ev.seq >= 0 && ev.size >= -1);
	assert(ev.path[0] == '/' && !has_dots(ev.path) && !json_has_nul(ev.path));
	assert(ev.relative[0] && ev.relative[0] != '/' && !has_dots(ev.relative));
	assert(!json_has_nul(ev.relative));
	if (ev.old_path)
		assert(ev.old_path[0] == '/' && !has_dots(ev.old_path));
}

static void read_outcome(const cJSON *data)
{
	enum command_status status = COMMAND_COMPLETED;
	char *text CLEANUP_FREE = NULL;
	size_t len = 0;
	int r, code;

	r = outcome_status(data, &status);
	assert(r == 0 || r == -EBADMSG);
	assert(status >= COMMAND_COMPLETED && status <= COMMAND_TERMINATED);
	r = outcome_exit_code(data, &code);
	assert(r == 0 || r == -EBADMSG);
	r = outcome_text(data, "output", &text, &len);
	assert(r == -EBADMSG ? !text : r == 0 && strlen(text) <= len && !text[len]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text CLEANUP_FREE = NULL;
	const cJSON *event, *events;
	struct answer a;
	int status;

	if (size < 2)
		return 0;
	status = (data[0] | data[1] << 8) % 1000;
	size -= 2;
	text = malloc(size + 1);
	assert(text);
	memcpy(text, data + 2, size);
	text[size] = '\0';
	check_answer(&a, status, answer_decode(&a, status, text, size));

	read_listing(a.data, false);
	read_listing(a.data, true);
	read_event(a.data);
	read_outcome(a.data);
	events = cJSON_GetObjectItemCaseSensitive(a.data, "events");
	cJSON_ArrayForEach (event, events)
		read_event(event);
	answer_release(&a);
	return 0;
}

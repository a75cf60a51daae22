/*
 * What the answers of the mixed load must be, and what is learnt from them.
 * Pure but for the client's own records.
 */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "json.h"
#include "mix_i.h"

bool op_wants_body(const struct expect *e)
{
	return e->verify == VERIFY_BYTES;
}

void op_body(void *expect, uint64_t offset, const char *data, size_t len)
{
	struct expect *e = expect;

	if (e->response->status == 206)
		offset += e->from;
	else if (e->response->status != 200)
		return;
	if (!content_matches(&e->content, offset, data, len))
		e->wrong = true;
}

static const char *check_status(const struct expect *e, int status)
{
	if (status >= 500) {
		bool designed = (e->flags & EXPECT_MAY_5XX) && (status == 500 || status == 503);
		bool refused = (e->flags & EXPECT_ANY) && (status == 501 || status == 505);

		return designed || refused ? NULL : "a 5xx status";
	}
	if ((e->flags & EXPECT_OK) && status != 200 && status != 206)
		return "a status other than 200";
	if ((e->flags & EXPECT_MISSING) && status != 404)
		return "a status other than 404";
	return NULL;
}

static const char *check_bytes(const struct expect *e, const struct response *r)
{
	uint64_t from = r->status == 206 ? e->from : 0;
	uint64_t to = r->status == 206 ? e->to : e->content.size;

	if (e->wrong)
		return "wrong bytes";
	if (r->status == 206 && r->range_from != (int64_t)e->from)
		return "another range than asked for";
	if (r->received != to - from)
		return "a body of the wrong length";
	return NULL;
}

static void confirm(struct expect *e)
{
	e->file->content = e->content;
	e->file->known = true;
}

static const char *check_text(const struct content *k, const cJSON *json)
{
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(json, "data");
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, "content"));

	if (!s)
		return "no content";
	if (strlen(s) != k->size)
		return "content of the wrong length";
	return content_matches(k, 0, s, k->size) ? NULL : "wrong content";
}

static const char *check_marker(const struct expect *e, const cJSON *json)
{
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(json, "data");
	const char *status = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, "status"));
	const cJSON *code = cJSON_GetObjectItemCaseSensitive(data, "exit_code");
	const char *out = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, "stdout"));

	if (!out)
		out = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, "output"));
	if (!status || strcmp(status, "completed") || !cJSON_IsNumber(code) || code->valueint)
		return NULL; /* still running, or killed by another client */
	return out && strstr(out, e->marker) ? NULL : "output without what was echoed";
}

static void remember_watch(struct client *c, const cJSON *json)
{
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(json, "data");
	const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, "watcher_id"));

	if (id)
		snprintf(c->watch, sizeof(c->watch), "%s", id);
}

static const char *check_json(struct client *c, struct expect *e, struct response *r)
{
	cJSON *json CLEANUP_JSON = NULL;
	const char *why = NULL;

	if (r->body.error)
		return "a body larger than any answer should be";
	if (!r->body.len || json_parse(r->body.data, r->body.len, &json, &why) < 0)
		return "not JSON";
	switch (e->verify) {
	case VERIFY_SUCCESS:
		if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "success")))
			return "no success";
		confirm(e);
		return NULL;
	case VERIFY_TEXT:
		return check_text(&e->content, json);
	case VERIFY_MARKER:
		return check_marker(e, json);
	case VERIFY_WATCH:
		remember_watch(c, json);
		return NULL;
	default:
		return NULL;
	}
}

const char *op_check(struct client *c, struct expect *e, struct response *r)
{
	const char *wrong = check_status(e, r->status);

	if (wrong)
		return wrong;
	switch (e->verify) {
	case VERIFY_NOTHING:
		return NULL;
	case VERIFY_BYTES:
		return check_bytes(e, r);
	case VERIFY_LENGTH:
		return r->content_length == (int64_t)e->content.size ? NULL
								     : "a wrong Content-Length";
	default:
		return check_json(c, e, r);
	}
}

void op_forget(struct client *c, struct expect *e)
{
	if (!(e->flags & EXPECT_MUTATES))
		return;
	/* a full list forgets the oldest: the final cleanup takes it */
	if (c->retired_count == MAX_RETIRED) {
		memmove(c->retired, c->retired + 1, (MAX_RETIRED - 1) * sizeof(c->retired[0]));
		c->retired_count--;
	}
	c->retired[c->retired_count].number = e->file->number;
	c->retired[c->retired_count].at_ms = clock_ms();
	c->retired_count++;
	e->file->known = false;
	e->file->number = c->next_name++;
}

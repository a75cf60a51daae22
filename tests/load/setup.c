/*
 * Before and after the mixed load: what the server can do, the shared file,
 * and the removal of everything. Blocks; runs before and after the loop.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "mix_i.h"

static int upload_big(const struct options *o)
{
	struct client c = { .o = o, .random = o->seed, .last = true };
	struct content k = big_content(o);
	struct buf path CLEANUP_BUF = BUF_INIT(0);
	struct response r;
	int ret;

	big_path(o, &path);
	op_put_upload(&c, path.data, &k);
	response_init(&r);
	ret = c.out.error ? c.out.error
			  : http_exchange(&o->address, c.out.data, c.out.len, 30000, &r);
	if (ret == 0 && r.status != 200) {
		fprintf(stderr, "mixload: the first upload was answered with status %d\n",
			r.status);
		ret = -EIO;
	}
	buf_release(&c.out);
	http_response_release(&r);
	return ret;
}

/* A route exists unless the answer is 404 or 405. */
static int probe(const struct options *o, const char *method, const char *target, unsigned feature,
		 unsigned *features)
{
	struct response r;
	int ret;

	response_init(&r);
	ret = simple_request(&o->address, method, target, &r);
	if (ret == 0 && r.status != 404 && r.status != 405)
		*features |= feature;
	http_response_release(&r);
	return ret;
}

int ops_setup(const struct options *o, unsigned *ret_features)
{
	unsigned features = 0;
	int ret;

	ret = probe(o, "GET", "/v1/bash/sessions", HAS_BASH, &features);
	if (ret == 0)
		ret = probe(o, "GET", "/v1/file/watch", HAS_WATCH, &features);
	if (ret == 0)
		ret = probe(o, "POST", "/v1/file/stat", HAS_STAT, &features);
	if (ret == 0)
		ret = probe(o, "POST", "/v1/file/grep", HAS_GREP, &features);
	if (ret == 0)
		ret = upload_big(o);
	if (ret == 0)
		*ret_features = features;
	return ret;
}

/* Watches hold a lease per create, also those whose answer we did not read. */
static void end_watch(const struct options *o, const char *id)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct response r;

	buf_printf(&target, "/v1/file/watch/%s", id);
	response_init(&r);
	for (unsigned i = 0; i < 100000; i++) {
		int ret = simple_request(&o->address, "DELETE", target.data, &r);

		if (ret < 0 || r.status != 200 || !r.body.data || strstr(r.body.data, "stopped"))
			break;
	}
	http_response_release(&r);
}

static void end_watches(const struct options *o)
{
	cJSON *json CLEANUP_JSON = NULL;
	const char *why;
	const cJSON *item;
	struct response r;

	response_init(&r);
	if (simple_request(&o->address, "GET", "/v1/file/watch", &r) == 0 && r.status == 200 &&
	    r.body.len && json_parse(r.body.data, r.body.len, &json, &why) == 0) {
		cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(json, "data")) {
			const char *id = cJSON_GetStringValue(
				cJSON_GetObjectItemCaseSensitive(item, "watcher_id"));
			if (id)
				end_watch(o, id);
		}
	}
	http_response_release(&r);
}

void ops_cleanup(const struct options *o, unsigned features)
{
	struct buf command CLEANUP_BUF = BUF_INIT(0);
	struct response r;

	if (features & HAS_WATCH)
		end_watches(o);
	buf_printf(&command, "rm -rf " WORKSPACE "/mix-%llu-*", (unsigned long long)o->seed);
	if (command.error || run_command(&o->address, command.data) < 0)
		fprintf(stderr, "mixload: " WORKSPACE "/mix-%llu-* were not removed\n",
			(unsigned long long)o->seed);
	response_init(&r);
	(void)!simple_request(&o->address, "DELETE", "/v1/shell/sessions", &r);
	http_response_release(&r);
}

/* See top_view.h. What is missing or of another type counts as nothing: versions differ. */
#include "top_view.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "ident.h"
#include "json.h"
#include "status_text.h"

enum { TEXT_MAX = 400 }; /* characters of what others said */

const char *const top_cache_names[TOP_CACHES] = { "lookup", "getattr", "readdir", "open", "read" };

/* ---- values ---- */

static const cJSON *member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

static double number(const cJSON *object, const char *name, double otherwise)
{
	const cJSON *item = member(object, name);

	return cJSON_IsNumber(item) && isfinite(item->valuedouble) ? item->valuedouble : otherwise;
}

static unsigned count(const cJSON *object, const char *name)
{
	double n = number(object, name, 0);

	return n > 0 && n < 1e9 ? (unsigned)n : 0;
}

static const char *string(const cJSON *object, const char *name)
{
	const cJSON *item = member(object, name);

	return cJSON_IsString(item) ? item->valuestring : "";
}

/* Harmless, for the caller to free; NULL: no memory. */
static char *harmless(const char *text)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	text_escape(&b, text, TEXT_MAX);
	buf_puts(&b, "");
	return b.error ? NULL : STEAL(b.data);
}

static char *shown(const cJSON *object, const char *name)
{
	return harmless(string(object, name));
}

/* "2026-01-31T12:00:00.000Z": how long ago that was; -1: it is not there. */
static double seconds_since(const char *time)
{
	struct tm tm = { 0 };

	if (!strptime(time, "%Y-%m-%dT%H:%M:%S", &tm))
		return -1;
	return MAX(clock_wall() - (double)timegm(&tm), 0);
}

/* ---- threads and transfers ---- */

static char *error_of(const cJSON *thread)
{
	const cJSON *error = member(thread, "last_error");
	struct buf b CLEANUP_BUF = BUF_INIT(0);
	const char *message = string(error, "message");

	if (!cJSON_IsObject(error))
		return strdup("");
	text_escape(&b, string(error, "errno"), TEXT_MAX);
	if (*message) {
		buf_puts(&b, ": ");
		text_escape(&b, message, TEXT_MAX);
	}
	return b.error ? NULL : STEAL(b.data);
}

static void release_thread(struct top_thread *t)
{
	free(t->id);
	free(t->name);
	free(t->state);
	free(t->sandbox);
	free(t->watch);
	free(t->error);
}

static int read_thread(const cJSON *json, const char *user, struct top_thread *t)
{
	const char *id = string(json, "thread"), *owner = string(json, "user");
	struct buf name CLEANUP_BUF = BUF_INIT(0);
	bool here = strcmp(owner, user) == 0;

	if (!here) {
		text_escape(&name, owner, TEXT_MAX);
		buf_putc(&name, '/');
	}
	text_escape(&name, id, TEXT_MAX);
	buf_puts(&name, "");
	*t = (struct top_thread){
		.id = here && ident_is_thread(id) ? strdup(id) : NULL,
		.name = STEAL(name.data),
		.state = shown(json, "state"),
		.sandbox = shown(json, "sandbox_id"),
		.watch = shown(json, "watch"),
		.error = error_of(json),
		.leases = count(json, "leases"),
		.open_files = count(json, "open_files"),
		.idle_s = seconds_since(string(json, "last_activity")),
	};
	return t->name && t->state && t->sandbox && t->watch && t->error ? 0 : -ENOMEM;
}

static int read_transfer(const cJSON *json, const char *thread, struct top_transfer *x)
{
	*x = (struct top_transfer){
		.thread = strdup(thread),
		.path = shown(json, "path"),
		.up = strcmp(string(json, "direction"), "up") == 0,
		.moved = number(json, "moved", 0),
		.total = number(json, "total", -1),
		.rate = number(json, "bytes_per_s", 0),
		.left_s = number(json, "seconds_left", -1),
	};
	return x->thread && x->path ? 0 : -ENOMEM;
}

static int add_transfers(struct top_view *v, const cJSON *thread, const char *name)
{
	const cJSON *list = member(thread, "transfers"), *item;
	int r = 0;

	cJSON_ArrayForEach (item, list) {
		struct top_transfer *more =
			reallocarray(v->transfers, v->ntransfers + 1, sizeof(*more));

		if (!more)
			return -ENOMEM;
		v->transfers = more;
		r = read_transfer(item, name, &v->transfers[v->ntransfers++]);
		if (r < 0)
			break;
	}
	return r;
}

static int read_threads(const cJSON *json, struct top_view *v)
{
	const cJSON *list = member(json, "threads"), *item;
	const char *user = string(json, "user");
	size_t size = (size_t)MAX(cJSON_GetArraySize(list), 0);
	int r = 0;

	v->threads = calloc(size + 1, sizeof(*v->threads));
	if (!v->threads)
		return -ENOMEM;
	cJSON_ArrayForEach (item, list) {
		struct top_thread *t = &v->threads[v->nthreads++];

		r = read_thread(item, user, t);
		if (r == 0)
			r = add_transfers(v, item, t->name);
		if (r < 0)
			break;
	}
	return r;
}

/* ---- totals ---- */

static char *states_of(const cJSON *totals)
{
	const cJSON *states = member(totals, "states"), *item;
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	cJSON_ArrayForEach (item, states) {
		if (!cJSON_IsNumber(item) || item->valuedouble <= 0 || !item->string)
			continue;
		buf_printf(&b, "%s%.0f ", b.len > 0 ? ", " : "", item->valuedouble);
		text_escape(&b, item->string, TEXT_MAX);
	}
	buf_puts(&b, "");
	return b.error ? NULL : STEAL(b.data);
}

/* The bounds are compiled in; a mount of another version may have others. */
static void read_times(const cJSON *latency, const char *name, struct histogram *h)
{
	const cJSON *list = member(latency, name), *item;
	size_t i = 0;

	if (cJSON_GetArraySize(list) != HISTOGRAM_BOUNDS + 1)
		return;
	cJSON_ArrayForEach (item, list) {
		double n = cJSON_IsNumber(item) && item->valuedouble > 0 ? item->valuedouble : 0;

		h->counts[i++] = n < 1e18 ? (uint64_t)n : 0;
		h->count += h->counts[i - 1];
	}
}

static void read_totals(const cJSON *t, struct top_view *v)
{
	const cJSON *cache = member(t, "cache"), *latency = member(t, "latency");

	v->states = states_of(t);
	v->open_files = number(t, "open_files", 0);
	v->waiting = number(t, "waiting", 0);
	v->commands = number(t, "commands", 0);
	v->requests = number(t, "requests", 0);
	v->errors = number(t, "errors", 0);
	v->remote_failed = number(t, "remote_failed", 0);
	v->bytes_down = number(t, "bytes_down", 0);
	v->bytes_up = number(t, "bytes_up", 0);
	v->pending_files = number(t, "pending_files", 0);
	v->pending_bytes = number(t, "pending_bytes", 0);
	v->cache_used = number(t, "cache_used", 0);
	v->cache_size = number(t, "cache_size", 0);
	v->memory_used = number(t, "memory_used", 0);
	v->memory = number(t, "memory", 0);
	for (size_t i = 0; i < TOP_CACHES; i++) {
		const cJSON *c = member(cache, top_cache_names[i]);

		v->hits[i] = number(c, "hits", 0);
		v->misses[i] = number(c, "misses", 0);
	}
	read_times(latency, "requests", &v->request_times);
	read_times(latency, "sandbox", &v->sandbox_times);
}

/* ---- all of it ---- */

int top_view_read(char *text, size_t len, struct top_view *ret)
{
	struct top_view v CLEANUP_TOP_VIEW = { .taken_us = clock_us() };
	cJSON *json CLEANUP_JSON = NULL;
	int r = json_parse(text, len, &json, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : -EINVAL;
	if (!cJSON_IsObject(json) || !cJSON_IsArray(member(json, "threads")))
		return -EINVAL;
	v.version = shown(json, "version");
	v.source = shown(json, "source");
	v.mountpoint = shown(json, "mountpoint");
	v.uptime_s = number(json, "uptime_s", 0);
	read_totals(member(json, "totals"), &v);
	if (!v.version || !v.source || !v.mountpoint || !v.states)
		return -ENOMEM;
	r = read_threads(json, &v);
	if (r < 0)
		return r;
	*ret = v;
	v = (struct top_view){ 0 };
	return 0;
}

void top_view_release(struct top_view *v)
{
	for (size_t i = 0; i < v->nthreads; i++)
		release_thread(&v->threads[i]);
	for (size_t i = 0; i < v->ntransfers; i++) {
		free(v->transfers[i].thread);
		free(v->transfers[i].path);
	}
	free(v->threads);
	free(v->transfers);
	free(v->states);
	free(v->version);
	free(v->source);
	free(v->mountpoint);
	*v = (struct top_view){ 0 };
}

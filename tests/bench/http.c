/*
 * What curl needs for the workloads of scripts/bench mount: the requests that
 * bring the same bytes, one after another on one connection or so many in
 * flight. "SECONDS CHECK" on one line of stdout, as bench_files. One thread.
 */
#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bench.h"
#include "buf.h"
#include "offsets.h"
#include "util.h"

enum {
	MOST_IN_FLIGHT = 64,
	BUFFER = 102400, /* as in the command curl */
};

enum kind { GET, PIECE, FIRST, LIST, PUT };

struct job {
	struct job *next;
	enum kind kind;
	char *path;    /* in the sandbox */
	char *source;  /* PUT: the local file */
	uint64_t from; /* PIECE */
};

struct transfer {
	CURL *curl;
	struct job *job; /* NULL: idle */
	struct curl_slist *headers;
	curl_mime *mime;
	struct buf body;
};

static const char *server;
static const char *base_url = "http://sandbox";
static unsigned in_flight = 1;
static bool walk; /* files in listings are downloaded */
static CURLM *multi;
static struct transfer transfers[MOST_IN_FLIGHT];
static struct job *queue, **queue_end = &queue;
static uint64_t check;

static struct job *add_job(enum kind kind, const char *path)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job || !(job->path = strdup(path)))
		die("no memory");
	job->kind = kind;
	*queue_end = job;
	queue_end = &job->next;
	return job;
}

static void free_job(struct job *job)
{
	free(job->path);
	free(job->source);
	free(job);
}

/* ---- answers ---- */

static size_t on_data(char *bytes, size_t size, size_t n, void *ctx)
{
	struct transfer *t = ctx;

	switch (t->job->kind) {
	case GET:
		check += size * n;
		break;
	case PIECE:
		check += offsets_sum((unsigned char *)bytes, size * n);
		break;
	case FIRST:
		check = (unsigned char)bytes[0];
		return 0; /* that was all */
	case LIST:
	case PUT:
		buf_append(&t->body, bytes, size * n);
		break;
	}
	return size * n;
}

static void on_listing(struct transfer *t)
{
	cJSON *root = cJSON_ParseWithLength(t->body.data, t->body.len);
	cJSON *files = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "data"), "files"), *file;

	if (!cJSON_IsArray(files))
		die("no listing of %s: %.200s", t->job->path, (char *)t->body.data);
	cJSON_ArrayForEach (file, files) {
		const char *path = cJSON_GetStringValue(cJSON_GetObjectItem(file, "path"));

		if (!path)
			die("a listing without paths");
		if (!walk)
			check++;
		if (cJSON_IsTrue(cJSON_GetObjectItem(file, "is_directory")))
			add_job(LIST, path);
		else if (walk)
			add_job(GET, path);
	}
	cJSON_Delete(root);
}

static void on_upload(struct transfer *t)
{
	cJSON *root = cJSON_ParseWithLength(t->body.data, t->body.len);

	if (!cJSON_IsTrue(cJSON_GetObjectItem(root, "success")))
		die("no upload of %s: %.200s", t->job->path, (char *)t->body.data);
	cJSON_Delete(root);
	check++;
}

static void on_done(struct transfer *t, CURLcode result)
{
	long status = 0;

	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK && !(t->job->kind == FIRST && result == CURLE_WRITE_ERROR))
		die("%s: %s", t->job->path, curl_easy_strerror(result));
	if (status != (t->job->kind == PIECE ? 206 : 200))
		die("%s: status %ld", t->job->path, status);
	if (t->job->kind == LIST)
		on_listing(t);
	else if (t->job->kind == PUT)
		on_upload(t);
	curl_multi_remove_handle(multi, t->curl);
	curl_slist_free_all(t->headers);
	curl_mime_free(t->mime);
	t->headers = NULL;
	t->mime = NULL;
	free_job(t->job);
	t->job = NULL;
}

/* ---- requests ---- */

static void set_download(struct transfer *t)
{
	char *path = curl_easy_escape(t->curl, t->job->path, 0), *url = NULL, range[64];

	if (!path || asprintf(&url, "%s/v1/file/download?path=%s", base_url, path) < 0)
		die("no memory");
	curl_easy_setopt(t->curl, CURLOPT_URL, url);
	if (t->job->kind == PIECE) {
		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, t->job->from,
			 t->job->from + OFFSETS_PIECE - 1);
		curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
	}
	free(url);
	curl_free(path);
}

static void set_url(struct transfer *t, const char *route)
{
	char url[512];

	snprintf(url, sizeof(url), "%s%s", base_url, route);
	curl_easy_setopt(t->curl, CURLOPT_URL, url);
}

static void set_list(struct transfer *t)
{
	cJSON *root = cJSON_CreateObject();
	char *text;

	cJSON_AddStringToObject(root, "path", t->job->path);
	cJSON_AddTrueToObject(root, "include_permissions");
	text = cJSON_PrintUnformatted(root);
	if (!text)
		die("no memory");
	set_url(t, "/v1/file/list");
	t->headers = curl_slist_append(NULL, "Content-Type: application/json");
	curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
	curl_easy_setopt(t->curl, CURLOPT_COPYPOSTFIELDS, text);
	cJSON_free(text);
	cJSON_Delete(root);
}

static void set_put(struct transfer *t)
{
	curl_mimepart *part;

	set_url(t, "/v1/file/upload");
	t->mime = curl_mime_init(t->curl);
	part = curl_mime_addpart(t->mime);
	curl_mime_name(part, "path");
	curl_mime_data(part, t->job->path, CURL_ZERO_TERMINATED);
	part = curl_mime_addpart(t->mime);
	curl_mime_name(part, "file");
	if (curl_mime_filedata(part, t->job->source) != CURLE_OK)
		die("cannot read %s", t->job->source);
	curl_easy_setopt(t->curl, CURLOPT_MIMEPOST, t->mime);
	/* Small ones would wait for a 100 that nobody needs. */
	t->headers = curl_slist_append(NULL, "Expect:");
	curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
}

static void start(struct transfer *t, struct job *job)
{
	t->job = job;
	if (!t->curl && !(t->curl = curl_easy_init()))
		die("no curl");
	curl_easy_reset(t->curl);
	buf_reset(&t->body);
	if (server[0] == '/')
		curl_easy_setopt(t->curl, CURLOPT_UNIX_SOCKET_PATH, server);
	curl_easy_setopt(t->curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->curl, CURLOPT_BUFFERSIZE, (long)BUFFER);
	curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->curl, CURLOPT_PRIVATE, t);
	if (job->kind == LIST)
		set_list(t);
	else if (job->kind == PUT)
		set_put(t);
	else
		set_download(t);
	curl_multi_add_handle(multi, t->curl);
}

static unsigned start_what_fits(void)
{
	unsigned active = 0;

	for (unsigned i = 0; i < in_flight; i++) {
		if (!transfers[i].job && queue) {
			struct job *job = queue;

			queue = job->next;
			if (!queue)
				queue_end = &queue;
			job->next = NULL;
			start(&transfers[i], job);
		}
		active += transfers[i].job != NULL;
	}
	return active;
}

/* Runs the queue, and what its answers add to it, to its end. */
static void run(void)
{
	double began = now_s();
	CURLMsg *msg;
	int running, left;

	multi = curl_multi_init();
	curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)in_flight);
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)in_flight);
	while (start_what_fits()) {
		bool ended = false;

		curl_multi_perform(multi, &running);
		while ((msg = curl_multi_info_read(multi, &left))) {
			struct transfer *t;

			if (msg->msg != CURLMSG_DONE)
				continue;
			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
			on_done(t, msg->data.result);
			ended = true;
		}
		if (!ended)
			curl_multi_poll(multi, NULL, 0, 1000, NULL);
	}
	printf("%.6f %" PRIu64 "\n", now_s() - began, check);
}

/* ---- workloads ---- */

/* read PATH…: the bytes of all. */
static void bench_read(int count, char **paths)
{
	for (int i = 0; i < count; i++)
		add_job(GET, paths[i]);
}

/* first PATH: the first byte. */
static void bench_first(int count UNUSED, char **args)
{
	add_job(FIRST, args[0]);
}

/* random PATH SIZE COUNT: pieces of 4 KiB. */
static void bench_random(int count UNUSED, char **args)
{
	unsigned long pieces = strtoul(args[2], NULL, 10);
	struct offsets offsets;

	offsets_init(&offsets, strtoull(args[1], NULL, 10));
	for (unsigned long i = 0; i < pieces; i++)
		add_job(PIECE, args[0])->from = offsets_next(&offsets);
}

/* list DIR: everything below, a request per directory; the number of entries. */
static void bench_list(int count UNUSED, char **args)
{
	add_job(LIST, args[0]);
}

/* walk DIR: the same, and the files' bytes. */
static void bench_walk(int count UNUSED, char **args)
{
	walk = true;
	add_job(LIST, args[0]);
}

static const char *put_from, *put_to;

static int add_put(const char *path, const struct stat *st UNUSED, int type, struct FTW *ftw UNUSED)
{
	char *to = NULL;
	struct job *job;

	if (type != FTW_F)
		return 0;
	if (asprintf(&to, "%s%s", put_to, path + strlen(put_from)) < 0)
		die("no memory");
	job = add_job(PUT, to);
	job->source = strdup(path);
	free(to);
	return 0;
}

/* put SOURCE PATH: a file, or all files of a directory; how many. */
static void bench_put(int count UNUSED, char **args)
{
	put_from = args[0];
	put_to = args[1];
	if (nftw(put_from, add_put, 16, FTW_PHYS) < 0)
		die("%s: %m", put_from);
}

static const struct {
	const char *name;
	int args; /* at least */
	void (*prepare)(int count, char **args);
} workloads[] = {
	{ "read", 1, bench_read }, { "first", 1, bench_first }, { "random", 3, bench_random },
	{ "list", 1, bench_list }, { "walk", 1, bench_walk },   { "put", 2, bench_put },
};

int main(int argc, char **argv)
{
	if (argc > 3)
		in_flight = (unsigned)strtoul(argv[1], NULL, 10);
	if (in_flight < 1 || in_flight > MOST_IN_FLIGHT)
		die("from 1 to %d in flight", MOST_IN_FLIGHT);
	for (size_t i = 0; argc > 3 && i < ARRAY_SIZE(workloads); i++) {
		if (strcmp(argv[3], workloads[i].name) || argc - 4 < workloads[i].args)
			continue;
		server = argv[2];
		if (server[0] != '/')
			base_url = server;
		curl_global_init(CURL_GLOBAL_DEFAULT);
		workloads[i].prepare(argc - 4, argv + 4);
		run();
		return 0;
	}
	die("usage: bench_http IN-FLIGHT SOCKET|URL WORKLOAD ARGUMENT…");
}

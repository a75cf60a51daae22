/*
 * The control files that tell what there is, over a real provider: complete, true
 * to the state, well-formed, and harmless whatever a sandbox has said.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "ctl.h"
#include "fsrig.h"
#include "io.h"
#include "stage.h"
#include "utf8.h"

#define NASTY "\x1b[2Jgone\nTHREAD \xff \"quoted\" \\ \xc2\x9b"

/* ---- opening ---- */

struct look {
	struct fsrig *r;
	const struct ctl_file *file;
	bool of_thread;
	struct buf text;
	int error;
};

static void render(void *ctx)
{
	struct look *l = ctx;
	struct ctl_open o = {
		.file = l->file,
		.fs = &l->r->fs,
		.thread = l->of_thread ? l->r->thread : NULL,
	};

	l->error = l->file->render(&o, &l->text);
}

/* For the caller to free. */
static char *read_file(struct fsrig *r, const struct ctl_file *file, bool of_thread)
{
	struct look l = { .r = r, .file = file, .of_thread = of_thread };

	assert_non_null(file->render);
	assert_int_equal(file->mode, 0444);
	fsrig_run(r, render, &l);
	assert_int_equal(l.error, 0);
	if (!l.text.data)
		assert_int_equal(buf_puts(&l.text, ""), 0);
	assert_int_equal(strlen(l.text.data), l.text.len);
	return l.text.data;
}

static cJSON *read_json(struct fsrig *r, const struct ctl_file *file, bool of_thread)
{
	char *text CLEANUP_FREE = read_file(r, file, of_thread);
	cJSON *json = cJSON_ParseWithOpts(text, NULL, 1);

	if (!json)
		fail_msg("not JSON: %s", text);
	assert_true(utf8_valid(text, strlen(text)));
	/* one line, so that tools can follow it */
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	return json;
}

static const cJSON *member(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	if (!item)
		fail_msg("there is no %s", name);
	return item;
}

static const char *string(const cJSON *object, const char *name)
{
	const cJSON *item = member(object, name);

	if (!cJSON_IsString(item))
		fail_msg("%s is no string", name);
	return item->valuestring;
}

static double number(const cJSON *object, const char *name)
{
	const cJSON *item = member(object, name);

	if (!cJSON_IsNumber(item))
		fail_msg("%s is no number", name);
	return item->valuedouble;
}

static bool is_null(const cJSON *object, const char *name)
{
	return cJSON_IsNull(member(object, name));
}

/* ISO 8601, UTC. */
static void assert_time(const cJSON *object, const char *name)
{
	const char *text = string(object, name);
	static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";

	assert_int_equal(strlen(text), strlen(form));
	for (size_t i = 0; form[i]; i++) {
		if (form[i] == 'd')
			assert_in_range(text[i], '0', '9');
		else
			assert_int_equal(text[i], form[i]);
	}
}

static void start_sandbox(struct fsrig *r)
{
	fsrig_put(r, fsrig_node(r, "workspace"));
}

/* ---- one thread ---- */

static void cold_thread_is_told_without_starting_it(void **state)
{
	struct fsrig *r = *state;
	cJSON *json = read_json(r, &ctl_thread_status_json, true);
	static const char *const nulls[] = { "url",        "dialect",       "pid",
					     "created_at", "last_activity", "last_error" };

	assert_string_equal(string(json, "thread"), "t");
	assert_string_equal(string(json, "user"), "u");
	assert_string_equal(string(json, "sandbox_id"), tenant_id(r->thread->tenant));
	assert_string_equal(string(json, "state"), "cold");
	assert_string_equal(string(json, "backend"), "test");
	assert_string_equal(string(json, "watch"), "off");
	assert_true(number(json, "leases") == 0);
	assert_true(number(json, "open_files") == 0);
	assert_true(number(json, "restarts") == 0);
	for (size_t i = 0; i < ARRAY_SIZE(nulls); i++)
		assert_true(is_null(json, nulls[i]));
	assert_int_equal(cJSON_GetArraySize(member(json, "pending")), 0);
	assert_int_equal(cJSON_GetArraySize(member(json, "transfers")), 0);
	cJSON_Delete(json);
	assert_int_equal(rig_state(r->thread->tenant), TENANT_COLD);
	assert_int_equal(rig_processes(r->rig), 0);
}

/* What the mount asks the server by itself has a lease, too, for a moment. */
static cJSON *read_settled(struct fsrig *r, int leases)
{
	int64_t end = clock_ms() + 20000;

	for (;;) {
		cJSON *json = read_json(r, &ctl_thread_status_json, true);

		if (number(json, "leases") == leases || clock_ms() > end)
			return json;
		cJSON_Delete(json);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
}

static void take_lease(void *ctx)
{
	struct fsrig *r = ctx;

	if (thread_lease(r->thread) < 0)
		abort();
}

static void give_lease(void *ctx)
{
	struct fsrig *r = ctx;

	thread_unlease(r->thread);
}

static void active_thread_is_told_in_full(void **state)
{
	struct fsrig *r = *state;
	struct tenant *t = r->thread->tenant;
	char url[512];
	cJSON *json;

	start_sandbox(r);
	fsrig_run(r, take_lease, r);
	snprintf(url, sizeof(url), "unix:%s", rig_run_path(r->rig, t, "sock"));
	r->thread->open_files = 3; /* nothing else runs */
	json = read_settled(r, 2);
	r->thread->open_files = 0;
	fsrig_run(r, give_lease, r);
	assert_string_equal(string(json, "state"), "active");
	assert_true(number(json, "leases") == 2);
	assert_true(number(json, "open_files") == 3);
	assert_string_equal(string(json, "url"), url);
	assert_true(number(json, "pid") == rig_pid(r->rig, tenant_id(t)));
	assert_time(json, "created_at");
	assert_time(json, "last_activity");
	assert_true(is_null(json, "last_error"));
	cJSON_Delete(json);
	json = read_settled(r, 1);
	assert_true(number(json, "leases") == 1);
	cJSON_Delete(json);
}

static void fail_thread(void *ctx)
{
	struct fsrig *r = ctx;

	thread_failed(r->thread, "upload of x", -ETIMEDOUT, NASTY);
}

/* The last error is the later one: the mount's own or the provider's. */
static void last_error_is_the_last(void **state)
{
	struct fsrig *r = *state;
	const cJSON *error;
	cJSON *json;

	FAULTY_ORDER(r->rig->faults, ASK_CREATE, .fault = FAULT_FAIL, .error = -EIO,
		     .why = "no disk");
	assert_int_equal(rig_acquire(r->thread->tenant), -EIO);
	assert_true(rig_wait_state(r->thread->tenant, TENANT_FAILED));
	json = read_json(r, &ctl_thread_status_json, true);
	assert_string_equal(string(json, "state"), "failed");
	error = member(json, "last_error");
	assert_string_equal(string(error, "errno"), "EIO");
	assert_string_equal(string(error, "message"), "no disk");
	assert_time(error, "at");
	cJSON_Delete(json);

	fsrig_run(r, fail_thread, r);
	json = read_json(r, &ctl_thread_status_json, true);
	error = member(json, "last_error");
	assert_string_equal(string(error, "errno"), "ETIMEDOUT");
	assert_non_null(strstr(string(error, "message"), "\x1b[2Jgone\nTHREAD \xef\xbf\xbd"));
	cJSON_Delete(json);
}

static void lose_thread(void *ctx)
{
	struct fsrig *r = ctx;

	thread_failed(r->thread, "the sandbox", -ECONNREFUSED, NULL);
}

static void give_up_thread(void *ctx)
{
	struct fsrig *r = ctx;

	thread_given_up(r->thread);
}

/* Whether status has this as the last error; NULL: none. */
static void assert_last_error(struct fsrig *r, const char *name)
{
	cJSON *json = read_json(r, &ctl_thread_status_json, true);

	if (name)
		assert_string_equal(string(member(json, "last_error"), "errno"), name);
	else
		assert_true(is_null(json, "last_error"));
	cJSON_Delete(json);
}

/* That a sandbox could not be reached is no error of one that was given up since. */
static void given_up_is_no_error(void **state)
{
	struct fsrig *r = *state;

	fsrig_run(r, lose_thread, r);
	assert_last_error(r, "ECONNREFUSED");
	fsrig_run(r, give_up_thread, r);
	assert_last_error(r, NULL);
	fsrig_run(r, lose_thread, r);
	assert_last_error(r, "ECONNREFUSED");
	fsrig_run(r, fail_thread, r);
	fsrig_run(r, give_up_thread, r);
	assert_last_error(r, "ETIMEDOUT");
}

struct staging {
	struct node *n;
	struct stage *stage;
	struct transfer up, down;
};

static void begin_staging(void *ctx)
{
	struct staging *s = ctx;

	if (stage_new(s->n, STAGE_EMPTY, 0644, &s->stage) < 0 ||
	    stage_write(s->stage, 0, "not yet there", 13, false) < 0)
		abort();
	transfer_begin(&s->up, s->n->thread, s->n, true, 13);
	transfer_begin(&s->down, s->n->thread, s->n, false, -1);
	transfer_moved(&s->up, 5);
}

static void end_staging(void *ctx)
{
	struct staging *s = ctx;

	transfer_end(&s->up);
	transfer_end(&s->down);
	stage_orphan(s->stage);
}

static bool is_clean(void *ctx)
{
	struct staging *s = ctx;

	return stage_is_clean(s->stage);
}

static void free_stage(void *ctx)
{
	struct staging *s = ctx;

	stage_free(s->stage);
}

/* What is not in the sandbox yet, and what is on its way. */
static void pending_and_transfers(void **state)
{
	struct fsrig *r = *state;
	struct staging s = { .n = fsrig_node(r, "workspace/\x1b new") };
	const cJSON *list, *item;
	cJSON *json, *mount;
	char *text;

	fsrig_run(r, begin_staging, &s);
	json = read_json(r, &ctl_thread_status_json, true);
	mount = read_json(r, &ctl_fs_status_json, false);

	list = member(json, "pending");
	assert_int_equal(cJSON_GetArraySize(list), 1);
	item = cJSON_GetArrayItem(list, 0);
	assert_string_equal(string(item, "path"), "workspace/\x1b new");
	assert_true(number(item, "bytes") > 0);
	assert_true(number(member(mount, "totals"), "pending_files") == 1);
	assert_true(number(member(mount, "totals"), "pending_bytes") == number(item, "bytes"));
	list = member(cJSON_GetArrayItem(member(mount, "threads"), 0), "pending");
	assert_int_equal(cJSON_GetArraySize(list), 1);

	list = member(json, "transfers");
	assert_true(cJSON_GetArraySize(list) >= 2); /* the stage may have one of its own */
	item = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 2);
	assert_string_equal(string(item, "direction"), "up");
	assert_string_equal(string(item, "path"), "workspace/\x1b new");
	assert_true(number(item, "moved") == 5);
	assert_true(number(item, "total") == 13);
	item = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
	assert_string_equal(string(item, "direction"), "down");
	assert_true(is_null(item, "total"));
	assert_true(is_null(item, "seconds_left"));
	cJSON_Delete(json);
	cJSON_Delete(mount);

	text = read_file(r, &ctl_thread_status, true);
	assert_non_null(strstr(text, "workspace/\\x1b new  "));
	assert_null(strchr(text, '\x1b'));
	free(text);
	text = read_file(r, &ctl_fs_status, false);
	assert_non_null(strstr(text, "not in the sandbox yet: 1 file, "));
	free(text);
	text = read_file(r, &ctl_transfers, true);
	assert_non_null(strstr(text, "up\tworkspace/\\x1b new\t5\t13\t"));
	free(text);

	fsrig_run(r, end_staging, &s);
	assert_true(fsrig_wait(r, is_clean, &s));
	fsrig_run(r, free_stage, &s);
	json = read_json(r, &ctl_thread_status_json, true);
	assert_int_equal(cJSON_GetArraySize(member(json, "pending")), 0);
	assert_int_equal(cJSON_GetArraySize(member(json, "transfers")), 0);
	cJSON_Delete(json);
	fsrig_put(r, s.n);
}

/* ---- the mount ---- */

struct guest {
	struct fsrig *r;
	struct thread *thread;
};

static void get_guest(void *ctx)
{
	struct guest *g = ctx;

	if (thread_get(&g->r->fs, "only-asked-for", &g->thread) < 0)
		abort();
}

static void put_guest(void *ctx)
{
	struct guest *g = ctx;

	thread_unref(g->thread);
}

/* All that there is, but not names that somebody has only looked for. */
static void mount_status_has_all_threads(void **state)
{
	struct fsrig *r = *state;
	struct tenant *theirs = rig_tenant_of(r->rig->provider, "v", "theirs");
	struct guest g = { .r = r };
	char mountpoint[] = "/somewhere/\x1b", source[] = "embedded:";
	const cJSON *threads, *totals;
	cJSON *json;
	char *text;

	r->opt.mountpoint = mountpoint;
	r->opt.source_text = source;
	fsrig_run(r, get_guest, &g);
	start_sandbox(r);
	assert_int_equal(rig_acquire(theirs), 0);
	assert_int_equal(tenant_release(theirs), 0);
	json = read_json(r, &ctl_fs_status_json, false);
	assert_string_equal(string(json, "version"), THREADFS_VERSION);
	assert_string_equal(string(json, "source"), source);
	assert_string_equal(string(json, "mountpoint"), mountpoint);
	assert_true(number(json, "uptime_s") >= 0);
	assert_time(json, "started_at");
	threads = member(json, "threads");
	assert_int_equal(cJSON_GetArraySize(threads), 2);
	assert_string_equal(string(cJSON_GetArrayItem(threads, 0), "thread"), "t");
	assert_string_equal(string(cJSON_GetArrayItem(threads, 0), "state"), "active");
	assert_string_equal(string(cJSON_GetArrayItem(threads, 1), "thread"), "theirs");
	assert_string_equal(string(cJSON_GetArrayItem(threads, 1), "user"), "v");
	assert_string_equal(string(cJSON_GetArrayItem(threads, 1), "state"), "warm");
	totals = member(json, "totals");
	assert_true(number(totals, "threads") == 2);
	assert_true(number(member(totals, "states"), "active") == 1);
	assert_true(number(member(totals, "states"), "warm") == 1);
	assert_true(number(member(totals, "states"), "cold") == 0);
	assert_true(number(totals, "cache_size") == (double)(4 * GIB));
	assert_true(number(totals, "memory_used") == 0);
	assert_true(number(totals, "remote") >= 0);
	cJSON_Delete(json);

	text = read_file(r, &ctl_fs_status, false);
	assert_non_null(strstr(text, "\nt         active"));
	assert_non_null(strstr(text, "\nv/theirs  warm"));
	assert_non_null(strstr(text, "\n2 threads: 1 active, 1 warm\n"));
	assert_non_null(strstr(text, "embedded: on /somewhere/\\x1b, up "));
	assert_null(strstr(text, "only-asked-for"));
	free(text);
	fsrig_run(r, put_guest, &g);
	tenant_put(theirs);
}

/* Whatever a sandbox said: one line per thread, and nothing that a terminal would obey. */
static void table_is_harmless(void **state)
{
	struct fsrig *r = *state;
	const char *before = "t       cold   0       0     -        -          ETIMEDOUT ";
	char *text, *line, *rest;
	unsigned lines = 0;

	fsrig_run(r, fail_thread, r);
	text = rest = read_file(r, &ctl_fs_status, false);
	assert_true(utf8_valid(text, strlen(text)));
	line = strsep(&rest, "\n");
	assert_string_equal(line, "THREAD  STATE  LEASES  OPEN  SANDBOX  LAST-USED  ERROR");
	line = strsep(&rest, "\n");
	assert_memory_equal(line, before, strlen(before));
	line += strlen(before);
	line += strspn(line, "0123456789"); /* how old it is */
	assert_string_equal(line, "s ago: upload of "
				  "x: \\x1b[2Jgone\\x0aTHREAD \\xff \"quoted\" \\ \\xc2\\x9b");
	assert_string_equal(strsep(&rest, "\n"), "");
	assert_string_equal(strsep(&rest, "\n"), "1 thread: 1 cold");
	while ((line = strsep(&rest, "\n"))) {
		lines++;
		for (; *line; line++)
			assert_true((unsigned char)*line >= 0x20);
	}
	assert_in_range(lines, 3, 10);
	free(text);
}

/* ---- metrics ---- */

static bool is_name(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (!(s[i] >= 'a' && s[i] <= 'z') && s[i] != '_')
			return false;
	}
	return len > 9 && strncmp(s, "threadfs_", 9) == 0;
}

/* As Prometheus reads it: HELP, TYPE, then values of that name; no value twice. */
static void metrics_are_well_formed(void **state)
{
	struct fsrig *r = *state;
	char *text, *rest, *line, name[128] = "";
	unsigned metrics = 0, values = 0;
	bool counter = false;

	start_sandbox(r);
	text = read_file(r, &ctl_fs_metrics, false);
	assert_non_null(strstr(text, "\nthreadfs_threads{state=\"active\"} 1\n"));
	assert_non_null(
		strstr(text, "\nthreadfs_thread_restarts_total{thread=\"t\",user=\"u\"} 0\n"));
	assert_non_null(strstr(text, "\nthreadfs_cache_limit_bytes 4294967296\n"));
	for (rest = text; (line = strsep(&rest, "\n")) && *line;) {
		size_t len;
		char *end;

		if (strncmp(line, "# HELP ", 7) == 0) {
			len = strcspn(line + 7, " ");
			assert_true(is_name(line + 7, len) && len < sizeof(name));
			assert_true(strlen(line + 7) > len + 1);
			snprintf(name, sizeof(name), "%.*s", (int)len, line + 7);
			line = strsep(&rest, "\n");
			assert_true(strncmp(line, "# TYPE ", 7) == 0);
			assert_true(strncmp(line + 7, name, len) == 0);
			counter = strcmp(line + 7 + len, " counter") == 0;
			if (!counter && strcmp(line + 7 + len, " histogram") != 0)
				assert_string_equal(line + 7 + len, " gauge");
			assert_int_equal(counter, strcmp(name + len - 6, "_total") == 0);
			metrics++;
			values = 0;
			continue;
		}
		len = strcspn(line, "{ ");
		/* a histogram's have suffixes: tests/lib/promlint.py knows more of them */
		assert_true(strncmp(line, name, strlen(name)) == 0);
		assert_true(line[strlen(name)] == '_' || len == strlen(name));
		/* without labels there is but one */
		if (line[len] != '{')
			assert_int_equal(values++, 0);
		line = line[len] == '{' ? strrchr(line, '}') + 1 : line + len;
		assert_int_equal(*line, ' ');
		assert_true(strtod(line + 1, &end) >= 0);
		assert_int_equal(*end, '\0');
	}
	assert_null(rest); /* it ended with a newline */
	assert_true(metrics > 20);
	free(text);
}

/* ---- the others ---- */

static void readme_is_short_and_true(void **state)
{
	static const char *const words[] = { "uploads",   "outputs",       "mkdir threads/",
					     ".ctl/exec", ".ctl/release",  ".ctl/status",
					     "rm -r",     "threadfs exec", "threadfs unmount" };
	struct fsrig *r = *state;
	char *text = read_file(r, &ctl_readme, false), *rest = text, *line;
	unsigned lines = 0;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		assert_non_null(strstr(text, words[i]));
	while ((line = strsep(&rest, "\n")) && rest) {
		assert_in_range(strlen(line), 0, 90);
		lines++;
	}
	assert_int_equal(lines, 30);
	free(text);
}

/* Each in other words than the one before, which is what is told. */
static void fail_often(void *ctx)
{
	struct fsrig *r = ctx;
	char words[32];

	for (int i = 0; i < 500; i++) {
		snprintf(words, sizeof(words), "failure %d", i);
		thread_failed(r->thread, "the sandbox", i % 2 ? -EIO : -ENOSPC, words);
	}
}

static void failures_in_the_log_have_a_limit(void **state)
{
	struct fsrig *r = *state;
	int log = memfd_create("log", MFD_CLOEXEC), was = dup(STDERR_FILENO);
	char text[64 * 1024] = "";
	unsigned lines = 0;

	assert_true(log >= 0 && was >= 0);
	assert_true(dup2(log, STDERR_FILENO) >= 0);
	fsrig_run(r, fail_often, r);
	assert_true(dup2(was, STDERR_FILENO) >= 0);
	assert_in_range(pread_all(log, text, sizeof(text) - 1, 0), 1, sizeof(text) - 2);
	close(log);
	close(was);
	assert_non_null(strstr(text, ": failure 29\n"));
	assert_null(strstr(text, ": failure 30\n"));
	assert_non_null(strstr(text, "more failures are not logged for a while"));
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	assert_int_equal(lines, 30 + 1);
}

static void config_keeps_secrets(void **state)
{
	struct fsrig *r = *state;
	char secret[] = "s3cret-key";
	char *text;

	r->opt.api_key = r->opt.bearer = secret;
	text = read_file(r, &ctl_fs_config, false);
	r->opt.api_key = r->opt.bearer = NULL;
	assert_null(strstr(text, secret));
	assert_non_null(strstr(text, "user=u\n"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FSRIG_EMBEDDED_TEST(cold_thread_is_told_without_starting_it),
		FSRIG_EMBEDDED_TEST(active_thread_is_told_in_full),
		FSRIG_EMBEDDED_TEST(last_error_is_the_last),
		FSRIG_EMBEDDED_TEST(given_up_is_no_error),
		FSRIG_EMBEDDED_TEST(pending_and_transfers),
		FSRIG_EMBEDDED_TEST(mount_status_has_all_threads),
		FSRIG_EMBEDDED_TEST(table_is_harmless),
		FSRIG_EMBEDDED_TEST(metrics_are_well_formed),
		FSRIG_EMBEDDED_TEST(readme_is_short_and_true),
		FSRIG_EMBEDDED_TEST(failures_in_the_log_have_a_limit),
		FSRIG_EMBEDDED_TEST(config_keeps_secrets),
	};

	return FSRIG_RUN(tests);
}

/* sandbox_watch: changes are seen, breaks are mended, nothing stays behind on the server. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../load/http.h"
#include "clock.h"
#include "io.h"

enum { PATIENCE_MS = 20000 };

static const char streams[] = "/v1/file/watch/";
static const char creation[] = "/v1/file/watch$";

/* ---- a consumer that writes down what it is told ---- */

struct note {
	enum watch_type type;
	char *relative, *old_path;
	bool is_dir;
	int64_t size;
};

struct diary {
	struct call call;
	char *root; /* what is watched */
	struct lock lock;
	pthread_cond_t cond;
	/* guarded by lock */
	unsigned live, lost;
	int lost_error;
	bool blind, early; /* lost came last; an event came while it was, or before live */
	bool wrong;        /* an event whose path is not below the root */
	struct note *notes;
	size_t len, cap;
};

static void on_live(void *ctx)
{
	struct diary *d = ctx;

	lock(&d->lock);
	d->live++;
	d->blind = false;
	pthread_cond_broadcast(&d->cond);
	unlock(&d->lock);
}

static void on_lost(void *ctx, int err)
{
	struct diary *d = ctx;

	lock(&d->lock);
	d->lost++;
	d->lost_error = err;
	d->blind = true;
	pthread_cond_broadcast(&d->cond);
	unlock(&d->lock);
}

static void on_event(void *ctx, const struct watch_event *ev)
{
	struct diary *d = ctx;
	size_t len = strlen(d->root);
	bool is_root = strcmp(ev->relative, ".") == 0;

	lock(&d->lock);
	d->early |= d->blind;
	d->wrong |= strncmp(ev->path, d->root, len) != 0 ||
		    strcmp(ev->path + len + (is_root ? 0 : 1), is_root ? "" : ev->relative) != 0;
	if (d->len == d->cap) {
		d->cap = MAX(2 * d->cap, (size_t)64);
		d->notes = realloc(d->notes, d->cap * sizeof(*d->notes));
		if (!d->notes)
			abort();
	}
	d->notes[d->len++] = (struct note){
		.type = ev->type,
		.relative = strdup(ev->relative),
		.old_path = ev->old_path ? strdup(ev->old_path) : NULL,
		.is_dir = ev->is_dir,
		.size = ev->size,
	};
	pthread_cond_broadcast(&d->cond);
	unlock(&d->lock);
}

/* On the heap, where the watch of a test that failed may still write. */
static struct diary *diary_new(const char *root, int64_t silence_ms)
{
	struct diary *d = calloc(1, sizeof(*d));
	pthread_condattr_t attr;

	assert_non_null(d);
	d->root = strdup(root);
	d->blind = true;
	lock_init(&d->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->cond, &attr);
	pthread_condattr_destroy(&attr);
	call_init(&d->call, silence_ms);
	return d;
}

/* Watches a path; the diary expects events below root. */
static struct diary *begin_at(struct sandbox *sb, const char *path, const char *root,
			      int64_t silence_ms)
{
	struct diary *d = diary_new(root, silence_ms);
	struct watch how = { .live = on_live, .lost = on_lost, .event = on_event, .ctx = d };

	sandbox_watch(sb, &d->call, path, &how);
	return d;
}

static struct diary *begin(struct sandbox *sb, const char *root)
{
	return begin_at(sb, root, root, 0);
}

static int end(struct diary *d)
{
	int r = call_wait(&d->call);

	for (size_t i = 0; i < d->len; i++) {
		free(d->notes[i].relative);
		free(d->notes[i].old_path);
	}
	free(d->notes);
	free(d->root);
	call_release(&d->call);
	pthread_cond_destroy(&d->cond);
	lock_destroy(&d->lock);
	free(d);
	return r;
}

/* Waits until the condition holds; arg and name are its own business. */
static bool wait_until(struct diary *d, bool (*holds)(const struct diary *, long, const char *),
		       long arg, const char *name)
{
	struct timespec until;
	bool ok;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_MS / 1000;
	lock(&d->lock);
	while (!(ok = holds(d, arg, name)) &&
	       pthread_cond_timedwait(&d->cond, &d->lock.mutex, &until) == 0)
		;
	unlock(&d->lock);
	return ok;
}

static bool was_live(const struct diary *d, long times, const char *name UNUSED)
{
	return d->live >= times;
}

static bool was_lost(const struct diary *d, long times, const char *name UNUSED)
{
	return d->lost >= times;
}

static bool is_noted(const struct diary *d, long type, const char *name)
{
	for (size_t i = 0; i < d->len; i++) {
		if (d->notes[i].type == (enum watch_type)type &&
		    strcmp(d->notes[i].relative, name) == 0)
			return true;
	}
	return false;
}

#define assert_live(d, times)       assert_true(wait_until((d), was_live, (times), NULL))
#define assert_lost(d, times)       assert_true(wait_until((d), was_lost, (times), NULL))
#define assert_event(d, type, name) assert_true(wait_until((d), is_noted, (type), (name)))

/* A field that the loop's thread may be about to change. */
#define SEEN(d, field)                                                                             \
	({                                                                                         \
		__typeof__((d)->field) value_;                                                     \
		lock(&(d)->lock);                                                                  \
		value_ = (d)->field;                                                               \
		unlock(&(d)->lock);                                                                \
		value_;                                                                            \
	})

/* The first such note. Its strings live as long as the diary. */
static struct note find(struct diary *d, enum watch_type type, const char *name)
{
	struct note note = { .relative = NULL };

	lock(&d->lock);
	for (size_t i = 0; i < d->len && !note.relative; i++) {
		if (d->notes[i].type == type && strcmp(d->notes[i].relative, name) == 0)
			note = d->notes[i];
	}
	unlock(&d->lock);
	assert_non_null(note.relative);
	return note;
}

static void cancel(struct diary *d)
{
	assert_false(SEEN(d, wrong));
	assert_false(SEEN(d, early));
	call_cancel(&d->call);
	assert_int_equal(end(d), -ECANCELED);
}

/* ---- the other side ---- */

static void put(const struct fixture *f, const char *name, const char *text)
{
	int fd CLEANUP_FD = open(fixture_host_path(f, name), O_WRONLY | O_CREAT | O_APPEND, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
}

/* How many watchers the server has, asked behind the proxy's back. */
static unsigned server_watchers(const struct fixture *f)
{
	static const char request[] = "GET /v1/file/watch HTTP/1.1\r\nHost: x\r\n\r\n";
	struct response r;
	struct address a;
	unsigned n = 0;

	assert_int_equal(address_set_unix(&a, daemon_socket(f->daemon)), 0);
	response_init(&r);
	assert_int_equal(http_exchange(&a, request, sizeof(request) - 1, 10000, &r), 0);
	assert_int_equal(r.status, 200);
	for (const char *s = r.body.data; (s = strstr(s, "\"watcher_id\"")); s++)
		n++;
	http_response_release(&r);
	return n;
}

static void assert_watchers(const struct fixture *f, unsigned want)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	unsigned n;

	while ((n = server_watchers(f)) != want && clock_ms() < deadline)
		usleep(5000);
	assert_int_equal(n, want);
}

/* ---- what is seen ---- */

static void test_watch_sees_every_kind_of_change(void **state)
{
	struct fixture *f = *state;
	struct note n;
	struct diary *d;

	put(f, "old", "x");
	put(f, "written", "x");
	put(f, "moved", "x");
	put(f, "changed", "x");
	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	assert_int_equal(SEEN(d, len), 0);

	put(f, "new", "12345");
	put(f, "written", "more");
	assert_int_equal(unlink(fixture_host_path(f, "old")), 0);
	assert_int_equal(rename(fixture_host_path(f, "moved"), fixture_host_path(f, "to")), 0);
	assert_int_equal(chmod(fixture_host_path(f, "changed"), 0600), 0);
	assert_int_equal(mkdir(fixture_host_path(f, "sub"), 0755), 0);
	put(f, "sub/deep", "y");
	assert_event(d, WATCH_CREATE, "new");
	assert_event(d, WATCH_WRITE, "written");
	assert_event(d, WATCH_REMOVE, "old");
	assert_event(d, WATCH_RENAME, "to");
	assert_event(d, WATCH_CHMOD, "changed");
	assert_event(d, WATCH_CREATE, "sub");
	assert_event(d, WATCH_CREATE, "sub/deep");
	n = find(d, WATCH_CREATE, "new");
	assert_int_equal(n.size, 5);
	assert_false(n.is_dir);
	assert_string_equal(find(d, WATCH_RENAME, "to").old_path, fixture_path(f, "moved"));
	assert_int_equal(find(d, WATCH_REMOVE, "old").size, -1);
	assert_true(find(d, WATCH_CREATE, "sub").is_dir);
	assert_int_equal(SEEN(d, lost), 0);
	assert_int_equal(SEEN(d, live), 1);
	cancel(d);
}

/* Nothing is excluded: not what servers leave out by default. */
static void test_watch_excludes_nothing(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = { ".git", "node_modules", ".x.swp", "y.pyc",
					     ".DS_Store" };
	struct rogue_request q;
	struct diary *d;

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(f, names[i], "x");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_event(d, WATCH_CREATE, names[i]);
	assert_true(rogue_request(f->rogue, 0, &q));
	assert_non_null(strstr(q.body, "\"exclude\":[]"));
	assert_non_null(strstr(q.body, "\"recursive\":true"));
	assert_non_null(strstr(q.body, "\"debounce\":50"));
	rogue_request_release(&q);
	cancel(d);
}

static void test_watch_names_odd_files_right(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = { " ",         "a b",          "'\"\\$`", "new\nline",
					     "cr\rtab\t", "\xe2\x82\xac", "data: x", "\x01\x7f" };
	char longest[256];
	struct diary *d;

	memset(longest, 'l', 255);
	longest[255] = '\0';
	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(f, names[i], "x");
	put(f, longest, "x");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_event(d, WATCH_CREATE, names[i]);
	assert_event(d, WATCH_CREATE, longest);
	assert_int_equal(SEEN(d, lost), 0);
	cancel(d);
}

/* JSON cannot carry such a name: the consumer is told that it has missed something. */
static void test_watch_reports_names_that_are_not_utf8_as_lost(void **state)
{
	struct fixture *f = *state;
	struct diary *d;

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	put(f, "caf\xe9", "x");
	assert_lost(d, 1);
	assert_live(d, 2);
	assert_int_equal(SEEN(d, lost_error), -EILSEQ);
	put(f, "after", "x");
	assert_event(d, WATCH_CREATE, "after");
	assert_int_equal(rogue_count(f->rogue, "GET", streams), 1);
	cancel(d);
}

static void test_watch_sees_a_thousand_files(void **state)
{
	struct fixture *f = *state;
	struct diary *d;
	char name[32];

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	assert_int_equal(mkdir(fixture_host_path(f, "sub"), 0755), 0);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "%sf%d", i % 2 ? "sub/" : "", i);
		put(f, name, "x");
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "%sf%d", i % 2 ? "sub/" : "", i);
		assert_event(d, WATCH_CREATE, name);
	}
	assert_int_equal(SEEN(d, lost), 0);
	cancel(d);
}

/* What happens from live() on is seen, however soon. */
static void test_watch_misses_nothing_after_live(void **state)
{
	struct fixture *f = *state;
	char name[32];

	for (int i = 0; i < 20; i++) {
		struct diary *d;

		snprintf(name, sizeof(name), "f%d", i);
		d = begin(f->sb, f->dir);
		assert_live(d, 1);
		put(f, name, "x");
		assert_event(d, WATCH_CREATE, name);
		cancel(d);
	}
	assert_watchers(f, 0);
}

static void test_watch_takes_a_path_with_more_slashes(void **state)
{
	struct fixture *f = *state;
	char path[160];
	struct diary *d;

	snprintf(path, sizeof(path), "/mnt/user-data/.//%s/", strrchr(f->dir, '/') + 1);
	d = begin_at(f->sb, path, f->dir, 0);
	assert_live(d, 1);
	put(f, "new", "x");
	assert_event(d, WATCH_CREATE, "new");
	assert_int_equal(SEEN(d, lost), 0);
	cancel(d);
}

/* ---- what breaks ---- */

static void test_watch_resumes_after_a_cut(void **state)
{
	struct fixture *f = *state;
	struct diary *d;
	char name[32];

	rogue_add(f->rogue, &(struct rogue_rule){ .method = "GET",
						  .path = streams,
						  .times = 5,
						  .fault = ROGUE_CUT,
						  .after = 3000 });
	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put(f, name, "x");
	}
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_event(d, WATCH_CREATE, name);
	}
	assert_int_equal(SEEN(d, lost), 0);
	assert_int_equal(SEEN(d, live), 6);
	assert_int_equal(rogue_count(f->rogue, "GET", streams), 6);
	assert_int_equal(rogue_count(f->rogue, "POST", creation), 1);
	cancel(d);
	assert_watchers(f, 0);
}

/* Nothing was seen yet: what came meanwhile is there all the same. */
static void test_watch_resumes_before_the_first_event(void **state)
{
	struct fixture *f = *state;
	struct diary *d;

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	rogue_add(f->rogue, &(struct rogue_rule){ .method = "GET",
						  .path = streams,
						  .hold_ms = ROGUE_UNTIL_RELEASED });
	rogue_close_connections(f->rogue, false);
	put(f, "meanwhile", "x");
	assert_true(rogue_wait_for(f->rogue, "GET", streams, 2, PATIENCE_MS));
	rogue_clear(f->rogue);
	rogue_release(f->rogue);
	assert_live(d, 2);
	assert_event(d, WATCH_CREATE, "meanwhile");
	assert_int_equal(SEEN(d, lost), 0);
	cancel(d);
}

/* An outage that lasts is told at once, not when it is over. */
static void test_watch_tells_of_an_outage(void **state)
{
	struct fixture *f = *state;
	struct diary *d;

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	rogue_stop_listening(f->rogue);
	rogue_close_connections(f->rogue, false);
	assert_lost(d, 1);
	assert_int_equal(SEEN(d, lost_error), -ECONNREFUSED);
	put(f, "meanwhile", "x");
	rogue_listen(f->rogue);
	assert_live(d, 2);
	assert_event(d, WATCH_CREATE, "meanwhile");
	assert_int_equal(SEEN(d, lost), 1);
	assert_int_equal(rogue_count(f->rogue, "POST", creation), 1);
	cancel(d);
}

/* A stream that has gone silent is taken for broken. */
static void test_watch_mends_a_silent_stream(void **state)
{
	struct fixture *f = *state;
	struct diary *d;

	rogue_add(f->rogue, &(struct rogue_rule){ .method = "GET",
						  .path = streams,
						  .times = 1,
						  .fault = ROGUE_STALL,
						  .after = 400 });
	d = begin_at(f->sb, f->dir, f->dir, 4000);
	assert_live(d, 1);
	put(f, "a-file-whose-event-is-longer-than-the-rest-of-what-comes-through", "x");
	assert_live(d, 2);
	assert_event(d, WATCH_CREATE,
		     "a-file-whose-event-is-longer-than-the-rest-of-what-comes-through");
	assert_int_equal(SEEN(d, lost), 0);
	cancel(d);
}

static void test_watch_survives_a_restart_of_the_server(void **state)
{
	struct fixture *f = *state;
	struct diary *d;

	fixture_own_daemon(f);
	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	put(f, "before", "x");
	assert_event(d, WATCH_CREATE, "before");
	daemon_kill(f->daemon, SIGKILL);
	assert_true(daemon_restart(f->daemon));
	assert_live(d, 2);
	assert_true(SEEN(d, lost) >= 1);
	put(f, "after", "x");
	assert_event(d, WATCH_CREATE, "after");
	assert_int_equal(server_watchers(f), 1);
	cancel(d);
	assert_watchers(f, 0);
}

/* More happened during a break than the server keeps. */
static void test_watch_reports_an_overflow(void **state)
{
	struct fixture *f = *state;
	struct diary *d;
	char name[32];

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	put(f, "first", "x");
	assert_event(d, WATCH_CREATE, "first");
	rogue_add(f->rogue, &(struct rogue_rule){ .method = "GET",
						  .path = streams,
						  .hold_ms = ROGUE_UNTIL_RELEASED });
	rogue_close_connections(f->rogue, false);
	assert_true(rogue_wait_for(f->rogue, "GET", streams, 2, PATIENCE_MS));
	for (int i = 0; i < 10500; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(mkdir(fixture_host_path(f, name), 0755), 0);
	}
	/* Another watch tells when the server is through with them. */
	rogue_clear(f->rogue);
	{
		struct diary *other;

		other = begin(f->sb, f->dir);
		assert_live(other, 1);
		put(f, "last", "x");
		assert_event(other, WATCH_CREATE, "last");
		cancel(other);
	}
	rogue_release(f->rogue);
	assert_lost(d, 1);
	assert_int_equal(SEEN(d, lost_error), -EOVERFLOW);
	assert_live(d, 3); /* that of the stream that only said overflow is one */
	put(f, "after", "x");
	assert_event(d, WATCH_CREATE, "after");
	cancel(d);
	assert_watchers(f, 0);
}

#define SSE_HEADERS "Content-Type: text/event-stream\r\n"

/* An event that cannot be read may have been any. */
static void test_watch_reports_bad_events_as_lost(void **state)
{
	struct fixture *f = *state;
	static const char *const bad[] = {
		"{",
		"[]",
		"{\"seq\":1,\"type\":\"create\",\"path\":\"/etc/x\",\"relative_path\":\"x\","
		"\"is_dir\":0}",
		"{\"seq\":1,\"type\":\"create\",\"path\":\"/mnt/user-data/../x\","
		"\"relative_path\":\"../x\",\"is_dir\":0}",
		"{\"seq\":1,\"type\":\"create\",\"path\":\"/mnt/user-data/\\ud800\","
		"\"relative_path\":\"\\ud800\",\"is_dir\":0}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *body CLEANUP_FREE = NULL;
		struct diary *d;

		assert_true(asprintf(&body,
				     "event: watch_started\ndata: {}\n\n"
				     "event: file_change\ndata: %s\n\n"
				     "event: news\ndata: of a later version\n\n",
				     bad[i]) > 0);
		rogue_clear(f->rogue);
		rogue_add(f->rogue, &(struct rogue_rule){ .method = "GET",
							  .path = streams,
							  .times = 1,
							  .action = ROGUE_ANSWER,
							  .reply = { .headers = SSE_HEADERS,
								     .body = body,
								     .unit = ": x\n\n",
								     .units = ROGUE_FOREVER },
							  .fault = ROGUE_STALL,
							  .after = strlen(body) + 100 });
		d = begin(f->sb, f->dir);
		assert_lost(d, 1);
		assert_live(d, 2);
		assert_int_equal(SEEN(d, lost_error), -EBADMSG);
		assert_int_equal(SEEN(d, len), 0);
		cancel(d);
	}
	assert_watchers(f, 0);
}

static bool was_lost_by(const struct diary *d, long err, const char *name UNUSED)
{
	return d->lost_error == err;
}

/* Events without a pause, which say nothing but have to be looked at: it is let wait. */
static void test_watch_has_a_share_of_the_time(void **state)
{
	struct fixture *f = *state;
	struct diary *d;
	unsigned live;

	rogue_add(f->rogue,
		  &(struct rogue_rule){ .method = "GET",
					.path = streams,
					.times = 1,
					.action = ROGUE_ANSWER,
					.reply = { .headers = SSE_HEADERS,
						   .body = "event: watch_started\ndata: {}\n\n",
						   .unit = "event: file_change\ndata: x\n\n",
						   .units = ROGUE_FOREVER } });
	d = begin(f->sb, f->dir);
	assert_true(wait_until(d, was_lost_by, -EOVERFLOW, NULL));
	live = SEEN(d, live);
	usleep(500000);
	assert_int_equal(SEEN(d, live), live);
	assert_true(wait_until(d, was_live, (long)live + 1, NULL));
	cancel(d);
	assert_watchers(f, 0);
}

/* Garbage instead of a stream, or one without end: tried again, later and later. */
static void test_watch_outlives_garbage(void **state)
{
	struct fixture *f = *state;
	static const struct rogue_rule garbage[] = {
		{ .action = ROGUE_ANSWER, .reply = { .body = "<html>" } },
		{ .action = ROGUE_ANSWER, .reply = { .unit = "endless ", .units = ROGUE_FOREVER } },
		{ .action = ROGUE_ANSWER, .reply = { .raw = "nonsense\r\n\r\n" } },
		{ .action = ROGUE_ANSWER, .reply = { .status = 502, .body = "<html>" } },
		{ .action = ROGUE_CLOSE },
	};
	struct diary *d;

	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		struct rogue_rule rule = garbage[i];

		rule.method = "GET";
		rule.path = streams;
		rule.times = 1;
		rogue_add(f->rogue, &rule);
	}
	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	assert_int_equal(SEEN(d, lost), 0);
	assert_int_equal(rogue_count(f->rogue, "GET", streams), 1 + ARRAY_SIZE(garbage));
	put(f, "new", "x");
	assert_event(d, WATCH_CREATE, "new");
	cancel(d);
	assert_watchers(f, 0);
}

static void test_watch_waits_for_a_server_that_is_not_there_yet(void **state)
{
	struct fixture *f = *state;
	struct diary *d;

	rogue_refuse(f->rogue, 1);
	rogue_add(f->rogue, &(struct rogue_rule){ .method = "POST",
						  .path = creation,
						  .times = 1,
						  .action = ROGUE_ANSWER,
						  .reply = { .status = 502 } });
	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	assert_int_equal(SEEN(d, lost), 0);
	assert_int_equal(rogue_count(f->rogue, "POST", creation), 2);
	cancel(d);
}

/* ---- what cannot be watched ---- */

static int refused(struct fixture *f, const char *path, const char *words)
{
	struct diary *d;
	int r;

	d = begin(f->sb, path);
	r = call_wait(&d->call);
	if (words && !(d->call.message && strstr(d->call.message, words)))
		r = 1;
	assert_int_equal(d->live + d->lost, 0);
	end(d);
	return r;
}

static void test_watch_refused(void **state)
{
	struct fixture *f = *state;
	static const struct {
		int status;
		const char *body;
		int err;
	} rows[] = {
		{ 429, "{\"detail\":{\"code\":\"WATCH_LIMIT_EXCEEDED\",\"message\":\"10\"}}",
		  -EBUSY },
		{ 429, "too many", -EBUSY },
		{ 401, "no", -EACCES },
		{ 500, "{}", -EIO },
		{ 200, "{\"data\":{}}", -EBADMSG },
		{ 200, "{\"data\":{\"watcher_id\":\"../../x\"}}", -EBADMSG },
		{ 200, "<html>", -EBADMSG },
	};

	assert_int_equal(refused(f, fixture_path(f, "missing"), "does not exist"), -ENOENT);
	assert_int_equal(refused(f, "/etc", NULL), -EACCES);
	assert_int_equal(refused(f, fixture_path(f, "caf\xe9"), "UTF-8"), -EILSEQ);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rogue_clear(f->rogue);
		rogue_answer(f->rogue, "POST", creation, rows[i].status, rows[i].body);
		assert_int_equal(refused(f, f->dir, NULL), rows[i].err);
	}
	rogue_clear(f->rogue);
	rogue_answer(f->rogue, "GET", streams, 401, "no");
	assert_int_equal(refused(f, f->dir, NULL), -EACCES);
	assert_watchers(f, 0);
}

/* The server's own limit is 10 there. */
static void test_watch_of_too_many(void **state)
{
	struct fixture *f = *state;
	struct diary *d[10];
	char names[11][8];

	if (strcmp(f->dialect, "1.9") != 0) {
		print_message("skipped: only dialect 1.9 has such a low limit\n");
		skip();
	}
	for (int i = 0; i < 11; i++) {
		snprintf(names[i], sizeof(names[i]), "d%d", i);
		assert_int_equal(mkdir(fixture_host_path(f, names[i]), 0755), 0);
	}
	for (int i = 0; i < 10; i++) {
		d[i] = begin(f->sb, fixture_path(f, names[i]));
		assert_live(d[i], 1);
	}
	assert_int_equal(refused(f, fixture_path(f, names[10]), NULL), -EBUSY);
	for (int i = 0; i < 10; i++)
		cancel(d[i]);
	assert_watchers(f, 0);
}

static void test_watch_404_is_cached_and_tells_what_to_do(void **state)
{
	struct fixture *f = *state;

	rogue_answer(f->rogue, "POST", creation, 404, "{\"detail\":\"Not Found\"}");
	assert_int_equal(refused(f, f->dir, "1.9.4"), -EOPNOTSUPP);
	assert_int_equal(refused(f, f->dir, "1.9.4"), -EOPNOTSUPP);
	assert_int_equal(rogue_count(f->rogue, "POST", creation), 1);
}

/* The real thing: dialect 1.0. */
static void test_watch_on_an_old_server(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(refused(f, f->dir, "1.9.4"), -EOPNOTSUPP);
	assert_int_equal(refused(f, f->dir, "1.9.4"), -EOPNOTSUPP);
	assert_int_equal(rogue_count(f->rogue, NULL, NULL), 1);
}

/* ---- what stays behind ---- */

static void test_watch_cancelled_deletes_its_watcher(void **state)
{
	struct fixture *f = *state;
	struct diary *d;
	int64_t start;

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	assert_int_equal(server_watchers(f), 1);
	start = clock_ms();
	cancel(d);
	assert_true(clock_ms() - start < 20000); /* it would go on for ever */
	assert_watchers(f, 0);
	assert_int_equal(rogue_count(f->rogue, "DELETE", streams), 1);
}

static void test_watch_closed_deletes_its_watcher(void **state)
{
	struct fixture *f = *state;
	struct diary *d;
	int64_t start;

	d = begin(f->sb, f->dir);
	assert_live(d, 1);
	start = clock_ms();
	sandbox_close(f->sb);
	/* At once: the farewell was waited for, unless its half second was over first. */
	if (clock_ms() - start < 400)
		assert_int_equal(server_watchers(f), 0);
	assert_watchers(f, 0);
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
	assert_int_equal(end(d), -ENOTCONN);
}

static void *close_it(void *arg)
{
	sandbox_close(arg);
	return NULL;
}

/* Before its id is known, which comes when the watch is over. */
static void interrupt_creation(struct fixture *f, bool by_close)
{
	pthread_t closer;
	struct diary *d;

	rogue_forget(f->rogue);
	rogue_clear(f->rogue);
	ROGUE_ADD(f->rogue, .method = "POST", .path = creation, .delay_ms = ROGUE_UNTIL_RELEASED);
	d = begin(f->sb, f->dir);
	assert_true(rogue_wait_for(f->rogue, "POST", creation, 1, PATIENCE_MS));
	assert_watchers(f, 1);
	if (by_close)
		assert_int_equal(pthread_create(&closer, NULL, close_it, f->sb), 0);
	else
		call_cancel(&d->call);
	assert_int_equal(end(d), by_close ? -ENOTCONN : -ECANCELED);
	rogue_release(f->rogue);
	if (by_close)
		pthread_join(closer, NULL);
	assert_watchers(f, 0);
}

static void test_watch_interrupted_at_its_creation_deletes_its_watcher(void **state)
{
	struct fixture *f = *state;

	interrupt_creation(f, false);
	interrupt_creation(f, true);
	assert_int_equal(count_sockets_to(rogue_socket(f->rogue)), 0);
}

/* A close does not wait for ever for a watcher that may be coming. */
static void test_watch_closed_while_the_server_is_silent(void **state)
{
	struct fixture *f = *state;
	int64_t start;
	struct diary *d;

	rogue_add(f->rogue, &(struct rogue_rule){ .hold_ms = ROGUE_UNTIL_RELEASED });
	d = begin(f->sb, f->dir);
	assert_true(rogue_wait_for(f->rogue, "POST", creation, 1, PATIENCE_MS));
	start = clock_ms();
	sandbox_close(f->sb);
	assert_in_range(clock_ms() - start, 400, 5000);
	assert_int_equal(end(d), -ENOTCONN);
}

static void test_watch_cycles_leave_no_watcher(void **state)
{
	struct fixture *f = *state;
	unsigned seed = 20;

	for (int i = 0; i < 10; i++) {
		struct sandbox *sb = fixture_open(f, NULL);
		struct diary *d;

		d = begin(sb, f->dir);
		assert_live(d, 1);
		sandbox_unref(sb);
		assert_int_equal(end(d), -ENOTCONN);
	}
	assert_watchers(f, 0);
	/* At any moment of its life. */
	for (int i = 0; i < 60; i++) {
		struct diary *d;

		d = begin(f->sb, f->dir);
		usleep((useconds_t)(rand_r(&seed) % 8000));
		cancel(d);
	}
	sandbox_close(f->sb); /* waits for those that were just being made */
	assert_watchers(f, 0);
}

/* The server has one watcher for both. */
static void test_watch_shared_with_another_client(void **state)
{
	struct fixture *f = *state;
	struct sandbox *other = fixture_open(f, NULL);
	struct diary *first, *second;

	first = begin(f->sb, f->dir);
	assert_live(first, 1);
	second = begin(other, f->dir);
	assert_live(second, 1);
	assert_int_equal(server_watchers(f), 1);
	put(f, "both", "x");
	assert_event(first, WATCH_CREATE, "both");
	assert_event(second, WATCH_CREATE, "both");
	sandbox_unref(other);
	assert_int_equal(end(second), -ENOTCONN);
	assert_int_equal(server_watchers(f), 1);
	put(f, "one", "x");
	assert_event(first, WATCH_CREATE, "one");
	assert_int_equal(SEEN(first, lost), 0);
	cancel(first);
	assert_watchers(f, 0);
}

/*
 * Nobody knows where the events of a watcher begin that was there before, unless
 * the server says so: a break before the first one may have hidden some.
 */
static void test_watch_that_cannot_be_resumed_is_lost(void **state)
{
	struct fixture *f = *state;
	struct sandbox *other = fixture_open(f, NULL);
	bool knows = strcmp(f->dialect, "aiod") == 0;
	struct diary *first, *second;

	first = begin(f->sb, f->dir);
	assert_live(first, 1);
	second = begin(other, f->dir);
	assert_live(second, 1);
	rogue_close_connections(f->rogue, false);
	assert_live(first, 2);
	assert_live(second, 2);
	assert_int_equal(SEEN(first, lost), 0);
	assert_int_equal(SEEN(second, lost), knows ? 0 : 1);
	put(f, "new", "x");
	assert_event(first, WATCH_CREATE, "new");
	assert_event(second, WATCH_CREATE, "new");
	cancel(first);
	cancel(second);
	sandbox_unref(other);
	assert_watchers(f, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_watch_sees_every_kind_of_change),
		FIXTURE_TEST(test_watch_excludes_nothing),
		FIXTURE_TEST(test_watch_names_odd_files_right),
		FIXTURE_TEST(test_watch_reports_names_that_are_not_utf8_as_lost),
		FIXTURE_TEST(test_watch_sees_a_thousand_files),
		FIXTURE_TEST(test_watch_misses_nothing_after_live),
		FIXTURE_TEST(test_watch_takes_a_path_with_more_slashes),
		FIXTURE_TEST(test_watch_resumes_after_a_cut),
		FIXTURE_TEST(test_watch_resumes_before_the_first_event),
		FIXTURE_TEST(test_watch_tells_of_an_outage),
		FIXTURE_TEST(test_watch_mends_a_silent_stream),
		FIXTURE_TEST(test_watch_survives_a_restart_of_the_server),
		FIXTURE_TEST(test_watch_reports_an_overflow),
		FIXTURE_TEST(test_watch_reports_bad_events_as_lost),
		FIXTURE_TEST(test_watch_has_a_share_of_the_time),
		FIXTURE_TEST(test_watch_outlives_garbage),
		FIXTURE_TEST(test_watch_waits_for_a_server_that_is_not_there_yet),
		FIXTURE_TEST(test_watch_refused),
		FIXTURE_TEST(test_watch_of_too_many),
		FIXTURE_TEST(test_watch_404_is_cached_and_tells_what_to_do),
		FIXTURE_TEST(test_watch_cancelled_deletes_its_watcher),
		FIXTURE_TEST(test_watch_closed_deletes_its_watcher),
		FIXTURE_TEST(test_watch_interrupted_at_its_creation_deletes_its_watcher),
		FIXTURE_TEST(test_watch_closed_while_the_server_is_silent),
		FIXTURE_TEST(test_watch_cycles_leave_no_watcher),
		FIXTURE_TEST(test_watch_shared_with_another_client),
		FIXTURE_TEST(test_watch_that_cannot_be_resumed_is_lost),
	};
	const struct CMUnitTest old[] = {
		FIXTURE_TEST(test_watch_on_an_old_server),
	};

	if (strcmp(getenv("TFS_DIALECT") ?: "", "1.0") == 0)
		return FIXTURE_RUN(old);
	return FIXTURE_RUN(tests);
}

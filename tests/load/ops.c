/*
 * The requests of the mixed load; what their answers must be is noted with
 * each and checked in answers.c. Every client writes below its own directory
 * WORKSPACE/mix-SEED-CLIENT; files whose last change was confirmed are read
 * back and compared byte by byte. Knows nothing of sockets.
 */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "jsonw.h"
#include "mix_i.h"

#define BOUNDARY "mixload-boundary-7d1"
/* An upload that was hung up on may still be under way: leave its name alone. */
enum { RETIRED_REST_MS = 10000 };

uint64_t client_random(struct client *c)
{
	uint64_t z = c->random += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

unsigned pick(struct client *c, unsigned n)
{
	return (unsigned)(client_random(c) % n);
}

/* Names */

static void client_dir(const struct client *c, struct buf *b)
{
	buf_printf(b, WORKSPACE "/mix-%llu-%u", (unsigned long long)c->o->seed, c->number);
}

static void numbered_path(const struct client *c, unsigned number, struct buf *b)
{
	client_dir(c, b);
	buf_printf(b, "/f%u", number);
}

static void file_path(const struct client *c, const struct file *f, struct buf *b)
{
	numbered_path(c, f->number, b);
}

/* A file that no answer depends on, for what changes text in place. */
static void notes_path(const struct client *c, struct buf *b)
{
	client_dir(c, b);
	buf_puts(b, "/notes.txt");
}

static void client_marker(struct client *c, char marker[24])
{
	snprintf(marker, 24, "m%016llx", (unsigned long long)client_random(c));
}

/* Requests */

static void put_head(struct client *c, const char *method, const char *target)
{
	buf_printf(&c->out, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, target);
	if (c->last)
		buf_puts(&c->out, "Connection: close\r\n");
}

static void put_chunked(struct client *c, const char *body, size_t len)
{
	while (len) {
		size_t most = 1 + pick(c, 100000);
		size_t n = MIN(len, most);

		buf_printf(&c->out, "%zx\r\n", n);
		buf_append(&c->out, body, n);
		buf_puts(&c->out, "\r\n");
		body += n;
		len -= n;
	}
	buf_puts(&c->out, "0\r\n\r\n");
}

static void put_body(struct client *c, const char *type, const struct buf *body)
{
	buf_printf(&c->out, "Content-Type: %s\r\n", type);
	if (pick(c, 12) == 0) {
		buf_puts(&c->out, "Transfer-Encoding: chunked\r\n\r\n");
		put_chunked(c, body->data, body->len);
		return;
	}
	if (pick(c, 16) == 0)
		buf_puts(&c->out, "Expect: 100-continue\r\n");
	buf_printf(&c->out, "Content-Length: %zu\r\n\r\n", body->len);
	buf_append(&c->out, body->data, body->len);
}

static void get(struct client *c, const char *target)
{
	put_head(c, "GET", target);
	buf_puts(&c->out, "\r\n");
}

/* A JSON body in the making; post() sends it. */
struct json_body {
	struct buf buf;
	struct jw w;
};

static void json_begin(struct json_body *j)
{
	j->buf = BUF_INIT(0);
	jw_init(&j->w, &j->buf);
	jw_obj(&j->w);
}

static void post_accepting(struct client *c, const char *target, const char *accept,
			   struct json_body *j)
{
	jw_obj_end(&j->w);
	put_head(c, "POST", target);
	if (accept)
		buf_printf(&c->out, "Accept: %s\r\n", accept);
	put_body(c, "application/json", &j->buf);
	buf_release(&j->buf);
}

static void post(struct client *c, const char *target, struct json_body *j)
{
	post_accepting(c, target, NULL, j);
}

static void json_path(struct json_body *j, const char *key, const struct client *c,
		      void (*path)(const struct client *c, struct buf *b))
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	path(c, &b);
	jw_kstr(&j->w, key, b.data);
}

static void json_file(struct json_body *j, const char *key, const struct client *c,
		      const struct file *f)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	file_path(c, f, &b);
	jw_kstr(&j->w, key, b.data);
}

static struct file *known_file(struct client *c)
{
	unsigned start = pick(c, FILES_PER_CLIENT);

	for (unsigned i = 0; i < FILES_PER_CLIENT; i++) {
		struct file *f = &c->files[(start + i) % FILES_PER_CLIENT];

		if (f->known)
			return f;
	}
	return NULL;
}

/* Mostly small, some up to the limit, some at the edges. */
static uint64_t random_size(struct client *c, uint64_t max)
{
	uint64_t around_64k = 65535 + pick(c, 3);

	switch (pick(c, 8)) {
	case 0:
		return pick(c, 2);
	case 1:
		return pick(c, (unsigned)max + 1);
	case 2:
		return MIN(max, around_64k);
	default:
		return pick(c, (unsigned)MIN(max, 16384));
	}
}

static struct file *change_file(struct client *c, struct expect *e, uint64_t max, bool text)
{
	struct file *f = &c->files[pick(c, FILES_PER_CLIENT)];

	e->file = f;
	e->content = (struct content){ .seed = client_random(c),
				       .size = random_size(c, max),
				       .text = text };
	e->flags = EXPECT_OK | EXPECT_MUTATES;
	e->verify = VERIFY_SUCCESS;
	f->known = false;
	return f;
}

/* File routes */

static void op_list(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	if (pick(c, 4) == 0)
		jw_kstr(&j.w, "path", WORKSPACE);
	else
		json_path(&j, "path", c, client_dir);
	jw_kbool(&j.w, "recursive", pick(c, 2));
	jw_kbool(&j.w, "include_permissions", pick(c, 2));
	post(c, "/v1/file/list", &j);
	e->flags = EXPECT_MAY_5XX; /* before the first write the directory is missing */
	e->verify = VERIFY_JSON;
}

static void op_read(struct client *c, struct expect *e)
{
	struct file *f = known_file(c);
	struct json_body j;

	json_begin(&j);
	if (f) {
		json_file(&j, "file", c, f);
		e->content = f->content;
		e->verify = f->content.text ? VERIFY_TEXT : VERIFY_JSON;
		e->flags = f->content.text ? EXPECT_OK : EXPECT_MAY_5XX; /* not UTF-8 */
	} else {
		jw_kstr(&j.w, "file", WORKSPACE "/no-such-file");
		e->verify = VERIFY_JSON;
		e->flags = EXPECT_MAY_5XX;
	}
	post(c, "/v1/file/read", &j);
}

static void op_write(struct client *c, struct expect *e)
{
	struct file *f = change_file(c, e, 256 * 1024, true);
	char *text CLEANUP_FREE = malloc(e->content.size + 1);
	struct json_body j;

	if (!text)
		abort();
	content_fill(&e->content, 0, text, e->content.size);
	json_begin(&j);
	json_file(&j, "file", c, f);
	jw_key(&j.w, "content");
	jw_strn(&j.w, text, e->content.size);
	post(c, "/v1/file/write", &j);
}

static void op_append(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "file", c, notes_path);
	jw_kstr(&j.w, "content", pick(c, 2) ? "bmVlZGxlCg==" : "!not base64 at all!");
	jw_kstr(&j.w, "encoding", "base64");
	jw_kbool(&j.w, "append", pick(c, 64) != 0);
	post(c, "/v1/file/write", &j);
	e->verify = VERIFY_JSON;
}

static void op_replace(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "file", c, notes_path);
	jw_kstr(&j.w, "old_str", "needle");
	jw_kstr(&j.w, "new_str", pick(c, 2) ? "pin" : "needle");
	post(c, "/v1/file/replace", &j);
	e->verify = VERIFY_JSON;
	e->flags = EXPECT_MAY_5XX;
}

static void op_search(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "file", c, notes_path);
	jw_kstr(&j.w, "regex", pick(c, 8) ? "n[e]+dle" : "(unclosed");
	post(c, "/v1/file/search", &j);
	e->verify = VERIFY_JSON;
	e->flags = EXPECT_MAY_5XX;
}

static void op_find(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "path", c, client_dir);
	jw_kstr(&j.w, "glob", pick(c, 2) ? "**/*.txt" : "f*");
	post(c, "/v1/file/find", &j);
	e->verify = VERIFY_JSON;
	e->flags = EXPECT_MAY_5XX;
}

static void op_glob(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "path", c, client_dir);
	jw_kstr(&j.w, "pattern", pick(c, 2) ? "**/*" : "f[0-9]*");
	post(c, "/v1/file/glob", &j);
	e->verify = VERIFY_JSON;
}

static void op_grep(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "path", c, client_dir);
	jw_kstr(&j.w, "pattern", pick(c, 2) ? "needle" : "[a-f]{3} [x-z]");
	jw_kint(&j.w, "max_results", 1 + pick(c, 100));
	post(c, "/v1/file/grep", &j);
	e->verify = VERIFY_JSON;
}

static void put_part(struct buf *b, const char *name, const char *filename, const char *data,
		     size_t len)
{
	buf_printf(b, "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"%s\"", name);
	if (filename)
		buf_printf(b, "; filename=\"%s\"\r\nContent-Type: application/octet-stream",
			   filename);
	buf_puts(b, "\r\n\r\n");
	buf_append(b, data, len);
	buf_puts(b, "\r\n");
}

void op_put_upload(struct client *c, const char *path, const struct content *k)
{
	struct buf body CLEANUP_BUF = BUF_INIT(0);
	char *data CLEANUP_FREE = malloc(k->size + 1);
	bool path_first = pick(c, 2);

	if (!data)
		abort();
	content_fill(k, 0, data, k->size);
	if (path_first)
		put_part(&body, "path", NULL, path, strlen(path));
	put_part(&body, "file", "upload.bin", data, k->size);
	if (!path_first)
		put_part(&body, "path", NULL, path, strlen(path));
	buf_puts(&body, "--" BOUNDARY "--\r\n");
	put_head(c, "POST", "/v1/file/upload");
	put_body(c, "multipart/form-data; boundary=" BOUNDARY, &body);
}

static void op_upload(struct client *c, struct expect *e)
{
	struct buf path CLEANUP_BUF = BUF_INIT(0);
	struct file *f = change_file(c, e, MAX_FILE, pick(c, 4) == 0);

	file_path(c, f, &path);
	op_put_upload(c, path.data, &e->content);
}

static void op_download(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct file *f = pick(c, 3) ? known_file(c) : NULL;

	buf_puts(&target, "/v1/file/download?path=");
	if (f) {
		file_path(c, f, &target);
		e->content = f->content;
	} else {
		big_path(c->o, &target);
		e->content = big_content(c->o);
	}
	if (pick(c, 3) == 0)
		buf_puts(&target, "&change_policy=abort");
	e->flags = EXPECT_OK;
	e->verify = VERIFY_BYTES;
	e->to = e->content.size;
	put_head(c, "GET", target.data);
	if (c->features & HAS_STAT && e->content.size && pick(c, 3) == 0) {
		e->from = client_random(c) % e->content.size;
		e->to = e->from + 1 + client_random(c) % (e->content.size - e->from);
		buf_printf(&c->out, "Range: bytes=%llu-%llu\r\n", (unsigned long long)e->from,
			   (unsigned long long)e->to - 1);
	}
	buf_puts(&c->out, "\r\n");
}

static void op_download_head(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&target, "/v1/file/download?path=");
	big_path(c->o, &target);
	put_head(c, "HEAD", target.data);
	buf_puts(&c->out, "\r\n");
	e->flags = EXPECT_OK | EXPECT_TO_HEAD;
	e->verify = VERIFY_LENGTH;
	e->content = big_content(c->o);
}

static void op_download_missing(struct client *c, struct expect *e)
{
	get(c, "/v1/file/download?path=" WORKSPACE "/no%20such%20file");
	e->flags = EXPECT_MISSING;
	e->verify = VERIFY_JSON;
}

/* Another client's file, which may change or vanish while it is read. */
static void op_download_raced(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&target, "/v1/file/download?path=" WORKSPACE "/mix-%llu-%u/f%u&change_policy=%s",
		   (unsigned long long)c->o->seed, pick(c, c->o->clients),
		   pick(c, FILES_PER_CLIENT), pick(c, 2) ? "abort" : "ignore");
	get(c, target.data);
	e->flags = EXPECT_MAY_CUT;
}

static void op_stat(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_file(&j, "path", c, &c->files[pick(c, FILES_PER_CLIENT)]);
	post(c, "/v1/file/stat", &j);
	e->verify = VERIFY_JSON;
}

static void scratch_dir(const struct client *c, struct buf *b)
{
	client_dir(c, b);
	buf_puts(b, "/scratch/a/b");
}

static void op_mkdir(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_path(&j, "path", c, scratch_dir);
	jw_kbool(&j.w, "parents", true);
	post(c, "/v1/file/mkdir", &j);
	e->verify = VERIFY_JSON;
}

static void op_delete(struct client *c, struct expect *e)
{
	struct buf path CLEANUP_BUF = BUF_INIT(0);
	struct json_body j;

	client_dir(c, &path);
	buf_puts(&path, "/scratch");
	json_begin(&j);
	jw_kstr(&j.w, "path", path.data);
	jw_kbool(&j.w, "recursive", pick(c, 2));
	post(c, "/v1/file/delete", &j);
	e->verify = VERIFY_JSON;
}

/* Watches */

static void op_watch_create(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	if (pick(c, 8) == 0)
		jw_kstr(&j.w, "path", WORKSPACE);
	else
		json_path(&j, "path", c, client_dir);
	jw_kint(&j.w, "debounce", 50);
	post(c, "/v1/file/watch", &j);
	e->verify = VERIFY_WATCH;
}

static void watch_target(struct client *c, const char *tail, struct buf *b)
{
	buf_printf(b, "/v1/file/watch/%s%s", *c->watch ? c->watch : "000000000000", tail);
}

static void op_watch_poll(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct json_body j;

	watch_target(c, "/poll", &target);
	json_begin(&j);
	jw_kint(&j.w, "cursor", pick(c, 50));
	jw_kint(&j.w, "timeout", pick(c, 3));
	post(c, target.data, &j);
	e->verify = VERIFY_JSON;
}

static void op_watch_events(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	watch_target(c, "/events", &target);
	put_head(c, "GET", target.data);
	buf_puts(&c->out, "Accept: text/event-stream\r\n\r\n");
	e->flags = EXPECT_STREAM;
}

static void op_watch_wait(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	json_file(&j, "path", c, &c->files[pick(c, FILES_PER_CLIENT)]);
	jw_kint(&j.w, "timeout", 1);
	post(c, "/v1/file/watch/wait", &j);
	e->flags = EXPECT_MAY_5XX; /* 503 is a timeout in one generation */
	e->verify = VERIFY_JSON;
}

static void op_watch_list(struct client *c, struct expect *e)
{
	get(c, "/v1/file/watch");
	e->flags = EXPECT_OK;
	e->verify = VERIFY_JSON;
}

static void op_watch_delete(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	watch_target(c, "", &target);
	put_head(c, "DELETE", target.data);
	buf_puts(&c->out, "\r\n");
	e->verify = VERIFY_JSON;
	c->watch[0] = '\0';
}

/* Commands. Sessions are shared by a few clients, so that they collide. */

static void session_id(struct client *c, char id[32])
{
	snprintf(id, 32, "mix-%u", pick(c, 4) + 4 * (c->number % 2));
}

static const char *random_command(struct client *c, struct expect *e, struct buf *b)
{
	switch (pick(c, 6)) {
	case 0:
		return "sleep 0.2";
	case 1:
		return "read -t 1 line; echo \"$line\"";
	case 2:
		return "head -c 100000 /dev/zero | tr '\\0' x; exit 3";
	case 3:
		return "echo to stderr >&2; false";
	default:
		client_marker(c, e->marker);
		buf_printf(b, "echo %s", e->marker);
		e->verify = VERIFY_MARKER;
		return b->data;
	}
}

static void exec_fields(struct client *c, struct expect *e, struct json_body *j, const char *id_key)
{
	struct buf command CLEANUP_BUF = BUF_INIT(0);
	char id[32];

	e->verify = VERIFY_JSON;
	jw_kstr(&j->w, "command", random_command(c, e, &command));
	if (pick(c, 4)) {
		session_id(c, id);
		jw_kstr(&j->w, id_key, id);
	}
	if (pick(c, 3) == 0)
		jw_kbool(&j->w, "async_mode", true);
	if (pick(c, 8) == 0)
		jw_knum(&j->w, pick(c, 2) ? "timeout" : "hard_timeout", 0.1);
}

static void op_shell_exec(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	exec_fields(c, e, &j, "id");
	post(c, "/v1/shell/exec", &j);
}

static void op_shell_exec_sse(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	exec_fields(c, e, &j, "id");
	post_accepting(c, "/v1/shell/exec", "text/event-stream", &j);
	e->flags = EXPECT_STREAM;
	e->verify = VERIFY_NOTHING;
}

static void shell_post(struct client *c, struct expect *e, const char *target, struct json_body *j)
{
	char id[32];

	session_id(c, id);
	jw_kstr(&j->w, "id", id);
	post(c, target, j);
	e->verify = VERIFY_JSON;
}

static void op_shell_view(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	shell_post(c, e, "/v1/shell/view", &j);
}

static void op_shell_wait(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	jw_kint(&j.w, "seconds", 1);
	shell_post(c, e, "/v1/shell/wait", &j);
}

static void op_shell_write(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	jw_kstr(&j.w, "input", "echo typed");
	jw_kbool(&j.w, "press_enter", true);
	shell_post(c, e, "/v1/shell/write", &j);
}

static void op_shell_kill(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	shell_post(c, e, "/v1/shell/kill", &j);
}

static void op_shell_create(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	shell_post(c, e, "/v1/shell/sessions/create", &j);
}

static void op_shell_sessions(struct client *c, struct expect *e)
{
	char target[64];
	char id[32];

	session_id(c, id);
	switch (pick(c, 8)) {
	case 0:
		put_head(c, "DELETE", "/v1/shell/sessions");
		break;
	case 1:
		snprintf(target, sizeof(target), "/v1/shell/sessions/%s", id);
		put_head(c, "DELETE", target);
		break;
	case 2:
		put_head(c, "GET", "/v1/shell/sessions/stats");
		break;
	default:
		put_head(c, "GET", "/v1/shell/sessions");
	}
	buf_puts(&c->out, "\r\n");
	e->verify = VERIFY_JSON;
}

static void op_bash_exec(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	exec_fields(c, e, &j, "session_id");
	post(c, "/v1/bash/exec", &j);
}

static void bash_post(struct client *c, struct expect *e, const char *target, struct json_body *j)
{
	char id[32];

	session_id(c, id);
	jw_kstr(&j->w, "session_id", id);
	post(c, target, j);
	e->verify = VERIFY_JSON;
}

static void op_bash_output(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	jw_kint(&j.w, "offset", pick(c, 1000));
	jw_kbool(&j.w, "wait", pick(c, 2));
	jw_knum(&j.w, "wait_timeout", 1);
	bash_post(c, e, "/v1/bash/output", &j);
}

static void op_bash_write(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	jw_kstr(&j.w, "input", "typed\n");
	bash_post(c, e, "/v1/bash/write", &j);
}

static void op_bash_kill(struct client *c, struct expect *e)
{
	struct json_body j;

	json_begin(&j);
	jw_kstr(&j.w, "signal", pick(c, 2) ? "SIGKILL" : "SIGTERM");
	bash_post(c, e, "/v1/bash/kill", &j);
}

static void op_bash_close(struct client *c, struct expect *e)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct json_body j;
	char id[32];

	session_id(c, id);
	buf_printf(&target, "/v1/bash/sessions/%s/close", id);
	json_begin(&j);
	post(c, target.data, &j);
	e->verify = VERIFY_JSON;
}

static void op_bash_sessions(struct client *c, struct expect *e)
{
	get(c, "/v1/bash/sessions");
	e->flags = EXPECT_OK;
	e->verify = VERIFY_JSON;
}

/* Removes names that were given up a while ago. */
static void op_tidy(struct client *c, struct expect *e)
{
	struct buf command CLEANUP_BUF = BUF_INIT(0);
	int64_t now = clock_ms();
	unsigned kept = 0;
	struct json_body j;

	buf_puts(&command, "rm -f");
	for (unsigned i = 0; i < c->retired_count; i++) {
		if (now - c->retired[i].at_ms < RETIRED_REST_MS) {
			c->retired[kept++] = c->retired[i];
			continue;
		}
		buf_putc(&command, ' ');
		numbered_path(c, c->retired[i].number, &command);
	}
	c->retired_count = kept;
	json_begin(&j);
	jw_kstr(&j.w, "command", command.data);
	if (c->features & HAS_BASH)
		jw_kstr(&j.w, "session_id", "mix-tidy");
	post(c, c->features & HAS_BASH ? "/v1/bash/exec" : "/v1/shell/exec", &j);
	e->verify = VERIFY_JSON;
}

static void op_sandbox(struct client *c, struct expect *e)
{
	get(c, "/v1/sandbox");
	e->flags = EXPECT_OK;
	e->verify = VERIFY_JSON;
}

/* Nonsense */

static void op_unknown_route(struct client *c, struct expect *e)
{
	static const char *const targets[] = { "/",
					       "/v1/nothing",
					       "/v1/file/",
					       "/v9/x?y=%zz",
					       "/v1/file/watch/%00/poll",
					       "/../../etc/passwd" };

	get(c, targets[pick(c, ARRAY_SIZE(targets))]);
	e->flags = EXPECT_ANY;
}

static void op_bad_json(struct client *c, struct expect *e)
{
	static const char *const bodies[] = {
		"",
		"{",
		"nonsense",
		"{\"path\":}",
		"[]",
		"null",
		"\"x\"",
		"{\"path\":\"\\ud800\"}",
		"{\"path\":\"\xff\xfe\"}",
		"{\"path\":\"/mnt/a\\u0000b\"}",
		/* wrong types */
		"{\"path\":5}",
		"{\"path\":null}",
		"{\"path\":{\"path\":[]}}",
		"{\"path\":\"/tmp\",\"recursive\":\"perhaps\"}",
		"{\"path\":\"/tmp\",\"max_depth\":1e999}",
		"{\"command\":[],\"session_id\":-1}",
		"{\"file\":\"/tmp/x\",\"content\":7}",
	};
	static const char *const targets[] = {
		"/v1/file/list",  "/v1/file/read",  "/v1/file/write",
		"/v1/file/watch", "/v1/shell/exec", "/v1/bash/exec"
	};
	struct buf body CLEANUP_BUF = BUF_INIT(0);

	buf_puts(&body, bodies[pick(c, ARRAY_SIZE(bodies))]);
	put_head(c, "POST", targets[pick(c, ARRAY_SIZE(targets))]);
	put_body(c, "application/json", &body);
	e->flags = EXPECT_ANY;
}

static void op_deep_json(struct client *c, struct expect *e)
{
	struct buf body CLEANUP_BUF = BUF_INIT(0);
	unsigned depth = 10 + pick(c, 100000);
	bool object = pick(c, 2);

	for (unsigned i = 0; i < depth; i++)
		buf_puts(&body, object ? "{\"a\":" : "[");
	put_head(c, "POST", "/v1/file/list");
	put_body(c, "application/json", &body);
	e->flags = EXPECT_ANY;
}

static void op_long_path(struct client *c, struct expect *e)
{
	struct buf path CLEANUP_BUF = BUF_INIT(0);
	struct json_body j;

	for (unsigned i = 0; i < 5000; i += 10)
		buf_puts(&path, "/123456789");
	json_begin(&j);
	jw_kstr(&j.w, "path", path.data);
	post(c, "/v1/file/list", &j);
	e->flags = EXPECT_ANY | EXPECT_MAY_5XX;
}

static void op_oversized(struct client *c, struct expect *e)
{
	static const char *const lengths[] = { "1099511627776", "18446744073709551616", "-1",
					       "99999999999999999999999", "12x" };

	put_head(c, "POST", pick(c, 2) ? "/v1/file/write" : "/v1/bash/exec");
	buf_printf(&c->out, "Content-Type: application/json\r\nContent-Length: %s\r\n\r\n{\"a\":1",
		   lengths[pick(c, ARRAY_SIZE(lengths))]);
	e->flags = EXPECT_ANY | EXPECT_STREAM; /* it may rightly wait for the rest */
}

static void op_bad_multipart(struct client *c, struct expect *e)
{
	struct buf body CLEANUP_BUF = BUF_INIT(0);

	switch (pick(c, 4)) {
	case 0:
		buf_puts(&body, "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"file");
		break;
	case 1:
		put_part(&body, "path", NULL, WORKSPACE "/x", strlen(WORKSPACE "/x"));
		buf_puts(&body, "--" BOUNDARY "--\r\n");
		break;
	case 2:
		for (unsigned i = 0; i < 2000; i++)
			put_part(&body, "path", NULL, "x", 1);
		break;
	default:
		buf_puts(&body, "no parts");
	}
	put_head(c, "POST", "/v1/file/upload");
	put_body(c, pick(c, 4) ? "multipart/form-data; boundary=" BOUNDARY : "multipart/form-data",
		 &body);
	e->flags = EXPECT_ANY;
}

static void op_garbage(struct client *c, struct expect *e)
{
	unsigned len = 1 + pick(c, 3000);

	for (unsigned i = 0; i < len; i++)
		buf_putc(&c->out, (char)client_random(c));
	if (pick(c, 2))
		buf_puts(&c->out, "\r\n\r\n");
	e->flags = EXPECT_ANY | EXPECT_STREAM;
}

static void op_huge_header(struct client *c, struct expect *e)
{
	unsigned len = 1000 + pick(c, 200000);

	put_head(c, "GET", "/v1/sandbox");
	buf_puts(&c->out, "X-Long: ");
	for (unsigned i = 0; i < len; i++)
		buf_putc(&c->out, 'x');
	buf_puts(&c->out, "\r\n\r\n");
	e->flags = EXPECT_ANY;
}

const struct op ops[] = {
	{ "list", 12, 0, op_list },
	{ "read", 10, 0, op_read },
	{ "write", 10, 0, op_write },
	{ "append", 4, 0, op_append },
	{ "replace", 3, 0, op_replace },
	{ "search", 3, 0, op_search },
	{ "find", 3, 0, op_find },
	{ "glob", 3, HAS_GREP, op_glob },
	{ "grep", 3, HAS_GREP, op_grep },
	{ "upload", 12, 0, op_upload },
	{ "download", 24, 0, op_download },
	{ "download-head", 3, HAS_STAT, op_download_head },
	{ "download-missing", 3, 0, op_download_missing },
	{ "download-raced", 6, 0, op_download_raced },
	{ "stat", 4, HAS_STAT, op_stat },
	{ "mkdir", 2, HAS_STAT, op_mkdir },
	{ "delete", 2, HAS_STAT, op_delete },
	{ "watch-create", 4, HAS_WATCH, op_watch_create },
	{ "watch-poll", 5, HAS_WATCH, op_watch_poll },
	{ "watch-events", 3, HAS_WATCH, op_watch_events },
	{ "watch-wait", 2, HAS_WATCH, op_watch_wait },
	{ "watch-list", 1, HAS_WATCH, op_watch_list },
	{ "watch-delete", 3, HAS_WATCH, op_watch_delete },
	{ "shell-exec", 4, 0, op_shell_exec },
	{ "shell-exec-sse", 2, 0, op_shell_exec_sse },
	{ "shell-view", 2, 0, op_shell_view },
	{ "shell-wait", 1, 0, op_shell_wait },
	{ "shell-write", 2, 0, op_shell_write },
	{ "shell-kill", 1, 0, op_shell_kill },
	{ "shell-create", 2, 0, op_shell_create },
	{ "shell-sessions", 2, 0, op_shell_sessions },
	{ "bash-exec", 6, HAS_BASH, op_bash_exec },
	{ "bash-output", 3, HAS_BASH, op_bash_output },
	{ "bash-write", 2, HAS_BASH, op_bash_write },
	{ "bash-kill", 1, HAS_BASH, op_bash_kill },
	{ "bash-close", 1, HAS_BASH, op_bash_close },
	{ "bash-sessions", 1, HAS_BASH, op_bash_sessions },
	{ "tidy", 1, 0, op_tidy },
	{ "sandbox", 5, 0, op_sandbox },
	{ "unknown-route", 2, 0, op_unknown_route },
	{ "bad-json", 3, 0, op_bad_json },
	{ "deep-json", 1, 0, op_deep_json },
	{ "long-path", 1, 0, op_long_path },
	{ "oversized", 1, 0, op_oversized },
	{ "bad-multipart", 2, 0, op_bad_multipart },
	{ "garbage", 1, 0, op_garbage },
	{ "huge-header", 1, 0, op_huge_header },
};
const size_t ops_count = ARRAY_SIZE(ops);

static const struct op *choose(struct client *c)
{
	unsigned total = 0;
	unsigned n;

	if (c->retired_count > MAX_RETIRED / 2) {
		for (size_t i = 0; i < ops_count; i++)
			if (ops[i].build == op_tidy)
				return &ops[i];
	}
	for (size_t i = 0; i < ops_count; i++)
		if ((ops[i].needs & c->features) == ops[i].needs)
			total += ops[i].weight;
	n = pick(c, total);
	for (size_t i = 0;; i++) {
		if ((ops[i].needs & c->features) != ops[i].needs)
			continue;
		if (n < ops[i].weight)
			return &ops[i];
		n -= ops[i].weight;
	}
}

void op_build(struct client *c, struct expect *e)
{
	memset(e, 0, sizeof(*e));
	e->op = choose(c);
	e->op->build(c, e);
}

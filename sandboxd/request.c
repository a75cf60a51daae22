/*
 * See request.h. Builds answers and keeps a request's waiting state; must not
 * know the routes, nor run the connection (http.c does).
 */
#include "request_i.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "route.h"

enum { MAX_REPLY = 128 * MIB };

struct request *request_new(struct server *srv, struct MHD_Connection *conn)
{
	struct {
		struct request r;
		struct request_i i;
	} *both = calloc(1, sizeof(*both));

	if (!both)
		return NULL;
	both->r.srv = srv;
	both->r.conn = conn;
	both->r.i = &both->i;
	both->i.owner = &both->r;
	both->r.out = BUF_INIT(MAX_REPLY);
	return &both->r;
}

void request_free(struct request *r)
{
	struct request_i *i = r->i;

	if (r->cleanup)
		r->cleanup(r);
	request_timer_stop(r);
	if (r->route && r->route->args)
		args_clear(r->route->args, r->args);
	free(r->args);
	cJSON_Delete(i->json);
	buf_release(&i->body);
	buf_release(&i->stream);
	buf_release(&r->out);
	if (i->response)
		MHD_destroy_response(i->response);
	free(r);
}

/* ---- answering ---- */

static bool has_hint(const struct request *r)
{
	return r->srv->cfg->dialect != DIALECT_1_0;
}

static struct jw *envelope(struct request *r, bool success, const char *message)
{
	buf_reset(&r->out);
	jw_init(&r->jw, &r->out);
	jw_obj(&r->jw);
	jw_kbool(&r->jw, "success", success);
	jw_kstr(&r->jw, "message", message ? message : "Operation successful");
	jw_key(&r->jw, "data");
	return &r->jw;
}

/*
 * The last word on a JSON body: too large or out of memory becomes a plain
 * error; so do names that are not UTF-8 where the generation, written in
 * Python, cannot encode them.
 */
static void finish(struct request *r, unsigned status)
{
	bool python = r->srv->cfg->dialect != DIALECT_AIOD;

	if (r->out.error) {
		const char *why = r->out.error == -EFBIG ? "Response too large" : "Out of memory";

		buf_release(&r->out);
		r->out.error = 0;
		envelope(r, false, why);
		jw_null(&r->jw);
		jw_obj_end(&r->jw);
		status = 500;
	} else if (r->jw.invalid_utf8 && python && r->route &&
		   strncmp(r->route->path, "/v1/file/", 9) == 0) {
		envelope(r, false, "'utf-8' codec can't encode characters: surrogates not allowed");
		jw_null(&r->jw);
		jw_obj_end(&r->jw);
		status = 500;
	}
	r->i->status = status;
}

static void envelope_end(struct request *r, unsigned status)
{
	if (has_hint(r))
		jw_knull(&r->jw, "hint");
	jw_obj_end(&r->jw);
	finish(r, status);
}

struct jw *reply_begin(struct request *r, const char *message)
{
	return envelope(r, true, message);
}

struct jw *reply_begin_failed(struct request *r, const char *message)
{
	return envelope(r, false, message);
}

void reply_end(struct request *r)
{
	envelope_end(r, 200);
}

void reply_ok(struct request *r, const char *message)
{
	jw_null(envelope(r, true, message));
	envelope_end(r, 200);
}

void reply_error(struct request *r, unsigned status, const char *fmt, ...)
{
	char message[PATH_MAX + 512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	jw_null(envelope(r, false, message));
	envelope_end(r, status);
}

void reply_session_error(struct request *r, const char *kind, unsigned limit, int error)
{
	if (error == -EBUSY)
		reply_error(r, r->srv->cfg->dialect == DIALECT_AIOD ? 429 : 400,
			    "Cannot create %s session: session limit reached and all %u existing "
			    "sessions have active commands",
			    kind, limit);
	else
		reply_error(r, 500, "Cannot create %s session: %s", kind, strerrordesc_np(-error));
}

struct jw *reply_plain_begin(struct request *r)
{
	buf_reset(&r->out);
	jw_init(&r->jw, &r->out);
	return &r->jw;
}

void reply_plain_end(struct request *r, unsigned status)
{
	finish(r, status);
}

void reply_query_error(struct request *r, const char *name, const char *msg, const char *type)
{
	buf_reset(&r->out);
	args_write_error(&r->out, r->srv->cfg->dialect, "query", name, msg, type);
	r->i->status = 422;
}

void reply_response(struct request *r, unsigned status, struct MHD_Response *response)
{
	r->i->status = status;
	r->i->response = response;
}

/* What the reference calls a failure, by errno. */
static const struct fs_error {
	int err;
	const char *type;
	const char *exception;
} fs_errors[] = {
	{ EACCES, "permission_denied", "PermissionError" },
	{ EPERM, "permission_denied", "PermissionError" },
	{ ENOENT, "not_found", "FileNotFoundError" },
	{ EEXIST, "already_exists", "FileExistsError" },
	{ EISDIR, "invalid_target", "IsADirectoryError" },
	{ ENOTDIR, "invalid_target", "NotADirectoryError" },
	{ ENAMETOOLONG, "invalid_path", "OSError" },
	{ EROFS, "read_only_filesystem", "OSError" },
	{ ENOSPC, "no_space_left", "OSError" },
	{ 0, "io_error", "OSError" },
};

static const char *error_prefix(const char *operation, int err)
{
	static const char *const prefixes[][2] = {
		{ "read", "Failed to read file: " },       { "list", "Failed to list path: " },
		{ "find", "Failed to find files: " },      { "grep", "Failed to grep path: " },
		{ "glob", "Failed to glob path: " },       { "upload", "Failed to upload file: " },
		{ "write", "Failed to write file: " },     { "stat", "Failed to stat path: " },
		{ "mkdir", "Failed to make directory: " }, { "delete", "Failed to delete path: " },
	};

	if (strcmp(operation, "write") == 0 && (err == EACCES || err == EPERM))
		return "Permission denied: ";
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strcmp(prefixes[i][0], operation) == 0)
			return prefixes[i][1];
	return "";
}

static void file_failure(struct request *r, const char *operation, const char *path,
			 const char *error_type, const char *exception, int err,
			 const char *message)
{
	struct jw *w;

	if (r->srv->cfg->dialect == DIALECT_1_0) {
		reply_error(r, 500, "%s", message);
		return;
	}
	w = envelope(r, false, message);
	jw_obj(w);
	jw_kstr(w, "path", path);
	jw_kstr(w, "operation", operation);
	jw_kstr(w, "message", message);
	jw_kstr(w, "error_type", error_type);
	jw_kbool(w, "retryable", false);
	jw_key(w, "errno");
	if (err)
		jw_int(w, err);
	else
		jw_null(w);
	jw_kstr(w, "errno_name", err ? strerrorname_np(err) : NULL);
	jw_kstr(w, "exception_type", exception);
	jw_obj_end(w);
	envelope_end(r, 200);
}

void reply_file_error(struct request *r, const char *operation, const char *path, int err)
{
	const struct fs_error *e = fs_errors;
	char message[PATH_MAX + 256];

	while (e->err && e->err != err)
		e++;
	snprintf(message, sizeof(message), "%s[Errno %d] %s: '%s'", error_prefix(operation, err),
		 err, strerrordesc_np(err), path);
	file_failure(r, operation, path, e->type, e->exception, err, message);
}

void reply_file_fault(struct request *r, const char *operation, const char *path,
		      const char *error_type, const char *exception_type, const char *message)
{
	char full[PATH_MAX + 512];

	snprintf(full, sizeof(full), "%s%s", error_prefix(operation, 0), message);
	file_failure(r, operation, path, error_type, exception_type, 0, full);
}

static ssize_t stream_read(void *cls, uint64_t pos, char *out, size_t max)
{
	struct request *r = cls;
	struct request_i *i = r->i;
	size_t n;

	if (atomic_load(&i->gone))
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (i->stream_at == i->stream.len) {
		i->stream_at = 0;
		buf_reset(&i->stream);
		if (!i->stream_ended && i->fill(r, &i->stream) < 0)
			i->stream_ended = true;
		if (i->stream.error)
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	n = MIN(max, i->stream.len - i->stream_at);
	if (n == 0) {
		if (i->stream_ended)
			return MHD_CONTENT_READER_END_OF_STREAM;
		http_suspend(r);
		return 0;
	}
	memcpy(out, i->stream.data + i->stream_at, n);
	i->stream_at += n;
	return (ssize_t)n;
}

void request_stream(struct request *r, int (*fill)(struct request *r, struct buf *out))
{
	struct MHD_Response *response =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, stream_read, r, NULL);

	if (!response) {
		reply_error(r, 500, "Out of memory");
		return;
	}
	MHD_add_response_header(response, "Content-Type", "text/event-stream; charset=utf-8");
	MHD_add_response_header(response, "Cache-Control", "no-cache");
	MHD_add_response_header(response, "X-Accel-Buffering", "no");
	r->i->fill = fill;
	r->i->stream = BUF_INIT(MAX_REPLY);
	reply_response(r, 200, response);
}

struct MHD_Response *request_response(struct request *r)
{
	struct request_i *i = r->i;
	size_t len = r->out.len;

	if (i->response)
		return i->response;
	i->response = MHD_create_response_from_buffer(len, len ? r->out.data : (void *)"",
						      MHD_RESPMEM_PERSISTENT);
	if (i->response)
		MHD_add_response_header(i->response, "Content-Type", "application/json");
	if (i->response && i->status == 401)
		MHD_add_response_header(i->response, "WWW-Authenticate", "Bearer");
	return i->response;
}

/* ---- reading ---- */

int request_query(struct request *r, const char *name, const char **ret)
{
	const char *value = NULL;
	size_t len = 0;

	if (MHD_lookup_connection_value_n(r->conn, MHD_GET_ARGUMENT_KIND, name, strlen(name),
					  &value, &len) != MHD_YES ||
	    !value)
		return 0;
	if (memchr(value, '\0', len))
		return -EINVAL;
	*ret = value;
	return 1;
}

const char *request_header(struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
}

int sandbox_path(const struct server *srv, const char *path, char *out)
{
	static const size_t data_len = sizeof(SANDBOX_DATA) - 1;
	const char *map = srv->cfg->map_data;
	int n;

	if (map && strncmp(path, SANDBOX_DATA, data_len) == 0 &&
	    (path[data_len] == '/' || path[data_len] == '\0'))
		n = snprintf(out, PATH_MAX, "%s%s", map, path + data_len);
	else
		n = snprintf(out, PATH_MAX, "%s", path);
	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

bool request_gone(struct request *r)
{
	return atomic_load(&r->i->gone);
}

/* ---- waiting ---- */

void request_resume(struct request *r)
{
	request_timer_stop(r);
	if (r->i->suspended)
		http_resume(r);
}

static void on_timer(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct request *r = t->data;

	r->i->timer_fn(r);
}

void request_timer(struct request *r, double seconds, void (*fn)(struct request *r))
{
	struct request_i *i = r->i;

	request_timer_stop(r);
	i->timer_fn = fn;
	ev_timer_init(&i->timer, on_timer, seconds < 0 ? 0 : seconds, 0);
	i->timer.data = r;
	ev_now_update(r->srv->loop);
	ev_timer_start(r->srv->loop, &i->timer);
}

void request_timer_stop(struct request *r)
{
	ev_timer_stop(r->srv->loop, &r->i->timer);
}

void request_wake(struct request *r)
{
	if (r->i->suspended)
		http_resume(r);
}

void request_nudge(struct request *r)
{
	if (r->i->suspended)
		return;
	http_suspend(r);
	http_resume(r);
}

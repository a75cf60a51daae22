/*
 * GET and HEAD /v1/file/download. Small files are read into memory, so that
 * header and body leave in one send; larger ones go out by sendfile, or, where
 * changes must abort the transfer, piece by piece with a look at the file in
 * between. Must not know how connections are driven. Loop thread only.
 *
 * When a file gets shorter while libmicrohttpd (0.9.75) sends it, sendfile
 * returns 0 and the library then waits for a socket event that may never come.
 * So each sendfile download has a timer that looks at its file.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "httprange.h"
#include "transfer.h"

enum {
	SMALL_FILE = 64 * KIB,
	/*
	 * One per client that downloads with abort. Some processors copy three
	 * times slower to an address a few bytes after that of the source, modulo
	 * the page; the buffer begins a few bytes after the start of one, so the
	 * pieces of the file must not all do.
	 */
	ABORT_PIECE = 256 * KIB - 1984,
};

#define LOOK_EVERY_S 1.0

struct download {
	const char *path; /* as the client sees it */
	bool abort;       /* change_policy=abort */
	struct stat st;   /* of fd */
	struct byte_range range;
	enum range_kind kind;
	char etag[HTTP_ETAG_SIZE];
	char last_modified[HTTP_DATE_SIZE];
};

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* ---- answers other than the file ---- */

static void reply_changed(struct request *r, const struct download *d)
{
	struct jw *w = reply_plain_begin(r);

	jw_obj(w);
	jw_kbool(w, "success", false);
	jw_kstr(w, "message", "File changed before download started");
	jw_key(w, "data");
	jw_obj(w);
	jw_kstr(w, "path", d->path);
	jw_kstr(w, "change_policy", "abort");
	jw_kstr(w, "phase", "before_start");
	jw_obj_end(w);
	jw_knull(w, "hint");
	jw_obj_end(w);
	reply_plain_end(r, MHD_HTTP_CONFLICT);
}

static void reply_unreadable(struct request *r, const struct download *d, int err)
{
	reply_error(r, 500, "Failed to open file for download: [Errno %d] %s: '%s'", err,
		    strerrordesc_np(err), d->path);
}

static void reply_unsatisfiable(struct request *r, const struct download *d)
{
	static char message[] = "Requested range not satisfiable";
	struct MHD_Response *response = MHD_create_response_from_buffer(
		sizeof(message) - 1, message, MHD_RESPMEM_PERSISTENT);
	char range[40];

	snprintf(range, sizeof(range), "bytes */%llu", (unsigned long long)d->st.st_size);
	if (response && MHD_add_response_header(response, "Content-Range", range) &&
	    MHD_add_response_header(response, "Content-Type", "text/plain; charset=utf-8")) {
		reply_response(r, MHD_HTTP_RANGE_NOT_SATISFIABLE, response);
		return;
	}
	if (response)
		MHD_destroy_response(response);
	reply_error(r, 500, "Out of memory");
}

/* ---- the request ---- */

/* Fills path and abort; returns false after replying. */
static bool read_query(struct request *r, struct download *d)
{
	const char *policy = "ignore";
	int n = request_query(r, "path", &d->path);

	if (n < 0) {
		reply_query_error(r, "path", "Path holds a NUL byte", "value_error");
		return false;
	}
	if (n == 0) {
		reply_query_error(r, "path", "Field required", "missing");
		return false;
	}
	if (r->srv->cfg->dialect == DIALECT_1_0)
		return true;
	n = request_query(r, "change_policy", &policy);
	d->abort = n >= 0 && strcmp(policy, "abort") == 0;
	if (n < 0 || (!d->abort && strcmp(policy, "ignore") != 0)) {
		reply_query_error(r, "change_policy", "Input should be 'ignore' or 'abort'",
				  "enum");
		return false;
	}
	return true;
}

/* Returns the open file, or -1 after replying. */
static int open_file(struct request *r, struct download *d)
{
	char real[PATH_MAX];
	struct stat before;
	int fd CLEANUP_FD = -1;

	/* Looked at first: opening a device can have effects. */
	if (sandbox_path(r->srv, d->path, real) < 0 || stat(real, &before) < 0) {
		reply_error(r, 404, "File does not exist: %s", d->path);
		return -1;
	}
	if (!S_ISREG(before.st_mode)) {
		reply_error(r, 400, "Path is not a file: %s", d->path);
		return -1;
	}
	fd = open(real, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &d->st) < 0) {
		reply_unreadable(r, d, errno);
		return -1;
	}
	if (!S_ISREG(d->st.st_mode)) {
		reply_error(r, 400, "Path is not a file: %s", d->path);
		return -1;
	}
	if (d->abort && !same_file(&before, &d->st)) {
		reply_changed(r, d);
		return -1;
	}
	return steal_fd(&fd);
}

static bool has_ranges(const struct request *r, const struct download *d)
{
	enum dialect dialect = r->srv->cfg->dialect;

	return dialect == DIALECT_AIOD || (dialect == DIALECT_1_9 && !d->abort);
}

static void choose_range(struct request *r, struct download *d)
{
	const char *range = NULL;

	http_etag(&d->st, d->etag);
	http_date(d->st.st_mtim.tv_sec, d->last_modified);
	if (has_ranges(r, d) && !r->head &&
	    http_if_range(request_header(r, "If-Range"), d->etag, d->last_modified))
		range = request_header(r, "Range");
	d->kind = http_range(range, (uint64_t)d->st.st_size, &d->range);
}

/* ---- the body ---- */

/*
 * The bytes of a small file, in memory. Shortens the range when the file has
 * become shorter. NULL after replying.
 */
static struct MHD_Response *from_memory(struct request *r, struct download *d, int fd)
{
	char *data CLEANUP_FREE = malloc(d->range.len + 1);
	struct MHD_Response *response;
	struct stat now;
	size_t have = 0;
	ssize_t n = 1;

	if (!data) {
		reply_error(r, 500, "Out of memory");
		return NULL;
	}
	while (n > 0 && have < d->range.len) {
		n = pread(fd, data + have, d->range.len - have, (off_t)(d->range.first + have));
		have += n > 0 ? (size_t)n : 0;
	}
	if (n < 0) {
		reply_unreadable(r, d, errno);
		return NULL;
	}
	if (d->abort && (fstat(fd, &now) < 0 || !same_file(&now, &d->st))) {
		reply_changed(r, d);
		return NULL;
	}
	d->range.len = have;
	if (have == 0 && d->kind == RANGE_PART) {
		reply_unsatisfiable(r, d);
		return NULL;
	}
	response = MHD_create_response_from_buffer(have, data, MHD_RESPMEM_MUST_FREE);
	if (response)
		data = NULL;
	else
		reply_error(r, 500, "Out of memory");
	return response;
}

/* A download that has to stop when its file changes. */
struct guarded {
	int fd;
	struct stat st;
	uint64_t first;
};

static ssize_t guarded_read(void *cls, uint64_t pos, char *out, size_t max)
{
	struct guarded *g = cls;
	struct stat now;
	ssize_t n = pread(g->fd, out, max, (off_t)(g->first + pos));

	/* Looked at after reading: what goes out was in the file before any change. */
	if (n <= 0 || fstat(g->fd, &now) < 0 || !same_file(&now, &g->st))
		return MHD_CONTENT_READER_END_WITH_ERROR;
	return n;
}

static void guarded_free(void *cls)
{
	struct guarded *g = cls;

	close(g->fd);
	free(g);
}

/* Takes fd over if it succeeds. */
static struct MHD_Response *from_guarded(const struct download *d, int fd)
{
	struct guarded *g = malloc(sizeof(*g));
	struct MHD_Response *response = NULL;

	if (g) {
		*g = (struct guarded){ fd, d->st, d->range.first };
		response = MHD_create_response_from_callback(
			d->range.len, MIN(d->range.len, (uint64_t)ABORT_PIECE), guarded_read, g,
			guarded_free);
	}
	if (!response)
		free(g);
	return response;
}

/* Looks after a sendfile download; the fd is the response's. */
struct sending {
	ev_timer timer;
	struct request *r;
	int fd;
	uint64_t end;
	struct timespec changed;
};

static void on_look(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct sending *s = t->data;
	const union MHD_ConnectionInfo *info;
	struct stat st;

	if (fstat(s->fd, &st) < 0)
		return;
	if ((uint64_t)st.st_size < s->end) {
		info = MHD_get_connection_info(s->r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
		if (info)
			shutdown(info->connect_fd, SHUT_RDWR);
	} else if (st.st_ctim.tv_sec != s->changed.tv_sec ||
		   st.st_ctim.tv_nsec != s->changed.tv_nsec) {
		/* It may have been short for a moment, just when it was read. */
		s->changed = st.st_ctim;
		request_nudge(s->r);
	}
}

static void sending_end(struct request *r)
{
	struct sending *s = r->op;

	ev_timer_stop(r->srv->loop, &s->timer);
	free(s);
}

static bool look_after(struct request *r, const struct download *d, int fd)
{
	struct sending *s = malloc(sizeof(*s));

	if (!s)
		return false;
	*s = (struct sending){
		.r = r, .fd = fd, .end = d->range.first + d->range.len, .changed = d->st.st_ctim
	};
	ev_timer_init(&s->timer, on_look, LOOK_EVERY_S, LOOK_EVERY_S);
	s->timer.data = s;
	ev_timer_start(r->srv->loop, &s->timer);
	r->op = s;
	r->cleanup = sending_end;
	return true;
}

static bool add_headers(struct request *r, const struct download *d, struct MHD_Response *response)
{
	struct buf disposition CLEANUP_BUF = BUF_INIT(4 * PATH_MAX);
	const char *name = strrchr(d->path, '/');
	enum dialect dialect = r->srv->cfg->dialect;
	bool ok = http_disposition(&disposition, name ? name + 1 : d->path) == 0;
	char range[80];

	ok = ok && MHD_add_response_header(response, "Content-Type", "application/octet-stream") &&
	     MHD_add_response_header(response, "Content-Disposition", disposition.data);
	/* 1.9 streams with abort by hand and says less about the file. */
	if (dialect != DIALECT_1_9 || !d->abort)
		ok = ok && MHD_add_response_header(response, "Last-Modified", d->last_modified) &&
		     MHD_add_response_header(response, "ETag", d->etag);
	if (dialect != DIALECT_1_0)
		ok = ok && MHD_add_response_header(response, "Accept-Ranges",
						   has_ranges(r, d) ? "bytes" : "none");
	if (d->kind == RANGE_PART) {
		snprintf(range, sizeof(range), "bytes %llu-%llu/%llu",
			 (unsigned long long)d->range.first,
			 (unsigned long long)(d->range.first + d->range.len - 1),
			 (unsigned long long)d->st.st_size);
		ok = ok && MHD_add_response_header(response, "Content-Range", range);
	}
	return ok;
}

void download(struct request *r)
{
	struct download d = { 0 };
	struct MHD_Response *response;
	int fd CLEANUP_FD = -1, sent_fd = -1;
	bool ok;

	if (!read_query(r, &d) || (fd = open_file(r, &d)) < 0)
		return;
	choose_range(r, &d);
	if (d.kind == RANGE_UNSATISFIABLE) {
		reply_unsatisfiable(r, &d);
		return;
	}
	if (d.range.len <= SMALL_FILE && !r->head) {
		response = from_memory(r, &d, fd);
		if (!response)
			return;
	} else if (d.abort && !r->head) {
		response = from_guarded(&d, fd);
		if (response)
			fd = -1;
	} else {
		response = MHD_create_response_from_fd_at_offset64(d.range.len, fd, d.range.first);
		if (response)
			sent_fd = steal_fd(&fd);
	}
	ok = response && add_headers(r, &d, response);
	if (ok && sent_fd >= 0 && !r->head)
		ok = look_after(r, &d, sent_fd);
	if (ok) {
		reply_response(r, d.kind == RANGE_PART ? 206 : 200, response);
		return;
	}
	if (response)
		MHD_destroy_response(response);
	reply_error(r, 500, "Out of memory");
}

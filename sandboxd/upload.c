/*
 * POST /v1/file/upload: a multipart form with the parts file and path, in any
 * order. Must not know how bodies arrive. The sink runs on the loop and only
 * writes to the page cache; upload() runs on a worker once the body is there.
 *
 * 1.x writes straight onto a target that exists, aiod stages, so the old file stays whole
 * until the new one is. As long as the path is not known (it may come last, or
 * not at all) the bytes go to a file without a name. Those of a small file wait in memory until
 * the body is whole, and are then written at once, on the loop: a connection that breaks leaves
 * nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "io.h"
#include "multipart.h"
#include "stage.h"
#include "transfer.h"

enum { HELD_MAX = 64 * KIB };

enum field {
	FIELD_OTHER,
	FIELD_FILE,
	FIELD_PATH,
};

struct upload {
	const struct server *srv;
	struct multipart form;
	enum field field;  /* the part that is being read */
	bool has_file;     /* with a file name, as an uploaded file has */
	bool file_is_text; /* a part named file without one */
	bool path_has_nul;
	int err;         /* positive errno of the first failure to store it */
	struct buf held; /* the bytes, as long as nothing was opened for them */
	bool spooled;    /* stage.fd was opened before the path was known */
	struct stage stage;
	uint64_t size;
	size_t path_len;
	char path[PATH_MAX];     /* as the client sees it; "" = not given */
	char name[NAME_MAX + 2]; /* last component of the file name sent */
};

/* ---- where it goes ---- */

static bool is_atomic(const struct upload *u)
{
	return u->srv->cfg->dialect == DIALECT_AIOD;
}

static int join(char *out, const char *dir, const char *name)
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Where the path is for this process. */
static int find_target(const struct upload *u, char *ret_target)
{
	if (u->path[0] == '/' || (!is_atomic(u) && strchr(u->path, '/')))
		return sandbox_path(u->srv, u->path, ret_target);
	if (is_atomic(u))
		return join(ret_target, u->srv->cfg->home, u->path);
	return -ENOENT; /* 1.x makes the directory "" and fails */
}

static int open_target(struct upload *u)
{
	char target[PATH_MAX];
	int r = find_target(u, target);

	if (r < 0)
		return r;
	if (is_atomic(u))
		return stage_open(&u->stage, "upload", target);
	/* The real one has all of the body before it writes: no half of a new file is ever seen. */
	if (access(target, F_OK) < 0 && errno == ENOENT &&
	    stage_open(&u->stage, "upload", target) == 0)
		return 0;
	return stage_open_in_place(&u->stage, target, O_TRUNC);
}

/* A file without a name; where the data is, since /tmp is small. */
static int open_spool(struct upload *u)
{
	static const char *const dirs[] = { SANDBOX_DATA, "/tmp" };
	char dir[PATH_MAX], named[PATH_MAX];
	int fd = -1, r = -EACCES;

	for (size_t i = 0; i < ARRAY_SIZE(dirs) && fd < 0; i++) {
		r = sandbox_path(u->srv, dirs[i], dir);
		if (r < 0)
			continue;
		fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
		if (fd < 0 && errno == EOPNOTSUPP && join(named, dir, ".aiod-upload-XXXXXX") == 0) {
			fd = mkostemp(named, O_CLOEXEC);
			if (fd >= 0)
				unlink(named);
		}
		if (fd < 0)
			r = -errno;
	}
	u->stage.fd = fd;
	return fd < 0 ? r : 0;
}

/* ---- the parts of the form ---- */

static void take_name(struct upload *u, const char *filename)
{
	const char *slash = strrchr(filename, '/');

	/* A name that is too long stays too long, and open() says so. */
	snprintf(u->name, sizeof(u->name), "%s", slash ? slash + 1 : filename);
	if (strcmp(u->name, ".") == 0 || strcmp(u->name, "..") == 0)
		u->name[0] = '\0';
}

static int on_part(void *ctx, const char *name, const char *filename)
{
	struct upload *u = ctx;

	u->field = FIELD_OTHER;
	if (strcmp(name, "path") == 0) {
		if (u->path_len)
			return -EINVAL;
		u->field = FIELD_PATH;
	} else if (strcmp(name, "file") == 0 && !filename) {
		u->file_is_text = true;
	} else if (strcmp(name, "file") == 0) {
		if (u->has_file)
			return -EINVAL;
		u->has_file = true;
		u->field = FIELD_FILE;
		take_name(u, filename);
	}
	return 0;
}

/* It does not stay small. */
static int let_go(struct upload *u)
{
	int r;

	u->spooled = !u->path_len;
	r = u->spooled ? open_spool(u) : open_target(u);
	if (r == 0)
		r = write_all(u->stage.fd, u->held.data, u->held.len);
	buf_release(&u->held);
	return r;
}

static int store(struct upload *u, const char *data, size_t len)
{
	uint64_t max = u->srv->cfg->max_file_size;

	int r = 0;

	if (max && u->size + len > max)
		return -EFBIG;
	u->size += len;
	if (u->stage.fd < 0) {
		if (u->held.len + len <= HELD_MAX)
			return buf_append(&u->held, data, len);
		r = let_go(u);
	}
	return r < 0 ? r : write_all(u->stage.fd, data, len);
}

static int on_data(void *ctx, const char *data, size_t len)
{
	struct upload *u = ctx;

	/* A failure to store it does not end the reading: the path may come last. */
	if (u->field == FIELD_FILE) {
		if (!u->err)
			u->err = -store(u, data, len);
	} else if (u->field == FIELD_PATH) {
		size_t fits = MIN(len, sizeof(u->path) - 1 - u->path_len);

		u->path_has_nul |= memchr(data, '\0', len) != NULL;
		memcpy(u->path + u->path_len, data, fits);
		u->path_len += fits;
		if (fits < len)
			u->err = ENAMETOOLONG;
	}
	return 0;
}

static int on_part_end(void *ctx)
{
	struct upload *u = ctx;

	/* Nothing may be opened under half a name. */
	return u->path_has_nul ? -EINVAL : 0;
}

static const struct multipart_ops form_ops = { on_part, on_data, on_part_end };

/* ---- the sink ---- */

static void upload_free(struct request *r)
{
	struct upload *u = r->op;

	stage_release(&u->stage);
	buf_release(&u->held);
	multipart_release(&u->form);
	free(u);
}

static void reply_form_error(struct request *r, const char *name, const char *msg, const char *type)
{
	reply_plain_begin(r);
	args_write_error(&r->out, r->srv->cfg->dialect, "body", name, msg, type);
	reply_plain_end(r, 422);
}

static int upload_begin(struct request *r)
{
	struct upload *u = calloc(1, sizeof(*u));

	if (!u) {
		reply_error(r, 503, "Out of memory");
		return -1;
	}
	u->srv = r->srv;
	u->stage.fd = -1;
	u->held = BUF_INIT(0);
	r->op = u;
	r->cleanup = upload_free;
	if (multipart_init(&u->form, request_header(r, "Content-Type"), &form_ops, u) < 0) {
		reply_form_error(r, "file", "Field required", "missing");
		return -1;
	}
	return 0;
}

static int upload_data(struct request *r, const char *data, size_t len)
{
	struct upload *u = r->op;

	return multipart_feed(&u->form, data, len);
}

/*
 * The form's own bytes put the file's out of step with our buffer. Ending a
 * piece at a page of the file brings them back in step for the next one, and
 * the kernel copies aligned pages twice as fast.
 */
static size_t upload_want(const struct request *r, size_t max)
{
	const struct upload *u = r->op;

	return u->field == FIELD_FILE ? max - u->size % 4096 : max;
}

static bool upload_quick(const struct request *r)
{
	const struct upload *u = r->op;

	return u->stage.fd < 0;
}

const struct body_sink upload_sink = { upload_begin, upload_data, upload_want, upload_quick };

/* ---- putting it in place (worker; a small one on the loop) ---- */

/* Moves what was written before the path was known. */
static int place_spool(struct request *r, struct upload *u)
{
	int spool CLEANUP_FD = steal_fd(&u->stage.fd);
	char target[PATH_MAX];
	int n;

	if (is_atomic(u) && find_target(u, target) == 0 &&
	    stage_adopt(&u->stage, "upload", target, spool) == 0) {
		steal_fd(&spool);
		return 0;
	}
	n = open_target(u);
	return n < 0 ? n : stage_copy(r, spool, u->stage.fd);
}

static int finish(struct request *r, struct upload *u)
{
	int n = 0;

	if (u->stage.fd < 0) {
		n = open_target(u);
		if (n == 0)
			n = write_all(u->stage.fd, u->held.data, u->held.len);
	} else if (u->spooled) {
		n = place_spool(r, u);
	}
	return n < 0 ? n : stage_put(&u->stage, r);
}

/* Replies if the form itself was wrong. */
static bool form_is_bad(struct request *r, const struct upload *u)
{
	if (u->path_has_nul)
		reply_form_error(r, "path", "Path holds a NUL byte", "value_error");
	else if (u->err)
		return false;
	else if (multipart_finish(&u->form) < 0)
		reply_error(r, 400, "There was an error parsing the body");
	else if (u->file_is_text && !u->has_file)
		reply_form_error(r, "file",
				 "Value error, Expected UploadFile, received: <class 'str'>",
				 "value_error");
	else if (!u->has_file || (!u->path_len && !u->name[0]))
		reply_form_error(r, "file", "Field required", "missing");
	else
		return false;
	return true;
}

void upload(struct request *r)
{
	struct upload *u = r->op;
	struct jw *w;

	if (form_is_bad(r, u))
		return;
	if (!u->path_len)
		snprintf(u->path, sizeof(u->path), "/tmp/%s", u->name);
	if (!u->err)
		u->err = -finish(r, u);
	if (u->err) {
		reply_file_error(r, "upload", u->path, u->err);
		return;
	}
	w = reply_begin(r, NULL);
	jw_obj(w);
	jw_kstr(w, "file_path", u->path);
	jw_kint(w, "file_size", (int64_t)u->size);
	jw_kbool(w, "success", true);
	jw_obj_end(w);
	reply_end(r);
}

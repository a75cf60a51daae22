/*
 * POST /v1/file/upload: a multipart form with the parts file and path, in any
 * order. Must not know how bodies arrive. The sink runs on the loop and only
 * writes to the page cache; upload() runs on a worker once the body is there.
 *
 * 1.x writes straight onto the target. aiod writes a .part beside it and
 * renames, so the old file stays whole until the new one is. As long as the
 * path is not known (it may come last, or not at all) the bytes go to a file
 * without a name.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "file.h"
#include "multipart.h"
#include "transfer.h"

enum {
	MAX_LINKS = 40,
	COPY_PIECE = 8 * MIB,
	PART_NAME_SIZE = 64,
};

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
	int err;       /* positive errno of the first failure to store it */
	int fd;        /* being written: target, its .part, or spool */
	bool spooled;  /* fd has no name yet */
	bool replaces; /* an existing file, which is old */
	struct stat old;
	uint64_t size;
	size_t path_len;
	char path[PATH_MAX];     /* as the client sees it; "" = not given */
	char name[NAME_MAX + 2]; /* last component of the file name sent */
	char target[PATH_MAX];   /* for this process, links followed */
	char part[PATH_MAX];     /* to be renamed or removed, or "" */
};

/* ---- where it goes ---- */

static bool is_atomic(const struct upload *u)
{
	return u->srv->cfg->dialect == DIALECT_AIOD;
}

static int join(char *out, const char *dir, size_t dir_len, const char *name)
{
	int n = snprintf(out, PATH_MAX, "%.*s/%s", (int)dir_len, dir, name);

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Length of the directory part, without the last slash. */
static size_t dir_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* Replaces path by what it finally points to, which need not exist. */
static int follow_links(const struct server *srv, char *path)
{
	char link[PATH_MAX], next[PATH_MAX];

	for (int i = 0; i < MAX_LINKS; i++) {
		ssize_t n = readlink(path, link, sizeof(link) - 1);
		int r;

		if (n < 0)
			return 0; /* not a link, or open() will say what is wrong */
		link[n] = '\0';
		r = link[0] == '/' ? sandbox_path(srv, link, next)
				   : join(next, path, dir_length(path), link);
		if (r < 0)
			return r;
		memcpy(path, next, sizeof(next));
	}
	return -ELOOP;
}

static int make_parents(const char *path)
{
	char dir[PATH_MAX];
	size_t len = dir_length(path);
	struct stat st;

	memcpy(dir, path, len);
	dir[len] = '\0';
	return len == 0 || stat(dir, &st) == 0 ? 0 : file_make_dirs(dir);
}

/* Fills u->target. */
static int find_target(struct upload *u)
{
	int r;

	if (u->path[0] == '/')
		r = sandbox_path(u->srv, u->path, u->target);
	else if (is_atomic(u))
		r = join(u->target, u->srv->cfg->home, strlen(u->srv->cfg->home), u->path);
	else if (!strchr(u->path, '/'))
		r = -ENOENT; /* 1.x makes the directory "" and fails */
	else
		r = sandbox_path(u->srv, u->path, u->target);
	if (r == 0 && is_atomic(u))
		r = follow_links(u->srv, u->target);
	if (r == 0)
		r = make_parents(u->target);
	return r;
}

/* What a rename would quietly do away with. */
static int check_replaced(struct upload *u)
{
	if (u->target[strlen(u->target) - 1] == '/')
		return -EISDIR;
	if (stat(u->target, &u->old) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(u->old.st_mode))
		return S_ISDIR(u->old.st_mode) ? -EISDIR : -EINVAL;
	if (faccessat(AT_FDCWD, u->target, W_OK, AT_EACCESS) < 0)
		return -errno;
	u->replaces = true;
	return 0;
}

static int name_part(const struct upload *u, char *ret_part)
{
	char name[PART_NAME_SIZE];
	uint64_t id;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return -errno;
	snprintf(name, sizeof(name), ".aiod-upload-%016llx.part", (unsigned long long)id);
	return join(ret_part, u->target, dir_length(u->target), name);
}

/* Opens what is to be written for the target; returns the fd. */
static int open_target(struct upload *u)
{
	const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	char part[PATH_MAX];
	int r = find_target(u), fd;

	if (r < 0)
		return r;
	if (!is_atomic(u)) {
		fd = open(u->target, flags | O_TRUNC, 0666);
		return fd < 0 ? -errno : fd;
	}
	r = check_replaced(u);
	if (r == 0)
		r = name_part(u, part);
	if (r < 0)
		return r;
	fd = open(part, flags | O_EXCL, 0666);
	if (fd >= 0)
		memcpy(u->part, part, sizeof(part));
	else if (u->replaces && (errno == EACCES || errno == EPERM || errno == EROFS))
		/* Writable, but its directory is not. */
		fd = open(u->target, flags | O_TRUNC, 0666);
	return fd < 0 ? -errno : fd;
}

/* A file without a name; where the data is, since /tmp is small. */
static int open_spool(const struct upload *u)
{
	static const char *const dirs[] = { SANDBOX_DATA, "/tmp" };
	char dir[PATH_MAX], named[PATH_MAX];
	int fd = -1, r = -EACCES;

	for (size_t i = 0; i < ARRAY_SIZE(dirs) && fd < 0; i++) {
		r = sandbox_path(u->srv, dirs[i], dir);
		if (r < 0)
			continue;
		fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
		if (fd < 0 && errno == EOPNOTSUPP &&
		    join(named, dir, strlen(dir), ".aiod-upload-XXXXXX") == 0) {
			fd = mkostemp(named, O_CLOEXEC);
			if (fd >= 0)
				unlink(named);
		}
		if (fd < 0)
			r = -errno;
	}
	return fd < 0 ? r : fd;
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
		u->spooled = !u->path_len;
		u->fd = u->spooled ? open_spool(u) : open_target(u);
		if (u->fd < 0)
			u->err = -u->fd;
	}
	return -u->err;
}

static int store(struct upload *u, const char *data, size_t len)
{
	uint64_t max = u->srv->cfg->max_file_size;

	if (max && u->size + len > max)
		return -EFBIG;
	while (len > 0) {
		ssize_t n = write(u->fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
		u->size += (uint64_t)n;
	}
	return 0;
}

static int on_data(void *ctx, const char *data, size_t len)
{
	struct upload *u = ctx;
	int r = 0;

	if (u->field == FIELD_FILE) {
		r = store(u, data, len);
	} else if (u->field == FIELD_PATH) {
		size_t fits = MIN(len, sizeof(u->path) - 1 - u->path_len);

		u->path_has_nul |= memchr(data, '\0', len) != NULL;
		memcpy(u->path + u->path_len, data, fits);
		u->path_len += fits;
		if (fits < len)
			r = -ENAMETOOLONG;
	}
	u->err = -r;
	return r;
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

	if (u->fd >= 0)
		close(u->fd);
	if (u->part[0])
		unlink(u->part);
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
	u->fd = -1;
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

const struct body_sink upload_sink = { upload_begin, upload_data, upload_want };

/* ---- putting it in place (worker) ---- */

static int copy_spool(struct request *r, struct upload *u, int to)
{
	off_t at = 0;

	while ((uint64_t)at < u->size) {
		ssize_t n = sendfile(to, u->fd, &at, MIN(u->size - (uint64_t)at, COPY_PIECE));

		if (request_gone(r))
			return -ECANCELED;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO;
	}
	return 0;
}

/* Gives the spool a name beside the target, which works on one filesystem. */
static bool link_spool(struct upload *u)
{
	char from[PART_NAME_SIZE], part[PATH_MAX];

	if (!is_atomic(u) || find_target(u) < 0 || check_replaced(u) < 0 || name_part(u, part) < 0)
		return false;
	snprintf(from, sizeof(from), "/proc/self/fd/%d", u->fd);
	if (linkat(AT_FDCWD, from, AT_FDCWD, part, AT_SYMLINK_FOLLOW) < 0)
		return false;
	memcpy(u->part, part, sizeof(part));
	return true;
}

/* Moves what was written before the path was known. */
static int place_spool(struct request *r, struct upload *u)
{
	int fd, n;

	if (link_spool(u))
		return 0;
	fd = open_target(u);
	if (fd < 0)
		return fd;
	n = copy_spool(r, u, fd);
	close(u->fd);
	u->fd = fd;
	return n;
}

/* The new file looks like the old one from outside. */
static int keep_attributes(const struct upload *u)
{
	if (!u->replaces || !u->part[0])
		return 0;
	/* Only root can, and who is not root is mostly the owner. */
	if (fchown(u->fd, u->old.st_uid, u->old.st_gid) < 0 && errno != EPERM)
		return -errno;
	return fchmod(u->fd, u->old.st_mode & 0777) < 0 ? -errno : 0;
}

static int finish(struct request *r, struct upload *u)
{
	int n = u->spooled ? place_spool(r, u) : 0;

	if (n == 0)
		n = keep_attributes(u);
	/* Some filesystems report a failed write only here. */
	if (n == 0 && close(steal_fd(&u->fd)) < 0)
		n = -errno;
	if (n == 0 && u->part[0]) {
		if (rename(u->part, u->target) < 0)
			n = -errno;
		else
			u->part[0] = '\0';
	}
	return n;
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

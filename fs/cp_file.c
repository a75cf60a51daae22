/* See cp.h: one file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "clock.h"
#include "cmd.h"
#include "cp.h"
#include "io.h"

enum { BLOCK = 1024 * 1024, NAME_KEPT = 180 /* bytes of the target's name */ };

struct copy {
	const char *from, *to;
	struct stat st; /* of the source, when it was opened */
	int in;
	bool remote; /* the target */
	char *part;  /* the file that becomes the target */
	char *dir;   /* of the pieces, if there are any; below it their names */
	struct cp_progress *p;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

void cp_catch_signals(void)
{
	struct sigaction catch = { .sa_handler = on_signal }; /* system calls end with EINTR */

	sigaction(SIGINT, &catch, NULL);
	sigaction(SIGTERM, &catch, NULL);
	sigaction(SIGHUP, &catch, NULL);
}

bool cp_is_interrupted(void)
{
	return interrupted;
}

static int complain(const struct copy *c, const char *path, const char *what, int err)
{
	if (err == -EINTR || interrupted)
		return -EINTR;
	cp_progress_clear(c->p);
	cmd_fail("'%s': %s%s%s", path, what ?: "", what && err ? ": " : "",
		 err ? strerrordesc_np(-err) : "");
	return err ?: -EIO;
}

/* ---- names ---- */

/* ".NAME.KEY.part", where KEY is of the source's size and time. */
static int name_parts(struct copy *c)
{
	const char *slash = strrchr(c->to, '/'), *name = slash ? slash + 1 : c->to;
	unsigned char sum[EVP_MAX_MD_SIZE];
	char key[96];
	int n = snprintf(key, sizeof(key), "%" PRIu64 ":%lld.%09ld", (uint64_t)c->st.st_size,
			 (long long)c->st.st_mtim.tv_sec, c->st.st_mtim.tv_nsec);

	if (!EVP_Digest(key, (size_t)n, sum, NULL, EVP_sha256(), NULL))
		return -EIO;
	if (asprintf(&c->part, "%.*s.%.*s.%02x%02x%02x%02x.part", (int)(name - c->to), c->to,
		     NAME_KEPT, name, sum[0], sum[1], sum[2], sum[3]) < 0) {
		c->part = NULL;
		return -ENOMEM;
	}
	if (asprintf(&c->dir, "%ss", c->part) < 0) {
		c->dir = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* ---- bytes ---- */

/* So many bytes from where the source is; -ENODATA: it is shorter than it was. */
static int copy_bytes(struct copy *c, int out, uint64_t count)
{
	char *block CLEANUP_FREE = malloc(BLOCK);

	if (!block)
		return -ENOMEM;
	while (count > 0) {
		ssize_t n = interrupted ? -1 : read(c->in, block, MIN(count, BLOCK));
		int r;

		if (interrupted)
			return -EINTR;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		r = write_all(out, block, (size_t)n);
		if (r < 0)
			return r;
		count -= (uint64_t)n;
		cp_progress_moved(c->p, (uint64_t)n);
	}
	return 0;
}

/*
 * Its name can be guessed: in a directory that others write to (/tmp) it may have been made by one
 * of them, who would have what is copied, or be another name of a file of ours.
 */
static int open_part(struct copy *c)
{
	const int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW;
	int out = open(c->part, flags | O_CREAT | (c->remote ? O_TRUNC : O_EXCL), 0600);
	struct stat st;

	if (out < 0 && errno == EEXIST) {
		out = open(c->part, flags | O_NONBLOCK); /* not to wait for who reads a pipe */
		if (out < 0)
			return complain(c, c->part, NULL, -errno); /* which is in the way */
		if (fstat(out, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
		    st.st_nlink != 1) {
			close(out);
			return complain(c, c->part, "it is there, and not a file of yours alone",
					0);
		}
	}
	return out < 0 ? complain(c, c->to, NULL, -errno) : out;
}

/* In one file. On this machine it goes on at the end of what is there. */
static int copy_part(struct copy *c)
{
	int out = open_part(c);
	uint64_t size = (uint64_t)c->st.st_size;
	struct stat st;
	int r;

	if (out < 0)
		return out;
	if (!c->remote && fstat(out, &st) == 0 && (uint64_t)st.st_size <= size &&
	    lseek(out, 0, SEEK_END) == st.st_size && lseek(c->in, st.st_size, SEEK_SET) >= 0) {
		c->p->kept = (uint64_t)st.st_size;
		cp_progress_moved(c->p, c->p->kept);
	} else if (ftruncate(out, 0) < 0) {
		r = -errno;
		close(out);
		return complain(c, c->to, NULL, r);
	}
	r = copy_bytes(c, out, size - c->p->kept);
	if (r == 0 && fsync(out) < 0)
		r = -errno;
	if (close(out) < 0 && r == 0)
		r = -errno;
	if (r < 0 && c->remote)
		unlink(c->part);
	return r < 0 ? complain(c, c->from, NULL, r) : 0;
}

/* Whether that piece is in the sandbox already. */
static bool has_piece(const char *path, uint64_t len)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == len;
}

static int copy_piece(struct copy *c, const char *path, const char *as, uint64_t at, uint64_t len)
{
	int out = open(as, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r;

	if (out < 0)
		return -errno;
	r = lseek(c->in, (off_t)at, SEEK_SET) < 0 ? -errno : copy_bytes(c, out, len);
	if (close(out) < 0 && r == 0) /* confirmed by the sandbox, or not */
		r = -errno;
	if (r == 0 && rename(as, path) < 0)
		r = -errno;
	if (r < 0)
		unlink(as);
	return r;
}

static int join(struct copy *c)
{
	static const char script[] = "cat \"$1\"/p* >\"$2\" && rm -r -- \"$1\"";
	const char *slash = strrchr(c->part, '/');
	char *where CLEANUP_FREE =
		slash ? strndup(c->part, (size_t)MAX(slash - c->part, 1)) : strdup(".");
	char *file CLEANUP_FREE = NULL, *pieces CLEANUP_FREE = NULL;
	char output[64];
	int r;

	if (asprintf(&file, "./%s", slash ? slash + 1 : c->part) < 0)
		file = NULL;
	if (asprintf(&pieces, "./%s", slash ? strrchr(c->dir, '/') + 1 : c->dir) < 0)
		pieces = NULL;
	if (!where || !file || !pieces)
		return -ENOMEM;
	r = cp_run(where, (const char *const[]){ "sh", "-c", script, "sh", pieces, file, NULL },
		   output, sizeof(output));
	if (interrupted)
		return -EINTR;
	return r == 0 ? 0 : r < 0 ? r : -EIO;
}

static int copy_pieces(struct copy *c)
{
	uint64_t size = (uint64_t)c->st.st_size;
	int r = mkdir(c->dir, 0700) < 0 && errno != EEXIST ? -errno : 0;

	for (uint64_t at = 0; at < size && r == 0; at += CP_PIECE) {
		uint64_t len = MIN(size - at, (uint64_t)CP_PIECE);
		char *path CLEANUP_FREE = NULL, *as CLEANUP_FREE = NULL;

		if (asprintf(&path, "%s/p%08" PRIu64, c->dir, at / CP_PIECE) < 0)
			path = NULL;
		if (asprintf(&as, "%s/new", c->dir) < 0)
			as = NULL;
		if (!path || !as)
			return -ENOMEM;
		if (has_piece(path, len)) {
			c->p->kept += len;
			cp_progress_moved(c->p, len);
		} else {
			r = copy_piece(c, path, as, at, len);
		}
	}
	if (r == 0) {
		cp_progress_say(c->p, "joining the pieces");
		r = join(c);
	}
	return r < 0 ? complain(c, c->from, NULL, r) : 0;
}

/* ---- all of it ---- */

static int check_source(const struct copy *c)
{
	struct stat now;

	if (fstat(c->in, &now) < 0)
		return complain(c, c->from, NULL, -errno);
	if (now.st_size != c->st.st_size || now.st_mtim.tv_sec != c->st.st_mtim.tv_sec ||
	    now.st_mtim.tv_nsec != c->st.st_mtim.tv_nsec) {
		unlink(c->part);
		return complain(c, c->from, "it changed while it was copied", -ESTALE);
	}
	return 0;
}

/* Both sides are asked for what they have; -EBADMSG: not the same. */
static int compare(const struct copy *c, const char *other, char sum[CP_SUM])
{
	char theirs[CP_SUM] = "";
	int r;

	cp_progress_say(c->p, "verifying");
	r = cp_sum(c->from, sum);
	if (r < 0)
		return complain(c, c->from, "no checksum", r);
	r = cp_sum(other, theirs);
	if (r < 0)
		return complain(c, c->to, "no checksum", r);
	return strcmp(sum, theirs) == 0 ? 0 : -EBADMSG;
}

static bool looks_the_same(const struct copy *c)
{
	struct stat st;

	return lstat(c->to, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == c->st.st_size &&
	       st.st_mtim.tv_sec == c->st.st_mtim.tv_sec;
}

static int finish(struct copy *c, char sum[CP_SUM])
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, c->st.st_mtim };
	int r = check_source(c);

	if (r == 0)
		r = compare(c, c->part, sum);
	if (r == -EBADMSG) {
		unlink(c->part);
		return complain(c, c->to, "the copy is not what was copied: checksums differ", 0);
	}
	if (r < 0)
		return r;
	if (chmod(c->part, c->st.st_mode & 0777) < 0 ||
	    utimensat(AT_FDCWD, c->part, times, AT_SYMLINK_NOFOLLOW) < 0 ||
	    rename(c->part, c->to) < 0)
		return complain(c, c->to, NULL, -errno);
	return 0;
}

static int run(struct copy *c)
{
	char sum[CP_SUM] = "";
	int r;

	cp_progress_begin(c->p, c->from, (uint64_t)c->st.st_size);
	if (looks_the_same(c)) {
		r = compare(c, c->to, sum);
		if (r == 0)
			cp_progress_end(c->p, c->to, sum, true);
		if (r != -EBADMSG)
			return r;
	}
	c->remote = cp_is_remote(c->to);
	r = name_parts(c);
	if (r < 0)
		return complain(c, c->to, NULL, r);
	r = c->remote && c->st.st_size > CP_PIECE ? copy_pieces(c) : copy_part(c);
	if (r == 0)
		r = finish(c, sum);
	if (r == 0)
		cp_progress_end(c->p, c->to, sum, false);
	return r;
}

int cp_file(const char *from, const char *to, struct cp_progress *p)
{
	struct copy c = { .from = from, .to = to, .p = p };
	int in CLEANUP_FD = open(from, O_RDONLY | O_CLOEXEC);
	int r;

	if (in < 0)
		return complain(&c, from, NULL, -errno);
	c.in = in;
	if (fstat(in, &c.st) < 0)
		return complain(&c, from, NULL, -errno);
	if (!S_ISREG(c.st.st_mode))
		return complain(&c, from, "not a regular file", 0);
	r = run(&c);
	free(c.part);
	free(c.dir);
	return r;
}

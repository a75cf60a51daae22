/*
 * The least that a FUSE filesystem costs: another directory as it is, with every
 * cache that the kernel offers. scripts/bench mount calls it "passthrough".
 * Who changes the other directory meanwhile is not seen.
 *
 * A node is a name in its parent node; threads share the table of nodes under one
 * lock. Paths are relative to the other directory, and made anew for each use.
 *
 *	bench_passthrough DIRECTORY MOUNTPOINT
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "util.h"

enum { FOREVER = 86400, /* seconds */ THREADS_MOST = 10, BUCKETS = 1 << 17 };

struct node {
	struct node *next; /* in its bucket */
	struct node *parent;
	uint64_t lookups; /* of the kernel, and one per node below */
	char *name;       /* NULL: it is gone */
};

struct dir {
	DIR *stream;
	struct dirent *waiting; /* read, but there was no room for it */
	off_t offset;
};

static int root_fd;
static struct node root = { .lookups = 1 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *buckets[BUCKETS]; /* guarded by lock, and so are nodes */

/* ---- nodes ---- */

static struct node *node_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? &root : (struct node *)ino;
}

static struct node **bucket_of(const struct node *parent, const char *name)
{
	uint64_t hash = (uintptr_t)parent * 0x9e3779b97f4a7c15ull;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 0x100000001b3ull;
	return &buckets[(hash ^ hash >> 32) % BUCKETS];
}

static struct node *find_locked(struct node *parent, const char *name)
{
	for (struct node *n = *bucket_of(parent, name); n; n = n->next)
		if (n->parent == parent && !strcmp(n->name, name))
			return n;
	return NULL;
}

static void insert_locked(struct node *n)
{
	struct node **bucket = bucket_of(n->parent, n->name);

	n->next = *bucket;
	*bucket = n;
}

static struct node *add_locked(struct node *parent, const char *name)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n || !(n->name = strdup(name))) {
		free(n);
		return NULL;
	}
	n->parent = parent;
	parent->lookups++;
	insert_locked(n);
	return n;
}

/* Out of the table, but not yet gone: the kernel may still know it. */
static void remove_locked(struct node *n)
{
	for (struct node **at = bucket_of(n->parent, n->name); *at; at = &(*at)->next) {
		if (*at != n)
			continue;
		*at = n->next;
		break;
	}
	free(STEAL(n->name));
}

static void put_locked(struct node *n, uint64_t count)
{
	while (n != &root && (n->lookups -= count) == 0) {
		struct node *parent = n->parent;

		if (n->name)
			remove_locked(n);
		free(n);
		n = parent;
		count = 1;
	}
}

/* Writes the path from the end of the buffer on; returns its start, or NULL. */
static char *path_locked(const struct node *n, const char *name, char path[PATH_MAX])
{
	char *at = path + PATH_MAX - 1;

	*at = '\0';
	for (;;) {
		size_t len = name ? strlen(name) : 0;

		if (at - path < (ptrdiff_t)len + 2)
			return NULL;
		if (len) {
			if (*at)
				*--at = '/';
			at -= len;
			memcpy(at, name, len);
		}
		if (n == &root)
			break;
		if (!n->name)
			return NULL;
		name = n->name;
		n = n->parent;
	}
	if (!*at)
		*--at = '.';
	return at;
}

/* Of a name in a directory, or (NULL) of the node itself. "" if it is gone: ENOENT for all. */
static const char *path_of(fuse_ino_t ino, const char *name, char path[PATH_MAX])
{
	char *found;

	pthread_mutex_lock(&lock);
	found = path_locked(node_of(ino), name, path);
	pthread_mutex_unlock(&lock);
	return found ?: "";
}

/* The kernel knows the name from now on; 0, or an error. */
static int make_entry(fuse_ino_t parent, const char *name, struct fuse_entry_param *ret)
{
	struct node *dir = node_of(parent), *n;
	char path[PATH_MAX];

	*ret = (struct fuse_entry_param){ .attr_timeout = FOREVER, .entry_timeout = FOREVER };
	if (fstatat(root_fd, path_of(parent, name, path), &ret->attr, AT_SYMLINK_NOFOLLOW) < 0)
		return errno;
	pthread_mutex_lock(&lock);
	n = find_locked(dir, name) ?: add_locked(dir, name);
	if (n)
		n->lookups++;
	pthread_mutex_unlock(&lock);
	ret->ino = (fuse_ino_t)n;
	return n ? 0 : ENOMEM;
}

static void reply_entry(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int error = make_entry(parent, name, &e);

	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &e);
}

static void reply_result(fuse_req_t req, int result)
{
	fuse_reply_err(req, result < 0 ? errno : 0);
}

/* ---- names ---- */

static void pt_init(void *ctx UNUSED, struct fuse_conn_info *conn)
{
	conn->want |= conn->capable & (FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
				       FUSE_CAP_SPLICE_MOVE | FUSE_CAP_CACHE_SYMLINKS);
}

static void pt_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	int error = make_entry(parent, name, &e);

	if (error == ENOENT) /* an entry without a node: absent, and that can be cached */
		error = 0;
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &e);
}

static void pt_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	pthread_mutex_lock(&lock);
	put_locked(node_of(ino), count);
	pthread_mutex_unlock(&lock);
	fuse_reply_none(req);
}

static void pt_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < count; i++)
		put_locked(node_of(forgets[i].ino), forgets[i].nlookup);
	pthread_mutex_unlock(&lock);
	fuse_reply_none(req);
}

static void pt_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	char path[PATH_MAX];

	if (mkdirat(root_fd, path_of(parent, name, path), mode) < 0)
		fuse_reply_err(req, errno);
	else
		reply_entry(req, parent, name);
}

static void forget_name(fuse_ino_t parent, const char *name)
{
	struct node *n;

	pthread_mutex_lock(&lock);
	n = find_locked(node_of(parent), name);
	if (n)
		remove_locked(n);
	pthread_mutex_unlock(&lock);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
	char path[PATH_MAX];
	int result = unlinkat(root_fd, path_of(parent, name, path), flags);

	if (!result)
		forget_name(parent, name);
	reply_result(req, result);
}

static void pt_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, 0);
}

static void pt_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, AT_REMOVEDIR);
}

static void pt_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		      const char *to_name, unsigned flags)
{
	char from[PATH_MAX], to[PATH_MAX], *copy = strdup(to_name);
	struct node *n;

	if (flags || !copy) {
		fuse_reply_err(req, EINVAL);
		free(copy);
		return;
	}
	if (renameat(root_fd, path_of(parent, name, from), root_fd,
		     path_of(to_parent, to_name, to)) < 0) {
		fuse_reply_err(req, errno);
		free(copy);
		return;
	}
	forget_name(to_parent, to_name);
	pthread_mutex_lock(&lock);
	n = find_locked(node_of(parent), name);
	if (n) {
		struct node *old = n->parent;

		remove_locked(n);
		n->parent = node_of(to_parent);
		n->parent->lookups++;
		n->name = STEAL(copy);
		insert_locked(n);
		put_locked(old, 1);
	}
	pthread_mutex_unlock(&lock);
	free(copy);
	fuse_reply_err(req, 0);
}

static void pt_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	char path[PATH_MAX];

	if (symlinkat(target, root_fd, path_of(parent, name, path)) < 0)
		fuse_reply_err(req, errno);
	else
		reply_entry(req, parent, name);
}

static void pt_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char path[PATH_MAX], target[PATH_MAX];
	ssize_t n = readlinkat(root_fd, path_of(ino, NULL, path), target, sizeof(target) - 1);

	if (n < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	target[n] = '\0';
	fuse_reply_readlink(req, target);
}

/* ---- attributes ---- */

static void pt_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	struct stat st;
	int result = fi ? fstat((int)fi->fh, &st)
			: fstatat(root_fd, path_of(ino, NULL, path), &st, AT_SYMLINK_NOFOLLOW);

	if (result < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_attr(req, &st, FOREVER);
}

static int truncate_at(const char *path, off_t size)
{
	int fd = openat(root_fd, path, O_WRONLY | O_CLOEXEC), result;

	if (fd < 0)
		return -1;
	result = ftruncate(fd, size);
	close(fd);
	return result;
}

static struct timespec time_to_set(int to_set, int set, int now, struct timespec given)
{
	if (to_set & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	return to_set & set ? given : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static void pt_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	char buffer[PATH_MAX];
	const char *path = path_of(ino, NULL, buffer);
	int result = 0;

	if (to_set & FUSE_SET_ATTR_MODE)
		result = fchmodat(root_fd, path, attr->st_mode & 07777, 0);
	if (!result && to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		result = fchownat(
			root_fd, path, to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1,
			to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1, AT_SYMLINK_NOFOLLOW);
	if (!result && to_set & FUSE_SET_ATTR_SIZE)
		result = fi ? ftruncate((int)fi->fh, attr->st_size)
			    : truncate_at(path, attr->st_size);
	if (!result && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
		const struct timespec times[2] = {
			time_to_set(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW,
				    attr->st_atim),
			time_to_set(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW,
				    attr->st_mtim),
		};

		result = utimensat(root_fd, path, times, AT_SYMLINK_NOFOLLOW);
	}
	if (result < 0)
		fuse_reply_err(req, errno);
	else
		pt_getattr(req, ino, fi);
}

/* ---- files ---- */

static void pt_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	int fd = openat(root_fd, path_of(ino, NULL, path), (fi->flags & ~O_NOFOLLOW) | O_CLOEXEC);

	if (fd < 0) {
		fuse_reply_err(req, errno);
		return;
	}
	fi->fh = (uint64_t)fd;
	fi->keep_cache = 1;
	fi->noflush = 1;
	fuse_reply_open(req, fi);
}

static void pt_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	struct fuse_entry_param e;
	int fd =
		openat(root_fd, path_of(parent, name, path), fi->flags | O_CREAT | O_CLOEXEC, mode);
	int error = fd < 0 ? errno : make_entry(parent, name, &e);

	if (error) {
		if (fd >= 0)
			close(fd);
		fuse_reply_err(req, error);
		return;
	}
	fi->fh = (uint64_t)fd;
	fi->keep_cache = 1;
	fi->noflush = 1;
	fuse_reply_create(req, &e, fi);
}

static void pt_read(fuse_req_t req, fuse_ino_t ino UNUSED, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(size);

	bytes.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	bytes.buf[0].fd = (int)fi->fh;
	bytes.buf[0].pos = offset;
	fuse_reply_data(req, &bytes, FUSE_BUF_SPLICE_MOVE);
}

static void pt_write_buf(fuse_req_t req, fuse_ino_t ino UNUSED, struct fuse_bufvec *bytes,
			 off_t offset, struct fuse_file_info *fi)
{
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(fuse_buf_size(bytes));
	ssize_t n;

	out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	out.buf[0].fd = (int)fi->fh;
	out.buf[0].pos = offset;
	n = fuse_buf_copy(&out, bytes, 0);
	if (n < 0)
		fuse_reply_err(req, (int)-n);
	else
		fuse_reply_write(req, (size_t)n);
}

static void pt_fsync(fuse_req_t req, fuse_ino_t ino UNUSED, int data_only UNUSED,
		     struct fuse_file_info *fi)
{
	reply_result(req, fsync((int)fi->fh));
}

static void pt_release(fuse_req_t req, fuse_ino_t ino UNUSED, struct fuse_file_info *fi)
{
	close((int)fi->fh);
	fuse_reply_err(req, 0);
}

/* ---- directories ---- */

static void pt_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	char path[PATH_MAX];
	int fd = openat(root_fd, path_of(ino, NULL, path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dir *d = calloc(1, sizeof(*d));

	if (fd < 0 || !d || !(d->stream = fdopendir(fd))) {
		fuse_reply_err(req, fd < 0 ? errno : ENOMEM);
		if (fd >= 0)
			close(fd);
		free(d);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)d;
	fi->cache_readdir = 1;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

/* Adds an entry; returns its length, or 0 if it does not fit. */
static size_t add_entry(fuse_req_t req, fuse_ino_t ino, const struct dirent *de, char *at,
			size_t room, bool plus)
{
	struct fuse_entry_param e = {
		.attr = { .st_ino = de->d_ino, .st_mode = (mode_t)de->d_type << 12 },
	};
	size_t len;

	if (!plus) {
		len = fuse_add_direntry(req, at, room, de->d_name, &e.attr, de->d_off);
		return len > room ? 0 : len;
	}
	/* Without a node the kernel takes the name only, which is what . and .. are. */
	if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
		make_entry(ino, de->d_name, &e);
	len = fuse_add_direntry_plus(req, at, room, de->d_name, &e, de->d_off);
	if (len <= room)
		return len;
	if (e.ino) {
		pthread_mutex_lock(&lock);
		put_locked(node_of(e.ino), 1);
		pthread_mutex_unlock(&lock);
	}
	return 0;
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		     struct fuse_file_info *fi, bool plus)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;
	char *bytes = malloc(size);
	size_t len = 0, n;

	if (!bytes) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (offset != d->offset) {
		seekdir(d->stream, offset);
		d->waiting = NULL;
	}
	while (d->waiting || (d->waiting = readdir(d->stream))) {
		n = add_entry(req, ino, d->waiting, bytes + len, size - len, plus);
		if (!n)
			break;
		len += n;
		d->offset = d->waiting->d_off;
		d->waiting = NULL;
	}
	fuse_reply_buf(req, bytes, len);
	free(bytes);
}

static void pt_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		       struct fuse_file_info *fi)
{
	read_dir(req, ino, size, offset, fi, false);
}

static void pt_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	read_dir(req, ino, size, offset, fi, true);
}

static void pt_releasedir(fuse_req_t req, fuse_ino_t ino UNUSED, struct fuse_file_info *fi)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;

	closedir(d->stream);
	free(d);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops operations = {
	.init = pt_init,
	.lookup = pt_lookup,
	.forget = pt_forget,
	.forget_multi = pt_forget_multi,
	.getattr = pt_getattr,
	.setattr = pt_setattr,
	.readlink = pt_readlink,
	.mkdir = pt_mkdir,
	.unlink = pt_unlink,
	.rmdir = pt_rmdir,
	.symlink = pt_symlink,
	.rename = pt_rename,
	.open = pt_open,
	.create = pt_create,
	.read = pt_read,
	.write_buf = pt_write_buf,
	.fsync = pt_fsync,
	.release = pt_release,
	.opendir = pt_opendir,
	.readdir = pt_readdir,
	.readdirplus = pt_readdirplus,
	.releasedir = pt_releasedir,
};

int main(int argc, char **argv)
{
	char *mount_argv[] = { argv[0], (char[]){ "-ofsname=passthrough" }, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, mount_argv);
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	struct fuse_session *session;
	int result = 1;

	if (argc != 3) {
		fputs("usage: bench_passthrough DIRECTORY MOUNTPOINT\n", stderr);
		return 2;
	}
	umask(0);
	root_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	session = fuse_session_new(&args, &operations, sizeof(operations), NULL);
	if (root_fd < 0 || !session || !config || fuse_set_signal_handlers(session) < 0) {
		perror("bench_passthrough");
		return 1;
	}
	if (!fuse_session_mount(session, argv[2])) {
		fuse_loop_cfg_set_max_threads(config, THREADS_MOST);
		result = fuse_session_loop_mt(session, config) ? 1 : 0;
		fuse_session_unmount(session);
	}
	fuse_remove_signal_handlers(session);
	fuse_session_destroy(session);
	fuse_loop_cfg_destroy(config);
	fuse_opt_free_args(&args);
	return result;
}

/*
 * The table of what the kernel may ask, and who answers: control files, the
 * threads' directory, or a sandbox. Loop thread only.
 */
#include "ops.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "ctl.h"
#include "entries.h"
#include "entry.h"
#include "file.h"
#include "thread.h"

static struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void refuse(fuse_req_t req, int err)
{
	struct parked p;

	parked_init(&p, fs_of(req), req, NULL);
	parked_err(&p, err);
}

/* NULL: unknown, and answered so. */
static struct node *node_of(fuse_req_t req, fuse_ino_t ino)
{
	struct node *n = node_by_ino(fs_of(req), ino);

	if (!n)
		refuse(req, -ESTALE);
	return n;
}

/*
 * The directory of a sandbox in which a name is to be made or removed. NULL: it
 * cannot be (answered).
 */
static struct node *dir_of(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct node *n = node_of(req, ino);

	if (!n)
		return NULL;
	if (strlen(name) > NAME_BYTES_MAX)
		refuse(req, -ENAMETOOLONG);
	else if (n->kind != NODE_SANDBOX)
		refuse(req, -EPERM);
	else if (n == n->thread->root && strcmp(name, ".ctl") == 0)
		refuse(req, -EPERM);
	else
		return n;
	return NULL;
}

static struct handle *handle_of(struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

static struct ctl_open *ctl_of(struct fuse_file_info *fi)
{
	return (struct ctl_open *)(uintptr_t)fi->fh;
}

static bool is_threads(const struct node *n)
{
	return n->kind == NODE_CTL_DIR && n->ctl_dir->is_threads;
}

/* ---- names ---- */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *dir = node_of(req, parent);

	if (!dir)
		return;
	if (strlen(name) > NAME_BYTES_MAX)
		refuse(req, -ENAMETOOLONG);
	else if (is_threads(dir))
		threads_op_lookup(req, dir, name);
	else if (dir->kind == NODE_CTL_DIR ||
		 (dir == dir->thread->root && strcmp(name, ".ctl") == 0))
		ctl_op_lookup(req, dir, name);
	else
		sandbox_op_lookup(req, dir, name);
}

static void forget_one(struct fs *fs, fuse_ino_t ino, uint64_t count)
{
	struct node *n = node_by_ino(fs, ino);

	if (n && n != fs->root)
		node_forget(n, count);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	forget_one(fs_of(req), ino, count);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget_one(fs_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct node *dir = node_of(req, parent);

	if (!dir)
		return;
	if (is_threads(dir))
		threads_op_mkdir(req, dir, name);
	else if ((dir = dir_of(req, parent, name)))
		sandbox_op_mkdir(req, dir, name, mode);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *dir = node_of(req, parent);

	if (!dir)
		return;
	if (is_threads(dir))
		threads_op_rmdir(req, dir, name);
	else if ((dir = dir_of(req, parent, name)))
		sandbox_op_rmdir(req, dir, name);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *dir = dir_of(req, parent, name);

	if (dir)
		sandbox_op_unlink(req, dir, name);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct node *dir = dir_of(req, parent, name);

	if (dir)
		sandbox_op_symlink(req, dir, name, target);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct node *n = node_of(req, ino);
	struct node *dir = n ? dir_of(req, parent, name) : NULL;

	if (dir)
		sandbox_op_link(req, n, dir, name);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		      const char *to_name, unsigned flags)
{
	struct node *dir = dir_of(req, parent, name);
	struct node *to_dir = dir ? dir_of(req, to_parent, to_name) : NULL;

	if (to_dir)
		sandbox_op_rename(req, dir, name, to_dir, to_name, flags);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	(void)dev;
	/* Files come by create; anything else would be the host's to interpret. */
	if (dir_of(req, parent, name))
		refuse(req, S_ISREG(mode) ? -EOPNOTSUPP : -EPERM);
}

/* ---- attributes ---- */

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = node_of(req, ino);
	struct parked p;
	struct stat st;

	(void)fi;
	if (!n)
		return;
	if (n->kind == NODE_SANDBOX) {
		sandbox_op_getattr(req, n);
		return;
	}
	parked_init(&p, n->fs, req, NULL);
	ctl_stat(n, &st);
	parked_attr(&p, &st, ATTR_SECONDS);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
		       struct fuse_file_info *fi)
{
	struct node *n = node_of(req, ino);
	struct parked p;
	struct stat now;

	if (!n)
		return;
	if (n->kind == NODE_SANDBOX) {
		sandbox_op_setattr(req, n, st, to_set, fi ? handle_of(fi) : NULL);
		return;
	}
	/* Emptying a control file and touching it are harmless. */
	parked_init(&p, n->fs, req, NULL);
	if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
		parked_err(&p, -EPERM);
		return;
	}
	ctl_stat(n, &now);
	parked_attr(&p, &now, ATTR_SECONDS);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct node *n = node_of(req, ino);

	if (!n)
		return;
	if (n->kind == NODE_SANDBOX)
		sandbox_op_readlink(req, n);
	else
		refuse(req, -EINVAL);
}

static void op_statfs_at(fuse_req_t req, fuse_ino_t ino)
{
	op_statfs(req, fs_of(req), node_by_ino(fs_of(req), ino));
}

/* ---- directories ---- */

static void op_opendir_at(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = node_of(req, ino);

	if (n)
		op_opendir(req, n, fi);
}

static void op_readdir_at(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			  struct fuse_file_info *fi)
{
	struct node *n = node_of(req, ino);

	if (n)
		op_readdir(req, n, size, offset, fi, false);
}

static void op_readdirplus_at(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
			      struct fuse_file_info *fi)
{
	struct node *n = node_of(req, ino);

	if (n)
		op_readdir(req, n, size, offset, fi, true);
}

static void op_releasedir_at(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	op_releasedir(req, fs_of(req), fi);
}

/* ---- files; a node with an open file exists ---- */

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *n = node_of(req, ino);

	if (!n)
		return;
	if (n->kind == NODE_CTL_FILE)
		ctl_op_open(req, n, fi);
	else if (n->kind == NODE_SANDBOX)
		sandbox_op_open(req, n, fi);
	else
		refuse(req, -EISDIR);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct node *dir = dir_of(req, parent, name);

	if (dir)
		sandbox_op_create(req, dir, name, mode, fi);
}

static bool is_ctl(fuse_req_t req, fuse_ino_t ino)
{
	struct node *n = node_by_ino(fs_of(req), ino);

	return n && n->kind == NODE_CTL_FILE;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *fi)
{
	if (is_ctl(req, ino))
		ctl_op_read(req, ctl_of(fi), size, (uint64_t)offset);
	else
		sandbox_op_read(req, handle_of(fi), size, (uint64_t)offset, fi->flags & O_DIRECT);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t len, off_t offset,
		     struct fuse_file_info *fi)
{
	if (is_ctl(req, ino))
		ctl_op_write(req, ctl_of(fi), bytes, len);
	else
		/* Pages of a mapping come back through any open file, and belong where they are. */
		sandbox_op_write(req, handle_of(fi), bytes, len, (uint64_t)offset,
				 (fi->flags & O_APPEND) && !fi->writepage);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (is_ctl(req, ino))
		ctl_op_flush(req, ctl_of(fi));
	else
		sandbox_op_flush(req, handle_of(fi), false);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	if (is_ctl(req, ino))
		refuse(req, 0);
	else
		sandbox_op_flush(req, handle_of(fi), true);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (is_ctl(req, ino))
		ctl_op_release(req, ctl_of(fi));
	else
		sandbox_op_release(req, handle_of(fi));
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		    struct fuse_pollhandle *ph)
{
	struct parked p;

	if (is_ctl(req, ino)) {
		ctl_op_poll(req, ctl_of(fi), ph);
		return;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	parked_init(&p, fs_of(req), req, NULL);
	parked_poll(&p, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t len,
			 struct fuse_file_info *fi)
{
	if (is_ctl(req, ino))
		refuse(req, -EOPNOTSUPP);
	else
		sandbox_op_fallocate(req, handle_of(fi), mode, (uint64_t)offset, (uint64_t)len);
}

static void op_copy(fuse_req_t req, fuse_ino_t from, off_t from_offset,
		    struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
		    struct fuse_file_info *to_fi, size_t len, int flags)
{
	if (is_ctl(req, from) || is_ctl(req, to))
		refuse(req, -EOPNOTSUPP);
	else
		sandbox_op_copy(req, handle_of(from_fi), (uint64_t)from_offset, handle_of(to_fi),
				(uint64_t)to_offset, len, flags);
}

/* ---- the beginning ---- */

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* Bytes go through our memory anyway. */
	conn->want &=
		~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	/* Locks are the kernel's own, for this mount. */
	conn->want &= ~(unsigned)(FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
	conn->want |= conn->capable &
		      (FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA |
		       FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS);
	/* Which names come with attributes is decided here: dir.c. */
	conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS_AUTO;
	conn->max_write = 1024 * 1024;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
}

const struct fuse_lowlevel_ops fs_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir_at,
	.readdir = op_readdir_at,
	.readdirplus = op_readdirplus_at,
	.releasedir = op_releasedir_at,
	.statfs = op_statfs_at,
	.create = op_create,
	.poll = op_poll,
	.fallocate = op_fallocate,
	.copy_file_range = op_copy,
};

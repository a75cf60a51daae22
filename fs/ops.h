/*
 * What the kernel may ask, by the kind of node it asks it of. Names were
 * checked for their length, nodes exist. Each answers its request, at once or
 * later. Loop thread only.
 */
#pragma once

#include "node.h"

struct ctl_open;
struct handle;

extern const struct fuse_lowlevel_ops fs_ops; /* ops.c; userdata: the struct fs */

/* attr.c */
void sandbox_op_lookup(fuse_req_t req, struct node *dir, const char *name);
void sandbox_op_getattr(fuse_req_t req, struct node *n);
void sandbox_op_setattr(fuse_req_t req, struct node *n, const struct stat *st, int to_set,
			struct handle *h);
void sandbox_op_readlink(fuse_req_t req, struct node *n);
void op_statfs(fuse_req_t req, struct fs *fs, struct node *n);

/* names.c */
void sandbox_op_mkdir(fuse_req_t req, struct node *dir, const char *name, mode_t mode);
void sandbox_op_symlink(fuse_req_t req, struct node *dir, const char *name, const char *target);
void sandbox_op_link(fuse_req_t req, struct node *n, struct node *dir, const char *name);
void sandbox_op_unlink(fuse_req_t req, struct node *dir, const char *name);
void sandbox_op_rmdir(fuse_req_t req, struct node *dir, const char *name);
void sandbox_op_rename(fuse_req_t req, struct node *dir, const char *name, struct node *to_dir,
		       const char *to_name, unsigned flags);

/* dir.c; directories of all kinds */
void op_opendir(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, struct node *n, size_t size, off_t offset,
		struct fuse_file_info *fi, bool plus);
void op_releasedir(fuse_req_t req, struct fs *fs, struct fuse_file_info *fi);
/* A name in it was looked up, and is no directory. */
void dir_was_searched(struct node *dir);
/* The end of the mount: closes all that are open. */
void dirs_end(struct fs *fs);

/* file.c */
void sandbox_op_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void sandbox_op_create(fuse_req_t req, struct node *dir, const char *name, mode_t mode,
		       struct fuse_file_info *fi);
/* direct: past the kernel's pages. */
void sandbox_op_read(fuse_req_t req, struct handle *h, size_t size, uint64_t offset, bool direct);
void sandbox_op_write(fuse_req_t req, struct handle *h, const char *bytes, size_t len,
		      uint64_t offset, bool append);
/* others: also what was written by other open files of it (fsync, not close). */
void sandbox_op_flush(fuse_req_t req, struct handle *h, bool others);
void sandbox_op_release(fuse_req_t req, struct handle *h);
void sandbox_op_fallocate(fuse_req_t req, struct handle *h, int mode, uint64_t offset,
			  uint64_t len);
void sandbox_op_copy(fuse_req_t req, struct handle *from, uint64_t from_offset, struct handle *to,
		     uint64_t to_offset, uint64_t len, int flags);

/* threads.c: the directory of threads */
void threads_op_lookup(fuse_req_t req, struct node *dir, const char *name);
void threads_op_mkdir(fuse_req_t req, struct node *dir, const char *name);
void threads_op_rmdir(fuse_req_t req, struct node *dir, const char *name);
/* The names of the known threads, from disk and memory; done(ctx, err, names, count) once, later.
 */
void threads_list(struct fs *fs, void (*done)(void *ctx, int err, char **names, size_t count),
		  void *ctx);
/* The node of a known thread; counted. */
int threads_node(struct node *dir, struct thread *t, struct node **ret) MUST_CHECK;

/* ctl.c */
void ctl_op_lookup(fuse_req_t req, struct node *dir, const char *name);
int ctl_child(struct node *dir, const char *name, struct node **ret) MUST_CHECK;
void ctl_stat(struct node *n, struct stat *ret);
void ctl_op_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
void ctl_op_read(fuse_req_t req, struct ctl_open *o, size_t size, uint64_t offset);
void ctl_op_write(fuse_req_t req, struct ctl_open *o, const char *bytes, size_t len);
void ctl_op_flush(fuse_req_t req, struct ctl_open *o);
void ctl_op_poll(fuse_req_t req, struct ctl_open *o, struct fuse_pollhandle *ph);
void ctl_op_release(fuse_req_t req, struct ctl_open *o);
/* The end of the mount: closes all that are open. */
void ctl_end(struct fs *fs);

/*
 * The tree of control files, as tables; looking them up, opening them, and
 * handing what is asked to the file's own functions. Loop thread only.
 */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <utlist.h>

#include "entry.h"
#include "jobs.h"
#include "log.h"
#include "ops.h"
#include "thread.h"

/* ---- what there is ---- */

static const struct ctl_file *const root_files[] = { &ctl_readme, NULL };
static const struct ctl_file *const root_ctl_files[] = { &ctl_fs_status,  &ctl_fs_status_json,
							 &ctl_fs_metrics, &ctl_fs_config,
							 &ctl_fs_recover, NULL };
static const struct ctl_file *const thread_files[] = {
	&ctl_exec,      &ctl_exit_code,     &ctl_run,
	&ctl_release,   &ctl_destroy,       &ctl_events,
	&ctl_transfers, &ctl_thread_status, &ctl_thread_status_json,
	NULL,
};
static const struct ctl_file *const job_files[] = {
	&ctl_job_cmd,    &ctl_job_stdin,     &ctl_job_stdout, &ctl_job_stderr,
	&ctl_job_status, &ctl_job_exit_code, &ctl_job_kill,   NULL,
};

const struct ctl_dir ctl_job = { .name = "", .files = job_files };
const struct ctl_dir ctl_jobs = { .name = "jobs", .is_jobs = true };
const struct ctl_dir ctl_root_ctl = { .name = ".ctl", .files = root_ctl_files };
const struct ctl_dir ctl_threads = { .name = "threads", .is_threads = true };

static const struct ctl_dir *const thread_dirs[] = { &ctl_jobs, NULL };
static const struct ctl_dir *const root_dirs[] = { &ctl_root_ctl, &ctl_threads, NULL };

const struct ctl_dir ctl_thread_ctl = { .name = ".ctl",
					.dirs = thread_dirs,
					.files = thread_files };
const struct ctl_dir ctl_root = { .name = "", .dirs = root_dirs, .files = root_files };

/* ---- looking up ---- */

/* A job's number as its directory is called; 0: none. */
static unsigned job_number(const char *name)
{
	unsigned long v;
	char *end;

	if (name[0] < '1' || name[0] > '9' || strlen(name) > 9)
		return 0;
	v = strtoul(name, &end, 10);
	return *end ? 0 : (unsigned)v;
}

static int new_dir(struct node *dir, const char *name, const struct ctl_dir *c, unsigned job,
		   struct node **ret)
{
	int r = node_new(dir, name, NODE_CTL_DIR, ret);

	if (r == 0) {
		(*ret)->ctl_dir = c;
		(*ret)->job = job;
	}
	return r;
}

int ctl_child(struct node *dir, const char *name, struct node **ret)
{
	const struct ctl_dir *c = dir->kind == NODE_CTL_DIR ? dir->ctl_dir : NULL;
	struct node *n = node_child(dir, name);
	unsigned job;

	if (c && c->is_jobs) {
		job = job_number(name);
		if (!job || !jobs_has(dir->thread, job))
			return -ENOENT;
		if (!n)
			return new_dir(dir, name, &ctl_job, job, ret);
	}
	if (n) {
		*ret = node_ref(n);
		return 0;
	}
	/* In a thread's root, which is the sandbox's otherwise. */
	if (!c)
		return new_dir(dir, name, &ctl_thread_ctl, 0, ret);
	for (size_t i = 0; c->dirs && c->dirs[i]; i++) {
		if (strcmp(c->dirs[i]->name, name) == 0)
			return new_dir(dir, name, c->dirs[i], dir->job, ret);
	}
	for (size_t i = 0; c->files && c->files[i]; i++) {
		if (strcmp(c->files[i]->name, name) == 0) {
			int r = node_new(dir, name, NODE_CTL_FILE, ret);

			if (r == 0)
				(*ret)->ctl_file = c->files[i];
			return r;
		}
	}
	return -ENOENT;
}

/* Only what is not below a .ctl: tar and editors take a file of no size for an empty one. */
static off_t shown_size(struct node *n)
{
	struct ctl_open o = { .file = n->ctl_file, .fs = n->fs, .node = n };
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	if (n->kind != NODE_CTL_FILE || n->ctl_file != &ctl_readme ||
	    n->ctl_file->render(&o, &text) < 0)
		return 0;
	return (off_t)text.len;
}

void ctl_stat(struct node *n, struct stat *ret)
{
	const struct options *o = n->fs->opt;
	bool dir = n->kind == NODE_CTL_DIR;
	bool writable = dir && n->ctl_dir->is_threads;
	time_t now = (time_t)n->fs->started_wall;

	*ret = (struct stat){
		.st_ino = n->ino,
		.st_mode = dir ? S_IFDIR | (writable ? 0755 : 0555) : S_IFREG | n->ctl_file->mode,
		.st_nlink = dir ? 2 : 1,
		.st_size = shown_size(n),
		.st_uid = o->uid,
		.st_gid = o->gid,
		.st_mtim.tv_sec = now,
		.st_ctim.tv_sec = now,
		.st_atim.tv_sec = now,
	};
	ret->st_mode &= ~(o->umask & 07777);
}

void ctl_op_lookup(fuse_req_t req, struct node *dir, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = ATTR_SECONDS };
	struct parked p;
	struct node *n;
	int r;

	parked_init(&p, dir->fs, req, NULL);
	r = ctl_child(dir, name, &n);
	if (r < 0) {
		parked_err(&p, r);
		return;
	}
	e.ino = n->ino;
	if (n->kind == NODE_CTL_DIR && n->ctl_dir->is_threads)
		e.entry_timeout = ROOT_SECONDS;
	ctl_stat(n, &e.attr);
	node_looked_up(n);
	if (!parked_entry(&p, &e))
		node_forget(n, 1);
	node_unref(n);
}

/* ---- open files ---- */

static int begin(struct ctl_open *o)
{
	const struct ctl_file *f = o->file;
	int mode = o->flags & O_ACCMODE;

	if (mode != O_WRONLY && !f->render && !f->read)
		return -EACCES;
	if (mode != O_RDONLY && !f->write)
		return -EACCES;
	if (f->render) {
		int r = f->render(o, &o->text);

		return r < 0 ? r : o->text.error;
	}
	return f->open ? f->open(o) : 0;
}

static void ctl_open_free(struct ctl_open *o)
{
	buf_release(&o->text);
	thread_unref(o->thread);
	node_unref(o->node);
	free(o);
}

/* Of one that was opened. */
static void ctl_close(struct ctl_open *o)
{
	DL_DELETE(o->fs->ctl_opens, o);
	if (o->file->release)
		o->file->release(o);
	ctl_open_free(o);
}

/* How long what was written is, not what: commands hold anything. */
static void tell_log(const struct ctl_open *o, const char *what, size_t len)
{
	log_topic(LOG_CTL, "thread %s: sandbox %s: %s %s (%zu bytes)",
		  o->thread ? o->thread->id : "-", o->thread ? tenant_id(o->thread->tenant) : "-",
		  what, o->file->name, len);
}

void ctl_op_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi)
{
	struct ctl_open *o = calloc(1, sizeof(*o));
	struct parked p;
	int r;

	if (!o) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	o->file = n->ctl_file;
	o->fs = n->fs;
	o->node = node_ref(n);
	o->thread = n->thread ? thread_ref(n->thread) : NULL;
	o->job = n->job;
	o->flags = fi->flags;
	tell_log(o, "opened", 0);
	r = begin(o); /* before this request counts as one that waits */
	parked_init(&p, n->fs, req, NULL);
	if (r < 0) {
		ctl_open_free(o);
		parked_err(&p, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)o;
	fi->direct_io = o->file != &ctl_readme;
	fi->nonseekable = !o->file->render;
	fi->noflush = !o->file->flush;
	DL_APPEND(n->fs->ctl_opens, o);
	if (!parked_open(&p, fi))
		ctl_close(o);
}

void ctl_op_read(fuse_req_t req, struct ctl_open *o, size_t size, uint64_t offset)
{
	struct parked p;
	size_t left;

	if (o->file->read) {
		o->file->read(o, req, size, offset);
		return;
	}
	parked_init(&p, o->fs, req, NULL);
	left = offset < o->text.len ? o->text.len - (size_t)offset : 0;
	(void)parked_buf(&p, left ? o->text.data + offset : "", MIN(left, size));
}

void ctl_op_write(fuse_req_t req, struct ctl_open *o, const char *bytes, size_t len)
{
	tell_log(o, "written", len);
	o->file->write(o, req, bytes, len);
}

void ctl_op_flush(fuse_req_t req, struct ctl_open *o)
{
	struct parked p;

	if (o->file->flush) {
		o->file->flush(o, req);
		return;
	}
	parked_init(&p, o->fs, req, NULL);
	parked_err(&p, 0);
}

void ctl_op_poll(fuse_req_t req, struct ctl_open *o, struct fuse_pollhandle *ph)
{
	struct parked p;

	if (o->file->poll) {
		o->file->poll(o, req, ph);
		return;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	parked_init(&p, o->fs, req, NULL);
	parked_poll(&p, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
}

void ctl_op_release(fuse_req_t req, struct ctl_open *o)
{
	struct parked p;

	parked_init(&p, o->fs, req, NULL);
	ctl_close(o);
	parked_err(&p, 0);
}

void ctl_end(struct fs *fs)
{
	struct ctl_open *o, *next;

	DL_FOREACH_SAFE (fs->ctl_opens, o, next)
		ctl_close(o);
}

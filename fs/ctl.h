/*
 * The control files: what there is in each directory of ours, as tables, and
 * what happens when one is opened, read, written and closed. All are direct-io,
 * not seekable, of size 0. Loop thread only.
 */
#pragma once

#include "buf.h"
#include "node.h"
#include "parked.h"

/* One open control file. */
struct ctl_open {
	const struct ctl_file *file;
	struct fs *fs;
	struct node *node;
	struct thread *thread;        /* NULL above the threads */
	unsigned job;                 /* its number; 0: none */
	int flags;                    /* of open(2) */
	struct buf text;              /* of files with `render`: what is read */
	void *priv;                   /* the file's own */
	struct ctl_open *prev, *next; /* fs->ctl_opens */
};

struct ctl_file {
	const char *name;
	mode_t mode; /* permissions */
	/* Either: the whole content at the time of opening. Returns 0 or an errno. */
	int (*render)(struct ctl_open *o, struct buf *to);
	/* Or any of these; NULL: -EACCES for read and write, nothing for the others.
	 * read, write and flush answer p, now or later (then p must live: allocate). */
	int (*open)(struct ctl_open *o);
	void (*read)(struct ctl_open *o, fuse_req_t req, size_t size, uint64_t offset);
	void (*write)(struct ctl_open *o, fuse_req_t req, const char *bytes, size_t len);
	void (*flush)(struct ctl_open *o, fuse_req_t req);
	void (*poll)(struct ctl_open *o, fuse_req_t req, struct fuse_pollhandle *ph);
	void (*release)(struct ctl_open *o);
};

struct ctl_dir {
	const char *name;
	const struct ctl_dir *const *dirs;   /* NULL-terminated; or NULL */
	const struct ctl_file *const *files; /* NULL-terminated; or NULL */
	bool is_threads, is_jobs;            /* besides: the threads; the jobs */
};

extern const struct ctl_dir ctl_root, ctl_root_ctl, ctl_threads, ctl_thread_ctl, ctl_jobs, ctl_job;

/* For .ctl files of a thread, elsewhere: */
extern const struct ctl_file ctl_exec, ctl_exit_code, ctl_run, ctl_events; /* exec.c, events.c */
extern const struct ctl_file ctl_job_cmd, ctl_job_stdin, ctl_job_stdout, ctl_job_stderr,
	ctl_job_status, ctl_job_exit_code, ctl_job_kill; /* job_files.c */
extern const struct ctl_file ctl_release, ctl_destroy;   /* lease_files.c */
extern const struct ctl_file ctl_fs_recover;             /* recover_file.c */
/* status_files.c */
extern const struct ctl_file ctl_readme, ctl_fs_status, ctl_fs_status_json, ctl_fs_metrics,
	ctl_fs_config, ctl_thread_status, ctl_thread_status_json, ctl_transfers;

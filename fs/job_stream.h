/*
 * One open file that reads the output of a command: reads that wait for it, and
 * poll(2). Loop thread only.
 */
#pragma once

#include "ctl.h"
#include "jobs.h"

struct job_stream_file {
	struct ctl_open *open;
	enum job_stream which;
	struct command *command; /* counted; NULL: none, which reads as the end */
	struct job_cursor at;
	struct fuse_pollhandle *ph; /* to be told when it is readable; or NULL */
	struct job_wait wait;       /* for that */
	int failed;                 /* what whoever polled was woken for, for the next read; or 0 */
};

/* From now on it reads this command (NULL: none), from its start. */
void job_stream_set(struct job_stream_file *s, struct command *c);
/* Each answers the request, now or when there is something. */
void job_stream_read(struct job_stream_file *s, fuse_req_t req, size_t size);
/* more: events besides readability that are always there. */
void job_stream_poll(struct job_stream_file *s, fuse_req_t req, struct fuse_pollhandle *ph,
		     unsigned more);
/* No read waits any more. */
void job_stream_release(struct job_stream_file *s);

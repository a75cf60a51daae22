/*
 * Answering FUSE requests, at once or later, and hearing of interrupts. The
 * only place that turns our errors into what the kernel gets. Loop thread only.
 */
#include "parked.h"

#include <errno.h>
#include <string.h>

#include "caller.h"
#include "clock.h"
#include "log.h"
#include "node.h"
#include "remote.h"
#include "thread.h"

enum { LOOK_AGAIN_MS = 50 };

/* The kernel tells of a first signal only: if it is none that ends the call, we look for others. */
static void tell(struct parked *p)
{
	if (!p->as_pipe && !caller_wants_out(fuse_req_ctx(p->req)->pid)) {
		ev_timer_stop(p->fs->ev, &p->again);
		ev_timer_set(&p->again, LOOK_AGAIN_MS / 1e3, 0.);
		ev_timer_start(p->fs->ev, &p->again);
		return;
	}
	p->fs->totals.interrupted++;
	p->interrupted(p);
}

static void on_signal(struct job *job)
{
	tell(CONTAINER_OF(job, struct parked, job));
}

static void on_again(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	tell(w->data);
}

/*
 * libfuse calls this from inside fuse_req_interrupt_func() if the interrupt was
 * faster than the request, when whoever parks it is not ready for that yet; so it
 * is always told a moment later.
 */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct parked *p = data;

	(void)req;
	if (p->req)
		loop_post(p->fs->loop, &p->job);
}

void parked_init(struct parked *p, struct fs *fs, fuse_req_t req,
		 void (*interrupted)(struct parked *p))
{
	*p = (struct parked){
		.req = req,
		.fs = fs,
		.interrupted = interrupted,
		.since_us = clock_us(),
		.serial = fs->asked.serial,
		.kind = fs->asked.kind,
		.class = fs->asked.class,
		.ino = fs->asked.ino,
	};
	fs->totals.requests++;
	fs->totals.parked++;
	if (!interrupted)
		return;
	p->job.run = on_signal;
	ev_timer_init(&p->again, on_again, 0., 0.);
	p->again.data = p;
	fuse_req_interrupt_func(req, on_interrupt, p);
}

static void tell_log(const struct parked *p, int err, int64_t us)
{
	const struct node *n = node_by_ino(p->fs, p->ino);
	const struct thread *t = n ? n->thread : NULL;

	log_topic(LOG_FUSE, "thread %s: sandbox %s: %s of inode %llu: %s after %.1f ms",
		  t ? t->id : "-", t ? tenant_id(t->tenant) : "-", asked_name(p->kind),
		  (unsigned long long)p->ino, err ? strerrorname_np(err) ?: "error" : "done",
		  (double)us / 1e3);
}

static void count(const struct parked *p, int err)
{
	struct asked *a = &p->fs->asked;
	int64_t us = clock_us() - p->since_us;

	histogram_add(&a->times[p->class][p->kind], us);
	if (p->class == ASKED_SANDBOX && asked_is_cacheable(p->kind)) {
		if (a->handling && a->serial == p->serial)
			a->hits[p->kind]++;
		else
			a->misses[p->kind]++;
	}
	if (log_topics_on & LOG_FUSE)
		tell_log(p, err, us);
}

/* To be called before the answer: libfuse frees the request with it. err: positive, or 0. */
static fuse_req_t answered_with(struct parked *p, int err)
{
	count(p, err);
	loop_withdraw(p->fs->loop, &p->job);
	ev_timer_stop(p->fs->ev, &p->again);
	p->fs->totals.parked--;
	return STEAL(p->req);
}

static fuse_req_t answered(struct parked *p)
{
	return answered_with(p, 0);
}

void parked_err(struct parked *p, int err)
{
	if (err < 0)
		p->fs->totals.errors++;
	err = err < 0 ? remote_errno(err) : 0;
	fuse_reply_err(answered_with(p, err), err);
}

void parked_none(struct parked *p)
{
	fuse_reply_none(answered(p));
}

/*
 * An answer that brings a count with it (lookups, open files) and does not
 * arrive because the caller was killed has to be taken back.
 */
bool parked_entry(struct parked *p, const struct fuse_entry_param *e)
{
	return fuse_reply_entry(answered(p), e) == 0;
}

bool parked_open(struct parked *p, const struct fuse_file_info *fi)
{
	return fuse_reply_open(answered(p), fi) == 0;
}

bool parked_create(struct parked *p, const struct fuse_entry_param *e,
		   const struct fuse_file_info *fi)
{
	return fuse_reply_create(answered(p), e, fi) == 0;
}

void parked_attr(struct parked *p, const struct stat *st, double timeout_s)
{
	fuse_reply_attr(answered(p), st, timeout_s);
}

bool parked_buf(struct parked *p, const void *bytes, size_t len)
{
	return fuse_reply_buf(answered(p), bytes, len) == 0;
}

void parked_iov(struct parked *p, const struct iovec *iov, int count)
{
	fuse_reply_iov(answered(p), iov, count);
}

void parked_write(struct parked *p, size_t len)
{
	fuse_reply_write(answered(p), len);
}

void parked_readlink(struct parked *p, const char *target)
{
	fuse_reply_readlink(answered(p), target);
}

void parked_statfs(struct parked *p, const struct statvfs *st)
{
	fuse_reply_statfs(answered(p), st);
}

void parked_poll(struct parked *p, unsigned revents)
{
	fuse_reply_poll(answered(p), revents);
}

/*
 * .ctl/release and .ctl/destroy of a thread: giving its sandbox back, and
 * stopping it. Loop thread only.
 */
#include <errno.h>

#include "answer.h"
#include "ctl.h"
#include "thread.h"

/* ---- release ---- */

static void write_release(struct ctl_open *o, fuse_req_t req, const char *bytes UNUSED, size_t len)
{
	thread_let_go(o->thread);
	thread_given_up(o->thread);
	answer_write(o->fs, req, len);
}

const struct ctl_file ctl_release = { .name = "release", .mode = 0200, .write = write_release };

/* ---- destroy ---- */

struct destroy_op {
	struct parked parked;
	struct errand errand;
	struct thread *thread; /* counted */
	size_t len;
};

static void on_destroyed(struct call *call)
{
	struct destroy_op *d = call->ctx;
	int err = call->error;

	if (err < 0 && err != -ECANCELED)
		thread_failed(d->thread, "stopping the sandbox", err, call->message);
	else
		thread_destroyed(d->thread); /* also if nobody waited for the end */
	call_release(call);
	thread_void_caches(d->thread);
	if (err < 0)
		parked_err(&d->parked, err);
	else
		parked_write(&d->parked, d->len);
	thread_unref(d->thread);
	free(d);
}

/* It is stopped all the same once that has begun. */
static void on_interrupted(struct parked *p)
{
	call_cancel(&CONTAINER_OF(p, struct destroy_op, parked)->errand.call);
}

static void write_destroy(struct ctl_open *o, fuse_req_t req, const char *bytes UNUSED, size_t len)
{
	struct destroy_op *d = calloc(1, sizeof(*d));

	if (!d) {
		answer_err(o->fs, req, -ENOMEM);
		return;
	}
	d->thread = thread_ref(o->thread);
	d->len = len;
	parked_init(&d->parked, o->fs, req, on_interrupted);
	/* It is to be gone, not to be started again for whoever lingers. */
	thread_let_go(o->thread);
	call_init(&d->errand.call, o->fs->opt->timeout_ms);
	d->errand.call.done = on_destroyed;
	d->errand.call.ctx = d;
	tenant_destroy(o->thread->tenant, &d->errand);
}

const struct ctl_file ctl_destroy = { .name = "destroy", .mode = 0200, .write = write_destroy };

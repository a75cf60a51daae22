/*
 * A whole mount: making and ending its parts in order. The parts do the work.
 * Not on the loop's thread, but for what is handed to it.
 */
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "backends.h"
#include "clock.h"
#include "contents.h"
#include "ctl.h"
#include "file.h"
#include "fs.h"
#include "guardian.h"
#include "jobs.h"
#include "log.h"
#include "node.h"
#include "notifier.h"
#include "ops.h"
#include "paths.h"
#include "presence.h"
#include "salvage.h"
#include "session.h"
#include "stage.h"
#include "staging.h"
#include "thread.h"
#include "workers.h"

enum {
	DISK_WORKERS = 2,
	DISK_SYNCERS = 2,
	OPERATIONS_MS = 5000, /* more than the longest pause between two tries */
};

struct mount {
	const struct options *opt;
	struct fs fs;
	int ended_fd; /* an eventfd */
	struct presence presence;
	struct guardian guardian;
	struct thread *given; /* of a URL; counted */
};

/* ---- making ---- */

static int open_cache(struct mount *m, struct buf *why)
{
	const char *dir = m->opt->cache;
	int r = paths_make(dir, 0700);

	if (r == 0) {
		m->fs.cache_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = m->fs.cache_dir < 0 ? -errno : paths_check_own(m->fs.cache_dir);
	}
	if (r == 0) {
		/* Is it writable, and does it know files without a name? */
		int fd = openat(m->fs.cache_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

		r = fd < 0 ? -errno : 0;
		if (fd >= 0)
			close(fd);
	}
	if (r < 0)
		buf_printf(why,
			   "cannot use the cache directory %s: %s (-o cache=DIR names another)",
			   dir,
			   r == -EPERM ? "it must be yours, and nobody else's to write to"
				       : strerrordesc_np(-r));
	return r;
}

/* What failed because its sandbox did not answer goes up now. */
static void on_returned(void *ctx, struct tenant *tenant)
{
	struct fs *fs = ctx;
	struct thread *t = NULL;

	if (strcmp(tenant_user(tenant), fs->opt->user) == 0)
		t = thread_find(fs, tenant_thread(tenant));
	if (t && t->resting > 0)
		staging_wake(t, true);
}

static int open_provider(struct mount *m, struct buf *why)
{
	const struct options *o = m->opt;
	const char *words = NULL;
	struct provider_config c = {
		.loop = m->fs.loop,
		.data = o->source == SOURCE_URL ? NULL : o->data,
		.start_timeout_ms = o->start_timeout_ms,
		.idle_timeout_ms = o->idle_timeout_ms,
		.janitor_ms = 10000,
		.replicas = o->replicas,
		.no_auto_restart = !o->auto_restart,
		.bearer = o->bearer,
		.api_key = o->api_key,
		.cacert = o->cacert,
		.insecure = o->insecure,
		.returned = on_returned,
		.returned_ctx = &m->fs,
	};
	int r = backends_open(o, m->fs.loop, &c.backend, why);

	if (r < 0)
		return r;
	m->fs.backend = c.backend->ops->name;
	if (o->idle_timeout_ms > 0)
		c.janitor_ms = MAX(MIN(c.janitor_ms, o->idle_timeout_ms / 2), 100);
	r = provider_new(&c, &m->fs.provider, &words);
	if (r < 0)
		buf_printf(why, "%s", words ?: strerrordesc_np(-r));
	return r;
}

struct on_loop {
	struct mount *m;
	int r;
};

static void make_on_loop(void *ctx)
{
	struct on_loop *c = ctx;
	struct fs *fs = &c->m->fs;

	fs->ev = loop_ev(fs->loop);
	c->r = workers_new(fs->ev, DISK_WORKERS, &fs->workers);
	if (c->r == 0)
		c->r = workers_new(fs->ev, DISK_SYNCERS, &fs->syncers);
	if (c->r == 0)
		c->r = nodes_init(fs, &ctl_root);
	if (c->r == 0 && fs->opt->source == SOURCE_URL) {
		c->r = thread_get(fs, fs->opt->thread, &c->m->given);
		if (c->r == 0)
			thread_set_known(c->m->given, true);
	}
}

struct names_on_loop {
	struct fs *fs;
	char **names;
	size_t count;
};

static void know_on_loop(void *ctx)
{
	const struct names_on_loop *c = ctx;
	struct thread *t;

	for (size_t i = 0; i < c->count; i++) {
		if (thread_get(c->fs, c->names[i], &t) < 0)
			continue;
		thread_set_known(t, true);
		thread_unref(t);
	}
}

/*
 * The threads of earlier mounts, so that the status tells of them before anybody
 * has listed the directory. That does it again, and tells what went wrong.
 */
static void know_threads(struct mount *m)
{
	struct names_on_loop c = { .fs = &m->fs };

	if (m->opt->source == SOURCE_URL ||
	    provider_threads(m->fs.provider, m->opt->user, &c.names, &c.count) < 0)
		return;
	loop_run(m->fs.loop, know_on_loop, &c);
	for (size_t i = 0; i < c.count; i++)
		free(c.names[i]);
	free(c.names);
}

/* Of a sandbox by its URL: does it answer, does it take the key? */
static int try_given(struct mount *m, struct buf *why)
{
	struct errand e = { 0 };
	int r;

	if (!m->given)
		return 0;
	call_init(&e.call, MIN(m->opt->timeout_ms, m->opt->start_timeout_ms));
	tenant_acquire(m->given->tenant, &e);
	r = call_wait(&e.call);
	if (r < 0)
		buf_printf(why, "%s: %s%s%s", m->opt->url,
			   r == -EACCES ? "the sandbox refuses the key" : strerrordesc_np(-r),
			   e.call.message ? ": " : "", e.call.message ?: "");
	else
		(void)tenant_release(m->given->tenant);
	call_release(&e.call);
	return r;
}

static void on_ended(void *ctx)
{
	struct mount *m = ctx;

	eventfd_write(m->ended_fd, 1);
}

int mount_fd(const struct mount *m)
{
	return m->ended_fd;
}

/* There, so that who reads fs->notifier has it. */
static void notify_on_loop(void *ctx)
{
	struct on_loop *c = ctx;

	c->r = notifier_start(&c->m->fs);
	if (c->r == 0)
		salvage_begin(&c->m->fs);
}

void mount_say_busy(const char *mountpoint, struct buf *why)
{
	buf_printf(why, "%s is busy: threadfs is already mounted there", mountpoint);
}

int mount_start(const struct options *o, struct mount **ret, struct buf *why)
{
	struct mount *m = calloc(1, sizeof(*m));
	struct stat st;
	int r;

	if (!m)
		return -ENOMEM;
	m->opt = m->fs.opt = o;
	m->fs.cache_dir = m->presence.fd = m->guardian.fd = -1;
	m->fs.started_ms = clock_ms();
	m->fs.started_wall = clock_wall();
	m->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = m->ended_fd < 0 ? -errno : open_cache(m, why);
	if (r == 0)
		r = loop_new(&m->fs.loop);
	if (r == 0)
		r = open_provider(m, why);
	if (r == 0)
		r = staging_open(&m->fs, why);
	if (r == 0) {
		struct on_loop c = { .m = m };

		loop_run(m->fs.loop, make_on_loop, &c);
		r = c.r;
	}
	if (r == 0)
		r = try_given(m, why);
	if (r == 0) {
		know_threads(m);
		r = guardian_begin(&m->guardian, o->mountpoint);
		if (r == -EBUSY)
			mount_say_busy(o->mountpoint, why);
	}
	if (r == 0)
		r = session_open(&m->fs, on_ended, m, why);
	/* The kernel's first request is answered when this is. */
	if (r == 0 && stat(o->mountpoint, &st) < 0) {
		r = -errno;
		buf_printf(why, "the mount does not answer: %s", strerrordesc_np(-r));
	}
	if (r == 0) {
		struct on_loop c = { .m = m };

		loop_run(m->fs.loop, notify_on_loop, &c);
		r = c.r;
	}
	if (r == 0) {
		presence_begin(&m->presence, st.st_dev);
		guardian_watch(&m->guardian, st.st_dev);
		*ret = m;
		return 0;
	}
	if (why->len == 0)
		buf_printf(why, "%s", strerrordesc_np(-r));
	(void)mount_stop(m);
	return r;
}

/* ---- ending ---- */

static void flushed(struct flush_op *op, int err)
{
	(void)err; /* file_unfinished() tells */
	free(op);
}

static void flush_all(void *ctx)
{
	struct on_loop *c = ctx;
	struct fs *fs = &c->m->fs;
	struct node *n, *next;

	staging_last_try(fs, clock_ms() + fs->opt->timeout_ms);
	fs->ending = true;
	HASH_ITER (by_ino, fs->nodes, n, next) {
		struct flush_op *op;

		if (!n->stage || stage_is_clean(n->stage))
			continue;
		op = calloc(1, sizeof(*op));
		if (!op)
			continue;
		op->done = flushed;
		stage_flush(n->stage, op);
	}
}

static void count_unfinished(void *ctx)
{
	struct on_loop *c = ctx;

	c->r = (int)file_unfinished(&c->m->fs);
}

/* What was written and not yet confirmed gets its time; what does not make it is named. */
static int finish_uploads(struct mount *m)
{
	struct on_loop c = { .m = m };
	int64_t deadline = clock_ms() + m->opt->timeout_ms;

	loop_run(m->fs.loop, flush_all, &c);
	for (;;) {
		loop_run(m->fs.loop, count_unfinished, &c);
		if (c.r == 0 || clock_ms() >= deadline)
			break;
		poll(NULL, 0, 20);
	}
	if (c.r > 0)
		log_warn("%d file(s) could not be uploaded before the end: see threadfs recover",
			 c.r);
	return 0;
}

/* Each command that is not over holds its thread, and the next look at it may be seconds away, or
 * never come as long as it waits for others. */
static void leave_jobs(void *ctx)
{
	struct on_loop *c = ctx;
	struct thread *t, *next;

	HASH_ITER (hh, c->m->fs.threads, t, next) {
		thread_ref(t);
		jobs_free(t->jobs);
		thread_unref(t);
	}
}

static void count_under_way(void *ctx)
{
	struct on_loop *c = ctx;

	leave_jobs(ctx); /* those that were accepted since */
	c->r = (int)c->m->fs.under_way;
}

/* After the provider's shutdown each fails at its next step; some pause before that (remote.c). */
static int finish_operations(struct mount *m)
{
	struct on_loop c = { .m = m };
	int64_t deadline = clock_ms() + OPERATIONS_MS;

	for (;;) {
		loop_run(m->fs.loop, count_under_way, &c);
		if (c.r == 0)
			return 0;
		if (clock_ms() >= deadline)
			break;
		poll(NULL, 0, 5);
	}
	log_error("%d operation(s) on sandboxes do not end", c.r);
	return -ETIMEDOUT;
}

static void stop_on_loop(void *ctx)
{
	struct on_loop *c = ctx;

	session_stop(&c->m->fs);
}

/* After the provider's shutdown: nothing is under way any more. */
static void free_on_loop(void *ctx)
{
	struct on_loop *c = ctx;
	struct fs *fs = &c->m->fs;
	struct node *n, *next;
	struct thread *t, *next_thread;
	unsigned lost = 0;

	/* Who hears of the end of what was under way finds none of them any more. */
	workers_free(STEAL(fs->workers));
	workers_free(STEAL(fs->syncers));
	HASH_ITER (by_ino, fs->nodes, n, next) {
		node_ref(n);
	}
	HASH_ITER (by_ino, fs->nodes, n, next) {
		lost += file_end(n) < 0;
	}
	if (lost > 0)
		log_error("what was written to %u file(s) could neither be uploaded nor be kept in "
			  "%s, or only some of it, and is lost",
			  lost, fs->opt->cache);
	c->r = lost > 0 ? -EIO : 0;
	staging_free(fs->staging);
	ctl_end(fs);
	dirs_end(fs);
	HASH_ITER (by_ino, fs->nodes, n, next) {
		node_unref(n);
	}
	HASH_ITER (hh, fs->threads, t, next_thread) {
		thread_ref(t);
		thread_let_go(t);
		thread_set_known(t, false);
		thread_unref(t);
	}
	nodes_release(fs);
	contents_release(fs);
	thread_unref(STEAL(c->m->given));
}

/*
 * The kernel may hold a notification until a request is answered, and the loop
 * still does that; after the provider's shutdown nothing is left to wait for long. If
 * something does, the connection has to go before its thread can.
 */
static int end_notifier(struct mount *m)
{
	int r = notifier_stop(&m->fs);

	if (r == 0)
		return 0;
	log_error("the kernel does not let go of a notification: aborting the connection");
	session_abort(&m->fs);
	return notifier_stop(&m->fs);
}

bool mount_is_stuck(struct mount *m, bool *ret_again)
{
	*ret_again = !session_is_seen(&m->fs);
	if (!*ret_again || !notifier_is_shut(&m->fs))
		return false;
	log_warn("unmounted, but the kernel waits for a sandbox: all who do are let go");
	session_abort(&m->fs); /* where that cannot be mount_stop() ends what they wait for */
	return true;
}

int mount_stop(struct mount *m)
{
	struct on_loop c = { .m = m };
	int r = 0, s = 0;

	if (m->fs.se)
		r = finish_uploads(m);
	/* While requests are still read: whoever waits for a sandbox hears that it is over. */
	if (m->fs.loop)
		loop_run(m->fs.loop, leave_jobs, &c);
	if (m->fs.provider)
		s = provider_shutdown(m->fs.provider);
	s = end_notifier(m) ?: s;
	if (s == 0 && m->fs.loop)
		s = finish_operations(m);
	if (m->fs.loop) {
		loop_run(m->fs.loop, stop_on_loop, &c);
		loop_run(m->fs.loop, free_on_loop, &c);
		r = r ?: c.r;
	}
	if (s == 0) {
		provider_free(m->fs.provider);
		session_close(&m->fs);
		loop_free(m->fs.loop);
	}
	if (m->fs.cache_dir >= 0)
		close(m->fs.cache_dir);
	if (m->ended_fd >= 0)
		close(m->ended_fd);
	guardian_end(&m->guardian);
	presence_end(&m->presence);
	if (s == 0)
		free(m);
	return r ?: s;
}

/*
 * The threads of the mount: records, the mount's own lease, what is cached of
 * them as a whole. Loop thread only.
 */
#include "thread.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "absent.h"
#include "ahead.h"
#include "clock.h"
#include "coherence.h"
#include "ident.h"
#include "jobs.h"
#include "journal.h"
#include "log.h"
#include "node.h"
#include "notifier.h"
#include "peers.h"
#include "remote.h"
#include "shelf.h"

enum {
	LOG_LINES = 30,
	LOG_WINDOW_MS = 60 * 1000,
	PATIENCE_MS = 20, /* with the kernel, for all that is known of a thread */
};

/* ---- records ---- */

static void on_linger(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	thread_let_go(w->data);
}

struct thread *thread_find(struct fs *fs, const char *id)
{
	struct thread *t = NULL;

	HASH_FIND_STR(fs->threads, id, t);
	return t;
}

int thread_get(struct fs *fs, const char *id, struct thread **ret)
{
	struct thread *t = thread_find(fs, id);
	int r;

	if (t) {
		*ret = thread_ref(t);
		return 0;
	}
	if (!ident_is_thread(id))
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->journal = calloc(1, sizeof(*t->journal));
	r = t->journal ? tenant_get(fs->provider, fs->opt->user, id, &t->tenant) : -ENOMEM;
	if (r < 0) {
		free(t->journal);
		free(t);
		return r;
	}
	t->fs = fs;
	t->refs = 1;
	strcpy(t->id, id); /* it is an id: 64 at most */
	ev_init(&t->linger, on_linger);
	t->linger.data = t;
	t->linger.repeat = (double)fs->opt->linger_ms / 1000;
	HASH_ADD_STR(fs->threads, id, t);
	if (!HASH_TOOK(hh, t)) {
		tenant_put(t->tenant);
		free(t->journal);
		free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

struct thread *thread_ref(struct thread *t)
{
	t->refs++;
	return t;
}

void thread_unref(struct thread *t)
{
	if (!t || --t->refs > 0)
		return;
	HASH_DEL(t->fs->threads, t);
	jobs_free(t->jobs);
	peers_free(t);
	shelf_clear(t);
	journal_free(t->journal);
	ahead_free(t->ahead);
	assert(!t->own_lease); /* it holds a reference */
	coherence_free(t);
	tenant_put(t->tenant);
	free(t->last_message);
	free(t);
}

void thread_set_known(struct thread *t, bool known)
{
	if (t->known == known)
		return;
	t->known = known;
	if (known)
		thread_ref(t);
	else
		thread_unref(t);
}

/* ---- leases ---- */

/* What the server is, for status: asked once when the thread comes into use. */
struct probe {
	struct remote remote;
	struct sandbox_info info;
};

static void probe_start(struct remote *r, struct sandbox *sb)
{
	struct probe *p = CONTAINER_OF(r, struct probe, remote);

	sandbox_context(sb, &r->call, &p->info);
}

static void probe_done(struct remote *r, int err)
{
	struct probe *p = CONTAINER_OF(r, struct probe, remote);

	if (err == 0)
		sandbox_info_release(&p->info);
	free(p);
}

static void probe(struct thread *t)
{
	struct sandbox *sb = tenant_sandbox(t->tenant);
	struct probe *p = NULL;

	if (!sb)
		return;
	if (sandbox_dialect(sb)[0] == '\0')
		p = calloc(1, sizeof(*p));
	sandbox_put(sb);
	if (!p)
		return;
	p->remote.quiet = true;
	remote_begin(&p->remote, t, probe_start, probe_done);
}

void thread_touch(struct thread *t)
{
	if (t->fs->opt->linger_ms <= 0 || t->fs->ending)
		return;
	if (!t->own_lease && tenant_try_acquire(t->tenant) == 0) {
		/* Whoever lingers is to be found again. */
		t->own_lease = true;
		thread_ref(t);
		probe(t);
	}
	if (t->own_lease) {
		ev_timer_again(t->fs->ev, &t->linger);
		coherence_begin(t);
	}
}

void thread_let_go(struct thread *t)
{
	if (!t->own_lease)
		return;
	ev_timer_stop(t->fs->ev, &t->linger);
	t->own_lease = false;
	(void)tenant_release(t->tenant);
	thread_unref(t);
}

int thread_lease(struct thread *t)
{
	int r = tenant_try_acquire(t->tenant);

	if (r == 0)
		thread_ref(t);
	return r;
}

void thread_unlease(struct thread *t)
{
	(void)tenant_release(t->tenant);
	thread_unref(t);
}

/* ---- what is cached ---- */

static void void_attrs(struct node *n, int64_t latest_ms)
{
	struct node *child, *next;

	if (n->kind != NODE_SANDBOX)
		return;
	notify_attr_by(n->fs, n->ino, latest_ms);
	HASH_ITER (by_name, n->children, child, next)
		void_attrs(child, latest_ms);
}

/* Pages go when the new attributes differ, but those of what is open go now: a mapping asks for
 * no attributes. */
static void void_pages(struct node *n, bool names)
{
	struct node *child, *next;

	if (n->kind != NODE_SANDBOX)
		return;
	if (S_ISDIR(n->attr.mode) || (n->handles && !n->stage))
		notify_inode(n->fs, n->ino, true);
	if (names)
		absent_void(n);
	HASH_ITER (by_name, n->children, child, next) {
		if (names)
			notify_entry(n->fs, n->ino, child->name);
		void_pages(child, names);
	}
}

/* Attributes first: they are not to wait for the pages of these. */
static void void_kernel(struct node *root, bool names)
{
	void_attrs(root, clock_ms() + PATIENCE_MS);
	void_pages(root, names);
}

void thread_void_caches(struct thread *t)
{
	t->epoch++;
	shelf_clear(t);
	if (t->root && t->fs->se && !t->fs->ending)
		void_kernel(t->root, !(t->fs->names_at_once && notify_names_now(t->fs)));
}

/* A sandbox that fails in ever other ways must not fill the disk with it. */
bool thread_may_log(struct thread *t)
{
	int64_t now = clock_ms();

	if (now - t->logged_ms >= LOG_WINDOW_MS) {
		t->logged_ms = now;
		t->logged = 0;
	}
	if (t->logged > LOG_LINES)
		return false;
	if (t->logged++ < LOG_LINES)
		return true;
	thread_warn(t, "more failures are not logged for a while");
	return false;
}

void thread_failed(struct thread *t, const char *what, int err, const char *message)
{
	if (err != t->last_error && thread_may_log(t))
		thread_warn(t, "%s: %s%s%s", what, strerrordesc_np(-err) ?: "error",
			    message ? ": " : "", message ?: "");
	free(t->last_message);
	t->last_message = NULL;
	if (asprintf(&t->last_message, "%s: %s", what, message ?: strerrordesc_np(-err) ?: "") < 0)
		t->last_message = NULL;
	t->last_error = err;
	t->last_error_wall = clock_wall();
}

void thread_given_up(struct thread *t)
{
	t->given_up_wall = clock_wall();
}

void thread_destroyed(struct thread *t)
{
	thread_given_up(t);
	t->destroyed_ms = clock_ms();
}

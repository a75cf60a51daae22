/*
 * The directory of threads: which there are, finding one that runs elsewhere,
 * making and removing them. Nothing here starts a sandbox but mkdir (and a
 * lookup with autocreate). Loop thread only.
 */
#include <errno.h>
#include <string.h>

#include "answer.h"
#include "bystander.h"
#include "clock.h"
#include "entry.h"
#include "ident.h"
#include "log.h"
#include "ops.h"
#include "workers.h"

/* ---- listing ---- */

struct listing_work {
	struct work work;
	struct fs *fs;
	char *user;
	int err;
	char **names;
	size_t count;
	void (*done)(void *ctx, int err, char **names, size_t count);
	void *ctx;
};

static void list_run(struct work *w)
{
	struct listing_work *l = CONTAINER_OF(w, struct listing_work, work);

	l->err = provider_threads(l->fs->provider, l->user, &l->names, &l->count);
}

static bool has_name(const struct listing_work *l, const char *name)
{
	for (size_t i = 0; i < l->count; i++) {
		if (strcmp(l->names[i], name) == 0)
			return true;
	}
	return false;
}

/*
 * Those that are known here only: the one of a URL. Any other that the provider
 * does not list was removed by somebody else.
 */
static void add_known(struct listing_work *l)
{
	struct thread *t, *next;

	HASH_ITER (hh, l->fs->threads, t, next) {
		char **more, *copy;

		if (!t->known || has_name(l, t->id))
			continue;
		if (l->fs->opt->source != SOURCE_URL) {
			if (t->open_files == 0 && !t->own_lease)
				thread_set_known(t, false);
			continue;
		}
		more = reallocarray(l->names, l->count + 1, sizeof(*more));
		if (!more)
			return;
		l->names = more;
		copy = strdup(t->id);
		if (!copy)
			return;
		l->names[l->count++] = copy;
	}
}

static void list_done(struct work *w)
{
	struct listing_work *l = CONTAINER_OF(w, struct listing_work, work);

	if (l->err == 0)
		add_known(l);
	l->done(l->ctx, l->err, l->names, l->count);
	for (size_t i = 0; i < l->count; i++)
		free(l->names[i]);
	free(l->names);
	free(l->user);
	free(l);
}

void threads_list(struct fs *fs, void (*done)(void *ctx, int err, char **names, size_t count),
		  void *ctx)
{
	struct listing_work *l = calloc(1, sizeof(*l));

	if (l)
		l->user = strdup(fs->opt->user);
	if (!l || !l->user) {
		free(l);
		done(ctx, -ENOMEM, NULL, 0);
		return;
	}
	l->work.run = list_run;
	l->work.done = list_done;
	l->fs = fs;
	l->done = done;
	l->ctx = ctx;
	workers_submit(fs->workers, &l->work);
}

/* ---- nodes ---- */

int threads_node(struct node *dir, struct thread *t, struct node **ret)
{
	struct node *n = t->root;
	struct attr attr = { .mode = S_IFDIR | 0755, .nlink = 2, .partial = true };
	int r;

	if (n) {
		*ret = node_ref(n);
		return 0;
	}
	r = node_new(dir, t->id, NODE_SANDBOX, &n);
	if (r < 0)
		return r;
	n->thread = thread_ref(t);
	t->root = n;
	clock_gettime(CLOCK_REALTIME, &attr.mtime);
	node_set_attr(n, &attr);
	node_void_attr(n); /* a guess until the sandbox says more */
	*ret = n;
	return 0;
}

static void reply_thread(struct parked *p, struct node *dir, struct thread *t)
{
	struct node *n;
	int r;

	t->removed = false;
	thread_set_known(t, true);
	r = threads_node(dir, t, &n);
	if (r < 0) {
		parked_err(p, r);
		return;
	}
	entry_reply(p, n);
	node_unref(n);
}

/* ---- finding out whether there is one ---- */

/* A request about one thread, in steps: is it listed? does it run? then what was asked for. */
struct quest {
	struct parked parked;
	struct fs *fs;
	struct node *dir;      /* counted */
	struct thread *thread; /* counted */
	bool makes;            /* mkdir */
	bool listed, interrupted;
	struct errand errand;
	struct remote remote;
	struct attr attr;
	struct entries entries;
	size_t made; /* directories of a new thread */
	enum { QUEST_LISTS, QUEST_ERRAND, QUEST_REMOTE } at;
};

static void quest_free(struct quest *q)
{
	entries_release(&q->entries);
	thread_unref(q->thread);
	node_unref(q->dir);
	free(q);
}

static void quest_end(struct quest *q, int err)
{
	if (q->parked.req && err < 0)
		parked_err(&q->parked, err);
	else if (q->parked.req)
		reply_thread(&q->parked, q->dir, q->thread);
	quest_free(q);
}

static void quest_interrupted(struct parked *p)
{
	struct quest *q = CONTAINER_OF(p, struct quest, parked);

	q->interrupted = true;
	if (q->at == QUEST_ERRAND)
		call_cancel(&q->errand.call);
	else if (q->at == QUEST_REMOTE)
		remote_cancel(&q->remote);
	else
		parked_err(p, -EINTR); /* the list comes soon, and frees it */
}

static struct quest *quest_new(fuse_req_t req, struct node *dir, const char *name)
{
	struct quest *q = calloc(1, sizeof(*q));
	int r = q ? thread_get(dir->fs, name, &q->thread) : -ENOMEM;

	if (r < 0) {
		free(q);
		answer_err(dir->fs, req, r);
		return NULL;
	}
	q->fs = dir->fs;
	q->dir = node_ref(dir);
	parked_init(&q->parked, dir->fs, req, quest_interrupted);
	return q;
}

static void begin_errand(struct quest *q, int64_t timeout_ms, void (*done)(struct call *call))
{
	q->at = QUEST_ERRAND;
	call_init(&q->errand.call, timeout_ms);
	q->errand.call.done = done;
	q->errand.call.ctx = q;
}

/* ---- where the files are ---- */

static const char *const thread_dirs[] = { "workspace", "uploads", "outputs" };

/* Whether a thread's directories are made where the sandbox runs, and not on this machine. */
static bool keeps_files_itself(const struct fs *fs)
{
	return fs->opt->source == SOURCE_PROVISIONER;
}

static void furnish(struct quest *q);

static void furnish_start(struct remote *r, struct sandbox *sb)
{
	struct quest *q = CONTAINER_OF(r, struct quest, remote);
	struct buf path CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&path, "%s/%s", sandbox_root(sb), thread_dirs[q->made]);
	if (path.error)
		remote_fail(r, -ENOMEM);
	else
		sandbox_mkdir(sb, &r->call, path.data, 0777, NULL);
}

static void furnished(struct remote *r, int err)
{
	struct quest *q = CONTAINER_OF(r, struct quest, remote);

	if (err < 0 && err != -EEXIST) /* as others made it, so it is */
		log_topic(LOG_FILE, "thread %s: sandbox %s: no directory %s: %s", q->thread->id,
			  tenant_id(q->thread->tenant), thread_dirs[q->made],
			  strerrordesc_np(-err));
	q->made++;
	furnish(q);
}

/* A new thread has the directories that deer-flow's have. */
static void furnish(struct quest *q)
{
	if (q->made == ARRAY_SIZE(thread_dirs) || q->interrupted) {
		quest_end(q, 0);
		return;
	}
	q->remote = (struct remote){ 0 };
	remote_begin(&q->remote, q->thread, furnish_start, furnished);
}

/* ---- making one ---- */

static void make_start(struct remote *r, struct sandbox *sb)
{
	struct quest *q = CONTAINER_OF(r, struct quest, remote);

	sandbox_lstat(sb, &r->call, sandbox_root(sb), &q->attr);
}

static void made(struct remote *r, int err)
{
	struct quest *q = CONTAINER_OF(r, struct quest, remote);
	struct node *n;

	if (err < 0 && !q->thread->root)
		thread_set_known(q->thread, false);
	if (err == 0 && threads_node(q->dir, q->thread, &n) == 0) {
		node_set_attr(n, &q->attr);
		node_doubt_attr(n);
		node_unref(n);
	}
	if (err == 0 && keeps_files_itself(q->fs))
		furnish(q);
	else
		quest_end(q, err);
}

/* A first operation on its sandbox is what makes it. */
static void make(struct quest *q)
{
	q->at = QUEST_REMOTE;
	q->thread->removed = false;
	thread_set_known(q->thread, true); /* another mkdir is too late */
	remote_begin(&q->remote, q->thread, make_start, made);
}

/* ---- lookup and mkdir ---- */

/* One that is given by its address is there or not. */
static bool can_make(const struct fs *fs)
{
	return fs->opt->source != SOURCE_URL;
}

static void found(struct call *call)
{
	struct quest *q = call->ctx;
	int err = q->interrupted ? -EINTR : call->error;

	call_release(call);
	if (err == -ENOENT && can_make(q->fs) && (q->makes || q->fs->opt->autocreate))
		make(q);
	else if (q->makes && (err == 0 || err == -ENOENT))
		quest_end(q, err == 0 ? -EEXIST : -EPERM);
	else
		quest_end(q, err);
}

static void quest_listed(void *ctx, int err, char **names, size_t count)
{
	struct quest *q = ctx;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(names[i], q->thread->id) == 0)
			q->listed = true;
	}
	if (q->thread->known)
		q->listed = true; /* somebody was faster */
	if (!q->parked.req) {
		quest_free(q);
		return;
	}
	if (err < 0 || q->listed) {
		quest_end(q, err < 0 ? err : q->makes ? -EEXIST : 0);
		return;
	}
	if (!q->makes && bystander_asks_for(q->thread->id)) {
		quest_end(q, -ENOENT);
		return;
	}
	begin_errand(q, q->fs->opt->timeout_ms, found);
	tenant_find(q->thread->tenant, &q->errand);
}

void threads_op_lookup(fuse_req_t req, struct node *dir, const char *name)
{
	struct thread *t;
	struct quest *q;

	if (!ident_is_thread(name)) {
		answer_err(dir->fs, req, -ENOENT);
		return;
	}
	t = thread_find(dir->fs, name);
	if (t && t->known) {
		struct parked p;

		parked_init(&p, dir->fs, req, NULL);
		reply_thread(&p, dir, t);
		return;
	}
	q = quest_new(req, dir, name);
	if (q)
		threads_list(dir->fs, quest_listed, q);
}

void threads_op_mkdir(fuse_req_t req, struct node *dir, const char *name)
{
	struct thread *t = thread_find(dir->fs, name);
	struct quest *q;

	if (!ident_is_thread(name)) {
		answer_err(dir->fs, req, -EINVAL);
		return;
	}
	if (t && t->known) {
		answer_err(dir->fs, req, -EEXIST);
		return;
	}
	q = quest_new(req, dir, name);
	if (q) {
		q->makes = true;
		threads_list(dir->fs, quest_listed, q);
	}
}

/* ---- rmdir ---- */

static void forgotten(struct call *call)
{
	struct quest *q = call->ctx;
	struct thread *t = q->thread;
	int err = call->error;

	call_release(call);
	t->removing = false;
	if (err == 0) {
		t->removed = true;
		thread_set_known(t, false);
		thread_void_caches(t);
		if (t->root)
			node_detach(t->root);
	}
	if (q->parked.req)
		parked_err(&q->parked, err == -EOPNOTSUPP ? -EPERM : err);
	quest_free(q);
}

static void forget(struct quest *q)
{
	struct thread *t = q->thread;

	thread_let_go(t);
	t->removing = true;
	begin_errand(q, q->fs->opt->start_timeout_ms, forgotten);
	tenant_forget(t->tenant, &q->errand);
}

static void look_start(struct remote *r, struct sandbox *sb)
{
	struct quest *q = CONTAINER_OF(r, struct quest, remote);

	entries_release(&q->entries);
	sandbox_list(sb, &r->call, sandbox_root(sb), 2, &q->entries);
}

static bool is_bare(const struct entries *e)
{
	for (size_t i = 0; i < e->n; i++) {
		bool is_ours = false;

		for (size_t k = 0; k < ARRAY_SIZE(thread_dirs); k++)
			is_ours |= strcmp(e->v[i].name, thread_dirs[k]) == 0;
		if (!is_ours || !S_ISDIR(e->v[i].attr.mode))
			return false;
	}
	return !e->dropped && !e->truncated && !e->incomplete;
}

static void looked(struct remote *r, int err)
{
	struct quest *q = CONTAINER_OF(r, struct quest, remote);

	if (err == 0 && !is_bare(&q->entries))
		err = -ENOTEMPTY;
	if (err == 0 && q->parked.req) {
		forget(q);
		return;
	}
	if (q->parked.req)
		parked_err(&q->parked, err);
	quest_free(q);
}

void threads_op_rmdir(fuse_req_t req, struct node *dir, const char *name)
{
	struct thread *t = thread_find(dir->fs, name);
	struct quest *q;

	if (!t || !t->known) {
		answer_err(dir->fs, req, -ENOENT);
		return;
	}
	if (t->open_files > 0 || t->commands > 0) {
		answer_err(dir->fs, req, -EBUSY);
		return;
	}
	q = quest_new(req, dir, name);
	if (!q)
		return;
	if (keeps_files_itself(q->fs)) { /* the provider cannot see whether there are any */
		q->at = QUEST_REMOTE;
		remote_begin(&q->remote, t, look_start, looked);
	} else {
		forget(q);
	}
}

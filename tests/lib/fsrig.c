/* A struct fs for tests; see the header. */
#include "fsrig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "backend_url.h"
#include "clock.h"
#include "contents.h"
#include "ident.h"
#include "remote.h"
#include "staging.h"
#include "workers.h"

enum { WAIT_MS = 20000, READ_MS = 60000 };

static char user[] = "u", thread_name[] = "t";

/* ---- life ---- */

void fsrig_run(struct fsrig *r, void (*fn)(void *ctx), void *ctx)
{
	loop_run(r->fs.loop, fn, ctx);
}

struct question {
	bool (*fn)(void *ctx);
	void *ctx;
	bool answer;
};

static void put_question(void *ctx)
{
	struct question *q = ctx;

	q->answer = q->fn(q->ctx);
}

bool fsrig_wait(struct fsrig *r, bool (*fn)(void *ctx), void *ctx)
{
	struct question q = { fn, ctx, false };

	for (int64_t until = clock_ms() + WAIT_MS;;) {
		fsrig_run(r, put_question, &q);
		if (q.answer || clock_ms() > until)
			return q.answer;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

static void set_options(struct fsrig *r)
{
	r->opt = (struct options){
		.user = user,
		.thread = thread_name,
		.linger_ms = 30000,
		.timeout_ms = 30000,
		.start_timeout_ms = 60000,
		.auto_restart = true,
		.uid = getuid(),
		.gid = getgid(),
		.cache = r->cache,
		.cache_size = 4 * GIB,
		.memory = 64 * MIB,
	};
}

static void begin(void *ctx)
{
	struct fsrig *r = ctx;
	struct fs *fs = &r->fs;

	fs->ev = loop_ev(fs->loop);
	if (workers_new(fs->ev, 1, &fs->workers) < 0 || workers_new(fs->ev, 1, &fs->syncers) < 0 ||
	    nodes_init(fs, NULL) < 0 || thread_get(fs, thread_name, &r->thread) < 0 ||
	    node_new(fs->root, "threads", NODE_CTL_DIR, &r->above) < 0 ||
	    node_new(r->above, thread_name, NODE_SANDBOX, &r->root) < 0)
		abort();
	r->root->thread = thread_ref(r->thread);
	r->thread->root = r->root;
	r->thread->known = true;
}

void fsrig_start(struct fsrig *r, struct loop *loop, struct provider *p)
{
	r->cache_given = r->cache[0];
	assert_true(r->cache_given || scratch_dir(r->cache));
	set_options(r);
	r->fs = (struct fs){
		.opt = &r->opt,
		.loop = loop,
		.provider = p,
		.backend = "test",
		.started_ms = clock_ms(),
		.started_wall = clock_wall(),
	};
	r->fs.cache_dir = open(r->cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->fs.cache_dir >= 0);
	fsrig_run(r, begin, r);
}

int fsrig_setup(void **state)
{
	struct fsrig *r = calloc(1, sizeof(*r));
	char id[SANDBOX_ID_LEN + 1];
	struct backend *b = NULL;
	struct provider *p = NULL;

	assert_non_null(r);
	assert_int_equal(fixture_setup(&r->state), 0);
	r->f = r->state;
	ident_make(user, thread_name, id);
	assert_int_equal(backend_url_new(r->f->loop,
					 &(struct url_config){
						 .sandbox = { .socket = rogue_socket(r->f->rogue),
							      .root = r->f->dir },
						 .user = user,
						 .thread = thread_name,
						 .id = id },
					 &b, NULL),
			 0);
	assert_int_equal(provider_new(&(struct provider_config){ .loop = r->f->loop, .backend = b },
				      &p, NULL),
			 0);
	fsrig_start(r, r->f->loop, p);
	*state = r;
	return 0;
}

int fsrig_embedded_setup(void **state)
{
	struct fsrig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	assert_int_equal(rig_setup(&r->state), 0);
	r->rig = rig_start(&r->state, NULL);
	fsrig_start(r, r->rig->loop, r->rig->provider);
	*state = r;
	return 0;
}

static void let_go(void *ctx)
{
	struct fsrig *r = ctx;

	r->fs.ending = true;
	thread_let_go(r->thread);
	node_unref(STEAL(r->root));
	node_unref(STEAL(r->above));
	thread_unref(STEAL(r->thread));
}

/* Operations that were cancelled take a moment to end. */
static bool is_at_rest(void *ctx)
{
	struct fsrig *r = ctx;

	return !r->fs.threads;
}

static void end(void *ctx)
{
	struct fsrig *r = ctx;

	staging_free(r->fs.staging);
	nodes_release(&r->fs);
	contents_release(&r->fs);
	workers_free(r->fs.workers);
	workers_free(r->fs.syncers);
}

bool fsrig_stop(struct fsrig *r)
{
	bool fine = true;

	fsrig_run(r, let_go, r);
	if (!fsrig_wait(r, is_at_rest, r)) {
		print_error("something of the thread is still held\n");
		return false; /* freeing it all would only crash */
	}
	fsrig_run(r, end, r);
	if (r->fs.memory_used || r->fs.cache_used || HASH_CNT(by_ino, r->fs.nodes)) {
		print_error("left: %llu bytes of memory, %llu of cache, %u nodes\n",
			    (unsigned long long)r->fs.memory_used,
			    (unsigned long long)r->fs.cache_used, HASH_CNT(by_ino, r->fs.nodes));
		fine = false;
	}
	close(r->fs.cache_dir);
	return (r->cache_given || scratch_remove(r->cache)) && fine;
}

int fsrig_teardown(void **state)
{
	struct fsrig *r = *state;
	int bad = fsrig_stop(r) ? 0 : -1;

	if (r->fs.threads)
		return bad;
	if (r->rig) {
		bad |= rig_teardown(&r->state);
	} else {
		provider_free(r->fs.provider);
		bad |= fixture_teardown(&r->state);
	}
	free(r);
	return bad;
}

/* ---- nodes ---- */

const char *fsrig_host_path(struct fsrig *r, const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *to = paths[next++ % ARRAY_SIZE(paths)];

	if (r->f || r->rig)
		return r->f ? fixture_host_path(r->f, name)
			    : rig_host_path(r->rig, thread_name, name);
	snprintf(to, sizeof(paths[0]), "%s/%s", r->host_dir, name);
	return to;
}

struct find {
	struct fsrig *r;
	const char *path;
	struct node *node;
};

static void find_node(void *ctx)
{
	struct find *f = ctx;
	char *copy CLEANUP_FREE = strdup(f->path), *rest = copy, *name;
	struct node *n = node_ref(f->r->root), *next;

	while ((name = strsep(&rest, "/"))) {
		if (node_get_child(n, name, &next) < 0)
			abort();
		node_unref(n);
		n = next;
	}
	f->node = n;
}

struct node *fsrig_node(struct fsrig *r, const char *path)
{
	struct find f = { .r = r, .path = path };
	int e;

	fsrig_run(r, find_node, &f);
	e = fsrig_lstat(r, f.node);
	if (e != -ENOENT)
		assert_int_equal(e, 0);
	return f.node;
}

static void put_node(void *ctx)
{
	node_unref(ctx);
}

void fsrig_put(struct fsrig *r, struct node *n)
{
	fsrig_run(r, put_node, n);
}

struct look {
	struct remote remote;
	struct node *node;
	struct attr attr;
	int error;
	bool done; /* loop thread only */
};

static void start_look(struct remote *remote, struct sandbox *sb)
{
	struct look *l = CONTAINER_OF(remote, struct look, remote);
	char *path CLEANUP_FREE = NULL;

	if (node_path(l->node, NULL, sb, &path) < 0)
		abort();
	sandbox_lstat(sb, &remote->call, path, &l->attr);
}

static void on_looked(struct remote *remote, int err)
{
	struct look *l = CONTAINER_OF(remote, struct look, remote);

	l->error = err;
	l->done = true;
	if (err == 0)
		node_set_attr(l->node, &l->attr);
}

static void begin_look(void *ctx)
{
	struct look *l = ctx;

	remote_begin(&l->remote, l->node->thread, start_look, on_looked);
}

static bool has_looked(void *ctx)
{
	return ((struct look *)ctx)->done;
}

int fsrig_lstat(struct fsrig *r, struct node *n)
{
	struct look l = { .node = n };

	fsrig_run(r, begin_look, &l);
	assert_true(fsrig_wait(r, has_looked, &l));
	return l.error;
}

/* ---- reading ---- */

static void on_read(struct read_op *op, int err, const struct iovec *iov, int count)
{
	struct fsrig_read *rd = CONTAINER_OF(op, struct fsrig_read, op);
	size_t n = 0;

	for (int i = 0; err == 0 && i < count; i++) {
		if (iov[i].iov_len > op->size - n)
			abort();
		memcpy(rd->to + n, iov[i].iov_base, iov[i].iov_len);
		n += iov[i].iov_len;
	}
	pthread_mutex_lock(&rd->lock);
	rd->got = err ?: (ssize_t)n;
	rd->done = true;
	pthread_cond_signal(&rd->cond);
	pthread_mutex_unlock(&rd->lock);
}

static void begin_read(void *ctx)
{
	struct fsrig_read *rd = ctx;

	rd->read(rd->what, &rd->op);
}

void fsrig_read_begin(struct fsrig *r, struct fsrig_read *rd,
		      void (*read)(void *what, struct read_op *op), void *what, void *to,
		      size_t len, uint64_t offset)
{
	pthread_condattr_t attr;

	*rd = (struct fsrig_read){
		.op = { .offset = offset, .size = len, .done = on_read },
		.read = read,
		.what = what,
		.to = to,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&rd->cond, &attr);
	pthread_condattr_destroy(&attr);
	fsrig_run(r, begin_read, rd);
}

bool fsrig_read_is_done(struct fsrig_read *rd)
{
	bool done;

	pthread_mutex_lock(&rd->lock);
	done = rd->done;
	pthread_mutex_unlock(&rd->lock);
	return done;
}

ssize_t fsrig_read_end(struct fsrig_read *rd)
{
	struct timespec until;
	ssize_t got;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += READ_MS / 1000;
	pthread_mutex_lock(&rd->lock);
	while (!rd->done && pthread_cond_timedwait(&rd->cond, &rd->lock, &until) == 0)
		;
	got = rd->done ? rd->got : -ETIME;
	pthread_mutex_unlock(&rd->lock);
	return got;
}

ssize_t fsrig_read(struct fsrig *r, void (*read)(void *what, struct read_op *op), void *what,
		   void *to, size_t len, uint64_t offset)
{
	struct fsrig_read rd;

	fsrig_read_begin(r, &rd, read, what, to, len, offset);
	return fsrig_read_end(&rd);
}

/*
 * The backend of one given sandbox. Every question that needs the server gets a
 * client of its own, which is closed before the answer: nothing stays open
 * between questions. Loop thread, but for making and freeing it.
 */
#include "backend_url.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "view.h"

enum {
	DISCOVER_MS = 15000, /* for each of its two requests */
	ALIVE_MS = 5000,
};

static const char user_data[] = "/mnt/user-data";

struct url_backend {
	struct backend base;
	/* immutable; the strings are ours */
	struct sandbox_config config; /* with the root "/" */
	char *url, *socket, *bearer, *api_key, *cacert;
	char *root; /* normal; NULL: to be found out */
	char *user, *thread, *id;
};

/* One that is under way, with its client. */
struct question {
	struct url_backend *b;
	struct backend_op *op;
	struct sandbox *sb;
	struct call call;
	bool cancelled;

	struct sandbox_info info;
	struct attr attr;

	int error; /* the answer, until the client is closed */
	char *why;
};

/* ---- its end ---- */

static void on_closed(void *ctx)
{
	struct question *q = ctx;

	backend_answer(&q->b->base, q->op, q->error, q->why);
	sandbox_info_release(&q->info);
	free(q->why);
	call_release(&q->call);
	free(q);
}

/* The answer is settled; why is taken over. */
static void finish(struct question *q, int error, char *why)
{
	q->error = error;
	q->why = why;
	sandbox_dismiss(STEAL(q->sb), on_closed, q);
}

static void fail(struct question *q)
{
	finish(q, q->call.error, STEAL(q->call.message));
}

/* ---- asking ---- */

static void refuse_id(struct url_backend *b, struct backend_op *op)
{
	char words[300];

	snprintf(words, sizeof(words), "this mount shows one sandbox, the thread %s", b->thread);
	backend_answer(&b->base, op, -ENOENT, words);
}

/* A question about our sandbox, with a client; NULL if it has been answered already. */
static struct question *question_new(struct backend *base, struct backend_op *op, const char *id,
				     int64_t timeout_ms, void (*done)(struct call *call))
{
	struct url_backend *b = (struct url_backend *)base;
	struct question *q;
	const char *why = NULL;
	int r;

	if (strcmp(id, b->id) != 0) {
		refuse_id(b, op);
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	r = q ? sandbox_new(base->loop, &b->config, &q->sb, &why) : -ENOMEM;
	if (r < 0) {
		free(q);
		backend_answer(base, op, r, why);
		return NULL;
	}
	q->b = b;
	q->op = op;
	call_init(&q->call, timeout_ms);
	q->call.done = done;
	q->call.ctx = q;
	op->priv = q;
	return q;
}

/* ---- is it alive ---- */

/* No answer says nothing: it is not on this machine, and the network may be down. */
static void on_pinged(struct call *call)
{
	struct question *q = call->ctx;

	if (call->error) {
		fail(q);
		return;
	}
	q->op->alive = true;
	finish(q, 0, NULL);
}

static void url_is_alive(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, id, ALIVE_MS, on_pinged);

	if (q)
		sandbox_ping(q->sb, &q->call);
}

/* ---- where it is ---- */

static int copy(char **to, const char *from)
{
	if (!from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -ENOMEM;
}

/* root is taken over */
static void found(struct question *q, char *root)
{
	const struct url_backend *b = q->b;
	struct place p CLEANUP_PLACE = { .root = root };
	int r = root ? 0 : -ENOMEM;

	snprintf(p.id, sizeof(p.id), "%s", b->id);
	if (r == 0)
		r = copy(&p.url, b->url);
	if (r == 0)
		r = copy(&p.socket, b->socket);
	if (r == 0)
		r = copy(&p.user, b->user);
	if (r == 0)
		r = copy(&p.thread, b->thread);
	if (r == 0) {
		q->op->place = p;
		p = (struct place){ 0 };
	}
	finish(q, r, NULL);
}

/* What the server says about itself need not be a path. */
static char *home_of(const struct sandbox_info *info)
{
	char *root = NULL;
	int r = info->home_dir ? view_root(info->home_dir, &root) : -EINVAL;

	if (r == -EINVAL)
		return strdup("/");
	return r < 0 ? NULL : root;
}

/* Whether an error is the sandbox's own word that it has no such directory for us. */
static bool says_no(int error)
{
	static const int errors[] = { -ENOENT, -ENOTDIR, -EACCES, -EPERM, -ELOOP, -EOPNOTSUPP };

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		if (error == errors[i])
			return true;
	}
	return false;
}

static void on_user_data(struct call *call)
{
	struct question *q = call->ctx;

	if (call->error == 0 && S_ISDIR(q->attr.mode))
		found(q, strdup(user_data));
	else if (call->error == 0 || says_no(call->error))
		found(q, home_of(&q->info));
	else
		fail(q);
}

static void on_context(struct call *call)
{
	struct question *q = call->ctx;

	if (call->error) {
		fail(q);
		return;
	}
	if (q->b->root) {
		found(q, strdup(q->b->root));
		return;
	}
	call_release(call);
	call_init(call, DISCOVER_MS);
	call->done = on_user_data;
	call->ctx = q;
	/* Cancelled when the first answer was already here: that call did not tell. */
	if (q->cancelled)
		call_cancel(call);
	sandbox_lstat(q->sb, call, user_data, &q->attr);
}

static void url_discover(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, id, DISCOVER_MS, on_context);

	if (q)
		sandbox_context(q->sb, &q->call, &q->info);
}

/* ---- what it does not do ---- */

static void url_create(struct backend *b, struct backend_op *op, const struct whom *whom UNUSED)
{
	backend_answer(b, op, -EPERM, "a sandbox that is given by its address is not made here");
}

static void url_destroy(struct backend *b, struct backend_op *op, const char *id UNUSED)
{
	backend_answer(b, op, -EOPNOTSUPP,
		       "a sandbox that is given by its address is not ours to stop");
}

static void url_cancel(struct backend *b UNUSED, struct backend_op *op)
{
	struct question *q = op->priv;

	/* Without a client the answer is settled and only waits for it to be closed. */
	if (!q || !q->sb)
		return;
	q->cancelled = true;
	call_cancel(&q->call);
}

/* ---- life ---- */

static void url_free(struct backend *base)
{
	struct url_backend *b = (struct url_backend *)base;

	free(b->url);
	free(b->socket);
	free(b->bearer);
	free(b->api_key);
	free(b->cacert);
	free(b->root);
	free(b->user);
	free(b->thread);
	free(b->id);
	free(b);
}

static const struct backend_ops url_ops = {
	.name = "url",
	.alive_by_ping = true,
	.create = url_create,
	.destroy = url_destroy,
	.is_alive = url_is_alive,
	.discover = url_discover,
	.cancel = url_cancel,
	.free = url_free,
};

static int copy_config(struct url_backend *b, const struct url_config *c)
{
	const struct {
		char **to;
		const char *from;
	} strings[] = {
		{ &b->url, c->sandbox.url },       { &b->socket, c->sandbox.socket },
		{ &b->bearer, c->sandbox.bearer }, { &b->api_key, c->sandbox.api_key },
		{ &b->cacert, c->sandbox.cacert }, { &b->user, c->user },
		{ &b->thread, c->thread },         { &b->id, c->id },
	};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		if (copy(strings[i].to, strings[i].from) < 0)
			return -ENOMEM;
	}
	b->config = (struct sandbox_config){
		.url = b->url,
		.socket = b->socket,
		.root = "/",
		.label = b->thread,
		.bearer = b->bearer,
		.api_key = b->api_key,
		.cacert = b->cacert,
		.insecure = c->sandbox.insecure,
	};
	return c->sandbox.root ? view_root(c->sandbox.root, &b->root) : 0;
}

int backend_url_new(struct loop *loop, const struct url_config *config, struct backend **ret,
		    const char **ret_why)
{
	struct url_backend *b;
	struct sandbox *sb;
	int r;

	assert(config->user && config->thread && strlen(config->id) <= SANDBOX_ID_LEN);
	/* Whoever knows what a good address is says so now, not at the first question. */
	r = sandbox_new(loop, &config->sandbox, &sb, ret_why);
	if (r < 0)
		return r;
	sandbox_unref(sb);
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->base = (struct backend){ .ops = &url_ops, .loop = loop };
	r = copy_config(b, config);
	if (r < 0) {
		url_free(&b->base);
		return r;
	}
	*ret = &b->base;
	return 0;
}

/*
 * The backend of deer-flow's provisioner. One client of its API lives as long as
 * the backend; a question is one to three requests in a row. Where the API cannot
 * tell whether a pod lives, the sandbox itself is asked, by a client that is
 * closed before the answer. Loop thread, but for making and freeing it.
 *
 * What the API promises and what not: create is idempotent, so nobody can tell by
 * its answer who made a sandbox (the provider looks for it first); a sandbox exists
 * while its Service does, though its pod may be gone; Running is not ready; DELETE
 * does not wait for the end.
 */
#include "backend_provisioner.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "jsonw.h"
#include "lock.h"
#include "log.h"
#include "provisioner_answer.h"
#include "redact.h"
#include "request.h"
#include "status.h"
#include "url.h"

enum {
	GET_MS = 10000,
	CREATE_MS = 30000,
	DELETE_MS = 15000,
	PING_MS = 5000,
	ANSWER_BYTES_MAX = 4 * 1024 * 1024, /* of a long list */
	MOUNTS_MAX = 10,                    /* that a provisioner takes */
};

static const char sandboxes[] = "/api/sandboxes";

struct provisioner {
	struct backend base;
	/* immutable */
	struct sandbox *server; /* the API's, not a sandbox: see request.h */
	char *key_header;       /* or NULL */
	char *cacert;
	bool insecure;
	struct buf mounts; /* the value of "extra_mounts"; empty: none */
};

enum kind { CREATE, DESTROY, IS_ALIVE, DISCOVER, LIST };

/* One that is under way. */
struct question {
	struct provisioner *b;
	struct backend_op *op;
	enum kind kind;
	char *id;        /* NULL of LIST */
	struct buf body; /* of CREATE */
	bool replaced;   /* CREATE: the remains of a dead one have been removed */
	bool cancelled;

	struct call call; /* of the request or ping under way */
	struct response response;
	struct sandbox *pod; /* that is pinged */

	char *url; /* where the answer says that it is */
	int error; /* the answer, until the pod's client is closed */
	char *why;
};

/* ---- its end ---- */

static void question_free(struct question *q)
{
	call_release(&q->call);
	response_release(&q->response);
	buf_release(&q->body);
	free(q->id);
	free(q->url);
	free(q->why);
	free(q);
}

static void on_closed(void *ctx)
{
	struct question *q = ctx;

	backend_answer(&q->b->base, q->op, q->error, q->why);
	question_free(q);
}

/* The answer is settled; why is taken over. */
static void finish(struct question *q, int error, char *why)
{
	q->error = error;
	q->why = why;
	if (q->pod)
		sandbox_dismiss(STEAL(q->pod), on_closed, q);
	else
		on_closed(q);
}

#define fail(q, error, ...) finish((q), (error), backend_words(__VA_ARGS__))

/* ---- asking ---- */

/* Readies the call for the next request; what cancelled the question cancels that, too. */
static struct call *next_call(struct question *q, int64_t timeout_ms,
			      void (*done)(struct call *call))
{
	call_release(&q->call);
	response_release(&q->response);
	call_init(&q->call, timeout_ms);
	q->call.done = done;
	q->call.ctx = q;
	if (q->cancelled)
		call_cancel(&q->call);
	return &q->call;
}

static void send_request(struct question *q, const char *method, int64_t timeout_ms,
			 void (*done)(struct call *call))
{
	const char *const headers[] = { q->b->key_header, NULL };
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct request r = {
		.method = method,
		.headers = headers,
		.idempotent = true, /* all of them are */
		.slow = timeout_ms > GET_MS,
		.answer_max = ANSWER_BYTES_MAX,
	};

	buf_puts(&target, sandboxes);
	if (strcmp(method, "POST") == 0) {
		r.json = q->body.data;
		r.len = q->body.len;
	} else if (q->id) {
		buf_putc(&target, '/');
		if (url_escape(&target, q->id, strlen(q->id)) < 0) {
			finish(q, -ENOMEM, NULL);
			return;
		}
	}
	if (target.error) {
		finish(q, -ENOMEM, NULL);
		return;
	}
	r.target = target.data;
	sandbox_request(q->b->server, next_call(q, timeout_ms, done), &r, &q->response);
}

static struct question *question_new(struct backend *base, struct backend_op *op, enum kind kind,
				     const char *id)
{
	struct question *q = calloc(1, sizeof(*q));

	if (q) {
		q->b = (struct provisioner *)base;
		q->op = op;
		q->kind = kind;
		q->body = BUF_INIT(0);
		call_init(&q->call, 0);
		q->id = id ? strdup(id) : NULL;
	}
	if (!q || (id && !q->id)) {
		if (q)
			question_free(q);
		backend_answer(base, op, -ENOMEM, NULL);
		return NULL;
	}
	op->priv = q;
	return q;
}

/* ---- what an answer says: provisioner_answer.c ---- */

/* Anything but a 2xx that came whole. Returns whether the question has ended with it. */
static bool failed(struct question *q)
{
	int status = q->response.status;
	char *words CLEANUP_FREE = NULL;

	if (q->call.error) {
		char *message = STEAL(q->call.message);

		fail(q, q->call.error, "the provisioner does not answer: %s",
		     message ?: strerrordesc_np(-q->call.error));
		free(message);
		return true;
	}
	if (status >= 200 && status < 300)
		return false;
	words = response_words(&q->response);
	if (words && q->b->key_header)
		redact(words, strchr(q->b->key_header, ':') + 1);
	if (status == 401 || status == 403)
		fail(q, -EACCES,
		     q->b->key_header ? "the provisioner refuses the API key"
				      : "the provisioner wants an API key");
	else if (status == 404 || status == 405)
		fail(q, -EPROTO, "there is no provisioner at this address (HTTP %d)", status);
	else
		fail(q, status_from_http(status), "the provisioner says: %s (HTTP %d)",
		     words ?: "nothing", status);
	return true;
}

static void nonsense(struct question *q, const char *what)
{
	fail(q, -EBADMSG, "the provisioner's answer makes no sense: %s", what);
}

/* ---- one sandbox, as the answer to GET and POST describes it ---- */

static void found(struct question *q)
{
	struct place *p = &q->op->place;

	snprintf(p->id, sizeof(p->id), "%s", q->id);
	p->url = STEAL(q->url);
	finish(q, 0, NULL);
}

static void settle_alive(struct question *q, bool alive)
{
	q->op->alive = alive;
	finish(q, 0, NULL);
}

static void on_created(struct call *call);

static void on_remains_removed(struct call *call)
{
	struct question *q = call->ctx;

	if (!failed(q))
		send_request(q, "POST", CREATE_MS, on_created);
}

/* Its Service is there, its pod is not, and will not come back by itself. */
static void on_dead(struct question *q)
{
	if (q->kind == IS_ALIVE) {
		settle_alive(q, false);
	} else if (q->kind == DISCOVER) {
		fail(q, -ENOENT, "only the remains of sandbox %s are left", q->id);
	} else if (q->replaced) {
		fail(q, -EIO, "the sandbox died at once");
	} else {
		/* To the provisioner it still exists: it would not make another one. */
		log_info("removing the remains of dead sandbox %s", q->id);
		q->replaced = true;
		send_request(q, "DELETE", DELETE_MS, on_remains_removed);
	}
}

static void on_alive(struct question *q)
{
	if (q->kind == IS_ALIVE)
		settle_alive(q, true);
	else
		found(q);
}

static void on_pod_closed(void *ctx)
{
	on_dead(ctx);
}

/* Only a sandbox that the network reaches and that is not there is dead. */
static bool speaks_of_nobody(int error)
{
	return error == -ECONNREFUSED || error == -EHOSTUNREACH;
}

static void on_pinged(struct call *call)
{
	struct question *q = call->ctx;
	int error = call->error;

	if (error == 0) {
		on_alive(q);
	} else if (error == -ECANCELED) {
		finish(q, error, NULL);
	} else if (speaks_of_nobody(error)) {
		sandbox_dismiss(STEAL(q->pod), on_pod_closed, q);
	} else if (q->kind == IS_ALIVE) {
		fail(q, error, "neither the provisioner nor the sandbox can tell");
	} else {
		found(q); /* whoever wants to use it will see */
	}
}

static void ask_pod(struct question *q)
{
	const char *why = NULL;
	struct sandbox_config config = {
		.url = q->url,
		.root = "/",
		.label = q->id,
		.cacert = q->b->cacert,
		.insecure = q->b->insecure,
		.no_link_local = true,
	};
	int r = sandbox_new(q->b->base.loop, &config, &q->pod, &why);

	if (r < 0)
		fail(q, r, "%s", why ?: strerrordesc_np(-r));
	else
		sandbox_ping(q->pod, next_call(q, PING_MS, on_pinged));
}

/* Takes a 2xx apart. */
static void on_described(struct question *q)
{
	enum provisioner_health health;
	const char *why = NULL;
	char *url = NULL;

	if (provisioner_read_one(&q->response, q->id, &url, &health, &why) < 0) {
		nonsense(q, why);
		return;
	}
	free(q->url);
	q->url = url;
	/* A pod that is coming is no reason to give it up, nor to call it alive. */
	if (q->kind == IS_ALIVE && health == PROVISIONER_COMING)
		fail(q, -EAGAIN, "its pod is being started");
	else if (health == PROVISIONER_RUNNING || health == PROVISIONER_COMING)
		on_alive(q);
	else if (health == PROVISIONER_DEAD)
		on_dead(q);
	else if (health == PROVISIONER_STRANGE && q->kind != IS_ALIVE)
		found(q);
	else
		ask_pod(q);
}

static void on_got(struct call *call)
{
	struct question *q = call->ctx;

	if (call->error == 0 && provisioner_says_gone(&q->response)) {
		if (q->kind == IS_ALIVE)
			settle_alive(q, false);
		else
			fail(q, -ENOENT, "the provisioner knows no sandbox %s", q->id);
		return;
	}
	if (!failed(q))
		on_described(q);
}

static void on_created(struct call *call)
{
	struct question *q = call->ctx;

	if (!failed(q))
		on_described(q);
}

static void provisioner_is_alive(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, IS_ALIVE, id);

	if (q)
		send_request(q, "GET", GET_MS, on_got);
}

static void provisioner_discover(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, DISCOVER, id);

	if (q)
		send_request(q, "GET", GET_MS, on_got);
}

static void provisioner_create(struct backend *base, struct backend_op *op, const struct whom *whom)
{
	struct provisioner *b = (struct provisioner *)base;
	struct question *q = question_new(base, op, CREATE, whom->id);
	struct jw w;

	if (!q)
		return;
	jw_init(&w, &q->body);
	jw_obj(&w);
	jw_kstr(&w, "sandbox_id", whom->id);
	jw_kstr(&w, "thread_id", whom->thread);
	jw_kstr(&w, "user_id", whom->user);
	if (b->mounts.len > 0) {
		jw_key(&w, "extra_mounts");
		buf_append(&q->body, b->mounts.data, b->mounts.len);
	}
	jw_obj_end(&w);
	if (q->body.error)
		finish(q, -ENOMEM, NULL);
	else
		send_request(q, "POST", CREATE_MS, on_created);
}

/* ---- destroy ---- */

static void on_deleted(struct call *call)
{
	struct question *q = call->ctx;

	if (call->error == 0 && provisioner_says_gone(&q->response))
		finish(q, 0, NULL);
	else if (!failed(q))
		finish(q, 0, NULL);
}

static void provisioner_destroy(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, DESTROY, id);

	if (q)
		send_request(q, "DELETE", DELETE_MS, on_deleted);
}

/* ---- list ---- */

static void on_listed(struct call *call)
{
	struct question *q = call->ctx;
	const char *why = NULL;
	int r;

	if (failed(q))
		return;
	r = provisioner_read_list(&q->response, &q->op->places, &q->op->nplaces, &why);
	if (r < 0 && why)
		nonsense(q, why);
	else
		finish(q, r, NULL);
}

static void provisioner_list(struct backend *b, struct backend_op *op)
{
	struct question *q = question_new(b, op, LIST, NULL);

	if (q)
		send_request(q, "GET", GET_MS, on_listed);
}

/* ---- life ---- */

static void provisioner_cancel(struct backend *b UNUSED, struct backend_op *op)
{
	struct question *q = op->priv;

	if (!q)
		return;
	q->cancelled = true;
	call_cancel(&q->call); /* harmless when the answer is settled */
}

static void provisioner_free(struct backend *base)
{
	struct provisioner *b = (struct provisioner *)base;

	sandbox_unref(b->server);
	if (b->key_header)
		explicit_bzero(b->key_header, strlen(b->key_header));
	free(b->key_header);
	free(b->cacert);
	buf_release(&b->mounts);
	free(b);
}

static const struct backend_ops provisioner_ops = {
	.name = "provisioner",
	.is_hearsay = true,
	.has_old_ids = true,
	.is_shared = true,
	.create = provisioner_create,
	.destroy = provisioner_destroy,
	.is_alive = provisioner_is_alive,
	.discover = provisioner_discover,
	.list_running = provisioner_list,
	.cancel = provisioner_cancel,
	.free = provisioner_free,
};

/* Others it refuses, and the pod with them. */
static bool is_supported(const struct provisioner_mount *m)
{
	static const char *const paths[] = {
		"/mnt/acp-workspace",
		"/mnt/skills/custom",
		"/mnt/skills/integrations",
		"/mnt/integrations/lark-cli/config",
		"/mnt/integrations/lark-cli/config/locks",
		"/mnt/integrations/lark-cli/data",
		"/mnt/integrations/lark-cli/runtime",
	};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (strcmp(m->container_path, paths[i]) == 0)
			return true;
	return false;
}

static int copy_mounts(struct provisioner *b, const struct provisioner_config *c)
{
	size_t kept = 0;
	struct jw w;

	b->mounts = BUF_INIT(0);
	jw_init(&w, &b->mounts);
	for (size_t i = 0; i < c->nmounts; i++) {
		const struct provisioner_mount *m = &c->mounts[i];

		if (!is_supported(m) || kept == MOUNTS_MAX) {
			log_warn("the mount at %s is left out: provisioners do not know it",
				 m->container_path);
			continue;
		}
		if (kept++ == 0)
			jw_arr(&w);
		jw_obj(&w);
		jw_kstr(&w, "host_path", m->host_path);
		jw_kstr(&w, "container_path", m->container_path);
		jw_kbool(&w, "read_only", m->read_only);
		jw_obj_end(&w);
	}
	if (kept > 0)
		jw_arr_end(&w);
	return b->mounts.error;
}

static int configure(struct provisioner *b, const struct provisioner_config *c,
		     const char **ret_why)
{
	struct sandbox_config server = {
		.url = c->url,
		.root = "/",
		.label = "provisioner",
		.cacert = c->cacert,
		.insecure = c->insecure,
	};
	int r = sandbox_new(b->base.loop, &server, &b->server, ret_why);

	if (r < 0)
		return r;
	if (c->api_key && asprintf(&b->key_header, "X-API-Key: %s", c->api_key) < 0) {
		b->key_header = NULL;
		return -ENOMEM;
	}
	if (c->cacert && !(b->cacert = strdup(c->cacert)))
		return -ENOMEM;
	b->insecure = c->insecure;
	return copy_mounts(b, c);
}

int backend_provisioner_new(struct loop *loop, const struct provisioner_config *config,
			    struct backend **ret, const char **ret_why)
{
	struct provisioner *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->base = (struct backend){ .ops = &provisioner_ops, .loop = loop };
	r = configure(b, config, ret_why);
	if (r < 0) {
		provisioner_free(&b->base);
		return r;
	}
	*ret = &b->base;
	return 0;
}

/* ---- is it there? ---- */

struct check {
	struct backend_op op;
	struct backend *b;
	struct lock lock;
	pthread_cond_t cond;
	bool done; /* guarded by lock */
};

static void on_checked(struct backend_op *op)
{
	struct check *c = CONTAINER_OF(op, struct check, op);

	lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->cond);
	unlock(&c->lock);
}

static void begin_check(void *ctx)
{
	struct check *c = ctx;

	provisioner_list(c->b, &c->op);
}

static void settle(void *ctx UNUSED)
{
}

int backend_provisioner_check(struct backend *b, char **ret_why)
{
	struct check c = { .op.done = on_checked, .b = b };
	int r;

	lock_init(&c.lock);
	pthread_cond_init(&c.cond, NULL);
	loop_run(b->loop, begin_check, &c);
	lock(&c.lock);
	while (!c.done)
		pthread_cond_wait(&c.cond, &c.lock.mutex);
	unlock(&c.lock);
	loop_run(b->loop, settle, NULL); /* it may still be in on_checked() */
	r = c.op.error;
	if (r < 0)
		*ret_why = STEAL(c.op.why);
	backend_op_clear(&c.op);
	pthread_cond_destroy(&c.cond);
	lock_destroy(&c.lock);
	return r;
}

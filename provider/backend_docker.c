/*
 * The backend of container engines: discovering, adopting, listing and stopping
 * containers, and its own life. Making them is docker_create.c. Loop thread, but for making and
 * freeing it.
 */
#include "backend_docker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "docker_address.h"
#include "docker_i.h"
#include "docker_spec.h"
#include "jsonw.h"
#include "log.h"
#include "paths.h"
#include "url.h"

enum {
	VERSION_MS = 10000,
	LIST_MS = 10000,
	STOP_MS = 3000, /* beyond what the container is given */
	REMOVE_MS = 5000,
	REMOVE_TRIES = 20,
	REMOVE_PAUSE_MS = 200,
	API_MAX = 44, /* what has been tried with */
	WORKERS = 2,
};

/* ---- berths ---- */

struct berth *berth_find(struct docker *b, const char *id)
{
	struct berth *berth;

	HASH_FIND_STR(b->berths, id, berth);
	return berth;
}

struct parting {
	struct work work;
	char *locks, *name;
	int users;
};

static void run_part(struct work *w)
{
	struct parting *p = CONTAINER_OF(w, struct parting, work);

	users_leave(p->locks, p->name, steal_fd(&p->users));
}

static void on_parted(struct work *w)
{
	struct parting *p = CONTAINER_OF(w, struct parting, work);

	if (p->users >= 0) /* the workers have ended before it was their turn */
		run_part(w);
	free(p->locks);
	free(p->name);
	free(p);
}

/* Gives the lock up on a worker. */
static void part(struct docker *b, const char *id, int users)
{
	struct parting *p = calloc(1, sizeof(*p));

	if (p) {
		p->locks = strdup(b->locks);
		if (asprintf(&p->name, "%s-%s", b->prefix, id) < 0)
			p->name = NULL;
	}
	if (!p || !p->locks || !p->name) {
		if (p) {
			p->users = -1;
			on_parted(&p->work);
		}
		close(users);
		return;
	}
	p->work = (struct work){ .run = run_part, .done = on_parted };
	p->users = users;
	workers_submit(b->workers, &p->work);
}

static void berth_drop(struct docker *b, struct berth *berth)
{
	HASH_DEL(b->berths, berth);
	vigil_end(berth->vigil);
	if (berth->users >= 0)
		part(b, berth->id, steal_fd(&berth->users));
	free(berth->key);
	free(berth);
}

static void docker_forget(struct backend *base, const char *id)
{
	struct docker *b = (struct docker *)base;
	struct berth *berth = berth_find(b, id);

	if (berth)
		berth_drop(b, berth);
}

/* ---- is it alive? ---- */

static void on_looked(struct question *q)
{
	q->op->alive = q->found.key && q->found.running;
	question_finish(q, 0, NULL);
}

static void docker_is_alive(struct backend *base, struct backend_op *op, const char *id)
{
	struct docker *b = (struct docker *)base;
	struct question *q = question_new(base, op, Q_IS_ALIVE, id);
	struct berth *berth = q ? berth_find(b, id) : NULL;

	/* Another container of its name is not the one that we know. */
	if (q)
		question_inspect(q, berth ? berth->key : q->name, on_looked);
}

/* ---- discover ---- */

static bool is_there(struct question *q)
{
	if (!q->found.key || !q->found.running) {
		question_fail(q, -ENOENT,
			      q->found.key ? "container %s does not run"
					   : "there is no container %s",
			      q->name);
		return false;
	}
	if (q->found.port == 0) {
		question_fail(q, -EADDRNOTAVAIL, "container %s publishes no port 8080", q->name);
		return false;
	}
	return true;
}

/* Whoever held the lock before may have stopped it. */
static void on_found_again(struct question *q)
{
	if (is_there(q))
		question_finish(q, question_take(q), NULL);
}

static void look_again(struct question *q)
{
	question_inspect(q, q->name, on_found_again);
}

static void on_found(struct question *q)
{
	if (is_there(q))
		question_enter(q, look_again);
}

static void docker_discover(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, Q_DISCOVER, id);

	if (q)
		question_inspect(q, q->name, on_found);
}

/* ---- adopt ---- */

static void run_claim(struct question *q)
{
	q->r = users_claim(q->b->locks, q->name, &q->users);
}

static void run_claim_and_share(struct question *q)
{
	run_claim(q);
	if (q->r == 0)
		q->r = users_share(&q->users);
}

static void claim(struct question *q, void (*run)(struct question *q),
		  void (*then)(struct question *q))
{
	struct berth *berth = berth_find(q->b, q->id);

	if (berth)
		q->users = steal_fd(&berth->users);
	question_work(q, run, then);
}

static void on_adoptable(struct question *q)
{
	if (is_there(q))
		question_finish(q, question_take(q), NULL);
}

static void on_claimed(struct question *q)
{
	if (q->r < 0)
		question_fail(q, q->r, "container %s is in use", q->name);
	else
		question_inspect(q, q->name, on_adoptable);
}

static void on_candidate(struct question *q)
{
	if (!is_there(q))
		return;
	/* Only where the locks are the same do they prove anything. */
	if (!q->found.maker || strcmp(q->found.maker, q->b->maker) != 0)
		question_fail(q, -EBUSY, "another program made container %s", q->name);
	else
		claim(q, run_claim_and_share, on_claimed);
}

static void docker_adopt(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, Q_ADOPT, id);

	if (q)
		question_inspect(q, q->name, on_candidate);
}

/* ---- list ---- */

/* What is no sandbox, or does not run, is left out. */
static bool read_item(const struct docker *b, const cJSON *item, struct place *to)
{
	struct container c CLEANUP_CONTAINER = { 0 };
	struct buf url CLEANUP_BUF = BUF_INIT(0);
	const char *id;

	if (container_from_list(item, &c) < 0 || !c.running)
		return false;
	id = container_id(c.name, b->prefix);
	if (!id)
		return false;
	*to = (struct place){ 0 };
	snprintf(to->id, sizeof(to->id), "%s", id);
	if (c.port > 0) {
		docker_put_url(&url, b->host, b->bind_host, c.port);
		to->url = STEAL(url.data);
	}
	/* What another machine's program made is not ours to adopt. */
	if (c.maker && strcmp(c.maker, b->maker) == 0) {
		to->user = STEAL(c.user);
		to->thread = STEAL(c.thread);
	}
	return true;
}

static void on_listed(struct question *q)
{
	struct backend_op *op = q->op;
	cJSON *list CLEANUP_JSON = question_json(q); /* NULL: q is gone */
	const cJSON *item;
	int n;

	if (!list)
		return;
	if (!cJSON_IsArray(list)) {
		question_fail(q, -EBADMSG, "the engine's answer makes no sense: it is no list");
		return;
	}
	n = cJSON_GetArraySize(list);
	op->places = calloc((size_t)MAX(n, 1), sizeof(*op->places));
	if (!op->places) {
		question_finish(q, -ENOMEM, NULL);
		return;
	}
	cJSON_ArrayForEach (item, list)
		op->nplaces += read_item(q->b, item, &op->places[op->nplaces]);
	question_finish(q, 0, NULL);
}

static void docker_list(struct backend *base, struct backend_op *op)
{
	struct docker *b = (struct docker *)base;
	struct question *q = question_new(base, op, Q_LIST, NULL);
	struct buf target CLEANUP_BUF = BUF_INIT(0), filters CLEANUP_BUF = BUF_INIT(0);

	if (!q)
		return;
	/* To the engine the name is a pattern: what it finds too much is left out above. */
	buf_printf(&filters, "{\"name\":[\"%s-\"],\"status\":[\"running\"]}", b->prefix);
	buf_puts(&target, "/containers/json?filters=");
	if (filters.error || url_escape(&target, filters.data, filters.len) < 0 || target.error)
		question_finish(q, -ENOMEM, NULL);
	else
		question_ask(q,
			     &(struct docker_request){ .method = "GET",
						       .target = target.data,
						       .timeout_ms = LIST_MS },
			     on_listed);
}

/* ---- destroy ---- */

static void stopped(struct question *q)
{
	q->remove_lock = true;
	docker_forget(&q->b->base, q->id);
	question_finish(q, 0, NULL);
}

static void remove_remains(struct question *q);

static void on_removed(struct question *q)
{
	enum docker_refusal why = question_refusal(q);

	if (question_granted(q) || why == DOCKER_GONE)
		stopped(q);
	else if (why == DOCKER_BUSY && ++q->tries < REMOVE_TRIES)
		question_pause(q, REMOVE_PAUSE_MS, remove_remains);
	else
		question_refused(q);
}

static const char *which(struct question *q)
{
	struct berth *berth = berth_find(q->b, q->id);

	return berth ? berth->key : q->name;
}

/* The engine removes it by itself, unless somebody else made it otherwise; then it is gone. */
static void remove_remains(struct question *q)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&target, "/containers/%s?force=true&v=true", which(q));
	question_ask(q,
		     &(struct docker_request){ .method = "DELETE",
					       .target = target.data ?: "/",
					       .timeout_ms = REMOVE_MS },
		     on_removed);
}

static void on_stopped(struct question *q)
{
	if (question_refusal(q) == DOCKER_GONE)
		stopped(q);
	else if (question_granted(q))
		remove_remains(q);
	else if (q->call.error == -ETIMEDOUT)
		question_fail(q, -ETIMEDOUT, "the engine did not stop container %s in time",
			      q->name);
	else
		question_refused(q);
}

static void on_claimed_to_stop(struct question *q)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	unsigned t = q->b->stop_timeout_s;

	if (q->r < 0) {
		question_fail(q, q->r, "another program uses container %s", q->name);
		return;
	}
	buf_printf(&target, "/containers/%s/stop?t=%u", which(q), t);
	question_ask(q,
		     &(struct docker_request){ .method = "POST",
					       .target = target.data ?: "/",
					       .timeout_ms = t * 1000 + STOP_MS,
					       .slow = true },
		     on_stopped);
}

static void docker_destroy(struct backend *b, struct backend_op *op, const char *id)
{
	struct question *q = question_new(b, op, Q_DESTROY, id);

	if (q)
		claim(q, run_claim, on_claimed_to_stop);
}

/* ---- create, cancel ---- */

static void docker_create(struct backend *b, struct backend_op *op, const struct whom *whom)
{
	struct question *q = question_new(b, op, Q_CREATE, whom->id);

	if (!q)
		return;
	q->user = strdup(whom->user);
	q->thread = strdup(whom->thread);
	if (!q->user || !q->thread)
		question_finish(q, -ENOMEM, NULL);
	else
		create_begin(q);
}

static void docker_cancel(struct backend *b UNUSED, struct backend_op *op)
{
	struct question *q = op->priv;

	if (q)
		question_cancel(q);
}

/* ---- life ---- */

static void forget_all(void *ctx)
{
	struct docker *b = ctx;
	struct berth *berth, *next;

	b->ending = true;
	HASH_ITER (hh, b->berths, berth, next)
		berth_drop(b, berth);
}

static void end_on_loop(void *ctx)
{
	struct docker *b = ctx;

	if (b->workers)
		workers_free(STEAL(b->workers));
}

static void free_env(struct docker_env *env, size_t n)
{
	for (size_t i = 0; env && i < n; i++) {
		free(env[i].name);
		if (env[i].value)
			explicit_bzero(env[i].value, strlen(env[i].value));
		free(env[i].value);
	}
	free(env);
}

static void docker_free(struct backend *base)
{
	struct docker *b = (struct docker *)base;

	loop_run(base->loop, forget_all, b);
	/* Ends an image's coming, too, and what was asked of containers' ends. */
	sandbox_unref(b->ends);
	sandbox_unref(b->engine);
	loop_run(base->loop, end_on_loop, b);
	pull_free(b->pull);
	free(b->image);
	free(b->prefix);
	free(b->network);
	free(b->host);
	free(b->bind_host);
	free(b->root);
	free(b->maker);
	free(b->locks);
	free(b->data);
	free(b->host_data);
	for (size_t i = 0; b->mounts && i < b->nmounts; i++) {
		free(b->mounts[i].source);
		free(b->mounts[i].target);
	}
	free(b->mounts);
	free_env(b->environment, b->nenvironment);
	free(b);
}

static const struct backend_ops docker_ops = {
	.name = "docker",
	.has_old_ids = true,
	.is_shared = true,
	.create = docker_create,
	.destroy = docker_destroy,
	.is_alive = docker_is_alive,
	.discover = docker_discover,
	.adopt = docker_adopt,
	.list_running = docker_list,
	.forget = docker_forget,
	.cancel = docker_cancel,
	.free = docker_free,
};

/* ---- making it ---- */

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int copy(char **to, const char *text)
{
	*to = text ? strdup(text) : NULL;
	return text && !*to ? -ENOMEM : 0;
}

/* Resolved now: what the variables are later is another program's. */
static int copy_lists(struct docker *b, const struct docker_config *c)
{
	b->mounts = calloc(c->nmounts + 1, sizeof(*b->mounts));
	b->environment = calloc(c->nenvironment + 1, sizeof(*b->environment));
	if (!b->mounts || !b->environment)
		return -ENOMEM;
	for (size_t i = 0; i < c->nmounts; i++) {
		b->nmounts++;
		b->mounts[i].read_only = c->mounts[i].read_only;
		if (copy(&b->mounts[i].source, c->mounts[i].source) < 0 ||
		    copy(&b->mounts[i].target, c->mounts[i].target) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < c->nenvironment; i++) {
		b->nenvironment++;
		if (copy(&b->environment[i].name, c->environment[i].name) < 0 ||
		    copy(&b->environment[i].value, docker_env_value(&c->environment[i])) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int set_locks(struct docker *b, const struct docker_config *c, struct buf *why)
{
	char *runtime CLEANUP_FREE = NULL;
	char machine[256] = "";
	int r = c->runtime ? copy(&runtime, c->runtime) : paths_runtime(&runtime);

	if (r < 0) {
		buf_printf(why, "there is no runtime directory: %s", strerrordesc_np(-r));
		return r;
	}
	gethostname(machine, sizeof(machine) - 1);
	if (asprintf(&b->locks, "%s/containers", runtime) < 0) {
		b->locks = NULL;
		return -ENOMEM;
	}
	if (asprintf(&b->maker, "%s:%s", machine, runtime) < 0) {
		b->maker = NULL;
		return -ENOMEM;
	}
	r = paths_make(b->locks, 0700);
	if (r < 0)
		buf_printf(why, "%s: %s", b->locks, strerrordesc_np(-r));
	return r;
}

/* What a network may be called, and a container: the rest of its name is ours. */
static bool is_name(const char *s)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789_.-";

	return s[0] && !strchr("_.-", s[0]) && strspn(s, allowed) == strlen(s) && strlen(s) < 128;
}

/* Words of the engine's for what has no ports of its own to publish; "container:…" has a colon. */
static bool is_network(const char *s)
{
	return is_name(s) && strcmp(s, "host") != 0 && strcmp(s, "none") != 0;
}

static int set_names(struct docker *b, const struct docker_config *c,
		     const struct docker_address *engine, struct buf *why)
{
	const char *host = c->host ?: variable("DEER_FLOW_SANDBOX_HOST") ?: engine->host;
	const char *bind = c->bind_host ?: variable("DEER_FLOW_SANDBOX_BIND_HOST");
	const char *host_data = c->host_data ?: variable("DEER_FLOW_HOST_BASE_DIR") ?: c->data;
	const char *reason = NULL;
	int r;

	if (c->network && !is_network(c->network)) {
		buf_printf(why, "'%s' cannot be a network that containers are on", c->network);
		return -EINVAL;
	}
	if (!is_name(c->prefix ?: DOCKER_PREFIX)) {
		buf_printf(why, "'%s' cannot be how the names of containers begin", c->prefix);
		return -EINVAL;
	}
	bind = docker_bind_host(host ?: "localhost", bind, &reason);
	b->port = c->port ?: DOCKER_PORT;
	b->stop_timeout_s = MIN(c->stop_timeout_s ?: DOCKER_STOP_TIMEOUT, DOCKER_STOP_TIMEOUT);
	r = copy(&b->image, c->image ?: DOCKER_IMAGE)
		    ?: copy(&b->prefix, c->prefix ?: DOCKER_PREFIX)
		    ?: copy(&b->network, c->network);
	if (r == 0)
		r = copy(&b->host, host ?: "localhost") ?: copy(&b->bind_host, bind);
	if (r == 0)
		r = copy(&b->root, c->root);
	if (r == 0 && c->data && !c->no_thread_mounts)
		r = copy(&b->data, c->data) ?: copy(&b->host_data, host_data);
	if (r == 0)
		log_info("ports of containers are bound to %s: %s", bind, reason);
	return r;
}

/* ---- the engine ---- */

static void say_engine(const struct docker_address *a, const char *words, struct buf *why)
{
	buf_printf(why, "the engine at %s does not answer: %s", a->socket ?: a->url, words);
}

static int read_version(struct docker *b, struct response *r)
{
	cJSON *root CLEANUP_JSON = NULL;
	int api;

	if (r->status != 200 || r->body.len == 0 ||
	    json_parse(r->body.data, r->body.len, &root, NULL) < 0)
		return -EPROTO;
	api = docker_api(answer_str(root, "ApiVersion"), answer_str(root, "MinAPIVersion"),
			 API_MAX);
	if (api < 0)
		return -EPROTO;
	snprintf(b->api, sizeof(b->api), "/v1.%d", api);
	return 0;
}

static int greet(struct docker *b, const struct docker_address *a, struct buf *why)
{
	const struct request request = { .method = "GET",
					 .target = "/version",
					 .idempotent = true };
	struct response response CLEANUP_RESPONSE = { 0 };
	struct call call;
	int r;

	call_init(&call, VERSION_MS);
	sandbox_request(b->engine, &call, &request, &response);
	r = call_wait(&call);
	if (r < 0) {
		say_engine(a, call.message ?: strerrordesc_np(-r), why);
	} else {
		r = read_version(b, &response);
		if (r < 0)
			buf_printf(why, "there is no container engine at %s (HTTP %d)",
				   a->socket ?: a->url, response.status);
	}
	call_release(&call);
	return r;
}

static int meet_engine(struct docker *b, const struct docker_address *a, struct buf *why)
{
	struct sandbox_config config = {
		.url = a->url,
		.socket = a->socket,
		.root = "/",
		.label = "engine",
	};
	const char *problem = NULL;
	int r = sandbox_new(b->base.loop, &config, &b->engine, &problem);

	if (r == 0)
		r = sandbox_new(b->base.loop, &config, &b->ends, &problem);
	if (r < 0) {
		buf_printf(why, "the engine at %s: %s", a->socket ?: a->url,
			   problem ?: strerrordesc_np(-r));
		return r;
	}
	return greet(b, a, why);
}

struct beginning {
	struct docker *b;
	int r;
};

static void begin_on_loop(void *ctx)
{
	struct beginning *begin = ctx;

	begin->r = workers_new(loop_ev(begin->b->base.loop), WORKERS, &begin->b->workers);
}

static int configure(struct docker *b, const struct docker_config *c, struct buf *why)
{
	struct docker_address engine CLEANUP_DOCKER_ADDRESS = { 0 };
	struct beginning begin = { .b = b };
	int r = docker_find_engine(c->engine, &engine, why);

	if (r == 0)
		r = set_names(b, c, &engine, why);
	if (r == 0)
		r = copy_lists(b, c);
	if (r == 0)
		r = set_locks(b, c, why);
	if (r == 0)
		r = meet_engine(b, &engine, why);
	if (r < 0)
		return r;
	b->pull = pull_new(b);
	loop_run(b->base.loop, begin_on_loop, &begin);
	return b->pull ? begin.r : -ENOMEM;
}

int backend_docker_new(struct loop *loop, const struct docker_config *config, struct backend **ret,
		       char **ret_why)
{
	struct docker *b = calloc(1, sizeof(*b));
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	int r;

	if (!b)
		return -ENOMEM;
	b->base = (struct backend){ .ops = &docker_ops, .loop = loop };
	r = configure(b, config, &why);
	if (r < 0) {
		*ret_why = STEAL(why.data);
		docker_free(&b->base);
		return r;
	}
	*ret = &b->base;
	return 0;
}

/*
 * Making a container: lock, free port, create, start. A name that is taken is
 * discovered (or is that of remains, which go), a port that is taken makes way for the next
 * one, an image that is missing is pulled. What was made and cannot be started is removed.
 * Loop thread, but for what runs on workers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "docker_i.h"
#include "docker_spec.h"
#include "log.h"
#include "paths.h"
#include "url.h"

enum {
	LIST_MS = 10000,
	CREATE_MS = 15000,
	START_MS = 30000,
	REMOVE_MS = 10000,
	NAME_TRIES = 50, /* of waiting for a name to be free, or its owner to start it */
	NAME_PAUSE_MS = 200,
	REFUSED_MS = 60000, /* for so long a port that was taken is passed over */
	UNBORN_S = 60,      /* who made it and has not started it by then never will */
};

static void make(struct question *q);
static void next_port(struct question *q);

/* ---- a name that is taken ---- */

static void again(struct question *q)
{
	make(q);
}

static void on_remains_removed(struct question *q)
{
	enum docker_refusal why = question_refusal(q);

	/* Busy: the engine itself is at it. Anything else: it runs by now, or will not go. */
	if (question_granted(q) || why == DOCKER_GONE || why == DOCKER_BUSY)
		question_pause(q, NAME_PAUSE_MS, again);
	else
		question_refused(q);
}

/* Somebody may be between making and starting it. */
static bool is_coming(const struct question *q)
{
	const struct container *c = &q->found;

	return c->unborn && !(c->maker && strcmp(c->maker, q->b->maker) == 0) && c->created > 0 &&
	       clock_wall() - c->created < UNBORN_S;
}

static void on_namesake(struct question *q)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	if (q->found.running) {
		question_fail(q, -EEXIST, "container %s runs already", q->name);
	} else if (++q->tries > NAME_TRIES) {
		question_fail(q, -EBUSY, "another container has the name %s, and does not run",
			      q->name);
	} else if (!q->found.key || is_coming(q)) {
		question_pause(q, NAME_PAUSE_MS, again);
	} else {
		/* Not by force: if it runs after all, it stays. */
		log_info("removing what is left of container %s", q->name);
		buf_printf(&target, "/containers/%s?v=true", q->found.key);
		question_ask(q,
			     &(struct docker_request){ .method = "DELETE",
						       .target = target.data ?: "/",
						       .timeout_ms = REMOVE_MS },
			     on_remains_removed);
	}
}

/* ---- an image that is missing ---- */

static struct question *waiter(struct pull_wait *w)
{
	return CONTAINER_OF(w, struct question, wait);
}

static void on_image(struct pull_wait *w, int error, const char *why)
{
	struct question *q = waiter(w);

	q->awaiting = false;
	if (error < 0)
		question_fail(q, error, "%s", why);
	else
		make(q);
}

static void on_progress(struct pull_wait *w, const char *words)
{
	struct question *q = waiter(w);

	if (q->op->progress)
		q->op->progress(q->op, words);
}

static void await_image(struct question *q)
{
	if (q->pulled) {
		question_fail(q, -EIO, "the engine has no image %s, though it pulled it",
			      q->b->image);
		return;
	}
	if (q->cancelled) {
		question_finish(q, -ECANCELED, NULL);
		return;
	}
	q->pulled = true;
	q->wait = (struct pull_wait){ .done = on_image, .progress = on_progress };
	q->awaiting = true;
	pull_join(q->b->pull, &q->wait);
}

/* ---- start ---- */

static void on_discarded(struct question *q)
{
	if (!question_granted(q) && question_refusal(q) != DOCKER_GONE &&
	    question_refusal(q) != DOCKER_BUSY)
		question_refused(q);
	else
		next_port(q);
}

/* Its port is fixed: it goes, and another one is made. */
static void discard(struct question *q)
{
	char *key CLEANUP_FREE = STEAL(q->key);
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&target, "/containers/%s?force=true&v=true", key);
	question_ask(q,
		     &(struct docker_request){ .method = "DELETE",
					       .target = target.data ?: "/",
					       .timeout_ms = REMOVE_MS,
					       .stubborn = true },
		     on_discarded);
}

static void on_started(struct question *q)
{
	if (question_granted(q)) {
		int r;

		container_release(&q->found);
		q->found.key = strdup(q->key);
		q->found.port = q->b->port + (unsigned)q->slot;
		q->found.user = strdup(q->user);
		q->found.thread = strdup(q->thread);
		r = q->found.key ? question_take(q) : -ENOMEM;
		if (r == 0)
			free(STEAL(q->key));
		question_finish(q, r, NULL);
	} else if (question_refusal(q) == DOCKER_PORT_TAKEN) {
		discard(q);
	} else {
		question_refused(q);
	}
}

/* ---- create ---- */

static void on_made(struct question *q)
{
	cJSON *root CLEANUP_JSON = NULL;
	const cJSON *key;
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	switch (question_refusal(q)) {
	case DOCKER_NO_IMAGE:
		await_image(q);
		return;
	case DOCKER_NAME_TAKEN:
		question_inspect(q, q->name, on_namesake);
		return;
	case DOCKER_PORT_TAKEN:
		next_port(q);
		return;
	default:
		break;
	}
	root = question_json(q);
	if (!root)
		return;
	key = cJSON_GetObjectItemCaseSensitive(root, "Id");
	if (!cJSON_IsString(key) || !key->valuestring[0] ||
	    strspn(key->valuestring, "0123456789abcdef") != strlen(key->valuestring)) {
		question_fail(q, -EBADMSG, "the engine's answer makes no sense: it has no Id");
		return;
	}
	q->key = strdup(key->valuestring);
	buf_printf(&target, "/containers/%s/start", key->valuestring);
	if (!q->key || target.error)
		question_finish(q, -ENOMEM, NULL);
	else if (q->cancelled)
		question_finish(q, -ECANCELED, NULL);
	else
		question_ask(q,
			     &(struct docker_request){ .method = "POST",
						       .target = target.data,
						       .timeout_ms = START_MS,
						       .slow = true },
			     on_started);
}

static void make(struct question *q)
{
	const struct docker *b = q->b;
	struct buf target CLEANUP_BUF = BUF_INIT(0), body CLEANUP_BUF = BUF_INIT(0);
	struct docker_spec spec = {
		.image = b->image,
		.bind_host = b->bind_host,
		.network = b->network,
		.port = b->port + (unsigned)q->slot,
		.stop_timeout_s = b->stop_timeout_s,
		.user = q->user,
		.thread = q->thread,
		.maker = b->maker,
		.mounts = b->mounts,
		.nmounts = b->nmounts,
		.environment = b->environment,
		.nenvironment = b->nenvironment,
		.thread_dir = q->thread_dir,
	};
	int r = docker_put_spec(&body, &spec);

	buf_puts(&target, "/containers/create?name=");
	if (r == 0)
		r = url_escape(&target, q->name, strlen(q->name)) ?: target.error;
	if (r < 0)
		question_finish(q, r, NULL);
	else
		/* Not given up half-way: nobody would know what to remove. */
		question_ask(q,
			     &(struct docker_request){ .method = "POST",
						       .target = target.data,
						       .json = &body,
						       .timeout_ms = CREATE_MS,
						       .slow = true,
						       .once = true,
						       .stubborn = true },
			     on_made);
	if (body.data)
		explicit_bzero(body.data, body.len);
}

/* ---- a port ---- */

static bool is_free(const struct docker *b, size_t i, const bool *taken)
{
	const struct berth *berth;

	if (taken[i] || b->reserved[i] || b->port + i > 65535)
		return false;
	if (b->refused_ms[i] && clock_ms() - b->refused_ms[i] < REFUSED_MS)
		return false;
	for (berth = b->berths; berth; berth = berth->hh.next)
		if (berth->port == b->port + i)
			return false;
	return true;
}

static void on_listed(struct question *q)
{
	struct docker *b = q->b;
	bool taken[DOCKER_PORTS] = { false };
	cJSON *list CLEANUP_JSON = question_json(q);
	struct buf names CLEANUP_BUF = BUF_INIT(0);

	if (!list)
		return;
	docker_mark_ports(list, b->port, taken, DOCKER_PORTS);
	for (q->slot = 0; q->slot < DOCKER_PORTS && !is_free(b, q->slot, taken);)
		q->slot++;
	if (q->slot == DOCKER_PORTS) {
		question_fail(q, -EADDRINUSE, "none of the ports from %u to %u is free", b->port,
			      MIN(b->port + DOCKER_PORTS - 1, 65535u));
		return;
	}
	b->reserved[q->slot] = true;
	docker_put_env_names(&names, b->environment, b->nenvironment);
	log_info("%s/%s: making container %s of image %s at %s:%zu%s%s", q->user, q->thread,
		 q->name, b->image, b->bind_host, b->port + q->slot,
		 names.len ? ", with the variables " : "", names.len ? names.data : "");
	make(q);
}

static void find_port(struct question *q)
{
	if (q->cancelled) {
		question_finish(q, -ECANCELED, NULL);
		return;
	}
	question_ask(q,
		     &(struct docker_request){
			     .method = "GET", .target = "/containers/json", .timeout_ms = LIST_MS },
		     on_listed);
}

/* Bounded by the number of ports: none is tried twice within a minute. */
static void next_port(struct question *q)
{
	struct docker *b = q->b;

	log_info("container %s: port %zu is taken", q->name, b->port + q->slot);
	b->reserved[q->slot] = false;
	b->refused_ms[q->slot] = clock_ms();
	q->slot = DOCKER_PORTS;
	find_port(q);
}

/* ---- its directories ---- */

static void run_prepare(struct question *q)
{
	const struct docker *b = q->b;
	char *dir CLEANUP_FREE = NULL;

	q->r = paths_make_thread_to_bind(b->data, q->user, q->thread);
	if (q->r < 0)
		return;
	dir = paths_thread_dir(b->data, q->user, q->thread);
	if (!dir || asprintf(&q->thread_dir, "%s%s", b->host_data, dir + strlen(b->data)) < 0) {
		q->thread_dir = NULL;
		q->r = -ENOMEM;
	}
}

static void on_prepared(struct question *q)
{
	/* An embedded sandbox of the same thread could have put it there, to see the host's /. */
	if (q->r == -ELOOP || q->r == -ENOTDIR)
		question_fail(q, q->r,
			      "%s stands where one of the thread's directories belongs, and a "
			      "container would get what it leads to",
			      q->r == -ELOOP ? "a symbolic link" : "a file");
	else if (q->r < 0)
		question_fail(q, q->r, "the thread's directories cannot be made: %s",
			      strerrordesc_np(-q->r));
	else
		question_enter(q, find_port);
}

void create_begin(struct question *q)
{
	if (q->b->data)
		question_work(q, run_prepare, on_prepared);
	else
		question_enter(q, find_port);
}

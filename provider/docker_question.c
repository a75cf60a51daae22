/* One question: its steps and its end. See docker_i.h. Loop thread, but for what runs on workers.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "docker_address.h"
#include "docker_i.h"
#include "log.h"

enum {
	ANSWER_BYTES_MAX = 8 * 1024 * 1024, /* of a long list */
	UNDO_MS = 8000,
	INSPECT_MS = 5000,
	ENTER_MS = 20000,    /* longer than any stop takes */
	ENTER_PAUSE_MS = 50, /* between two tries of a lock */
};

static struct ev_loop *ev_of(const struct question *q)
{
	return loop_ev(q->b->base.loop);
}

/* ---- life ---- */

static void question_free(struct question *q)
{
	assert(q->users < 0);
	call_release(&q->call);
	response_release(&q->response);
	container_release(&q->found);
	free(q->id);
	free(q->name);
	free(q->user);
	free(q->thread);
	free(q->thread_dir);
	free(q->key);
	free(q->why);
	free(q);
}

struct question *question_new(struct backend *base, struct backend_op *op, enum question_kind kind,
			      const char *id)
{
	struct question *q = calloc(1, sizeof(*q));
	struct docker *b = (struct docker *)base;

	if (q) {
		q->b = b;
		q->op = op;
		q->kind = kind;
		q->users = -1;
		q->slot = DOCKER_PORTS;
		ev_init(&q->timer, NULL);
		call_init(&q->call, 0);
		q->id = id ? strdup(id) : NULL;
		if (id && asprintf(&q->name, "%s-%s", b->prefix, id) < 0)
			q->name = NULL;
	}
	if (!q || (id && (!q->id || !q->name))) {
		if (q)
			question_free(q);
		backend_answer(base, op, -ENOMEM, NULL);
		return NULL;
	}
	op->priv = q;
	return q;
}

static void answer(struct question *q)
{
	backend_answer(&q->b->base, q->op, q->error, q->why);
	question_free(q);
}

static void run_leave(struct question *q)
{
	users_leave(q->b->locks, q->name, steal_fd(&q->users));
}

/* The lock goes back to the berth, if there is one and nothing became of the question. */
static void settle_lock(struct question *q)
{
	struct berth *berth = q->id ? berth_find(q->b, q->id) : NULL;

	if (q->users >= 0 && berth && berth->users < 0 && !q->remove_lock)
		berth->users = steal_fd(&q->users);
	if (q->users >= 0)
		question_work(q, run_leave, answer);
	else
		answer(q);
}

static void on_undone(struct question *q)
{
	if (q->call.error < 0 && q->call.error != -ENOTCONN)
		log_warn("container %s could not be removed: %s", q->name,
			 q->call.message ?: strerrordesc_np(-q->call.error));
	settle_lock(q);
}

void question_finish(struct question *q, int error, char *why)
{
	q->error = error;
	q->why = why;
	if (q->slot < DOCKER_PORTS)
		q->b->reserved[q->slot] = false;
	if (error < 0 && q->key) {
		struct buf target CLEANUP_BUF = BUF_INIT(0);

		buf_printf(&target, "/containers/%s?force=true&v=true", q->key);
		free(STEAL(q->key));
		if (!target.error) {
			question_ask(q,
				     &(struct docker_request){ .method = "DELETE",
							       .target = target.data,
							       .timeout_ms = UNDO_MS,
							       .stubborn = true },
				     on_undone);
			return;
		}
	}
	settle_lock(q);
}

void question_cancel(struct question *q)
{
	q->cancelled = true;
	if (q->calling && !q->stubborn) {
		call_cancel(&q->call);
	} else if (q->pausing) {
		ev_timer_stop(ev_of(q), &q->timer);
		q->pausing = false;
		question_finish(q, -ECANCELED, NULL);
	} else if (q->awaiting) {
		struct buf why CLEANUP_BUF = BUF_INIT(0);

		/* What it was about to be told is worth more than that it took too long. */
		q->awaiting = false;
		pull_leave(q->b->pull, &q->wait);
		pull_put(q->b->pull, &why);
		question_finish(q, -ECANCELED, STEAL(why.data));
	}
}

/* ---- requests ---- */

static void on_answered(struct call *call)
{
	struct question *q = call->ctx;
	bool stubborn = q->stubborn;

	q->calling = q->stubborn = false;
	if (q->cancelled && !stubborn)
		question_finish(q, -ECANCELED, NULL);
	else
		q->then(q);
}

void question_ask(struct question *q, const struct docker_request *r,
		  void (*done)(struct question *q))
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct request request = {
		.method = r->method,
		.json = r->json ? r->json->data : NULL,
		.len = r->json ? r->json->len : 0,
		.idempotent = !r->once,
		.slow = r->slow,
		.answer_max = ANSWER_BYTES_MAX,
	};

	call_release(&q->call);
	response_release(&q->response);
	call_init(&q->call, r->timeout_ms);
	q->call.done = on_answered;
	q->call.ctx = q;
	q->then = done;
	q->calling = true;
	q->stubborn = r->stubborn;
	if (q->cancelled && !r->stubborn)
		call_cancel(&q->call);
	buf_printf(&target, "%s%s", q->b->api, r->target);
	request.target = target.data ?: "/"; /* without memory the request fails, too */
	sandbox_request(q->b->engine, &q->call, &request, &q->response);
}

bool question_granted(const struct question *q)
{
	int status = q->response.status;

	return q->call.error == 0 && ((status >= 200 && status < 300) || status == 304);
}

enum docker_refusal question_refusal(const struct question *q)
{
	char *words CLEANUP_FREE = NULL;

	if (q->call.error < 0)
		return DOCKER_REFUSED;
	words = response_words(&q->response);
	return docker_refusal(q->response.status, words);
}

/* None that backend.h gives a meaning of its own. */
static int error_of(int status)
{
	switch (status) {
	case 400:
		return -EINVAL;
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 405:
		return -EPROTO;
	case 503:
		return -EAGAIN;
	default:
		return -EIO;
	}
}

void question_refused(struct question *q)
{
	char *words CLEANUP_FREE = NULL;
	int error = q->call.error;

	if (error < 0) {
		char *message CLEANUP_FREE = STEAL(q->call.message);

		question_fail(q, error == -ENOENT ? -ECONNREFUSED : error,
			      "the engine does not answer: %s", message ?: strerrordesc_np(-error));
		return;
	}
	words = response_words(&q->response);
	question_fail(q, error_of(q->response.status), "the engine says: %s (HTTP %d)",
		      words ?: "nothing", q->response.status);
}

cJSON *question_json(struct question *q)
{
	cJSON *root = NULL;

	if (!question_granted(q)) {
		question_refused(q);
		return NULL;
	}
	if (q->response.body.len == 0 ||
	    json_parse(q->response.body.data, q->response.body.len, &root, NULL) < 0) {
		question_fail(q, -EBADMSG, "the engine's answer makes no sense: it is not JSON");
		return NULL;
	}
	return root;
}

/* ---- work and pauses ---- */

static void on_run(struct work *w)
{
	struct question *q = CONTAINER_OF(w, struct question, work);

	q->run(q);
}

static void on_worked(struct work *w)
{
	struct question *q = CONTAINER_OF(w, struct question, work);

	q->working = false;
	q->then(q);
}

void question_work(struct question *q, void (*run)(struct question *q),
		   void (*then)(struct question *q))
{
	q->run = run;
	q->then = then;
	q->working = true;
	q->work = (struct work){ .run = on_run, .done = on_worked };
	workers_submit(q->b->workers, &q->work);
}

static void on_paused(struct ev_loop *ev UNUSED, ev_timer *timer, int revents UNUSED)
{
	struct question *q = CONTAINER_OF(timer, struct question, timer);

	q->pausing = false;
	q->then(q);
}

void question_pause(struct question *q, int64_t ms, void (*then)(struct question *q))
{
	if (q->cancelled) {
		question_finish(q, -ECANCELED, NULL);
		return;
	}
	q->then = then;
	q->pausing = true;
	ev_timer_init(&q->timer, on_paused, (ev_tstamp)ms / 1e3, 0.);
	ev_timer_start(ev_of(q), &q->timer);
}

/* ---- the lock ---- */

static void run_enter(struct question *q)
{
	q->r = users_enter(q->b->locks, q->name);
	if (q->r >= 0)
		q->users = q->r;
}

static void on_entered(struct question *q);

static void enter(struct question *q)
{
	question_work(q, run_enter, on_entered);
}

static void on_entered(struct question *q)
{
	void (*done)(struct question * q) = q->enter_then;

	if (q->cancelled)
		question_finish(q, -ECANCELED, NULL);
	else if (q->r >= 0)
		done(q);
	else if (q->r != -EAGAIN)
		question_fail(q, q->r, "%s/%s: %s", q->b->locks, q->name, strerrordesc_np(-q->r));
	else if (clock_ms() >= q->give_up_ms)
		question_fail(q, -EBUSY, "another program is stopping container %s", q->name);
	else
		question_pause(q, ENTER_PAUSE_MS, enter);
}

void question_enter(struct question *q, void (*then)(struct question *q))
{
	struct berth *berth = berth_find(q->b, q->id);

	if (berth && berth->users >= 0)
		q->users = steal_fd(&berth->users);
	if (q->users >= 0) {
		then(q);
		return;
	}
	q->enter_then = then;
	q->give_up_ms = clock_ms() + ENTER_MS;
	enter(q);
}

/* ---- one container ---- */

static void on_inspected(struct question *q)
{
	void (*then)(struct question * q) = q->inspect_then;
	cJSON *root CLEANUP_JSON = NULL;
	int r;

	container_release(&q->found);
	if (question_refusal(q) == DOCKER_GONE) {
		then(q);
		return;
	}
	root = question_json(q);
	if (!root)
		return;
	r = container_from_inspect(root, &q->found);
	if (r < 0)
		question_fail(q, r, "the engine's answer makes no sense: it is about no container");
	else
		then(q);
}

void question_inspect(struct question *q, const char *which, void (*then)(struct question *q))
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);

	buf_printf(&target, "/containers/%s/json", which);
	if (target.error) {
		question_finish(q, -ENOMEM, NULL);
		return;
	}
	q->inspect_then = then;
	question_ask(q,
		     &(struct docker_request){
			     .method = "GET", .target = target.data, .timeout_ms = INSPECT_MS },
		     on_inspected);
}

static int fill_place(struct question *q)
{
	struct place *p = &q->op->place;
	struct docker *b = q->b;
	struct buf url CLEANUP_BUF = BUF_INIT(0);

	docker_put_url(&url, b->host, b->bind_host, q->found.port);
	if (url.error || (b->root && !(p->root = strdup(b->root))))
		return -ENOMEM;
	snprintf(p->id, sizeof(p->id), "%s", q->id);
	p->url = STEAL(url.data);
	p->user = STEAL(q->found.user);
	p->thread = STEAL(q->found.thread);
	return 0;
}

int question_take(struct question *q)
{
	struct berth *berth = berth_find(q->b, q->id);
	char *key = strdup(q->found.key);
	int r = key ? fill_place(q) : -ENOMEM;

	if (r == 0 && !berth) {
		berth = calloc(1, sizeof(*berth));
		if (berth) {
			snprintf(berth->id, sizeof(berth->id), "%s", q->id);
			berth->users = -1;
			HASH_ADD_STR(q->b->berths, id, berth);
			if (!HASH_TOOK(hh, berth))
				free(STEAL(berth));
		}
	}
	if (r < 0 || !berth) {
		free(key);
		place_release(&q->op->place);
		return -ENOMEM;
	}
	if (!berth->vigil || strcmp(berth->key, key) != 0) {
		vigil_end(berth->vigil);
		berth->vigil = vigil_begin(q->b, q->id, key);
	}
	free(berth->key);
	berth->key = key;
	berth->port = q->found.port;
	if (q->users >= 0) {
		assert(berth->users < 0);
		berth->users = steal_fd(&q->users);
	}
	return 0;
}

/*
 * Fetching the image, once for all who wait for it. Who gives up leaves; the engine
 * goes on, because a large image takes longer than anybody's patience, and the next one
 * finds it further on. Loop thread, but for making and freeing it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "docker_i.h"
#include "log.h"

enum {
	SILENCE_MS = 600000, /* unpacking a large layer is silent work */
	LINE_MAX_BYTES = 64 * 1024,
	SAY_MS = 1000,  /* at most so often to who waits */
	LOG_MS = 10000, /* and to the log */
};

struct docker_pull {
	struct docker *b;
	struct call call;
	bool running;
	struct response response;
	struct buf line;
	struct docker_progress progress;
	int64_t said_ms, logged_ms;
	struct pull_wait *waiting;
};

struct docker_pull *pull_new(struct docker *b)
{
	struct docker_pull *p = calloc(1, sizeof(*p));

	if (p) {
		p->b = b;
		p->line = BUF_INIT(LINE_MAX_BYTES);
		call_init(&p->call, 0);
	}
	return p;
}

void pull_free(struct docker_pull *p)
{
	if (!p)
		return;
	call_release(&p->call);
	response_release(&p->response);
	buf_release(&p->line);
	docker_progress_release(&p->progress);
	free(p);
}

void pull_put(const struct docker_pull *p, struct buf *to)
{
	buf_printf(to, "image %s is being pulled: ", p->b->image);
	docker_progress_put(&p->progress, to);
}

/* ---- as it comes ---- */

static void say(struct docker_pull *p)
{
	struct buf words CLEANUP_BUF = BUF_INIT(0);
	struct pull_wait *w, *next;
	int64_t now = clock_ms();

	if (now - p->said_ms < SAY_MS)
		return;
	p->said_ms = now;
	pull_put(p, &words);
	if (words.error)
		return;
	if (now - p->logged_ms >= LOG_MS) {
		p->logged_ms = now;
		log_info("%s", words.data);
	}
	DL_FOREACH_SAFE (p->waiting, w, next)
		w->progress(w, words.data);
}

/* A line that is too long is none that we know. */
static int on_data(void *ctx, const char *bytes, size_t len)
{
	struct docker_pull *p = ctx;

	while (len > 0) {
		const char *end = memchr(bytes, '\n', len);
		size_t n = end ? (size_t)(end - bytes) : len;

		buf_append(&p->line, bytes, n);
		if (end && p->line.len > 0 && !p->line.error)
			docker_progress_line(&p->progress, p->line.data, p->line.len);
		if (end)
			buf_reset(&p->line);
		bytes += n + (end != NULL);
		len -= n + (end != NULL);
	}
	say(p);
	return 0;
}

/* ---- its end ---- */

static void finish(struct docker_pull *p, int error, const char *why)
{
	struct pull_wait *w;

	p->running = false;
	if (error == 0)
		log_info("image %s is here", p->b->image);
	else
		log_warn("%s", why);
	while ((w = p->waiting)) {
		DL_DELETE(p->waiting, w);
		w->done(w, error, why);
	}
}

static void on_pulled(struct call *call)
{
	struct docker_pull *p = call->ctx;
	struct buf why CLEANUP_BUF = BUF_INIT(0);
	char *words CLEANUP_FREE = NULL;

	if (p->line.len > 0 && !p->line.error) /* the last line may lack its end */
		docker_progress_line(&p->progress, p->line.data, p->line.len);
	if (call->error == 0 && p->response.status == 200 && !p->progress.error) {
		finish(p, 0, NULL);
		return;
	}
	if (call->error == 0 && !p->progress.error)
		words = response_words(&p->response);
	buf_printf(&why, "image %s cannot be pulled: %s", p->b->image,
		   p->progress.error ?: words ?: call->message ?: strerrordesc_np(-call->error));
	if (call->error == -ENOTCONN || call->error == -ECANCELED)
		finish(p, -ECANCELED, "the program ends");
	else
		finish(p, call->error < 0 ? call->error : -EIO, why.data ?: "out of memory");
}

static void begin(struct docker_pull *p)
{
	struct buf target CLEANUP_BUF = BUF_INIT(0);
	struct request r = { .method = "POST", .slow = true, .data = on_data, .ctx = p };

	p->running = true;
	p->said_ms = p->logged_ms = 0;
	buf_release(&p->line);
	docker_progress_release(&p->progress);
	call_release(&p->call);
	response_release(&p->response);
	call_init(&p->call, SILENCE_MS);
	p->call.done = on_pulled;
	p->call.ctx = p;
	buf_printf(&target, "%s/images/create?", p->b->api);
	/* Without memory for its target the request fails, and says so. */
	if (docker_put_pull(&target, p->b->image) < 0)
		buf_release(&target);
	r.target = target.data ?: "/";
	log_info("image %s is not here: pulling it", p->b->image);
	sandbox_request(p->b->engine, &p->call, &r, &p->response);
}

void pull_join(struct docker_pull *p, struct pull_wait *w)
{
	DL_APPEND(p->waiting, w);
	if (!p->running)
		begin(p);
}

void pull_leave(struct docker_pull *p, struct pull_wait *w)
{
	DL_DELETE(p->waiting, w);
}

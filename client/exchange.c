/*
 * One HTTP exchange: its turn in the lane, who moves its bytes (a wire: exchange_wire.c, or
 * libcurl: exchange_curl.c), its answer as it comes, another try where that is safe. Knows nothing
 * of JSON or of what an answer means. Loop thread only.
 */
#include "exchange.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <utlist.h>

#include "clock.h"
#include "content_range.h"
#include "exchange_i.h"
#include "log.h"
#include "traffic.h"
#include "url.h"

enum {
	TRIES = 3,
	BACKOFF_MS = 100,
};

static void lane_next(struct sandbox *sb, enum lane lane);
static void begin_try(struct exchange *x);

static struct ev_loop *ev_of(struct exchange *x)
{
	return loop_ev(x->op->sb->loop);
}

static struct lane_state *lane_of(struct exchange *x)
{
	return &x->op->sb->lanes[x->lane];
}

/* ---- its end ---- */

/* Takes the transfer away, if there is one; the exchange keeps its turn. */
static void drop_transfer(struct exchange *x)
{
	if (x->wire)
		wire_drop(STEAL(x->wire));
	if (x->easy)
		exchange_curl_drop(x);
}

/* Gives up its place in the lane; who waits there is to be told by lane_next(). */
static void leave_lane(struct exchange *x)
{
	if (x->queued)
		DL_DELETE(lane_of(x)->queue, x);
	if (x->running)
		lane_of(x)->running--;
	x->queued = x->running = false;
}

void exchange_stop(struct exchange *x)
{
	bool was_running = x->running;

	if (!x->op) /* not even initialised */
		return;
	ev_timer_stop(ev_of(x), &x->pause);
	drop_transfer(x);
	leave_lane(x);
	x->paused = false;
	/* A job that is still to make room does so now. */
	if (loop_withdraw(x->op->sb->loop, &x->room) || was_running)
		lane_next(x->op->sb, x->lane);
}

static void stop_step(struct step *s)
{
	exchange_stop(CONTAINER_OF(s, struct exchange, step));
}

static void count(const struct exchange *x, int err)
{
	struct traffic *t = loop_traffic(x->op->sb->loop);
	enum traffic_kind kind = traffic_kind_of(x->target ?: "");
	int64_t us = clock_us() - x->since_us;

	histogram_add(&t->times[kind], us);
	if (err < 0 || x->status >= 500)
		t->failed[kind]++;
	/* Neither headers nor bodies: keys are in the ones, anything in the others. */
	if (err < 0)
		log_topic(LOG_HTTP, "%s: %s %s: %s%s%s after %.1f ms", x->op->sb->label, x->method,
			  x->target ?: "", strerrordesc_np(-err) ?: "error", x->why[0] ? ": " : "",
			  x->why, (double)us / 1e3);
	else
		log_topic(LOG_HTTP, "%s: %s %s: %d after %.1f ms", x->op->sb->label, x->method,
			  x->target, x->status, (double)us / 1e3);
}

static void finish(struct exchange *x, int err)
{
	count(x, err);
	exchange_stop(x);
	x->op->held = false;
	if (x->op->current == &x->step)
		op_go_on(x->op);
	x->done(x, err);
}

/* Whether what failed may be sent once more, and there is time for it. */
static bool may_retry(struct exchange *x, int err)
{
	bool passing = err ? err == -ECONNREFUSED || err == -ECONNRESET
			   : x->status == 502 || x->status == 503 || x->status == 504;

	return x->idempotent && passing && !x->told_head && x->tries < TRIES &&
	       op_left_ms(x->op) > 2 * BACKOFF_MS << x->tries;
}

static void on_pause_over(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct exchange *x = w->data;

	if (!x->error) {
		begin_try(x);
		return;
	}
	snprintf(x->why, sizeof(x->why), "%s", x->words ?: "");
	finish(x, x->error);
}

static void wait_for(struct exchange *x, void (*then)(struct ev_loop *, ev_timer *, int),
		     int64_t ms)
{
	ev_timer_stop(ev_of(x), &x->pause);
	ev_timer_init(&x->pause, then, (ev_tstamp)ms / 1e3, 0.);
	ev_set_priority(&x->pause, EV_MINPRI); /* what has come meanwhile is not late */
	x->pause.data = x;
	ev_timer_start(ev_of(x), &x->pause);
}

/*
 * libcurl connects anew when a connection that it used again broke before the answer, also for
 * what it then must not send again: that nobody is there any more does not mean that
 * nothing was sent.
 */
static int as_sent(const struct exchange *x, int err)
{
	bool sent = !x->idempotent && x->sent > 0;

	return sent && (err == -ECONNREFUSED || err == -EHOSTUNREACH) ? -ECONNRESET : err;
}

static void end_try(struct exchange *x, int err)
{
	err = as_sent(x, err);
	drop_transfer(x);
	ev_timer_stop(ev_of(x), &x->pause);
	if (!may_retry(x, err)) {
		finish(x, err);
		return;
	}
	x->error = 0;
	wait_for(x, on_pause_over, (int64_t)BACKOFF_MS << (x->tries - 1));
}

static void on_try_timeout(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct exchange *x = w->data;

	snprintf(x->why, sizeof(x->why), "no answer after %lld ms", (long long)x->timeout_ms);
	finish(x, -ETIMEDOUT);
}

/* ---- the answer ---- */

const char *exchange_said(const struct exchange *x, const char *header)
{
	return x->wire ? wire_said(x->wire, header) : exchange_curl_said(x, header);
}

int exchange_decide(struct exchange *x, int err, const char *words)
{
	x->error = err;
	x->words = words;
	return err;
}

static void read_header(struct exchange *x)
{
	const char *coding = exchange_said(x, "Transfer-Encoding");
	const char *packed = exchange_said(x, "Content-Encoding");
	struct content_range range;

	x->status = x->wire ? wire_status(x->wire) : exchange_curl_status(x);
	x->content_length = x->wire ? wire_length(x->wire) : exchange_curl_length(x);
	range = content_range_parse(exchange_said(x, "Content-Range"));
	x->range_start = range.start;
	x->range_total = range.total;
	/* libcurl would unpack others, which nobody asked for: a few bytes can become gigabytes. */
	if (coding && strcasecmp(coding, "chunked") != 0)
		exchange_decide(x, -EBADMSG, "unknown transfer encoding");
	/* These it would leave packed, and somebody would take that for a file. */
	if (packed && strcasecmp(packed, "identity") != 0)
		exchange_decide(x, -EBADMSG, "unknown content encoding");
}

/* Whether the owner gets the bytes as they come; tells him about the header first. */
static bool streaming(struct exchange *x)
{
	if (!x->knows_head) {
		x->knows_head = true;
		read_header(x);
	}
	if (x->error || !x->data || (x->status != 200 && x->status != 206))
		return false;
	if (!x->told_head) {
		x->told_head = true;
		op_progress(x->op); /* the file's own time begins */
		if (x->head)
			x->error = x->head(x);
	}
	return true;
}

bool exchange_is_file(struct exchange *x)
{
	return !x->knows_head || streaming(x);
}

static void run_room(struct job *job)
{
	struct exchange *x = CONTAINER_OF(job, struct exchange, room);

	lane_next(x->op->sb, x->lane);
}

void exchange_pause(struct exchange *x)
{
	x->paused = true;
	x->op->held = true;
	leave_lane(x);
	x->room.run = run_room;
	loop_post(x->op->sb->loop, &x->room);
}

static int keep_answer(struct exchange *x, const char *bytes, size_t n)
{
	if (!x->error && buf_append(&x->answer, bytes, n) == -EFBIG)
		return exchange_decide(x, -EMSGSIZE, "the answer is too large");
	return x->error ?: x->answer.error;
}

int exchange_take(struct exchange *x, const char *bytes, size_t n)
{
	int r;

	/* An answer that is no file has to be there in time. */
	if (!streaming(x)) {
		r = keep_answer(x, bytes, n);
	} else {
		op_moved(x->op, n);
		x->op->sb->heard_ms = clock_ms();
		r = x->error ?: x->data(x, bytes, n);
	}
	if (r == -EAGAIN)
		exchange_pause(x);
	else
		x->error = r;
	return r;
}

void exchange_over(struct exchange *x, int err, const char *why)
{
	if (err == 0)
		x->op->sb->heard_ms = clock_ms();
	if (err == 0 && !x->error)
		streaming(x); /* a file without bytes has a header, too */
	else if (!x->knows_head)
		read_header(x);
	if (x->error) {
		err = x->error;
		why = x->words ?: "";
	}
	if (why)
		snprintf(x->why, sizeof(x->why), "%s", why);
	end_try(x, err);
}

/* Has a place in the lane again: past its limit if need be. */
static void end_pause(struct exchange *x)
{
	loop_withdraw(x->op->sb->loop, &x->room);
	x->paused = false;
	x->running = true;
	lane_of(x)->running++;
	x->op->held = false;
	op_progress(x->op);
}

void exchange_unfit(struct exchange *x)
{
	drop_transfer(x);
	if (x->paused)
		end_pause(x);
	x->unfit = true;
	x->tries--;
	begin_try(x);
}

/* ---- its beginning ---- */

static void begin_try(struct exchange *x)
{
	int r;

	x->tries++;
	exchange_decide(x, 0, NULL);
	x->status = 0;
	x->knows_head = false;
	x->why[0] = 0;
	buf_reset(&x->answer);
	exchange_rewind(x);
	r = exchange_form_begin(x);
	if (r == 0 && !exchange_wire_begin(x))
		r = exchange_curl_begin(x);
	if (r < 0 && !x->error)
		exchange_decide(x, r, "the request could not be made");
	if (r < 0)
		wait_for(x, on_pause_over, 0); /* done() comes from the loop, never from start */
	else if (x->timeout_ms > 0 && !ev_is_active(&x->pause))
		wait_for(x, on_try_timeout, x->timeout_ms);
}

static void lane_next(struct sandbox *sb, enum lane lane)
{
	struct lane_state *l = &sb->lanes[lane];

	while (l->queue && l->running < l->max) {
		struct exchange *x = l->queue;

		DL_DELETE(l->queue, x);
		x->queued = false;
		x->running = true;
		l->running++;
		begin_try(x);
	}
}

void exchange_init(struct exchange *x, struct op *op, const char *method, const char *target,
		   void (*done)(struct exchange *, int err))
{
	*x = (struct exchange){
		.step.stop = stop_step,
		.op = op,
		.done = done,
		.method = method,
		.target = strdup(target),
		.body = BUF_INIT(0),
		.form_size = -1,
		.answer_max = ANSWER_MAX,
		.content_length = -1,
		.range_start = -1,
		.range_total = -1,
	};
}

int exchange_query(struct exchange *x, const char *name, const char *value)
{
	struct buf b CLEANUP_BUF = BUF_INIT(0);

	if (!x->target)
		return -ENOMEM;
	buf_printf(&b, "%s%c%s=", x->target, strchr(x->target, '?') ? '&' : '?', name);
	if (b.error || url_escape(&b, value, strlen(value)) < 0)
		return -ENOMEM;
	free(x->target);
	x->target = STEAL(b.data);
	return 0;
}

int exchange_add_header(struct curl_slist **to, const char *line)
{
	struct curl_slist *more = curl_slist_append(*to, line);

	if (!more)
		return -ENOMEM;
	*to = more;
	return 0;
}

int exchange_header(struct exchange *x, const char *line)
{
	return exchange_add_header(&x->headers, line);
}

void exchange_start(struct exchange *x)
{
	struct lane_state *lane = lane_of(x);

	if (!x->op->current)
		op_wait(x->op, &x->step);
	x->answer = BUF_INIT(x->answer_max);
	x->since_us = clock_us();
	if (!x->target || x->body.error) {
		exchange_decide(x, -ENOMEM, "out of memory");
		wait_for(x, on_pause_over, 0);
		return;
	}
	if (x->timeout_ms > 0)
		wait_for(x, on_try_timeout, x->timeout_ms);
	x->queued = true;
	DL_APPEND(lane->queue, x);
	lane_next(x->op->sb, x->lane);
}

bool exchange_was_sent(const struct exchange *x)
{
	return x->tries > 1 || (x->tries == 1 && x->sent == x->body.len);
}

void exchange_go_on(struct exchange *x)
{
	if (!x->paused || (!x->easy && !x->wire))
		return;
	end_pause(x);
	if (x->wire) {
		wire_go_on(x->wire);
		return;
	}
	exchange_curl_go_on(x);
	if (x->error)
		wait_for(x, on_pause_over, 0);
}

void exchange_release(struct exchange *x)
{
	if (!x->op)
		return;
	exchange_stop(x);
	free(x->target);
	buf_release(&x->body);
	buf_release(&x->answer);
	buf_release(&x->form_head);
	buf_release(&x->form_tail);
	buf_release(&x->form);
	free(x->piece);
	curl_slist_free_all(x->headers);
	*x = (struct exchange){ 0 };
}

/*
 * To a command: signals, and its stdin. Bytes are sent one piece after the
 * other, each to its own offset, so that none is lost or comes twice; a command that does
 * not read keeps whoever writes waiting. Must not know where they come from. Loop thread only.
 */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "jobs_i.h"

enum {
	FEED_PIECE = 64 * 1024,
	FEED_MIN_MS = 10, /* until a piece is sent again that there was no room for */
	FEED_MAX_MS = 500,
};

/* ---- signals ---- */

static void on_killed(struct call *call)
{
	struct job_ask *a = call->ctx;
	struct command *c = STEAL(a->command);
	int err = call->error;

	call_release(call);
	sandbox_put(STEAL(a->sb));
	if (err == 0)
		command_hurry(c);
	a->done(a, err);
	command_unref(c);
}

int command_kill(struct command *c, int signal, struct job_ask *a)
{
	if (!c->alive || command_is_over(c))
		return -ESRCH;
	a->command = command_ref(c);
	a->sb = sandbox_ref(c->sb);
	call_init(&a->call, c->fs->opt->timeout_ms);
	a->call.done = on_killed;
	a->call.ctx = a;
	sandbox_run_kill(a->sb, &a->call, c->run, signal);
	return 0;
}

void command_kill_cancel(struct job_ask *a)
{
	call_cancel(&a->call);
}

/* ---- stdin ---- */

struct feed {
	struct command *command; /* counted */
	struct sandbox *sb;      /* counted while it is under way */
	struct call call;
	struct job_ask *asker; /* NULL: nobody waits */
	size_t len, at;        /* of these there are so many */
	bool end;
	bool sent;      /* a piece is under way */
	ev_timer timer; /* until the same one is sent again */
	int64_t pause_ms;
	struct feed *prev, *next;
	char bytes[];
};

/* Takes it off the list, tells, frees. */
static void finish(struct feed *f, int err)
{
	struct command *c = f->command;
	struct job_ask *a = f->asker;

	ev_timer_stop(c->fs->ev, &f->timer);
	DL_DELETE(c->feeds, f);
	free(f);
	if (a)
		a->done(a, err);
	command_unref(c);
}

static void send_next(struct command *c);

static size_t next_len(const struct feed *f)
{
	return MIN(f->len - f->at, FEED_PIECE);
}

/*
 * What may be sent again as often as it takes: it goes where it was to go. For the end there is
 * nobody who could be told, and without it the command never ends: until that is gone itself.
 */
static bool is_passing(const struct feed *f, int err)
{
	if (f->end && !f->asker)
		return err < 0 && err != -EPIPE && err != -ESRCH && err != -ENOTCONN &&
		       err != -ESHUTDOWN;
	return err == -EAGAIN || err == -ETIMEDOUT;
}

/*
 * The sandbox does not answer: whoever waits is told. What is under way may have arrived, and is
 * sent again until it has, as what comes next goes behind it; of the others nothing was sent.
 */
static void tell_late(struct command *c)
{
	struct feed *f, *next;

	DL_FOREACH_SAFE (c->feeds, f, next) {
		struct job_ask *a = f->asker;

		if (!a)
			continue;
		if (f != c->feeds) {
			finish(f, -ETIMEDOUT);
			continue;
		}
		f->asker = NULL;
		f->len = f->at + next_len(f);
		a->feed = NULL;
		a->done(a, -ETIMEDOUT);
	}
}

static void on_fed(struct call *call)
{
	struct feed *f = call->ctx;
	struct command *c = command_ref(f->command);
	int err = call->error;

	call_release(call);
	sandbox_put(STEAL(f->sb));
	f->sent = false;
	if (err == 0) {
		c->fed_bytes += next_len(f);
		f->at += next_len(f);
		f->pause_ms = 0;
	}
	if (err == -ETIMEDOUT)
		tell_late(c);
	if (err == 0 && f->at == f->len) {
		finish(f, 0);
	} else if (command_is_over(c)) {
		finish(f, -EPIPE);
	} else if (is_passing(f, err)) {
		f->pause_ms = MIN(MAX(f->pause_ms * 2, FEED_MIN_MS), FEED_MAX_MS);
		ev_timer_set(&f->timer, (double)f->pause_ms / 1000, 0.);
		ev_timer_start(c->fs->ev, &f->timer);
	} else if (err < 0) {
		if (!f->asker)
			c->feed_error = err; /* for who writes next: a piece is missing */
		finish(f, err);
	}
	send_next(c);
	command_unref(c);
}

static void on_timer(struct ev_loop *ev UNUSED, ev_timer *w, int revents UNUSED)
{
	struct feed *f = w->data;

	send_next(f->command);
}

static void send_next(struct command *c)
{
	struct feed *f = c->feeds;

	if (!f || f->sent || ev_is_active(&f->timer) || command_is_over(c))
		return;
	f->sent = true;
	f->sb = sandbox_ref(c->sb);
	call_init(&f->call, c->fs->opt->timeout_ms);
	f->call.done = on_fed;
	f->call.ctx = f;
	sandbox_run_feed(f->sb, &f->call, c->run, c->fed_bytes, f->bytes + f->at, next_len(f),
			 f->end);
}

static int append(struct command *c, const void *bytes, size_t len, bool last, struct job_ask *a)
{
	struct feed *f = calloc(1, sizeof(*f) + len);

	if (!f)
		return -ENOMEM;
	f->command = command_ref(c);
	f->asker = a;
	f->len = len;
	f->end = last;
	ev_init(&f->timer, on_timer);
	f->timer.data = f;
	if (len > 0)
		memcpy(f->bytes, bytes, len);
	if (a)
		a->feed = f;
	DL_APPEND(c->feeds, f);
	send_next(c);
	return 0;
}

static bool takes_input(const struct command *c)
{
	return c->fed && !c->input_ended && c->alive && !command_is_over(c);
}

int command_stdin_open(struct command *c)
{
	if (!takes_input(c))
		return -EPIPE;
	c->writers++;
	return 0;
}

void command_stdin_close(struct command *c)
{
	if (--c->writers > 0 || !takes_input(c))
		return;
	c->input_ended = append(c, NULL, 0, true, NULL) == 0;
}

int command_feed(struct command *c, const void *bytes, size_t len, struct job_ask *a)
{
	if (c->feed_error)
		return c->feed_error;
	return takes_input(c) ? append(c, bytes, len, false, a) : -EPIPE;
}

size_t command_feed_leave(struct job_ask *a)
{
	struct feed *f = STEAL(a->feed);
	struct command *c = command_ref(f->command);
	size_t taken = f->at + (f->sent ? next_len(f) : 0);

	f->asker = NULL;
	f->len = taken;
	if (!f->sent)
		finish(f, 0);
	send_next(c); /* those behind it */
	command_unref(c);
	return taken;
}

void command_input_end(struct command *c)
{
	struct feed *f, *next;

	c->input_ended = true;
	/* The one under way ends by itself. */
	DL_FOREACH_SAFE (c->feeds, f, next)
		if (!f->sent)
			finish(f, -EPIPE);
}

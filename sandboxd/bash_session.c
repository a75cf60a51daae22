/*
 * See bash_session.h. Keeps the registry of sessions with its cap and expiry,
 * each session's queue and history, and wakes waiters. Must not know HTTP.
 * Loop thread only.
 */
#include "bash_session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "spawn.h"
#include "subsystems.h"

enum {
	OUTPUT_MAX = 10 * 1024 * 1024, /* of one stream */
	HISTORY_MAX = 100,             /* commands that have ended */
	HISTORY_BYTES = 1024 * 1024,   /* and their texts */
	QUEUE_MAX = 100,               /* commands that wait */
	QUEUE_BYTES = 16 * 1024 * 1024,
};

/* ---- waiters ---- */

void bash_waiter_add(struct bash_waiter *w)
{
	DL_APPEND(w->command->session->waiters, w);
	w->listed = true;
}

void bash_waiter_remove(struct bash_waiter *w)
{
	if (!w->listed)
		return;
	DL_DELETE(w->command->session->waiters, w);
	w->listed = false;
}

static struct bash_waiter *due_waiter(struct bash_session *s, bool output)
{
	struct bash_waiter *w;

	DL_FOREACH (s->waiters, w)
		if (bash_command_ended(w->command) || (output && w->has_news && w->has_news(w)))
			return w;
	return NULL;
}

/* From the start each time, because fn may take others off the list. */
static void wake(struct bash_session *s, bool output)
{
	struct bash_waiter *w;

	while ((w = due_waiter(s, output))) {
		bash_waiter_remove(w);
		w->fn(w);
	}
}

/* ---- commands ---- */

static void command_remove(struct bash_session *s, struct bash_command *c)
{
	DL_DELETE(s->commands, c);
	s->n_commands--;
	s->bytes -= c->bytes;
	bash_command_free(c);
}

/* The newest that ended always stays: clients ask for its exit code. */
static void trim_history(struct bash_session *s)
{
	while (s->commands && bash_command_ended(s->commands) && s->commands->next &&
	       bash_command_ended(s->commands->next) &&
	       (s->n_commands - s->n_waiting > HISTORY_MAX || s->bytes > HISTORY_BYTES))
		command_remove(s, s->commands);
}

static void touch(struct bash_session *s)
{
	s->last_used_at = clock_wall();
	s->last_used_ms = clock_ms();
}

/* What it writes, if ever, comes after what is there now. */
static void leave_queue(struct bash_session *s, struct bash_command *c)
{
	s->n_waiting--;
	for (int i = 0; i < BASH_STREAMS; i++)
		c->offset[i] = ring_end(&s->out[i]);
}

/* Those that have not started never will. */
static void drop_waiting(struct bash_session *s)
{
	struct bash_command *c;

	DL_FOREACH (s->commands, c)
		if (c->status == BASH_PENDING) {
			c->status = BASH_KILLED;
			leave_queue(s, c);
			s->bash->n_active--;
		}
}

/* Starts the oldest that waits; those that cannot be started end at once. */
static void run_next(struct bash_session *s)
{
	struct bash_command *c;

	while (!s->running && s->n_waiting > 0) {
		DL_FOREACH (s->commands, c)
			if (c->status == BASH_PENDING)
				break;
		leave_queue(s, c);
		if (bash_command_start(c) == 0) {
			s->running = c;
			return;
		}
		s->bash->n_active--;
		wake(s, false);
	}
}

int bash_session_submit(struct bash_session *s, struct bash_command *cmd)
{
	char *dir;

	if (s->n_waiting >= QUEUE_MAX || (s->n_waiting && s->bytes + cmd->bytes > QUEUE_BYTES))
		return -EAGAIN;
	dir = strdup(cmd->dir);
	if (!dir)
		return -ENOMEM;
	free(s->working_dir);
	s->working_dir = dir;
	cmd->session = s;
	DL_APPEND(s->commands, cmd);
	s->n_commands++;
	s->bytes += cmd->bytes;
	s->n_waiting++;
	s->total_commands++;
	s->bash->n_active++;
	touch(s);
	trim_history(s);
	run_next(s);
	return 0;
}

void bash_session_ended(struct bash_session *s)
{
	s->running = NULL;
	s->bash->n_active--;
	touch(s);
	wake(s, false);
	run_next(s);
	trim_history(s);
}

void bash_session_output(struct bash_session *s, enum bash_stream stream, const char *data,
			 size_t len)
{
	(void)ring_write(&s->out[stream], data, len);
	wake(s, true);
}

struct bash_command *bash_session_command(struct bash_session *s, const char *id)
{
	struct bash_command *c;

	DL_FOREACH (s->commands, c)
		if (!strcmp(c->id, id))
			return c;
	return NULL;
}

struct bash_command *bash_session_current(struct bash_session *s)
{
	struct bash_command *c, *last = NULL;

	if (s->running)
		return s->running;
	DL_FOREACH (s->commands, c)
		if (bash_command_ended(c))
			last = c;
	return last;
}

/* ---- sessions ---- */

struct bash_session *bash_session_find(struct bash *b, const char *id)
{
	struct bash_session *s;

	DL_FOREACH (b->sessions, s)
		if (!strcmp(s->id, id))
			return s;
	return NULL;
}

static bool is_idle(const struct bash_session *s)
{
	return !s->running && !s->n_waiting;
}

static struct bash_session *oldest_idle(struct bash *b)
{
	struct bash_session *s, *oldest = NULL;

	DL_FOREACH (b->sessions, s)
		if (is_idle(s) && (!oldest || s->last_used_ms < oldest->last_used_ms))
			oldest = s;
	return oldest;
}

static void session_free(struct bash_session *s)
{
	if (!s)
		return;
	for (int i = 0; i < BASH_STREAMS; i++)
		ring_release(&s->out[i]);
	free(s->working_dir);
	free(s);
}

static struct bash_session *session_alloc(struct bash *b, const char *id, const char *working_dir)
{
	struct bash_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->bash = b;
	if (id && *id)
		snprintf(s->id, sizeof(s->id), "%s", id);
	else
		uuid_make(s->id);
	for (int i = 0; i < BASH_STREAMS; i++)
		ring_init(&s->out[i], OUTPUT_MAX);
	touch(s);
	s->created_at = s->last_used_at;
	s->working_dir = strdup(working_dir);
	if (!s->working_dir) {
		session_free(s);
		return NULL;
	}
	return s;
}

int bash_session_new(struct bash *b, const char *id, const char *working_dir,
		     struct bash_session **ret)
{
	struct bash_session *s;

	if (b->n_sessions >= b->srv->cfg->max_bash_sessions) {
		s = oldest_idle(b);
		if (!s)
			return -EBUSY;
		bash_session_close(s);
	}
	s = session_alloc(b, id, working_dir);
	if (!s)
		return -ENOMEM;
	DL_APPEND(b->sessions, s);
	b->n_sessions++;
	*ret = s;
	return 0;
}

static bool is_running(const struct bash *b, pid_t group)
{
	const struct bash_session *s;

	DL_FOREACH (b->sessions, s)
		if (s->running && s->running->group == group)
			return true;
	return false;
}

/* Background processes whose output the session still took. */
static void kill_lingering(struct bash_session *s)
{
	struct bash_pipe *p, *next;

	DL_FOREACH_SAFE (s->bash->lingering, p, next) {
		if (p->session != s)
			continue;
		/*
		 * The leader is gone; if its processes have left the group (setsid)
		 * the number may be that of a newer command.
		 */
		if (!is_running(s->bash, p->group))
			spawn_kill(p->group, SIGKILL);
		bash_pipe_free(p);
	}
}

void bash_session_close(struct bash_session *s)
{
	struct bash_command *c, *next;

	DL_DELETE(s->bash->sessions, s);
	s->bash->n_sessions--;
	drop_waiting(s);
	if (s->running) {
		bash_command_abandon(s->running);
		s->running = NULL;
		s->bash->n_active--;
	}
	wake(s, false);
	kill_lingering(s);
	DL_FOREACH_SAFE (s->commands, c, next)
		command_remove(s, c);
	session_free(s);
}

/* ---- all of them ---- */

static void expire(struct ev_loop *loop UNUSED, ev_timer *w, int revents UNUSED)
{
	struct bash *b = w->data;
	int64_t limit_ms = (int64_t)b->srv->cfg->session_timeout_s * 1000;
	int64_t now = clock_ms();
	struct bash_session *s, *next;

	DL_FOREACH_SAFE (b->sessions, s, next)
		if (is_idle(s) && now - s->last_used_ms >= limit_ms)
			bash_session_close(s);
}

int bash_start(struct server *srv)
{
	unsigned timeout_s = srv->cfg->session_timeout_s;
	struct bash *b = calloc(1, sizeof(*b));
	double every;

	if (!b)
		return -ENOMEM;
	b->srv = srv;
	b->scratch = malloc(BASH_READ_SIZE);
	if (!b->scratch) {
		free(b);
		return -ENOMEM;
	}
	srv->bash = b;
	if (timeout_s) {
		every = MIN(MAX(timeout_s / 4.0, 0.25), 30.0);
		ev_timer_init(&b->expiry, expire, every, every);
		b->expiry.data = b;
		ev_timer_start(srv->loop, &b->expiry);
	}
	return 0;
}

bool bash_busy(const struct server *srv)
{
	return srv->bash && srv->bash->n_active > 0;
}

void bash_signal_all(struct server *srv, int sig)
{
	struct bash_session *s;

	if (!srv->bash)
		return;
	DL_FOREACH (srv->bash->sessions, s) {
		drop_waiting(s);
		wake(s, false);
		if (s->running)
			bash_command_signal(s->running, sig);
	}
}

void bash_stop(struct server *srv)
{
	struct bash_session *s, *next;
	struct bash *b = srv->bash;

	if (!b)
		return;
	DL_FOREACH_SAFE (b->sessions, s, next)
		bash_session_close(s);
	ev_timer_stop(srv->loop, &b->expiry);
	free(b->scratch);
	free(b);
	srv->bash = NULL;
}

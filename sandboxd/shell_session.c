/* See shell_session.h. */
#include "shell_session.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "subsystems.h"

enum {
	NO_CHANGE_S = 120,
	MAX_OUTPUT = 10 * MIB,       /* of one command; past it the older half is dropped */
	MAX_QUEUED = 64,             /* commands of a session */
	MAX_QUEUED_BYTES = 32 * MIB, /* of their text */
	MAX_RECORDS = 100,           /* commands remembered */
	MAX_RECORD_BYTES = 2 * MIB,  /* of those before the latest */
	MAX_KEPT_BYTES = 64 * MIB,   /* of those requests still read, over all sessions */
	ROOMY = 256 * KIB,           /* more than a shortened output ever needs */
	WATCH_S = 1,
	MAX_STRIKES = 3,
};

/* What the timer of a session does next. */
enum step {
	STEP_INTERRUPT, /* the hard timeout: as ^C would */
	STEP_TERMINATE, /* that was not enough */
	STEP_KILL,
	STEP_RESTART, /* bash itself does not come back */
	STEP_SETTLE,  /* a late SIGINT must not hit the next command */
};

const char *shell_status_name(enum shell_status status)
{
	static const char *const names[] = {
		[SHELL_RUNNING] = "running",
		[SHELL_COMPLETED] = "completed",
		[SHELL_NO_CHANGE] = "no_change_timeout",
		[SHELL_HARD_TIMEOUT] = "hard_timeout",
		[SHELL_TERMINATED] = "terminated",
	};

	return names[status];
}

/* ---- commands ---- */

static void unkeep(struct shell_command *c)
{
	if (!c->keeper)
		return;
	DL_DELETE2(c->keeper->kept, c, kept_prev, kept_next);
	c->keeper->kept_bytes -= c->out.cap;
	c->keeper = NULL;
}

void shell_command_unref(struct shell_command *c)
{
	if (!c || --c->refs)
		return;
	unkeep(c);
	buf_release(&c->out);
	free(c->text);
	free(c->dir);
	free(c->ps1);
	free(c);
}

static struct shell_command *command_new(const char *text, const char *dir)
{
	struct shell_command *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->refs = 1;
	c->text = strdup(text);
	c->dir = dir ? strdup(dir) : NULL;
	if (!c->text || (dir && !c->dir)) {
		shell_command_unref(c);
		return NULL;
	}
	c->queued_ms = clock_ms();
	return c;
}

static void command_output(struct shell_command *c, const char *data, size_t len)
{
	if (c->out.len >= MAX_OUTPUT) {
		size_t drop = c->out.len / 2;

		/* Not in the middle of a character. */
		while (drop < c->out.len && (c->out.data[drop] & 0xc0) == 0x80)
			drop++;
		buf_consume(&c->out, drop);
		c->out_start += drop;
	}
	if (shell_text_feed(&c->clean, data, len, &c->out) < 0) {
		c->out_start += c->out.len;
		buf_release(&c->out);
	}
}

int64_t shell_command_changed_ms(const struct shell_session *s, const struct shell_command *c)
{
	return MAX(c->queued_ms, s->output_ms);
}

/* ---- the record ---- */

/* Leaves of an output what its record can ever show; its end stays where it is. */
static void shrink(struct shell_command *c)
{
	struct buf small = BUF_INIT(0);

	unkeep(c);
	if (shell_text_shorten(c->out.data, c->out.len, SHELL_MAX_CHARS, &small) > 0 ||
	    (c->out.cap > ROOMY && buf_append(&small, c->out.data, c->out.len) == 0)) {
		c->out_start += c->out.len - small.len;
		buf_release(&c->out);
		c->out = small;
	} else {
		buf_release(&small);
	}
}

/* The output of an old command is whole only while someone reads it, and not of too many. */
static void put_by(struct shell *sh, struct shell_command *c)
{
	if (c->refs == 1) {
		shrink(c);
		return;
	}
	if (c->keeper || c->out.cap <= ROOMY)
		return;
	c->keeper = sh;
	DL_APPEND2(sh->kept, c, kept_prev, kept_next);
	sh->kept_bytes += c->out.cap;
	while (sh->kept_bytes > MAX_KEPT_BYTES)
		shrink(sh->kept);
}

static void forget(struct shell_session *s, struct shell_command *c)
{
	DL_DELETE(s->commands, c);
	s->ncommands--;
	if (c->refs > 1)
		put_by(s->shell, c);
	shell_command_unref(c);
}

/* Bounds what is remembered of the commands before the current one. */
static void trim_records(struct shell_session *s)
{
	struct shell_command *c, *tmp;
	size_t bytes = 0;

	DL_FOREACH (s->commands, c) {
		if (c == s->current)
			break;
		put_by(s->shell, c);
	}
	DL_FOREACH (s->commands, c) {
		if (c == s->current)
			break;
		bytes += c->out.len + strlen(c->text);
	}
	DL_FOREACH_SAFE (s->commands, c, tmp) {
		if (c == s->current ||
		    (bytes <= MAX_RECORD_BYTES && s->ncommands - s->nqueued <= MAX_RECORDS))
			break;
		bytes -= c->out.len + strlen(c->text);
		forget(s, c);
	}
}

struct shell_command *shell_session_latest(const struct shell_session *s)
{
	struct shell_command *c;

	if (s->current || !s->commands)
		return s->current;
	/* The head's prev is the tail. */
	c = s->commands->prev;
	for (unsigned i = 0; i < s->nqueued; i++)
		c = c->prev;
	return c->ps1 ? c : NULL;
}

bool shell_session_busy(const struct shell_session *s)
{
	return s->current || s->nqueued;
}

void shell_session_touch(struct shell_session *s)
{
	s->used_ms = clock_ms();
	s->used = clock_wall();
}

/* ---- waiters ---- */

void shell_wait_begin(struct shell_session *s, struct shell_waiter *w)
{
	w->session = s;
	DL_APPEND(s->waiters, w);
}

void shell_wait_end(struct shell_waiter *w)
{
	if (w->session)
		DL_DELETE(w->session->waiters, w);
	w->session = NULL;
}

static void notify(struct shell_session *s)
{
	struct shell_waiter *w, *tmp;

	DL_FOREACH_SAFE (s->waiters, w, tmp)
		w->fn(w);
}

/* ---- running ---- */

static void run_next(struct shell_session *s);

static void set_timer(struct shell_session *s, enum step step, double seconds)
{
	struct ev_loop *loop = s->shell->srv->loop;

	s->step = step;
	ev_timer_stop(loop, &s->timer);
	ev_now_update(loop);
	ev_timer_set(&s->timer, seconds, 0);
	ev_timer_start(loop, &s->timer);
}

static void finish(struct shell_session *s, enum shell_status status, bool exited, int exit_code)
{
	struct shell_command *c = s->current;

	ev_timer_stop(s->shell->srv->loop, &s->timer);
	ev_timer_stop(s->shell->srv->loop, &s->watch);
	s->current = NULL;
	c->status = c->overdue ? SHELL_HARD_TIMEOUT : status;
	c->exited = exited || c->overdue;
	c->exit_code = c->overdue ? -1 : exit_code;
	if (c->overdue && s->ready)
		set_timer(s, STEP_SETTLE, 0.05);
	shell_session_touch(s);
	notify(s);
	run_next(s);
}

static void fail(struct shell_session *s, int err)
{
	char message[256];
	int n = snprintf(message, sizeof(message), "cannot start bash: %s", strerrordesc_np(err));

	log_warn("shell session %s: %s", s->id, message);
	command_output(s->current, message, (size_t)n);
	finish(s, SHELL_TERMINATED, true, 1);
}

/* Starts a bash for the current command. */
static void start_bash(struct shell_session *s)
{
	const struct config *cfg = s->shell->srv->cfg;
	int r;

	s->ready = s->doomed = false;
	s->reported = 0;
	r = shell_pty_start(&s->pty, s->dir, s->symlinks);
	/* The directory may be gone since. */
	if (r == -ENOENT || r == -ENOTDIR || r == -EACCES)
		r = shell_pty_start(&s->pty, cfg->home, false);
	if (r == -ENOENT || r == -ENOTDIR || r == -EACCES)
		r = shell_pty_start(&s->pty, "/", false);
	if (r < 0)
		fail(s, -r);
}

/* This bash is of no more use; on_ended() does the rest. */
static void doom(struct shell_session *s)
{
	s->doomed = true;
	shell_pty_signal(&s->pty, SIGKILL);
}

static void send_current(struct shell_session *s)
{
	struct ev_loop *loop = s->shell->srv->loop;
	struct shell_command *c = s->current;

	c->seq = ++s->seq;
	if (shell_pty_run(&s->pty, c->seq, c->text, c->dir, c->symlinks) < 0) {
		/* bash has just died; the command has not reached it. */
		c->seq = 0;
		doom(s);
		return;
	}
	s->strikes = 0;
	ev_now_update(loop);
	ev_timer_set(&s->watch, WATCH_S, WATCH_S);
	ev_timer_start(loop, &s->watch);
}

/* "user@host:directory $ " */
static char *prompt(const struct shell_session *s, const struct shell_command *c)
{
	char *ps1;

	if (asprintf(&ps1, "%s@sandbox:%s $ ", SANDBOX_USER, c->dir ? c->dir : s->dir) < 0)
		return NULL;
	return ps1;
}

static void run_next(struct shell_session *s)
{
	struct shell_command *c;

	if (s->current || !s->nqueued || s->shell->stopping || ev_is_active(&s->timer))
		return;
	c = s->commands->prev;
	for (unsigned i = 1; i < s->nqueued; i++)
		c = c->prev;
	s->nqueued--;
	s->queued_bytes -= strlen(c->text);
	s->current = c;
	trim_records(s);
	c->ps1 = prompt(s, c);
	if (!c->ps1) {
		fail(s, ENOMEM);
		return;
	}
	if (c->hard_timeout_s > 0)
		set_timer(s, STEP_INTERRUPT, c->hard_timeout_s);
	if (!s->pty.pid)
		start_bash(s);
	else if (s->ready && !s->doomed)
		send_current(s);
}

int shell_session_submit(struct shell_session *s, const char *text, const char *dir, bool symlinks,
			 double hard_timeout_s, struct shell_command **ret_command)
{
	size_t len = strlen(text);
	struct shell_command *c;

	/* A command alone may be as long as a request. */
	if (s->nqueued >= MAX_QUEUED || (s->nqueued && s->queued_bytes + len > MAX_QUEUED_BYTES))
		return -EAGAIN;
	c = command_new(text, dir);
	if (!c)
		return -ENOMEM;
	c->symlinks = symlinks;
	c->hard_timeout_s = hard_timeout_s;
	DL_APPEND(s->commands, c);
	s->ncommands++;
	s->nqueued++;
	s->queued_bytes += len;
	shell_session_touch(s);
	if (ret_command) {
		c->refs++;
		*ret_command = c;
	}
	run_next(s);
	return 0;
}

/* ---- what bash says ---- */

static void on_output(struct shell_pty *p, const char *data, size_t len)
{
	struct shell_session *s = CONTAINER_OF(p, struct shell_session, pty);
	struct shell_command *c = shell_session_latest(s);

	s->output_ms = clock_ms();
	/* After a command's end it is from a job in the background. */
	if (c)
		command_output(c, data, len);
	notify(s);
}

static void set_dir(struct shell_session *s, const char *dir)
{
	char *copy = *dir == '/' ? strdup(dir) : NULL;

	if (!copy)
		return;
	free(s->dir);
	s->dir = copy;
}

static void on_report(struct shell_pty *p, uint64_t seq, int status, const char *dir)
{
	struct shell_session *s = CONTAINER_OF(p, struct shell_session, pty);
	struct shell_command *c = s->current;

	if (s->doomed)
		return;
	if (!s->ready) {
		set_dir(s, dir);
		s->ready = true;
		if (c)
			send_current(s);
	} else if (c && c->seq == seq) {
		set_dir(s, dir);
		s->reported = seq;
		finish(s, SHELL_COMPLETED, true, status);
	} else if (seq != s->reported) {
		/* Once more the same: a signal came while bash waited. But this is not ours. */
		doom(s);
	}
}

static void on_ended(struct shell_pty *p, int wstatus)
{
	struct shell_session *s = CONTAINER_OF(p, struct shell_session, pty);
	bool was_ready = s->ready, was_doomed = s->doomed;

	s->ready = s->doomed = false;
	ev_timer_stop(s->shell->srv->loop, &s->watch);
	if (!s->current)
		return;
	if (was_doomed && !s->current->seq && !s->current->overdue)
		start_bash(s);
	else if (!was_ready && !s->current->overdue)
		fail(s, EAGAIN);
	else if (WIFEXITED(wstatus))
		finish(s, SHELL_COMPLETED, true, WEXITSTATUS(wstatus));
	else
		finish(s, SHELL_TERMINATED, true, 128 + WTERMSIG(wstatus));
}

static const struct shell_pty_events pty_events = {
	.output = on_output,
	.report = on_report,
	.ended = on_ended,
};

/*
 * While a command runs: bash goes on if the command stopped it, and is given up
 * if it is back in its loop without a report. A report may be on its way at the
 * first sight of that; and a bash that has run wild is not there every time.
 */
static void on_watch(struct ev_loop *loop UNUSED, ev_timer *t, int revents UNUSED)
{
	struct shell_session *s = t->data;

	shell_pty_continue(&s->pty);
	if (shell_pty_in_loop(&s->pty) && ++s->strikes >= MAX_STRIKES && !s->doomed)
		doom(s);
}

/* ---- hard timeouts ---- */

static void restart(struct shell_session *s)
{
	char dir[PATH_MAX];

	if (shell_pty_cwd(&s->pty, dir, sizeof(dir)) == 0)
		set_dir(s, dir);
	/* on_ended() does the rest. */
	shell_pty_signal(&s->pty, SIGKILL);
}

static void on_timer(struct ev_loop *loop UNUSED, ev_timer *t, int revents UNUSED)
{
	struct shell_session *s = t->data;
	bool child;

	switch ((enum step)s->step) {
	case STEP_INTERRUPT:
		s->current->overdue = true;
		if (!s->ready) {
			restart(s);
			break;
		}
		shell_pty_interrupt(&s->pty, SIGINT);
		set_timer(s, STEP_TERMINATE, 1);
		break;
	case STEP_TERMINATE:
		/* bash itself ignores SIGTERM. */
		child = shell_pty_interrupt(&s->pty, SIGTERM);
		set_timer(s, child ? STEP_KILL : STEP_RESTART, child ? 0.5 : 0);
		break;
	case STEP_KILL:
		if (shell_pty_interrupt(&s->pty, SIGKILL) && s->pty.pid)
			kill(s->pty.pid, SIGINT);
		set_timer(s, STEP_RESTART, 0.5);
		break;
	case STEP_RESTART:
		restart(s);
		break;
	case STEP_SETTLE:
		run_next(s);
		break;
	}
}

/* ---- sessions ---- */

struct shell_session *shell_find(struct shell *sh, const char *id)
{
	struct shell_session *s;

	HASH_FIND_STR(sh->sessions, id, s);
	return s;
}

/* Makes room for one more by ending the one that has been idle longest. */
static int make_room(struct shell *sh)
{
	struct shell_session *s, *tmp, *oldest = NULL;

	if (HASH_COUNT(sh->sessions) < sh->srv->cfg->max_shell_sessions)
		return 0;
	HASH_ITER (hh, sh->sessions, s, tmp)
		if (!shell_session_busy(s) && (!oldest || s->used_ms < oldest->used_ms))
			oldest = s;
	if (!oldest)
		return -EBUSY;
	shell_session_free(oldest);
	return 0;
}

static void make_id(char *id)
{
	unsigned char random[8];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		memset(random, 0, sizeof(random));
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(id + 2 * i, 3, "%02x", random[i]);
}

int shell_session_new(struct shell *sh, const char *id, const char *dir, bool symlinks,
		      struct shell_session **ret)
{
	struct shell_session *s;
	int r = make_room(sh);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->dir = strdup(dir ? dir : sh->srv->cfg->home);
	if (!s->dir) {
		free(s);
		return -ENOMEM;
	}
	if (id)
		snprintf(s->id, sizeof(s->id), "%s", id);
	else
		make_id(s->id);
	s->shell = sh;
	s->symlinks = symlinks;
	s->no_change_s = NO_CHANGE_S;
	s->created = clock_wall();
	shell_session_touch(s);
	shell_pty_init(&s->pty, sh->srv, &pty_events);
	ev_timer_init(&s->timer, on_timer, 0, 0);
	ev_timer_init(&s->watch, on_watch, 0, 0);
	s->timer.data = s->watch.data = s;
	HASH_ADD_STR(sh->sessions, id, s);
	*ret = s;
	return 0;
}

void shell_session_free(struct shell_session *s)
{
	struct shell_command *c, *tmp;
	struct shell_waiter *w, *next;

	HASH_DEL(s->shell->sessions, s);
	ev_timer_stop(s->shell->srv->loop, &s->timer);
	ev_timer_stop(s->shell->srv->loop, &s->watch);
	shell_pty_close(&s->pty);
	DL_FOREACH (s->commands, c)
		if (c->status == SHELL_RUNNING)
			c->status = SHELL_TERMINATED;
	DL_FOREACH_SAFE (s->waiters, w, next) {
		shell_wait_end(w);
		w->fn(w);
	}
	DL_FOREACH_SAFE (s->commands, c, tmp)
		forget(s, c);
	free(s->dir);
	free(s);
}

static void on_expiry(struct ev_loop *loop UNUSED, ev_timer *t, int revents UNUSED)
{
	struct shell *sh = t->data;
	int64_t limit_ms = (int64_t)sh->srv->cfg->session_timeout_s * 1000;
	int64_t now = clock_ms();
	struct shell_session *s, *tmp;

	HASH_ITER (hh, sh->sessions, s, tmp)
		if (!shell_session_busy(s) && now - s->used_ms >= limit_ms)
			shell_session_free(s);
}

/* ---- for server.c ---- */

int shell_start(struct server *srv)
{
	struct shell *sh = calloc(1, sizeof(*sh));
	double every = MIN(MAX(srv->cfg->session_timeout_s / 4.0, 0.25), 30.0);

	if (!sh)
		return -ENOMEM;
	sh->srv = srv;
	ev_timer_init(&sh->expiry, on_expiry, every, every);
	sh->expiry.data = sh;
	if (srv->cfg->session_timeout_s)
		ev_timer_start(srv->loop, &sh->expiry);
	srv->shell = sh;
	return 0;
}

bool shell_busy(const struct server *srv)
{
	struct shell_session *s, *tmp;

	if (!srv->shell)
		return false;
	HASH_ITER (hh, srv->shell->sessions, s, tmp)
		if (s->current || (s->nqueued && !srv->shell->stopping))
			return true;
	return false;
}

void shell_signal_all(struct server *srv, int sig)
{
	struct shell_session *s, *tmp;

	if (!srv->shell)
		return;
	srv->shell->stopping = true;
	HASH_ITER (hh, srv->shell->sessions, s, tmp)
		shell_pty_signal(&s->pty, sig);
}

void shell_stop(struct server *srv)
{
	struct shell *sh = srv->shell;
	struct shell_session *s, *tmp;

	if (!sh)
		return;
	sh->stopping = true;
	ev_timer_stop(srv->loop, &sh->expiry);
	HASH_ITER (hh, sh->sessions, s, tmp)
		shell_session_free(s);
	/* Requests may hold them for longer than we are here. */
	while (sh->kept)
		unkeep(sh->kept);
	free(sh);
	srv->shell = NULL;
}

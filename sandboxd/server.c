/*
 * The life of the server: puts the parts together on one event loop, stops
 * them in order. Must not know HTTP or any route. Loop thread only.
 */
#include "server.h"

#include <errno.h>
#include <signal.h>

#include "clock.h"
#include "crowd.h"
#include "http.h"
#include "log.h"
#include "reap.h"
#include "subsystems.h"
#include "workers.h"

enum {
	WORKERS = 4,
	GRACE_MS = 800, /* for commands to end after SIGTERM */
	FLUSH_MS = 100, /* for their answers to leave */
};

/* What only this file needs of a running server. */
struct life {
	struct server srv;
	ev_io lifeline;
	ev_signal sigterm, sigint;
	ev_timer idle;
	ev_timer poll; /* while stopping */
	int64_t last_use_ms;
	int64_t stop_at_ms; /* 0 = not stopping */
};

static struct life *life_of(struct server *srv)
{
	return CONTAINER_OF(srv, struct life, srv);
}

void server_touch(struct server *srv)
{
	life_of(srv)->last_use_ms = clock_ms();
}

static bool commands_run(const struct server *srv)
{
	return shell_busy(srv) || bash_busy(srv);
}

static void on_stop_poll(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct life *l = t->data;
	int64_t now = clock_ms();

	if ((commands_run(&l->srv) && now < l->stop_at_ms) ||
	    (http_active(&l->srv) && now < l->stop_at_ms + FLUSH_MS))
		return;
	ev_break(loop, EVBREAK_ALL);
}

static void begin_stop(struct life *l, const char *why)
{
	if (l->stop_at_ms)
		return;
	log_debug("stopping: %s", why);
	l->stop_at_ms = clock_ms() + GRACE_MS;
	atomic_store(&l->srv.stopping, true);
	http_quiesce(&l->srv);
	shell_signal_all(&l->srv, SIGTERM);
	bash_signal_all(&l->srv, SIGTERM);
	ev_timer_init(&l->poll, on_stop_poll, 0, 0.01);
	l->poll.data = l;
	ev_timer_start(l->srv.loop, &l->poll);
}

static void on_signal(struct ev_loop *loop, ev_signal *s, int revents)
{
	begin_stop(s->data, "signal");
}

static void on_lifeline(struct ev_loop *loop, ev_io *io, int revents)
{
	ev_io_stop(loop, io);
	begin_stop(io->data, "the supervisor is gone");
}

static void on_idle(struct ev_loop *loop, ev_timer *t, int revents)
{
	struct life *l = t->data;
	int64_t limit_ms = (int64_t)l->srv.cfg->idle_exit_s * 1000;

	if (http_active(&l->srv) || commands_run(&l->srv))
		l->last_use_ms = clock_ms();
	else if (clock_ms() - l->last_use_ms >= limit_ms)
		begin_stop(l, "idle");
}

/*
 * Under a supervisor the lifeline is the only way to stop: a command in the
 * sandbox could send signals as well.
 */
static void watch_for_stop(struct life *l)
{
	struct ev_loop *loop = l->srv.loop;

	if (l->srv.cfg->lifeline_fd >= 0) {
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_IGN);
		ev_io_init(&l->lifeline, on_lifeline, l->srv.cfg->lifeline_fd, EV_READ);
		l->lifeline.data = l;
		ev_io_start(loop, &l->lifeline);
	} else {
		ev_signal_init(&l->sigterm, on_signal, SIGTERM);
		ev_signal_init(&l->sigint, on_signal, SIGINT);
		l->sigterm.data = l->sigint.data = l;
		ev_signal_start(loop, &l->sigterm);
		ev_signal_start(loop, &l->sigint);
	}
	if (l->srv.cfg->idle_exit_s) {
		ev_timer_init(&l->idle, on_idle, 0.25, 0.25);
		l->idle.data = l;
		ev_timer_start(loop, &l->idle);
	}
}

static int start_parts(struct server *srv, int listen_fd)
{
	int r = workers_new(srv->loop, WORKERS, &srv->workers);

	if (r == 0)
		r = shell_start(srv);
	if (r == 0)
		r = bash_start(srv);
	if (r == 0)
		r = watch_start(srv);
	if (r == 0)
		r = crowd_start(srv);
	if (r == 0)
		r = http_start(srv, listen_fd);
	return r;
}

static void stop_parts(struct server *srv)
{
	crowd_stop(srv);
	shell_signal_all(srv, SIGKILL);
	bash_signal_all(srv, SIGKILL);
	http_abandon(srv);
	workers_free(srv->workers);
	http_stop(srv);
	watch_stop(srv);
	bash_stop(srv);
	shell_stop(srv);
}

int server_run(const struct config *cfg, int listen_fd, void (*ready)(void *ctx), void *ctx)
{
	struct life l = { .srv.cfg = cfg };
	int r;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	reap_init(cfg);
	if (chdir(cfg->home) < 0)
		return -errno;
	l.srv.loop = ev_default_loop(EVFLAG_NOENV);
	if (!l.srv.loop)
		return -ENOMEM;
	l.last_use_ms = clock_ms();
	r = start_parts(&l.srv, listen_fd);
	if (r == 0) {
		watch_for_stop(&l);
		ready(ctx);
		ev_run(l.srv.loop, 0);
	}
	stop_parts(&l.srv);
	reap_all(cfg);
	ev_loop_destroy(l.srv.loop);
	return r;
}

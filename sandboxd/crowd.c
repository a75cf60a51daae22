/*
 * See crowd.h. Counts the processes of our pid namespace while there are any.
 * When they are too many, or fill the limit for good so that nobody else can
 * work, it kills them all: with a single kill(-1), which no fork can slip
 * past. Must not know sessions; those see their commands end. Loop thread.
 */
#include "crowd.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>

#include "clock.h"
#include "log.h"

#define EVERY_S 0.25

enum {
	SLACK = 64,           /* beyond the limit: where only we enforce it */
	NEARLY = 16,          /* below the limit: the server's threads count as well */
	FULL_MAX_MS = 2000,   /* how long the sandbox may stay full */
	REFUSED_FOR_MS = 600, /* a failed fork means "full" for that long */
};

struct crowd {
	ev_timer timer;
	struct server *srv;
	int64_t full_since_ms; /* 0 = is not */
	int64_t refused_ms;    /* when a fork of ours failed last; 0 = never */
};

/* Processes beside us, counted up to limit. */
static uint64_t count_others(uint64_t limit)
{
	DIR *dir = opendir("/proc");
	uint64_t n = 0;
	struct dirent *e;

	if (!dir)
		return 0;
	while (n <= limit && (e = readdir(dir)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			n++;
	closedir(dir);
	return n ? n - 1 : 0;
}

/* Whether it is full now, and has been for long. */
static bool full_too_long(struct crowd *c, uint64_t others)
{
	uint64_t limit = c->srv->cfg->max_processes;
	int64_t now = clock_ms();
	bool refused = c->refused_ms && now - c->refused_ms < REFUSED_FOR_MS;

	if (!refused && others + MIN(NEARLY, limit / 4) < limit) {
		c->full_since_ms = 0;
		return false;
	}
	if (!c->full_since_ms)
		c->full_since_ms = now;
	return now - c->full_since_ms >= FULL_MAX_MS;
}

static void look(struct ev_loop *loop, ev_timer *w, int revents UNUSED)
{
	struct crowd *c = w->data;
	uint64_t limit = c->srv->cfg->max_processes + SLACK;
	uint64_t others = count_others(limit + 1);

	if (full_too_long(c, others) || others > limit) {
		log_warn("too many processes: killing them all");
		kill(-1, SIGKILL);
		c->full_since_ms = c->refused_ms = 0;
	} else if (!others) {
		ev_timer_stop(loop, w);
	}
}

int crowd_start(struct server *srv)
{
	struct crowd *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->srv = srv;
	ev_timer_init(&c->timer, look, EVERY_S, EVERY_S);
	c->timer.data = c;
	srv->crowd = c;
	return 0;
}

void crowd_stop(struct server *srv)
{
	if (!srv->crowd)
		return;
	ev_timer_stop(srv->loop, &srv->crowd->timer);
	free(STEAL(srv->crowd));
}

void crowd_watch(const struct server *srv, bool started)
{
	const struct config *cfg = srv->cfg;

	/* Only as PID 1 does kill(-1) mean everybody but us, and only ours. */
	if (!srv->crowd || !cfg->own_pidns || !cfg->max_processes || getpid() != 1)
		return;
	srv->crowd->refused_ms = started ? 0 : clock_ms();
	if (!ev_is_active(&srv->crowd->timer)) {
		ev_timer_set(&srv->crowd->timer, EVERY_S, EVERY_S);
		ev_timer_start(srv->loop, &srv->crowd->timer);
	}
}

/*
 * See child.h. libev's ev_child waits for any pid, so orphans that fall to us
 * as PID 1 or subreaper are reaped along the way. It works on the default
 * loop only. spawn() and child_watch() run in the same iteration of the loop,
 * so the end of a child cannot slip through between them.
 */
#include "child.h"

#include "util.h"

static void child_ended(struct ev_loop *loop, ev_child *w, int revents UNUSED)
{
	struct child *c = w->data;

	ev_child_stop(loop, w);
	c->fn(c, w->rstatus);
}

void child_watch(struct ev_loop *loop, struct child *c, pid_t pid,
		 void (*fn)(struct child *c, int wstatus))
{
	c->pid = pid;
	c->fn = fn;
	ev_child_init(&c->watcher, child_ended, pid, 0);
	c->watcher.data = c;
	ev_child_start(loop, &c->watcher);
}

void child_forget(struct ev_loop *loop, struct child *c)
{
	ev_child_stop(loop, &c->watcher);
}

/* Requests that take operations on a sandbox. Loop thread only. */
#include "task.h"

#include <errno.h>
#include <string.h>

static void free_task(struct task *t)
{
	entries_release(&t->entries);
	node_unref(t->node);
	node_unref(t->other);
	free(t->name);
	free(t->name2);
	free(t->target);
	free(t);
}

static void on_interrupt(struct parked *p)
{
	struct task *t = CONTAINER_OF(p, struct task, parked);

	if (remote_is_busy(&t->remote))
		remote_cancel(&t->remote);
	else
		parked_err(p, -EINTR); /* it waits for something else: see task_goes_on() */
}

bool task_goes_on(struct task *t)
{
	if (t->parked.req)
		return true;
	free_task(t);
	return false;
}

struct task *task_new(struct fs *fs, fuse_req_t req, struct node *n)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	t->fs = fs;
	t->node = node_ref(n);
	parked_init(&t->parked, fs, req, on_interrupt);
	return t;
}

void task_drop(struct task *t)
{
	free_task(t);
}

void task_end(struct task *t, int err)
{
	parked_err(&t->parked, err);
	free_task(t);
}

bool task_name(struct task *t, char **where, const char *name)
{
	*where = strdup(name);
	if (*where)
		return true;
	task_end(t, -ENOMEM);
	return false;
}

static void on_done(struct remote *r, int err)
{
	struct task *t = task_of(r);

	if (t->changes)
		r->thread->writes++;
	t->done(t, err);
	if (!remote_is_busy(r) && !t->parked.req)
		free_task(t);
}

void task_begin(struct task *t, void (*start)(struct remote *r, struct sandbox *sb),
		void (*done)(struct task *t, int err))
{
	t->done = done;
	if (t->changes)
		t->node->thread->writes++;
	t->writes = t->node->thread->writes;
	remote_begin(&t->remote, t->node->thread, start, on_done);
}

bool task_is_current(const struct task *t)
{
	return t->writes + (t->changes ? 1 : 0) == t->node->thread->writes;
}

char *task_path(struct task *t, const struct node *n, const char *name, struct sandbox *sb)
{
	char *path;
	int r = node_path(n, name, sb, &path);

	if (r == 0)
		return path;
	remote_fail(&t->remote, r);
	return NULL;
}

void task_lstat(struct remote *r, struct sandbox *sb)
{
	struct task *t = task_of(r);
	char *path CLEANUP_FREE = task_path(t, t->node, t->name, sb);

	if (path)
		sandbox_lstat(sb, &r->call, path, &t->attr);
}

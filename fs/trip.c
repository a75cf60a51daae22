/* Requests that take operations on a sandbox. Loop thread only. */
#include "trip.h"

#include <errno.h>
#include <string.h>

#include "salvage.h"
#include "stage.h"

enum { LOOKS_MAX = 4 };

static void free_trip(struct trip *t)
{
	for (size_t i = 0; i < t->held_count; i++) {
		if (t->held[i]->stage)
			stage_resume(t->held[i]->stage);
		node_unref(t->held[i]);
	}
	free(t->held);
	salvage_let_go(t->hold);
	salvage_let_go(t->hold2);
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
	struct trip *t = CONTAINER_OF(p, struct trip, parked);

	t->interrupted = true;
	if (remote_is_busy(&t->remote))
		remote_cancel(&t->remote);
	else
		parked_err(p, -EINTR); /* it waits for something else: see trip_goes_on() */
}

bool trip_goes_on(struct trip *t)
{
	if (t->parked.req)
		return true;
	free_trip(t);
	return false;
}

struct trip *trip_new(struct fs *fs, fuse_req_t req, struct node *n)
{
	struct trip *t = calloc(1, sizeof(*t));

	if (!t) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	t->fs = fs;
	t->node = node_ref(n);
	parked_init(&t->parked, fs, req, on_interrupt);
	return t;
}

void trip_drop(struct trip *t)
{
	free_trip(t);
}

void trip_end(struct trip *t, int err)
{
	parked_err(&t->parked, err);
	free_trip(t);
}

bool trip_name(struct trip *t, char **where, const char *name)
{
	*where = strdup(name);
	if (*where)
		return true;
	trip_end(t, -ENOMEM);
	return false;
}

/* What it changes: before, so that nobody takes what was asked for until then for the truth
 * afterwards, and after, for what was asked for meanwhile. */
static void note(struct trip *t)
{
	enum note what = t->name2 ? NOTE_TREE : t->name ? NOTE_NAME : NOTE_ATTR;

	t->node->thread->writes++;
	node_note(t->node, t->name, what);
	if (t->other)
		node_note(t->other, t->name2, t->name2 ? NOTE_TREE : NOTE_ATTR);
}

static void on_done(struct remote *r, int err)
{
	struct trip *t = trip_of(r);

	if (t->changes) {
		bool alone = trip_is_current(t);

		r->thread->changing--;
		note(t);
		/* What it saw of its own change is not older than that. */
		if (alone)
			t->asked.seq = node_moment(r->thread).seq;
		t->writes = r->thread->writes;
	}
	t->done(t, err);
	trip_settle(t);
}

void trip_settle(struct trip *t)
{
	if (!remote_is_busy(&t->remote) && !t->parked.req)
		free_trip(t);
}

void trip_begin(struct trip *t, void (*start)(struct remote *r, struct sandbox *sb),
		void (*done)(struct trip *t, int err))
{
	t->done = done;
	if (t->changes) {
		note(t);
		t->node->thread->changing++;
	}
	t->asked = node_moment(t->node->thread);
	t->writes = t->node->thread->writes;
	remote_begin(&t->remote, t->node->thread, start, on_done);
	if (t->interrupted)
		remote_cancel(&t->remote);
}

bool trip_is_current(const struct trip *t)
{
	return t->asked.epoch == t->node->thread->epoch &&
	       !node_was_noted(t->node, t->name, t->asked.seq);
}

bool trip_looks_again(struct trip *t)
{
	return t->writes != t->node->thread->writes && !trip_is_current(t) && !t->interrupted &&
	       ++t->looks < LOOKS_MAX;
}

char *trip_path(struct trip *t, const struct node *n, const char *name, struct sandbox *sb)
{
	char *path;
	int r = node_path(n, name, sb, &path);

	if (r == 0)
		return path;
	remote_fail(&t->remote, r);
	return NULL;
}

void trip_lstat(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, t->name, sb);

	if (path)
		sandbox_lstat(sb, &r->call, path, &t->attr);
}

/*
 * Gathers what there is to show: the provider's tenants, the mount's own records
 * of them, what is staged. Knows nothing of how it is shown. Loop thread only.
 */
#include "snapshot.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "node.h"
#include "stage.h"
#include "thread.h"

void snapshot_release(struct snapshot *s)
{
	for (size_t i = 0; i < s->npending; i++)
		free(s->pending[i].path);
	free(s->pending);
	free(s->threads);
	tenant_list_release(&s->tenants);
	*s = (struct snapshot){ 0 };
}

/* ---- what is staged ---- */

static int add_pending(struct snapshot *s, const struct node *n, uint64_t bytes)
{
	struct pending *more;
	char *path = NULL;
	int r;

	r = node_rel_path(n, &path);
	if (r == -ESTALE) /* its name is gone: shown as it was */
		path = strdup(n->name);
	if (!path)
		return -ENOMEM;
	more = reallocarray(s->pending, s->npending + 1, sizeof(*more));
	if (!more) {
		free(path);
		return -ENOMEM;
	}
	s->pending = more;
	s->pending[s->npending++] = (struct pending){ n->thread, path, bytes };
	s->pending_bytes += bytes;
	return 0;
}

static int gather_pending(struct snapshot *s, const struct thread *only)
{
	struct node *n, *next;
	uint64_t bytes;
	int r = 0;

	HASH_ITER (by_ino, s->fs->nodes, n, next) {
		if (r < 0 || !n->stage || (only && n->thread != only))
			continue;
		bytes = stage_pending(n->stage);
		if (bytes > 0)
			r = add_pending(s, n, bytes);
	}
	return r;
}

/* ---- threads ---- */

/* Names are looked up all the time: one that was only asked for is none. */
static bool is_shown(const struct thread_view *v)
{
	const struct thread *t = v->thread;

	return v->tenant->state != TENANT_COLD || v->tenant->leases > 0 ||
	       (t && (t->known || t->open_files > 0 || t->last_error));
}

static void add_thread(struct snapshot *s, const struct tenant_status *tenant, bool anyway)
{
	struct thread_view v = { .tenant = tenant };
	const struct thread *t = NULL;

	if (strcmp(tenant->user, s->fs->opt->user) == 0)
		t = v.thread = thread_find(s->fs, tenant->thread);
	if (!anyway && !is_shown(&v))
		return;
	if (t && t->last_error &&
	    (!tenant->last_error || t->last_error_wall >= tenant->error_wall)) {
		v.error = t->last_error;
		v.message = t->last_message;
		v.error_wall = t->last_error_wall;
	} else {
		v.error = tenant->last_error;
		v.message = tenant->last_message;
		v.error_wall = tenant->error_wall;
	}
	s->states[tenant->state]++;
	s->threads[s->count++] = v;
}

/* ---- all of it ---- */

static int gather(struct snapshot *s, const struct thread *only)
{
	int r;

	if (only) {
		s->tenants.items = calloc(1, sizeof(*s->tenants.items));
		if (!s->tenants.items)
			return -ENOMEM;
		r = tenant_status(only->tenant, &s->tenants.items[0]);
		s->tenants.count = r == 0;
	} else {
		r = provider_status(s->fs->provider, &s->tenants);
	}
	if (r < 0)
		return r;
	s->threads = calloc(s->tenants.count + 1, sizeof(*s->threads));
	if (!s->threads)
		return -ENOMEM;
	for (size_t i = 0; i < s->tenants.count; i++)
		add_thread(s, &s->tenants.items[i], only);
	return gather_pending(s, only);
}

int snapshot_take(struct snapshot *s, struct fs *fs, const struct thread *only)
{
	int r;

	*s = (struct snapshot){
		.fs = fs,
		.now_wall = clock_wall(),
		.uptime_s = (double)(clock_ms() - fs->started_ms) / 1e3,
	};
	r = gather(s, only);
	if (r < 0)
		snapshot_release(s);
	return r;
}

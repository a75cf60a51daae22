/*
 * Gathers what there is to show: the provider's tenants, the mount's own records
 * of them, what is staged. Knows nothing of how it is shown. Loop thread only.
 */
#include "snapshot.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "node.h"
#include "remote.h"
#include "salvage.h"
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

/* Takes the path, also when it fails. */
static struct pending *add_pending(struct snapshot *s, const struct thread *thread, char *path,
				   uint64_t bytes)
{
	struct pending *more = NULL;

	if (path)
		more = reallocarray(s->pending, s->npending + 1, sizeof(*more));
	if (!more) {
		free(path);
		return NULL;
	}
	s->pending = more;
	more = &s->pending[s->npending++];
	*more = (struct pending){ .thread = thread, .path = path, .bytes = bytes };
	s->pending_bytes += bytes;
	return more;
}

static int add_stage(struct snapshot *s, const struct node *n)
{
	uint64_t bytes = stage_pending(n->stage);
	struct pending *p;
	char *path = NULL;

	if (bytes == 0)
		return 0;
	if (node_rel_path(n, &path) == -ESTALE) /* its name is gone: shown as it was */
		path = strdup(n->name);
	p = add_pending(s, n->thread, path, bytes);
	if (!p)
		return -ENOMEM;
	p->error = stage_tell(n->stage, &p->state, p->record);
	return 0;
}

static int add_salvage(struct snapshot *s, const struct salvage_view *v)
{
	static const char *const states[] = {
		[SALVAGE_WAITS] = "waits",
		[SALVAGE_RUNS] = "uploading",
		[SALVAGE_STUCK] = "refused",
		[SALVAGE_NO_THREAD] = "no thread",
	};
	struct pending *p =
		add_pending(s, thread_find(s->fs, v->thread), strdup(v->path), v->bytes);

	if (!p)
		return -ENOMEM;
	strcpy(p->record, v->name);
	p->state = states[v->state];
	p->error = v->error;
	p->left = v->thread;
	return 0;
}

static int gather_pending(struct snapshot *s, const struct thread *only)
{
	const struct salvage *v = NULL;
	struct salvage_view view;
	struct node *n, *next;
	int r = 0;

	HASH_ITER (by_ino, s->fs->nodes, n, next) {
		if (r == 0 && n->stage && (!only || n->thread == only))
			r = add_stage(s, n);
	}
	while (r == 0 && (v = salvage_next(s->fs, v, &view))) {
		if (!only || strcmp(view.thread, only->id) == 0)
			r = add_salvage(s, &view);
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
	/* Nobody is to reach what was given up. */
	if (t && remote_errno(v.error) == ENOTCONN && v.error_wall <= t->given_up_wall) {
		v.error = 0;
		v.message = NULL;
		v.error_wall = 0;
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

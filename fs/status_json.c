/* The status for programs. What cannot be told is null. Loop thread only. */
#include <string.h>
#include <utlist.h>

#include "clock.h"
#include "coherence.h"
#include "jsonw.h"
#include "node.h"
#include "snapshot.h"
#include "staging.h"
#include "status_text.h"
#include "thread.h"
#include "traffic.h"

static void put_time(struct jw *w, const char *key, double wall)
{
	char text[TEXT_TIME];

	text_time(wall, text);
	jw_kstr(w, key, text[0] ? text : NULL);
}

static void put_text(struct jw *w, const char *key, const char *text)
{
	jw_kstr(w, key, text && text[0] ? text : NULL);
}

static void put_error(struct jw *w, const struct thread_view *v)
{
	if (!v->error) {
		jw_knull(w, "last_error");
		return;
	}
	jw_key(w, "last_error");
	jw_obj(w);
	jw_kstr(w, "errno", text_errno(v->error));
	jw_kstr(w, "message", v->message);
	put_time(w, "at", v->error_wall);
	jw_obj_end(w);
}

static void put_file(struct jw *w, const struct pending *p)
{
	jw_obj(w);
	if (p->left)
		jw_kstr(w, "thread", p->left);
	jw_kstr(w, "path", p->path);
	jw_kint(w, "bytes", (int64_t)p->bytes);
	jw_kstr(w, "state", p->state);
	jw_kstr(w, "error", p->error ? text_errno(p->error) : NULL);
	put_text(w, "record", p->record);
	jw_obj_end(w);
}

static void put_pending(struct jw *w, const struct snapshot *s, const struct thread *t)
{
	jw_key(w, "pending");
	jw_arr(w);
	for (size_t i = 0; t && i < s->npending; i++) {
		if (s->pending[i].thread == t)
			put_file(w, &s->pending[i]);
	}
	jw_arr_end(w);
}

/* What an earlier daemon left; of threads that nobody has used yet, too. */
static void put_recovery(struct jw *w, const struct snapshot *s)
{
	jw_key(w, "recovery");
	jw_arr(w);
	for (size_t i = 0; i < s->npending; i++) {
		if (s->pending[i].left)
			put_file(w, &s->pending[i]);
	}
	jw_arr_end(w);
}

static void put_transfer(struct jw *w, const struct transfer *x)
{
	int64_t ms = MAX(clock_ms() - x->since_ms, 1);
	uint64_t rate = x->moved * 1000 / (uint64_t)ms;
	char *path CLEANUP_FREE = NULL;

	jw_obj(w);
	jw_kstr(w, "direction", x->up ? "up" : "down");
	jw_kstr(w, "path", node_rel_path(x->node, &path) == 0 ? path : x->node->name);
	jw_kint(w, "moved", (int64_t)x->moved);
	if (x->total >= 0)
		jw_kint(w, "total", x->total);
	else
		jw_knull(w, "total");
	jw_kint(w, "bytes_per_s", (int64_t)rate);
	if (x->total >= 0 && rate > 0 && (uint64_t)x->total >= x->moved)
		jw_kint(w, "seconds_left", (int64_t)(((uint64_t)x->total - x->moved) / rate));
	else
		jw_knull(w, "seconds_left");
	jw_obj_end(w);
}

static void put_transfers(struct jw *w, const struct thread *t)
{
	const struct transfer *x;

	jw_key(w, "transfers");
	jw_arr(w);
	if (t) {
		DL_FOREACH (t->transfers, x)
			put_transfer(w, x);
	}
	jw_arr_end(w);
}

static void put_breaker(struct jw *w, const struct breaker_status *b)
{
	jw_key(w, "breaker");
	jw_obj(w);
	jw_kstr(w, "state", breaker_state_name(b->state));
	put_time(w, "since", b->since_wall);
	jw_kint(w, "opened", (int64_t)b->opened);
	jw_kint(w, "refused", (int64_t)b->refused);
	jw_kint(w, "probes", (int64_t)b->probes);
	jw_obj_end(w);
}

static void put_thread(struct jw *w, const struct snapshot *s, const struct thread_view *v)
{
	const struct tenant_status *t = v->tenant;

	jw_obj(w);
	jw_kstr(w, "thread", t->thread);
	jw_kstr(w, "user", t->user);
	jw_kstr(w, "sandbox_id", t->id);
	jw_kstr(w, "state", tenant_state_name(t->state));
	jw_kint(w, "leases", t->leases);
	jw_kint(w, "open_files", v->thread ? v->thread->open_files : 0);
	jw_kstr(w, "url", t->url);
	jw_kstr(w, "backend", s->fs->backend);
	put_text(w, "dialect", t->dialect);
	if (t->pid > 0)
		jw_kint(w, "pid", t->pid);
	else
		jw_knull(w, "pid");
	jw_kbool(w, "ours", t->ours);
	put_time(w, "created_at", t->created_wall);
	put_time(w, "last_activity", t->used_wall);
	jw_kint(w, "starts", t->starts);
	jw_kint(w, "restarts", t->restarts);
	put_breaker(w, &t->breaker);
	jw_kstr(w, "watch", v->thread ? coherence_state(v->thread) : "off");
	put_error(w, v);
	put_pending(w, s, v->thread);
	put_transfers(w, v->thread);
	jw_obj_end(w);
}

void status_json_thread(const struct snapshot *s, const struct thread_view *v, struct buf *to)
{
	struct jw w;

	jw_init(&w, to);
	put_thread(&w, s, v);
	buf_putc(to, '\n');
}

static void put_cache(struct jw *w, const struct fs *fs)
{
	jw_key(w, "cache");
	jw_obj(w);
	for (unsigned k = 0; k < ASKED_KINDS; k++) {
		if (!asked_is_cacheable(k))
			continue;
		jw_key(w, asked_name(k));
		jw_obj(w);
		jw_kint(w, "hits", (int64_t)fs->asked.hits[k]);
		jw_kint(w, "misses", (int64_t)fs->asked.misses[k]);
		jw_obj_end(w);
	}
	jw_obj_end(w);
}

static void put_histogram(struct jw *w, const char *key, const struct histogram *h)
{
	jw_key(w, key);
	jw_arr(w);
	for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
		jw_int(w, (int64_t)h->counts[i]);
	jw_arr_end(w);
}

/* Each bucket for itself, so that a program can subtract what was before. */
static void put_latency(struct jw *w, const struct fs *fs)
{
	const struct traffic *t = loop_traffic(fs->loop);
	struct histogram requests = { 0 }, sandbox = { 0 };

	for (unsigned k = 0; k < ASKED_KINDS; k++)
		histogram_merge(&requests, &fs->asked.times[ASKED_SANDBOX][k]);
	for (unsigned k = 0; k < TRAFFIC_KINDS; k++)
		if (k != TRAFFIC_WATCH) /* which waits, that is its job */
			histogram_merge(&sandbox, &t->times[k]);
	jw_key(w, "latency");
	jw_obj(w);
	jw_key(w, "bounds_s");
	jw_arr(w);
	for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++)
		jw_num(w, histogram_bounds[i]);
	jw_arr_end(w);
	put_histogram(w, "requests", &requests);
	put_histogram(w, "sandbox", &sandbox);
	jw_obj_end(w);
}

static void put_totals(struct jw *w, const struct snapshot *s)
{
	const struct fs *fs = s->fs;
	const struct fs_totals *t = &fs->totals;

	jw_key(w, "totals");
	jw_obj(w);
	jw_kint(w, "threads", (int64_t)s->count);
	jw_key(w, "states");
	jw_obj(w);
	for (unsigned i = 0; i < TENANT_STATES; i++)
		jw_kint(w, tenant_state_name(i), s->states[i]);
	jw_obj_end(w);
	jw_kint(w, "open_files", t->open_files);
	jw_kint(w, "requests", (int64_t)t->requests);
	jw_kint(w, "errors", (int64_t)t->errors);
	jw_kint(w, "interrupted", (int64_t)t->interrupted);
	jw_kint(w, "waiting", t->parked);
	jw_kint(w, "remote", (int64_t)t->remote);
	jw_kint(w, "remote_failed", (int64_t)t->remote_failed);
	jw_kint(w, "retried", (int64_t)t->retried);
	jw_kint(w, "bytes_down", (int64_t)t->bytes_down);
	jw_kint(w, "bytes_up", (int64_t)t->bytes_up);
	jw_kint(w, "bytes_read", (int64_t)t->bytes_read);
	jw_kint(w, "bytes_written", (int64_t)t->bytes_written);
	jw_kint(w, "names_dropped", (int64_t)t->names_dropped);
	jw_kint(w, "links_refused", (int64_t)t->links_refused);
	jw_kint(w, "commands", (int64_t)t->commands);
	jw_kint(w, "pending_files", (int64_t)s->npending);
	jw_kint(w, "pending_bytes", (int64_t)s->pending_bytes);
	jw_kint(w, "refused_records", s->fs->staging ? s->fs->staging->refused : 0);
	jw_kint(w, "cache_used", (int64_t)fs->cache_used);
	jw_kint(w, "cache_size", (int64_t)fs->opt->cache_size);
	jw_kint(w, "memory_used", (int64_t)fs->memory_used);
	jw_kint(w, "memory", (int64_t)fs->opt->memory);
	put_cache(w, fs);
	put_latency(w, fs);
	jw_obj_end(w);
}

void status_json(const struct snapshot *s, struct buf *to)
{
	const struct options *o = s->fs->opt;
	struct jw w;

	jw_init(&w, to);
	jw_obj(&w);
	jw_kstr(&w, "version", THREADFS_VERSION);
	jw_kstr(&w, "source", o->source_text);
	jw_kstr(&w, "mountpoint", o->mountpoint);
	jw_kstr(&w, "backend", s->fs->backend);
	jw_kstr(&w, "user", o->user);
	jw_kint(&w, "pid", getpid());
	put_time(&w, "started_at", s->fs->started_wall);
	jw_knum(&w, "uptime_s", s->uptime_s);
	jw_key(&w, "threads");
	jw_arr(&w);
	for (size_t i = 0; i < s->count; i++)
		put_thread(&w, s, &s->threads[i]);
	jw_arr_end(&w);
	put_recovery(&w, s);
	put_totals(&w, s);
	jw_obj_end(&w);
	buf_putc(to, '\n');
}

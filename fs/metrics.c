/*
 * The mount's numbers for Prometheus. Names stay as they are once they are
 * out: dashboards depend on them. Loop thread only.
 */
#include <string.h>

#include "notifier.h"
#include "snapshot.h"
#include "status_text.h"
#include "thread.h"
#include "traffic.h"

static void print_mount(const struct snapshot *s, struct buf *to)
{
	static const char build[] = "threadfs_build_info";

	metric_begin(to, build, METRIC_GAUGE, "Always 1; the version is a label.");
	metric_value(to, build, 1, "version", THREADFS_VERSION, "backend", s->fs->backend ?: "",
		     NULL);
	metric(to, "threadfs_start_time_seconds", METRIC_GAUGE, "When it was mounted, Unix time.",
	       s->fs->started_wall);
	metric(to, "threadfs_uptime_seconds", METRIC_GAUGE, "Time since it was mounted.",
	       s->uptime_s);
}

static void print_totals(struct fs *fs, struct buf *to)
{
	const struct fs_totals *t = &fs->totals;
	const struct {
		const char *name, *help;
		uint64_t value;
	} counters[] = {
		{ "threadfs_requests_total", "Requests from the kernel.", t->requests },
		{ "threadfs_request_errors_total", "Of these, answered with an error.", t->errors },
		{ "threadfs_requests_interrupted_total", "Of these, interrupted by the caller.",
		  t->interrupted },
		{ "threadfs_remote_operations_total", "Operations on sandboxes.", t->remote },
		{ "threadfs_remote_failures_total", "Of these, failed.", t->remote_failed },
		{ "threadfs_remote_retries_total", "Tried again with another sandbox.",
		  t->retried },
		{ "threadfs_download_bytes_total", "File content from sandboxes.", t->bytes_down },
		{ "threadfs_upload_bytes_total", "File content to sandboxes.", t->bytes_up },
		{ "threadfs_read_bytes_total", "Read through the mount.", t->bytes_read },
		{ "threadfs_written_bytes_total", "Written through the mount.", t->bytes_written },
		{ "threadfs_commands_total", "Commands run in sandboxes.", t->commands },
		{ "threadfs_watch_events_total", "Changes that sandboxes told of.", t->events },
		{ "threadfs_watches_lost_total", "Times that a watch of a sandbox was lost.",
		  t->watches_lost },
		{ "threadfs_watch_floods_total",
		  "Times that a sandbox told of more changes than could be looked at.", t->floods },
		{ "threadfs_notifications_total", "What the kernel was told not to believe.",
		  notifier_sent(fs) },
		{ "threadfs_names_dropped_total", "Names from sandboxes that no file can have.",
		  t->names_dropped },
		{ "threadfs_listings_total", "Directories that were listed, one at a time.",
		  t->listings },
		{ "threadfs_walks_total", "Trees of directories that were listed in one request.",
		  t->walks },
		{ "threadfs_prefetches_total",
		  "What is near a root that was listed before anybody asked.", t->prefetches },
		{ "threadfs_links_refused_total", "Links that would lead out of their thread.",
		  t->links_refused },
		{ "threadfs_ahead_files_total", "Small files fetched ahead of their readers.",
		  t->ahead_fetched },
		{ "threadfs_ahead_files_used_total", "Of these, opened.", t->ahead_used },
		{ "threadfs_ahead_files_wasted_total",
		  "Of these, given up: changed, not to be had, or not opened in time.",
		  t->ahead_wasted },
	};

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		metric(to, counters[i].name, METRIC_COUNTER, counters[i].help,
		       (double)counters[i].value);
	metric(to, "threadfs_open_files", METRIC_GAUGE, "Open files.", t->open_files);
	metric(to, "threadfs_waiting_requests", METRIC_GAUGE, "Requests not answered yet.",
	       t->parked);
}

static void print_room(const struct snapshot *s, struct buf *to)
{
	const struct fs *fs = s->fs;

	metric(to, "threadfs_cache_used_bytes", METRIC_GAUGE, "In the cache directory.",
	       (double)fs->cache_used);
	metric(to, "threadfs_cache_limit_bytes", METRIC_GAUGE, "What may be there.",
	       (double)fs->opt->cache_size);
	metric(to, "threadfs_memory_used_bytes", METRIC_GAUGE,
	       "In read windows, and of small files.", (double)fs->memory_used);
	metric(to, "threadfs_memory_limit_bytes", METRIC_GAUGE, "What may be there.",
	       (double)fs->opt->memory);
	metric(to, "threadfs_listed_directories", METRIC_GAUGE,
	       "Directories whose names are known.", fs->shelf_count);
	metric(to, "threadfs_listing_bytes", METRIC_GAUGE, "The memory that takes.",
	       (double)fs->shelf_used);
	metric(to, "threadfs_pending_files", METRIC_GAUGE,
	       "Files with content that no sandbox has confirmed.", (double)s->npending);
	metric(to, "threadfs_pending_bytes", METRIC_GAUGE, "The size of that content.",
	       (double)s->pending_bytes);
}

/* ---- how long it took, and what was known ---- */

/* What never happened is left out: it would be most of the text. */
static void print_request_times(const struct fs *fs, struct buf *to)
{
	static const char name[] = "threadfs_request_duration_seconds";

	metric_begin(to, name, METRIC_HISTOGRAM,
		     "How long the kernel waited for an answer; commands and uploads included.");
	for (unsigned c = 0; c < ASKED_CLASSES; c++) {
		for (unsigned k = 0; k < ASKED_KINDS; k++) {
			const struct histogram *h = &fs->asked.times[c][k];

			if (h->count > 0)
				metric_histogram(to, name, h,
						 (const char *const[]){ "operation", asked_name(k),
									"class",
									asked_class_name(c) });
		}
	}
}

static void print_sandbox_times(struct fs *fs, struct buf *to)
{
	static const char name[] = "threadfs_sandbox_request_duration_seconds";
	static const char failures[] = "threadfs_sandbox_request_failures_total";
	const struct traffic *t = loop_traffic(fs->loop);

	metric_begin(to, name, METRIC_HISTOGRAM,
		     "How long HTTP requests took, by what was asked for; waits for places and "
		     "readers included.");
	for (unsigned k = 0; k < TRAFFIC_KINDS; k++)
		if (t->times[k].count > 0)
			metric_histogram(to, name, &t->times[k],
					 (const char *const[]){ "request", traffic_name(k),
								"backend", fs->backend ?: "" });
	metric_begin(to, failures, METRIC_COUNTER,
		     "Of these, without an answer, or with one of status 500 and above.");
	for (unsigned k = 0; k < TRAFFIC_KINDS; k++)
		metric_value(to, failures, (double)t->failed[k], "request", traffic_name(k), NULL);
}

static void print_cache_use(const struct fs *fs, struct buf *to)
{
	static const char hits[] = "threadfs_cache_hits_total";
	static const char misses[] = "threadfs_cache_misses_total";

	metric_begin(to, hits, METRIC_COUNTER,
		     "Requests about files of sandboxes that were answered at once, from what is "
		     "known.");
	for (unsigned k = 0; k < ASKED_KINDS; k++)
		if (asked_is_cacheable(k))
			metric_value(to, hits, (double)fs->asked.hits[k], "operation",
				     asked_name(k), NULL);
	metric_begin(to, misses, METRIC_COUNTER, "Those that had to wait for the sandbox.");
	for (unsigned k = 0; k < ASKED_KINDS; k++)
		if (asked_is_cacheable(k))
			metric_value(to, misses, (double)fs->asked.misses[k], "operation",
				     asked_name(k), NULL);
}

/* ---- per thread ---- */

static double leases_of(const struct thread_view *v)
{
	return v->tenant->leases;
}

static double open_files_of(const struct thread_view *v)
{
	return v->thread ? v->thread->open_files : 0;
}

static double starts_of(const struct thread_view *v)
{
	return v->tenant->starts;
}

static double restarts_of(const struct thread_view *v)
{
	return v->tenant->restarts;
}

static double unanswered_of(const struct thread_view *v)
{
	return v->tenant->breaker.state == BREAKER_OPEN;
}

static double opened_of(const struct thread_view *v)
{
	return (double)v->tenant->breaker.opened;
}

static double refused_of(const struct thread_view *v)
{
	return (double)v->tenant->breaker.refused;
}

static double probes_of(const struct thread_view *v)
{
	return (double)v->tenant->breaker.probes;
}

static double used_of(const struct thread_view *v)
{
	return v->tenant->used_wall;
}

static void print_threads(const struct snapshot *s, struct buf *to)
{
	static const struct {
		const char *name, *help;
		enum metric_type type;
		double (*value)(const struct thread_view *v);
	} metrics[] = {
		{ "threadfs_thread_leases", "Leases on the thread's sandbox.", METRIC_GAUGE,
		  leases_of },
		{ "threadfs_thread_open_files", "Open files of the thread.", METRIC_GAUGE,
		  open_files_of },
		{ "threadfs_thread_starts_total", "Sandboxes started or found for the thread.",
		  METRIC_COUNTER, starts_of },
		{ "threadfs_thread_restarts_total",
		  "Of these, because the one before was found dead.", METRIC_COUNTER, restarts_of },
		{ "threadfs_thread_breaker_open",
		  "1 while the sandbox is known not to answer and operations fail at once.",
		  METRIC_GAUGE, unanswered_of },
		{ "threadfs_thread_breaker_opened_total", "Times that this was found out.",
		  METRIC_COUNTER, opened_of },
		{ "threadfs_thread_breaker_refused_total",
		  "Operations that failed at once because of it.", METRIC_COUNTER, refused_of },
		{ "threadfs_thread_breaker_probes_total",
		  "Times that a sandbox was asked whether it answers.", METRIC_COUNTER, probes_of },
		{ "threadfs_thread_last_activity_seconds",
		  "When it was used last, Unix time; 0: never.", METRIC_GAUGE, used_of },
	};
	static const char threads[] = "threadfs_threads";

	metric_begin(to, threads, METRIC_GAUGE, "Threads by the state of their sandbox.");
	for (unsigned i = 0; i < TENANT_STATES; i++)
		metric_value(to, threads, s->states[i], "state", tenant_state_name(i), NULL);
	for (size_t m = 0; m < ARRAY_SIZE(metrics); m++) {
		metric_begin(to, metrics[m].name, metrics[m].type, metrics[m].help);
		for (size_t i = 0; i < s->count; i++) {
			const struct thread_view *v = &s->threads[i];

			metric_value(to, metrics[m].name, metrics[m].value(v), "thread",
				     v->tenant->thread, "user", v->tenant->user, NULL);
		}
	}
}

void metrics_print(const struct snapshot *s, struct buf *to)
{
	print_mount(s, to);
	print_totals(s->fs, to);
	print_room(s, to);
	print_request_times(s->fs, to);
	print_sandbox_times(s->fs, to);
	print_cache_use(s->fs, to);
	print_threads(s, to);
}

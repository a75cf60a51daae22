/* Uploads and downloads in flight, as people want to see them. Loop thread only. */
#include "transfer.h"

#include <inttypes.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "node.h"
#include "status_text.h"
#include "thread.h"

void transfer_begin(struct transfer *x, struct thread *t, struct node *n, bool up, int64_t total)
{
	*x = (struct transfer){
		.thread = t, .node = n, .up = up, .total = total, .since_ms = clock_ms()
	};
	DL_APPEND(t->transfers, x);
}

static void tell_log(const struct transfer *x)
{
	const struct thread *t = x->thread;
	char *path CLEANUP_FREE = NULL;

	log_topic(LOG_FILE, "thread %s: sandbox %s: %s of %s: %" PRIu64 " bytes in %lld ms", t->id,
		  tenant_id(t->tenant), x->up ? "upload" : "download",
		  node_rel_path(x->node, &path) == 0 ? path : x->node->name, x->moved,
		  (long long)(clock_ms() - x->since_ms));
}

void transfer_moved(struct transfer *x, size_t bytes)
{
	struct fs_totals *totals = &x->thread->fs->totals;

	x->moved += bytes;
	*(x->up ? &totals->bytes_up : &totals->bytes_down) += bytes;
}

void transfer_end(struct transfer *x)
{
	if (!x->thread)
		return;
	if (log_topics_on & LOG_FILE)
		tell_log(x);
	DL_DELETE(x->thread->transfers, x);
	x->thread = NULL;
}

static void print_one(const struct transfer *x, struct buf *to)
{
	int64_t ms = MAX(clock_ms() - x->since_ms, 1);
	uint64_t rate = x->moved * 1000 / (uint64_t)ms;
	char *path CLEANUP_FREE = NULL;

	buf_puts(to, x->up ? "up\t" : "down\t");
	/* A name may hold anything: what would break the line or the terminal is escaped. */
	text_escape(to, node_rel_path(x->node, &path) == 0 ? path : x->node->name, 0);
	buf_printf(to, "\t%" PRIu64, x->moved);
	if (x->total >= 0)
		buf_printf(to, "\t%" PRId64, x->total);
	else
		buf_puts(to, "\t-");
	buf_printf(to, "\t%" PRIu64, rate);
	if (x->total >= 0 && rate > 0 && (uint64_t)x->total >= x->moved)
		buf_printf(to, "\t%" PRIu64 "\n", ((uint64_t)x->total - x->moved) / rate);
	else
		buf_puts(to, "\t-\n");
}

void transfer_print(const struct thread *t, struct buf *to)
{
	const struct transfer *x;

	DL_FOREACH (t->transfers, x)
		print_one(x, to);
}

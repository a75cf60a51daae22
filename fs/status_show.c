/* The status for people. Loop thread only. */
#include <inttypes.h>
#include <string.h>
#include <utlist.h>

#include "coherence.h"
#include "snapshot.h"
#include "staging.h"
#include "status_text.h"
#include "thread.h"

enum { PENDING_SHOWN = 20 };

/* ---- one line per thread ---- */

static void put_ago(struct table *table, const struct snapshot *s, double wall)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	if (wall > 0)
		text_duration(&text, s->now_wall - wall);
	else
		buf_putc(&text, '-');
	table_take(table, &text);
}

/* now_wall: for how old it is; 0: that is told elsewhere. */
static void put_error(struct table *table, const struct thread_view *v, double now_wall)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	if (v->error)
		buf_puts(&text, text_errno(v->error));
	if (v->error && now_wall > 0) {
		buf_putc(&text, ' ');
		text_duration(&text, now_wall - v->error_wall);
		buf_puts(&text, " ago");
	}
	if (v->error && v->message)
		buf_printf(&text, ": %s", v->message);
	table_cell(table, text.data);
}

/* Another user's sandbox can be here: adopted, because nobody else has it. */
static void put_name(struct table *table, const struct snapshot *s, const struct tenant_status *t)
{
	struct buf text CLEANUP_BUF = BUF_INIT(0);

	if (strcmp(t->user, s->fs->opt->user) != 0)
		buf_printf(&text, "%s/", t->user);
	buf_puts(&text, t->thread);
	table_cell(table, text.data);
}

/* What people want to know first of one that does not answer. */
static const char *state_of(const struct tenant_status *t)
{
	return t->breaker.state == BREAKER_OPEN ? "no-answer" : tenant_state_name(t->state);
}

static int show_threads(const struct snapshot *s, struct buf *to)
{
	static const char *const heads[] = { "THREAD",  "STATE",     "LEASES", "OPEN",
					     "SANDBOX", "LAST-USED", "ERROR" };
	struct table table CLEANUP_TABLE = { .columns = ARRAY_SIZE(heads) };

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
		table_cell(&table, heads[i]);
	for (size_t i = 0; i < s->count; i++) {
		const struct thread_view *v = &s->threads[i];

		put_name(&table, s, v->tenant);
		table_cell(&table, state_of(v->tenant));
		table_number(&table, v->tenant->leases);
		table_number(&table, v->thread ? v->thread->open_files : 0);
		table_cell(&table, v->tenant->url ? v->tenant->id : NULL);
		put_ago(&table, s, v->tenant->used_wall);
		put_error(&table, v, s->now_wall);
	}
	return table_print(&table, to);
}

/* ---- totals ---- */

static void show_states(const struct snapshot *s, struct buf *to)
{
	const char *before = ": ";

	buf_printf(to, "\n%zu thread%s", s->count, s->count == 1 ? "" : "s");
	for (unsigned i = 0; i < TENANT_STATES; i++) {
		if (s->states[i] == 0)
			continue;
		buf_printf(to, "%s%u %s", before, s->states[i], tenant_state_name(i));
		before = ", ";
	}
	buf_putc(to, '\n');
}

static void show_use(struct buf *to, const char *what, uint64_t used, uint64_t of, const char *end)
{
	buf_printf(to, "%s ", what);
	text_size(to, used);
	buf_puts(to, " of ");
	text_size(to, of);
	buf_puts(to, end);
}

static void show_bytes(struct buf *to, const char *what, uint64_t bytes, const char *end)
{
	buf_printf(to, "%s ", what);
	text_size(to, bytes);
	buf_puts(to, end);
}

/* thread: whose it is; NULL: that is clear. */
static void show_one_pending(struct buf *to, const struct pending *p, const char *thread)
{
	buf_puts(to, "  ");
	if (thread) {
		text_escape(to, thread, 0);
		buf_putc(to, '/');
	}
	text_escape(to, p->path, 0);
	buf_puts(to, "  ");
	text_size(to, p->bytes);
	buf_printf(to, "  %s", p->state);
	if (p->error)
		buf_printf(to, " (%s)", text_errno(p->error));
	if (p->record[0])
		buf_printf(to, "  " LEDGER_DIR "/%s", p->record);
	buf_putc(to, '\n');
}

static void show_pending_of(const struct snapshot *s, const struct thread *t, struct buf *to)
{
	for (size_t i = 0; i < s->npending; i++) {
		if (s->pending[i].thread == t)
			show_one_pending(to, &s->pending[i], NULL);
	}
}

/* Of all threads: first those that failed, or were left by an earlier daemon; many are cut short.
 */
static void show_pending(const struct snapshot *s, struct buf *to)
{
	size_t shown = 0;

	for (int calm = 0; calm < 2; calm++) {
		for (size_t i = 0; i < s->npending && shown <= PENDING_SHOWN; i++) {
			const struct pending *p = &s->pending[i];

			if ((!p->error && !p->left) != calm)
				continue;
			if (shown++ == PENDING_SHOWN)
				buf_puts(to, "  …\n");
			else
				show_one_pending(to, p, p->left ?: p->thread->id);
		}
	}
}

static void show_totals(const struct snapshot *s, struct buf *to)
{
	const struct fs *fs = s->fs;
	const struct fs_totals *t = &fs->totals;

	show_states(s, to);
	buf_printf(to,
		   "requests %" PRIu64 " (%" PRIu64 " failed, %" PRIu64
		   " interrupted, %u waiting), open files %u, commands %" PRIu64 "\n",
		   t->requests, t->errors, t->interrupted, t->parked, t->open_files, t->commands);
	show_bytes(to, "read", t->bytes_read, ", ");
	show_bytes(to, "written", t->bytes_written, "; ");
	show_bytes(to, "downloaded", t->bytes_down, ", ");
	show_bytes(to, "uploaded", t->bytes_up, "\n");
	if (s->npending > 0) {
		buf_printf(to, "not in the sandbox yet: %zu file%s, ", s->npending,
			   s->npending == 1 ? "" : "s");
		text_size(to, s->pending_bytes);
		buf_puts(to, ", kept in ");
		text_escape(to, fs->opt->cache ?: "", 0);
		buf_puts(to, "/" LEDGER_DIR "\n");
		show_pending(s, to);
	}
	if (fs->staging && fs->staging->refused > 0)
		buf_printf(to, "records that cannot be read: %u (threadfs recover)\n",
			   fs->staging->refused);
	show_use(to, "cache", fs->cache_used, fs->opt->cache_size, ", ");
	show_use(to, "memory", fs->memory_used, fs->opt->memory, "\n");
	buf_puts(to, "threadfs " THREADFS_VERSION ": ");
	text_escape(to, fs->opt->source_text ?: "", 0);
	buf_puts(to, " on ");
	text_escape(to, fs->opt->mountpoint ?: "", 0);
	buf_puts(to, ", up ");
	text_duration(to, s->uptime_s);
	buf_putc(to, '\n');
}

void status_show(const struct snapshot *s, struct buf *to)
{
	int r = show_threads(s, to);

	to->error = to->error ?: r;
	show_totals(s, to);
}

/* ---- one thread ---- */

static void put_line(struct table *table, const char *key, const char *value)
{
	table_cell(table, key);
	table_cell(table, value);
}

static void put_count(struct table *table, const char *key, uint64_t n)
{
	table_cell(table, key);
	table_number(table, n);
}

static void put_time(struct table *table, const char *key, double wall)
{
	char text[TEXT_TIME];

	put_line(table, key, text_time(wall, text));
}

static void put_lines(struct table *table, const struct snapshot *s, const struct thread_view *v)
{
	const struct tenant_status *t = v->tenant;

	put_line(table, "thread", t->thread);
	put_line(table, "user", t->user);
	put_line(table, "state", tenant_state_name(t->state));
	put_count(table, "leases", t->leases);
	put_count(table, "open files", v->thread ? v->thread->open_files : 0);
	put_line(table, "sandbox", t->id);
	put_line(table, "backend", s->fs->backend);
	put_line(table, "url", t->url);
	put_line(table, "dialect", t->dialect);
	if (t->pid > 0)
		put_count(table, "pid", (uint64_t)t->pid);
	put_time(table, "started", t->created_wall);
	put_time(table, "last used", t->used_wall);
	put_count(table, "restarts", t->restarts);
	put_line(table, "watch", v->thread ? coherence_state(v->thread) : "off");
	if (t->breaker.state == BREAKER_OPEN) {
		put_time(table, "no answer", t->breaker.since_wall);
		put_count(table, "  refused", t->breaker.refused);
	}
	table_cell(table, "last error");
	put_error(table, v, 0);
	if (v->error)
		put_time(table, "  at", v->error_wall);
}

void status_show_thread(const struct snapshot *s, const struct thread_view *v, struct buf *to)
{
	struct table table CLEANUP_TABLE = { .columns = 2 };
	int r;

	put_lines(&table, s, v);
	r = table_print(&table, to);
	to->error = to->error ?: r;
	for (size_t i = 0; v->thread && i < s->npending; i++) {
		if (s->pending[i].thread != v->thread)
			continue;
		buf_puts(to, "\nnot in the sandbox yet:\n");
		show_pending_of(s, v->thread, to);
		break;
	}
	if (v->thread && v->thread->transfers) {
		buf_puts(to, "\ntransfers:\n");
		transfer_print(v->thread, to);
	}
}

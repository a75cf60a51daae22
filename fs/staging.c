/* The mount's side of what outlives the daemon: see staging.h. */
#include "staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <utlist.h>

#include "clock.h"
#include "log.h"
#include "salvage.h"
#include "stage_i.h"

enum { WAKE_AFTER_MS = 2000 }; /* who failed a moment ago would fail again */

/* The same place has the same text, whoever mounts it. */
char *staging_source(const struct options *o)
{
	const char *what = o->source == SOURCE_EMBEDDED ? o->data : o->url;
	char *text;

	if (asprintf(&text, "%s%s", o->source == SOURCE_EMBEDDED ? "embedded:" : "",
		     what ?: o->source_text ?: "") < 0)
		return NULL;
	return text;
}

int staging_open(struct fs *fs, struct buf *why)
{
	struct staging *g = calloc(1, sizeof(*g));
	int r = g ? 0 : -ENOMEM;

	if (r == 0) {
		g->fs = fs;
		ledger_boot(g->boot);
		g->source = staging_source(fs->opt);
		g->dir = g->source ? ledger_open(fs->cache_dir, true) : -ENOMEM;
		r = MIN(g->dir, 0);
		fs->staging = g;
	}
	if (r == 0)
		r = salvage_gather(fs);
	if (r < 0)
		buf_printf(why, "cannot use %s/" LEDGER_DIR ": %s", fs->opt->cache,
			   r == -EPERM   ? "others than you may write there"
			   : r == -ELOOP ? "it is not a directory"
					 : strerrordesc_np(-r));
	return r;
}

void staging_free(struct staging *g)
{
	if (!g)
		return;
	g->fs->staging = NULL;
	if (g->sweep.data)
		ev_timer_stop(g->fs->ev, &g->sweep);
	salvage_release(g);
	if (g->dir >= 0) {
		(void)!fsync(g->dir);
		close(g->dir);
	}
	free(g->source);
	free(g);
}

int staging_shelve(struct stage *s)
{
	struct spool *c = s->appending ? &s->queue : &s->spool;
	struct staging *g = s->fs->staging;
	char name[LEDGER_NAME + 1];
	int r;

	if (!g || s->orphan || !stage_is_dirty(s) || s->sent >= s->content)
		return 0;
	r = stage_note_now(s);
	if (!c->entry || !c->entry->name[0])
		return r < 0 ? r : -EIO;
	strcpy(name, c->entry->name);
	if (s->fs->ending)
		stage_note_durable(s);
	ledger_entry_keep(STEAL(c->entry));
	flock(c->fd, LOCK_UN);
	if (!s->fs->ending)
		salvage_add(s->fs, name);
	if (r == 0 && s->partly)
		r = -E2BIG;
	return r;
}

void staging_wake(struct thread *t, bool returned)
{
	struct staging *g = t->fs->staging;
	struct stage *s, *next;

	if (!g || t->fs->ending)
		return;
	DL_FOREACH_SAFE2(g->dirty, s, next, book_next)
	{
		if (s->n->thread == t && remote_is_unreachable(s->last_error) &&
		    (returned || clock_ms() - s->failed_ms >= WAKE_AFTER_MS))
			stage_wake(s);
	}
	salvage_wake(t);
}

static void wake_all(struct staging *g)
{
	struct stage *s, *next;

	DL_FOREACH_SAFE2(g->dirty, s, next, book_next)
	stage_wake(s);
}

void staging_last_try(struct fs *fs, int64_t until_ms)
{
	if (!fs->staging)
		return;
	fs->staging->last_try_ms = until_ms;
	wake_all(fs->staging); /* what failed before is salvage's then, which looks first */
	salvage_last_try(fs);
}

void staging_retry(struct fs *fs)
{
	if (!fs->staging)
		return;
	wake_all(fs->staging);
	salvage_retry(fs);
}

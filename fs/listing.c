/* One listing of a directory, kept for a moment. Loop thread only. */
#include "listing.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "thread.h"
#include "trip.h"

enum { FRESH_MS = 1000 };

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct entries *e = ctx;

	return strcmp(e->v[*(const uint32_t *)a].name, e->v[*(const uint32_t *)b].name);
}

int listing_new(struct entries *e, uint64_t epoch, struct listing **ret)
{
	struct listing *l = calloc(1, sizeof(*l));
	uint32_t *order = calloc(e->n + 1, sizeof(*order));

	if (!l || !order) {
		free(l);
		free(order);
		entries_release(e);
		return -ENOMEM;
	}
	for (size_t i = 0; i < e->n; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, e->n, sizeof(*order), by_name, e);
	l->refs = 1;
	l->entries = *e;
	l->order = order;
	l->made_ms = clock_ms();
	l->epoch = epoch;
	*e = (struct entries){ 0 };
	*ret = l;
	return 0;
}

struct listing *listing_ref(struct listing *l)
{
	l->refs++;
	return l;
}

void listing_unref(struct listing *l)
{
	if (!l || --l->refs > 0)
		return;
	entries_release(&l->entries);
	free(l->order);
	free(l);
}

const struct entry *listing_find(const struct listing *l, const char *name)
{
	size_t low = 0, high = l->entries.n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct entry *e = &l->entries.v[l->order[mid]];
		int c = strcmp(name, e->name);

		if (c == 0)
			return e;
		if (c < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

void listing_update(struct listing *l, const char *name, const struct attr *attr)
{
	const struct entry *e = listing_find(l, name);

	if (e)
		l->entries.v[e - l->entries.v].attr = *attr;
}

bool listing_is_fresh(const struct listing *l, const struct thread *t)
{
	return l->epoch == t->epoch && (t->watched || clock_ms() - l->made_ms < FRESH_MS);
}

void listing_start(struct remote *r, struct sandbox *sb)
{
	struct trip *t = trip_of(r);
	char *path CLEANUP_FREE = trip_path(t, t->node, NULL, sb);

	entries_release(&t->entries);
	if (path)
		sandbox_list(sb, &r->call, path, 1, &t->entries);
}

int listing_take(struct trip *t, int err, struct listing **ret)
{
	struct node *n = t->node;

	if (err == -ENOENT && n != n->thread->root)
		return -ESTALE;
	if (err < 0)
		return err;
	t->fs->totals.names_dropped += t->entries.dropped;
	err = listing_new(&t->entries, t->asked.epoch, ret);
	if (err < 0)
		return err;
	(*ret)->made_ms = t->asked.ms;
	if (trip_is_current(t)) {
		listing_unref(n->listing);
		n->listing = listing_ref(*ret);
	}
	return err;
}

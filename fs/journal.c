/* What changed in a sandbox, and when; see the header. Loop thread only. */
#include "journal.h"

#include <string.h>

bool path_is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return len == 0 ||
	       (strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/'));
}

uint64_t journal_now(const struct journal *j)
{
	return j ? j->count : 0;
}

void journal_note(struct journal *j, const char *path, enum note what)
{
	struct journal_note *n;

	if (!j)
		return;
	n = &j->v[j->count++ % JOURNAL_LEN];
	free(n->path);
	n->path = strdup(path);
	n->what = what;
	if (!n->path)
		j->lost = j->count;
}

static uint64_t first_kept(const struct journal *j)
{
	return MAX(j->lost, j->count > JOURNAL_LEN ? j->count - JOURNAL_LEN : 0);
}

bool journal_has(const struct journal *j, const char *path, uint64_t since)
{
	if (!j)
		return false;
	if (since < first_kept(j))
		return true;
	for (uint64_t i = since; i < j->count; i++) {
		const struct journal_note *n = &j->v[i % JOURNAL_LEN];

		if (strcmp(n->path, path) == 0 ||
		    (n->what == NOTE_TREE && path_is_below(path, n->path)))
			return true;
	}
	return false;
}

bool journal_each(const struct journal *j, uint64_t since,
		  void (*fn)(void *ctx, const char *path, enum note what), void *ctx)
{
	if (!j)
		return true;
	if (since < first_kept(j))
		return false;
	for (uint64_t i = since; i < j->count; i++)
		fn(ctx, j->v[i % JOURNAL_LEN].path, j->v[i % JOURNAL_LEN].what);
	return true;
}

void journal_free(struct journal *j)
{
	for (size_t i = 0; j && i < JOURNAL_LEN; i++)
		free(j->v[i].path);
	free(j);
}

/*
 * What changed in a thread's sandbox, by path, in the order in which we heard of
 * it: our own changes (when they begin, and when they are done) and events of the watch.
 *
 * It settles the races of answers: whoever asks the sandbox takes the number of
 * that moment, and what he is told of a name is only kept if nothing was noted of
 * that name since. So a busy sandbox spoils what is asked about the names that it
 * changes, and nothing else. The journal forgets what is old; a question that has been under way
 * for longer than that is answered "changed". Loop thread only.
 */
#pragma once

#include "util.h"

enum { JOURNAL_LEN = 1024 };

enum note {
	NOTE_ATTR, /* it has other attributes */
	NOTE_NAME, /* it came, went, or is another file */
	NOTE_TREE, /* and all that is below it */
};

struct journal_note {
	char *path; /* below the thread's root */
	enum note what;
};

struct journal {
	struct journal_note v[JOURNAL_LEN];
	uint64_t count; /* of all that were ever noted */
	uint64_t lost;  /* everything up to here was forgotten */
};

/* Both are fine with NULL: then there is nothing in it, and nothing is noted. */
uint64_t journal_now(const struct journal *j);
void journal_note(struct journal *j, const char *path, enum note what);
/* Whether something was noted of that path, or of all below one above it, since then. */
bool journal_has(const struct journal *j, const char *path, uint64_t since);
/* Each note since then, oldest first: fn(ctx, path, what). false: some were forgotten. */
bool journal_each(const struct journal *j, uint64_t since,
		  void (*fn)(void *ctx, const char *path, enum note what), void *ctx) MUST_CHECK;
void journal_free(struct journal *j);

/* Whether path is dir or lies below it; "" is above all. */
bool path_is_below(const char *path, const char *dir);

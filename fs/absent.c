/* See absent.h. A set of names per directory, with one bound for the mount. */
#include "absent.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "notifier.h"

enum { ABSENT_MAX = 65536 };

struct absent {
	UT_hash_handle hh;
	char name[];
};

static void drop(struct node *dir, struct absent *a)
{
	HASH_DEL(dir->absent, a);
	free(a);
	dir->fs->absent_count--;
}

bool absent_add(struct node *dir, const char *name)
{
	size_t len = strlen(name);
	struct absent *a = NULL;

	dir->told_ms = clock_ms();
	HASH_FIND(hh, dir->absent, name, len, a);
	if (a)
		return true;
	if (dir->fs->absent_count >= ABSENT_MAX)
		absent_void(dir); /* the kernel may have forgotten them long ago */
	if (dir->fs->absent_count >= ABSENT_MAX)
		return false;
	a = calloc(1, sizeof(*a) + len + 1);
	if (!a)
		return false;
	memcpy(a->name, name, len);
	HASH_ADD(hh, dir->absent, name[0], len, a);
	if (!HASH_TOOK(hh, a)) {
		free(a);
		return false;
	}
	dir->fs->absent_count++;
	return true;
}

static struct absent *find(const struct node *dir, const char *name)
{
	struct absent *a = NULL;

	HASH_FIND(hh, dir->absent, name, strlen(name), a);
	return a;
}

bool absent_has(const struct node *dir, const char *name)
{
	return find(dir, name);
}

bool absent_take(struct node *dir, const char *name)
{
	struct absent *a = find(dir, name);

	if (!a)
		return false;
	drop(dir, a);
	return true;
}

void absent_void(struct node *dir)
{
	struct absent *a, *next;
	char name[NAME_BYTES_MAX + 1];

	HASH_ITER (hh, dir->absent, a, next) {
		snprintf(name, sizeof(name), "%s", a->name);
		notify_entry(dir->fs, dir->ino, name); /* takes it */
	}
}

void absent_free(struct node *dir)
{
	struct absent *a, *next;

	HASH_ITER (hh, dir->absent, a, next)
		drop(dir, a);
}

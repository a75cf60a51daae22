/* See check.h. */
#include "check.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

/* Whether s has word at its start; case does not matter. */
static bool starts(const char *s, size_t len, const char *word)
{
	for (; *word; word++, s++, len--)
		if (len == 0 || tolower((unsigned char)*s) != tolower((unsigned char)*word))
			return false;
	return true;
}

/* "[Errno 2]", also with zeros before the 2. */
static bool starts_number(const char *s, size_t len)
{
	static const char mark[] = "[Errno ";
	size_t i = sizeof(mark) - 1;

	if (!starts(s, len, mark))
		return false;
	while (i < len && s[i] == '0')
		i++;
	return starts(s + i, len - i, "2]");
}

bool says_missing(const char *text, size_t len)
{
	static const char *const words[] = {
		"no such file or directory", "does not exist", "not found", "not_found", "enoent",
		"dangling symlink"
	};

	for (; len > 0; text++, len--) {
		if (starts_number(text, len))
			return true;
		for (size_t i = 0; i < ARRAY_SIZE(words); i++)
			if (starts(text, len, words[i]))
				return true;
	}
	return false;
}

static bool is_time(const struct timespec *ts)
{
	return ts->tv_nsec >= 0 && ts->tv_nsec < 1000000000;
}

void check_attr(const struct attr *a)
{
	mode_t type = a->mode & S_IFMT;

	assert(type == S_IFREG || type == S_IFDIR || type == S_IFLNK || type == S_IFIFO ||
	       type == S_IFSOCK || type == S_IFBLK || type == S_IFCHR);
	assert((a->mode & ~(mode_t)(S_IFMT | 07777)) == 0);
	assert(a->size <= INT64_MAX && a->blocks <= INT64_MAX);
	assert(is_time(&a->mtime) && is_time(&a->ctime));
}

/* Not by name_is_component(), which is what is being checked. */
static void check_name(const char *name, bool recursive)
{
	assert(strlen(name) <= PATH_BYTES_MAX);
	assert(recursive || !strchr(name, '/'));
	for (;;) {
		size_t len = strcspn(name, "/");

		assert(len > 0 && len <= NAME_BYTES_MAX);
		assert(!(len == 1 && name[0] == '.') && !(len == 2 && memcmp(name, "..", 2) == 0));
		if (!name[len])
			return;
		name += len + 1;
	}
}

void check_entries(const struct entries *e, bool recursive)
{
	assert(e->n <= ENTRIES_MAX && e->n <= e->cap);
	for (size_t i = 0; i < e->n; i++) {
		const struct entry *entry = &e->v[i];

		check_name(entry->name, recursive);
		check_attr(&entry->attr);
		if (!entry->target)
			continue;
		assert(S_ISLNK(entry->attr.mode) && !entry->attr.partial);
		assert(entry->target[0] && strlen(entry->target) <= PATH_BYTES_MAX);
	}
}

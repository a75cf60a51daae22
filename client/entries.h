/*
 * Attributes of files and lists of them, and how they are read from what a
 * sandbox sends. The sender is hostile: names that are not single path
 * components (or, in a recursive listing, chains of them) are dropped and
 * counted, numbers out of range and cut records end the decoding.
 * Pure; no threads.
 */
#pragma once

#include <sys/stat.h>
#include <time.h>

#include "json.h"
#include "util.h"

struct attr {
	mode_t mode; /* type and permissions */
	uint64_t size, blocks, ino, dev;
	uint32_t nlink, uid, gid;
	struct timespec mtime, ctime;
	/* From /v1/file/list: only type, permissions, size and the seconds of mtime are
	 * known, the rest is 0. */
	bool partial;
};

struct entry {
	char *name; /* one component; in a recursive listing the path below the directory */
	/* Of a symbolic link, in the block of name; NULL otherwise, when partial, and if
	 * it could not be read. */
	char *target;
	struct attr attr;
};

struct entries {
	struct entry *v;
	size_t n, cap;
	size_t dropped;  /* entries that were refused: bad names, overlong targets, unknown types */
	bool truncated;  /* the server or our cap left some out */
	bool incomplete; /* some directory below could not be read */
	unsigned depth;  /* sandbox_list_near(): so many levels; 0: not asked so */
};

enum {
	ENTRIES_MAX = 1000000,
	NAME_BYTES_MAX = 255,
	PATH_BYTES_MAX = 4095,
	/* What sandbox_list_near() does not enter: so many bytes are at least a hundred names, and
	 * not many more, on the usual file systems. */
	NEAR_BYTES_MAX = 4096,
	NEAR_LINKS_MAX = 2 + 32,
};

/* Whether sandbox_list_near() enters a directory (if that is not too deep). */
static inline bool attr_is_near(const struct attr *a)
{
	return S_ISDIR(a->mode) && a->size <= NEAR_BYTES_MAX && a->nlink <= NEAR_LINKS_MAX;
}

void entries_release(struct entries *e);
#define CLEANUP_ENTRIES CLEANUP(entries_release)

/*
 * The output of find with ENTRIES_FIND_FORMAT: for each file the fields
 * "%y %m %s %b %i %D %n %U %G %T@ %C@", a blank, the path below the directory
 * (%P), NUL, the link target (%l), NUL. recursive: %P may hold slashes.
 * Appends to e (which the caller releases also on failure).
 * Returns 0, -EBADMSG (not that format), -ENOMEM, -E2BIG (more than ENTRIES_MAX).
 */
#define ENTRIES_FIND_FORMAT "%y %m %s %b %i %D %n %U %G %T@ %C@ %P\\0%l\\0"
/* The same in lines, for names and targets without newlines. */
#define ENTRIES_LINES_FORMAT "%y %m %s %b %i %D %n %U %G %T@ %C@ %P\\n%l\\n"
/* For several starting points, ./a ./b: the whole path, whose "./" is not taken over. */
#define ENTRIES_TREES_FORMAT "%y %m %s %b %i %D %n %U %G %T@ %C@ %p\\0%l\\0"
int entries_parse_find(struct entries *e, const char *bytes, size_t len, bool recursive) MUST_CHECK;
/* The bytes of that output that the first max entries have, complete or not. */
size_t entries_find_len(const char *bytes, size_t len, size_t max);

/*
 * `data` of /v1/file/list for the directory dir: attributes marked partial.
 * A date without a zone is taken as UTC. Returns as above.
 */
int entries_parse_json(struct entries *e, const cJSON *data, const char *dir,
		       bool recursive) MUST_CHECK;

/*
 * One line of stat with ATTR_STAT_FORMAT (hexadecimal mode first, times with
 * nine digits). Returns 0 or -EBADMSG.
 */
#define ATTR_STAT_FORMAT "%f %s %b %i %d %h %u %g %.9Y %.9Z"
int attr_parse_stat(const char *text, size_t len, struct attr *ret) MUST_CHECK;

struct fs_stat {
	uint64_t block_size, blocks, free, available, files, files_free, name_max;
};
/* One line of stat -f with this format. Returns 0 or -EBADMSG. */
#define FS_STAT_FORMAT "%S %b %f %a %c %d %l"
int fs_stat_parse(const char *text, size_t len, struct fs_stat *ret) MUST_CHECK;

/* The first line: a mode as stat's %a prints it, octal. Returns 0 or -EBADMSG. */
int mode_parse(const char *text, size_t len, mode_t *ret) MUST_CHECK;

/*
 * dd's last line: "5 bytes copied, …" or "1048576 bytes (1.0 MB, …) copied, …".
 * Returns 0 or -EBADMSG.
 */
int copied_parse(const char *text, size_t len, uint64_t *ret) MUST_CHECK;

/*
 * Whether name is one path component that a directory can hold: not "", ".",
 * "..", no '/' or NUL, at most NAME_BYTES_MAX bytes.
 */
bool name_is_component(const char *name, size_t len);
/* Whether path is a chain of these, one slash between any two, at most PATH_BYTES_MAX bytes. */
bool name_is_chain(const char *path, size_t len);

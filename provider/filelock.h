/*
 * Locks between processes, by flock(2) on a file. The kernel gives them up when
 * the process dies. Files may be removed by whoever holds them exclusively;
 * somebody who waits on a removed one notices. Nothing here waits. Any thread.
 */
#pragma once

#include "util.h"

/*
 * Opens (makes, 0600) and locks the file; shared or exclusive. Returns a
 * descriptor (close-on-exec) to be closed, -EAGAIN if somebody else has it, or
 * another negative errno. Never follows a symbolic link.
 */
int filelock_try(const char *path, bool exclusive) MUST_CHECK;
/* As filelock_try(), but -ENOENT if there is no file. */
int filelock_try_existing(const char *path, bool exclusive) MUST_CHECK;
/* The same for a name in an open directory; made if missing and wanted. */
int filelock_try_at(int dir, const char *name, bool exclusive, bool make) MUST_CHECK;
/* Whether the locked file is the one that has this name now. */
bool filelock_is_at(int fd, int dir, const char *name) MUST_CHECK;
/*
 * Changes a lock that we have; -EAGAIN: others have it, and we keep the one we
 * had, except that one who gets between leaves us none (-ENOLCK, fd is to be
 * closed).
 */
int filelock_change(int fd, bool exclusive) MUST_CHECK;
/* With an exclusive lock: removes the file, then gives up the lock. */
void filelock_remove(const char *path, int fd);
void filelock_remove_at(int dir, const char *name, int fd);

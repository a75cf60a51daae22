/*
 * Where things lie under the data root, as deer-flow lays them out:
 *
 *	DATA/users/USER/threads/THREAD/user-data/{workspace,uploads,outputs}
 *	DATA/users/USER/threads/THREAD/acp-workspace
 *
 * Threads from before deer-flow knew users are in DATA/threads/THREAD; they are
 * the user `default`'s, as long as he has no other one of that name, and stay there.
 *
 * Ids must have been checked (ident.h). Functions that make or remove touch
 * the disk: for workers and start-up. Any thread.
 */
#pragma once

#include "util.h"

/* For the caller to free; NULL if there is no memory. Look at the disk for where it is. */
char *paths_thread_dir(const char *data, const char *user, const char *thread);
char *paths_user_data(const char *data, const char *user, const char *thread);
/* Where a user's threads are; and where else, or NULL. */
char *paths_threads(const char *data, const char *user);
char *paths_legacy_threads(const char *data, const char *user);

/*
 * Makes the thread's directories where they are missing. The data root is 0700
 * when we make it; the directories that the sandbox writes to are 0777 (it may
 * run as another user). Nothing is followed out of the data root: a symbolic
 * link in place of a directory is -ELOOP. Only inside user-data, where commands
 * may do as they like, whatever stands in a directory's place stays untouched.
 */
int paths_make_thread(const char *data, const char *user, const char *thread) MUST_CHECK;
/*
 * The same for who hands their paths to somebody that follows links, as a container engine
 * does, and with root's rights: a link or a file in any directory's place is -ELOOP or -ENOTDIR.
 */
int paths_make_thread_to_bind(const char *data, const char *user, const char *thread) MUST_CHECK;
/*
 * Removes them if there is nothing in them, nor beside them in the thread's
 * directory: 0, -ENOTEMPTY (and nothing is removed), -ENOENT. paths_is_empty()
 * only looks.
 */
int paths_is_empty(const char *data, const char *user, const char *thread) MUST_CHECK;
int paths_remove_thread(const char *data, const char *user, const char *thread) MUST_CHECK;

/* mkdir -p, each with this mode. */
int paths_make(const char *path, mode_t mode) MUST_CHECK;

/*
 * Whether an open directory is a place for what others must not touch: ours, and nobody
 * else may make or rename names in it. 0 or -EPERM.
 */
int paths_check_own(int fd) MUST_CHECK;

/*
 * $XDG_RUNTIME_DIR if it is the user's own, and nobody else can replace what he makes there;
 * alone: nor make anything there, so what is found there is his. Else NULL: su and sudo -E
 * leave us with another user's.
 */
const char *paths_own_runtime(bool alone);

/*
 * Where sockets and locks live: $XDG_RUNTIME_DIR/threadfs if that directory is
 * the user's own (above); /run/threadfs for root; else /tmp/threadfs-UID.
 * Made 0700; -EPERM if it is somebody else's. For the caller to free.
 */
int paths_runtime(char **ret) MUST_CHECK;

/* ---- for what else lies below the data root ---- */

/* All return a descriptor (close-on-exec) or a negative errno; -ELOOP for a link. */
int paths_open_dir(int at, const char *name) MUST_CHECK;
/* Made if it is missing. ret_made may be NULL. */
int paths_make_dir(int at, const char *name, mode_t mode, bool *ret_made) MUST_CHECK;
/* The data root, which may be reached through links. */
int paths_open_data(const char *data, bool make) MUST_CHECK;

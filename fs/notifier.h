/*
 * Tells the kernel that what it has cached is not true any more, from threads
 * of its own: the kernel may make a notification wait for a request that only the
 * loop can answer. The functions are for the loop's thread unless they say otherwise;
 * they never wait. What is told twice before it was sent is sent once, and only
 * what the kernel may have is sent: nodes that it counts, and names that it was told are absent
 * (absent.h). So the queue is bounded by what it was ever given.
 *
 * The race: an answer that was given just before may not be in the kernel's cache yet
 * when the notification arrives, and would come after it. So what was told about in the last
 * moments (node->told_ms) is notified twice, the second time a moment later. Of an answer
 * that is given afterwards its owner knows whether it may be kept at all (trip_is_current()).
 */
#pragma once

#include "fs.h"

struct notifier;

/* With the session mounted and its first request answered; fs->notifier. */
int notifier_start(struct fs *fs) MUST_CHECK;
/*
 * Nothing is sent any more; returns when its threads have ended. Not on the loop's thread, which
 * must go on answering meanwhile; before the session ends. Returns 0, or -ETIMEDOUT if the kernel
 * still holds one after a while: then the session has to be aborted (session_abort())
 * and this called again. NULL in fs->notifier is fine, there and below (tests without a mount).
 */
int notifier_stop(struct fs *fs) MUST_CHECK;

/* Attributes of an inode; with data also its pages (of a directory: what readdir has cached). */
void notify_inode(struct fs *fs, fuse_ino_t ino, bool data);
/* A name in a directory, whether it was there or not: it is looked up before it is used again. */
void notify_entry(struct fs *fs, fuse_ino_t dir, const char *name);

/*
 * Posts the job when all that was told so far of that thread's has been sent: for whoever is to
 * look only then. At the end of the mount it is posted all the same.
 */
void notifier_sync(struct fs *fs, const struct thread *t, struct job *job);
/*
 * Attributes of an inode, before this returns: for changes of our own, which whoever made them
 * may look at as soon as he is answered. This is the only one that the kernel makes wait for
 * nobody; a moment later if it holds another one that an umount would wait for: false.
 */
bool notify_attr_now(struct fs *fs, fuse_ino_t ino);
/* The same for many: what cannot be had by then (as clock_ms()) is left to the others. */
bool notify_attr_by(struct fs *fs, fuse_ino_t ino, int64_t latest_ms);

/*
 * All names of the mount are looked up before they are used again, before this returns, and it
 * waits for nobody. False: the kernel cannot do that (it is older than 6.16).
 */
bool notify_names_now(struct fs *fs);

/*
 * Whether the kernel has taken nothing for two seconds since this was asked before. It does that
 * only while it ends the mount: it waits there for all notifications, and one of them may wait for
 * an answer of ours. Any thread.
 */
bool notifier_is_shut(struct fs *fs);

/* How many were sent so far; any thread. */
uint64_t notifier_sent(struct fs *fs);

/*
 * Tells the kernel that what it has cached is not true any more, from a thread
 * of its own: the kernel may make a notification wait for a request that only the
 * loop can answer. Functions are for the loop's thread; they never wait. What is
 * told twice before it was sent is sent once; when too much waits, the kernel is
 * told about everything of the mount instead.
 */
#pragma once

#include "fs.h"

struct notifier;

/* With the session mounted; fs->notifier. */
int notifier_start(struct fs *fs) MUST_CHECK;
/* Nothing is sent any more; returns when its thread has ended. Before the session ends. NULL in
 * fs->notifier is fine, there and below (tests without a mount). */
void notifier_stop(struct fs *fs);

/* Attributes of an inode; with data also its pages (of a directory: what readdir has cached). */
void notify_inode(struct fs *fs, fuse_ino_t ino, bool data);
/* A name in a directory, whether it was there or not. */
void notify_entry(struct fs *fs, fuse_ino_t dir, const char *name);

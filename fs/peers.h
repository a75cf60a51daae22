/*
 * The other names of files: the watch of a sandbox tells of a change under one name, and
 * what is known under the others is old then, too. Such a name can be quite new: until there was
 * one the file had a single name, and what was known of it was to last.
 *
 * To find them all that is known of the thread is gone through, so this is done for many files
 * at once: as soon as the events that have come are dealt with, but never for more than a small
 * part of the time. A second later it is done again, for answers that were on their way when
 * the event came. Loop thread only.
 */
#pragma once

#include "thread.h"

/* The file of that number (in the sandbox) changed, under the name of own (0: there is no node).
 * -ENOMEM: then nothing that is known of the thread can be trusted. */
int peers_note(struct thread *t, uint64_t file, fuse_ino_t own) MUST_CHECK;
void peers_free(struct thread *t);

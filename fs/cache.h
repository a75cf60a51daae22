/*
 * What is cached of a sandbox, here and in the kernel, and what a change in the
 * sandbox means for it. While the thread's watch is live (thread->watched) what
 * is cached is true until an event says otherwise; else for a second. Loop
 * thread only; the kernel is told by the notifier's own thread (notifier.h).
 *
 * What the kernel is given may last as long as it is true here, if it can be taken back:
 * attributes and names of a node whose answer is current (trip_is_current(), node_is_fresh()); an
 * absent name after absent_add(); otherwise not at all. Without a watch that is a second. A
 * thread's own directory is in no watch. Who takes a name away from a node without having been
 * asked by the kernel (node_detach()) tells it, first: notify_entry().
 */
#pragma once

#include "thread.h"
#include "watch_event.h"

/* Events come from now on: what was learned before may be old, what is learned from now on lasts.
 */
void cache_live(struct thread *t);
/* Events may have been missed, or none come any more: nothing is to be believed. */
void cache_lost(struct thread *t);
/* One change; paths below the view's root. */
void cache_event(struct thread *t, const struct watch_event *ev);
/* A file changed under another of its names. */
void cache_void_file(struct node *n);

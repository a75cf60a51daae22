/*
 * The file watch of a thread's sandbox: one for all that want to know, kept as
 * long as the thread is in use here, and what it says passed on, to the caches
 * (cache.h) and to those who read .ctl/events. It is no use of the sandbox: it
 * keeps no lease. Where the server has no watch, or has enough of them, it is not
 * tried again with that sandbox. Loop thread only.
 */
#pragma once

#include "thread.h"
#include "watch_event.h"

/* The thread came into use with a running sandbox: sees to it that it is watched. */
void coherence_begin(struct thread *t);
/* Ends the watch: the thread goes away, or the mount ends. */
void coherence_end(struct thread *t);
/* For status: "live", "starting", "lost" (it is being had again), "unsupported", "off". */
const char *coherence_state(const struct thread *t);

/* Somebody who wants to hear of every event. */
struct watcher {
	void (*event)(struct watcher *w, const struct watch_event *ev);
	void (*lost)(struct watcher *w); /* some were missed */
	void (*ended)(struct watcher *w,
		      int err); /* none will come; it is not on the list any more */
	struct watcher *prev, *next;
};
/* Both may be called at any time but from inside the callbacks; unsubscribing twice is harmless. */
void coherence_subscribe(struct thread *t, struct watcher *w);
void coherence_unsubscribe(struct thread *t, struct watcher *w);

/*
 * The file watch of a thread's sandbox: one for all that want to know, kept as
 * long as the thread is in use here, and what it says passed on, to the caches
 * (cache.h) and to those who read .ctl/events. It is no use of the sandbox: it
 * keeps no lease, and ends with the sandbox's client, which the provider closes when the
 * last lease is gone or the sandbox is to be another. Where the server has no watch, or has enough
 * of them, it is not tried again with that sandbox. Loop thread only.
 */
#pragma once

#include "thread.h"
#include "watch_event.h"

/* The thread came into use with a running sandbox: sees to it that it is watched. */
void coherence_begin(struct thread *t);
/* Ends the watch, if there is one. */
void coherence_end(struct thread *t);
/* The thread goes away; its watch has ended. */
void coherence_free(struct thread *t);
/* For status: "live", "flooded" (too many events: see charge()), "starting", "lost" (it is being
 * had again), "unsupported", "off". */
const char *coherence_state(const struct thread *t);
/* Its server has no watch at all, so there will be none as long as that sandbox is the thread's. */
bool coherence_is_impossible(const struct thread *t);

/* Somebody who wants to hear of every event. */
struct watcher {
	/* Paths are below the view's root, old_path too. */
	void (*event)(struct watcher *w, const struct watch_event *ev);
	void (*lost)(struct watcher *w); /* some were missed */
	/* None will come; it is not on the list any more. err: why there never was one; 0: there
	 * was, and the sandbox is gone. */
	void (*ended)(struct watcher *w, int err);

	/* private to coherence.c */
	bool live; /* it was, once */
	struct watcher *prev, *next;
};
/*
 * Begins the watch if there is none; with a lease, so that there is a sandbox. Returns 0, or why
 * it cannot be watched. Not from inside the callbacks, as the next one; unsubscribing
 * twice is harmless.
 */
int coherence_subscribe(struct thread *t, struct watcher *w) MUST_CHECK;
void coherence_unsubscribe(struct thread *t, struct watcher *w);

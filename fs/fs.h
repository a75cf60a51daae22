/*
 * One mount, as the files of fs/ share it. Everything here lives on the loop's
 * thread; FUSE requests are read there, too (session.h), so nothing is locked.
 */
#pragma once

#include <ev.h>
#include <fuse_lowlevel.h>

#include "asked.h"
#include "options.h"
#include "provider.h"

struct fuse_session;
struct session;
struct notifier;
struct contents;
struct node;
struct thread;
struct workers;
struct ctl_open;
struct dir;
struct listing;
struct staging;

struct fs_totals {
	uint64_t requests, errors, interrupted;  /* FUSE */
	uint64_t remote, remote_failed, retried; /* operations on sandboxes */
	uint64_t bytes_down, bytes_up;           /* over the wire */
	uint64_t bytes_read, bytes_written;      /* through the mount */
	uint64_t names_dropped, links_refused;   /* of hostile sandboxes */
	uint64_t commands;
	uint64_t listings, walks;              /* asked for: directories, and trees of them */
	uint64_t prefetches;                   /* of these before anybody asked */
	uint64_t events, watches_lost, floods; /* coherence.h */
	uint64_t ahead_fetched, ahead_used, ahead_wasted; /* small files: ahead.h */
	unsigned open_files, parked;
};

struct fs {
	const struct options *opt; /* immutable */
	struct loop *loop;
	struct ev_loop *ev;
	struct provider *provider;
	const char *backend;       /* its name */
	struct workers *workers;   /* for the host's disk */
	struct workers *syncers;   /* for what waits until that has written: seconds */
	struct fuse_session *se;   /* NULL in tests, and once it ended */
	struct session *session;   /* how it is read; session.c */
	struct notifier *notifier; /* notifier.h; NULL: the kernel is not told */
	bool names_at_once;        /* notify_names_now() works */

	struct node *root, *nodes; /* nodes by ino */
	fuse_ino_t last_ino;
	size_t absent_count;    /* absent.h */
	struct thread *threads; /* by id */
	/* what is open besides files of sandboxes; at the end nobody closes it for us */
	struct ctl_open *ctl_opens; /* ctl.c */
	struct dir *dirs;           /* dir.c */

	int cache_dir;            /* directory descriptor; staging and spool files go there */
	uint64_t cache_used;      /* bytes in those files, and in memory before they need one */
	uint64_t spool_memory;    /* what is taken for the latter */
	unsigned spool_files;     /* how many are open; capped, see spool_has_room() */
	struct staging *staging;  /* staging.h: what outlives the daemon; NULL: nothing does */
	uint64_t moves;           /* counts names that went or changed */
	unsigned litter_removals; /* under way: litter.h */
	unsigned under_way;       /* operations on sandboxes (remote.h), and commands (jobs.h) */
	/* shelf.h: the listings of all threads, those that were used last at the end */
	struct listing *shelf;
	uint64_t shelf_used; /* bytes in them */
	unsigned shelf_count;
	uint64_t memory_used;      /* bytes in read windows, and of small files */
	struct reader *idlers;     /* reader.c: whose windows can go when there are too many */
	struct contents *contents; /* contents.h; NULL: none yet */

	int64_t started_ms;
	double started_wall;
	struct fs_totals totals;
	struct asked asked;
	bool ending; /* no new requests */
};

/*
 * What is known of one directory: its names, with attributes, and so also which
 * names it does not have. A listing of the sandbox makes it; from then on our own
 * changes and events of the watch change it name by name, so that all the other
 * names (and absences) stay known.
 *
 * A name has a place that it keeps as long as the listing lives. Whoever reads the directory
 * counts the listing and remembers how many places there were: what comes later has
 * later places, what goes leaves a hole. So offsets stay true without a copy.
 * Pure; no threads.
 */
#pragma once

#include "entries.h"
#include "hash.h"

enum item_state {
	ITEM_KNOWN,  /* there, with these attributes */
	ITEM_STALE,  /* there; its attributes are to be asked for */
	ITEM_UNSURE, /* something happened to the name: ask whether it is there */
	ITEM_GONE,   /* not there */
};

/* Owner and group of the sandbox are not shown, so they are not kept. */
struct item {
	uint32_t name, target; /* in the listing's text; target 0: none */
	uint32_t hash;
	uint8_t state;
	bool partial;
	uint32_t mode, nlink;
	uint32_t mtime_ns, ctime_ns;
	int64_t mtime, ctime;
	uint64_t size, blocks, ino, dev;
};

struct node;
struct thread;

struct listing {
	unsigned refs;
	char *path; /* below the thread's root; "" is that */
	/* When it was asked for, and in which epoch of the thread: shelf.h says how long that
	 * lasts. */
	int64_t asked_ms;
	uint64_t epoch;
	bool complete;   /* false: some were left out, so a name that is missing may be there */
	uint64_t serial; /* another one with every change of the names */
	unsigned misses; /* names that had to be asked for */

	struct item *v;
	uint32_t n, cap;
	uint32_t live;   /* there, or perhaps */
	uint32_t stale;  /* of these, with attributes that are not known */
	uint32_t unsure; /* of these, perhaps not there */
	char *text;      /* the names, each with its NUL */
	uint32_t text_len, text_cap;
	uint32_t *slots; /* places by hash, plus one; 0: free */
	uint32_t slot_mask;

	/* for shelf.c */
	struct thread *thread;     /* NULL: not on a shelf */
	struct shelf_place *place; /* its own there */
	struct node *node;         /* which has it as its own; or NULL */
	int64_t read_ms;           /* when somebody read the directory from it */
	size_t bytes;              /* as they are counted */
	struct listing *prev, *next;
	UT_hash_handle hh;
};

/* expect: about how many names will come. */
int listing_new(const char *path, size_t expect, struct listing **ret) MUST_CHECK;
struct listing *listing_ref(struct listing *l);
void listing_unref(struct listing *l); /* NULL is fine */

/* NULL: the name is not there. Valid until the next change. */
struct item *listing_find(const struct listing *l, const char *name);
static inline const char *item_name(const struct listing *l, const struct item *i)
{
	return l->text + i->name;
}
static inline const char *item_target(const struct listing *l, const struct item *i)
{
	return i->target ? l->text + i->target : NULL;
}
void item_attr(const struct item *i, struct attr *ret);

/* The name is there; attr NULL: as what is not known. target may be NULL. */
int listing_put(struct listing *l, const char *name, size_t len, const struct attr *attr,
		const char *target) MUST_CHECK;
/* The attributes of a name that is there; nothing otherwise. */
void listing_update(struct listing *l, const char *name, const struct attr *attr);
/* Its attributes are not known any more. */
void listing_void(struct listing *l, const char *name);
/* Nor those of any name of that file. */
void listing_void_file(struct listing *l, uint64_t ino, uint64_t dev);
/* Nor whether it is there. */
int listing_doubt(struct listing *l, const char *name) MUST_CHECK;
void listing_remove(struct listing *l, const char *name);
/* What it takes in memory. */
size_t listing_size(const struct listing *l);

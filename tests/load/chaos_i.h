/*
 * What the parts of chaos share: the state of all files and workers, in memory
 * that outlives whoever is killed. Workers are processes, so that one that hangs
 * in the kernel holds up nobody. A slot is written by its thread's writer only and
 * read by everybody.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "fault.h"

enum {
	THREADS = 8,
	WORKERS = 2 * THREADS, /* a writer each, and one that reads and runs commands */
	SLOTS = 5,             /* files of a thread at a time */
	RETIRED = 4096,        /* files that were given up after an error, per thread */
	LINES = 65536,         /* appended, and commands, per thread */
	CONTENT_MAX = 3 << 20,
	BLOCK = 512, /* what is written in place begins at one, and ends at one or with the version
		      */
};

/* What may be there: some version from confirmed to attempted, whole. */
struct slot {
	_Atomic uint32_t generation; /* of the name */
	_Atomic uint32_t confirmed;  /* 0: there may be none */
	_Atomic uint32_t attempted;
	_Atomic uint32_t floor; /* versions up to this one were removed, for certain */
	_Atomic uint32_t moves; /* odd: it is being written or renamed */
	_Atomic bool elsewhere; /* its name is the second one */
	_Atomic bool unsure;    /* it may have either name, or both */
	_Atomic bool absent;    /* there is none, for certain */
	_Atomic bool may_be_absent;
	_Atomic bool torn; /* a write() failed: then it may be a part of a version */
	/* 0, or the version that was written over one in place, not confirmed: then it may have
	 * parts of both, until one is confirmed. */
	_Atomic uint32_t edited;
};

enum fate { FATE_NONE, FATE_UNSURE, FATE_CONFIRMED };

struct worker {
	_Atomic pid_t pid;
	_Atomic int64_t since_ms; /* of what it does now; 0: nothing */
	char op[160];
	uint64_t random;
};

enum tally {
	T_WRITES, /* that were confirmed */
	T_EDITS,
	T_APPENDS,
	T_RENAMES,
	T_UNLINKS,
	T_READS, /* that were whole and right */
	T_COMMANDS,
	T_FAILED, /* operations that had an error */
	T_TALLIES,
};

struct shared {
	_Atomic bool stop;
	_Atomic unsigned epoch; /* odd: a mount is there; every kill and mount is another */
	_Atomic unsigned losses;
	_Atomic uint64_t tally[T_TALLIES];
	_Atomic unsigned errnos[134];
	struct worker workers[WORKERS];
	struct slot slots[THREADS][SLOTS];
	struct slot retired[THREADS][RETIRED];
	_Atomic unsigned retired_count[THREADS];
	_Atomic unsigned failed_saves[THREADS];
	_Atomic bool disk_was_full;            /* then a part of a line may have been appended */
	_Atomic uint8_t lines[THREADS][LINES]; /* enum fate */
	_Atomic unsigned line_count[THREADS];
	_Atomic uint8_t commands[THREADS][LINES];
	_Atomic unsigned command_count[THREADS];
};

struct chaos {
	uint64_t seed;
	const char *mount; /* the mountpoint */
	const char *data;  /* of the sandboxes, on the host */
	struct shared *shared;
};

extern struct chaos chaos;

/* A confirmed file is not what it has to be. Says so and counts it. */
void chaos_loss(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* The bytes of a version. Returns how many; buf has room for CONTENT_MAX. */
size_t content_make(char *buf, unsigned thread, uint32_t generation, unsigned slot,
		    uint32_t version);
/* Which version that is, if it is a whole one of that file; else 0. scratch as buf above. */
uint32_t content_version(const char *data, size_t len, char *scratch, unsigned thread,
			 uint32_t generation, unsigned slot);
/*
 * Whether each block is of the edited version of the slot's file, or of the one that was there: one
 * from confirmed on, with zeros behind its end. From one thread.
 */
bool content_is_edit(const char *data, size_t len, unsigned thread, const struct slot *s,
		     unsigned slot);
/* The name of a slot's file: one of two. */
void slot_name(char *name, size_t size, uint32_t generation, unsigned slot, bool second);

/* Child processes; they return when shared->stop is set. */
void chaos_writer(unsigned thread, struct worker *w);
void chaos_visitor(unsigned thread, struct worker *w);

/*
 * Uploads that were broken off by a kill leave temporary files, which the mount removes when they
 * are old: they become old, and it gets its chance. Returns how many there were.
 */
unsigned chaos_tidy(const char *mount, const char *host);
/*
 * Compares all files below ROOT/THREAD/outputs with what is known; suffix comes
 * between the two. Only when nobody is at work. Returns how many were verified.
 */
uint64_t chaos_verify(const char *root, const char *suffix, const char *who);

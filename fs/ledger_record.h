/*
 * What is written down of a file whose content the sandbox has not confirmed yet:
 * whose it is, what it was made from, and which bytes count. It lies in front of
 * the content, in one of two slots that are written in turn, so that one that was
 * written by half leaves the other. Pure.
 */
#pragma once

#include <time.h>

#include "extents.h"

enum {
	LEDGER_SLOT = 32 * 1024,
	LEDGER_HEAD = 2 * LEDGER_SLOT, /* the content begins behind it */
};

/* Which version of the file it was. Zeros: not known. */
struct ledger_version {
	bool there; /* there was a file */
	uint64_t size, ino;
	struct timespec mtime;
};

enum ledger_kind {
	LEDGER_WHOLE,  /* the content is the file, all of it */
	LEDGER_PATCH,  /* only `written` of it is; the rest is the base's, up to base_len */
	LEDGER_APPEND, /* the content from `from` on belongs behind the base */
	LEDGER_KINDS,
};

struct ledger_record {
	char *source, *user, *thread; /* whose */
	char *path;                   /* below the thread's root */
	enum ledger_kind kind;
	bool settled; /* the sandbox has it: nothing is to be done */
	struct ledger_version base;
	uint64_t base_len, from;
	int mode;              /* to be set; -1: none */
	bool times;            /* mtime is to be set */
	struct timespec mtime; /* when it was written, or what is to be set */
	int error;             /* why the last try failed; 0: none did */
	struct extents written;

	/* For what comes after a failure of the power: the record may be on the disk without the
	 * content. NULL, 0, false where it was written by an older version of the program. */
	char *boot;     /* of the kernel that it was written under; it has what was not synced */
	uint64_t size;  /* of the content then */
	bool durable;   /* all of that was on the disk before this was written */
	uint64_t maybe; /* of an append: so much was sent, and may still come */
};
void ledger_record_release(struct ledger_record *rec);
#define CLEANUP_RECORD CLEANUP(ledger_record_release)

/* Whether content of that size is what was written; otherwise there may be zeros in its place.
 * boot: the kernel's that is running now; "": not known. */
bool ledger_is_certain(const struct ledger_record *rec, const char *boot, uint64_t size);

/* One slot. -E2BIG: it does not fit (too many pieces were written). */
int ledger_encode(const struct ledger_record *rec, uint64_t seq, char to[LEDGER_SLOT],
		  size_t *ret_len) MUST_CHECK;
/*
 * The newer one of two slots that is whole. -EBADMSG: neither is; -EPROTONOSUPPORT: it is of
 * another version of the program. What it names was checked: an id, a path without "..".
 */
int ledger_decode(const char head[LEDGER_HEAD], struct ledger_record *ret,
		  uint64_t *ret_seq) MUST_CHECK;

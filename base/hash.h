/*
 * Hash tables: uthash, with two of its defaults undone. That a program which finds no memory
 * for one more element exits on the spot: here that element is not added, and whoever adds has to
 * look:
 *
 *	HASH_ADD_STR(table, id, e);
 *	if (!HASH_TOOK(hh, e))
 *		return -ENOMEM;
 *
 * And that everybody can say which names collide: a sandbox could make so many of them that looking
 * for one holds up all others.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* By a key of this process that nobody knows. */
uint32_t hash_of(const void *bytes, size_t len);
/* SipHash-1-3. */
uint64_t hash_with(const uint64_t with[2], const void *bytes, size_t len);

#define HASH_NONFATAL_OOM              1
#define HASH_FUNCTION(bytes, len, ret) ((ret) = hash_of(bytes, len))
#include <uthash.h>

/* Right behind an addition of e by its handle hh. */
#define HASH_TOOK(hh, e) ((e)->hh.tbl != NULL)
